"""Message sets as brokers read and write them: entries, messages, wrappers. Pure.

Invariant: neither this module nor `format_0` and `format_1` import `MessageSetReader` or
`MessageSetBuilder`, with which the client decodes and builds sets. A broker that used them would
agree with the client's bugs. From `protocol` they import only `encode_entry` (encodes one message),
the codecs (`compression`), constants and types.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

from aiokafka08.errors import CorruptRecordException, UnknownError
from aiokafka08.protocol.compression import Codec, compress, decompress
from aiokafka08.protocol.message_set import LOG_APPEND_TIME, encode_entry
from aiokafka08.protocol.types import Buffer
from aiokafka08.testing.broker_lines import LineRules

T = TypeVar("T")

# Offset and size, before each message.
HEADER_BYTES: Final = 12
MIN_MESSAGE_BYTES: Final = 14
_MIN_STAMPED_BYTES: Final = 14  # CRC, magic, attributes, timestamp
# The largest array that Java allocates. From 0.9 on brokers allocate an array for each message in a
# wrapper, as large as its size field says, before they see that the wrapper has fewer bytes.
LARGEST_ARRAY: Final = 2**31 - 3
# How many bytes the wrappers of a set may decompress to, all together (brokers.md 13.3).
MAX_DECOMPRESSED_BYTES: Final = 128 << 20
_DISCARDED_ITEMS: Final = 1000
# The most messages of a set that isn't stored as it is, but encoded again.
MAX_REWRITTEN_MESSAGES: Final = 500_000
_LONG_SET_BYTES: Final = 64 << 10
_LONG_COMPRESSED_BYTES: Final = 1 << 10
_COPY_BYTES: Final = 256 << 10

_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_OFFSET_SIZE: Final = struct.Struct(">qi")
_CODEC_OF_NAME: Final = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3}


class MessageSetRejected(Exception):
    """A produced set is not stored; `code` is the error code for the producer."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The broker line and the topic's settings, by which a produced set is stored or rejected."""

    line: LineRules
    max_message_bytes: int
    segment_bytes: int
    compacted: bool = False
    compression_type: str = "producer"
    log_append_time: bool = False

    def target_codec(self, codec: int) -> int:
        """Return the codec with which the log stores a set that was produced with this one."""
        named = self.compression_type
        return codec if named == "producer" else _CODEC_OF_NAME[named]


class ValidatedSet(NamedTuple):
    """A set with its offsets, ready for the log. If `messages` is 0, there is nothing to store."""

    data: bytearray
    first_offset: int
    next_offset: int
    messages: int
    # The timestamp of all messages under LogAppendTime; else -1.
    append_time_ms: int = -1
    # The largest timestamp of a message; -1 if none has one.
    max_timestamp_ms: int = -1


# A set without a whole message. Its last offset counts as -1, so brokers compute 0 as the next one.
NOTHING: Final = ValidatedSet(bytearray(), -1, 0, 0)


@dataclass(slots=True)
class DecompressionBudget:
    """How many bytes may still be decompressed."""

    left_bytes: int = MAX_DECOMPRESSED_BYTES

    def decompress(self, codec: int, data: Buffer) -> bytes:
        """Decompress the value of a wrapper.

        Raises:
            ValueError: the data is malformed, or the result is larger than the budget's rest.
        """
        plain = decompress(Codec(codec), data, self.left_bytes)
        self.left_bytes -= len(plain)
        return plain


