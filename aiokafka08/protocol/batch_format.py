"""Record batches (format 2): the header of a batch, and what is wrong with a damaged one.

    base offset int64 | size int32 | leader epoch int32 | magic int8 | crc uint32 | attributes int16
    | last offset delta int32 | base timestamp int64 | max timestamp int64 | producer id int64
    | producer epoch int16 | base sequence int32 | record count int32 | records

The size field counts the bytes after it. The CRC-32C covers the bytes from the attributes on. The
records are compressed as a whole; each is

    size varint | attributes int8 | timestamp delta varint | offset delta varint
    | key size varint | key | value size varint | value
    | header count varint | (key size varint | key | value size varint | value) each

All varints are zigzag; the timestamp delta has up to ten bytes, others up to five. Size -1 is null.

A set of a modern broker may mix the formats, since an upgraded topic keeps its old messages.
`parts_of` tells them apart by the magic byte, at the same place in all formats. Callers use
`record_batch`; its compiled and its pure twin (`twins`) take the layout and the errors from here.

Invariant: a header is returned only if its numbers don't contradict each other and the bytes of the
batch are all there. The twins check what is inside the batch.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Final, NamedTuple

from aiokafka08.errors import CorruptRecordException
from aiokafka08.protocol.compression import BatchCodec, compress_records_behind
from aiokafka08.protocol.message_format import (
    CODEC_MASK,
    ENTRY_HEADER_BYTES,
    LOG_APPEND_TIME,
    MIN_MESSAGE_BYTES,
    way_out,
)
from aiokafka08.protocol.types import Buffer
from aiokafka08.structs import LAST_OFFSET

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
CRC_FROM: Final = 21
"""Position of the first byte that the CRC covers."""
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
MIN_RECORD_BYTES: Final = 7
"""The least size of a record, its size field included."""

_OFFSET_SIZE: Final = struct.Struct(">qi")
_MAGIC_AT: Final = 16
_MIN_BATCH_SIZE: Final = HEADER.size - ENTRY_HEADER_BYTES


class BatchHeader(NamedTuple):
    """The header of a record batch in a set: the fields as they are, and where the batch is."""

    start: int  # position of its first byte in the set
    stop: int  # position after its last byte
    base_offset: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    # >= 0. Compaction keeps it, even when it removes the last records.
    last_offset_delta: int
    # The records' timestamps are relative to it. Compaction may have changed it.
    base_timestamp_ms: int
    max_timestamp_ms: int  # the highest timestamp; with `has_append_time` that of all records
    producer_id: int
    producer_epoch: int
    base_sequence: int
    # >= 0. Compaction may leave a batch without records.
    record_count: int

    @property
    def codec(self) -> int:
        """The number of the codec: one of `BatchCodec`, or an unknown one."""
        return self.attributes & CODEC_MASK

    @property
    def has_append_time(self) -> bool:
        """Whether the timestamps are the broker's (LogAppendTime)."""
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch is part of a transaction: aborted, committed or open."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether its only record is a marker, which clients don't show; see `ControlType`."""
        return bool(self.attributes & CONTROL)

    @property
    def last_offset(self) -> int:
        """The offset of its last record, or, after compaction, of the last that it had."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after its last."""
        return self.base_offset + self.last_offset_delta + 1


class MessageRun(NamedTuple):
    """Whole messages of format 0 or 1 that follow each other in a set, wrappers included."""

    start: int  # position of its first byte in the set
    stop: int  # position after its last byte
    magic: int  # 0 or 1, the same for all
    next_offset: int  # the offset after its highest


class ControlType(IntEnum):
    """What a control batch says of the producer's transaction. Brokers have further types."""

    ABORT = 0
    COMMIT = 1


def parts_of(data: Buffer) -> Iterator[BatchHeader | MessageRun]:
    """Yield the batches and runs of messages of a set, in order.

    The tail of a fetched set may be cut off. An incomplete batch or message at the end is left out,
    so the last `stop` is where the complete ones end. Nothing but headers is read: neither CRCs nor
    records are checked.

    Raises:
        CorruptRecordException: an impossible size, an unknown magic, or a header that contradicts
            itself. The parts before it were yielded. The error's `offset` is the one after them
            (None if there are none), or the base offset of a batch with an impossible record count.
    """
    view, pos, end = memoryview(data).cast("B"), 0, len(data)
    run: MessageRun | None = None
    next_offset: int | None = None
    while end - pos > _MAGIC_AT:
        offset, size = _OFFSET_SIZE.unpack_from(view, pos)
        stop = pos + ENTRY_HEADER_BYTES + size
        magic = view[pos + _MAGIC_AT]
        if stop > end:
            break
        if magic > 2 or size < (*MIN_MESSAGE_BYTES, _MIN_BATCH_SIZE)[magic]:
            if run is not None:
                yield run
            raise _not_a_part(next_offset, f"magic {magic} with size {size}")
        if run is not None and run.magic != magic:
            yield run
            run = None
        if magic == 2:
            header = BatchHeader(pos, stop, *_fields(view, pos))
            _check_header(header, next_offset)
            next_offset = header.next_offset
            yield header
        else:
            next_offset = max(offset + 1, next_offset or 0)
            run = MessageRun(pos if run is None else run.start, stop, magic, next_offset)
        pos = stop
    if run is not None:
        yield run
    if end - pos >= ENTRY_HEADER_BYTES:
        size = _OFFSET_SIZE.unpack_from(view, pos)[1]
        if size < MIN_MESSAGE_BYTES[0]:
            raise _not_a_part(next_offset, f"its size field says {size}")


