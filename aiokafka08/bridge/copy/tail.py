"""Find a lost position by the target's own tail: the place of its last records in the source.

The last resort if neither the bridge's group nor the offsets topic has the position. It reads the
partition of the source once, from its beginning.

Invariant: a position is returned only if the last records of the target's partition, in order, are
in the source's log exactly once. Pure, except `read_tail` and `find_by_tail`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from aiokafka08.bridge.source.source_reader import SourceReader
from aiokafka08.bridge.target.target_cluster import Target
from aiokafka08.structs import TopicPartition

TAIL_RECORDS: Final = 100
_READ_S: Final = 1.0
_FIRST_BLOCK: Final = 1000


class TailRecord(NamedTuple):
    """The parts of a record that are equal on both sides: timestamps may differ."""

    key: bytes | None
    value: bytes | None


class TailSearch:
    """Searches for the tail of the target in a log that is fed record by record."""

    def __init__(self, tail: Sequence[TailRecord]) -> None:
        self._tail = deque(tail)
        self._window: deque[TailRecord] = deque(maxlen=len(tail))
        self.found: list[int] = []

    def feed(self, offset: int, record: TailRecord) -> None:
        """Add the next record; note in `found` the offset after each match of the tail."""
        # This record has the offset of the match's last record (docs/brokers.md 6.7), and perhaps
        # isn't copied yet, so the position is this offset, not the next one.
        if self.found and self.found[-1] > offset:
            self.found[-1] = offset
        self._window.append(record)
        if record == self._tail[-1] and self._window == self._tail:
            self.found.append(offset + 1)

    @property
    def position(self) -> int | None:
        """The offset after the only match of the tail; None if there is none, or several."""
        return self.found[0] if len(self.found) == 1 else None


async def read_tail(target: Target, tp: TopicPartition) -> list[TailRecord]:
    """Return the last committed records of a partition, up to `TAIL_RECORDS`.

    Raises:
        TargetError: the target doesn't respond.
    """
    first, end = (await target.log_bounds([tp]))[tp]
    block = _FIRST_BLOCK
    while True:
        start = max(first, end - block)
        records = await target.read_range(tp, start, end)
        if len(records) >= TAIL_RECORDS or start == first:
            return [TailRecord(record.key, record.value) for record in records[-TAIL_RECORDS:]]
        # Compaction and markers leave fewer records than offsets.
        block *= 10


async def find_by_tail(
    source: SourceReader, target: Target, tp: TopicPartition, copy: TopicPartition
) -> int | None:
    """Return the next source offset of a partition; None if the tail isn't found exactly once.

    Args:
        source: reads only this partition meanwhile, and doesn't have it assigned afterwards.
        target: the connection.
        tp: the partition of the source.
        copy: the partition of the target.

    Raises:
        KafkaError: one of the clusters doesn't respond.
    """
    tail = await read_tail(target, copy)
    if not tail:
        return None
    search = TailSearch(tail)
    first, end = (await source.bounds([tp]))[tp]
    async with source.only(tp, first):
        while await source.position(tp) < end:
            for record in (await source.read(_READ_S)).get(tp, ()):
                search.feed(record.offset, TailRecord(record.key, record.value))
    return search.position
