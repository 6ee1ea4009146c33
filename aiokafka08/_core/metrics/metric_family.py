"""`MetricFamily`: one metric with its series, as Prometheus has it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """A gauge, or a counter, with its series.

    Attributes:
        name: its name; that of a counter ends with "_total".
        help: its meaning, one line.
        labels: the names of its labels.
        series: the values of the labels, and the metric's value.
    """

    name: str
    help: str
    labels: Sequence[str] = ()
    series: list[tuple[Labels, float]] = field(default_factory=list)

    def add(self, value: float, *labels: str) -> None:
        """Add a series."""
        self.series.append((labels, value))
