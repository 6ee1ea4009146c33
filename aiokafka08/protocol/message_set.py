"""Message formats 0 and 1: the only door to the implementations of the message set.

- `MessageSetBuilder`: messages in, the wire format out (producer); from lists, or from `Blobs`, the
  buffers of an Arrow column.
- `survey`: what a fetched set holds by its headers alone: where the next fetch begins, and how
  large a cut-off message is (fetcher).
- `MessageSetReader`: a fetched set decoded slice by slice, wrappers included (consumer): `read` to
  records, `read_columns` to `Columns`, the plain buffers of Arrow's layout.
- `entries`: the plain walk over the outermost entries, nothing checked but the bounds; for tools
  and the embedded cluster, which must see messages as they are.

The first three have two implementations that behave alike: `_message_set_c` (compiled, optional)
and `_message_set_py` with `_columns_py` and `_blobs_py` (pure, the reference). `IMPLEMENTATION`
names the one in use; AIOKAFKA08_IMPL=c or =python in the environment demands one. Compression is
`compression`'s.
"""

from __future__ import annotations

import importlib
import os
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple
from zlib import crc32

from aiokafka08.errors import CorruptRecordException
from aiokafka08.protocol._columns_py import DEFAULT_MAX_COLUMN_BYTES, Column
from aiokafka08.protocol._message_set_py import (
    CODEC_MASK,
    ENTRY_HEADER_BYTES,
    LOG_APPEND_TIME,
    MIN_MESSAGE_BYTES,
    Survey,
    corrupt,
    message_size,
)
from aiokafka08.protocol.types import Buffer

_COMPILED: Final = "aiokafka08.protocol._message_set_c"


def _choose() -> str:
    """Which twin: as the environment says, else the compiled one if it is there."""
    wanted = os.environ.get("AIOKAFKA08_IMPL") or None
    if wanted not in (None, "c", "python"):
        raise ImportError(f"AIOKAFKA08_IMPL={wanted!r}: allowed are 'c' and 'python'")
    if wanted == "python":
        return wanted
    try:
        importlib.import_module(_COMPILED)
    except ImportError as error:
        if wanted is None:
            return "python"
        raise ImportError(
            f"AIOKAFKA08_IMPL=c, but {_COMPILED} can't be imported ({error}): "
            "install aiokafka08 where there is a C compiler, or unset AIOKAFKA08_IMPL"
        ) from error
    return "c"


IMPLEMENTATION: Final = _choose()
"""Which twin decodes and builds message sets: "c" or "python"."""

if TYPE_CHECKING or IMPLEMENTATION == "python":
    from aiokafka08.protocol._blobs_py import Blobs
    from aiokafka08.protocol._columns_py import Columns
    from aiokafka08.protocol._message_set_py import MessageSetBuilder, MessageSetReader, survey
else:
    _compiled = importlib.import_module(_COMPILED)
    Blobs = _compiled.Blobs
    Columns = _compiled.Columns
    MessageSetBuilder = _compiled.MessageSetBuilder
    MessageSetReader = _compiled.MessageSetReader
    survey = _compiled.survey

__all__ = [
    "CODEC_MASK",
    "DEFAULT_MAX_COLUMN_BYTES",
    "DEFAULT_MAX_DECOMPRESSED_BYTES",
    "IMPLEMENTATION",
    "LOG_APPEND_TIME",
    "MIN_MESSAGE_BYTES",
    "Blobs",
    "Column",
    "Columns",
    "Entry",
    "MessageSetBuilder",
    "MessageSetReader",
    "Survey",
    "corrupt",
    "encode_entry",
    "entries",
    "message_size",
    "survey",
]

DEFAULT_MAX_DECOMPRESSED_BYTES = 128 * 1024 * 1024
"""Brokers limit only a wrapper's compressed size (docs/brokers.md 6.6); this is the client's."""

_FIXED = struct.Struct(">qiIbb")  # offset, size, crc, magic, attributes
_INT64 = struct.Struct(">q")
_INT32 = struct.Struct(">i")


class Entry(NamedTuple):
    """One entry of a message set as it stands there; a wrapper's `value` is compressed."""

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
        """The number of the codec, 0 for a plain message."""
        return self.attributes & CODEC_MASK


def entries(message_set: Buffer) -> Iterator[Entry]:
    """The whole entries of a message set; a cut-off tail ends the walk. Magic 0 and 1.

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
            raise CorruptRecordException(f"an entry of a message set has the size {size}")
        offset, _, crc, magic, attributes = _FIXED.unpack_from(view, pos)
        at, timestamp = pos + _FIXED.size, None
        if magic == 1:
            if size < MIN_MESSAGE_BYTES[1]:
                raise CorruptRecordException(f"an entry of format 1 has the size {size}")
            timestamp = _INT64.unpack_from(view, at)[0]
            at += 8
        key, at = _nullable_bytes(view, at, stop)
        value, at = _nullable_bytes(view, at, stop)
        if at != stop:
            raise CorruptRecordException(f"an entry has {stop - at} bytes behind its value")
        crc_ok = crc32(view[pos + 16 : stop]) == crc
        yield Entry(offset, crc, magic, attributes, timestamp, key, value, crc_ok)
        pos = stop


def _nullable_bytes(view: memoryview, at: int, stop: int) -> tuple[bytes | None, int]:
    if stop - at < 4:
        raise CorruptRecordException("an entry ends before its key and value")
    size = _INT32.unpack_from(view, at)[0]
    at += 4
    if size == -1:
        return None, at
    if size < 0 or size > stop - at:
        raise CorruptRecordException(f"a key or value has the length {size}, {stop - at} are left")
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
    """One entry in wire format, with its CRC; `attributes` with a codec make it a wrapper."""
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
