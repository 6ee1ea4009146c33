"""Groups on real brokers, shared with the Java consumer of the same version and kafka-python."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from aiokafka08 import (
    AIOKafkaConsumer,
    AIOKafkaProducer,
    ConsumerRebalanceListener,
    TopicPartition,
)
from aiokafka08._core.net.coordinator_lookup import CoordinatorLookup
from aiokafka08.admin import AIOKafkaAdminClient, NewPartitions
from aiokafka08.coordinator.protocol import ConsumerProtocolMemberAssignment
from aiokafka08.errors import InconsistentGroupProtocolError, KafkaTimeoutError
from aiokafka08.protocol import api
from aiokafka08.protocol.requests.committed_offsets import OffsetFetchRequest
from aiokafka08.protocol.requests.groups import (
    DescribeGroupsRequest,
    GroupProtocol,
    JoinGroupRequest,
)
from aiokafka08.telemetry import Event, GroupJoined
from tests.brokers import RealCluster
from tests.brokers.fixtures import BrokerClusters
from tests.conformance.contract.wire.wire_client import WireClient
from tests.consumer.membership.conftest import partitions
from tests.consumer.membership.group_harness import (
    PARTITIONS,
    CollectingMember,
    eventually,
    kill_and_pause,
    produce,
)
from tests.consumer.membership.other_clients import JavaMember, KafkaPythonMember
from tests.consumer.membership.worker_process import Worker
from tests.support.clients import OpenConsumer
from tests.support.full import in_full
from tests.support.names import unique_name

pytestmark = [pytest.mark.real, pytest.mark.timeout(150)]


@pytest.fixture(params=["0.9.0.1", *in_full("0.10.2.2", "3.9.1")])
def cluster(request: pytest.FixtureRequest, broker_clusters: BrokerClusters) -> RealCluster:
    return broker_clusters.get(request.param, 1)


class Group:
    """The state of a group as its coordinator, the only broker, describes it."""

    def __init__(self, cluster: RealCluster, name: str, topic: str) -> None:
        host, _, port = cluster.nodes[0].rpartition(":")
        self._address = host, int(port)
        self._name = name
        self._all = partitions(PARTITIONS, topic)

    async def shared_by(self, *client_ids: str) -> None:
        """Wait until exactly these members own all partitions, each an equal share."""
        await eventually(
            lambda: self._is_shared(client_ids, self._members()), f"equal shares of {client_ids}"
        )

    def offsets(self) -> list[int]:
        """Return the committed offset of each partition, 0 if there is none."""
        topic, numbers = next(iter(self._all)).topic, list(range(PARTITIONS))
        with WireClient(self._address) as wire:
            [topic_response] = wire.request(
                OffsetFetchRequest(self._name, [api.Topic(topic, numbers)]), version=1
            ).topics
        committed = {one.partition: one.offset for one in topic_response.partitions}
        return [max(committed[number], 0) for number in numbers]

    def _members(self) -> list[tuple[str, list[TopicPartition]]]:
        with WireClient(self._address) as wire:
            [group] = wire.request(DescribeGroupsRequest([self._name])).groups
        return [
            (
                member.client_id,
                ConsumerProtocolMemberAssignment.decode(member.assignment).partitions(),
            )
            for member in group.members
            if group.state == "Stable"
        ]

    def _is_shared(
        self, client_ids: Collection[str], members: list[tuple[str, list[TopicPartition]]]
    ) -> bool:
        owned = [tp for _, partitions in members for tp in partitions]
        return (
            sorted(name for name, _ in members) == sorted(client_ids)
            and sorted(owned) == sorted(self._all)
            and all(len(one) == PARTITIONS // len(members) for _, one in members)
        )


def new_member(cluster: RealCluster, group: str, topic: str, client_id: str) -> CollectingMember:
    """Return a member that commits every 100 ms."""
    return CollectingMember(
        OpenConsumer(
            topic,
            bootstrap_servers=cluster.bootstrap_servers,
            group_id=group,
            client_id=client_id,
            session_timeout_ms=6000,
            heartbeat_interval_ms=200,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=100,
        )
    )


async def test_group_shared_with_java_and_kafka_python(
    cluster: RealCluster, tmp_path: Path, stops: list[Callable[[], Any]]
) -> None:
    topic, name = unique_name("t"), unique_name("g")
    await asyncio.to_thread(cluster.create_topic, topic, PARTITIONS)

    async def java() -> JavaMember:
        member = await asyncio.to_thread(JavaMember, cluster, tmp_path, name, topic)
        stops.append(member.stop)
        return member

    group = Group(cluster, name, topic)
    first = await java()  # leads
    await group.shared_by("java")
    async with new_member(cluster, name, topic, "ours") as mine:
        await group.shared_by("java", "ours")
        python = await asyncio.to_thread(KafkaPythonMember, cluster, name, topic)
        stops.append(python.stop)
        await group.shared_by("java", "ours", "kafka-python")
        sent = await produce(cluster, topic, "one")

        def collected(*more: JavaMember) -> list[str]:
            found = [*first.values, *mine.values, *python.values]
            return sorted([*found, *(value for one in more for value in one.values)])

        await eventually(lambda: set(collected()) == sent, "all messages")
        assert collected() == sorted(sent)
        assert mine.values
        assert python.values
        assert first.values

        await asyncio.to_thread(first.stop)
        await asyncio.to_thread(python.stop)
        await group.shared_by("ours")  # leads now
        second = await java()
        await group.shared_by("ours", "java")
        sent |= await produce(cluster, topic, "two")
        await eventually(lambda: set(collected(second)) == sent, "all messages")
        assert collected(second) == sorted(sent)
        assert second.values
    await group.shared_by("java")
    sent |= await produce(cluster, topic, "three")
    await eventually(lambda: set(collected(second)) == sent, "all messages")
    assert collected(second) == sorted(sent)


async def test_killed_java_member_is_replaced_without_loss(
    cluster: RealCluster, tmp_path: Path, stops: list[Callable[[], Any]]
) -> None:
    topic, name = unique_name("t"), unique_name("g")
    await asyncio.to_thread(cluster.create_topic, topic, PARTITIONS)
    group = Group(cluster, name, topic)
    async with new_member(cluster, name, topic, "ours") as mine:
        java = await asyncio.to_thread(JavaMember, cluster, tmp_path, name, topic)
        stops.append(java.stop)
        await group.shared_by("ours", "java")
        sent = await produce(cluster, topic, "one")
        await eventually(lambda: {*mine.values, *java.values} == sent, "all messages")
        java.process.kill()
        sent |= await produce(cluster, topic, "two")
        await group.shared_by("ours")
        await eventually(lambda: {*mine.values, *java.values} == sent, "all messages")


class RewindingListener(ConsumerRebalanceListener):
    """Seeks to the first message of partitions that were added to the topic."""

    def __init__(self) -> None:
        self.consumer: AIOKafkaConsumer | None = None
        self.known: set[TopicPartition] = set()

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        pass

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        added = set(assigned) - self.known if self.known else set()
        self.known |= set(assigned)
        if added and self.consumer is not None:
            await self.consumer.seek_to_beginning(*added)


@pytest.mark.parametrize("rewinding", [False, True])
@pytest.mark.release("0.9.0.1")
async def test_new_partition_starts_by_reset_or_listener_seek(
    broker_clusters: BrokerClusters, rewinding: bool
) -> None:
    cluster = await asyncio.to_thread(broker_clusters.get, "0.9.0.1", 1)
    topic, listener = unique_name("t"), RewindingListener()
    await asyncio.to_thread(cluster.create_topic, topic, 1)
    consumer = OpenConsumer(
        bootstrap_servers=cluster.bootstrap_servers,
        group_id=unique_name("g"),
        session_timeout_ms=6000,
    )
    consumer.subscribe([topic], listener=listener if rewinding else None)
    listener.consumer = consumer
    async with (
        consumer,
        AIOKafkaAdminClient(
            bootstrap_servers=cluster.bootstrap_servers,
            zookeeper_connect=cluster.zookeeper_connect,
        ) as admin,
    ):
        await admin.create_partitions({topic: NewPartitions(2)})
        new = TopicPartition(topic, 1)
        async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            await producer.send_and_wait(topic, b"early", partition=1)
            assert new not in consumer.assignment()  # its metadata is older than the partition
            consumer.router.metadata.request_refresh()
            await eventually(lambda: new in consumer.assignment(), "the new partition")
            assert await consumer.position(new) == (0 if rewinding else 1)
            await producer.send_and_wait(topic, b"late", partition=1)
        record = await asyncio.wait_for(consumer.getone(), 20)
        assert record.value == (b"early" if rewinding else b"late")


# --- killed and paused workers, killed brokers --------------------------------------------------


@pytest.mark.full
async def test_killed_and_paused_workers_lose_no_message(
    cluster: RealCluster, tmp_path: Path, stops: list[Callable[[], Any]]
) -> None:
    topic, name = unique_name("t"), unique_name("g")
    await asyncio.to_thread(cluster.create_topic, topic, PARTITIONS)
    group = Group(cluster, name, topic)
    workers = [Worker(cluster, name, topic, tmp_path) for _ in range(3)]
    stops += [worker.stop for worker in workers]

    def shared(count: int) -> Awaitable[None]:
        """Wait for the last ones: the first one is killed, the second one paused."""
        return group.shared_by(*[worker.client_id for worker in workers[-count:]])

    await kill_and_pause(cluster, topic, workers, group.offsets, shared)


@pytest.mark.full
@pytest.mark.parametrize("version", ["0.9.0.1", "0.10.2.2", "3.9.1"])
async def test_killed_coordinator_costs_no_message(
    version: str, broker_clusters: BrokerClusters
) -> None:
    cluster = await asyncio.to_thread(broker_clusters.get, version, 3)
    topic, name = unique_name("t"), unique_name("g")
    await asyncio.to_thread(cluster.create_topic, topic, PARTITIONS, 3)
    try:
        async with (
            new_member(cluster, name, topic, "one") as one,
            new_member(cluster, name, topic, "two") as two,
        ):

            def shared() -> bool:
                first, second = one.consumer.assignment(), two.consumer.assignment()
                return (
                    first | second == partitions(PARTITIONS, topic)
                    and len(first) == len(second) == PARTITIONS // 2
                )

            await eventually(shared, "sharing")
            sent = await produce(cluster, topic, "one")
            await eventually(lambda: {*one.values, *two.values} == sent, "all messages")
            membership: Any = one.consumer.engine.membership
            await asyncio.to_thread(cluster.kill, await membership._coordinator.node_id())
            sent |= await produce(cluster, topic, "two")
            await eventually(lambda: {*one.values, *two.values} == sent, "all messages")
            await eventually(shared, "sharing")
            await one.consumer.commit()
            await two.consumer.commit()
    finally:
        await asyncio.to_thread(cluster.heal)


@pytest.mark.full
@pytest.mark.parametrize("after", ["0.9.0.1", "0.10.2.2"])
async def test_group_survives_an_upgrade_of_its_broker(after: str) -> None:
    """tests/testing/simulation/test_upgrade.py has the same on the embedded cluster."""
    cluster = RealCluster("0.9.0.1")
    joined: list[tuple[str, int]] = []

    def member(name: str) -> AIOKafkaConsumer:
        def on_event(event: Event) -> None:
            if isinstance(event, GroupJoined):
                joined.append((name, event.generation))

        return AIOKafkaConsumer(
            "t",
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="g",
            session_timeout_ms=20_000,
            on_event=on_event,
        )

    await asyncio.to_thread(cluster.start)
    try:
        await asyncio.to_thread(cluster.create_topic, "t", 2)
        async with member("one") as one:
            async with member("two"):
                await eventually(lambda: len(one.assignment()) == 1, "half of the partitions")
            await eventually(lambda: len(one.assignment()) == 2, "all partitions")
            await asyncio.to_thread(cluster.stop, 0)
            await asyncio.to_thread(cluster.change_version, after)
            await asyncio.to_thread(cluster.restart, 0)
            async with member("three"):
                assert sorted(joined) == [
                    *(("one", generation) for generation in (1, 2, 3, 4)),
                    ("three", 4),
                    ("two", 2),
                ]
    finally:
        await asyncio.to_thread(cluster.close)


@pytest.mark.release("0.9.0.1")
async def test_start_names_a_coordinator_that_only_brokers_can_resolve(tmp_path: Path) -> None:
    """A wrong advertised.host.name: the bootstrap address works, the advertised one doesn't."""
    hosts = tmp_path / "hosts"
    hosts.write_text(f"127.0.0.1 localhost {socket.gethostname()} kafka.internal\n")
    cluster = RealCluster(
        "0.9.0.1",
        advertised_host="kafka.internal",
        java_options=[f"-Djdk.net.hosts.file={hosts}"],  # for the brokers alone
    )
    advertised = cluster.planned_address(0).replace("127.0.0.1", "kafka.internal")
    try:
        await asyncio.to_thread(cluster.start)
        await asyncio.to_thread(cluster.create_topic, "t", 1)
        member = AIOKafkaConsumer(
            "t",
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="g",
            request_timeout_ms=3000,
            start_timeout_ms=3000,
        )
        begin = asyncio.get_running_loop().time()
        with pytest.raises(KafkaTimeoutError) as failure:
            await member.start()
        assert asyncio.get_running_loop().time() - begin < 15
    finally:
        await asyncio.to_thread(cluster.close)
    text = str(failure.value)
    assert "not joined within start_timeout_ms=3000" in text
    assert f"The coordinator is node 0 at {advertised}, as the broker at 127.0.0.1:" in text


async def test_group_of_kafka_connect_is_refused_by_its_kind(cluster: RealCluster) -> None:
    topic, group = unique_name("t"), unique_name("g")
    await asyncio.to_thread(cluster.create_topic, topic, 1)
    options: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers}
    async with OpenConsumer(**options) as client:
        node_id = await CoordinatorLookup(client.router, group).node_id()
        join = JoinGroupRequest(group, 10_000, "", "connect", [GroupProtocol("default", b"")])
        assert not (await client.router.request(join, node_id=node_id)).error_code
        member = AIOKafkaConsumer(topic, group_id=group, **options)
        with pytest.raises(InconsistentGroupProtocolError, match=r"'connect'.*another group_id"):
            await member.start()
