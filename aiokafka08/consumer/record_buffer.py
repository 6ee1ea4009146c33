"""What one partition has fetched and the user hasn't taken: message sets, then slices of records.

Pure. Owns the position: the offset of the next message that the user gets. Law: the position moves
only with what is handed out. Decoding ahead, a deserializer's error or a cancelled caller move
nothing; an error is told where its message stands, as often as it is reached.

The records of the current slice are walked by one list iterator, `walk`, which the consumer may
hold on to: `async for` then costs one step of it per message. How far it has come is asked of the
iterator itself, so that nobody counts along.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from operator import length_hint
from typing import Any

from aiokafka08.consumer.frames import ReceivedFrame
from aiokafka08.errors import CorruptRecordException
from aiokafka08.protocol.message_set import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    Columns,
    MessageSetReader,
)
from aiokafka08.protocol.types import Buffer
from aiokafka08.structs import ConsumerRecord, TopicPartition

Record = ConsumerRecord[Any, Any]
Deserializer = Callable[[Any], Any]

CHUNK_OVERHEAD_BYTES = 512
"""What a fetched set costs beside its bytes (objects, the rest of its frame), so that a trickle of
single messages is bounded too."""

TURN_BYTES = 1024 * 1024
"""Behind so many bytes decompressed at a step the next wrapper is left to the next step."""


@dataclass(frozen=True, slots=True)
class Decoding:
    """How message sets become records, the same for all partitions of a consumer."""

    check_crcs: bool = True
    key_deserializer: Deserializer | None = None
    value_deserializer: Deserializer | None = None
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES


@dataclass(slots=True, eq=False)
class _Chunk:
    """A fetched message set, still in wire format; with a reader once that has begun."""

    message_set: Buffer
    fetch_offset: int
    next_offset: int
    charged_bytes: int
    frame: ReceivedFrame | None
    reader: MessageSetReader | None = None

    def move_out(self) -> None:
        """Out of the frame; see `frames`."""
        self.message_set = bytes(self.message_set)
        if self.reader is not None:
            self.reader.move_to(self.message_set)

    def finished(self) -> None:
        """It isn't needed any more."""
        if self.frame is not None:
            self.frame.finished(self)


@dataclass(slots=True)
class _Slice:
    """Decoded records; `after` is the position behind them."""

    records: list[Record]
    after: int


