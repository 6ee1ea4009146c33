"""The stage that writes: one producer sends all lines to the topic.

The first messages go one at a time, to measure how long an acknowledgement takes. All others go in
lists, and at most `AHEAD` of all messages is in flight.

If the cluster is the demo's own, half of the lists are measured while all brokers run, and half
while the leader of a partition is killed: its messages in flight are sent again to the next leader.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from time import perf_counter as clock  # the clock of uvloop counts milliseconds
from typing import NamedTuple, cast

from aiokafka08 import AIOKafkaProducer
from aiokafka08.partitioner import DefaultPartitioner
from aiokafka08.producer.deliveries import Deliveries
from aiokafka08.producer.options import CompressionType
from examples.demo.cluster import NOTICE_S
from examples.demo.progress import Meter
from examples.demo.run import Acknowledged, Run, Speed, on_loop
from examples.demo.timeline import percentile

ONE_AT_A_TIME = 2_000
"""At most this many messages, and no more than a tenth, go one at a time."""
ONE_AT_A_TIME_S = 5.0
SAMPLE_S = 0.02
AHEAD = 0.1
"""Share of the messages that may wait for their acknowledgements: the buffer has room for nearly
all, so that half would be handed over before much is acknowledged."""
KILL_AT = 0.1
"""Share of the messages of the second half that are acknowledged when the leader is killed."""

INGEST, FAILOVER = "ingest", "ingest, leader killed"
"""The stages in which lists are sent; the second one only if a leader is killed."""

PERCENTS = (50, 95, 99)


def ingest(run: Run) -> Sequence[Speed]:
    """Send the input with acks=all and wait for all acknowledgements."""
    speeds = on_loop(_send(run))
    if run.latencies_ms:
        found = ", ".join(
            f"p{percent} {percentile(run.latencies_ms, percent):.2f} ms" for percent in PERCENTS
        )
        run.console.print(
            f"{len(run.latencies_ms):,} messages were sent one at a time with acks=all: {found}"
        )
    if run.killed is not None:
        node, led, partitions = run.killed
        pause_s = run.timeline.longest_pause_s()
        run.console.print(
            f"broker {node}, leader of {led} of {partitions} partitions, was killed in the middle. "
            f"The longest time without an acknowledgement was {pause_s:.2f} s: the embedded "
            f"controller notices a dead broker after {NOTICE_S} s, a real one after some seconds. "
            "Until then acks=all waits for the dead replicas; the partitions that it led wait "
            "on until the producer asks for their new leader, after pauses of 0.1, 0.2, 0.4 s …"
        )
    return speeds


async def _send(run: Run) -> list[Speed]:
    speeds = []
    async with _producer(run, linger_ms=0) as producer:
        partitions = sorted(await producer.partitions_for(run.topic))
        partitioner = DefaultPartitioner()
        parts = deque(
            # All lines of a module have the same key, so one partition.
            Part(key, lines, partitioner(key, partitions, partitions))
            for key, lines in run.input.parts()
        )
        begun = clock()
        await _send_one_at_a_time(run, producer, parts)
        if run.sent:
            seconds = clock() - begun
            speeds.append(Speed("one at a time", len(run.sent), sum(map(_size, run.sent)), seconds))
    producer = _producer(run, linger_ms=5)
    await producer.start()
    try:
        await producer.partitions_for(run.topic)
        begun = clock()
        left = run.input.messages - len(run.sent)
        undisturbed = left if run.kill_leader is None else left // 2
        speeds.append(await _send_lists(run, producer, _take(parts, undisturbed), INGEST, begun))
        if run.kill_leader is not None:
            speeds.append(await _send_lists(run, producer, parts, FAILOVER, begun))
    finally:
        await producer.stop(timeout=1)  # nothing is buffered, unless this was interrupted
    return speeds


def _producer(run: Run, linger_ms: int) -> AIOKafkaProducer:
    return AIOKafkaProducer(
        bootstrap_servers=run.bootstrap,
        acks="all",
        compression_type=cast("CompressionType | None", run.codec),
        linger_ms=linger_ms,
        max_batch_size=256 * 1024,
        delivery_timeout_ms=30_000,
    )


class Part(NamedTuple):
    """A key, some of its lines, and their partition."""

    key: bytes
    lines: list[bytes]
    partition: int


def _take(parts: deque[Part], messages: int) -> list[Part]:
    """Remove the first parts, of `messages` in all; of the last one a part may stay."""
    taken = []
    while messages and parts:
        part = parts.popleft()
        if len(part.lines) > messages:
            parts.appendleft(part._replace(lines=part.lines[messages:]))
            part = part._replace(lines=part.lines[:messages])
        messages -= len(part.lines)
        taken.append(part)
    return taken


async def _send_one_at_a_time(run: Run, producer: AIOKafkaProducer, parts: deque[Part]) -> None:
    """Send the first messages, and remove them from the parts."""
    end = clock() + ONE_AT_A_TIME_S
    for _ in range(min(ONE_AT_A_TIME, run.input.messages // 10)):
        if clock() > end:
            break
        [(key, [line], partition)] = _take(parts, 1)
        begun = clock()
        metadata = await producer.send_and_wait(run.topic, line, key=key, partition=partition)
        run.latencies_ms.append(1000 * (clock() - begun))
        run.sent.append(Acknowledged(key, [line], [metadata]))


async def _send_lists(
    run: Run, producer: AIOKafkaProducer, parts: Sequence[Part], stage: str, begun: float
) -> Speed:
    """Send the parts, wait for their acknowledgements, and measure that."""
    messages = sum(len(part.lines) for part in parts)
    size_bytes = sum(map(_size, parts))
    before = int(producer.metrics()["messages_sent"])
    with Meter(run.console, stage, messages) as meter:
        watching = asyncio.create_task(_watch(run, producer, meter, begun, before))
        try:
            await _hand_over(run, producer, parts, begun, kill=stage == FAILOVER)
        finally:
            watching.cancel()
        meter.advance(messages - meter.done)
    run.timeline.add(clock() - begun, before + messages)
    return Speed(stage, messages, size_bytes, meter.seconds)


async def _hand_over(
    run: Run, producer: AIOKafkaProducer, parts: Sequence[Part], begun: float, *, kill: bool
) -> None:
    acknowledged = handed_over = 0
    kill_at = KILL_AT * sum(len(part.lines) for part in parts)
    most = AHEAD * run.input.messages
    in_flight: deque[tuple[Part, Deliveries]] = deque()

    async def await_oldest() -> None:
        nonlocal acknowledged
        part, deliveries = in_flight.popleft()
        run.sent.append(Acknowledged(part.key, part.lines, await deliveries))
        acknowledged += len(part.lines)
        if kill and acknowledged >= kill_at and run.killed is None:
            assert run.kill_leader is not None
            run.timeline.killed_s = clock() - begun
            run.killed = await asyncio.to_thread(run.kill_leader)

    for part in parts:
        key, lines, partition = part
        deliveries = await producer.send_many(
            run.topic, lines, keys=[key] * len(lines), partition=partition
        )  # waits while the buffer is full
        in_flight.append((part, deliveries))
        handed_over += len(lines)
        while in_flight and (in_flight[0][1].done() or handed_over - acknowledged > most):
            await await_oldest()
    while in_flight:
        await await_oldest()


async def _watch(
    run: Run, producer: AIOKafkaProducer, meter: Meter, begun: float, before: int
) -> None:
    """Sample the number of acknowledged messages, until this task is cancelled."""
    while True:
        acknowledged = int(producer.metrics()["messages_sent"])
        run.timeline.add(clock() - begun, acknowledged)
        meter.advance(acknowledged - before - meter.done)
        await asyncio.sleep(SAMPLE_S)


def _size(part: Part | Acknowledged) -> int:
    values = part.lines if isinstance(part, Part) else part.values
    return sum(len(part.key) + len(value) for value in values)
