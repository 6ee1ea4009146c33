"""Whether a ZooKeeper is the one of the brokers: the decision, and each user of a session.

The simulation's ZooKeeper is a control of the embedded cluster: it may name other brokers.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aiokafka08 import AIOKafkaConsumer, TopicPartition
from aiokafka08._core.net.config import Address, ZookeeperCheck
from aiokafka08._core.zookeeper.cluster_check import (
    Agreement,
    ClusterIdentity,
    compare_clusters,
    parse_cluster_id,
    parse_endpoints,
)
from aiokafka08._core.zookeeper.nodes import decode_node
from aiokafka08.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka08.errors import KafkaError, KafkaUnavailableError, ZookeeperMismatchError
from aiokafka08.structs import OffsetAndMetadata
from aiokafka08.testing.simulation import World, simulate
from tests.support.waiting import until

ADDRESSES = {
    "kafka1": ["10.0.0.1"],
    "kafka1.example.com": ["10.0.0.1", "fd00::1"],
    "kafka2": ["10.0.0.2"],
    "localhost": ["127.0.0.1", "::1"],
}
ELSEWHERE = {77: ("other", 9092)}
T0 = TopicPartition("t", 0)
SESSION_S = 8.0


def resolve(host: str) -> list[str]:
    return ADDRESSES.get(host, [host] if host[:1].isdigit() or ":" in host else [])


def cluster(*brokers: tuple[int, str], **more: Any) -> ClusterIdentity:
    """`cluster((0, "kafka1:9092"))`; a broker may have several endpoints, separated by a blank."""

    def address(text: str) -> Address:
        host, _, port = text.rpartition(":")
        return host, int(port)

    known = {node_id: [*map(address, text.split())] for node_id, text in brokers}
    return ClusterIdentity(known, **more)


ONE = cluster((0, "kafka1:9092"))


@pytest.mark.parametrize(
    ("brokers", "registered", "expected"),
    [
        (ONE, ONE, Agreement.SAME),
        (ONE, cluster((0, "KAFKA1.:9092")), Agreement.SAME),
        (ONE, cluster((0, "kafka1.example.com:9092")), Agreement.SAME),
        (ONE, cluster((0, "10.0.0.1:9092")), Agreement.SAME),
        (cluster((0, "127.0.0.1:9092")), cluster((0, "localhost:9092")), Agreement.SAME),
        (cluster((0, "::1:9092")), cluster((0, "[::1]:9092")), Agreement.SAME),
        (ONE, cluster((0, "internal:9093 kafka1:9092")), Agreement.SAME),
        (ONE, cluster((0, "kafka1:9093")), Agreement.NONE),
        (ONE, cluster((1, "kafka1:9092")), Agreement.NONE),
        (ONE, cluster((0, "kafka2:9092")), Agreement.NONE),
        (cluster((0, "unknown1:9092")), cluster((0, "unknown2:9092")), Agreement.NONE),
        (ONE, cluster((0, "")), Agreement.NONE),
        (ONE, cluster(), Agreement.NONE),
        # One that is down, or has just started, is on one side only.
        (ONE, cluster((0, "kafka1:9092"), (1, "kafka2:9092")), Agreement.SAME),
        (cluster((0, "kafka1:9092"), (1, "kafka2:9092")), ONE, Agreement.SAME),
        (
            cluster((0, "kafka1:9092"), (1, "kafka2:9092")),
            cluster((0, "kafka1:9092"), (1, "elsewhere:9092")),
            Agreement.PARTLY,
        ),
        (
            cluster((0, "kafka1:9092"), (1, "kafka2:9092")),
            cluster((0, "kafka1:9092"), (2, "kafka3:9092")),
            Agreement.PARTLY,
        ),
        # The cluster id decides where both sides have one.
        (cluster(cluster_id="A"), cluster(cluster_id="A"), Agreement.SAME),
        (
            cluster((0, "kafka1:9092"), cluster_id="A"),
            cluster((5, "private:9092"), cluster_id="A"),
            Agreement.SAME,
        ),
        (
            cluster((0, "kafka1:9092"), cluster_id="A"),
            cluster((0, "kafka1:9092"), cluster_id="B"),
            Agreement.NONE,
        ),
        (cluster((0, "kafka1:9092"), cluster_id="A"), ONE, Agreement.SAME),
        (ONE, cluster((0, "kafka1:9092"), cluster_id="B"), Agreement.SAME),
        (cluster((0, "kafka1:9092"), cluster_id="A"), cluster((0, "b:9092")), Agreement.NONE),
        # Without a topic brokers of 0.8 don't name themselves.
        (cluster(bootstrap=[("10.0.0.1", 9092)]), ONE, Agreement.SAME),
        (cluster(bootstrap=[("balancer", 9092)]), ONE, Agreement.NONE),
        (cluster(bootstrap=[("kafka1", 9092)]), cluster(), Agreement.NONE),
    ],
)
def test_brokers_are_compared_with_those_in_zookeeper(
    brokers: ClusterIdentity, registered: ClusterIdentity, expected: Agreement
) -> None:
    assert compare_clusters(brokers, registered, resolve) is expected


def test_equal_text_needs_no_resolution() -> None:
    def refuse(host: str) -> list[str]:
        raise AssertionError(host)

    others = cluster((0, "kafka1:9092"), (1, "kafka2:9093"), (2, "kafka3:9092"))
    mine = cluster((0, "kafka1:9092"), (1, "kafka2:9092"))
    assert compare_clusters(mine, others, refuse) is Agreement.PARTLY


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        # As 0.8.0 to 0.8.2.2, and 0.10.2.2, write it.
        (
            {"host": "k", "jmx_port": -1, "port": 9092, "timestamp": "1795825529770", "version": 1},
            {("k", 9092)},
        ),
        (
            {
                "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
                "endpoints": ["PLAINTEXT://k:9092"],
                "jmx_port": -1,
                "host": "k",
                "timestamp": "1795825544333",
                "port": 9092,
                "version": 4,
            },
            {("k", 9092)},
        ),
        (
            {"host": "k", "port": 9092, "endpoints": ["PLAINTEXT://k:9092", "SSL://k:9093"]},
            {("k", 9092), ("k", 9093)},
        ),
        ({"host": None, "port": -1, "endpoints": ["SSL://[::1]:9093"]}, {("[::1]", 9093)}),
        ({"host": "k", "port": "9092"}, set()),
        ({"endpoints": [7, "nothing", "SSL://k"]}, set()),
        ({}, set()),
        ([], set()),
        (None, set()),
        (  # HDP's: only the listener of SASL, by its old name
            {
                "host": None,
                "port": -1,
                "version": 2,
                "endpoints": ["PLAINTEXTSASL://hdp1.example.com:6667"],
            },
            {("hdp1.example.com", 6667)},
        ),
        (  # the client's listener may be any of them
            {
                "host": "k",
                "port": 6667,
                "version": 2,
                "endpoints": ["PLAINTEXT://k:6667", "PLAINTEXTSASL://k:6668", "SSL://k:6669"],
            },
            {("k", 6667), ("k", 6668), ("k", 6669)},
        ),
    ],
)
def test_endpoints_of_a_node(written: object, expected: set[Address]) -> None:
    """A node without any endpoint is an error."""
    data = json.dumps(written).encode()
    if expected:
        assert parse_endpoints(data) == expected
    else:
        assert isinstance(decode_node("zk", "/n", data, parse_endpoints, "a broker"), KafkaError)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"[" * 100_000, b'{"id":7}', b"\xff"])
def test_damaged_nodes_identify_nothing(data: bytes) -> None:
    for parse in (parse_cluster_id, parse_endpoints):
        error = decode_node("zk:2181", "/n", data, parse, "something")
        assert isinstance(error, KafkaError)
        assert "the node /n holds b'" in error.text
        assert "; expected something" in error.text


def test_cluster_id_of_a_node() -> None:
    assert parse_cluster_id(b'{"version":"1","id":"mU0w"}') == "mU0w"


def test_text_names_brokers_and_cluster_id() -> None:
    assert str(cluster()) == "no broker"
    assert str(cluster(bootstrap=[("k", 1)])) == "a broker at k:1"
    both = cluster((1, "b:2"), (0, "a:1 a:2"), cluster_id="X")
    assert str(both) == "0 at a:1/a:2, 1 at b:2 (cluster id X)"
    many = cluster(*((number, "k:1") for number in range(12)))
    assert str(many).endswith("9 at k:1, and 2 more")


# --- the users of a session -----------------------------------------------------------------------


def consumer(world: World, **options: Any) -> AIOKafkaConsumer[bytes, bytes]:
    return AIOKafkaConsumer(
        bootstrap_servers=world.cluster.bootstrap_servers,
        zookeeper_connect=world.zookeeper_connect,
        **{
            "group_id": "g",
            "session_timeout_ms": int(SESSION_S * 1000),
            "rebalance_backoff_ms": 100,
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
            **options,
        },
    )


def admin(world: World, **options: Any) -> AIOKafkaAdminClient:
    return AIOKafkaAdminClient(
        bootstrap_servers=world.cluster.bootstrap_servers,
        zookeeper_connect=world.zookeeper_connect,
        **options,
    )


def written(world: World) -> dict[str, bytes]:
    """Return all nodes of groups, topics and settings."""
    found: dict[str, bytes] = {}

    def walk(path: str) -> None:
        node = world.zookeeper.tree.node(path)
        found[path] = node.data
        for name in node.names():
            walk(f"{path}/{name}")

    for root in ("/consumers", "/brokers/topics", "/config", "/admin"):
        walk(root)
    return found


@pytest.mark.parametrize("version", ["0.8.0", "0.8.2", "0.9", "0.10"])
@pytest.mark.parametrize("others", [ELSEWHERE, {}], ids=["another-cluster", "empty-registry"])
@pytest.mark.parametrize("subscribes", [True, False], ids=["member", "offsets"])
def test_member_refuses_the_zookeeper_of_another_cluster(
    version: str, others: dict[int, Address], subscribes: bool
) -> None:
    with simulate(1, version=version) as world:

        async def scenario() -> None:
            world.cluster.create_topic("t", 1)
            world.register_brokers(others)
            before = written(world)
            one = consumer(world, offsets_storage=None if subscribes else "zookeeper")
            if subscribes:
                one.subscribe(["t"])
            else:
                one.assign([T0])
            with pytest.raises(ZookeeperMismatchError) as failure:
                await one.start()
            await one.stop()
            text = failure.value.text
            assert "ZooKeeper zookeeper:2181 isn't that of the brokers: it registers" in text
            assert ("77 at other:9092" if others else "no broker") in text
            assert "the brokers are 0 at kafka0:9092" in text
            assert "Check zookeeper_connect, its chroot, and bootstrap_servers" in text
            assert written(world) == before

        world.run(scenario)


def test_other_cluster_id_is_refused_despite_equal_brokers() -> None:
    """Two clusters in two networks, or one that was built anew at the same addresses."""
    with simulate(1, version="0.10") as world:

        async def scenario() -> None:
            world.cluster.create_topic("t", 1)
            node = world.cluster.nodes[0]
            world.register_brokers({0: (node.host, node.port)})
            with pytest.raises(ZookeeperMismatchError, match=r"\(cluster id .*\(cluster id "):
                async with admin(world) as client:
                    await client.list_stored_groups()

        world.run(scenario)


CALLS: dict[str, Callable[[AIOKafkaAdminClient], Awaitable[object]]] = {
    "create": lambda client: client.create_topics([NewTopic("new", 1, 1)]),
    "grow": lambda client: client.create_partitions({"t": NewPartitions(3)}),
    "delete": lambda client: client.delete_topics(["t"]),
    "overrides": lambda client: client.list_topic_overrides(["t"]),
    "configure": lambda client: client.alter_topic_overrides("t", {"retention.ms": 1000}),
    "topic nodes": lambda client: client.describe_cluster_nodes(),
    "list groups": lambda client: client.list_consumer_groups(),
    "describe": lambda client: client.describe_consumer_groups(["g"]),
    "offsets": lambda client: client.list_consumer_group_offsets("g"),
    "reset": lambda client: client.reset_consumer_group_offsets("g", {T0: 0}),
    "stored groups": lambda client: client.list_stored_groups(),
}


@pytest.mark.parametrize("call", CALLS)
def test_admin_client_changes_and_reads_nothing_elsewhere(call: str) -> None:
    with simulate(1, version="0.8.2") as world:

        async def scenario() -> None:
            world.cluster.create_topic("t", 1)
            world.register_brokers(ELSEWHERE)
            before = written(world)
            async with admin(world) as client:
                with pytest.raises(ZookeeperMismatchError, match="isn't that of the brokers"):
                    await CALLS[call](client)
            assert written(world) == before

        world.run(scenario)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("check", ["refuse", "warn"])
def test_concurrent_calls_get_the_same_outcome(seed: int, check: ZookeeperCheck) -> None:
    """One call's comparison doesn't end the other ones'."""
    with simulate(seed, version="0.8.2") as world:

        async def scenario() -> None:
            world.cluster.create_topic("t", 1)
            world.register_brokers(ELSEWHERE)
            async with admin(world, zookeeper_check=check) as client:
                await client.list_topics()
                calls = []
                for _ in range(8):
                    calls.append(asyncio.create_task(client.list_topic_overrides(["t"])))
                    await asyncio.sleep(world.random.random() / 100)
                outcomes = await asyncio.gather(*calls, return_exceptions=True)
            expected = {"refuse": ZookeeperMismatchError, "warn": dict}[check]
            assert {type(one) for one in outcomes} == {expected}

        world.run(scenario)


