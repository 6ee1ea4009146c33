"""This package over many partitions: the measurements of `tests.tools.bench.growth`."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from aiokafka08 import AIOKafkaProducer, TopicPartition
from aiokafka08.producer.accumulator import Accumulator
from tests.tools.bench.clients.ours import read, take_many
from tests.tools.bench.clients.running import run
from tests.tools.bench.measure import Measurement, TickingMeter

if TYPE_CHECKING:
    from aiokafka08.producer.options import CompressionType

YIELD_EVERY = 100
"""Messages between two yields to the event loop."""

Put = Callable[[AIOKafkaProducer], Awaitable[None]]


def getmany(bootstrap: str, topics: dict[str, int], count: int) -> Measurement:
    """Measure `getmany` with the default fetch memory."""
    return read(bootstrap, _places(topics), count, take_many, 50 * 1024 * 1024)


def send(
    bootstrap: str,
    topics: dict[str, int],
    values: list[bytes],
    compression: str | None,
    **options: Any,
) -> Measurement:
    """Measure `await send()` per message, round robin over the partitions.

    The sender yields to the event loop now and then, as a program does whose messages come from
    sockets. A loop that never waits would fill the memory before the first batch is sent.
    """
    places = itertools.cycle(_places(topics))

    async def put(producer: AIOKafkaProducer) -> None:
        deliveries = []
        for start in range(0, len(values), YIELD_EVERY):
            for value in values[start : start + YIELD_EVERY]:
                topic, partition = next(places)
                deliveries.append(await producer.send(topic, value, partition=partition))
            await asyncio.sleep(0)
        await producer.flush()
        for delivery in deliveries:
            await delivery

    return _produce(bootstrap, _places(topics), values, compression, options, put)


def send_many(
    bootstrap: str,
    topics: dict[str, int],
    values: list[bytes],
    compression: str | None,
    **options: Any,
) -> Measurement:
    """Measure one `send_many` per partition."""
    places = _places(topics)
    shares = [values[part :: len(places)] for part in range(len(places))]

    async def put(producer: AIOKafkaProducer) -> None:
        parts = [
            await producer.send_many(topic, share, partition=partition)
            for share, (topic, partition) in zip(shares, places, strict=True)
        ]
        await producer.flush()
        for part in parts:
            await part

    return _produce(bootstrap, places, values, compression, options, put)


def _places(topics: dict[str, int]) -> list[TopicPartition]:
    return [
        TopicPartition(topic, partition)
        for topic, count in topics.items()
        for partition in range(count)
    ]


def _produce(
    bootstrap: str,
    places: Sequence[TopicPartition],
    values: Sequence[bytes],
    compression: str | None,
    options: dict[str, Any],
    put: Put,
) -> Measurement:
    batches = _count_batches()

    async def work() -> Measurement:
        async with AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            acks=1,
            compression_type=cast("CompressionType | None", compression),
            **options,
        ) as producer:
            for topic, partition in places:  # open the connections, and know each partition
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
    """Count the batches of each request from now on, since no metric has their number."""
    counts: list[int] = []
    drain = Accumulator.drain

    def counting(self: Accumulator, *args: Any, **options: Any) -> Any:
        batches = drain(self, *args, **options)
        counts.append(len(batches))
        return batches

    Accumulator.drain = counting  # type: ignore[method-assign]
    return counts
