"""Groups in ZooKeeper that are shared with the Scala consumer of Kafka 0.8."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from aiokafka08 import AIOKafkaConsumer
from aiokafka08.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka08.errors import KafkaUnavailableError
from tests.brokers import RealCluster
from tests.consumer.membership.group_harness import PARTITIONS, eventually, produce
from tests.consumer.membership.other_clients import ScalaMember
from tests.consumer.membership.zookeeper.group_state import Group, new_member, options_for
from tests.support.full import in_full
from tests.support.names import unique_name

pytestmark = [pytest.mark.real, pytest.mark.timeout(150)]

older = in_full("0.8.1.1", "0.8.0")


@pytest.mark.parametrize("cluster", ["0.8.2.2", *older], indirect=True)
async def test_group_shared_with_scala_members(
    cluster: RealCluster, group: Group, tmp_path: Path, stops: list[Callable[[], Any]]
) -> None:
    async def scala(*, from_beginning: bool = False) -> ScalaMember:
        member = await asyncio.to_thread(
            ScalaMember, cluster, tmp_path, group.name, group.topic, from_beginning=from_beginning
        )
        stops.append(member.stop)
        return member

    first = await scala(from_beginning=True)
    await group.shared(1)
    async with new_member(cluster, group) as mine:
        await group.shared(2)
        sent = await produce(cluster, group.topic, "one")

        def collected(*more: Any) -> list[str]:
            found = [*first.values, *mine.values]
            return sorted([*found, *(value for one in more for value in one.values)])

        await eventually(lambda: set(collected()) == sent, "all messages")
        assert collected() == sorted(sent)
        assert mine.values
        assert first.values
        async with new_member(cluster, group) as other:
            await group.shared(3)
            await asyncio.to_thread(first.stop)
            await group.shared(2)
            sent |= await produce(cluster, group.topic, "two")
            await eventually(lambda: set(collected(other)) == sent, "all messages")
            assert collected(other) == sorted(sent)
        second = await scala()
        await group.shared(2)
        sent |= await produce(cluster, group.topic, "three")
        await eventually(lambda: set(collected(other, second)) == sent, "all messages")
        assert collected(other, second) == sorted(sent)
        assert second.values
    await group.shared(1)
    sent |= await produce(cluster, group.topic, "four")
    await eventually(lambda: set(collected(other, second)) == sent, "all messages")
    assert collected(other, second) == sorted(sent)


@pytest.mark.parametrize("cluster", ["0.9.0.1"], indirect=True)
@pytest.mark.full
async def test_member_of_broker_waits_for_scala_members(
    cluster: RealCluster, group: Group, tmp_path: Path, stops: list[Callable[[], Any]]
) -> None:
    scala = await asyncio.to_thread(ScalaMember, cluster, tmp_path, group.name, group.topic)
    stops.append(scala.stop)
    await eventually(lambda: len(group.members()) == 1, "the Scala member")
    [name] = group.members()
    options = {**options_for(cluster, group.name), "rebalance_max_retries": 2}
    refused = AIOKafkaConsumer(group.topic, **options)
    with pytest.raises(KafkaUnavailableError, match=f"members in ZooKeeper, {name}"):
        await refused.start()
    await refused.stop()
    starting = AIOKafkaConsumer(group.topic, **options_for(cluster, group.name))
    start = asyncio.create_task(starting.start())
    try:
        await eventually(lambda: starting.metrics()["group_join_failures"] >= 2, "failed joins")
        await asyncio.to_thread(scala.stop)
        await start
        assert len(starting.assignment()) == PARTITIONS
    finally:
        await starting.stop()


async def test_roundrobin_shared_with_scala_member(
    cluster: RealCluster, group: Group, tmp_path: Path, stops: list[Callable[[], Any]]
) -> None:
    scala = await asyncio.to_thread(
        ScalaMember, cluster, tmp_path, group.name, group.topic, strategy="roundrobin"
    )
    stops.append(scala.stop)
    await group.shared(1)
    strategy = [RoundRobinPartitionAssignor]
    async with new_member(cluster, group, partition_assignment_strategy=strategy):
        await group.shared(2)
        async with new_member(cluster, group, partition_assignment_strategy=strategy):
            await group.shared(3)


@pytest.mark.full
async def test_roundrobin_shared_with_scala_pattern_member(
    cluster: RealCluster,
    registry: KazooClient,
    tmp_path: Path,
    stops: list[Callable[[], Any]],
) -> None:
    prefix = unique_name("g")
    topics = [f"{prefix}-{letter}" for letter in "abc"]
    for topic in topics:
        await asyncio.to_thread(cluster.create_topic, topic, 4)

    def owners() -> list[str]:
        found = []
        for topic in topics:
            for number in range(4):
                path = f"/consumers/{prefix}/owners/{topic}/{number}"
                if registry.exists(path):
                    found.append(registry.get(path)[0].decode())
        return found

    def shared(members: int) -> bool:
        return sorted(Counter(owners()).values()) == [12 // members] * members

    scala = await asyncio.to_thread(
        ScalaMember, cluster, tmp_path, prefix, f"{prefix}-.*", strategy="roundrobin", pattern=True
    )
    stops.append(scala.stop)
    await eventually(lambda: shared(1), "all partitions owned")
    options = options_for(cluster, prefix)
    options["partition_assignment_strategy"] = [RoundRobinPartitionAssignor]
    async with AIOKafkaConsumer(*topics, **options) as one:
        await eventually(lambda: shared(2), "shares of two")
        assert len(one.assignment()) == 6
        async with AIOKafkaConsumer(*topics, **options):
            await eventually(lambda: shared(3), "shares of three")


async def test_killed_scala_member_is_replaced(
    cluster: RealCluster, group: Group, tmp_path: Path, stops: list[Callable[[], Any]]
) -> None:
    scala = await asyncio.to_thread(ScalaMember, cluster, tmp_path, group.name, group.topic)
    stops.append(scala.stop)
    await group.shared(1)  # --from-beginning works only while the group has no offsets
    async with new_member(cluster, group) as mine:
        await group.shared(2)
        sent = await produce(cluster, group.topic, "one")
        await eventually(lambda: {*mine.values, *scala.values} == sent, "all messages")
        scala.process.kill()
        await group.shared(1)
        sent |= await produce(cluster, group.topic, "two")
        await eventually(lambda: {*mine.values, *scala.values} == sent, "all messages")
