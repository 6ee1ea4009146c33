"""Fields of responses that brokers may send as null, by Kafka's own declarations.

ResponseSchemas.java has written `response_schemas.json`; its comment has the command. The file has
the layout of each response in kafka-clients 0.10.2.2 and 3.9.1, by `api` and `version`. `fields`
are pairs of a name and a type: `{"type", "nullable"}`, `{"array", "nullable"}`, or again fields.

What Kafka's declarations don't say: 0.8.2 may send the host of a broker as null.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import typing
from collections.abc import Iterator
from typing import Annotated, Any, TypeVar

import pytest

from aiokafka08.errors import KafkaProtocolError
from aiokafka08.protocol import api
from aiokafka08.protocol.requests.fetch import FetchedPartition, FetchRequest, FetchResponse
from aiokafka08.protocol.requests.registry import APIS
from aiokafka08.protocol.types import Fixed, NullSince, Sized
from tests.protocol.strategies import sample, since_of

pytestmark = pytest.mark.fast

SCHEMAS = json.loads(pathlib.Path(__file__).with_name("response_schemas.json").read_text())
SPOKEN = [(request, version) for request in APIS.values() for version in request.versions]
each_api_and_version = pytest.mark.parametrize(
    ("request_class", "version"), SPOKEN, ids=lambda it: getattr(it, "__name__", f"v{it}")
)
INTEGERS = {"h": "int16", "i": "int32", "q": "int64", "?": "boolean"}
TypeArgs = dict[TypeVar, Any]


# --- as Kafka declares them ---------------------------------------------------------------------


def present_fields(cls: Any, version: int) -> Iterator[tuple[str, Any]]:
    """Yield name and type of each field that the version has, in the order of the wire."""
    hints = typing.get_type_hints(cls, include_extras=True)
    for field in dataclasses.fields(cls):
        since = since_of(hints[field.name])
        if since is None or since.first <= version <= since.last:
            yield field.name, hints[field.name]


def layout(type_: Any, version: int, type_args: TypeArgs | None = None) -> Any:
    """Return a declared type as `response_schemas.json` has it."""
    type_args = type_args or {}
    if isinstance(type_, TypeVar):
        return layout(type_args[type_], version)
    origin = typing.get_origin(type_)
    if origin is Annotated:
        for wire in type_.__metadata__:
            if isinstance(wire, Fixed):
                return {"type": INTEGERS[wire.code], "nullable": False}
            if isinstance(wire, Sized):
                return {"type": "string" if wire.text else "bytes", "nullable": wire.nullable}
        is_nullable = all(
            version >= wire.first for wire in type_.__metadata__ if isinstance(wire, NullSince)
        )
        described = layout(type_.__origin__, version, type_args)
        return {**described, "nullable": described["nullable"] and is_nullable}
    if origin is list:
        item = layout(typing.get_args(type_)[0], version, type_args)
        return {"array": item, "nullable": False}
    if type(None) in typing.get_args(type_):
        (array,) = (arg for arg in typing.get_args(type_) if arg is not type(None))
        return {**layout(array, version, type_args), "nullable": True}
    if origin is not None:  # a generic struct
        type_args = dict(zip(origin.__parameters__, typing.get_args(type_), strict=True))
        type_ = origin
    return [
        [name, layout(hint, version, type_args)] for name, hint in present_fields(type_, version)
    ]


def differences(ours: Any, theirs: Any, path: str) -> Iterator[str]:
    """Yield where a layout isn't Kafka's, or refuses a null that Kafka may send."""
    if isinstance(theirs, list):
        if not isinstance(ours, list) or len(ours) != len(theirs):
            yield f"{path}: other fields than {[name for name, _ in theirs]}"
            return
        for (_, our_type), (name, their_type) in zip(ours, theirs, strict=True):
            yield from differences(our_type, their_type, f"{path}.{name}")
    elif theirs["nullable"] and not ours["nullable"]:
        yield f"{path}: may be null"
    elif "array" in theirs:
        yield from differences(ours["array"], theirs["array"], path)
    elif ours["type"] != theirs["type"].replace("records", "bytes"):
        yield f"{path}: {ours['type']}, expected {theirs['type']}"


@each_api_and_version
def test_response_has_the_nullable_fields_of_kafka(
    request_class: type[api.Request[Any]], version: int
) -> None:
    theirs = [
        schema
        for schema in SCHEMAS
        if (schema["api"], schema["version"]) == (request_class.api.name, version)
    ]
    assert theirs
    ours = layout(request_class.response, version)
    for schema in theirs:
        assert not list(differences(ours, schema["fields"], schema["release"]))


def test_kafka_declares_these_nullable_fields() -> None:
    """So that the comparison above can't pass because it reads nothing."""

    def nullable(described: Any, path: str) -> Iterator[str]:
        if isinstance(described, list):
            for name, type_ in described:
                yield from nullable(type_, f"{path}.{name}")
            return
        if described["nullable"]:
            yield path
        yield from nullable(described["array"], path) if "array" in described else ()

    spoken = {(request.api.name, version) for request, version in SPOKEN}
    found = {
        path
        for schema in SCHEMAS
        if (schema["api"], schema["version"]) in spoken and schema["release"] == "3.9.1"
        for path in nullable(schema["fields"], f"{schema['api']} {schema['version']}")
    }
    assert found >= {
        *(f"FETCH {version}.responses.partitions.records" for version in range(3)),
        *(f"OFFSET_FETCH {version}.topics.partitions.metadata" for version in range(3)),
        "METADATA 1.brokers.rack",
    }


