"""Draw the content of the topic and the speed of each stage into one PNG."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from aiokafka08 import __version__
from examples.demo.run import Run, Speed
from examples.demo.tally import add_up, largest

MODULES = 15
PACKAGES = 12
LONGEST = 120
"""Bytes; one bar at the end counts all longer lines."""
RECOMMENDED = 79
"""The longest line that PEP 8 recommends."""

INK, MUTED, GRID = "#1f2933", "#66727f", "#e4e8ec"
BLUE, ORANGE, GREEN = "#2f6db3", "#d9772b", "#3b8f6a"


def draw(run: Run, where: str, path: Path) -> None:
    """Write the PNG.

    Args:
        where: the cluster, in words.

    Raises:
        OSError: the file can't be written.
    """
    figure = Figure(figsize=(13, 10.5 if run.packages else 8.2), dpi=120, facecolor="white")
    grid = figure.add_gridspec(
        2,
        2,
        width_ratios=(1, 1.15),
        height_ratios=(1.5, 1),
        left=0.19,
        right=0.97,
        top=0.85,
        bottom=0.07,
        hspace=0.3,
        wspace=0.38 if run.packages else 0.2,  # the packages' bars have long labels
    )
    title = "The source of Python's standard library, through Kafka and back"
    subtitle = (
        f"{run.findings.modules.total():,} messages, verified, on {where}; "
        "their keys are modules, their values lines"
    )
    machine = (
        f"aiokafka08 {__version__}, compression {run.codec or 'none'}, "
        f"Python {platform.python_version()}, {os.cpu_count()} cores"
    )
    figure.text(0.03, 0.945, title, fontsize=17, fontweight="bold", color=INK)
    figure.text(0.03, 0.91, subtitle, fontsize=11, color=MUTED)
    figure.text(0.97, 0.02, machine, fontsize=9, color=MUTED, ha="right")
    _draw_modules(figure.add_subplot(grid[0 if run.packages else slice(None), 0]), run)
    _draw_lengths(figure.add_subplot(grid[0, 1]), run)
    _draw_speeds(figure.add_subplot(grid[1, 1]), run)
    if run.packages:
        _draw_packages(figure.add_subplot(grid[1, 0]), run)
    figure.savefig(path, format="png")


def _draw_modules(axes: Axes, run: Run) -> None:
    largest = run.findings.modules.most_common(MODULES)
    names = [name if len(name) <= 28 else f"…{name[-27:]}" for name, _ in largest]
    bars = axes.barh(range(len(largest)), [lines for _, lines in largest], color=BLUE, height=0.7)
    axes.bar_label(bars, [f"{lines:,}" for _, lines in largest], padding=4, color=MUTED, fontsize=9)
    axes.set_yticks(range(len(largest)), names)
    axes.set_xticks([])
    axes.invert_yaxis()
    axes.margins(x=0.14, y=0.01)
    _plain(axes, "The largest modules, in messages")


def _draw_lengths(axes: Axes, run: Run) -> None:
    lengths = run.findings.lengths
    counts = [lengths[length] for length in range(LONGEST)]
    beyond = sum(count for length, count in lengths.items() if length >= LONGEST)
    colours = [BLUE if length <= RECOMMENDED else ORANGE for length in range(LONGEST + 1)]
    axes.bar(range(LONGEST + 1), [*counts, beyond], width=1.0, color=colours)
    empty, top = lengths[0], max([*counts[1:], beyond, 1])
    if empty > 1.25 * top:  # this bar would flatten all others
        axes.set_ylim(0, 1.25 * top)
        axes.annotate(
            f"{empty:,} empty lines",
            (0.5, 1.22 * top),
            xytext=(12, -2),
            textcoords="offset points",
            arrowprops={"arrowstyle": "-", "color": MUTED},
            va="center",
            color=MUTED,
            fontsize=9,
        )
    longer = sum(count for length, count in lengths.items() if length > RECOMMENDED)
    axes.text(
        RECOMMENDED + 2,
        0.42 * top,
        f"{longer:,} lines ({longer / max(lengths.total(), 1):.1%})\n"
        f"are longer than {RECOMMENDED} bytes",
        color=ORANGE,
        fontsize=9,
    )
    axes.set_xticks(
        [0, 20, 40, 60, 80, 100, LONGEST], ["0", "20", "40", "60", "80", "100", "≥ 120"]
    )
    axes.set_xlim(-1, LONGEST + 2)
    axes.set_xlabel("bytes", color=MUTED, fontsize=9)
    _plain(axes, "Messages by the length of the line")
    axes.spines["bottom"].set_visible(True)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.grid(axis="y", color=GRID)


def _draw_speeds(axes: Axes, run: Run) -> None:
    stages = range(len(run.speeds))
    seconds = [speed.seconds for speed in run.speeds]
    bars = axes.barh(stages, seconds, color=GREEN, height=0.55)
    axes.bar_label(
        bars, [_speed(speed) for speed in run.speeds], padding=5, color=MUTED, fontsize=9
    )
    axes.set_yticks(stages, [speed.stage for speed in run.speeds])
    axes.set_xticks([])
    axes.invert_yaxis()
    axes.set_xlim(0, 2.4 * max(seconds))  # room for the labels
    _plain(axes, "Seconds, by stage")


def _speed(speed: Speed) -> str:
    text = f"{speed.seconds:,.2f} s"
    if speed.messages:
        text += (
            f": {speed.messages / speed.seconds:,.0f} messages/s, "
            f"{speed.size_bytes / speed.seconds / 1e6:,.0f} MB/s"
        )
    return text


def _draw_packages(axes: Axes, run: Run) -> None:
    packages = largest(run.packages, PACKAGES)
    places = range(len(packages))
    shares = [100 * package.comment_share for package in packages.values()]
    bars = axes.barh(places, shares, color=ORANGE, height=0.7)
    labels = [
        f"{share:.1f} %, {package.mean_length:.0f} bytes a line"
        for share, package in zip(shares, packages.values(), strict=True)
    ]
    axes.bar_label(bars, labels, padding=4, color=MUTED, fontsize=9)
    axes.set_yticks(places, list(packages))
    axes.set_xticks([])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.6 * max(*shares, 1))  # room for the labels
    axes.margins(y=0.01)
    share = add_up(run.packages.values()).comment_share
    _plain(axes, f"Comment lines by package (all: {share:.1%}), by Spark")


def _plain(axes: Axes, title: str) -> None:
    """Remove the frame, and set the title and colours."""
    axes.set_title(title, loc="left", fontsize=12, color=INK, pad=10)
    for spine in axes.spines.values():
        spine.set_visible(False)
        spine.set_color(GRID)
    axes.tick_params(length=0, colors=MUTED, labelsize=9)
    axes.set_axisbelow(True)
