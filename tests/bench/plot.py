"""Draw the pictures of docs/benchmarks.md: every client in every case, and growth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

from tests.bench.growth import BATCHES, BROKERS, DELAYS_MS, PARTITIONS, Growth
from tests.bench.growth_report import Summary, summaries, words_of_brokers, words_of_partitions
from tests.bench.report import Results, rows

matplotlib.use("Agg")
from matplotlib import pyplot

OURS, PEERS = "#1f6f8b", "#b5b5b5"


def plot(results: Results, path: Path) -> None:
    """Write a PNG with a group of bars for each case; the shortest bar is the best."""
    heights = [len(measurements) for measurements in results.values()]
    figure, axes = pyplot.subplots(
        len(heights),
        1,
        figsize=(9, 0.32 * sum(heights) + 0.7 * len(heights)),
        gridspec_kw={"height_ratios": heights},
        squeeze=False,
        layout="constrained",
    )
    for (case, measurements), (axis,) in zip(results.items(), axes, strict=True):
        made = rows(measurements)
        names = [row.client.words for row in made]
        cpu = [row.cpu_per_million for row in made]
        colours = [OURS if row.client.module == "ours" else PEERS for row in made]
        bars = axis.barh(names, cpu, color=colours)
        axis.bar_label(bars, fmt="%.2f", padding=3, fontsize=8)
        axis.invert_yaxis()
        axis.set_title(f"{case.title}: CPU seconds per million messages", fontsize=9, loc="left")
        axis.tick_params(labelsize=8)
        axis.margins(x=0.15)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def plot_growth(growth: Growth, path: Path) -> None:
    """Write a PNG: CPU per message over partitions (equal fill, fixed linger) and batch sizes."""
    found = summaries(growth)
    figure, axes = pyplot.subplots(2, 2, figsize=(10, 7.5), layout="constrained")
    (filled, lingering), (reading, batches) = axes
    for call in ("send_many", "send"):
        for brokers in BROKERS:
            line = [one for one in found if _is(one, "fill", call, brokers=brokers)]
            _over_partitions(filled, line, f"{call}, {words_of_brokers(brokers)}")
    for axis, call in ((lingering, "send"), (reading, "getmany")):
        for brokers in BROKERS:
            for delay_ms in DELAYS_MS:
                line = [
                    one
                    for one in found
                    if _is(one, "linger", call, brokers=brokers, delay_ms=delay_ms)
                ]
                _over_partitions(axis, line, f"{words_of_brokers(brokers)}, {delay_ms} ms")
    for axis in axes.flat:
        axis.set_xscale("log")
    for partitions in PARTITIONS:
        line = [one for one in found if _is(one, "batch", "send", partitions=partitions)]
        batches.plot(
            [one.point.option("max_batch_size") for one in line],
            [one.cpu_per_million for one in line],
            marker="o",
            label=words_of_partitions(partitions),
        )
    batches.set_xticks(BATCHES, [f"{size // 1024} KiB" for size in BATCHES])
    titles = ("equal fill", "send, linger 5 ms", "getmany", "send, batch sizes, 1 ms")
    for axis in (filled, lingering, reading):
        axis.set_xticks(PARTITIONS, [f"{count:,}" for count in PARTITIONS])
        axis.set_xlabel("partitions", fontsize=8)
    for axis, title in zip(axes.flat, titles, strict=True):
        axis.minorticks_off()
        axis.set_ylim(bottom=0)
        axis.set_title(f"{title}: CPU seconds per million messages", fontsize=9, loc="left")
        axis.legend(fontsize=8)
        axis.tick_params(labelsize=8)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _is(one: Summary, table: str, call: str, **wanted: int) -> bool:
    point = one.point
    return (
        point.table == table
        and point.call == call
        and all(getattr(point, name) == value for name, value in wanted.items())
    )


def _over_partitions(axis: Any, line: list[Summary], label: str) -> None:
    axis.plot(
        [one.point.partitions for one in line],
        [one.cpu_per_million for one in line],
        marker="o",
        label=label,
    )
