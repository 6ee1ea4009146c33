"""Buffer one partition's fetched message sets and decode them into records, slice by slice. Pure.

Invariant: the position moves only when records are returned (or when a hole in the log is passed).
It passes an offset only when all records of that offset were returned: records of a nested wrapper
share one offset (docs/brokers.md 6.7). Decoding ahead, an error of a deserializer and a cancelled
caller don't move it. An error is raised when its record is the next one to return, and again each
time that point is reached. After each `FrameStore.trim()`, the kept frames have at most
`limit_bytes` bytes outside buffered sets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import length_hint
from typing import Any, Final

from aiokafka08._wording import partition_text
from aiokafka08.embedded_headers import MARK, embed, extract, locate
from aiokafka08.errors import CorruptRecordException, EmbeddedHeadersError
from aiokafka08.protocol.message_set import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    Columns,
    LongWrapper,
    MessageSetReader,
)
from aiokafka08.protocol.types import Buffer
from aiokafka08.structs import ConsumerRecord, TopicPartition

Record = ConsumerRecord[Any, Any]
Deserializer = Callable[[Any], Any]

SET_OVERHEAD_BYTES: Final = 512
"""Charged for each buffered set beside its bytes (objects, its part of the frame header), so that
many sets of a single small message are bounded too."""

DECODE_STEP_BYTES: Final = 1024 * 1024
"""A decoding step that has decompressed this much leaves the next compressed set to the next step,
so that the caller can yield to the event loop in between."""

STEP_HEADERS: Final = 1000
"""A decoding step that has read this many embedded headers leaves the other records undeserialized
to the next step: 1,000 take some 2 ms. Each full KiB of a record's headers counts as one more."""

# How many decoded records are moved into columns before `Columns.is_full` is asked again
_STEP_COLUMN_RECORDS: Final = 8


@dataclass(frozen=True, slots=True)
class Decoding:
    """How message sets become records; the same for all partitions of a consumer."""

    check_crcs: bool = True
    key_deserializer: Deserializer | None = None
    value_deserializer: Deserializer | None = None
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES
    embedded_headers: bool = False
    # Reads an envelope of headers
    extract: Callable[[bytes], tuple[bytes, Sequence[tuple[str, bytes]]]] = extract

    @property
    def changes_records(self) -> bool:
        return (
            self.embedded_headers
            or self.key_deserializer is not None
            or self.value_deserializer is not None
        )


class FrameStore:
    """The received frames of one consumer that still hold buffered sets."""

    __slots__ = ("_kept", "limit_bytes", "unused_bytes")

    def __init__(self) -> None:
        # `unused_bytes`: bytes of kept frames that belong to no buffered set. `limit_bytes`: their
        # bound, which `fetch_memory` sets.
        self.limit_bytes = self.unused_bytes = 0
        self._kept: dict[ReceivedFrame, None] = {}  # the oldest first

    def new_frame(self, size_bytes: int) -> ReceivedFrame:
        return ReceivedFrame(self, size_bytes)

    def keep(self, frame: ReceivedFrame) -> None:
        """Count a frame that got its first set."""
        self._kept[frame] = None
        self.unused_bytes += frame.unused_bytes

    def release(self, frame: ReceivedFrame) -> None:
        """Stop counting a frame whose last set is gone."""
        del self._kept[frame]
        self.unused_bytes -= frame.unused_bytes

    def trim(self) -> None:
        """Restore the invariant: copy sets out of the oldest frames and release these."""
        # Copying each set out when it comes would cost more than decoding it. But a partition that
        # the user doesn't read must not keep the memory of all others alive.
        while self.unused_bytes > self.limit_bytes:
            next(iter(self._kept)).copy_sets_out()


