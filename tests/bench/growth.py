"""Measure how cost and rate grow with partitions, brokers, round-trip time and batch size.

`python -m tests.bench --growth` runs it alone. There is a cluster of one broker and one of three.
Both are behind the process of `delay`, also at a delay of 0, so that only the delay differs.
`points()` lists the measurements; `growth_report` and `plot` show them.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from tests.bench.cases import BATCH_BYTES, BROKER, LINGER_MS
from tests.bench.delay import DelayedCluster
from tests.bench.run import OPTIMISED, FailedError, measure

PARTITIONS = (1, 100, 1000)
BROKERS = (1, 3)
DELAYS_MS = (1, 50)
BATCHES = (1024, 16 * 1024, BATCH_BYTES, 1024 * 1024)
IN_FLIGHT = (1, 5, 16)
MOST_PARTITIONS = 100
"""Partitions of one topic; more partitions are spread over several topics."""

TOPIC_S = 120
FILLED = 64 * 1024
"""Bytes of a batch of 520 messages of 100 bytes."""


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
    return found


def run(growth: Growth, rounds: int, share: float, advance: Callable[[str], None]) -> None:
    """Measure all points, `rounds` times in turn.

    Args:
        growth: receives the measurements.
        share: part of the messages; 1 for a full run.
        advance: called with a description before each measurement.

    Raises:
        FailedError, HarnessError: brokers didn't start, or topics couldn't be created or filled.
    """
    todo = points()
    with ExitStack() as stack:
        advance("growth: starting brokers")
        clusters = {
            brokers: stack.enter_context(DelayedCluster(BROKER, brokers, OPTIMISED))
            for brokers in BROKERS
        }
        for brokers, cluster in clusters.items():
            _fill(cluster, [one for one in todo if one.brokers == brokers], share, advance)
            for delay_ms in (0, *DELAYS_MS):
                cluster.set(delay_ms)
                growth.round_trips_ms[brokers, delay_ms] = cluster.round_trip_ms(
                    *_topics("read", 1)
                )
        for _ in range(rounds):
            for point in todo:
                advance(
                    f"growth, {point.table}: {point.call}, partitions: {point.partitions}, "
                    f"brokers: {point.brokers}, {point.delay_ms} ms"
                )
                cluster = clusters[point.brokers]
                cluster.set(point.delay_ms)
                try:
                    found = measure(_command(cluster, point, share))
                except FailedError as error:
                    growth.failures.append(f"growth, {point}: {error}")
                else:
                    growth.results[point].append(found)


def count(rounds: int) -> int:
    """Return how often `run` calls `advance`."""
    return 1 + len(BROKERS) * (1 + len(PARTITIONS)) + rounds * len(points())


def _fill(
    cluster: DelayedCluster, todo: Sequence[Point], share: float, advance: Callable[[str], None]
) -> None:
    """Create the topics, and fill those to be read."""
    advance("growth: creating topics")
    reading = [one for one in todo if one.call == "getmany"]
    writing = [one for one in todo if one.call != "getmany"]
    for what, some in (("read", reading), ("write", writing)):
        for partitions in sorted({one.partitions for one in some}):
            for topic, count in _topics(what, partitions).items():
                cluster.cluster.create_topic(topic, count, timeout=TOPIC_S)
    most = max(one.messages for one in reading)
    for partitions in sorted({one.partitions for one in reading}):
        advance(f"growth: filling topics, partitions: {partitions}")
        filling = Point("fill", "send_many", most, partitions=partitions)
        measure(_command(cluster, filling, share, what="read"))


def _command(
    cluster: DelayedCluster, point: Point, share: float, what: str | None = None
) -> list[str]:
    produces = point.call != "getmany"
    topics = _topics(what or ("write" if produces else "read"), point.partitions)
    job: Mapping[str, object] = {
        "client": "growth",
        "call": point.call,
        "produces": produces,
        "bootstrap": cluster.cluster.bootstrap_servers,
        "topic": topics,
        "messages": max(int(point.messages * share), 1000),
        "value_bytes": point.value_bytes,
        "compression": None,
        "options": dict(point.options),
    }
    return [sys.executable, "-m", "tests.bench.worker", json.dumps(job)]


def _topics(what: str, partitions: int) -> dict[str, int]:
    """Return topics with their numbers of partitions.

    The controller of 0.8.2.2 reads a topic's whole JSON once for each of its partitions: creating a
    topic of 1,000 partitions takes a hundred times as long as one of 100.
    """
    most = min(partitions, MOST_PARTITIONS)
    return {f"growth-{what}-{partitions}-{at}": most for at in range(partitions // most)}


def _options(**options: int) -> tuple[tuple[str, int], ...]:
    return tuple(options.items())