def _fields(view: memoryview, pos: int) -> tuple[int, ...]:
    offset, _, *others = HEADER.unpack_from(view, pos)
    return offset, *others


def _check_header(header: BatchHeader, next_offset: int | None) -> None:
    if header.base_offset < 0 or header.last_offset_delta < 0 or header.last_offset >= LAST_OFFSET:
        why = f"base offset {header.base_offset}, last offset delta {header.last_offset_delta}"
        raise _not_a_part(next_offset, why)
    if not 0 <= header.record_count <= header.last_offset_delta + 1:
        raise damaged(header, f"it says that it has {header.record_count} records")


def _not_a_part(next_offset: int | None, why: str) -> CorruptRecordException:
    place = "at the start of a set" if next_offset is None else f"after offset {next_offset - 1}"
    return CorruptRecordException(
        f"neither a message nor a record batch {place}: {why}; {way_out(None)}", offset=next_offset
    )


def damaged(header: BatchHeader, why: str) -> CorruptRecordException:
    """Make the error for a damaged batch."""
    return CorruptRecordException(
        f"corrupt record batch, offsets {header.base_offset} to {header.last_offset}: {why}; "
        f"{way_out(header.next_offset)}",
        offset=header.base_offset,
        next_offset=header.next_offset,
    )


class RecordFault(IntEnum):
    """What is wrong with a record. `_record_batch_c.pxi` has the same numbers."""

    CUT_OFF = 1
    VARINT = 2
    SIZE = 3
    OFFSET = 4
    HEADERS = 5


_FAULTS: Final = {
    RecordFault.CUT_OFF: "it is cut off",
    RecordFault.VARINT: "a varint is longer than its type",
    RecordFault.SIZE: "its fields don't take the size that it states",
    RecordFault.OFFSET: "its offset isn't above the one before, or is above the batch's last",
    RecordFault.HEADERS: "an impossible count of headers, or a header without a key",
}


def damaged_record(header: BatchHeader, index: int, fault: int) -> CorruptRecordException:
    """Make the error for a damaged record; `index` counts from 0."""
    return damaged(
        header, f"record {index + 1} of {header.record_count}: {_FAULTS[RecordFault(fault)]}"
    )


def damaged_rest(header: BatchHeader, size: int) -> CorruptRecordException:
    """Make the error for bytes after the last record."""
    return damaged(header, f"{size} bytes follow its {header.record_count} records")


class ConvertedMessages(NamedTuple):
    """A batch, or a part of it, converted to messages of format 0 or 1."""

    data: bytes  # the messages, or the wrapper around them; empty if there are none
    messages: int  # how many
    last_offset: int  # the offset of the last message; -1 without one
    max_timestamp_ms: int  # the highest timestamp; -1 without one, and in format 0
    # The offset after what was converted or skipped: the batch's `next_offset`, unless the limit
    # ended the conversion before
    next_offset: int


def build_batch(
    codec: BatchCodec,
    records: Buffer,
    count: int,
    base_offset: int,
    timestamps_ms: tuple[int, int],
    crc32c: Callable[[Buffer], int],
) -> bytes:
    """Return a batch without a producer id.

    Args:
        codec: compresses the records.
        records: the plain records.
        count: how many; their offset deltas are 0 to `count` - 1.
        base_offset: offset of the first.
        timestamps_ms: the base and the highest.
        crc32c: computes the CRC.
    """
    batch = compress_records_behind(codec, records, room=HEADER.size)
    with batch.getbuffer() as data:
        head = base_offset, len(data) - ENTRY_HEADER_BYTES, -1, 2
        rest = codec, count - 1, *timestamps_ms, -1, -1, -1, count
        HEADER.pack_into(data, 0, *head, 0, *rest)
        HEADER.pack_into(data, 0, *head, crc32c(data[CRC_FROM:]), *rest)
    return batch.getvalue()


class Stop(IntEnum):
    """Why `RecordBatchBuilder.extend_from_messages` stopped."""

    END = 0  # nothing is left, or only a cut-off message
    WRAPPER = 1  # a wrapper is next
    FULL = 2  # the next message would exceed the limit
