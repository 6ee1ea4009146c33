"""The messages between the event loop and the workers: chunks of records in, events out. Pure.

Invariant: records that share an offset (docs/brokers.md 6.7) are in the same chunk. A transaction
has whole chunks, because the position that it commits is the end of a chunk.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple

from aiokafka08.bridge.copy.offset_runs import OffsetRun
from aiokafka08.errors import KafkaError
from aiokafka08.structs import ConsumerRecord, TopicPartition

# The bytes that a record takes besides its key and value: its objects, or librdkafka's message.
_RECORD_BYTES: Final = 300


def data_bytes(records: Sequence[ConsumerRecord[Any, Any]]) -> int:
    """Return the bytes of keys and values."""
    size = sum(map(len, filter(None, [record.key for record in records])))
    return size + sum(map(len, filter(None, [record.value for record in records])))


class Chunk(NamedTuple):
    """Records of one partition, in order, for one worker.

    Without records it moves the position past a hole in the log, or commits the same one again.
    """

    # The worker's epoch when the records were read; after an abort older chunks are dropped.
    epoch: int
    source: TopicPartition
    target: TopicPartition
    records: Sequence[ConsumerRecord[Any, Any]]
    # The source offset after the records.
    next_offset: int
    # Bytes of keys and values.
    size: int

    @property
    def memory(self) -> int:
        """Bytes that the records take in the process, about."""
        return self.size + _RECORD_BYTES * len(self.records)


class ChunkTaken(NamedTuple):
    """A worker has passed a chunk on to librdkafka, or dropped it, so its memory is free."""

    size: int


class TransactionCommitted(NamedTuple):
    """A transaction is committed: the target holds its records and its positions."""

    worker: int
    # Source partition → source offset after the copied records.
    positions: Mapping[TopicPartition, int]
    runs: Mapping[TopicPartition, Sequence[OffsetRun]]
    records: int
    size: int


class TransactionAborted(NamedTuple):
    """A transaction is aborted. Its partitions must be read again from their last positions."""

    worker: int
    # The worker's epoch from now on.
    epoch: int
    reason: str
    # Whether the abort only follows from a refusal that this worker has already reported.
    is_known: bool = False


class RecordRefused(NamedTuple):
    """The target doesn't take a record, and another attempt wouldn't help."""

    worker: int
    epoch: int
    source: TopicPartition
    offset: int
    reason: str


class WorkerFailed(NamedTuple):
    """A worker has ended with an error after which it can't continue."""

    worker: int
    # Here a `BridgeError` means a bug in the sink, which a new session wouldn't cure.
    error: KafkaError


SinkEvent = ChunkTaken | TransactionCommitted | TransactionAborted | RecordRefused | WorkerFailed


class HeldRecords:
    """The last records read from a partition, held until no more can share their offset.

    Attributes:
        memory: About how many bytes they take in the process.
        records: In order.
    """

    def __init__(self) -> None:
        self.records: list[ConsumerRecord[Any, Any]] = []
        self.memory = 0

    def add(
        self, records: Sequence[ConsumerRecord[Any, Any]], offset: int
    ) -> Sequence[ConsumerRecord[Any, Any]]:
        """Add the records that follow; return those below `offset`, and hold the others."""
        self.records += records
        cut = bisect_left(self.records, offset, key=attrgetter("offset"))
        below = self.records[:cut]
        if cut:
            records = self.records = self.records[cut:]
            self.memory = 0
        self.memory += data_bytes(records) + _RECORD_BYTES * len(records)
        return below


def shared_offset(offset: int, limit_bytes: int) -> str:
    """Return the error text of an offset whose records take more than `copy.buffer_bytes`."""
    return (
        f"the messages that share offset {offset} take more than copy.buffer_bytes={limit_bytes}, "
        "and they are copied in one transaction. Raise copy.buffer_bytes"
    )


def split_between_offsets(
    records: Sequence[ConsumerRecord[Any, Any]], count: int
) -> Iterator[Sequence[ConsumerRecord[Any, Any]]]:
    """Yield records in parts of `count`, or more if records share the offset at the cut.

    So a transaction may end after each part, and commit the offset after it as the position.
    """
    start = 0
    while start < len(records):
        end = start + count
        while end < len(records) and records[end].offset == records[end - 1].offset:
            end += 1
        yield records[start:end]
        start = end
