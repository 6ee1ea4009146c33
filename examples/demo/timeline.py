"""The acknowledged messages over the time of the ingest, and percentiles. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise


@dataclass
class Timeline:
    """How many messages were acknowledged by when; times are seconds since the ingest began."""

    seconds: list[float] = field(default_factory=list)
    acknowledged: list[int] = field(default_factory=list)
    killed_s: float | None = None
    """When the leader was killed."""

    def add(self, seconds: float, acknowledged: int) -> None:
        """Add a sample. Both numbers are at least those of the sample before."""
        self.seconds.append(seconds)
        self.acknowledged.append(acknowledged)

    def rates(self, most: int) -> tuple[list[float], list[float]]:
        """Return the ends of at most `most` equal intervals, and the messages/s in each."""
        if len(self.seconds) < 2 or self.seconds[-1] <= 0:
            return [], []
        count = min(most, len(self.seconds) - 1)
        width = self.seconds[-1] / count
        ends = [width * number for number in range(1, count + 1)]
        totals = [0.0, *map(self._acknowledged_by, ends)]
        return ends, [(after - before) / width for before, after in pairwise(totals)]

    def longest_pause_s(self) -> float:
        """Return the longest time without an acknowledgement, after the first one."""
        longest = began = 0.0
        last = 0
        for seconds, acknowledged in zip(self.seconds, self.acknowledged, strict=True):
            if last and acknowledged == last:
                longest = max(longest, seconds - began)
            else:
                began, last = seconds, acknowledged
        return longest

    def _acknowledged_by(self, seconds: float) -> float:
        """Return the number at a time, interpolated between two samples."""
        after = min(bisect_left(self.seconds, seconds), len(self.seconds) - 1)
        if after == 0:
            return self.acknowledged[0]
        begin, end = self.seconds[after - 1], self.seconds[after]
        low, high = self.acknowledged[after - 1], self.acknowledged[after]
        share = min((seconds - begin) / (end - begin), 1.0) if end > begin else 1.0
        return low + share * (high - low)


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest value that is at least as large as `percent` of the values."""
    ordered = sorted(values)
    return ordered[max(-(-int(percent * len(ordered)) // 100) - 1, 0)]
