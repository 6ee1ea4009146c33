"""`OffsetHistory`: when a log reached an offset, from samples of its end or of its start.

Pure: the caller passes the time, in seconds of any monotonic clock.

Invariant: times and offsets never decrease from one kept sample to the next. Thinning makes gaps
of at most `PRECISION` of the samples' age, so a computed lag is wrong by at most that part of it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import Final

# The largest gap that thinning makes, as a part of the samples' age. Keeps a long history small.
PRECISION: Final = 0.05
# A history of this many samples is thinned.
_THIN_AT: Final = 128


class OffsetHistory:
    """Samples of one offset that grows."""

    __slots__ = ("_offsets", "_thin_at", "_times")

    def __init__(self) -> None:
        self._times = array("d")
        self._offsets = array("q")
        self._thin_at = _THIN_AT

    def __len__(self) -> int:
        return len(self._times)

    @property
    def last(self) -> int | None:
        """The newest offset; None without a sample."""
        return self._offsets[-1] if self._offsets else None

    @property
    def begin(self) -> float | None:
        """The time of the oldest sample; None without a sample."""
        return self._times[0] if self._times else None

    def add(self, now: float, offset: int) -> None:
        """Add a sample; if the offset has fallen, drop the samples above it."""
        times, offsets = self._times, self._offsets
        # The log was truncated, or deleted and created anew: samples above are of messages that are
        # gone.
        if offsets and offset < offsets[-1]:
            kept = bisect_right(offsets, offset)
            del times[kept:], offsets[kept:]
        if len(offsets) >= 2 and offsets[-2] == offset == offsets[-1]:
            times[-1] = now  # two samples are enough for the time in which the offset stayed
            return
        times.append(now)
        offsets.append(offset)
        if len(times) >= self._thin_at:
            self._thin(now)
            self._thin_at = max(2 * len(self._times), _THIN_AT)

    def time_of(self, offset: int) -> float | None:
        """Return when the message with this offset was written, or the offset was deleted.

        Between two samples it is interpolated. Before the first sample, that sample's time is
        returned, as the latest possible time. None if the message isn't written yet.
        """
        after = bisect_right(self._offsets, offset)
        if after == len(self._offsets):
            return None
        if after == 0:
            return self._times[0]
        low, high = self._offsets[after - 1], self._offsets[after]
        begin, end = self._times[after - 1], self._times[after]
        return begin + (end - begin) * (offset + 1 - low) / (high - low)

    def rate(self, now: float, window_s: float) -> float | None:
        """Return by how many offsets a second it grew in about the last `window_s` seconds.

        The measured time begins at the last sample before the window, if there is one. None without
        samples of at least two moments.
        """
        begin = max(bisect_right(self._times, now - window_s) - 1, 0)
        if len(self._times) - begin < 2 or self._times[-1] == self._times[begin]:
            return None
        grown = self._offsets[-1] - self._offsets[begin]
        return grown / (self._times[-1] - self._times[begin])

    def _thin(self, now: float) -> None:
        """Drop samples whose neighbours are close together in relation to their age."""
        times, offsets = self._times, self._offsets
        kept = [0]
        for index in range(1, len(times) - 1):
            gap = times[index + 1] - times[kept[-1]]
            if gap > PRECISION * (now - times[index + 1]):
                kept.append(index)
        kept.append(len(times) - 1)
        self._times = array("d", (times[index] for index in kept))
        self._offsets = array("q", (offsets[index] for index in kept))
