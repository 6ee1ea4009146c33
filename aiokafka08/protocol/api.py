"""All requests and responses of the protocol, declared once, for the client and the server side.

A request class knows its api key, its versions and its response class; `APIS` maps each api key to
its request class. The layouts follow the 0.8 and 0.9 protocol guides except where real brokers
deviate (docs/brokers.md). `types` compiles the structs; message sets are opaque bytes here
(`message_set`). `connection` encodes requests and decodes responses, the embedded cluster
(`testing`) does the opposite. The client's packages make the requests and read the responses.

Invariant: each struct is declared once, with the versions of its fields. If a version doesn't have
a field, any value but the field's `absent` raises ValueError instead of being dropped.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Generic, TypeVar

from aiokafka08.errors import KafkaProtocolError
from aiokafka08.fields import ByFields
from aiokafka08.protocol.types import (
    Boolean,
    Buffer,
    Bytes,
    Int16,
    Int32,
    Int64,
    NullableString,
    NullSince,
    Since,
    String,
    compiled,
)

__all__ = ["APIS", "ApiKey", "Request", "Response", "Topic", "by_topic"]


class ApiKey(enum.IntEnum):
    """The api keys of brokers 0.8 – 0.10, and of DeleteGroups (1.1).

    Keys 4 – 7 are for brokers only, so not in `APIS`.
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
    API_VERSIONS = 18
    DELETE_GROUPS = 42


P = TypeVar("P")
R = TypeVar("R", bound="Response")


@dataclass(slots=True, eq=False, repr=False)
class Topic(ByFields, Generic[P]):
    """What most requests and responses consist of: a topic, and one item per partition."""

    topic: String
    partitions: list[P]


def by_topic(parts: Iterable[tuple[str, P]]) -> list[Topic[P]]:
    """Group items of partitions, given with their topics' names, into one `Topic` per topic."""
    topics: dict[str, list[P]] = {}
    for topic, part in parts:
        topics.setdefault(topic, []).append(part)
    return [Topic(topic, some) for topic, some in topics.items()]


class Response(ByFields):
    """The base class of all responses."""

    __slots__ = ()


class Request(ByFields, Generic[R]):
    """The base class of all requests; `R` is the response's class."""

    __slots__ = ()
    api: ClassVar[ApiKey]
    versions: ClassVar[range]
    response: ClassVar[type[Response]]

    @property
    def expects_response(self) -> bool:
        """False only for Produce with required_acks=0: brokers send no response to it."""
        return True


# --- Produce (0) --------------------------------------------------------------------------------


@dataclass(slots=True, eq=False, repr=False)
class ProducePartition(ByFields):
    partition: Int32
    message_set: Bytes


@dataclass(slots=True, eq=False, repr=False)
class ProducedPartition(ByFields):
    """The result for one partition.

    `offset` is the offset of the first message; -1 with error 0 means that nothing was stored.
    `timestamp` is the broker's time under LogAppendTime, else -1.
    """

    partition: Int32
    error_code: Int16
    offset: Int64
    timestamp: Annotated[Int64, Since(2, absent=-1)] = -1


@dataclass(slots=True, eq=False, repr=False)
class ProduceResponse(Response):
    topics: list[Topic[ProducedPartition]]
    throttle_time_ms: Annotated[Int32, Since(1, absent=0)] = 0


@dataclass(slots=True, eq=False, repr=False)
class ProduceRequest(Request[ProduceResponse]):
    """Message sets to store.

    `required_acks`: 0 for no response, 1 for the leader, -1 for the whole ISR, n > 1 for n replicas
    (0.8 only).
    """

    api = ApiKey.PRODUCE
    versions = range(3)
    response = ProduceResponse

    required_acks: Int16
    timeout_ms: Int32
    topics: list[Topic[ProducePartition]]

    @property
    def expects_response(self) -> bool:
        return self.required_acks != 0


# --- Fetch (1) ----------------------------------------------------------------------------------


@dataclass(slots=True, eq=False, repr=False)
class FetchPartition(ByFields):
    partition: Int32
    fetch_offset: Int64
    max_bytes: Int32


@dataclass(slots=True, eq=False, repr=False)
class FetchedPartition(ByFields):
    partition: Int32
    error_code: Int16
    high_watermark: Int64
    message_set: Bytes


