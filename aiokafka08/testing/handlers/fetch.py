"""Fetch: slices of partition logs, and the long poll."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from aiokafka08._core.server.work import PAUSE, Work, in_steps, offload
from aiokafka08.errors import (
    NotLeaderForPartitionError,
    OffsetOutOfRangeError,
    ReplicaNotAvailableError,
    UnknownError,
    UnknownTopicOrPartitionError,
)
from aiokafka08.protocol.pages import allocate_pages
from aiokafka08.protocol.requests.fetch import (
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchResponse,
)
from aiokafka08.protocol.types import Buffer
from aiokafka08.structs import TopicPartition
from aiokafka08.testing.broker_lines import ResponseOrder
from aiokafka08.testing.format_1 import down_convert
from aiokafka08.testing.handlers.outcome import (
    Disconnect,
    HandlerResult,
    Late,
    Reply,
    RequestContext,
    RequestFailed,
    Wait,
    by_partition,
    group_by_topic,
)
from aiokafka08.testing.log import DamagedLogError
from aiokafka08.testing.message_sets import MessageSetRejected, takes_long
from aiokafka08.testing.state import Partition

DEBUGGING_CONSUMER: Final = -2
_STEP_PARTITIONS: Final = 1000


@dataclass(slots=True)
class _ResponseLimit:
    """The space left in the response for the next partitions (`FetchRequest.max_bytes`)."""

    left: int
    # True in version 3 until a set has data: the next set then has its first message, even if that
    # is longer than `left`.
    at_least_one: bool


class _PartitionView(NamedTuple):
    """The readable part of a partition for one fetch: `partition` is None if there is an error."""

    partition: Partition | None
    error_code: int
    # Bytes that a response can have, unless the log loses some of them before it is made.
    readable_bytes: int = 0
    # Bytes that count when a fetch waits for `min_bytes`.
    ready_bytes: int = 0
    # Whether later segments have data. Then more data never come to the segment that is read, so
    # the fetch doesn't wait.
    ends_the_wait: bool = False


def fetch(context: RequestContext, request: FetchRequest) -> Work[HandlerResult]:
    """Respond when `min_bytes` are readable, after `max_wait_ms`, or on an error (from 0.8.2 on).

    Models:
    - Version 3 limits the response too: the sets of the first partitions use the limit up, and a
      set whose first message doesn't fit is empty. The first set of the response has at least its
      first message.
    - A set is cut at `max_bytes`, also in the middle of a message. It begins at the start of the
      wrapper that holds the offset, so it may have messages below the offset.
    - Data above the high watermark isn't returned. An error comes with high watermark -1.
    - Clients have the replica id -1, or -2 to read from followers too. If an id >= 0 is no replica
      of one of the partitions, the whole fetch fails; 0.8.0 serves it.
    - What counts for `min_bytes` while a fetch waits: before 0.8.2 all that is produced, stored or
      not; on 0.8.2 all that could be read without `max_bytes`; later what could be read.
    - A fetch returns data of one segment per partition. On 0.10, v0 and v1 return format 0.
    Doesn't model: followers that fetch (a fetch with a broker's id as replica id is served like a
    client's), the race of KAFKA-2477, waits longer than `max_wait_ms` (brokers.md 7.13).
    """
    items = yield from by_partition(request.topics)
    line, topics = context.line, context.state.topics
    if line.fetch_order is ResponseOrder.REQUEST:
        is_unknown = yield from in_steps(lambda key: key.topic not in topics, list(items))
        for number, key in enumerate(itertools.compress(list(items), is_unknown), 1):
            items[key] = items.pop(key)  # it comes last
            if not number % _STEP_PARTITIONS:
                yield PAUSE
    keys = list(items)
    seen_bytes = 0  # the sum of what had arrived at each partition when it was viewed
    nameless = line.data_needs_client_id and context.client_id is None
    if request.replica_id >= 0 and line.unknown_replicas_fail:
        yield from in_steps(partial(_check_replica, context, request.replica_id), keys)

    def look() -> Work[list[_PartitionView]]:
        limit = _ResponseLimit(request.max_bytes, at_least_one=context.layout >= 3)

        def view(key: TopicPartition) -> _PartitionView:
            nonlocal seen_bytes
            if line.waits_for_any_produce:
                seen_bytes += _arrived_bytes(context, [key])
            return _view_partition(context, key, items[key], request, limit)

        return in_steps(view, keys)

    def reply(views: list[_PartitionView]) -> Work[Reply | Disconnect]:
        if not context.reserve(sum(view.readable_bytes for view in views)):
            return Disconnect()
        return Reply((yield from _response(context, items, views)))

    views = yield from look()
    readable = sum(view.readable_bytes for view in views)
    errors_end_it = line.errors_end_the_wait and any(view.error_code for view in views)
    if request.max_wait_ms <= 0 or not items or errors_end_it or readable >= request.min_bytes:
        if nameless:
            raise RequestFailed
        return (yield from reply(views))
    # The broker fails only after the wait, and then sends no response.
    if nameless:
        return Wait(None, frozenset(), lambda expired: None)
    arrived_before = seen_bytes

    def check(expired: bool) -> Work[Late]:
        if line.waits_for_any_produce:
            arrived = _arrived_bytes(context, keys) - arrived_before
            if not expired and not (arrived and readable + arrived >= request.min_bytes):
                return None
            return (yield from reply((yield from look())))
        views = yield from look()
        is_due = sum(view.ready_bytes for view in views) >= request.min_bytes or any(
            view.error_code or view.ends_the_wait for view in views
        )
        return (yield from reply(views)) if is_due or expired else None

    late = yield from check(False)
    return late or Wait(request.max_wait_ms, frozenset(items), check)


def _check_replica(context: RequestContext, replica_id: int, key: TopicPartition) -> None:
    """Fail if a follower fetches, but the partition has no such replica."""
    partition = _local_partition(context, key)
    if partition is not None and replica_id not in partition.replicas:
        raise RequestFailed


def _local_partition(context: RequestContext, key: TopicPartition) -> Partition | None:
    """Return a partition of which this broker has a replica; None if it has none."""
    partition = context.state.partition(*key)
    if partition is None or context.node.node_id not in partition.replicas:
        return None
    return partition


def _arrived_bytes(context: RequestContext, keys: Iterable[TopicPartition]) -> int:
    """Return how many bytes have been produced here to partitions, whether stored or not."""
    node_id = context.node.node_id
    partitions = [context.state.partition(*key) for key in keys]
    return sum(
        partition.arrived_bytes[node_id] for partition in partitions if partition is not None
    )


def _view_partition(
    context: RequestContext,
    key: TopicPartition,
    item: FetchPartition,
    request: FetchRequest,
    limit: _ResponseLimit,
) -> _PartitionView:
    view = _view_within(context, key, item, request, limit)
    if view.readable_bytes:
        limit.at_least_one = False
    limit.left = max(0, limit.left - view.readable_bytes)
    return view


def _view_within(
    context: RequestContext,
    key: TopicPartition,
    item: FetchPartition,
    request: FetchRequest,
    limit: _ResponseLimit,
) -> _PartitionView:
    partition = _local_partition(context, key)
    for_debugging = request.replica_id == DEBUGGING_CONSUMER
    if partition is None:
        known = key.topic in context.state.topics or not context.line.checks_topics_first
        if for_debugging and known:
            return _PartitionView(None, ReplicaNotAvailableError.errno)
        return _PartitionView(None, UnknownTopicOrPartitionError.errno)
    if partition.leader != context.node.node_id and not for_debugging:
        return _PartitionView(None, NotLeaderForPartitionError.errno)
    log, high_watermark = partition.log, partition.high_watermark
    offset, max_bytes = item.fetch_offset, min(item.max_bytes, limit.left)
    if not log.start_offset <= offset <= log.end_offset:
        return _PartitionView(None, OffsetOutOfRangeError.errno)
    if offset > high_watermark and context.line.above_high_watermark_code:
        return _PartitionView(None, context.line.above_high_watermark_code)
    if max_bytes < 0 and offset < log.end_offset:
        return _PartitionView(None, UnknownError.errno)
    counted_bytes = None if context.line.waits_for_unlimited_bytes else item.max_bytes
    try:
        # A first message that doesn't fit is left out, unless it is the response's first.
        if context.layout >= 3 and max_bytes < (first := log.first_bytes(offset, high_watermark)):
            max_bytes = first if limit.at_least_one else 0
        return _PartitionView(
            partition,
            0,
            log.readable_bytes(offset, max_bytes, high_watermark),
            log.readable_bytes(offset, counted_bytes, high_watermark),
            log.is_behind_last_segment(offset, high_watermark),
        )
    except DamagedLogError:  # docs/brokers.md 7.19
        return _PartitionView(None, UnknownError.errno)


def _read(partition: Partition, offset: int, max_bytes: int, high_watermark: int) -> Work[Buffer]:
    """Read a set; a large one in steps."""
    # A copy to fresh memory takes long for many MiB.
    ranges = partition.log.ranges(offset, max_bytes, high_watermark)
    if len(ranges) < 2:
        return partition.log.read(offset, max_bytes, high_watermark)
    copy = memoryview(allocate_pages(sum(stop - start for _, start, stop in ranges)))
    position = 0
    for data, start, stop in ranges:
        copy[position : position + stop - start] = memoryview(data)[start:stop]
        position += stop - start
        yield PAUSE
    return copy


def _response(
    context: RequestContext,
    items: dict[TopicPartition, FetchPartition],
    views: list[_PartitionView],
) -> Work[FetchResponse]:
    responses: dict[TopicPartition, FetchedPartition] = {}
    for (key, item), view in zip(items.items(), views, strict=True):
        yield PAUSE
        partition, error_code = view.partition, view.error_code
        if partition is None:
            responses[key] = FetchedPartition(key.partition, error_code, -1, b"")
            continue
        high_watermark = partition.high_watermark
        # Versions without a limit of the response return messages that came meanwhile, too.
        max_bytes = view.readable_bytes if context.layout >= 3 else item.max_bytes
        message_set = yield from _read(partition, item.fetch_offset, max_bytes, high_watermark)
        if context.line.message_format and context.layout < 2:
            converted = partial(down_convert, message_set)
            try:
                if takes_long(message_set):
                    message_set = yield from offload(converted)
                else:
                    message_set = converted()
            # A key or value may be longer than its message.
            except (MessageSetRejected, ValueError):
                raise RequestFailed from None
        responses[key] = FetchedPartition(key.partition, 0, high_watermark, message_set)
    topics = yield from group_by_topic(responses, context.line.fetch_order)
    return FetchResponse(throttle_time_ms=0, topics=topics)
