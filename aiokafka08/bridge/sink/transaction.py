"""`OpenTransaction`: what a transaction has taken, and which offsets it got. Pure.

Invariant: `runs()` returns only what was acknowledged. The first and the last record of each chunk
have a callback. If the offsets between them don't fit, somebody else writes to the partition, and
`runs()` asks for a callback of each record, by returning None.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from aiokafka08.bridge.offset_runs import OffsetMap, OffsetRun, runs_of
from aiokafka08.bridge.sink.events import Chunk
from aiokafka08.structs import TopicPartition


@dataclass(slots=True)
class SentChunk:
    """The source offsets of a chunk, and the acknowledged target offsets by index."""

    source: TopicPartition
    offsets: array[int]
    acknowledged: dict[int, int] = field(default_factory=dict)

    def runs(self) -> list[OffsetRun] | None:
        """Return the runs; None if there are too few acknowledgements to know them.

        Raises:
            ValueError: an end of the chunk isn't acknowledged.
        """
        known, last = self.acknowledged, len(self.offsets) - 1
        if 0 not in known or last not in known:
            raise ValueError(f"{self.source}: offsets of a chunk weren't acknowledged")
        if known[last] - known[0] == last:
            return self._contiguous(0, last + 1, known[0])
        if len(known) <= last:
            return None
        cuts = [0, *(i for i in range(1, last + 1) if known[i] != known[i - 1] + 1), last + 1]
        return [run for a, b in pairwise(cuts) for run in self._contiguous(a, b, known[a])]

    def _contiguous(self, start: int, end: int, target: int) -> list[OffsetRun]:
        offsets = self.offsets[start:end]
        if offsets[-1] - offsets[0] == len(offsets) - 1:
            return [OffsetRun(offsets[0], target, len(offsets))]
        return runs_of(offsets, target)


@dataclass(slots=True)
class OpenTransaction:
    """A transaction that takes chunks. `began_at` is on the worker's clock."""

    began_at: float
    records: int = 0
    size: int = 0
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    targets: dict[TopicPartition, TopicPartition] = field(default_factory=dict)
    newest: dict[TopicPartition, int] = field(default_factory=dict)
    sent: list[SentChunk] = field(default_factory=list)

    def add(self, chunk: Chunk) -> SentChunk | None:
        """Account for a chunk; return what collects its acknowledgements, if it has records."""
        self.positions[chunk.source] = chunk.next_offset
        self.targets[chunk.source] = chunk.target
        self.size += chunk.size
        self.records += len(chunk.records)
        if not chunk.records:
            return None
        stamp = chunk.records[-1].timestamp
        if stamp is not None and stamp >= 0:
            self.newest[chunk.source] = stamp
        sent = SentChunk(chunk.source, array("q", [one.offset for one in chunk.records]))
        self.sent.append(sent)
        return sent

    def runs(self) -> dict[TopicPartition, list[OffsetRun]] | None:
        """Return the runs of each partition; None if each record has to be acknowledged for that.

        Raises:
            ValueError: a chunk wasn't acknowledged.
        """
        found: dict[TopicPartition, list[OffsetRun]] = {}
        for sent in self.sent:
            runs = sent.runs()
            if runs is None:
                return None
            found.setdefault(sent.source, []).extend(runs)
        return {tp: list(OffsetMap(runs)) for tp, runs in found.items()}


Callback = Callable[[Any, Any], None]


def batch_messages(
    chunk: Chunk, callback: Callable[[int], Callback], *, every: bool
) -> list[dict[str, Any]]:
    """Return the messages of a chunk for `produce_batch`, which takes no timestamps.

    Args:
        chunk: has records.
        callback: makes the callback of a record by its index.
        every: True gives each record a callback, False the first and the last one.
    """
    messages: list[dict[str, Any]] = [{"key": one.key, "value": one.value} for one in chunk.records]
    for index in acknowledged_indexes(chunk, every=every):
        messages[index]["callback"] = callback(index)
    return messages


def acknowledged_indexes(chunk: Chunk, *, every: bool) -> set[int]:
    """Return which records of a chunk have a callback: all, or the first and the last one."""
    last = len(chunk.records) - 1
    return set(range(last + 1)) if every else {0, last}


def is_stamped(chunk: Chunk) -> bool:
    """Return whether a record of the chunk has a timestamp; those of format 0 have none."""
    return any(one.timestamp is not None and one.timestamp > 0 for one in chunk.records)
