"""Turns what `spark` measured into docs/benchmarks-spark.md, with the goals beside it. Pure.

Rows, goals and misses are those of `report`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from tests.bench.report import Results, Row, misses, rows, words

FULL_MESSAGES, FULL_ROUNDS = 3_000_000, 3
"""With fewer it isn't the measurement that the goals are about."""
_QUIET = 1.5
"""Load average, before it begins, up to which rates mean something."""


@dataclass(frozen=True, slots=True)
class Record:
    """A run of the benchmark; `load` is the load average when it began."""

    machine: str
    versions: str
    rounds: int
    messages: int
    load: float
    results: Results


def document(record: Record) -> str:
    """All of docs/benchmarks-spark.md."""
    lines = ["# The data source kafka08 beside Spark's own", "", *_introduction(record)]
    for case, measurements in record.results.items():
        made = rows(measurements)
        lines += [
            f"## {case.work}",
            "",
            "| source | rows/s | spread | × Spark's own | Python CPU s per million | peak RSS MB "
            "| goal | missed |",
            "|---|---:|---:|---:|---:|---:|---|---|",
            *(_line(row, made) for row in made),
            "",
        ]
    return "\n".join(lines)


def as_json(record: Record) -> str:
    """All measurements."""
    made = {
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
    return json.dumps(made, indent=1) + "\n"


def _introduction(record: Record) -> Iterator[str]:
    yield (
        f"Written by `nox -s bench -- --spark` ({record.machine}; {record.versions}; load average "
        f"{record.load:.1f} when it began): each work once to warm up, then {record.rounds} "
        "round(s), the sources in turn, in one Spark session, `local[2]`; medians, and the spread "
        f"of the rate as (max - min) / median. Read are {record.messages:,} messages of 100 bytes "
        "in 3 partitions, written are rows of 100 bytes from Spark's cache. Spark, its Python "
        "workers and the brokers share the cores. Spark's own source runs in the JVM and reads no "
        "broker before 0.10. Python CPU is user and system time of all of Spark's Python workers, "
        "those that plan included; peak RSS is the kernel's high-water mark of the largest of them."
    )
    yield ""
    why = []
    if record.load > _QUIET:
        why.append("other work kept the machine busy")
    if record.messages < FULL_MESSAGES or record.rounds < FULL_ROUNDS:
        why.append("it was a small run")
    if why:
        yield f"**Not a measurement: {' and '.join(why)}. Rates and goals below say nothing.**"
        yield ""


def _line(row: Row, others: list[Row]) -> str:
    peer = next((one for one in others if one.client.call == "kafka"), None)
    times = "" if peer is None or peer is row else f"{row.rate / peer.rate:.2f}"
    python = row.client.call != "kafka"
    return (
        f"| {row.client.words} | {row.rate:,.0f} | {row.spread:.0%} | {times} "
        f"| {f'{row.cpu_per_million:.2f}' if python else ''} "
        f"| {f'{row.peak_rss_mb:.0f}' if python else ''} "
        f"| {words(row.client.goal)} | {'; '.join(misses(row, others))} |"
    )
