"""Message sets as a broker treats them: validation before the append, down-conversion on a fetch.

Pure: bytes and a `LogConfig` in, bytes or `MessageSetRejected` out. `validate_set` checks a
produced set and assigns its offsets; if the set has a wrapper, all its messages go into one new
wrapper (docs/brokers.md 5, 6). `down_convert` turns a slice of a log of format 1 into format 0.
Callers are `handlers.produce`, `handlers.fetch`, `controls` and `log`.

Invariant: this module imports neither `MessageSetReader` nor `MessageSetBuilder`, with which the
client decodes and builds sets: a broker that used them would agree with the client's bugs. From
`protocol` it imports only `encode_entry` (encodes one message), the codecs (`compression`) and
constants and types.

A plain set takes the fast path: it is copied once, and its offsets are patched in place.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from zlib import crc32

from aiokafka08.errors import (
    CorruptRecordException,
    MessageSizeTooLargeError,
    UnknownError,
)
from aiokafka08.protocol.compression import (
    Codec,
    DecompressedTooLarge,
    compress,
    decompress,
)
from aiokafka08.protocol.message_set import LOG_APPEND_TIME, encode_entry
from aiokafka08.protocol.types import Buffer
from aiokafka08.testing.broker_lines import BrokerLine, NestedSetPolicy

HEADER_BYTES = 12
"""Offset and size, in front of each message."""
_MIN_MESSAGE_BYTES = 14
_MIN_MESSAGE_BYTES_1 = 22
_MAX_NESTING = 32  # the limit of real brokers is the size of their stack
MAX_DECOMPRESSED_BYTES = 128 << 20
"""How many bytes the wrappers of a set may decompress to, all together (brokers.md 13.3)."""
MAX_REWRITTEN_MESSAGES = 500_000
"""How many messages a set may have that isn't stored as it is."""
_LONG_SET_BYTES = 64 << 10
_LONG_COMPRESSED_BYTES = 1 << 10

_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_OFFSET_SIZE = struct.Struct(">qi")
_SIZE_CRC_MAGIC_ATTRIBUTES = struct.Struct(">iIbb")

_CODEC_OF_NAME = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3}


class MessageSetRejected(Exception):
    """A produced set is not stored; `code` is the error code for the producer."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The broker line and the topic's settings, by which a produced set is stored or rejected."""

    line: BrokerLine
    max_message_bytes: int
    segment_bytes: int
    compacted: bool = False
    compression_type: str = "producer"
    log_append_time: bool = False


class ValidatedSet(NamedTuple):
    """A set with its offsets, ready for the log. If `messages` is 0, there is nothing to store."""

    data: bytearray
    first_offset: int
    next_offset: int
    messages: int
    append_time_ms: int
    """The timestamp of all messages under LogAppendTime; else -1."""


@dataclass(slots=True)
class _Budget:
    """How many bytes may still be decompressed."""

    left_bytes: int = MAX_DECOMPRESSED_BYTES

    def decompress(self, codec: int, data: Buffer) -> bytes:
        """Decompress the value of a wrapper.

        Raises:
            ValueError: the data is malformed, or the result larger than what is left.
        """
        plain = decompress(Codec(codec), data, self.left_bytes)
        self.left_bytes -= len(plain)
        return plain


class _OuterEntries(NamedTuple):
    positions: list[int]
    whole_bytes: int
    codec: int
    magics: int
    """Bit 0: an entry has format 0. Bit 1: an entry has a later format."""


def validate_set(
    message_set: Buffer, base_offset: int, config: LogConfig, now_ms: int
) -> ValidatedSet:
    """Validate a produced set and assign offsets from `base_offset` on.

    Raises:
        MessageSetRejected: the set is invalid; nothing of it may be stored.
    """
    line = config.line
    positions, whole_bytes, codec, magics = _check_outer_entries(message_set, config)
    if not positions:
        return ValidatedSet(bytearray(), -1, base_offset, 0, -1)
    if config.compression_type != "producer":
        target_codec = _CODEC_OF_NAME[config.compression_type]
    else:
        target_codec = codec
    append_time_ms = now_ms if config.log_append_time else -1
    keeps_format = not line.message_format or (magics == 0b10 and append_time_ms < 0)
    if not codec and not target_codec and keeps_format:
        data = bytearray(message_set[:whole_bytes])
        for count, position in enumerate(positions):
            _INT64.pack_into(data, position, base_offset + count)
        count = len(positions)
    else:
        messages: list[Buffer]
        entries = memoryview(message_set)[:whole_bytes]
        found = _flatten(entries, config, _Budget(), depth=0)
        messages = list(itertools.islice(found, MAX_REWRITTEN_MESSAGES + 1))
        if len(messages) > MAX_REWRITTEN_MESSAGES:
            raise MessageSetRejected(
                UnknownError.errno, f"more than {MAX_REWRITTEN_MESSAGES} messages to rewrite"
            )
        if line.message_format:
            for message in messages:
                _check_format(message)
            messages = [_as_format_1(message, append_time_ms) for message in messages]
        count = len(messages)
        if count:
            pairs = list(enumerate(messages, base_offset))
            data = encode_set(pairs, target_codec, line.message_format, append_time_ms)
        elif line.rejects_empty_wrapper:
            raise MessageSetRejected(UnknownError.errno, "empty wrapper")
        else:
            return ValidatedSet(bytearray(), base_offset, base_offset, 0, -1)
        _check_sizes(data, config)
    if line.set_over_segment_code is not None and len(data) > config.segment_bytes:
        raise MessageSetRejected(
            line.set_over_segment_code, f"set of {len(data)} bytes: larger than a segment"
        )
    return ValidatedSet(data, base_offset, base_offset + count, count, append_time_ms)


