"""`ClusterSampler`: what a sample has on each line of brokers, and when something is down."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aiokafka08 import AIOKafkaConsumer, OffsetAndMetadata, TopicPartition, environment
from aiokafka08._core.concurrency.loop_yield import run_in_steps
from aiokafka08._core.net.config import ZookeeperCheck
from aiokafka08._core.net.versions import BrokerLine, BrokerVersion
from aiokafka08._core.zookeeper.session import temporary_session
from aiokafka08._core.zookeeper.topic_states import ClusterNodes
from aiokafka08._tools.monitoring.cluster_history import ClusterHistory
from aiokafka08._tools.monitoring.cluster_sample import ClusterSample
from aiokafka08._tools.monitoring.sampler import ClusterSampler
from aiokafka08.admin import AIOKafkaAdminClient, NewTopic, TopicDescription
from aiokafka08.admin.group_lag import (
    GroupStore,
    StoredGroup,
    StoredGroupDescription,
    StoredGroupListing,
    StoredOffsets,
)
from aiokafka08.errors import (
    KafkaConnectionError,
    KafkaError,
    NoBrokersAvailable,
    UnsupportedVersionError,
    ZookeeperMismatchError,
)
from aiokafka08.protocol.requests.committed_offsets import OffsetFetchRequest
from aiokafka08.protocol.requests.fetch import FetchRequest
from aiokafka08.protocol.requests.groups import DescribeGroupsRequest, ListGroupsRequest
from aiokafka08.protocol.requests.list_offsets import ListOffsetsRequest
from aiokafka08.protocol.requests.metadata import MetadataResponse
from aiokafka08.testing import Answer, EmbeddedCluster, Hang
from aiokafka08.testing.simulation import simulate
from tests.brokers.cluster import RealCluster
from tests.brokers.fixtures import BrokerClusters, require_real_brokers
from tests.support.waiting import eventually
from tests.support.zookeeper import UncheckedZookeeper

ORDERS = TopicPartition("orders", 0)


@asynccontextmanager
async def sampling(
    servers: str,
    *,
    zookeeper: str | None = None,
    zookeeper_check: ZookeeperCheck = "refuse",
    timeout_ms: int = 10_000,
) -> AsyncIterator[ClusterSampler]:
    async with AIOKafkaAdminClient(
        bootstrap_servers=servers,
        zookeeper_connect=zookeeper,
        zookeeper_check=zookeeper_check,
        request_timeout_ms=timeout_ms,
    ) as admin:
        yield ClusterSampler(admin, has_zookeeper=zookeeper is not None)


async def commit(
    servers: str, group: str, tp: TopicPartition, offset: int, zookeeper: str | None = None
) -> None:
    """Commit to Kafka; groups of 0.8 need ZooKeeper for that."""
    async with AIOKafkaAdminClient(bootstrap_servers=servers, zookeeper_connect=zookeeper) as admin:
        await admin.reset_consumer_group_offsets(group, {tp: offset}, offsets_storage="kafka")


class Work:
    """Counts the calls of functions in each callback of the event loop, while the block runs."""

    def __init__(self) -> None:
        self.longest = 0
        self._calls = 0

    def __enter__(self) -> Work:
        real = self._real = asyncio.Handle._run
        thread = threading.get_ident()

        def run(handle: asyncio.Handle) -> None:
            if threading.get_ident() != thread:  # a callback of the cluster's brokers
                real(handle)
                return
            self._calls = 0
            real(handle)
            self.longest = max(self.longest, self._calls)

        asyncio.Handle._run = run  # type: ignore[method-assign,assignment]
        sys.setprofile(self._count)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        asyncio.Handle._run = self._real  # type: ignore[method-assign]

    def _count(self, *_: object) -> None:
        self._calls += 1


async def longest_step(topics: int, partitions: int) -> int:
    """Return the most work of one event-loop iteration in a refresh of such a cluster."""
    named = {f"t{number}": partitions for number in range(topics)}
    with EmbeddedCluster(version="0.8.2", brokers=2, topics=named) as cluster:
        async with sampling(cluster.bootstrap_servers) as sampler:
            history = ClusterHistory()
            with Work() as work:
                sample = await sampler.sample()
                await run_in_steps(history.add_in_steps(1.0, sample))
    assert sum(len(topic.partitions) for topic in sample.topics.values()) == topics * partitions
    assert work.longest
    return work.longest


@pytest.mark.asyncio_loop  # its callbacks are Python's, which can be counted
@pytest.mark.parametrize(("topics", "partitions"), [(3000, 1), (30, 100)])
async def test_longest_step_does_not_grow_with_the_cluster(topics: int, partitions: int) -> None:
    """The time of a step isn't measured, but the calls of functions in it."""
    usual = await longest_step(600, 1)
    assert await longest_step(topics, partitions) < 2 * usual


