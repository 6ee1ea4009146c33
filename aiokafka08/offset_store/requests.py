"""Commits and fetches by request: asked again, in rounds, until each partition has its answer.

What differs between the stores in `__consumer_offsets` and in ZooKeeper is whom to ask, and in
which version: they give that as `Ask`. Law: a partition that succeeded is not asked for again; one
that failed for good doesn't keep the others from being tried; errors name the partitions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Protocol, TypeVar

from aiokafka08.errors import KafkaError, KafkaTimeoutError
from aiokafka08.net.retry import is_final, retry
from aiokafka08.net.router import Router
from aiokafka08.offset_store import CommitIdentity
from aiokafka08.offset_store.answers import (
    FENCED,
    Commits,
    Committed,
    by_reason,
    commit_request,
    failure,
    fetch_request,
    read_commits,
    read_fetched,
    renamed,
)
from aiokafka08.protocol.api import Request, Response
from aiokafka08.structs import TopicPartition

T = TypeVar("T")
R = TypeVar("R", bound=Response)


class Ask(Protocol):
    """Whom to ask."""

    async def __call__(self, request: Request[R], timeout_s: float) -> tuple[R, int]:
        """A broker's answer, and a number that `refused` knows it by.

        Raises:
            KafkaError: with `retriable` where another try may help.
        """

    def refused(self, error: KafkaError, asked: int) -> None:
        """That answer has this error for a partition, which will be asked for again."""


async def commit(
    router: Router,
    group: str,
    ask: Ask,
    offsets: Commits,
    stamp: CommitIdentity,
    timeout_s: float | None,
) -> None:
    """Commit these offsets; see `OffsetStore.commit`."""

    async def one_round(
        tps: Collection[TopicPartition], patience_s: float
    ) -> tuple[Mapping[TopicPartition, KafkaError | None], int]:
        wanted = {tp: offsets[tp] for tp in tps}
        answer, asked = await ask(commit_request(group, wanted, stamp), patience_s)
        return read_commits(answer, tps), asked

    what = f"offsets of group {group!r} not committed"
    await _settle(router, ask, offsets.keys(), one_round, what, timeout_s)


async def fetch(
    router: Router,
    group: str,
    ask: Ask,
    partitions: Collection[TopicPartition],
    timeout_s: float | None,
) -> dict[TopicPartition, Committed]:
    """What is committed; see `OffsetStore.fetch`."""

    async def one_round(
        tps: Collection[TopicPartition], patience_s: float
    ) -> tuple[Mapping[TopicPartition, Committed | KafkaError], int]:
        answer, asked = await ask(fetch_request(group, tps), patience_s)
        return read_fetched(answer, tps), asked

    what = f"committed offsets of group {group!r} not found out"
    return await _settle(router, ask, dict.fromkeys(partitions), one_round, what, timeout_s)


OneRound = Callable[
    [Collection[TopicPartition], float],
    Awaitable[tuple[Mapping[TopicPartition, T | KafkaError], int]],
]


async def _settle(
    router: Router,
    ask: Ask,
    tps: Collection[TopicPartition],
    one_round: OneRound[T],
    what: str,
    timeout_s: float | None,
) -> dict[TopicPartition, T]:
    limit_s = router.config.request_timeout_s if timeout_s is None else timeout_s
    attempt_s = max(limit_s / 4, 1.0)
    found: dict[TopicPartition, T] = {}
    final: dict[TopicPartition, KafkaError] = {}
    seen: dict[TopicPartition, KafkaError] = {}

    def missing() -> list[TopicPartition]:
        return [tp for tp in tps if tp not in found and tp not in final]

    async def attempt(timeout_s: float) -> KafkaError | None:
        try:
            results, asked = await one_round(missing(), timeout_s)
        except KafkaError as error:
            if not error.retriable:
                raise renamed(error, f"{what}: {error.text}") from error
            failed = dict.fromkeys(missing(), error)
            # A round with less time than others tells less than what was answered before.
            merged = {**failed, **seen} if timeout_s < attempt_s else {**seen, **failed}
            seen.update(merged)
            return error
        for tp, result in results.items():
            if not isinstance(result, KafkaError):
                found[tp] = result
            elif isinstance(result, FENCED) or is_final(result):
                final[tp] = result
            else:
                seen[tp] = result
                ask.refused(result, asked)
        if any(isinstance(error, FENCED) for error in final.values()):
            return None  # no later try is any better
        return next((seen[tp] for tp in missing()), None)

    def timed_out(last: KafkaError | None) -> KafkaError:
        late = {tp: seen.get(tp, KafkaTimeoutError("no answer")) for tp in missing()}
        return KafkaTimeoutError(
            f"{what} within {limit_s * 1000:.0f} ms: {by_reason({**final, **late})}"
        )

    if tps:
        await retry(
            attempt,
            deadline=asyncio.get_running_loop().time() + limit_s,
            backoff=router.config.backoff(),
            timed_out=timed_out,
            attempt_s=attempt_s,
        )
    if final:
        raise failure(what, final)
    return found
