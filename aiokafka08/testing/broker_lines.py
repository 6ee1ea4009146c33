"""The differences between broker lines, as data: API versions and quirks of each line (`LINES`).

Invariant: a difference between lines is a field of `LineRules`. The brokers' code reads the field
and never compares the line's name. Requests are decoded here, because on 0.8 and 0.9 the line
decides the layout of a request, not the version in the request.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from aiokafka08.errors import (
    GroupCoordinatorNotAvailableError,
    IllegalGenerationError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    KafkaProtocolError,
    NoError,
    NotCoordinatorForGroupError,
    RecordListTooLargeError,
    UnknownError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from aiokafka08.protocol.api import ApiKey, Request, RequestHeader
from aiokafka08.protocol.requests.metadata import MetadataRequest
from aiokafka08.protocol.requests.registry import APIS
from aiokafka08.protocol.types import Buffer, TooManyItems, compiled, read_limited


class BadRequestPolicy(enum.Enum):
    """How a broker handles a request that it can't read."""

    CLOSE = "close the connection without a response"
    # The real 0.9 may lose requests of other connections at the same moment (brokers.md 2.2). That
    # isn't modelled; tests that need it use `faults.Silence`.
    SILENCE = "send no response, and read on"


class ResponseOrder(enum.Enum):
    """How a response orders topics and partitions (brokers.md 3.11)."""

    REVERSED = "as if by chance: here the reverse of the request"
    HASH_MAP = "as Java's HashMap, so partitions ascend"
    REQUEST = "as the request, but unknown topics at the end"


class NestedSetPolicy(enum.Enum):
    """How a broker stores a compressed message set inside another one (brokers.md 6.7)."""

    FLATTEN = "move the inner messages into the outer wrapper"
    KEEP = "store it unchanged, as if it were one message"


@dataclass(frozen=True, slots=True)
class SupportedVersions:
    """The versions of one API that a line responds to.

    A request of a version in `known` gets a response in the layout of that version. A request of
    any other version gets the layout of version `rest`; if `rest` is None, it is unreadable.
    """

    known: range
    rest: int | None = None

    def layout(self, version: int) -> int | None:
        """Return the version whose layout the response has; None if it is unreadable."""
        return version if version in self.known else self.rest


_ANY_AS_0: Final = SupportedVersions(range(1), rest=0)
_ONLY_0: Final = SupportedVersions(range(1))


