"""Fetch: slices of logs, and the long poll for them."""

from __future__ import annotations

from typing import NamedTuple

from aiokafka08.protocol.api import FetchedPartition, FetchPartition, FetchRequest, FetchResponse
from aiokafka08.protocol.types import Buffer
from aiokafka08.structs import TopicPartition
from aiokafka08.testing.handlers.outcome import (
    Context,
    Outcome,
    Reply,
    Wait,
    by_topic,
    last_wins,
)
from aiokafka08.testing.message_sets import Refused, down_convert
from aiokafka08.testing.state import Partition

OUT_OF_RANGE, UNKNOWN_PARTITION, NOT_LEADER, UNKNOWN = 1, 3, 6, -1
DEBUGGING_CONSUMER = -2


class _View(NamedTuple):
    """A partition as a fetch finds it."""

    partition: Partition | None
    error_code: int
    readable_bytes: int


def fetch(context: Context, request: FetchRequest) -> Outcome:
    """Answers when `min_bytes` are there, after `max_wait_ms` with what there is, or at once on
    an error (from 0.8.2 on).

    Models: sets cut at `max_bytes` in the middle of a message; wrappers whole; nothing above the
    high watermark; codes 1, 3, 6 and -1 with high watermark -1; replica ids -1, -2 and unknown
    ones; one segment per fetch; conversion to format 0 below version 2 on 0.10.
    Not: fetches of followers (a broker's own id is served like a client), any cap on the whole
    answer (there is none before Fetch 3), the race of KAFKA-2477, waits that are overslept
    (brokers.md 7.13).
    """
    wanted = last_wins(request.topics)

    def check(expired: bool) -> Reply | None:
        views = {key: _look(context, key, asked, request) for key, asked in wanted.items()}
        if expired or _is_due(context, request, views):
            return Reply(_response(context, wanted, views))
        return None

    return check(request.max_wait_ms <= 0 or not wanted) or Wait(
        request.max_wait_ms, frozenset(wanted), check
    )


def _is_due(context: Context, request: FetchRequest, views: dict[TopicPartition, _View]) -> bool:
    line = context.line
    if line.errors_end_the_wait and any(view.error_code for view in views.values()):
        return True
    if line.max_bytes_0_ends_the_wait and any(
        partition.max_bytes == 0 for topic in request.topics for partition in topic.partitions
    ):
        return True
    return sum(view.readable_bytes for view in views.values()) >= request.min_bytes


def _look(
    context: Context, key: TopicPartition, asked: FetchPartition, request: FetchRequest
) -> _View:
    node_id, replica_id = context.node.node_id, request.replica_id
    partition = context.state.partition(*key)
    if partition is None or node_id not in partition.replicas:
        return _View(None, UNKNOWN_PARTITION, 0)
    if partition.leader != node_id and replica_id != DEBUGGING_CONSUMER:
        return _View(None, NOT_LEADER, 0)
    is_replica = replica_id < 0 or replica_id in partition.replicas
    if not is_replica and context.line.unknown_replica_code:
        return _View(None, context.line.unknown_replica_code, 0)
    log, below = partition.log, partition.high_watermark
    if not log.start_offset <= asked.fetch_offset <= log.end_offset:
        return _View(None, OUT_OF_RANGE, 0)
    if asked.fetch_offset > below and context.line.above_high_watermark_code:
        return _View(None, context.line.above_high_watermark_code, 0)
    if asked.max_bytes < 0:
        return _View(None, UNKNOWN, 0)
    return _View(partition, 0, log.readable_bytes(asked.fetch_offset, asked.max_bytes, below))


def _response(
    context: Context,
    wanted: dict[TopicPartition, FetchPartition],
    views: dict[TopicPartition, _View],
) -> FetchResponse:
    answers: dict[TopicPartition, FetchedPartition] = {}
    for key, asked in wanted.items():
        partition, error_code, _ = views[key]
        if partition is None:
            answers[key] = FetchedPartition(key.partition, error_code, -1, b"")
            continue
        below = partition.high_watermark
        message_set: Buffer = partition.log.read(asked.fetch_offset, asked.max_bytes, below)
        if context.line.message_format and context.layout < 2:
            try:
                message_set = down_convert(message_set)
            except (Refused, ValueError):  # corrupt, as only `append_raw` makes it
                answers[key] = FetchedPartition(key.partition, UNKNOWN, -1, b"")
                continue
        answers[key] = FetchedPartition(key.partition, 0, below, message_set)
    return FetchResponse(throttle_time_ms=0, topics=by_topic(answers))
