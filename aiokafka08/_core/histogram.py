"""A histogram of times, for `metrics()` of the clients. Pure.

Invariant: to count a time takes a fraction of a microsecond, reads no clock, and allocates nothing
that stays.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from itertools import accumulate
from typing import Final

BOUNDS_S: Final = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 120.0, math.inf),
)
"""The upper bounds of the buckets, in seconds: a bound belongs to its bucket."""


class Histogram:
    """Counts times, in seconds.

    `name`: of its values in `metrics()`; ends with "_seconds".
    """

    __slots__ = ("_counts", "_name", "_sum_s")

    def __init__(self, name: str) -> None:
        self._name = name
        self._counts = [0] * len(BOUNDS_S)
        self._sum_s = 0.0

    def add(self, seconds: float) -> None:
        self._sum_s += seconds
        self._counts[bisect_left(BOUNDS_S, seconds)] += 1

    def metrics(self) -> dict[str, float]:
        """Return the number of times, their sum, and how many are up to each bound."""
        name = self._name
        return {
            f"{name}_count": sum(self._counts),
            f"{name}_sum": self._sum_s,
            **{
                f"{name}_bucket{{{bound:g}}}": count
                for bound, count in zip(BOUNDS_S, accumulate(self._counts), strict=True)
            },
        }
