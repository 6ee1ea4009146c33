"""`write_part`: write the rows of a Spark task in the transactions of one producer of a bridge.

Spark may run a task again, or a second time beside the first. Each attempt fences the attempts
before it, if the driver's claim is still the newest (`sink.claims`).

Invariant: a task succeeds only if the committed positions are at the ends of its part's ranges.
"""

from __future__ import annotations

import asyncio
import queue
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple

from aiokafka08._wording import partition_name, partition_text
from aiokafka08.bridge.config import BridgeConfig
from aiokafka08.bridge.copy.copy_positions import read_stored_runs
from aiokafka08.bridge.copy.offset_runs import RunLog
from aiokafka08.bridge.errors import BridgeError, TargetError
from aiokafka08.bridge.sink.events import (
    Chunk,
    ChunkTaken,
    HeldRecords,
    RecordRefused,
    SinkEvent,
    TransactionAborted,
    TransactionCommitted,
    WorkerFailed,
    data_bytes,
    shared_offset,
    split_between_offsets,
)
from aiokafka08.bridge.sink.sink import (
    check_claims,
    initialise,
    read_claims,
    worker_settings,
)
from aiokafka08.bridge.sink.worker import TransactionWorker
from aiokafka08.bridge.target.target_cluster import Target
from aiokafka08.structs import ConsumerRecord, TopicPartition

# How long the last transaction of a task may take.
_COMMIT_S: Final = 120.0
_CHUNK_RECORDS: Final = 5000


class RangeToCopy(NamedTuple):
    """The offsets `start` to `end` - 1 of a source partition, and the target partition, `copy`."""

    source: TopicPartition
    copy: TopicPartition
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SparkPart:
    """The rows that one task writes."""

    config: BridgeConfig
    # The id of the driver's claim.
    run: str
    # The number of the transactional id.
    producer: int
    # The largest batch that all target topics take.
    batch_bytes: int
    ranges: tuple[RangeToCopy, ...]


def write_part(part: SparkPart, batches: Iterator[Any]) -> None:
    """Write all rows of a part.

    Args:
        part: which rows come.
        batches: Arrow batches with the columns topic, partition, offset, key, value and timestamp;
            the rows of a partition in the order of their offsets.

    Raises:
        BridgeFencedError: a newer start has claimed the bridge.
        BridgeError: a row can't be copied.
        TargetError: the transaction failed; another attempt continues after the committed rows.
    """
    writer = PartWriter(part)
    try:
        for batch in batches:
            writer.write(batch)
        writer.finish()
    finally:
        writer.close()


