"""What is printed at the end: what the topic holds, and how fast each stage was."""

from __future__ import annotations

from rich.table import Table

from examples.demo.run import Run

PACKAGES = 8


def print_report(run: Run) -> None:
    """Both tables."""
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
        table.add_row(name, f"{modules:,}", f"{lines:,}", f"{lines / total:.1%}")
    run.console.print(table)


def _print_speeds(run: Run) -> None:
    table = _table("How fast it was", "stage", "messages", "MB", "seconds", "messages/s", "MB/s")
    for stage, messages, size_bytes, seconds in run.speeds:
        megabytes = size_bytes / 1e6
        table.add_row(
            stage,
            f"{messages:,}",
            f"{megabytes:,.1f}",
            f"{seconds:,.2f}",
            f"{messages / seconds:,.0f}",
            f"{megabytes / seconds:,.1f}",
        )
    run.console.print(table)
    run.console.print(f"MB: of values and their keys, before compression ({run.codec or 'none'})")


def _table(title: str, first: str, *others: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right")
    return table
