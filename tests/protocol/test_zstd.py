"""zstd, the codec that only record batches have: bounded whatever the frame says."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
import tracemalloc

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka08.protocol.compression import (
    BatchCodec,
    Codec,
    CorruptCompressedData,
    DecompressedTooLarge,
    compress_records_behind,
    decompress,
    decompress_records,
)
from tests.protocol.strategies import examples
from tests.support.paths import ROOT

MIB = 1 << 20
BLOCK = 128 * 1024
NOISE = random.Random(5).randbytes(3 * MIB)
PLAIN = {
    "empty": b"",
    "one byte": b"x",
    "zeros": bytes(MIB),
    "noise": NOISE,
    "mixed": NOISE[:1000] + bytes(300_000) + NOISE[:70_000],
}

each_plain = pytest.mark.parametrize("plain", PLAIN.values(), ids=PLAIN.keys())


def pack(plain: bytes, room: int = 0) -> bytes:
    return compress_records_behind(BatchCodec.ZSTD, plain, room=room).getvalue()


def unpack(data: bytes, limit: int = 4 * MIB) -> bytes:
    return decompress_records(BatchCodec.ZSTD, data, limit)


def frame(*blocks: bytes, window: int = 0x38, content_size: int | None = None) -> bytes:
    """Return a frame by the format's description (RFC 8878); by default of a window of 128 KiB."""
    start = b"\x28\xb5\x2f\xfd"
    if content_size is None:
        head = bytes([0, window])
    else:
        head = bytes([0xC0, window]) + struct.pack("<Q", content_size)
    return start + head + b"".join(blocks)


def block(kind: int, size: int, content: bytes, *, last: bool = False) -> bytes:
    return struct.pack("<I", last | kind << 1 | size << 3)[:3] + content


def zeros(count: int) -> list[bytes]:
    """Return blocks of 128 KiB of zeros, of four bytes each."""
    return [block(1, BLOCK, b"\0", last=one == count - 1) for one in range(count)]


# --- whole frames ---------------------------------------------------------------------------------


@each_plain
def test_compressed_data_decompresses_to_itself(plain: bytes) -> None:
    packed = pack(plain)
    assert unpack(packed) == plain
    assert unpack(packed, len(plain)) == plain
    assert pack(plain, room=7) == bytes(7) + packed


@examples(200)
@given(st.binary(max_size=3000))
def test_any_data_decompresses_to_itself(plain: bytes) -> None:
    assert unpack(pack(plain), len(plain)) == plain


@pytest.mark.parametrize("size", [None, 2 * BLOCK])
def test_frames_with_and_without_their_size_are_read(size: int | None) -> None:
    """Java's have none, librdkafka's have it."""
    assert unpack(frame(*zeros(2), content_size=size)) == bytes(2 * BLOCK)


def test_frames_follow_one_another() -> None:
    skippable = struct.pack("<II", 0x184D2A50, 5) + b"hello"
    assert unpack(pack(b"one") + skippable + pack(b"two")) == b"onetwo"


def test_stronger_levels_are_read() -> None:
    plain = NOISE[:1000] * 5000
    for level in (1, 19, 22):
        assert unpack(bytes(cramjam.zstd.compress(plain, level=level)), len(plain)) == plain


def test_wrappers_do_not_have_zstd() -> None:
    with pytest.raises(CorruptCompressedData, match="unknown codec 4"):
        decompress(BatchCodec.ZSTD, pack(b"x"), MIB)  # type: ignore[arg-type]
    assert [*Codec] == [*BatchCodec][:-1]


# --- damaged frames -------------------------------------------------------------------------------


def test_cut_off_frame_raises() -> None:
    packed = pack(NOISE[:300] + bytes(70_000) + NOISE[:300])
    for cut in range(len(packed)):
        with pytest.raises(CorruptCompressedData, match="zstd"):
            unpack(packed[:cut])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"abc",
        bytes(40),
        pack(b"x") + b"stray",
        frame(block(3, 1, b"x", last=True)),
        frame(block(1, BLOCK + 1, b"x", last=True)),
        frame(*zeros(1), content_size=5),
        frame(*zeros(1), content_size=1 << 62),
        frame(*zeros(1), window=0xA8),
        b"\x28\xb5\x2f\xfd\x01\x38\x07" + b"".join(zeros(1)),
    ],
    ids=[
        "empty",
        "text",
        "zeros",
        "stray",
        "type",
        "size",
        "less",
        "4 EiB",
        "window",
        "dictionary",
    ],
)
def test_malformed_frame_raises(data: bytes) -> None:
    with pytest.raises(CorruptCompressedData, match="zstd"):
        unpack(data)


@examples(300)
@given(
    plain=st.sampled_from(list(PLAIN.values())),
    changes=st.lists(st.tuples(st.integers(0, 1 << 20), st.binary(max_size=6)), max_size=4),
    limit=st.integers(0, 200_000),
)
def test_mutated_data_decompresses_or_raises(
    plain: bytes, changes: list[tuple[int, bytes]], limit: int
) -> None:
    packed = bytearray(pack(plain[:100_000]))
    for where, new in changes:
        position = (where >> 1) % (min(len(packed), 64) if where & 1 else len(packed))
        packed[position : position + (where % 7)] = new
        if not packed:
            break
    try:
        assert len(unpack(bytes(packed), limit)) <= limit
    except (CorruptCompressedData, DecompressedTooLarge):
        pass


# --- bombs ----------------------------------------------------------------------------------------

IN_LITTLE_MEMORY = """
import resource, sys
from aiokafka08.protocol.compression import *
data = sys.stdin.buffer.read()
decompress_records(4, compress_records_behind(BatchCodec.ZSTD, b"warm", room=0).getvalue(), 4)
with open("/proc/self/statm") as statm:
    now = int(statm.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (now + 24 * 1024 * 1024,) * 2)
try:
    decompress_records(4, data, int(sys.argv[1]))
except ValueError as error:
    print(type(error).__name__)
"""


def bombs() -> dict[str, bytes]:
    return {
        "300 MB of zeros": pack(bytes(300_000_000)),
        "blocks of four bytes": frame(*zeros(512)),
        "a size and zeros": frame(*zeros(512), content_size=512 * BLOCK),
    }


def test_bomb_raises_at_the_limit() -> None:
    for name, data in bombs().items():
        assert len(data) < 10_000, name
        tracemalloc.start()
        try:
            with pytest.raises(DecompressedTooLarge, match=f"more than {MIB} bytes"):
                unpack(data, MIB)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 1.5 * MIB, name


@pytest.mark.skipif(sys.platform != "linux", reason="limits its address space")
def test_bomb_takes_little_memory_in_the_library() -> None:
    """Nor does a window of 128 MiB: where that can't be had, it is an error."""
    window = frame(*zeros(1), window=0x88)
    for data, expected in [
        *((one, "DecompressedTooLarge") for one in bombs().values()),
        (window, "CorruptCompressedData"),
    ]:
        done = subprocess.run(
            [sys.executable, "-c", IN_LITTLE_MEMORY, str(MIB)],
            input=data,
            capture_output=True,
            cwd=ROOT,
            check=False,
            timeout=50,
        )
        assert not done.returncode, done.stderr.decode()
        assert done.stdout.decode().strip() == expected