class PartWriter:
    """The producer of a part, used by two threads: this one and the worker's."""

    def __init__(self, part: SparkPart) -> None:
        self._part = part
        self._events: queue.SimpleQueue[SinkEvent] = queue.SimpleQueue()
        self._ranges = {range_.source: range_ for range_ in part.ranges}
        target = Target(part.config)
        settings = worker_settings(part.config, target, part.producer, part.batch_bytes)
        self._worker = TransactionWorker(settings, self._events.put)
        self._waiting_bytes = 0
        # The positions as far as this thread knows.
        self._committed: dict[TopicPartition, int] = {}
        try:
            logs = asyncio.run(self._begin(target))
        except BaseException:
            self._worker.close()
            raise
        self._first = dict(self._committed)
        self._next = dict(self._committed)
        self._held: defaultdict[TopicPartition, HeldRecords] = defaultdict(HeldRecords)
        self._worker.start(logs)

    async def _begin(self, target: Target) -> dict[TopicPartition, RunLog]:
        config = self._part.config
        try:
            # Check the claims before `initialise`, so that this attempt fences no newer start, and
            # again after it, since a newer start may have come in between.
            check_claims(config, await read_claims(config, target), self._part.run)
            await initialise(target, self._worker, "initialise a producer")
            check_claims(config, await read_claims(config, target), self._part.run)
            copies = {range_.copy: range_ for range_ in self._part.ranges}
            committed = await target.committed(config.position_group, copies)
            for copy, range_ in copies.items():
                at = committed.get(copy, 0)
                if at < range_.start:
                    raise BridgeError(
                        f"{partition_text(range_.source)}: "
                        f"group {config.position_group!r} is at {at}, but this job begins at "
                        f"{range_.start}: it was set back meanwhile. Start the job again"
                    )
                self._committed[range_.source] = at
            stored = await read_stored_runs(config, target, ends_only=True)
        finally:
            await target.close()
        return {tp: log for tp, log in stored.run_logs().items() if tp in self._ranges}

    def write(self, batch: Any) -> None:
        """Pass on the rows of an Arrow batch that aren't copied yet; blocks while memory is full.

        Raises:
            BridgeError: the rows aren't in order, or the target refuses one.
            TargetError: the transaction failed.
        """
        stamps = batch.column("timestamp").cast("int64").to_pylist()  # microseconds
        names = ("topic", "partition", "offset", "key", "value")
        rows = zip(*(batch.column(name).to_pylist() for name in names), stamps, strict=True)
        for tp, some in groupby(rows, itemgetter(0, 1)):
            self._write_rows(TopicPartition(*tp), list(some))

    def _write_rows(self, tp: TopicPartition, rows: list[tuple[Any, ...]]) -> None:
        held, records = self._held[tp], []
        last = held.records[-1].offset if held.records else -1
        for topic, partition, offset, key, value, stamp in rows:
            if offset < self._first[tp]:
                continue  # an earlier attempt has committed it
            if offset < last:
                raise BridgeError(
                    f"{partition_text(tp)}: offset {offset} came after "
                    f"{last}; expected rows in order"
                )
            last = offset
            time_ms = -1 if stamp is None else stamp // 1000
            records.append(_record(topic, partition, offset, time_ms, key, value))
        self._put_records(tp, held.add(records, last))
        limit = self._part.config.copy.buffer_bytes
        if held.memory > limit:
            raise BridgeError(f"{partition_text(tp)}: {shared_offset(last, limit)}")

    def _put_records(self, tp: TopicPartition, records: Sequence[ConsumerRecord[Any, Any]]) -> None:
        for some in split_between_offsets(records, _CHUNK_RECORDS):
            self._put(tp, some, some[-1].offset + 1)

    def _put(
        self, tp: TopicPartition, records: Sequence[ConsumerRecord[Any, Any]], next_offset: int
    ) -> None:
        size = data_bytes(records)
        limit = self._part.config.copy.buffer_bytes
        # Events are applied before each chunk, so that a failed transaction ends the task at once.
        while not self._events.empty() or self._waiting_bytes >= limit:
            self._apply(self._events.get())
        chunk = Chunk(0, tp, self._ranges[tp].copy, records, next_offset, size)
        self._waiting_bytes += chunk.memory
        self._next[tp] = next_offset
        self._worker.put(chunk)

    def finish(self) -> None:
        """Commit all rows, and the ends of the ranges.

        Raises:
            BridgeError: the target refuses a row.
            TargetError: the transaction failed.
        """
        for tp, held in self._held.items():
            self._put_records(tp, held.records)
        self._held.clear()
        for range_ in self._part.ranges:
            if self._next[range_.source] < range_.end:  # a hole at the end
                self._put(range_.source, [], range_.end)
        self._worker.request_stop(_COMMIT_S)
        self._worker.join(_COMMIT_S + 1)
        while not self._events.empty():
            self._apply(self._events.get())
        left = [
            range_ for range_ in self._part.ranges if self._committed[range_.source] < range_.end
        ]
        if left:
            range_ = left[0]
            raise TargetError(
                f"{partition_name(range_.copy)}: committed up to "
                f"{self._committed[range_.source]} within {_COMMIT_S:.0f} s; expected {range_.end}"
            )

    def close(self) -> None:
        """End the worker; its rows are committed only if the target responds at once."""
        self._worker.request_stop(0.0)
        self._worker.join(5.0)

    def _uncommitted(self) -> str:
        """Return the uncommitted rows, in words."""
        return ", ".join(
            f"{partition_text(tp)}, offsets {self._committed[tp]} to {end - 1}"
            for tp, end in self._next.items()
            if end > self._committed[tp]
        )

    def _apply(self, event: SinkEvent) -> None:
        match event:
            case ChunkTaken():
                self._waiting_bytes -= event.size
            case TransactionCommitted():
                self._committed |= event.positions
            case TransactionAborted():
                raise TargetError(
                    f"a transaction was aborted: {event.reason}. It had records of "
                    f"{self._uncommitted()} of the source. If the target refuses one of them at "
                    "each attempt, 'aiokafka08 bridge run' with the same file copies what is in "
                    "front of it, and names it"
                )
            case RecordRefused():
                tp = event.source
                raise BridgeError(
                    f"{partition_text(tp)}: the target refuses the record "
                    f"at offset {event.offset} of the source: {event.reason}"
                )
            case WorkerFailed():
                raise event.error


def _record(
    topic: str, partition: int, offset: int, time_ms: int, key: Any, value: Any
) -> ConsumerRecord[Any, Any]:
    return ConsumerRecord(topic, partition, offset, time_ms, 0, key, value, None, -1, -1, ())
