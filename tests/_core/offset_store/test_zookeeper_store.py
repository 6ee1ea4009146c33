"""Offsets in a real ZooKeeper: directly, as on 0.8.0, and in the same nodes through brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import READ_ACL_UNSAFE, make_digest_acl

from aiokafka08 import AIOKafkaConsumer, TopicPartition
from aiokafka08._core.net.versions import BrokerLine
from aiokafka08._core.offset_store import CommitIdentity
from aiokafka08._core.offset_store.zookeeper_store import ZookeeperOffsetStore
from aiokafka08.errors import (
    GroupAuthorizationFailedError,
    IllegalArgumentError,
    IllegalStateError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    KafkaUnavailableError,
)
from aiokafka08.structs import OffsetAndMetadata
from tests._core.offset_store.conftest import NewStore, store_config
from tests.brokers.cluster import RealCluster
from tests.brokers.fixtures import BrokerClusters
from tests.support.waiting import eventually
from tests.support.zookeeper import UncheckedZookeeper

pytestmark = pytest.mark.real

NewName = Callable[..., str]
PLAIN = CommitIdentity()


@contextmanager
def own_session(cluster: RealCluster) -> Iterator[KazooClient]:
    """Open a session of the test's own."""
    session = KazooClient(cluster.zookeeper_connect)
    session.start()
    try:
        yield session
    finally:
        session.stop()
        session.close()


def new_store_at(connect: str, group: str, **options: Any) -> ZookeeperOffsetStore:
    return ZookeeperOffsetStore(
        UncheckedZookeeper(connect), group, BrokerLine.V0_8_0, store_config(**options)
    )


def node(group: str, tp: TopicPartition) -> str:
    return f"/consumers/{group}/offsets/{tp.topic}/{tp.partition}"


def new_consumer(cluster: RealCluster, tp: TopicPartition, group: str) -> AIOKafkaConsumer:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers,
        zookeeper_connect=cluster.zookeeper_connect,
        group_id=group,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=3_600_000,
    )
    consumer.assign([tp])
    return consumer


@pytest.mark.release("0.8.0")
async def test_consumer_on_0_8_0_continues_at_its_node(
    broker_clusters: BrokerClusters, unique_topic: NewName
) -> None:
    cluster, group = broker_clusters.get("0.8.0"), unique_topic("g")
    tp = TopicPartition(unique_topic(), 0)
    await asyncio.to_thread(cluster.create_topic, tp.topic)
    async with new_consumer(cluster, tp, group) as one:
        assert await one.committed(tp) is None
        await one.commit({tp: (7, "not kept")})
        assert await one.committed(tp) == 7
        await one.commit({tp: 0})
        assert await one.seek_to_committed() == {tp: 0}
        assert await one.position(tp) == 0
        one.seek(tp, 0)
    with own_session(cluster) as session:
        assert session.get(node(group, tp))[0] == b"0"  # written by stop() too
        session.set(node(group, tp), b"5")  # as the Scala consumer does
    async with new_consumer(cluster, tp, group) as two:
        assert await two.position(tp) == 5


@pytest.mark.parametrize("version", ["0.8.1.1", "0.8.2.2", "0.9.0.1", "0.10.2.2", "3.9.1"])
async def test_direct_and_broker_stores_share_nodes(
    broker_clusters: BrokerClusters, unique_topic: NewName, new_store: NewStore, version: str
) -> None:
    cluster, group = broker_clusters.get(version), unique_topic("g")
    tp, other = (TopicPartition(unique_topic(), number) for number in range(2))
    other = TopicPartition(tp.topic, 1)
    await asyncio.to_thread(cluster.create_topic, tp.topic, 2)
    by_request = await new_store(cluster.bootstrap_servers, "zookeeper", group=group)
    direct = new_store_at(cluster.zookeeper_connect, group)
    await direct.start()
    try:
        await by_request.commit({tp: OffsetAndMetadata(3, "")}, PLAIN)
        await direct.commit({other: OffsetAndMetadata(4, "")}, PLAIN)
        both = {tp: OffsetAndMetadata(3, ""), other: OffsetAndMetadata(4, "")}
        assert await direct.fetch([tp, other]) == both
        assert await by_request.fetch([tp, other]) == both
    finally:
        await direct.stop()


