"""The figure of docs/benchmarks.md: CPU per message of every client in every case."""

from __future__ import annotations

from pathlib import Path

import matplotlib

from tests.bench.report import Results, rows

matplotlib.use("Agg")
from matplotlib import pyplot

OURS, PEERS = "#1f6f8b", "#b5b5b5"


def plot(results: Results, path: Path) -> None:
    """Write a PNG: a row of bars for each case, the shortest is the best."""
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
        axis.set_xscale("log")
        axis.invert_yaxis()
        axis.set_title(f"{case.title}: CPU seconds per million messages", fontsize=9, loc="left")
        axis.tick_params(labelsize=8)
        axis.margins(x=0.15)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
