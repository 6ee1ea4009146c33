"""No store: every partition begins as auto_offset_reset says, and commits are refused."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from aiokafka08.offset_store import CommitIdentity
from aiokafka08.structs import OffsetAndMetadata, TopicPartition


class NoOffsetStore:
    """Knows nothing and says `refusal` to who wants to commit."""

    def __init__(self, refusal: Exception) -> None:
        self._refusal = refusal

    async def start(self) -> None:
        """Nothing to do."""

    async def stop(self) -> None:
        """Nothing to do."""

    async def fetch(
        self, partitions: Collection[TopicPartition], *, timeout_s: float | None = None
    ) -> Mapping[TopicPartition, OffsetAndMetadata | None]:
        """Nothing is committed."""
        return {}

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        stamp: CommitIdentity,
        *,
        timeout_s: float | None = None,
    ) -> None:
        """Refused."""
        self.check()

    def check(self) -> None:
        """Refused."""
        raise self._refusal.with_traceback(None)
