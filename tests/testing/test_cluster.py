"""The methods of `EmbeddedCluster`, its two ways to run, and its end."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import inspect
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from aiokafka08 import AIOKafkaConsumer
from aiokafka08.errors import IllegalStateError
from aiokafka08.protocol import api
from aiokafka08.protocol.compression import Codec, compress
from aiokafka08.protocol.message_set import encode_entry
from aiokafka08.protocol.requests.fetch import FetchPartition, FetchRequest
from aiokafka08.protocol.requests.groups import GroupCoordinatorRequest, HeartbeatRequest
from aiokafka08.protocol.requests.metadata import MetadataRequest
from aiokafka08.protocol.requests.produce import ProduceRequest
from aiokafka08.testing import LINES, Answer, EmbeddedCluster, LoggedMessage
from aiokafka08.testing.runtime import ClusterRuntime, DelayedOperation, HistoryLimits
from aiokafka08.testing.server import open_listener
from aiokafka08.testing.simulation import simulate
from aiokafka08.testing.state import BrokerSettings, BrokerState, ClusterState
from tests.brokers.ports import free_port
from tests.conformance.contract.wire.requests import (
    commit,
    fetch,
    fetch_request,
    fetched,
    list_offsets,
    metadata,
    plain,
    produce,
    produce_request,
)
from tests.conformance.contract.wire.wire_client import LONG_MS, WireClient
from tests.support.stream_server import connecting, is_ended, until_accepted

pytestmark = pytest.mark.fast


@pytest.fixture
def three() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(3, topics={"t": 3}) as cluster:
        yield cluster


@pytest.fixture
def solo() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(topics={"t": 1}) as cluster:
        yield cluster


def address(cluster: EmbeddedCluster, node: int = 0) -> tuple[str, int]:
    return cluster.nodes[node].host, cluster.nodes[node].port


def start_long_poll(
    cluster: EmbeddedCluster, wire: WireClient, node: int = 0, offset: int = 0
) -> None:
    """Send a long poll and wait until the broker has begun it."""
    begun = cluster.next_request(FetchRequest, node=node)
    wire.send(fetch_request("t", offset, max_wait_ms=LONG_MS))
    begun.result(5)


# --- start and stop -------------------------------------------------------------------------------


def test_runs_in_thread_of_its_own() -> None:
    before = threading.active_count()
    with EmbeddedCluster(2, topics={"t": 1}) as cluster:
        assert threading.active_count() == before + 1
        assert cluster.bootstrap_servers.count(",") == 1
        assert "0.8.2" in repr(cluster)
        assert [node.alive for node in cluster.nodes.values()] == [True, True]
        with WireClient(address(cluster, 1)) as wire:
            assert metadata(wire, ["t"]).topics[0].error_code == 0
        port = cluster.nodes[0].port
    assert threading.active_count() == before
    assert "not running" in repr(cluster)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port)).close()


@pytest.mark.both_loops
async def test_runs_in_callers_loop() -> None:
    async with EmbeddedCluster(topics={"t": 1}) as cluster:
        reader, writer = await asyncio.open_connection(*address(cluster))
        writer.write(b"".join(api.encode_request(MetadataRequest(["t"]), 0, 5, "x")))
        size = int.from_bytes(await reader.readexactly(4), "big")
        response = api.decode_response(MetadataRequest, 0, await reader.readexactly(size))
        assert response.topics[0].topic == "t"
        # All methods work from within the loop.
        seen = cluster.next_request(MetadataRequest)
        cluster.append("t", 0, [b"x"])
        assert cluster.log("t", 0)[0].value == b"x"
        writer.write(b"".join(api.encode_request(MetadataRequest([]), 0, 6, "x")))
        assert (await asyncio.wrap_future(seen)).correlation_id == 6
        cluster.kill(0)
        assert await reader.read() != b"unexpected"
        cluster.restart(0)
        cluster.kill(0)
        cluster.restart(0, port=0)
        assert cluster.connections() == 0
        writer.close()


@pytest.mark.both_loops
async def test_closed_connections_leave_nothing() -> None:
    """Clients connect, or have gone already, at the moment when the cluster ends."""
    for _ in range(20):
        async with EmbeddedCluster() as cluster:
            sockets = [socket.create_connection(address(cluster)) for _ in range(3)]
            sockets[0].close()
            await asyncio.sleep(0)
        for sock in sockets:
            sock.close()
    gc.collect()


@pytest.mark.both_loops
async def test_client_gone_before_large_response_logs_no_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with EmbeddedCluster(topics={"t": 12}) as cluster:
        for partition in range(12):
            cluster.append("t", partition, [bytes(100_000)])
        items = [FetchPartition(partition, 0, 1 << 20) for partition in range(12)]
        request = FetchRequest(-1, 100, 1, [api.Topic("t", items)])
        begun = cluster.next_request(FetchRequest)
        with socket.create_connection(address(cluster)) as client:
            # All of it before the cluster, which is in this loop too, runs again.
            client.sendall(b"".join(api.encode_request(request, 0, 1, "hasty")))
        await asyncio.wrap_future(begun)  # and answered in the same event-loop iteration
    assert "socket.send() raised" not in caplog.text


def test_ended_threads_leave_nothing() -> None:
    for number in range(30):
        with EmbeddedCluster() as cluster, socket.create_connection(address(cluster)):
            if number % 2:
                metadata_frame = api.encode_request(MetadataRequest([]), 0, 1, "x")
                with socket.create_connection(address(cluster)) as other:
                    other.sendall(b"".join(metadata_frame))
    gc.collect()


def test_exit_does_not_wait_for_delayed_requests() -> None:
    with EmbeddedCluster(topics={"t": 1}) as cluster, WireClient(address(cluster)) as wire:
        start_long_poll(cluster, wire)
        never = cluster.next_request(HeartbeatRequest)
    assert wire.socket.fileno() == -1
    with pytest.raises(concurrent.futures.CancelledError):
        never.result(0)


@pytest.mark.parametrize(
    ("option", "value", "complaint"),
    [
        ("brokers", 0, "brokers=0: expected an integer >= 1"),
        ("brokers", "3", "brokers='3': expected an integer"),
        (
            "version",
            "0.7",
            "version='0.7': expected one of '0.8.0', '0.8.1', '0.8.2', '0.9', '0.10'",
        ),
        ("version", 0.9, "version=0.9: expected one of"),
        ("topics", ["orders"], "topics=['orders']: expected a mapping"),
        ("topics", {"orders": 0}, "topics['orders']=0: expected an integer >= 1"),
        ("topics", {"a b": 1}, "topics={'a b': 1}: invalid topic name 'a b'; expected "),
        ("auto_create", "no", "auto_create='no': expected True or False"),
        ("default_partitions", 0, "default_partitions=0: "),
        ("default_replication_factor", 0, "default_replication_factor=0: "),
        ("message_max_bytes", -1, "message_max_bytes=-1: "),
        ("segment_bytes", 0, "segment_bytes=0: "),
        ("retention_bytes", -1, "retention_bytes=-1: "),
        ("retention_ms", -1, "retention_ms=-1: expected an integer >= 0"),
        ("port", 65536, "port=65536: expected an integer from 0 to 65535"),
        ("port", True, "port=True: "),
        ("sasl", ["alice"], "sasl=<list>: expected a mapping of user names to passwords"),
        ("sasl", {"alice": ""}, "sasl=<dict>: expected a mapping of user names to passwords"),
        ("sasl", {"alice": "se\0cret"}, "sasl: user 'alice': expected a name and a password with"),
        (
            "sasl",
            {"alice": "secret"},
            "sasl=<users>, version='0.8.2': this line has neither PLAIN nor SCRAM; expected version"
            " '0.10'",
        ),
    ],
)
def test_invalid_option_raises_with_expected_values(
    option: str, value: Any, complaint: str
) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(complaint)):
        EmbeddedCluster(**{option: value})


def test_sasl_without_the_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scramp", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'aiokafka08\[sasl\]'"):
        EmbeddedCluster(version="0.10", sasl={"alice": "secret"})


def test_port_leaves_room_for_all_brokers() -> None:
    with pytest.raises(ValueError, match="port=65534: expected an integer from 0 to 65533"):
        EmbeddedCluster(brokers=3, port=65534)


def test_missing_partition_error_names_existing_ones() -> None:
    with EmbeddedCluster(topics={"orders": 4}) as cluster:
        with pytest.raises(
            ValueError, match="topic 'order' doesn't exist; expected one of: 'orders'"
        ):
            cluster.log("order", 0)
        with pytest.raises(
            ValueError, match="'orders', partition 4 doesn't exist; expected 0 to 3"
        ):
            cluster.move_leader("orders", 4)
    with EmbeddedCluster() as cluster, pytest.raises(ValueError, match="expected one of: none yet"):
        cluster.offsets("orders", 0)


def test_misuse_raises() -> None:
    cluster = EmbeddedCluster()
    with pytest.raises(IllegalStateError, match="isn't running"):
        cluster.kill(0)
    before = set(threading.enumerate())
    with EmbeddedCluster(topics={"t": 1}) as cluster:
        [thread] = set(threading.enumerate()) - before
        for act in (
            lambda: cluster.kill(7),
            lambda: cluster.create_topic("t"),
            lambda: cluster.create_topic("u", 0),
            lambda: cluster.create_topic("u", 1, 2),
            lambda: cluster.create_topic("u", config={"compression.type": "gzip"}),
            lambda: cluster.delete_topic("u"),
            lambda: cluster.append("t", 1, [b"x"]),
            lambda: cluster.move_leader("t", 0),
            lambda: cluster.shrink_isr("t", 0, 0),
        ):
            with pytest.raises(ValueError, match=r"\w"):
                act()
        with pytest.raises(IllegalStateError, match="alive"):
            cluster.restart(0)
        with pytest.raises(IllegalStateError, match="running"):
            cluster.__enter__()
        cluster.kill(0)
        with pytest.raises(IllegalStateError, match="dead"):
            cluster.kill(0)
    assert not thread.is_alive()  # `__exit__` has waited for it


ARGUMENTS: dict[str, Any] = {
    "group": "g", "message_set": b"", "name": "u", "node": 0, "offset": 0, "offsets": [0],
    "partition": 0, "request": MetadataRequest, "then": Answer(6), "topic": "t", "values": [b"v"],
    "version": "0.9",
}  # fmt: skip
"""For the parameters of the cluster's methods that have no default."""

