"""Turn measurements into docs/benchmarks.md, with the goals that they miss. Pure.

`tests.tools.bench.__main__` calls `document()` and `as_json()`. `growth_report` makes the tables of
growth; `spark_report` uses `rows()` and `misses()`.
"""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.tools.bench import growth_report
from tests.tools.bench.cases import (
    BEFORE,
    BROKER,
    CASES,
    GATHERED,
    HEADLINE,
    NEWER_BROKER,
    RATIOS,
    SET_BYTES,
    TICKER_MS,
    Case,
    Client,
    Goal,
)
from tests.tools.bench.growth import Growth

Results = Mapping[Case, Mapping[Client, Sequence[Mapping[str, float]]]]
"""Case → client → the measurements of all rounds."""


TOLERANCE = 0.03
"""How much worse than the checkout before a figure may be."""


def _no_results() -> defaultdict[Case, defaultdict[Client, list[dict[str, float]]]]:
    return defaultdict(lambda: defaultdict(list))


@dataclass(slots=True)
class Record:
    """The results of one run of the benchmark.

    Attributes:
        load: the machine's load average at the start; it should be near 0.
        left_out: by client module, the reason why it didn't take part.
        failures: measurements that failed; the results lack them.
    """

    machine: str
    rounds: int
    messages: int
    load: float
    results: defaultdict[Case, defaultdict[Client, list[dict[str, float]]]] = field(
        default_factory=_no_results
    )
    left_out: dict[str, str] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    growth: Growth | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """The medians of one client in one case."""

    client: Client
    rate: float
    cpu_per_million: float
    peak_rss_mb: float
    spread: float
    """(max - min) / median of the rate over the rounds."""
    more: Mapping[str, float]
    """Medians of the other figures; for the ticker the maximum."""


def rows(measurements: Mapping[Client, Sequence[Mapping[str, float]]]) -> list[Row]:
    """Return one row per client."""
    made = []
    for client, rounds in measurements.items():
        rates = [one["messages"] / one["seconds"] for one in rounds]
        cpu = [one["cpu_seconds"] / one["messages"] * 1e6 for one in rounds]
        rate = statistics.median(rates)
        more = {
            name: (max if name.startswith("ticker") else statistics.median)(
                [one[name] for one in rounds]
            )
            for name in rounds[0]
            if name.endswith("_ms")
        }
        made.append(
            Row(
                client,
                rate,
                statistics.median(cpu),
                max(one["peak_rss_mb"] for one in rounds),
                (max(rates) - min(rates)) / rate,
                more,
            )
        )
    return made


def misses(row: Row, others: Sequence[Row]) -> list[str]:
    """Return the parts of its goal that a row misses."""
    goal = row.client.goal or Goal()
    found = []
    if goal.cpu_per_million is not None and row.cpu_per_million > goal.cpu_per_million:
        found.append(f"CPU {row.cpu_per_million:.2f} > {goal.cpu_per_million}")
    if goal.rate is not None and row.rate < goal.rate:
        found.append(f"{row.rate:,.0f}/s < {goal.rate:,.0f}/s")
    peer = next((one for one in others if one.client.words.startswith(goal.peer)), None)
    if goal.times_peer is not None and peer is not None:
        times = row.rate / peer.rate
        if times < goal.times_peer:
            found.append(f"{times:.2f} × {goal.peer}'s rate < {goal.times_peer} ×")
    if goal.cpu_times_peer is not None and peer is not None:
        times = row.cpu_per_million / peer.cpu_per_million
        if times > goal.cpu_times_peer:
            found.append(f"{times:.2f} × {goal.peer}'s CPU > {goal.cpu_times_peer} ×")
    for name, at_most in _latency_goals(goal).items():
        if peer is not None:
            times = row.more[name] / peer.more[name]
            if times > at_most:
                found.append(f"{name} {times:.2f} × {goal.peer} > {at_most} ×")
    for name, limit in (("p50_ms", goal.p50_ms), ("p99_ms", goal.p99_ms)):
        if limit is not None and row.more[name] > limit:
            found.append(f"{name} {row.more[name]:.3f} > {limit}")
    if goal.peak_rss_mb is not None and row.peak_rss_mb > goal.peak_rss_mb:
        found.append(f"{row.peak_rss_mb:.0f} MB > {goal.peak_rss_mb:.0f} MB")
    compiled = row.client.module == "ours" and row.client.implementation == "c"
    if compiled and row.more["ticker_p999_ms"] > TICKER_MS:
        found.append(f"ticker {row.more['ticker_p999_ms']:.0f} > {TICKER_MS} ms")
    return found