# --- embedded -------------------------------------------------------------------------------------


async def test_metadata_of_a_sample_is_not_kept() -> None:
    """What was opened meanwhile, and timers of requests, have its context for long."""

    def kept() -> int:
        gc.collect()
        return sum(isinstance(one, MetadataResponse) for one in gc.get_objects())

    async with (
        EmbeddedCluster(version="0.10", brokers=2, topics={"orders": 2}) as cluster,
        sampling(cluster.bootstrap_servers) as sampler,
    ):
        before = kept()
        for _ in range(3):
            await sampler.sample()
        assert kept() == before


@pytest.mark.parametrize("version", ["0.9", "0.10"])
async def test_idle_group_is_in_the_sample(version: str) -> None:
    async with EmbeddedCluster(version=version, brokers=2, topics={"orders": 2}) as cluster:
        cluster.append("orders", 0, [b"tea"] * 10)
        cluster.delete_before("orders", 0, 3)
        servers = cluster.bootstrap_servers
        await commit(servers, "billing", ORDERS, 4)
        async with sampling(servers) as sampler:
            sample = await sampler.sample()
        assert sample.errors == ()
        assert [one.error for one in sample.brokers.values()] == [None, None]
        assert {str(one.version and one.version.line) for one in sample.brokers.values()} == {
            version
        }
        orders = sample.topics["orders"].partitions
        assert (orders[0].start, orders[0].end, orders[0].leader) == (3, 10, 0)
        assert orders[0].all_replicas == orders[0].in_sync == (0, 1)
        assert not orders[0].is_under_replicated
        [group] = sample.groups
        assert (group.group, group.store, group.committed) == ("billing", "kafka", {ORDERS: 4})
        assert sample.controller == (0 if version == "0.10" else None)


async def test_silent_broker_leaves_a_gap() -> None:
    """It accepts connections and answers nothing: the others are sampled all the same."""
    async with EmbeddedCluster(version="0.8.2", brokers=2, topics={"orders": 2}) as cluster:
        async with sampling(cluster.bootstrap_servers, timeout_ms=1000) as sampler:
            await sampler.sample()
            cluster.fault(ListOffsetsRequest, then=Hang(), node=1, times=None)
            sample = await sampler.sample()
        errors = {node_id: one.error for node_id, one in sample.brokers.items()}
        assert errors[0] is None
        assert "no response" in str(errors[1])
        orders = sample.topics["orders"].partitions
        assert [orders[0].end, orders[1].end] == [0, None]
        assert any("orders/1" in one for one in sample.errors)


async def test_leaderless_partition_leaves_a_gap() -> None:
    async with EmbeddedCluster(version="0.8.2", brokers=2, topics={"orders": 2}) as cluster:
        async with sampling(cluster.bootstrap_servers, timeout_ms=1000) as sampler:
            cluster.kill(1, then="leaderless")
            sample = await sampler.sample()
        one = sample.topics["orders"].partitions[1]
        assert (one.leader, one.start, one.end) == (None, None, None)


