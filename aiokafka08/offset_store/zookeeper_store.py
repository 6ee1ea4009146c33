"""Committed offsets in ZooKeeper, read and written directly, for brokers of 0.8.0.

These brokers have no requests for offsets. This module implements `OffsetStore` with
`zookeeper.offsets`, which reads and writes the nodes; `choose` picks it. The nodes have no place
for metadata, and ZooKeeper doesn't fence members of an older generation.

Invariant: if `commit` returns, all offsets are written; otherwise its error names those that
aren't.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from aiokafka08.errors import KafkaUnavailableError
from aiokafka08.offset_store import CommitIdentity
from aiokafka08.offset_store.responses import CommittedOffset, OffsetsToCommit, group_by_reason
from aiokafka08.structs import OffsetAndMetadata, TopicPartition
from aiokafka08.zookeeper.offsets import OffsetNodes


class ZookeeperOffsetStore:
    """Committed offsets of one group in ZooKeeper, without the brokers.

    Args:
        connect: "host:port,host:port/chroot".
        group: the group's name.
        timeout_s: seconds for a call without a timeout of its own.

    Raises:
        KafkaConfigurationError: kazoo isn't installed.
    """

    def __init__(self, connect: str, group: str, timeout_s: float) -> None:
        self._connect = connect
        self._group = group
        self._timeout_s = timeout_s
        self._nodes = OffsetNodes(connect, group)

    async def start(self) -> None:
        """Open the ZooKeeper session; raises as `OffsetNodes.open`."""
        await self._nodes.open(self._timeout_s)

    async def stop(self) -> None:
        """Close the session."""
        await self._nodes.close()

    async def fetch(
        self, partitions: Collection[TopicPartition], *, timeout_s: float | None = None
    ) -> Mapping[TopicPartition, CommittedOffset]:
        """See `OffsetStore`; raises as `OffsetNodes.read`."""
        offsets = await self._nodes.read(partitions, self._limit_s(timeout_s))
        return {
            tp: None if offset is None else OffsetAndMetadata(offset, "")
            for tp, offset in offsets.items()
        }

    async def commit(
        self, offsets: OffsetsToCommit, identity: CommitIdentity, *, timeout_s: float | None = None
    ) -> None:
        """See `OffsetStore`; ZooKeeper stores neither identity nor metadata."""
        values = {tp: offset for tp, (offset, _) in offsets.items()}
        failed = await self._nodes.write(values, self._limit_s(timeout_s))
        if failed:
            raise KafkaUnavailableError(
                f"offsets of group {self._group!r} not committed to ZooKeeper {self._connect}: "
                f"{group_by_reason(failed, KafkaUnavailableError)}"
            )

    def _limit_s(self, timeout_s: float | None) -> float:
        return self._timeout_s if timeout_s is None else timeout_s