@pytest.mark.parametrize("garbage", ["{garbage", "9223372036854775808", "1_0", "\u0661"])
@pytest.mark.release("0.8.0")
async def test_garbage_node_is_named_and_overwritten(
    broker_clusters: BrokerClusters, unique_topic: NewName, garbage: str
) -> None:
    cluster, group = broker_clusters.get("0.8.0"), unique_topic("g")
    tp = TopicPartition(unique_topic(), 0)
    await asyncio.to_thread(cluster.create_topic, tp.topic)
    with own_session(cluster) as session:
        session.create(node(group, tp), garbage.encode(), makepath=True)
    async with new_consumer(cluster, tp, group) as one:
        with pytest.raises(
            KafkaUnavailableError, match=rf"{node(group, tp)} holds b'.*'; expected an offset"
        ):
            await one.committed(tp)
        await one.commit({tp: 2})
        assert await one.committed(tp) == 2


@pytest.mark.parametrize("version", ["0.8.1.1", "0.8.2.2"])
async def test_node_that_its_acl_protects_is_refused_at_once(
    broker_clusters: BrokerClusters, unique_topic: NewName, version: str
) -> None:
    cluster, group = broker_clusters.get(version), unique_topic("g")
    readable, hidden, open_ = (TopicPartition("t", number) for number in range(3))
    with own_session(cluster) as session:
        session.ensure_path(f"/consumers/{group}/offsets/t")
        session.create(node(group, readable), b"1", acl=READ_ACL_UNSAFE)
        session.create(node(group, hidden), b"1", acl=[make_digest_acl("a", "b", all=True)])
        store = new_store_at(cluster.zookeeper_connect, group)
        await store.start()
        try:
            offset = OffsetAndMetadata(2, "")
            with pytest.raises(
                GroupAuthorizationFailedError, match=rf"t/0: .*/consumers/{group}/.* refuses"
            ):
                await store.commit({readable: offset, open_: offset}, PLAIN)
            assert await store.fetch([readable, open_]) == {
                readable: OffsetAndMetadata(1, ""),
                open_: offset,
            }
            with pytest.raises(GroupAuthorizationFailedError, match=f"/consumers/{group}"):
                await store.fetch([hidden])
        finally:
            await store.stop()
            session.delete(node(group, hidden))  # other tests read all nodes of this cluster


@pytest.mark.release("0.8.0")
async def test_wrong_chroot_address_or_group_raises(broker_clusters: BrokerClusters) -> None:
    cluster = broker_clusters.get("0.8.0")
    connect = cluster.zookeeper_connect
    for address, group, error, match in (
        (f"{connect}/nowhere", "g", KafkaUnavailableError, "has no chroot /nowhere"),
        ("127.0.0.1:1", "g", KafkaConnectionError, r"127\.0\.0\.1:1 can't be reached"),
        (connect, "a/b", IllegalArgumentError, "'a/b' can't be a node"),
    ):
        store = new_store_at(address, group, request_timeout_ms=2000)
        with pytest.raises(error, match=match):
            await store.start()
        await store.stop()
        with pytest.raises(IllegalStateError, match="isn't open"):
            await store.fetch([TopicPartition("t", 0)])


@pytest.mark.release("0.8.0")
async def test_cancelled_start_leaves_no_session(
    broker_clusters: BrokerClusters, unique_topic: NewName
) -> None:
    cluster = broker_clusters.get("0.8.0")
    store = new_store_at(cluster.zookeeper_connect, unique_topic("g"))
    starting = asyncio.create_task(store.start())
    await asyncio.sleep(0)
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    opening = store._nodes._session._opening
    assert opening is not None
    await store.stop()
    assert not opening.result().connected


@pytest.mark.timeout(120)
async def test_commits_fail_in_time_during_zookeeper_outage(
    unique_topic: NewName,
) -> None:
    tp = TopicPartition("t", 0)
    with RealCluster("0.8.0") as cluster:
        store = new_store_at(cluster.zookeeper_connect, unique_topic("g"))
        await store.start()
        try:
            await store.commit({tp: OffsetAndMetadata(1, "")}, PLAIN)
            await asyncio.to_thread(cluster.stop_zookeeper)
            with pytest.raises(KafkaTimeoutError, match=r"not committed .* 500 ms: .*t/0: "):
                await store.commit({tp: OffsetAndMetadata(2, "")}, PLAIN, timeout_s=0.5)
            await asyncio.to_thread(cluster.start_zookeeper)

            async def is_committed() -> bool:
                try:
                    await store.commit({tp: OffsetAndMetadata(3, "")}, PLAIN, timeout_s=5)
                except KafkaError:
                    return False
                return True

            await eventually(is_committed, timeout_s=60, pause_s=0.1)
            assert await store.fetch([tp]) == {tp: OffsetAndMetadata(3, "")}
        finally:
            await store.stop()
