"""Read the outermost entries of a message set as they are, independently of the package's readers.

`entries` raises only for wrong lengths; it reports a wrong CRC in `crc_ok`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple
from zlib import crc32

from aiokafka08.errors import CorruptRecordException
from aiokafka08.protocol.message_format import ENTRY_HEADER_BYTES
from aiokafka08.protocol.message_set import CODEC_MASK, MIN_MESSAGE_BYTES
from aiokafka08.protocol.types import Buffer

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