METHODS = [
    name
    for name, _ in inspect.getmembers(EmbeddedCluster, inspect.isfunction)
    if not name.startswith("_")
]


@pytest.mark.parametrize("name", METHODS)
def test_control_of_a_closed_cluster_raises(name: str) -> None:
    with EmbeddedCluster(topics={"t": 1}) as cluster:
        pass
    method = getattr(cluster, name)
    parameters = inspect.signature(method).parameters.values()
    needed = [parameter for parameter in parameters if parameter.default is parameter.empty]
    bound = inspect.signature(method).bind(
        **{
            parameter.name: ARGUMENTS[parameter.name]
            for parameter in needed
            if parameter.kind is not parameter.VAR_POSITIONAL
        }
    )
    with pytest.raises(IllegalStateError, match="embedded cluster isn't running"):
        method(*bound.args, **bound.kwargs)
    with pytest.raises(IllegalStateError, match="embedded cluster isn't running"):
        _ = cluster.history


def test_control_in_a_callback_of_the_closing_cluster_raises() -> None:
    """The end cancels the futures of requests that never came, and their callbacks run."""
    errors: list[BaseException] = []

    def kill(_: object) -> None:
        try:
            cluster.kill(0)
        except BaseException as error:
            errors.append(error)

    with EmbeddedCluster() as cluster:
        cluster.next_request(ProduceRequest).add_done_callback(kill)
    [error] = errors
    assert isinstance(error, IllegalStateError)
    assert "embedded cluster isn't running" in str(error)