async def test_group_that_cannot_be_read_leaves_a_gap() -> None:
    async with EmbeddedCluster(version="0.10", topics={"orders": 1}) as cluster:
        servers = cluster.bootstrap_servers
        await commit(servers, "billing", ORDERS, 0)
        await commit(servers, "other", ORDERS, 0)
        cluster.fault(
            OffsetFetchRequest,
            then=Answer(-1),
            times=None,
            where=lambda request: request.group == "billing",
        )
        async with sampling(servers, timeout_ms=1000) as sampler:
            sample = await sampler.sample()
        assert [one.group for one in sample.groups] == ["other"]
        [error] = sample.errors
        assert "'billing'" in error


async def test_group_that_cannot_be_described_has_its_offsets() -> None:
    async with EmbeddedCluster(version="0.10", topics={"orders": 1}) as cluster:
        servers = cluster.bootstrap_servers
        await commit(servers, "billing", ORDERS, 0)
        async with AIOKafkaConsumer("orders", bootstrap_servers=servers, group_id="other") as one:
            await one.commit({ORDERS: 0})
            cluster.fault(
                DescribeGroupsRequest,
                then=Answer(-1),
                times=None,
                where=lambda request: request.groups == ["billing"],
            )
            async with sampling(servers, timeout_ms=1000) as sampler:
                sample = await sampler.sample()
        members = {group.group: group.members for group in sample.groups}
        assert members.keys() == {"billing", "other"}
        assert members["billing"] is None
        assert len(members["other"] or ()) == 1
        described = {group.group: group.description for group in sample.groups}
        assert described["billing"] is None
        assert described["other"] is not None
        assert described["other"].state == "Stable"
        [error] = sample.errors
        assert "members of group 'billing' in kafka" in error


async def test_no_broker_is_an_error() -> None:
    async with (
        EmbeddedCluster(version="0.10") as cluster,
        sampling(cluster.bootstrap_servers, timeout_ms=1000) as sampler,
    ):
        cluster.kill(0)
        with pytest.raises(NoBrokersAvailable):
            await sampler.sample()


async def test_groups_of_0_8_take_zookeeper() -> None:
    async with EmbeddedCluster(version="0.8.1", topics={"orders": 1}) as cluster:
        async with sampling(cluster.bootstrap_servers) as sampler:
            sample = await sampler.sample()
        assert sample.topics["orders"].partitions[0].end == 0
        [hint] = sample.hints
        assert "zookeeper_connect" in hint
        assert not sample.errors


def test_zookeeper_of_another_cluster_is_an_error_or_leaves_a_gap() -> None:
    """A wrong chroot has no topics; without a gap all that ZooKeeper says would look healthy."""

    async def scenario() -> None:
        servers = world.cluster.bootstrap_servers

        def create_chroot() -> None:
            with temporary_session(
                UncheckedZookeeper(world.zookeeper_connect), 10.0, "test.kazoo"
            ) as client:
                client.create("/wrong/brokers/topics", b"", makepath=True)

        await environment.run_in_thread(create_chroot)
        wrong = f"{world.zookeeper_connect}/wrong"
        async with sampling(servers, zookeeper=wrong) as sampler:
            with pytest.raises(ZookeeperMismatchError, match="it registers no broker"):
                await sampler.sample()
        async with sampling(servers, zookeeper=wrong, zookeeper_check="warn") as sampler:
            assert (await sampler.sample()).errors == ()  # the brokers have no topics either
            world.cluster.create_topic("orders", 1)
            sample = await sampler.sample()
        assert sample.errors == (
            "topics in ZooKeeper not read: it has none, the brokers have some. Check that "
            "zookeeper_connect is the ZooKeeper, and the chroot, of the cluster",
        )

    with simulate(1, brokers=1, version="0.8.2") as world:
        world.run(scenario)