def _check_outer_entries(message_set: Buffer, config: LogConfig) -> _OuterEntries:
    """Validate the outermost entries; ignore a tail that is cut (brokers.md 5.4 - 5.7)."""
    view, pos, end, codec = memoryview(message_set), 0, len(message_set), 0
    positions: list[int] = []
    magics = 0
    mask, limit = config.line.codec_mask, config.max_message_bytes - HEADER_BYTES
    formatted, compacted = config.line.message_format, config.compacted
    unpack, append = _SIZE_CRC_MAGIC_ATTRIBUTES.unpack_from, positions.append
    while end - pos >= HEADER_BYTES:
        if end - pos < HEADER_BYTES + 6:  # no room for crc, magic, attributes: corrupt or cut
            if _INT32.unpack_from(view, pos + 8)[0] < _MIN_MESSAGE_BYTES:
                raise MessageSetRejected(
                    CorruptRecordException.errno, "size too small for a message"
                )
            break
        size, crc, magic, attributes = unpack(view, pos + 8)
        if size < _MIN_MESSAGE_BYTES:
            raise MessageSetRejected(
                CorruptRecordException.errno, f"size {size} too small for a message"
            )
        stop = pos + HEADER_BYTES + size
        if stop > end:
            break
        if size > limit:
            raise MessageSetRejected(
                MessageSizeTooLargeError.errno, f"message of {size} + 12 bytes: too large"
            )
        if crc32(view[pos + 16 : stop]) != crc:
            raise MessageSetRejected(CorruptRecordException.errno, "wrong CRC")
        if attributes & mask:
            codec = attributes & mask
            if codec not in config.line.known_codecs:
                raise MessageSetRejected(UnknownError.errno, f"unknown codec {codec}")
        elif compacted:
            _check_key(view[pos + HEADER_BYTES : stop], config)
        if formatted:
            _check_format(view[pos + HEADER_BYTES : stop])
        magics |= 2 if magic else 1
        append(pos)
        pos = stop
    return _OuterEntries(positions, pos, codec, magics)


def _check_key(message: memoryview, config: LogConfig) -> None:
    if config.compacted and config.line.compacted_needs_keys and parse_message(message).key is None:
        raise MessageSetRejected(
            CorruptRecordException.errno, "message without a key for a compacted topic"
        )


def _check_format(message: Buffer) -> None:
    """Check what a log of format 1 requires of a message."""
    if message[4] > 1:
        raise MessageSetRejected(UnknownError.errno, f"unknown magic {message[4]}")
    if message[4] == 1 and len(message) < _MIN_MESSAGE_BYTES_1:
        raise MessageSetRejected(
            CorruptRecordException.errno, f"size {len(message)} too small for a message of format 1"
        )


def _check_sizes(data: bytearray, config: LogConfig) -> None:
    for _, message in walk_entries(data):
        if HEADER_BYTES + len(message) > config.max_message_bytes:
            raise MessageSetRejected(
                MessageSizeTooLargeError.errno,
                f"message of {len(message)} + 12 bytes after conversion: too large",
            )


def _flatten(
    view: memoryview, config: LogConfig, budget: _Budget, depth: int
) -> Iterator[memoryview]:
    """Iterate over the messages of a set (from their CRC on) and of the wrappers in it.

    CRCs inside wrappers aren't checked, and are kept even if they are wrong (brokers.md 6.8).
    """
    line = config.line
    for _, message in walk_entries(view):
        if not message[5] & line.codec_mask or (depth and line.nested_sets is NestedSetPolicy.KEEP):
            if depth:
                _check_key(message, config)
            yield message
            continue
        if depth and line.nested_sets is NestedSetPolicy.REJECT:
            raise MessageSetRejected(CorruptRecordException.errno, "wrapper inside a wrapper")
        if depth == _MAX_NESTING:
            raise MessageSetRejected(
                UnknownError.errno, f"more than {_MAX_NESTING} nested wrappers"
            )
        yield from _flatten(memoryview(_unwrap(message, line, budget)), config, budget, depth + 1)


