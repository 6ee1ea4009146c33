"""Committed offsets in Kafka and in ZooKeeper at once, to move a group from one to the other.

Works like the Scala consumer's `dual.commit.enabled`, so members that know only one of the stores
can share the group while they are replaced one by one.

Invariant: a commit that Kafka refused isn't written to ZooKeeper.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

from aiokafka08._core.concurrency.task_set import run_together
from aiokafka08._core.offset_store import CommitIdentity, OffsetStore
from aiokafka08._core.offset_store.responses import (
    CommittedOffset,
    FetchedOffsets,
    OffsetsToCommit,
)
from aiokafka08.errors import KafkaError
from aiokafka08.structs import TopicPartition


class DualOffsetStore:
    """Reads and writes both stores."""

    def __init__(self, kafka: OffsetStore, zookeeper: OffsetStore, timeout_s: float) -> None:
        self._kafka = kafka
        self._zookeeper = zookeeper
        self._timeout_s = timeout_s

    async def start(self) -> None:
        await self._kafka.start()
        await self._zookeeper.start()

    async def stop(self) -> None:
        await self._zookeeper.stop()
        await self._kafka.stop()

    async def fetch(
        self, partitions: Collection[TopicPartition], *, timeout_s: float | None = None
    ) -> Mapping[TopicPartition, CommittedOffset]:
        in_kafka, in_zookeeper = await run_together(
            self._kafka.fetch(partitions, timeout_s=timeout_s),
            self._zookeeper.fetch(partitions, timeout_s=timeout_s),
        )
        # A member that knows one store only may have read further.
        return {tp: _larger(in_kafka.get(tp), in_zookeeper.get(tp)) for tp in partitions}

    async def fetch_each(
        self, partitions: Collection[TopicPartition], *, timeout_s: float | None = None
    ) -> FetchedOffsets:
        """As `fetch`, with an error of one of the stores in place of an offset."""
        in_kafka, in_zookeeper = await run_together(
            self._kafka.fetch_each(partitions, timeout_s=timeout_s),
            self._zookeeper.fetch_each(partitions, timeout_s=timeout_s),
        )
        fetched: dict[TopicPartition, CommittedOffset | KafkaError] = {}
        for tp in partitions:
            one, other = in_kafka.get(tp), in_zookeeper.get(tp)
            if isinstance(one, KafkaError):
                fetched[tp] = one
            elif isinstance(other, KafkaError):
                fetched[tp] = other
            else:
                fetched[tp] = _larger(one, other)
        return fetched

    async def commit(
        self,
        offsets: OffsetsToCommit,
        identity: CommitIdentity,
        *,
        timeout_s: float | None = None,
    ) -> None:
        """Commit to Kafka, then to ZooKeeper."""
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        clock = asyncio.get_running_loop().time
        deadline = clock() + limit_s
        # Commit to Kafka first, since it fences members of an older generation; ZooKeeper doesn't.
        await self._kafka.commit(offsets, identity, timeout_s=limit_s)
        await self._zookeeper.commit(offsets, identity, timeout_s=max(deadline - clock(), 0.0))


def _larger(in_kafka: CommittedOffset, in_zookeeper: CommittedOffset) -> CommittedOffset:
    """Return the larger offset; on a tie Kafka's, which has the metadata."""
    if in_kafka is None or in_zookeeper is None:
        return in_kafka or in_zookeeper
    return in_zookeeper if in_zookeeper.offset > in_kafka.offset else in_kafka
