"""acks=0: a broker that rejects a message closes the connection (docs/brokers.md 3.3).

Messages in flight at that moment may be stored or not. The producer doesn't send them again. It
reports them by a counter and by an event.
"""

from __future__ import annotations

import asyncio

import pytest

from aiokafka08.structs import TopicPartition
from aiokafka08.telemetry import Acks0Unknown, BatchFailed, BatchRetried, Disconnected, Event
from tests.conformance.contract.client.broker import Broker
from tests.support.waiting import eventually

pytestmark = [pytest.mark.both_loops, pytest.mark.twins]

TOO_LARGE = bytes(1_500_000)


async def test_rejected_message_is_counted_as_unknown(broker: Broker) -> None:
    topic = await broker.create_topic()
    events: list[Event] = []
    producer = await broker.producer(acks=0, max_request_size=2_000_000, on_event=events.append)
    before = await producer.send_and_wait(topic, b"before")
    await producer.flush()
    assert producer.metrics()["acks0_unknown"] == 0
    refused = await producer.send_and_wait(topic, TOO_LARGE)
    await producer.flush()
    assert before is refused is None
    [unknown] = [event for event in events if isinstance(event, Acks0Unknown)]
    assert unknown.messages == 1
    assert unknown.partitions == (TopicPartition(topic, 0),)
    assert unknown.reason
    assert any(isinstance(event, Disconnected) and event.lost for event in events)
    assert not any(isinstance(event, BatchFailed | BatchRetried) for event in events)
    metrics = producer.metrics()
    assert metrics["acks0_unknown"] == 1
    assert metrics["messages_failed"] == metrics["buffer_used_bytes"] == 0
    await producer.send(topic, b"after")
    await producer.flush()
    assert await broker.values(topic) == [b"before", b"after"]


async def test_message_behind_rejected_one_is_unknown_not_doubled(broker: Broker) -> None:
    """Stored are messages from before and after the close: until then all use one connection."""
    topic = await broker.create_topic(partitions=3)
    events: list[Event] = []
    producer = await broker.producer(acks=0, max_request_size=2_000_000, on_event=events.append)
    await producer.partitions_for(topic)
    futures = [await producer.send(topic, b"%d" % number, partition=1) for number in range(50)]
    await producer.flush()
    futures.append(await producer.send(topic, TOO_LARGE, partition=0))
    for number in range(50, 100):
        futures.append(await producer.send(topic, b"%d" % number, partition=1))
        await asyncio.sleep(0)
    await producer.flush()
    assert {await future for future in futures} == {None}
    reported = [event.messages for event in events if isinstance(event, Acks0Unknown)]
    unknown = producer.metrics()["acks0_unknown"]
    assert sum(reported) == unknown
    assert 1 <= unknown <= 51
    stored = [int(value or 0) for value in await broker.values(topic, 1)]
    assert stored == sorted(set(stored))
    assert stored[:50] == list(range(50))
    # Messages that are not reported as unknown are stored.
    assert len(stored) >= 101 - unknown
    assert await broker.values(topic, 0) == []


async def test_rejected_topic_does_not_block_other_topics(broker: Broker) -> None:
    one, other = await broker.create_topic(), await broker.create_topic()
    producer = await broker.producer(acks=0, max_request_size=2_000_000)
    for number in range(3):
        await producer.send(one, TOO_LARGE)
        await producer.flush()
        await producer.send(other, b"%d" % number)
        await producer.flush()

    async def all_are_there() -> bool:
        return await broker.values(other) == [b"0", b"1", b"2"]

    await eventually(all_are_there)
    assert producer.metrics()["acks0_unknown"] == 3
    assert await broker.values(one) == []
