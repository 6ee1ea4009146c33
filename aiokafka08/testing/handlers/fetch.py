"""Fetch: slices of partition logs, and the long poll.

`handlers.handle` dispatches the requests to `fetch`.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from aiokafka08.errors import (
    NotLeaderForPartitionError,
    OffsetOutOfRangeError,
    UnknownError,
    UnknownTopicOrPartitionError,
)
from aiokafka08.protocol.api import FetchedPartition, FetchPartition, FetchRequest, FetchResponse
from aiokafka08.protocol.types import Buffer
from aiokafka08.structs import TopicPartition
from aiokafka08.testing.handlers.outcome import (
    Disconnect,
    Late,
    Outcome,
    Reply,
    RequestContext,
    Wait,
    by_partition,
    group_by_topic,
)
from aiokafka08.testing.message_sets import MessageSetRejected, down_convert, takes_long
from aiokafka08.testing.state import Partition
from aiokafka08.testing.steps import PAUSE, Steps, in_steps, offload

DEBUGGING_CONSUMER = -2


class _PartitionView(NamedTuple):
    """What one fetch can read of a partition: `partition` is None if there is an error."""

    partition: Partition | None
    error_code: int
    readable_bytes: int


def fetch(context: RequestContext, request: FetchRequest) -> Steps[Outcome]:
    """Respond when `min_bytes` are readable, after `max_wait_ms`, or on an error (from 0.8.2 on).

    Models:
    - A set is cut at `max_bytes`, also in the middle of a message. It begins at the start of the
      wrapper that holds the offset, so it may have messages below the offset.
    - Data above the high watermark isn't returned. An error comes with high watermark -1.
    - Clients have the replica id -1, or -2 to read from followers too. For an id >= 0 that is no
      replica of the partition, the line has an error code or serves the fetch.
    - A fetch returns data of one segment per partition.
    - On 0.10, Fetch v0 and v1 return message format 0.
    Doesn't model: followers that fetch (a fetch with a broker's id as replica id is served like a
    client's), a limit of the whole response (there is none before Fetch v3), the race of
    KAFKA-2477, waits longer than `max_wait_ms` (brokers.md 7.13).
    """
    items = yield from by_partition(request.topics)
    keys = list(items)

    def check(expired: bool) -> Steps[Late]:
        views = yield from in_steps(
            lambda key: _view_partition(context, key, items[key], request), keys
        )
        if not (expired or _is_due(context, request, views)):
            return None
        if not context.reserve(sum(view.readable_bytes for view in views)):
            return Disconnect()
        return Reply((yield from _response(context, items, views)))

    reply = yield from check(request.max_wait_ms <= 0 or not items)
    return reply or Wait(request.max_wait_ms, frozenset(items), check)


def _is_due(context: RequestContext, request: FetchRequest, views: list[_PartitionView]) -> bool:
    line = context.line
    if line.errors_end_the_wait and any(view.error_code for view in views):
        return True
    if line.max_bytes_0_ends_the_wait and any(
        partition.max_bytes == 0 for topic in request.topics for partition in topic.partitions
    ):
        return True
    return sum(view.readable_bytes for view in views) >= request.min_bytes


def _view_partition(
    context: RequestContext, key: TopicPartition, item: FetchPartition, request: FetchRequest
) -> _PartitionView:
    node_id, replica_id = context.node.node_id, request.replica_id
    partition = context.state.partition(*key)
    if partition is None or node_id not in partition.replicas:
        return _PartitionView(None, UnknownTopicOrPartitionError.errno, 0)
    if partition.leader != node_id and replica_id != DEBUGGING_CONSUMER:
        return _PartitionView(None, NotLeaderForPartitionError.errno, 0)
    is_replica = replica_id < 0 or replica_id in partition.replicas
    if not is_replica and context.line.unknown_replica_code:
        return _PartitionView(None, context.line.unknown_replica_code, 0)
    log, high_watermark = partition.log, partition.high_watermark
    if not log.start_offset <= item.fetch_offset <= log.end_offset:
        return _PartitionView(None, OffsetOutOfRangeError.errno, 0)
    if item.fetch_offset > high_watermark and context.line.above_high_watermark_code:
        return _PartitionView(None, context.line.above_high_watermark_code, 0)
    if item.max_bytes < 0:
        return _PartitionView(None, UnknownError.errno, 0)
    return _PartitionView(
        partition, 0, log.readable_bytes(item.fetch_offset, item.max_bytes, high_watermark)
    )


def _response(
    context: RequestContext,
    items: dict[TopicPartition, FetchPartition],
    views: list[_PartitionView],
) -> Steps[FetchResponse]:
    responses: dict[TopicPartition, FetchedPartition] = {}
    for (key, item), (partition, error_code, _) in zip(items.items(), views, strict=True):
        yield PAUSE
        if partition is None:
            responses[key] = FetchedPartition(key.partition, error_code, -1, b"")
            continue
        high_watermark = partition.high_watermark
        message_set: Buffer = partition.log.read(item.fetch_offset, item.max_bytes, high_watermark)
        if context.line.message_format and context.layout < 2:
            converted = partial(down_convert, message_set)
            try:
                if takes_long(message_set):
                    message_set = yield from offload(converted)
                else:
                    message_set = converted()
            except (MessageSetRejected, ValueError):  # a corrupt set: `append_raw` wrote it
                responses[key] = FetchedPartition(key.partition, UnknownError.errno, -1, b"")
                continue
        responses[key] = FetchedPartition(key.partition, 0, high_watermark, message_set)
    topics = yield from group_by_topic(responses)
    return FetchResponse(throttle_time_ms=0, topics=topics)