@dataclass(frozen=True, slots=True, kw_only=True)
class LineRules:
    """One line of brokers. The defaults are those of 0.8.2.

    Numbers in the comments of the fields are sections of docs/brokers.md.
    """

    name: str
    apis: Mapping[ApiKey, SupportedVersions]
    # APIs of requests between brokers: ApiVersions lists them, and a request closes the connection
    # with a warning, since embedded brokers carry none out.
    refused_apis: Mapping[ApiKey, range] = field(default_factory=dict)
    response_order: ResponseOrder = ResponseOrder.REVERSED
    # The order in Fetch responses; `response_order` is the order in other responses (3.11).
    fetch_order: ResponseOrder = ResponseOrder.REVERSED
    # For unknown API keys and versions, and for requests that are cut short (2.1, 2.8, 3.4).
    on_unreadable_request: BadRequestPolicy = BadRequestPolicy.CLOSE
    # The APIs in which any string may be null, and an array with a negative count is empty. Bodies
    # of other APIs that can't be read close the connection on all lines (3.4, 3.15).
    lenient_apis: frozenset[ApiKey] = frozenset(ApiKey) - {ApiKey.HEARTBEAT}
    # Whether a null client_id closes the connection, except in `lenient_apis` (3.10).
    requires_client_id: bool = False
    # For a frame of size 0 or 1, too short for an API key (3.4).
    on_empty_frame: BadRequestPolicy = BadRequestPolicy.CLOSE
    # The version whose layout a response has if the handler fails; None: the usual one (2.7).
    failure_layout: int | None = None
    # Whether requests that came before the client's FIN still get a response (3.7).
    responds_after_fin: bool = True
    # Whether requests that came together with the client's FIN aren't even carried out (3.7).
    drops_requests_before_fin: bool = False
    # The names that `create_topic` accepts in its `config`: those with an effect here.
    topic_configs: frozenset[str] = frozenset()
    # The longest name of a topic (4.4).
    max_topic_name: int = 255
    # Whether a name that differs from another topic's only by '.' and '_' is refused (4.4).
    names_collide: bool = False

    # --- Metadata ---

    # Whether the cluster has an id, which Metadata 2 lists and ZooKeeper has in `/cluster/id`.
    has_cluster_id: bool = False
    # Whether Metadata lists the brokers before the first topic exists; 0.8 lists none (4.1).
    empty_cluster_lists_brokers: bool = False
    # The error code for a topic name that isn't allowed (4.4).
    invalid_topic_code: int = InvalidTopicError.errno
    # Whether one invalid topic name fails all topics of the response (4.4).
    invalid_topic_fails_all: bool = True
    # Whether one failed auto-creation fails all topics of the response; seen up to 0.9 (4.5).
    failed_creation_fails_all: bool = True
    # The error code for a topic that can't be auto-created (4.5).
    failed_creation_code: int = UnknownError.errno
    # Whether Metadata lists only brokers with replicas of the topics in the response (4.11).
    lists_only_replica_hosts: bool = False
    # Whether Metadata still lists dead brokers after the controller has noticed their death. They
    # appear among the brokers and the replicas; their partitions don't get ReplicaNotAvailable.
    # They are never leaders (4.10).
    lists_dead_brokers: bool = False
    # Whether Metadata lists a partition's replicas in the order of their ids; else the preferred
    # leader comes first (4.13).
    lists_sorted_replicas: bool = False
    # Whether Metadata shows at once that a replica has joined or left an ISR. If False, it shows
    # the old ISR until the partition elects a leader or the controller notices the death of a
    # replica (4.8).
    publishes_isr_growth: bool = False

    # --- Produce ---

    # The message format of the log.
    message_format: int = 0
    # The bits of a message's attributes that name the codec (5.10).
    codec_mask: int = 0x07
    # The codecs that the broker can decompress (6.1).
    known_codecs: frozenset[int] = frozenset({1, 2, 3})
    # Whether the broker reads only lz4 frames with the wrong header checksum (6.2).
    legacy_lz4_only: bool = True
    nested_sets: NestedSetPolicy = NestedSetPolicy.FLATTEN
    # Whether the size of each message is checked as it was produced; in any case it is checked as
    # it would be stored (5.4).
    checks_sizes_first: bool = True
    # Whether a compacted topic rejects messages without a key (5.11).
    compacted_needs_keys: bool = False
    # The error code for a set larger than a segment; None if the broker stores it (5.5).
    set_over_segment_code: int | None = RecordListTooLargeError.errno
    # Whether a segment ends after the set that makes it too large; from 0.8.2 on it ends before
    # that set.
    segments_overflow: bool = False
    # Whether a topic with a negative `retention.ms` loses its messages at each check; else it keeps
    # them (8.18).
    negative_retention_is_over: bool = True
    # Whether acks > 1 waits if all partitions of the request have one replica, on this broker;
    # before 0.8.2 such a request counts as acknowledged (5.13).
    single_replicas_wait: bool = True
    # Whether a response that waited for replicas has the offset after the last message. If False,
    # it has the offset of the first message, like a response that didn't wait. If True, a partition
    # whose set wasn't stored also has offset 0 instead of -1. Seen on 0.8.0 and 0.8.1.1, which wait
    # if acks isn't 1 and some partition has several replicas (`single_replicas_wait`).
    waited_offset_is_next: bool = False
    # Whether acks may be any number; from 0.9 on it may only be -1, 0 or 1 (5.1, 11.4).
    acks_above_one: bool = True
    # Whether Produce and Fetch look for the topic first: its absence then counts more than a wrong
    # acks or replica_id.
    checks_topics_first: bool = False
    # The same for the replica_id of ListOffsets (8.2).
    list_offsets_checks_topics_first: bool = False

    # --- Fetch ---

    # Whether the broker responds to a partition's error at once; else after max_wait_ms (7.3).
    errors_end_the_wait: bool = True
    # Whether a fetch that waits counts the bytes of all sets that are produced, stored or not, and
    # looks at its partitions only when they suffice (7.16).
    waits_for_any_produce: bool = False
    # Whether a fetch that waits counts what could be read without its max_bytes (7.2, 7.16).
    waits_for_unlimited_bytes: bool = True
    # Whether a fetch with a replica_id >= 0 fails as a whole if one of its partitions has no such
    # replica; else it is served (7.7).
    unknown_replicas_fail: bool = True
    # Whether Produce and Fetch fail if the client_id is null, Produce after it has stored the
    # messages, Fetch after it has waited (3.10).
    data_needs_client_id: bool = False
    # The error code for a fetch between high watermark and log end; 0: it waits (7.10).
    above_high_watermark_code: int = UnknownError.errno

    # --- Offsets and coordinator ---

    # The longest metadata string of a commit (8.7).
    offset_metadata_chars: int = 4096
    # Whether a v1 commit that fails with OffsetMetadataTooLarge is stored all the same (8.7).
    stores_long_metadata: bool = True
    # Whether null metadata reads back as null; else as "" (8.5).
    keeps_null_metadata: bool = True
    # The error code for a v1 commit to an unknown topic (8.5).
    unknown_topic_commit_code: int = NoError.errno
    # The error code for a v1 fetch of an unknown partition's offset (8.8).
    unknown_partition_fetch_code: int = UnknownTopicOrPartitionError.errno
    # Whether a v1 fetch of no topics returns all committed offsets of the group (8.8).
    fetch_of_no_topics_is_all: bool = False
    # The version of keys and values of commits in the offsets topic (8.15).
    offset_record_version: int = 0
    # The error code for a commit that names a generation, if the group has neither members nor
    # committed offsets (8.6).
    generation_code: int = NoError.errno
    # The error code for such a commit if the group has committed offsets, but no members.
    known_group_generation_code: int = NoError.errno
    # Whether OffsetCommit and OffsetFetch for a null group close the connection (8.4).
    null_group_closes: bool = False
    # Whether GroupCoordinator for a null group closes the connection (8.9).
    null_coordinator_group_closes: bool = False
    # Whether, after an exception in the broker, GroupCoordinatorNotAvailable has the correlation id
    # 0 (8.9). A null group causes an exception. So does the creation of the offsets topic, whose
    # replication factor is three, in a cluster of one or two brokers where no topic has ever
    # existed.
    coordinator_forgets_correlation_id: bool = True
    # The error code for a v1 commit before the offsets topic exists.
    no_offsets_topic_code: int = GroupCoordinatorNotAvailableError.errno
    # Whether the line knows Heartbeat but no groups: 0.8.2 always responds with Unknown (2.3).
    heartbeat_is_a_stub: bool = True

    # --- Groups (8.13) ---

    # Whether a group without members stays, in the state "Empty"; else it is dead.
    empty_groups_stay: bool = False
    # Whether a commit without a generation creates an empty group.
    commits_make_groups: bool = False
    # Whether Heartbeat, during a rebalance, returns UnknownMemberId to a client that is no member.
    # If False, each client gets RebalanceInProgress.
    heartbeat_checks_member_first: bool = False
    # Whether a commit extends the session.
    commit_is_heartbeat: bool = False
    max_session_timeout_s: float = 30.0


