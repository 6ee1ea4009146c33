"""OffsetCommit, OffsetFetch and GroupCoordinator: the committed offsets of groups.

Invariant: the two stores are independent: ZooKeeper (version 0) and the offsets topic (later
versions, brokers.md 8.5). Each commit to the offsets topic also appends the record that a real
broker would write.
"""

from __future__ import annotations

import itertools
from typing import Final

from aiokafka08._core.server.work import Work, in_steps
from aiokafka08.errors import (
    GroupCoordinatorNotAvailableError,
    NotCoordinatorForGroupError,
    OffsetMetadataTooLargeError,
    UnknownError,
    UnknownTopicOrPartitionError,
)
from aiokafka08.protocol.message_set import encode_entry
from aiokafka08.protocol.offsets_topic import (
    OffsetRecord,
    OffsetRecordKey,
    encode_record_key,
    encode_record_value,
)
from aiokafka08.protocol.requests.committed_offsets import (
    CommitPartition,
    CommittedPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    PartitionError,
)
from aiokafka08.protocol.requests.groups import GroupCoordinatorRequest, GroupCoordinatorResponse
from aiokafka08.structs import TopicPartition
from aiokafka08.testing.group import GroupKey
from aiokafka08.testing.handlers.outcome import (
    Disconnect,
    HandlerResult,
    Reply,
    RequestContext,
    RequestFailed,
    by_partition,
    group_by_topic,
)
from aiokafka08.testing.state import (
    OFFSETS_REPLICATION_FACTOR,
    OFFSETS_TOPIC,
    Commit,
    CommitKey,
    StoredCommit,
)

# The retention time in the record of a commit: the default of `offsets.retention.minutes`.
_RETENTION_MS: Final = 24 * 3600 * 1000


def offset_commit(context: RequestContext, request: OffsetCommitRequest) -> Work[HandlerResult]:
    """Commit offsets: to ZooKeeper at any broker (version 0), else at the group's coordinator.

    Models: metadata dropped in version 0; the limit of metadata, and 0.8.2's bug of storing the
    offset all the same; NotCoordinatorForGroup at other brokers; members and generations (`group`);
    the error codes of each line for unknown topics and partitions, and for a commit that names a
    generation of a group without members; the record of a commit in the offsets topic.
    Doesn't model: retention and expiry of commits (timestamps are ignored), the records of groups.
    """
    if request.group is None and context.line.null_group_closes:
        return Disconnect()
    commit = _to_zookeeper if context.layout == 0 else _to_kafka
    items = yield from by_partition(request.topics)
    takes_any_topic = context.layout and not context.line.unknown_topic_commit_code
    if takes_any_topic and any(key.topic is None for key in items):
        raise RequestFailed  # the key of its record can't be encoded
    committed = yield from in_steps(
        lambda key: PartitionError(key.partition, commit(context, request, key, items[key])),
        list(items),
    )
    responses = dict(zip(items, committed, strict=True))
    return Reply(
        OffsetCommitResponse((yield from group_by_topic(responses, context.line.response_order)))
    )


def _to_zookeeper(
    context: RequestContext,
    request: OffsetCommitRequest,
    key: TopicPartition,
    item: CommitPartition,
) -> int:
    if key.topic not in context.state.topics:
        return UnknownTopicOrPartitionError.errno
    if len(item.metadata or "") > context.line.offset_metadata_chars:
        return OffsetMetadataTooLargeError.errno
    if request.group == "":
        return UnknownError.errno
    # 0.8.x drops the metadata of version 0.
    context.state.zookeeper_commits[CommitKey(request.group, *key)] = Commit(item.offset, "")
    return 0


def _to_kafka(
    context: RequestContext,
    request: OffsetCommitRequest,
    key: TopicPartition,
    item: CommitPartition,
) -> int:
    state, line = context.state, context.line
    if key.topic not in state.topics and line.unknown_topic_commit_code:
        return line.unknown_topic_commit_code
    if request.group is None:
        raise RequestFailed
    is_too_long = len(item.metadata or "") > line.offset_metadata_chars
    if state.coordinator(request.group) != context.node.node_id:
        if is_too_long and line.stores_long_metadata:
            return OffsetMetadataTooLargeError.errno
        if OFFSETS_TOPIC not in state.topics:
            return line.no_offsets_topic_code
        return NotCoordinatorForGroupError.errno
    if code := _check_member(context, request):
        return code
    code = OffsetMetadataTooLargeError.errno if is_too_long else 0
    if line.commits_make_groups:
        state.committed_groups.add(request.group)
    if not code or line.stores_long_metadata:
        metadata = item.metadata if line.keeps_null_metadata else item.metadata or ""
        commit_key, committed = CommitKey(request.group, *key), Commit(item.offset, metadata)
        state.commit(commit_key, committed)
        state.on_commit(
            StoredCommit(
                "kafka",
                commit_key,
                item.offset,
                context.client_id,
                context.connection,
                request.generation,
            )
        )
        _append_record(context, commit_key, committed)
    return code


def _append_record(context: RequestContext, key: CommitKey, commit: Commit) -> None:
    state, line, now_ms = context.state, context.line, context.now_ms
    partition = state.offsets_partition(key.group)
    version = line.offset_record_version
    record = OffsetRecord(commit.offset, -1, commit.metadata or "", now_ms)
    if version == 1:
        record.expires_at_ms = now_ms + _RETENTION_MS
    entry = encode_entry(
        partition.log.end_offset,
        encode_record_key(OffsetRecordKey(key.group or "", key.topic, key.partition), version),
        encode_record_value(record, version),
        magic=line.message_format,
        timestamp_ms=now_ms,
    )
    partition.log.append_raw(entry, partition.log.end_offset + 1, now_ms)
    state.changed.add(partition.key)