def test_port_in_use_raises() -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        complaint = f"broker 0 can't listen on 127.0.0.1:{port}: .*in use"
        with pytest.raises(OSError, match=complaint), EmbeddedCluster(port=port):
            pass
    with EmbeddedCluster(port=port) as cluster:
        assert cluster.bootstrap_servers == f"127.0.0.1:{port}"


def test_restarted_cluster_keeps_its_logs(solo: EmbeddedCluster) -> None:
    cluster = EmbeddedCluster(topics={"t": 1})
    with cluster:
        cluster.append("t", 0, [b"x"])
        port = cluster.nodes[0].port
    with cluster:
        assert cluster.nodes[0].port == port
        assert [message.value for message in cluster.log("t", 0)] == [b"x"]


# --- brokers --------------------------------------------------------------------------------------


def test_dead_broker_keeps_its_port(solo: EmbeddedCluster) -> None:
    """Nothing else gets it from the kernel meanwhile; else `restart` couldn't listen there."""
    for end in (solo.kill, solo.stop):
        end(0)
        with pytest.raises(ConnectionRefusedError), socket.create_connection(address(solo)):
            pass
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(address(solo))
        solo.restart(0)
        with socket.create_connection(address(solo)):
            pass
    solo.kill(0)
    moved = address(solo)
    solo.restart(0, port=0)
    with socket.create_server(moved):
        pass


@pytest.mark.parametrize("iterations", range(5))
async def test_connection_to_a_killed_broker_ends_with_the_cluster(iterations: int) -> None:
    """At whatever moment of its beginning; a restart doesn't forget it."""
    async with EmbeddedCluster() as cluster:
        with connecting(*address(cluster)) as client:
            await until_accepted()
            for _ in range(iterations):
                await asyncio.sleep(0)
            cluster.kill(0)
            cluster.restart(0)
            await cluster.__aexit__(None, None, None)
            assert is_ended(client)


def test_kill_moves_leaders_and_restart_rejoins(three: EmbeddedCluster) -> None:
    with WireClient(address(three, 1)) as wire, WireClient(address(three)) as other:
        produce(wire, "t", plain(b"x"), partition=1)
        three.kill(1)
        assert wire.is_closed()
        with pytest.raises(ConnectionRefusedError):
            WireClient(address(three, 1))
        assert three.leader("t", 1) == 2
        assert {broker.node_id for broker in metadata(other, ["t"]).brokers} == {0, 2}
        assert produce(other, "t", plain(b"y"), acks=-1) == (0, 0)
        before = address(three, 1)
        three.restart(1)
        assert address(three, 1) == before
        assert {broker.node_id for broker in metadata(other, ["t"]).brokers} == {0, 1, 2}
        three.kill(1)
        three.restart(1, port=0)
        ports = {broker.node_id: broker.port for broker in metadata(other, ["t"]).brokers}
        assert ports[1] == three.nodes[1].port
    assert three.move_leader("t", 1, to=1) == 1
    with WireClient(address(three, 1)) as wire:
        assert fetch(wire, "t", 0, partition=1).values() == [(0, b"x")]


def test_unnoticed_death_keeps_metadata(three: EmbeddedCluster) -> None:
    """The state of a real cluster in the seven seconds after a kill -9 (brokers.md 9.1)."""
    with WireClient(address(three)) as wire:
        three.kill(1, then="unnoticed")
        response = metadata(wire, ["t"])
        assert len(response.brokers) == 3
        assert {
            partition.partition: partition.leader for partition in response.topics[0].partitions
        }[1] == 1
        assert produce(wire, "t", plain(b"x"), partition=1) == (6, -1)
        # acks=-1 waits for the dead follower until it has left the ISR.
        begun = three.next_request(ProduceRequest)
        wire.send(produce_request("t", plain(b"y"), acks=-1, timeout_ms=10_000))
        begun.result(5)
        assert three.offsets("t", 0) == (0, 0, 1)
        three.notice(1)
        produced = wire.receive(ProduceRequest)
        assert produced.topics[0].partitions[0].error_code == 0
        assert three.offsets("t", 0) == (0, 1, 1)
        assert three.leader("t", 1) == 2
        assert len(metadata(wire, ["t"]).brokers) == 2


def test_acks_all_times_out_on_dead_follower(three: EmbeddedCluster) -> None:
    with WireClient(address(three)) as wire:
        three.kill(1, then="unnoticed")
        assert produce(wire, "t", plain(b"y"), acks=-1, timeout_ms=30) == (7, 0)
        assert produce(wire, "t", plain(b"y"), acks=1) == (0, 1)
        # Consumers get no messages that the ISR lacks; on 0.8 a fetch above them is an error.
        assert fetch(wire, "t", 0) == (0, 0, b"")
        assert fetch(wire, "t", 1) == (-1, -1, b"")
        assert list_offsets(wire, "t", -1) == (0, [0])
        three.restart(1)
        assert len(fetch(wire, "t", 0).values()) == 2