@dataclass(slots=True, eq=False, repr=False)
class FetchResponse(Response):
    throttle_time_ms: Annotated[Int32, Since(1, absent=0)]
    topics: list[Topic[FetchedPartition]]


@dataclass(slots=True, eq=False, repr=False)
class FetchRequest(Request[FetchResponse]):
    """A long poll: the broker responds once it has `min_bytes`, or after `max_wait_ms`.

    `replica_id` is -1 for clients; the broker treats a fetch with an id ≥ 0 as the fetch of a
    follower, which can move the high watermark.
    """

    api = ApiKey.FETCH
    versions = range(3)
    response = FetchResponse

    replica_id: Int32
    max_wait_ms: Int32
    min_bytes: Int32
    topics: list[Topic[FetchPartition]]


# --- ListOffsets (2) ----------------------------------------------------------------------------

LATEST = -1
"""A `ListOffsetsPartition.timestamp` for the log end: the offset of the next message."""
EARLIEST = -2
"""A `ListOffsetsPartition.timestamp` for the log start: the offset of the first message."""


@dataclass(slots=True, eq=False, repr=False)
class ListOffsetsPartition(ByFields):
    partition: Int32
    timestamp: Int64
    max_num_offsets: Annotated[Int32, Since(0, last=0, absent=1)] = 1


@dataclass(slots=True, eq=False, repr=False)
class ListedOffsets(ByFields):
    """The offsets of one partition.

    Version 0 has `offsets`: the start offsets of segments, descending; for `LATEST` the log end
    comes first. Version 1 has `offset` and `timestamp` of the first message with this timestamp or
    a later one; both are -1 if there is none. For `LATEST` and `EARLIEST` `timestamp` is -1.
    """

    partition: Int32
    error_code: Int16
    # Only version 0 has this field, never null: NullSince(1) allows null from version 1 on.
    offsets: Annotated[list[Int64] | None, NullSince(1), Since(0, last=0, absent=None)] = None
    timestamp: Annotated[Int64, Since(1, absent=-1)] = -1
    offset: Annotated[Int64, Since(1, absent=-1)] = -1


@dataclass(slots=True, eq=False, repr=False)
class ListOffsetsResponse(Response):
    topics: list[Topic[ListedOffsets]]


@dataclass(slots=True, eq=False, repr=False)
class ListOffsetsRequest(Request[ListOffsetsResponse]):
    """Offsets by time: version 0 compares with the times of segment files, version 1 with the
    timestamps of messages (KIP-79, brokers from 0.10.1 on)."""

    api = ApiKey.LIST_OFFSETS
    versions = range(2)
    response = ListOffsetsResponse

    replica_id: Int32
    topics: list[Topic[ListOffsetsPartition]]


# --- Metadata (3) -------------------------------------------------------------------------------


@dataclass(slots=True, eq=False, repr=False)
class Broker(ByFields):
    node_id: Int32
    host: String
    port: Int32
    rack: Annotated[NullableString, Since(1, absent=None)] = None


@dataclass(slots=True, eq=False, repr=False)
class PartitionState(ByFields):
    error_code: Int16
    partition: Int32
    leader: Int32
    replicas: list[Int32]
    isr: list[Int32]


@dataclass(slots=True, eq=False, repr=False)
class TopicState(ByFields):
    error_code: Int16
    topic: String
    is_internal: Annotated[Boolean, Since(1, absent=False)]
    partitions: list[PartitionState]


@dataclass(slots=True, eq=False, repr=False)
class MetadataResponse(Response):
    brokers: list[Broker]
    controller_id: Annotated[Int32, Since(1, absent=-1)]
    topics: list[TopicState]


@dataclass(slots=True, eq=False, repr=False)
class MetadataRequest(Request[MetadataResponse]):
    """All topics are `[]` in version 0 and None in version 1, where `[]` means no topic."""

    api = ApiKey.METADATA
    versions = range(2)
    response = MetadataResponse

    topics: Annotated[list[String] | None, NullSince(1)]


# --- OffsetCommit (8), OffsetFetch (9), GroupCoordinator (10) ------------------------------------


@dataclass(slots=True, eq=False, repr=False)
class CommitPartition(ByFields):
    partition: Int32
    offset: Int64
    timestamp: Annotated[Int64, Since(1, last=1, absent=-1)]
    metadata: NullableString


