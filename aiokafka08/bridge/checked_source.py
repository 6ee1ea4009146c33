"""Read a range of a source partition as offsets and checksums of its messages.

Invariant: the messages come in the order of their offsets, each of the range once.
"""

from __future__ import annotations

from array import array
from collections.abc import AsyncGenerator
from contextlib import aclosing

from aiokafka08.bridge.sequence_check import message_crc
from aiokafka08.concurrency.offload import Offload
from aiokafka08.consumer.range import read_range
from aiokafka08.consumer.range_fetches import RangeFetches
from aiokafka08.net.router import Router
from aiokafka08.protocol.message_set import DEFAULT_MAX_DECOMPRESSED_BYTES, MessageSetReader
from aiokafka08.structs import TopicPartition

_SLICE_RECORDS = 2048
"""How many messages are decoded between two turns of the event loop."""


class SourceChecksums:
    """Reads partitions of the source; `timestamps` puts them into the checksums."""

    def __init__(self, router: Router, timestamps: bool) -> None:
        self._router, self._timestamps = router, timestamps
        self._fetches, self._offload = RangeFetches(router), Offload()

    async def close(self) -> None:
        """End the threads."""
        await self._offload.stop()

    async def read(
        self, tp: TopicPartition, start: int, end: int
    ) -> AsyncGenerator[tuple[array[int], array[int]], None]:
        """Yield the offsets and the checksums of the messages from `start` to before `end`.

        Raises:
            KafkaError: as `consumer.range.read_range`.
        """
        if start >= end:
            return
        async with aclosing(
            read_range(self._router, tp, start, end, fetches=self._fetches)
        ) as sets:
            async for raw in sets:
                reader = MessageSetReader(
                    tp,
                    raw.message_set,
                    raw.fetch_offset,
                    check_crcs=True,
                    leave_long=True,
                    max_decompressed_bytes=DEFAULT_MAX_DECOMPRESSED_BYTES,
                    end_offset=raw.end_offset,
                )
                while True:
                    while (portion := self._portion(reader))[0]:
                        yield portion
                    if (wrapper := reader.long_wrapper) is None or wrapper.is_open:
                        break
                    await self._offload.run(wrapper.open)

    def _portion(self, reader: MessageSetReader) -> tuple[array[int], array[int]]:
        offsets, crcs = array("q"), array("I")
        for one in reader.read(_SLICE_RECORDS):
            offsets.append(one.offset)
            stamp = one.timestamp if self._timestamps else None
            crcs.append(message_crc(one.key, one.value, stamp))
        return offsets, crcs
