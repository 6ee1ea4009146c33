"""Read a range of a partition of the source as portions of a `SequenceCheck`.

Invariant: the messages come in the order of their offsets, each of the range once.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from aiokafka08._core.net.router import Router
from aiokafka08.bridge.source.range_records import RangeRecords
from aiokafka08.bridge.verify.sequence_check import Portion
from aiokafka08.structs import TopicPartition


class SourceChecksums:
    """Reads partitions through a router."""

    def __init__(self, router: Router) -> None:
        self._records = RangeRecords(router)

    async def close(self) -> None:
        """End the threads."""
        await self._records.close()

    async def read(
        self, tp: TopicPartition, start: int, end: int, leave_out: int = 0
    ) -> AsyncGenerator[Portion, None]:
        """Yield the messages from `start` to before `end`, in portions with at least one.

        Args:
            tp: the partition.
            start: the first offset.
            end: the offset to end before.
            leave_out: how many messages with the offset `start` to leave out.

        Raises:
            KafkaError: as `_core.ranges.range_reader.read_range`.
        """
        async with aclosing(self._records.read(tp, start, end)) as slices:
            async for records in slices:
                portion = Portion()
                for record in records:
                    if leave_out and record.offset == start:
                        leave_out -= 1
                        continue
                    portion.add(record.offset, record.key, record.value, record.timestamp)
                if portion:
                    yield portion
