"""Message sets: build right and wrong ones, and read those of a response.

The compressed data that it builds has only literals and stored blocks, which each decoder reads.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import cramjam

_SNAPPY_CODEC, _LZ4_CODEC = 2, 3
_XERIAL = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
_LZ4_MAGIC = 0x184D2204
CODECS = {
    "gzip": 1,
    "xerial": 2,
    "snappy": 2,
    "lz4": 3,
    "legacy-lz4": 3,
    "codec-4": 4,
    "codec-7": 7,
}
"""Ways to compress → the codec's number. The last two are codecs that no broker knows."""


class Repeat(NamedTuple):
    """A text or value that would be too long to print."""

    text: str
    times: int

    def __bytes__(self) -> bytes:
        return (self.text * self.times).encode()


Data = bytes | Repeat | None


class _Spec:
    """A dataclass whose `repr` leaves out defaults."""

    def __repr__(self) -> str:
        parts = []
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if value != field.default:
                parts.append(f"{field.name}={value!r}")
        return f"{type(self).__name__}({', '.join(parts)})"


@dataclass(frozen=True, repr=False)
class Msg(_Spec):
    """A plain message. `crc` is XORed into the right one; sizes other than None are false ones."""

    value: Data = b"x"
    key: Data = None
    magic: int = 0
    attributes: int = 0
    timestamp: int = -1
    offset: int = 0
    crc: int = 0
    key_size: int | None = None
    value_size: int | None = None
    size: int | None = None

    def encode(self) -> bytes:
        return entry(
            self.offset,
            _body(self, self.attributes, _plain(self.value)),
            crc=self.crc,
            size=self.size,
        )


@dataclass(frozen=True, repr=False)
class Wrap(_Spec):
    """A wrapper: `codec` is one of `CODECS`. `payload` replaces the compressed messages."""

    codec: str = "gzip"
    messages: tuple[Any, ...] = ()
    key: Data = None
    magic: int = 0
    attributes: int = 0
    """Bits beside those of the codec."""
    timestamp: int = -1
    offset: int = 0
    crc: int = 0
    cut: int = 0
    """How many bytes are missing at the end of the messages inside."""
    payload: Data = b""
    key_size: int | None = None
    value_size: int | None = None
    size: int | None = None

    def encode(self) -> bytes:
        inner = b"".join(message.encode() for message in self.messages)
        if self.cut:
            inner = inner[: -self.cut]
        data = _compress(self.codec, inner) if self.payload == b"" else _plain(self.payload)
        body = _body(self, CODECS[self.codec] | self.attributes, data)
        return entry(self.offset, body, crc=self.crc, size=self.size)


@dataclass(frozen=True, repr=False)
class MessageSet(_Spec):
    """Messages and wrappers; `cut` bytes are missing at the end, then comes `tail`."""

    messages: tuple[Any, ...] = ()
    cut: int = 0
    tail: bytes = b""

    def encode(self) -> bytes:
        data = b"".join(message.encode() for message in self.messages)
        return (data[: -self.cut] if self.cut else data) + self.tail


def entry(offset: int, body: bytes, crc: int = 0, size: int | None = None) -> bytes:
    """Return an entry: offset, size, CRC, and the message behind its CRC."""
    checksum = struct.pack(">I", zlib.crc32(body) ^ crc)
    return struct.pack(">qi", offset, len(body) + 4 if size is None else size) + checksum + body


def _plain(data: Data) -> bytes | None:
    return bytes(data) if isinstance(data, Repeat) else data


def _body(message: Msg | Wrap, attributes: int, value: bytes | None) -> bytes:
    head = struct.pack(">bB", message.magic, attributes)
    if message.magic == 1:
        head += struct.pack(">q", message.timestamp)
    return head + _sized(_plain(message.key), message.key_size) + _sized(value, message.value_size)


def _sized(data: bytes | None, size: int | None) -> bytes:
    announced = (-1 if data is None else len(data)) if size is None else size
    return struct.pack(">i", announced) + (data or b"")


# --- codecs ---------------------------------------------------------------------------------------


def _compress(codec: str, data: bytes) -> bytes:
    match codec:
        case "gzip":
            packer = zlib.compressobj(1, zlib.DEFLATED, 31)
            return packer.compress(data) + packer.flush()
        case "snappy":
            return _snappy(data)
        case "xerial":
            block = _snappy(data)
            return _XERIAL + struct.pack(">i", len(block)) + block
        case "lz4" | "legacy-lz4":
            return _lz4(data, legacy=codec == "legacy-lz4")
    return data


def _snappy(data: bytes) -> bytes:
    size, out = len(data), bytearray()
    while size >= 0x80:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    out.append(size)
    for at in range(0, len(data), 0x10000):
        part = data[at : at + 0x10000]
        out += b"\xf4" + struct.pack("<H", len(part) - 1) + part  # a literal, its length in 2 bytes
    return bytes(out)


