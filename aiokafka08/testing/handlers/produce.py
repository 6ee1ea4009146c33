"""Produce: append to the logs, then wait for replicas as `required_acks` says."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from aiokafka08._core.server.work import ALONE, PAUSE, Work, offload
from aiokafka08.errors import (
    InvalidRequiredAcksError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderForPartitionError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
)
from aiokafka08.protocol.requests.produce import ProducedPartition, ProducePartition, ProduceRequest
from aiokafka08.protocol.requests.produce import ProduceResponse as Response
from aiokafka08.structs import TopicPartition
from aiokafka08.testing.handlers.outcome import (
    Disconnect,
    DiskFull,
    HandlerResult,
    NoReply,
    Reply,
    RequestContext,
    RequestFailed,
    Wait,
    by_partition,
    group_by_topic,
)
from aiokafka08.testing.message_sets import MessageSetRejected, ValidatedSet, takes_long
from aiokafka08.testing.state import Partition
from aiokafka08.testing.validation import validate_set


@dataclass(slots=True)
class _AwaitedAppend:
    """A set that is in the leader's log and waits for followers."""

    partition: Partition
    required_offset: int
    response: ProducedPartition


def produce(context: RequestContext, request: ProduceRequest) -> Work[HandlerResult]:
    """Append the set of each partition (`validation.validate_set`) and wait for replicas.

    Models: all error codes. Partitions fail independently. A request with acks=0 gets no response;
    if it fails, the broker closes the connection. With acks=-1 the response waits for the high
    watermark; with acks=n > 1 (up to 0.8.2) it waits for n replicas. After `timeout_ms` the
    response has RequestTimedOut; the message stays in the leader's log. If a partition is named
    twice, the last set wins. A response of version 2 has the timestamp that a topic with
    LogAppendTime gave to the messages.
    Doesn't model: the milliseconds that replication takes. Live followers have a message at once.
    """
    acks = request.required_acks
    items = yield from by_partition(request.topics)
    responses: dict[TopicPartition, ProducedPartition] = {}
    pending: dict[TopicPartition, _AwaitedAppend] = {}
    acks_allowed = context.line.acks_above_one or acks in (-1, 0, 1)
    for key, item in items.items():
        if key.topic not in context.state.topics and context.line.checks_topics_first:
            code = UnknownTopicOrPartitionError.errno
            responses[key] = ProducedPartition(item.partition, code, -1)
        elif acks_allowed:
            responses[key] = yield from _append(context, key, item, acks, pending)
            yield PAUSE
        else:
            responses[key] = ProducedPartition(item.partition, InvalidRequiredAcksError.errno, -1)
    if context.line.data_needs_client_id and context.client_id is None:
        if acks == -1 and any(len(append.partition.isr) > 1 for append in pending.values()):
            # The request fails after the wait, and then gets no response (docs/brokers.md 3.10).
            return Wait(None, frozenset(), lambda expired: None)
        raise RequestFailed
    if not acks:
        failed = any(response.error_code for response in responses.values())
        return Disconnect() if failed else NoReply()
    reply = Reply(Response((yield from group_by_topic(responses, context.line.response_order))))
    all_failed = all(response.error_code for response in responses.values())
    single = all(_replica_count(context, key) == 1 for key in responses)
    if acks == 1 or all_failed or (single and not context.line.single_replicas_wait):
        return reply
    if context.line.waited_offset_is_next:
        for key, response in responses.items():
            response.offset = pending[key].required_offset if key in pending else 0

    def check(expired: bool) -> Reply | None:
        for key in list(pending):
            code = _replication_result(context, pending[key], acks)
            if code is None and expired:
                code = RequestTimedOutError.errno
            if code is not None:
                pending.pop(key).response.error_code = code
        return None if pending else reply

    return check(False) or Wait(request.timeout_ms, frozenset(pending), check)


def _replica_count(context: RequestContext, key: TopicPartition) -> int:
    """Return how many replicas a partition has; 0 if this broker has none of them."""
    partition = context.state.partition(*key)
    if partition is None or context.node.node_id not in partition.replicas:
        return 0
    return len(partition.replicas)


def _append(
    context: RequestContext,
    key: TopicPartition,
    item: ProducePartition,
    acks: int,
    pending: dict[TopicPartition, _AwaitedAppend],
) -> Work[ProducedPartition]:
    node_id = context.node.node_id
    partition = context.state.partition(*key)
    if partition is None or node_id not in partition.replicas:
        return ProducedPartition(key.partition, UnknownTopicOrPartitionError.errno, -1)
    partition.arrived_bytes[node_id] += len(item.message_set)
    context.state.changed.add(key)
    if partition.leader != node_id:
        return ProducedPartition(key.partition, NotLeaderForPartitionError.errno, -1)
    if acks == -1 and len(partition.isr) < partition.min_insync_replicas:
        return ProducedPartition(key.partition, NotEnoughReplicasError.errno, -1)
    try:
        validated = yield from _validate(context, partition, item)
    except MessageSetRejected as refused:
        return ProducedPartition(key.partition, refused.code, -1)
    if partition.leader != node_id:  # it has changed in the meantime
        return ProducedPartition(key.partition, NotLeaderForPartitionError.errno, -1)
    response = ProducedPartition(key.partition, 0, validated.first_offset)
    if context.layout >= 2:
        response.timestamp = validated.append_time_ms
    # Look at the disk after the checks, since a real broker halts only when it writes.
    if context.node.disk_is_full:
        raise DiskFull
    partition.log.append(validated, context.now_ms)
    context.state.changed.add(key)
    pending[key] = _AwaitedAppend(partition, validated.next_offset, response)
    return response


def _validate(
    context: RequestContext, partition: Partition, item: ProducePartition
) -> Work[ValidatedSet]:
    """Validate a set and give it the next offsets, in the worker thread if that takes long.

    Raises:
        MessageSetRejected: the set is invalid.
    """
    log, appending = partition.log, context.state.appending

    def validation() -> partial[ValidatedSet]:
        return partial(
            validate_set, item.message_set, log.end_offset, partition.log_config, context.now_ms
        )

    if not takes_long(item.message_set) and partition.key not in appending:
        return validation()()
    yield ALONE
    appending.add(partition.key)  # other sets for the partition wait, so the offsets stay free
    try:
        while True:
            validated = yield from offload(validation())
            messages = validated.messages
            if not messages or validated.next_offset - messages == log.end_offset:
                return validated  # else a method of the cluster has changed the log
    finally:
        appending.discard(partition.key)


def _replication_result(context: RequestContext, waiting: _AwaitedAppend, acks: int) -> int | None:
    """Return the error code of a stored set, 0 if it is replicated; None if it has to wait."""
    partition, required = waiting.partition, waiting.required_offset
    if partition.leader != context.node.node_id:
        return NotLeaderForPartitionError.errno
    if acks > 0:
        have = sum(1 for node_id in partition.isr if partition.reached(node_id) >= required)
        return 0 if have >= acks else None
    if partition.high_watermark < required:
        return None
    # Negative acks other than -1 are checked here, as -1 is, but not before the append.
    too_few = len(partition.isr) < partition.min_insync_replicas
    return NotEnoughReplicasAfterAppendError.errno if too_few else 0
