"""Committed offsets in Kafka: in the topic `__consumer_offsets`, through the group's coordinator.

For brokers from 0.8.2 on.

Invariant: every request goes to the node that `_core.net.coordinator_lookup` names. The node is
forgotten, and looked up again, when it doesn't respond or responds that it isn't the coordinator.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, TypeVar

from aiokafka08._core.net.coordinator_lookup import CoordinatorLookup
from aiokafka08._core.net.router import Router
from aiokafka08._core.net.versions import BrokerLine
from aiokafka08._core.offset_store import CommitIdentity, requests
from aiokafka08._core.offset_store.responses import (
    CommittedOffset,
    FetchedOffsets,
    OffsetsToCommit,
    check_metadata,
)
from aiokafka08.errors import (
    Action,
    BrokerResponseError,
    KafkaError,
)
from aiokafka08.protocol.api import Request, Response
from aiokafka08.structs import TopicPartition

R = TypeVar("R", bound=Response)

# A time before any retention; -1 would mean the broker's clock
_LONG_AGO_MS: Final = 1


class KafkaOffsetStore:
    """Committed offsets of one group in `__consumer_offsets`."""

    def __init__(self, router: Router, coordinator: CoordinatorLookup) -> None:
        self._router = router
        self._coordinator = coordinator
        self._group = coordinator.group
        self._target = _CoordinatorTarget(router, coordinator)

    async def start(self) -> None:
        """Do nothing: the first request looks the coordinator up."""

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

    async def commit(
        self,
        offsets: OffsetsToCommit,
        identity: CommitIdentity,
        *,
        timeout_s: float | None = None,
    ) -> None:
        check_metadata(offsets, BrokerLine.V0_8_2)
        await requests.commit(self._router, self._group, self._target, offsets, identity, timeout_s)

    async def expire(self, offsets: OffsetsToCommit) -> None:
        """Commit these offsets as of 1970, so that the coordinator removes them at its next check.

        Until then (`offsets.retention.check.interval.ms`, brokers.md 8.16) they can be read. Raises
        CommitFailedError if the group has members, else as `OffsetStore.commit`.
        """
        # OffsetCommit 2 has a retention time in place of the timestamp.
        target = _CoordinatorTarget(self._router, self._coordinator, version=1)
        await requests.commit(
            self._router,
            self._group,
            target,
            offsets,
            CommitIdentity(),
            None,
            timestamp_ms=_LONG_AGO_MS,
        )


class _CoordinatorTarget:
    """Sends to the coordinator, by default in the highest version that both sides know."""

    def __init__(
        self, router: Router, coordinator: CoordinatorLookup, version: int | None = None
    ) -> None:
        self._router = router
        self._coordinator = coordinator
        self._version = version

    async def send(self, request: Request[R], timeout_s: float) -> tuple[R, int]:
        node_id = await self._coordinator.node_id(timeout_s=timeout_s)
        try:
            response = await self._router.request(
                request, node_id=node_id, version=self._version, timeout_s=timeout_s
            )
        except KafkaError as error:
            if error.retriable:
                self._coordinator.invalidate(node_id)
            raise
        return response, node_id

    def on_refused(self, error: KafkaError, node_id: int) -> None:
        if isinstance(error, BrokerResponseError) and error.action is Action.COORDINATOR:
            self._coordinator.invalidate(node_id)