class RecordBuffer:
    """Fetched sets in, records out, in order; see the module.

    Attributes:
        buffered_bytes: what the sets that aren't decoded to their ends take.
        opened_bytes: how many bytes the last step of decoding has decompressed.
        walk: the records of the current slice that are still to come.
    """

    __slots__ = (
        "_after",
        "_before",
        "_begun",
        "_chunks",
        "_decoding",
        "_end",
        "_raw",
        "_records",
        "_slices",
        "_topic_partition",
        "buffered_bytes",
        "opened_bytes",
        "walk",
    )

    def __init__(self, topic_partition: TopicPartition, decoding: Decoding) -> None:
        self._topic_partition = topic_partition
        self._decoding = decoding
        self._chunks: deque[_Chunk] = deque()
        self._slices: deque[_Slice] = deque()
        self._records: list[Record] = []
        self._raw: list[Record] = []  # decoded, but the deserializers failed on the first
        self._before = self._after = self._end = 0
        self._begun = 0  # records of the slices that were given to `walk`
        self.buffered_bytes = self.opened_bytes = 0
        self.walk: Iterator[Record] = iter(self._records)

    @property
    def position(self) -> int:
        """The offset of the next message to hand out, or where it would be."""
        left = length_hint(self.walk)
        if not left:
            return self._after
        if left == len(self._records):
            return self._before
        return self._records[-left - 1].offset + 1

    @property
    def pending(self) -> bool:
        """Whether there is anything to decode or to hand out."""
        return bool(self._chunks or self._raw or self.has_records)

    @property
    def has_records(self) -> bool:
        """Whether there are decoded records."""
        return bool(self._slices or length_hint(self.walk))

    @property
    def handed_out(self) -> int:
        """How many messages the user has got."""
        left = length_hint(self.walk)
        return self._begun - left

    @property
    def end(self) -> int:
        """The offset behind everything that is buffered."""
        return self._end

    @property
    def decoded_to(self) -> int:
        """The offset behind what is decoded."""
        return self._slices[-1].after if self._slices else self._after

    @property
    def count(self) -> int:
        """How many decoded records there are."""
        left = length_hint(self.walk)
        return left + sum(len(one.records) for one in self._slices)

    def reset(self, position: int) -> None:
        """Drop everything and go on at `position`; walks under way end."""
        self._begun = self.handed_out
        while self._chunks:
            self._chunks.popleft().finished()
        self._slices.clear()
        self._records.clear()  # also ends an iterator that somebody holds
        self._records = []
        self._raw = []
        self.walk = iter(self._records)
        self._before = self._after = self._end = position
        self.buffered_bytes = 0

    def add(
        self,
        message_set: Buffer,
        fetch_offset: int,
        next_offset: int,
        frame: ReceivedFrame | None = None,
    ) -> None:
        """Append a fetched set that reaches to `next_offset`; `frame`: what it is a view into."""
        charged = len(message_set) + CHUNK_OVERHEAD_BYTES
        self.buffered_bytes += charged
        self._end = next_offset
        chunk = _Chunk(message_set, fetch_offset, next_offset, charged, frame)
        self._chunks.append(chunk)
        if frame is not None:
            frame.add(chunk, len(message_set))

    def extend_to(self, offset: int) -> None:
        """Behind what is buffered nothing comes up to `offset`: a hole in the log."""
        self._end = offset
        if not self._chunks and not self._raw:
            self._reached(offset)

    def decode(self, max_records: int) -> bool:
        """Decode the next slice of at most `max_records`; False if there is none (yet).

        True also where a step has found no message and others are to follow (`TURN_BYTES`).

        Raises:
            CorruptRecordException: the next message to hand out is corrupt.
            Exception: what a deserializer raised on the next message to hand out.
        """
        reader = self._chunks[0].reader if self._chunks else None
        if (self._raw or (reader is not None and reader.error is not None)) and self.has_records:
            return False  # its turn comes when those before it are taken
        self.opened_bytes = 0
        records = self._raw or self._read(max_records)
        if not records:
            return bool(self._chunks)
        self._raw = []
        if self._decoding.key_deserializer or self._decoding.value_deserializer:
            count, error = self._deserialize(records)
            if error is not None:
                self._raw = records[count:]
                if not count:
                    raise error
                records = records[:count]
        if self._raw:
            after = self._raw[0].offset
        elif self._chunks and self._chunks[0].reader is None:
            after = self._chunks[0].fetch_offset  # the set is finished, the next one not begun
        else:
            after = records[-1].offset + 1 if self._chunks else self._end
        self._slices.append(_Slice(records, after))
        return True

    def next_slice(self) -> bool:
        """Let `walk` walk the next decoded slice, if there is one. Only at the end of a walk."""
        if not self._slices:
            return False
        self._before = self._after
        one = self._slices.popleft()
        self._records, self._after = one.records, one.after
        self._begun += len(self._records)
        self.walk = iter(self._records)
        return True

    def take(self, max_records: int | None) -> list[Record]:
        """Hand out decoded records, at most `max_records`."""
        taken: list[Record] = []
        while max_records is None or len(taken) < max_records:
            left = length_hint(self.walk)
            if not left:
                if not self.next_slice():
                    break
                left = len(self._records)
            if max_records is not None and left > max_records - len(taken):
                taken += islice(self.walk, max_records - len(taken))
            elif left < len(self._records) or taken:
                taken += self.walk
            else:  # the usual case: a whole slice as it is
                taken, self._records = self._records, []
                self.walk = iter(self._records)
        return taken

    def take_columns(self, columns: Columns, max_records: int) -> int:
        """Hand out messages as columns, at most `max_records`, until `columns` is full; says how
        many. For those who have no deserializers.

        Raises:
            CorruptRecordException: the next message to hand out is corrupt.
        """
        count = self.opened_bytes = 0
        if self.has_records:  # somebody has begun to take records
            records = self.take(max_records)
            columns.extend(records)
            count = len(records)
        while self._chunks and count < max_records and not columns.is_full:
            chunk = self._chunks[0]
            reader = self._reader_of(chunk)
            try:
                got = reader.read_columns(columns, max_records - count)
            except CorruptRecordException:
                if not count:
                    raise
                break
            if got:
                count += got
                self._begun += got
                self._after = columns.last_offset + 1
                if count == max_records and self._after < chunk.next_offset:
                    break
            self.opened_bytes += reader.decompressed_bytes
            if reader.error is not None or reader.paused or columns.is_full:
                break
            self._finished(chunk)
            self._reached(chunk.next_offset if self._chunks else self._end)
            if self.opened_bytes >= TURN_BYTES:
                break
        return count

    # --- inside -----------------------------------------------------------------------------------

    def _read(self, max_records: int) -> list[Record]:
        while self._chunks:
            chunk = self._chunks[0]
            reader = self._reader_of(chunk)
            records: list[Record] = reader.read(max_records)
            self.opened_bytes += reader.decompressed_bytes
            behind = records[-1].offset + 1 if records else 0
            if reader.error is not None or (
                (reader.paused or len(records) == max_records) and behind < chunk.next_offset
            ):
                return records  # there is more in this set
            self._finished(chunk)
            if records:
                return records
            self._reached(chunk.next_offset if self._chunks else self._end)
            if self.opened_bytes >= TURN_BYTES:
                break
        return []

    def _reader_of(self, chunk: _Chunk) -> MessageSetReader:
        if chunk.reader is None:
            chunk.reader = MessageSetReader(
                self._topic_partition,
                chunk.message_set,
                chunk.fetch_offset,
                check_crcs=self._decoding.check_crcs,
                max_decompressed_bytes=self._decoding.max_decompressed_bytes,
                pause_after_bytes=TURN_BYTES,
            )
        return chunk.reader

    def _finished(self, chunk: _Chunk) -> None:
        """The first chunk is read to its end."""
        self._chunks.popleft()
        self.buffered_bytes -= chunk.charged_bytes
        chunk.finished()

    def _reached(self, offset: int) -> None:
        """Up to `offset` nothing more comes behind what is decoded."""
        if self._slices:
            self._slices[-1].after = offset
        else:
            self._after = offset

    def _deserialize(self, records: list[Record]) -> tuple[int, Exception | None]:
        """Deserialize in place up to the first failure: how many went well, and what failed."""
        for_key, for_value = self._decoding.key_deserializer, self._decoding.value_deserializer
        for count, record in enumerate(records):
            try:
                key, value = record.key, record.value
                if for_key is not None:
                    key = for_key(key)
                if for_value is not None:
                    value = for_value(value)
            except Exception as error:
                topic, partition = self._topic_partition
                note = (
                    f"a deserializer raised it on topic {topic!r}, partition {partition}, offset "
                    f"{record.offset}; seek() to {record.offset + 1} goes past that message"
                )
                if note not in getattr(error, "__notes__", ()):  # it may raise the same one again
                    error.add_note(note)
                return count, error
            record.key, record.value = key, value
        return len(records), None
