"""ListOffsets: offsets by time, per segment (version 0) or per message (version 1)."""

from __future__ import annotations

from collections import Counter
from typing import Final

from aiokafka08._core.server.work import Work, in_steps
from aiokafka08.errors import (
    InvalidRequestError,
    NotLeaderForPartitionError,
    ReplicaNotAvailableError,
    UnknownError,
    UnknownTopicOrPartitionError,
)
from aiokafka08.protocol.requests.list_offsets import (
    ListedOffsets,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from aiokafka08.structs import TopicPartition
from aiokafka08.testing.handlers.outcome import (
    HandlerResult,
    Reply,
    RequestContext,
    by_partition,
    group_by_topic,
)
from aiokafka08.testing.message_sets import MessageSetRejected
from aiokafka08.testing.state import Partition

# Followers respond, too, to a request with this replica id (docs/brokers.md 7.7)
DEBUGGING_CONSUMER: Final = -2
LATEST: Final = -1
EARLIEST: Final = -2


def list_offsets(context: RequestContext, request: ListOffsetsRequest) -> Work[HandlerResult]:
    """Respond with offsets from the log, none above the high watermark.

    Models: the timestamps -1 (latest) and -2 (earliest), real timestamps, `max_num_offsets`
    (brokers.md 8.1, 8.2, 8.14); UnknownTopicOrPartition, NotLeaderForPartition, Unknown and (for a
    debugging consumer) ReplicaNotAvailable, each without offsets. If a partition is named twice,
    its last entry counts (version 0), or the broker responds with InvalidRequest (version 1).
    """
    items = yield from by_partition(request.topics)
    twice: set[TopicPartition] = set()
    if context.layout and len(items) < sum(len(topic.partitions) for topic in request.topics):
        twice = _named_twice(request)

    def respond(key: TopicPartition) -> ListedOffsets:
        if key in twice:
            return offsets_error(1, key.partition, InvalidRequestError.errno)
        return _offsets(context, key, items[key], request)

    listed = yield from in_steps(respond, list(items))
    responses = dict(zip(items, listed, strict=True))
    return Reply(
        ListOffsetsResponse((yield from group_by_topic(responses, context.line.response_order)))
    )


def _named_twice(request: ListOffsetsRequest) -> set[TopicPartition]:
    counts = Counter(
        TopicPartition(topic.topic, item.partition)
        for topic in request.topics
        for item in topic.partitions
    )
    return {key for key, count in counts.items() if count > 1}


def offsets_error(layout: int, partition: int, error_code: int) -> ListedOffsets:
    """Return an error for a partition, without offsets."""
    return ListedOffsets(partition, error_code, None if layout else [])


def _offsets(
    context: RequestContext,
    key: TopicPartition,
    item: ListOffsetsPartition,
    request: ListOffsetsRequest,
) -> ListedOffsets:
    node_id = context.node.node_id
    partition = context.state.partition(*key)
    if partition is None or node_id not in partition.replicas:
        known = (
            key.topic in context.state.topics or not context.line.list_offsets_checks_topics_first
        )
        for_debugging = request.replica_id == DEBUGGING_CONSUMER and known
        unknown = ReplicaNotAvailableError if for_debugging else UnknownTopicOrPartitionError
        return offsets_error(context.layout, key.partition, unknown.errno)
    if partition.leader != node_id and request.replica_id != DEBUGGING_CONSUMER:
        return offsets_error(context.layout, key.partition, NotLeaderForPartitionError.errno)
    if context.layout:
        return _by_message(partition, item)
    try:
        offsets = partition.log.list_offsets(
            item.timestamp, item.max_num_offsets, partition.high_watermark, context.now_ms
        )
    except ValueError:
        return offsets_error(0, key.partition, UnknownError.errno)
    return ListedOffsets(key.partition, 0, offsets)


def _by_message(partition: Partition, item: ListOffsetsPartition) -> ListedOffsets:
    number, log, end = item.partition, partition.log, partition.high_watermark
    if item.timestamp in (LATEST, EARLIEST):
        offset = end if item.timestamp == LATEST else log.start_offset
        return ListedOffsets(number, 0, offset=offset)
    try:
        first = log.first_since(item.timestamp, end)
    except (MessageSetRejected, ValueError):  # a wrapper that can't be decompressed
        return offsets_error(1, number, UnknownError.errno)
    if first is None:
        return ListedOffsets(number, 0)
    offset, timestamp_ms = first
    return ListedOffsets(number, 0, timestamp=timestamp_ms, offset=offset)
