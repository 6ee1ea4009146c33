"""`OpenTransaction`: the chunks of a transaction, and the offsets that they got. Pure.

Invariant: `runs()` returns only offsets that follow from acknowledgements. It returns None if they
are known only once each record is acknowledged.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from aiokafka08.bridge.config import CopyConfig
from aiokafka08.bridge.copy.offset_runs import OffsetRun, runs_of, runs_of_transaction
from aiokafka08.bridge.sink.events import Chunk
from aiokafka08.structs import ConsumerRecord, TopicPartition

# A backlog has ended when no chunk comes for this time.
QUIET_S: Final = 0.1


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
        # The first and the last record have a callback. The records have consecutive offsets unless
        # another producer writes to the partition.
        if known[last] - known[0] == last:
            return self._contiguous(0, last + 1, known[0])
        if len(known) <= last:
            return None
        cuts = [0, *(i for i in range(1, last + 1) if known[i] != known[i - 1] + 1), last + 1]
        return [run for a, b in pairwise(cuts) for run in self._contiguous(a, b, known[a])]

    def _contiguous(self, start: int, end: int, target: int) -> list[OffsetRun]:
        offsets = self.offsets[start:end]
        first, last = offsets[0], offsets[-1]
        # Compare the ends first: with a hole in the offsets, the range may be far longer.
        if last - first == end - start - 1 and offsets == array("q", range(first, last + 1)):
            return [OffsetRun(offsets[0], target, len(offsets))]
        return runs_of(offsets, target)


@dataclass(slots=True)
class OpenTransaction:
    """A transaction that takes chunks."""

    # On the worker's clock.
    began_at: float
    # Whether each record has a callback.
    every: bool = False
    # Whether the transaction before it was full, so that this one may be the last of a backlog.
    follows_full: bool = False
    records: int = 0
    size: int = 0
    # The memory of the chunks whose last record has no delivery report yet.
    unacknowledged: int = 0
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    targets: dict[TopicPartition, TopicPartition] = field(default_factory=dict)
    sent: list[SentChunk] = field(default_factory=list)

    def add(self, chunk: Chunk) -> SentChunk | None:
        """Add a chunk; return the collector of its acknowledgements, if it has records."""
        self.positions[chunk.source] = chunk.next_offset
        self.targets[chunk.source] = chunk.target
        self.size += chunk.size
        self.records += len(chunk.records)
        if not chunk.records:
            return None
        sent = SentChunk(chunk.source, array("q", [record.offset for record in chunk.records]))
        self.sent.append(sent)
        return sent

    def is_full(self, limits: CopyConfig) -> bool:
        """Return whether it is large enough to be committed."""
        return self.records >= limits.transaction_records or self.size >= limits.transaction_bytes

    def wait_s(self, limits: CopyConfig, now: float) -> float:
        """Return how long to wait for the next chunk; 0 or less if the transaction is old
        enough.
        """
        left_s = self.began_at + limits.transaction_s - now
        # The end of a backlog is committed soon. Other transactions wait for `transaction_s`, so
        # that there are few of them.
        return min(left_s, QUIET_S) if self.follows_full else left_s

    def runs(self) -> dict[TopicPartition, list[OffsetRun]] | None:
        """Return the runs of each partition; None if each record has to be acknowledged for that.

        Raises:
            ValueError: a chunk wasn't acknowledged.
        """
        by_source: dict[TopicPartition, list[OffsetRun]] = {}
        for sent in self.sent:
            runs = sent.runs()
            if runs is None:
                return None
            by_source.setdefault(sent.source, []).extend(runs)
        return {tp: runs_of_transaction(runs) for tp, runs in by_source.items()}


DeliveryReport = Callable[[Any, Any], None]


def callbacks_of(
    count: int, callback: Callable[[int], DeliveryReport], *, every: bool
) -> list[DeliveryReport | None]:
    """Return the delivery callback of each of `count` records, made by index.

    The first and the last record have one, with `every` all records; the others have None.
    """
    if every:
        return [callback(index) for index in range(count)]
    callbacks: list[DeliveryReport | None] = [None] * count
    for index in {0, count - 1}:
        callbacks[index] = callback(index)
    return callbacks


def timestamps_of(records: Sequence[ConsumerRecord[Any, Any]], *, keep: bool) -> list[int]:
    """Return the timestamps to produce with. 0 is none to librdkafka; without `keep`, all are 0."""
    if not keep:
        return [0] * len(records)
    # Records of format 0 have no timestamp, and some have a negative one.
    return [stamp if (stamp := record.timestamp) and stamp > 0 else 0 for record in records]
