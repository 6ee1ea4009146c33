"""Offsets in Kafka and in ZooKeeper at once, to move a group from there to here.

As the Scala consumer's `dual.commit.enabled`: commits go to Kafka, and then, where that worked, to
ZooKeeper; the larger of the two is read. So members that know only one of the stores can share the
group while they are replaced one by one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

from aiokafka08.offset_store import CommitIdentity, OffsetStore
from aiokafka08.offset_store.answers import Commits, Committed
from aiokafka08.structs import TopicPartition


class DualOffsetStore:
    """Reads and writes both stores."""

    def __init__(self, kafka: OffsetStore, zookeeper: OffsetStore) -> None:
        self._kafka = kafka
        self._zookeeper = zookeeper

    async def start(self) -> None:
        """Start both."""
        await self._kafka.start()
        await self._zookeeper.start()

    async def stop(self) -> None:
        """Stop both."""
        await self._zookeeper.stop()
        await self._kafka.stop()

    async def fetch(
        self, partitions: Collection[TopicPartition], *, timeout_s: float | None = None
    ) -> Mapping[TopicPartition, Committed]:
        """The larger of the two."""
        here, there = await asyncio.gather(
            self._kafka.fetch(partitions, timeout_s=timeout_s),
            self._zookeeper.fetch(partitions, timeout_s=timeout_s),
        )
        return {tp: _larger(here.get(tp), there.get(tp)) for tp in partitions}

    async def commit(
        self, offsets: Commits, stamp: CommitIdentity, *, timeout_s: float | None = None
    ) -> None:
        """Kafka's answer counts first: it fences members of an older generation, ZooKeeper
        doesn't."""
        await self._kafka.commit(offsets, stamp, timeout_s=timeout_s)
        await self._zookeeper.commit(offsets, stamp, timeout_s=timeout_s)

    def check(self) -> None:
        """There are stores."""


def _larger(one: Committed, other: Committed) -> Committed:
    """On a tie the first, whose metadata was kept."""
    if one is None or other is None:
        return one or other
    return other if other.offset > one.offset else one
