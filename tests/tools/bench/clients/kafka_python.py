"""kafka-python, configured for an 0.8.2 broker."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from tests.tools.bench.cases import BATCH_BYTES, GATHERED, LINGER_MS, PARTITIONS, keys
from tests.tools.bench.measure import WARM_UP, Measurement, Meter, latencies

_VERSION = (0, 8, 2)


def produce(
    bootstrap: str, topic: str, values: list[bytes], compression: str | None
) -> Measurement:
    """Measure `send` per message, with the futures awaited later."""
    places = itertools.cycle([{"partition": partition} for partition in range(PARTITIONS)])
    return _produce(bootstrap, topic, values, compression, LINGER_MS, places)


def produce_by_key(
    bootstrap: str, topic: str, values: list[bytes], compression: str | None, *, linger_ms: int
) -> Measurement:
    """Measure the same by key."""
    places = iter([{"key": key} for key in keys(len(values))])
    return _produce(bootstrap, topic, values, compression, linger_ms, places)


def _produce(
    bootstrap: str,
    topic: str,
    values: list[bytes],
    compression: str | None,
    linger_ms: int,
    places: Iterator[dict[str, Any]],
) -> Measurement:
    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        api_version=_VERSION,
        acks=1,
        linger_ms=linger_ms,
        batch_size=BATCH_BYTES,
        compression_type=compression,
        enable_idempotence=False,
    )
    for value in values[:WARM_UP]:
        producer.send(topic, value)
    producer.flush()
    meter = Meter()
    futures: list[Any] = []
    for start in range(0, len(values), GATHERED):
        before = futures
        futures = [
            producer.send(topic, value, **next(places))
            for value in values[start : start + GATHERED]
        ]
        for future in before:
            future.get()
    producer.flush()
    for future in futures:
        future.get()
    measurement = meter.stop(len(values))
    producer.close()
    return measurement


def one_by_one(
    bootstrap: str, topic: str, values: list[bytes], compression: str | None
) -> Measurement:
    """Measure `send().get()` for each message, with linger 0."""
    producer = KafkaProducer(
        bootstrap_servers=bootstrap, api_version=_VERSION, acks=1, enable_idempotence=False
    )
    for value in values[:WARM_UP]:
        producer.send(topic, value, partition=0).get(10)
    took = []
    meter = Meter()
    for value in values:
        begun = time.perf_counter()
        producer.send(topic, value, partition=0).get(10)
        took.append(time.perf_counter() - begun)
    measurement = replace(meter.stop(len(values)), more=latencies(took))
    producer.close()
    return measurement


def poll(bootstrap: str, topic: str, count: int) -> Measurement:
    """Measure `poll(max_records=1000)`, touching the values."""
    for wanted in (WARM_UP, count):
        consumer = _consumer(bootstrap, topic)
        seen = size = 0
        meter = Meter()
        while seen < wanted:
            for records in consumer.poll(timeout_ms=5000, max_records=1000).values():
                for record in records:
                    size += len(record.value)
                seen += len(records)
        measurement = meter.stop(seen)
        consumer.close()
    return measurement


def _consumer(bootstrap: str, topic: str) -> KafkaConsumer:
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        api_version=_VERSION,
        group_id=None,
        enable_auto_commit=False,
        check_crcs=True,
        max_partition_fetch_bytes=1024 * 1024,
    )
    partitions = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    consumer.assign(partitions)
    consumer.seek_to_beginning(*partitions)
    return consumer
