"""Servers with hostile clients: their memory is bounded, and good clients are served.

The first tests let one attack at a time run in this process on an embedded cluster, so that they
can be exact. The last one runs them all against a server in a process of its own, and measures its
memory: the embedded cluster, and the gateway.
"""

from __future__ import annotations

import contextlib
import logging
import select
import struct
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from aiokafka08.protocol import api
from aiokafka08.protocol.api import Topic
from aiokafka08.protocol.compression import Codec
from aiokafka08.protocol.requests.committed_offsets import OffsetFetchRequest
from aiokafka08.protocol.requests.list_offsets import ListOffsetsRequest
from aiokafka08.protocol.requests.metadata import MetadataRequest
from aiokafka08.protocol.requests.produce import ProduceRequest
from aiokafka08.protocol.requests.topics import (
    ConfigEntry,
    CreateTopicsRequest,
    RequestedTopic,
)
from aiokafka08.testing import EmbeddedCluster
from aiokafka08.testing.broker_lines import LINES
from aiokafka08.testing.message_sets import MAX_DECOMPRESSED_BYTES, MAX_REWRITTEN_MESSAGES
from aiokafka08.testing.server import MAX_REQUEST_ITEMS
from tests.conformance.contract.wire.requests import (
    fetch_request,
    find_coordinator,
    metadata,
    plain,
    produce,
    produce_request,
    wrapper,
)
from tests.conformance.contract.wire.wire_client import WireClient
from tests.support.memory import reads_proc, resident_bytes
from tests.testing.hostile_peers import ATTACKS
from tests.testing.hostile_run import SERVERS, attacked, ping

MIB = 1 << 20
PING = ListOffsetsRequest(-1, [])


def address(cluster: EmbeddedCluster) -> tuple[str, int]:
    return cluster.nodes[0].host, cluster.nodes[0].port


