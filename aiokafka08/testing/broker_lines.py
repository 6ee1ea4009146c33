"""The lines of brokers that the embedded cluster can be: what each answers, and its quirks as data.

`LINES` is the table: per line, api key → which versions of it are answered and in which layout;
then the quirks that a client can see, each with its place in docs/brokers.md. Law: a difference
between lines is a field here; handlers ask for the field, never for the line's name.
Reading a request is here too, because on 0.8 and 0.9 the line decides its layout, not the request.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aiokafka08.errors import KafkaProtocolError
from aiokafka08.protocol.api import APIS, ApiKey, OffsetCommitRequest, Request, RequestHeader
from aiokafka08.protocol.types import Buffer, compiled


class Reaction(enum.Enum):
    """What a broker does with bytes that it can't read."""

    CLOSE = "closes the connection without an answer"
    SILENCE = "never answers, and goes on reading"
    """The real 0.9 may lose requests of other connections in the same moment (brokers.md 2.2):
    not modelled, `faults.Silence` does it where it is wanted."""


class Nested(enum.Enum):
    """What becomes of a compressed message set inside another one (brokers.md 6.7)."""

    FLATTEN = "its messages become messages of the outer wrapper"
    KEEP = "it is stored as it came, as if it were one message"
    REFUSE = "the set is refused"


@dataclass(frozen=True, slots=True)
class Versions:
    """Versions in `known` are answered in their own layout; others in that of `rest`, if any."""

    known: range
    rest: int | None = None

    def layout(self, version: int) -> int | None:
        """The layout (a version's number) that answers `version`; None: it isn't known."""
        return version if version in self.known else self.rest