def test_leaderless_partition_until_elect(three: EmbeddedCluster) -> None:
    with WireClient(address(three)) as wire:
        three.kill(1, then="leaderless")
        [partition] = [p for p in metadata(wire, ["t"]).topics[0].partitions if p.partition == 1]
        assert (partition.error_code, partition.leader) == (5, -1)
        assert produce(wire, "t", plain(b"x"), partition=1) == (6, -1)
        three.elect("t", 0)
        assert three.leader("t", 1) == -1
        three.elect()
        assert three.leader("t", 1) == 2


def test_stop_moves_leaders_first(three: EmbeddedCluster) -> None:
    with WireClient(address(three)) as wire:
        start_long_poll(three, wire)
        three.stop(0)
        # The long poll gets a response before the connection ends.
        assert fetched(wire.receive(FetchRequest), "t") == (6, -1, b"")
        assert wire.is_closed()
    assert three.leader("t", 0) == 1
    three.restart(0)
    assert three.leader("t", 0) == 1


def test_unclean_election_loses_messages(three: EmbeddedCluster) -> None:
    three.append("t", 0, [b"kept"])
    three.shrink_isr("t", 0)
    three.append("t", 0, [b"lost", b"lost"])
    three.kill(0)
    assert three.leader("t", 0) == 1
    assert three.offsets("t", 0) == (0, 1, 1)
    three.restart(0)
    with WireClient(address(three, 1)) as wire:
        assert produce(wire, "t", plain(b"new"), acks=-1) == (0, 1)


def test_power_loss_of_all_replicas_loses_the_tail(three: EmbeddedCluster) -> None:
    three.append("t", 0, [b"kept", b"lost", b"lost"])
    for node in (1, 2, 0):
        three.kill(node, unflushed=2)
    three.restart(0)
    assert three.leader("t", 0) == 0
    assert three.offsets("t", 0) == (0, 1, 1)
    three.restart(1)
    with WireClient(address(three)) as wire:
        assert produce(wire, "t", plain(b"new"), acks=-1) == (0, 1)


def test_power_loss_of_a_replica_is_mended_by_the_others(three: EmbeddedCluster) -> None:
    three.append("t", 0, [b"a", b"b"])
    three.kill(0, unflushed=5)
    assert three.offsets("t", 0) == (0, 2, 2)
    three.restart(0)
    three.move_leader("t", 0, to=0)
    assert [message.value for message in three.log("t", 0)] == [b"a", b"b"]


def test_power_loss_that_nobody_notices_truncates(three: EmbeddedCluster) -> None:
    three.append("t", 0, [b"a", b"b"])
    three.kill(0, "unnoticed", unflushed=1)
    three.restart(0)
    assert three.leader("t", 0) == 0
    assert three.offsets("t", 0) == (0, 1, 1)


def test_a_full_disk_halts_the_leader(three: EmbeddedCluster) -> None:
    three.fill_disk(0)
    with WireClient(address(three)) as wire:
        three.append("t", 1, [b"another leader's"])
        wire.send(produce_request("t", plain(b"x"), acks=1))
        assert wire.is_closed()
    assert not three.nodes[0].alive
    assert three.leader("t", 0) == 1
    assert three.log("t", 0) == []
    three.restart(0)
    three.move_leader("t", 0, to=0)
    with WireClient(address(three)) as wire:
        assert produce(wire, "t", plain(b"x")) == (0, 0)


def test_a_change_of_version_keeps_logs_and_commits() -> None:
    with EmbeddedCluster(2, "0.8.2", topics={"t": 1}) as cluster:
        with pytest.raises(IllegalStateError, match="brokers 0, 1 are alive"):
            cluster.change_version("0.9")
        with WireClient(address(cluster)) as wire:
            produce(wire, "t", plain(b"x"))
            assert commit(wire, "g", "t", 1, version=0) == 0
        for version in ("0.9", "0.8.2", "0.10"):
            for node in cluster.nodes:
                cluster.kill(node)
            cluster.change_version(version)
            for node in cluster.nodes:
                cluster.restart(node)
            assert cluster.version == version
            with WireClient(address(cluster)) as wire:
                assert fetch(wire, "t", 0).values() == [(0, b"x")]
            assert cluster.committed("g", "t", 0, "zookeeper") is not None
        for node in cluster.nodes:
            cluster.kill(node)
        with pytest.raises(ValueError, match=r"topic 't', partition 0 has messages of 0.10"):
            cluster.change_version("0.9")
        with pytest.raises(ValueError, match=r"version='1\.0': expected one of"):
            cluster.change_version("1.0")


def test_held_metadata_names_the_old_leader(three: EmbeddedCluster) -> None:
    def leader(wire: WireClient) -> int:
        partitions = metadata(wire, ["t"]).topics[0].partitions
        return next(partition.leader for partition in partitions if partition.partition == 0)

    with WireClient(address(three, 1)) as stale, WireClient(address(three, 2)) as fresh:
        three.hold_metadata(1)
        three.move_leader("t", 0, to=2)
        three.kill(0)
        three.create_topic("new", 1, 2)
        assert (leader(stale), leader(fresh)) == (0, 2)
        assert [len(metadata(wire).brokers) for wire in (stale, fresh)] == [3, 2]
        assert metadata(stale, ["new"]).topics[0].error_code == 5
        assert metadata(fresh, ["new"]).topics[0].error_code == 0
        three.release_metadata(1)
        assert leader(stale) == 2
        assert metadata(stale, ["new"]).topics[0].error_code == 0
        three.hold_metadata(1)
    three.kill(1)
    three.restart(1)
    three.move_leader("t", 0, to=1)
    with WireClient(address(three, 1)) as wire:
        assert leader(wire) == 1
    with pytest.raises(ValueError, match="broker 0 isn't alive; expected one of: 1, 2"):
        three.hold_metadata(0)


