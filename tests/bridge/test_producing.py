"""From records to librdkafka."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import confluent_kafka
import pytest

from aiokafka08 import AIOKafkaConsumer
from aiokafka08.bridge.sink.producing import produce_records
from aiokafka08.structs import ConsumerRecord
from aiokafka08.testing import EmbeddedCluster

TOO_LARGE = confluent_kafka.KafkaError.MSG_SIZE_TOO_LARGE
NOWHERE = {"log_level": 0}  # no servers: nothing but messages is in its queue


def record(
    value: bytes | None, key: bytes | None = None, stamp: int | None = 5000
) -> ConsumerRecord[Any, Any]:
    return ConsumerRecord("t", 0, 0, stamp, 0, key, value, None, -1, -1, ())


RECORDS = [
    record(b"a", b"k"),
    record(None, b"\0" * 300),
    record(b"", b"", None),
    record(b"x" * 70_000, None, -1),
    record(None, None, 0),
    record(b"last", "ü".encode(), 2**40),
]


def passed_on(
    producer: Any, records: list[ConsumerRecord[Any, Any]], keep: bool = True
) -> tuple[int, int] | None:
    return produce_records(producer, "t", 0, records, keep, [None] * len(records))


@pytest.mark.parametrize("keep", [True, False])
async def test_messages_arrive_byte_for_byte_with_their_timestamps(keep: bool) -> None:
    began = time.time() * 1000

    def produce(server: str) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": server, "linger.ms": 5})
        assert passed_on(producer, RECORDS, keep) is None
        assert passed_on(producer, [], keep) is None
        assert producer.flush(30) == 0

    async with EmbeddedCluster(version="0.10", topics={"t": 1}) as cluster:
        await asyncio.to_thread(produce, cluster.bootstrap_servers)
        async with AIOKafkaConsumer(
            "t", bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest"
        ) as consumer:
            copy = [await consumer.getone() for _ in RECORDS]
    assert [(one.key, one.value) for one in copy] == [(one.key, one.value) for one in RECORDS]
    for sent, got in zip(RECORDS, copy, strict=True):
        assert got.timestamp is not None
        if keep and sent.timestamp is not None and sent.timestamp > 0:
            assert got.timestamp == sent.timestamp
        else:
            assert began - 1 <= got.timestamp <= time.time() * 1000


def test_first_record_that_is_not_taken_is_named() -> None:
    producer = confluent_kafka.Producer({**NOWHERE, "message.max.bytes": 1000})
    records = [record(b"a"), record(b"b"), record(b"x" * 5000), record(b"c")]
    assert passed_on(producer, records) == (2, TOO_LARGE)
    assert len(producer) == 2
    producer.purge()


def test_full_queue_is_told_by_its_code() -> None:
    producer = confluent_kafka.Producer({**NOWHERE, "queue.buffering.max.messages": 2})
    found = passed_on(producer, [record(b"a")] * 4)
    assert found == (2, confluent_kafka.KafkaError._QUEUE_FULL)
    producer.purge()