# --- null is decoded ----------------------------------------------------------------------------


def null_places(
    type_: Any, version: int, type_args: TypeArgs | None = None
) -> Iterator[tuple[str | int, ...]]:
    """Yield the path to each nullable value: names of fields, and 0 for the first of an array."""
    type_args = type_args or {}
    if isinstance(type_, TypeVar):
        type_ = type_args[type_]
    described = layout(type_, version, type_args)
    if isinstance(described, dict) and described["nullable"]:
        yield ()
    while typing.get_origin(type_) is Annotated:
        type_ = type_.__origin__
    origin = typing.get_origin(type_)
    if origin is list:
        for path in null_places(typing.get_args(type_)[0], version, type_args):
            yield (0, *path)
        return
    if origin is api.Topic:
        type_args = {api.P: typing.get_args(type_)[0]}
        type_ = origin
    if dataclasses.is_dataclass(type_):
        for name, hint in present_fields(type_, version):
            for path in null_places(hint, version, type_args):
                yield (name, *path)


def value_at(holder: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        holder = holder[step] if isinstance(step, int) else getattr(holder, step)
    return holder


NULLS = [
    (request, version, path)
    for request, version in SPOKEN
    for path in null_places(request.response, version)
]


@pytest.mark.parametrize(
    ("request_class", "version", "path"),
    NULLS,
    ids=[f"{it[0].__name__}-v{it[1]}-{'.'.join(map(str, it[2]))}" for it in NULLS],
)
def test_null_field_is_decoded_and_the_rest_is_intact(
    request_class: type[api.Request[Any]], version: int, path: tuple[str | int, ...]
) -> None:
    response = sample(request_class.response, version)
    *to_holder, name = path
    holder = value_at(response, tuple(to_holder))
    setattr(holder, str(name), None)
    frame = b"".join(api.encode_response(response, version, 1))[4:]
    decoded = api.decode_response(request_class, version, memoryview(frame))
    null = value_at(decoded, path)
    assert null is None or len(null) == 0
    setattr(value_at(decoded, tuple(to_holder)), str(name), None)
    assert decoded == response


def test_there_are_nullable_fields_in_each_kind_of_response() -> None:
    names = {(request.__name__, path[-1]) for request, _, path in NULLS}
    assert names >= {
        ("FetchRequest", "message_set"),
        ("MetadataRequest", "host"),
        ("MetadataRequest", "rack"),
        ("OffsetFetchRequest", "metadata"),
        ("GroupCoordinatorRequest", "host"),
    }


@pytest.mark.parametrize("version", FetchRequest.versions)
def test_null_message_set_is_an_empty_view_of_the_frame(version: int) -> None:
    """The consumer's memory accounting relies on it: any set names the frame that it is in."""
    parts = [FetchedPartition(0, 76, -1, b""), FetchedPartition(1, 0, 5, b"message set")]
    parts[0].message_set = None  # type: ignore[assignment]
    encoded = b"".join(api.encode_response(FetchResponse(0, [api.Topic("t", parts)]), version, 1))
    frame = bytearray(encoded[4:])
    [topic] = api.decode_response(FetchRequest, version, memoryview(frame)).topics
    refused, good = topic.partitions
    assert (refused.error_code, bytes(refused.message_set)) == (76, b"")
    assert bytes(good.message_set) == b"message set"
    assert all(
        isinstance(it.message_set, memoryview) and it.message_set.obj is frame
        for it in topic.partitions
    )


@pytest.mark.parametrize("length", [-2, -(2**31)])
def test_other_negative_set_length_raises(length: int) -> None:
    """Only -1 is null: a damaged length must not look like an empty set."""
    response = FetchResponse(0, [api.Topic("t", [FetchedPartition(0, 0, 5, b"")])])
    frame = b"".join(api.encode_response(response, 0, 1))[4:]
    damaged = frame[:-4] + length.to_bytes(4, "big", signed=True)
    with pytest.raises(KafkaProtocolError, match=f"length {length}; expected >= -1"):
        api.decode_response(FetchRequest, 0, damaged)
