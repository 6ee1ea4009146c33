"""Committed offsets in ZooKeeper, read and written through brokers (0.8.1 and later).

Any broker handles OffsetCommit 0 and OffsetFetch 0. The brokers keep the offsets in the nodes of
the Scala consumer. They refuse metadata that is too long, and drop shorter metadata
(docs/brokers.md 8.4, 8.7). They don't fence members of an older generation.

Invariant: `start()` refuses a group whose name can't be the name of a node.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeVar

from aiokafka08._core.net.router import Router
from aiokafka08._core.net.versions import BrokerLine
from aiokafka08._core.offset_store import CommitIdentity, requests
from aiokafka08._core.offset_store.responses import (
    CommittedOffset,
    FetchedOffsets,
    OffsetsToCommit,
    check_metadata,
)
from aiokafka08._core.zookeeper.session import check_node_name
from aiokafka08.errors import KafkaError
from aiokafka08.protocol.api import Request, Response
from aiokafka08.structs import TopicPartition

R = TypeVar("R", bound=Response)


class ZookeeperV0OffsetStore:
    """Committed offsets of one group in ZooKeeper, read and written by brokers."""

    def __init__(self, router: Router, group: str, line: BrokerLine) -> None:
        self._router = router
        self._group = group
        self._line = line
        self._target = _AnyBrokerTarget(router)

    async def start(self) -> None:
        check_node_name("group_id", self._group)

    async def stop(self) -> None:
        """Do nothing: the router owns the connections."""

    async def fetch(
        self, partitions: Collection[TopicPartition], *, timeout_s: float | None = None
    ) -> Mapping[TopicPartition, CommittedOffset]:
        return await requests.fetch(self._router, self._group, self._target, partitions, timeout_s)

    async def fetch_each(
        self, partitions: Collection[TopicPartition], *, timeout_s: float | None = None
    ) -> FetchedOffsets:
        return await requests.fetch_each(
            self._router, self._group, self._target, partitions, timeout_s
        )

    async def look_at_each(self, partitions: Collection[TopicPartition]) -> FetchedOffsets:
        """As `fetch_each`, but give up soon on a partition whose node holds no valid offset."""
        # Brokers respond with UnknownError for such a partition. `fetch_each` retries it until the
        # deadline, because a consumer can't start without the offset.
        return await requests.fetch_each(
            self._router, self._group, self._target, partitions, None, gives_up=True
        )

    async def commit(
        self,
        offsets: OffsetsToCommit,
        identity: CommitIdentity,
        *,
        timeout_s: float | None = None,
    ) -> None:
        """See `OffsetStore`; version 0 has no fields for the identity."""
        check_metadata(offsets, self._line)
        nobody = CommitIdentity()
        await requests.commit(self._router, self._group, self._target, offsets, nobody, timeout_s)


class _AnyBrokerTarget:
    """Sends requests in version 0 to any broker; the router picks it."""

    def __init__(self, router: Router) -> None:
        self._router = router

    async def send(self, request: Request[R], timeout_s: float) -> tuple[R, int]:
        return await self._router.request(request, version=0, timeout_s=timeout_s), -1

    def on_refused(self, error: KafkaError, node_id: int) -> None:
        pass
