"""Captured requests, sent again to the embedded cluster; its responses equal the captured ones.

Each test builds the state that the real broker had, from the vectors themselves, and sends the
captured requests byte by byte. Only the order within a response, ports and compressed bytes may
differ.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from aiokafka08.protocol import api
from aiokafka08.protocol.compression import Codec, decompress
from aiokafka08.protocol.requests.fetch import FetchRequest, FetchResponse
from aiokafka08.protocol.requests.groups import GroupCoordinatorRequest, GroupCoordinatorResponse
from aiokafka08.protocol.requests.metadata import MetadataResponse
from aiokafka08.protocol.requests.produce import ProduceRequest
from aiokafka08.protocol.requests.registry import APIS
from aiokafka08.testing import EmbeddedCluster
from aiokafka08.testing.message_sets import walk_entries
from tests.conformance.contract.wire.requests import commit, metadata
from tests.conformance.contract.wire.wire_client import WireClient
from tests.protocol.entries import entries
from tests.support.paths import ROOT

FOLDER = ROOT / "tests/protocol/vectors"


@dataclass
class Vector:
    raw: dict[str, Any]

    @property
    def request(self) -> type[api.Request[Any]]:
        return APIS[self.raw["api"]]

    @property
    def layout(self) -> int:
        return int(self.raw["response_layout"].removeprefix("v"))

    @property
    def topic(self) -> str:
        topics = self.raw["request"].get("topics") or [""]
        first = topics[0]
        return first if isinstance(first, str) else first[0]

    def send_to(self, wire: WireClient) -> Any:
        """Send the captured bytes and return the embedded broker's response."""
        wire.socket.sendall(bytes.fromhex(self.raw["request_hex"]))
        frame = wire.read_frame()
        assert frame[:4] == self.captured[4:8]
        return api.decode_response(self.request, self.layout, frame)

    @property
    def captured(self) -> bytes:
        return bytes.fromhex(self.raw["response_hex"])

    @property
    def captured_response(self) -> Any:
        """Return the real broker's response."""
        return api.decode_response(self.request, self.layout, self.captured[4:])


def vectors(file: str, broker: str, topic: str | None = None) -> list[Vector]:
    found = [Vector(raw) for raw in json.loads((FOLDER / f"{file}.json").read_text())["vectors"]]
    return [
        vector
        for vector in found
        if vector.raw["broker"] == broker and topic in (None, vector.topic)
    ]


def comparable(response: Any) -> Any:
    """Return a response without the parts that may differ."""
    match response:
        case MetadataResponse():
            for broker in response.brokers:
                broker.port = 0
            for state in response.topics:
                state.partitions.sort(key=lambda one: one.partition)
            response.topics.sort(key=lambda one: one.topic)
        case GroupCoordinatorResponse():
            pass
        case FetchResponse():
            return response.throttle_time_ms, {
                (topic.topic, one.partition): (
                    one.error_code,
                    one.high_watermark,
                    opened(one.message_set),
                )
                for topic in response.topics
                for one in topic.partitions
            }
        case _ if hasattr(response, "topics"):
            for topic in response.topics:
                topic.partitions.sort(key=lambda one: one.partition)
            response.topics.sort(key=lambda one: one.topic)
    return response


def opened(message_set: Any) -> list[object]:
    """Return the whole entries, with the messages of wrappers in place of compressed bytes."""
    found: list[object] = []
    for entry in entries(message_set):
        assert entry.crc_ok
        if entry.codec and entry.magic == 0:
            assert entry.value is not None
            inner = tuple(entries(decompress(Codec(entry.codec), entry.value, 1 << 20)))
            found.append((entry.offset, entry.attributes, entry.key, inner))
        else:
            found.append(entry)
    return found


def check(vector: Vector, wire: WireClient) -> None:
    ours, theirs = vector.send_to(wire), vector.captured_response
    if vector.request is FetchRequest and "cut" not in vector.raw["description"]:
        # The position of a cut after a wrapper depends on its compressed size.
        assert comparable(ours) == comparable(theirs), vector.raw["description"]
    elif vector.request is FetchRequest:
        assert comparable(ours)[1].keys() == comparable(theirs)[1].keys()
    else:
        assert comparable(ours) == comparable(theirs), vector.raw["description"]


