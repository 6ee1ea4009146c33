"""This package, on uvloop unless the name says asyncio, with a ticker in the same event loop."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import uvloop

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from tests.tools.bench.cases import (
    BATCH_BYTES,
    FEW_LISTED,
    GATHERED,
    LINGER_MS,
    LISTED,
    LOOPS,
    PARTITIONS,
    SEEKS,
    keys,
)
from tests.tools.bench.clients.gathering import send_all
from tests.tools.bench.clients.running import run
from tests.tools.bench.measure import WARM_UP, Measurement, TickingMeter, latencies

if TYPE_CHECKING:
    from aiokafka08.producer.options import CompressionType

DEFAULT_FETCH_MAX_BYTES = 50 * 1024 * 1024
TIMES = 10
"""Number of times that `getmany_ten_times` reads the topic."""


def _producer(
    bootstrap: str, compression: str | None, linger_ms: int = LINGER_MS
) -> AIOKafkaProducer:
    return AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        acks=1,
        linger_ms=linger_ms,
        max_batch_size=BATCH_BYTES,
        compression_type=cast("CompressionType | None", compression),
    )


def send(bootstrap: str, topic: str, values: list[bytes], compression: str | None) -> Measurement:
    """Measure `await send()` per message, with results awaited later (see `send_all`)."""

    async def work() -> Measurement:
        async with _producer(bootstrap, compression) as producer:
            for first in [await producer.send(topic, value) for value in values[:WARM_UP]]:
                await first
            meter = TickingMeter()
            await send_all(producer, topic, values)
            return meter.stop(len(values))

    return run(work())


def send_kept(
    bootstrap: str, topic: str, values: list[bytes], compression: str | None
) -> Measurement:
    """Measure `await send()` per message, with all results kept and then awaited.

    Expects that all values are the same object: peak memory is then that of the results.
    """
    value, count = values[0], len(values)
    values.clear()  # the list alone is as large as the one that keeps the results

    async def work() -> Measurement:
        async with _producer(bootstrap, compression) as producer:
            for first in [await producer.send(topic, value) for _ in range(WARM_UP)]:
                await first
            meter = TickingMeter()
            for sent in [await producer.send(topic, value) for _ in range(count)]:
                await sent
            return meter.stop(count)

    return run(work())


def send_many(
    bootstrap: str, topic: str, values: list[bytes], compression: str | None
) -> Measurement:
    """Measure one `send_many` per partition, with all deliveries awaited."""

    async def work() -> Measurement:
        async with _producer(bootstrap, compression) as producer:
            await (await producer.send_many(topic, values[:WARM_UP]))
            shares = [values[part::PARTITIONS] for part in range(PARTITIONS)]
            meter = TickingMeter()
            parts = [
                await producer.send_many(topic, share, partition=part)
                for part, share in enumerate(shares)
            ]
            delivered = 0
            for part in parts:
                delivered += len(await part)
            measurement = meter.stop(len(values))
            assert delivered == len(values)
            return measurement

    return run(work())


def send_many_few(
    bootstrap: str, topic: str, values: list[bytes], compression: str | None
) -> Measurement:
    """Measure `send_many` of lists of `FEW_LISTED`."""
    return _send_lists(bootstrap, topic, values, compression, FEW_LISTED)


def send_many_listed(
    bootstrap: str, topic: str, values: list[bytes], compression: str | None
) -> Measurement:
    """Measure `send_many` of lists of `LISTED`."""
    return _send_lists(bootstrap, topic, values, compression, LISTED)


def _send_lists(
    bootstrap: str, topic: str, values: list[bytes], compression: str | None, listed: int
) -> Measurement:
    """Send lists to one partition after the other, with `GATHERED` messages in flight."""
    lists = [values[start : start + listed] for start in range(0, len(values), listed)]

    async def work() -> Measurement:
        async with _producer(bootstrap, compression) as producer:
            await (await producer.send_many(topic, values[:WARM_UP]))
            partitions = itertools.cycle(range(PARTITIONS))
            delivered = 0
            deliveries = deque[Awaitable[Sequence[object]]]()
            meter = TickingMeter()
            for some in lists:
                deliveries.append(await producer.send_many(topic, some, partition=next(partitions)))
                if len(deliveries) > GATHERED // listed:
                    delivered += len(await deliveries.popleft())
            for delivery in deliveries:
                delivered += len(await delivery)
            measurement = meter.stop(len(values))
            assert delivered == len(values)
            return measurement

    return run(work())


def send_by_key(
    bootstrap: str, topic: str, values: list[bytes], compression: str | None, *, linger_ms: int
) -> Measurement:
    """Measure `await send()` per message by key, with results awaited later."""
    places = iter([{"key": key} for key in keys(len(values))])

    async def work() -> Measurement:
        async with _producer(bootstrap, compression, linger_ms) as producer:
            for first in [await producer.send(topic, value) for value in values[:WARM_UP]]:
                await first
            meter = TickingMeter()
            await send_all(producer, topic, values, places)
            return meter.stop(len(values))

    return run(work())


def send_many_by_key(
    bootstrap: str, topic: str, values: list[bytes], compression: str | None, *, linger_ms: int
) -> Measurement:
    """Measure `send_many` of lists by key; a list's deliveries are awaited after the next call."""
    all_keys = keys(len(values))

    async def work() -> Measurement:
        async with _producer(bootstrap, compression, linger_ms) as producer:
            await (await producer.send_many(topic, values[:WARM_UP]))
            meter = TickingMeter()
            deliveries = []
            for start in range(0, len(values), LISTED):
                some = slice(start, start + LISTED)
                deliveries.append(
                    await producer.send_many(topic, values[some], keys=all_keys[some])
                )
                if len(deliveries) > 1:
                    await deliveries.pop(0)
            await deliveries.pop()
            return meter.stop(len(values))

    return run(work())


