"""Produce for one partition: the same bytes and values as by the declarations in `requests`."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka08.errors import KafkaProtocolError
from aiokafka08.protocol import api
from aiokafka08.protocol.requests.produce import (
    ProducedPartition,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
)
from aiokafka08.protocol.single_produce import decode_single_produce, encode_single_produce
from tests.protocol.strategies import examples, values

pytestmark = pytest.mark.fast

VERSIONS = st.sampled_from(ProduceRequest.versions)
ODD = st.one_of(st.none(), st.integers(), st.text(), st.just("\ud800"), st.just("x" * 40_000))


def encoded(request: Any, version: int, client_id: Any) -> list[bytes] | type[Exception]:
    try:
        return [b"".join(api.encode_request(request, version, 7, client_id))]
    except Exception as error:
        return type(error)


@examples(200)
@given(VERSIONS, st.data())
def test_requests_of_all_shapes_have_the_declared_bytes(version: int, data: st.DataObject) -> None:
    request = data.draw(values(ProduceRequest, version))
    frame = encode_single_produce(request, version, 7, "me")
    if [len(topic.partitions) for topic in request.topics] != [1]:
        assert frame is None
    else:
        assert frame is not None
        assert [b"".join(frame)] == encoded(request, version, "me")


@examples(200)
@given(st.sampled_from([-1, 0, 1, 2, 3]), ODD, ODD, ODD, ODD, ODD)
def test_odd_values_are_left_to_the_declarations(
    version: int, client_id: Any, acks: Any, timeout: Any, topic: Any, partition: Any
) -> None:
    one = api.Topic(topic, [ProducePartition(partition, b"set")])
    request = ProduceRequest(acks, timeout, [one])
    frame = encode_single_produce(request, version, 7, client_id)
    expected = encoded(request, version, client_id)
    if isinstance(expected, type):
        assert frame is None
    elif frame is not None:
        assert [b"".join(frame)] == expected


@examples(300)
@given(VERSIONS, st.data())
def test_responses_of_all_shapes_have_the_declared_values(
    version: int, data: st.DataObject
) -> None:
    response = data.draw(values(ProduceResponse, version))
    frame = bytearray(b"".join(api.encode_response(response, version, 7))[4:])
    decoded = decode_single_produce(version, memoryview(frame))
    single = [len(topic.partitions) for topic in response.topics] == [1]
    assert decoded == (response if single else None)


@examples(500)
@given(VERSIONS, st.data())
def test_mutated_responses_are_decoded_as_declared(version: int, data: st.DataObject) -> None:
    response = ProduceResponse([api.Topic("abc", [ProducedPartition(1, 0, 42)])])
    frame = bytearray(b"".join(api.encode_response(response, version, 7))[4:])
    for _ in range(data.draw(st.integers(0, 3))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    frame = frame[: data.draw(st.integers(0, len(frame)))] + data.draw(st.binary(max_size=2))
    decoded = decode_single_produce(version, memoryview(frame))
    if decoded is not None:
        assert decoded == api.decode_response(ProduceRequest, version, memoryview(frame))


def test_a_frame_cut_short_is_left_to_the_declarations() -> None:
    for size in range(4, 12):
        frame = memoryview(bytes(size))
        if decode_single_produce(0, frame) is None and size != 8:
            with pytest.raises(KafkaProtocolError):
                api.decode_response(ProduceRequest, 0, frame)
