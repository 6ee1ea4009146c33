"""aiokafka, on a 3.9.1 broker (it doesn't support 0.8.2), on uvloop and with a ticker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

import uvloop
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from tests.tools.bench.cases import BATCH_BYTES, LINGER_MS, LOOPS, PARTITIONS
from tests.tools.bench.clients.gathering import send_all
from tests.tools.bench.measure import WARM_UP, Measurement, TickingMeter, latencies


def _producer(
    bootstrap: str, compression: str | None, linger_ms: int = LINGER_MS
) -> AIOKafkaProducer:
    return AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        acks=1,
        linger_ms=linger_ms,
        max_batch_size=BATCH_BYTES,
        compression_type=compression,
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

    return uvloop.run(work())


def loops(bootstrap: str, topic: str, values: list[bytes], compression: str | None) -> Measurement:
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

    return uvloop.run(work())


def one_by_one(
    bootstrap: str, topic: str, values: list[bytes], compression: str | None
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

    return uvloop.run(work())


Take = Callable[[AIOKafkaConsumer, int], Awaitable[int]]


def getmany(bootstrap: str, topic: str, count: int) -> Measurement:
    """Measure `getmany(max_records=1000)`, touching the values."""
    return _read(bootstrap, topic, count, _take_many)


def iterate(bootstrap: str, topic: str, count: int) -> Measurement:
    """Measure `async for record in consumer`, touching the values."""
    return _read(bootstrap, topic, count, _take_one_by_one)


async def _take_many(consumer: AIOKafkaConsumer, count: int) -> int:
    seen = size = 0
    while seen < count:
        for records in (await consumer.getmany(timeout_ms=5000, max_records=1000)).values():
            for record in records:
                size += len(record.value or b"")
            seen += len(records)
    return seen


async def _take_one_by_one(consumer: AIOKafkaConsumer, count: int) -> int:
    seen = size = 0
    async for record in consumer:
        size += len(record.value or b"")
        seen += 1
        if seen == count:
            break
    return seen


def _read(bootstrap: str, topic: str, count: int, take: Take) -> Measurement:
    async def work() -> Measurement:
        for wanted in (WARM_UP, count):
            consumer = AIOKafkaConsumer(
                bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="earliest"
            )
            consumer.assign([TopicPartition(topic, partition) for partition in range(PARTITIONS)])
            async with consumer:
                meter = TickingMeter()
                measurement = meter.stop(await take(consumer, wanted))
        return measurement

    return uvloop.run(work())
