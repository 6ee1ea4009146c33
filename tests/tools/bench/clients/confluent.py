"""confluent-kafka (librdkafka), configured for an 0.8.2 broker."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.aio import AIOProducer

from tests.tools.bench.cases import BATCH_BYTES, LINGER_MS, LOOPS, PARTITIONS, SEEKS, keys
from tests.tools.bench.measure import WARM_UP, Measurement, Meter, TickingMeter, latencies

_BROKER = {"api.version.request": False, "broker.version.fallback": "0.8.2.2"}


def produce(
    bootstrap: str, topic: str, values: list[bytes], compression: str | None
) -> Measurement:
    """Measure `produce` with a delivery callback per message; a full queue is served by `poll`."""
    places = itertools.cycle([{"partition": partition} for partition in range(PARTITIONS)])
    return _produce(bootstrap, topic, values, compression, LINGER_MS, places)


def produce_by_key(
    bootstrap: str, topic: str, values: list[bytes], compression: str | None, *, linger_ms: int
) -> Measurement:
    """Measure the same by key."""
    places = [{"key": key} for key in keys(len(values))]
    return _produce(bootstrap, topic, values, compression, linger_ms, places)


def _produce(
    bootstrap: str,
    topic: str,
    values: list[bytes],
    compression: str | None,
    linger_ms: int,
    places: Iterable[dict[str, Any]],
) -> Measurement:
    producer = Producer(
        {
            **_BROKER,
            "bootstrap.servers": bootstrap,
            "acks": 1,
            "linger.ms": linger_ms,
            "partitioner": "murmur2_random",
            "batch.size": BATCH_BYTES,
            "batch.num.messages": 100_000,
            "compression.type": compression or "none",
            "queue.buffering.max.messages": 500_000,
        }
    )
    delivered = 0

    def on_delivery(error: Any, _message: Any) -> None:
        nonlocal delivered
        if error is not None:
            raise RuntimeError(str(error))
        delivered += 1

    for value in values[:WARM_UP]:
        producer.produce(topic, value, on_delivery=on_delivery)
    producer.flush()
    delivered = 0
    meter = Meter()
    for index, (value, place) in enumerate(zip(values, places, strict=False)):
        while True:
            try:
                producer.produce(topic, value, on_delivery=on_delivery, **place)
                break
            except BufferError:
                producer.poll(0.01)
        if not index % 1000:
            producer.poll(0)
    producer.flush()
    measurement = meter.stop(len(values))
    assert delivered == len(values), (delivered, len(values))
    return measurement


def one_by_one(
    bootstrap: str, topic: str, values: list[bytes], compression: str | None
) -> Measurement:
    """Measure `produce` and `flush` for each message, with linger 0."""
    producer = Producer({**_BROKER, "bootstrap.servers": bootstrap, "acks": 1, "linger.ms": 0})
    for value in values[:WARM_UP]:
        producer.produce(topic, value, partition=0)
        producer.flush()
    took = []
    meter = Meter()
    for value in values:
        begun = time.perf_counter()
        producer.produce(topic, value, partition=0)
        producer.flush()
        took.append(time.perf_counter() - begun)
    return replace(meter.stop(len(values)), more=latencies(took))


def loops(bootstrap: str, topic: str, values: list[bytes], compression: str | None) -> Measurement:
    """Measure a thousand coroutines on AIOProducer; each awaits its message's delivery."""
    shares = [values[start::LOOPS] for start in range(LOOPS)]

    async def work() -> Measurement:
        producer = AIOProducer(
            {**_BROKER, "bootstrap.servers": bootstrap, "acks": 1, "linger.ms": 0},
            buffer_timeout=0.005,
        )

        async def walk(share: list[bytes]) -> None:
            for value in share:
                await (await producer.produce(topic, value))

        await asyncio.gather(*[walk(values[:1]) for _ in range(LOOPS)])
        meter = TickingMeter()
        await asyncio.gather(*map(walk, shares))
        measurement = meter.stop(len(values))
        await producer.close()
        return measurement

    return asyncio.run(work())


def seek_back(
    bootstrap: str, topic: str, values: list[bytes], compression: str | None
) -> Measurement:
    """Measure `poll()` after a `seek()` back by one, on a topic that gets no messages."""
    produce(bootstrap, topic, values[:WARM_UP], compression)
    consumer = Consumer(
        {
            **_BROKER,
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "check.crcs": True,
        }
    )
    place = TopicPartition(topic, 0)
    _, end = consumer.get_watermark_offsets(place)
    place.offset = end - 1
    consumer.assign([place])
    _take_one_by_one(consumer, 1)
    took = []
    meter = Meter()
    for _ in range(SEEKS):
        time.sleep(0.02)  # now a fetch hangs
        begun = time.perf_counter()
        consumer.seek(place)
        _take_one_by_one(consumer, 1)
        took.append(time.perf_counter() - begun)
    measurement = replace(meter.stop(SEEKS), more=latencies(took))
    consumer.close()
    return measurement


Take = Callable[[Consumer, int], None]


def consume(bootstrap: str, topic: str, count: int) -> Measurement:
    """Measure `consume(1000)` with `check.crcs`, touching the values."""
    return _read(bootstrap, topic, count, _take_many)


def poll(bootstrap: str, topic: str, count: int) -> Measurement:
    """Measure `poll()` per message with `check.crcs`, touching the values."""
    return _read(bootstrap, topic, count, _take_one_by_one)


def _take_many(consumer: Consumer, count: int) -> None:
    seen = size = 0
    while seen < count:
        for message in consumer.consume(min(1000, count - seen), timeout=5.0):
            if message.error() is None:
                size += len(message.value() or b"")
                seen += 1


def _take_one_by_one(consumer: Consumer, count: int) -> None:
    seen = size = 0
    while seen < count:
        message = consumer.poll(5.0)
        if message is not None and message.error() is None:
            size += len(message.value() or b"")
            seen += 1


def _read(bootstrap: str, topic: str, count: int, take: Take) -> Measurement:
    for wanted in (WARM_UP, count):
        consumer = Consumer(
            {
                **_BROKER,
                "bootstrap.servers": bootstrap,
                "group.id": "bench",
                "enable.auto.commit": False,
                "check.crcs": True,
                "fetch.message.max.bytes": 1024 * 1024,
            }
        )
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        meter = Meter()
        take(consumer, wanted)
        measurement = meter.stop(wanted)
        consumer.close()
    return measurement
