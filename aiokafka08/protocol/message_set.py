"""Build and decode message sets of formats 0 and 1.

- `MessageSetBuilder` (the producer) appends messages in wire format: from lists, or from `Blobs`,
  the buffers of an Arrow column.
- `survey` (the consumer) reads the headers of a fetched set: the offset of the next fetch, and the
  size of a cut-off message.
- `MessageSetReader` (the consumer) decodes a fetched set slice by slice, wrappers included: `read`
  to records, `read_columns` to `Columns`, the buffers of Arrow's layout, whose memory
  `ColumnMemory` keeps for reuse.
- `murmur2` and `partitions_of` (the producer's partitioners) compute the Java client's hash of a
  key, and the partition that follows from it.
- `entries` (the tests) yields the outermost entries as they are: it raises only for wrong lengths,
  and reports a wrong CRC in `crc_ok`. `encode_entry` (the tests and the embedded cluster) encodes
  an entry.

All but the last item have a compiled twin (`_message_set_c`, optional) and a pure one (the
reference: `_builder_py`, `_reader_py`, `_columns_py`, `_blobs_py`, `_murmur2_py`). `twins` decides
which of them is used; `IMPLEMENTATION` names it.

`message_format` has the wire layout, `compression` the codecs.

Invariant: only the twins import these names from elsewhere (and `producer._producer_c`, which uses
the compiled builder in C). Both twins return the same values and raise the same errors for the same
bytes; only how far `read_columns` goes beyond the `max_bytes` of `Columns` may differ.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from aiokafka08.errors import CorruptRecordException
from aiokafka08.protocol._columns_py import DEFAULT_MAX_COLUMN_BYTES, Column
from aiokafka08.protocol._reader_py import LongWrapper, Survey
from aiokafka08.protocol.message_format import (
    CODEC_MASK,
    ENTRY_HEADER_BYTES,
    LOG_APPEND_TIME,
    MIN_MESSAGE_BYTES,
    corrupt,
    message_size,
)
from aiokafka08.protocol.twins import IMPLEMENTATION, compiled_message_set
from aiokafka08.protocol.types import Buffer

if TYPE_CHECKING or compiled_message_set is None:
    from aiokafka08.protocol._blobs_py import Blobs
    from aiokafka08.protocol._builder_py import MessageSetBuilder
    from aiokafka08.protocol._columns_py import ColumnMemory, Columns
    from aiokafka08.protocol._murmur2_py import murmur2, partitions_of
    from aiokafka08.protocol._reader_py import MessageSetReader, survey
else:
    Blobs = compiled_message_set.Blobs
    ColumnMemory = compiled_message_set.ColumnMemory
    Columns = compiled_message_set.Columns
    MessageSetBuilder = compiled_message_set.MessageSetBuilder
    MessageSetReader = compiled_message_set.MessageSetReader
    murmur2 = compiled_message_set.murmur2
    partitions_of = compiled_message_set.partitions_of
    survey = compiled_message_set.survey

__all__ = [
    "CODEC_MASK",
    "DEFAULT_MAX_COLUMN_BYTES",
    "DEFAULT_MAX_DECOMPRESSED_BYTES",
    "IMPLEMENTATION",
    "LOG_APPEND_TIME",
    "MIN_MESSAGE_BYTES",
    "Blobs",
    "Column",
    "ColumnMemory",
    "Columns",
    "Entry",
    "LongWrapper",
    "MessageSetBuilder",
    "MessageSetReader",
    "Survey",
    "corrupt",
    "encode_entry",
    "entries",
    "message_size",
    "murmur2",
    "partitions_of",
    "survey",
]

DEFAULT_MAX_DECOMPRESSED_BYTES = 128 * 1024 * 1024
"""The client's limit; brokers limit a wrapper's compressed size only (docs/brokers.md 6.6)."""

_FIXED = struct.Struct(">qiIbb")  # offset, size, crc, magic, attributes
_INT64 = struct.Struct(">q")
_INT32 = struct.Struct(">i")


class Entry(NamedTuple):
    """One entry of a message set, unchanged; a wrapper's `value` is compressed."""

    offset: int
    crc: int
    magic: int
    attributes: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    crc_ok: bool

    @property
    def codec(self) -> int:
        """The number of the codec; 0 for a plain message."""
        return self.attributes & CODEC_MASK


def entries(message_set: Buffer) -> Iterator[Entry]:
    """Yield the complete entries of a message set of magic 0 or 1; a cut-off tail ends the walk.

    Raises:
        CorruptRecordException: an entry's lengths contradict each other.
    """
    view, pos, end = memoryview(message_set), 0, len(message_set)
    while end - pos >= ENTRY_HEADER_BYTES:
        size = _INT32.unpack_from(view, pos + 8)[0]
        stop = pos + ENTRY_HEADER_BYTES + size
        if stop > end:
            return
        if size < MIN_MESSAGE_BYTES[0]:
            raise CorruptRecordException(
                f"entry of a message set: size {size}; expected >= {MIN_MESSAGE_BYTES[0]}"
            )
        offset, _, crc, magic, attributes = _FIXED.unpack_from(view, pos)
        at, timestamp = pos + _FIXED.size, None
        if magic == 1:
            if size < MIN_MESSAGE_BYTES[1]:
                raise CorruptRecordException(
                    f"entry of format 1: size {size}; expected >= {MIN_MESSAGE_BYTES[1]}"
                )
            timestamp = _INT64.unpack_from(view, at)[0]
            at += 8
        key, at = _nullable_bytes(view, at, stop)
        value, at = _nullable_bytes(view, at, stop)
        if at != stop:
            raise CorruptRecordException(
                f"entry of a message set: {stop - at} bytes after its value; expected none"
            )
        crc_ok = crc32(view[pos + 16 : stop]) == crc
        yield Entry(offset, crc, magic, attributes, timestamp, key, value, crc_ok)
        pos = stop


def _nullable_bytes(view: memoryview, at: int, stop: int) -> tuple[bytes | None, int]:
    if stop - at < 4:
        raise CorruptRecordException("entry of a message set: it ends before its key and value")
    size = _INT32.unpack_from(view, at)[0]
    at += 4
    if size == -1:
        return None, at
    if size < 0 or size > stop - at:
        raise CorruptRecordException(
            f"key or value of an entry: length {size}; expected -1 to {stop - at}"
        )
    return bytes(view[at : at + size]), at + size


def encode_entry(
    offset: int,
    key: Buffer | None,
    value: Buffer | None,
    *,
    magic: int = 0,
    attributes: int = 0,
    timestamp_ms: int = -1,
) -> bytes:
    """Encode one entry, with its CRC; `attributes` with a codec make it a wrapper."""
    fixed = struct.pack(">bb", magic, attributes)
    if magic == 1:
        fixed += _INT64.pack(timestamp_ms)
    body = b"".join(
        part
        for field in (key, value)
        for part in (_INT32.pack(-1 if field is None else len(field)), field or b"")
    )
    message = fixed + body
    return struct.pack(">qiI", offset, len(message) + 4, crc32(message)) + message
