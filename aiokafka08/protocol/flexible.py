"""Unsigned varints, and the tagged fields of flexible versions, which are skipped."""

from __future__ import annotations

from typing import Final

from aiokafka08.errors import KafkaProtocolError
from aiokafka08.protocol.types import Buffer

_VARINT_BYTES: Final = 5
_MAX_TAGS: Final = 100  # no message has more than a few, and to skip them takes time


def read_varint(data: Buffer, pos: int) -> tuple[int, int]:
    """Return an unsigned varint of at most 5 bytes, and the position after it.

    Raises:
        KafkaProtocolError: the data end within the varint, or it is longer.
    """
    if pos < len(data) and data[pos] < 0x80:
        return data[pos], pos + 1
    value = 0
    for count, byte in enumerate(bytes(data[pos : pos + _VARINT_BYTES])):
        value |= (byte & 0x7F) << 7 * count
        if byte < 0x80:
            return value, pos + count + 1
    if len(data) - pos < _VARINT_BYTES:
        raise KafkaProtocolError(f"a varint ends at {len(data)}, with the data")
    raise KafkaProtocolError(f"a varint before {pos + 5} of more than 5 bytes")


def behind_tags(data: Buffer, pos: int) -> int:
    """Return the position after tagged fields.

    Raises:
        KafkaProtocolError: the data end within them.
    """
    count, pos = read_varint(data, pos)
    if count > _MAX_TAGS:
        raise KafkaProtocolError(f"{count} tagged fields; expected at most {_MAX_TAGS}")
    for _ in range(count):
        _tag, pos = read_varint(data, pos)
        size, pos = read_varint(data, pos)
        if size > len(data) - pos:
            text = f"a tagged field of {size} bytes at {pos}"
            raise KafkaProtocolError(f"{text}; expected at most {len(data) - pos}")
        pos += size
    return pos


def encode_varint(value: int) -> bytes:
    """Return a number >= 0 as an unsigned varint."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
