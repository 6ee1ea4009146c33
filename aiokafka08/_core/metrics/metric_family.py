"""`MetricFamily`: one metric with its series, as Prometheus has it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """A gauge, or a counter, with its series."""

    name: str  # its name; that of a counter ends with "_total"
    help: str  # its meaning, one line
    labels: Sequence[str] = ()  # the names of its labels
    # The values of the labels, and the metric's value
    series: list[tuple[Labels, float]] = field(default_factory=list)

    def add(self, value: float, *labels: str) -> None:
        self.series.append((labels, value))
