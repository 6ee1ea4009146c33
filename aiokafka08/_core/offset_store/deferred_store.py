"""An offset store that is chosen at the first call, for clusters of 0.8 that have no topic yet.

Without a topic, 0.8.1 and 0.8.2 can't be told apart (docs/brokers.md 2.4), and they keep offsets in
different places. A caller that fetches or commits names a partition, so the cluster has a topic by
then.

Invariant: the store is chosen once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping

from aiokafka08._core.offset_store import CommitIdentity, OffsetStore
from aiokafka08._core.offset_store.responses import CommittedOffset, FetchedOffsets, OffsetsToCommit
from aiokafka08.errors import KafkaTimeoutError
from aiokafka08.structs import TopicPartition


class DeferredOffsetStore:
    """Chooses the store of a group when offsets are fetched or committed.

    `choose` returns the store, not yet started; it raises a retriable error if there is still no
    topic. It is cancelled when the time of the fetch or commit is over.
    """

    def __init__(self, choose: Callable[[], Awaitable[OffsetStore]]) -> None:
        self._choose = choose
        self._store: OffsetStore | None = None
        self._lock = asyncio.Lock()

    async def start(self) -> None:
        """Do nothing: there is no store yet."""

    async def stop(self) -> None:
        if self._store is not None:
            await self._store.stop()

    async def fetch(
        self, partitions: Collection[TopicPartition], *, timeout_s: float | None = None
    ) -> Mapping[TopicPartition, CommittedOffset]:
        if not partitions:
            return {}
        store, left_s = await self._chosen(timeout_s)
        return await store.fetch(partitions, timeout_s=left_s)

    async def fetch_each(
        self, partitions: Collection[TopicPartition], *, timeout_s: float | None = None
    ) -> FetchedOffsets:
        if not partitions:
            return {}
        store, left_s = await self._chosen(timeout_s)
        return await store.fetch_each(partitions, timeout_s=left_s)

    async def commit(
        self,
        offsets: OffsetsToCommit,
        identity: CommitIdentity,
        *,
        timeout_s: float | None = None,
    ) -> None:
        if offsets:
            store, left_s = await self._chosen(timeout_s)
            await store.commit(offsets, identity, timeout_s=left_s)

    async def _chosen(self, timeout_s: float | None) -> tuple[OffsetStore, float | None]:
        """Return the store, and how many seconds of `timeout_s` are left."""
        if self._store is not None:
            return self._store, timeout_s
        clock = asyncio.get_running_loop().time
        deadline = None if timeout_s is None else clock() + timeout_s
        try:
            async with asyncio.timeout_at(deadline), self._lock:
                if self._store is None:
                    store = await self._choose()
                    try:
                        await store.start()
                    except BaseException:
                        await store.stop()
                        raise
                    self._store = store
        except TimeoutError:
            raise KafkaTimeoutError(
                "offset store: no broker has shown its line within "
                f"{(timeout_s or 0) * 1000:.0f} ms"
            ) from None
        return self._store, None if deadline is None else max(deadline - clock(), 0.0)