_CONFIGS_0_8_1: Final = frozenset({"cleanup.policy", "max.message.bytes", "retention.bytes",
                            "retention.ms", "segment.bytes", "segment.ms"})  # fmt: skip
_CONFIGS_0_8_2: Final = _CONFIGS_0_8_1 | {"min.insync.replicas", "unclean.leader.election.enable"}
_CONFIGS_0_9: Final = _CONFIGS_0_8_2 | {"compression.type"}
_CONFIGS_0_10: Final = _CONFIGS_0_9 | {"message.timestamp.type"}

_DATA: Final = (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.METADATA)
_GROUPS: Final = (
    ApiKey.JOIN_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.LIST_GROUPS,
)

_0_8_0 = LineRules(
    name="0.8.0",
    apis=dict.fromkeys(_DATA, _ANY_AS_0),
    invalid_topic_code=UnknownError.errno,
    codec_mask=0x03,
    known_codecs=frozenset({1, 2}),
    set_over_segment_code=None,
    segments_overflow=True,
    checks_sizes_first=False,
    lists_only_replica_hosts=True,
    lists_dead_brokers=True,
    single_replicas_wait=False,
    waited_offset_is_next=True,
    errors_end_the_wait=False,
    waits_for_any_produce=True,
    unknown_replicas_fail=False,
)
_0_8_1 = LineRules(
    name="0.8.1",
    apis={
        **dict.fromkeys(_DATA, _ANY_AS_0),
        ApiKey.OFFSET_COMMIT: _ANY_AS_0,
        ApiKey.OFFSET_FETCH: _ANY_AS_0,
    },
    topic_configs=_CONFIGS_0_8_1,
    invalid_topic_code=UnknownError.errno,
    codec_mask=0x03,
    known_codecs=frozenset({1, 2}),
    set_over_segment_code=None,
    segments_overflow=True,
    checks_sizes_first=False,
    lists_only_replica_hosts=True,
    lists_dead_brokers=True,
    single_replicas_wait=False,
    waited_offset_is_next=True,
    errors_end_the_wait=False,
    waits_for_any_produce=True,
    checks_topics_first=True,
    list_offsets_checks_topics_first=True,
    offset_metadata_chars=1024,
)
_0_8_2 = LineRules(
    name="0.8.2",
    apis={
        **dict.fromkeys(_DATA, _ANY_AS_0),
        ApiKey.OFFSET_COMMIT: SupportedVersions(range(2)),
        ApiKey.OFFSET_FETCH: SupportedVersions(range(2), rest=1),
        ApiKey.GROUP_COORDINATOR: _ANY_AS_0,
        ApiKey.HEARTBEAT: _ANY_AS_0,
    },
    topic_configs=_CONFIGS_0_8_2,
)
_0_9 = LineRules(
    name="0.9",
    apis={
        ApiKey.PRODUCE: SupportedVersions(range(2), rest=1),
        ApiKey.FETCH: SupportedVersions(range(2), rest=1),
        ApiKey.LIST_OFFSETS: _ANY_AS_0,
        ApiKey.METADATA: _ANY_AS_0,
        ApiKey.OFFSET_COMMIT: SupportedVersions(range(3)),
        ApiKey.OFFSET_FETCH: SupportedVersions(range(2), rest=1),
        ApiKey.GROUP_COORDINATOR: _ONLY_0,
        **dict.fromkeys(_GROUPS, _ONLY_0),
    },
    on_unreadable_request=BadRequestPolicy.SILENCE,
    lenient_apis=frozenset({*_DATA, ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH}),
    requires_client_id=True,
    failure_layout=0,
    data_needs_client_id=True,
    on_empty_frame=BadRequestPolicy.SILENCE,
    responds_after_fin=False,
    drops_requests_before_fin=True,
    topic_configs=_CONFIGS_0_9,
    empty_cluster_lists_brokers=True,
    invalid_topic_fails_all=False,
    publishes_isr_growth=True,
    negative_retention_is_over=False,
    nested_sets=NestedSetPolicy.KEEP,
    compacted_needs_keys=True,
    acks_above_one=False,
    waits_for_unlimited_bytes=False,
    above_high_watermark_code=NoError.errno,
    stores_long_metadata=False,
    unknown_topic_commit_code=UnknownTopicOrPartitionError.errno,
    unknown_partition_fetch_code=NoError.errno,
    fetch_of_no_topics_is_all=True,
    offset_record_version=1,
    generation_code=IllegalGenerationError.errno,
    known_group_generation_code=IllegalGenerationError.errno,
    null_coordinator_group_closes=True,
    coordinator_forgets_correlation_id=False,
    no_offsets_topic_code=NotCoordinatorForGroupError.errno,
    heartbeat_is_a_stub=False,
)
_0_10 = LineRules(
    name="0.10",
    apis={
        ApiKey.PRODUCE: SupportedVersions(range(3)),
        ApiKey.FETCH: SupportedVersions(range(4)),
        ApiKey.LIST_OFFSETS: SupportedVersions(range(2)),
        ApiKey.METADATA: SupportedVersions(range(3)),
        ApiKey.OFFSET_COMMIT: SupportedVersions(range(3)),
        ApiKey.OFFSET_FETCH: SupportedVersions(range(3)),
        ApiKey.GROUP_COORDINATOR: _ONLY_0,
        **dict.fromkeys(_GROUPS, _ONLY_0),
        ApiKey.JOIN_GROUP: SupportedVersions(range(2)),
        ApiKey.SASL_HANDSHAKE: _ONLY_0,
        ApiKey.API_VERSIONS: _ANY_AS_0,  # the handler rejects versions above 0, in layout 0
        ApiKey.CREATE_TOPICS: SupportedVersions(range(2)),
        ApiKey.DELETE_TOPICS: _ONLY_0,
    },
    refused_apis={
        ApiKey.LEADER_AND_ISR: range(1),
        ApiKey.STOP_REPLICA: range(1),
        ApiKey.UPDATE_METADATA: range(4),
        ApiKey.CONTROLLED_SHUTDOWN: range(1, 2),
    },
    response_order=ResponseOrder.HASH_MAP,
    fetch_order=ResponseOrder.REQUEST,
    max_topic_name=249,
    names_collide=True,
    lenient_apis=frozenset(),
    on_empty_frame=BadRequestPolicy.SILENCE,
    responds_after_fin=False,
    topic_configs=_CONFIGS_0_10,
    has_cluster_id=True,
    empty_cluster_lists_brokers=True,
    invalid_topic_fails_all=False,
    failed_creation_fails_all=False,
    failed_creation_code=InvalidReplicationFactorError.errno,
    lists_sorted_replicas=True,
    publishes_isr_growth=True,
    message_format=1,
    legacy_lz4_only=False,
    negative_retention_is_over=False,
    checks_topics_first=True,
    compacted_needs_keys=True,
    acks_above_one=False,
    waits_for_unlimited_bytes=False,
    above_high_watermark_code=NoError.errno,
    stores_long_metadata=False,
    keeps_null_metadata=False,
    unknown_topic_commit_code=UnknownTopicOrPartitionError.errno,
    unknown_partition_fetch_code=NoError.errno,
    offset_record_version=1,
    generation_code=IllegalGenerationError.errno,
    known_group_generation_code=UnknownMemberIdError.errno,
    null_group_closes=True,
    null_coordinator_group_closes=True,
    coordinator_forgets_correlation_id=False,
    no_offsets_topic_code=NotCoordinatorForGroupError.errno,
    heartbeat_is_a_stub=False,
    empty_groups_stay=True,
    commits_make_groups=True,
    heartbeat_checks_member_first=True,
    commit_is_heartbeat=True,
    max_session_timeout_s=300.0,
)