def encode_set(
    messages: Sequence[tuple[int, Buffer]], codec: int, magic: int, append_time_ms: int = -1
) -> bytearray:
    """Encode offsets and messages (from their CRC on) as plain entries, or as one wrapper.

    Offsets inside a wrapper are absolute in format 0 and relative in format 1.
    """
    relative_to = messages[0][0] if codec and magic else 0
    plain = bytearray()
    for offset, message in messages:
        plain += _OFFSET_SIZE.pack(offset - relative_to, len(message))
        if len(message) <= _COPY_BYTES:
            plain += message
            continue
        # Copy in pieces, so that other threads get the GIL between them.
        for start in range(0, len(message), _COPY_BYTES):
            plain += message[start : start + _COPY_BYTES]
    if not codec:
        return plain
    timestamp_ms, attributes = -1, codec
    if magic:
        timestamp_ms = max(-1, *(_INT64.unpack_from(message, 6)[0] for _, message in messages))
        if append_time_ms >= 0:
            timestamp_ms, attributes = append_time_ms, codec | LOG_APPEND_TIME
    return bytearray(
        encode_entry(
            messages[-1][0],
            None,
            compress(Codec(codec), plain, magic=magic),
            magic=magic,
            attributes=attributes,
            timestamp_ms=timestamp_ms,
        )
    )


def messages_in(
    offset: int, message: memoryview, budget: DecompressionBudget | None = None
) -> list[tuple[int, memoryview]]:
    """Return the messages of a stored entry with their absolute offsets.

    For a wrapper these are the messages inside, for a plain message the message itself.
    """
    codec = message[5] & 0x07
    if not codec:
        return [(offset, message)]
    value = parse_message(message).value or b""
    entries = list(walk_entries((budget or DecompressionBudget()).decompress(codec, value)))
    if message[4] == 0:
        return entries
    last = entries[-1][0] if entries else 0
    return [(offset - last + relative, inner) for relative, inner in entries]


def walk_entries(message_set: Buffer, largest: int = 2**31 - 1) -> Iterator[tuple[int, memoryview]]:
    """Iterate over `(offset, message from its CRC on)` of each whole entry.

    Raises:
        MessageSetRejected: an entry's size is too small for a message, or larger than `largest`.
    """
    view, pos, end = memoryview(message_set), 0, len(message_set)
    while end - pos >= HEADER_BYTES:
        offset, size = _OFFSET_SIZE.unpack_from(view, pos)
        if size < MIN_MESSAGE_BYTES:
            raise MessageSetRejected(
                CorruptRecordException.errno, f"size {size} too small for a message"
            )
        if size > largest:
            raise MessageSetRejected(UnknownError.errno, f"size {size} too large for a message")
        stop = pos + HEADER_BYTES + size
        if stop > end:
            return
        yield offset, view[pos + HEADER_BYTES : stop]
        pos = stop


def takes_long(message_set: Buffer) -> bool:
    """Return whether validating or converting a set may take more than a few milliseconds."""
    if len(message_set) <= _LONG_COMPRESSED_BYTES:
        return False
    if len(message_set) > _LONG_SET_BYTES:
        return True
    try:
        return any(message[5] & 0x07 for _, message in walk_entries(message_set))
    except MessageSetRejected:
        return False


