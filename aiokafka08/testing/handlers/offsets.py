"""OffsetCommit, OffsetFetch and GroupCoordinator: where groups keep how far they have read.

Two stores that don't see each other: ZooKeeper (version 0) and the offsets topic (the others,
brokers.md 8.5). Commits are kept in a dictionary; the offsets topic has partitions and leaders,
but no messages appear in it.
"""

from __future__ import annotations

from aiokafka08.protocol.api import (
    CommitPartition,
    CommittedPartition,
    GroupCoordinatorRequest,
    GroupCoordinatorResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    PartitionError,
)
from aiokafka08.structs import TopicPartition
from aiokafka08.testing.group import GroupKey
from aiokafka08.testing.handlers.outcome import (
    Context,
    Disconnect,
    Outcome,
    Reply,
    by_topic,
    last_wins,
)
from aiokafka08.testing.state import (
    OFFSETS_REPLICATION_FACTOR,
    OFFSETS_TOPIC,
    Commit,
    CommitKey,
)

UNKNOWN, UNKNOWN_PARTITION, METADATA_TOO_LARGE = -1, 3, 12
NO_COORDINATOR, NOT_COORDINATOR = 15, 16


def offset_commit(context: Context, request: OffsetCommitRequest) -> Outcome:
    """Version 0 commits to ZooKeeper at any broker, 1 and 2 at the group's coordinator.

    Models: metadata dropped in version 0; its limit, code 12, and 0.8.2's bug to keep the offset
    all the same; unknown topics and partitions per line; code 16 elsewhere than at the
    coordinator; members and generations (`group`); a generation without a group per line.
    Not: retention and expiry of commits (timestamps are ignored).
    """
    if request.group is None and context.line.null_group_closes:
        return Disconnect()
    commit = _to_zookeeper if context.layout == 0 else _to_kafka
    answers = {
        key: PartitionError(key.partition, commit(context, request, key, asked))
        for key, asked in last_wins(request.topics).items()
    }
    return Reply(OffsetCommitResponse(by_topic(answers)))


def _to_zookeeper(
    context: Context, request: OffsetCommitRequest, key: TopicPartition, asked: CommitPartition
) -> int:
    if key.topic not in context.state.topics:
        return UNKNOWN_PARTITION
    if request.group == "":
        return UNKNOWN
    if len(asked.metadata or "") > context.line.offset_metadata_chars:
        return METADATA_TOO_LARGE
    context.state.zookeeper_commits[CommitKey(request.group, *key)] = Commit(asked.offset, "")
    return 0


def _to_kafka(
    context: Context, request: OffsetCommitRequest, key: TopicPartition, asked: CommitPartition
) -> int:
    state, line = context.state, context.line
    if OFFSETS_TOPIC not in state.topics:
        return line.no_offsets_topic_code
    if state.coordinator(request.group) != context.node.node_id:
        return NOT_COORDINATOR
    if code := _refuse_member(context, request):
        return code
    if key.topic not in state.topics and line.unknown_topic_commit_code:
        return line.unknown_topic_commit_code
    code = 0
    if len(asked.metadata or "") > line.offset_metadata_chars:
        code = METADATA_TOO_LARGE
    if not code or line.long_metadata_is_stored:
        kept = asked.metadata if line.null_metadata_kept else asked.metadata or ""
        state.kafka_commits[CommitKey(request.group, *key)] = Commit(asked.offset, kept)
    return code


def _refuse_member(context: Context, request: OffsetCommitRequest) -> int:
    """The code for a commit that isn't of this group's generation."""
    state, line = context.state, context.line
    group = state.groups.find(request.group or "", context.now_s)
    if group is not None:
        code = group.check_commit(request.member, request.generation, context.now_s)
        state.changed.add(GroupKey(group.name))
        return code
    if request.generation < 0:
        return 0
    known = any(commit.group == request.group for commit in state.kafka_commits)
    return line.known_group_generation_code if known else line.generation_code


def offset_fetch(context: Context, request: OffsetFetchRequest) -> Outcome:
    """Version 0 reads ZooKeeper, 1 the coordinator's store.

    Models: "nothing committed" as -1 with code 3 (version 0) or 0 (version 1); an unknown
    partition in version 1 as 3 (0.8.2) or like nothing committed; code 16 elsewhere than at the
    coordinator.
    """
    if request.group is None and context.line.null_group_closes:
        return Disconnect()
    answers = {}
    for topic in request.topics:
        for number in topic.partitions:
            key = TopicPartition(topic.topic, number)
            if context.layout == 0:
                answers[key] = _from_zookeeper(context, request.group, key)
            else:
                answers[key] = _from_kafka(context, request.group, key)
    return Reply(OffsetFetchResponse(by_topic(answers)))


def _from_zookeeper(context: Context, group: str | None, key: TopicPartition) -> CommittedPartition:
    commit = context.state.zookeeper_commits.get(CommitKey(group, *key))
    if commit is None:
        return CommittedPartition(key.partition, -1, "", UNKNOWN_PARTITION)
    return CommittedPartition(key.partition, commit.offset, commit.metadata, 0)


def _from_kafka(context: Context, group: str | None, key: TopicPartition) -> CommittedPartition:
    state, line = context.state, context.line
    if line.unknown_partition_fetch_code and state.partition(*key) is None:
        return CommittedPartition(key.partition, -1, "", line.unknown_partition_fetch_code)
    if state.coordinator(group) != context.node.node_id:
        return CommittedPartition(key.partition, -1, "", NOT_COORDINATOR)
    commit = state.kafka_commits.get(CommitKey(group, *key))
    if commit is None:
        return CommittedPartition(key.partition, -1, "", 0)
    return CommittedPartition(key.partition, commit.offset, commit.metadata, 0)


def group_coordinator(context: Context, request: GroupCoordinatorRequest) -> Outcome:
    """Names the leader of the group's partition of the offsets topic.

    Models: the first question creates that topic and gets 15; on 0.8.2 a cluster of one or two
    brokers without any topic can't create it and answers 15 for ever, with the correlation id 0,
    as it does for a null group; 15 while the partition has no live leader.
    Not: the tenths of a second until the coordinator is ready (it is at the second question).
    """
    state, line = context.state, context.line
    none = GroupCoordinatorResponse(NO_COORDINATOR, -1, "", -1)
    if request.group is None and line.null_coordinator_group_closes:
        return Disconnect()
    alone = not state.had_topic and len(state.nodes) < OFFSETS_REPLICATION_FACTOR
    if line.coordinator_forgets_correlation_id and (request.group is None or alone):
        return Reply(none, correlation_id=0)
    if OFFSETS_TOPIC not in state.topics:
        state.create_offsets_topic(context.now_ms)
        return Reply(none)
    node_id = state.coordinator(request.group)
    if node_id is None:
        return Reply(none)
    node = state.nodes[node_id]
    return Reply(GroupCoordinatorResponse(0, node.node_id, node.host, node.port))
