"""The offset store of a consumer without a group: fetches return nothing, commits raise an error.

`choose` returns it where there is no `group_id`. Each partition then starts as auto_offset_reset
says.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from aiokafka08._core.offset_store import CommitIdentity
from aiokafka08.errors import IllegalOperation, KafkaError
from aiokafka08.structs import OffsetAndMetadata, TopicPartition


class NoOffsetStore:
    """Stores nothing."""

    async def start(self) -> None:
        """Do nothing."""

    async def stop(self) -> None:
        """Do nothing."""

    async def fetch(
        self, partitions: Collection[TopicPartition], *, timeout_s: float | None = None
    ) -> Mapping[TopicPartition, OffsetAndMetadata | None]:
        """Return an empty mapping: nothing is committed."""
        return {}

    async def fetch_each(
        self, partitions: Collection[TopicPartition], *, timeout_s: float | None = None
    ) -> Mapping[TopicPartition, OffsetAndMetadata | KafkaError | None]:
        """Return an empty mapping: nothing is committed."""
        return {}

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        identity: CommitIdentity,
        *,
        timeout_s: float | None = None,
    ) -> None:
        """Raise IllegalOperation."""
        raise no_group_error()


def no_group_error() -> IllegalOperation:
    """Return the error for a call that needs a group; `consumer.engine` raises it too."""
    return IllegalOperation("committed offsets belong to a group: set group_id")