@dataclass(slots=True, eq=False, repr=False)
class PartitionError(ByFields):
    partition: Int32
    error_code: Int16


@dataclass(slots=True, eq=False, repr=False)
class OffsetCommitResponse(Response):
    topics: list[Topic[PartitionError]]


@dataclass(slots=True, eq=False, repr=False)
class OffsetCommitRequest(Request[OffsetCommitResponse]):
    """Offsets to commit.

    Version 0 commits to ZooKeeper, 1 and 2 commit to `__consumer_offsets`; these are two separate
    stores. The commit of a client that isn't a member of the group has generation -1 and member "".
    """

    api = ApiKey.OFFSET_COMMIT
    versions = range(3)
    response = OffsetCommitResponse

    group: NullableString
    generation: Annotated[Int32, Since(1, absent=-1)]
    member: Annotated[String, Since(1, absent="")]
    retention_time_ms: Annotated[Int64, Since(2, absent=-1)]
    topics: list[Topic[CommitPartition]]


@dataclass(slots=True, eq=False, repr=False)
class CommittedPartition(ByFields):
    partition: Int32
    offset: Int64
    metadata: NullableString
    error_code: Int16


@dataclass(slots=True, eq=False, repr=False)
class OffsetFetchResponse(Response):
    """`error_code` is that of the whole group, such as NotCoordinatorForGroup."""

    topics: list[Topic[CommittedPartition]]
    error_code: Annotated[Int16, Since(2, absent=0)] = 0


@dataclass(slots=True, eq=False, repr=False)
class OffsetFetchRequest(Request[OffsetFetchResponse]):
    """Version 0 reads from ZooKeeper, 1 and 2 from `__consumer_offsets`.

    All committed offsets of a group are `None` in version 2, and `[]` in version 1 on 0.9 to 0.10.1
    (docs/brokers.md 8.8).
    """

    api = ApiKey.OFFSET_FETCH
    versions = range(3)
    response = OffsetFetchResponse

    group: NullableString
    topics: Annotated[list[Topic[Int32]] | None, NullSince(2)]


@dataclass(slots=True, eq=False, repr=False)
class GroupCoordinatorResponse(Response):
    error_code: Int16
    node_id: Int32
    host: String
    port: Int32


@dataclass(slots=True, eq=False, repr=False)
class GroupCoordinatorRequest(Request[GroupCoordinatorResponse]):
    """Named ConsumerMetadata in 0.8.2, GroupCoordinator in 0.9, FindCoordinator later."""

    api = ApiKey.GROUP_COORDINATOR
    versions = range(1)
    response = GroupCoordinatorResponse

    group: NullableString


# --- Groups (11 – 16) ---------------------------------------------------------------------------


@dataclass(slots=True, eq=False, repr=False)
class GroupProtocol(ByFields):
    name: String
    metadata: Bytes


@dataclass(slots=True, eq=False, repr=False)
class JoinedMember(ByFields):
    member: String
    metadata: Bytes


@dataclass(slots=True, eq=False, repr=False)
class JoinGroupResponse(Response):
    error_code: Int16
    generation: Int32
    protocol: String
    leader: String
    member: String
    members: list[JoinedMember]


@dataclass(slots=True, eq=False, repr=False)
class JoinGroupRequest(Request[JoinGroupResponse]):
    """In version 0 the session timeout is also the limit for a rebalance."""

    api = ApiKey.JOIN_GROUP
    versions = range(1)
    response = JoinGroupResponse

    group: String
    session_timeout_ms: Int32
    member: String
    protocol_type: String
    protocols: list[GroupProtocol]


@dataclass(slots=True, eq=False, repr=False)
class GroupError(Response):
    """A response that is only an error code (Heartbeat, LeaveGroup)."""

    error_code: Int16


@dataclass(slots=True, eq=False, repr=False)
class HeartbeatRequest(Request[GroupError]):
    api = ApiKey.HEARTBEAT
    versions = range(1)
    response = GroupError

    group: String
    generation: Int32
    member: String


@dataclass(slots=True, eq=False, repr=False)
class LeaveGroupRequest(Request[GroupError]):
    api = ApiKey.LEAVE_GROUP
    versions = range(1)
    response = GroupError

    group: String
    member: String


