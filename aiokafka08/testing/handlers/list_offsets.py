"""ListOffsets: offsets by time, at the grain of segments."""

from __future__ import annotations

from aiokafka08.protocol.api import (
    ListedOffsets,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from aiokafka08.structs import TopicPartition
from aiokafka08.testing.handlers.outcome import Context, Outcome, Reply, by_topic, last_wins

UNKNOWN_PARTITION, NOT_LEADER, UNKNOWN = 3, 6, -1
DEBUGGING_CONSUMER = -2


def list_offsets(context: Context, request: ListOffsetsRequest) -> Outcome:
    """Answers from the log's segments (`PartitionLog.list_offsets`), never above the high
    watermark.

    Models: -1, -2, times, counts (brokers.md 8.1, 8.2); codes 3, 6 and -1, each with no offsets;
    of a partition asked twice the last one counts.
    Not: ListOffsets 1 of 0.10.1 (offsets by the messages' own times).
    """
    answers = {
        key: _offsets(context, key, asked, request)
        for key, asked in last_wins(request.topics).items()
    }
    return Reply(ListOffsetsResponse(by_topic(answers)))


def _offsets(
    context: Context, key: TopicPartition, asked: ListOffsetsPartition, request: ListOffsetsRequest
) -> ListedOffsets:
    node_id = context.node.node_id
    partition = context.state.partition(*key)
    if partition is None or node_id not in partition.replicas:
        return ListedOffsets(key.partition, UNKNOWN_PARTITION, [])
    if partition.leader != node_id and request.replica_id != DEBUGGING_CONSUMER:
        return ListedOffsets(key.partition, NOT_LEADER, [])
    try:
        offsets = partition.log.list_offsets(
            asked.timestamp, asked.max_num_offsets, partition.high_watermark, context.now_ms
        )
    except ValueError:
        return ListedOffsets(key.partition, UNKNOWN, [])
    return ListedOffsets(key.partition, 0, offsets)
