"""Read a range of a partition in message formats 0 and 1 as offsets and checksums of its messages.

The source of a bridge, or a target below 0.11.

Invariant: the messages come in the order of their offsets, each of the range once.
"""

from __future__ import annotations

from array import array
from collections.abc import AsyncGenerator
from contextlib import aclosing

from aiokafka08.bridge.range_records import RangeRecords
from aiokafka08.bridge.sequence_check import message_crc
from aiokafka08.net.router import Router
from aiokafka08.structs import TopicPartition


class SourceChecksums:
    """Reads partitions through a router; `timestamps` puts them into the checksums."""

    def __init__(self, router: Router, timestamps: bool) -> None:
        self._records, self._timestamps = RangeRecords(router), timestamps

    async def close(self) -> None:
        """End the threads."""
        await self._records.close()

    async def read(
        self, tp: TopicPartition, start: int, end: int
    ) -> AsyncGenerator[tuple[array[int], array[int]], None]:
        """Yield the offsets and the checksums of the messages from `start` to before `end`.

        Raises:
            KafkaError: as `consumer.range.read_range`.
        """
        async with aclosing(self._records.read(tp, start, end)) as slices:
            async for records in slices:
                offsets, crcs = array("q"), array("I")
                for one in records:
                    offsets.append(one.offset)
                    stamp = one.timestamp if self._timestamps else None
                    crcs.append(message_crc(one.key, one.value, stamp))
                yield offsets, crcs
