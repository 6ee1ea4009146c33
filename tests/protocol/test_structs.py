"""Declared structs: round trips of each API in each version, and values that a version refuses."""

from __future__ import annotations

import dataclasses
import mmap
import re
import typing
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka08._core.concurrency.loop_yield import finish_steps
from aiokafka08.errors import KafkaProtocolError
from aiokafka08.protocol import api
from aiokafka08.protocol.requests.fetch import FetchedPartition, FetchRequest, FetchResponse
from aiokafka08.protocol.requests.groups import HeartbeatRequest
from aiokafka08.protocol.requests.metadata import (
    MetadataRequest,
    MetadataResponse,
    PartitionState,
    TopicState,
)
from aiokafka08.protocol.requests.produce import ProducePartition, ProduceRequest
from aiokafka08.protocol.requests.registry import APIS
from aiokafka08.protocol.types import (
    STEP_BYTES,
    Int16,
    Int32,
    Int64,
    NullableString,
    String,
    compiled,
)
from tests.protocol.decoding import Envelope, decode_request
from tests.protocol.strategies import examples, since_of, texts, values

pytestmark = pytest.mark.fast

SPOKEN = [(request, version) for request in APIS.values() for version in request.versions]
each_api_and_version = pytest.mark.parametrize(
    ("request_class", "version"), SPOKEN, ids=lambda it: getattr(it, "__name__", f"v{it}")
)

correlation_ids = st.integers(-(2**31), 2**31 - 1)


def structs_in(type_: Any) -> Iterator[Any]:
    """Return all struct classes in a declaration, itself first."""
    if isinstance(type_, type) and dataclasses.is_dataclass(type_):
        yield type_
        for hint in typing.get_type_hints(type_, include_extras=True).values():
            yield from structs_in(hint)
    for arg in typing.get_args(type_):
        yield from structs_in(arg)


# --- there and back -----------------------------------------------------------------------------


@each_api_and_version
@examples(25)
@given(data=st.data())
def test_encoded_request_decodes_to_itself(
    request_class: type[api.Request[Any]], version: int, data: st.DataObject
) -> None:
    request = data.draw(values(request_class, version))
    correlation_id, client_id = data.draw(correlation_ids), data.draw(texts)
    frame = b"".join(api.encode_request(request, version, correlation_id, client_id))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    envelope = decode_request(frame[4:])
    assert envelope.header == api.RequestHeader(
        request_class.api, version, correlation_id, client_id
    )
    assert envelope.body == request


@each_api_and_version
@examples(25)
@given(data=st.data())
def test_encoded_response_decodes_to_itself(
    request_class: type[api.Request[Any]], version: int, data: st.DataObject
) -> None:
    response = data.draw(values(request_class.response, version))
    correlation_id = data.draw(correlation_ids)
    frame = b"".join(api.encode_response(response, version, correlation_id))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert api.decode_correlation_id(frame[4:]) == correlation_id
    assert api.decode_response(request_class, version, frame[4:]) == response
    in_steps = api.decode_response_in_steps(request_class, version, frame[4:])
    assert finish_steps(in_steps) == response


@pytest.mark.parametrize("partitions", [[1] * 6000, [6000], [1, 3000, 1, 1, 2997]])
def test_large_response_is_decoded_in_steps_whatever_its_items(partitions: list[int]) -> None:
    """Small items are read at once, a large one in steps of its own."""
    topics = [
        TopicState(0, f"t{at}", False, [PartitionState(0, n, 1, [1, 2], [1]) for n in range(count)])
        for at, count in enumerate(partitions)
    ]
    response = MetadataResponse([], -1, topics)
    frame = b"".join(api.encode_response(response, 0, 1))[4:]
    decoded = []

    def steps() -> Iterator[None]:
        decoded.append((yield from api.decode_response_in_steps(MetadataRequest, 0, frame)))

    pauses = sum(1 for _ in steps())
    assert decoded == [response]
    assert pauses >= len(frame) // (2 * STEP_BYTES)


@each_api_and_version
@examples(10)
@given(data=st.data())
def test_response_cut_or_too_long_raises_protocol_error(
    request_class: type[api.Request[Any]], version: int, data: st.DataObject
) -> None:
    response = data.draw(values(request_class.response, version))
    frame = b"".join(api.encode_response(response, version, 1))[4:]
    for cut in range(len(frame)):
        with pytest.raises(KafkaProtocolError) as at_once:
            api.decode_response(request_class, version, frame[:cut])
        with pytest.raises(KafkaProtocolError, match=f"^{re.escape(str(at_once.value))}$"):
            finish_steps(api.decode_response_in_steps(request_class, version, frame[:cut]))
    with pytest.raises(KafkaProtocolError, match="1 bytes after its end"):
        api.decode_response(request_class, version, frame + b"\0")