def fill(
    bootstrap: str,
    topic: str,
    values: list[bytes],
    compression: str | None,
    *,
    set_bytes: int,
    partitions: int,
) -> Measurement:
    """Fill a topic to be read, with sets of about this size."""

    async def work() -> Measurement:
        meter = TickingMeter()
        async with AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            acks=1,
            max_batch_size=set_bytes,
            max_request_size=set_bytes,  # else batches grow while others are in flight
            compression_type=cast("CompressionType | None", compression),
        ) as producer:
            parts = [
                await producer.send_many(topic, values[part::partitions], partition=part)
                for part in range(partitions)
            ]
            for part in parts:
                await part
        return meter.stop(len(values))

    return run(work())


def loops(
    bootstrap: str,
    topic: str,
    values: list[bytes],
    compression: str | None,
    new_loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop,
) -> Measurement:
    """Measure a thousand coroutines in `send_and_wait` loops, with linger 0."""

    async def work() -> Measurement:
        async with _producer(bootstrap, compression, 0) as producer:

            async def walk(share: list[bytes]) -> None:
                for value in share:
                    await producer.send_and_wait(topic, value)

            await asyncio.gather(*[walk(values[:1]) for _ in range(LOOPS)])
            shares = [values[start::LOOPS] for start in range(LOOPS)]
            meter = TickingMeter()
            await asyncio.gather(*map(walk, shares))
            return meter.stop(len(values))

    return run(work(), new_loop)


def loops_asyncio(
    bootstrap: str, topic: str, values: list[bytes], compression: str | None
) -> Measurement:
    """Measure the same on asyncio's own event loop."""
    return loops(bootstrap, topic, values, compression, asyncio.new_event_loop)


def one_by_one(
    bootstrap: str,
    topic: str,
    values: list[bytes],
    compression: str | None,
    new_loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop,
) -> Measurement:
    """Measure one coroutine in a `send_and_wait` loop, with linger 0."""

    async def work() -> Measurement:
        async with _producer(bootstrap, compression, 0) as producer:
            for value in values[:WARM_UP]:
                await producer.send_and_wait(topic, value, partition=0)
            took = []
            meter = TickingMeter()
            for value in values:
                begun = time.perf_counter()
                await producer.send_and_wait(topic, value, partition=0)
                took.append(time.perf_counter() - begun)
            measurement = meter.stop(len(values))
            return replace(measurement, more=measurement.more | latencies(took))

    return run(work(), new_loop)


def one_by_one_asyncio(
    bootstrap: str, topic: str, values: list[bytes], compression: str | None
) -> Measurement:
    """Measure the same on asyncio's own event loop."""
    return one_by_one(bootstrap, topic, values, compression, asyncio.new_event_loop)


def seek_back(
    bootstrap: str, topic: str, values: list[bytes], compression: str | None
) -> Measurement:
    """Measure `getone()` after a `seek()` back by one, on a topic that gets no messages."""

    async def work() -> Measurement:
        place = TopicPartition(topic, 0)
        async with _producer(bootstrap, compression) as producer:
            await (await producer.send_many(topic, values[:WARM_UP], partition=0))
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap)
        consumer.assign([place])
        async with consumer:
            await consumer.seek_to_end(place)
            end = await consumer.position(place)
            took = []
            meter = TickingMeter()
            for _ in range(SEEKS):
                await asyncio.sleep(0.02)  # now a long poll hangs
                begun = time.perf_counter()
                consumer.seek(place, end - 1)
                await consumer.getone()
                took.append(time.perf_counter() - begun)
            measurement = meter.stop(SEEKS)
        return replace(measurement, more=measurement.more | latencies(took))

    return run(work())


