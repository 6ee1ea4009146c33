"""Kill, pause, restart and cut off real brokers while clients work: nothing is lost.

The clients are a producer, and a consumer or a group of two; `DeliveryCheck` records them and lets
`aiokafka08.testing.history` judge what they did. The cluster has three brokers, of 0.8.2.2 where a
test names no other version. `min.insync.replicas` is set per topic, since brokers of 0.8.2 ignore
their own setting (docs/brokers.md 5.3).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aiokafka08._core.zookeeper.session import temporary_session
from aiokafka08.telemetry import Disconnected, Event
from tests.brokers.cluster import RealCluster
from tests.brokers.fixtures import BrokerClusters, require_real_brokers
from tests.brokers.proxy import TcpProxy
from tests.brokers.waiting import wait_for
from tests.consumer.membership.other_clients import KafkaPythonMember, ScalaMember
from tests.support.delivery_check import DeliveryCheck, ForeignMember
from tests.support.zookeeper import UncheckedZookeeper

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

VERSION = "0.8.2.2"
PARTITIONS = 4
SAFE = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}

NewName = Callable[..., str]


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[RealCluster]:
    require_real_brokers()
    # As by default; the clusters of other tests keep the sessions of dead brokers for 30 s.
    with RealCluster(VERSION, 3, {"zookeeper.session.timeout.ms": 6000}) as cluster:
        yield cluster


@pytest.fixture
def cluster(own_cluster: RealCluster) -> RealCluster:
    """The cluster of this file, with all its brokers running."""
    own_cluster.heal()
    return own_cluster


async def create_safe_topic(cluster: RealCluster, name: str) -> None:
    await asyncio.to_thread(
        cluster.create_topic, name, partitions=PARTITIONS, replication_factor=3, config=SAFE
    )


async def wait_full_isr(cluster: RealCluster, topic: str) -> None:
    for partition in range(PARTITIONS):
        await asyncio.to_thread(cluster.wait_isr, topic, partition, cluster.nodes, timeout=60.0)


def group_options(cluster: RealCluster, group: str) -> dict[str, Any]:
    """Return the options of a group's member; with brokers of 0.8 the group is in ZooKeeper."""
    options: dict[str, Any] = {
        "group_id": group,
        "session_timeout_ms": 6_000,
        "auto_commit_interval_ms": 500,
    }
    if cluster.version.startswith("0.8."):
        options["zookeeper_connect"] = cluster.zookeeper_connect
        options["rebalance_max_retries"] = 30
    return options


def group_work(
    cluster: RealCluster, topic: str, foreign: ForeignMember | None = None
) -> DeliveryCheck:
    """Return a producer and a group of two, with a member of another client if one is given."""
    return DeliveryCheck(
        cluster.bootstrap_servers,
        topic,
        PARTITIONS,
        producer={"request_timeout_ms": 10_000},
        consumer=group_options(cluster, topic),
        members=2,
        foreign=foreign,
    )


async def take_down(
    cluster: RealCluster, topic: str, work: DeliveryCheck, node: int, how: Callable[[int], None]
) -> None:
    """Kill or stop a broker and start it again, while the clients work."""
    await work.acknowledged(50)
    await asyncio.to_thread(how, node)
    await work.acknowledged(50, timeout=60)  # under new leaders
    await asyncio.to_thread(cluster.restart, node)
    await wait_full_isr(cluster, topic)


async def kill_leaders(cluster: RealCluster, topic: str, rounds: int) -> None:
    await create_safe_topic(cluster, topic)
    work = DeliveryCheck(
        cluster.bootstrap_servers,
        topic,
        PARTITIONS,
        producer={"compression_type": "snappy", "request_timeout_ms": 10_000},
    )
    async with work.running(drain_timeout=90):
        for round_number in range(rounds):
            victim = await asyncio.to_thread(cluster.leader, topic, round_number % PARTITIONS)
            await take_down(cluster, topic, work, victim, cluster.kill)
    await work.check()


