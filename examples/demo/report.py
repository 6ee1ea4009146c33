"""Print the tables at the end: the content of the topic, and the speed of each stage."""

from __future__ import annotations

from rich.table import Table

from examples.demo.aggregate import START_SPARK
from examples.demo.ingest import FAILOVER, INGEST
from examples.demo.run import Run
from examples.demo.spark_job import WARM_UP
from examples.demo.tally import add_up, largest, percent_text

PACKAGES = 8


def print_report(run: Run) -> None:
    """Print what the topic holds, as counted by Spark if it ran, and the speeds."""
    if run.packages:
        _print_packages(run)
    else:
        _print_findings(run)
    _print_speeds(run)


def _print_findings(run: Run) -> None:
    packages = run.findings.packages()
    table = _table("What the topic holds", "package", "modules", "messages", "share")
    rows = list(packages.items())[:PACKAGES]
    if others := list(packages.values())[PACKAGES:]:
        modules, lines = map(sum, zip(*others, strict=True))
        rows.append((f"{len(others)} others", (modules, lines)))
    total = run.findings.modules.total()
    for name, (modules, lines) in rows:
        table.add_row(name, f"{modules:,}", f"{lines:,}", percent_text(lines / total))
    run.console.print(table)


def _print_packages(run: Run) -> None:
    rows = largest(run.packages, PACKAGES)
    if others := [package for name, package in run.packages.items() if name not in rows]:
        rows[f"{len(others)} others"] = add_up(others)
    rows["all"] = add_up(run.packages.values())
    table = _table("What Spark found", "package", "messages", "mean line", "comment lines", "share")
    for name, package in rows.items():
        table.add_row(
            name,
            f"{package.messages:,}",
            f"{package.mean_length:.1f} B",
            f"{package.comments:,}",
            percent_text(package.comment_share),
        )
    run.console.print(table)


def _print_speeds(run: Run) -> None:
    table = _table("How fast it was", "stage", "messages", "MB", "seconds", "messages/s", "MB/s")
    for stage, messages, size_bytes, seconds in run.speeds:
        megabytes = size_bytes / 1e6
        cells = [f"{messages:,}", f"{megabytes:,.1f}", f"{seconds:,.2f}"]
        cells += [f"{messages / seconds:,.0f}", f"{megabytes / seconds:,.1f}"]
        table.add_row(stage, *(cells if messages else ["", "", cells[2], "", ""]))
    run.console.print(table)
    run.console.print(f"MB: values and their keys, before compression ({run.codec or 'none'})")
    run.console.print(f"{INGEST}: in lists with acks=all, while all brokers run")
    if run.killed is not None:
        run.console.print(
            f"{FAILOVER}: the other half of the lists, with the time until the new leader is there"
        )
    if any(speed.stage == START_SPARK for speed in run.speeds):
        run.console.print(
            f"{START_SPARK}: the JVM, Python's workers, and a first query of {WARM_UP} messages"
        )


def _table(title: str, first: str, *others: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right")
    return table