def _latency_goals(goal: Goal) -> dict[str, float]:
    """Return the factors of the peer's latencies, by name, that the goal allows."""
    factors = {"p50_ms": goal.p50_times_peer, "p99_ms": goal.p99_times_peer}
    return {name: factor for name, factor in factors.items() if factor is not None}


def document(record: Record) -> str:
    """Return the whole of docs/benchmarks.md."""
    lines = ["# Benchmarks", "", *_introduction(record)]
    for case, measurements in record.results.items():
        lines += [f"## {case.title}", "", *_table(rows(measurements)), ""]
    lines += _floors(record.results)
    lines += _comparison(record.results)
    lines += _ratios(record.results)
    lines += _reasons(record.results)
    if record.growth is not None:
        lines += growth_report.section(record.growth)
    if record.left_out:
        lines += ["## Left out", "", *(f"- {why}" for why in record.left_out.values()), ""]
    if failures := [*record.failures, *(record.growth.failures if record.growth else ())]:
        lines += ["## Failed", "", *(f"- {why.splitlines()[-1]}" for why in failures), ""]
    return "\n".join(lines)


def _table(made: Sequence[Row]) -> Iterable[str]:
    """Yield the lines of a case's table; latencies have columns where they were measured."""
    latencies = ["p50", "p99"] if any("p50_ms" in row.more for row in made) else []
    header = ["client", "messages/s", "spread", "CPU", "RSS", "ticker", *latencies]
    yield f"| {' | '.join(header)} |"
    yield f"|---|{'---:|' * (len(header) - 1)}"
    for row in made:
        cells = [row.client.words, f"{row.rate:,.0f}", f"{row.spread:.0%}"]
        cells += [f"{row.cpu_per_million:.2f}", f"{row.peak_rss_mb:.0f}", _ticker(row)]
        found = [row.more.get(f"{name}_ms") for name in latencies]
        cells += ["" if one is None else f"{one:.3f}" for one in found]
        yield f"| {' | '.join(cells)} |"


def _ticker(row: Row) -> str:
    if "ticker_p999_ms" not in row.more:
        return ""
    late, latest = (f"{row.more[f'ticker_{name}_ms']:.0f}" for name in ("p999", "max"))
    return late if late == latest else f"{late}, max {latest}"


def as_json(record: Record) -> str:
    """Return all measurements as JSON."""
    return (
        json.dumps(
            {
                "machine": record.machine,
                "broker": BROKER,
                "rounds": record.rounds,
                "messages": record.messages,
                "load": record.load,
                "left_out": record.left_out,
                "failures": record.failures,
                "results": {
                    case.title: {client.words: found for client, found in measured.items()}
                    for case, measured in record.results.items()
                },
                "growth": growth_report.as_json(record.growth) if record.growth else None,
            },
            indent=1,
        )
        + "\n"
    )