def test_warn_uses_the_zookeeper_and_logs_once(caplog: pytest.LogCaptureFixture) -> None:
    with simulate(1, version="0.8.2") as world, caplog.at_level(logging.WARNING):

        async def scenario() -> None:
            world.cluster.create_topic("t", 1)
            world.cluster.append("t", 0, [b"v"])
            world.register_brokers(ELSEWHERE)
            one = consumer(world, zookeeper_check="warn")
            one.subscribe(["t"])
            await one.start()
            assert (await one.getone()).value == b"v"
            await one.commit()
            await one.stop()
            async with admin(world, zookeeper_check="warn") as client:
                await client.list_topic_overrides(["t"])
                await client.list_topic_overrides(["t"])

        world.run(scenario)
    warnings = [text for text in caplog.messages if "isn't that of the brokers" in text]
    assert len(warnings) == 2  # one of each client
    assert all("used all the same, by zookeeper_check='warn'" in text for text in warnings)


def test_new_session_with_another_cluster_ends_the_member() -> None:
    """The name leads elsewhere after an outage: nothing more is written."""
    with simulate(1, version="0.8.2") as world:

        async def scenario() -> None:
            world.cluster.create_topic("t", 1)
            one = consumer(world)
            one.subscribe(["t"])
            await one.start()
            await one.commit({T0: 3})
            world.register_brokers(ELSEWHERE)
            for client in world.zookeeper.clients:
                world.zookeeper.expire(client)
            await asyncio.sleep(2 * SESSION_S)
            before = written(world)
            for _ in range(2):
                with pytest.raises(ZookeeperMismatchError, match="77 at other:9092"):
                    await one.getmany()
            await one.stop()
            assert written(world) == before
            assert before["/consumers/g/offsets/t/0"] == b"3"
            assert not [path for path in before if "/consumers/g/ids/" in path]

        world.run(scenario)


