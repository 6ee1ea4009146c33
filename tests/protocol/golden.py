"""The vectors: frames captured from real brokers, and their decoded content as JSON.

`vectors/*.json` has `{"format": 1, "vectors": [...]}`. A vector has `broker`, `api`, `api_version`,
`response_layout` (the layout of the bytes: 0.8 responds to v1 requests in v0), `description`,
`request` (decoded fields; message sets as hex), `request_hex`, `response_hex` (full frames with the
size prefix) and `expected` (the decoded response, snake_case names). Keys and values in `messages`
are hex or null; `inner` has the decompressed messages; `truncated_tail_bytes` counts the bytes
after the last whole message; `deliver` has the [offset, key, value] that a consumer of the
requested offset should get (magic 0 only, offsets below it dropped). The brokers with ports 22000
to 22999 had `message.max.bytes=2000` (small "too large" frames).

`request_fields` and `response_fields` turn decoded structs into the JSON shapes of the vectors; the
declarations decide which fields a version has.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import typing
from typing import Any, NamedTuple

import pytest

from aiokafka08.protocol import api
from aiokafka08.protocol.requests.api_versions import ApiVersionsResponse
from aiokafka08.protocol.requests.fetch import FetchRequest
from aiokafka08.protocol.requests.produce import ProduceRequest
from aiokafka08.protocol.requests.registry import APIS
from aiokafka08.protocol.types import Since
from tests.protocol.decoding import decode_request

VECTOR_DIR = pathlib.Path(__file__).parent / "vectors"


class Vector(NamedTuple):
    """One captured request with its response."""

    name: str
    request_class: type[api.Request[Any]]
    version: int
    layout: int
    """The version of the response's layout: 0.8 answers newer requests in version 0."""
    request_frame: bytes
    response_frame: bytes
    request: dict[str, Any]
    expected: dict[str, Any]

    @property
    def request_body(self) -> bytes:
        """The request without its size prefix."""
        return self.request_frame[4:]

    @property
    def response_body(self) -> bytes:
        """The response without its size prefix, from the correlation id on."""
        return self.response_frame[4:]

    def decoded_request(self) -> api.Request[Any]:
        body = decode_request(self.request_body).body
        assert body is not None
        return body

    def decoded_response(self) -> api.Response:
        return api.decode_response(self.request_class, self.layout, self.response_body)


def _load() -> list[Vector]:
    vectors = []
    for path in sorted(VECTOR_DIR.glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        assert content["format"] == 1
        vectors += [
            Vector(
                entry["name"],
                APIS[entry["api"]],
                entry["api_version"],
                int(entry["response_layout"].removeprefix("v")),
                bytes.fromhex(entry["request_hex"]),
                bytes.fromhex(entry["response_hex"]),
                entry["request"],
                entry["expected"],
            )
            for entry in content["vectors"]
        ]
    return vectors


VECTORS = _load()
FETCHES = [vector for vector in VECTORS if vector.request_class is FetchRequest]
PRODUCES = [vector for vector in VECTORS if vector.request_class is ProduceRequest]

every_vector = pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.name)
every_fetch = pytest.mark.parametrize("vector", FETCHES, ids=lambda vector: vector.name)
every_produce = pytest.mark.parametrize("vector", PRODUCES, ids=lambda vector: vector.name)


def message_sets(vector: Vector) -> list[bytes]:
    """The message sets of a Produce request or a Fetch response, in wire order."""
    struct: Any = (
        vector.decoded_request()
        if vector.request_class is ProduceRequest
        else vector.decoded_response()
    )
    return [
        bytes(partition.message_set) for topic in struct.topics for partition in topic.partitions
    ]


def wire_fields(struct: Any, version: int) -> dict[str, Any]:
    """Return the fields of a struct that this version has."""
    hints = typing.get_type_hints(type(struct), include_extras=True)
    fields = {}
    for field in dataclasses.fields(struct):
        marks = getattr(hints[field.name], "__metadata__", ())
        since = next((mark for mark in marks if isinstance(mark, Since)), None)
        if since is None or since.first <= version <= since.last:
            fields[field.name] = getattr(struct, field.name)
    return fields


def request_fields(request: api.Request[Any], version: int) -> dict[str, Any]:
    """Return a request in the JSON shape of the vectors: arrays of arrays, message sets in hex."""
    return {name: _compact(value, version) for name, value in wire_fields(request, version).items()}


def _compact(value: Any, version: int) -> Any:
    if dataclasses.is_dataclass(value):
        return [_compact(field, version) for field in wire_fields(value, version).values()]
    if isinstance(value, list):
        return [_compact(one, version) for one in value]
    if isinstance(value, bytes | memoryview):
        return bytes(value).hex()
    return value


def response_fields(response: api.Response, version: int) -> dict[str, Any]:
    """Return a response in the JSON shape of the vectors, without the content of message sets."""
    fields = _by_name(response, version)
    if isinstance(response, ApiVersionsResponse):
        fields["api_versions"] = [list(one.values()) for one in fields["api_versions"]]
    return fields


def _by_name(value: Any, version: int) -> Any:
    if dataclasses.is_dataclass(value):
        return {
            name: _by_name(field, version) for name, field in wire_fields(value, version).items()
        }
    if isinstance(value, list):
        return [_by_name(one, version) for one in value]
    return value
