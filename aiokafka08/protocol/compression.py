"""Compression in Kafka's framings: gzip, snappy (xerial and raw), lz4; zstd in batches only.

`decompress` accepts the same bytes as the Java consumer. Both directions may run in any thread, and
hold the GIL for less than a millisecond at a time, because the libraries release it and the results
grow in place (`_Output`).

Invariants: whatever the compressed bytes are, `decompress` allocates at most about twice its
`limit` (for lz4 4 MiB more), since it checks each length before it allocates. The bytes cause no
errors but `CorruptCompressedData` and `DecompressedTooLarge`.
"""

from __future__ import annotations

import io
import struct
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from typing import Final, assert_never

__all__ = [
    "LONG_COMPRESS_BYTES",
    "LONG_DECOMPRESS_BYTES",
    "BatchCodec",
    "Codec",
    "CorruptCompressedData",
    "DecompressedTooLarge",
    "compress",
    "compress_records_behind",
    "decompress",
    "decompress_records",
    "decompress_unless_long",
]


class Codec(IntEnum):
    """The codec of a wrapper: bits 0-2 of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3  # brokers support it from 0.8.2 on


class BatchCodec(IntEnum):
    """The codec of a record batch: bits 0-2 of its attributes. The first four are `Codec`'s."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4  # brokers support it from 2.1 on; a wrapper can't have it (KIP-110)


LONG_COMPRESS_BYTES: Final = {
    Codec.GZIP: 64 * 1024,
    Codec.SNAPPY: 1024 * 1024,
    Codec.LZ4: 1024 * 1024,
}
"""Compressing more than this takes 0.6 ms or more, so handing it to a thread, which costs 0.1 ms,
pays off (docs/performance.md)."""

LONG_DECOMPRESS_BYTES: Final = {
    Codec.NONE: sys.maxsize,
    Codec.GZIP: 256 * 1024,
    Codec.SNAPPY: 1024 * 1024,
    Codec.LZ4: 1024 * 1024,
}
"""The same for decompressing to more than this."""


class CorruptCompressedData(ValueError):
    """The data isn't in its codec's format, or is cut off."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class DecompressedTooLarge(ValueError):
    """The data decompresses to more than `limit` bytes."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"more than {limit} bytes once decompressed")


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
        ModuleNotFoundError: python-snappy or cramjam is missing; gzip and NONE need neither.
    """
    return compress_behind(codec, data, magic=magic, room=0).getvalue()


def compress_behind(
    codec: Codec, data: bytes | bytearray | memoryview, *, magic: int, room: int
) -> io.BytesIO:
    """Do what `compress` does, but leave `room` bytes before the result for the caller to fill."""
    _require_library(codec)
    view = memoryview(data).cast("B")
    match codec:
        case Codec.NONE:
            return _Output(room + len(view), room).append(view).ended()
        case Codec.GZIP:
            return _gzip(view, room)
        case Codec.SNAPPY:
            return _snappy_stream(view, room)
        case Codec.LZ4:
            return _lz4_frame(view, magic, room)
        case _:
            assert_never(codec)


def compress_records_behind(
    codec: BatchCodec, data: bytes | bytearray | memoryview, *, room: int
) -> io.BytesIO:
    """Compress the records of a batch; leave `room` bytes before them for the caller to fill.

    Raises:
        ModuleNotFoundError: as `compress`.
    """
    if codec is not BatchCodec.ZSTD:
        return compress_behind(Codec(codec), data, magic=2, room=room)
    _require_library(codec)
    return _zstd(memoryview(data).cast("B"), room)


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
        ModuleNotFoundError: python-snappy or cramjam is missing; gzip and NONE need neither.
    """
    return _decode(_DECODERS, codec, data, limit)


def decompress_records(
    codec: BatchCodec | int, data: bytes | bytearray | memoryview, limit: int
) -> bytes:
    """Decompress the records of a batch; as `decompress`, with zstd.

    For zstd the memory beyond `limit` is the frame's window, of at most 128 MiB of address space;
    only what is decompressed becomes resident.
    """
    return _decode(_BATCH_DECODERS, codec, data, limit)


def _decode(
    decoders: Mapping[int, _Decoder],
    codec: int,
    data: bytes | bytearray | memoryview,
    limit: int,
) -> bytes:
    decoder = decoders.get(codec)
    if decoder is None:
        raise CorruptCompressedData(f"unknown codec {int(codec)}")
    _require_library(codec)
    try:
        return decoder(memoryview(data).cast("B"), limit).getvalue()
    except MemoryError:  # the limit is higher than this machine's memory
        raise DecompressedTooLarge(limit) from None


