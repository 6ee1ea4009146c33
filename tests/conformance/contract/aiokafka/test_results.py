"""Results and errors of single calls."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.contract.aiokafka.libraries import Comparison, Library, outcome
from tests.support.names import unique_name

pytestmark = pytest.mark.real


# --- producer -------------------------------------------------------------------------------------


async def test_acks0_results_are_none(compare: Comparison) -> None:
    async def observe(library: Library) -> list[Any]:
        topic = await library.create_topic()
        producer = await library.producer(acks=0)
        batch = producer.create_batch()
        batch.append(key=None, value=b"v", timestamp=None)
        return [
            await producer.send_and_wait(topic, b"v"),
            await (await producer.send(topic, b"v")),
            await (await producer.send_batch(batch, topic, partition=0)),
        ]

    assert await compare(observe) == [None, None, None]


async def test_tls_without_context_is_a_value_error(compare: Comparison) -> None:
    async def observe(library: Library) -> list[bool]:
        found = []
        admin = library.module("admin")
        for client in (library.new_producer, library.new_consumer, admin.AIOKafkaAdminClient):
            try:
                client(security_protocol="SSL")
            except ValueError as error:
                found.append("ssl_context" in str(error))
        return found

    assert await compare(observe) == [True, True, True]


# --- consumer -------------------------------------------------------------------------------------


async def test_offsets_for_times_of_unknown_partition(compare: Comparison) -> None:
    async def observe(library: Library) -> list[Any]:
        topic = await library.create_topic()
        await library.fill(topic, [b"v"])
        consumer = await library.consumer(request_timeout_ms=1500)
        known, unknown = [library.kafka.TopicPartition(topic, number) for number in (0, 7)]
        return [
            (await consumer.offsets_for_times({known: 0}))[known].offset,
            await outcome(consumer.offsets_for_times({known: 0, unknown: 0})),
            await outcome(consumer.offsets_for_times({unknown: -1})),
        ]

    assert await compare(observe) == [0, "KafkaTimeoutError", "ValueError"]


@pytest.mark.parametrize("group", [None, "g"])
async def test_seek_to_committed_of_unassigned_partition(
    compare: Comparison, group: str | None
) -> None:
    async def observe(library: Library) -> list[str]:
        topic = await library.create_topic(partitions=2)
        consumer = await library.reader(topic, 0, group_id=group and unique_name(group))
        return [
            await outcome(consumer.seek_to_committed(library.kafka.TopicPartition(topic, 1))),
            await outcome(consumer.seek_to_committed(1)),
            await outcome(consumer.seek_to_committed()),
        ]

    last = "IllegalOperation" if group is None else "returned"
    assert await compare(observe) == ["IllegalStateError", "TypeError", last]


async def test_records_take_other_attributes(compare: Comparison) -> None:
    async def observe(library: Library) -> list[Any]:
        topic = await library.create_topic()
        await library.fill(topic, [b"0", b"1"])
        consumer = await library.reader(topic)
        one = await consumer.getone()
        [(_, [other])] = (await consumer.getmany(timeout_ms=10_000)).items()
        for record in (one, other):
            record.consumer = consumer  # as FastStream does
            record.value = record.value.decode()
        return [[record.consumer is consumer, record.value] for record in (one, other)]

    assert await compare(observe) == [[True, "0"], [True, "1"]]


# --- admin client ---------------------------------------------------------------------------------


async def test_results_of_topic_changes(compare: Comparison) -> None:
    async def observe(library: Library) -> list[Any]:
        admin_module, topic = library.module("admin"), unique_name()
        new = admin_module.NewTopic(topic, 1, 1)
        admin = await library.admin()
        found: list[Any] = []
        for changed in (
            await admin.create_topics([new]),
            await admin.create_topics([new]),  # it exists
            await admin.create_partitions({topic: admin_module.NewPartitions(3)}),
        ):
            [(name, code, text)] = changed.topic_errors
            found.append((name == topic, code, bool(text)))
            [error] = (described := changed.to_object()).pop("topic_errors")
            found.append((described, sorted(error), error["error_code"]))
        deleted = await admin.delete_topics([topic])
        [(name, code)] = deleted.topic_error_codes
        found.append((name == topic, code))
        described = deleted.to_object()
        [error] = described.pop("topic_error_codes")
        found.append((described, error.pop("topic") == topic, error))
        return found

    unthrottled, keys = {"throttle_time_ms": 0}, ["error_code", "error_message", "topic"]
    assert await compare(observe) == [
        *((True, 0, False), (unthrottled, keys, 0)),
        *((True, 36, True), (unthrottled, keys, 36)),
        *((True, 0, False), (unthrottled, keys, 0)),
        *((True, 0), (unthrottled, True, {"error_code": 0})),
    ]