def test_advertised_address_is_named_in_metadata_and_lookups() -> None:
    with EmbeddedCluster(2, "0.9", topics={"t": 1, "__consumer_offsets": 2}) as cluster:

        def named(node: int) -> set[tuple[str, int]]:
            with WireClient(address(cluster)) as wire:
                brokers = {broker.node_id: broker for broker in metadata(wire).brokers}
                listed = {(brokers[node].host, brokers[node].port)}
                for group in ("a", "b"):
                    found = wire.request(GroupCoordinatorRequest(group), 0)
                    listed |= {(found.host, found.port)} if found.node_id == node else set()
                return listed

        real = cluster.nodes[1]
        servers = cluster.bootstrap_servers
        cluster.advertise(1, "kafka.internal")
        assert named(1) == {("kafka.internal", real.port)}
        cluster.advertise(1, port=1234)
        assert named(1) == {(real.host, 1234)}
        assert (cluster.nodes[1], cluster.bootstrap_servers) == (real, servers)
        assert named(0) == {(cluster.nodes[0].host, cluster.nodes[0].port)}
        cluster.advertise(1)
        assert named(1) == {(real.host, real.port)}
        with pytest.raises(ValueError, match="broker 2 doesn't exist; expected one of: 0, 1"):
            cluster.advertise(2, "kafka.internal")


def test_advertised_port_is_that_of_the_first_broker() -> None:
    options: dict[str, Any] = {"topics": {"t": 1, "__consumer_offsets": 2}}
    with EmbeddedCluster(2, "0.10", **options, advertised_port=19092) as cluster:
        assert not {node.port for node in cluster.nodes.values()} & {19092, 19093}
        with WireClient(address(cluster)) as wire:
            brokers = metadata(wire).brokers
            found = wire.request(GroupCoordinatorRequest("g"), 0)
            assert [broker.port for broker in brokers] == [19092, 19093]
            assert found.port == 19092 + found.node_id
            cluster.advertise(1, port=1234)
            assert [broker.port for broker in metadata(wire).brokers] == [19092, 1234]
            cluster.advertise(1)
            assert [broker.port for broker in metadata(wire).brokers] == [19092, 19093]


def test_cluster_id_is_that_of_all_brokers_and_stays() -> None:
    with EmbeddedCluster(2, "0.10") as cluster, EmbeddedCluster(2, "0.10") as other:

        def cluster_id(of: EmbeddedCluster, node: int) -> str | None:
            with WireClient(address(of, node)) as wire:
                found: str | None = wire.request(MetadataRequest([]), 2).cluster_id
                return found

        first = cluster_id(cluster, 0)
        assert first == cluster_id(cluster, 1) != cluster_id(other, 0)
        cluster.kill(1)
        cluster.restart(1, port=0)
        assert cluster_id(cluster, 0) == cluster_id(cluster, 1) == first


@pytest.mark.parametrize("port", [0, 65536, "9092", True])
def test_wrong_advertised_port_raises(port: Any) -> None:
    with pytest.raises(ValueError, match=r"^advertised_port=.*: expected an integer from 1 to"):
        EmbeddedCluster(2, advertised_port=port)


def test_the_controller_moves_and_dies() -> None:
    with EmbeddedCluster(3, "0.10", topics={"t": 1}) as cluster:

        def controller() -> int:
            with WireClient(address(cluster)) as wire:
                response = wire.request(MetadataRequest([]), 1)
                return int(response.controller_id)

        assert controller() == 0
        cluster.move_controller(2)
        assert controller() == 2
        cluster.kill(2)
        assert controller() == 0


def test_partition_waits_for_leader_if_elections_are_clean() -> None:
    with EmbeddedCluster(2) as cluster:
        cluster.create_topic("t", config={"unclean.leader.election.enable": "false"})
        cluster.shrink_isr("t", 0)
        cluster.append("t", 0, [b"x"])
        cluster.kill(0)
        assert cluster.leader("t", 0) == -1
        cluster.restart(0)
        assert cluster.leader("t", 0) == 0
        assert cluster.offsets("t", 0) == (0, 1, 1)


def test_drop_connections_keeps_brokers_alive(three: EmbeddedCluster) -> None:
    with WireClient(address(three)) as wire_0, WireClient(address(three, 1)) as wire_1:
        metadata(wire_0)
        metadata(wire_1)
        assert (three.connections(), three.connections(1)) == (2, 1)
        assert three.drop_connections(1) == 1
        assert wire_1.is_closed()
        metadata(wire_0)
        assert three.drop_connections() == 1
    with WireClient(address(three)) as again:
        metadata(again)


# --- leaders, replicas ----------------------------------------------------------------------------


def test_move_leader_completes_delayed_requests(three: EmbeddedCluster) -> None:
    with WireClient(address(three)) as wire, WireClient(address(three, 1)) as other:
        start_long_poll(three, wire)
        assert three.move_leader("t", 0) == 1
        assert fetched(wire.receive(FetchRequest), "t") == (6, -1, b"")
        assert produce(wire, "t", plain(b"x")) == (6, -1)
        assert produce(other, "t", plain(b"x"), acks=-1) == (0, 0)
        [state] = [p for p in metadata(wire, ["t"]).topics[0].partitions if not p.partition]
        assert (state.leader, sorted(state.isr)) == (1, [0, 1, 2])


