"""Format the measurements of `tests.tools.bench.spark` as docs/benchmarks_spark.md. Pure.

Rows and missed goals are computed by `report`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tests.tools.bench.cases import Case
from tests.tools.bench.report import Results, Row, misses, rows

FULL_MESSAGES, FULL_ROUNDS = 3_000_000, 3
"""The goals hold for runs with at least so many messages and rounds."""
_QUIET = 1.5
"""Highest load average before the run at which rates are meaningful."""


@dataclass(frozen=True, slots=True)
class Record:
    """A run of the benchmark; `load` is the load average before it."""

    machine: str
    versions: str
    rounds: int
    messages: int
    load: float
    results: Results


def document(record: Record) -> str:
    """Return the text of docs/benchmarks_spark.md."""
    lines = ["# The data source kafka08 beside Spark's own", "", *_introduction(record)]
    for case, measurements in record.results.items():
        summary = rows(measurements)
        lines += [
            f"## {case.work}",
            "",
            "| source | rows/s | spread | × Spark's own | Python CPU | RSS |",
            "|---|---:|---:|---:|---:|---:|",
            *(_line(row, summary) for row in summary),
            "",
        ]
    lines += _missed_goals(record.results)
    return "\n".join(lines)


def as_json(record: Record) -> str:
    """Return all measurements as JSON."""
    fields = {
        "machine": record.machine,
        "versions": record.versions,
        "rounds": record.rounds,
        "messages": record.messages,
        "load": record.load,
        "results": {
            case.work: {client.words: found for client, found in measured.items()}
            for case, measured in record.results.items()
        },
    }
    return json.dumps(fields, indent=1) + "\n"


def from_json(text: str, cases: Iterable[Case]) -> Record:
    """Return the run that `as_json()` wrote, for those of the cases that it has."""
    data = json.loads(text)
    results = {
        case: {client: data["results"][case.work][client.words] for client in case.clients}
        for case in cases
        if case.work in data["results"]
    }
    names = ("machine", "versions", "rounds", "messages", "load")
    return Record(**{name: data[name] for name in names}, results=results)


def _introduction(record: Record) -> Iterator[str]:
    yield (
        f"Measured by `nox -s bench -- --spark`: one round to warm up, then {record.rounds} "
        "round(s) of each case, with alternating sources, in one Spark session (`local[2]`). "
        "Spark, its Python workers and the brokers share the cores."
    )
    yield ""
    yield "| | |"
    yield "|---|---|"
    yield f"| machine | {record.machine} |"
    yield f"| versions | {record.versions} |"
    yield f"| load average before the run | {record.load:.1f} |"
    yield f"| read | {record.messages:,} messages of 100 bytes in 3 partitions |"
    yield "| written | rows of 100 bytes from Spark's cache |"
    yield "| trigger | of a running query without a sink; rows/s are its rows by its seconds |"
    yield "| rows/s | median of the rounds; spread is (max - min) / median |"
    yield "| × Spark's own | rows/s, divided by those of Spark's own source in the table |"
    yield "| Python CPU | seconds per million rows of all Python workers, planning included |"
    yield "| RSS | the peak of the largest Python worker, in MB |"
    yield (
        "| Spark's kafka | Spark's own source: runs in the JVM, reads no broker before 0.10. With "
        "the jars above; `--packages …:4.2.0` also gets the token provider 4.2.0 and kafka-clients "
        "3.9.2. It writes with `kafka.enable.idempotence=false`, which 0.10 needs. It keeps 2,000 "
        "consumers; for the triggers its long polls end after 10 ms. With its defaults (64 and "
        "500 ms) a trigger of 500 partitions takes 130 s |"
    )
    yield "| floor | a streaming source in Python that only returns the same rows |"
    yield ""
    why = []
    if record.load > _QUIET:
        why.append("other processes used the machine")
    if record.messages < FULL_MESSAGES or record.rounds < FULL_ROUNDS:
        why.append("the run was small")
    if why:
        yield f"**Not a measurement: {' and '.join(why)}. The rates and goals below mean nothing.**"
        yield ""


def _line(row: Row, others: list[Row]) -> str:
    peer = next((one for one in others if one.client.call == "kafka"), None)
    times = "" if peer is None or peer is row else f"{row.rate / peer.rate:.2f}"
    python = row.client.call != "kafka"
    return (
        f"| {row.client.words} | {row.rate:,.0f} | {row.spread:.0%} | {times} "
        f"| {f'{row.cpu_per_million:.2f}' if python else ''} "
        f"| {f'{row.peak_rss_mb:.0f}' if python else ''} |"
    )


def _missed_goals(results: Results) -> Iterator[str]:
    summaries = {case.work: rows(measured) for case, measured in results.items()}
    missed = [
        f"- {work}: {row.client.words}: {'; '.join(found)}"
        for work, summary in summaries.items()
        for row in summary
        if (found := misses(row, summary))
    ]
    yield from ("## Missed goals", "")
    yield from missed or ["None. The goals are in `tests/tools/bench/spark.py`."]
    yield ""