def _unwrap(message: memoryview, line: BrokerLine, budget: _Budget) -> bytes:
    codec, value = message[5] & line.codec_mask, parse_message(message).value
    if value is None:
        raise MessageSetRejected(UnknownError.errno, "wrapper without a value")
    if codec == Codec.LZ4 and not _accepts_lz4_header(value, legacy_only=line.legacy_lz4_only):
        raise MessageSetRejected(UnknownError.errno, "lz4 header not supported by this version")
    try:
        return budget.decompress(codec, value)
    except ValueError as error:
        raise MessageSetRejected(UnknownError.errno, str(error)) from None


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
        plain += message
    if not codec:
        return plain
    timestamp_ms, attributes = -1, codec
    if magic:
        timestamp_ms = max(_INT64.unpack_from(message, 6)[0] for _, message in messages)
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
    offset: int, message: memoryview, budget: _Budget | None = None
) -> list[tuple[int, memoryview]]:
    """Return the messages of a stored entry with their absolute offsets.

    For a wrapper these are the messages inside, for a plain message the message itself.
    """
    codec = message[5] & 0x07
    if not codec:
        return [(offset, message)]
    value = parse_message(message).value or b""
    found = list(walk_entries((budget or _Budget()).decompress(codec, value)))
    if message[4] == 0:
        return found
    return [(offset - found[-1][0] + relative, one) for relative, one in found]


def _as_format_1(message: Buffer, append_time_ms: int) -> bytes:
    """Convert a message to format 1; one of format 0 gets the timestamp -1 (KIP-32)."""
    magic, attributes = message[4], message[5]
    if magic == 1 and append_time_ms < 0:
        return bytes(message)
    if magic == 1:
        head = bytes((1, attributes | LOG_APPEND_TIME)) + _INT64.pack(append_time_ms)
        body = head + bytes(message[14:])
    else:
        stamped = LOG_APPEND_TIME if append_time_ms >= 0 else 0
        body = bytes((1, stamped)) + _INT64.pack(append_time_ms) + bytes(message[6:])
    return crc32(body).to_bytes(4, "big") + body


def _as_format_0(message: Buffer) -> bytes:
    if not message[4]:
        return bytes(message)
    body = bytes((0, message[5] & 0x07)) + bytes(message[14:])
    return crc32(body).to_bytes(4, "big") + body


def down_convert(message_set: Buffer) -> Buffer:
    """Convert a slice of a log of format 1 to format 0, with the same offsets; drop a cut tail.

    A slice that ends within its first message is returned unchanged: the client only looks at its
    size (brokers.md 7.1). The result ends before the wrapper with which all would decompress to
    more than `MAX_DECOMPRESSED_BYTES`; the client fetches the rest with its next request.
    Doesn't model: 0.10.2.2 sometimes moves a plain message into the wrapper before it (7.8).
    """
    out, budget = bytearray(), _Budget()
    for offset, message in walk_entries(message_set):
        if message[4] == 0:
            out += _OFFSET_SIZE.pack(offset, len(message)) + bytes(message)
        else:
            try:
                inner = messages_in(offset, message, budget)
            except DecompressedTooLarge:
                if not out:
                    raise
                break
            found = [(at, _as_format_0(one)) for at, one in inner]
            out += encode_set(found, message[5] & 0x07, 0)
    return out or message_set


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


def walk_entries(message_set: Buffer) -> Iterator[tuple[int, memoryview]]:
    """Iterate over `(offset, message from its CRC on)` of each whole entry.

    Raises:
        MessageSetRejected: the size of an entry is too small for a message.
    """
    view, pos, end = memoryview(message_set), 0, len(message_set)
    while end - pos >= HEADER_BYTES:
        offset, size = _OFFSET_SIZE.unpack_from(view, pos)
        if size < _MIN_MESSAGE_BYTES:
            raise MessageSetRejected(
                CorruptRecordException.errno, f"size {size} too small for a message"
            )
        stop = pos + HEADER_BYTES + size
        if stop > end:
            return
        yield offset, view[pos + HEADER_BYTES : stop]
        pos = stop


class MessageFields(NamedTuple):
    """Key, value and timestamp of a message; the value of a wrapper is compressed."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int | None


def parse_message(message: memoryview) -> MessageFields:
    """Decode a message (from its CRC on).

    Raises:
        MessageSetRejected: the key or the value is longer than the message.
    """
    timestamp_ms, pos = None, 6
    if message[4] == 1 and len(message) >= 22:
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


# --- the header checksum of lz4 frames (KAFKA-3160) -----------------------------------------------


def _accepts_lz4_header(frame: bytes, *, legacy_only: bool) -> bool:
    """Return whether brokers read an lz4 frame with this header (brokers.md 6.2).

    All lines with lz4 accept the legacy checksum, which covers the magic number too, if the header
    has no content size. From 0.10 on they also accept the standard checksum, with or without a
    content size.
    """
    if len(frame) < 7:
        return True  # decompress() then raises a better error
    size = 14 if frame[4] & 0x08 else 6
    checksum = frame[size] if len(frame) > size else -1
    if checksum == _xxh32_of_short(frame[:size]) >> 8 & 0xFF:
        return size == 6
    return not legacy_only and checksum == _xxh32_of_short(frame[4:size]) >> 8 & 0xFF


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
