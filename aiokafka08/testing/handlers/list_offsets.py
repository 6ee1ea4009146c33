"""ListOffsets: offsets by time, at the grain of segments (0) or of messages (1)."""

from __future__ import annotations

from collections import Counter

from aiokafka08.protocol.api import (
    ListedOffsets,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from aiokafka08.structs import TopicPartition
from aiokafka08.testing.handlers.outcome import Context, Outcome, Reply, by_topic, last_wins
from aiokafka08.testing.message_sets import Refused
from aiokafka08.testing.state import Partition

UNKNOWN_PARTITION, NOT_LEADER, INVALID_REQUEST, UNKNOWN = 3, 6, 42, -1
DEBUGGING_CONSUMER = -2
LATEST, EARLIEST = -1, -2


def list_offsets(context: Context, request: ListOffsetsRequest) -> Outcome:
    """Answers from the log (`PartitionLog.list_offsets` and `first_since`), never above the high
    watermark.

    Models: -1, -2, times, counts (brokers.md 8.1, 8.2, 8.14); codes 3, 6 and -1, each with no
    offsets; of a partition asked twice the last one counts (0), or it is refused with 42 (1).
    """
    asked = last_wins(request.topics)
    twice: set[TopicPartition] = set()
    if context.layout:
        counts = Counter(
            TopicPartition(topic.topic, one.partition)
            for topic in request.topics
            for one in topic.partitions
        )
        twice.update(key for key, count in counts.items() if count > 1)
    answers = {
        key: listed(1, key.partition, INVALID_REQUEST)
        if key in twice
        else _offsets(context, key, one, request)
        for key, one in asked.items()
    }
    return Reply(ListOffsetsResponse(by_topic(answers)))


def listed(layout: int, partition: int, error_code: int) -> ListedOffsets:
    """No offsets, but an error."""
    return ListedOffsets(partition, error_code, None if layout else [])


def _offsets(
    context: Context, key: TopicPartition, asked: ListOffsetsPartition, request: ListOffsetsRequest
) -> ListedOffsets:
    node_id = context.node.node_id
    partition = context.state.partition(*key)
    if partition is None or node_id not in partition.replicas:
        return listed(context.layout, key.partition, UNKNOWN_PARTITION)
    if partition.leader != node_id and request.replica_id != DEBUGGING_CONSUMER:
        return listed(context.layout, key.partition, NOT_LEADER)
    if context.layout:
        return _by_message(partition, asked)
    try:
        offsets = partition.log.list_offsets(
            asked.timestamp, asked.max_num_offsets, partition.high_watermark, context.now_ms
        )
    except ValueError:
        return listed(0, key.partition, UNKNOWN)
    return ListedOffsets(key.partition, 0, offsets)


def _by_message(partition: Partition, asked: ListOffsetsPartition) -> ListedOffsets:
    number, log, end = asked.partition, partition.log, partition.high_watermark
    if asked.timestamp in (LATEST, EARLIEST):
        offset = end if asked.timestamp == LATEST else log.start_offset
        return ListedOffsets(number, 0, offset=offset)
    try:
        found = log.first_since(asked.timestamp, end)
    except (Refused, ValueError):  # a set that can't be opened
        return listed(1, number, UNKNOWN)
    if found is None:
        return ListedOffsets(number, 0)
    offset, timestamp_ms = found
    return ListedOffsets(number, 0, timestamp=timestamp_ms, offset=offset)