def decompress_unless_long(
    codec: Codec, data: bytes | bytearray | memoryview, limit: int
) -> bytes | None:
    """Do what `decompress` does, but return None if that takes long (`LONG_DECOMPRESS_BYTES`).

    Wrong sizes in the data don't make this take longer.
    """
    short = LONG_DECOMPRESS_BYTES.get(codec, sys.maxsize)
    if limit > short:
        view = memoryview(data).cast("B")
        if len(view) > short or (codec is Codec.GZIP and short < _gzip_size(view) <= limit):
            return None
    try:
        return decompress(codec, data, min(limit, short))
    except DecompressedTooLarge:
        if limit <= short:
            raise
        return None


def _require_library(codec: int) -> None:
    """Import python-snappy and cramjam, unless the codec needs neither.

    They are imported on first use, because this takes as long as six modules of this package and
    many programs don't need them. Both are dependencies, but a Spark executor that gets
    this package as a zip of its sources has neither. The package must work there too, as long as
    messages are uncompressed or gzip.
    """
    if codec in (Codec.NONE, Codec.GZIP):
        return
    try:
        import cramjam  # noqa: F401
        import snappy  # noqa: F401
    except ModuleNotFoundError as error:
        missing = error.name or "python-snappy"
        raise ModuleNotFoundError(
            f"codec {BatchCodec(codec).name.lower()}: no module named {missing!r}. Install "
            "python-snappy and cramjam",
            name=missing,
        ) from None


class _Output(io.BytesIO):
    """The bytes of a result, written one piece after the other.

    Memory that is reserved beforehand becomes resident only when it is written, because
    `bytes(size)` is lazily zeroed. BytesIO takes it over, since nothing else refers to it, so
    `getvalue()` returns it without a copy.
    """

    def __init__(self, expected_size: int, room: int = 0) -> None:
        super().__init__(bytes(expected_size))
        self.size = room  # how many bytes are written, the room in front included
        self.seek(room)

    def append(self, piece: bytes | memoryview) -> _Output:
        """Write a piece; return self."""
        self.size += self.write(piece)
        return self

    def ended(self) -> _Output:
        """Drop the memory after the bytes that are written; return self."""
        self.truncate(self.size)
        return self


def _copy(data: memoryview, limit: int) -> io.BytesIO:
    if len(data) > limit:
        raise DecompressedTooLarge(limit)
    return _Output(len(data)).append(data)


# --- gzip ---

_GZIP_LEVEL: Final = 6  # Java's default
_GZIP_WBITS: Final = 31  # 16: with gzip header and trailer; 15: the full window
_GZIP_MEMBER: Final = b"\x1f\x8b\x08"
_GZIP_STRAY_BYTES: Final = 18  # Java's GZIPInputStream ignores up to 18 bytes after a member
_GZIP_DENSEST: Final = 1032  # how many bytes a byte of deflate decompresses to at most
_FIRST_STEP_BYTES: Final = 512
_INPUT_STEP_BYTES: Final = 64 * 1024
# The size of zlib's steps, since zlib joins the result of one call while it holds the GIL
_OUTPUT_STEP_BYTES: Final = 256 * 1024


def _gzip(data: memoryview, room: int) -> io.BytesIO:
    # zlib's own gzip header: no name, mtime 0.
    deflate = zlib.compressobj(_GZIP_LEVEL, wbits=_GZIP_WBITS)
    output = _Output(room, room)
    for start in range(0, len(data), _OUTPUT_STEP_BYTES):
        output.append(deflate.compress(data[start : start + _OUTPUT_STEP_BYTES]))
    return output.append(deflate.flush())


def _gunzip(data: memoryview, limit: int) -> io.BytesIO:
    output = _Output(min(_gzip_size(data), _GZIP_DENSEST * len(data), limit))
    position = 0
    # zlib copies the input that it hasn't read, at the end of a member and at the end of each
    # output step. So it gets the input in parts: the first member in large ones, since one member
    # is the usual case; those after it in growing ones, since thousands of tiny members would
    # otherwise take quadratic time.
    step = _INPUT_STEP_BYTES
    while True:
        member = zlib.decompressobj(wbits=_GZIP_WBITS)
        while not member.eof:
            if position >= len(data):
                raise CorruptCompressedData("gzip data is cut off")
            part = data[position : position + step]
            _inflate(member, part, output, limit)
            position += len(part) - len(member.unused_data)
            step = min(2 * step, _INPUT_STEP_BYTES)
        if (
            len(data) - position <= _GZIP_STRAY_BYTES
            or bytes(data[position : position + len(_GZIP_MEMBER)]) != _GZIP_MEMBER
        ):
            return output.ended()
        step = _FIRST_STEP_BYTES