def fill(cluster: EmbeddedCluster, topic: str, upto: int, log: bytes) -> None:
    """Append what the real log had before offset `upto` and no vector produced."""
    at = cluster.offsets(topic, 0).end
    for offset, message in walk_entries(log):
        if at <= offset < upto:
            entry = struct.pack(">qi", offset, len(message)) + bytes(message)
            cluster.append_raw(topic, 0, entry, offset + 1)
    assert cluster.offsets(topic, 0).end == upto


@pytest.fixture
def vec() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(1, "0.8.2", {"vec": 1}, message_max_bytes=2000) as cluster:
        yield cluster


def address(cluster: EmbeddedCluster, node: int = 0) -> tuple[str, int]:
    return cluster.nodes[node].host, cluster.nodes[node].port


def test_produce_fetch_and_list_offsets_of_0_8_2_2(vec: EmbeddedCluster) -> None:
    fetches = vectors("fetch", "0.8.2.2", "vec")
    log = bytes(fetches[0].captured_response.topics[0].partitions[0].message_set)
    with WireClient(address(vec)) as wire:
        for vector in vectors("produce", "0.8.2.2", "vec"):
            offset = vector.captured_response.topics[0].partitions[0].offset
            if offset >= 0:
                fill(vec, "vec", offset, log)
            check(vector, wire)
        assert vec.offsets("vec", 0).end == 25
        for vector in fetches + vectors("list_offsets", "0.8.2.2", "vec"):
            check(vector, wire)


def test_produce_and_fetch_of_0_8_1_1() -> None:
    with EmbeddedCluster(1, "0.8.1", {"vec": 3}) as cluster, WireClient(address(cluster)) as wire:
        for file in ("produce", "fetch"):
            for vector in vectors(file, "0.8.1.1"):
                check(vector, wire)


def test_produce_and_fetch_of_0_9_0_1() -> None:
    with EmbeddedCluster(1, "0.9", {"vec": 3}) as cluster, WireClient(address(cluster)) as wire:
        for file in ("produce", "fetch"):
            for vector in vectors(file, "0.9.0.1"):
                check(vector, wire)


def test_list_offsets_of_0_8_0() -> None:
    with EmbeddedCluster(1, "0.8.0", {"vec": 3}) as cluster, WireClient(address(cluster)) as wire:
        for vector in vectors("list_offsets", "0.8.0"):
            check(vector, wire)


def test_follower_of_0_8_2_2() -> None:
    with (
        EmbeddedCluster(3, "0.8.2", {"rf3": 1}) as cluster,
        WireClient(address(cluster, 1)) as wire,
    ):
        for file in ("fetch", "list_offsets"):
            [vector] = vectors(file, "0.8.2.2", "rf3")
            check(vector, wire)


def test_produce_times_out() -> None:
    with EmbeddedCluster(3, "0.8.2", {"rf3": 1}) as cluster, WireClient(address(cluster)) as wire:
        cluster.append("rf3", 0, [b""] * 679)
        [vector] = vectors("produce", "0.8.2.2", "rf3")
        check(vector, wire)


def test_isr_shrinks_while_produce_waits() -> None:
    with EmbeddedCluster(3, "0.8.2") as cluster:
        cluster.create_topic("mi2", 2, 2, {"min.insync.replicas": "2"})
        cluster.append("mi2", 1, [b"before"])
        [vector] = vectors("produce", "0.8.2.2", "mi2")
        with WireClient(address(cluster, 1)) as wire:
            cluster.kill(2, then="unnoticed")
            items = cluster.next_request(ProduceRequest)
            wire.socket.sendall(bytes.fromhex(vector.raw["request_hex"]))
            items.result(5)
            cluster.notice(2)
            response = api.decode_response(ProduceRequest, 0, wire.read_frame())
            assert comparable(response) == comparable(vector.captured_response)


@pytest.mark.parametrize(
    ("broker", "line", "descriptions"),
    [
        ("0.8.0", "0.8.0", ("known",)),
        ("0.8.2.2", "0.8.2", ("known", "one invalid", "same topic twice")),
        ("0.9.0.1", "0.9", ("known", "0.9: only the invalid")),
    ],
)
def test_metadata_of_each_line(broker: str, line: str, descriptions: tuple[str, ...]) -> None:
    partitions = 1 if line == "0.8.2" else 3
    with (
        EmbeddedCluster(1, line, {"vec": partitions}) as cluster,
        WireClient(address(cluster)) as wire,
    ):
        found = [
            vector
            for vector in vectors("metadata", broker)
            if vector.raw["description"].startswith(descriptions)
        ]
        assert len(found) == len(descriptions)
        for vector in found:
            check(vector, wire)


