"""Message formats 0 and 1: the layout of a message on the wire.

    offset int64 | size int32 | crc uint32 | magic int8 | attributes int8
    | timestamp int64 (magic 1 only) | key length int32 | key | value length int32 | value

The size field counts the bytes after it. The CRC covers the bytes from the magic byte on. Bits 0-2
of the attributes are the codec, bit 3 is the timestamp type. A message with a codec is a wrapper:
its value is a compressed message set, and its offset is that of the last message inside.

The pure-Python builder, the readers and `message_set` take the constants of the formats from here;
the producer calls `message_size`, by way of `message_set`.

Invariant: the copies of the constants in `_message_set_c.pyx` are equal to these, and
`message_size` returns what a builder adds for the message.
"""

from __future__ import annotations

from typing import Final

from aiokafka08._wording import partition_text
from aiokafka08.errors import CorruptRecordException
from aiokafka08.protocol.types import Buffer
from aiokafka08.structs import TopicPartition

ENTRY_HEADER_BYTES: Final = 12
"""Offset and size, the fields before each message."""
BODY_AT: Final = 16
"""Position of the first byte that the CRC covers, after offset, size and CRC."""
MIN_MESSAGE_BYTES: Final = (14, 22)
"""The least value of a message's size field, by magic: that of an empty key and value."""

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
"""Attribute bit: the timestamp is the broker's."""

MAX_NESTING: Final = 2
"""The maximum number of nested wrappers, including the outermost one. Two have to be read, since
0.9.0.1 stores a wrapper in a wrapper unchanged (docs/brokers.md 6.7)."""


def message_size(magic: int, key: Buffer | None, value: Buffer | None) -> int:
    """Return the size of a message in a message set, including its offset and size fields."""
    size = 26 if magic == 0 else 34
    if key is not None:
        size += len(key)
    if value is not None:
        size += len(value)
    return size


def corrupt(
    topic_partition: TopicPartition, offset: int, next_offset: int | None, why: str
) -> CorruptRecordException:
    """Make the error for a corrupt message; `next_offset` is None if the bytes don't show it."""
    return CorruptRecordException(
        f"corrupt message in {partition_text(topic_partition)}, offset {offset}: "
        f"{why}; {way_out(next_offset)}",
        partition=topic_partition,
        offset=offset,
        next_offset=next_offset,
    )


def way_out(next_offset: int | None) -> str:
    """Return what the text of `corrupt` says last: how a consumer gets past the message."""
    if next_offset is not None:
        return f"seek() to {next_offset} skips it"
    return (
        "seek() to a clearly later offset: the damaged bytes don't show the next one, and brokers "
        "may not find those close behind the damage"
    )
