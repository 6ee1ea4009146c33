"""Every effect of a fault, as a client sees it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from aiokafka08.errors import KafkaProtocolError
from aiokafka08.protocol import api
from aiokafka08.protocol.api import Topic, encode_response
from aiokafka08.protocol.requests.committed_offsets import (
    CommitPartition,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from aiokafka08.protocol.requests.fetch import FetchPartition, FetchRequest
from aiokafka08.protocol.requests.groups import (
    DescribeGroupsRequest,
    GroupCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    SyncGroupRequest,
)
from aiokafka08.protocol.requests.list_offsets import ListOffsetsPartition, ListOffsetsRequest
from aiokafka08.protocol.requests.metadata import MetadataRequest
from aiokafka08.protocol.requests.produce import (
    ProducedPartition,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
)
from aiokafka08.protocol.requests.sasl_handshake import SaslHandshakeRequest
from aiokafka08.protocol.requests.topics import (
    CreateTopicsRequest,
    DeleteTopicsRequest,
    RequestedTopic,
)
from aiokafka08.testing import (
    Answer,
    Close,
    Corrupt,
    Delay,
    EmbeddedCluster,
    Hang,
    Omit,
    Silence,
    Truncate,
    WrongCorrelationId,
)
from tests.conformance.contract.wire.requests import (
    fetch,
    fetch_request,
    list_offsets,
    metadata,
    plain,
    produce,
    produce_request,
)
from tests.conformance.contract.wire.wire_client import LONG_MS, WireClient

pytestmark = pytest.mark.fast


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(2, "0.9", {"t": 2}) as cluster:
        yield cluster


def address(cluster: EmbeddedCluster, node: int = 0) -> tuple[str, int]:
    return cluster.nodes[node].host, cluster.nodes[node].port


@pytest.fixture
def wire(cluster: EmbeddedCluster) -> Iterator[WireClient]:
    with WireClient(address(cluster)) as wire:
        yield wire


def end(cluster: EmbeddedCluster) -> int:
    return cluster.offsets("t", 0).end


# --- which requests a fault strikes ---------------------------------------------------------------


def test_fault_strikes_from_nth_request_so_many_times(
    cluster: EmbeddedCluster, wire: WireClient
) -> None:
    fault = cluster.fault(ProduceRequest, nth=2, times=2, then=Answer(6))
    metadata(wire)
    codes = [produce(wire, "t", plain(b"x")).error_code for _ in range(5)]
    assert codes == [0, 6, 6, 0, 0]
    assert (fault.hits, fault.is_over) == (2, True)
    assert end(cluster) == 3


def test_fault_counts_from_its_creation(cluster: EmbeddedCluster, wire: WireClient) -> None:
    produce(wire, "t", plain(b"x"))
    cluster.fault(ProduceRequest, then=Answer(6))
    assert produce(wire, "t", plain(b"x")).error_code == 6


def test_unlimited_fault_strikes_until_cancelled(
    cluster: EmbeddedCluster, wire: WireClient
) -> None:
    fault = cluster.fault(ProduceRequest, times=None, then=Answer(6))
    assert {produce(wire, "t", plain(b"x")).error_code for _ in range(5)} == {6}
    fault.cancel()
    assert produce(wire, "t", plain(b"x")).error_code == 0
    cluster.fault(ProduceRequest, times=None, then=Answer(6))
    cluster.clear_faults()
    assert produce(wire, "t", plain(b"x")).error_code == 0


def test_fault_at_one_broker(cluster: EmbeddedCluster, wire: WireClient) -> None:
    cluster.fault(ListOffsetsRequest, node=1, then=Answer(3))
    assert list_offsets(wire, "t", -1) == (0, [0])
    with WireClient(address(cluster, 1)) as other:
        assert list_offsets(other, "t", -1, partition=1) == (3, [])


def test_fault_with_predicate(cluster: EmbeddedCluster, wire: WireClient) -> None:
    cluster.fault(ProduceRequest, where=lambda request: request.required_acks == -1, then=Answer(7))
    assert produce(wire, "t", plain(b"x"), acks=1).error_code == 0
    assert produce(wire, "t", plain(b"x"), acks=-1).error_code == 7


def test_two_faults_count_the_same_requests(cluster: EmbeddedCluster, wire: WireClient) -> None:
    cluster.fault(ProduceRequest, then=Answer(6))
    cluster.fault(ProduceRequest, nth=2, then=Answer(5))
    codes = [produce(wire, "t", plain(b"x")).error_code for _ in range(3)]
    assert codes == [6, 5, 0]


def test_null_sets_are_those_beside_the_code(cluster: EmbeddedCluster, wire: WireClient) -> None:
    produce(wire, "t", plain(b"x"))
    for only, expected in ((None, [35, 35]), ([("t", 1)], [0, 35])):
        cluster.fault(FetchRequest, then=Answer(35, only=only, null_sets=True))
        partitions = [FetchPartition(number, 0, 1000) for number in range(2)]
        request = FetchRequest(-1, 0, 1, [Topic("t", partitions)])
        wire.send(request)
        frame = wire.read_frame()
        [topic] = api.decode_response(FetchRequest, 0, frame).topics
        found = {it.partition: it for it in topic.partitions}
        assert [found[number].error_code for number in range(2)] == expected
        nulls = frame.count(b"\xff" * 12)  # the high watermark -1, and the null set
        assert nulls == expected.count(35)


@pytest.mark.parametrize(("nth", "times"), [(0, 1), (1, 0)])
def test_counts_below_1_raise(cluster: EmbeddedCluster, nth: int, times: int) -> None:
    with pytest.raises(ValueError, match="expected integers >= 1"):
        cluster.fault(ProduceRequest, nth=nth, times=times, then=Silence())


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"request": "Produce", "then": Silence()}, r"request='Produce': .*ProduceRequest"),
        ({"request": ProduceRequest, "then": Silence}, r"then=<class .*Answer\(6\)"),
        (
            {"request": ProduceRequest, "then": Silence(), "node": 2},
            "broker 2 doesn't exist; expected one of: 0, 1",
        ),
    ],
)
def test_fault_that_could_never_strike_raises(
    cluster: EmbeddedCluster, arguments: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        cluster.fault(**arguments)


# --- effects --------------------------------------------------------------------------------------


def test_answer_with_perform_carries_out_the_request(
    cluster: EmbeddedCluster, wire: WireClient
) -> None:
    cluster.fault(ProduceRequest, then=Answer(20, perform=True))
    assert produce(wire, "t", plain(b"x")) == (20, -1)
    assert end(cluster) == 1


@pytest.mark.parametrize("perform", [False, True])
def test_answer_only_for_some_partitions(
    cluster: EmbeddedCluster, wire: WireClient, perform: bool
) -> None:
    cluster.create_topic("u", 4, 1)
    cluster.fault(ProduceRequest, then=Answer(6, perform=perform, only={("u", 0)}))
    sets = [ProducePartition(number, plain(b"x")) for number in (0, 2)]
    request = ProduceRequest(-1, 1000, [Topic("u", sets)])
    [one] = wire.request(request).topics
    responses = {done.partition: (done.error_code, done.offset) for done in one.partitions}
    assert responses == {0: (6, -1), 2: (0, 0)}
    assert cluster.offsets("u", 0).end == int(perform)
    cluster.fault(OffsetFetchRequest, then=Answer(14, only=[("u", 1)]))
    [one] = wire.request(OffsetFetchRequest("g", [Topic("u", [0, 1])])).topics
    assert {got.partition: got.error_code for got in one.partitions} == {0: 3, 1: 14}
    with pytest.raises(ValueError, match="has no partitions"):
        cluster.fault(MetadataRequest, then=Answer(5, only=[("u", 0)]))
    with pytest.raises(ValueError, match="DeleteTopicsRequest has no partitions"):
        cluster.fault(DeleteTopicsRequest, then=Answer(5, only=[("u", 0)]))


@pytest.mark.parametrize(("version", "waits"), [("0.8.1", True), ("0.8.2", False)])
def test_answer_only_for_some_ends_a_long_poll(version: str, waits: bool) -> None:
    """From 0.8.2 on an error of a partition ends the wait (docs/brokers.md 7.3)."""
    with (
        EmbeddedCluster(version=version, topics={"u": 2}) as cluster,
        WireClient(address(cluster)) as wire,
        WireClient(address(cluster)) as other,
    ):
        cluster.fault(FetchRequest, then=Answer(6, only={("u", 0)}))
        items = [FetchPartition(number, 0, 1000) for number in (0, 1)]
        begun = cluster.next_request(FetchRequest)
        wire.send(FetchRequest(-1, LONG_MS, 1, [Topic("u", items)]))
        begun.result(30)
        if waits:
            produce(other, "u", plain(b"x"), partition=1)
        [one] = wire.receive(FetchRequest).topics
    responses = {got.partition: (got.error_code, len(got.message_set)) for got in one.partitions}
    assert responses == {0: (6, 0), 1: (0, 27 if waits else 0)}


def test_answer_to_acks_0_closes(cluster: EmbeddedCluster, wire: WireClient) -> None:
    cluster.fault(ProduceRequest, then=Answer(6))
    wire.send(produce_request("t", plain(b"x"), acks=0))
    assert wire.is_closed()
    assert end(cluster) == 0


REQUESTS: list[api.Request] = [
    produce_request("t", plain(b"x")),
    fetch_request("t", 0),
    ListOffsetsRequest(-1, [Topic("t", [ListOffsetsPartition(0, -1, 1)])]),
    MetadataRequest(["t"]),
    OffsetCommitRequest("g", -1, "", -1, [Topic("t", [CommitPartition(0, 1, -1, "")])]),
    OffsetFetchRequest("g", [Topic("t", [0])]),
    GroupCoordinatorRequest("g"),
    JoinGroupRequest("g", 1000, "", "consumer", []),
    SyncGroupRequest("g", 1, "m", []),
    HeartbeatRequest("g", 1, "m"),
    LeaveGroupRequest("g", "m"),
    DescribeGroupsRequest(["g"]),
    ListGroupsRequest(),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda one: type(one).__name__)
def test_every_api_has_an_error_response(
    cluster: EmbeddedCluster, wire: WireClient, request_: api.Request
) -> None:
    cluster.fault(type(request_), then=Answer(-1))
    assert "error_code=-1" in repr(wire.request(request_))
    wire.request(request_)


@pytest.mark.parametrize(
    "request_",
    [
        CreateTopicsRequest([RequestedTopic("u", 1, 1, [], [])], 1000),
        DeleteTopicsRequest(["t"], 1000),
        SaslHandshakeRequest("PLAIN"),
    ],
    ids=lambda one: type(one).__name__,
)
def test_every_api_of_0_10_has_an_error_response(request_: api.Request) -> None:
    with EmbeddedCluster(1, "0.10", {"t": 1}) as cluster, WireClient(address(cluster)) as wire:
        cluster.fault(type(request_), then=Answer(-1))
        assert "error_code=-1" in repr(wire.request(request_))
        assert {one.topic for one in metadata(wire).topics} == {"t"}
        assert "error_code=-1" not in repr(wire.request(request_))


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda one: type(one).__name__)
def test_omit_leaves_topics_out(
    cluster: EmbeddedCluster, wire: WireClient, request_: api.Request
) -> None:
    cluster.fault(type(request_), then=Omit())
    response = wire.request(request_)
    assert getattr(response, "topics", []) == []


def test_delay_holds_back_later_requests(cluster: EmbeddedCluster, wire: WireClient) -> None:
    cluster.fault(ProduceRequest, then=Delay(0.2))
    started = time.monotonic()
    first = wire.send(produce_request("t", plain(b"x")))
    second = wire.send(MetadataRequest([]))
    ids = [int.from_bytes(wire.read_frame()[:4], "big") for _ in range(2)]
    assert ids == [first, second]
    assert time.monotonic() - started >= 0.19
    assert end(cluster) == 1


@pytest.mark.parametrize("reset", [False, True])
def test_close_before_the_request_is_carried_out(
    cluster: EmbeddedCluster, wire: WireClient, reset: bool
) -> None:
    cluster.fault(ProduceRequest, then=Close(reset=reset))
    wire.send(produce_request("t", plain(b"x")))
    if reset:
        with pytest.raises(ConnectionResetError):
            wire.socket.recv(1)
    else:
        assert wire.socket.recv(1) == b""
    assert end(cluster) == 0


@pytest.mark.parametrize("count", [0, 3, 4, 10])
def test_close_within_the_response(cluster: EmbeddedCluster, wire: WireClient, count: int) -> None:
    cluster.fault(ProduceRequest, then=Close(after_bytes=count))
    correlation_id = wire.send(produce_request("t", plain(b"x")))
    response = ProduceResponse([Topic("t", [ProducedPartition(0, 0, 0)])])
    whole = b"".join(encode_response(response, 0, correlation_id))
    assert wire.read_exactly(count) == whole[:count]
    assert wire.is_closed()
    assert end(cluster) == 1


def test_close_after_request_without_response(cluster: EmbeddedCluster, wire: WireClient) -> None:
    cluster.fault(ProduceRequest, then=Close(after_bytes=0))
    wire.send(produce_request("t", plain(b"x"), acks=0))
    assert wire.is_closed()
    assert end(cluster) == 1


def test_truncate_cuts_the_response(cluster: EmbeddedCluster, wire: WireClient) -> None:
    cluster.fault(ListOffsetsRequest, then=Truncate(3))
    with pytest.raises(KafkaProtocolError):
        list_offsets(wire, "t", -1)
    assert list_offsets(wire, "t", -1) == (0, [0])


@pytest.mark.parametrize("perform", [True, False])
def test_silence_sends_no_response(
    cluster: EmbeddedCluster, wire: WireClient, perform: bool
) -> None:
    cluster.fault(ProduceRequest, then=Silence(perform=perform))
    wire.send(produce_request("t", plain(b"x")))
    correlation_id = wire.send(MetadataRequest([]))
    assert int.from_bytes(wire.read_frame()[:4], "big") == correlation_id
    assert end(cluster) == int(perform)


@pytest.mark.parametrize("perform", [True, False])
def test_omitted_partition_is_stored_or_not(
    cluster: EmbeddedCluster, wire: WireClient, perform: bool
) -> None:
    cluster.fault(ProduceRequest, then=Omit(perform=perform))
    assert wire.request(produce_request("t", plain(b"x"))).topics == []
    assert end(cluster) == int(perform)


def test_hang_reads_nothing_more(cluster: EmbeddedCluster, wire: WireClient) -> None:
    cluster.fault(ProduceRequest, then=Hang())
    wire.send(produce_request("t", plain(b"x")))
    wire.send(MetadataRequest([]))
    assert wire.is_silent(0.1)
    assert end(cluster) == 1
    cluster.kill(0)
    assert wire.is_closed()


def test_wrong_correlation_id(cluster: EmbeddedCluster, wire: WireClient) -> None:
    cluster.fault(MetadataRequest, then=WrongCorrelationId(plus=-7))
    correlation_id = wire.send(MetadataRequest([]))
    assert int.from_bytes(wire.read_frame()[:4], "big", signed=True) == correlation_id - 7


def test_corrupt_changes_one_byte(cluster: EmbeddedCluster, wire: WireClient) -> None:
    produce(wire, "t", plain(b"good", b"bad"))
    cluster.fault(FetchRequest, then=Corrupt())
    assert [entry.crc_ok for entry in fetch(wire, "t", 0).entries()] == [True, False]
    assert all(entry.crc_ok for entry in fetch(wire, "t", 0).entries())
    cluster.fault(MetadataRequest, then=Corrupt(at=0, xor=0x80))
    correlation_id = wire.send(MetadataRequest([]))
    assert wire.read_frame()[:4] == (correlation_id | 0x80000000).to_bytes(4, "big")


def test_fault_on_long_poll_strikes_its_response(
    cluster: EmbeddedCluster, wire: WireClient
) -> None:
    cluster.fault(FetchRequest, then=Close(after_bytes=8))
    correlation_id = wire.send(fetch_request("t", 0, max_wait_ms=5000))
    cluster.append("t", 0, [b"x"])
    assert wire.read_exactly(8)[4:] == correlation_id.to_bytes(4, "big")
    assert wire.is_closed()
