"""The admin client lists, describes and resets groups, on every line that coordinates groups."""

from __future__ import annotations

import datetime
import re
import time

import pytest

from aiokafka08 import OffsetAndMetadata, TopicPartition
from aiokafka08._core.net.config import OffsetsStorage
from aiokafka08.admin import AIOKafkaAdminClient, GroupDescription
from aiokafka08.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from aiokafka08.errors import (
    IllegalArgumentError,
    IllegalStateError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from tests.conformance.contract.client.broker import Broker, Consumer, read_records
from tests.conformance.contract.targets import on_targets
from tests.support.waiting import eventually

pytestmark = pytest.mark.both_loops

coordinates = on_targets(since="0.9")
keeps_offsets = on_targets(since="0.8.1")


async def committed(broker: Broker, group: str, topic: str, *offsets: int) -> None:
    """Commit these offsets for the partitions from 0 on, without being a member."""
    one = broker.new_consumer(group_id=group, enable_auto_commit=False)
    tps = [TopicPartition(topic, number) for number in range(len(offsets))]
    one.assign(tps)
    async with one:
        await one.commit(dict(zip(tps, offsets, strict=True)))


async def live(broker: Broker, group: str, topic: str) -> Consumer:
    return await broker.consumer(topic, group_id=group, heartbeat_interval_ms=100)


async def described(admin: AIOKafkaAdminClient, group: str) -> GroupDescription:
    [response] = await admin.describe_consumer_groups([group])
    [one] = response.groups
    assert (one.error_code, one.group) == (0, group)
    return one


# --- groups ---------------------------------------------------------------------------------------


@coordinates
async def test_live_group_is_listed_and_described(broker: Broker) -> None:
    topic, group = await broker.create_topic(partitions=2), broker.unique_topic("g")
    admin = await broker.admin()
    assert (await described(admin, group)).state in ("Dead", "Empty")
    assert (group, "consumer") not in await admin.list_consumer_groups()
    consumer = await live(broker, group, topic)

    async def it_is_stable() -> bool:
        return (await described(admin, group)).state == "Stable"

    await eventually(it_is_stable)
    coordinator = await admin.find_coordinator(group)
    assert (group, "consumer") in await admin.list_consumer_groups()
    assert (group, "consumer") in await admin.list_consumer_groups([coordinator])
    one = await described(admin, group)
    assert one.protocol_type == "consumer"
    [member] = one.members
    assert re.fullmatch(r"aiokafka08-consumer-\d+", member.client_id)
    assert ConsumerProtocolMemberMetadata.decode(member.member_metadata).subscription == [topic]
    assignment = ConsumerProtocolMemberAssignment.decode(member.member_assignment)
    assert set(assignment.partitions()) == consumer.assignment()
    [both] = await admin.describe_consumer_groups([group, broker.unique_topic("g")], coordinator)
    assert [len(one.members) for one in both.groups] == [1, 0]


@on_targets(below="0.9")
async def test_old_line_error_refers_to_zookeeper(broker: Broker) -> None:
    topic, group = await broker.create_topic(), broker.unique_topic("g")
    admin = await broker.admin()
    for call in (
        admin.list_consumer_groups(),
        admin.describe_consumer_groups([group]),
        admin.reset_consumer_group_offsets(
            group, {TopicPartition(topic, 0): 0}, offsets_storage="zookeeper"
        )
        if broker.version >= (0, 8, 1)
        else admin.list_consumer_groups(),
    ):
        with pytest.raises(UnsupportedVersionError, match="zookeeper_connect="):
            await call


async def test_option_of_newer_brokers_raises(broker: Broker) -> None:
    admin = await broker.admin()
    with pytest.raises(UnsupportedVersionError, match="coordinator_type=1 needs"):
        await admin.find_coordinator("g", 1)
    with pytest.raises(UnsupportedVersionError, match="DescribeGroups 3"):
        await admin.describe_consumer_groups(["g"], include_authorized_operations=True)
    with pytest.raises(IllegalArgumentError, match="group_ids='g'"):
        await admin.describe_consumer_groups("g")  # type: ignore[arg-type]
    with pytest.raises(IllegalArgumentError, match="offsets_storage='disk'"):
        await admin.list_consumer_group_offsets("g", offsets_storage="disk")  # type: ignore[arg-type]


# --- offsets --------------------------------------------------------------------------------------


@keeps_offsets
async def test_group_offsets_and_lag(broker: Broker) -> None:
    topic, group = await broker.create_topic(partitions=3), broker.unique_topic("g")
    tps = [TopicPartition(topic, number) for number in range(3)]
    await broker.fill(topic, [b"v"] * 10, partition=0)
    await committed(broker, group, topic, 4, 0)
    admin = await broker.admin()
    here = {tps[0]: OffsetAndMetadata(4, ""), tps[1]: OffsetAndMetadata(0, "")}

    async def all_are_listed() -> bool:  # Metadata of all topics may lack a new topic for a moment
        return await admin.list_consumer_group_offsets(group) == here

    await eventually(all_are_listed)
    offsets = await admin.list_consumer_group_offsets(group, partitions=tps[1:])
    assert offsets == {tps[1]: OffsetAndMetadata(0, ""), tps[2]: OffsetAndMetadata(-1, "")}
    assert await admin.list_consumer_group_lag(group) == {tps[0]: 6, tps[1]: 0}
    lags = await admin.list_consumer_group_lag(group, tps)
    assert lags == {tps[0]: 6, tps[1]: 0, tps[2]: None}
    assert await admin.list_consumer_group_offsets(broker.unique_topic("g")) == {}


@on_targets(since="0.8.2")
async def test_group_offsets_come_from_named_store(broker: Broker) -> None:
    topic, group = await broker.create_topic(), broker.unique_topic("g")
    tp = TopicPartition(topic, 0)
    one = await broker.reader(topic, group_id=group, offsets_storage="zookeeper")
    await one.commit({tp: 5})
    admin = await broker.admin()
    coordinator = await admin.find_coordinator(group)
    stores: list[tuple[OffsetsStorage | None, int]] = [
        *(("kafka", -1), ("zookeeper", 5), ("dual", 5), (None, -1)),
    ]
    for storage, offset in stores:
        found = await admin.list_consumer_group_offsets(
            group, coordinator, [tp], offsets_storage=storage
        )
        assert found == {tp: OffsetAndMetadata(offset, "")}


@coordinates
async def test_reset_of_inactive_group_moves_its_offsets(broker: Broker) -> None:
    topic, group = await broker.create_topic(partitions=5), broker.unique_topic("g")
    tps = [TopicPartition(topic, number) for number in range(5)]
    before = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)
    for number in range(5):
        await broker.fill(topic, [b"v"] * 10, partition=number)
    await committed(broker, group, topic, 5, 5, 5, 5, 5)
    admin = await broker.admin()
    after = datetime.datetime.fromtimestamp(time.time() + 3600, datetime.UTC)
    done = await admin.reset_consumer_group_offsets(
        group, dict(zip(tps, ["earliest", "latest", 7, before, after], strict=True))
    )
    assert done == dict(zip(tps, [0, 10, 7, 0, 10], strict=True))
    found = await admin.list_consumer_group_offsets(group, partitions=tps)
    assert {tp: one.offset for tp, one in found.items()} == done


