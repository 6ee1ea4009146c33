"""The common parts of all requests and responses: base classes, api keys, frames.

A request class knows its api key, its versions and its response class.

Invariant: the bytes of a frame are those of the declared fields. If a version doesn't have a field,
any value but the field's `absent` raises ValueError instead of being dropped.
"""

from __future__ import annotations

import enum
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from aiokafka08.errors import KafkaProtocolError
from aiokafka08.protocol.types import Buffer, Int16, Int32, NullableString, String, compiled


class ApiKey(enum.IntEnum):
    """The api keys of brokers 0.8 – 0.10, and of SaslAuthenticate (1.0) and DeleteGroups (1.1).

    Keys 4 – 7 are for brokers only, so `requests` doesn't declare them.
    """

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    GROUP_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    SASL_AUTHENTICATE = 36
    DELETE_GROUPS = 42


class _InPartition(Protocol):
    """An item of `Topic.partitions`."""

    partition: int


P = TypeVar("P")
PartT = TypeVar("PartT", bound=_InPartition)
R = TypeVar("R", bound="Response")


@dataclass(slots=True)
class Topic(Generic[P]):
    """What most requests and responses consist of: a topic, and one item per partition."""

    topic: String
    partitions: list[P]


def by_topic(parts: Iterable[tuple[str, P]]) -> list[Topic[P]]:
    """Group items of partitions, given with their topics' names, into one `Topic` per topic."""
    topics: dict[str, list[P]] = {}
    for topic, part in parts:
        topics.setdefault(topic, []).append(part)
    return [Topic(topic, some) for topic, some in topics.items()]


def by_partition(topics: Iterable[Topic[PartT]]) -> dict[tuple[str, int], PartT]:
    """Return the items of a response by topic and partition."""
    # Brokers respond in the order of a hash map, not of the request (docs/brokers.md 3.11).
    return {(topic.topic, part.partition): part for topic in topics for part in topic.partitions}


def left_out(what: str, node_id: int | None = None) -> KafkaProtocolError:
    """Return the error for a response without a partition or group of the request."""
    broker = "the broker" if node_id is None else f"node {node_id}"
    return KafkaProtocolError(f"{broker} left {what} out of its response")


@dataclass(slots=True)
class Response:
    """The base class of all responses."""


@dataclass(slots=True)
class Request(Generic[R]):
    """The base class of all requests; `R` is the response's class."""

    api: ClassVar[ApiKey]
    versions: ClassVar[range]
    response: ClassVar[type[Response]]

    @property
    def expects_response(self) -> bool:
        """False only for Produce with required_acks=0, to which brokers send no response."""
        return True


# --- frames: header and body, of requests and responses -------------------------------------------


@dataclass(slots=True)
class RequestHeader:
    api_key: Int16
    api_version: Int16
    correlation_id: Int32
    client_id: NullableString


def encode_request(
    request: Request[Any], version: int, correlation_id: int, client_id: str
) -> list[Buffer]:
    """Encode a request; return its frame, size prefix included, as buffers to write in order.

    Message sets are among the buffers without being copied.

    Raises:
        ValueError: a value doesn't fit the version's layout (too long, None, not in this version).
    """
    if version not in request.versions:
        raise ValueError(
            f"{type(request).__name__}: version {version}; expected {request.versions[0]} to "
            f"{request.versions[-1]}"
        )
    out: list[Buffer] = []
    header = RequestHeader(request.api, version, correlation_id, client_id)
    compiled(RequestHeader, 0).write(header, out)
    compiled(type(request), version).write(request, out)
    return _framed(out)


def encode_response(
    response: Response, version: int, correlation_id: int, *, lenient: bool = False
) -> list[Buffer]:
    """Encode a response; return its frame, size prefix included, as buffers to write in order.

    With `lenient`, each string may be None (`types.compiled`).
    """
    out: list[Buffer] = [correlation_id.to_bytes(4, "big", signed=True)]
    compiled(type(response), version, lenient).write(response, out)
    return _framed(out)


def _framed(out: list[Buffer]) -> list[Buffer]:
    size = sum(map(len, out))
    if size > 0x7FFFFFFF:
        raise ValueError(f"a frame: {size} bytes; expected at most {0x7FFFFFFF}")
    out.insert(0, size.to_bytes(4, "big"))
    return out


def decode_correlation_id(frame: Buffer) -> int:
    """Return the correlation id at the start of a response's frame.

    Raises:
        KafkaProtocolError: the frame is too short to have one.
    """
    if len(frame) < 4:
        raise KafkaProtocolError(f"a response: {len(frame)} bytes; expected at least 4")
    return int.from_bytes(frame[:4], "big", signed=True)


def decode_response(request: type[Request[R]], version: int, frame: Buffer) -> R:
    """Decode a response from its frame (without the size prefix, with the correlation id).

    If the frame is a memoryview, fields of type `Bytes` are views of it.

    Raises:
        KafkaProtocolError: the frame is cut short, malformed, or longer than the response.
    """
    response, pos = compiled(request.response, version).read(frame, 4, len(frame))
    _check_end(request, version, pos, frame)
    return response  # type: ignore[no-any-return]


def decode_response_in_steps(
    request: type[Request[R]], version: int, frame: Buffer
) -> Generator[None, None, R]:
    """Do what `decode_response` does, in steps: yield between them if the response is large."""
    read_steps = compiled(request.response, version).read_steps
    if read_steps is None:
        return decode_response(request, version, frame)
    response, pos = yield from read_steps(frame, 4, len(frame))
    _check_end(request, version, pos, frame)
    return response  # type: ignore[no-any-return]


def _check_end(request: type[Request[Any]], version: int, pos: int, frame: Buffer) -> None:
    if pos != len(frame):
        raise KafkaProtocolError(
            f"{request.response.__name__} version {version}: {len(frame) - pos} bytes after its "
            "end; expected none"
        )
