"""Message sets made by the protocol guide with struct, crcmod and gzip, without the package.

They include sets that no builder makes, and are compared with the sets that a builder makes.
"""

from __future__ import annotations

import gzip
import struct

import crcmod.predefined

from aiokafka08.protocol.compression import Codec, compress
from aiokafka08.protocol.message_set import MessageSetReader
from aiokafka08.protocol.types import Buffer
from aiokafka08.structs import ConsumerRecord, TopicPartition
from tests.protocol.twins import twin

crc32 = crcmod.predefined.mkCrcFun("crc-32")

TP = TopicPartition("topic", 3)
LIMIT = 1 << 20
"""`max_decompressed_bytes` of the readers in these tests."""


def sized(field: bytes | None) -> bytes:
    """Return bytes after their int32 length, -1 for null."""
    return struct.pack(">i", -1) if field is None else struct.pack(">i", len(field)) + field


def message(
    key: bytes | None,
    value: bytes | None,
    *,
    magic: int = 0,
    attributes: int = 0,
    timestamp_ms: int = -1,
    crc_error: int = 0,
) -> bytes:
    """Return a message from its CRC on; `crc_error` is xored onto the CRC."""
    body = struct.pack(">bb", magic, attributes)
    if magic == 1:
        body += struct.pack(">q", timestamp_ms)
    return raw_message(body + sized(key) + sized(value), crc_error=crc_error)


def raw_message(body: bytes, *, crc_error: int = 0) -> bytes:
    """Return these bytes with their CRC before them."""
    return struct.pack(">I", crc32(body) ^ crc_error) + body


def entry(offset: int, message: bytes, *, size: int | None = None) -> bytes:
    """Return a message with offset and size before it; `size` replaces the true size."""
    return struct.pack(">qi", offset, len(message) if size is None else size) + message


def wrapper(
    offset: int,
    inner: bytes,
    codec: Codec = Codec.GZIP,
    *,
    magic: int = 0,
    attributes: int = 0,
    timestamp_ms: int = -1,
    crc_error: int = 0,
) -> bytes:
    """Return the entry of a wrapper around the message set `inner`."""
    compressed = (
        gzip.compress(inner, mtime=0)
        if codec is Codec.GZIP
        else compress(codec, inner, magic=magic)
    )
    return entry(
        offset,
        message(
            None,
            compressed,
            magic=magic,
            attributes=attributes | codec,
            timestamp_ms=timestamp_ms,
            crc_error=crc_error,
        ),
    )


def reader(
    message_set: Buffer, fetch_offset: int = 0, *, check_crcs: bool = True, limit: int = LIMIT
) -> MessageSetReader:
    made: MessageSetReader = twin.MessageSetReader(
        TP, message_set, fetch_offset, check_crcs=check_crcs, max_decompressed_bytes=limit
    )
    return made


Record = ConsumerRecord[bytes, bytes]


def read(message_set: Buffer, fetch_offset: int = 0, *, check_crcs: bool = True) -> list[Record]:
    """Return all records of a set without damage."""
    whole = reader(message_set, fetch_offset, check_crcs=check_crcs)
    records = whole.read(1_000_000)
    assert whole.error is None
    assert whole.read(1) == []
    return records


def brief(records: list[Record]) -> list[tuple[int, bytes | None]]:
    """Return (offset, value) of each record."""
    return [(record.offset, record.value) for record in records]