def _introduction(record: Record) -> Iterable[str]:
    yield (
        f"Written by `nox -s bench`: {record.rounds} interleaved rounds of {record.messages:,} "
        "messages, fewer for slow clients. Rates and CPU are medians; spread is (max - min) / "
        "median of the rate."
    )
    yield ""
    yield "| | |"
    yield "|---|---|"
    yield f"| machine | {record.machine}; load average {record.load:.1f} at the start |"
    yield (
        f"| broker | a real {BROKER}; for aiokafka, which doesn't support 0.8, a real "
        f"{NEWER_BROKER}; on the same cores as the client |"
    )
    yield (
        "| topics | 3 partitions, linger 5 ms, unless a title or a row has others; acks=1, "
        "256-KiB batches |"
    )
    yield (
        f"| topics to be read | sets of {SET_BYTES // 1024} KiB before compression, as of Java's "
        "producer; with much larger plain sets the broker limits every reader |"
    )
    yield "| processes | one for each case; each peer in a venv of its own |"
    yield (
        "| CPU | seconds per million messages: `getrusage` over the whole process, the benchmark's "
        "own loops included, from the end of the warm-up to the last result |"
    )
    yield (
        "| warm-up | 1,000 messages; for Java up to 200,000, since a JVM compiles code that runs "
        "often |"
    )
    yield "| RSS | the process's peak in MB, values to be sent included |"
    yield (
        "| results of `send`, gathered | without callbacks: the benchmark awaits the results of "
        f"{GATHERED:,} messages after it has sent the next {GATHERED:,} |"
    )
    yield (
        "| garbage collector | `gc.freeze()` before the measurement in all Python processes, so "
        "that the values aren't examined |"
    )
    yield (
        "| CRCs | checked by each reader; within compressed sets by this package, while librdkafka "
        "and kafka-python check only that of the set |"
    )
    yield "| event loop | uvloop unless a row says otherwise |"
    yield "| “(pure)” | this package without its compiled code |"
    yield (
        "| “floor” | the same bytes with nothing but an asyncio Protocol and futures, in "
        "`tests/tools/bench/clients/`: encoded before the measurement (`floors.py`) or by this "
        "package's codec (`produce_floors.py`, `consume_floors.py`) |"
    )
    yield "| “ten times over” | one consumer reads the same topic ten times |"
    yield (
        "| ticker | how many ms a timer of 10 ms in the client's event loop was late: p99.9, and "
        "the maximum where it differs |"
    )
    yield "| p50, p99 | ms from the call to the result |"
    yield ""
    yield (
        "The goals are in `tests/tools/bench/cases.py`, those that aren't reached in "
        "[Missed goals](#missed-goals). [Performance and tuning](guides/tuning.md) says what "
        "decides the figures, [Where the time goes](performance.md) what the code does."
    )
    yield ""
    if any(case in record.results for case in HEADLINE):
        yield "![CPU seconds per million messages](benchmarks.png)"
        yield ""


def from_json(text: str) -> Record:
    """Return the run that `as_json()` wrote."""
    data = json.loads(text)
    record = Record(data["machine"], data["rounds"], data["messages"], data["load"])
    for case in CASES:
        clients = {client.words: client for client in case.clients}
        for words, found in data["results"].get(case.title, {}).items():
            record.results[case][clients[words]] = found
    record.left_out, record.failures = data["left_out"], data["failures"]
    if data["growth"]:
        record.growth = growth_report.from_json(data["growth"])
    return record


def _floors(results: Results) -> list[str]:
    """Return a table of the CPU of this package over that of its floors.

    A ratio is the median over the rounds of the ratio within a round, as in `_comparison`.
    """
    lines = []
    for case, measurements in results.items():
        by_words = {client.words: found for client, found in measurements.items()}
        for client, found in measurements.items():
            pairs = list(zip(found, by_words.get(client.floor, ()), strict=False))
            if client.module == BEFORE or not pairs:
                continue
            times = statistics.median([_cpu(one) / _cpu(floor) for one, floor in pairs])
            lines.append(f"| {case.title} | {client.words} | {client.floor} | {times:.2f} × |")
    if not lines:
        return []
    return [
        "## This package and its floors",
        "",
        "CPU per message, divided by that of the floor: medians of the ratios within each round.",
        "",
        "| case | this package | floor | CPU |",
        "|---|---|---|---:|",
        *lines,
        "",
    ]


def _cpu(one: Mapping[str, float]) -> float:
    return one["cpu_seconds"] / one["messages"]


