"""The stage that writes: one producer sends all lines to the topic.

The first messages go one at a time, to measure how long an acknowledgement takes. All others go in
lists, and at most `AHEAD` of all messages is in flight. When half of the messages are acknowledged,
the leader of a partition is killed, if the cluster is the demo's own: its messages in flight are
sent again to the next leader.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from time import perf_counter as clock  # the clock of uvloop counts milliseconds
from typing import cast

from aiokafka08 import AIOKafkaProducer
from aiokafka08.partitioner import DefaultPartitioner
from aiokafka08.producer.deliveries import Deliveries
from aiokafka08.producer.options import CompressionType
from examples.demo.progress import Meter
from examples.demo.run import Acknowledged, Run, Speed, on_loop
from examples.demo.timeline import percentile

ONE_AT_A_TIME = 2_000
"""At most so many messages, and no more than a tenth, go one at a time."""
ONE_AT_A_TIME_S = 5.0
SAMPLE_S = 0.02
AHEAD = 0.1
"""Share of the messages that may wait for their acknowledgements: the buffer has room for nearly
all, so that half would be handed over before much is acknowledged."""

PERCENTS = (50, 95, 99)


def ingest(run: Run) -> Sequence[Speed]:
    """Send the input with acks=all and wait for all acknowledgements."""
    with Meter(run.console, "ingest", run.input.messages, "messages") as meter:
        speeds = on_loop(_send(run, meter))
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
            f"The longest time without an acknowledgement was {pause_s:.2f} s"
        )
    return speeds


async def _send(run: Run, meter: Meter) -> list[Speed]:
    async with _producer(run, linger_ms=0) as producer:
        partitions = sorted(await producer.partitions_for(run.topic))
        partitioner = DefaultPartitioner()
        parts = (
            # All lines of a module have the same key, so one partition.
            (key, lines, partitioner(key, partitions, partitions))
            for key, lines in run.input.parts()
        )
        begun = clock()
        rest = await _send_one_at_a_time(run, producer, parts)
        messages, size_bytes = len(run.sent), sum(map(_size, run.sent))
        alone = Speed("one at a time", messages, size_bytes, clock() - begun)
    meter.advance(messages)
    producer = _producer(run, linger_ms=5)
    await producer.start()
    try:
        await producer.partitions_for(run.topic)
        begun = clock()
        watching = asyncio.create_task(_watch(run, producer, meter, begun))
        try:
            await _send_lists(run, producer, rest, begun)
        finally:
            watching.cancel()
        seconds = clock() - begun
    finally:
        await producer.stop(timeout=1)  # nothing is buffered, unless this was interrupted
    in_lists = run.input.messages - messages
    run.timeline.add(seconds, in_lists)
    meter.advance(run.input.messages - meter.done)
    speeds = [alone] if messages else []
    return [*speeds, Speed("ingest", in_lists, run.input.total_bytes - size_bytes, seconds)]


def _producer(run: Run, linger_ms: int) -> AIOKafkaProducer:
    return AIOKafkaProducer(
        bootstrap_servers=run.bootstrap,
        acks="all",
        compression_type=cast("CompressionType | None", run.codec),
        linger_ms=linger_ms,
        max_batch_size=256 * 1024,
        delivery_timeout_ms=30_000,
    )


Part = tuple[bytes, list[bytes], int]
"""A key, some of its lines, and their partition."""


async def _send_one_at_a_time(
    run: Run, producer: AIOKafkaProducer, parts: Iterator[Part]
) -> Iterator[Part]:
    """Send the first messages, and return the parts that are left."""
    end = clock() + ONE_AT_A_TIME_S
    left = min(ONE_AT_A_TIME, run.input.messages // 10)
    for key, lines, partition in parts:
        sent = 0
        for line in lines:
            if not left or clock() > end:
                return _chain((key, lines[sent:], partition), parts)
            begun = clock()
            metadata = await producer.send_and_wait(run.topic, line, key=key, partition=partition)
            run.latencies_ms.append(1000 * (clock() - begun))
            run.sent.append(Acknowledged(key, [line], [metadata]))
            sent, left = sent + 1, left - 1
    return iter(())


def _chain(first: Part, others: Iterator[Part]) -> Iterator[Part]:
    yield first
    yield from others


async def _send_lists(
    run: Run, producer: AIOKafkaProducer, parts: Iterator[Part], begun: float
) -> None:
    acknowledged = handed_over = len(run.sent)
    in_flight: deque[tuple[bytes, list[bytes], Deliveries]] = deque()

    async def await_oldest() -> None:
        nonlocal acknowledged
        key, lines, deliveries = in_flight.popleft()
        run.sent.append(Acknowledged(key, lines, await deliveries))
        acknowledged += len(lines)
        half = acknowledged >= run.input.messages / 2
        if half and run.kill_leader is not None and run.killed is None:
            run.timeline.killed_s = clock() - begun
            run.killed = await asyncio.to_thread(run.kill_leader)

    for key, lines, partition in parts:
        deliveries = await producer.send_many(
            run.topic, lines, keys=[key] * len(lines), partition=partition
        )  # waits while the buffer is full
        in_flight.append((key, lines, deliveries))
        handed_over += len(lines)
        most = AHEAD * run.input.messages
        while in_flight and (in_flight[0][2].done() or handed_over - acknowledged > most):
            await await_oldest()
    while in_flight:
        await await_oldest()


async def _watch(run: Run, producer: AIOKafkaProducer, meter: Meter, begun: float) -> None:
    """Sample the number of acknowledged messages, until this task is cancelled."""
    before = meter.done
    while True:
        acknowledged = int(producer.metrics()["messages_sent"])
        run.timeline.add(clock() - begun, acknowledged)
        meter.advance(before + acknowledged - meter.done)
        await asyncio.sleep(SAMPLE_S)


def _size(part: Acknowledged) -> int:
    return sum(len(part.key) + len(value) for value in part.values)
