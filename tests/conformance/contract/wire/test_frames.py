"""Connections, frames, and requests that a line doesn't know (docs/brokers.md 2 and 3)."""

from __future__ import annotations

import socket
import struct
import time
from typing import Any

import pytest

from aiokafka08.protocol import api
from aiokafka08.protocol.api import ApiKey, Topic, encode_request
from aiokafka08.protocol.requests.api_versions import ApiVersionsRequest
from aiokafka08.protocol.requests.committed_offsets import OffsetFetchRequest
from aiokafka08.protocol.requests.fetch import FetchRequest
from aiokafka08.protocol.requests.groups import (
    DescribeGroupsRequest,
    GroupError,
    HeartbeatRequest,
    ListGroupsRequest,
)
from aiokafka08.protocol.requests.list_offsets import ListOffsetsPartition, ListOffsetsRequest
from aiokafka08.protocol.requests.metadata import MetadataRequest
from aiokafka08.protocol.requests.produce import ProduceRequest
from aiokafka08.protocol.requests.sasl_handshake import SaslHandshakeRequest
from aiokafka08.testing import EmbeddedCluster
from aiokafka08.testing.broker_lines import BadRequestPolicy, LineRules
from tests.conformance.contract.targets import on_lines
from tests.conformance.contract.wire.requests import (
    fetch_request,
    find_coordinator,
    metadata,
    plain,
    produce_request,
)
from tests.conformance.contract.wire.target import Target
from tests.conformance.contract.wire.wire_client import WireClient
from tests.support.names import unique_name

NOT_COORDINATOR, UNKNOWN_MEMBER = 16, 25


def raw(wire: WireClient, body: bytes) -> None:
    wire.socket.sendall(len(body).to_bytes(4, "big") + body)


def header(key: int, version: int = 0, correlation_id: int = 7) -> bytes:
    return struct.pack(">hhih4s", key, version, correlation_id, 4, b"peer")


def expect(target: Target, wire: WireClient, reaction: BadRequestPolicy) -> None:
    if reaction is BadRequestPolicy.CLOSE:
        assert wire.is_closed()
    else:
        assert wire.is_silent()


# A real 0.9 that gets an unreadable request loses responses of its other connections (brokers.md
# 2.2), those of other tests too. Therefore no test here sends one to 0.9.
def responds_or_closes(line: LineRules) -> bool:
    return line.on_unreadable_request is BadRequestPolicy.CLOSE


@on_lines(responds_or_closes)
@pytest.mark.parametrize("key", [42, 1000, -1])
def test_unknown_api_key(target: Target, wire: WireClient, key: int) -> None:
    raw(wire, header(key))
    expect(target, wire, target.line.on_unreadable_request)


OF_0_10_2_2 = [
    *((0, 0, 2), (1, 0, 3), (2, 0, 1), (3, 0, 2), (4, 0, 0), (5, 0, 0), (6, 0, 3), (7, 1, 1)),
    *((8, 0, 2), (9, 0, 2), (10, 0, 0), (11, 0, 1), (12, 0, 0), (13, 0, 0), (14, 0, 0)),
    *((15, 0, 0), (16, 0, 0), (17, 0, 0), (18, 0, 0), (19, 0, 1), (20, 0, 0)),
]
"""What 0.10.2.2 lists: API, lowest and highest version."""


@on_lines(responds_or_closes)
def test_api_versions_request(target: Target, wire: WireClient) -> None:
    raw(wire, header(ApiKey.API_VERSIONS))
    if ApiKey.API_VERSIONS not in target.line.apis:
        expect(target, wire, target.line.on_unreadable_request)
        return
    response = api.decode_response(ApiVersionsRequest, 0, wire.read_frame())
    assert response.error_code == 0
    assert [
        (one.api_key, one.min_version, one.max_version) for one in response.api_versions
    ] == OF_0_10_2_2
    raw(wire, header(ApiKey.API_VERSIONS, 7))
    response = api.decode_response(ApiVersionsRequest, 0, wire.read_frame())
    assert (response.error_code, response.api_versions) == (35, [])