Take = Callable[[AIOKafkaConsumer, int], Awaitable[int]]
"""Reads at least this many messages, touches the values, and returns the number of messages."""


def read(
    bootstrap: str,
    places: Sequence[TopicPartition],
    count: int,
    take: Take,
    fetch_max_bytes: int = 2 * PARTITIONS * 1024 * 1024,
) -> Measurement:
    """Measure `take` with `count` messages, after another consumer has read a few."""

    async def work() -> Measurement:
        for wanted in (WARM_UP, count):
            consumer = AIOKafkaConsumer(
                bootstrap_servers=bootstrap,
                group_id=None,
                auto_offset_reset="earliest",
                fetch_max_bytes=fetch_max_bytes,
            )
            consumer.assign(places)
            async with consumer:
                meter = TickingMeter()
                measurement = meter.stop(await take(consumer, wanted))
        return measurement

    return run(work())


def _all_of(topic: str, partitions: int = PARTITIONS) -> list[TopicPartition]:
    return [TopicPartition(topic, partition) for partition in range(partitions)]


async def take_arrow(consumer: AIOKafkaConsumer, count: int) -> int:
    """Read Arrow batches and add up the lengths of the value columns."""
    seen = size = 0
    while seen < count:
        batch = await consumer.getmany_arrow(timeout_ms=5000)
        size += batch.column("value").nbytes
        seen += batch.num_rows
    return seen


async def take_many(consumer: AIOKafkaConsumer, count: int) -> int:
    """Read a thousand records per call."""
    seen = size = 0
    while seen < count:
        for records in (await consumer.getmany(timeout_ms=5000, max_records=1000)).values():
            for record in records:
                size += len(record.value or b"")
            seen += len(records)
    return seen


async def take_one_by_one(consumer: AIOKafkaConsumer, count: int) -> int:
    """Read by `async for`."""
    seen = size = 0
    async for record in consumer:
        size += len(record.value or b"")
        seen += 1
        if seen == count:
            break
    return seen


async def take_many_ten_times(consumer: AIOKafkaConsumer, count: int) -> int:
    """Read the same messages `TIMES` times."""
    seen = 0
    for _ in range(TIMES):
        await consumer.seek_to_beginning()
        seen += await take_many(consumer, count)
    return seen


def arrow(bootstrap: str, topic: str, count: int) -> Measurement:
    """Measure `getmany_arrow()`."""
    return read(bootstrap, _all_of(topic), count, take_arrow)


def arrow_50_mib(
    bootstrap: str, topic: str, count: int, partitions: int = PARTITIONS
) -> Measurement:
    """Measure `getmany_arrow()` with the default `fetch_max_bytes`, so that fetches may grow."""
    places = _all_of(topic, partitions)
    return read(bootstrap, places, count, take_arrow, DEFAULT_FETCH_MAX_BYTES)


def getmany_50_mib(
    bootstrap: str, topic: str, count: int, partitions: int = PARTITIONS
) -> Measurement:
    """Measure `getmany()` with the default `fetch_max_bytes`, so that fetches may grow."""
    places = _all_of(topic, partitions)
    return read(bootstrap, places, count, take_many, DEFAULT_FETCH_MAX_BYTES)


def iterate_50_mib(
    bootstrap: str, topic: str, count: int, partitions: int = PARTITIONS
) -> Measurement:
    """Measure `async for` with the default `fetch_max_bytes`."""
    places = _all_of(topic, partitions)
    return read(bootstrap, places, count, take_one_by_one, DEFAULT_FETCH_MAX_BYTES)


def getmany(bootstrap: str, topic: str, count: int) -> Measurement:
    """Measure `getmany(max_records=1000)`, touching the values."""
    return read(bootstrap, _all_of(topic), count, take_many)


def getmany_ten_times(bootstrap: str, topic: str, count: int) -> Measurement:
    """Measure `getmany` over the topic again and again: peak memory must not grow."""
    return read(bootstrap, _all_of(topic), count, take_many_ten_times)


def iterate(bootstrap: str, topic: str, count: int) -> Measurement:
    """Measure `async for record in consumer`, touching the values."""
    return read(bootstrap, _all_of(topic), count, take_one_by_one)