def _check_member(context: RequestContext, request: OffsetCommitRequest) -> int:
    """Return the error code for a commit that isn't of the group's current generation; else 0."""
    state, line = context.state, context.line
    group = state.groups.find(request.group or "", context.now_s)
    if group is not None:
        code = group.check_commit(request.member, request.generation, context.now_s)
        state.changed.add(GroupKey(group.name))
        return code
    if request.generation < 0:
        return 0
    known = request.group in state.committed_groups
    return line.known_group_generation_code if known else line.generation_code


def offset_fetch(context: RequestContext, request: OffsetFetchRequest) -> Work[HandlerResult]:
    """Return committed offsets: from ZooKeeper (version 0), else from the group's coordinator.

    Models: a partition without a committed offset has offset -1, in version 0 with the error
    UnknownTopicOrPartition, later without an error. In version 1 an unknown partition has
    UnknownTopicOrPartition on 0.8.2; later lines treat it as one without a committed offset.
    Brokers other than the coordinator respond with NotCoordinatorForGroup: in version 1 for each
    partition, in version 2 for the group. No topics mean all committed offsets of the group: null
    in version 2, on 0.9 an empty list in version 1.
    """
    if request.group is None and context.line.null_group_closes:
        return Disconnect()
    is_here = context.state.coordinator(request.group) == context.node.node_id
    if context.layout == 2 and not is_here:
        return Reply(OffsetFetchResponse([], NotCoordinatorForGroupError.errno))
    if request.topics is None or (
        context.line.fetch_of_no_topics_is_all
        and context.layout == 1
        and not any(topic.partitions for topic in request.topics)
    ):
        if request.group is None:
            raise RequestFailed
        commit_keys = list(context.state.kafka_commits) if is_here else []
        is_wanted = yield from in_steps(lambda key: key.group == request.group, commit_keys)
        keys = [TopicPartition(*key[1:]) for key in itertools.compress(commit_keys, is_wanted)]
    else:
        keys = [
            TopicPartition(topic.topic, number)
            for topic in request.topics
            for number in topic.partitions
        ]
    fetch = _from_zookeeper if context.layout == 0 else _from_kafka
    committed = yield from in_steps(lambda key: fetch(context, request.group, key), keys)
    responses = dict(zip(keys, committed, strict=True))
    return Reply(
        OffsetFetchResponse((yield from group_by_topic(responses, context.line.response_order)))
    )


def _from_zookeeper(
    context: RequestContext, group: str | None, key: TopicPartition
) -> CommittedPartition:
    if group == "" and key.topic in context.state.topics:
        return CommittedPartition(key.partition, -1, "", UnknownError.errno)
    commit = context.state.zookeeper_commits.get(CommitKey(group, *key))
    if commit is None:
        return CommittedPartition(key.partition, -1, "", UnknownTopicOrPartitionError.errno)
    return CommittedPartition(key.partition, commit.offset, commit.metadata, 0)


def _from_kafka(
    context: RequestContext, group: str | None, key: TopicPartition
) -> CommittedPartition:
    state, line = context.state, context.line
    if line.unknown_partition_fetch_code and state.partition(*key) is None:
        return CommittedPartition(key.partition, -1, "", line.unknown_partition_fetch_code)
    if group is None:
        raise RequestFailed
    if state.coordinator(group) != context.node.node_id:
        return CommittedPartition(key.partition, -1, "", NotCoordinatorForGroupError.errno)
    commit = state.kafka_commits.get(CommitKey(group, *key))
    if commit is None:
        return CommittedPartition(key.partition, -1, "", 0)
    return CommittedPartition(key.partition, commit.offset, commit.metadata, 0)


def group_coordinator(context: RequestContext, request: GroupCoordinatorRequest) -> HandlerResult:
    """Return the leader of the group's partition of the offsets topic.

    Models: the first request creates the offsets topic and gets GroupCoordinatorNotAvailable. While
    the group's partition has no live leader, requests get the same error. On 0.8.2 they get it with
    the correlation id 0 in two cases: the group is null (later lines close the connection), or a
    cluster of one or two brokers never had a topic, and so can't create the offsets topic.
    Doesn't model: the tenths of a second until the coordinator is ready (here it is ready at the
    second request).
    """
    state, line = context.state, context.line
    unavailable = GroupCoordinatorResponse(GroupCoordinatorNotAvailableError.errno, -1, "", -1)
    if request.group is None and line.null_coordinator_group_closes:
        return Disconnect()
    cannot_create = not state.had_topic and len(state.nodes) < OFFSETS_REPLICATION_FACTOR
    if line.coordinator_forgets_correlation_id and (request.group is None or cannot_create):
        return Reply(unavailable, correlation_id=0)
    if OFFSETS_TOPIC not in state.topics:
        state.create_offsets_topic(context.now_ms)
        return Reply(unavailable)
    node_id = state.coordinator(request.group)
    if node_id is None:
        return Reply(unavailable)
    node = state.nodes[node_id]
    return Reply(GroupCoordinatorResponse(0, node.node_id, *node.named_address))
