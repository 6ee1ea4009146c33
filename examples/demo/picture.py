"""Draw the course of the ingest, the rates, the latency, and what Spark found, into one PNG."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from aiokafka08 import __version__
from examples.demo.aggregate import IN_SPARK, START_SPARK
from examples.demo.ingest import FAILOVER, INGEST, PERCENTS
from examples.demo.run import Run
from examples.demo.tally import add_up, largest, percent_text
from examples.demo.timeline import percentile
from examples.demo.verify import VERIFY

INTERVALS = 80
PACKAGES = 8
LONGEST_NAME = 18
LONGEST_PLACE = 60

RATES = (INGEST, FAILOVER, VERIFY, IN_SPARK)
"""The stages whose rates are compared."""

INK, MUTED, GRID = "#1f2933", "#66727f", "#e4e8ec"
BLUE, ORANGE, GREEN = "#2f6db3", "#d9772b", "#3b8f6a"


def draw(run: Run, where: str, path: Path) -> None:
    """Write the PNG.

    Args:
        where: the cluster, in words.

    Raises:
        OSError: the file can't be written.
    """
    figure(run, where).savefig(path, format="png")


def figure(run: Run, where: str) -> Figure:
    """Return the picture; `where` is the cluster, in words."""
    figure = Figure(figsize=(13, 8.6), dpi=120, facecolor="white")
    columns = 3 if run.packages else 2
    grid = figure.add_gridspec(
        2,
        columns,
        height_ratios=(1.15, 1),
        left=0.125,
        right=0.965,
        top=0.8,
        bottom=0.115,
        hspace=0.48,
        wspace=0.5 if run.packages else 0.3,
    )
    messages = run.findings.modules.total()
    title = "The source of Python's standard library, through Kafka and back"
    verified = f"{messages:,} messages: 0 lost, {len(run.repeated):,} repeated, 0 reordered"
    machine = (
        f"aiokafka08 {__version__} on {_shortened(where)}, compression {run.codec or 'none'}, "
        f"Python {platform.python_version()}, {os.cpu_count()} cores"
    )
    figure.text(0.03, 0.945, title, fontsize=17, fontweight="bold", color=INK)
    figure.text(0.03, 0.9, verified, fontsize=13, color=GREEN, fontweight="bold")
    figure.text(0.965, 0.02, machine, fontsize=9, color=MUTED, ha="right")
    _draw_ingest(figure.add_subplot(grid[0, :]), run)
    _draw_rates(figure.add_subplot(grid[1, 0]), run)
    _draw_latency(figure.add_subplot(grid[1, 1]), run)
    if run.packages:
        _draw_packages(figure.add_subplot(grid[1, 2]), run)
    return figure


def _shortened(where: str) -> str:
    return where if len(where) <= LONGEST_PLACE else f"{where[: LONGEST_PLACE - 1]}…"


def _draw_ingest(axes: Axes, run: Run) -> None:
    ends, rates = run.timeline.rates(INTERVALS)
    thousands = [rate / 1000 for rate in rates]
    if ends:
        edges = [0.0, *ends]
        axes.stairs(thousands, edges, fill=True, color=BLUE, alpha=0.25)
        axes.stairs(thousands, edges, color=BLUE, linewidth=1.5)
        axes.set_xlim(0, ends[-1])
    title = "Ingest with acks=all: thousands of messages acknowledged per second"
    if run.killed is not None and run.timeline.killed_s is not None:
        node, led, partitions = run.killed
        axes.axvline(run.timeline.killed_s, color=ORANGE, linestyle="--", linewidth=1.5)
        title += (
            f"\nHalf of them undisturbed, then broker {node} is killed (dashed), leader of {led} "
            f"of {partitions} partitions: longest pause {run.timeline.longest_pause_s():.2f} s"
        )
    _plain(axes, title)
    axes.set_ylim(0, 1.08 * max([*thousands, 1]))
    axes.spines["bottom"].set_visible(True)
    axes.xaxis.set_major_formatter("{x:g} s")
    axes.tick_params(axis="x", pad=10)  # below the 0 of the other axis
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.grid(axis="y", color=GRID)
    axes.locator_params(axis="y", nbins=5)


def _draw_rates(axes: Axes, run: Run) -> None:
    shown = [speed for speed in run.speeds if speed.stage in RATES]
    rates = [speed.messages / speed.seconds for speed in shown]
    names = [speed.stage.replace(" ", "\n", 1) for speed in shown]
    title = "Messages per second"
    for speed in run.speeds:
        if speed.stage == START_SPARK:
            title += f"\nSpark's start, not included: {speed.seconds:.1f} s"
    _draw_bars(axes, names, rates, [f"{rate:,.0f}" for rate in rates], BLUE)
    _plain(axes, title)


def _draw_latency(axes: Axes, run: Run) -> None:
    found = [percentile(run.latencies_ms, percent) for percent in PERCENTS if run.latencies_ms]
    names = [f"p{percent}" for percent in PERCENTS[: len(found)]]
    _draw_bars(axes, names, found, [f"{one:.2f} ms" for one in found], GREEN)
    count = len(run.latencies_ms)
    _plain(axes, f"Latency of an acknowledgement\n{count:,} messages, one at a time")


def _draw_packages(axes: Axes, run: Run) -> None:
    packages = largest(run.packages, PACKAGES)
    shares = [package.comment_share for package in packages.values()]
    names = [
        name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…" for name in packages
    ]
    _draw_bars(axes, names, shares, list(map(percent_text, shares)), ORANGE)
    share = percent_text(add_up(run.packages.values()).comment_share)
    _plain(axes, f"Comment lines by package, by Spark\nall packages: {share}")


def _draw_bars(
    axes: Axes, names: list[str], lengths: list[float], labels: list[str], color: str
) -> None:
    """Draw bars from the top down, with their values in place of a scale."""
    bars = axes.barh(range(len(names)), lengths, color=color, height=0.6)
    axes.bar_label(bars, labels, padding=5, color=MUTED, fontsize=9)
    axes.set_yticks(range(len(names)), names)
    axes.set_xticks([])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.35 * max([*lengths, 1e-9]))  # room for the labels
    axes.margins(y=0.01)


def _plain(axes: Axes, title: str) -> None:
    """Remove the frame, and set the title and colours."""
    axes.set_title(title, loc="left", fontsize=11, color=INK, pad=10)
    for spine in axes.spines.values():
        spine.set_visible(False)
        spine.set_color(GRID)
    axes.tick_params(length=0, colors=MUTED, labelsize=9)
    axes.set_axisbelow(True)
