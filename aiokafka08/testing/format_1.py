"""How brokers that store format 1 (0.10) validate a produced message set, and serve format 0. Pure.

Invariant: a compressed set whose codec and messages need no change is stored as it is; only its
first entry gets a new offset and timestamp. Other sets that have a wrapper, or get one from the
topic's `compression.type`, are encoded again. In the remaining sets, plain messages of format 0 are
converted (docs/brokers.md 5, 6).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple
from zlib import crc32

from aiokafka08.errors import (
    CorruptRecordException,
    InvalidTimestampError,
    MessageSizeTooLargeError,
    UnknownError,
)
from aiokafka08.protocol.compression import DecompressedTooLarge
from aiokafka08.protocol.message_set import LOG_APPEND_TIME
from aiokafka08.protocol.types import Buffer
from aiokafka08.testing.message_sets import (
    HEADER_BYTES,
    LARGEST_ARRAY,
    NOTHING,
    DecompressionBudget,
    LogConfig,
    MessageSetRejected,
    ValidatedSet,
    discard,
    encode_set,
    limited,
    messages_in,
    numbered,
    parse_message,
    timestamp_of,
    unwrap,
    walk_entries,
)

_CODEC_MASK: Final = 0x07
_LARGEST_SIZE: Final = 2**31 - 1 - HEADER_BYTES

# The memory of a broker, which allocates as many bytes as a value's length says.
_HEAP_BYTES: Final = 1 << 28

_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_OFFSET_SIZE: Final = struct.Struct(">qi")


class _InnerMessage(NamedTuple):
    """A message of a produced set, taken out of its wrapper."""

    # The producer's offset; inside a wrapper the offset that brokers compute.
    offset: int
    data: memoryview
    # Whether the message claims that a broker has stamped it; inside a wrapper, whether the wrapper
    # does.
    log_append_time: bool


def validate(message_set: Buffer, base_offset: int, config: LogConfig, now_ms: int) -> ValidatedSet:
    """Validate a produced set and assign offsets from `base_offset` on.

    Raises:
        MessageSetRejected: the set is invalid; nothing of it may be stored.
    """
    entries, codec = _check_outer_entries(message_set, config)
    if not entries:
        return NOTHING
    target_codec = config.target_codec(codec)
    append_time_ms = now_ms if config.log_append_time else -1
    if codec or target_codec:
        inner_messages = limited(_messages_of(entries, config))
        for inner in inner_messages:
            _check_message(inner.data, inner.log_append_time, config)
        if codec == target_codec and _stays_as_it_is(inner_messages):
            data = _restamped_wrapper(entries, inner_messages, base_offset, append_time_ms)
        else:
            messages = [_as_format_1(inner.data, keeps_bit=True) for inner in inner_messages]
            pairs = list(numbered(messages, base_offset))
            data = encode_set(pairs, target_codec, 1, append_time_ms)
            discard(pairs)
            discard(messages)
            _check_sizes(data, config)
        count = len(inner_messages)
        largest = max(timestamp_of(inner.data) for inner in inner_messages)
        discard(inner_messages)
    else:
        converts = any(message[4] != 1 for _, message in entries)
        for _, message in entries if converts else ():
            _check_size_fields(message)
        for _, message in entries:
            _check_message(message, _is_log_append_time(message), config)
        count, largest = len(entries), max(timestamp_of(message) for _, message in entries)
        if converts or append_time_ms >= 0:
            data = _converted(entries, base_offset, append_time_ms, stamps=not converts)
            _check_sizes(data, config)
        else:
            data = _with_offsets(message_set, entries, base_offset)
    code = config.line.set_over_segment_code
    if code is not None and len(data) > config.segment_bytes:
        raise MessageSetRejected(code, f"set of {len(data)} bytes: larger than a segment")
    largest = max(append_time_ms, largest if append_time_ms < 0 else -1)
    return ValidatedSet(data, base_offset, base_offset + count, count, append_time_ms, largest)


def _check_outer_entries(
    message_set: Buffer, config: LogConfig
) -> tuple[list[tuple[int, memoryview]], int]:
    """Validate the outermost entries; ignore a tail that is cut (brokers.md 5.4 - 5.7).

    Return the entries, and the codec of the last wrapper.
    """
    entries, codec = [], 0
    for offset, message in walk_entries(message_set, largest=_LARGEST_SIZE):
        if HEADER_BYTES + len(message) > config.max_message_bytes:
            raise MessageSetRejected(
                MessageSizeTooLargeError.errno, f"message of {len(message)} + 12 bytes: too large"
            )
        if crc32(message[4:]) != int.from_bytes(message[:4], "big"):
            raise MessageSetRejected(CorruptRecordException.errno, "wrong CRC")
        if message[5] & _CODEC_MASK:
            codec = message[5] & _CODEC_MASK
            if codec not in config.line.known_codecs:
                raise MessageSetRejected(UnknownError.errno, f"unknown codec {codec}")
        entries.append((offset, message))
    return entries, codec


def _messages_of(
    entries: list[tuple[int, memoryview]], config: LogConfig
) -> Iterator[_InnerMessage]:
    """Iterate over the messages of a set with wrappers."""
    budget = DecompressionBudget()
    for offset, message in entries:
        stamped = _is_log_append_time(message)
        if not message[5] & _CODEC_MASK:
            yield _InnerMessage(offset, message, stamped)
            continue
        inner = limited(walk_entries(unwrap(message, config.line, budget), LARGEST_ARRAY))
        if not inner:
            raise MessageSetRejected(UnknownError.errno, "empty wrapper")
        # The offset to which the inner offsets are relative. It is negative if the producer left
        # the wrapper's own offset at 0.
        base = offset - inner[-1][0] if message[4] else 0
        for relative, data in inner:
            if data[4] != message[4]:
                raise MessageSetRejected(
                    CorruptRecordException.errno, "wrapper with a message of another format"
                )
            if (inner_codec := data[5] & _CODEC_MASK) not in config.line.known_codecs | {0}:
                raise MessageSetRejected(UnknownError.errno, f"unknown codec {inner_codec}")
            if inner_codec:
                raise MessageSetRejected(CorruptRecordException.errno, "wrapper inside a wrapper")
            yield _InnerMessage(relative + max(base, 0), data, stamped)


def _is_log_append_time(message: memoryview) -> bool:
    return bool(message[4] and message[5] & LOG_APPEND_TIME)


def _check_message(message: memoryview, log_append_time: bool, config: LogConfig) -> None:
    if config.compacted and _key_size(message) < 0:
        raise MessageSetRejected(
            CorruptRecordException.errno, "message without a key for a compacted topic"
        )
    if log_append_time:
        raise MessageSetRejected(
            InvalidTimestampError.errno, "only brokers may set the bit of LogAppendTime"
        )


def _key_size(message: memoryview) -> int:
    position = 14 if message[4] else 6
    if len(message) < position + 4:
        raise MessageSetRejected(UnknownError.errno, "message too short for a key")
    size: int = _INT32.unpack_from(message, position)[0]
    return size


def _check_size_fields(message: memoryview) -> None:
    """Check the fields that a broker reads of a message to compute its size after a conversion."""
    at = (18 if message[4] else 10) + max(_key_size(message), 0)
    if len(message) < at + 4:
        raise MessageSetRejected(UnknownError.errno, "key longer than the message")
    if _INT32.unpack_from(message, at)[0] > _HEAP_BYTES:
        raise MessageSetRejected(UnknownError.errno, "value larger than the broker's memory")


def _stays_as_it_is(messages: list[_InnerMessage]) -> bool:
    """Return whether a compressed set needs neither new offsets nor another format."""
    return all(inner.data[4] == 1 and inner.offset == at for at, inner in enumerate(messages))


def _restamped_wrapper(
    entries: list[tuple[int, memoryview]],
    messages: list[_InnerMessage],
    base_offset: int,
    append_time_ms: int,
) -> bytearray:
    """Return a set whose first entry has the last offset, and the append or largest timestamp."""
    for inner in messages:
        if crc32(inner.data[4:]) != int.from_bytes(inner.data[:4], "big"):
            raise MessageSetRejected(CorruptRecordException.errno, "wrong CRC in a wrapper")
    timestamp_ms = append_time_ms
    if append_time_ms < 0:
        timestamp_ms = max(-1, *(timestamp_of(inner.data) for inner in messages))
    data = bytearray()
    for at, (offset, message) in enumerate(entries):
        # Brokers change only the first entry.
        if not at:
            offset = base_offset + len(messages) - 1
            message = memoryview(_stamped(message, timestamp_ms, append_time_ms >= 0))
        data += _OFFSET_SIZE.pack(offset, len(message)) + bytes(message)
    return data


def _with_offsets(
    message_set: Buffer, entries: list[tuple[int, memoryview]], base_offset: int
) -> bytearray:
    """Return plain messages of format 1 with new offsets."""
    sizes = [HEADER_BYTES + len(message) for _, message in entries]
    data, position = bytearray(message_set[: sum(sizes)]), 0
    for at, size in enumerate(sizes):
        _INT64.pack_into(data, position, base_offset + at)
        position += size
    return data


def _converted(
    entries: list[tuple[int, memoryview]], base_offset: int, append_time_ms: int, *, stamps: bool
) -> bytearray:
    """Return plain messages in format 1, with new offsets."""
    data = bytearray()
    for at, (_, message) in enumerate(entries):
        if message[4] != 1:
            converted: Buffer = _as_format_1(message, append_time_ms)
        elif stamps:
            converted = _stamped(message, append_time_ms, log_append_time=True)
        # In a set with messages of format 0 those of format 1 keep their own time, as on real
        # brokers.
        else:
            converted = message
        data += _OFFSET_SIZE.pack(base_offset + at, len(converted))
        data += converted
    return data


def _stamped(message: memoryview, timestamp_ms: int, log_append_time: bool) -> bytes:
    """Return a message of format 1 with another timestamp."""
    attributes = message[5] & ~LOG_APPEND_TIME | (LOG_APPEND_TIME if log_append_time else 0)
    if attributes == message[5] and timestamp_of(message) == timestamp_ms:
        return bytes(message)
    body = bytes((1, attributes)) + _INT64.pack(timestamp_ms) + bytes(message[14:])
    return crc32(body).to_bytes(4, "big") + body


def _as_format_1(
    message: memoryview, append_time_ms: int = -1, *, keeps_bit: bool = False
) -> Buffer:
    """Convert a message of format 0 to format 1, with the append time or timestamp -1 (KIP-32).

    `keeps_bit` is True in a compressed set: there the bit of LogAppendTime, which means nothing in
    format 0, stays as it is (brokers.md 6.3).
    """
    if message[4] == 1:
        return message
    has_bit = keeps_bit and bool(message[5] & LOG_APPEND_TIME)
    stamped = append_time_ms >= 0 or has_bit
    return _written(message, 1, max(append_time_ms, timestamp_of(message)), stamped)


def _written(
    message: memoryview, magic: int, timestamp_ms: int = -1, log_append_time: bool = False
) -> bytes:
    """Return a message with the key and value of another one, without its attributes."""
    key, value, _ = parse_message(message, stamped=message[4] != 0)
    body = bytes((magic, LOG_APPEND_TIME if log_append_time else 0))
    if magic:
        body += _INT64.pack(timestamp_ms)
    for field in (key, value):
        body += _INT32.pack(-1 if field is None else len(field)) + (field or b"")
    return crc32(body).to_bytes(4, "big") + body


def _check_sizes(data: bytearray, config: LogConfig) -> None:
    for _, message in walk_entries(data):
        if HEADER_BYTES + len(message) > config.max_message_bytes:
            raise MessageSetRejected(
                MessageSizeTooLargeError.errno,
                f"message of {len(message)} + 12 bytes after conversion: too large",
            )


def down_convert(message_set: Buffer) -> Buffer:
    """Convert a slice of a log of format 1 to format 0, with the same offsets; drop a cut tail.

    If the slice begins with a wrapper, all messages go into one wrapper of its codec; else all are
    plain (brokers.md 7.8).
    """
    entries = list(walk_entries(message_set))
    # A slice that ends within its first message is returned unchanged, since the client reads only
    # that message's size (brokers.md 7.1).
    if not entries or all(message[4] == 0 for _, message in entries):
        return message_set
    converted: list[tuple[int, Buffer]] = []
    budget = DecompressionBudget()
    for offset, message in entries:
        try:
            inner = messages_in(offset, message, budget)
        except DecompressedTooLarge:
            if not converted:
                raise
            break  # the client fetches the rest with its next request
        converted += [(at, _written(data, 0) if data[4] else bytes(data)) for at, data in inner]
    return encode_set(converted, entries[0][1][5] & _CODEC_MASK, 0)
