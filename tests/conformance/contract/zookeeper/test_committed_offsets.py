"""Offsets in ZooKeeper, written directly: on the simulated server, and on real clusters of 0.8.

Each scenario runs on both, as one coroutine that gets a `Site`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import pytest
from kazoo.client import KazooClient

from aiokafka08 import AIOKafkaConsumer, TopicPartition, environment
from aiokafka08._core.net.versions import BrokerLine
from aiokafka08._core.offset_store import CommitIdentity
from aiokafka08._core.offset_store.zookeeper_store import ZookeeperOffsetStore
from aiokafka08.errors import (
    CommitFailedError,
    KafkaTimeoutError,
    OffsetMetadataTooLargeError,
)
from aiokafka08.structs import OffsetAndMetadata
from aiokafka08.testing.simulation import World, simulate
from tests._core.offset_store.conftest import store_config
from tests.brokers.cluster import RealCluster
from tests.brokers.fixtures import BrokerClusters
from tests.brokers.proxy import TcpProxy
from tests.support.names import unique_name
from tests.support.zookeeper import UncheckedZookeeper

PLAIN = CommitIdentity()
AWAY_S = 1.0
"""For how long a client is cut off: less than its session."""


class Site(Protocol):
    """A cluster of one broker with its ZooKeeper, and a topic of four partitions."""

    bootstrap_servers: str
    zookeeper_connect: str
    topic: str

    def client(self) -> Any:
        """Return a started kazoo client of the test's own."""

    async def store(self, group: str, check_session: Callable[[], None] = ...) -> StoreOnTrial:
        """Return a started store whose connection to ZooKeeper can be cut."""


class StoreOnTrial(ZookeeperOffsetStore):
    """A store with the ways in which a site disturbs it."""

    cut: Callable[[], object]
    """Lose all packets between store and ZooKeeper; no connection is closed."""
    heal: Callable[[], Awaitable[object]]
    """Return when the packets arrive again."""


Scenario = Callable[[Site], Awaitable[None]]
Play = Callable[[Scenario], None]


def new_store(
    connect: str, group: str, check_session: Callable[[], None] = lambda: None
) -> StoreOnTrial:
    zookeeper = UncheckedZookeeper(connect)
    return StoreOnTrial(zookeeper, group, BrokerLine.V0_8_1, store_config(), check_session)


class SimulatedSite:
    topic = "t"

    def __init__(self, world: World) -> None:
        self._world = world
        self.bootstrap_servers = world.cluster.bootstrap_servers
        self.zookeeper_connect = world.zookeeper_connect
        self._stores: list[StoreOnTrial] = []
        self._clients: list[Any] = []

    def client(self) -> Any:
        assert environment.zookeeper_client is not None
        client = environment.zookeeper_client(hosts="zookeeper", timeout=6.0)
        client.start()
        self._clients.append(client)
        return client

    async def store(
        self, group: str, check_session: Callable[[], None] = lambda: None
    ) -> StoreOnTrial:
        store = new_store(self.zookeeper_connect, group, check_session)
        await store.start()
        self._stores.append(store)
        own = self._world.zookeeper.clients[-1]
        store.cut = lambda: self._world.zookeeper.disconnect(AWAY_S, [own], silent=True)
        store.heal = lambda: asyncio.sleep(AWAY_S + 0.1)
        return store

    async def close(self) -> None:
        for store in self._stores:
            await store.stop()
        for client in self._clients:
            client.stop()


