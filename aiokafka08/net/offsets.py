"""ListOffsets over the whole cluster: one request per leader, leader moves followed.

Earliest, latest and segment starts for consumer, admin and Spark. What the answers mean at segment
grain is told where they are used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

from aiokafka08.errors import (
    Action,
    BrokerResponseError,
    KafkaError,
    KafkaProtocolError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    UnknownTopicOrPartitionError,
    broker_error,
)
from aiokafka08.net.backoff import Backoff
from aiokafka08.net.router import Router
from aiokafka08.protocol.api import ListOffsetsPartition, ListOffsetsRequest, Topic
from aiokafka08.structs import TopicPartition


async def list_offsets(
    router: Router,
    timestamps: Mapping[TopicPartition, int],
    *,
    max_num_offsets: int = 1,
    timeout_s: float | None = None,
) -> dict[TopicPartition, list[int]]:
    """The offsets that brokers name for each partition and time.

    Args:
        router: the way to the brokers.
        timestamps: per partition `LATEST`, `EARLIEST`, or milliseconds since the epoch: then the
            starts of segments last written at or before it, newest first.
        max_num_offsets: how many offsets per partition at most.
        timeout_s: seconds for all of it; `request_timeout_ms` by default.

    Raises:
        KafkaTimeoutError: some partition got no answer in time; names them and what was last seen.
        UnknownTopicOrPartitionError: a partition isn't in its topic.
        InvalidTopicError: a name that brokers don't take.
        BrokerResponseError: a partition's error that trying again can't help.
        IllegalStateError: the client was stopped.
    """
    loop = asyncio.get_running_loop()
    limit_s = router.config.request_timeout_s if timeout_s is None else timeout_s
    end = loop.time() + limit_s
    patience_s = patience(limit_s)
    found: dict[TopicPartition, list[int]] = {}
    seen: dict[TopicPartition, KafkaError] = {}
    backoff = Backoff(router.config.retry_backoff_s, router.config.retry_backoff_max_s)
    await _know(router, timestamps, end)
    while True:
        missing = {tp: at for tp, at in timestamps.items() if tp not in found}
        if not missing:
            return found
        if seen:
            router.metadata.request_refresh()
            await asyncio.sleep(min(backoff.next(), max(end - loop.time(), 0)))
        left_s = end - loop.time()
        if left_s <= 0:
            reasons = [f"{tp.topic}/{tp.partition}: {seen.get(tp, 'no answer')}" for tp in missing]
            raise KafkaTimeoutError(
                f"no offsets within {limit_s * 1000:.0f} ms for {'; '.join(reasons)}"
            )
        answers = await _ask_leaders(router, missing, max_num_offsets, min(left_s, patience_s))
        for tp, result in answers.items():
            if not isinstance(result, KafkaError):
                found[tp] = result
            elif is_final(result):
                raise result
            else:
                seen[tp] = result


async def _know(router: Router, tps: Collection[TopicPartition], end: float) -> None:
    """Have the metadata of these partitions.

    Raises:
        UnknownTopicOrPartitionError: also after a refresh there is no such partition.
    """
    metadata = router.metadata
    for topic in dict.fromkeys(tp.topic for tp in tps):
        left_s = max(end - asyncio.get_running_loop().time(), 0)
        await metadata.topic(topic, timeout_s=left_s)
    if all(tp.partition in metadata.snapshot.partitions(tp.topic) for tp in tps):
        return
    snapshot = await metadata.refresh()  # it may have been added
    for tp in tps:
        if tp.partition not in snapshot.partitions(tp.topic):
            raise UnknownTopicOrPartitionError(
                f"topic {tp.topic!r} has no partition {tp.partition}; it has "
                f"{sorted(snapshot.partitions(tp.topic))}"
            )


async def _ask_leaders(
    router: Router, timestamps: Mapping[TopicPartition, int], max_num_offsets: int, timeout_s: float
) -> dict[TopicPartition, list[int] | KafkaError]:
    """One round: a request to each leader."""
    snapshot = router.metadata.snapshot
    results: dict[TopicPartition, list[int] | KafkaError] = {}
    by_leader: dict[int, list[TopicPartition]] = {}
    for tp in timestamps:
        leader = snapshot.leader(tp)
        if leader is None:
            results[tp] = LeaderNotAvailableError("no leader")
        else:
            by_leader.setdefault(leader, []).append(tp)
    answers = await asyncio.gather(
        *(
            ask_leader(router, leader, tps, timestamps, max_num_offsets, timeout_s=timeout_s)
            for leader, tps in by_leader.items()
        )
    )
    for answer in answers:
        results.update(answer)
    return results


def patience(limit_s: float) -> float:
    """For how many seconds of `limit_s` one leader is waited for: one that hangs leaves time to
    learn of the next one."""
    return min(max(limit_s / 4, 1.0), limit_s)


def is_final(error: KafkaError) -> bool:
    """Whether trying again can't help."""
    if isinstance(error, BrokerResponseError):
        return error.action is Action.FINAL
    return not error.retriable


async def ask_leader(
    router: Router,
    leader: int,
    tps: Collection[TopicPartition],
    timestamps: Mapping[TopicPartition, int],
    max_num_offsets: int = 1,
    *,
    timeout_s: float | None = None,
) -> dict[TopicPartition, list[int] | KafkaError]:
    """One request to one leader: per partition its offsets, or why there are none.

    Raises nothing of Kafka's; arguments as in `list_offsets`.
    """
    by_topic: dict[str, list[ListOffsetsPartition]] = {}
    for tp in tps:
        by_topic.setdefault(tp.topic, []).append(
            ListOffsetsPartition(tp.partition, timestamps[tp], max_num_offsets)
        )
    request = ListOffsetsRequest(-1, [Topic(topic, parts) for topic, parts in by_topic.items()])
    try:
        answer = await router.request(request, node_id=leader, timeout_s=timeout_s)
    except KafkaError as error:
        return dict.fromkeys(tps, error)
    results: dict[TopicPartition, list[int] | KafkaError] = {}
    for topic in answer.topics:
        for one in topic.partitions:
            tp = TopicPartition(topic.topic, one.partition)
            where = f"ListOffsets of {tp.topic}/{tp.partition}"
            results[tp] = one.offsets if not one.error_code else broker_error(one.error_code, where)
    left_out = KafkaProtocolError(f"node {leader} left it out of its answer")
    return {tp: results.get(tp, left_out) for tp in tps}
