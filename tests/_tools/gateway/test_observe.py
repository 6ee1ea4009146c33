"""`observe`: all passes as it is, and clients that Kafka 4 would strand are listed."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from aiokafka08._core.server.sasl import SaslUsers
from aiokafka08._tools.gateway import gateway as gateway_module
from aiokafka08._tools.gateway.check import CheckCode, judge
from aiokafka08._tools.gateway.config import read_settings
from aiokafka08._tools.gateway.options import FLAG_NAMES, gateway_options
from aiokafka08._tools.gateway.target_sample import TargetSample, sample_target
from aiokafka08.errors import IllegalArgumentError
from aiokafka08.protocol.api import Topic, decode_response
from aiokafka08.protocol.message_set import encode_entry
from aiokafka08.protocol.requests.api_versions import ApiVersionsRequest
from aiokafka08.protocol.requests.fetch import FetchPartition, FetchRequest
from aiokafka08.protocol.requests.groups import GroupCoordinatorRequest
from aiokafka08.protocol.requests.metadata import MetadataRequest
from aiokafka08.protocol.requests.produce import ProducePartition, ProduceRequest
from aiokafka08.protocol.requests.sasl_handshake import SaslHandshakeRequest
from aiokafka08.testing import EmbeddedCluster
from tests._tools.gateway.gateways import (
    HOST,
    RawClient,
    ScriptedBroker,
    connected,
    first_port,
    running,
)
from tests.support.waiting import eventually

pytestmark = pytest.mark.fast


def produce(acks: int) -> ProduceRequest:
    part = ProducePartition(0, encode_entry(0, None, b"tea"))
    return ProduceRequest(acks, 1000, [Topic("t", [part])])


def fetch(replica_id: int = -1) -> FetchRequest:
    return FetchRequest(replica_id, 100, 1, [Topic("t", [FetchPartition(0, 0, 1 << 20)])])


async def test_old_requests_pass_and_their_client_is_listed() -> None:
    async with (
        EmbeddedCluster(version="0.10", topics={"t": 1}) as cluster,
        connected(cluster.bootstrap_servers, is_observing=True) as (gateway, client),
    ):
        client.send_request(produce(0), 1)  # has no response
        assert (await client.call(produce(1), 0)).topics[0].partitions[0].error_code == 0
        assert b"tea" in bytes((await client.call(fetch(), 0)).topics[0].partitions[0].message_set)
        metadata = await client.call(MetadataRequest(["t"]), 0)
        assert metadata.brokers[0].port == first_port(gateway)
        assert cluster.offsets("t", 0).end == 2
        (row,) = gateway.clients.rows()
    assert row["needs_gateway"]
    assert row["requests"] == {
        "stranded": {"Produce": {"0": 1, "1": 1}, "Fetch": {"0": 1}},
        "passed": {"Metadata": {"0": 1}},
    }


async def test_client_of_today_is_not_stranded() -> None:
    ranges = ((0, 0, 11), (1, 0, 17), (4, 0, 7), (36, 0, 2), (999, 0, 1))
    body = b"".join(struct.pack(">hhh", *one) for one in ranges)
    answer = struct.pack(">hi", 0, len(ranges)) + body
    async with (
        ScriptedBroker(lambda frame: frame[4:8] + answer) as broker,
        connected(broker.address, is_observing=True) as (gateway, client),
    ):
        found = (await client.call(ApiVersionsRequest(), 0)).api_versions
        assert [(one.api_key, one.min_version, one.max_version) for one in found] == [
            (0, 0, 11),
            (1, 0, 17),
            (36, 0, 1),
        ]
        (row,) = gateway.clients.rows()
    assert not row["needs_gateway"]


async def test_requests_that_change_the_cluster_pass() -> None:
    async with (
        ScriptedBroker(lambda frame: frame[4:8] + b"yes") as broker,
        connected(broker.address, is_observing=True) as (_, client),
    ):
        for key, version in ((19, 0), (19, 5), (20, 0), (32, 0), (33, 0)):
            client.send(struct.pack(">hhih", key, version, 7, -1))
            assert await client.frame() == b"\0\0\0\7yes"


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack(">hhihi", 1, 0, 1, -1, 2),  # Fetch of a replica
        struct.pack(">hhihi", 2, 0, 1, -1, 2),
        struct.pack(">hhih", 4, 0, 1, -1),  # LeaderAndIsr
        struct.pack(">hhih", 0, 99, 1, -1),
    ],
)
async def test_requests_of_brokers_and_unknown_ones_do_not_pass(frame: bytes) -> None:
    async with (
        ScriptedBroker(lambda frame: b"") as broker,
        connected(broker.address, is_observing=True) as (_, client),
    ):
        client.send(frame)
        assert await client.is_closed()
        assert not broker.requests


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"topics.include": ("a",)}, "--topics"),
        ({"groups.exclude": ("a",)}, "--exclude-groups"),
        ({"read_only": True}, "--read-only"),
        ({"isolation": "read_committed"}, "--isolation"),
    ],
)
def test_nothing_is_limited_meanwhile(given: dict[str, Any], name: str) -> None:
    with pytest.raises(IllegalArgumentError, match=f"--observe and {name}: .* Leave one out"):
        read_settings(None, {"to": "kafka:9092", "observe": True, **given})


def test_file_says_it(tmp_path: Path) -> None:
    path = tmp_path / "gateway.toml"
    path.write_text('to = "kafka:9092"\nobserve = true\n')
    assert read_settings(path, {}).options.is_observing


def test_target_of_4_x_is_a_finding() -> None:
    options = gateway_options(f"{HOST}:1", observe=True)
    ranges = {0: (3, 13), 1: (4, 18), 2: (1, 11), 8: (2, 10), 9: (1, 10)}
    sample = TargetSample((HOST, 1), ranges, {})
    found = {one.code: one for one in judge(sample, options, FLAG_NAMES)}
    assert "refuses the old requests" in found[CheckCode.VERSIONS].why


async def test_target_before_2_1_is_no_finding() -> None:
    """Nothing is translated, so it needs no newer versions."""
    async with EmbeddedCluster(version="0.10", topics={"t": 1}) as cluster:
        options = gateway_options(cluster.bootstrap_servers, observe=True)
        sample = await sample_target(options.network, is_quick=False)
        found = {one.code: one for one in judge(sample, options, FLAG_NAMES)}
        assert not found.keys() & {CheckCode.UNSUPPORTED, CheckCode.VERSIONS}
        assert "Kafka 0.10.1 or 0.10.2" in found[CheckCode.TARGET].why
        options = gateway_options(cluster.bootstrap_servers)
        assert CheckCode.UNSUPPORTED in {one.code for one in judge(sample, options, FLAG_NAMES)}


OLD = pytest.mark.parametrize("version", ["0.8.0", "0.8.2", "0.9"])


@OLD
async def test_cluster_before_0_10_is_for_observing_only(version: str) -> None:
    async with EmbeddedCluster(version=version, topics={"t": 1}) as cluster:
        options = gateway_options(cluster.bootstrap_servers, observe=True)
        sample = await sample_target(options.network, is_quick=False)
        found = {one.code: one for one in judge(sample, options, FLAG_NAMES)}
        assert found[CheckCode.TARGET].why.startswith(f"Kafka {version[:3]} by its versions")
        assert not found.keys() & {CheckCode.UNSUPPORTED, CheckCode.VERSIONS}
        options = gateway_options(cluster.bootstrap_servers)
        assert CheckCode.UNSUPPORTED in {one.code for one in judge(sample, options, FLAG_NAMES)}


@OLD
async def test_all_passes_to_brokers_before_0_10(version: str) -> None:
    async with (
        EmbeddedCluster(version=version, topics={"t": 1}) as cluster,
        connected(cluster.bootstrap_servers, is_observing=True) as (gateway, client),
    ):
        client.send_request(produce(0), 0)
        assert (await client.call(produce(1), 0)).topics[0].partitions[0].error_code == 0
        assert b"tea" in bytes((await client.call(fetch(), 0)).topics[0].partitions[0].message_set)
        for asked in (0, 1):  # whichever is asked for, the answer has layout 0
            client.send_request(MetadataRequest(["t"]), asked)
            metadata = decode_response(MetadataRequest, 0, await client.frame())
            assert metadata.brokers[0].port == first_port(gateway)
        if version != "0.8.0":

            async def is_named() -> bool:
                named = await client.call(GroupCoordinatorRequest("g"), 0)
                return named.port == first_port(gateway)

            await eventually(is_named)
        (row,) = gateway.clients.rows()
    assert row["requests"]["stranded"] == {"Produce": {"0": 2}, "Fetch": {"0": 1}}


@OLD
async def test_brokers_before_0_10_do_not_know_later_requests(version: str) -> None:
    """0.8 closes the connection; 0.9 is silent, and answers what comes next."""
    async with (
        EmbeddedCluster(version=version, topics={"t": 1}) as cluster,
        connected(cluster.bootstrap_servers, is_observing=True) as (gateway, client),
    ):
        client.send_request(ApiVersionsRequest(), 0)
        if version == "0.9":
            client.send_request(MetadataRequest(["t"]), 0, correlation_id=2)
            assert (await client.frame())[:4] == b"\0\0\0\2"
        else:
            assert await client.is_closed()
        (row,) = gateway.clients.rows()
    assert row["requests"]["refused"] == {"ApiVersions": {"0": 1}}
    assert not row["needs_gateway"]


def silent(frame: bytes) -> bytes:
    """Answer as a broker that offers nothing."""
    return frame[4:8] + struct.pack(">hi", 0, 0)


async def test_broker_of_0_9_never_gets_what_makes_it_lose_responses() -> None:
    """See docs/brokers.md 2.2."""
    async with ScriptedBroker(silent) as broker:
        broker.is_of_0_9 = True
        await sample_target(gateway_options(broker.address).network, is_quick=False)
        async with connected(broker.address, is_observing=True) as (_, client):
            for key in (17, 18, 19, 22, 32, 36):
                client.send(struct.pack(">hhih", key, 0, key, -1))
            client.send(struct.pack(">hhih", 16, 0, 16, -1))
            assert (await client.frame())[:4] == struct.pack(">i", 16)
        assert [frame[1] for frame in broker.requests] == [16]


async def test_broker_of_another_release_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_module, "WATCH_S", 0.05)
    async with ScriptedBroker(silent) as broker:
        broker.is_of_0_9 = True
        async with running(broker.address, is_observing=True) as gateway:

            async def answered() -> int:
                """Return which of two requests the broker answers first."""
                async with await RawClient.connect(first_port(gateway)) as client:
                    for key in (18, 16):
                        client.send(struct.pack(">hhih", key, 0, key, -1))
                    return int.from_bytes((await client.frame())[:4], "big")

            async def is_of_0_9() -> bool:
                return await answered() == 16

            async def is_newer() -> bool:
                return await answered() == 18

            assert await is_of_0_9()
            broker.is_of_0_9 = False
            await eventually(is_newer)
            broker.is_of_0_9 = True
            await eventually(is_of_0_9)


async def test_release_is_asked_again_after_a_lost_connection() -> None:
    """A broker is upgraded faster than the gateway looks."""
    async with ScriptedBroker(silent) as broker:
        broker.is_of_0_9 = True
        async with connected(broker.address, is_observing=True) as (gateway, client):
            client.send(struct.pack(">hhih", 16, 0, 16, -1))
            await client.frame()
            broker.is_of_0_9 = False
            broker.end_responses()
            assert await client.is_closed()
            async with await RawClient.connect(first_port(gateway)) as again:
                again.send(struct.pack(">hhih", 18, 0, 18, -1))
                assert (await again.frame())[:4] == struct.pack(">i", 18)


@pytest.mark.parametrize(("version", "first"), [("0.9", 17), ("0.10", 18)])
async def test_release_is_known_before_a_client_logs_in(version: str, first: int) -> None:
    users = SaslUsers({"alice": "alice-secret"})
    async with (
        EmbeddedCluster(version=version, topics={"t": 1}) as cluster,
        connected(cluster.bootstrap_servers, is_observing=True, users=users) as (_, client),
    ):
        client.send_request(ApiVersionsRequest(), 0, correlation_id=18)
        client.send_request(SaslHandshakeRequest("PLAIN"), 0, correlation_id=17)
        assert int.from_bytes((await client.frame())[:4], "big") == first