@on_lines(lambda line: ApiKey.SASL_HANDSHAKE in line.apis)
def test_sasl_handshake_is_refused_without_sasl(wire: WireClient) -> None:
    response = wire.request(SaslHandshakeRequest("PLAIN"))
    assert (response.error_code, response.mechanisms) == (34, ["GSSAPI"])


@pytest.mark.parametrize(
    ("request_", "known"),
    [
        (ListOffsetsRequest(-1, []), ("0.8.0", "0.8.1", "0.8.2", "0.9", "0.10")),
        (OffsetFetchRequest("probe", []), ("0.8.1", "0.8.2", "0.9", "0.10")),
        (HeartbeatRequest("probe", -1, ""), ("0.8.2", "0.9", "0.10")),
        (ListGroupsRequest(), ("0.9", "0.10")),
        (DescribeGroupsRequest([]), ("0.9", "0.10")),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, api.Request) else "",
)
def test_probes_distinguish_the_lines(
    target: Target, wire: WireClient, request_: api.Request, known: tuple[str, ...]
) -> None:
    if target.line.name not in known:
        wire.send(request_)
        expect(target, wire, target.line.on_unreadable_request)
        return
    response = wire.request(request_)
    if isinstance(response, GroupError):
        # The code depends on earlier requests to the broker: the next test distinguishes the two.
        codes = (-1,) if target.line.name == "0.8.2" else (UNKNOWN_MEMBER, NOT_COORDINATOR)
        assert response.error_code in codes


@on_lines(lambda line: not line.heartbeat_is_a_stub and ApiKey.HEARTBEAT in line.apis)
def test_heartbeat_without_group_at_coordinator(wire: WireClient, topic: str) -> None:
    # A broker that isn't the coordinator: `test_an_empty_cluster`, and with three of them.
    group = unique_name("g")
    assert find_coordinator(wire, group).node_id == 0
    deadline = time.monotonic() + 10
    while (
        True
    ):  # a real coordinator needs a moment to load: NotCoordinator before that, then no error
        code = wire.request(HeartbeatRequest(group, -1, "")).error_code
        if code not in (0, NOT_COORDINATOR) or time.monotonic() > deadline:
            break
        time.sleep(0.02)
    assert code == UNKNOWN_MEMBER


@on_lines(responds_or_closes)
@pytest.mark.parametrize(
    ("key", "body"),
    [
        (ApiKey.METADATA, b""),
        (ApiKey.METADATA, struct.pack(">i", -5)),
        (ApiKey.METADATA, struct.pack(">i", 0x7FFFFFFF)),
        (ApiKey.METADATA, struct.pack(">ih", 1, 10) + b"cut"),
        (ApiKey.FETCH, struct.pack(">iii", -1, 100, 1)),
    ],
    ids=["nothing", "count -5", "count max", "cut string", "cut fetch"],
)
def test_cut_body(target: Target, wire: WireClient, key: int, body: bytes) -> None:
    raw(wire, header(key) + body)
    expect(target, wire, target.line.on_unreadable_request)


@on_lines(responds_or_closes)
@pytest.mark.parametrize("body", [b"abc", header(3)[:9]], ids=["3 bytes", "cut header"])
def test_cut_header(target: Target, wire: WireClient, body: bytes) -> None:
    raw(wire, body)
    expect(target, wire, target.line.on_unreadable_request)


@on_lines(responds_or_closes)
def test_empty_frame(target: Target, wire: WireClient) -> None:
    raw(wire, b"")
    expect(target, wire, target.line.on_empty_frame)


@pytest.mark.parametrize("size", [-1, -(2**31), (100 << 20) + 1, 2**31 - 1])
def test_frame_size_out_of_bounds_closes(wire: WireClient, size: int) -> None:
    wire.socket.sendall(size.to_bytes(4, "big", signed=True))
    assert wire.is_closed()


