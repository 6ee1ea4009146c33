"""Registrations and claims in ZooKeeper: garbage, partitions that stay owned, wrong addresses."""

from __future__ import annotations

import asyncio
import logging

import pytest
from kazoo.client import KazooClient

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka08.admin import AIOKafkaAdminClient, NewPartitions
from aiokafka08.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka08.errors import (
    IllegalArgumentError,
    KafkaConfigurationError,
    KafkaConnectionError,
    KafkaUnavailableError,
)
from tests.brokers import RealCluster
from tests.brokers.ports import free_port
from tests.consumer.membership.group_harness import PARTITIONS, eventually, produce
from tests.consumer.membership.zookeeper.group_state import Group, new_member, options_for

pytestmark = [pytest.mark.real, pytest.mark.timeout(150)]


async def test_garbage_registration_is_skipped_and_logged(
    cluster: RealCluster, group: Group, registry: KazooClient, caplog: pytest.LogCaptureFixture
) -> None:
    path = f"{group.root}/ids/garbage"
    registry.create(path, b"{not json", makepath=True)
    with caplog.at_level(logging.WARNING, "aiokafka08.consumer"):
        async with new_member(cluster, group) as mine:
            assert len(mine.consumer.assignment()) == PARTITIONS
    assert f"node {path} skipped: b'{{not json' is no JSON" in caplog.text


async def test_partition_that_stays_owned_fails_the_start(
    cluster: RealCluster, group: Group, registry: KazooClient
) -> None:
    path = f"{group.root}/owners/{group.topic}/3"
    registry.create(path, b"somebody-0", makepath=True, ephemeral=True)
    mine = new_member(cluster, group, rebalance_max_retries=2, rebalance_backoff_ms=50)
    with pytest.raises(KafkaUnavailableError, match=r"/3 is owned by 'somebody-0'"):
        await mine.consumer.start()
    assert group.owners() == {3: "somebody"}


async def test_subscribe_registers_and_unsubscribe_leaves(
    cluster: RealCluster, group: Group
) -> None:
    async with AIOKafkaConsumer(**options_for(cluster, group.name)) as consumer:
        assert group.members() == []
        consumer.subscribe(pattern=group.topic)
        await eventually(lambda: group.is_shared(1), "all partitions owned")
        consumer.unsubscribe()
        await eventually(lambda: group.members() == [] and not group.owners(), "no registration")


async def test_new_partitions_are_shared(cluster: RealCluster, group: Group) -> None:
    async with (
        new_member(cluster, group) as one,
        new_member(cluster, group) as two,
        AIOKafkaAdminClient(
            bootstrap_servers=cluster.bootstrap_servers,
            zookeeper_connect=cluster.zookeeper_connect,
        ) as admin,
    ):
        await group.shared(2)
        await admin.create_partitions({group.topic: NewPartitions(PARTITIONS + 2)})
        async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            for number in range(PARTITIONS + 2):
                await producer.send_and_wait(group.topic, b"%d" % number, partition=number)
        sent = [str(number) for number in range(PARTITIONS + 2)]
        await eventually(lambda: sorted([*one.values, *two.values]) == sent, "all messages")
        shares = one.consumer.assignment(), two.consumer.assignment()
        assert [len(share) for share in shares] == [PARTITIONS // 2 + 1] * 2
        assert not shares[0] & shares[1]


async def test_cancelled_start_leaves_no_registration(
    cluster: RealCluster, group: Group, registry: KazooClient
) -> None:
    path = f"{group.root}/owners/{group.topic}/3"
    registry.create(path, b"somebody-0", makepath=True, ephemeral=True)
    consumer = AIOKafkaConsumer(group.topic, **options_for(cluster, group.name))
    start = asyncio.create_task(consumer.start())  # waits for the owned partition
    await eventually(lambda: len(group.members()) == 1, "registering")
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    assert group.members() == []
    assert group.owners() == {3: "somebody"}


async def test_wrong_address_chroot_or_group_raises(cluster: RealCluster, group: Group) -> None:
    options = options_for(cluster, group.name)
    port = free_port()
    for connect, error, text in (
        (f"127.0.0.1:{port}", KafkaConnectionError, f"127.0.0.1:{port} can't be reached"),
        (f"{cluster.zookeeper_connect}/none", KafkaUnavailableError, "has no chroot /none"),
    ):
        consumer = AIOKafkaConsumer(group.topic, **{**options, "zookeeper_connect": connect})
        with pytest.raises(error, match=text):
            await consumer.start()
    with pytest.raises(IllegalArgumentError, match="group_id='a/b' can't be a node"):
        AIOKafkaConsumer(group.topic, **{**options, "group_id": "a/b"})


async def test_failed_membership_overwrites_no_later_commit(
    cluster: RealCluster, group: Group, registry: KazooClient
) -> None:
    strategy = [RoundRobinPartitionAssignor]
    options = {**options_for(cluster, group.name), "partition_assignment_strategy": strategy}
    async with AIOKafkaConsumer(group.topic, **options) as consumer:
        sent = await produce(cluster, group.topic, "one")
        records = [await consumer.getone() for _ in sent]
        other = b'{"version":1,"subscription":{"elsewhere":1},"pattern":"static"}'
        registry.create(f"{group.root}/ids/other", other, ephemeral=True)
        with pytest.raises(KafkaConfigurationError, match="use range"):
            await consumer.getone()
        await eventually(lambda: group.members() == ["other"], "no registration")
        assert consumer.assignment() == set()
        assert sum(group.offsets()) == len(records)
        for number in range(PARTITIONS):  # another member commits further offsets
            registry.set(f"{group.root}/offsets/{group.topic}/{number}", b"50")
    assert group.offsets() == [50] * PARTITIONS