def test_metadata_of_empty_cluster() -> None:
    with EmbeddedCluster(1, "0.8.2") as cluster, WireClient(address(cluster)) as wire:
        check(vectors("metadata", "0.8.2.2")[0], wire)


def test_metadata_v1_of_0_10_2_2() -> None:
    with EmbeddedCluster(1, "0.10", {"good": 3}) as cluster, WireClient(address(cluster)) as wire:
        [vector] = vectors("metadata", "0.10.2.2")
        check(vector, wire)


def test_metadata_with_dead_brokers() -> None:
    by_topic = {vector.topic: vector for vector in vectors("metadata", "0.8.2.2")}
    with EmbeddedCluster(3, "0.8.2", {"other": 1}) as cluster, WireClient(address(cluster)) as wire:
        check(by_topic["vec-new"], wire)
        cluster.create_topic("mi2", 3, 2)
        cluster.kill(1)
        ours, theirs = by_topic["mi2"].send_to(wire), by_topic["mi2"].captured_response
        assert [broker.node_id for broker in ours.brokers] == [0, 2]
        assert {one.error_code for one in ours.topics[0].partitions} >= {9}
        for one in ours.topics[0].partitions + theirs.topics[0].partitions:
            assert one.leader >= 0
            assert 1 not in one.replicas
            assert 1 not in one.isr
    with EmbeddedCluster(3, "0.8.2", default_replication_factor=2) as cluster:
        cluster.create_topic("good", 1, 1)
        cluster.kill(1)
        cluster.kill(2)
        with WireClient(address(cluster)) as wire:
            check(by_topic["cannot"], wire)
            last = vectors("metadata", "0.8.2.2")[-1]
            check(last, wire)


def test_offsets_and_coordinators() -> None:
    with EmbeddedCluster(1, "0.8.1", {"vec": 2}) as cluster, WireClient(address(cluster)) as wire:
        for vector in vectors("offsets_and_coordinator", "0.8.1.1"):
            check(vector, wire)
    first, null_group, nothing, kept, no_topics, elsewhere, without_topics = vectors(
        "offsets_and_coordinator", "0.8.2.2"
    )
    with EmbeddedCluster(1, "0.8.2", {"vec": 1}) as cluster, WireClient(address(cluster)) as wire:
        check(first, wire)
        check(nothing, wire)
        commit(wire, "grp", "vec", 12, "métadonnée", version=1)
        check(kept, wire)
        check(no_topics, wire)
    for vector, topics in ((null_group, {"vec": 1}), (without_topics, {})):
        with EmbeddedCluster(1, "0.8.2", topics) as cluster, WireClient(address(cluster)) as wire:
            check(vector, wire)
    with EmbeddedCluster(3, "0.8.2", {"rf3": 1}) as cluster:
        with WireClient(address(cluster)) as wire:
            wire.request(GroupCoordinatorRequest("cg"))
            metadata(wire)
        coordinator = cluster.coordinator("cg")
        for node in {0, 1, 2} - {coordinator}:
            with WireClient(address(cluster, node)) as wire:
                check(elsewhere, wire)
    with EmbeddedCluster(1, "0.9", {"vec": 3}) as cluster, WireClient(address(cluster)) as wire:
        wire.request(GroupCoordinatorRequest("grp"))
        commit(wire, "grp", "vec", 2, "m2", version=1)
        commit(wire, "grp", "vec", 0, "", partition=1, version=1)
        [vector] = vectors("offsets_and_coordinator", "0.9.0.1")
        check(vector, wire)


def test_probes() -> None:
    for broker, line in (("0.8.2.2", "0.8.2"), ("0.9.0.1", "0.9")):
        with EmbeddedCluster(1, line, {"vec": 1}) as cluster, WireClient(address(cluster)) as wire:
            [vector] = vectors("probes", broker)
            check(vector, wire)
