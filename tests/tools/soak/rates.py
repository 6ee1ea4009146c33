"""Tell from counts at a few moments whether work goes on at its rate. Pure.

Invariant: the rate holds if in the last third of a run it is at least `LEAST` of that in the first
third. It says nothing of how fast the machine is, but the load must be the same all the time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

LEAST: Final = 0.5
"""The share of its first rate that work must keep: a machine has better and worse minutes."""


class Point(NamedTuple):
    """What was done by a moment."""

    at_s: float
    done: float


@dataclass
class Rates:
    """The points of a run.

    Attributes:
        unit: what is counted, for texts.
    """

    unit: str
    points: list[Point] = field(default_factory=list)

    def thirds(self) -> tuple[float, float]:
        """Return the rates a second in the first and the last third.

        Raises:
            ValueError: there are fewer than six points.
        """
        count = len(self.points)
        if count < 6:
            raise ValueError(f"{count} points: expected at least 6, from a longer run")
        third = (count - 1) // 3
        first = rate(self.points[0], self.points[third])
        return first, rate(self.points[-third - 1], self.points[-1])

    @property
    def is_held(self) -> bool:
        """Whether the rate holds."""
        first, last = self.thirds()
        return last >= LEAST * first

    def since(self, point: Point) -> str:
        """Return the rate from a point to the last one, as a text."""
        return f"{rate(point, self.points[-1]):.0f} {self.unit}/s"

    def __str__(self) -> str:
        first, last = self.thirds()
        verdict = "holds" if self.is_held else "DECAYS"
        return f"rate: {first:.0f} {self.unit}/s, in the last third {last:.0f}: {verdict}"


def rate(one: Point, other: Point) -> float:
    """Return the rate a second between two points; 0 if they have the same time."""
    seconds = other.at_s - one.at_s
    return (other.done - one.done) / seconds if seconds else 0.0
