"""This package, on uvloop unless said otherwise; a ticker runs in the same loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import uvloop

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from tests.bench.cases import BATCH_BYTES, LINGER_MS, PARTITIONS
from tests.bench.measure import Measurement, Meter, latencies, ticker

LOOPS = 1000


def _run(
    work: Coroutine[Any, Any, Measurement],
    new_loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop,
) -> Measurement:
    async def ticking() -> Measurement:
        async with ticker() as late:
            measurement = await work
        return replace(measurement, more=measurement.more | late)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(ticking())


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
    """`await send()` per message, the deliveries gathered at the end."""

    async def work() -> Measurement:
        async with _producer(bootstrap, compression) as producer:
            await asyncio.gather(*[await producer.send(topic, value) for value in values[:1000]])
            meter = Meter()
            deliveries = [
                await producer.send(topic, value, partition=index % PARTITIONS)
                for index, value in enumerate(values)
            ]
            await producer.flush()
            measurement = meter.stop(len(values))
            for delivery in deliveries:
                assert delivery.result().offset >= 0
            return measurement

    return _run(work())


def send_many(
    bootstrap: str, topic: str, values: list[bytes], compression: str | None
) -> Measurement:
    """`send_many` per partition, all deliveries awaited."""

    async def work() -> Measurement:
        async with _producer(bootstrap, compression) as producer:
            await (await producer.send_many(topic, values[:1000]))
            shares = [values[part::PARTITIONS] for part in range(PARTITIONS)]
            meter = Meter()
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

    return _run(work())


def loops(
    bootstrap: str,
    topic: str,
    values: list[bytes],
    compression: str | None,
    new_loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop,
) -> Measurement:
    """A thousand coroutines, each sends and waits, then sends the next one; linger 0."""

    async def work() -> Measurement:
        async with _producer(bootstrap, compression, 0) as producer:

            async def walk(share: list[bytes]) -> None:
                for value in share:
                    await producer.send_and_wait(topic, value)

            await asyncio.gather(*[walk(values[:1]) for _ in range(LOOPS)])
            shares = [values[start::LOOPS] for start in range(LOOPS)]
            meter = Meter()
            await asyncio.gather(*map(walk, shares))
            return meter.stop(len(values))

    return _run(work(), new_loop)


def loops_asyncio(
    bootstrap: str, topic: str, values: list[bytes], compression: str | None
) -> Measurement:
    """The same on asyncio's own loop."""
    return loops(bootstrap, topic, values, compression, asyncio.new_event_loop)


def one_by_one(
    bootstrap: str, topic: str, values: list[bytes], compression: str | None
) -> Measurement:
    """One coroutine that sends and waits; linger 0."""

    async def work() -> Measurement:
        async with _producer(bootstrap, compression, 0) as producer:
            for value in values[:100]:
                await producer.send_and_wait(topic, value, partition=0)
            took = []
            meter = Meter()
            for value in values:
                begun = time.perf_counter()
                await producer.send_and_wait(topic, value, partition=0)
                took.append(time.perf_counter() - begun)
            return replace(meter.stop(len(values)), more=latencies(took))

    return _run(work())


def _consumer(bootstrap: str) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=None,
        auto_offset_reset="earliest",
        fetch_max_bytes=2 * PARTITIONS * 1024 * 1024,
    )


def _assign(consumer: AIOKafkaConsumer, topic: str) -> None:
    consumer.assign([TopicPartition(topic, partition) for partition in range(PARTITIONS)])


def arrow(bootstrap: str, topic: str, count: int) -> Measurement:
    """`getmany_arrow()`, the value columns' lengths added up."""

    async def work() -> Measurement:
        import pyarrow  # noqa: F401  (its import is no part of the work)

        consumer = _consumer(bootstrap)
        _assign(consumer, topic)
        async with consumer:
            seen = size = 0
            meter = Meter()
            while seen < count:
                batch = await consumer.getmany_arrow(timeout_ms=5000)
                size += batch.column("value").nbytes
                seen += batch.num_rows
            return meter.stop(seen)

    return _run(work())


def getmany(bootstrap: str, topic: str, count: int) -> Measurement:
    """`getmany(max_records=1000)`, values touched."""

    async def work() -> Measurement:
        consumer = _consumer(bootstrap)
        _assign(consumer, topic)
        async with consumer:
            seen = size = 0
            meter = Meter()
            while seen < count:
                for records in (await consumer.getmany(timeout_ms=5000, max_records=1000)).values():
                    for record in records:
                        size += len(record.value or b"")
                    seen += len(records)
            return meter.stop(seen)

    return _run(work())


def iterate(bootstrap: str, topic: str, count: int) -> Measurement:
    """`async for record in consumer`, values touched."""

    async def work() -> Measurement:
        consumer = _consumer(bootstrap)
        _assign(consumer, topic)
        async with consumer:
            seen = size = 0
            meter = Meter()
            async for record in consumer:
                size += len(record.value or b"")
                seen += 1
                if seen == count:
                    break
            return meter.stop(seen)

    return _run(work())