def _lz4(data: bytes, *, legacy: bool) -> bytes:
    head = b"\x60\x40"  # version 1, independent blocks; blocks of 64 KiB
    magic = struct.pack("<I", _LZ4_MAGIC)
    checksum = _xxh32(magic + head if legacy else head) >> 8 & 0xFF
    out = bytearray(magic + head + bytes([checksum]))
    for at in range(0, len(data), 0x10000):
        part = data[at : at + 0x10000]
        out += struct.pack("<I", len(part) | 0x80000000) + part  # a stored block
    return bytes(out + bytes(4))


def _xxh32(data: bytes) -> int:
    """Return xxHash32 of fewer than 16 bytes, with the seed 0."""
    first, second, third, fourth, fifth = (
        0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1
    )  # fmt: skip
    mask = 0xFFFFFFFF
    value, at = (fifth + len(data)) & mask, 0
    while len(data) - at >= 4:
        value = value + int.from_bytes(data[at : at + 4], "little") * third & mask
        value = ((value << 17 | value >> 15) & mask) * fourth & mask
        at += 4
    for byte in data[at:]:
        value = value + byte * fifth & mask
        value = ((value << 11 | value >> 21) & mask) * first & mask
    value = (value ^ value >> 15) * second & mask
    value = (value ^ value >> 13) * third & mask
    return value ^ value >> 16


def _decompress(codec: int, data: bytes) -> tuple[str, bytes]:
    """Return the variant of the compressed data, and what is in it."""
    if codec == 1:
        return "gzip", zlib.decompress(data, 47)
    if codec == _SNAPPY_CODEC:
        if not data.startswith(_XERIAL[:8]):
            return "snappy", bytes(cramjam.snappy.decompress_raw(data))
        at, out = 16, b""
        while at < len(data):
            (size,) = struct.unpack_from(">i", data, at)
            out += bytes(cramjam.snappy.decompress_raw(data[at + 4 : at + 4 + size]))
            at += 4 + size
        return "xerial", out
    if codec == _LZ4_CODEC:
        head = 14 if data[4] & 8 else 6
        legacy = data[head] == _xxh32(data[:head]) >> 8 & 0xFF
        right = _xxh32(data[4:head]) >> 8 & 0xFF
        frame = data[:head] + bytes([right]) + data[head + 1 :]
        return ("legacy-lz4" if legacy else "lz4"), bytes(cramjam.lz4.decompress(frame))
    raise ValueError(f"codec {codec}")


# --- reading --------------------------------------------------------------------------------------


def read_set(data: bytes, depth: int = 0) -> list[Any]:
    """Return the entries of a set as comparable values; a wrapper has its messages inside.

    The sizes of compressed data aren't part of the result: implementations of a codec differ.
    """
    found: list[Any] = []
    pos = 0
    while len(data) - pos >= 12:
        offset, size = struct.unpack_from(">qi", data, pos)
        if size < 14 or size > len(data) - pos - 12:
            break
        found.append(_read_entry(offset, data[pos + 12 : pos + 12 + size], depth))
        pos += 12 + size
    if pos < len(data):
        found.append({"cut": len(data) - pos})
    return found


def _read_entry(offset: int, message: bytes, depth: int) -> dict[str, Any]:
    checksum, magic, attributes = struct.unpack_from(">IbB", message, 0)
    entry: dict[str, Any] = {"offset": offset}
    if magic:
        entry["magic"] = magic
    if attributes:
        entry["attributes"] = attributes
    if checksum != zlib.crc32(message[4:]):
        entry["crc"] = "wrong"
    pos = start = 6
    if magic == 1 and len(message) >= 22:
        entry["timestamp"] = struct.unpack_from(">q", message, 6)[0]
        pos = start = 14
    try:
        key, pos = _read_sized(message, pos)
        value, pos = _read_sized(message, pos)
    except (struct.error, ValueError):
        return entry | {"message": message[start:]}
    if key is not None:
        entry["key"] = key
    if attributes & 7 and value is not None and depth < 60:
        try:
            variant, inner = _decompress(attributes & 7, value)
            return entry | {"codec": variant, "messages": read_set(inner, depth + 1)}
        except (ValueError, IndexError, struct.error, zlib.error, cramjam.DecompressionError):
            pass
    entry["value"] = value
    if pos < len(message):
        entry["behind"] = message[pos:]
    return entry


def _read_sized(message: bytes, pos: int) -> tuple[bytes | None, int]:
    (size,) = struct.unpack_from(">i", message, pos)
    pos += 4
    if size < 0:
        return None, pos
    if size > len(message) - pos:
        raise ValueError(f"a field of {size} bytes")
    return message[pos : pos + size], pos + size
