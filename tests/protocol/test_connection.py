"""Responses match requests by order and correlation id; any other response raises."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka08.errors import CorrelationIdError, KafkaProtocolError
from aiokafka08.protocol import api
from aiokafka08.protocol.connection import ClientConnection, MatchedResponse
from aiokafka08.protocol.requests.groups import (
    GroupCoordinatorRequest,
    GroupCoordinatorResponse,
    GroupError,
    HeartbeatRequest,
)
from aiokafka08.protocol.requests.metadata import Broker, MetadataRequest, MetadataResponse
from aiokafka08.protocol.requests.produce import ProducedPartition, ProduceRequest, ProduceResponse
from tests.protocol.decoding import decode_request, receive
from tests.protocol.strategies import examples

pytestmark = pytest.mark.fast

HEARTBEAT = HeartbeatRequest("group", 1, "member")
COORDINATOR = GroupCoordinatorRequest("group")


def framed(correlation_id: int, error_code: int = 0) -> bytes:
    """Return the frame of a Heartbeat response."""
    return b"".join(api.encode_response(GroupError(error_code), 0, correlation_id))


def coordinator_frame(correlation_id: int) -> bytes:
    response = GroupCoordinatorResponse(15, -1, "", -1)
    return b"".join(api.encode_response(response, 0, correlation_id))


def produce(required_acks: int) -> ProduceRequest:
    return ProduceRequest(required_acks, 1000, [])


def connection_with(*requests: api.Request[Any]) -> ClientConnection:
    connection = ClientConnection("me")
    for request in requests:
        connection.send(request, 0)
    return connection


# --- the client's side --------------------------------------------------------------------------


def test_request_has_client_id_and_next_correlation_id() -> None:
    connection = ClientConnection("me")
    for expected in (1, 2, 3):
        correlation_id, buffers = connection.send(HEARTBEAT, 0)
        assert correlation_id == expected
        envelope = decode_request(b"".join(buffers)[4:])
        assert envelope.header == api.RequestHeader(api.ApiKey.HEARTBEAT, 0, expected, "me")
        assert envelope.body == HEARTBEAT


def test_pipelined_requests_get_responses_in_order() -> None:
    connection = connection_with(*[HEARTBEAT] * 100)
    assert connection.in_flight == 100
    stream = b"".join(framed(index, index % 30) for index in range(1, 101))
    matched = list(receive(connection, stream))
    assert matched == [(index, GroupError(index % 30)) for index in range(1, 101)]
    assert connection.in_flight == 0
    assert connection.eof() == []


@examples(50)
@given(cuts=st.lists(st.integers(0, 200), max_size=10))
def test_response_is_decoded_by_its_own_request(cuts: list[int]) -> None:
    requests: list[api.Request[Any]] = [
        HEARTBEAT,
        COORDINATOR,
        produce(1),
        produce(0),
        MetadataRequest([]),
        HEARTBEAT,
    ]
    responses: list[api.Response] = [
        GroupError(27),
        GroupCoordinatorResponse(0, 1, "host", 9092),
        ProduceResponse([api.Topic("t", [ProducedPartition(0, 0, 42)])]),
        MetadataResponse([Broker(1, "host", 9092)], -1, []),
        GroupError(0),
    ]
    connection = connection_with(*requests)
    ids = [1, 2, 3, 5, 6]
    stream = b"".join(
        b"".join(api.encode_response(response, 0, correlation_id))
        for correlation_id, response in zip(ids, responses, strict=True)
    )
    cuts = [min(cut, len(stream)) for cut in sorted(cuts)]
    matched: list[MatchedResponse] = []
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        matched += receive(connection, stream[start:stop])
    assert matched == list(zip(ids, responses, strict=True))


def test_response_is_read_from_the_frame_readers_buffer() -> None:
    connection = connection_with(HEARTBEAT)
    frame = framed(1, 27)
    connection.frames.get_buffer()[: len(frame)] = frame
    assert list(connection.received(len(frame))) == [(1, GroupError(27))]


def test_wrong_id_raises_and_names_both_ids() -> None:
    connection = connection_with(HEARTBEAT, HEARTBEAT)
    with pytest.raises(CorrelationIdError, match="id 2; expected 1, of HeartbeatRequest version"):
        list(receive(connection, framed(2)))
    assert connection.eof() == [1, 2]


@pytest.mark.parametrize("correlation_id", [0, 2, -1, 2**31 - 1, -(2**31)])
def test_any_id_but_the_expected_one_raises(correlation_id: int) -> None:
    connection = connection_with(HEARTBEAT)
    with pytest.raises(CorrelationIdError):
        list(receive(connection, framed(correlation_id)))


def test_response_without_a_request_raises() -> None:
    connection = ClientConnection("me")
    with pytest.raises(CorrelationIdError, match="id 1; expected none"):
        list(receive(connection, framed(1)))


def test_repeated_response_raises() -> None:
    connection = connection_with(HEARTBEAT)
    matched = receive(connection, framed(1) * 2)
    assert next(matched)[0] == 1
    with pytest.raises(CorrelationIdError):
        next(matched)


def test_id_0_matches_group_coordinator_requests_only() -> None:
    """0.8.2 sends it while it can't create the offsets topic (docs/brokers.md 8.9)."""
    connection = connection_with(HEARTBEAT, COORDINATOR, HEARTBEAT)
    assert [
        correlation_id
        for correlation_id, _ in receive(connection, framed(1) + coordinator_frame(0))
    ] == [
        1,
        2,
    ]
    with pytest.raises(CorrelationIdError, match="id 0; expected 3"):
        list(receive(connection, framed(0)))


