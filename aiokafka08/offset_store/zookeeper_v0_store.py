"""Offsets in ZooKeeper by way of the brokers: OffsetCommit 0 and OffsetFetch 0 (0.8.1 on).

Any broker does. They write `/consumers/<group>/offsets/<topic>/<partition>`, where the Scala
consumer keeps them too; a commit's metadata is dropped (docs/brokers.md 8.4), and nobody fences
members of an older generation.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeVar

from aiokafka08.errors import KafkaError
from aiokafka08.net.router import Router
from aiokafka08.net.versions import BrokerLine
from aiokafka08.offset_store import CommitIdentity, requests
from aiokafka08.offset_store.answers import Commits, Committed, check_metadata
from aiokafka08.protocol.api import Request, Response
from aiokafka08.structs import TopicPartition
from aiokafka08.zookeeper.session import check_node_name

R = TypeVar("R", bound=Response)


class ZookeeperV0OffsetStore:
    """Committed offsets of one group in ZooKeeper, written by brokers of this line."""

    def __init__(self, router: Router, group: str, line: BrokerLine) -> None:
        self._router = router
        self._group = group
        self._line = line
        self._ask = _AskAny(router)

    async def start(self) -> None:
        """Check that the group can be a node of ZooKeeper.

        Raises:
            IllegalArgumentError: it can't.
        """
        check_node_name("group_id", self._group)

    async def stop(self) -> None:
        """Nothing to let go of."""

    async def fetch(
        self, partitions: Collection[TopicPartition], *, timeout_s: float | None = None
    ) -> Mapping[TopicPartition, Committed]:
        """See `OffsetStore`."""
        return await requests.fetch(self._router, self._group, self._ask, partitions, timeout_s)

    async def commit(
        self, offsets: Commits, stamp: CommitIdentity, *, timeout_s: float | None = None
    ) -> None:
        """See `OffsetStore`; the stamp isn't looked at."""
        check_metadata(offsets, self._line)
        await requests.commit(self._router, self._group, self._ask, offsets, stamp, timeout_s)

    def check(self) -> None:
        """There is a store."""


class _AskAny:
    """Asks whichever broker answers, in version 0."""

    def __init__(self, router: Router) -> None:
        self._router = router

    async def __call__(self, request: Request[R], timeout_s: float) -> tuple[R, int]:
        return await self._router.request(request, version=0, timeout_s=timeout_s), 0

    def refused(self, error: KafkaError, asked: int) -> None:
        pass