class PartlyDown(AIOKafkaAdminClient):
    """Reads nothing in ZooKeeper; or, if `lists`, the name and the offsets of one group."""

    lists = False

    async def describe_cluster_nodes(self) -> ClusterNodes:
        raise KafkaConnectionError("it is down")

    async def list_groups_of_store(self, store: GroupStore) -> StoredGroupListing:
        if store == "kafka":
            return await super().list_groups_of_store(store)
        if not self.lists:
            raise KafkaConnectionError("it is down")
        return StoredGroupListing([StoredGroup("scala", store, "consumer")])

    async def list_stored_offsets(self, groups: Iterable[StoredGroup]) -> list[StoredOffsets]:
        offsets = {ORDERS: OffsetAndMetadata(0, "")}
        groups = list(groups)
        in_kafka = await super().list_stored_offsets(one for one in groups if one.store == "kafka")
        return in_kafka + [
            StoredOffsets(one.group, one.store, offsets)
            for one in groups
            if one.store == "zookeeper"
        ]

    async def describe_stored_groups(
        self, groups: Iterable[StoredGroup]
    ) -> list[StoredGroupDescription]:
        error, groups = KafkaConnectionError("it is down"), list(groups)
        in_kafka = [one for one in groups if one.store == "kafka"]
        return await super().describe_stored_groups(in_kafka) + [
            StoredGroupDescription(one.group, one.store, None, error)
            for one in groups
            if one.store == "zookeeper"
        ]


def test_missing_chroot_is_one_gap_with_its_remedy() -> None:
    async def scenario() -> None:
        servers = world.cluster.bootstrap_servers
        async with sampling(servers, zookeeper=f"{world.zookeeper_connect}/typo") as sampler:
            sample = await sampler.sample()
        [gap] = sample.errors
        assert gap.startswith("groups and topics in ZooKeeper not read: ZooKeeper ")
        assert gap.endswith(" has no chroot /typo. Check zookeeper_connect")
        assert sample.remedies == {gap: "Check zookeeper_connect"}

    with simulate(1, brokers=1, version="0.8.2") as world:
        world.run(scenario)


async def test_unreadable_store_does_not_hide_the_other() -> None:
    async with EmbeddedCluster(version="0.9", topics={"orders": 1}) as cluster:
        servers = cluster.bootstrap_servers
        await commit(servers, "billing", ORDERS, 0)
        async with PartlyDown(bootstrap_servers=servers) as admin:
            sample = await ClusterSampler(admin, has_zookeeper=True).sample()
        assert [one.group for one in sample.groups] == ["billing"]
        assert sample.errors == ("groups and topics in ZooKeeper not read: it is down",)
        cluster.fault(ListGroupsRequest, then=Answer(15), times=None)
        async with PartlyDown(bootstrap_servers=servers, request_timeout_ms=1000) as admin:
            admin.lists = True
            sample = await ClusterSampler(admin, has_zookeeper=True).sample()
        [group] = sample.groups
        assert (group.group, group.store, group.members) == ("scala", "zookeeper", None)
        texts = "; ".join(sorted(sample.errors))
        assert "groups in Kafka not read: " in texts
        assert "members of group 'scala' in zookeeper: it is down" in texts


class HiddenOffsetsTopic(AIOKafkaAdminClient):
    """A client that an authorizer shows groups, but not the topic of their offsets."""

    pings = 0
    older: tuple[int, ...] = ()

    async def describe_topics(self, topics: list[str] | None = None) -> list[TopicDescription]:
        described = await super().describe_topics(topics)
        return [one for one in described if one["topic"] != "__consumer_offsets"]

    async def ping_brokers(self) -> dict[int, BrokerVersion | KafkaError]:
        self.pings += 1
        found = await super().ping_brokers()
        return found | {node: BrokerVersion.of(BrokerLine.V0_8_2) for node in self.older}