@each_api_and_version
@examples(10)
@given(data=st.data())
def test_request_cut_raises_and_bytes_after_it_are_ignored(
    request_class: type[api.Request[Any]], version: int, data: st.DataObject
) -> None:
    request = data.draw(values(request_class, version))
    frame = b"".join(api.encode_request(request, version, 1, "me"))[4:]
    for cut in range(len(frame)):
        with pytest.raises(KafkaProtocolError):
            decode_request(frame[:cut])
    assert decode_request(frame + b"stray").body == request


def test_byte_fields_of_a_memoryview_are_views() -> None:
    response = FetchResponse(0, [api.Topic("t", [FetchedPartition(0, 0, 1, b"message set")])])
    frame = bytearray(b"".join(api.encode_response(response, 0, 1))[4:])
    decoded = api.decode_response(FetchRequest, 0, memoryview(frame))
    view = decoded.topics[0].partitions[0].message_set
    assert isinstance(view, memoryview)
    assert view.obj is frame


def test_message_set_is_encoded_without_a_copy() -> None:
    message_set = b"message set"
    request = ProduceRequest(1, 1000, [api.Topic("t", [ProducePartition(0, message_set)])])
    assert any(part is message_set for part in api.encode_request(request, 0, 1, "me"))


# --- what a version refuses -----------------------------------------------------------------


def absent_fields() -> list[Any]:
    """Yield (struct class, version, field, absent value) for each field missing in a version."""
    found = {}
    for request, version in SPOKEN:
        for type_ in (request, request.response):
            for cls in structs_in(type_):
                for name, hint in typing.get_type_hints(cls, include_extras=True).items():
                    since = since_of(hint)
                    if since is not None and not since.first <= version <= since.last:
                        found[cls.__name__, version, name] = (cls, version, name, since.absent)
    return list(found.values())


def test_versions_have_the_fields_of_the_protocol_guides() -> None:
    assert {(cls.__name__, version, name) for cls, version, name, _ in absent_fields()} == {
        ("ProducedPartition", 0, "timestamp"),
        ("ProducedPartition", 1, "timestamp"),
        ("ProduceResponse", 0, "throttle_time_ms"),
        ("FetchResponse", 0, "throttle_time_ms"),
        ("ListOffsetsPartition", 1, "max_num_offsets"),
        ("ListedOffsets", 0, "offset"),
        ("ListedOffsets", 0, "timestamp"),
        ("ListedOffsets", 1, "offsets"),
        ("Broker", 0, "rack"),
        ("TopicState", 0, "is_internal"),
        ("MetadataResponse", 0, "cluster_id"),
        ("MetadataResponse", 1, "cluster_id"),
        ("MetadataResponse", 0, "controller_id"),
        ("OffsetCommitRequest", 0, "generation"),
        ("OffsetCommitRequest", 0, "member"),
        ("OffsetCommitRequest", 0, "retention_time_ms"),
        ("OffsetCommitRequest", 1, "retention_time_ms"),
        ("CommitPartition", 0, "timestamp"),
        ("CommitPartition", 2, "timestamp"),
        ("OffsetFetchResponse", 0, "error_code"),
        ("OffsetFetchResponse", 1, "error_code"),
        *(("FetchRequest", version, "max_bytes") for version in range(3)),
        ("JoinGroupRequest", 0, "rebalance_timeout_ms"),
        ("CreateTopicsRequest", 0, "validate_only"),
        ("CreatedTopic", 0, "error_message"),
        ("SaslAuthenticateResponse", 0, "session_lifetime_ms"),
    }


@pytest.mark.parametrize(
    ("cls", "version", "name", "absent"),
    absent_fields(),
    ids=lambda it: getattr(it, "__name__", str(it)),
)
@examples(10)
@given(data=st.data())
def test_value_without_a_field_in_the_version_raises(
    cls: Any, version: int, name: str, absent: Any, data: st.DataObject
) -> None:
    struct = data.draw(values(cls, version))
    hint = typing.get_type_hints(cls, include_extras=True)[name]
    value = data.draw(values(hint, version).filter(lambda value: value != absent))
    setattr(struct, name, value)
    with pytest.raises(
        ValueError, match=f"{cls.__name__} version {version}: it has no field {name}"
    ):
        compiled(cls, version).write(struct, [])


