"""Measure how cost and rate grow with partitions, brokers, round-trip time and batch size.

`python -m tests.tools.bench --growth` runs it alone. There is a cluster of one broker and one of
three. Both are behind the process of `delay`, also at a delay of 0, so that only the delay differs.
The table `wide` has up to 10,000 partitions, which an 0.8.2.2 takes minutes to create: it is
measured on the embedded cluster. `points()` lists the measurements; `growth_report` and `plot` show
them.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from tests.tools.bench.cases import BATCH_BYTES, BROKER, LINGER_MS
from tests.tools.bench.delay import DelayedCluster
from tests.tools.bench.embedded import embedded_cluster
from tests.tools.bench.run import OPTIMISED, FailedError, measure

PARTITIONS = (1, 100, 1000)
WIDE = "wide"
WIDE_PARTITIONS = (1, 100, 1000, 10_000)
WIDE_FILL = 26
TABLES = ("fill", "linger", "batch", "pipeline", "long", WIDE)
BROKERS = (1, 3)
DELAYS_MS = (1, 50)
BATCHES = (1024, 16 * 1024, BATCH_BYTES, 1024 * 1024)
IN_FLIGHT = (1, 5, 16)
MOST_PARTITIONS = 100
"""Partitions of one topic; more partitions are spread over several topics."""

TOPIC_S = 120
FILLED = 64 * 1024
"""Bytes of a batch of 520 messages of 100 bytes."""
WIDE_MESSAGE = 126
"""Bytes of a message of 100 bytes with its header."""


@dataclass(frozen=True, slots=True)
class Point:
    """One measurement of a table; `messages` is the number in a full run."""

    table: str
    call: str
    messages: int
    brokers: int = 1
    delay_ms: int = 0
    partitions: int = 1
    value_bytes: int = 100
    options: tuple[tuple[str, int], ...] = ()
    """Options of the producer."""

    def option(self, name: str) -> int:
        """Return the value of one option."""
        return dict(self.options)[name]


@dataclass(slots=True)
class Growth:
    """The measurements of each point, and the measured round trips."""

    results: dict[Point, list[dict[str, float]]] = field(default_factory=lambda: defaultdict(list))
    round_trips_ms: dict[tuple[int, int], float] = field(default_factory=dict)
    """By (brokers, delay in ms), with the time that a delay of 0 takes."""
    failures: list[str] = field(default_factory=list)
    wide_load: float = 0.0
    """The load average when the table `wide` began."""


def points() -> list[Point]:
    """Return all points, in the order of the tables."""
    filled = _options(
        max_batch_size=FILLED,
        max_request_size=FILLED,  # else batches of one partition grow while one is in flight
        linger_ms=10_000,
        buffer_memory=256 * 1024 * 1024,
    )
    lingering = _options(max_batch_size=BATCH_BYTES, linger_ms=LINGER_MS)
    found = [
        Point("fill", call, 520_000, brokers, 0, partitions, options=filled)
        for call, brokers, partitions in itertools.product(
            ("send_many", "send"), BROKERS, PARTITIONS
        )
    ]
    found += [
        Point("linger", call, 200_000, brokers, delay_ms, partitions, options=options)
        for (call, options), brokers, delay_ms, partitions in itertools.product(
            (("send", lingering), ("getmany", ())), BROKERS, DELAYS_MS, PARTITIONS
        )
    ]
    found += [
        Point(
            *("batch", "send", 200_000, 1, 1, partitions),
            options=_options(max_batch_size=batch_bytes, linger_ms=LINGER_MS),
        )
        for batch_bytes, partitions in itertools.product(BATCHES, PARTITIONS)
    ]
    found += [
        Point(
            *("pipeline", "send", 40_000, 1, 50, 16),
            options=_options(
                # Small, so that the round trip is the limit and not the processor.
                max_batch_size=FILLED,
                max_request_size=FILLED,
                linger_ms=LINGER_MS,
                max_in_flight_requests_per_connection=in_flight,
            ),
        )
        for in_flight in IN_FLIGHT
    ]
    found.append(
        Point("long", "send_many", 60_000, 1, 50, 1, 1024, _options(linger_ms=LINGER_MS)),
    )
    return [*found, *_wide()]


def _wide() -> list[Point]:
    """Return points that write or read equally full batches."""
    messages = WIDE_FILL * max(WIDE_PARTITIONS)
    return [
        Point(WIDE, call, messages, partitions=partitions, options=options)
        for (call, options), partitions in itertools.product(
            (("send_many", _one_batch()), ("send", _one_batch()), ("getmany", ())), WIDE_PARTITIONS
        )
    ]


def _one_batch() -> tuple[tuple[str, int], ...]:
    """Return options of a producer whose requests have one batch of `WIDE_FILL` messages each."""
    size = WIDE_FILL * WIDE_MESSAGE
    return _options(
        max_batch_size=size,
        max_request_size=size,  # else one partition gets fuller batches
        linger_ms=10_000,
        buffer_memory=256 * 1024 * 1024,
    )


def run(
    growth: Growth,
    todo: Sequence[Point],
    rounds: int,
    share: float,
    advance: Callable[[str], None],
) -> None:
    """Measure these points, `rounds` times in turn.

    Args:
        growth: receives the measurements.
        todo: all `points()`, or some.
        share: part of the messages; 1 for a full run. The table `wide` always has all, else its
            batches would be emptier with 10,000 partitions than with one.
        advance: called with a description before each measurement.

    Raises:
        FailedError, HarnessError: brokers didn't start, or topics couldn't be created or filled.
    """
    wide = [one for one in todo if one.table == WIDE]
    if real := [one for one in todo if one.table != WIDE]:
        _run_real(growth, real, rounds, share, advance)
    if wide:
        advance("growth: starting the embedded cluster")
        growth.wide_load = os.getloadavg()[0]
        with embedded_cluster(dict(_topics_of(wide))) as bootstrap:
            _fill(bootstrap, wide, 1, advance, _one_batch())
            for point in [*wide] * rounds:
                _measure(growth, bootstrap, point, 1, advance)


def _run_real(
    growth: Growth,
    todo: Sequence[Point],
    rounds: int,
    share: float,
    advance: Callable[[str], None],
) -> None:
    with ExitStack() as stack:
        advance("growth: starting brokers")
        clusters = {
            brokers: stack.enter_context(DelayedCluster(BROKER, brokers, OPTIMISED))
            for brokers in sorted({one.brokers for one in todo})
        }
        for brokers, cluster in clusters.items():
            own = [one for one in todo if one.brokers == brokers]
            advance("growth: creating topics")
            for topic, count in {"growth-probe": 1, **dict(_topics_of(own))}.items():
                cluster.cluster.create_topic(topic, count, timeout=TOPIC_S)
            _fill(cluster.cluster.bootstrap_servers, own, share, advance)
            for delay_ms in (0, *DELAYS_MS):
                cluster.set(delay_ms)
                growth.round_trips_ms[brokers, delay_ms] = cluster.round_trip_ms("growth-probe")
        for point in [*todo] * rounds:
            cluster = clusters[point.brokers]
            cluster.set(point.delay_ms)
            _measure(growth, cluster.cluster.bootstrap_servers, point, share, advance)


def count(todo: Sequence[Point], rounds: int) -> int:
    """Return how often `run` calls `advance`."""
    real = [one for one in todo if one.table != WIDE]
    wide = [one for one in todo if one.table == WIDE]
    brokers = {one.brokers for one in real}
    filled = {(one.table == WIDE, one.brokers, one.partitions) for one in _reading(todo)}
    return bool(real) + len(brokers) + bool(wide) + len(filled) + rounds * len(todo)


def _measure(
    growth: Growth, bootstrap: str, point: Point, share: float, advance: Callable[[str], None]
) -> None:
    advance(
        f"growth, {point.table}: {point.call}, partitions: {point.partitions}, "
        f"brokers: {point.brokers}, {point.delay_ms} ms"
    )
    try:
        found = measure(_command(bootstrap, point, share))
    except FailedError as error:
        growth.failures.append(f"growth, {point}: {error}")
    else:
        growth.results[point].append(found)


def _fill(
    bootstrap: str,
    todo: Sequence[Point],
    share: float,
    advance: Callable[[str], None],
    options: tuple[tuple[str, int], ...] = (),
) -> None:
    """Fill the topics to be read, by a producer with these options."""
    reading = _reading(todo)
    for partitions in sorted({one.partitions for one in reading}):
        advance(f"growth: filling topics, partitions: {partitions}")
        most = max(one.messages for one in reading)
        filling = Point("fill", "send_many", most, partitions=partitions, options=options)
        measure(_command(bootstrap, filling, share, what="read"))


def _reading(todo: Sequence[Point]) -> list[Point]:
    return [one for one in todo if one.call == "getmany"]


def _topics_of(todo: Sequence[Point]) -> Iterator[tuple[str, int]]:
    """Return the topics of points, with their numbers of partitions."""
    wanted = {("read" if one.call == "getmany" else "write", one.partitions) for one in todo}
    for what, partitions in sorted(wanted):
        yield from _topics(what, partitions).items()


def _command(bootstrap: str, point: Point, share: float, what: str | None = None) -> list[str]:
    produces = point.call != "getmany"
    topics = _topics(what or ("write" if produces else "read"), point.partitions)
    job: Mapping[str, object] = {
        "client": "growth",
        "call": point.call,
        "produces": produces,
        "bootstrap": bootstrap,
        "topic": topics,
        "messages": max(int(point.messages * share), 1000),
        "value_bytes": point.value_bytes,
        "compression": None,
        "options": dict(point.options),
    }
    return [sys.executable, "-m", "tests.tools.bench.worker", json.dumps(job)]


def _topics(what: str, partitions: int) -> dict[str, int]:
    """Return topics with their numbers of partitions.

    The controller of 0.8.2.2 reads a topic's whole JSON once for each of its partitions: creating a
    topic of 1,000 partitions takes a hundred times as long as one of 100.
    """
    most = min(partitions, MOST_PARTITIONS)
    return {f"growth-{what}-{partitions}-{at}": most for at in range(partitions // most)}


def _options(**options: int) -> tuple[tuple[str, int], ...]:
    return tuple(options.items())
