"""Read a range of a partition of the source as records, slice by slice.

Invariant: the records come in the order of their offsets, each record of the range once. The event
loop runs between two slices, and large compressed messages are opened in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from aiokafka08._core.concurrency.offload import Offload
from aiokafka08._core.net.router import Router
from aiokafka08._core.ranges.range_fetches import RangeFetches
from aiokafka08._core.ranges.range_reader import read_range
from aiokafka08.structs import ConsumerRecord, TopicPartition

# How many messages are decoded between two turns of the event loop.
_SLICE_RECORDS: Final = 2048


class RangeRecords:
    """Reads ranges through one started router; `close()` ends the threads, not the router."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._fetches, self._offload = RangeFetches(router), Offload()

    async def close(self) -> None:
        """End the threads."""
        await self._offload.stop()

    async def read(
        self, tp: TopicPartition, start: int, end: int
    ) -> AsyncGenerator[list[ConsumerRecord[bytes, bytes]], None]:
        """Yield the records from `start` to before `end`, in slices.

        Raises:
            KafkaError: as `_core.ranges.range_reader.read_range`.
        """
        if start >= end:
            return
        async with aclosing(
            read_range(self._router, tp, start, end, fetches=self._fetches)
        ) as sets:
            async for raw in sets:
                reader = raw.reader(tp)
                while True:
                    while records := reader.read(_SLICE_RECORDS):
                        yield records
                        await asyncio.sleep(0)
                    if (wrapper := reader.long_wrapper) is None or wrapper.is_open:
                        break
                    await self._offload.run(wrapper.open)

    async def has_any(self, tp: TopicPartition, start: int, end: int) -> bool:
        """Return whether there is a message from `start` to before `end`; raises as `read`."""
        async with aclosing(self.read(tp, start, end)) as slices:
            async for _ in slices:
                return True
        return False
