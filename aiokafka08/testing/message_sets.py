"""What a broker does with a produced message set before it is in the log, and back on a fetch.

Pure: bytes and rules in, bytes or `Refused` out. `prepare` validates a set, assigns its offsets
and, where there is a wrapper in it, makes the whole set one wrapper again (docs/brokers.md 5, 6);
`down_convert` gives format 0 to those who ask a log of format 1 for it. Written without
`MessageSetReader` and `MessageSetBuilder`: a broker that decoded with the client's code would
agree with its bugs. A plain set, the fast path, is copied once and its offsets patched in place.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from zlib import crc32

from aiokafka08.protocol.compression import Codec, compress, decompress
from aiokafka08.protocol.message_set import LOG_APPEND_TIME, encode_entry
from aiokafka08.protocol.types import Buffer
from aiokafka08.testing.broker_lines import Line, Nested

HEADER_BYTES = 12
"""Offset and size, before each message."""
_MIN_MESSAGE_BYTES = 14
_MIN_MESSAGE_BYTES_1 = 22
_MAX_NESTING = 32  # real brokers end at their stack's
_MAX_DECOMPRESSED_BYTES = 1 << 30  # brokers know no limit (brokers.md 6.6); this machine does

_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_OFFSET_SIZE = struct.Struct(">qi")
_SIZE_CRC_MAGIC_ATTRIBUTES = struct.Struct(">iIbb")

CORRUPT, TOO_LARGE, UNKNOWN = 2, 10, -1
_CODEC_OF_NAME = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3}


class Refused(Exception):
    """The set isn't stored; `code` is what the producer gets."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


@dataclass(frozen=True, slots=True)
class Rules:
    """What decides about a produced set: the line of the broker and the settings of the topic."""

    line: Line
    max_message_bytes: int
    segment_bytes: int
    compacted: bool = False
    compression_type: str = "producer"
    log_append_time: bool = False


class Prepared(NamedTuple):
    """A set as it goes into the log. `messages` 0: nothing to store."""

    data: bytearray
    first_offset: int
    next_offset: int
    messages: int
    append_time_ms: int
    """The time stamped on every message under LogAppendTime, else -1."""


class _Shallow(NamedTuple):
    positions: list[int]
    whole_bytes: int
    codec: int
    magics: int
    """Bit 0: there is format 0, bit 1: there is another one."""


def prepare(message_set: Buffer, base_offset: int, rules: Rules, now_ms: int) -> Prepared:
    """The set with offsets from `base_offset` on.

    Raises:
        Refused: nothing of it may be stored.
    """
    line = rules.line
    positions, whole_bytes, codec, magics = _analyse(message_set, rules)
    if not positions:
        return Prepared(bytearray(), -1, base_offset, 0, -1)
    if rules.compression_type != "producer":
        wanted = _CODEC_OF_NAME[rules.compression_type]
    else:
        wanted = codec
    append_time_ms = now_ms if rules.log_append_time else -1
    as_it_came = not line.message_format or (magics == 0b10 and append_time_ms < 0)
    if not codec and not wanted and as_it_came:
        data = bytearray(message_set[:whole_bytes])
        for count, position in enumerate(positions):
            _INT64.pack_into(data, position, base_offset + count)
        count = len(positions)
    else:
        messages: list[Buffer]
        messages = list(_flatten(memoryview(message_set)[:whole_bytes], rules, depth=0))
        if line.message_format:
            for message in messages:
                _check_format(message)
            messages = [_as_format_1(message, append_time_ms) for message in messages]
        count = len(messages)
        if count:
            pairs = list(enumerate(messages, base_offset))
            data = encode(pairs, wanted, line.message_format, append_time_ms)
        elif line.empty_wrapper_refused:
            raise Refused(UNKNOWN, "a wrapper around nothing")
        else:
            return Prepared(bytearray(), base_offset, base_offset, 0, -1)
        _check_sizes(data, rules)
    if line.set_over_segment_code is not None and len(data) > rules.segment_bytes:
        raise Refused(line.set_over_segment_code, "the set is larger than a segment")
    return Prepared(data, base_offset, base_offset + count, count, append_time_ms)


