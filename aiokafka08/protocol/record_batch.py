"""Read and write record batches (format 2), and convert them to and from formats 0 and 1.

A fetched set is read in steps, so that a caller does no more than it needs:

1. `parts_of` yields the headers of its batches, and the runs of old messages between them. A header
   has the batch's producer, whether it is a control batch or part of a transaction, and the offset
   after it. This step decompresses nothing and decodes no records.
2. `plain_records` checks the CRC of a batch and decompresses it.
3. `read_records` yields the records; or `convert_records` makes messages of format 0 or 1 of them.
   `convert_batch` does steps 2 and 3 of a conversion, and compresses the messages.

In the other direction, `RecordBatchBuilder` makes a batch of single records, or of all plain
messages of a set. It stops at a compressed wrapper, which `open_wrapper` decompresses.

    for part in parts_of(message_set):
        if isinstance(part, BatchHeader) and part.next_offset > fetch_offset:
            converted = convert_batch(message_set, part, 1, max_decompressed_bytes=limit)

To cut a set to a size between messages, give `convert_records` or the builder a limit; cut a run of
old messages at `summarize_set(data[:limit]).whole_bytes` (`message_set`).

`crc32c`, `read_records`, `convert_records` and `RecordBatchBuilder` have a compiled twin and a pure
one, which needs crcmod. `batch_format` has the layout.

Invariant: the module keeps no state of a producer, transaction or fetch session. It returns the
producer id, epoch and sequence of a batch, and writes none. Damaged input raises no error but
`CorruptRecordException`. The memory used beyond the input is in proportion to the input, or to the
limit of decompression.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from aiokafka08.errors import CorruptRecordException
from aiokafka08.protocol._record_batch_py import MAX_BATCH_BYTES, Headers, Record
from aiokafka08.protocol.batch_format import (
    CRC_FROM,
    HEADER,
    BatchHeader,
    ControlType,
    ConvertedMessages,
    MessageRun,
    Stop,
    damaged,
    parts_of,
)
from aiokafka08.protocol.compression import (
    BatchCodec,
    Codec,
    compress,
    decompress,
    decompress_records,
)
from aiokafka08.protocol.message_format import (
    BODY_AT,
    CODEC_MASK,
    ENTRY_HEADER_BYTES,
    LOG_APPEND_TIME,
    MIN_MESSAGE_BYTES,
    way_out,
)
from aiokafka08.protocol.message_set import encode_entry
from aiokafka08.protocol.twins import compiled_message_set
from aiokafka08.protocol.types import Buffer

if TYPE_CHECKING or compiled_message_set is None:
    from aiokafka08.protocol._record_batch_py import (
        RecordBatchBuilder,
        convert_records,
        crc32c,
        read_records,
    )
else:
    RecordBatchBuilder = compiled_message_set.RecordBatchBuilder
    convert_records = compiled_message_set.convert_records
    crc32c = compiled_message_set.crc32c
    read_records = compiled_message_set.read_records

__all__ = [
    "MAX_BATCH_BYTES",
    "BatchCodec",
    "BatchHeader",
    "ControlType",
    "ConvertedMessages",
    "Headers",
    "MessageRun",
    "Record",
    "RecordBatchBuilder",
    "Stop",
    "Wrapper",
    "control_type",
    "convert_batch",
    "convert_plain",
    "convert_records",
    "crc32c",
    "open_wrapper",
    "parts_of",
    "plain_records",
    "read_records",
]

_MARKER: Final = struct.Struct(">hh")  # version, type
_ENTRY: Final = struct.Struct(">qiIbb")  # offset, size, crc, magic, attributes


def plain_records(
    data: Buffer,
    header: BatchHeader,
    *,
    max_decompressed_bytes: int,
    check_crc: bool = True,
) -> Buffer:
    """Check the CRC of a batch, and return its records, decompressed.

    Args:
        data: the set.
        header: a header that `parts_of` returned for it.
        max_decompressed_bytes: a batch that decompresses to more is corrupt. At most about twice as
            much memory is used.
        check_crc: False if the CRC was checked already.

    Raises:
        CorruptRecordException: a wrong CRC, an unknown codec, damaged or too large data.
        ModuleNotFoundError: the codec's library isn't installed, or crcmod, which only the pure
            twins need.
    """
    view = memoryview(data).cast("B")
    if check_crc and crc32c(view[header.start + CRC_FROM : header.stop]) != header.crc:
        raise damaged(header, "its CRC doesn't match")
    records = view[header.start + HEADER.size : header.stop]
    if not header.codec:
        return records
    try:
        return decompress_records(header.codec, records, max_decompressed_bytes)
    except ValueError as error:
        raise damaged(header, f"codec {header.codec}: {error}") from None


def control_type(record: Record) -> ControlType | int:
    """Return the type in a control batch's only record; an unknown type as its number.

    Raises:
        CorruptRecordException: the record's key is shorter than a version and a type.
    """
    offset, _, key, _, _ = record
    if key is None or len(key) < _MARKER.size:
        raise CorruptRecordException(
            f"corrupt control record, offset {offset}: its key is {key!r}; {way_out(offset + 1)}",
            offset=offset,
            next_offset=offset + 1,
        )
    number: int = _MARKER.unpack_from(key)[1]
    try:
        return ControlType(number)
    except ValueError:
        return number


def convert_batch(
    data: Buffer,
    header: BatchHeader,
    magic: int,
    *,
    max_decompressed_bytes: int,
    first_offset: int = 0,
    limit_bytes: int = MAX_BATCH_BYTES,
    at_least: int = 0,
    codec: Codec | None = None,
) -> ConvertedMessages:
    """Convert a batch to messages of format 0 or 1, in one wrapper if it is compressed.

    Compression may take long. A control batch has no messages: the result is empty, and its
    `next_offset` is after the batch.

    Args:
        data: the set.
        header: a header that `parts_of` returned for it.
        magic: 0 or 1.
        max_decompressed_bytes: a compressed batch with more is corrupt.
        first_offset: records below it are left out.
        limit_bytes: the conversion ends before the message that would exceed this size, before
            compression.
        at_least: the number of messages that are converted whatever their size.
        codec: the codec of the wrapper (default: the batch's; snappy in place of zstd).

    Raises:
        CorruptRecordException: as `plain_records` and `read_records`.
        OverflowError: the messages would take 2 GiB.
    """
    if header.is_control:
        return ConvertedMessages(b"", 0, -1, -1, header.next_offset)
    plain = plain_records(data, header, max_decompressed_bytes=max_decompressed_bytes)
    return convert_plain(
        header,
        plain,
        magic,
        first_offset=first_offset,
        limit_bytes=limit_bytes,
        at_least=at_least,
        codec=codec,
    )


def convert_plain(
    header: BatchHeader,
    plain: Buffer,
    magic: int,
    *,
    first_offset: int = 0,
    limit_bytes: int = MAX_BATCH_BYTES,
    at_least: int = 0,
    codec: Codec | None = None,
) -> ConvertedMessages:
    """Convert a batch as `convert_batch` does, from the result of `plain_records`."""
    if codec is None:
        codec = Codec.SNAPPY if header.codec == BatchCodec.ZSTD else Codec(header.codec)
    relative_to = header.base_offset if codec and magic else 0
    converted = convert_records(
        header,
        plain,
        magic,
        first_offset=first_offset,
        limit_bytes=limit_bytes,
        at_least=at_least,
        relative_to=relative_to,
    )
    if not (codec and converted.messages):
        return converted
    wrapper = encode_entry(
        converted.last_offset,
        None,
        compress(codec, converted.data, magic=magic),
        magic=magic,
        attributes=codec | (LOG_APPEND_TIME if magic and header.has_append_time else 0),
        timestamp_ms=converted.max_timestamp_ms,
    )
    return converted._replace(data=wrapper)


class Wrapper(NamedTuple):
    """A wrapper of format 0 or 1, opened."""

    stop: int  # position after it in the set
    offset: int
    magic: int
    attributes: int  # the attributes byte, which has the codec and the timestamp type
    messages: bytes  # the message set inside, decompressed and not checked

    @property
    def codec(self) -> Codec:
        """Its codec."""
        return Codec(self.attributes & CODEC_MASK)


def open_wrapper(message_set: Buffer, pos: int, *, max_decompressed_bytes: int) -> Wrapper:
    """Decompress the wrapper at which `RecordBatchBuilder.extend_from_messages` stopped.

    The builder has checked its CRC and its lengths.

    Raises:
        CorruptRecordException: no value, an unknown codec, damaged or too large data.
        ModuleNotFoundError: the codec's library isn't installed.
    """
    view = memoryview(message_set).cast("B")
    offset, size, _, magic, attributes = _ENTRY.unpack_from(view, pos)
    stop = pos + ENTRY_HEADER_BYTES + size
    value_at = pos + BODY_AT + MIN_MESSAGE_BYTES[magic] - 4
    key_size = int.from_bytes(view[value_at - 8 : value_at - 4], "big", signed=True)
    value_at += max(key_size, 0)
    has_value = bytes(view[value_at - 4 : value_at]) != b"\xff\xff\xff\xff"
    try:
        if not has_value:
            raise ValueError("it has no value")
        messages = decompress(
            Codec(attributes & CODEC_MASK), view[value_at:stop], max_decompressed_bytes
        )
    except ValueError as error:
        raise CorruptRecordException(
            f"corrupt wrapper in a set, offset {offset}, at byte {pos}: "
            f"codec {attributes & CODEC_MASK}: {error}; {way_out(None)}",
            offset=offset,
        ) from None
    return Wrapper(stop, offset, magic, attributes & 0xFF, messages)
