"""Turn the measurements of `growth` into the section of docs/benchmarks.md. Pure.

`report` calls `section()` and `as_json()`; `plot` draws the `summaries()`.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tests.tools.bench.growth import (
    BATCHES,
    BROKERS,
    DELAYS_MS,
    PARTITIONS,
    TABLES,
    WIDE,
    WIDE_FILL,
    WIDE_PARTITIONS,
    Growth,
    Point,
)

MOST_GROWTH = 1.5
LEAST_FILL = 500
LEAST_PIPELINING = 5


@dataclass(frozen=True, slots=True)
class Summary:
    """Medians of one point; `fill` and the next two are 0 for a consumer."""

    point: Point
    rate: float
    spread: float
    cpu_per_million: float
    fill: float
    """Messages in a batch, on average."""
    batch_bytes: float
    megabytes_per_second: float
    """Values with their headers."""
    ticker_ms: float


def summaries(growth: Growth) -> list[Summary]:
    """Return one summary for each point that was measured."""
    return [_summary(point, rounds) for point, rounds in growth.results.items() if rounds]


def section(growth: Growth) -> list[str]:
    """Return the section as lines of Markdown."""
    found = summaries(growth)
    tables = {name: [one for one in found if one.point.table == name] for name in TABLES}
    made: list[str] = []
    if tables["fill"]:
        made += _fill_table(tables["fill"])
    if tables[WIDE]:
        made += _wide_table(tables[WIDE], growth.wide_load)
    if tables["linger"]:
        made += _linger_table(tables["linger"])
    if tables["batch"]:
        made += _batch_table(tables["batch"])
    if tables["pipeline"] or tables["long"]:
        made += _delay_table(tables["pipeline"], tables["long"])
    return [
        "## Growth",
        "",
        "This package alone, on uvloop, with values of 100 bytes unless a table says otherwise.",
        "",
        *_clusters(growth),
        "- A cell has the client's CPU seconds per million messages, thousands of messages per "
        "second, and the fill: the mean number of messages in a batch.",
        "- `send` goes round robin over the partitions, and yields to the event loop after every "
        "100 messages.",
        "",
        "![Growth](benchmarks_growth.png)",
        "",
        *made,
    ]


def as_json(growth: Growth) -> Any:
    """Return all measurements, each with its point."""
    return {
        "round_trips_ms": [
            {"brokers": brokers, "delay_ms": delay_ms, "round_trip_ms": found}
            for (brokers, delay_ms), found in growth.round_trips_ms.items()
        ],
        "results": [
            {"point": asdict(point) | {"options": dict(point.options)}, "rounds": rounds}
            for point, rounds in growth.results.items()
        ],
        "failures": growth.failures,
        "wide_load": growth.wide_load,
    }


def from_json(data: Any) -> Growth:
    """Return the measurements that `as_json()` returned."""
    growth = Growth(failures=data["failures"], wide_load=data["wide_load"])
    for found in data["round_trips_ms"]:
        growth.round_trips_ms[found["brokers"], found["delay_ms"]] = found["round_trip_ms"]
    for found in data["results"]:
        options = tuple(found["point"]["options"].items())
        growth.results[Point(**found["point"] | {"options": options})] = found["rounds"]
    return growth


def _summary(point: Point, rounds: Sequence[dict[str, float]]) -> Summary:
    rates = [one["messages"] / one["seconds"] for one in rounds]
    rate = statistics.median(rates)

    def median(of: Iterable[float]) -> float:
        return statistics.median(of)

    sent = [one for one in rounds if one.get("batches")]
    return Summary(
        point,
        rate,
        (max(rates) - min(rates)) / rate,
        median(one["cpu_seconds"] / one["messages"] * 1e6 for one in rounds),
        median(one["messages"] / one["batches"] for one in sent) if sent else 0.0,
        median(one["bytes"] / one["batches"] for one in sent) if sent else 0.0,
        median(one["bytes"] / one["seconds"] / 1e6 for one in sent) if sent else 0.0,
        max(one["ticker_p999_ms"] for one in rounds),
    )


def _fill_table(found: list[Summary]) -> Iterator[str]:
    yield from _head(
        f"Partitions, at an equal mean batch fill of ≥ {LEAST_FILL} messages",
        *(words_of_partitions(count) for count in PARTITIONS),
        *("largest CPU / CPU at 1 partition", "goal", "missed"),
    )
    for call, brokers in itertools.product(("send_many", "send"), BROKERS):
        line = [one for one in found if (one.point.call, one.point.brokers) == (call, brokers)]
        cells = _by_partitions(line)
        if len(line) == len(PARTITIONS):
            times = max(one.cpu_per_million for one in line) / line[0].cpu_per_million
            missed = [f"{times:.2f} ×"] if times > MOST_GROWTH else []
            missed += [f"fill {one.fill:.0f}" for one in line if one.fill < LEAST_FILL]
            cells += [f"{times:.2f}", f"≤ {MOST_GROWTH}", "; ".join(missed)]
        yield _row(f"{call}, {words_of_brokers(brokers)}", *cells)
    yield ""


def _wide_table(found: list[Summary], load: float) -> Iterator[str]:
    yield from _head(
        "Up to 10,000 partitions, on the embedded cluster",
        *(words_of_partitions(count) for count in WIDE_PARTITIONS),
        *("largest CPU / CPU at 1 partition", "goal", "missed"),
    )
    for call in ("send_many", "send", "getmany"):
        line = [one for one in found if one.point.call == call]
        cells = _by_partitions(line, WIDE_PARTITIONS)
        if len(line) == len(WIDE_PARTITIONS):
            times = max(one.cpu_per_million for one in line) / line[0].cpu_per_million
            missed = f"{times:.2f} ×" if times > MOST_GROWTH else ""
            cells += [f"{times:.2f}", *((f"≤ {MOST_GROWTH}", missed) if line[0].fill else ("", ""))]
        yield _row(call, *cells)
    yield ""
    yield (
        f"All batches have {WIDE_FILL} messages; a request of `send_many` or `send` has one batch. "
        "`getmany` reads equally many messages in each column: of 10,000 partitions each has one "
        "batch, which bears all costs of its partition, so that row has no goal. Load average "
        f"{load:.1f} at the start."
    )
    yield ""


def _linger_table(found: list[Summary]) -> Iterator[str]:
    yield from _head(
        "Partitions, brokers and round trips, linger 5 ms, 256-KiB batches",
        *(words_of_partitions(count) for count in PARTITIONS),
    )
    for call, brokers, delay_ms in itertools.product(("send", "getmany"), BROKERS, DELAYS_MS):
        wanted = (call, brokers, delay_ms)
        line = [
            one
            for one in found
            if (one.point.call, one.point.brokers, one.point.delay_ms) == wanted
        ]
        yield _row(f"{call}, {words_of_brokers(brokers)}, {delay_ms} ms", *_by_partitions(line))
    yield ""


def _batch_table(found: list[Summary]) -> Iterator[str]:
    yield from _head(
        "Batch sizes: `send`, one broker, 1 ms, linger 5 ms",
        *(words_of_partitions(count) for count in PARTITIONS),
    )
    for size in BATCHES:
        line = [one for one in found if one.point.option("max_batch_size") == size]
        yield _row(f"{size // 1024:,} KiB", *_by_partitions(line))
    yield ""
    yield (
        "While a batch is in flight the next one grows beyond this size, as far as the link needs."
    )
    yield ""


def _delay_table(pipelined: list[Summary], long: list[Summary]) -> Iterator[str]:
    if pipelined:
        yield from _head(
            "50 ms: `send` to 16 partitions of one broker, requests of at most 64 KiB",
            *("messages/s", "spread", "MB/s", "× one at a time", "goal", "missed"),
        )
    for one in pipelined:
        in_flight = one.point.option("max_in_flight_requests_per_connection")
        times = one.rate / pipelined[0].rate
        last = one is pipelined[-1]
        yield _row(
            f"{in_flight} in flight",
            *(f"{one.rate:,.0f}", f"{one.spread:.0%}", f"{one.megabytes_per_second:.1f}"),
            f"{times:.1f}",
            f"≥ {LEAST_PIPELINING} ×" if last else "",
            f"{times:.1f} ×" if last and times < LEAST_PIPELINING else "",
        )
    yield ""
    for one in long:
        yield (
            f"One partition at 50 ms, values of {one.point.value_bytes:,} bytes, default sizes: "
            f"{one.megabytes_per_second:.1f} MB/s (spread {one.spread:.0%}) at "
            f"{one.cpu_per_million:.2f} CPU; the batches had {one.batch_bytes / 1024:,.0f} KiB on "
            "average."
        )
        yield ""


def _by_partitions(line: list[Summary], counts: Sequence[int] = PARTITIONS) -> list[str]:
    found = {one.point.partitions: _cell(one) for one in line}
    return [found.get(count, "failed") for count in counts]


def _cell(one: Summary) -> str:
    fill = f", {one.fill:,.0f}" if one.fill else ""
    return f"{one.cpu_per_million:.2f}, {one.rate / 1000:,.0f} k/s{fill}"


def _clusters(growth: Growth) -> Iterator[str]:
    if growth.round_trips_ms:
        yield (
            "- A process on the same cores delays the brokers' responses, or only passes them on "
            "(0 ms), so the rates are lower than above."
        )
        delays = ", ".join(map(str, (0, *DELAYS_MS)))
        yield (
            "- Opening a connection and one small request on it took, at delays of the responses "
            f"of {delays} ms: {_round_trips(growth)}."
        )


def _round_trips(growth: Growth) -> str:
    return "; ".join(
        f"{words_of_brokers(brokers)} "
        + ", ".join(
            f"{growth.round_trips_ms[brokers, delay_ms]:.1f} ms"
            for delay_ms in (0, *DELAYS_MS)
            if (brokers, delay_ms) in growth.round_trips_ms
        )
        for brokers in BROKERS
        if (brokers, 0) in growth.round_trips_ms
    )


def _head(title: str, *columns: str) -> list[str]:
    return [f"### {title}", "", _row("", *columns), f"|---|{'---:|' * len(columns)}"]


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def words_of_partitions(count: int) -> str:
    """Return the words for a heading."""
    return "1 partition" if count == 1 else f"{count:,} partitions"


def words_of_brokers(count: int) -> str:
    """Return the words for a heading."""
    return "1 broker" if count == 1 else f"{count} brokers"
