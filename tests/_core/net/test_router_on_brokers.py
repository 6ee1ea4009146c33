"""The network layer on real brokers: detection of each line, failover, lanes, TLS.

What these tests assume about brokers is in docs/brokers.md. Peers that misbehave are tested in the
other files.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient

from aiokafka08._core.net.config import Address, parse_bootstrap_servers
from aiokafka08._core.net.list_offsets import list_offsets
from aiokafka08._core.net.node import Node
from aiokafka08._core.net.probe import probe_version
from aiokafka08._core.net.router import Lane, Router
from aiokafka08._core.net.versions import BrokerLine
from aiokafka08.errors import (
    KafkaConnectionError,
    KafkaError,
    NoBrokersAvailable,
    UnsupportedVersionError,
)
from aiokafka08.protocol.api import Topic
from aiokafka08.protocol.message_set import encode_entry
from aiokafka08.protocol.requests.committed_offsets import OffsetFetchRequest
from aiokafka08.protocol.requests.groups import GroupCoordinatorRequest
from aiokafka08.protocol.requests.list_offsets import LATEST, ListOffsetsRequest
from aiokafka08.protocol.requests.produce import ProducePartition, ProduceRequest
from aiokafka08.structs import TopicPartition
from tests._core.net.conftest import MakeConfig, Recorder
from tests.brokers import RealCluster
from tests.brokers.fixtures import BrokerClusters, require_real_brokers
from tests.brokers.proxy import TcpProxy
from tests.brokers.wire import metadata as raw_metadata
from tests.support.waiting import until

pytestmark = [pytest.mark.real, pytest.mark.timeout(180), pytest.mark.each_python]

LINES = {
    "0.8.0": BrokerLine.V0_8_0,
    "0.8.1.1": BrokerLine.V0_8_1,
    "0.8.2.2": BrokerLine.V0_8_2,
    "0.9.0.1": BrokerLine.V0_9,
    "0.10.2.2": BrokerLine.V0_10,
    "3.9.1": BrokerLine.V0_10,
}
ASK = ListOffsetsRequest(-1, [])

Started = Callable[..., Any]
UniqueTopic = Callable[..., str]


@pytest.fixture
def started(make_config: MakeConfig) -> Started:
    """`async with started(servers, *topics, **options) as router`"""

    @contextlib.asynccontextmanager
    async def started(servers: str, *topics: str, **options: Any) -> AsyncIterator[Router]:
        defaults = {"request_timeout_ms": 20_000, "retry_backoff_ms": 100}
        router = Router(make_config(servers, **defaults | options), Recorder())
        router.metadata.add_topics(topics)
        await router.start()
        try:
            yield router
        finally:
            await router.stop()

    return started


def first_address(servers: str) -> Address:
    return parse_bootstrap_servers(servers)[0]


def produce(topic: str, acks: int, partition: int = 0) -> ProduceRequest:
    message = encode_entry(0, None, b"a message")
    return ProduceRequest(acks, 15_000, [Topic(topic, [ProducePartition(partition, message)])])


# --- versions -------------------------------------------------------------------------------------


@pytest.mark.both_loops
@pytest.mark.every_line
@pytest.mark.parametrize("version", LINES)
async def test_the_line_is_detected_every_time_without_side_effect(
    broker_clusters: BrokerClusters,
    make_config: MakeConfig,
    unique_topic: UniqueTopic,
    version: str,
) -> None:
    cluster = await asyncio.to_thread(broker_clusters.get, version)
    address = first_address(cluster.bootstrap_servers)
    # Once this one is there, so are those that tests before this one had created without waiting.
    await asyncio.to_thread(cluster.create_topic, unique_topic("last"))
    before = await asyncio.to_thread(raw_metadata, address[1])
    config = make_config(cluster.bootstrap_servers)
    for _ in range(10):
        found = await probe_version(address, config, exact=True)
        assert found.line is LINES[version]
    after = await asyncio.to_thread(raw_metadata, address[1])
    assert after.topic_errors.keys() <= before.topic_errors.keys()


@pytest.mark.parametrize("version", ["0.9.0.1", "3.9.1"])
async def test_detection_does_not_disturb_other_connections(
    broker_clusters: BrokerClusters, make_config: MakeConfig, version: str
) -> None:
    # 0.9.0.1 loses responses on other connections when it gets an unknown request.
    cluster = await asyncio.to_thread(broker_clusters.get, version)
    address = first_address(cluster.bootstrap_servers)
    node = Node(0, address, make_config(cluster.bootstrap_servers), Recorder())
    stop = asyncio.Event()

    async def request_on() -> int:
        asked = 0
        while not stop.is_set():
            await node.request(ASK, timeout_s=2)
            asked += 1
        return asked

    busy = asyncio.create_task(request_on())
    try:
        for _ in range(10):
            await probe_version(address, make_config(cluster.bootstrap_servers))
        stop.set()
        assert await busy > 0
    finally:
        busy.cancel()
        await asyncio.wait((busy,))
        await node.stop()


@pytest.mark.parametrize("api_version", [None, "0.8.2"])
async def test_zookeepers_port_is_recognised(
    broker_clusters: BrokerClusters, make_config: MakeConfig, api_version: str | None
) -> None:
    cluster = await asyncio.to_thread(broker_clusters.get, "0.8.2.2")
    options = {"start_timeout_ms": 60_000, "api_version": api_version}
    router = Router(make_config(cluster.zookeeper_connect, **options), Recorder())
    async with asyncio.timeout(20):
        with pytest.raises(NoBrokersAvailable, match="it is a ZooKeeper server"):
            await router.start()


async def test_4_1_is_refused_as_too_new(
    modern_cluster: RealCluster, make_config: MakeConfig
) -> None:
    router = Router(make_config(modern_cluster.bootstrap_servers), Recorder())
    for _ in range(2):
        with pytest.raises(UnsupportedVersionError, match=r"4\.x.*0\.8\.0 to 3\.9"):
            await router.start()
        router = Router(make_config(modern_cluster.bootstrap_servers), Recorder())


async def test_4_1_is_refused_as_too_new_with_a_pinned_version(
    modern_cluster: RealCluster, make_config: MakeConfig
) -> None:
    """It closes on the first request; then it is probed."""
    servers = modern_cluster.bootstrap_servers
    router = Router(make_config(servers, api_version="0.8.2", start_timeout_ms=60_000), Recorder())
    async with asyncio.timeout(20):
        with pytest.raises(UnsupportedVersionError, match=r"4\.x.*0\.8\.0 to 3\.9"):
            await router.start()


@pytest.mark.parametrize("version", LINES)
async def test_a_topic_is_created_and_all_its_leaders_respond(
    broker_clusters: BrokerClusters, started: Started, unique_topic: UniqueTopic, version: str
) -> None:
    cluster = await asyncio.to_thread(broker_clusters.get, version)
    topic = unique_topic("net")
    async with started(cluster.bootstrap_servers) as router:
        info = await router.metadata.wait_for_topic(topic, timeout_s=20)
        partitions = [TopicPartition(topic, number) for number in info.partitions]
        assert await list_offsets(router, dict.fromkeys(partitions, LATEST)) == {
            tp: [0] for tp in partitions
        }
        for tp in partitions:
            leader = router.metadata.snapshot.leader(tp)
            answer = await router.request(
                produce(topic, 1, tp.partition), node_id=leader, lane=Lane.PRODUCE, version=0
            )
            assert answer.topics[0].partitions[0].error_code == 0
        assert await list_offsets(router, dict.fromkeys(partitions, LATEST)) == {
            tp: [1] for tp in partitions
        }


@pytest.mark.parametrize("version", LINES)
async def test_hundreds_of_requests_are_pipelined(
    broker_clusters: BrokerClusters, started: Started, version: str
) -> None:
    cluster = await asyncio.to_thread(broker_clusters.get, version)
    async with started(cluster.bootstrap_servers) as router:
        node = next(iter(router.nodes.candidates()))
        await asyncio.gather(*(node.request(ASK) for _ in range(300)))


@pytest.mark.parametrize(
    ("version", "brokers"), [("0.8.2.2", 3), ("0.9.0.1", 1), ("0.10.2.2", 1), ("3.9.1", 1)]
)
async def test_coordinator_is_reached_without_tracked_topics(
    broker_clusters: BrokerClusters,
    started: Started,
    unique_topic: UniqueTopic,
    version: str,
    brokers: int,
) -> None:
    cluster = await asyncio.to_thread(broker_clusters.get, version, brokers)
    await asyncio.to_thread(cluster.create_topic, unique_topic("any"))  # there is some topic
    group = unique_topic("group")
    async with started(cluster.bootstrap_servers) as router, asyncio.timeout(40):
        found = await router.request(GroupCoordinatorRequest(group))
        while found.error_code:  # 15 until it is there
            await asyncio.sleep(0.05)
            found = await router.request(GroupCoordinatorRequest(group))
        router.register_broker(found.node_id, (found.host, found.port))
        answer = await router.request(OffsetFetchRequest(group, []), node_id=found.node_id)
        assert answer.topics == []


@pytest.mark.release("0.9.0.1")
async def test_idle_connections_are_closed_before_the_broker_does(
    broker_clusters: BrokerClusters, make_config: MakeConfig
) -> None:
    cluster = await asyncio.to_thread(broker_clusters.get, "0.9.0.1")
    telemetry = Recorder()
    config = make_config(cluster.bootstrap_servers, connections_max_idle_ms=100)
    node = Node(0, first_address(cluster.bootstrap_servers), config, telemetry)
    for _ in range(3):
        connection = await node.connection(Lane.CONTROL)
        await connection.request(ASK)
        await asyncio.wait_for(connection.socket_closed, 20)
        assert connection.close_reason == "idle"
    await node.stop()


# --- TLS ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tls_cluster() -> Iterator[RealCluster]:
    require_real_brokers()
    with RealCluster("0.9.0.1", ssl=True) as cluster:
        yield cluster


@pytest.mark.both_loops
async def test_tls_to_a_real_broker(
    tls_cluster: RealCluster, started: Started, make_config: MakeConfig, unique_topic: UniqueTopic
) -> None:
    context = ssl.create_default_context(cafile=str(tls_cluster.ca_path))
    servers = tls_cluster.ssl_bootstrap_servers
    topic = unique_topic("tls")
    async with started(servers, ssl_context=context) as router:
        await asyncio.gather(*(router.request(ASK) for _ in range(100)))
        # A 0.9 broker names its TLS listener to clients that connect by TLS.
        await router.metadata.wait_for_topic(topic, timeout_s=20)
        leader = router.metadata.snapshot.leader(TopicPartition(topic, 0))
        assert router.nodes.get(leader).address == first_address(servers)
        answer = await router.request(produce(topic, -1), node_id=leader, lane=Lane.PRODUCE)
        assert answer.topics[0].partitions[0].error_code == 0
        version = router.version()
        assert version is not None
        assert version.line is BrokerLine.V0_9


@pytest.mark.both_loops
async def test_plaintext_to_a_tls_listener_fails_with_the_reason(
    tls_cluster: RealCluster, make_config: MakeConfig
) -> None:
    router = Router(make_config(tls_cluster.ssl_bootstrap_servers), Recorder())
    with pytest.raises(NoBrokersAvailable, match="not a Kafka broker: it responds in TLS"):
        await router.start()


@pytest.mark.both_loops
async def test_tls_to_a_plaintext_listener_fails_with_the_reason(
    tls_cluster: RealCluster, make_config: MakeConfig
) -> None:
    context = ssl.create_default_context(cafile=str(tls_cluster.ca_path))
    config = make_config(tls_cluster.bootstrap_servers, ssl_context=context)
    text = "handshake failed: ConnectionResetError. Check that the port is a TLS listener"
    with pytest.raises(NoBrokersAvailable, match=text):
        await Router(config, Recorder()).start()


async def test_missing_client_certificate_is_named_as_a_cause(make_config: MakeConfig) -> None:
    require_real_brokers()
    with RealCluster("0.9.0.1", properties={"ssl.client.auth": "required"}, ssl=True) as cluster:
        context = ssl.create_default_context(cafile=str(cluster.ca_path))
        config = make_config(cluster.ssl_bootstrap_servers, ssl_context=context)
        with pytest.raises(NoBrokersAvailable, match="whether it demands a client certificate"):
            await Router(config, Recorder()).start()


@pytest.mark.both_loops
async def test_an_untrusted_certificate_of_a_broker_is_refused(
    tls_cluster: RealCluster, make_config: MakeConfig
) -> None:
    config = make_config(
        tls_cluster.ssl_bootstrap_servers, ssl_context=ssl.create_default_context()
    )
    with pytest.raises(NoBrokersAvailable, match="certificate verify failed"):
        await Router(config, Recorder()).start()


# --- three brokers of 0.8.2.2 ---------------------------------------------------------------------


async def request_until_success(router: Router, tp: TopicPartition, limit_s: float) -> int:
    """Request offsets from the current leader until it responds; return its node id."""
    async with asyncio.timeout(limit_s):
        while True:
            leader = router.metadata.snapshot.leader(tp)
            if leader is None:
                router.metadata.request_refresh()
                await asyncio.sleep(0.05)
                continue
            try:
                (offsets,) = (await list_offsets(router, {tp: LATEST}, timeout_s=5)).values()
            except KafkaError as error:
                if not error.retriable:
                    raise
                continue
            assert offsets
            answered = router.metadata.snapshot.leader(tp)
            if answered is not None:  # else a concurrent refresh saw an election
                return answered


@pytest.mark.both_loops
async def test_metadata_responds_while_a_produce_waits_for_the_isr(
    broker_clusters: BrokerClusters, started: Started, unique_topic: UniqueTopic
) -> None:
    cluster = await asyncio.to_thread(broker_clusters.get, "0.8.2.2", 3)
    topic = unique_topic("lanes")
    await asyncio.to_thread(cluster.create_topic, topic, assignment={0: [0, 1, 2]})
    async with started(cluster.bootstrap_servers, topic) as router:
        warm = await router.request(produce(topic, -1), node_id=0, lane=Lane.PRODUCE)
        assert warm.topics[0].partitions[0].error_code == 0
        for node_id in (1, 2):
            cluster.pause(node_id)
        try:
            hanging = asyncio.create_task(
                router.request(produce(topic, -1), node_id=0, lane=Lane.PRODUCE)
            )
            node = router.nodes.get(0)
            assert node is not None
            connection = await node.connection(Lane.PRODUCE)
            await until(lambda: connection.in_flight, "the produce is on its way")
            for _ in range(5):
                await node.request(ASK, timeout_s=10)
                await router.request(ListOffsetsRequest(-1, []), node_id=0, timeout_s=10)
            await router.metadata.refresh()
            assert not hanging.done()
            # On the lane of the produce it would have waited.
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(node.request(ASK, lane=Lane.PRODUCE), 0.5)
            assert not hanging.done()
        finally:
            for node_id in (1, 2):
                cluster.resume(node_id)
        answer = await hanging
        assert answer.topics[0].partitions[0].error_code in (0, 7)


async def test_a_killed_leader_is_replaced_and_found_again(
    broker_clusters: BrokerClusters, started: Started, unique_topic: UniqueTopic
) -> None:
    cluster = await asyncio.to_thread(broker_clusters.get, "0.8.2.2", 3)
    topic = unique_topic("kill")
    await asyncio.to_thread(cluster.create_topic, topic, assignment={0: [1, 2]})
    tp = TopicPartition(topic, 0)
    async with started(cluster.bootstrap_servers, topic) as router:
        assert await request_until_success(router, tp, 30) == 1
        call = asyncio.create_task(router.request(produce(topic, 1), node_id=1, lane=Lane.PRODUCE))
        await asyncio.sleep(0)
        await asyncio.to_thread(cluster.kill, 1)
        with contextlib.suppress(KafkaConnectionError):  # it may have been quicker
            await call
        await asyncio.to_thread(cluster.expire, 1)
        assert await request_until_success(router, tp, 40) == 2
        await asyncio.to_thread(cluster.restart, 1)
        await asyncio.to_thread(cluster.wait_isr, topic, 0, {1, 2})
        await asyncio.to_thread(cluster.kill, 2)
        await asyncio.to_thread(cluster.expire, 2)
        assert await request_until_success(router, tp, 40) == 1


async def test_a_broker_that_comes_back_at_another_port_is_found(
    broker_clusters: BrokerClusters, started: Started, unique_topic: UniqueTopic
) -> None:
    cluster = await asyncio.to_thread(broker_clusters.get, "0.8.2.2", 3)
    topic = unique_topic("moved")
    await asyncio.to_thread(cluster.create_topic, topic, assignment={0: [2]})
    tp = TopicPartition(topic, 0)
    async with started(cluster.bootstrap_servers, topic) as router:
        assert await request_until_success(router, tp, 30) == 2
        before = router.nodes.get(2).address
        await asyncio.to_thread(cluster.restart, 2, 0)
        assert await request_until_success(router, tp, 40) == 2
        node = router.nodes.get(2)
        assert node is not None
        assert node.address != before


async def test_a_paused_broker_times_out_and_is_found_again(
    broker_clusters: BrokerClusters, started: Started, unique_topic: UniqueTopic
) -> None:
    cluster = await asyncio.to_thread(broker_clusters.get, "0.8.2.2", 3)
    topic = unique_topic("paused")
    await asyncio.to_thread(cluster.create_topic, topic, assignment={0: [1]})
    tp = TopicPartition(topic, 0)
    async with started(cluster.bootstrap_servers, topic, request_timeout_ms=1000) as router:
        assert await request_until_success(router, tp, 30) == 1
        connection = await router.connection(1, Lane.CONTROL)
        cluster.pause(1)
        try:
            with pytest.raises(KafkaError):
                await router.request(ASK, node_id=1)
            await asyncio.wait_for(connection.socket_closed, 20)
            await asyncio.wait_for(router.metadata.refresh(), 20)  # the other brokers respond
        finally:
            cluster.resume(1)
        assert await request_until_success(router, tp, 40) == 1


# --- old brokers that name only some --------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("version", ["0.8.0", "0.8.1.1"])
async def test_all_leaders_stay_known_if_responses_name_few_brokers(
    broker_clusters: BrokerClusters, started: Started, unique_topic: UniqueTopic, version: str
) -> None:
    cluster = await asyncio.to_thread(broker_clusters.get, version, 3)
    topics = [unique_topic("few") for _ in range(3)]
    for node_id, topic in enumerate(topics):
        await asyncio.to_thread(cluster.create_topic, topic, assignment={0: [node_id]})
    async with started(cluster.bootstrap_servers) as router:
        for topic in topics:
            await router.metadata.wait_for_topic(topic, timeout_s=10)
        router.metadata.set_topics(topics[:1])
        await router.metadata.refresh()
        for node_id, topic in enumerate(topics):
            assert router.metadata.snapshot.leader(TopicPartition(topic, 0)) == node_id


@pytest.mark.full
@pytest.mark.parametrize("version", ["0.8.0", "0.8.1.1", "0.8.2.2", "0.9.0.1"])
async def test_a_topic_that_cannot_be_created_affects_no_other(
    started: Started, version: str
) -> None:
    require_real_brokers()
    # More replicas than brokers, so that every auto-creation fails.
    cluster = RealCluster(version, properties={"default.replication.factor": 2})
    await asyncio.to_thread(cluster.start)
    try:
        for topic in ("good", "better"):
            await asyncio.to_thread(cluster.create_topic, topic)
        async with started(cluster.bootstrap_servers, "bad", "good", "better", "worse") as router:
            for _ in range(3):
                snapshot = await router.metadata.refresh()
                assert snapshot.leader(TopicPartition("good", 0)) == 0
                assert snapshot.leader(TopicPartition("better", 0)) == 0
                assert not snapshot.partitions("bad")
            with pytest.raises(KafkaError):
                await router.metadata.wait_for_topic("worst", timeout_s=1)
    finally:
        await asyncio.to_thread(cluster.close)


@pytest.mark.full
async def test_a_rolling_upgrade_of_a_real_cluster_is_detected(
    broker_clusters: BrokerClusters, make_config: MakeConfig
) -> None:
    # Two real lines take turns at one address.
    old = await asyncio.to_thread(broker_clusters.get, "0.8.2.2")
    new = await asyncio.to_thread(broker_clusters.get, "0.10.2.2")
    async with TcpProxy(old.nodes[0]) as proxy:
        node = Node(0, first_address(proxy.address), make_config(proxy.address), Recorder())
        connection = await node.connection(Lane.CONTROL)
        assert connection.version.line is BrokerLine.V0_8
        await connection.request(ASK)
        proxy.upstream = new.nodes[0]
        proxy.close_all()
        await connection.socket_closed
        assert (await node.connection(Lane.CONTROL)).version.line is BrokerLine.V0_10
        await node.stop()


@pytest.mark.full
@pytest.mark.parametrize("version", ["0.8.1.1", "0.8.2.2"])
async def test_broker_without_an_address_is_named_beside_good_ones(
    version: str, make_config: MakeConfig
) -> None:
    """A newer broker without a plain listener registers no host (docs/brokers.md 4.14).

    The controller of 0.8.2 can't work with such a broker: this needs a cluster of its own.
    """
    require_real_brokers()
    cluster = RealCluster(version)
    await asyncio.to_thread(cluster.start)
    try:
        await asyncio.to_thread(cluster.create_topic, "t")
        zookeeper = KazooClient(cluster.zookeeper_connect)
        await asyncio.to_thread(zookeeper.start)
        try:
            host = {"version": 2, "host": None, "port": -1, "endpoints": ["SSL://127.0.0.1:9093"]}
            zookeeper.create("/brokers/ids/9", json.dumps(host).encode(), ephemeral=True)
            assignment = {"version": 1, "partitions": {"0": [0, 9]}}
            zookeeper.create("/brokers/topics/r", json.dumps(assignment).encode())
            router = Router(make_config(cluster.bootstrap_servers), Recorder())
            await router.start()
            try:
                await router.metadata.wait_for_topic("r", timeout_s=20)
                snapshot = router.metadata.snapshot
                assert (snapshot.brokers[9].host, snapshot.brokers[9].port) == ("", -1)
                assert snapshot.leader(TopicPartition("r", 0)) == 0
                await router.request(ListOffsetsRequest(-1, []), node_id=0)
                with pytest.raises(KafkaConnectionError, match="listens for TLS or SASL only"):
                    await router.request(ListOffsetsRequest(-1, []), node_id=9)
            finally:
                await router.stop()
        finally:
            await asyncio.to_thread(zookeeper.stop)
            zookeeper.close()
    finally:
        await asyncio.to_thread(cluster.close)
