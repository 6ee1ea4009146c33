"""Request offsets from the leaders of many partitions, and follow leaders that move.

Earliest and latest offsets and starts of segments come from ListOffsets 0, messages by timestamp
from ListOffsets 1.

Invariant: a partition that has its result isn't requested again. For partitions without a result,
`list_reachable_offsets()` repeats the request once. `list_offsets()` and `find_first_messages()`
repeat it until the deadline, or until a partition fails with a final error.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any, Final, TypeVar

from aiokafka08._core.concurrency.loop_yield import in_chunks
from aiokafka08._core.concurrency.task_set import run_together
from aiokafka08._core.net.retry import attempt_timeout, is_final, retry
from aiokafka08._core.net.router import Lane, Router
from aiokafka08._core.net.watchdog import ResponseWatchdog
from aiokafka08._wording import partition_name, some_of
from aiokafka08.errors import (
    CorruptRecordException,
    KafkaError,
    KafkaProtocolError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    NoBrokersAvailable,
    UnknownError,
    UnsupportedForMessageFormatError,
    broker_error,
    topic_code,
)
from aiokafka08.protocol.api import by_partition, by_topic, left_out
from aiokafka08.protocol.requests.list_offsets import (
    ListedOffsets,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from aiokafka08.structs import OffsetAndTimestamp, TopicPartition

T = TypeVar("T")

# Maximum number of partitions in a request, since encoding and decoding hold the event loop
_REQUEST_PARTITIONS: Final = 500

# Errors of a search by timestamp: the topic is in message format 0, or the broker can't read a
# message set
_NOT_SUPPORTED: Final = (UnsupportedForMessageFormatError, CorruptRecordException, UnknownError)

PartitionResults = dict[TopicPartition, T | KafkaError]
"""Per partition its result, or why there is none."""

LeaderRequest = Callable[
    [int, Collection[TopicPartition], float], Coroutine[Any, Any, PartitionResults[T]]
]
"""Sends a request for some partitions to one leader; the last argument is the timeout in seconds.
"""


async def list_offsets(
    router: Router,
    timestamps: Mapping[TopicPartition, int],
    *,
    max_num_offsets: int = 1,
    timeout_s: float | None = None,
    is_final: Callable[[KafkaError], bool] = is_final,
) -> dict[TopicPartition, list[int]]:
    """Return for each partition the offsets at the timestamp that is given for it.

    Args:
        router: sends the requests.
        timestamps: per partition `LATEST`, `EARLIEST`, or milliseconds since the epoch. Such a time
            gives the starts of segments last written at or before it, newest first.
        max_num_offsets: the maximum number of offsets per partition.
        timeout_s: seconds for the whole call; by default `request_timeout_ms`.
        is_final: returns whether to raise an error of a partition at once.

    Raises:
        KafkaTimeoutError: a partition has no result in time; the text names a few and their errors.
        UnknownTopicOrPartitionError, InvalidTopicError: a topic or a partition doesn't exist.
        BrokerResponseError: a partition failed with an error that a retry can't fix.
        IllegalStateError: the client was stopped.
    """

    def send(
        leader: int, tps: Collection[TopicPartition], timeout_s: float
    ) -> Coroutine[Any, Any, PartitionResults[list[int]]]:
        return list_offsets_of_leader(
            router, leader, tps, timestamps, max_num_offsets, timeout_s=timeout_s
        )

    return await _request_until_complete(router, timestamps, send, timeout_s, is_final)


async def list_reachable_offsets(
    router: Router, tps: Collection[TopicPartition], timestamp: int, max_num_offsets: int = 1
) -> PartitionResults[tuple[int, int]]:
    """Return for each partition the first and last of its listed offsets, or its error.

    A partition without a leader, or on a dead broker, delays the others but doesn't fail them.
    `timestamp` is `LATEST` or `EARLIEST`; `max_num_offsets` is as for `list_offsets`. For `LATEST`
    the leader lists the log end and, newest first, the starts of segments (docs/brokers.md 8.1).

    Raises IllegalStateError if the client was stopped.
    """
    limit_s = router.config.request_timeout_s
    request_s = attempt_timeout(limit_s)  # for a leader that hangs

    def send(
        leader: int, led: Collection[TopicPartition], timeout_s: float
    ) -> Coroutine[Any, Any, PartitionResults[tuple[int, int]]]:
        at = dict.fromkeys(led, timestamp)
        # Keep only the ends, because a cluster may have millions of segments.
        return _list_on_leader(
            router, leader, led, at, max_num_offsets, _ends, timeout_s, request_s
        )

    results = await request_from_leaders(router, tps, send, limit_s)
    failed: list[TopicPartition] = []
    async for some in in_chunks(results.items()):
        failed += [
            tp for tp, result in some if isinstance(result, KafkaError) and not is_final(result)
        ]
    # Errors that may pass: request these partitions once more, with new leaders.
    if failed:
        try:
            await router.metadata.fetch_all()
        except NoBrokersAvailable:
            pass  # the first errors say more
        else:
            results |= await request_from_leaders(router, failed, send, limit_s)
    return results


def _ends(offsets: list[int]) -> tuple[int, int] | KafkaError:
    return (
        (offsets[0], offsets[-1]) if offsets else KafkaProtocolError("the leader listed no offset")
    )


async def find_first_messages(
    router: Router, timestamps_ms: Mapping[TopicPartition, int]
) -> dict[TopicPartition, OffsetAndTimestamp | None]:
    """Find for each partition the first message with the given timestamp or a later one (KIP-79).

    Returns its offset and timestamp per partition; None if the leader searched and found none
    (there may be one all the same, see `offsets_for_times`). A partition that the leader couldn't
    search isn't in the result: the leader is older than 0.10.1, stores the topic in format 0, can't
    read a message set, or didn't respond in time. Raises as `list_offsets`.
    """

    def send(
        leader: int, tps: Collection[TopicPartition], timeout_s: float
    ) -> Coroutine[Any, Any, PartitionResults[ListedOffsets | None]]:
        return _find_on_leader(router, leader, tps, timestamps_ms, timeout_s)

    return {
        tp: OffsetAndTimestamp(result.offset, result.timestamp) if result.offset >= 0 else None
        for tp, result in (await _request_until_complete(router, timestamps_ms, send)).items()
        if result is not None
    }


async def _request_until_complete(
    router: Router,
    tps: Collection[TopicPartition],
    send: LeaderRequest[T],
    timeout_s: float | None = None,
    is_final: Callable[[KafkaError], bool] = is_final,
) -> dict[TopicPartition, T]:
    """Send requests until each partition has its result; raises as `list_offsets`."""
    if not tps:
        return {}
    limit_s = router.config.request_timeout_s if timeout_s is None else timeout_s
    deadline = asyncio.get_running_loop().time() + limit_s
    results: dict[TopicPartition, T] = {}
    errors: dict[TopicPartition, KafkaError] = {}

    async def attempt(attempt_s: float) -> dict[TopicPartition, T] | KafkaError:
        missing = [tp for tp in tps if tp not in results]
        for tp, result in (await request_from_leaders(router, missing, send, attempt_s)).items():
            if not isinstance(result, KafkaError):
                results[tp] = result
            elif is_final(result):
                return result
            else:
                errors[tp] = result
        if len(results) == len(tps):
            return results
        router.metadata.request_refresh()
        return next(errors[tp] for tp in missing if tp not in results)

    def timed_out(last: KafkaError | None) -> KafkaError:
        reasons = [
            f"{partition_name(tp)}: {errors.get(tp, 'no response')}"
            for tp in tps
            if tp not in results
        ]
        return KafkaTimeoutError(
            f"no offsets within {limit_s * 1000:.0f} ms for {some_of(reasons)}"
        )

    await _ensure_known(router, tps, deadline)
    return await retry(
        attempt,
        deadline=deadline,
        backoff=router.config.backoff(),
        timed_out=timed_out,
        attempt_s=attempt_timeout(limit_s),
        is_final=is_final,
    )


async def _ensure_known(router: Router, tps: Collection[TopicPartition], deadline: float) -> None:
    """Wait until the metadata has these partitions, and refresh it if it lacks some."""
    metadata = router.metadata
    clock = asyncio.get_running_loop().time
    by_topic: dict[str, set[int]] = {}
    for tp in tps:
        by_topic.setdefault(tp.topic, set()).add(tp.partition)
    for topic, partitions in by_topic.items():
        await metadata.wait_for_topic(topic, timeout_s=max(deadline - clock(), 0))
        if not metadata.snapshot.partitions(topic).keys() >= partitions:
            await metadata.wait_for_partitions(
                topic, sorted(partitions), timeout_s=max(deadline - clock(), 0)
            )


async def request_from_leaders(
    router: Router, tps: Collection[TopicPartition], send: LeaderRequest[T], timeout_s: float
) -> PartitionResults[T]:
    """Call `send` once for each leader, with all its partitions; send to all leaders at once.

    A partition without a known leader gets a `LeaderNotAvailableError` as its result.
    """
    snapshot = router.metadata.snapshot
    results: PartitionResults[T] = {}
    by_leader: dict[int, list[TopicPartition]] = {}
    # In chunks, so that many partitions don't hold the event loop.
    async for some in in_chunks(tps):
        for tp in some:
            leader = snapshot.leader(tp)
            if leader is None:
                results[tp] = LeaderNotAvailableError("no leader")
            else:
                by_leader.setdefault(leader, []).append(tp)
    for result in await run_together(
        *(send(leader, led, timeout_s) for leader, led in by_leader.items())
    ):
        results.update(result)
    return results


async def list_offsets_of_leader(
    router: Router,
    leader: int,
    tps: Collection[TopicPartition],
    timestamps: Mapping[TopicPartition, int],
    max_num_offsets: int = 1,
    *,
    timeout_s: float | None = None,
) -> PartitionResults[list[int]]:
    """Request offsets from one leader; return offsets or an error per partition.

    Raises no `KafkaError`. The arguments are as for `list_offsets`.
    """
    limit_s = router.config.request_timeout_s if timeout_s is None else timeout_s
    return await _list_on_leader(router, leader, tps, timestamps, max_num_offsets, list, limit_s)


async def _list_on_leader(
    router: Router,
    leader: int,
    tps: Collection[TopicPartition],
    timestamps: Mapping[TopicPartition, int],
    max_num_offsets: int,
    keep: Callable[[list[int]], T | KafkaError],
    timeout_s: float,
    request_s: float = math.inf,
) -> PartitionResults[T]:
    """Request offsets from one leader; `keep` turns a partition's offsets into its result.

    One request may take `request_s` of `timeout_s`.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + timeout_s
    results: PartitionResults[T] = {}
    wanted = list(tps)
    # One request at a time, since heartbeats and commits on the same connection would wait for all.
    for at in range(0, len(wanted), _REQUEST_PARTITIONS):
        some = wanted[at : at + _REQUEST_PARTITIONS]
        request = _request(some, timestamps, max_num_offsets)
        try:
            left_s = min(max(deadline - clock(), 0.0), request_s)
            with _refreshes_if_overdue(router):
                response = await router.request(
                    request, node_id=leader, version=0, timeout_s=left_s
                )
        except KafkaError as error:
            # The remaining partitions get this error too, since they have the same leader.
            return results | dict.fromkeys(wanted[at:], error)
        for tp, result in _results(router, leader, some, response).items():
            results[tp] = result if isinstance(result, KafkaError) else keep(result.offsets or [])
    return results