def _analyse(message_set: Buffer, rules: Rules) -> _Shallow:
    """Check the outermost entries; a cut tail is left out (brokers.md 5.4 - 5.7)."""
    view, pos, end, codec = memoryview(message_set), 0, len(message_set), 0
    positions: list[int] = []
    magics = 0
    mask, limit = rules.line.codec_mask, rules.max_message_bytes - HEADER_BYTES
    formatted, compacted = rules.line.message_format, rules.compacted
    unpack, append = _SIZE_CRC_MAGIC_ATTRIBUTES.unpack_from, positions.append
    while end - pos >= HEADER_BYTES:
        if end - pos < HEADER_BYTES + 6:  # not room for any message: cut off, or too small
            if _INT32.unpack_from(view, pos + 8)[0] < _MIN_MESSAGE_BYTES:
                raise Refused(CORRUPT, "a size below the least message")
            break
        size, crc, magic, attributes = unpack(view, pos + 8)
        if size < _MIN_MESSAGE_BYTES:
            raise Refused(CORRUPT, f"the size {size}")
        stop = pos + HEADER_BYTES + size
        if stop > end:
            break
        if size > limit:
            raise Refused(TOO_LARGE, f"{size} + 12 bytes in one message")
        if crc32(view[pos + 16 : stop]) != crc:
            raise Refused(CORRUPT, "a wrong CRC")
        if attributes & mask:
            codec = attributes & mask
            if codec not in rules.line.known_codecs:
                raise Refused(UNKNOWN, f"codec {codec}")
        elif compacted:
            _check_key(view[pos + HEADER_BYTES : stop], rules)
        if formatted:
            _check_format(view[pos + HEADER_BYTES : stop])
        magics |= 2 if magic else 1
        append(pos)
        pos = stop
    return _Shallow(positions, pos, codec, magics)


def _check_key(message: memoryview, rules: Rules) -> None:
    if rules.compacted and rules.line.compacted_needs_keys and parse(message).key is None:
        raise Refused(CORRUPT, "a message without key for a compacted topic")


def _check_format(message: Buffer) -> None:
    """What a log of format 1 asks of a message."""
    if message[4] > 1:
        raise Refused(UNKNOWN, f"magic {message[4]}")
    if message[4] == 1 and len(message) < _MIN_MESSAGE_BYTES_1:
        raise Refused(CORRUPT, f"the size {len(message)} in format 1")


def _check_sizes(data: bytearray, rules: Rules) -> None:
    for _, message in walk(data):
        if HEADER_BYTES + len(message) > rules.max_message_bytes:
            raise Refused(TOO_LARGE, f"{len(message)} + 12 bytes after conversion")


def _flatten(view: memoryview, rules: Rules, depth: int) -> Iterator[memoryview]:
    """The messages of a set from their CRC on, those in wrappers included. Inner CRCs are left
    as they are, right or wrong (brokers.md 6.8)."""
    line = rules.line
    for _, message in walk(view):
        if not message[5] & line.codec_mask or (depth and line.nested is Nested.KEEP):
            if depth:
                _check_key(message, rules)
            yield message
            continue
        if depth and line.nested is Nested.REFUSE:
            raise Refused(CORRUPT, "a wrapper in a wrapper")
        if depth == _MAX_NESTING:
            raise Refused(UNKNOWN, f"more than {_MAX_NESTING} wrappers in each other")
        yield from _flatten(memoryview(_unwrap(message, line)), rules, depth + 1)


def _unwrap(message: memoryview, line: Line) -> bytes:
    codec, value = message[5] & line.codec_mask, parse(message).value
    if value is None:
        raise Refused(UNKNOWN, "a wrapper without a value")
    if codec == Codec.LZ4 and not _lz4_header_is_read(value, legacy_only=line.legacy_lz4_only):
        raise Refused(UNKNOWN, "an lz4 frame with a header that this line doesn't read")
    try:
        return decompress(Codec(codec), value, _MAX_DECOMPRESSED_BYTES)
    except ValueError as error:
        raise Refused(UNKNOWN, str(error)) from None


