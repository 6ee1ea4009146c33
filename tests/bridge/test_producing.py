"""The two ways from records to librdkafka."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import time
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest

from aiokafka08 import AIOKafkaConsumer
from aiokafka08.bridge.sink import producing
from aiokafka08.bridge.sink.producing import (
    ProduceRecords,
    choose_produce,
    is_checked,
    pure_produce,
)
from aiokafka08.protocol.twins import load_compiled_sink
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


@pytest.fixture
def compiled() -> ProduceRecords:
    if load_compiled_sink() is None:
        pytest.skip("the extension modules aren't built")
    found = choose_produce(confluent_kafka.Producer(NOWHERE), "b")
    assert found is not pure_produce
    return found


@pytest.fixture
def chosen_anew() -> Iterator[None]:
    producing._compiled_produce.cache_clear()
    yield
    producing._compiled_produce.cache_clear()


def test_installed_release_of_confluent_kafka_is_checked() -> None:
    """If not: see in its Handle (confluent_kafka.h) that `rk` is still the first member."""
    assert is_checked(str(confluent_kafka.__version__))


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        *[("2.11.9", False), ("2.12.0", True), ("2.16.1", True), ("2.17.0rc1", False)],
        *[("3.0.0", False), ("2", False), ("2.x.1", False), ("", False)],
    ],
)
def test_only_known_releases_count_as_checked(release: str, expected: bool) -> None:
    assert is_checked(release) is expected


@pytest.mark.parametrize("keep", [True, False])
async def test_twins_pass_on_the_same_messages(compiled: ProduceRecords, keep: bool) -> None:
    began = time.time() * 1000

    def produce(server: str) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": server, "linger.ms": 5})
        for partition, produce_records in enumerate([pure_produce, compiled]):
            assert produce_records(producer, "t", partition, RECORDS, keep) is None
            assert produce_records(producer, "t", partition, [], keep) is None
        assert producer.flush(30) == 0

    async with EmbeddedCluster(version="0.10", topics={"t": 2}) as cluster:
        await asyncio.to_thread(produce, cluster.bootstrap_servers)
        async with AIOKafkaConsumer(
            "t", bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest"
        ) as consumer:
            copies: list[list[ConsumerRecord[bytes, bytes]]] = [[], []]
            while min(map(len, copies)) < len(RECORDS):
                one = await consumer.getone()
                copies[one.partition].append(one)
    for copy in copies:
        assert [(one.key, one.value) for one in copy] == [(one.key, one.value) for one in RECORDS]
        for sent, got in zip(RECORDS, copy, strict=True):
            assert got.timestamp is not None
            if keep and sent.timestamp is not None and sent.timestamp > 0:
                assert got.timestamp == sent.timestamp
            else:
                assert began - 1 <= got.timestamp <= time.time() * 1000


def test_first_record_that_is_not_taken_is_named(compiled: ProduceRecords) -> None:
    records = [record(b"a"), record(b"b"), record(b"x" * 5000), record(b"c")]
    for produce_records in (pure_produce, compiled):
        producer = confluent_kafka.Producer({**NOWHERE, "message.max.bytes": 1000})
        assert produce_records(producer, "t", 0, records, True) == (2, TOO_LARGE)
        assert len(producer) == 2
        producer.purge()


def test_wrong_types_are_refused_and_nothing_is_passed_on(compiled: ProduceRecords) -> None:
    producer = confluent_kafka.Producer(NOWHERE)
    text: Any = "text"
    for wrong in (record(text), record(b"v", text), record(b"v", None, text)):
        with pytest.raises(TypeError):
            compiled(producer, "t", 0, [record(b"a"), wrong], True)
    assert len(producer) == 0


def test_object_of_another_class_is_not_read(compiled: ProduceRecords) -> None:
    class Traced(confluent_kafka.Producer):
        """Such as tracing libraries make, with a `produce` of its own."""

    for other in (object(), Traced(NOWHERE), None):
        assert choose_produce(other, "b") is pure_produce
        with pytest.raises(TypeError, match="expected a <class"):
            compiled(other, "t", 0, [record(b"a")], True)


def test_full_queue_is_told_by_its_code(compiled: ProduceRecords) -> None:
    full = {**NOWHERE, "queue.buffering.max.messages": 2}
    for produce_records in (pure_produce, compiled):
        producer = confluent_kafka.Producer(full)
        found = produce_records(producer, "t", 0, [record(b"a")] * 4, True)
        assert found == (2, confluent_kafka.KafkaError._QUEUE_FULL)
        producer.purge()


def test_closed_producer_is_refused(compiled: ProduceRecords) -> None:
    producer = confluent_kafka.Producer(NOWHERE)
    if not hasattr(producer, "close"):
        pytest.skip("confluent-kafka before 2.13 closes no producer")
    producer.close()
    with pytest.raises(RuntimeError, match="closed"):
        compiled(producer, "t", 0, [record(b"a")], True)


def test_unknown_release_is_called_for_each_record(
    compiled: ProduceRecords,
    chosen_anew: None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(confluent_kafka, "__version__", "2.99.0")
    producer = confluent_kafka.Producer(NOWHERE)
    with caplog.at_level(logging.INFO, "aiokafka08.bridge"):
        assert choose_produce(producer, "b") is choose_produce(producer, "b") is pure_produce
    [line] = caplog.messages
    assert line.endswith("confluent-kafka 2.99.0: expected 2.12 to 2.16")


def test_missing_function_of_librdkafka_leaves_the_pure_twin(
    compiled: ProduceRecords, chosen_anew: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda path: object())
    assert choose_produce(confluent_kafka.Producer(NOWHERE), "b") is pure_produce
