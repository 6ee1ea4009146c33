"""Build and decode message sets of formats 0 and 1; `message_format` has the layout.

`MessageSetBuilder` appends messages in wire format, `summarize_set` reads the headers of a fetched
set, `MessageSetReader` decodes it to records or `Columns`. Each has a compiled twin (optional) and
a pure one (the reference); `twins` decides which is used, and `IMPLEMENTATION` names it.

Invariant: all other modules import these classes and functions from here, except the twins and
`producer._producer_c`, which uses the compiled builder in C. Both twins return the same values and
raise the same errors for the same bytes; only how far `read_columns` goes beyond the `max_bytes` of
`Columns` may differ.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final
from zlib import crc32

from aiokafka08.protocol._columns_py import DEFAULT_MAX_COLUMN_BYTES, Column
from aiokafka08.protocol._reader_py import LongWrapper, SetSummary
from aiokafka08.protocol.message_format import (
    CODEC_MASK,
    LOG_APPEND_TIME,
    MIN_MESSAGE_BYTES,
    corrupt,
    message_size,
)
from aiokafka08.protocol.twins import IMPLEMENTATION, compiled_message_set
from aiokafka08.protocol.types import Buffer

if TYPE_CHECKING or compiled_message_set is None:
    from aiokafka08.protocol._binary_column_py import BinaryColumn
    from aiokafka08.protocol._builder_py import MessageSetBuilder
    from aiokafka08.protocol._columns_py import ColumnMemory, Columns
    from aiokafka08.protocol._murmur2_py import murmur2, partitions_of
    from aiokafka08.protocol._reader_py import MessageSetReader, summarize_set
else:
    BinaryColumn = compiled_message_set.BinaryColumn
    ColumnMemory = compiled_message_set.ColumnMemory
    Columns = compiled_message_set.Columns
    MessageSetBuilder = compiled_message_set.MessageSetBuilder
    MessageSetReader = compiled_message_set.MessageSetReader
    murmur2 = compiled_message_set.murmur2
    partitions_of = compiled_message_set.partitions_of
    summarize_set = compiled_message_set.summarize_set

__all__ = [
    "CODEC_MASK",
    "DEFAULT_MAX_COLUMN_BYTES",
    "DEFAULT_MAX_DECOMPRESSED_BYTES",
    "IMPLEMENTATION",
    "LOG_APPEND_TIME",
    "MIN_MESSAGE_BYTES",
    "BinaryColumn",
    "Column",
    "ColumnMemory",
    "Columns",
    "LongWrapper",
    "MessageSetBuilder",
    "MessageSetReader",
    "SetSummary",
    "corrupt",
    "encode_entry",
    "message_size",
    "murmur2",
    "partitions_of",
    "summarize_set",
]

DEFAULT_MAX_DECOMPRESSED_BYTES: Final = 128 * 1024 * 1024
"""The client's limit; brokers limit a wrapper's compressed size only (docs/brokers.md 6.6)."""

_INT64: Final = struct.Struct(">q")
_INT32: Final = struct.Struct(">i")


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
