"""Turns measurements into the table of docs/benchmarks.md. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.bench.cases import Case

Results = Mapping[Case, Mapping[str, Sequence[Mapping[str, float]]]]
"""Case → words for the client → the measurements of all rounds."""


@dataclass(frozen=True, slots=True)
class Row:
    """Medians of one client in one case."""

    client: str
    rate: float
    cpu_per_million: float
    peak_rss_mb: float
    spread: float
    """(max - min) / median of the rate over the rounds."""


def rows(measurements: Mapping[str, Sequence[Mapping[str, float]]]) -> list[Row]:
    """One row per client."""
    made = []
    for client, rounds in measurements.items():
        rates = [one["messages"] / one["seconds"] for one in rounds]
        cpu = [one["cpu_seconds"] / one["messages"] * 1e6 for one in rounds]
        rate = statistics.median(rates)
        made.append(
            Row(
                client,
                rate,
                statistics.median(cpu),
                max(one["peak_rss_mb"] for one in rounds),
                (max(rates) - min(rates)) / rate,
            )
        )
    return made


def markdown(results: Results, baseline: str) -> str:
    """A table per case; ratios are CPU per message of `baseline` (a client) over the row's."""
    lines: list[str] = []
    for case, measurements in results.items():
        made = rows(measurements)
        slowest = next((row for row in made if row.client.startswith(baseline)), made[-1])
        lines += [
            f"### {case.title}",
            "",
            "| client | messages/s | spread | CPU s per million | peak RSS MB "
            f"| CPU, times less than {baseline} |",
            "|---|---:|---:|---:|---:|---:|",
        ]
        lines += [
            f"| {row.client} | {row.rate:,.0f} | {row.spread:.0%} | {row.cpu_per_million:.2f} "
            f"| {row.peak_rss_mb:.0f} | {slowest.cpu_per_million / row.cpu_per_million:.2f} |"
            for row in made
        ]
        lines.append("")
    return "\n".join(lines)
