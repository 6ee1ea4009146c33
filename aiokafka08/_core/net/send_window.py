"""Measure the round trip to a broker, and how many batches in flight keep it busy. Pure.

The round trip is the shortest time of the latest probes: small requests that had the connection for
themselves. `is_probe_due` asks for a probe if there was none for a while. Before the first probe
the round trip is `expected_s`; if that is 0, a larger request that was alone is measured, too.

Invariant: the window isn't full before the first response, nor with fewer than `MIN_BATCHES` in
flight.
"""

from __future__ import annotations

from collections import deque
from typing import Final

MIN_BATCHES: Final = 32
"""Batches in flight below which the window is never full. A broker handles this many in about a
millisecond."""

MIN_GROWTH_BYTES: Final = 256 * 1024
"""Size to which an uncompressed batch may grow, whatever the round trip."""

GROWTH_MESSAGES: Final = 2048
"""Number of messages to which an uncompressed batch may grow, whatever the round trip, if they take
at most `STORABLE_BYTES`. `MIN_GROWTH_BYTES` hold about as many messages of 100 bytes. A batch of
larger messages has more bytes, but brokers find an offset in it as fast, and it saves requests."""

STORABLE_BYTES: Final = 768 * 1024
"""Size of batch that brokers with default settings store in any case. Brokers from 0.11 on store a
batch as one record batch of at most 1,000,012 bytes."""

PARTITION_RATE: Final = 50 * 1024 * 1024
"""Bytes per second that can be sent to one partition. `MIN_GROWTH_BYTES` is enough for it up to a
round trip of 5 ms."""

PROBE_BATCHES: Final = 16
PROBE_BYTES: Final = 64 * 1024
"""A request of at most this many batches and bytes measures the round trip. The limit of bytes is
raised to `batch_bytes`, the size of a batch that hasn't grown, if that is larger."""

# How many round trips of work may be in flight. Above 1, so that the rate can grow.
_GAIN: Final = 2.0

# A probe is due after this many round trips without one: probes cost a hundredth of the time
_PROBE_EVERY: Final = 100

_MIN_PROBE_S: Final = 1.0
_SAMPLES: Final = 8
# With each response, the earlier ones keep this share of their weight in the time per batch
_DECAY: Final = 7 / 8


def growth_bytes(round_trip_s: float, message_bytes: float) -> int:
    """Return the size to which an uncompressed batch may grow while it waits for an earlier one."""
    # A larger batch than needed slows every reader of the topic down: a broker searches it message
    # by message, so its messages count, not its bytes (docs/brokers.md 7.15).
    by_messages = min(int(GROWTH_MESSAGES * message_bytes), STORABLE_BYTES)
    return max(MIN_GROWTH_BYTES, by_messages, int(PARTITION_RATE * round_trip_s))


def acks0_growth_bytes(round_trip_s: float, max_in_flight: int) -> int:
    """As `growth_bytes`, with acks=0."""
    # With acks=0 a batch that is too large is lost, and so are the requests sent after it. So it
    # grows no more than needed: `max_in_flight` batches of a partition share the round trip.
    by_round_trip = int(PARTITION_RATE * round_trip_s / max_in_flight)
    return min(max(MIN_GROWTH_BYTES, by_round_trip), STORABLE_BYTES)


class SendWindow:
    """The measurements of one connection's requests.

    `expected_s`: the round trip until one is measured; 0 if nothing is known of it. `batch_bytes`:
    size of a batch that hasn't grown.
    """

    __slots__ = (
        "_batches",
        "_expected_s",
        "_probe_bytes",
        "_probed_at",
        "_responded_at",
        "_round_trips",
        "_seconds",
    )

    def __init__(self, expected_s: float, batch_bytes: int) -> None:
        self._expected_s = expected_s
        self._probe_bytes = max(PROBE_BYTES, batch_bytes)
        self._round_trips: deque[float] = deque(maxlen=_SAMPLES)
        self._probed_at: float | None = None
        self._responded_at = 0.0
        # The batches that were acknowledged, and the seconds that the broker worked on them, with
        # decaying weights: their quotient is the time per batch
        self._batches = self._seconds = 0.0

    @property
    def round_trip_s(self) -> float:
        """The shortest of the latest round trips."""
        return min(self._round_trips, default=self._expected_s)

    @property
    def is_new(self) -> bool:
        return not self._batches

    def is_full(self, batches: int) -> bool:
        """Return whether `batches` in flight keep the broker busy."""
        if batches < MIN_BATCHES or self.is_new:
            return False
        # A broker works on one request of a connection at a time, so a second one is of use only
        # while the first one, or its response, is on its way. With many partitions, sending more
        # would make the batches small, because a batch that has left can't grow.
        return batches * self._seconds >= _GAIN * self._batches * self.round_trip_s

    def is_probe_due(self, now: float) -> bool:
        """Return whether the next request should be small and alone, to measure the round trip."""
        if self._probed_at is None:
            return True
        since_s = now - self._probed_at
        return since_s >= _MIN_PROBE_S and since_s >= _PROBE_EVERY * self.round_trip_s

    def acknowledged(
        self, sent_at: float, now: float, batches: int, size_bytes: int, *, alone: bool
    ) -> None:
        """Count a response; `alone`: no other request was in flight when its request was sent."""
        if alone and batches <= PROBE_BATCHES:
            # A request whose batches have grown is too large to measure, but postpones the next
            # probe, too. Otherwise each request would have to be a probe, sent alone.
            self._probed_at = now
            if size_bytes <= self._probe_bytes or not self.round_trip_s:
                self._round_trips.append(now - sent_at)
        self._batches = self._batches * _DECAY + batches
        self._seconds = self._seconds * _DECAY + now - max(sent_at, self._responded_at)
        self._responded_at = now