@dataclass(slots=True, eq=False, repr=False)
class MemberAssignment(ByFields):
    member: String
    assignment: Bytes


@dataclass(slots=True, eq=False, repr=False)
class SyncGroupResponse(Response):
    error_code: Int16
    assignment: Bytes


@dataclass(slots=True, eq=False, repr=False)
class SyncGroupRequest(Request[SyncGroupResponse]):
    api = ApiKey.SYNC_GROUP
    versions = range(1)
    response = SyncGroupResponse

    group: String
    generation: Int32
    member: String
    assignments: list[MemberAssignment]


@dataclass(slots=True, eq=False, repr=False)
class DescribedMember(ByFields):
    member: String
    client_id: String
    client_host: String
    metadata: Bytes
    assignment: Bytes


@dataclass(slots=True, eq=False, repr=False)
class DescribedGroup(ByFields):
    error_code: Int16
    group: String
    state: String
    protocol_type: String
    protocol: String
    members: list[DescribedMember]


@dataclass(slots=True, eq=False, repr=False)
class DescribeGroupsResponse(Response):
    groups: list[DescribedGroup]


@dataclass(slots=True, eq=False, repr=False)
class DescribeGroupsRequest(Request[DescribeGroupsResponse]):
    api = ApiKey.DESCRIBE_GROUPS
    versions = range(1)
    response = DescribeGroupsResponse

    groups: list[String]


@dataclass(slots=True, eq=False, repr=False)
class ListedGroup(ByFields):
    group: String
    protocol_type: String


@dataclass(slots=True, eq=False, repr=False)
class ListGroupsResponse(Response):
    error_code: Int16
    groups: list[ListedGroup]


@dataclass(slots=True, eq=False, repr=False)
class ListGroupsRequest(Request[ListGroupsResponse]):
    api = ApiKey.LIST_GROUPS
    versions = range(1)
    response = ListGroupsResponse


# --- DeleteGroups (42) --------------------------------------------------------------------------


@dataclass(slots=True, eq=False, repr=False)
class DeletedGroup(ByFields):
    group: String
    error_code: Int16


@dataclass(slots=True, eq=False, repr=False)
class DeleteGroupsResponse(Response):
    throttle_time_ms: Int32
    groups: list[DeletedGroup]


@dataclass(slots=True, eq=False, repr=False)
class DeleteGroupsRequest(Request[DeleteGroupsResponse]):
    """Remove groups without members, with their committed offsets (brokers from 1.1 on)."""

    api = ApiKey.DELETE_GROUPS
    versions = range(1)
    response = DeleteGroupsResponse

    groups: list[String]


# --- ApiVersions (18) ---------------------------------------------------------------------------


@dataclass(slots=True, eq=False, repr=False)
class VersionRange(ByFields):
    api_key: Int16
    min_version: Int16
    max_version: Int16


@dataclass(slots=True, eq=False, repr=False)
class ApiVersionsResponse(Response):
    error_code: Int16
    api_versions: list[VersionRange]


@dataclass(slots=True, eq=False, repr=False)
class ApiVersionsRequest(Request[ApiVersionsResponse]):
    """For brokers ≥ 0.10: 0.8 closes the connection, 0.9 never responds (docs/brokers.md 2.2)."""

    api = ApiKey.API_VERSIONS
    versions = range(1)
    response = ApiVersionsResponse


APIS: dict[int, type[Request[Any]]] = {
    request.api: request
    for request in (
        ProduceRequest,
        FetchRequest,
        ListOffsetsRequest,
        MetadataRequest,
        OffsetCommitRequest,
        OffsetFetchRequest,
        GroupCoordinatorRequest,
        JoinGroupRequest,
        HeartbeatRequest,
        LeaveGroupRequest,
        SyncGroupRequest,
        DescribeGroupsRequest,
        ListGroupsRequest,
        DeleteGroupsRequest,
        ApiVersionsRequest,
    )
}
"""The request class of each api key that this package can use."""


# --- frames: header and body, of requests and responses -------------------------------------------


@dataclass(slots=True, eq=False, repr=False)
class RequestHeader(ByFields):
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
    if pos != len(frame):
        raise KafkaProtocolError(
            f"{request.response.__name__} version {version}: {len(frame) - pos} bytes after its "
            "end; expected none"
        )
    return response  # type: ignore[no-any-return]