def test_move_leader_rotates_over_replicas(three: EmbeddedCluster) -> None:
    assert [three.move_leader("t", 0) for _ in range(4)] == [1, 2, 0, 1]
    three.shrink_isr("t", 0, 2)
    assert three.move_leader("t", 0) == 0
    three.append("t", 0, [b"x"])
    assert three.move_leader("t", 0, to=2) == 2
    assert three.log("t", 0) == []


def test_min_insync_replicas_limits_acks_all() -> None:
    with EmbeddedCluster(3) as cluster:
        cluster.create_topic("t", config={"min.insync.replicas": "2"})
        with WireClient(address(cluster)) as wire:
            assert produce(wire, "t", plain(b"x"), acks=-1) == (0, 0)
            cluster.shrink_isr("t", 0, 1)
            assert produce(wire, "t", plain(b"x"), acks=-1) == (0, 1)
            cluster.shrink_isr("t", 0, 2)
            assert produce(wire, "t", plain(b"x"), acks=-1) == (19, -1)
            assert produce(wire, "t", plain(b"x"), acks=1) == (0, 2)
            assert produce(wire, "t", plain(b"x"), acks=2, timeout_ms=20) == (7, 3)
            cluster.restore_isr("t", 0)
            assert produce(wire, "t", plain(b"x"), acks=-1) == (0, 4)


@pytest.mark.parametrize("version", ["0.8.2", "0.9"])
def test_metadata_shows_stale_isr_on_0_8(version: str) -> None:
    with EmbeddedCluster(2, version, {"t": 1}) as cluster, WireClient(address(cluster)) as wire:
        cluster.shrink_isr("t", 0)
        [state] = metadata(wire, ["t"]).topics[0].partitions
        assert state.isr == ([0, 1] if version == "0.8.2" else [0])


def test_coordinator_moves_with_leader(three: EmbeddedCluster) -> None:
    assert three.coordinator("g") is None
    with WireClient(address(three)) as wire:
        wire.request(GroupCoordinatorRequest("g"))
        first = three.coordinator("g")
        assert first is not None
        with WireClient(address(three, first)) as wire_to_first:
            assert commit(wire_to_first, "g", "t", 5, "note", version=1) == 0
        three.kill(first)
        second = three.coordinator("g")
        assert second not in (None, first)
    assert second is not None
    with WireClient(address(three, second)) as wire:
        assert wire.request(GroupCoordinatorRequest("g")).node_id == second
    assert three.committed("g", "t", 0) == (5, "note")
    assert three.committed("g", "t", 0, "zookeeper") is None


def test_coordinator_moves_while_the_old_one_lives(three: EmbeddedCluster) -> None:
    with pytest.raises(ValueError, match=r"group 'g': the coordinator can't move, no client has"):
        three.move_coordinator("g")
    with WireClient(address(three)) as wire:
        wire.request(GroupCoordinatorRequest("g"))  # creates the offsets topic
        first = wire.request(GroupCoordinatorRequest("g")).node_id
        second = three.move_coordinator("g")
        assert second != first
        assert wire.request(GroupCoordinatorRequest("g")).node_id == second
    with WireClient(address(three, first)) as wire:
        assert commit(wire, "g", "t", 5, "note", version=1) == 16


# --- topics and logs ------------------------------------------------------------------------------


def test_log_returns_appended_messages(solo: EmbeddedCluster) -> None:
    assert solo.append("t", 0, [b"a", None], [b"k", None]) == 0
    assert solo.append("t", 0, [b"b", b"c"], codec=Codec.GZIP) == 2
    assert solo.log("t", 0) == [
        LoggedMessage(0, b"k", b"a", None, 0),
        LoggedMessage(1, None, None, None, 0),
        LoggedMessage(2, None, b"b", None, 1),
        LoggedMessage(3, None, b"c", None, 1),
    ]


def test_log_returns_timestamps() -> None:
    with EmbeddedCluster(version="0.10", topics={"t": 1}) as cluster:
        cluster.append("t", 0, [b"a"], timestamp_ms=77)
        cluster.append("t", 0, [b"b", b"c"], timestamp_ms=78, codec=Codec.LZ4)
        messages = [
            (message.offset, message.timestamp_ms, message.codec) for message in cluster.log("t", 0)
        ]
        assert messages == [(0, 77, 0), (1, 78, 3), (2, 78, 3)]


@pytest.mark.parametrize("is_raw", [False, True])
@pytest.mark.parametrize("version", ["0.8.0", "0.8.1", "0.8.2"])
def test_append_completes_long_poll(version: str, is_raw: bool) -> None:
    """Also before 0.8.2, where a long poll waits for what is produced."""
    with (
        EmbeddedCluster(version=version, topics={"t": 1}) as cluster,
        WireClient(address(cluster)) as wire,
    ):
        start_long_poll(cluster, wire)
        if is_raw:
            cluster.append_raw("t", 0, encode_entry(0, None, b"x"))
        else:
            cluster.append("t", 0, [b"x"])
        assert fetched(wire.receive(FetchRequest), "t").values() == [(0, b"x")]


def test_append_raw_stores_corrupt_bytes(solo: EmbeddedCluster) -> None:
    solo.append("t", 0, [b"good"])
    bad = bytearray(encode_entry(1, None, b"poison"))
    bad[-1] ^= 1
    solo.append_raw("t", 0, bytes(bad))
    solo.append("t", 0, [b"good"])
    with WireClient(address(solo)) as wire:
        assert [entry.crc_ok for entry in fetch(wire, "t", 0).entries()] == [True, False, True]
    assert [message.offset for message in solo.log("t", 0)] == [0, 1, 2]
    solo.append_raw("t", 0, encode_entry(3, None, b"no gzip", attributes=1) + b"\0" * 30)
    assert len(solo.log("t", 0)) == 4