@pytest.mark.parametrize("noise", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\0\x01"])
def test_other_protocol_closes(wire: WireClient, noise: bytes) -> None:
    wire.socket.sendall(noise)
    assert wire.is_closed()


def test_trailing_bytes_are_ignored(wire: WireClient, topic: str) -> None:
    [_size, *rest] = encode_request(MetadataRequest([topic]), 0, 9, "peer")
    raw(wire, b"".join(rest) + b"trailing")
    assert wire.receive(MetadataRequest).topics[0].topic == topic


@pytest.mark.parametrize("correlation_id", [0, -1, 2**31 - 1, -(2**31)])
def test_correlation_ids_are_echoed(wire: WireClient, topic: str, correlation_id: int) -> None:
    raw(wire, header(ApiKey.LIST_OFFSETS, 0, correlation_id) + struct.pack(">ii", -1, 0))
    assert wire.read_frame()[:4] == correlation_id.to_bytes(4, "big", signed=True)


@pytest.mark.parametrize("client_id", [b"\0\0", b"\xff\xff"], ids=["empty", "null"])
def test_client_id_is_accepted(wire: WireClient, client_id: bytes) -> None:
    raw(wire, struct.pack(">hhi", 2, 0, 7) + client_id + struct.pack(">ii", -1, 0))
    assert wire.read_frame()[:4] == (7).to_bytes(4, "big")


def test_pipelined_requests_keep_order(wire: WireClient, topic: str) -> None:
    sent = [wire.send(MetadataRequest([topic])) for _ in range(100)]
    assert [int.from_bytes(wire.read_frame()[:4], "big") for _ in sent] == sent
    for number in range(50):
        wire.send(produce_request(topic, plain(str(number).encode())))
    offsets = [wire.receive(ProduceRequest).topics[0].partitions[0].offset for _ in range(50)]
    assert offsets == list(range(50))


def test_half_closed_connection(target: Target, wire: WireClient, topic: str) -> None:
    # The long poll makes sure that the FIN arrives before the response.
    wire.send(fetch_request(topic, 0, max_wait_ms=150))
    wire.socket.shutdown(socket.SHUT_WR)
    if target.line.responds_after_fin:
        assert wire.receive(FetchRequest).topics
    elif target.real and not wire.is_closed():
        return  # sometimes the response arrives before the close
    assert wire.is_closed()


def test_requests_behind_failed_acks_0_are_lost(
    target: Target, wire: WireClient, topic: str
) -> None:
    requests: list[api.Request[Any]] = [
        produce_request(topic, plain(b"lost"), partition=99, acks=0),
        produce_request(topic, plain(b"behind")),
        MetadataRequest([]),
    ]
    frames = b"".join(
        b"".join(encode_request(one, 0, number, "peer")) for number, one in enumerate(requests)
    )
    wire.socket.sendall(frames)
    assert wire.is_closed()
    with WireClient(target.address(0)) as other:
        request = ListOffsetsRequest(-1, [Topic(topic, [ListOffsetsPartition(0, -1, 1)])])
        assert other.request(request).topics[0].partitions[0].offsets == [0]
        assert metadata(other, [topic]).topics[0].error_code == 0


def test_0_9_is_silent_and_reads_on() -> None:
    with EmbeddedCluster(1, "0.9") as cluster:
        info = cluster.nodes[0]
        for body in (
            header(ApiKey.API_VERSIONS),
            header(ApiKey.HEARTBEAT, 1),
            header(42),
            header(ApiKey.METADATA) + struct.pack(">i", -5),
            struct.pack(">hh", ApiKey.METADATA, 0),
            b"",
        ):
            with WireClient((info.host, info.port)) as wire:
                raw(wire, body)
                assert wire.is_silent(0.05)
                assert wire.request(ListOffsetsRequest(-1, [])).topics == []
