"""Committed offsets in ZooKeeper, read and written directly, without going through a broker.

The nodes have no place for metadata, and ZooKeeper doesn't fence members of an older generation.

Invariants: if `commit` returns, all offsets are written; if the writes of some failed, its error
names them. Each attempt to write first reads the versions of the nodes, then checks the member's
session. So a member that lost its partitions writes nothing over the offsets of the members that
own them now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TypeVar

from aiokafka08._core.net.config import NetConfig
from aiokafka08._core.net.retry import is_final, retry
from aiokafka08._core.net.versions import BrokerLine
from aiokafka08._core.offset_store import CommitIdentity
from aiokafka08._core.offset_store.responses import (
    CommittedOffset,
    FetchedOffsets,
    OffsetsToCommit,
    all_or_raise,
    check_metadata,
    combined_error,
    group_by_reason,
)
from aiokafka08._core.zookeeper.cluster_check import ClusterZookeeper
from aiokafka08._core.zookeeper.offsets import OffsetNodes
from aiokafka08.errors import KafkaError, KafkaTimeoutError
from aiokafka08.structs import OffsetAndMetadata, TopicPartition

T = TypeVar("T")


class ZookeeperOffsetStore:
    """Committed offsets of one group in ZooKeeper, without the brokers.

    Brokers can overwrite newer offsets: if one hangs during a commit, the client repeats the commit
    at another broker, and the first one writes the old offset when it runs on. This store writes
    the nodes itself, so no commit can be delayed like that.

    Args:
        line: the brokers' line, which limits the length of the metadata.
        check_session: raises `CommitFailedError` if the member's session may have ended.
    """

    def __init__(
        self,
        zookeeper: ClusterZookeeper,
        group: str,
        line: BrokerLine,
        config: NetConfig,
        check_session: Callable[[], None] = lambda: None,
    ) -> None:
        self._connect = zookeeper.shown
        self._group = group
        self._line = line
        self._config = config
        self._check_session = check_session
        self._nodes = OffsetNodes(zookeeper, group)

    async def start(self) -> None:
        await self._nodes.open(self._config.request_timeout_s)

    async def stop(self) -> None:
        await self._nodes.close()

    async def fetch(
        self, partitions: Collection[TopicPartition], *, timeout_s: float | None = None
    ) -> Mapping[TopicPartition, CommittedOffset]:
        fetched = await self.fetch_each(partitions, timeout_s=timeout_s)
        return all_or_raise(self._what_failed("fetched"), fetched)

    async def fetch_each(
        self, partitions: Collection[TopicPartition], *, timeout_s: float | None = None
    ) -> FetchedOffsets:
        async def read(left_s: float) -> dict[TopicPartition, int | KafkaError | None]:
            return await self._nodes.read(partitions, left_s)

        found = await self._retry(read, "fetched", timeout_s)
        return {
            tp: OffsetAndMetadata(offset, "") if isinstance(offset, int) else offset
            for tp, offset in found.items()
        }

    async def commit(
        self, offsets: OffsetsToCommit, identity: CommitIdentity, *, timeout_s: float | None = None
    ) -> None:
        """See `OffsetStore`; ZooKeeper stores neither identity nor metadata."""
        check_metadata(offsets, self._line)
        pending = {tp: offset for tp, (offset, _) in offsets.items()}
        final: dict[TopicPartition, KafkaError] = {}

        async def write(left_s: float) -> KafkaError | None:
            clock = asyncio.get_running_loop().time
            end = clock() + left_s
            try:
                await self._nodes.find_versions(pending, left_s)
                # If this passes, the session was alive after the versions were read. So whatever
                # another member writes from then on changes a version, and the write fails.
                self._check_session()
                failed = await self._nodes.write(pending, max(end - clock(), 0.0))
            except KafkaError as error:
                if is_final(error):
                    raise
                failed = dict.fromkeys(pending, error)
            final.update({tp: error for tp, error in failed.items() if is_final(error)})
            for tp in [tp for tp in pending if tp not in failed or tp in final]:
                del pending[tp]
            if not pending:
                return None
            late = {tp: failed[tp] for tp in pending}
            return KafkaTimeoutError(group_by_reason({**final, **late}, KafkaTimeoutError))

        await self._retry(write, "committed", timeout_s)
        if final:
            raise combined_error(self._what_failed("committed"), final)

    async def _retry(
        self,
        attempt: Callable[[float], Awaitable[T | KafkaError]],
        verb: str,
        timeout_s: float | None,
    ) -> T:
        """Repeat an attempt until it succeeds or the time is over."""
        limit_s = self._config.request_timeout_s if timeout_s is None else timeout_s

        def timed_out(last: KafkaError | None) -> KafkaError:
            reason = "no response" if last is None else last.nested_text(KafkaTimeoutError)
            return KafkaTimeoutError(
                f"{self._what_failed(verb)} within {limit_s * 1000:.0f} ms: {reason}"
            )

        # One attempt may last until the deadline, because kazoo sends pending requests as soon as
        # ZooKeeper is back.
        return await retry(
            attempt,
            deadline=asyncio.get_running_loop().time() + limit_s,
            backoff=self._config.backoff(),
            timed_out=timed_out,
        )

    def _what_failed(self, verb: str) -> str:
        return f"offsets of group {self._group!r} not {verb} in ZooKeeper {self._connect}"
