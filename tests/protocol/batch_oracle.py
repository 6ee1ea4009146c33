"""Record batches made by the protocol guide with struct, crcmod and gzip, without the package.

They include batches that no builder makes: with gaps, of transactions, damaged.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import crcmod.predefined

from aiokafka08.protocol.compression import BatchCodec, compress_records_behind
from aiokafka08.protocol.message_set import encode_entry

crc32c = crcmod.predefined.mkCrcFun("crc-32c")

_FIELDS = struct.Struct(">hiqqqhii")  # from the attributes to the record count


class Row(NamedTuple):
    """A record to write, and as a reader has to return it."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[bytes, bytes | None]] = ()


def varint(number: int) -> bytes:
    """Return a zigzag varint."""
    number = 2 * number if number >= 0 else -2 * number - 1
    packed = []
    while number > 127:
        packed.append(number % 128 + 128)
        number //= 128
    return bytes([*packed, number])


def field(content: bytes | None) -> bytes:
    """Return bytes after their size, -1 for null."""
    return varint(-1) if content is None else varint(len(content)) + content


def record(row: Row, base_offset: int, base_timestamp_ms: int) -> bytes:
    """Return a record, with its size before it."""
    body = b"\0" + varint(row.timestamp_ms - base_timestamp_ms) + varint(row.offset - base_offset)
    body += field(row.key) + field(row.value) + varint(len(row.headers))
    body += b"".join(field(name) + field(content) for name, content in row.headers)
    return varint(len(body)) + body


def records(rows: Sequence[Row], base_offset: int, base_timestamp_ms: int) -> bytes:
    """Return records one after the other."""
    return b"".join(record(row, base_offset, base_timestamp_ms) for row in rows)


def batch(
    rows: Sequence[Row],
    *,
    base_offset: int | None = None,
    last_offset: int | None = None,
    base_timestamp_ms: int | None = None,
    max_timestamp_ms: int | None = None,
    codec: BatchCodec = BatchCodec.NONE,
    attributes: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    count: int | None = None,
    plain: bytes | None = None,
    packed: bytes | None = None,
    crc_error: int = 0,
) -> bytes:
    """Return a batch of these rows. What isn't given follows from them.

    Args:
        plain: the records, in place of those of the rows.
        packed: the compressed records, in place of those.
        crc_error: xored onto the CRC.
    """
    first = rows[0].offset if base_offset is None else base_offset
    base_time = rows[0].timestamp_ms if base_timestamp_ms is None else base_timestamp_ms
    if plain is None:
        plain = records(rows, first, base_time)
    if packed is None:
        packed = compress_records_behind(codec, plain, room=0).getvalue()
    newest = max((row.timestamp_ms for row in rows), default=-1)
    body = _FIELDS.pack(
        attributes | codec,
        (rows[-1].offset if last_offset is None else last_offset) - first,
        base_time,
        newest if max_timestamp_ms is None else max_timestamp_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        len(rows) if count is None else count,
    )
    return signed(struct.pack(">qiibI", first, 0, 7, 2, 0) + body + packed, crc_error)


def signed(data: bytes, crc_error: int = 0) -> bytes:
    """Return a batch with the right size and CRC."""
    crc = crc32c(data[21:]) ^ crc_error
    return (
        data[:8]
        + struct.pack(">i", len(data) - 12)
        + data[12:17]
        + struct.pack(">I", crc)
        + data[21:]
    )


def marker(offset: int, kind: int, producer_id: int, timestamp_ms: int = 0) -> bytes:
    """Return a control batch that ends a transaction: kind 0 aborts, 1 commits."""
    row = Row(offset, timestamp_ms, struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0))
    return batch([row], attributes=0x30, producer_id=producer_id, producer_epoch=0)


def _examples() -> list[bytes]:
    rows = [
        Row(5, 1000, b"k", b"v" * 40),
        Row(6, 990, None, b"", [(b"h", b"1"), (b"h", None), (b"", b"")]),
        Row(9, 2000, b"", None),
    ]
    gap = batch(rows, base_offset=0, last_offset=20, attributes=0x08)
    transaction = batch(rows, attributes=0x10, producer_id=4) + marker(10, 0, 4) + marker(11, 1, 4)
    old = b"".join(
        encode_entry(offset, b"key", b"value", magic=magic, timestamp_ms=7)
        for offset, magic in enumerate([0, 0, 1, 1])
    )
    empty = batch([], base_offset=40, last_offset=49, base_timestamp_ms=-1)
    packed = [batch(rows, codec=codec) for codec in BatchCodec]
    return [*packed, gap, transaction, old + packed[0] + empty, batch(rows[:1]) * 3]


BATCHES = _examples()
"""Sets that the oracle made, to mutate."""
