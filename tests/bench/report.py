"""Turns measurements into the tables of docs/benchmarks.md, with the goals beside them. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.bench.cases import Case, Client, Goal

Results = Mapping[Case, Mapping[Client, Sequence[Mapping[str, float]]]]
"""Case → client → the measurements of all rounds."""


@dataclass(frozen=True, slots=True)
class Row:
    """Medians of one client in one case."""

    client: Client
    rate: float
    cpu_per_million: float
    peak_rss_mb: float
    spread: float
    """(max - min) / median of the rate over the rounds."""
    more: Mapping[str, float]
    """Medians of what else was measured; of the ticker the worst."""


def rows(measurements: Mapping[Client, Sequence[Mapping[str, float]]]) -> list[Row]:
    """One row per client."""
    made = []
    for client, rounds in measurements.items():
        rates = [one["messages"] / one["seconds"] for one in rounds]
        cpu = [one["cpu_seconds"] / one["messages"] * 1e6 for one in rounds]
        rate = statistics.median(rates)
        more = {
            name: (max if name.startswith("ticker") else statistics.median)(
                [one[name] for one in rounds]
            )
            for name in rounds[0]
            if name.endswith("_ms")
        }
        made.append(
            Row(
                client,
                rate,
                statistics.median(cpu),
                max(one["peak_rss_mb"] for one in rounds),
                (max(rates) - min(rates)) / rate,
                more,
            )
        )
    return made


def misses(row: Row, others: Sequence[Row]) -> list[str]:
    """Which parts of its goal a row doesn't reach, in words."""
    goal = row.client.goal or Goal()
    found = []
    if goal.cpu_per_million is not None and row.cpu_per_million > goal.cpu_per_million:
        found.append(f"CPU {row.cpu_per_million:.2f} > {goal.cpu_per_million}")
    if goal.rate is not None and row.rate < goal.rate:
        found.append(f"{row.rate:,.0f}/s < {goal.rate:,.0f}/s")
    peer = next((one for one in others if one.client.words.startswith(goal.peer)), None)
    if goal.times_peer is not None and peer is not None:
        times = row.rate / peer.rate
        if times < goal.times_peer:
            found.append(f"{times:.2f} × {goal.peer}'s rate < {goal.times_peer} ×")
    for name, limit in (("p50_ms", goal.p50_ms), ("p99_ms", goal.p99_ms)):
        if limit is not None and row.more[name] > limit:
            found.append(f"{name} {row.more[name]:.3f} > {limit}")
    if goal.peak_rss_mb is not None and row.peak_rss_mb > goal.peak_rss_mb:
        found.append(f"{row.peak_rss_mb:.0f} MB > {goal.peak_rss_mb:.0f} MB")
    return found


def words(goal: Goal | None) -> str:
    """A goal for the table."""
    if goal is None:
        return ""
    parts = []
    if goal.rate is not None:
        parts.append(f"≥ {goal.rate:,.0f}/s")
    if goal.times_peer is not None:
        parts.append(f"≥ {goal.times_peer} × {goal.peer}")
    if goal.cpu_per_million is not None:
        parts.append(f"≤ {goal.cpu_per_million} CPU")
    if goal.p50_ms is not None:
        parts.append(f"p50 ≤ {goal.p50_ms}, p99 ≤ {goal.p99_ms} ms")
    if goal.peak_rss_mb is not None:
        parts.append(f"≤ {goal.peak_rss_mb:.0f} MB")
    return ", ".join(parts)


def markdown(results: Results) -> str:
    """A table per case."""
    lines: list[str] = []
    for case, measurements in results.items():
        made = rows(measurements)
        lines += [
            f"### {case.title}",
            "",
            "| client | messages/s | spread | CPU s per million | peak RSS MB | ms | goal "
            "| missed |",
            "|---|---:|---:|---:|---:|---|---|---|",
        ]
        lines += [
            f"| {row.client.words} | {row.rate:,.0f} | {row.spread:.0%} "
            f"| {row.cpu_per_million:.2f} | {row.peak_rss_mb:.0f} | {_times(row)} "
            f"| {words(row.client.goal)} | {'; '.join(misses(row, made))} |"
            for row in made
        ]
        lines.append("")
    return "\n".join(lines)


def _times(row: Row) -> str:
    parts = []
    if "p50_ms" in row.more:
        parts.append(f"p50 {row.more['p50_ms']:.3f}, p99 {row.more['p99_ms']:.3f}")
    if "ticker_p999_ms" in row.more:
        parts.append(
            f"ticker p99.9 {row.more['ticker_p999_ms']:.0f}, max {row.more['ticker_max_ms']:.0f}"
        )
    return "; ".join(parts)
