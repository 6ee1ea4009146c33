"""The offset store of a consumer without a group: nothing is committed; commits raise an error."""

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
        return {}

    async def fetch_each(
        self, partitions: Collection[TopicPartition], *, timeout_s: float | None = None
    ) -> Mapping[TopicPartition, OffsetAndMetadata | KafkaError | None]:
        return {}

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        identity: CommitIdentity,
        *,
        timeout_s: float | None = None,
    ) -> None:
        raise no_group_error()


def no_group_error() -> IllegalOperation:
    return IllegalOperation("committed offsets belong to a group: set group_id")
