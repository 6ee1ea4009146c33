"""`PointHistory`: a value over time, for graphs. Pure.

Invariant: times never decrease, and memory is bounded: the `recent` newest points, and about one
older point per minute, at most `minutes` of them. A constant value takes two points, for its first
time and its last.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import Final

_MINUTE_S: Final = 60.0
_SHOWN_S: Final = 86_400.0


class PointHistory:
    """The values of one thing, such as a group's lag, at the times of samples.

    Args:
        recent: how many of the newest points are kept, however close in time.
        minutes: how many older points are kept, about one per minute (default 0).
    """

    # A large cluster has many histories, so each is one or two arrays: time, value, time, value...

    __slots__ = ("_minutes", "_old", "_recent", "_size")

    def __init__(self, recent: int, minutes: int = 0) -> None:
        self._size, self._minutes = recent, minutes
        self._recent = array("d")
        self._old: array[float] | None = None

    def add(self, now: float, value: float) -> None:
        """Add a point, at a time in seconds of any clock that doesn't go back."""
        points = self._recent
        if len(points) >= 4 and points[-3] == value == points[-1]:
            points[-2] = now
            return
        points.extend((now, value))
        if len(points) <= 2 * self._size:
            return
        oldest = points[:2]
        del points[:2]
        if not self._minutes:
            return
        if self._old is None:
            self._old = oldest
        # Points a minute or more apart may be the two points of a constant value: keep both.
        elif max(oldest[0] - self._old[-2], points[0] - oldest[0]) >= _MINUTE_S:
            self._old.extend(oldest)
            if len(self._old) > 2 * self._minutes:
                del self._old[:2]

    @property
    def last_at(self) -> float | None:
        """The time of the newest point; None without one."""
        return self._recent[-2] if self._recent else None

    @property
    def last(self) -> float | None:
        """The newest value; None without one."""
        return self._recent[-1] if self._recent else None

    def points(self, window_s: float = _SHOWN_S) -> list[tuple[float, float]]:
        """Return the points of the `window_s` seconds before the newest one, in order of time.

        If the value was constant across the window's start, the first point is at that start.
        """
        return self._since((self.last_at or 0.0) - window_s)

    def slope(self, now: float, window_s: float) -> float | None:
        """Return the growth per second in the last `window_s` seconds; None without two points."""
        points = self._since(now - window_s)
        if not points or points[-1][0] <= points[0][0]:
            return None
        (begin, first), (end, last) = points[0], points[-1]
        return (last - first) / (end - begin)

    def _since(self, begin: float) -> list[tuple[float, float]]:
        flat = self._recent if self._old is None else self._old + self._recent
        points = list(zip(flat[::2], flat[1::2], strict=True))
        at = bisect_left(points, (begin,))
        if 0 < at < len(points) and points[at - 1][1] == points[at][1]:
            return [(begin, points[at][1]), *points[at:]]
        return points[at:]