def test_new_session_with_another_cluster_takes_no_commit() -> None:
    with simulate(1, version="0.8.2") as world:

        async def scenario() -> None:
            world.cluster.create_topic("t", 1)
            one = consumer(world)
            one.assign([T0])
            await one.start()
            await one.commit({T0: 3})
            world.register_brokers(ELSEWHERE)
            for client in world.zookeeper.clients:
                world.zookeeper.expire(client)
            await asyncio.sleep(SESSION_S)
            with pytest.raises(ZookeeperMismatchError, match="isn't that of the brokers"):
                await one.commit({T0: 4})
            with pytest.raises(ZookeeperMismatchError, match="isn't that of the brokers"):
                await one.committed(T0)
            assert written(world)["/consumers/g/offsets/t/0"] == b"3"
            await one.stop()

        world.run(scenario)


def test_member_waits_for_brokers_to_register_again() -> None:
    """After an outage of ZooKeeper all sessions have ended, those of the brokers too."""
    with simulate(1, version="0.8.2") as world:

        async def scenario() -> None:
            world.cluster.create_topic("t", 1)
            one = consumer(world, rebalance_max_retries=2)
            one.subscribe(["t"])
            await one.start()
            world.register_brokers({})
            for client in world.zookeeper.clients:
                world.zookeeper.expire(client)
            await asyncio.sleep(SESSION_S)
            with pytest.raises(KafkaUnavailableError, match="names no live broker now"):
                await one.getmany()
            world.register_brokers(None)
            await until(lambda: one.assignment() == {T0}, timeout_s=60)
            await one.commit({T0: OffsetAndMetadata(5, "")})
            await one.stop()

        world.run(scenario)


