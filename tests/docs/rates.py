"""Render the figures of docs/guides/performance.md from the measurements of `nox -s bench`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.docs.tables import DOCS, replace_section, table
from tests.tools.bench import report, spark, spark_report
from tests.tools.bench.growth_report import Summary, summaries

BEGIN = (
    "<!-- Made from docs/benchmarks.json and benchmarks-spark.json by `python -m tests.docs`. -->\n"
)

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

SPARK_CASES = (
    "Read, sum(length(value))",
    "Read, to Parquet",
    "Write from Spark's cache",
    "Write from Spark's cache, by key",
)


def performance_page() -> str:
    """Return the page with its figures replaced by those that were measured last."""
    page = (DOCS / "guides" / "performance.md").read_text()
    return replace_section(page, BEGIN, "".join(figures()))


def figures() -> Iterator[str]:
    """Yield the tables of one process, of one message at a time, of distance, and of Spark."""
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
    assert record.growth is not None
    yield from _distances(summaries(record.growth))
    yield from _spark()


def _distances(found: Sequence[Summary]) -> Iterator[str]:
    yield (
        "\nOver a delay of the responses, `linger_ms=5`, by number of partitions; thousands of "
        "messages of 100 bytes a second (CPU s per million):\n\n"
    )
    points = {
        (one.point.call, one.point.brokers, one.point.delay_ms, one.point.partitions): one
        for one in found
        if one.point.table == "linger"
    }
    counts = sorted({partitions for _, _, _, partitions in points})
    rows = []
    for call, brokers, delay_ms in dict.fromkeys(key[:3] for key in points):
        cells = [points[call, brokers, delay_ms, count] for count in counts]
        name = f"`{call}`, {brokers} broker{'s' if brokers > 1 else ''}, {delay_ms} ms"
        rows.append(
            (name, *(f"{one.rate / 1000:,.0f} ({one.cpu_per_million:.2f})" for one in cells))
        )
    yield table(("", *(f"{count:,}" for count in counts)), rows)
    [long] = [one for one in found if one.point.table == "long"]
    yield (
        f"\nOne partition at {long.point.delay_ms} ms with `{long.point.call}` and values of "
        f"{long.point.value_bytes:,} bytes: {long.megabytes_per_second:.1f} MB/s.\n"
    )


def _spark() -> Iterator[str]:
    record = spark_report.from_json((DOCS / "benchmarks-spark.json").read_text(), spark.CASES)
    yield f"\nSpark on {record.machine}, rows of 100 bytes, a broker of 0.8.2.2:\n\n"
    found = [
        (case.work, row)
        for case, measured in record.results.items()
        for row in report.rows(measured)
        if case.work in SPARK_CASES and row.client.words == "kafka08, 0.8.2.2"
    ]
    rows = [
        (work, f"{row.rate:,.0f}", f"{row.cpu_per_million:.2f}", f"{row.peak_rss_mb:.0f}")
        for work, row in found
    ]
    assert len(rows) == len(SPARK_CASES)
    yield table(("case", "rows/s", "Python CPU s per million", "peak MB of a worker"), rows)
