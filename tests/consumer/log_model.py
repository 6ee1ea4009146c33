"""A model of how brokers respond to a fetch, small enough to draw at random (docs/brokers.md 7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from aiokafka08.protocol.message_set import encode_entry

FILLER = b"\xff" * 8 + (61).to_bytes(4, "big")
"""Twelve bytes: what 3.9.1 sends for a batch without records (7.11)."""


class Batch(NamedTuple):
    """What stands in the log from `first` to `last`; without records: a marker, or emptied."""

    first: int
    last: int
    value_bytes: int
    has_record: bool

    @property
    def entry(self) -> bytes:
        """One message with the last offset, as a wrapper has it."""
        return encode_entry(self.last, None, bytes(self.value_bytes))

    @property
    def stored_bytes(self) -> int:
        return len(self.entry) if self.has_record else 78


class Fetched(NamedTuple):
    message_set: bytes
    high_watermark: int
    waited: bool


@dataclass(slots=True)
class ModelLog:
    """Batches in order, with holes between them where compaction took some; `end` is the end."""

    batches: list[Batch]
    end: int
    modern: bool

    def fetch(self, offset: int, max_bytes: int) -> Fetched:
        rest = [batch for batch in self.batches if batch.last >= offset]
        if not rest:
            return Fetched(b"", self.end, True)
        data = self._converted(rest, max_bytes) if self.modern else self._cut(rest, max_bytes)
        return Fetched(data, self.end, False)

    def _cut(self, rest: list[Batch], max_bytes: int) -> bytes:
        return b"".join(batch.entry for batch in rest if batch.has_record)[:max_bytes]

    def _converted(self, rest: list[Batch], max_bytes: int) -> bytes:
        whole: list[Batch] = []
        size = 0
        for batch in rest:
            size += batch.stored_bytes
            if size > max_bytes:
                break
            whole.append(batch)
        if not whole:
            return b""
        entries = [batch.entry for batch in whole if batch.has_record]
        if not entries:
            return FILLER
        if not whole[0].has_record:
            entries.insert(0, entries[0])  # 7.12
        window = sum(batch.stored_bytes for batch in whole)
        data = b"".join(entries)
        size = max(window, len(entries[0]))
        filler_bytes = max(size - len(data), 61)  # exceeds the rest (7.8)
        return (data + FILLER[:8] + filler_bytes.to_bytes(4) + bytes(size))[:size]