async def test_no_acknowledged_message_is_lost_when_leaders_are_killed(
    cluster: RealCluster, unique_topic: NewName
) -> None:
    await kill_leaders(cluster, unique_topic("kill"), rounds=1)


@pytest.mark.full
@pytest.mark.timeout(1800)
async def test_no_acknowledged_message_is_lost_in_ten_kills(
    cluster: RealCluster, unique_topic: NewName
) -> None:
    await kill_leaders(cluster, unique_topic("kill"), rounds=10)


@pytest.mark.full
@pytest.mark.parametrize("members", [1, 2], ids=["consumer", "group"])
async def test_a_long_pause_of_a_leader_loses_nothing(
    members: int, cluster: RealCluster, unique_topic: NewName
) -> None:
    topic = unique_topic("pause")
    await create_safe_topic(cluster, topic)
    events: list[Event] = []
    work = DeliveryCheck(
        cluster.bootstrap_servers,
        topic,
        PARTITIONS,
        producer={
            "compression_type": "snappy",
            "request_timeout_ms": 2_000,
            "on_event": events.append,
        },
        consumer={
            "request_timeout_ms": 2_000,
            **(group_options(cluster, topic) if members > 1 else {}),
        },
        members=members,
    )
    async with work.running(drain_timeout=90):
        await work.shared()
        await work.acknowledged(50)
        victim = await asyncio.to_thread(cluster.leader, topic, 0)
        others = set(cluster.nodes) - {victim}
        await asyncio.to_thread(cluster.pause, victim)
        # ZooKeeper names another leader after the session; brokers tell of it only when the
        # controller is rid of its connection to the paused one (docs/brokers.md 9.4).
        await asyncio.to_thread(cluster.wait_leader, topic, 0, others, timeout=60.0)
        await asyncio.to_thread(cluster.resume, victim)  # it still takes itself for the leader
        await wait_full_isr(cluster, topic)
        await work.acknowledged(50, timeout=60)
    await work.check()
    reasons = [event.reason for event in events if isinstance(event, Disconnected)]
    assert any("no response for 2000 ms" in reason for reason in reasons), reasons


@pytest.mark.full
async def test_a_paused_leader_is_left_before_the_request_timeout(
    cluster: RealCluster, unique_topic: NewName
) -> None:
    topic = unique_topic("hang")
    await create_safe_topic(cluster, topic)
    controller = await asyncio.to_thread(cluster.controller)
    leaders = [await asyncio.to_thread(cluster.leader, topic, one) for one in range(PARTITIONS)]
    victim = next(node for node in leaders if node != controller)  # docs/brokers.md 9.4
    work = DeliveryCheck(
        cluster.bootstrap_servers,
        topic,
        PARTITIONS,
        producer={"request_timeout_ms": 300_000, "delivery_timeout_ms": 300_000},
        consumer={"request_timeout_ms": 300_000},
    )
    async with work.running(drain_timeout=90):
        await work.acknowledged(50)
        await asyncio.to_thread(cluster.pause, victim)
        try:
            # 200 per partition are in flight when it hangs; more need the response of a new leader.
            await work.acknowledged(500, timeout=120)
        finally:
            await asyncio.to_thread(cluster.resume, victim)
        await wait_full_isr(cluster, topic)
        await work.acknowledged(50, timeout=60)
    await work.check()


@pytest.mark.full
async def test_connections_cut_at_random_bytes_lose_nothing(unique_topic: NewName) -> None:
    topic = unique_topic("cut")
    async with contextlib.AsyncExitStack() as stack:
        proxies = [await stack.enter_async_context(TcpProxy(seed=seed)) for seed in range(3)]
        cluster = RealCluster(
            VERSION, 3, advertised={node: proxy.port for node, proxy in enumerate(proxies)}
        )
        for node, proxy in enumerate(proxies):
            proxy.upstream = cluster.planned_address(node)
        await asyncio.to_thread(cluster.start)
        try:
            await create_safe_topic(cluster, topic)
            work = DeliveryCheck(
                ",".join(proxy.address for proxy in proxies),
                topic,
                PARTITIONS,
                # What waits grows the batches, and each byte of them passes the leader's proxy
                # three times: from here, and to two replicas. Larger ones than this, of two
                # partitions that one broker leads, would hardly ever get through.
                producer={
                    "request_timeout_ms": 5_000,
                    "delivery_timeout_ms": 400_000,
                    "max_request_size": 1_000,
                },
            )
            async with work.running(drain_timeout=90):
                await work.acknowledged(50)
                for proxy in proxies:
                    proxy.close_after(1_000, 20_000, repeat=True)
                await work.acknowledged(100, timeout=300)
                for proxy in proxies:
                    await proxy.heal()
                await work.acknowledged(50, timeout=60)
            await work.check()
        finally:
            await asyncio.to_thread(cluster.close)


