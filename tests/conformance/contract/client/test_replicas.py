"""Behaviour of the clients that depends on several replicas: on three brokers."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka08 import TopicPartition
from tests.conformance.contract.client.broker import Broker, read_records
from tests.conformance.contract.targets import on_targets

pytestmark = [pytest.mark.both_loops, on_targets(brokers=3)]


@pytest.mark.parametrize("codec", [None, "snappy"])
@pytest.mark.parametrize("acks", [1, "all"])
async def test_offsets_in_metadata_match_the_log(
    broker: Broker, acks: int | str, codec: str | None
) -> None:
    """0.8.0 and 0.8.1 return the offset after a batch if they have waited for replicas."""
    topic = await broker.create_topic(partitions=3, replicas=3)
    alone = await broker.create_topic()
    producer = await broker.producer(acks=acks, compression_type=codec, linger_ms=5)
    sent = {}
    for round_ in range(4):
        futures = {
            b"%d:%d:%d" % (round_, partition, n): await producer.send(
                topic, b"%d:%d:%d" % (round_, partition, n), partition=partition
            )
            for n in range(10)
            for partition in range(3)
        }
        by_itself = await producer.send_and_wait(alone, b"v")
        assert by_itself.offset == round_
        for value, future in futures.items():
            sent[value] = await future
    consumer = await broker.consumer(topic)
    got = {record.value: record for record in await read_records(consumer, 120)}
    assert {value: (one.partition, one.offset) for value, one in sent.items()} == {
        value: (record.partition, record.offset) for value, record in got.items()
    }


async def test_partitions_on_all_brokers_are_written_and_read(broker: Broker) -> None:
    topic = await broker.create_topic(partitions=6, replicas=2)
    producer, consumer = await broker.producer(acks="all"), await broker.consumer(topic)
    sends = [producer.send_and_wait(topic, b"%d" % n, partition=n % 6) for n in range(60)]
    sent = await asyncio.gather(*sends)
    got = await read_records(consumer, 60)
    assert {(one.partition, one.offset) for one in got} == {
        (one.partition, one.offset) for one in sent
    }
    partitions = [TopicPartition(topic, number) for number in range(6)]
    assert await consumer.end_offsets(partitions) == dict.fromkeys(partitions, 10)
    admin = await broker.admin()
    [described] = await admin.describe_topics([topic])
    assert sorted(one["partition"] for one in described["partitions"]) == list(range(6))
    assert len({one["leader"] for one in described["partitions"]}) == 3
    assert all(len(one["replicas"]) == 2 for one in described["partitions"])
    cluster = await admin.describe_cluster()
    assert sorted(node["node_id"] for node in cluster["brokers"]) == [0, 1, 2]


async def test_topics_on_few_brokers_are_reachable(broker: Broker) -> None:
    """0.8.0 and 0.8.1 list only the brokers of the requested topics (docs/brokers.md 4.11)."""
    # Partition p is on broker p.
    one, two, three = [await broker.create_topic(partitions=count) for count in (1, 2, 3)]
    producer = await broker.producer()
    for topic, last in ((one, 0), (three, 2), (two, 1), (one, 0), (three, 1), (three, 2)):
        await producer.send_and_wait(topic, b"%d" % last, partition=last)
    consumer = await broker.consumer(one, metadata_max_age_ms=50)
    assert [record.value for record in await read_records(consumer, 2)] == [b"0", b"0"]
    for topic, wanted in ((three, {1, 2}), (two, {1}), (one, {0}), (three, {1, 2})):
        consumer.subscribe([topic])
        got = await read_records(consumer, {one: 2, two: 1, three: 3}[topic])
        assert {record.partition for record in got} == wanted
    # A response about a topic that doesn't exist yet may list no broker at all.
    sent = await asyncio.gather(
        producer.send_and_wait(broker.unique_topic(), b"v"),
        *[producer.send_and_wait(three, b"v", partition=n) for n in range(3)],
    )
    assert [one.partition for one in sent[1:]] == [0, 1, 2]
