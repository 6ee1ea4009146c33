"""Validate a produced message set as brokers that store format 0 (0.8 and 0.9) do. Pure.

They read the codec and the CRC of a message, but not its magic (docs/brokers.md 5, 6).

Invariant: if neither the producer nor the topic compresses, the messages are stored as they are,
with new offsets. Otherwise the set is encoded again, as one new wrapper or as plain messages.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final
from zlib import crc32

from aiokafka08.errors import CorruptRecordException, MessageSizeTooLargeError, UnknownError
from aiokafka08.protocol.types import Buffer
from aiokafka08.testing.broker_lines import NestedSetPolicy
from aiokafka08.testing.message_sets import (
    HEADER_BYTES,
    LARGEST_ARRAY,
    MIN_MESSAGE_BYTES,
    NOTHING,
    DecompressionBudget,
    LogConfig,
    MessageSetRejected,
    ValidatedSet,
    discard,
    encode_set,
    limited,
    numbered,
    unwrap,
    walk_entries,
)

_MAX_NESTING: Final = 200  # the limit of real brokers is the size of their stack

_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_SIZE_CRC_MAGIC_ATTRIBUTES: Final = struct.Struct(">iIbb")


def validate(message_set: Buffer, base_offset: int, config: LogConfig) -> ValidatedSet:
    """Validate a produced set and assign offsets from `base_offset` on.

    Raises:
        MessageSetRejected: the set is invalid; nothing of it may be stored.
    """
    line = config.line
    positions, whole_bytes, codec = _check_outer_entries(message_set, config)
    if not positions:
        return NOTHING
    target_codec = config.target_codec(codec)
    if not codec and not target_codec:
        # The fast path: one copy, with offsets patched in place.
        data = bytearray(message_set[:whole_bytes])
        for count, position in enumerate(positions):
            if config.compacted and line.compacted_needs_keys:
                _check_plain_key(data, position)
            _INT64.pack_into(data, position, base_offset + count)
        count = len(positions)
    else:
        entries = memoryview(message_set)[:whole_bytes]
        messages = limited(_flatten(entries, config, DecompressionBudget(), depth=0))
        count = len(messages)
        if not count:
            return ValidatedSet(bytearray(), base_offset, base_offset, 0)
        pairs = list(numbered(messages, base_offset))
        data = encode_set(pairs, target_codec, magic=0)
        discard(pairs)  # in pieces: freeing a long list at once would hold the GIL
        discard(messages)
    # Check the sizes that the messages have when they are stored (docs/brokers.md 5.4).
    if codec or target_codec or not line.checks_sizes_first:
        for _, message in walk_entries(data):
            _check_size(len(message), config)
    if line.set_over_segment_code is not None and len(data) > config.segment_bytes:
        raise MessageSetRejected(
            line.set_over_segment_code, f"set of {len(data)} bytes: larger than a segment"
        )
    return ValidatedSet(data, base_offset, base_offset + count, count)


def _check_outer_entries(message_set: Buffer, config: LogConfig) -> tuple[list[int], int, int]:
    """Validate the outermost entries; ignore a tail that is cut (brokers.md 5.4 - 5.7).

    Return the positions of the entries, the size of all of them, and the codec of the last wrapper.
    """
    view, pos, end, codec = memoryview(message_set), 0, len(message_set), 0
    positions: list[int] = []
    line = config.line
    mask, known_codecs, checks_sizes = line.codec_mask, line.known_codecs, line.checks_sizes_first
    limit = config.max_message_bytes - HEADER_BYTES
    unpack, append = _SIZE_CRC_MAGIC_ATTRIBUTES.unpack_from, positions.append
    while end - pos >= HEADER_BYTES:
        if end - pos < HEADER_BYTES + 6:  # no room for crc, magic, attributes: corrupt or cut
            if _INT32.unpack_from(view, pos + 8)[0] < MIN_MESSAGE_BYTES:
                raise MessageSetRejected(
                    CorruptRecordException.errno, "size too small for a message"
                )
            break
        size, crc, _, attributes = unpack(view, pos + 8)
        if size < MIN_MESSAGE_BYTES:
            raise MessageSetRejected(
                CorruptRecordException.errno, f"size {size} too small for a message"
            )
        stop = pos + HEADER_BYTES + size
        if stop > end:
            break
        if checks_sizes and size > limit:
            _check_size(size, config)
        if crc32(view[pos + 16 : stop]) != crc:
            raise MessageSetRejected(CorruptRecordException.errno, "wrong CRC")
        if attributes & mask:
            codec = attributes & mask
            if codec not in known_codecs:
                raise MessageSetRejected(UnknownError.errno, f"unknown codec {codec}")
        append(pos)
        pos = stop
    return positions, pos, codec


def _check_size(size: int, config: LogConfig) -> None:
    if HEADER_BYTES + size > config.max_message_bytes:
        raise MessageSetRejected(
            MessageSizeTooLargeError.errno, f"message of {size} + 12 bytes: too large"
        )


def _check_plain_key(data: bytearray, position: int) -> None:
    """Check the key of a plain message for a compacted topic; an empty key counts as none here."""
    if _INT32.unpack_from(data, position + HEADER_BYTES + 6)[0] <= 0:
        raise MessageSetRejected(
            CorruptRecordException.errno, "message without a key for a compacted topic"
        )


def _flatten(
    view: memoryview, config: LogConfig, budget: DecompressionBudget, depth: int
) -> Iterator[memoryview]:
    """Iterate over the messages of a set (from their CRC on) and of the wrappers in it."""
    # CRCs inside wrappers aren't checked, and are kept even if they are wrong (brokers.md 6.8).
    line = config.line
    keeps_nested = line.nested_sets is NestedSetPolicy.KEEP
    # Where brokers allocate an array of a message's size before they read it, an absurd size fails.
    largest = LARGEST_ARRAY if depth and keeps_nested else 2**31 - 1
    for _, message in walk_entries(view, largest):
        if not message[5] & line.codec_mask or (depth and keeps_nested):
            has_key = _INT32.unpack_from(message, 6)[0] >= 0
            if config.compacted and line.compacted_needs_keys and not has_key:
                raise MessageSetRejected(
                    CorruptRecordException.errno, "message without a key for a compacted topic"
                )
            yield message
            continue
        if depth == _MAX_NESTING:
            raise MessageSetRejected(
                UnknownError.errno, f"more than {_MAX_NESTING} nested wrappers"
            )
        yield from _flatten(memoryview(unwrap(message, line, budget)), config, budget, depth + 1)