def _inflate(
    member: zlib._Decompress, part: bytes | memoryview, output: _Output, limit: int
) -> None:
    """Decompress a part of the input, up to its end or the member's."""
    while True:
        step = min(limit - output.size + 1, _OUTPUT_STEP_BYTES)
        try:
            piece = member.decompress(part, step)
        except zlib.error as error:
            raise CorruptCompressedData(f"gzip: {error}") from None
        if len(piece) > limit - output.size:
            raise DecompressedTooLarge(limit)
        output.append(piece)
        if member.eof or len(piece) < step:  # else there may be more output, or unread input
            return
        part = member.unconsumed_tail


def _gzip_size(data: memoryview) -> int:
    """Return the size of the plain data that the trailer states; a hint that may be wrong."""
    if len(data) < _UINT32_LITTLE.size:
        return 0
    (size,) = _UINT32_LITTLE.unpack_from(data, len(data) - _UINT32_LITTLE.size)
    return int(size)


# --- snappy ---

# The format of snappy-java's SnappyOutputStream, which brokers store: magic, version and lowest
# compatible version, then blocks, each after its size.
_XERIAL_MAGIC: Final = b"\x82SNAPPY\0"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_UINT32_BIG: Final = struct.Struct(">I")


def _snappy_stream(data: memoryview, room: int) -> io.BytesIO:
    import snappy

    output = _Output(room + len(_XERIAL_HEADER), room).append(_XERIAL_HEADER)
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block: bytes = snappy.compress(data[start : start + _XERIAL_BLOCK_BYTES])
        output.append(_UINT32_BIG.pack(len(block))).append(block)
    return output


def _unsnappy(data: memoryview, limit: int) -> io.BytesIO:
    import cramjam

    # All sizes are checked before memory is allocated for any block.
    total = sum(_snappy_size(block, limit) for block in _snappy_blocks(data))
    if total > limit:
        raise DecompressedTooLarge(limit)
    output = _Output(total)
    with output.getbuffer() as plain:
        for block in _snappy_blocks(data):
            stop = output.size + _snappy_size(block, limit)
            try:
                # python-snappy would make a copy of the block, while it holds the GIL.
                size = cramjam.snappy.decompress_raw_into(block, plain[output.size : stop])
            except cramjam.DecompressionError:
                raise CorruptCompressedData("snappy: malformed block") from None
            if output.size + size != stop:
                raise CorruptCompressedData("snappy: malformed block")
            output.size = stop
    return output


def _snappy_blocks(data: memoryview) -> Iterator[memoryview]:
    # A raw block can't begin with the magic: the first two bytes would be the size, and the next
    # would begin an element that copies earlier output, of which there is none yet.
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        yield data
        return
    position = 0
    while position < len(data):
        # Streams may follow one another, as in snappy-java. The two version numbers aren't checked,
        # because some clients write them in little-endian, and brokers accept both.
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
        yield data[position : position + size]
        position += size


def _snappy_size(block: memoryview, limit: int) -> int:
    """Return the decompressed size of a raw block: a varint of at most 32 bits at its start."""
    size = 0
    for index, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            break
    else:
        raise CorruptCompressedData("snappy: no size at the start of a block")
    if size > len(block) * 64 // 3:  # the densest element makes 64 bytes out of 3
        raise CorruptCompressedData(f"snappy: a block of {len(block)} bytes claims to hold {size}")
    if size > limit:
        raise DecompressedTooLarge(limit)
    return size


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