_ANY_AS_0 = Versions(range(1), rest=0)
_ONLY_0 = Versions(range(1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of brokers. Defaults are those of 0.8.2."""

    name: str
    apis: Mapping[ApiKey, Versions]
    unknown: Reaction = Reaction.CLOSE
    """The reaction to unknown keys and versions, and to requests cut short (2.1, 2.8, 3.4)."""
    empty_frame: Reaction = Reaction.CLOSE
    """The reaction to a frame of size 0 (3.4)."""
    answers_half_closed: bool = True
    """Requests before the client's FIN are still answered (3.7)."""
    topic_configs: frozenset[str] = frozenset()
    """The names that `create_topic` takes in its `config`."""

    # Metadata
    empty_cluster_shows_brokers: bool = False
    """4.1: without any topic 0.8 names no brokers."""
    bad_topic_code: int = 17
    """4.4: the code of a topic name that isn't allowed."""
    bad_topic_spoils_all: bool = True
    """4.4: one bad name, and no topic is answered."""
    failed_creation_spoils_all: bool = True
    """4.5: the same where one auto-creation fails; seen up to 0.9."""
    failed_creation_code: int = -1
    """4.5: the code where auto-creation fails."""
    only_hosts_named: bool = False
    """4.11: Metadata names no brokers but those with replicas of the topics that it tells."""
    dead_brokers_stay: bool = False
    """4.10: Metadata goes on naming dead brokers, as brokers and as replicas (without code 9), but
    not as leaders."""
    isr_growth_is_published: bool = False
    """4.8: False: Metadata shows changes of the ISR only after elections."""

    # Produce
    message_format: int = 0
    """The message format of the log."""
    codec_mask: int = 0x07
    """5.10: the bits of a message's attributes that name the codec."""
    known_codecs: frozenset[int] = frozenset({1, 2, 3})
    """6.1"""
    legacy_lz4_only: bool = True
    """6.2: only lz4 frames with the wrong header checksum are read."""
    nested: Nested = Nested.FLATTEN
    empty_wrapper_refused: bool = False
    """6.8: False: error 0 and an offset, but nothing is stored."""
    compacted_needs_keys: bool = False
    """5.11"""
    set_over_segment_code: int | None = 18
    """5.5: the code for a set larger than a segment; None: it is stored."""
    segments_overflow: bool = False
    """A segment ends after the set that makes it too large; from 0.8.2 on before that."""
    single_replicas_wait: bool = True
    """A request to partitions with one replica each waits for acks > 1; before 0.8.2 it counts as
    acknowledged."""
    waited_offset_is_next: bool = False
    """An answer that waited for replicas (acks other than 1, some partition with several) has the
    offset after the last message in place of the first one's, and 0 in place of -1: seen on 0.8.0
    and 0.8.1.1."""
    acks_above_one: bool = True
    """5.1, 11.4: acks may be any number; from 0.9 on only -1, 0 and 1."""

    # Fetch
    errors_end_the_wait: bool = True
    """7.3: a partition's error is answered at once, else after max_wait_ms."""
    max_bytes_0_ends_the_wait: bool = True
    """7.2"""
    unknown_replica_code: int = -1
    """7.7: the code for a replica_id ≥ 0 that is no replica; 0: it gets data."""
    above_high_watermark_code: int = -1
    """7.10: the code for an offset between high watermark and log end."""

    # Offsets, coordinator
    offset_metadata_chars: int = 4096
    """8.7"""
    long_metadata_is_stored: bool = True
    """8.7: a v1 commit that is answered with 12 is readable all the same."""
    null_metadata_kept: bool = True
    """8.5: null reads back null, else ""."""
    unknown_topic_commit_code: int = 0
    """8.5, commit v1"""
    unknown_partition_fetch_code: int = 3
    """8.8, fetch v1"""
    generation_code: int = 0
    """8.6: the code for a commit that names a generation, of a group without members."""
    known_group_generation_code: int = 0
    """The same for a group that has committed before."""
    null_group_closes: bool = False
    """8.4: for commit and fetch."""
    null_coordinator_group_closes: bool = False
    """8.9"""
    coordinator_forgets_correlation_id: bool = True
    """8.9: "no coordinator" because of an exception carries the correlation id 0. Before there is
    any topic a broker knows no others, and so can't make the offsets topic with fewer replicas
    than it is set to: an exception each time, in a cluster of less than three."""
    no_offsets_topic_code: int = 15
    """A v1 commit before the offsets topic exists."""
    heartbeat_is_a_stub: bool = True
    """2.3: 0.8.2 knows Heartbeat, and answers -1 to it."""

    # Groups
    empty_groups_stay: bool = False
    """8.13: a group without members is "Empty"; else it is gone."""
    commits_make_groups: bool = False
    """8.13: a plain commit makes an empty group."""
    heartbeat_checks_member_first: bool = False
    """8.13: in a rebalance 27 goes to members only."""
    commit_is_heartbeat: bool = False
    """8.13: a commit extends the session."""
    max_session_timeout_s: float = 30.0


_CONFIGS_0_8_1 = frozenset({"cleanup.policy", "max.message.bytes", "retention.bytes",
                            "segment.bytes"})  # fmt: skip
_CONFIGS_0_8_2 = _CONFIGS_0_8_1 | {"min.insync.replicas", "unclean.leader.election.enable"}
_CONFIGS_0_9 = _CONFIGS_0_8_2 | {"compression.type"}
_CONFIGS_0_10 = _CONFIGS_0_9 | {"message.timestamp.type"}

_DATA = (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.METADATA)
_GROUPS = (
    ApiKey.JOIN_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.LIST_GROUPS,
)

_0_8_0 = Line(
    name="0.8.0",
    apis=dict.fromkeys(_DATA, _ANY_AS_0),
    bad_topic_code=-1,
    codec_mask=0x03,
    known_codecs=frozenset({1, 2}),
    set_over_segment_code=None,
    segments_overflow=True,
    only_hosts_named=True,
    dead_brokers_stay=True,
    single_replicas_wait=False,
    waited_offset_is_next=True,
    errors_end_the_wait=False,
    max_bytes_0_ends_the_wait=False,
    unknown_replica_code=0,
)
_0_8_1 = Line(
    name="0.8.1",
    apis={
        **dict.fromkeys(_DATA, _ANY_AS_0),
        ApiKey.OFFSET_COMMIT: _ANY_AS_0,
        ApiKey.OFFSET_FETCH: _ANY_AS_0,
    },
    topic_configs=_CONFIGS_0_8_1,
    bad_topic_code=-1,
    codec_mask=0x03,
    known_codecs=frozenset({1, 2}),
    set_over_segment_code=None,
    segments_overflow=True,
    only_hosts_named=True,
    dead_brokers_stay=True,
    single_replicas_wait=False,
    waited_offset_is_next=True,
    errors_end_the_wait=False,
    max_bytes_0_ends_the_wait=False,
    offset_metadata_chars=1024,
)
_0_8_2 = Line(
    name="0.8.2",
    apis={
        **dict.fromkeys(_DATA, _ANY_AS_0),
        ApiKey.OFFSET_COMMIT: Versions(range(2)),
        ApiKey.OFFSET_FETCH: Versions(range(2), rest=1),
        ApiKey.GROUP_COORDINATOR: _ANY_AS_0,
        ApiKey.HEARTBEAT: _ANY_AS_0,
    },
    topic_configs=_CONFIGS_0_8_2,
)
_0_9 = Line(
    name="0.9",
    apis={
        ApiKey.PRODUCE: Versions(range(2), rest=1),
        ApiKey.FETCH: Versions(range(2), rest=1),
        ApiKey.LIST_OFFSETS: _ANY_AS_0,
        ApiKey.METADATA: _ANY_AS_0,
        ApiKey.OFFSET_COMMIT: Versions(range(3)),
        ApiKey.OFFSET_FETCH: Versions(range(2), rest=1),
        ApiKey.GROUP_COORDINATOR: _ONLY_0,
        **dict.fromkeys(_GROUPS, _ONLY_0),
    },
    unknown=Reaction.SILENCE,
    empty_frame=Reaction.SILENCE,
    answers_half_closed=False,
    topic_configs=_CONFIGS_0_9,
    empty_cluster_shows_brokers=True,
    bad_topic_spoils_all=False,
    isr_growth_is_published=True,
    nested=Nested.KEEP,
    compacted_needs_keys=True,
    acks_above_one=False,
    max_bytes_0_ends_the_wait=False,
    above_high_watermark_code=0,
    long_metadata_is_stored=False,
    unknown_topic_commit_code=3,
    unknown_partition_fetch_code=0,
    generation_code=22,
    known_group_generation_code=22,
    null_coordinator_group_closes=True,
    coordinator_forgets_correlation_id=False,
    no_offsets_topic_code=16,
    heartbeat_is_a_stub=False,
)
_0_10 = Line(
    name="0.10",
    apis={
        ApiKey.PRODUCE: Versions(range(3)),
        ApiKey.FETCH: Versions(range(3)),
        ApiKey.LIST_OFFSETS: Versions(range(2)),
        ApiKey.METADATA: Versions(range(2)),
        ApiKey.OFFSET_COMMIT: Versions(range(3)),
        ApiKey.OFFSET_FETCH: Versions(range(2)),
        ApiKey.GROUP_COORDINATOR: _ONLY_0,
        **dict.fromkeys(_GROUPS, _ONLY_0),
        ApiKey.API_VERSIONS: _ANY_AS_0,  # the handler refuses others than 0, in layout 0
    },
    empty_frame=Reaction.SILENCE,
    answers_half_closed=False,
    topic_configs=_CONFIGS_0_10,
    empty_cluster_shows_brokers=True,
    bad_topic_spoils_all=False,
    failed_creation_spoils_all=False,
    failed_creation_code=38,
    isr_growth_is_published=True,
    message_format=1,
    legacy_lz4_only=False,
    nested=Nested.REFUSE,
    empty_wrapper_refused=True,
    compacted_needs_keys=True,
    acks_above_one=False,
    max_bytes_0_ends_the_wait=False,
    above_high_watermark_code=0,
    long_metadata_is_stored=False,
    null_metadata_kept=False,
    unknown_topic_commit_code=3,
    unknown_partition_fetch_code=0,
    generation_code=22,
    known_group_generation_code=25,
    null_group_closes=True,
    null_coordinator_group_closes=True,
    coordinator_forgets_correlation_id=False,
    no_offsets_topic_code=16,
    heartbeat_is_a_stub=False,
    empty_groups_stay=True,
    commits_make_groups=True,
    heartbeat_checks_member_first=True,
    commit_is_heartbeat=True,
    max_session_timeout_s=300.0,
)

LINES: dict[str, Line] = {line.name: line for line in (_0_8_0, _0_8_1, _0_8_2, _0_9, _0_10)}
"""What `EmbeddedCluster(version=…)` may be. "0.10" has those API versions of 0.10.2.2 that this
package speaks (so Fetch ends at 2) and behaves as it was seen to."""


@dataclass(slots=True)
class Incoming:
    """A request as the line reads it. `layout` is the version whose layout the answer has."""

    header: RequestHeader
    layout: int
    body: Request[Any]


def read_request(line: Line, frame: Buffer) -> Incoming | Reaction:
    """The request in a frame (without its size), or what the broker does about it instead."""
    if not len(frame):
        return line.empty_frame
    try:
        header, pos = compiled(RequestHeader, 0).read(frame, 0, len(frame))
        request = APIS.get(header.api_key)
        versions = None if request is None else line.apis.get(request.api)
        layout = None if versions is None else versions.layout(header.api_version)
        if request is None or layout is None:
            return line.unknown
        if request is OffsetCommitRequest and line.name == "0.8.1":
            return Incoming(header, layout, _offset_commit_0_8_1(frame, pos))
        body, _ = compiled(request, layout).read(frame, pos, len(frame))
    except KafkaProtocolError:
        return line.unknown
    return Incoming(header, layout, body)


def _offset_commit_0_8_1(frame: Buffer, pos: int) -> OffsetCommitRequest:
    """8.3: a v1 body is read as v0, so its generation -1 becomes the number of topics: none."""
    layout_0 = compiled(OffsetCommitRequest, 0)
    # The group's length, the group, the number of topics.
    group_bytes = max(int.from_bytes(frame[pos : pos + 2], "big", signed=True), 0)
    count_at = pos + 2 + group_bytes
    count = int.from_bytes(frame[count_at : count_at + 4], "big", signed=True)
    if count < 0:
        frame = bytes(frame[:count_at]) + bytes(4)
    body, _ = layout_0.read(frame, pos, len(frame))
    return body  # type: ignore[no-any-return]
