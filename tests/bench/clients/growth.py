"""This package over many partitions: what `growth` measures; see there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from aiokafka08 import AIOKafkaProducer
from aiokafka08.producer.accumulator import Accumulator
from tests.bench.clients.ours import read, run, take_many
from tests.bench.measure import Measurement, TickingMeter


def getmany(bootstrap: str, topic: str, count: int, *, partitions: int) -> Measurement:
    """`getmany`, with the memory that it has by default."""
    return read(bootstrap, topic, count, take_many, partitions, 50 * 1024 * 1024)


def send(
    bootstrap: str,
    topic: str,
    values: list[bytes],
    compression: str | None,
    *,
    partitions: int,
    **options: Any,
) -> Measurement:
    """`await send()` per message, round robin over the partitions."""

    async def put(producer: AIOKafkaProducer) -> None:
        deliveries = [
            await producer.send(topic, value, partition=index % partitions)
            for index, value in enumerate(values)
        ]
        await producer.flush()
        for delivery in deliveries:
            await delivery

    return _produce(bootstrap, topic, values, compression, partitions, options, put)


def send_many(
    bootstrap: str,
    topic: str,
    values: list[bytes],
    compression: str | None,
    *,
    partitions: int,
    **options: Any,
) -> Measurement:
    """`send_many` per partition."""
    shares = [values[part::partitions] for part in range(partitions)]

    async def put(producer: AIOKafkaProducer) -> None:
        parts = [
            await producer.send_many(topic, share, partition=part)
            for part, share in enumerate(shares)
        ]
        await producer.flush()
        for part in parts:
            await part

    return _produce(bootstrap, topic, values, compression, partitions, options, put)


def _produce(
    bootstrap: str,
    topic: str,
    values: Sequence[bytes],
    compression: str | None,
    partitions: int,
    options: dict[str, Any],
    put: Callable[[AIOKafkaProducer], Awaitable[None]],
) -> Measurement:
    batches = _count_batches()

    async def work() -> Measurement:
        async with AIOKafkaProducer(
            bootstrap_servers=bootstrap, acks=1, compression_type=compression, **options
        ) as producer:
            for partition in range(partitions):  # connections, and a place for each partition
                await producer.send(topic, values[0], partition=partition)
            await producer.flush()
            before = producer.metrics()
            batches.clear()
            meter = TickingMeter()
            await put(producer)
            measurement = meter.stop(len(values))
            after = producer.metrics()
            assert after["messages_failed"] == 0, after
            sent = {
                "batches": float(sum(batches)),
                "requests": after["requests_sent"] - before["requests_sent"],
                "bytes": after["bytes_sent"] - before["bytes_sent"],
            }
            return replace(measurement, more=measurement.more | sent)

    return run(work())


def _count_batches() -> list[int]:
    """How many batches each request takes from now on: no metric tells that."""
    counts: list[int] = []
    drain = Accumulator.drain

    def counting(self: Accumulator, *args: Any, **options: Any) -> Any:
        batches = drain(self, *args, **options)
        counts.append(len(batches))
        return batches

    Accumulator.drain = counting  # type: ignore[method-assign]
    return counts
