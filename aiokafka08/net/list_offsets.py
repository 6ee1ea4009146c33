"""ListOffsets over the whole cluster: one request per leader, leader moves followed.

Earliest, latest and segment starts (version 0), and messages by their time (version 1), for
consumer, admin and Spark. How the two are put together to find a time lives in `times`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TypeVar

from aiokafka08.errors import (
    CorruptRecordException,
    KafkaError,
    KafkaProtocolError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    UnknownError,
    UnknownTopicOrPartitionError,
    UnsupportedForMessageFormatError,
    broker_error,
)
from aiokafka08.net.retry import attempt_timeout, is_final, retry
from aiokafka08.net.router import Lane, Router
from aiokafka08.protocol.api import (
    ListedOffsets,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    by_topic,
)
from aiokafka08.structs import OffsetAndTimestamp, TopicPartition

T = TypeVar("T")

_CANT_TELL = (UnsupportedForMessageFormatError, CorruptRecordException, UnknownError)
"""Of times of messages: stored in format 0, or there is a set that the broker can't open."""

Answers = dict[TopicPartition, T | KafkaError]
"""Of one leader, or of all that there are: per partition what was asked for, or why not."""

Ask = Callable[[int, Collection[TopicPartition], float], Awaitable[Answers[T]]]
"""Asks one leader for some of its partitions, within so many seconds."""


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

    def ask(
        leader: int, tps: Collection[TopicPartition], timeout_s: float
    ) -> Awaitable[Answers[list[int]]]:
        return ask_leader(router, leader, tps, timestamps, max_num_offsets, timeout_s=timeout_s)

    return await _of_leaders(router, timestamps, ask, timeout_s)


async def find_first_messages(
    router: Router, timestamps_ms: Mapping[TopicPartition, int]
) -> dict[TopicPartition, OffsetAndTimestamp | None]:
    """The first message of each time or later, by the messages' own timestamps (KIP-79).

    Args:
        router: the way to the brokers.
        timestamps_ms: per partition, milliseconds since the epoch.

    Returns:
        Offset and timestamp of the message, None where the broker finds none (which proves little:
        see `times`). Left out are partitions whose leader can't tell: a broker before 0.10.1, one
        that stores the topic in format 0, or can't open a set, or doesn't answer in time.

    Raises:
        As `list_offsets`.
    """

    def ask(
        leader: int, tps: Collection[TopicPartition], timeout_s: float
    ) -> Awaitable[Answers[ListedOffsets | None]]:
        return _ask_by_message(router, leader, tps, timestamps_ms, timeout_s)

    return {
        tp: OffsetAndTimestamp(one.offset, one.timestamp) if one.offset >= 0 else None
        for tp, one in (await _of_leaders(router, timestamps_ms, ask)).items()
        if one is not None
    }


async def _of_leaders(
    router: Router,
    tps: Collection[TopicPartition],
    ask: Ask[T],
    timeout_s: float | None = None,
) -> dict[TopicPartition, T]:
    """What the leaders say, each asked until it knows.

    Raises:
        As `list_offsets`.
    """
    if not tps:
        return {}
    limit_s = router.config.request_timeout_s if timeout_s is None else timeout_s
    deadline = asyncio.get_running_loop().time() + limit_s
    found: dict[TopicPartition, T] = {}
    errors: dict[TopicPartition, KafkaError] = {}

    async def attempt(attempt_s: float) -> dict[TopicPartition, T] | KafkaError:
        missing = [tp for tp in tps if tp not in found]
        for tp, result in (await request_from_leaders(router, missing, ask, attempt_s)).items():
            if not isinstance(result, KafkaError):
                found[tp] = result
            elif is_final(result):
                return result
            else:
                errors[tp] = result
        if len(found) == len(tps):
            return found
        router.metadata.request_refresh()
        return next(errors[tp] for tp in missing if tp not in found)

    def timed_out(last: KafkaError | None) -> KafkaError:
        reasons = [
            f"{tp.topic}/{tp.partition}: {errors.get(tp, 'no answer')}"
            for tp in tps
            if tp not in found
        ]
        return KafkaTimeoutError(
            f"no offsets within {limit_s * 1000:.0f} ms for {'; '.join(reasons)}"
        )

    await _know(router, tps, deadline)
    return await retry(
        attempt,
        deadline=deadline,
        backoff=router.config.backoff(),
        timed_out=timed_out,
        attempt_s=attempt_timeout(limit_s),
    )


