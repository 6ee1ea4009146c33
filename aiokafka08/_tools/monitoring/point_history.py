"""`PointHistory`: a value over time, for graphs. Pure.

Invariant: times never decrease, and memory is bounded: the `recent` newest points, and one point
per minute for `minutes` minutes.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final

_MINUTE_S: Final = 60.0


class PointHistory:
    """The values of one thing, such as a group's lag, at the times of samples.

    Args:
        recent: how many of the newest points are kept, all of them.
        minutes: how many points are kept for longer, one per minute (default 0).
    """

    __slots__ = ("_minutes", "_old", "_recent", "_size")

    def __init__(self, recent: int, minutes: int = 0) -> None:
        self._size, self._minutes = recent, minutes
        self._recent = (array("d"), array("d"))
        self._old = (array("d"), array("d"))

    def add(self, now: float, value: float) -> None:
        """Add a point, at a time in seconds of any clock that doesn't go back."""
        times, values = self._recent
        times.append(now)
        values.append(value)
        if len(times) > 2 * self._size:
            del times[: -self._size], values[: -self._size]
        old_times, old_values = self._old
        if self._minutes and (not old_times or now - old_times[-1] >= _MINUTE_S):
            old_times.append(now)
            old_values.append(value)
            if len(old_times) > 2 * self._minutes:
                del old_times[: -self._minutes], old_values[: -self._minutes]

    @property
    def last_at(self) -> float | None:
        """The time of the newest point; None without one."""
        times, _ = self._recent
        return times[-1] if times else None

    def points(self) -> list[tuple[float, float]]:
        """Return all points in order of time: first one per minute, then the recent ones."""
        times, values = (column[-self._size :] for column in self._recent)
        begin = times[0] if times else 0.0
        old = zip(*(column[-self._minutes :] for column in self._old), strict=True)
        earlier = [(at, value) for at, value in old if at < begin] if self._minutes else []
        return earlier + list(zip(times, values, strict=True))

    def recent(self, count: int) -> Sequence[float]:
        """Return the newest `count` values, or fewer if there are fewer."""
        return self._recent[1][-min(count, self._size) :]

    def slope(self, now: float, window_s: float) -> float | None:
        """Return the growth per second in the last `window_s` seconds; None without two points."""
        times, values = self._recent
        at = next((index for index, time in enumerate(times) if time >= now - window_s), None)
        if at is None or times[-1] <= times[at]:
            return None
        return (values[-1] - values[at]) / (times[-1] - times[at])
