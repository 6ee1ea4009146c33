"""Draw the course of the ingest, the rates, the latency, and what Spark found, into one PNG."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from aiokafka08 import __version__
from examples.demo.ingest import PERCENTS
from examples.demo.run import Run, Speed
from examples.demo.tally import add_up, largest
from examples.demo.timeline import percentile

INTERVALS = 80
PACKAGES = 8
LONGEST_NAME = 18
LONGEST_PLACE = 60

START_SPARK = "start Spark"
RATES = ("ingest", "consume and verify", "aggregate in Spark")
"""The stages whose rates are compared; reading the library isn't Kafka's work."""

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
    verified = f"{messages:,} messages: 0 lost, 0 reordered" + (
        f", {len(run.repeated):,} repeated by retries" if run.repeated else ""
    )
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
            f"\nDashed: broker {node} killed, leader of {led} of {partitions} partitions; longest "
            f"pause {run.timeline.longest_pause_s():.2f} s"
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
    rates = [speed.messages / speed.seconds / 1000 for speed in shown]
    bars = axes.barh(range(len(shown)), rates, color=BLUE, height=0.5)
    labels = [_rate(speed) for speed in shown]
    axes.bar_label(bars, labels, padding=5, color=MUTED, fontsize=9)
    axes.set_yticks(range(len(shown)), [speed.stage.replace(" ", "\n", 1) for speed in shown])
    axes.invert_yaxis()
    axes.set_xlim(0, 2.1 * max([*rates, 1]))  # room for the labels
    title = "Thousands of messages per second"
    for speed in run.speeds:
        if speed.stage == START_SPARK:
            title += f"\nSpark's start, not included: {speed.seconds:.1f} s"
    _plain(axes, title)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.locator_params(axis="x", nbins=4)
    axes.grid(axis="x", color=GRID)


def _rate(speed: Speed) -> str:
    return f"{speed.size_bytes / speed.seconds / 1e6:,.0f} MB/s, {speed.seconds:,.1f} s"


def _draw_latency(axes: Axes, run: Run) -> None:
    if run.latencies_ms:
        found = [percentile(run.latencies_ms, percent) for percent in PERCENTS]
    else:
        found = [0.0 for _ in PERCENTS]
    bars = axes.barh(range(len(PERCENTS)), found, color=GREEN, height=0.5)
    axes.bar_label(bars, [f"{one:.2f} ms" for one in found], padding=5, color=MUTED, fontsize=9)
    axes.set_yticks(range(len(PERCENTS)), [f"p{percent}" for percent in PERCENTS])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.5 * max([*found, 0.01]))  # room for the labels
    count = len(run.latencies_ms)
    _plain(axes, f"Latency of an acknowledgement\n{count:,} messages, one at a time")
    axes.xaxis.set_major_formatter("{x:g} ms")
    axes.locator_params(axis="x", nbins=4)
    axes.grid(axis="x", color=GRID)


def _draw_packages(axes: Axes, run: Run) -> None:
    packages = largest(run.packages, PACKAGES)
    places = range(len(packages))
    shares = [100 * package.comment_share for package in packages.values()]
    names = [
        name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…" for name in packages
    ]
    bars = axes.barh(places, shares, color=ORANGE, height=0.7)
    axes.bar_label(bars, [f"{share:.1f} %" for share in shares], padding=4, color=MUTED, fontsize=9)
    axes.set_yticks(places, names)
    axes.set_xticks([])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.3 * max(*shares, 1))  # room for the labels
    axes.margins(y=0.01)
    share = add_up(run.packages.values()).comment_share
    _plain(axes, f"Comment lines by package, by Spark\nall packages: {share:.1%}")


def _plain(axes: Axes, title: str) -> None:
    """Remove the frame, and set the title and colours."""
    axes.set_title(title, loc="left", fontsize=11, color=INK, pad=10)
    for spine in axes.spines.values():
        spine.set_visible(False)
        spine.set_color(GRID)
    axes.tick_params(length=0, colors=MUTED, labelsize=9)
    axes.set_axisbelow(True)
