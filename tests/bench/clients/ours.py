"""This package, on uvloop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import uvloop

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from tests.bench.cases import BATCH_BYTES, LINGER_MS, PARTITIONS
from tests.bench.measure import Measurement, Meter


def _run(work: Coroutine[Any, Any, Measurement]) -> Measurement:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def _producer(bootstrap: str, compression: str | None) -> AIOKafkaProducer:
    return AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        acks=1,
        linger_ms=LINGER_MS,
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
            meter = Meter()
            parts = [
                await producer.send_many(topic, values[part::PARTITIONS], partition=part)
                for part in range(PARTITIONS)
            ]
            delivered = 0
            for part in parts:
                delivered += len(await part)
            measurement = meter.stop(len(values))
            assert delivered == len(values)
            return measurement

    return _run(work())


def _consumer(bootstrap: str) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="earliest"
    )


def getmany(bootstrap: str, topic: str, count: int) -> Measurement:
    """`getmany(max_records=1000)`, values touched."""

    async def work() -> Measurement:
        consumer = _consumer(bootstrap)
        consumer.assign([TopicPartition(topic, partition) for partition in range(PARTITIONS)])
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
        consumer.assign([TopicPartition(topic, partition) for partition in range(PARTITIONS)])
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