def encode(
    messages: Sequence[tuple[int, Buffer]], codec: int, magic: int, append_time_ms: int = -1
) -> bytearray:
    """Offsets and messages (from their CRC on) as plain entries, or with a codec as one wrapper:
    absolute offsets inside in format 0, relative ones in format 1."""
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


def inside(offset: int, message: memoryview) -> list[tuple[int, memoryview]]:
    """The messages of a stored wrapper with their absolute offsets, as `walk` gives those of a
    set; a plain message is its own only inside."""
    codec = message[5] & 0x07
    if not codec:
        return [(offset, message)]
    value = parse(message).value or b""
    found = list(walk(decompress(Codec(codec), value, _MAX_DECOMPRESSED_BYTES)))
    if message[4] == 0:
        return found
    return [(offset - found[-1][0] + relative, one) for relative, one in found]


def _as_format_1(message: Buffer, append_time_ms: int) -> bytes:
    """The same message in format 1; one of format 0 has no time, -1 (KIP-32)."""
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
    """A slice of a log of format 1 as format 0, offsets kept; a cut tail is dropped.

    A slice without one whole message is left as it is: then only its size matters (7.1). Unlike
    0.10.2.2 it never draws plain messages into a wrapper that stands beside them (7.8).
    """
    out = bytearray()
    for offset, message in walk(message_set):
        if message[4] == 0:
            out += _OFFSET_SIZE.pack(offset, len(message)) + bytes(message)
        else:
            found = [(at, _as_format_0(one)) for at, one in inside(offset, message)]
            out += encode(found, message[5] & 0x07, 0)
    return out or message_set


def walk(message_set: Buffer) -> Iterator[tuple[int, memoryview]]:
    """`(offset, message from its CRC on)` of each whole entry.

    Raises:
        Refused: an entry is smaller than a message can be.
    """
    view, pos, end = memoryview(message_set), 0, len(message_set)
    while end - pos >= HEADER_BYTES:
        offset, size = _OFFSET_SIZE.unpack_from(view, pos)
        if size < _MIN_MESSAGE_BYTES:
            raise Refused(CORRUPT, f"the size {size}")
        stop = pos + HEADER_BYTES + size
        if stop > end:
            return
        yield offset, view[pos + HEADER_BYTES : stop]
        pos = stop


class Parsed(NamedTuple):
    """Key, value and time of a message; a wrapper's value is compressed."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int | None


def parse(message: memoryview) -> Parsed:
    """Read a message (from its CRC on).

    Raises:
        Refused: its key or value reach past its end.
    """
    timestamp_ms, pos = None, 6
    if message[4] == 1 and len(message) >= 22:
        timestamp_ms, pos = _INT64.unpack_from(message, 6)[0], 14
    fields: list[bytes | None] = []
    for _ in range(2):
        if len(message) - pos < 4:
            raise Refused(UNKNOWN, "no room for key and value")
        size = _INT32.unpack_from(message, pos)[0]
        pos += 4
        if size > len(message) - pos:
            raise Refused(UNKNOWN, "a key or value longer than its message")
        fields.append(None if size < 0 else bytes(message[pos : pos + size]))
        pos += max(size, 0)
    return Parsed(fields[0], fields[1], timestamp_ms)


# --- the header checksum of lz4 frames (KAFKA-3160) -----------------------------------------------


def _lz4_header_is_read(frame: bytes, *, legacy_only: bool) -> bool:
    """Before 0.10 the checksum has to cover the magic number too, and no content size may stand
    in the header; from 0.10 on either checksum will do (brokers.md 6.2)."""
    if len(frame) < 7:
        return True  # decompress() says what is wrong
    size = 14 if frame[4] & 0x08 else 6
    checksum = frame[size] if len(frame) > size else -1
    if checksum == _xxh32_of_short(frame[:size]) >> 8 & 0xFF:
        return size == 6
    return not legacy_only and checksum == _xxh32_of_short(frame[4:size]) >> 8 & 0xFF


def _xxh32_of_short(data: bytes) -> int:
    """xxHash32, seed 0, for less than 16 bytes."""
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
