"""The pure-Python twin of the functions that read and write the records of a batch.

It is the reference for the compiled twin (`_record_batch_c.pxi`). `batch_format` has the layout.

Invariant: whatever the bytes are, no read goes beyond their end. Either as many records are yielded
as the header counts, or `CorruptRecordException` is raised. Java's consumer accepts the same bytes:
a negative size of a key or value means null, and numbers overflow as in Java.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from functools import cache
from typing import Any, Final
from zlib import crc32

from aiokafka08.errors import CorruptRecordException
from aiokafka08.protocol._builder_py import _encode as encode_message
from aiokafka08.protocol.batch_format import (
    HEADER,
    MIN_RECORD_BYTES,
    BatchHeader,
    ConvertedMessages,
    RecordFault,
    Stop,
    build_batch,
    damaged_record,
    damaged_rest,
)
from aiokafka08.protocol.compression import BatchCodec
from aiokafka08.protocol.flexible import encode_varint
from aiokafka08.protocol.message_format import (
    BODY_AT,
    CODEC_MASK,
    ENTRY_HEADER_BYTES,
    LOG_APPEND_TIME,
    MIN_MESSAGE_BYTES,
    way_out,
)
from aiokafka08.protocol.types import Buffer

Headers = Sequence[tuple[bytes, bytes | None]]
Record = tuple[int, int, bytes | None, bytes | None, Headers]
"""Offset, timestamp in ms, key, value, headers (each a key and a value)."""

_pack_head = struct.Struct(">qiI").pack  # offset, size, crc
_unpack_head = struct.Struct(">qiIbb").unpack_from  # the same, magic, attributes
_unpack_int32 = struct.Struct(">i").unpack_from
_unpack_int64 = struct.Struct(">q").unpack_from

_SIGN_64: Final = 1 << 63
_MASK_64: Final = (1 << 64) - 1
_MIN_ENTRY_BYTES: Final = ENTRY_HEADER_BYTES + MIN_MESSAGE_BYTES[0]
MAX_BATCH_BYTES: Final = 2**31 - 1


@cache
def _crc32c() -> Callable[[Buffer], int]:
    try:
        import crcmod.predefined
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "record batches: no module named 'crcmod', which computes CRC-32C where the compiled "
            "modules aren't used. Install crcmod",
            name=error.name,
        ) from None
    computed: Callable[[Buffer], int] = crcmod.predefined.mkCrcFun("crc-32c")
    return computed


def crc32c(data: Buffer) -> int:
    """Return the CRC-32C (Castagnoli) of a buffer."""
    return _crc32c()(data)


class _Damage(Exception):
    def __init__(self, fault: RecordFault) -> None:
        self.fault = fault


def _varint(data: bytes, pos: int, most: int = 5) -> tuple[int, int]:
    """Return the zigzag number at `pos`, and the position after it."""
    byte = data[pos]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), pos + 1
    number = byte & 0x7F
    for count in range(1, most):
        byte = data[pos + count]
        number |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            number &= 0xFFFFFFFF if most == 5 else _MASK_64
            return (number >> 1) ^ -(number & 1), pos + count + 1
    raise _Damage(RecordFault.VARINT)


def _field(data: bytes, pos: int, stop: int) -> tuple[bytes | None, int]:
    size, pos = _varint(data, pos)
    if size < 0:
        return None, pos
    if size > stop - pos:
        raise _Damage(RecordFault.SIZE)
    return data[pos : pos + size], pos + size


def _headers(data: bytes, pos: int, stop: int) -> tuple[Headers, int]:
    count, pos = _varint(data, pos)
    if not count:
        return (), pos
    if not 0 <= count <= (stop - pos) // 2:
        raise _Damage(RecordFault.HEADERS)
    headers = []
    for _ in range(count):
        key, pos = _field(data, pos, stop)
        if key is None:
            raise _Damage(RecordFault.HEADERS)
        value, pos = _field(data, pos, stop)
        headers.append((key, value))
    return tuple(headers), pos


def _int64(number: int) -> int:
    return ((number + _SIGN_64) & _MASK_64) - _SIGN_64


def read_records(header: BatchHeader, plain: Buffer) -> Iterator[Record]:
    """Yield the records of a batch.

    Args:
        header: the header of the batch.
        plain: the decompressed records.

    Raises:
        CorruptRecordException: a record is damaged, or bytes follow the last; the records before
            were yielded.
    """
    data = plain if isinstance(plain, bytes) else bytes(plain)
    pos, end = 0, len(data)
    base, last_delta, base_timestamp = (
        header.base_offset,
        header.last_offset_delta,
        header.base_timestamp_ms,
    )
    append_time = header.max_timestamp_ms if header.has_append_time else None
    previous = -1
    for index in range(header.record_count):
        try:
            if end - pos < MIN_RECORD_BYTES:
                raise _Damage(RecordFault.CUT_OFF)
            size, pos = _varint(data, pos)
            stop = pos + size
            if stop > end:
                raise _Damage(RecordFault.CUT_OFF)
            if size < MIN_RECORD_BYTES - 1:
                raise _Damage(RecordFault.SIZE)
            timestamp, pos = _varint(data, pos + 1, 10)  # after the attributes
            delta, pos = _varint(data, pos)
            if not previous < delta <= last_delta:
                raise _Damage(RecordFault.OFFSET)
            previous = delta
            key, pos = _field(data, pos, stop)
            value, pos = _field(data, pos, stop)
            headers, pos = _headers(data, pos, stop)
            if pos != stop:
                raise _Damage(RecordFault.SIZE)
        except _Damage as damage:
            raise damaged_record(header, index, damage.fault) from None
        except IndexError:  # a varint of the last record goes beyond the end
            raise damaged_record(header, index, RecordFault.SIZE) from None
        timestamp = _int64(base_timestamp + timestamp) if append_time is None else append_time
        yield base + delta, timestamp, key, value, headers
    if pos != end:
        raise damaged_rest(header, end - pos)


def convert_records(
    header: BatchHeader,
    plain: Buffer,
    magic: int,
    *,
    first_offset: int = 0,
    limit_bytes: int = MAX_BATCH_BYTES,
    at_least: int = 0,
    relative_to: int = 0,
) -> ConvertedMessages:
    """Convert the records of a batch to uncompressed messages of format 0 or 1, without headers.

    Keys, values and offsets stay. Format 1 keeps the timestamps and their type.

    Args:
        header: the header of the batch.
        plain: the decompressed records.
        magic: 0 or 1.
        first_offset: records below it are left out.
        limit_bytes: the conversion ends before the message that would exceed it.
        at_least: the number of messages that are converted whatever their size.
        relative_to: subtracted from the offset of each message: 0, or the first offset if the
            messages become the content of a wrapper of format 1.

    Raises:
        CorruptRecordException: a record up to the limit is damaged, or bytes follow the last.
        OverflowError: the messages would take 2 GiB.
    """
    attributes = LOG_APPEND_TIME if magic and header.has_append_time else 0
    parts: list[bytes] = []
    size = count = 0
    last_offset, newest, next_offset = -1, -1, header.next_offset
    for offset, timestamp, key, value, _ in read_records(header, plain):
        if offset < first_offset:
            continue
        body = encode_message(magic, attributes, timestamp, key, value)
        size += BODY_AT + len(body)
        if size > limit_bytes and count >= at_least:
            next_offset = offset
            break
        if size > MAX_BATCH_BYTES:
            raise too_much()
        parts += _pack_head(offset - relative_to, len(body) + 4, crc32(body)), body
        count, last_offset = count + 1, offset
        if magic and timestamp > newest:
            newest = timestamp
    return ConvertedMessages(b"".join(parts), count, last_offset, newest, next_offset)


def _pack_varint(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    return bytes((number,)) if number < 0x80 else encode_varint(number)


def _pack_field(field: Buffer | None) -> bytes:
    return b"\x01" if field is None else _pack_varint(len(field)) + field


def pack_headers(headers: Headers) -> bytes:
    """Return the headers of a record in wire format, their count first."""
    fields = [_pack_field(field) for header in headers for field in header]
    return _pack_varint(len(headers)) + b"".join(fields)


class RecordBatchBuilder:
    """Append records in wire format; `build()` returns a batch without producer id or transaction.

    Args:
        codec: compresses the records. The attribute may be changed until `build()`.
    """

    __slots__ = (
        "_base_timestamp_ms",
        "_count",
        "_records",
        "codec",
        "max_timestamp_ms",
        "seen_attributes",
    )

    def __init__(self, codec: BatchCodec = BatchCodec.NONE) -> None:
        self.codec = codec
        self.max_timestamp_ms = -1
        """The highest timestamp appended; -1 without records."""
        self.seen_attributes = 0
        """The bitwise OR of the attributes of all messages that `extend_from_messages` appended.

        Messages of format 0 don't count, since their attributes hold only the codec.
        """
        self._records = bytearray()
        self._count = 0
        self._base_timestamp_ms = -1

    def __len__(self) -> int:
        return self._count

    @property
    def size_bytes(self) -> int:
        """The size of the batch before compression."""
        return HEADER.size + len(self._records)

    def append(
        self,
        key: Buffer | None,
        value: Buffer | None,
        timestamp_ms: int,
        headers: Headers = (),
    ) -> None:
        """Append a record.

        Raises:
            OverflowError: the batch would have 2 GiB.
        """
        record = self._encode(key, value, timestamp_ms, pack_headers(headers))
        self._append(record, timestamp_ms)

    def _encode(
        self, key: Buffer | None, value: Buffer | None, timestamp_ms: int, headers: bytes
    ) -> bytes:
        delta = _int64(timestamp_ms - self._base_timestamp_ms) if self._count else 0
        body = b"".join(
            (
                b"\x00",
                _pack_varint(delta),
                _pack_varint(self._count),
                _pack_field(key),
                _pack_field(value),
                headers,
            )
        )
        return _pack_varint(len(body)) + body

    def _append(self, record: bytes, timestamp_ms: int) -> None:
        if self.size_bytes + len(record) > MAX_BATCH_BYTES:
            raise too_much()
        if not self._count:
            self._base_timestamp_ms = self.max_timestamp_ms = timestamp_ms
        self._records += record
        self._count += 1
        self.max_timestamp_ms = max(self.max_timestamp_ms, timestamp_ms)

    def extend_from_messages(
        self, message_set: Buffer, start: int = 0, limit_bytes: int = MAX_BATCH_BYTES
    ) -> tuple[int, Stop]:
        """Append the uncompressed messages of a set of formats 0 and 1, up to a wrapper.

        Their offsets don't matter. Messages of format 0 get the timestamp -1.

        Args:
            message_set: the set; its tail may be cut off.
            start: position of the first message.
            limit_bytes: the call ends before a message that would make `size_bytes` exceed it; an
                empty builder takes its first message whatever the size.

        Returns:
            The position after the last message appended, and why the call ended.

        Raises:
            CorruptRecordException: a wrong CRC, length or magic; the messages before are appended.
            OverflowError: as `append`.
        """
        # Don't copy a view: a caller may pass the same view again for each of many wrappers.
        data: Any = (
            message_set if isinstance(message_set, bytes) else memoryview(message_set).cast("B")
        )
        pos, end = start, len(data)
        while end - pos >= _MIN_ENTRY_BYTES:
            _, size, crc, magic, attributes = _unpack_head(data, pos)
            stop = pos + ENTRY_HEADER_BYTES + size
            if stop > end:
                break
            if magic not in (0, 1) or size < MIN_MESSAGE_BYTES[magic]:
                raise damaged_message(data, pos, MessageFault.MAGIC)
            if crc32(data[pos + BODY_AT : stop]) != crc:
                raise damaged_message(data, pos, MessageFault.CRC)
            timestamp = _unpack_int64(data, pos + 18)[0] if magic else -1
            key, at = _message_field(data, pos + (26 if magic else 18), stop)
            value, at = (b"", -1) if at < 0 else _message_field(data, at, stop)
            if at != stop:
                raise damaged_message(data, pos, MessageFault.FIELDS)
            if attributes & CODEC_MASK:
                return pos, Stop.WRAPPER
            record = self._encode(key, value, timestamp, b"\x00")
            if self._count and self.size_bytes + len(record) > limit_bytes:
                return pos, Stop.FULL
            self._append(record, timestamp)
            if magic:
                self.seen_attributes |= attributes & 0xFF
            pos = stop
        if (
            end - pos >= ENTRY_HEADER_BYTES
            and _unpack_int32(data, pos + 8)[0] < MIN_MESSAGE_BYTES[0]
        ):
            raise damaged_message(data, pos, MessageFault.SIZE)
        return pos, Stop.END

    def build(self, base_offset: int = 0) -> bytes:
        """Return the batch; b"" if nothing was appended. Compression may take long.

        Args:
            base_offset: offset of the first record; the broker assigns the real one.

        Raises:
            ModuleNotFoundError: the codec's library or crcmod isn't installed.
        """
        if not self._count:
            return b""
        timestamps = self._base_timestamp_ms, self.max_timestamp_ms
        return build_batch(self.codec, self._records, self._count, base_offset, timestamps, crc32c)


def _message_field(data: Any, at: int, stop: int) -> tuple[Buffer | None, int]:
    """Return a field of a message and the position after it, which is -1 if it doesn't fit."""
    if stop - at < 4:
        return None, -1
    size = _unpack_int32(data, at)[0]
    at += 4
    if size == -1:
        return None, at
    if not 0 <= size <= stop - at:
        return None, -1
    return data[at : at + size], at + size


class MessageFault(IntEnum):
    """The faults of a message. `_record_batch_c.pxi` has the same numbers."""

    MAGIC = 1
    CRC = 2
    FIELDS = 3
    SIZE = 4


def damaged_message(data: Buffer, pos: int, fault: int) -> CorruptRecordException:
    """Make the error for a damaged message at a position of a set."""
    offset, size = _unpack_int64(data, pos)[0], _unpack_int32(data, pos + 8)[0]
    match MessageFault(fault):
        case MessageFault.MAGIC:
            why = f"magic {data[pos + BODY_AT]} with size {size}"
        case MessageFault.CRC:
            why = "its CRC doesn't match"
        case MessageFault.FIELDS:
            why = "its key and value don't take its size"
        case MessageFault.SIZE:
            why = f"its size field says {size}"
    return CorruptRecordException(
        f"corrupt message in a set, offset {offset}, at byte {pos}: {why}; {way_out(None)}",
        offset=offset,
    )


def too_much() -> OverflowError:
    """Make the error for a batch or set that is too large."""
    return OverflowError("append a message: the batch or set would have 2 GiB or more")