@coordinates
async def test_reset_of_live_group_raises(broker: Broker) -> None:
    topic, group = await broker.new_log([b"v"] * 10), broker.unique_topic("g")
    tp = TopicPartition(topic, 0)
    admin = await broker.admin()
    consumer = await live(broker, group, topic)
    await read_records(consumer, 3)
    await consumer.commit()
    with pytest.raises(IllegalStateError, match=f"group '{group}' is live"):
        await admin.reset_consumer_group_offsets(group, {tp: "earliest"})
    assert await consumer.committed(tp) == 3
    await consumer.stop()
    assert await admin.reset_consumer_group_offsets(group, {tp: "earliest"}) == {tp: 0}
    again = await live(broker, group, topic)
    assert [record.offset for record in await read_records(again, 2)] == [0, 1]


@coordinates
async def test_invalid_reset_changes_nothing(broker: Broker) -> None:
    topic, group = await broker.new_log([b"v"] * 10), broker.unique_topic("g")
    tp = TopicPartition(topic, 0)
    await committed(broker, group, topic, 5)
    admin = await broker.admin()
    for to in (-1, "begin", 1.5, None, True):
        with pytest.raises(IllegalArgumentError, match="expected an integer >= 0, 'earliest'"):
            await admin.reset_consumer_group_offsets(group, {tp: to})  # type: ignore[dict-item]
    with pytest.raises(IllegalArgumentError, match=f"{topic}/0: 11, expected 0 to 10"):
        await admin.reset_consumer_group_offsets(group, {tp: 11})
    with pytest.raises(IllegalArgumentError, match="at least one"):
        await admin.reset_consumer_group_offsets(group, {})
    with pytest.raises(UnknownTopicOrPartitionError, match="no partition 3"):
        await admin.reset_consumer_group_offsets(group, {tp: 1, TopicPartition(topic, 3): 1})
    found = await admin.list_consumer_group_offsets(group, partitions=[tp])
    assert found == {tp: OffsetAndMetadata(5, "")}
