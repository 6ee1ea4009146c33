"""Where committed offsets live: the seam. Each kind is a file of its own; `choose` names them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from aiokafka08.structs import OffsetAndMetadata, TopicPartition


class OffsetStore(Protocol):
    """Reads and writes the committed offsets of one group."""

    async def start(self) -> None:
        """Get ready to work."""

    async def stop(self) -> None:
        """Let go of everything; safe to call twice."""

    async def fetch(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, OffsetAndMetadata | None]:
        """What is committed; None (or left out) where nothing is. Asked for starting positions.

        Raises:
            KafkaError: with `retriable` where trying again may help.
        """

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit all of these.

        Raises:
            KafkaError: names the partitions that were not committed.
        """

    def check(self) -> None:
        """Raise what `commit` and a user's `committed` would raise, if there is no store."""
