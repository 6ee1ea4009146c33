"""Render the figures of docs/guides/tuning.md from the measurements of `nox -s bench`."""

from __future__ import annotations

from collections.abc import Iterator

from tests.docs.tables import DOCS, replace_section, table
from tests.tools.bench import report

BEGIN = "<!-- Made from docs/benchmarks.json by `python -m tests.docs`. -->\n"

CALLS: tuple[tuple[str, str, str, str | None], ...] = (
    ("`send_many`", "produce 100 B plain", "send_many", "(pure) send_many"),
    ("`send_many`", "produce 100 B snappy", "send_many", "(pure) send_many"),
    ("`send_many`", "produce 1024 B plain", "send_many", "(pure) send_many"),
    ("`await send()`", "produce 100 B plain", "send, gathered", "(pure) send, gathered"),
    ("`await send()`", "produce 1024 B plain", "send, gathered", "(pure) send, gathered"),
    (
        "`await send()`",
        "produce by key to 100 partitions, 100 B plain",
        "send, linger 5 ms",
        "(pure) send, linger 5 ms",
    ),
    (
        "`await send()`",
        "produce by key to 1,000 partitions, 100 B plain",
        "send, linger 5 ms",
        "(pure) send, linger 5 ms",
    ),
    (
        "`await send_and_wait()` in 1,000 tasks",
        "1,000 send_and_wait loops, linger 0, 100 B plain",
        "on asyncio",
        None,
    ),
    ("`getmany()`", "consume 100 B plain", "getmany, CRC checked", "(pure) getmany"),
    ("`getmany()`", "consume 100 B snappy", "getmany, CRC checked", "(pure) getmany"),
    ("`getmany()`", "consume 1024 B plain", "getmany, CRC checked", "(pure) getmany"),
    (
        "`getmany()`",
        "consume 100 B plain, 1,000 partitions",
        "getmany, fetch_max_bytes 50 MiB",
        None,
    ),
    ("`async for`", "consume 100 B plain", "async for, CRC checked", None),
    (
        "`getmany_arrow()`",
        "consume 100 B plain",
        "getmany_arrow, CRC checked",
        "(pure) getmany_arrow",
    ),
)
"""The call, the title of its table in docs/benchmarks.md, and its rows: compiled, pure."""

WAITS = (
    ("asyncio", "one at a time, asyncio"),
    ("uvloop", "one at a time"),
    ("uvloop, pure Python", "(pure) one at a time"),
)


def tuning_page() -> str:
    """Return the page with its figures replaced by those that were measured last."""
    page = (DOCS / "guides" / "tuning.md").read_text()
    return replace_section(page, BEGIN, "".join(figures()))


def figures() -> Iterator[str]:
    """Yield the tables of one process, and of one message at a time."""
    record = report.from_json((DOCS / "benchmarks.json").read_text())
    found = {
        (case.title, row.client.words): row
        for case, measured in record.results.items()
        for row in report.rows(measured)
    }
    rows = []
    for call, case, compiled, pure in CALLS:
        row = found[case, f"aiokafka08 {compiled}"]
        twin = found[case, f"aiokafka08 {pure}"] if pure else None
        own = (
            *(f"{row.rate:,.0f}", f"{row.cpu_per_million:.2f}", f"{row.peak_rss_mb:.0f}"),
            f"{row.more['ticker_max_ms']:.0f}",
        )
        other = (f"{twin.rate:,.0f}", f"{twin.cpu_per_million:.2f}") if twin else ("", "")
        rows.append((call, case, *own, *other))
    yield (
        f"On {record.machine}; client and broker share the cores; on uvloop, but for the row of "
        "1,000 tasks, which is on asyncio:\n\n"
    )
    yield table(
        (
            *("call", "benchmark", "messages/s", "CPU s per million", "peak MB"),
            "timer late by, ms",
            *("pure Python: messages/s", "CPU s per million"),
        ),
        rows,
    )
    yield "\nOne `send_and_wait` after the other, `linger_ms=0`:\n\n"
    title = "one at a time, 100 B plain"
    waits = [(loop, found[title, f"aiokafka08 {name}"]) for loop, name in WAITS]
    yield table(
        ("event loop", "messages/s", "p50 ms", "p99 ms"),
        [
            (loop, f"{row.rate:,.0f}", f"{row.more['p50_ms']:.3f}", f"{row.more['p99_ms']:.3f}")
            for loop, row in waits
        ],
    )
