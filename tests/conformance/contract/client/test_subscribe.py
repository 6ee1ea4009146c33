"""Subscription, assignment and patterns, and metadata methods of the clients, on every line."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from aiokafka08 import ConsumerRebalanceListener, TopicPartition
from aiokafka08.errors import IllegalStateError, InvalidTopicError
from aiokafka08.protocol.requests.groups import GroupCoordinatorRequest
from tests.conformance.contract.client.broker import AUTO_PARTITIONS, Broker, read_records
from tests.conformance.contract.targets import on_targets
from tests.support.waiting import eventually

pytestmark = pytest.mark.both_loops


def partitions(topic: str, count: int) -> set[TopicPartition]:
    return {TopicPartition(topic, number) for number in range(count)}


# --- topics ---------------------------------------------------------------------------------------


async def test_subscription_reads_all_partitions(broker: Broker) -> None:
    one, two = await broker.create_topic(partitions=2), await broker.create_topic()
    for topic, partition in ((one, 0), (one, 1), (two, 0)):
        await broker.fill(topic, [b"%d" % partition] * 3, partition=partition)
    consumer = await broker.consumer(one, two)
    assert consumer.subscription() == {one, two}
    assert consumer.assignment() == partitions(one, 2) | partitions(two, 1)
    got = {
        (record.topic, record.partition, record.offset)
        for record in await read_records(consumer, 9)
    }
    assert got == {(tp.topic, tp.partition, n) for tp in consumer.assignment() for n in range(3)}


async def test_subscribe_creates_missing_topic(broker: Broker) -> None:
    topic = broker.unique_topic()
    consumer = await broker.consumer(topic)
    assert consumer.assignment() == partitions(topic, AUTO_PARTITIONS)
    assert consumer.partitions_for_topic(topic) == set(range(AUTO_PARTITIONS))
    await broker.fill(topic, [b"v"], partition=1)
    [record] = await read_records(consumer, 1)
    assert (record.partition, record.value) == (1, b"v")


async def test_subscription_changes_at_run_time(broker: Broker) -> None:
    one, two = await broker.create_topic(), await broker.create_topic()
    await broker.fill(one, [b"one"])
    await broker.fill(two, [b"two"])
    consumer = await broker.consumer()
    with pytest.raises(IllegalStateError):
        await consumer.seek_to_beginning()
    consumer.subscribe([one])
    assert [record.value for record in await read_records(consumer, 1)] == [b"one"]
    consumer.subscribe([two])
    assert [record.value for record in await read_records(consumer, 1)] == [b"two"]
    assert consumer.assignment() == partitions(two, 1)
    consumer.unsubscribe()
    assert not consumer.assignment()
    assert not consumer.subscription()
    consumer.assign([TopicPartition(one, 0)])
    assert [record.value for record in await read_records(consumer, 1)] == [b"one"]


async def test_kinds_of_subscription_are_exclusive(broker: Broker) -> None:
    topic = await broker.create_topic()
    subscribed = await broker.consumer(topic)
    with pytest.raises(IllegalStateError, match=r"Call unsubscribe\(\) first"):
        subscribed.assign([TopicPartition(topic, 0)])
    with pytest.raises(IllegalStateError, match=r"Call unsubscribe\(\) first"):
        subscribed.subscribe(pattern="x")
    assigned = await broker.reader(topic)
    with pytest.raises(IllegalStateError, match=r"Call unsubscribe\(\) first"):
        assigned.subscribe([topic])
    with pytest.raises(TypeError, match="exactly one"):
        assigned.subscribe([topic], pattern="x")
    with pytest.raises(ValueError, match="expected a regular expression"):
        broker.new_consumer().subscribe(pattern="(")
    for name in ("", ".", "a b", "x" * 256):
        with pytest.raises(InvalidTopicError):
            assigned.assign([TopicPartition(name, 0)])
        with pytest.raises(InvalidTopicError):
            broker.new_consumer(name)
    assert assigned.assignment() == partitions(topic, 1)


async def test_reassigned_partition_keeps_its_position(broker: Broker) -> None:
    topic = await broker.create_topic(partitions=3)
    for partition in range(3):
        await broker.fill(topic, [b"%d" % n for n in range(5)], partition=partition)
    stays, goes, comes = (TopicPartition(topic, n) for n in range(3))
    reader = await broker.reader(topic, 0, 1)
    for tp in (stays, goes):
        assert (await reader.getmany(tp, timeout_ms=5000, max_records=2)).keys() == {tp}
    reader.assign([stays, comes])
    assert [await reader.position(tp) for tp in (stays, comes)] == [2, 0]
    got = [(record.partition, record.value) for record in await read_records(reader, 8)]
    assert [value for partition, value in got if partition == 0] == [b"2", b"3", b"4"]
    assert [value for partition, value in got if partition == 2] == [b"%d" % n for n in range(5)]
    with pytest.raises(IllegalStateError, match="not assigned"):
        await reader.position(goes)


async def test_listener_gets_partitions_and_may_seek(broker: Broker) -> None:
    one, two = await broker.create_topic(), await broker.create_topic()
    await broker.fill(one, [b"0", b"1", b"2"])
    reported: list[tuple[str, set[TopicPartition]]] = []
    consumer = await broker.consumer()

    class Listener(ConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
            reported.append(("revoked", set(revoked)))

        async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
            if assigned:  # empty at first, until the topic is known
                reported.append(("assigned", set(assigned)))
            if TopicPartition(one, 0) in assigned:
                consumer.seek(TopicPartition(one, 0), 2)

    consumer.subscribe([one], listener=Listener())
    assert [record.value for record in await read_records(consumer, 1)] == [b"2"]
    consumer.subscribe([two], listener=Listener())

    async def listener_was_called() -> bool:
        return len(reported) == 3

    await eventually(listener_was_called)
    assert reported == [
        ("assigned", partitions(one, 1)),
        ("revoked", partitions(one, 1)),
        ("assigned", partitions(two, 1)),
    ]


# --- patterns -------------------------------------------------------------------------------------


async def test_pattern_matches_new_topics(broker: Broker) -> None:
    prefix = broker.unique_topic("p")
    early = await broker.create_topic(f"{prefix}-early", partitions=2)
    other = await broker.create_topic(f"x-{prefix}")
    await broker.fill(other, [b"not wanted"])
    await broker.fill(early, [b"early"], partition=1)
    consumer = broker.new_consumer(metadata_max_age_ms=100, auto_offset_reset="earliest")
    consumer.subscribe(pattern=f"{prefix}-.*")
    async with consumer:
        assert [record.value for record in await read_records(consumer, 1)] == [b"early"]
        assert consumer.subscription() == {early}
        late = await broker.create_topic(f"{prefix}-late")
        await broker.fill(late, [b"late"])
        assert [record.value for record in await read_records(consumer, 1)] == [b"late"]
        assert consumer.subscription() == {early, late}
        assert consumer.assignment() == partitions(early, 2) | partitions(late, 1)


# --- the cluster ----------------------------------------------------------------------------------


async def test_consumer_lists_topics_and_partitions(broker: Broker) -> None:
    one, three = await broker.create_topic(), await broker.create_topic(partitions=3)
    consumer = await broker.consumer(one)

    async def both_are_listed() -> bool:
        return {one, three} <= await consumer.topics()

    await eventually(both_are_listed)  # Metadata of all topics may lack a new topic for a moment
    assert consumer.partitions_for_topic(one) == {0}
    assert consumer.partitions_for_topic(three) == {0, 1, 2}
    assert consumer.partitions_for_topic(broker.unique_topic()) is None
    assert consumer.assignment() == partitions(one, 1)


@on_targets(since="0.8.2")
async def test_pattern_skips_internal_topics_by_default(broker: Broker) -> None:
    await broker.create_topic()

    async def there_is_a_coordinator() -> bool:
        response = await broker.request(GroupCoordinatorRequest("contract"))
        return bool(response.error_code == 0)

    await eventually(there_is_a_coordinator)
    name = "__consumer_offsets"
    without = await broker.consumer()
    assert name not in await without.topics()
    including = await broker.consumer(exclude_internal_topics=False)
    assert name in await including.topics()
    for consumer, wanted in ((without, False), (including, True)):
        consumer.subscribe(pattern="__consumer.*")
        refreshed = consumer.topics()
        await refreshed

        async def follows(consumer: object = consumer, wanted: bool = wanted) -> bool:
            return (name in consumer.subscription()) == wanted  # type: ignore[attr-defined]

        await eventually(follows)


# --- the admin client -----------------------------------------------------------------------------


async def test_admin_lists_topics_and_cluster(broker: Broker) -> None:
    topic = await broker.create_topic(partitions=2)
    missing = broker.unique_topic("missing")
    admin = await broker.admin()

    async def it_is_listed() -> bool:
        return topic in await admin.list_topics()

    await eventually(it_is_listed)
    described, unknown = await admin.describe_topics([topic, missing])
    assert (described["topic"], described["error_code"]) == (topic, 0)
    assert not described["is_internal"]
    assert sorted(one["partition"] for one in described["partitions"]) == [0, 1]
    cluster = await admin.describe_cluster()
    [node] = cluster["brokers"]
    assert f"{node['host']}:{node['port']}" == broker.bootstrap_servers
    for partition in described["partitions"]:
        assert (partition["error_code"], partition["leader"]) == (0, node["node_id"])
        assert partition["replicas"] == partition["isr"] == [node["node_id"]]
    assert (unknown["topic"], unknown["error_code"], unknown["partitions"]) == (missing, 3, [])
    assert missing not in await admin.list_topics()