class ReceivedFrame:
    """The buffered sets of one response frame."""

    __slots__ = ("_sets", "_store", "unused_bytes")

    def __init__(self, store: FrameStore, size_bytes: int) -> None:
        self.unused_bytes = size_bytes  # bytes of the frame that belong to no buffered set
        self._store = store
        self._sets: dict[FetchedSet, int] = {}

    def add_set(self, fetched: FetchedSet, size_bytes: int) -> None:
        if not self._sets:
            self._store.keep(self)
        self._sets[fetched] = size_bytes
        self._add_unused(-size_bytes)

    def release_set(self, fetched: FetchedSet) -> None:
        """Drop a set that is decoded to its end or discarded. No effect if it was copied out."""
        size_bytes = self._sets.pop(fetched, None)
        if size_bytes is None:
            return
        self._add_unused(size_bytes)
        if not self._sets:
            self._store.release(self)
        self._store.trim()

    def copy_sets_out(self) -> None:
        for fetched in self._sets:
            fetched.copy_out()
        self._sets.clear()
        self._store.release(self)

    def _add_unused(self, size_bytes: int) -> None:
        self.unused_bytes += size_bytes
        self._store.unused_bytes += size_bytes


@dataclass(slots=True, eq=False)
class FetchedSet:
    """One buffered message set in wire format; `reader` exists once decoding has begun."""

    message_set: Buffer
    fetch_offset: int
    next_offset: int
    charged_bytes: int
    frame: ReceivedFrame | None
    reader: MessageSetReader | None = None

    def copy_out(self) -> None:
        """Hold a copy of the bytes in place of a view into the frame."""
        self.message_set = bytes(self.message_set)
        if self.reader is not None:
            self.reader.move_to(self.message_set)

    def release(self) -> None:
        if self.frame is not None:
            self.frame.release_set(self)


@dataclass(slots=True)
class _Slice:
    """Decoded records, and the position after the last of them."""

    records: list[Record]
    end_offset: int


