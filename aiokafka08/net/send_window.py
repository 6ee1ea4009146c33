"""Measure what the connection to one broker needs in flight, so that it is never idle.

`producer.sink` owns one `SendWindow` per leader and asks it before each request. Pure: times are
passed as `now`.

A broker works on one request of a connection at a time, so a second request in flight is of use
only while the first one, or its response, is on its way. What has to be in flight is therefore
rate times round trip. More of it makes batches small where there are many partitions, and large
where there is one: plain batches that grow without need punish every reader of the topic
(docs/brokers.md 7.15).

- The round trip is the shortest time of the latest small requests that had the connection for
  themselves. If there was none for a while, `is_probe_due` asks for one.
- The rate is what was acknowledged in the time in which requests were in flight. For the growth of
  batches only requests of at least `MIN_GROWTH_BYTES` count: smaller ones come from callers that
  don't use the link. Before the first of them, batches may grow without limit on a link with a long
  round trip.

Invariants:

- The window isn't full before the first round trip is measured, nor with fewer than `MIN_BATCHES`
  in flight.
- `growth_bytes` is never above the `max_request_size` it was given. It is below `MIN_GROWTH_BYTES`
  only while the requests so far were too large to measure the round trip: batches then grow only
  as far as one that measures it.
"""

from __future__ import annotations

from collections import deque
from typing import Final

MIN_BATCHES: Final = 32
"""Batches in flight below which the window is never full: a broker's work for them takes about a
millisecond."""

MIN_GROWTH_BYTES: Final = 256 * 1024
"""Size to which a plain batch may grow on every link."""

PROBE_BATCHES: Final = 16
PROBE_BYTES: Final = 64 * 1024
"""A request of at most this many batches and bytes measures the round trip. A single batch that
hasn't grown behind another one does so too, if `max_batch_size` is larger."""

_NEAR_S: Final = 0.005
"""A round trip up to which `MIN_GROWTH_BYTES` is enough for any broker: it makes 50 MB/s."""

_GAIN: Final = 2.0
"""How many times rate x round trip may be in flight. Above 1, so that the rate can grow."""

_PROBE_EVERY: Final = 100
"""A probe is due after this many round trips without one: probes cost a hundredth of the time."""

_MIN_PROBE_S: Final = 0.1
_RETRY_PROBE_S: Final = 1.0
"""A probe is due again this long after one that was too large, if there was no other."""

_SAMPLES: Final = 8
_DECAY: Final = 7 / 8
"""Weight of the earlier responses in the rate, for each further one."""


class SendWindow:
    """The measurements of one connection's requests.

    Args:
        max_growth_bytes: upper limit of `growth_bytes`.
        batch_bytes: size of a batch that hasn't grown.

    Attributes:
        growth_bytes: the size to which a plain batch may grow behind another one.
    """

    __slots__ = (
        "_batches",
        "_large_bytes",
        "_large_seconds",
        "_max_growth_bytes",
        "_probe_bytes",
        "_probed_at",
        "_responded_at",
        "_round_trips",
        "_seconds",
        "growth_bytes",
    )

    def __init__(self, max_growth_bytes: int, batch_bytes: int) -> None:
        self._max_growth_bytes = max_growth_bytes
        self._probe_bytes = max(PROBE_BYTES, batch_bytes)
        self.growth_bytes = min(MIN_GROWTH_BYTES, max_growth_bytes)
        self._round_trips: deque[float] = deque(maxlen=_SAMPLES)
        self._probed_at = 0.0
        self._responded_at = 0.0
        self._batches = self._seconds = 0.0
        self._large_bytes = self._large_seconds = 0.0  # of requests that show the link's rate

    @property
    def round_trip_s(self) -> float | None:
        """The shortest of the latest round trips; None before the first."""
        return min(self._round_trips, default=None)

    @property
    def is_new(self) -> bool:
        """Whether no response has come yet."""
        return not self._responded_at

    def is_full(self, batches: int) -> bool:
        """Return whether `batches` in flight keep the broker busy."""
        if batches < MIN_BATCHES or not self._round_trips:
            return False
        return batches * self._seconds >= _GAIN * self._batches * min(self._round_trips)

    def is_probe_due(self, now: float) -> bool:
        """Return whether the next request should be small and alone, to measure the round trip."""
        round_trip_s = self.round_trip_s
        if round_trip_s is None:
            return self.is_new or now >= self._probed_at + _RETRY_PROBE_S
        return now >= self._probed_at + max(_PROBE_EVERY * round_trip_s, _MIN_PROBE_S)

    def acknowledged(
        self, sent_at: float, now: float, batches: int, size_bytes: int, *, alone: bool
    ) -> None:
        """Count a response.

        Args:
            sent_at: when its request was sent.
            now: the time.
            batches: number of batches in the request.
            size_bytes: bytes of its message sets.
            alone: no other request was in flight when it was sent.
        """
        if alone and batches <= PROBE_BATCHES:
            self._probed_at = now  # also if it was too large, since all batches have grown
            if size_bytes <= self._probe_bytes:
                self._round_trips.append(now - sent_at)
        seconds = now - max(sent_at, self._responded_at)
        self._responded_at = now
        self._batches = self._batches * _DECAY + batches
        self._seconds = self._seconds * _DECAY + seconds
        if size_bytes >= MIN_GROWTH_BYTES:
            self._large_bytes = self._large_bytes * _DECAY + size_bytes
            self._large_seconds = self._large_seconds * _DECAY + seconds
        self.growth_bytes = min(self._needed_bytes(), self._max_growth_bytes)

    def _needed_bytes(self) -> int:
        round_trip_s = self.round_trip_s
        if round_trip_s is None:
            return self._probe_bytes
        if round_trip_s <= _NEAR_S:
            return MIN_GROWTH_BYTES
        if self._large_seconds <= 0:
            return self._max_growth_bytes  # far, and of unknown rate
        rate = self._large_bytes / self._large_seconds
        return max(MIN_GROWTH_BYTES, int(_GAIN * rate * round_trip_s))