class RealSite:
    def __init__(self, cluster: RealCluster) -> None:
        self.bootstrap_servers = cluster.bootstrap_servers
        self.zookeeper_connect = cluster.zookeeper_connect
        self.topic = unique_name("t")
        self._cluster = cluster
        self._stores: list[StoreOnTrial] = []
        self._clients: list[Any] = []
        self._proxies: list[TcpProxy] = []

    def client(self) -> Any:
        client = KazooClient(self.zookeeper_connect)
        client.start()
        self._clients.append(client)
        return client

    async def store(
        self, group: str, check_session: Callable[[], None] = lambda: None
    ) -> StoreOnTrial:
        proxy = TcpProxy(self.zookeeper_connect)
        await proxy.start()
        self._proxies.append(proxy)
        store = new_store(proxy.address, group, check_session)
        await store.start()
        self._stores.append(store)
        store.cut, store.heal = proxy.black_hole, proxy.heal
        return store

    async def close(self) -> None:
        for store in self._stores:
            await store.stop()
        for client in self._clients:
            await asyncio.to_thread(client.stop)
            client.close()
        for proxy in self._proxies:
            await proxy.close()


@pytest.fixture(
    params=[
        ("0.8.1", "simulated"),
        ("0.8.2", "simulated"),
        pytest.param(("0.8.1.1", "real"), marks=pytest.mark.real),
        pytest.param(("0.8.2.2", "real"), marks=pytest.mark.real),
    ],
    ids="-".join,
)
def play(request: pytest.FixtureRequest) -> Play:
    """A function that runs a scenario on a site."""
    version, kind = request.param

    async def run(scenario: Scenario, site: SimulatedSite | RealSite) -> None:
        try:
            await scenario(site)
        finally:
            await site.close()

    def on_simulated(scenario: Scenario) -> None:
        with simulate(1, brokers=1, version=version, topics={"t": 4}) as world:
            world.run(run, scenario, SimulatedSite(world))

    def on_real(scenario: Scenario) -> None:
        clusters: BrokerClusters = request.getfixturevalue("broker_clusters")
        cluster = clusters.get(version)
        site = RealSite(cluster)
        cluster.create_topic(site.topic, 4)
        asyncio.run(run(scenario, site))

    return on_simulated if kind == "simulated" else on_real


def node(group: str, tp: TopicPartition) -> str:
    return f"/consumers/{group}/offsets/{tp.topic}/{tp.partition}"


def at(tp: TopicPartition, offset: int, text: str = "") -> dict[TopicPartition, OffsetAndMetadata]:
    return {tp: OffsetAndMetadata(offset, text)}


def new_consumer(site: Site, group: str, tps: list[TopicPartition], **options: Any) -> Any:
    consumer: AIOKafkaConsumer[Any, Any] = AIOKafkaConsumer(
        bootstrap_servers=site.bootstrap_servers,
        group_id=group,
        enable_auto_commit=False,
        offsets_storage="zookeeper",
        retry_backoff_ms=20,
        **options,
    )
    consumer.assign(tps)
    return consumer


def test_consumers_with_and_without_zookeeper_share_nodes(play: Play) -> None:
    async def scenario(site: Site) -> None:
        group, registry = unique_name("g"), site.client()
        tps = [TopicPartition(site.topic, number) for number in range(2)]
        direct = new_consumer(site, group, tps, zookeeper_connect=site.zookeeper_connect)
        by_broker = new_consumer(site, group, tps)
        async with direct, by_broker:
            await direct.commit({tps[0]: 5, tps[1]: (0, "dropped")})
            assert [registry.get(node(group, tp))[0] for tp in tps] == [b"5", b"0"]
            assert [await by_broker.committed(tp) for tp in tps] == [5, 0]
            await by_broker.commit({tps[0]: 7})
            assert await direct.committed(tps[0]) == 7
            await by_broker.commit({tps[0]: 8})
            # The version that `direct` knows isn't the node's any more: it looks, and writes again.
            await direct.commit({tps[0]: 6})
            assert registry.get(node(group, tps[0]))[0] == b"6"

    play(scenario)


def test_late_write_never_goes_over_a_newer_one(play: Play) -> None:
    """A commit that its caller has given up is executed after another member has committed."""

    async def scenario(site: Site) -> None:
        group, registry, tp = unique_name("g"), site.client(), TopicPartition(site.topic, 0)
        store = await site.store(group)
        await store.commit(at(tp, 3), PLAIN)
        store.cut()
        with pytest.raises(
            KafkaTimeoutError, match=rf"not committed .* within 300 ms.*{tp.topic}/0"
        ):
            await store.commit(at(tp, 5), PLAIN, timeout_s=0.3)
        registry.set(node(group, tp), b"9")
        await store.heal()
        # Responses come in the order of the requests, so the late write has been executed by now.
        assert await store.fetch([tp]) == at(tp, 9)
        assert registry.get(node(group, tp))[0] == b"9"
        await store.commit(at(tp, 4), PLAIN)
        assert registry.get(node(group, tp))[0] == b"4"

    play(scenario)