@contextlib.contextmanager
def connections(cluster: EmbeddedCluster, count: int) -> Iterator[list[WireClient]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(WireClient(address(cluster))) for _ in range(count)]


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Return a function that returns the warnings that the brokers have logged."""
    caplog.set_level(logging.WARNING, "aiokafka08.testing")
    return lambda: [
        one.getMessage() for one in caplog.records if one.name.startswith("aiokafka08.testing")
    ]


# --- memory ---------------------------------------------------------------------------------------


@reads_proc
def test_announced_sizes_cost_no_memory() -> None:
    with EmbeddedCluster() as cluster, connections(cluster, 200) as peers:
        before = resident_bytes()
        for peer in peers:
            peer.socket.sendall(struct.pack(">i", 100 * MIB) + bytes(10))
        with WireClient(address(cluster)) as good:
            good.request(PING)
        assert resident_bytes() - before < 40 * MIB


def test_connection_that_holds_the_most_is_closed_by_name(
    warnings: Callable[[], list[str]],
) -> None:
    with (
        EmbeddedCluster(max_buffered_bytes=4 * MIB) as cluster,
        connections(cluster, 3) as (good, less, most),
    ):
        good.request(PING)
        less.socket.sendall(struct.pack(">i", 100 * MIB) + bytes(MIB))
        with contextlib.suppress(ConnectionError):
            most.socket.sendall(struct.pack(">i", 100 * MIB) + bytes(8 * MIB))
        assert most.is_closed()
        good.request(PING)
        assert less.is_silent(0.05)
    [text] = warnings()
    assert "node 0: connection 3 from 127.0.0.1" in text
    assert "is closed: it holds" in text
    assert f"max_buffered_bytes={4 * MIB}" in text


def test_unread_responses_count(warnings: Callable[[], list[str]]) -> None:
    with (
        EmbeddedCluster(max_buffered_bytes=16 * MIB) as cluster,
        connections(cluster, 4) as (good, *bad),
    ):
        metadata(good, ["t"])
        for _ in range(12):
            produce(good, "t", plain(bytes(900_000)))
        for one in bad:
            one.send(fetch_request("t", 0, max_bytes=2**31 - 1))
            good.request(PING)
        assert len(good.request(fetch_request("t", 0)).topics) == 1
    assert len(warnings()) == 2
    assert not any("connection 1 " in text for text in warnings())


def test_history_counts_what_its_requests_hold() -> None:
    """A tiny message set in a large frame keeps the frame in memory."""
    with EmbeddedCluster(topics={"t": 1}) as cluster, WireClient(address(cluster)) as wire:
        [_size, *rest] = api.encode_request(produce_request("t", plain(b"x")), 0, 1, "peer")
        body = b"".join(rest) + bytes(20 * MIB)
        for _ in range(5):
            wire.socket.sendall(struct.pack(">i", len(body)) + body)
            wire.read_frame()
        assert len(cluster.requests(ProduceRequest)) == 1


# --- limits of one request ------------------------------------------------------------------------


def many_long_names() -> OffsetFetchRequest:
    """Names that no topic has: the order of the response needs a hash of each name."""
    return OffsetFetchRequest("g", [Topic(f"{number:32000}", [0]) for number in range(2000)])


def many_offsets(topics: int) -> OffsetFetchRequest:
    return OffsetFetchRequest("g", [Topic(str(number), [0]) for number in range(topics)])


@pytest.mark.parametrize("version", list(LINES))
def test_too_many_items_are_unreadable(version: str, warnings: Callable[[], list[str]]) -> None:
    with EmbeddedCluster(version=version) as cluster, WireClient(address(cluster)) as wire:
        names = ["" for _ in range(MAX_REQUEST_ITEMS + 1)]
        wire.send(MetadataRequest(names))
        if version == "0.9":
            assert wire.is_silent(0.1)
        else:
            assert wire.is_closed()
            assert f"more than {MAX_REQUEST_ITEMS} items" in warnings()[0]


def test_many_items_within_the_limit_are_served() -> None:
    with EmbeddedCluster(topics={"t": 1}) as cluster, WireClient(address(cluster)) as wire:
        find_coordinator(wire, "g")
        response = wire.request(many_offsets(MAX_REQUEST_ITEMS // 2), 1)
        assert len(response.topics) == MAX_REQUEST_ITEMS // 2


@pytest.mark.parametrize("version", ["0.8.2", "0.10"])
@pytest.mark.parametrize("nested", [False, True])
def test_bomb_beyond_the_limit_is_refused(version: str, nested: bool) -> None:
    bomb = wrapper(Codec.GZIP, plain(bytes(MAX_DECOMPRESSED_BYTES // 3))) * 4
    if nested:
        bomb = wrapper(Codec.GZIP, bomb)
    with EmbeddedCluster(version=version, topics={"t": 1}) as cluster:
        with WireClient(address(cluster)) as wire:
            assert produce(wire, "t", bomb).error_code in (-1, 2)
        assert cluster.offsets("t", 0).end == 0


@pytest.mark.parametrize("version", ["0.8.2", "0.10"])
def test_set_of_too_many_messages_is_refused(version: str) -> None:
    bomb = wrapper(Codec.GZIP, plain(b"") * (MAX_REWRITTEN_MESSAGES + 1))
    with EmbeddedCluster(version=version, topics={"t": 1}) as cluster:
        with WireClient(address(cluster)) as wire:
            assert produce(wire, "t", bomb).error_code == -1
        assert cluster.offsets("t", 0).end == 0


def test_auto_creation_ends_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    handler = "aiokafka08.testing.handlers.metadata"
    monkeypatch.setattr(sys.modules[handler], "MAX_CREATED_PARTITIONS", 10)
    with (
        EmbeddedCluster(version="0.10", default_partitions=4) as cluster,
        WireClient(address(cluster)) as wire,
    ):
        topics = metadata(wire, ["a", "b", "c"]).topics
        assert {one.topic: one.error_code for one in topics} == {"a": 5, "b": 5, "c": 38}
        cluster.create_topic("c")


def test_created_topics_end_at_the_limit() -> None:
    with EmbeddedCluster(version="0.10") as cluster, WireClient(address(cluster)) as wire:
        numbers = {"a": 2**31 - 1, "b": 10_001, "c": 9_999, "d": 2}
        topics = [RequestedTopic(name, count, 1, [], []) for name, count in numbers.items()]
        codes = {
            one.topic: (one.error_code, one.error_message)
            for topic in topics
            for one in wire.request(CreateTopicsRequest([topic], 1000), 1).topics
        }
        wrong = (-1, "the cluster would have more than 10000 partitions")
        assert codes == {"a": wrong, "b": wrong, "c": (0, None), "d": wrong}


def test_long_texts_of_create_topics_fit_into_the_response() -> None:
    config = [ConfigEntry("x" * 32_000, "1")]
    with EmbeddedCluster(version="0.10") as cluster, WireClient(address(cluster)) as wire:
        request = CreateTopicsRequest([RequestedTopic("a", 1, 1, [], config)], 1000)
        [one] = wire.request(request, 1).topics
    assert one.error_code == 40
    assert (one.error_message or "").startswith("Unknown Log configuration xxx")


@pytest.mark.parametrize(("key", "version"), [(4, 0), (5, 0), (6, 3), (7, 1)])
def test_requests_between_brokers_are_refused_by_name(
    key: int, version: int, warnings: Callable[[], list[str]]
) -> None:
    with EmbeddedCluster(version="0.10") as cluster, WireClient(address(cluster)) as wire:
        frame = struct.pack(">hhih", key, version, 1, -1) + bytes(20)
        wire.socket.sendall(struct.pack(">i", len(frame)) + frame)
        assert wire.is_closed()
    [warning] = warnings()
    assert f"{api.ApiKey(key).name} is a request between brokers" in warning


# --- time -----------------------------------------------------------------------------------------


def large_bomb() -> ProduceRequest:
    return produce_request("t", wrapper(Codec.GZIP, plain(bytes(100 * MIB))))


def fine_bomb() -> ProduceRequest:
    return produce_request("t", wrapper(Codec.GZIP, plain(b"") * 400_000))


LONG_REQUESTS: dict[str, Callable[[], tuple[api.Request, int]]] = {
    "large bomb": lambda: (large_bomb(), 0),
    "fine bomb": lambda: (fine_bomb(), 0),
    "new topics": lambda: (MetadataRequest([str(one) for one in range(9_000)]), 0),
    "offsets": lambda: (many_offsets(40_000), 1),
}


@pytest.mark.parametrize(
    ("name", "version"),
    [*((name, "0.8.2") for name in LONG_REQUESTS), ("new topics", "0.10"), ("offsets", "0.10")],
)
def test_small_requests_overtake_a_long_one(name: str, version: str) -> None:
    """The long one takes some hundred milliseconds; each small one is a turn in between."""
    request, api_version = LONG_REQUESTS[name]()
    with (
        EmbeddedCluster(version=version, topics={"t": 1}) as cluster,
        connections(cluster, 2) as (good, busy),
    ):
        find_coordinator(good, "g")
        busy.send(request, api_version)
        overtaken = 0
        while not select.select([busy.socket], [], [], 0)[0]:
            good.request(PING)
            overtaken += 1
        assert overtaken >= 3
        assert len(busy.read_frame()) > 4


def test_names_that_no_topic_has_hold_nobody_up() -> None:
    """The order of a response of 0.10 is that of hashes; these would take some seconds."""
    with (
        EmbeddedCluster(version="0.10", topics={"t": 1}) as cluster,
        connections(cluster, 2) as (good, busy),
    ):
        find_coordinator(good, "g")
        busy.send(many_long_names(), 1)
        slowest = 0.0
        while not select.select([busy.socket], [], [], 0)[0]:
            began = time.monotonic()
            good.request(PING)
            slowest = max(slowest, time.monotonic() - began)
        assert slowest < 1.5


# --- all attacks together -------------------------------------------------------------------------


LIMITS = {
    "cluster": (
        f"--max-buffered-bytes={64 * MIB}",
        [f"max_buffered_bytes={64 * MIB}", f"more than {MAX_REQUEST_ITEMS} items"],
    ),
    "gateway": (
        f"--max-held-bytes={64 * MIB}",
        [f"max_held_bytes={64 * MIB}", "is refused: a request of 0 bytes"],
    ),
}
"""By server: the option that limits its memory, and what it logs about the attacks."""


@reads_proc
@pytest.mark.timeout(180)
@pytest.mark.parametrize("server", LIMITS)
def test_attacked_server_keeps_its_limits_and_serves_others(server: str) -> None:
    attacks = [name for name in ATTACKS if name not in ("fetch many offsets", "send bomb")]
    limit, expected = LIMITS[server]
    with SERVERS[server](limit) as attacked_one:
        ends = time.monotonic() + 120

        def enough() -> bool:
            log = attacked_one.log.read_text()
            return all(text in log for text in expected) or time.monotonic() > ends

        with attacked(attacked_one.address, 100, attacks):
            ping(attacked_one.good_address, enough, timeout_s=30)
            ping(attacked_one.good_address, iter([False] * 20 + [True]).__next__, timeout_s=30)
        log = attacked_one.log.read_text()
        assert [text for text in expected if text not in log] == []
        assert "Traceback" not in log
        assert attacked_one.process.poll() is None
        assert attacked_one.memory_bytes("VmHWM") < 500 * MIB