async def _find_on_leader(
    router: Router,
    leader: int,
    tps: Collection[TopicPartition],
    timestamps_ms: Mapping[TopicPartition, int],
    timeout_s: float,
) -> PartitionResults[ListedOffsets | None]:
    """Search by timestamp on one leader; None for partitions that it can't search."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    results: PartitionResults[ListedOffsets | None] = {}
    wanted = list(tps)
    try:
        connection = await router.connection(leader, Lane.CONTROL, timeout_s=timeout_s)
        if not connection.version.supports(ListOffsetsRequest, 1):
            return dict.fromkeys(wanted)
        for at in range(0, len(wanted), _REQUEST_PARTITIONS):
            some = wanted[at : at + _REQUEST_PARTITIONS]
            left_s = max(deadline - loop.time(), 0.0)
            with _refreshes_if_overdue(router):
                response = await connection.request(
                    _request(some, timestamps_ms), version=1, timeout_s=left_s
                )
            for tp, result in _results(router, leader, some, response).items():
                results[tp] = None if isinstance(result, _NOT_SUPPORTED) else result
    except KafkaTimeoutError:
        # Without a time index, a search may take long. Don't repeat it: treat it as not supported.
        return {tp: results.get(tp) for tp in wanted}
    except KafkaError as error:
        return {tp: results.get(tp, error) for tp in wanted}
    return results


def _refreshes_if_overdue(router: Router) -> ResponseWatchdog:
    """Return a watchdog that refreshes the metadata while a response is overdue."""
    # A refresh after the attempt is too late: the next attempt would begin before the refresh ends,
    # at the same broker that hangs.
    return ResponseWatchdog(router.metadata, router.config.limits.overdue_s)


def _request(
    tps: Collection[TopicPartition], timestamps: Mapping[TopicPartition, int], count: int = 1
) -> ListOffsetsRequest:
    parts = ((tp.topic, ListOffsetsPartition(tp.partition, timestamps[tp], count)) for tp in tps)
    return ListOffsetsRequest(-1, by_topic(parts))


def _results(
    router: Router, leader: int, tps: Collection[TopicPartition], response: ListOffsetsResponse
) -> PartitionResults[ListedOffsets]:
    missing = left_out("the partition", leader)
    results: PartitionResults[ListedOffsets] = {}
    listed = by_partition(response.topics)
    for tp in tps:
        results[tp] = found = listed.get(tp, missing)
        if not isinstance(found, KafkaError) and found.error_code:
            where = f"ListOffsets of {partition_name(tp)}"
            error = broker_error(topic_code(found.error_code), where)
            results[tp] = router.config.named(error)
    return results
