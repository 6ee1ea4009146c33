"""The pure-Python twin of `MessageSetBuilder`; see `message_format` for the layout.

It is the reference for the compiled twin (`_builder_c.pxi`). Other modules import the builder from
`message_set`.

Invariant: `build()` returns a set that a broker accepts; later appends don't change the returned
set.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from zlib import crc32

from aiokafka08.protocol.compression import Codec, compress_behind
from aiokafka08.protocol.message_format import BODY_AT, ENTRY_HEADER_BYTES
from aiokafka08.protocol.types import Buffer

_unpack_int32 = struct.Struct(">i").unpack_from
_unpack_timestamp = struct.Struct(">q").unpack_from
_pack_int32 = struct.Struct(">i").pack
_pack_head = struct.Struct(">qiI").pack  # offset, size, crc
_pack_body_0 = struct.Struct(">bbi").pack  # magic, attributes, key length
_pack_body_1 = struct.Struct(">bbqi").pack  # magic, attributes, timestamp, key length
_pack_keyless_0 = struct.Struct(">bbii").pack  # the same and the value length
_pack_keyless_1 = struct.Struct(">bbqii").pack


def _encode(
    magic: int, attributes: int, timestamp_ms: int, key: Buffer | None, value: Buffer | None
) -> bytes:
    """Return a message from its magic byte on: the bytes that the CRC covers."""
    if key is None and value is not None:
        if magic == 0:
            return _pack_keyless_0(0, attributes, -1, len(value)) + value
        return _pack_keyless_1(1, attributes, timestamp_ms, -1, len(value)) + value
    key_size = -1 if key is None else len(key)
    if magic == 0:
        head = _pack_body_0(0, attributes, key_size)
    else:
        head = _pack_body_1(1, attributes, timestamp_ms, key_size)
    value_size = _pack_int32(-1 if value is None else len(value))
    return b"".join((head, key or b"", value_size, value or b""))


class MessageSetBuilder:
    """Append messages in wire format; `build()` returns the message set.

    All messages are in one buffer, so a batch takes the memory of its wire format.

    Args:
        magic: the message format, 0 or 1. Format 0 drops the timestamps.
        codec: with any codec but NONE `build()` returns one wrapper, a message whose value is the
            compressed set.
    """

    __slots__ = ("_buffer", "_count", "codec", "magic", "max_timestamp_ms", "size_bytes")

    def __init__(self, magic: int, codec: Codec = Codec.NONE) -> None:
        self.magic = magic
        self.codec = codec
        self.size_bytes = 0
        """The size of the set before compression."""
        self.max_timestamp_ms = -1
        """The highest timestamp appended; -1 in format 0."""
        self._buffer = bytearray()  # the set before compression, offsets counted from 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, key: Buffer | None, value: Buffer | None, timestamp_ms: int) -> None:
        """Append a message; format 0 ignores `timestamp_ms`."""
        buffer, count = self._buffer, self._count
        body = _encode(self.magic, 0, timestamp_ms, key, value)
        buffer += _pack_head(count, len(body) + 4, crc32(body))
        buffer += body
        self._count = count + 1
        self.size_bytes = len(buffer)
        if timestamp_ms > self.max_timestamp_ms and self.magic:
            self.max_timestamp_ms = timestamp_ms

    def extend(
        self,
        keys: Sequence[Buffer | None] | None,
        values: Sequence[Buffer | None],
        timestamps_ms: Sequence[int] | int,
        start: int,
        limit_bytes: int,
    ) -> int:
        """Append messages from index `start` on while `size_bytes` stays within `limit_bytes`.

        An empty builder takes its first message whatever the size. Return the index after the
        last message appended.
        """
        magic, buffer, count = self.magic, self._buffer, self._count
        newest = self.max_timestamp_ms
        timestamp = timestamps_ms if isinstance(timestamps_ms, int) else -1
        all_timestamps = None if isinstance(timestamps_ms, int) else timestamps_ms
        limit_bytes -= BODY_AT
        try:
            for index in range(start, len(values)):
                if all_timestamps is not None:
                    timestamp = all_timestamps[index]
                key = None if keys is None else keys[index]
                body = _encode(magic, 0, timestamp, key, values[index])
                if len(buffer) + len(body) > limit_bytes and count:
                    return index
                buffer += _pack_head(count, len(body) + 4, crc32(body))
                buffer += body
                count += 1
                if timestamp > newest:
                    newest = timestamp
        finally:
            self._count, self.size_bytes = count, len(buffer)
            self.max_timestamp_ms = newest if magic else -1
        return len(values)

    def build(self) -> Buffer:
        """Return the message set, with offsets from 0 on (the broker assigns the real ones).

        Compression may take long; the caller may run this in another thread, as long as it appends
        nothing meanwhile.

        If nothing was appended, the set is empty even with a codec. A wrapper without messages
        would be wrong: a broker would report it as stored (docs/brokers.md 6.8).
        """
        if self.codec is Codec.NONE or not self._count:
            return bytes(self._buffer)
        fields = _encode(self.magic, self.codec, self.max_timestamp_ms, None, b"")[:-4]
        value_at = BODY_AT + len(fields) + 4
        wrapper = compress_behind(self.codec, self._buffer, magic=self.magic, room=value_at)
        with wrapper.getbuffer() as entry:
            entry[BODY_AT:value_at] = fields + _pack_int32(len(entry) - value_at)
            body = entry[BODY_AT:]
            entry[:BODY_AT] = _pack_head(self._count - 1, len(body) + 4, crc32(body))
            body.release()
        return wrapper.getvalue()

    def split(self) -> tuple[MessageSetBuilder, MessageSetBuilder]:
        """Return builders of the first and the second half; there must be at least two messages."""
        bodies = list(self._bodies())
        middle = len(bodies) // 2
        return self._part(bodies[:middle], self.magic), self._part(bodies[middle:], self.magic)

    def key_lengths(self) -> tuple[int, int]:
        """Return the lengths of the shortest and the longest key in bytes; no key counts as -1."""
        key_at = 2 if self.magic == 0 else 10
        lengths = [_unpack_int32(body, key_at)[0] for body in self._bodies()]
        return min(lengths, default=-1), max(lengths, default=-1)

    def as_format_0(self) -> MessageSetBuilder:
        """Return a builder of the same messages in format 0, without timestamps."""
        bodies = self._bodies()
        if self.magic:
            bodies = (b"\x00" + body[1:2] + body[10:] for body in bodies)
        return self._part(bodies, 0)

    def _bodies(self) -> Iterator[bytes]:
        """Yield each message from its magic byte on."""
        data = bytes(self._buffer)
        pos = 0
        while pos < len(data):
            stop = pos + ENTRY_HEADER_BYTES + _unpack_int32(data, pos + 8)[0]
            yield data[pos + BODY_AT : stop]
            pos = stop

    def _part(self, bodies: Iterable[bytes], magic: int) -> MessageSetBuilder:
        part = MessageSetBuilder(magic, self.codec)
        for count, body in enumerate(bodies):
            part._buffer += _pack_head(count, len(body) + 4, crc32(body))
            part._buffer += body
            part._count = count + 1
            if magic:
                timestamp = _unpack_timestamp(body, 2)[0]
                part.max_timestamp_ms = max(part.max_timestamp_ms, timestamp)
        part.size_bytes = len(part._buffer)
        return part