class RecordBuffer:
    """The fetched sets and decoded records of one partition, in offset order; see the module."""

    __slots__ = (
        "_added_sets",
        "_current",
        "_current_end",
        "_current_start",
        "_decoding",
        "_end",
        "_failed",
        "_sets",
        "_sliced_count",
        "_slices",
        "_started_count",
        "_topic_partition",
        "_undeserialized",
        "buffered_bytes",
        "decompressed_bytes",
        "remaining",
    )

    def __init__(self, topic_partition: TopicPartition, decoding: Decoding) -> None:
        self._topic_partition = topic_partition
        self._decoding = decoding
        self._sets: deque[FetchedSet] = deque()
        self._slices: deque[_Slice] = deque()
        self._sliced_count = 0  # records in `_slices`
        self._current: list[Record] = []  # the slice that `remaining` iterates over
        self._current_start = self._current_end = 0  # positions before and after that slice
        # Decoded records that come after the slices; see `_read`
        self._undeserialized: Sequence[Record] = ()
        self._failed = False  # deserializing the first of `_undeserialized` failed
        self._end = 0
        self._added_sets = 0
        self._started_count = 0  # records in the current and all former slices
        # `buffered_bytes`: bytes charged for the sets that aren't decoded to their ends.
        # `decompressed_bytes`: bytes that the last decoding step has decompressed.
        self.buffered_bytes = self.decompressed_bytes = 0
        # Iterator over the records of the current slice that weren't returned yet.
        # The collector and the public consumer step it directly, one step per message. The progress
        # is read from it (`length_hint`); nothing is counted per message.
        self.remaining: Iterator[Record] = iter(self._current)

    @property
    def position(self) -> int:
        """The offset of the next record to return (there may be a hole at that offset)."""
        left = length_hint(self.remaining)
        if not left:
            return self._current_end
        if left == len(self._current):
            return self._current_start
        return min(self._current[-left - 1].offset + 1, self._current[-left].offset)

    @property
    def pending(self) -> bool:
        return bool(self._sets or self._undeserialized or self.has_records)

    @property
    def has_records(self) -> bool:
        return bool(self._slices or length_hint(self.remaining))

    @property
    def long_wrapper(self) -> LongWrapper | None:
        """The wrapper to open, in a thread, before decoding can continue; None: there is none."""
        reader = self._sets[0].reader if self._sets else None
        wrapper = None if reader is None else reader.long_wrapper
        return None if wrapper is None or wrapper.is_open else wrapper

    @property
    def is_damaged(self) -> bool:
        """Whether decoding has found that the bytes of the next record to return are damaged."""
        reader = self._sets[0].reader if self._sets else None
        return (
            reader is not None
            and reader.error is not None
            and not self._undeserialized
            and not self.has_records
        )

    @property
    def fails_next(self) -> bool:
        """Whether decoding has found that an error comes next, with no record before it."""
        if self._undeserialized:
            return self._failed and not self.has_records
        reader = self._sets[0].reader if self._sets else None
        return reader is not None and reader.error is not None and not self.has_records

    @property
    def returned_count(self) -> int:
        """How many records the user has got from this buffer."""
        left = length_hint(self.remaining)
        return self._started_count - left

    @property
    def end(self) -> int:
        return self._end

    @property
    def added_sets(self) -> int:
        return self._added_sets

    def has_undecoded(self, added_sets: int) -> bool:
        """Return whether one of the first `added_sets` sets still has messages to decode."""
        return bool(self._undeserialized) or self._added_sets - len(self._sets) < added_sets

    @property
    def decoded_count(self) -> int:
        """How many decoded records weren't returned yet."""
        return length_hint(self.remaining) + self._sliced_count

    def reset(self, position: int) -> None:
        """Drop all sets and records, end iterators over them, and continue at `position`."""
        self._started_count = self.returned_count
        while self._sets:
            self._sets.popleft().release()
        self._slices.clear()
        self._sliced_count = 0
        self._current.clear()  # ends iterators that a caller still holds
        self._current = []
        self._undeserialized, self._failed = (), False
        self.remaining = iter(self._current)
        self._current_start = self._current_end = self._end = position
        self.buffered_bytes = 0

    def add_set(
        self,
        message_set: Buffer,
        fetch_offset: int,
        next_offset: int,
        frame: ReceivedFrame | None = None,
    ) -> None:
        """Append a fetched set, a view into `frame`.

        A compressed set may begin before `fetch_offset`, the offset that was requested.
        `next_offset` is the offset after the set, where the next fetch begins.
        """
        charged = len(message_set) + SET_OVERHEAD_BYTES
        self.buffered_bytes += charged
        self._end = next_offset
        fetched = FetchedSet(message_set, fetch_offset, next_offset, charged, frame)
        self._sets.append(fetched)
        self._added_sets += 1
        if frame is not None:
            frame.add_set(fetched, len(message_set))

    def skip_to(self, offset: int) -> None:
        """Record a hole in the log: nothing comes between the buffered sets and `offset`."""
        self._end = offset
        if not self._sets and not self._undeserialized:
            self._move_decoded_end(offset)

    def decode(self, max_records: int) -> bool:
        """Decode the next slice of at most `max_records` records.

        Returns False if there is nothing to decode, or if an error comes next and records before it
        aren't returned yet. True also if the step has found no record and more sets follow (see
        `DECODE_STEP_BYTES` and `long_wrapper`).

        Raises:
            CorruptRecordException: the next record to return is corrupt, or its envelope of headers
                is.
            Exception: a deserializer raised it for the next record to return.
        """
        if self._undeserialized:
            failed = self._failed
        else:
            reader = self._sets[0].reader if self._sets else None
            failed = reader is not None and reader.error is not None
        if failed and self.has_records:
            return False  # the error is raised after the records before it were returned
        try:
            return self._decode_slice(max_records)
        except Exception:
            if self.has_records:
                return False
            raise

    def start_next_slice(self) -> bool:
        """Set the exhausted `remaining` to the next decoded slice; False if there is none."""
        if not self._slices:
            return False
        self._current_start = self._current_end
        next_slice = self._slices.popleft()
        self._current, self._current_end = next_slice.records, next_slice.end_offset
        self._started_count += len(self._current)
        self._sliced_count -= len(self._current)
        self.remaining = iter(self._current)
        return True

    def drop_returned(self) -> None:
        """Stop referring to the records of the current slice if all of them were returned."""
        if not length_hint(self.remaining):
            self._current = []
            self.remaining = iter(self._current)

    def pop_records(self, max_records: int | None) -> list[Record]:
        popped: list[Record] = []
        while max_records is None or len(popped) < max_records:
            left = length_hint(self.remaining)
            if not left:
                if not self.start_next_slice():
                    self.drop_returned()
                    break
                left = len(self._current)
            if max_records is not None and left > max_records - len(popped):
                popped += islice(self.remaining, max_records - len(popped))
            elif left < len(self._current) or popped:
                popped += self.remaining
            else:  # the usual case: return a whole slice without copying it
                popped, self._current = self._current, []
                self.remaining = iter(self._current)
        return popped

    def pop_columns(self, columns: Columns, max_records: int) -> int:
        """Move messages into `columns` until `max_records` are moved or it is full; return how
        many.

        Only for consumers without deserializers. Call `read_ahead` after the last of several calls:
        until then, `position` may have passed an offset that the next records share.

        Raises CorruptRecordException if the next message to return is corrupt.
        """
        count = self.decompressed_bytes = 0
        while self.has_records and count < max_records and not columns.is_full:
            # An earlier getone() or getmany() has decoded these.
            records = self.pop_records(min(max_records - count, _STEP_COLUMN_RECORDS))
            if self._decoding.embedded_headers:
                # Columns hold values in their envelopes, which `arrow_headers` reads.
                for record in records:
                    record.value = embed(record.value, record.headers)
            columns.extend(records)
            count += len(records)
        if self.has_records:
            return count
        last_offset: int | None = None  # the last offset moved since a set was removed
        while self._undeserialized and count < max_records and not columns.is_full:
            # Records read ahead, or left by getone() or getmany() after a damaged envelope or many
            # headers.
            step = min(max_records - count, _STEP_COLUMN_RECORDS)
            records = list(self._undeserialized[:step])
            self._undeserialized = self._undeserialized[step:]
            self._failed = False
            columns.extend(records)
            count += len(records)
            self._started_count += len(records)
            last_offset = records[-1].offset
        while self._sets and count < max_records and not columns.is_full:
            fetched = self._sets[0]
            reader = self._reader_of(fetched)
            try:
                moved = reader.read_columns(columns, max_records - count)
            except CorruptRecordException:
                if not count:
                    raise
                break
            self.decompressed_bytes += reader.decompressed_bytes
            if moved:
                count += moved
                self._started_count += moved
                last_offset = columns.last_offset
                if count >= max_records or columns.is_full:
                    break
            if reader.error is not None or reader.paused:
                break
            self._remove_first_set()
            self._move_decoded_end(fetched.next_offset if self._sets else self._end)
            last_offset = None
            if self.decompressed_bytes >= DECODE_STEP_BYTES:
                break
        if last_offset is not None:
            self._current_end = self._end_after(last_offset)
        return count

    def read_ahead(self, last_offset: int) -> None:
        """Decode one more record after those moved into columns, and set the position.

        The position stays at `last_offset` if the next record has the same offset.
        """
        reader = self._sets[0].reader if self._sets else None
        if reader is None or _is_held(reader) or self._undeserialized or self.has_records:
            return
        records: list[Record] = []
        try:
            records = reader.read(1)
        except CorruptRecordException:
            pass  # raised when its record is the next one to return
        self._undeserialized = records
        if records or _is_held(reader):
            self._current_end = self._end_after(last_offset)
        else:
            fetched = self._sets[0]
            self._remove_first_set()
            self._move_decoded_end(fetched.next_offset if self._sets else self._end)

    def _decode_slice(self, max_records: int) -> bool:
        """Do what `decode` does, but raise an error even if records before it aren't returned."""
        self.decompressed_bytes = 0
        records = self._read(max_records)
        if not records:
            return bool(self._sets)
        self._failed = False
        if self._decoding.changes_records:
            count, error = self._deserialize(records)
            if count < len(records):
                self._undeserialized = [*records[count:], *self._undeserialized]
                self._failed = error is not None
                if error is not None and not count:
                    raise error
                del records[count:]
        if self._undeserialized or not self._sets or self._sets[0].reader is not None:
            end_offset = self._end_after(records[-1].offset)
        else:
            end_offset = self._sets[0].fetch_offset  # one set is finished, the next isn't begun
        if not self._undeserialized and not self._sets:
            end_offset = self._end
        self._slices.append(_Slice(records, end_offset))
        self._sliced_count += len(records)
        return True

    def _read(self, max_records: int) -> list[Record]:
        """Decode up to `max_records` records of the next set that has any."""
        records, self._undeserialized = list(self._undeserialized), ()
        # One record more shows whether the set has more records, and whether they have the same
        # offset.
        missing = 0 if self._failed else max_records + 1 - len(records)
        while self._sets and missing > 0:
            fetched = self._sets[0]
            reader = self._reader_of(fetched)
            try:
                decoded = reader.read(missing)
                decoded[:0] = records  # `records` are few; copying `decoded` would cost more
                records = decoded
            except CorruptRecordException:
                if not records:
                    raise
            self.decompressed_bytes += reader.decompressed_bytes
            if len(records) > max_records or reader.error is not None or reader.paused:
                break  # the set has more
            self._remove_first_set()
            if records:
                break
            self._move_decoded_end(fetched.next_offset if self._sets else self._end)
            if self.decompressed_bytes >= DECODE_STEP_BYTES:
                break
        if len(records) > max_records:
            self._undeserialized = records[max_records:]
            del records[max_records:]
        return records

    def _end_after(self, last_offset: int) -> int:
        """Return the position after a decoded record, the last one before `_undeserialized`."""
        if self._undeserialized:
            return min(last_offset + 1, self._undeserialized[0].offset)
        reader = self._sets[0].reader if self._sets else None
        if reader is None:
            return last_offset + 1
        # The position stays at the record's own offset if more records of this offset will come.
        pauses_within = reader.paused and reader.shared_offset == last_offset
        fails_within = reader.error is not None and reader.error.offset == last_offset
        return last_offset if pauses_within or fails_within else last_offset + 1

    def _reader_of(self, fetched: FetchedSet) -> MessageSetReader:
        if fetched.reader is None:
            fetched.reader = MessageSetReader(
                self._topic_partition,
                fetched.message_set,
                fetched.fetch_offset,
                check_crcs=self._decoding.check_crcs,
                max_decompressed_bytes=self._decoding.max_decompressed_bytes,
                pause_after_bytes=DECODE_STEP_BYTES,
                leave_long=True,
            )
        return fetched.reader

    def _remove_first_set(self) -> None:
        fetched = self._sets.popleft()
        self.buffered_bytes -= fetched.charged_bytes
        fetched.release()

    def _move_decoded_end(self, offset: int) -> None:
        """Set the end of the decoded records; no messages are left below `offset`."""
        if self._slices:
            self._slices[-1].end_offset = offset
        else:
            self._current_end = offset

    def _deserialize(self, records: list[Record]) -> tuple[int, Exception | None]:
        """Deserialize in place, up to a failure or STEP_HEADERS; return the count and the error."""
        for_key, for_value = self._decoding.key_deserializer, self._decoding.value_deserializer
        embedded, extract = self._decoding.embedded_headers, self._decoding.extract
        headers: Sequence[tuple[str, bytes]]
        headers_left = STEP_HEADERS
        for count, record in enumerate(records):
            if headers_left <= 0:
                return count, None
            key, value, headers = record.key, record.value, ()
            size = record.serialized_value_size
            if embedded and value and value[0] == MARK:
                try:
                    header_count = value[1] if size > 1 else 0
                    value, headers = extract(value)
                    headers_left -= header_count + (size - len(value) >> 10)
                    size = len(value)
                except EmbeddedHeadersError as error:
                    return count, locate(error, self._topic_partition, record.offset)
            try:
                if for_key is not None:
                    key = for_key(key)
                if for_value is not None:
                    value = for_value(value)
            except Exception as error:
                note = (
                    f"{partition_text(self._topic_partition)}, offset {record.offset}: a "
                    f"deserializer raised this. seek() to {record.offset + 1} to skip the message"
                )
                if note not in getattr(error, "__notes__", ()):  # it may have been raised before
                    error.add_note(note)
                return count, error
            record.key, record.value = key, value
            if headers or size != record.serialized_value_size:
                record.headers, record.serialized_value_size = headers, size
        return len(records), None


def _is_held(reader: MessageSetReader) -> bool:
    """Return whether the reader's last call stopped before a wrapper or at an error."""
    return reader.paused or reader.error is not None