@pytest.mark.full
async def test_a_group_gets_all_messages_when_leaders_are_killed(
    cluster: RealCluster, unique_topic: NewName
) -> None:
    """Two members share the partitions and commit; the broker that keeps the commits dies too."""
    topic = unique_topic("members")
    await create_safe_topic(cluster, topic)
    work = group_work(cluster, topic)
    await kill_leaders_of_group(cluster, topic, work)


async def kill_leaders_of_group(cluster: RealCluster, topic: str, work: DeliveryCheck) -> None:
    async with work.running(drain_timeout=90):
        await work.shared()
        for partition in range(2):
            victim = await asyncio.to_thread(cluster.leader, topic, partition)
            await take_down(cluster, topic, work, victim, cluster.kill)
    await work.check()


@pytest.mark.full
@pytest.mark.parametrize("version", [VERSION, "3.9.1"])
async def test_a_rolling_restart_costs_a_group_no_message(
    version: str, broker_clusters: BrokerClusters, unique_topic: NewName
) -> None:
    """Each broker is stopped cleanly, also the controller and the group's coordinator."""
    cluster = await asyncio.to_thread(broker_clusters.get, version, 3)
    topic = unique_topic("rolling")
    await create_safe_topic(cluster, topic)
    work = group_work(cluster, topic)
    async with work.running(drain_timeout=90):
        await work.shared()
        for node in cluster.nodes:
            await take_down(cluster, topic, work, node, cluster.stop)
        await work.acknowledged(50, timeout=60)
    await work.check()


def wait_member(cluster: RealCluster, group: str) -> None:
    """Wait until a group in ZooKeeper has a member that owns partitions."""
    with temporary_session(
        UncheckedZookeeper(cluster.zookeeper_connect), 10.0, "test.kazoo"
    ) as client:
        path = f"/consumers/{group}/owners/{group}/0"
        wait_for(lambda: client.exists(path) is not None, 60, "the member to own partitions")


@pytest.mark.full
@pytest.mark.timeout(1800)
async def test_scala_member_shares_a_group_when_leaders_are_killed(
    cluster: RealCluster, unique_topic: NewName, tmp_path: Path
) -> None:
    topic = unique_topic("scala")
    await create_safe_topic(cluster, topic)
    foreign = await asyncio.to_thread(ScalaMember, cluster, tmp_path, topic, topic)
    try:
        # It refuses to read from the beginning in a group that has committed.
        await asyncio.to_thread(wait_member, cluster, topic)
        work = group_work(cluster, topic, foreign)
        await kill_leaders_of_group(cluster, topic, work)
    finally:
        await asyncio.to_thread(foreign.stop)


@pytest.mark.full
@pytest.mark.timeout(1800)
async def test_kafka_python_shares_a_group_when_leaders_are_killed(unique_topic: NewName) -> None:
    require_real_brokers()
    topic = unique_topic("python")
    settings = {"zookeeper.session.timeout.ms": 6000, "offsets.topic.replication.factor": 3}
    with RealCluster("0.10.2.2", 3, settings) as cluster:
        await create_safe_topic(cluster, topic)
        foreign = await asyncio.to_thread(KafkaPythonMember, cluster, topic, topic)
        try:
            work = group_work(cluster, topic, foreign)
            await kill_leaders_of_group(cluster, topic, work)
        finally:
            await asyncio.to_thread(foreign.stop)
