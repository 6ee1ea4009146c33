"""Offsets in Kafka: the topic `__consumer_offsets`, by way of the group's coordinator (0.8.2 on).

OffsetCommit 2 from 0.9 on (retention: the broker's setting), 1 on 0.8.2, OffsetFetch 1.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeVar

from aiokafka08.errors import (
    Action,
    BrokerResponseError,
    KafkaError,
)
from aiokafka08.net.coordinator import Coordinator
from aiokafka08.net.router import Router
from aiokafka08.net.versions import BrokerLine
from aiokafka08.offset_store import CommitIdentity, requests
from aiokafka08.offset_store.answers import Commits, Committed, check_metadata
from aiokafka08.protocol.api import Request, Response
from aiokafka08.structs import TopicPartition

R = TypeVar("R", bound=Response)


class KafkaOffsetStore:
    """Committed offsets of one group in `__consumer_offsets`."""

    def __init__(self, router: Router, coordinator: Coordinator) -> None:
        self._router = router
        self._group = coordinator.group
        self._ask = _AskCoordinator(router, coordinator)

    async def start(self) -> None:
        """Nothing to do: the coordinator is looked up when it is needed."""

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
        """See `OffsetStore`."""
        check_metadata(offsets, BrokerLine.V0_8_2)
        await requests.commit(self._router, self._group, self._ask, offsets, stamp, timeout_s)

    def check(self) -> None:
        """There is a store."""


class _AskCoordinator:
    """Asks the coordinator, and looks it up again when it isn't, or doesn't answer."""

    def __init__(self, router: Router, coordinator: Coordinator) -> None:
        self._router = router
        self._coordinator = coordinator

    async def __call__(self, request: Request[R], timeout_s: float) -> tuple[R, int]:
        node_id = await self._coordinator.node_id(timeout_s=timeout_s)
        try:
            answer = await self._router.request(request, node_id=node_id, timeout_s=timeout_s)
        except KafkaError as error:
            if error.retriable:
                self._coordinator.forget(node_id)
            raise
        return answer, node_id

    def refused(self, error: KafkaError, node_id: int) -> None:
        if isinstance(error, BrokerResponseError) and error.action is Action.COORDINATOR:
            self._coordinator.forget(node_id)
