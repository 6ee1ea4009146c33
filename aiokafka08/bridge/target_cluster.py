"""`TargetCluster`: what a bridge asks of the cluster that it copies to.

The methods are the vocabulary of the bridge: partition counts, positions, log bounds, compacted
topics. `target.Target` asks by confluent-kafka (0.11 and later), `old_target.OldTarget` by this
package's own client (0.8.2 to 0.10); `target_choice` picks one.

Invariant: no call blocks the event loop. Errors are `TargetError`; those that a later attempt may
cure are `TargetUnavailableError`.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from typing import NamedTuple

from aiokafka08.bridge.errors import TargetUnavailableError
from aiokafka08.structs import TopicPartition

_PART_OFFSETS = 50_000
"""How many offsets of a topic are read at a time."""
_STABLE_S = 30.0
_STABLE_POLL_S = 0.05


class TargetRecord(NamedTuple):
    """A record of the target. `key` and `value` are None if they are null."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int


class TopicSpec(NamedTuple):
    """A topic to create at the target; a replication factor of -1 is the target's default."""

    name: str
    partitions: int
    replication_factor: int
    config: Mapping[str, str]


class RefusedTopic(NamedTuple):
    """Why the target wouldn't create a topic: Kafka's name of the error, and its text."""

    code: str
    text: str


class TargetCluster(ABC):
    """A connection to the target cluster; `close()` ends it."""

    @abstractmethod
    async def close(self) -> None:
        """Release the connections."""

    @abstractmethod
    async def partition_counts(self) -> dict[str, int]:
        """Return the number of partitions of each topic.

        Raises:
            TargetError: the target doesn't respond.
        """

    @abstractmethod
    async def create_topic(self, spec: TopicSpec) -> bool:
        """Create a topic, and wait until its partitions have leaders.

        Returns:
            False if it was there already.

        Raises:
            TargetError: the target refused it.
        """

    async def refused_topics(self, specs: Sequence[TopicSpec]) -> dict[str, RefusedTopic]:
        """Return which topics the target would refuse to create; it creates none.

        A target below 0.11 can't be asked: nothing is returned.

        Raises:
            TargetError: the target doesn't respond.
        """
        return {}

    @abstractmethod
    async def grow_topic(self, name: str, partitions: int) -> None:
        """Raise the number of partitions of a topic.

        Raises:
            TargetError: the target refused it.
        """

    @abstractmethod
    async def topic_configs(self, topics: Sequence[str]) -> dict[str, dict[str, str]]:
        """Return the settings in force of each topic; a target may leave some out.

        Raises:
            TargetError: a topic doesn't exist, or the target doesn't respond.
        """

    @abstractmethod
    async def own_topic_config(self, topic: str) -> dict[str, str]:
        """Return the settings that a topic has of its own, not those of its brokers.

        A target below 0.11 without `target.zookeeper` can't be asked: nothing is returned.

        Raises:
            TargetError: the topic doesn't exist, or the target doesn't respond.
        """

    @abstractmethod
    async def add_topic_config(self, topic: str, config: Mapping[str, str]) -> list[str]:
        """Set the settings that a topic doesn't have of its own; those that it has stay.

        A target below 0.11 without `target.zookeeper` can't be asked: nothing is done.

        Args:
            topic: an existing one.
            config: the settings by name.

        Returns:
            The settings that were added, each as "name=value".

        Raises:
            TargetError: the target doesn't allow it, or doesn't respond.
        """

    @abstractmethod
    async def committed(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return the committed offsets of a group; a partition without one is left out.

        Offsets of a transaction in progress are waited for.

        Raises:
            TargetError: the target doesn't respond.
        """

    @abstractmethod
    async def wait_decided(self, topic: str) -> None:
        """Wait until the transactions that are open in a topic now have ended.

        Raises:
            TargetError: the target doesn't respond, or a transaction stays open.
        """

    async def wait_stable(self, ends: Mapping[TopicPartition, int]) -> None:
        """Wait until no transaction is open in front of these offsets.

        Raises:
            TargetError: the target doesn't respond, or a transaction stays open.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _STABLE_S
        left = {tp: end for tp, end in ends.items() if end}
        while left:
            stable = await self.log_bounds(left)
            left = {tp: end for tp, end in left.items() if stable[tp][1] < end}
            if left and loop.time() > deadline:
                (tp, end), *_ = left.items()
                raise TargetUnavailableError(
                    f"{tp.topic}/{tp.partition} of the target: a transaction is still open at "
                    f"offset {stable[tp][1]} after {_STABLE_S:.0f} s; expected none in front of "
                    f"{end}. Another producer may have left it open"
                )
            if left:
                await asyncio.sleep(_STABLE_POLL_S)

    @abstractmethod
    async def log_bounds(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Return the first offset of each partition, and the offset behind its last stable record.

        Args:
            partitions: of which.

        Raises:
            TargetError: the target doesn't respond.
        """

    @abstractmethod
    async def log_ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset behind the last record of each partition, of open transactions too.

        Args:
            partitions: of which.

        Raises:
            TargetError: the target doesn't respond.
        """

    @abstractmethod
    async def ever_had_records(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, bool]:
        """Return whether partitions have a committed record, or have had one.

        Raises:
            TargetError: the target doesn't respond, or the read makes no progress.
        """

    async def read_topic(self, topic: str) -> list[TargetRecord]:
        """Return all records of a small topic up to its present end, committed ones only.

        A topic that doesn't exist has none.

        Raises:
            TargetError: the target doesn't respond, or the read makes no progress.
        """
        return [record async for records in self.parts_of(topic) for record in records]

    async def parts_of(self, topic: str) -> AsyncGenerator[list[TargetRecord]]:
        """Yield what `read_topic` returns in parts, so that not all of it is in memory at a time.

        Raises as `read_topic`.
        """
        count = (await self.partition_counts()).get(topic, 0)
        bounds = await self.log_bounds(TopicPartition(topic, number) for number in range(count))
        for tp, (first, end) in bounds.items():
            for start in range(first, end, _PART_OFFSETS):
                yield await self.read_range(tp, start, min(start + _PART_OFFSETS, end))

    @abstractmethod
    async def read_range(self, tp: TopicPartition, first: int, end: int) -> list[TargetRecord]:
        """Return the committed records from `first` to before `end`.

        Raises:
            TargetError: the target doesn't respond, or the read makes no progress.
        """

    async def write(self, topic: str, key: bytes, value: bytes | None) -> None:
        """Write one record to partition 0 of a topic, and wait until all replicas have it.

        Raises:
            TargetError: it wasn't written.
        """
        await self.write_all(topic, [(key, value)])

    @abstractmethod
    async def write_all(self, topic: str, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Write records with different keys to partition 0 of a topic, as `write` does one.

        Raises:
            TargetError: a record wasn't written.
        """