@pytest.mark.parametrize("older", [(), (1,)])
async def test_hidden_groups_are_looked_for_if_all_list_them(
    older: tuple[int, ...],
) -> None:
    async with EmbeddedCluster(2, "0.9", {"orders": 1}) as cluster:
        servers = cluster.bootstrap_servers
        await commit(servers, "billing", ORDERS, 0)
        earlier = len(cluster.requests(ListGroupsRequest))
        async with (
            AIOKafkaConsumer("orders", group_id="live", bootstrap_servers=servers) as consumer,
            HiddenOffsetsTopic(bootstrap_servers=servers) as admin,
        ):
            await consumer.getmany(timeout_ms=100)
            admin.older = older
            sample = await ClusterSampler(admin, has_zookeeper=False).sample()
        assert bool(cluster.requests(ListGroupsRequest)[earlier:]) == (not older)
    assert admin.pings == 1
    if older:
        assert not sample.rights
    else:
        assert set(sample.rights.values()) == {"Read on topic '__consumer_offsets'"}


async def test_refused_offsets_topic_needs_read() -> None:
    """Brokers before 0.10.1 name no idle groups: those are in the topic only."""
    async with EmbeddedCluster(1, "0.9", {"orders": 1}) as cluster:
        servers = cluster.bootstrap_servers
        await commit(servers, "billing", ORDERS, 0)
        cluster.fault(FetchRequest, then=Answer(29), times=None)
        async with sampling(servers) as sampler:
            sample = await sampler.sample()
    assert sample.rights
    assert set(sample.rights.values()) == {"Read on topic '__consumer_offsets'"}


class WithoutNodes(AIOKafkaAdminClient):
    """Reads a ZooKeeper without any group; or fails to, if `is_down`."""

    is_down = False

    async def list_groups_of_store(self, store: GroupStore) -> StoredGroupListing:
        if store == "kafka":
            return await super().list_groups_of_store(store)
        if self.is_down:
            raise KafkaConnectionError("it is down")
        return StoredGroupListing([])


@pytest.mark.parametrize("is_down", [False, True])
async def test_group_of_0_8_without_a_node_has_no_members(is_down: bool) -> None:
    async with EmbeddedCluster(version="0.8.2", topics={"orders": 1}) as cluster:
        servers = cluster.bootstrap_servers
        async with AIOKafkaConsumer(
            bootstrap_servers=servers,
            group_id="billing",
            enable_auto_commit=False,
            offsets_storage="kafka",
        ) as consumer:
            consumer.assign([ORDERS])
            await consumer.commit({ORDERS: 0})
        async with WithoutNodes(bootstrap_servers=servers) as admin:
            admin.is_down = is_down
            sample = await ClusterSampler(admin, has_zookeeper=True).sample()
    [group] = sample.groups
    assert (group.group, group.store) == ("billing", "kafka")
    assert group.members == (None if is_down else ())


async def test_topic_nodes_need_zookeeper() -> None:
    async with (
        EmbeddedCluster() as cluster,
        AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin,
    ):
        with pytest.raises(UnsupportedVersionError, match="zookeeper_connect="):
            await admin.describe_cluster_nodes()


# --- real brokers ---------------------------------------------------------------------------------


def write_scala_offset(zookeeper: str, group: str, tp: TopicPartition, offset: int) -> None:
    with temporary_session(UncheckedZookeeper(zookeeper), 10, "test") as client:
        path = f"/consumers/{group}/offsets/{tp.topic}/{tp.partition}"
        client.create(path, b"%d" % offset, makepath=True)