# By name, as in `EmbeddedCluster(version=…)`. "0.10" is 0.10.2.2: it lists the APIs and versions of
# that release, and behaves as 0.10.2.2 was observed to behave.
LINES: Final[dict[str, LineRules]] = {
    line.name: line for line in (_0_8_0, _0_8_1, _0_8_2, _0_9, _0_10)
}


@dataclass(slots=True)
class ReceivedRequest:
    """A request as a broker of the line reads it."""

    header: RequestHeader
    # The API version whose layout the response has.
    layout: int
    body: Request[Any]
    # The number of items in its arrays, all together.
    items: int


def read_request(
    line: LineRules, frame: Buffer, max_items: int
) -> ReceivedRequest | BadRequestPolicy:
    """Decode the request in a frame (without its size); return a policy if it is unreadable.

    Raises:
        TooManyItems: its arrays have more than `max_items` items together.
    """
    if len(frame) < 2:
        return line.on_empty_frame
    lenient = int.from_bytes(frame[:2], "big", signed=True) in line.lenient_apis
    unreadable = line.on_unreadable_request if lenient else BadRequestPolicy.CLOSE
    try:
        header, pos = compiled(RequestHeader, 0).read(frame, 0, len(frame))
        if header.client_id is None and line.requires_client_id and not lenient:
            return unreadable
        request = APIS.get(header.api_key)
        versions = None if request is None else line.apis.get(request.api)
        layout = None if versions is None else versions.layout(header.api_version)
        if request is None or layout is None:
            return line.on_unreadable_request
        count = int.from_bytes(frame[pos : pos + 4], "big", signed=True)
        # Of all negative counts in lenient APIs, brokers refuse only this one.
        if request is MetadataRequest and count < 0 and lenient:
            return unreadable
        body, items = read_limited(request, layout, frame, pos, max_items, lenient=lenient)
    except TooManyItems:
        raise
    except KafkaProtocolError:
        return unreadable
    return ReceivedRequest(header, layout, body, items)


def refused_api(line: LineRules, frame: Buffer) -> str | None:
    """Return the name of the API if the line refuses the frame's request; None for other frames."""
    key = int.from_bytes(frame[:2], "big", signed=True)
    return next((api.name for api in line.refused_apis if api == key), None)
