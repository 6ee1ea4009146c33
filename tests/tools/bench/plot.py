"""Draw the pictures of docs/benchmarks.md: the clients in two cases, and growth."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import matplotlib

from tests.tools.bench.cases import HEADLINE, Client
from tests.tools.bench.growth import (
    BATCHES,
    BROKERS,
    DELAYS_MS,
    PARTITIONS,
    WIDE,
    WIDE_FILL,
    WIDE_PARTITIONS,
    Growth,
)
from tests.tools.bench.growth_report import (
    Summary,
    summaries,
    words_of_brokers,
    words_of_partitions,
)
from tests.tools.bench.report import Results, rows

matplotlib.use("Agg")
from matplotlib import pyplot

OURS, PEERS = "#1f6f8b", "#b5b5b5"

_HEADLINE_CALLS = {
    *("send_many", "send", "produce"),
    *("getmany", "iterate", "consume", "poll", "high_level"),
}


def plot(results: Results, path: Path) -> None:
    """Write a PNG of the cases `HEADLINE`, a bar for each client; the shortest is the best.

    It is so small that its text can be read on a phone.
    """
    shown = {}
    for case in HEADLINE:
        made = [row for row in rows(results.get(case, {})) if _is_in_headline(row.client)]
        if made:
            shown[case] = made
    if not shown:
        return
    heights = [len(made) for made in shown.values()]
    figure, axes = pyplot.subplots(
        len(heights),
        1,
        figsize=(5.2, 0.27 * sum(heights) + 0.5 * len(heights) + 0.4),
        gridspec_kw={"height_ratios": heights},
        squeeze=False,
        layout="constrained",
    )
    figure.suptitle("CPU seconds per million messages: less is better", fontsize=10)
    for (case, made), (axis,) in zip(shown.items(), axes, strict=True):
        names = [row.client.words.partition(",")[0] for row in made]
        colours = [OURS if row.client.is_ours else PEERS for row in made]
        bars = axis.barh(names, [row.cpu_per_million for row in made], color=colours)
        axis.bar_label(bars, fmt="%.2f", padding=3, fontsize=9)
        axis.invert_yaxis()
        axis.set_title(case.title, fontsize=10, loc="left")
        axis.tick_params(labelsize=9)
        axis.xaxis.set_visible(False)
        axis.spines[["top", "right", "bottom"]].set_visible(False)
        axis.margins(x=0.15)
    figure.savefig(path, dpi=144)
    pyplot.close(figure)


def _is_in_headline(client: Client) -> bool:
    is_pure = client.implementation != "c"
    return client.call in _HEADLINE_CALLS and not (is_pure or client.is_floor)


def plot_growth(growth: Growth, path: Path) -> None:
    """Write a PNG: CPU per message over partitions (equal fill, fixed linger) and batch sizes."""
    panels = [panel for panel in _panels(summaries(growth)) if any(panel.lines.values())]
    rows_of_two = (len(panels) + 1) // 2 or 1
    figure, axes = pyplot.subplots(
        rows_of_two, 2, figsize=(10, 3.75 * rows_of_two), squeeze=False, layout="constrained"
    )
    for axis in axes.flat[len(panels) :]:
        axis.set_axis_off()
    for axis, panel in zip(axes.flat, panels, strict=False):
        for label, line in panel.lines.items():
            across = [panel.across(one) for one in line]
            axis.plot(across, [one.cpu_per_million for one in line], marker="o", label=label)
        axis.set_xscale("log")
        axis.set_xticks(list(panel.ticks), list(panel.ticks.values()))
        axis.minorticks_off()
        axis.set_ylim(bottom=0)
        axis.set_xlabel(panel.x_label, fontsize=8)
        axis.set_title(f"{panel.title}: CPU seconds per million messages", fontsize=9, loc="left")
        axis.legend(fontsize=8)
        axis.tick_params(labelsize=8)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


@dataclass(frozen=True, slots=True)
class Panel:
    """One diagram: lines by their labels, over partitions or batch sizes."""

    title: str
    lines: Mapping[str, list[Summary]]
    ticks: Mapping[int, str]
    x_label: str = "partitions"
    across: Callable[[Summary], int] = lambda one: one.point.partitions


def _panels(found: list[Summary]) -> Iterator[Panel]:
    def line(table: str, call: str, **wanted: int) -> list[Summary]:
        return [one for one in found if _is(one, table, call, **wanted)]

    counts = {count: f"{count:,}" for count in PARTITIONS}
    filled = {
        f"{call}, {words_of_brokers(brokers)}": line("fill", call, brokers=brokers)
        for call in ("send_many", "send")
        for brokers in BROKERS
    }
    yield Panel("equal fill", filled, counts)
    for call, title in (("send", "send, linger 5 ms"), ("getmany", "getmany")):
        lingering = {
            f"{words_of_brokers(brokers)}, {delay_ms} ms": line(
                "linger", call, brokers=brokers, delay_ms=delay_ms
            )
            for brokers in BROKERS
            for delay_ms in DELAYS_MS
        }
        yield Panel(title, lingering, counts)
    yield Panel(
        "send, batch sizes, 1 ms",
        {
            words_of_partitions(count): line("batch", "send", partitions=count)
            for count in PARTITIONS
        },
        {size: f"{size // 1024} KiB" for size in BATCHES},
        "batch size",
        lambda one: one.point.option("max_batch_size"),
    )
    counts = {count: f"{count:,}" for count in WIDE_PARTITIONS}
    for title, calls in (
        (f"embedded, fill {WIDE_FILL}", ("send_many", "send")),
        ("getmany, embedded", ("getmany",)),
    ):
        yield Panel(title, {call: line(WIDE, call) for call in calls}, counts)


def _is(one: Summary, table: str, call: str, **wanted: int) -> bool:
    point = one.point
    return (
        point.table == table
        and point.call == call
        and all(getattr(point, name) == value for name, value in wanted.items())
    )