@pytest.mark.real
@pytest.mark.parametrize("version", ["0.8.0", "0.8.1.1", "0.8.2.2", "0.9.0.1", "0.10.2.2", "3.9.1"])
async def test_sample_of_real_brokers(
    broker_clusters: BrokerClusters, unique_topic: Callable[..., str], version: str
) -> None:
    """Topic, settings, replicas and groups in each store, on each line; nothing is created."""
    cluster = broker_clusters.get(version)
    servers, zookeeper = cluster.bootstrap_servers, cluster.zookeeper_connect
    tp, scala, kafka = TopicPartition(unique_topic("sampled"), 0), unique_topic(), unique_topic()
    configs: dict[str, object] = {} if version == "0.8.0" else {"retention.ms": 60000}
    async with AIOKafkaAdminClient(bootstrap_servers=servers, zookeeper_connect=zookeeper) as admin:
        await admin.create_topics([NewTopic(tp.topic, 1, 1, topic_configs=configs)])
    await asyncio.to_thread(write_scala_offset, zookeeper, scala, tp, 0)
    in_kafka = version not in ("0.8.0", "0.8.1.1")
    if in_kafka:
        await commit(servers, kafka, tp, 0, zookeeper)
    # Other tests may have left hundreds of groups on these brokers: all of them take seconds.
    async with AIOKafkaAdminClient(bootstrap_servers=servers, zookeeper_connect=zookeeper) as admin:
        before = await admin.list_topics()
        sampler = ClusterSampler(
            admin, has_zookeeper=True, topics=tp.topic.__eq__, groups=[scala, kafka].__contains__
        )
        sample = await sampler.sample()
        # Brokers may still be deleting topics of other tests.
        assert set(await admin.list_topics()) <= set(before)
    assert (sample.errors, sample.has_zookeeper) == ((), True)
    assert [one.error for one in sample.brokers.values()] == [None]
    assert list(sample.topics) == [tp.topic]
    topic = sample.topics[tp.topic]
    assert topic.config == ({} if version == "0.8.0" else {"retention.ms": "60000"})
    one = topic.partitions[0]
    assert (one.leader, one.start, one.end) == (0, 0, 0)
    assert (one.replicas, one.assigned, one.isr, one.stored_isr) == ((0,), (0,), (0,), (0,))
    groups = {(one.group, one.store): one for one in sample.groups}
    assert groups[scala, "zookeeper"].committed == {tp: 0}
    assert (kafka, "kafka") in groups or not in_kafka


@pytest.mark.real
async def test_dead_replica_is_seen_through_zookeeper() -> None:
    """Metadata of 0.8.2 leaves the dead replica out; ZooKeeper has it (docs/brokers.md 4.7)."""
    require_real_brokers()
    with RealCluster("0.8.2.2", brokers=2) as cluster:
        await asyncio.to_thread(cluster.create_topic, "orders", 1, 2)
        leader = await asyncio.to_thread(cluster.leader, "orders")
        await asyncio.to_thread(cluster.stop, 1 - leader)
        samples: list[ClusterSample] = []

        async def dead_replica_has_left() -> (
            bool
        ):  # the controller tells the brokers a little later
            samples[:] = [await sampler.sample()]
            return samples[0].topics["orders"].partitions[0].all_replicas == (leader,)

        async with sampling(cluster.bootstrap_servers) as sampler:
            await eventually(dead_replica_has_left)
        zookeeper = cluster.zookeeper_connect
        async with sampling(cluster.bootstrap_servers, zookeeper=zookeeper) as sampler:
            samples.append(await sampler.sample())
    without, by_zookeeper = (one.topics["orders"].partitions[0] for one in samples)
    assert without.lacks_replica
    assert set(by_zookeeper.all_replicas) == {0, 1}
    assert by_zookeeper.in_sync == (leader,)
    assert without.is_under_replicated
    assert by_zookeeper.is_under_replicated


class CancellingAdmin(AIOKafkaAdminClient):
    """Cancels the task that asks for the descriptions of groups, as the end of a program does."""

    def describe_stored_groups(
        self, groups: Iterable[StoredGroup]
    ) -> Coroutine[Any, Any, list[StoredGroupDescription]]:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return super().describe_stored_groups(groups)


@pytest.mark.filterwarnings("error")
async def test_cancelled_sample_leaves_no_coroutine_behind() -> None:
    async with (
        EmbeddedCluster(version="0.10", topics={"t": 1}) as cluster,
        CancellingAdmin(bootstrap_servers=cluster.bootstrap_servers) as admin,
    ):
        await admin.reset_consumer_group_offsets("g", {TopicPartition("t", 0): 0})
        sampling = asyncio.create_task(ClusterSampler(admin, has_zookeeper=False).sample())
        with pytest.raises(asyncio.CancelledError):
            await sampling
        gc.collect()