class MessageFields(NamedTuple):
    """Key, value and timestamp of a message; the value of a wrapper is compressed."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int | None


def parse_message(message: memoryview, *, stamped: bool | None = None) -> MessageFields:
    """Decode a message (from its CRC on).

    `stamped` says whether it is read as one with a timestamp; None: its magic decides.

    Raises:
        MessageSetRejected: the message is too short for its key and value.
    """
    timestamp_ms, pos = None, 6
    if stamped is None:
        stamped = message[4] == 1
    if stamped and len(message) >= 14:
        timestamp_ms, pos = _INT64.unpack_from(message, 6)[0], 14
    fields: list[bytes | None] = []
    for _ in range(2):
        if len(message) - pos < 4:
            raise MessageSetRejected(UnknownError.errno, "message too short for a key and a value")
        size = _INT32.unpack_from(message, pos)[0]
        pos += 4
        if size > len(message) - pos:
            raise MessageSetRejected(UnknownError.errno, "key or value longer than the message")
        fields.append(None if size < 0 else bytes(message[pos : pos + size]))
        pos += max(size, 0)
    return MessageFields(fields[0], fields[1], timestamp_ms)


def timestamp_of(message: memoryview) -> int:
    """Return the timestamp of a message (from its CRC on), without decoding the rest.

    Raises:
        MessageSetRejected: the message is of format 1, and too short for a timestamp.
    """
    if not message[4]:
        return -1
    if len(message) < _MIN_STAMPED_BYTES:
        raise MessageSetRejected(UnknownError.errno, "message too short for a timestamp")
    timestamp_ms: int = _INT64.unpack_from(message, 6)[0]
    return timestamp_ms


def limited(messages: Iterator[T]) -> list[T]:
    """Return the messages of a set that isn't stored as it is.

    Raises:
        MessageSetRejected: there are more than `MAX_REWRITTEN_MESSAGES`.
    """
    to_rewrite = list(itertools.islice(messages, MAX_REWRITTEN_MESSAGES + 1))
    if len(to_rewrite) > MAX_REWRITTEN_MESSAGES:
        discard(to_rewrite)
        raise MessageSetRejected(
            UnknownError.errno, f"more than {MAX_REWRITTEN_MESSAGES} messages to rewrite"
        )
    return to_rewrite


def numbered(messages: Iterable[T], first: int) -> Iterator[tuple[int, T]]:
    """Do the same as `enumerate`, in Python: other threads get the GIL in between."""
    for offset, message in enumerate(messages, first):  # noqa: UP028 - it would keep the GIL
        yield offset, message


def discard(items: list[Any]) -> None:
    """Free the items of a long list in pieces; other threads get the GIL in between."""
    while items:
        del items[-_DISCARDED_ITEMS:]


def unwrap(message: memoryview, line: LineRules, budget: DecompressionBudget) -> bytes:
    """Return the message set in a wrapper that was produced.

    Raises:
        MessageSetRejected: the wrapper has no value, brokers of the line can't decompress it, or
            the result is larger than the rest of the budget.
    """
    codec = message[5] & line.codec_mask
    stamped = bool(line.message_format and message[4])
    value = parse_message(message, stamped=stamped).value
    if value is None:
        raise MessageSetRejected(UnknownError.errno, "wrapper without a value")
    if codec not in line.known_codecs:
        raise MessageSetRejected(UnknownError.errno, f"unknown codec {codec}")
    if codec == Codec.LZ4 and not _accepts_lz4_header(value, message[4], line):
        raise MessageSetRejected(UnknownError.errno, "lz4 header not supported by this version")
    try:
        return budget.decompress(codec, value)
    except ValueError as error:
        raise MessageSetRejected(UnknownError.errno, str(error)) from None


# --- the header checksum of lz4 frames (KAFKA-3160) -----------------------------------------------


def _accepts_lz4_header(frame: bytes, magic: int, line: LineRules) -> bool:
    """Return whether brokers read an lz4 frame with this header (brokers.md 6.2).

    Up to 0.9 the header must have the legacy checksum, which covers the magic number too, and must
    not have a content size. 0.10 ignores the checksum in format 0, and needs the standard one in
    format 1.
    """
    if len(frame) < 7:
        return True  # decompress() then raises a better error
    size = 14 if frame[4] & 0x08 else 6
    checksum = frame[size] if len(frame) > size else -1
    if line.legacy_lz4_only:
        return size == 6 and checksum == _xxh32_of_short(frame[:6]) >> 8 & 0xFF
    return not magic or checksum == _xxh32_of_short(frame[4:size]) >> 8 & 0xFF


def _xxh32_of_short(data: bytes) -> int:
    """Return the xxHash32 (seed 0) of data shorter than 16 bytes."""
    mask = 0xFFFFFFFF

    def rotate(value: int, bits: int) -> int:
        return (value << bits | value >> 32 - bits) & mask

    digest, pos = (374761393 + len(data)) & mask, 0
    while len(data) - pos >= 4:
        word = int.from_bytes(data[pos : pos + 4], "little")
        digest = rotate((digest + word * 3266489917) & mask, 17) * 668265263 & mask
        pos += 4
    for byte in data[pos:]:
        digest = rotate((digest + byte * 374761393) & mask, 11) * 2654435761 & mask
    digest = (digest ^ digest >> 15) * 2246822519 & mask
    digest = (digest ^ digest >> 13) * 3266489917 & mask
    return digest ^ digest >> 16