@pytest.mark.parametrize("version", ["0.9", "0.10"])
def test_log_has_the_messages_behind_an_empty_wrapper(version: str) -> None:
    with EmbeddedCluster(1, version, topics={"t": 1}) as cluster:
        magic = int(version == "0.10")
        empty = encode_entry(0, None, compress(Codec.GZIP, b""), attributes=1, magic=magic)
        cluster.append_raw("t", 0, empty)
        cluster.append("t", 0, [b"good"])
        assert [message.value for message in cluster.log("t", 0)] == [b"good"]


@pytest.mark.parametrize("size", [-(2**31), -12, 0, 13])
def test_search_over_damage_in_a_set_is_an_error(solo: EmbeddedCluster, size: int) -> None:
    """A broker finds an offset by the size fields of the messages before it."""
    damaged = encode_entry(1, None, b"x")[:8] + size.to_bytes(4, signed=True) + bytes(30)
    good = encode_entry(0, None, b"good")
    solo.append_raw("t", 0, good + damaged + encode_entry(2, None, b"hidden"), next_offset=3)
    solo.append("t", 0, [b"later"])
    with WireClient(address(solo)) as wire:
        assert fetch(wire, "t", 0).message_set.startswith(good + damaged)
        assert fetch(wire, "t", 1).message_set.startswith(damaged)
        assert fetch(wire, "t", 2) == (-1, -1, b"")
        assert fetch(wire, "t", 3).values() == [(3, b"later")]


def test_offset_behind_a_cut_off_message_of_a_set_is_a_hole(solo: EmbeddedCluster) -> None:
    solo.append_raw("t", 0, encode_entry(0, None, b"x") + encode_entry(1, None, b"y")[:-1], 3)
    with WireClient(address(solo)) as wire:
        assert fetch(wire, "t", 2) == (0, 3, b"")


def test_delete_before_remove_and_truncate(solo: EmbeddedCluster) -> None:
    for number in range(10):
        solo.append("t", 0, [b"%d" % number])
    with WireClient(address(solo)) as wire:
        solo.delete_before("t", 0, 3)
        assert fetch(wire, "t", 2) == (1, -1, b"")
        assert list_offsets(wire, "t", -2) == (0, [3])
        solo.remove("t", 0, [5, 6, 9])
        assert [offset for offset, _ in fetch(wire, "t", 5).values()] == [7, 8]
        assert fetch(wire, "t", 9) == (0, 10, b"")  # a hole at the end: nothing, and no error
        solo.truncate("t", 0, 8)
        assert solo.offsets("t", 0) == (3, 8, 8)
        assert fetch(wire, "t", 9) == (1, -1, b"")
        assert produce(wire, "t", plain(b"new")) == (0, 8)


def test_compact_keeps_last_message_of_each_key(solo: EmbeddedCluster) -> None:
    solo.append("t", 0, [b"1", b"2", b"3", b"4"], [b"a", b"b", b"a", None])
    solo.compact("t", 0)
    assert [(message.offset, message.key) for message in solo.log("t", 0)] == [
        (1, b"b"),
        (2, b"a"),
        (3, None),
    ]


def test_delete_topic_completes_delayed_requests(solo: EmbeddedCluster) -> None:
    with WireClient(address(solo)) as wire:
        start_long_poll(solo, wire)
        solo.delete_topic("t")
        assert fetched(wire.receive(FetchRequest), "t") == (3, -1, b"")


def test_offsets_by_time_with_controlled_clock() -> None:
    now = 1000.0
    with EmbeddedCluster(topics={"t": 1}, clock=lambda: now) as cluster:
        for number in range(3):
            now = 1000.0 + number
            cluster.append("t", 0, [b"x"])
            cluster.roll_segment("t", 0)
        with WireClient(address(cluster)) as wire:
            assert list_offsets(wire, "t", 1_001_500, 10) == (0, [1, 0])


def test_auto_create_false_creates_nothing() -> None:
    options: dict[str, Any] = {"auto_create": False, "topics": {"t": 1}}
    with EmbeddedCluster(**options) as cluster, WireClient(address(cluster)) as wire:
        codes = {
            topic.topic: topic.error_code for topic in metadata(wire, ["t", "u", "a b"]).topics
        }
        assert codes == {"t": 0, "u": 3, "a b": 3}


# --- history, back-pressure, threads --------------------------------------------------------------


def test_history_has_all_requests(three: EmbeddedCluster) -> None:
    with WireClient(address(three)) as wire, WireClient(address(three, 1)) as other:
        produce(wire, "t", plain(b"x"))
        metadata(other, ["t"])
        produce(other, "t", plain(b"y"), partition=1)
    [first, second, third] = three.history
    assert (first.node, first.client_id, first.api_version) == (0, "peer", 0)
    assert second.connection == third.connection != first.connection
    assert three.requests(MetadataRequest) == [MetadataRequest(["t"])]
    assert len(three.requests(ProduceRequest)) == 2
    [request] = three.requests(ProduceRequest, node=1)
    assert bytes(request.topics[0].partitions[0].message_set) == plain(b"y")


def test_retention_follows_the_clock() -> None:
    now_s = [1e9]
    with EmbeddedCluster(topics={"t": 1}, retention_ms=60_000, clock=lambda: now_s[0]) as cluster:
        cluster.append("t", 0, [b"x"])
        now_s[0] += 60
        cluster.apply_retention()
        assert cluster.offsets("t", 0).start == 0
        now_s[0] += 1
        cluster.apply_retention()
        assert cluster.offsets("t", 0) == (1, 1, 1)