def test_topicless_cluster_of_0_8_is_compared_by_bootstrap_address(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with simulate(1, version="0.8.2") as world, caplog.at_level(logging.WARNING):

        async def scenario() -> None:
            async with admin(world) as client:
                await client.create_topics([NewTopic("first", 1, 1)])
            assert world.cluster.leader("first", 0) >= 0

        world.run(scenario)
    assert "isn't known" not in caplog.text


@pytest.mark.parametrize("check", ["refuse", "warn"])
def test_topicless_cluster_behind_a_balancer_needs_warn(
    caplog: pytest.LogCaptureFixture, check: ZookeeperCheck
) -> None:
    """It could as well be another cluster without topics, where the topic would be created."""
    with simulate(1, version="0.8.2") as world, caplog.at_level(logging.WARNING):

        async def scenario() -> None:
            node = world.cluster.nodes[0]
            world.register_brokers({0: ("inner", node.port)})
            before = written(world)
            async with admin(world, zookeeper_check=check) as client:
                if check == "warn":
                    await client.create_topics([NewTopic("new", 1, 1)])
                    return
                with pytest.raises(ZookeeperMismatchError) as failure:
                    await client.create_topics([NewTopic("new", 1, 1)])
                assert "only once they have a topic: if bootstrap_servers is" in failure.value.text
                assert "set zookeeper_check='warn'" in failure.value.text
            assert written(world) == before

        world.run(scenario)
    assert ("used all the same" in caplog.text) == (check == "warn")


@pytest.mark.parametrize("kind", ["member", "offsets", "admin"])
def test_broker_with_a_new_address_is_known_again(kind: str) -> None:
    """ZooKeeper has the address before the client's metadata has it."""
    with simulate(1, version="0.8.2") as world:

        async def scenario() -> None:
            world.cluster.create_topic("t", 1)
            one = consumer(world)
            if kind == "member":
                one.subscribe(["t"])
            else:
                one.assign([T0])
            async with admin(world) as client:
                await one.start()
                await client.list_stored_groups()
                node = world.cluster.nodes[0]
                world.cluster.advertise(0, host="moved.example.com")
                world.register_brokers({0: ("moved.example.com", node.port)})
                if kind == "admin":
                    await client.list_stored_groups()
                for session in world.zookeeper.clients:
                    world.zookeeper.expire(session)
                await asyncio.sleep(4 * SESSION_S)
                await one.getmany()
                assert one.assignment() == {T0}
                await one.commit({T0: 3})
                assert written(world)["/consumers/g/offsets/t/0"] == b"3"
                await one.stop()

        world.run(scenario)
