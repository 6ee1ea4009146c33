"""Other gateways in the lists of brokers, and the entry for clients that come from them."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aiokafka08 import AIOKafkaProducer
from aiokafka08._tools.gateway.addresses import read_addresses, replace_addresses
from aiokafka08._tools.gateway.gateway import Gateway
from aiokafka08._tools.gateway.layouts import apis
from aiokafka08._tools.gateway.messages import message_of
from aiokafka08._tools.gateway.options import gateway_options
from aiokafka08._tools.gateway.peers import FIRST_ID, peer_brokers
from aiokafka08._tools.gateway.port_table import PortTable
from aiokafka08._tools.gateway.target_sample import PeerAnswer, ask_peers
from aiokafka08.protocol.requests.groups import (
    GroupCoordinatorRequest,
    GroupProtocol,
    JoinGroupRequest,
    ListGroupsRequest,
)
from aiokafka08.protocol.requests.metadata import MetadataRequest
from aiokafka08.testing import EmbeddedCluster
from tests._tools.gateway.gateways import (
    HOST,
    RawClient,
    ScriptedBroker,
    connected,
    first_port,
    running,
)
from tests.brokers.ports import free_ports
from tests.support.waiting import eventually

pytestmark = pytest.mark.fast

METADATA, DESCRIBE_CLUSTER = 3, 60
ADDED = {FIRST_ID: ("gateway-2", 9092), FIRST_ID + 1: ("gateway-3", 9192)}


@pytest.mark.parametrize("key", [METADATA, DESCRIBE_CLUSTER])
def test_peers_stand_in_lists_of_brokers_in_each_version(key: int) -> None:
    """Written by the description of the message: only the list has grown."""
    api = apis()[key]
    id_name = "NodeId" if key == METADATA else "BrokerId"

    def frame(version: int, brokers: dict[int, tuple[str, int]]) -> bytes:
        made = [
            {id_name: node, "Host": host, "Port": port, "Rack": None}
            for node, (host, port) in brokers.items()
        ]
        topic = {"ErrorCode": 0, "Name": "t", "Partitions": [{"ReplicaNodes": [1, 2]}]}
        values = {"Brokers": made, "ClusterId": "x", "ControllerId": 1, "Topics": [topic]}
        tags = b"\0" if version >= api.flexible else b""
        return b"\0\0\0\x07" + tags + b"".join(message_of(api, "response", version).write(values))

    for version in api.versions:
        for count in (1, 2, 125, 126, 127):  # a varint grows
            nodes = {node: (f"kafka-{node}", 9092) for node in range(count)}
            given = memoryview(frame(version, nodes))
            found = read_addresses(api, version, given)
            assert found is not None
            made = replace_addresses(
                api, version, given, found, lambda _, *address: address, lambda: ADDED
            )
            assert b"".join(made) == frame(version, nodes | ADDED)


def test_ids_of_peers_are_none_of_a_broker() -> None:
    """A gateway has the same id in the lists of all."""
    peers = ["g1:9092, g2:9092", "g3:9092"]
    made = [
        gateway_options("kafka:9092", f"{HOST}:9092", advertise=name, peers=peers)
        for name in ("g1", "g2")
    ]
    addresses = [("g1", 9092), ("g2", 9092), ("g3", 9092)]
    for options in made:
        # A gateway that has seen other brokers than the others gives the same ids.
        for known in ([], [0, 1], [1001, 1002]):
            ids = range(FIRST_ID, FIRST_ID + 3)
            assert peer_brokers(options, known) == dict(zip(ids, addresses, strict=True))
        moved = dict(zip((FIRST_ID + 1, FIRST_ID + 3, FIRST_ID + 4), addresses, strict=True))
        assert peer_brokers(options, [FIRST_ID, FIRST_ID + 2]) == moved


async def test_peer_has_no_id_of_a_broker_that_joins() -> None:
    nodes: dict[int, int] = {}
    async with (
        ScriptedBroker(lambda frame: b"") as broker,
        running(
            broker.address,
            listen=(HOST, free_ports()),
            peers=(("g1", 9092), ("g2", 9092)),
        ) as gateway,
        await RawClient.connect(first_port(gateway)) as client,
    ):
        broker.answer = lambda frame: frame[4:8] + broker.metadata(nodes)
        for joined in ({0}, {0, FIRST_ID}):
            nodes |= dict.fromkeys(joined, broker.port)
            found = (await client.call(MetadataRequest([]), 1)).brokers
            assert len({one.node_id for one in found}) == len(joined) + 2
            assert {one.host for one in found if one.node_id in joined} == {HOST}


async def test_names_lead_to_gateways_that_listen_on_addresses() -> None:
    """As where programs keep the names of brokers that were there before."""
    ports = [free_ports(), free_ports()]
    peers = tuple(("localhost", port) for port in ports)
    common: dict[str, Any] = {"advertise": "localhost", "peers": peers, "is_observing": True}
    async with (
        EmbeddedCluster(version="0.10", topics={"t": 1}) as cluster,
        running(cluster.bootstrap_servers, listen=(HOST, ports[0]), **common) as first,
        running(cluster.bootstrap_servers, listen=(HOST, ports[1]), **common) as second,
    ):
        for gateway, port in ((first, ports[0]), (second, ports[1])):
            async with await RawClient.connect(port) as client:
                found = (await client.call(MetadataRequest([]), 1)).brokers
            own = {0: ("localhost", first_port(gateway))}
            named = {one.node_id: (one.host, one.port) for one in found}
            assert named == own | dict(enumerate(peers, FIRST_ID))
        names = ",".join(f"localhost:{port}" for port in ports)
        options = gateway_options(
            cluster.bootstrap_servers, f"{HOST}:{ports[0]}", advertise="localhost", peers=[names]
        )
        answers = await ask_peers(options)
        assert list(answers) == [peers[1]]
        assert isinstance(answers[peers[1]], PeerAnswer)
        async with AIOKafkaProducer(bootstrap_servers=f"localhost:{ports[0]}") as producer:
            assert (await producer.send_and_wait("t", b"tea")).offset == 0


@asynccontextmanager
async def two_gateways(targets: str) -> AsyncIterator[tuple[Gateway, Gateway]]:
    ports = [free_ports(), free_ports()]
    peers = tuple((HOST, port) for port in ports)
    async with (
        running(targets, listen=peers[0], peers=peers) as first,
        running(targets, listen=peers[1], peers=peers) as second,
    ):
        yield first, second


async def brokers(port: int, version: int = 1) -> dict[int, int]:
    async with await RawClient.connect(port) as client:
        metadata = await client.call(MetadataRequest(None if version else []), version)
    return {broker.node_id: broker.port for broker in metadata.brokers}


async def test_each_gateway_names_the_other_one() -> None:
    async with (
        EmbeddedCluster(2, version="0.10", topics={"t": 2}) as cluster,
        two_gateways(cluster.bootstrap_servers) as (first, second),
    ):
        ports = [min(gateway.ports.values()) - 1 for gateway in (first, second)]
        entries = dict(zip((FIRST_ID, FIRST_ID + 1), ports, strict=True))
        for version in (0, 1, 2):
            assert await brokers(first.ports[0], version) == first.ports | entries
            assert await brokers(second.ports[1], version) == second.ports | entries
        assert await brokers(entries[FIRST_ID + 1]) == second.ports | entries


async def joined(client: RawClient, group: str) -> Any:
    """Be a member of a group, at its coordinator."""

    async def is_coordinator() -> bool:
        response = await client.call(GroupCoordinatorRequest(group), 0)
        return not response.error_code

    await eventually(is_coordinator)
    request = JoinGroupRequest(group, 10_000, "", "consumer", [GroupProtocol("range", b"")])
    return await client.call(request, 0)


async def test_groups_are_listed_by_brokers_and_not_by_the_entry() -> None:
    async with (
        EmbeddedCluster(1, version="0.10", topics={"t": 1}) as cluster,
        two_gateways(cluster.bootstrap_servers) as (first, _),
        await RawClient.connect(first.ports[0]) as client,
    ):
        assert not (await joined(client, "g")).error_code
        listed = {}
        for node, port in (await brokers(first.ports[0])).items():
            async with await RawClient.connect(port) as other:
                found = await other.call(ListGroupsRequest(), 0)
                assert not found.error_code
                listed[node] = [one.group for one in found.groups]
        assert listed == {0: ["g"], FIRST_ID: [], FIRST_ID + 1: []}


@pytest.mark.parametrize(("key", "version"), [(16, 0), (16, 5), (35, 1), (35, 4), (66, 2)])
async def test_entry_has_nothing_of_what_is_asked_of_all_brokers(key: int, version: int) -> None:
    port = free_ports()
    async with (
        ScriptedBroker(lambda frame: frame[4:8] + b"answer") as broker,
        running(broker.address, listen=(HOST, port), peers=(("g2", 9092),)) as gateway,
        await RawClient.connect(port) as at_entry,
        await RawClient.connect(gateway.ports[0]) as at_broker,
    ):
        for client in (at_entry, at_broker):
            client.send(struct.pack(">hhih", key, version, 5, -1) + bytes(8))
        api = apis()[key]
        tags = b"\0" if version >= api.flexible else b""
        nothing = b"".join(message_of(api, "response", version).write({}))
        assert await at_entry.frame() == b"\0\0\0\5" + tags + nothing
        assert await at_broker.frame() == b"\0\0\0\5answer"


async def test_entry_leads_to_a_broker_that_can_be_reached() -> None:
    """It is closed while there is none."""
    async with (
        EmbeddedCluster(2, version="0.10", topics={"t": 2}) as cluster,
        connected(
            cluster.bootstrap_servers, listen=(HOST, free_ports()), peers=(("g2", 9092),)
        ) as (
            gateway,
            _,
        ),
    ):
        entry = min(gateway.ports.values()) - 1

        async def is_open() -> bool:
            try:
                return len(await brokers(entry)) > 1
            except (OSError, EOFError):
                return False

        cluster.kill(0)
        await eventually(is_open)
        cluster.kill(1)

        async def is_closed() -> bool:
            return not await is_open()

        await eventually(is_closed)
        assert not gateway.is_listening
        cluster.restart(0)
        await eventually(is_open)


async def test_entry_needs_its_port() -> None:
    async with ScriptedBroker(lambda frame: None) as broker:
        gateway = Gateway(
            gateway_options(broker.address, broker.address, peers=["g2:9092"]), PortTable()
        )
        with pytest.raises(OSError, match="in use"):
            await gateway.start()