def _comparison(results: Results) -> list[str]:
    """Return a table of this checkout's figures over those of `--before`.

    A ratio is the median over the rounds of the ratio within a round, so that a machine that gets
    slower in the course of the run doesn't count.
    """
    lines = []
    for case, measurements in results.items():
        for client, now in measurements.items():
            before = measurements.get(client.before(), ()) if client.is_ours else ()
            if not now or not before:
                continue
            pairs = list(zip(now, before, strict=False))  # a measurement may have failed
            ratios = {
                name: statistics.median([figure(one) / figure(other) for one, other in pairs])
                for name, figure in _FIGURES.items()
                if not name.endswith("_ms") or name in now[0]
            }
            worse = [
                f"{name} {ratio:.3f}"
                for name, ratio in ratios.items()
                if (ratio < 1 - TOLERANCE if name == "messages/s" else ratio > 1 + TOLERANCE)
            ]
            cells = [f"{ratios[name]:.3f}" if name in ratios else "" for name in _FIGURES]
            lines.append(
                f"| {case.title} | {client.words} | {' | '.join(cells)} | {'; '.join(worse)} |"
            )
    if not lines:
        return []
    return [
        "## This checkout / the one before",
        "",
        f"Medians of the ratios within each round. Worse: by more than {TOLERANCE:.0%}.",
        "",
        f"| case | client | {' | '.join(_FIGURES)} | worse |",
        f"|---|---|{'---:|' * len(_FIGURES)}---|",
        *lines,
        "",
    ]


_FIGURES: Mapping[str, Callable[[Mapping[str, float]], float]] = {
    "messages/s": lambda one: one["messages"] / one["seconds"],
    "CPU": _cpu,
    "RSS": lambda one: one["peak_rss_mb"],
    "p50_ms": lambda one: one["p50_ms"],
    "p99_ms": lambda one: one["p99_ms"],
}
"""Figures of a measurement that two checkouts are compared by."""


def _ratios(results: Results) -> list[str]:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for ratio in RATIOS:
        took = {
            row.client.words: row.cpu_per_million if ratio.what == "CPU" else row.more["p50_ms"]
            for row in rows(results.get(ratio.case, {}))
            if row.client.words in (ratio.ours, ratio.peer)
        }
        if len(took) == 2:
            times = took[ratio.peer] / took[ratio.ours]
            goal = ": ".join(filter(None, (f"missed: {ratio.at_least} ×", ratio.why)))
            missed = f" ({goal})" if times < ratio.at_least else ""
            ours = ratio.ours.removeprefix("aiokafka08 (pure) ")
            found[ratio.case.title].append(f"{ours}: {times:.1f} ×{missed}")
    if not found:
        return []
    return [
        "## Pure Python and kafka-python",
        "",
        "kafka-python's CPU per message, divided by that of this package in pure Python; one at a "
        "time: its p50.",
        "",
        "| case | ratios |",
        "|---|---|",
        *(f"| {case} | {'; '.join(ratios)} |" for case, ratios in found.items()),
        "",
    ]


def _reasons(results: Results) -> list[str]:
    """Return a table of the rows that miss their goals, with reasons."""
    found: list[tuple[str, str, str, str]] = []
    for case, measurements in results.items():
        made = rows(measurements)
        for row in made:
            missed = misses(row, made)
            if missed:
                late = [one for one in missed if one.startswith("ticker")]
                whys = []
                if row.client.goal and len(missed) > len(late):
                    whys.append(row.client.goal.why)
                if late:
                    whys.append(_TICKER_WHY.get(row.client.call, ""))
                why = " ".join(filter(None, whys))
                found.append((case.title, row.client.words, "; ".join(missed), why))
    lines = []
    before = last = ""
    for title, client, missed_goals, why in found:
        shown = "the same" if why and why == before else why
        lines.append(f"| {'' if title == last else title} | {client} | {missed_goals} | {shown} |")
        last, before = title, why
    if not lines:
        return []
    return [
        "## Missed goals",
        "",
        "| case | client | missed | why |",
        "|---|---|---|---|",
        *lines,
        "",
    ]


_TICKER_WHY = {
    "send": "Python's garbage collector walks over all kept results without a pause.",
    "send_many": "A call copies its whole list of values, and Python's garbage collector walks "
    "over the copy without a pause.",
    "arrow": "One batch is decoded and wrapped without a pause.",
}
"""By call: the reason why the event loop was held."""
