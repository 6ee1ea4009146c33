"""Compression of message sets: gzip, snappy (xerial and raw) and lz4, in Kafka's framings.

The builders `compress` a message set into the value of a wrapper message; the readers `decompress`
that value. The builders and readers (see `message_set`), not this module, handle wrappers, offsets
and CRCs, and turn the errors of this module into public ones. `decompress` accepts what the
Java consumer accepts.

Invariants: whatever the compressed bytes are, `decompress` allocates at most about twice its
`limit` (for lz4 4 MiB more), since it checks each length before it allocates. The bytes cause no
errors but `CorruptCompressedData` and `DecompressedTooLarge`.
"""

from __future__ import annotations

import struct
import sys
import zlib
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Final, assert_never

try:
    import cramjam
    import snappy

    _missing: str | None = None
except ModuleNotFoundError as error:
    # Both are dependencies, but a Spark executor that gets this package as a zip of its sources has
    # neither. The package must work there too, as long as messages are uncompressed or gzip.
    _missing = error.name or "python-snappy"

__all__ = [
    "Codec",
    "CorruptCompressedData",
    "DecompressedTooLarge",
    "compress",
    "decompress",
]


class Codec(IntEnum):
    """The codec of a wrapper: bits 0-2 of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    """Brokers support it from 0.8.2 on."""


class CorruptCompressedData(ValueError):
    """The data isn't in its codec's format, or is cut off."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class DecompressedTooLarge(ValueError):
    """The data decompresses to more than `limit` bytes."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"more than {limit} bytes once decompressed")
        self.limit = limit


def compress(codec: Codec, data: bytes | bytearray | memoryview, *, magic: int = 0) -> bytes:
    """Compress a message set into the value of a wrapper message.

    The same data always gives the same bytes.

    Args:
        codec: the codec; `Codec.NONE` copies the data.
        data: contiguous bytes.
        magic: message format of the wrapper. It decides the header checksum of an lz4 frame.
            Kafka before 0.10 computed that checksum wrongly. Brokers below 0.10 accept only the
            wrong checksum; brokers from 0.10 on expect the wrong one in format 0 and the right one
            in format 1 (KAFKA-3160).

    Raises:
        ModuleNotFoundError: python-snappy or cramjam isn't installed, and the codec needs it.
    """
    _require_library(codec)
    view = memoryview(data).cast("B")
    match codec:
        case Codec.NONE:
            return bytes(view)
        case Codec.GZIP:
            # zlib's own gzip header: no name, mtime 0.
            return zlib.compress(view, level=_GZIP_LEVEL, wbits=_GZIP_WBITS)
        case Codec.SNAPPY:
            return b"".join(_snappy_stream(view))
        case Codec.LZ4:
            return b"".join(_lz4_frame(view, magic))
        case _:
            assert_never(codec)


def decompress(codec: Codec, data: bytes | bytearray | memoryview, limit: int) -> bytes:
    """Decompress the value of a wrapper message.

    Whatever the data is, this allocates at most about twice `limit` bytes, and 4 MiB more for lz4
    (its largest block).

    Args:
        codec: the codec; `Codec.NONE` copies the data.
        data: contiguous bytes. As in Java some bytes are ignored: those after a gzip member that
            don't begin another one, those after the end mark of an lz4 frame, and up to three
            after the last snappy block.
        limit: the highest size of the result.

    Raises:
        CorruptCompressedData: the data is malformed or cut off.
        DecompressedTooLarge: the data decompresses to more than `limit` bytes.
        ModuleNotFoundError: python-snappy or cramjam isn't installed, and the codec needs it.
    """
    decoder = _DECODERS.get(codec)
    if decoder is None:
        raise CorruptCompressedData(f"unknown codec {codec}")
    _require_library(codec)
    try:
        return decoder(memoryview(data).cast("B"), limit)
    except MemoryError:  # the limit is higher than this machine's memory
        raise DecompressedTooLarge(limit) from None


def _require_library(codec: Codec) -> None:
    if _missing is not None and codec in (Codec.SNAPPY, Codec.LZ4):
        raise ModuleNotFoundError(
            f"codec {codec.name.lower()}: no module named {_missing!r}. Install python-snappy and "
            "cramjam",
            name=_missing,
        )


def _copy(data: memoryview, limit: int) -> bytes:
    if len(data) > limit:
        raise DecompressedTooLarge(limit)
    return bytes(data)


# --- gzip ---

_GZIP_LEVEL: Final = 6  # Java's default
_GZIP_WBITS: Final = 31  # 16: with gzip header and trailer; 15: the full window
_GZIP_MEMBER: Final = b"\x1f\x8b\x08"
_GZIP_STRAY_BYTES: Final = 18  # Java's GZIPInputStream ignores up to 18 bytes after a member
_FIRST_STEP_BYTES: Final = 512


def _gunzip(data: memoryview, limit: int) -> bytes:
    pieces: list[bytes] = []
    remaining = limit
    position = 0
    # zlib copies the input after a member to `unused_data`. With thousands of tiny members, passing
    # all the remaining input for each would therefore take quadratic time. The first member gets
    # the whole input, since one is the usual case; those after it get growing steps.
    step = len(data)
    while True:
        member = zlib.decompressobj(wbits=_GZIP_WBITS)
        while not member.eof:
            if position >= len(data):
                raise CorruptCompressedData("gzip data is cut off")
            part = data[position : position + step]
            try:
                piece = member.decompress(part, min(remaining, sys.maxsize - 1) + 1)
            except zlib.error as error:
                raise CorruptCompressedData(f"gzip: {error}") from None
            if len(piece) > remaining:
                raise DecompressedTooLarge(limit)
            if piece:
                pieces.append(piece)
                remaining -= len(piece)
            # The output had room left, so zlib has read the whole part, or up to the member's end.
            position += len(part) - len(member.unused_data)
            step *= 2
        if (
            len(data) - position <= _GZIP_STRAY_BYTES
            or bytes(data[position : position + len(_GZIP_MEMBER)]) != _GZIP_MEMBER
        ):
            return b"".join(pieces)
        step = _FIRST_STEP_BYTES


# --- snappy ---

# The format of snappy-java's SnappyOutputStream, which brokers store: magic, version and lowest
# compatible version, then blocks, each after its size.
_XERIAL_MAGIC: Final = b"\x82SNAPPY\0"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_UINT32_BIG: Final = struct.Struct(">I")


def _snappy_stream(data: memoryview) -> Iterator[bytes]:
    yield _XERIAL_HEADER
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block: bytes = snappy.compress(data[start : start + _XERIAL_BLOCK_BYTES])
        yield _UINT32_BIG.pack(len(block))
        yield block


def _unsnappy(data: memoryview, limit: int) -> bytes:
    # A raw block can't begin with the magic: the first two bytes would be the size, and the next
    # would begin an element that copies earlier output, of which there is none yet.
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _unsnappy_block(data, limit, limit)
    plain = bytearray()
    position = 0
    while position < len(data):
        # Streams may follow one another, as in snappy-java. The two version numbers aren't checked:
        # some clients write them in little-endian, and brokers accept both.
        if bytes(data[position : position + len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC:
            position += len(_XERIAL_HEADER)
            if position > len(data):
                raise CorruptCompressedData("snappy: the xerial header is cut off")
            continue
        if len(data) - position < _UINT32_BIG.size:
            break  # snappy-java ignores these bytes too
        (size,) = _UINT32_BIG.unpack_from(data, position)
        position += _UINT32_BIG.size
        if size > len(data) - position:
            raise CorruptCompressedData(
                f"snappy: a block of {size} bytes; expected <= {len(data) - position}"
            )
        block = data[position : position + size]
        plain += _unsnappy_block(block, limit - len(plain), limit)
        position += size
    return bytes(plain)


def _unsnappy_block(block: memoryview, remaining: int, limit: int) -> bytes:
    size = _snappy_size(block)
    # The library allocates the size that the block states before it reads on, and aborts the
    # process if that fails. The densest element makes 64 bytes out of 3.
    if size > len(block) * 64 // 3:
        raise CorruptCompressedData(f"snappy: a block of {len(block)} bytes claims to hold {size}")
    if size > remaining:
        raise DecompressedTooLarge(limit)
    try:
        piece: bytes = snappy.decompress(block)
    except MemoryError:
        raise
    except Exception:  # UncompressError here; the library's other backends raise other errors
        raise CorruptCompressedData("snappy: malformed block") from None
    return piece


def _snappy_size(block: memoryview) -> int:
    """Return the decompressed size of a raw block: a varint of at most 32 bits at its start."""
    size = 0
    for index, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return size
    raise CorruptCompressedData("snappy: no size at the start of a block")


# --- lz4 ---

# The LZ4 frame format as KafkaLZ4BlockOutputStream writes it: version 1, independent blocks of
# at most 64 KiB, no checksums and no content size. Kafka before 0.10 computed the header checksum
# over magic and descriptor (0x1a); the format requires the descriptor only (0x82) (KAFKA-3160).
_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_HEADER_FORMAT_0: Final = _LZ4_MAGIC + b"\x60\x40\x1a"
_LZ4_HEADER: Final = _LZ4_MAGIC + b"\x60\x40\x82"
_LZ4_BLOCK_BYTES: Final = 64 * 1024
_LZ4_STORED: Final = 0x80000000
_LZ4_END_MARK: Final = bytes(4)
_UINT32_LITTLE: Final = struct.Struct("<I")

_LZ4_VERSION: Final = 0b01 << 6
_LZ4_VERSION_BITS: Final = 0b11 << 6
_LZ4_INDEPENDENT_BLOCKS: Final = 1 << 5
_LZ4_BLOCK_CHECKSUM: Final = 1 << 4
_LZ4_CONTENT_SIZE: Final = 1 << 3
_LZ4_CONTENT_CHECKSUM: Final = 1 << 2
_LZ4_DICTIONARY: Final = 1 << 0
_LZ4_RESERVED_FLAGS: Final = 1 << 1
_LZ4_RESERVED_BLOCK_BITS: Final = 0b1000_1111


def _lz4_frame(data: memoryview, magic: int) -> Iterator[bytes | memoryview]:
    yield _LZ4_HEADER if magic else _LZ4_HEADER_FORMAT_0
    for start in range(0, len(data), _LZ4_BLOCK_BYTES):
        plain = data[start : start + _LZ4_BLOCK_BYTES]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        if len(block) < len(plain):
            yield _UINT32_LITTLE.pack(len(block))
            yield block
        else:
            yield _UINT32_LITTLE.pack(len(plain) | _LZ4_STORED)
            yield plain
    yield _LZ4_END_MARK


def _unlz4(data: memoryview, limit: int) -> bytes:
    flags, block_max, position = _lz4_header(data)
    # The checksums of header, blocks and content are skipped, and so is the content size. The
    # message's CRC covers the frame, so these checksums could only detect a bug in the writer.
    # Besides, some writers' header checksum is wrong (KAFKA-3160), and xxh32 in Python would take
    # far longer than the decompression. Java also skips the content checksum and the content size.
    after_block = 4 if flags & _LZ4_BLOCK_CHECKSUM else 0
    # One scratch buffer for all blocks; a byte of lz4 decompresses to at most 255.
    scratch = memoryview(bytearray(min(block_max, 255 * len(data))))
    plain = bytearray()
    while True:
        if len(data) - position < _UINT32_LITTLE.size:
            raise CorruptCompressedData("lz4: cut off, there is no end mark")
        (word,) = _UINT32_LITTLE.unpack_from(data, position)
        position += _UINT32_LITTLE.size
        size = word & ~_LZ4_STORED
        if not size:  # the end mark; Java accepts 0x80000000 as one too
            break
        if size > block_max:
            raise CorruptCompressedData(
                f"lz4: a block of {size} bytes; expected at most {block_max}"
            )
        if size > len(data) - position:
            raise CorruptCompressedData(
                f"lz4: a block of {size} bytes; expected <= {len(data) - position}"
            )
        block = data[position : position + size]
        if not word & _LZ4_STORED:
            try:  # cramjam >= 2.11 returns the size of the decompressed block
                block = scratch[: cramjam.lz4.decompress_block_into(block, scratch)]
            except cramjam.DecompressionError:
                raise CorruptCompressedData(
                    f"lz4: malformed block, or more than {block_max} bytes in it"
                ) from None
        if len(block) > limit - len(plain):
            raise DecompressedTooLarge(limit)
        plain += block
        position += size + after_block
    if flags & _LZ4_CONTENT_CHECKSUM and len(data) - position < 4:
        raise CorruptCompressedData("lz4: the content checksum is cut off")
    return bytes(plain)


def _lz4_header(data: memoryview) -> tuple[int, int, int]:
    """Check the frame header; return its flags, the block size limit, and where blocks begin."""
    if len(data) < len(_LZ4_HEADER):
        raise CorruptCompressedData("lz4: the header is cut off")
    if bytes(data[: len(_LZ4_MAGIC)]) != _LZ4_MAGIC:
        raise CorruptCompressedData("lz4: not a frame (wrong magic number)")
    flags, block_bits = data[4], data[5]
    if flags & _LZ4_VERSION_BITS != _LZ4_VERSION:
        raise CorruptCompressedData(f"lz4: frame version {flags >> 6}; expected 1")
    if not flags & _LZ4_INDEPENDENT_BLOCKS:
        raise CorruptCompressedData("lz4: linked blocks; expected independent ones")
    if flags & _LZ4_DICTIONARY:
        raise CorruptCompressedData("lz4: it needs a dictionary; Kafka has none")
    size_code = block_bits >> 4
    if flags & _LZ4_RESERVED_FLAGS or block_bits & _LZ4_RESERVED_BLOCK_BITS or size_code < 4:
        raise CorruptCompressedData(f"lz4: bad frame descriptor {flags:02x} {block_bits:02x}")
    begin = len(_LZ4_HEADER) + (8 if flags & _LZ4_CONTENT_SIZE else 0)
    return flags, 1 << (8 + 2 * size_code), begin  # 64 KiB, 256 KiB, 1 MiB or 4 MiB


_DECODERS: Final[dict[Codec, Callable[[memoryview, int], bytes]]] = {
    Codec.NONE: _copy,
    Codec.GZIP: _gunzip,
    Codec.SNAPPY: _unsnappy,
    Codec.LZ4: _unlz4,
}