def test_id_0_matches_the_oldest_request_only() -> None:
    connection = connection_with(HEARTBEAT, COORDINATOR)
    with pytest.raises(CorrelationIdError, match="id 0; expected 1"):
        list(receive(connection, coordinator_frame(0)))


def test_right_id_matches_a_group_coordinator_request() -> None:
    connection = connection_with(COORDINATOR)
    (only,) = receive(connection, coordinator_frame(1))
    assert only == (1, GroupCoordinatorResponse(15, -1, "", -1))


@pytest.mark.parametrize(
    "damaged",
    [
        framed(7),
        b"\xff\xff\xff\xf4",
        b"\x7f\xff\xff\xff",
        b"\0\0\0\0",
        b"\0\0\0\3abc",
        framed(3)[:3] + b"\5" + framed(3)[4:9],
        framed(3)[:3] + b"\7" + framed(3)[4:] + b"\0",
    ],
    ids=[
        "wrong id",
        "negative size",
        "huge size",
        "empty frame",
        "no whole id",
        "body cut short",
        "body too long",
    ],
)
def test_responses_before_a_damaged_frame_are_returned(damaged: bytes) -> None:
    connection = connection_with(*[HEARTBEAT] * 4)
    matched = receive(connection, framed(1) + framed(2) + damaged + framed(4))
    assert [next(matched)[0], next(matched)[0]] == [1, 2]
    with pytest.raises(KafkaProtocolError):
        next(matched)
    assert connection.eof() == [3, 4]


def test_produce_without_acks_is_not_in_flight() -> None:
    connection = ClientConnection("me")
    correlation_id, buffers = connection.send(produce(0), 0)
    assert correlation_id is None
    envelope = decode_request(b"".join(buffers)[4:])
    assert envelope.body == produce(0)
    assert connection.in_flight == 0
    # The response to a later request doesn't match the unanswered request.
    awaited, _ = connection.send(HEARTBEAT, 0)
    assert awaited == 2
    assert [correlation_id for correlation_id, _ in receive(connection, framed(2))] == [2]


def test_request_that_fails_to_encode_is_not_in_flight() -> None:
    connection = connection_with(HEARTBEAT)
    with pytest.raises(ValueError, match="version 9; expected"):
        connection.send(HEARTBEAT, 9)
    with pytest.raises(ValueError, match="null"):
        connection.send(HeartbeatRequest(None, 1, ""), 0)  # type: ignore[arg-type]
    assert connection.in_flight == 1
    correlation_id, _ = connection.send(HEARTBEAT, 0)
    assert correlation_id is not None
    assert [
        correlation_id
        for correlation_id, _ in receive(connection, framed(1) + framed(correlation_id))
    ]


def test_eof_returns_lost_ids_once_oldest_first() -> None:
    connection = connection_with(*[HEARTBEAT] * 5)
    list(receive(connection, framed(1) + framed(2)))
    assert connection.eof() == [3, 4, 5]
    assert connection.eof() == []
    assert connection.in_flight == 0


def test_ids_wrap_from_the_largest_int32_to_1() -> None:
    connection = ClientConnection("me")
    connection._next_id = 2**31 - 3
    sent = [connection.send(HEARTBEAT, 0) for _ in range(4)]
    ids = [correlation_id for correlation_id, _ in sent]
    assert ids == [2**31 - 2, 2**31 - 1, 1, 2]
    headers = [decode_request(b"".join(buffers)[4:]).header for _, buffers in sent]
    assert [header.correlation_id for header in headers] == ids
    matched = receive(connection, b"".join(framed(one) for one in ids if one is not None))
    assert [correlation_id for correlation_id, _ in matched] == ids
