"""Produce: into the log, and the wait for replicas."""

from __future__ import annotations

from dataclasses import dataclass

from aiokafka08.protocol.api import ProducedPartition, ProducePartition, ProduceRequest
from aiokafka08.protocol.api import ProduceResponse as Response
from aiokafka08.structs import TopicPartition
from aiokafka08.testing.handlers.outcome import (
    Context,
    Disconnect,
    NoReply,
    Outcome,
    Reply,
    Wait,
    by_topic,
    last_wins,
)
from aiokafka08.testing.message_sets import Refused, prepare
from aiokafka08.testing.state import Partition

UNKNOWN_PARTITION, NOT_LEADER, TIMED_OUT = 3, 6, 7
NOT_ENOUGH_REPLICAS, NOT_ENOUGH_AFTER_APPEND, INVALID_ACKS = 19, 20, 21


@dataclass(slots=True)
class _Pending:
    """A set that is in the leader's log and waits for followers."""

    partition: Partition
    required_offset: int
    answer: ProducedPartition


def produce(context: Context, request: ProduceRequest) -> Outcome:
    """Stores each partition's set (`sets.prepare`) and waits as `required_acks` says.

    Models: codes 2, 3, 6, 7, 10, 18, 19, 20, 21 and -1; partitions fail one by one; acks=0 is
    never answered and any error of it closes the connection; acks=-1 waits for the high
    watermark, acks n > 1 for n replicas (≤ 0.8.2); 7 after `timeout_ms` with the message stored;
    the same partition twice: the last set wins; LogAppendTime in version 2.
    Not: the milliseconds that replication takes: live followers have a message at once.
    """
    acks = request.required_acks
    wanted = last_wins(request.topics)
    answers: dict[TopicPartition, ProducedPartition] = {}
    pending: dict[TopicPartition, _Pending] = {}
    acks_allowed = context.line.acks_above_one or acks in (-1, 0, 1)
    for key, asked in wanted.items():
        if acks_allowed:
            answers[key] = _append(context, key, asked, acks, pending)
        else:
            answers[key] = ProducedPartition(asked.partition, INVALID_ACKS, -1)
    if not acks:
        failed = any(answer.error_code for answer in answers.values())
        return Disconnect() if failed else NoReply()
    reply = Reply(Response(by_topic(answers)))
    all_failed = all(answer.error_code for answer in answers.values())
    single = all(
        len(partition.replicas) == 1
        for key in answers
        if (partition := context.state.partition(*key)) is not None
    )
    if acks == 1 or all_failed or (single and not context.line.single_replicas_wait):
        return reply
    if context.line.waited_offset_is_next:
        for key, answer in answers.items():
            answer.offset = pending[key].required_offset if key in pending else 0

    def check(expired: bool) -> Reply | None:
        for key in list(pending):
            code = _verdict(context, pending[key], acks)
            if code is None and expired:
                code = TIMED_OUT
            if code is not None:
                pending.pop(key).answer.error_code = code
        return None if pending else reply

    return check(False) or Wait(request.timeout_ms, frozenset(pending), check)


def _append(
    context: Context,
    key: TopicPartition,
    asked: ProducePartition,
    acks: int,
    pending: dict[TopicPartition, _Pending],
) -> ProducedPartition:
    node_id = context.node.node_id
    partition = context.state.partition(*key)
    if partition is None or node_id not in partition.replicas:
        return ProducedPartition(key.partition, UNKNOWN_PARTITION, -1)
    if partition.leader != node_id:
        return ProducedPartition(key.partition, NOT_LEADER, -1)
    if acks == -1 and len(partition.isr) < partition.min_insync_replicas:
        return ProducedPartition(key.partition, NOT_ENOUGH_REPLICAS, -1)
    log = partition.log
    try:
        prepared = prepare(asked.message_set, log.end_offset, partition.rules, context.now_ms)
    except Refused as refused:
        return ProducedPartition(key.partition, refused.code, -1)
    answer = ProducedPartition(key.partition, 0, prepared.first_offset)
    if context.layout >= 2:
        answer.timestamp = prepared.append_time_ms
    if prepared.messages:
        log.append(prepared, context.now_ms)
        context.state.changed.add(key)
        pending[key] = _Pending(partition, prepared.next_offset, answer)
    return answer


def _verdict(context: Context, waiting: _Pending, acks: int) -> int | None:
    """The error code of a stored set, None while followers are awaited."""
    partition, required = waiting.partition, waiting.required_offset
    if partition.leader != context.node.node_id:
        return NOT_LEADER
    if acks > 0:
        have = sum(1 for node_id in partition.isr if partition.reached(node_id) >= required)
        return 0 if have >= acks else None
    if partition.high_watermark < required:
        return None
    # Brokers look at min.insync.replicas for -1 only, not for other negative numbers.
    too_few = acks == -1 and len(partition.isr) < partition.min_insync_replicas
    return NOT_ENOUGH_AFTER_APPEND if too_few else 0