async def _know(router: Router, tps: Collection[TopicPartition], end: float) -> None:
    """Have the metadata of these partitions.

    Raises:
        UnknownTopicOrPartitionError: also after a refresh there is no such partition.
    """
    metadata = router.metadata
    for topic in dict.fromkeys(tp.topic for tp in tps):
        left_s = max(end - asyncio.get_running_loop().time(), 0)
        await metadata.wait_for_topic(topic, timeout_s=left_s)
    if all(tp.partition in metadata.snapshot.partitions(tp.topic) for tp in tps):
        return
    snapshot = await metadata.refresh()  # it may have been added
    for tp in tps:
        if tp.partition not in snapshot.partitions(tp.topic):
            raise UnknownTopicOrPartitionError(
                f"topic {tp.topic!r} has no partition {tp.partition}; it has "
                f"{sorted(snapshot.partitions(tp.topic))}"
            )


async def request_from_leaders(
    router: Router, tps: Collection[TopicPartition], ask: Ask[T], timeout_s: float
) -> Answers[T]:
    """One round: each leader is asked for its partitions."""
    snapshot = router.metadata.snapshot
    results: Answers[T] = {}
    by_leader: dict[int, list[TopicPartition]] = {}
    for tp in tps:
        leader = snapshot.leader(tp)
        if leader is None:
            results[tp] = LeaderNotAvailableError("no leader")
        else:
            by_leader.setdefault(leader, []).append(tp)
    answers = await asyncio.gather(
        *(ask(leader, asked, timeout_s) for leader, asked in by_leader.items())
    )
    for answer in answers:
        results.update(answer)
    return results


async def ask_leader(
    router: Router,
    leader: int,
    tps: Collection[TopicPartition],
    timestamps: Mapping[TopicPartition, int],
    max_num_offsets: int = 1,
    *,
    timeout_s: float | None = None,
) -> Answers[list[int]]:
    """One request to one leader: per partition its offsets, or why there are none.

    Raises nothing of Kafka's; arguments as in `list_offsets`.
    """
    request = _request(tps, timestamps, max_num_offsets)
    try:
        answer = await router.request(request, node_id=leader, version=0, timeout_s=timeout_s)
    except KafkaError as error:
        return dict.fromkeys(tps, error)
    return {
        tp: one if isinstance(one, KafkaError) else one.offsets or []
        for tp, one in _answers(leader, tps, answer).items()
    }


async def _ask_by_message(
    router: Router,
    leader: int,
    tps: Collection[TopicPartition],
    timestamps_ms: Mapping[TopicPartition, int],
    timeout_s: float,
) -> Answers[ListedOffsets | None]:
    """The same for times of messages; None where this broker can't tell."""
    loop = asyncio.get_running_loop()
    end = loop.time() + timeout_s
    try:
        connection = await router.connection(leader, Lane.CONTROL, timeout_s=timeout_s)
        if not connection.version.supports(ListOffsetsRequest, 1):
            return dict.fromkeys(tps)
        request = _request(tps, timestamps_ms)
        answer = await connection.request(request, version=1, timeout_s=max(end - loop.time(), 0))
    except KafkaTimeoutError:
        return dict.fromkeys(tps)  # without an index it may search for long
    except KafkaError as error:
        return dict.fromkeys(tps, error)
    return {
        tp: None if isinstance(one, _CANT_TELL) else one
        for tp, one in _answers(leader, tps, answer).items()
    }


def _request(
    tps: Collection[TopicPartition], timestamps: Mapping[TopicPartition, int], count: int = 1
) -> ListOffsetsRequest:
    asked = ((tp.topic, ListOffsetsPartition(tp.partition, timestamps[tp], count)) for tp in tps)
    return ListOffsetsRequest(-1, by_topic(asked))


def _answers(
    leader: int, tps: Collection[TopicPartition], answer: ListOffsetsResponse
) -> Answers[ListedOffsets]:
    results: Answers[ListedOffsets] = {}
    for topic in answer.topics:
        for one in topic.partitions:
            tp = TopicPartition(topic.topic, one.partition)
            where = f"ListOffsets of {tp.topic}/{tp.partition}"
            results[tp] = broker_error(one.error_code, where) if one.error_code else one
    left_out = KafkaProtocolError(f"node {leader} left it out of its answer")
    return {tp: results.get(tp, left_out) for tp in tps}