def _lz4_frame(data: memoryview, magic: int, room: int) -> io.BytesIO:
    import cramjam

    header = _LZ4_HEADER if magic else _LZ4_HEADER_FORMAT_0
    blocks = -(-len(data) // _LZ4_BLOCK_BYTES)
    most = cramjam.lz4.compress_block_bound(data[:_LZ4_BLOCK_BYTES]) + _UINT32_LITTLE.size
    output = _Output(room + len(header) + blocks * most + len(_LZ4_END_MARK), room).append(header)
    with output.getbuffer() as all_bytes:
        for start in range(0, len(data), _LZ4_BLOCK_BYTES):
            plain = data[start : start + _LZ4_BLOCK_BYTES]
            at = output.size + _UINT32_LITTLE.size
            size = cramjam.lz4.compress_block_into(plain, all_bytes[at:], store_size=False)
            if size < len(plain):
                _UINT32_LITTLE.pack_into(all_bytes, output.size, size)
            else:
                size = len(plain)
                _UINT32_LITTLE.pack_into(all_bytes, output.size, size | _LZ4_STORED)
                all_bytes[at : at + size] = plain
            output.size = at + size
        all_bytes[output.size : output.size + len(_LZ4_END_MARK)] = _LZ4_END_MARK
        output.size += len(_LZ4_END_MARK)
    return output.ended()


def _unlz4(data: memoryview, limit: int) -> io.BytesIO:
    import cramjam

    flags, block_max, first = _lz4_header(data)
    reserved = 0
    for is_stored, block in _lz4_blocks(data, first, block_max, flags):
        # A byte of lz4 decompresses to at most 255.
        reserved += len(block) if is_stored else min(block_max, 255 * len(block))
    output = _Output(min(reserved, limit + block_max))
    with output.getbuffer() as plain:
        for is_stored, block in _lz4_blocks(data, first, block_max, flags):
            begin, size = output.size, len(block)
            if is_stored:
                plain[begin : begin + size] = block
            else:
                try:  # cramjam >= 2.11 returns the size of the decompressed block
                    size = cramjam.lz4.decompress_block_into(
                        block, plain[begin : begin + block_max]
                    )
                except cramjam.DecompressionError:
                    raise CorruptCompressedData(
                        f"lz4: malformed block, or more than {block_max} bytes in it"
                    ) from None
            output.size = begin + size
            if output.size > limit:
                raise DecompressedTooLarge(limit)
    return output.ended()


def _lz4_blocks(
    data: memoryview, position: int, block_max: int, flags: int
) -> Iterator[tuple[bool, memoryview]]:
    """Yield for each block whether it is stored (not compressed), and its bytes."""
    # The checksums of header, blocks and content are skipped, and so is the content size. The
    # message's CRC covers the frame, so these checksums could only detect a bug in the writer.
    # Besides, some writers' header checksum is wrong (KAFKA-3160), and xxh32 in Python would take
    # far longer than the decompression. Java also skips the content checksum and the content size.
    after_block = 4 if flags & _LZ4_BLOCK_CHECKSUM else 0
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
        yield bool(word & _LZ4_STORED), data[position : position + size]
        position += size + after_block
    if flags & _LZ4_CONTENT_CHECKSUM and len(data) - position < 4:
        raise CorruptCompressedData("lz4: the content checksum is cut off")


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


# --- zstd ---

_ZSTD_LEVEL: Final = 3  # the default of Java and librdkafka
# How many bytes of output the first attempt expects for a byte of input
_ZSTD_DENSITY: Final = 16
_ZSTD_GROWTH: Final = 8
# What cramjam's error says if the output has no room; the text is that of Rust's library
_ZSTD_FULL: Final = "failed to write whole buffer"


def _zstd(data: memoryview, room: int) -> io.BytesIO:
    import cramjam

    # ZSTD_compressBound, whose last term is for small inputs
    most = len(data) + (len(data) >> 8) + max((131_072 - len(data)) >> 11, 0)
    output = _Output(room + most + 64, room)
    with output.getbuffer() as all_bytes:
        output.size += cramjam.zstd.compress_into(data, all_bytes[room:], level=_ZSTD_LEVEL)
    return output.ended()


def _unzstd(data: memoryview, limit: int) -> io.BytesIO:
    import cramjam

    # Java's frames don't state their size, and a stated one may be wrong. A byte may become 32 KiB.
    room = min(limit, _ZSTD_DENSITY * len(data) + _OUTPUT_STEP_BYTES)
    while True:
        output = _Output(room)
        try:
            with output.getbuffer() as plain:
                output.size = cramjam.zstd.decompress_into(data, plain)
            return output.ended()
        except cramjam.DecompressionError as error:
            if _ZSTD_FULL not in str(error):
                raise CorruptCompressedData(f"zstd: {error}") from None
        if room == limit:
            raise DecompressedTooLarge(limit)
        room = min(limit, _ZSTD_GROWTH * room)  # grow fast, since each attempt begins anew


_Decoder = Callable[[memoryview, int], io.BytesIO]
_DECODERS: Final[dict[int, _Decoder]] = {
    Codec.NONE: _copy,
    Codec.GZIP: _gunzip,
    Codec.SNAPPY: _unsnappy,
    Codec.LZ4: _unlz4,
}
_BATCH_DECODERS: Final[dict[int, _Decoder]] = {**_DECODERS, BatchCodec.ZSTD: _unzstd}