def test_retention_runs_now_and_then() -> None:
    """After 30 s and then every 300 s, also after a restart; the timer ends with the messages."""

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        clock_reads: list[float] = []

        def clock() -> float:
            clock_reads.append(loop.time())
            return 1e9 + loop.time()

        cluster = EmbeddedCluster(topics={"t": 1}, retention_ms=0, clock=clock)

        def is_empty() -> bool:
            bounds = cluster.offsets("t", 0)
            return bounds.start == bounds.end

        async with cluster:
            started = loop.time()
            for check_s in (30, 330, 630):
                cluster.append("t", 0, [b"x"])
                await asyncio.sleep(started + check_s - 1 - loop.time())
                assert not is_empty()
                await asyncio.sleep(2)
                assert is_empty()
            cluster.append("t", 0, [b"x"])
        async with cluster:
            await asyncio.sleep(29)
            assert not is_empty()
            await asyncio.sleep(2)
            assert is_empty()
            clock_reads.clear()
            await asyncio.sleep(3600)
            assert clock_reads == []

    with simulate(0, brokers=1) as world:
        world.run(scenario)


async def test_history_is_bounded() -> None:
    node = BrokerState(0, "127.0.0.1", 0)
    state = ClusterState(LINES["0.8.2"], BrokerSettings(), [node])
    limits = HistoryLimits(requests=10, total_bytes=5500, item_bytes=0)
    runtime = ClusterRuntime(state, time.time, 1 << 20, limits)
    state.create_topic("t", 1, 1, {}, runtime.now_ms())

    def produced() -> list[int]:
        requests = [recorded.request for recorded in runtime.history]
        return [
            request.topics[0].partitions[0].message_set[-1]
            for request in requests
            if isinstance(request, ProduceRequest)
        ]

    def send_requests() -> None:
        with WireClient((node.host, node.port)) as wire:
            for number in range(20):
                produce(wire, "t", plain(bytes([number]) * (1000 - 26)))
            assert produced() == [15, 16, 17, 18, 19]
            for _ in range(9):
                metadata(wire)

    listener = open_listener(runtime, node, node.host)
    await asyncio.to_thread(send_requests)
    listener.close()
    await listener.wait_closed()
    await runtime.close()
    assert len(runtime.history) == 10
    assert produced() == [19]


def test_next_request_resolves_at_nth_request(solo: EmbeddedCluster) -> None:
    third = solo.next_request(MetadataRequest, nth=3)
    where = solo.next_request(MetadataRequest, where=lambda request: request.topics == ["b"])
    with WireClient(address(solo)) as wire:
        for name in ("a", "b", "c"):
            metadata(wire, [name])
    assert third.result(5).request == MetadataRequest(["c"])
    assert where.result(5).request == MetadataRequest(["b"])


def test_client_that_does_not_read_is_not_read_from(solo: EmbeddedCluster) -> None:
    solo.append("t", 0, [bytes(900_000)])
    with WireClient(address(solo)) as wire:
        wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        frame = b"".join(api.encode_request(fetch_request("t", 0), 0, 1, "x"))
        for _ in range(50):
            wire.socket.sendall(frame)
        deadline = time.monotonic() + 0.3
        while time.monotonic() < deadline and len(solo.history) < 50:
            time.sleep(0.01)
        # Some megabytes fit into the sockets' buffers, but not 45 MB.
        assert len(solo.history) < 40
        for _ in range(50):
            assert fetched(wire.receive(FetchRequest), "t").error_code == 0


def test_requests_behind_long_poll_are_bounded(solo: EmbeddedCluster) -> None:
    big = b"".join(api.encode_request(produce_request("t", plain(bytes(900_000))), 0, 1, "x"))
    with WireClient(address(solo)) as wire:
        start_long_poll(solo, wire)
        wire.socket.settimeout(0.3)
        with pytest.raises(TimeoutError):
            wire.socket.sendall(big * 50)


def test_methods_from_many_threads(three: EmbeddedCluster) -> None:
    errors: list[BaseException] = []

    def act(number: int) -> None:
        try:
            for _ in range(50):
                three.append("t", number % 3, [b"x"])
                three.move_leader("t", number % 3)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=act, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert sum(three.offsets("t", number).end for number in range(3)) == 300


@pytest.mark.parametrize("version", list(LINES))
def test_frame_sent_byte_by_byte(version: str) -> None:
    frame = b"".join(api.encode_request(produce_request("t", plain(b"x")), 0, 9, "x"))
    with EmbeddedCluster(1, version, {"t": 1}) as cluster, WireClient(address(cluster)) as wire:
        for at in range(len(frame)):
            wire.socket.sendall(frame[at : at + 1])
        response = wire.receive(ProduceRequest)
        assert response.topics[0].partitions[0].error_code == 0


async def test_lost_tail_of_a_follower_leaves_the_high_watermark() -> None:
    async with EmbeddedCluster(brokers=3, topics={"t": 1}) as cluster:
        cluster.append("t", 0, [b"1", b"2", b"3", b"4"])
        cluster.kill(1, "unnoticed", unflushed=3)
        assert cluster.offsets("t", 0).high_watermark == 4
        cluster.append("t", 0, [b"5"])
        assert cluster.offsets("t", 0).high_watermark == 4


def test_requests_that_have_waited_are_freed_at_once() -> None:
    """Cycles made the collection at the end of a simulated seed a tenth of its time."""

    async def scenario() -> int:
        servers = world.cluster.bootstrap_servers
        async with AIOKafkaConsumer("t", bootstrap_servers=servers, fetch_max_wait_ms=100):
            await asyncio.sleep(20)
            return sum(isinstance(one, DelayedOperation) for one in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        with simulate(1, brokers=1, topics={"t": 1}) as world:
            assert world.run(scenario) <= 2, "those that wait now"
    finally:
        gc.enable()
