"""The admin client's view of all groups: their stores, what they have committed, their lag."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka08 import OffsetAndMetadata, TopicPartition
from aiokafka08._core.net.config import OffsetsStorage
from aiokafka08.admin import LogBounds, PartitionLag, StoredGroup
from aiokafka08.errors import IllegalArgumentError, UnsupportedVersionError
from tests.conformance.contract.client.broker import Broker
from tests.conformance.contract.targets import on_targets
from tests.support.waiting import eventually

pytestmark = pytest.mark.both_loops

keeps_offsets = on_targets(since="0.8.1")
in_kafka = on_targets(since="0.8.2")


async def commit(
    broker: Broker,
    group: str,
    offsets: dict[TopicPartition, int],
    storage: OffsetsStorage | None = None,
) -> None:
    """Commit without being a member."""
    consumer = broker.new_consumer(
        group_id=group, enable_auto_commit=False, offsets_storage=storage
    )
    consumer.assign(list(offsets))
    async with consumer:
        await consumer.commit(offsets)


@in_kafka
async def test_idle_group_is_listed_with_its_store(broker: Broker) -> None:
    topic, group = await broker.create_topic(), broker.unique_topic("idle")
    admin = await broker.admin()
    names = [one.group for one in await admin.list_stored_groups()]
    assert group not in names
    await commit(broker, group, {TopicPartition(topic, 0): 0}, "kafka")
    assert StoredGroup(group, "kafka", "") in await admin.list_stored_groups()
    other = broker.unique_topic("idle")
    await commit(broker, other, {TopicPartition(topic, 0): 0}, "kafka")
    listed = await admin.list_stored_groups()  # reads on where the last call ended
    assert {StoredGroup(one, "kafka", "") for one in (group, other)} <= set(listed)
    assert listed == sorted(listed)
    topic_state = await admin.read_offsets_topic()
    assert topic_state.offsets[other][TopicPartition(topic, 0)].offset == 0


@keeps_offsets
async def test_lag_of_each_store_is_a_row(broker: Broker) -> None:
    topic, group = await broker.create_topic(partitions=3), broker.unique_topic("g")
    tps = [TopicPartition(topic, number) for number in range(3)]
    await broker.fill(topic, [b"v"] * 10, partition=0)
    await commit(broker, group, {tps[0]: 4, tps[1]: 0}, "zookeeper")
    rows = [
        PartitionLag(group, "zookeeper", topic, 0, 4, 10, 6, None),
        PartitionLag(group, "zookeeper", topic, 1, 0, 0, 0, None),
    ]
    admin = await broker.admin()
    if broker.version >= (0, 8, 2):
        await commit(broker, group, {tps[0]: 10, tps[2]: 0}, "kafka")
        rows.insert(0, PartitionLag(group, "kafka", topic, 0, 10, 10, 0, None))
        rows.append(PartitionLag(group, "kafka", topic, 2, 0, 0, 0, None))
    else:
        rows.append(PartitionLag(group, "zookeeper", topic, 2, None, 0, None, None))

    async def all_are_there() -> bool:  # Metadata of all topics may lack a new topic for a moment
        return await admin.list_group_lags([group]) == rows

    await eventually(all_are_there)
    assert await admin.list_group_lags([broker.unique_topic("unknown")]) == []
    with pytest.raises(IllegalArgumentError, match="group_ids='g'"):
        await admin.list_group_lags("g")


@on_targets(since="0.9")
async def test_live_group_has_members_in_its_rows(broker: Broker) -> None:
    topic, group = await broker.create_topic(partitions=2), broker.unique_topic("g")
    await broker.fill(topic, [b"v"] * 5)
    admin = await broker.admin()
    consumer = await broker.consumer(topic, group_id=group, enable_auto_commit=False)
    await consumer.commit({TopicPartition(topic, 0): 3})
    [described] = await admin.describe_consumer_groups([group])
    member = described.groups[0].members[0].member_id
    assert StoredGroup(group, "kafka", "consumer") in await admin.list_stored_groups()

    async def both_are_there() -> bool:
        return await admin.list_group_lags([group]) == [
            PartitionLag(group, "kafka", topic, 0, 3, 5, 2, member),
            PartitionLag(group, "kafka", topic, 1, None, 0, None, member),
        ]

    await eventually(both_are_there)
    assert [row for row in await admin.list_group_lags() if row.group == group] == (
        await admin.list_group_lags([group])
    )


@in_kafka
async def test_offsets_of_many_groups_come_together(broker: Broker) -> None:
    topic = await broker.create_topic(partitions=2)
    tps = [TopicPartition(topic, number) for number in range(2)]
    names = [broker.unique_topic("g") for _ in range(10)]
    for number, name in enumerate(names):
        await commit(broker, name, dict.fromkeys(tps, number), "kafka")
    admin = await broker.admin()
    groups = [StoredGroup(name, "kafka", "") for name in names]
    missing = StoredGroup(broker.unique_topic("g"), "kafka", "")
    found = await admin.list_stored_offsets([missing, *groups])
    assert [(one.group, one.error) for one in found] == [
        (name, None) for name in [missing.group, *names]
    ]
    assert not found[0].offsets
    for number, one in enumerate(found[1:]):
        assert one.offsets == dict.fromkeys(tps, OffsetAndMetadata(number, ""))


@keeps_offsets  # topics have settings since then
async def test_log_of_many_segments_has_the_bounds_of_all(broker: Broker) -> None:
    """One request lists the starts of all segments; of a limited number the first may lack."""
    topic = await broker.create_topic(config={"segment.bytes": "250"})
    for _ in range(40):
        await broker.fill(topic, [b"v" * 100])
    tp = TopicPartition(topic, 0)
    admin = await broker.admin()

    async def is_there() -> bool:
        return (await admin.list_log_bounds()).get(tp) == LogBounds(0, 40)

    await eventually(is_there)


async def test_log_bounds_of_all_and_of_named_partitions(broker: Broker) -> None:
    topic = await broker.create_topic(partitions=2)
    await broker.fill(topic, [b"v"] * 3)
    tps = [TopicPartition(topic, number) for number in range(2)]
    admin = await broker.admin()

    async def all_are_there() -> bool:
        bounds = await admin.list_log_bounds()
        return [bounds.get(tp) for tp in tps] == [LogBounds(0, 3), LogBounds(0, 0)]

    await eventually(all_are_there)
    missing = TopicPartition(broker.unique_topic("missing"), 0)
    assert await admin.list_log_bounds([tps[0], missing], starts=False) == {
        tps[0]: LogBounds(None, 3)
    }


@on_targets(below="0.8.2")
async def test_old_line_lists_groups_of_zookeeper_only(broker: Broker) -> None:
    await broker.create_topic()
    admin = await broker.admin()

    async def it_is_refused() -> bool:  # the line is known once a topic is
        try:
            await admin.list_stored_groups()
        except UnsupportedVersionError as error:
            return "zookeeper_connect=" in error.text
        return False

    await eventually(it_is_refused)


@on_targets(since="0.9")
async def test_many_calls_at_once_agree(broker: Broker) -> None:
    topic, group = await broker.create_topic(), broker.unique_topic("g")
    await commit(broker, group, {TopicPartition(topic, 0): 0}, "kafka")
    admin = await broker.admin()
    results = await asyncio.gather(*(admin.list_group_lags([group]) for _ in range(5)))
    assert results == [results[0]] * 5
