"""Commit and fetch offsets by requests to brokers, and retry until each partition has a result.

Invariant: a partition that has succeeded, or failed for good, isn't sent again. The others are
retried until the deadline. The retries end early if the broker has fenced the member, or if a whole
request fails with an error that isn't retriable. If partitions fail, the error names them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final, Protocol, TypeVar

from aiokafka08._core.net.retry import is_final, retry
from aiokafka08._core.net.router import Router
from aiokafka08._core.offset_store import CommitIdentity
from aiokafka08._core.offset_store.responses import (
    FENCED,
    CommittedOffset,
    FetchedOffsets,
    OffsetsToCommit,
    all_or_raise,
    combined_error,
    commit_request,
    fetch_request,
    group_by_reason,
    read_commit_response,
    read_fetch_response,
    with_text,
)
from aiokafka08.errors import KafkaError, KafkaTimeoutError, UnknownError
from aiokafka08.protocol.api import Request, Response
from aiokafka08.structs import TopicPartition

T = TypeVar("T")
R = TypeVar("R", bound=Response)

_MAX_UNKNOWN_ERRORS: Final = 3


class RequestTarget(Protocol):
    """The broker that a store sends its requests to."""

    async def send(self, request: Request[R], timeout_s: float) -> tuple[R, int]:
        """Return the response, and the id of the node for `on_refused`."""

    def on_refused(self, error: KafkaError, node_id: int) -> None:
        """React to a partition's error in a response of this node; the partition is retried."""


async def commit(
    router: Router,
    group: str,
    target: RequestTarget,
    offsets: OffsetsToCommit,
    identity: CommitIdentity,
    timeout_s: float | None,
    *,
    timestamp_ms: int = -1,
) -> None:
    """Commit these offsets; see `OffsetStore.commit`, and `commit_request` for the timestamp."""

    async def send(
        tps: Collection[TopicPartition], attempt_s: float
    ) -> tuple[Mapping[TopicPartition, KafkaError | None], int]:
        some = {tp: offsets[tp] for tp in tps}
        request = commit_request(group, some, identity, timestamp_ms)
        response, node_id = await target.send(request, attempt_s)
        return read_commit_response(response, tps), node_id

    what_failed = f"offsets of group {group!r} not committed"
    _, failed = await _complete(router, target, offsets.keys(), send, what_failed, timeout_s)
    if failed:
        raise combined_error(what_failed, failed)


async def fetch_each(
    router: Router,
    group: str,
    target: RequestTarget,
    partitions: Collection[TopicPartition],
    timeout_s: float | None,
    *,
    gives_up: bool = False,
) -> FetchedOffsets:
    """Return what is committed; see `OffsetStore.fetch_each`, and `_complete` for `gives_up`."""

    async def send(
        tps: Collection[TopicPartition], attempt_s: float
    ) -> tuple[Mapping[TopicPartition, CommittedOffset | KafkaError], int]:
        response, node_id = await target.send(fetch_request(group, tps), attempt_s)
        return read_fetch_response(response, tps), node_id

    tps, what_failed = dict.fromkeys(partitions), not_fetched(group)
    succeeded, failed = await _complete(
        router, target, tps, send, what_failed, timeout_s, gives_up=gives_up
    )
    return {**succeeded, **failed}


async def fetch(
    router: Router,
    group: str,
    target: RequestTarget,
    partitions: Collection[TopicPartition],
    timeout_s: float | None,
) -> dict[TopicPartition, CommittedOffset]:
    """Return what is committed; see `OffsetStore.fetch`."""
    fetched = await fetch_each(router, group, target, partitions, timeout_s)
    return all_or_raise(not_fetched(group), fetched)


def not_fetched(group: str) -> str:
    return f"committed offsets of group {group!r} not fetched"


SendRequest = Callable[
    [Collection[TopicPartition], float],
    Awaitable[tuple[Mapping[TopicPartition, T | KafkaError], int]],
]
"""Sends one request for the partitions, with a timeout in seconds; returns results and node id."""


async def _complete(
    router: Router,
    target: RequestTarget,
    tps: Collection[TopicPartition],
    send: SendRequest[T],
    what_failed: str,
    timeout_s: float | None,
    *,
    gives_up: bool = False,
) -> tuple[dict[TopicPartition, T], dict[TopicPartition, KafkaError]]:
    """Send requests until each partition has succeeded or failed for good; return the outcomes.

    `gives_up`: if True, a partition has failed for good after `_MAX_UNKNOWN_ERRORS` responses with
    UnknownError.
    """
    limit_s = router.config.request_timeout_s if timeout_s is None else timeout_s
    # An attempt gets a quarter of the time. So if a broker doesn't respond, there is time left to
    # send the request to another one, such as the next coordinator.
    attempt_s = max(limit_s / 4, 1.0)
    succeeded: dict[TopicPartition, T] = {}
    failed: dict[TopicPartition, KafkaError] = {}
    last_errors: dict[TopicPartition, KafkaError] = {}
    # The number of responses with UnknownError. A retry may cure it, unless the broker responds so
    # because the partition's node in ZooKeeper holds no offset.
    unknown = Counter[TopicPartition]()

    def pending() -> list[TopicPartition]:
        return [tp for tp in tps if tp not in succeeded and tp not in failed]

    async def attempt(timeout_s: float) -> KafkaError | None:
        try:
            results, node_id = await send(pending(), timeout_s)
        except KafkaError as error:
            if not error.retriable:
                raise with_text(error, f"{what_failed}: {error.text}") from error
            for tp in pending():
                # The error of an attempt that the deadline cut short doesn't replace an earlier
                # one, which says more about the cause.
                if timeout_s >= attempt_s or tp not in last_errors:
                    last_errors[tp] = error
            return error
        for tp, result in results.items():
            if not isinstance(result, KafkaError):
                succeeded[tp] = result
                continue
            router.config.named(result)
            if (
                isinstance(result, FENCED)
                or is_final(result)
                or (
                    gives_up
                    and isinstance(result, UnknownError)
                    and unknown[tp] + 1 >= _MAX_UNKNOWN_ERRORS
                )
            ):
                failed[tp] = result
            else:
                last_errors[tp] = result
                unknown[tp] += isinstance(result, UnknownError)
                target.on_refused(result, node_id)
        if any(isinstance(error, FENCED) for error in failed.values()):
            return None  # the same identity would be fenced again
        return next((last_errors[tp] for tp in pending()), None)

    def timed_out(last: KafkaError | None) -> KafkaError:
        no_response = KafkaTimeoutError("no response")
        late = {tp: last_errors.get(tp, no_response) for tp in pending()}
        reasons = group_by_reason({**failed, **late}, KafkaTimeoutError)
        return KafkaTimeoutError(f"{what_failed} within {limit_s * 1000:.0f} ms: {reasons}")

    if tps:
        await retry(
            attempt,
            deadline=asyncio.get_running_loop().time() + limit_s,
            backoff=router.config.backoff(),
            timed_out=timed_out,
            attempt_s=attempt_s,
        )
    return succeeded, failed