def test_all_topics_is_null_in_metadata_version_1_only() -> None:
    encoded = api.encode_request(MetadataRequest(None), 1, 1, "me")
    frame = b"".join(encoded)[4:]
    assert frame.endswith(b"\xff\xff\xff\xff")
    assert decode_request(frame).body == MetadataRequest(None)
    negative = frame[:-4] + (-5).to_bytes(4, "big", signed=True)
    assert decode_request(negative).body == MetadataRequest(None)
    with pytest.raises(ValueError, match="null"):
        api.encode_request(MetadataRequest(None), 0, 1, "me")
    with pytest.raises(KafkaProtocolError, match="count -1"):
        decode_request(frame[:3] + b"\x00" + frame[4:])


@each_api_and_version
def test_version_out_of_range_raises(request_class: type[api.Request[Any]], version: int) -> None:
    del version
    for unknown in (-1, request_class.versions.stop):
        with pytest.raises(ValueError, match=rf"{request_class.__name__}: version -?\d+; expected"):
            api.encode_request(request_class.__new__(request_class), unknown, 1, "me")


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (Int16, 2**15),
        (Int32, -(2**31) - 1),
        (Int64, 2**63),
        (Int32, None),
        (String, None),
        (String, "x" * 2**15),
        (NullableString, "é" * 2**14),
        (String, "\ud800"),
    ],
    ids=str,
)
def test_value_outside_its_wire_type_raises_value_error(type_: Any, value: Any) -> None:
    @dataclasses.dataclass(slots=True)
    class Holder:
        field: Any

    Holder.__annotations__["field"] = type_
    with pytest.raises(ValueError):  # noqa: PT011 (each has its own text)
        compiled(Holder, 0).write(Holder(value), [])


def test_request_over_two_gigabytes_raises() -> None:
    pages = memoryview(mmap.mmap(-1, 1 << 30))  # never touched, so it takes no memory
    for count in (2, 5):
        partitions = [ProducePartition(index, pages) for index in range(count)]
        request = ProduceRequest(1, 1000, [api.Topic("t", partitions)])
        with pytest.raises(ValueError, match="expected at most 2147483647"):
            api.encode_request(request, 0, 1, "me")


# --- the table ----------------------------------------------------------------------------------


def test_apis_has_each_api_with_its_versions() -> None:
    assert {request.api.name: list(request.versions) for request in APIS.values()} == {
        "PRODUCE": [0, 1, 2],
        "FETCH": [0, 1, 2, 3],
        "LIST_OFFSETS": [0, 1],
        "METADATA": [0, 1, 2],
        "OFFSET_COMMIT": [0, 1, 2],
        "OFFSET_FETCH": [0, 1, 2],
        "GROUP_COORDINATOR": [0],
        "JOIN_GROUP": [0, 1],
        "HEARTBEAT": [0],
        "LEAVE_GROUP": [0],
        "SYNC_GROUP": [0],
        "DESCRIBE_GROUPS": [0],
        "LIST_GROUPS": [0],
        "SASL_HANDSHAKE": [0, 1],
        "API_VERSIONS": [0],
        "CREATE_TOPICS": [0, 1],
        "DELETE_TOPICS": [0],
        "SASL_AUTHENTICATE": [0, 1],
        "DELETE_GROUPS": [0],
    }
    assert all(key == request.api for key, request in APIS.items())


@pytest.mark.parametrize("key", [4, 5, 6, 7])
def test_keys_between_brokers_are_not_in_apis(key: int) -> None:
    assert api.ApiKey(key).name
    assert key not in APIS


@pytest.mark.parametrize("key", [-1, 4, 5, 6, 7, 21, 37, 32767])
def test_unknown_key_decodes_without_a_body(key: int) -> None:
    header = api.RequestHeader(key, 0, 7, "me")
    out: list[Any] = []
    compiled(api.RequestHeader, 0).write(header, out)
    assert decode_request(b"".join(out) + b"whatever") == Envelope(header, None)


@each_api_and_version
def test_unknown_version_decodes_without_a_body(
    request_class: type[api.Request[Any]], version: int
) -> None:
    del version
    for unknown in (-1, request_class.versions.stop, 32767):
        header = api.RequestHeader(request_class.api, unknown, 7, None)
        out: list[Any] = []
        compiled(api.RequestHeader, 0).write(header, out)
        assert decode_request(b"".join(out)) == Envelope(header, None)


def test_only_produce_without_acks_expects_no_response() -> None:
    assert not ProduceRequest(0, 1000, []).expects_response
    assert ProduceRequest(1, 1000, []).expects_response
    assert ProduceRequest(-1, 1000, []).expects_response
    assert HeartbeatRequest("group", 1, "member").expects_response