def test_late_creation_never_goes_over_a_commit(play: Play) -> None:
    async def scenario(site: Site) -> None:
        group, registry, tp = unique_name("g"), site.client(), TopicPartition(site.topic, 0)
        store = await site.store(group)
        assert await store.fetch([tp]) == {tp: None}
        store.cut()
        with pytest.raises(KafkaTimeoutError):
            await store.commit(at(tp, 5), PLAIN, timeout_s=0.3)
        registry.create(node(group, tp), b"9", makepath=True)
        await store.heal()
        assert await store.fetch([tp]) == at(tp, 9)

    play(scenario)


def test_fenced_member_writes_nothing_after_another_commit(play: Play) -> None:
    """The session is checked again before each attempt."""

    async def scenario(site: Site) -> None:
        group, registry, tp = unique_name("g"), site.client(), TopicPartition(site.topic, 0)
        checks = 0

        def check_session() -> None:
            nonlocal checks
            checks += 1
            if checks > 2:
                raise CommitFailedError("the session has ended")

        store = await site.store(group, check_session)
        await store.commit(at(tp, 3), PLAIN)
        registry.set(node(group, tp), b"9")
        with pytest.raises(CommitFailedError):
            await store.commit(at(tp, 5), PLAIN)
        assert checks == 3
        assert registry.get(node(group, tp))[0] == b"9"

    play(scenario)


def test_deleted_node_is_created_again(play: Play) -> None:
    async def scenario(site: Site) -> None:
        group, registry, tp = unique_name("g"), site.client(), TopicPartition(site.topic, 0)
        store = await site.store(group)
        await store.commit(at(tp, 3), PLAIN)
        registry.delete(f"/consumers/{group}", recursive=True)
        await store.commit(at(tp, 5), PLAIN)
        assert registry.get(node(group, tp))[0] == b"5"

    play(scenario)


def test_thousand_partitions_are_committed_and_fetched(play: Play) -> None:
    async def scenario(site: Site) -> None:
        store = await site.store(unique_name("g"))
        offsets = {
            TopicPartition(site.topic, number): OffsetAndMetadata(number, "")
            for number in range(1000)
        }
        for _ in range(2):
            await store.commit(offsets, PLAIN)
            assert await store.fetch(offsets) == offsets

    play(scenario)


def test_nodes_are_below_the_chroot(play: Play) -> None:
    async def scenario(site: Site) -> None:
        group, registry, tp = unique_name("g"), site.client(), TopicPartition(site.topic, 0)
        chroot = unique_name("chroot")
        registry.create(f"/{chroot}", b"")
        store = new_store(f"{site.zookeeper_connect}/{chroot}", group)
        await store.start()
        try:
            await store.commit(at(tp, 3), PLAIN)
            assert await store.fetch([tp]) == at(tp, 3)
        finally:
            await store.stop()
        assert registry.get(f"/{chroot}{node(group, tp)}")[0] == b"3"
        assert registry.exists(node(group, tp)) is None

    play(scenario)


def test_long_metadata_is_refused_and_short_dropped(play: Play) -> None:
    async def scenario(site: Site) -> None:
        group, tp = unique_name("g"), TopicPartition(site.topic, 0)
        store = await site.store(group)
        await store.commit(at(tp, 1, "x" * 1024), PLAIN)
        with pytest.raises(OffsetMetadataTooLargeError, match="at most 1024"):
            await store.commit(at(tp, 2, "x" * 1025), PLAIN)
        assert await store.fetch([tp]) == at(tp, 1)

    play(scenario)
