"""Compression: round trips, other readers and writers, damaged data, bombs."""

from __future__ import annotations

import gzip
import random
import struct
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import cramjam
import pytest
import snappy
from hypothesis import given
from hypothesis import strategies as st

from aiokafka08.protocol.compression import (
    LONG_DECOMPRESS_BYTES,
    Codec,
    CorruptCompressedData,
    DecompressedTooLarge,
    compress,
    decompress,
    decompress_unless_long,
)
from tests.protocol.golden import FETCHES
from tests.protocol.strategies import examples
from tests.support.paths import ROOT

pytestmark = pytest.mark.fast

MIB = 1024 * 1024
ROOMY = 16 * MIB

each_codec = pytest.mark.parametrize("codec", list(Codec))
each_real_codec = pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
each_magic = pytest.mark.parametrize("magic", [0, 1])


def noise(size: int) -> bytes:
    """Return incompressible bytes, the same in each run."""
    return random.Random(size).randbytes(size)


# Sizes around the block sizes of both framings, compressible and not.
PLAIN = {
    "empty": b"",
    "one byte": b"x",
    "text": b"abcdabcdabcdabcdabcdabcdabcd",
    "snappy block": noise(32 * 1024),
    "snappy block + 1": bytes(32 * 1024 + 1),
    "lz4 block": bytes(64 * 1024),
    "lz4 block + 1": noise(64 * 1024 + 1),
    "mixed": noise(100) + bytes(150_000) + noise(70_000) + b"abc" * 50_000,
}
each_plain = pytest.mark.parametrize("plain", PLAIN.values(), ids=PLAIN.keys())

xerial_header = bytes.fromhex("82534e4150505900 00000001 00000001")


def lz4_frame(
    *blocks: bytes, flags: int = 0x60, bd: int = 0x40, extra: bytes = b"", end: bytes = bytes(4)
) -> bytes:
    """Return a frame of these blocks (with their size words), with header checksum 0."""
    return b"\x04\x22\x4d\x18" + bytes([flags, bd]) + extra + b"\0" + b"".join(blocks) + end


def lz4_block(plain: bytes) -> bytes:
    block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
    return struct.pack("<I", len(block)) + block


def stored_block(plain: bytes) -> bytes:
    return struct.pack("<I", len(plain) | 0x80000000) + plain


# --- there and back -----------------------------------------------------------------------------


@each_codec
@each_magic
@each_plain
def test_compressed_data_decompresses_to_itself(codec: Codec, magic: int, plain: bytes) -> None:
    assert decompress(codec, compress(codec, plain, magic=magic), len(plain)) == plain


@each_codec
@examples(50)
@given(
    plain=st.binary(max_size=300)
    | st.builds(lambda piece, times: piece * times, st.binary(max_size=9), st.integers(0, 30_000)),
    magic=st.sampled_from([0, 1]),
)
def test_any_data_decompresses_to_itself(codec: Codec, plain: bytes, magic: int) -> None:
    packed = compress(codec, plain, magic=magic)
    assert decompress(codec, packed, len(plain)) == plain
    assert packed == compress(codec, plain, magic=magic)


@each_codec
def test_any_contiguous_buffer_is_accepted(codec: Codec) -> None:
    plain = PLAIN["mixed"]
    packed = compress(codec, plain)
    for kind in (bytes, bytearray, memoryview):
        assert compress(codec, kind(plain)) == packed
        result = decompress(codec, kind(packed), ROOMY)
        assert result == plain
        assert type(result) is bytes
    # A slice of a receive buffer, as the fetcher passes it on.
    buffer = memoryview(bytearray(b"head" + packed + b"tail"))
    assert decompress(codec, buffer[4:-4], ROOMY) == plain


@each_codec
def test_data_of_exactly_the_limit_is_accepted(codec: Codec) -> None:
    for plain in PLAIN.values():
        packed = compress(codec, plain)
        assert decompress(codec, packed, len(plain)) == plain
        assert decompress(codec, packed, 1 << 70) == plain
        if plain:
            with pytest.raises(DecompressedTooLarge, match=f"more than {len(plain) - 1} bytes"):
                decompress(codec, packed, len(plain) - 1)


def test_incompressible_data_grows_little() -> None:
    plain = PLAIN["lz4 block + 1"]
    # Header, one size per block, end mark: the blocks are stored uncompressed.
    assert len(compress(Codec.LZ4, plain)) == len(plain) + 7 + 2 * 4 + 4


# --- what is written ----------------------------------------------------------------------------


def test_gzip_header_has_no_time_and_no_file_name() -> None:
    assert compress(Codec.GZIP, b"abc")[:8] == bytes.fromhex("1f8b080000000000")


def test_snappy_stream_is_the_one_of_snappy_java() -> None:
    packed = compress(Codec.SNAPPY, PLAIN["snappy block + 1"])
    assert packed.startswith(xerial_header)
    sizes = []
    position = len(xerial_header)
    while position < len(packed):
        (size,) = struct.unpack_from(">i", packed, position)
        sizes.append(len(snappy.decompress(packed[position + 4 : position + 4 + size])))
        position += 4 + size
    assert sizes == [32 * 1024, 1]


def test_lz4_header_checksum_depends_on_message_format() -> None:
    # Checked with the Java classes: KafkaLZ4BlockInputStream of 0.8.2.2 and 0.9.0.1 accepts the
    # first one only, that of 0.10.2.2 accepts both in format 0 and the second one in format 1.
    assert compress(Codec.LZ4, b"").hex() == "04224d1860401a" + "00000000"
    assert compress(Codec.LZ4, b"", magic=1).hex() == "04224d18604082" + "00000000"


# --- what others wrote --------------------------------------------------------------------------

# 28 bytes "abcd…" by the streams of Java 17, snappy-java 1.1.1.7 and kafka-clients 0.10.2.2
# (64 KiB blocks with checksums, which only Java clients write).
BY_JAVA = {
    "gzip": (Codec.GZIP, "1f8b08000000000000ff4b4c4a4e49c481010134ae5c1c000000"),
    "snappy": (
        Codec.SNAPPY,
        "82534e41505059000000000100000001000000091c0c616263645e0400",
    ),
    "lz4": (
        Codec.LZ4,
        "04224d187050840e0000004f61626364040000506461626364aa2a7b8800000000",
    ),
}


@pytest.mark.parametrize(("codec", "packed"), BY_JAVA.values(), ids=BY_JAVA.keys())
def test_data_of_java_clients_is_decompressed(codec: Codec, packed: str) -> None:
    assert decompress(codec, bytes.fromhex(packed), 28) == PLAIN["text"]


def wrappers() -> Iterator[tuple[Codec, bytes, bytes]]:
    """Yield the wrappers in captured responses: codec, value, the message set inside."""
    for vector in FETCHES:
        for topic in vector.expected["topics"]:
            for partition in topic["partitions"]:
                for message in partition["messages"]:
                    codec = Codec(message["attributes"] & 3) if "inner" in message else Codec.NONE
                    if codec:
                        inside = b"".join(map(_entry, message["inner"]))
                        yield codec, bytes.fromhex(message["value"]), inside


def _entry(message: dict[str, Any]) -> bytes:
    def sized(field: str | None) -> bytes:
        if field is None:
            return struct.pack(">i", -1)
        return struct.pack(">i", len(field) // 2) + bytes.fromhex(field)

    body = struct.pack(">Ibb", message["crc"], message["magic"], message["attributes"])
    body += sized(message["key"]) + sized(message["value"])
    return struct.pack(">qi", message["offset"], len(body)) + body


def test_data_of_brokers_is_decompressed() -> None:
    found = list(wrappers())
    assert {codec for codec, _, _ in found} == {Codec.GZIP, Codec.SNAPPY, Codec.LZ4}
    for codec, value, inside in found:
        assert decompress(codec, value, len(inside)) == inside


# --- foreign decoders and encoders ----------------------------------------------------------------


@each_plain
def test_gzip_agrees_with_the_gzip_module(plain: bytes) -> None:
    assert gzip.decompress(compress(Codec.GZIP, plain)) == plain
    assert decompress(Codec.GZIP, gzip.compress(plain, 1), ROOMY) == plain


@each_magic
@each_plain
def test_lz4_agrees_with_a_standard_decoder(magic: int, plain: bytes) -> None:
    frame = bytearray(compress(Codec.LZ4, plain, magic=magic))
    if magic == 0:
        frame[6] = 0x82  # repair the header checksum
    assert bytes(cramjam.lz4.decompress(bytes(frame))) == plain


@pytest.mark.parametrize("content_checksum", [False, True])
@each_plain
def test_standard_lz4_frame_is_decompressed(plain: bytes, content_checksum: bool) -> None:
    compressor = cramjam.lz4.Compressor(content_checksum=content_checksum, block_linked=False)
    compressor.compress(plain)
    assert decompress(Codec.LZ4, bytes(compressor.finish()), ROOMY) == plain


@each_plain
def test_raw_snappy_is_decompressed(plain: bytes) -> None:
    assert decompress(Codec.SNAPPY, snappy.compress(plain), len(plain)) == plain


# --- gzip: members and what follows them ----------------------------------------------------------


def test_gzip_members_are_concatenated() -> None:
    members = [b"one", b"", noise(5000), bytes(100_000), b"last"]
    packed = b"".join(map(gzip.compress, members))
    assert decompress(Codec.GZIP, packed, ROOMY) == b"".join(members)


def test_many_gzip_members_take_no_quadratic_time(monkeypatch: pytest.MonkeyPatch) -> None:
    # zlib copies the input after a member, so the size of the input counts, not of the output.
    given_bytes = 0

    class Counting:
        def __init__(self, wbits: int) -> None:
            self._real = real(wbits)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._real, name)

        def decompress(self, part: memoryview, max_length: int) -> bytes:
            nonlocal given_bytes
            given_bytes += len(part)
            return self._real.decompress(part, max_length)

    real = zlib.decompressobj
    monkeypatch.setattr(zlib, "decompressobj", Counting)
    packed = gzip.compress(b"") * 2000 + gzip.compress(noise(100_000))
    assert len(decompress(Codec.GZIP, packed, ROOMY)) == 100_000
    assert given_bytes < 10 * len(packed)


@pytest.mark.parametrize(
    "trailer", [b"\0", b"garbage", b"garbage" * 20, gzip.compress(b"b", mtime=0)[:18]]
)
def test_bytes_after_gzip_are_ignored_unless_a_member(trailer: bytes) -> None:
    assert decompress(Codec.GZIP, gzip.compress(b"a") + trailer, 1) == b"a"


def test_damaged_second_gzip_member_raises() -> None:
    first, second = gzip.compress(b"a"), gzip.compress(noise(100))
    for damaged in (second[:-1], second[:-8] + bytes(8)):
        with pytest.raises(CorruptCompressedData, match="gzip"):
            decompress(Codec.GZIP, first + damaged, ROOMY)


# --- snappy: xerial streams -----------------------------------------------------------------------


def test_xerial_version_numbers_are_ignored() -> None:
    # Some clients write them in little-endian; brokers accept that.
    packed = compress(Codec.SNAPPY, b"abc")
    for versions in ("0100000001000000", "ffffffffffffffff", "0000000000000000"):
        header = xerial_header[:8] + bytes.fromhex(versions)
        assert decompress(Codec.SNAPPY, header + packed[16:], 3) == b"abc"


def test_xerial_streams_are_concatenated() -> None:
    packed = compress(Codec.SNAPPY, b"abc") + compress(Codec.SNAPPY, b"def")
    assert decompress(Codec.SNAPPY, packed, 6) == b"abcdef"


@pytest.mark.parametrize("stray", [b"a", b"ab", b"abc"])
def test_stray_bytes_after_xerial_blocks_are_ignored(stray: bytes) -> None:
    assert decompress(Codec.SNAPPY, compress(Codec.SNAPPY, b"abc") + stray, 3) == b"abc"


SNAPPY_FAULTS = {
    "nothing at all": b"",
    "header cut off": xerial_header[:-1],
    "second header cut off": xerial_header * 2 + xerial_header[:-1],
    "negative size": xerial_header + b"\xff\xff\xff\xff" + b"abc",
    "size beyond the end": xerial_header + struct.pack(">i", 4) + b"abc",
    "block without a size": xerial_header + bytes(4),
    "size never ends": b"\xff" * 20,
    "claims 4 GiB": b"\xff\xff\xff\xff\x0f" + b"abc",
    "claims more than 32 bits": b"\xff\xff\xff\xff\x7f" + bytes(100),
    "claims too little": b"\x01" + snappy.compress(b"abc")[1:],
    "copies from before its start": bytes.fromhex("04 01 01"),
}


@pytest.mark.parametrize("data", SNAPPY_FAULTS.values(), ids=SNAPPY_FAULTS.keys())
def test_malformed_snappy_raises(data: bytes) -> None:
    with pytest.raises(CorruptCompressedData, match="snappy"):
        decompress(Codec.SNAPPY, data, 1 << 40)


# --- lz4: frames ----------------------------------------------------------------------------------


def test_optional_lz4_fields_are_skipped() -> None:
    # Content size, block checksums and content checksum, all wrong; the end mark in both forms.
    blocks = [lz4_block(b"abc" * 9) + b"hash", stored_block(b"stored") + b"hash"]
    for end in (bytes(4), bytes.fromhex("00000080")):
        frame = lz4_frame(*blocks, flags=0b0111_1100, extra=b"whatever", end=end + b"hash")
        assert decompress(Codec.LZ4, frame, 33) == b"abc" * 9 + b"stored"


def test_bytes_after_the_lz4_end_mark_are_ignored() -> None:
    packed = compress(Codec.LZ4, b"abc")
    assert decompress(Codec.LZ4, packed + packed, 3) == b"abc"


@pytest.mark.parametrize(
    ("bd", "block_max"), [(0x40, 64 * 1024), (0x50, 256 * 1024), (0x60, MIB), (0x70, 4 * MIB)]
)
def test_lz4_block_above_the_frames_block_size_raises(bd: int, block_max: int) -> None:
    for make in (lz4_block, stored_block):
        frame = lz4_frame(make(bytes(block_max)), make(b"x"), bd=bd)
        assert len(decompress(Codec.LZ4, frame, ROOMY)) == block_max + 1
        with pytest.raises(CorruptCompressedData, match=f"{block_max}"):
            decompress(Codec.LZ4, lz4_frame(make(bytes(block_max + 1)), bd=bd), ROOMY)


LZ4_FAULTS = {
    "nothing at all": (b"", "header is cut off"),
    "header cut off": (lz4_frame()[:6], "header is cut off"),
    "content size cut off": (lz4_frame(flags=0x68, extra=b"siz", end=b"")[:-1], "cut off"),
    "not a frame": (b"\x04\x22\x4d\x19" + lz4_frame()[4:], "magic"),
    "the format before frames": (b"\x02\x21\x4c\x18" + lz4_frame()[4:], "magic"),
    "version": (lz4_frame(flags=0xA0), "version 2"),
    "linked blocks": (bytes(cramjam.lz4.compress(b"abc")), "linked blocks"),
    "dictionary": (lz4_frame(flags=0x61, extra=b"dict"), "dictionary"),
    "reserved flag": (lz4_frame(flags=0x62), "descriptor 62 40"),
    "reserved bits": (lz4_frame(bd=0x41), "descriptor 60 41"),
    "high bit": (lz4_frame(bd=0xC0), "descriptor 60 c0"),
    "block size code": (lz4_frame(bd=0x30), "descriptor 60 30"),
    "no end mark": (lz4_frame(lz4_block(b"abc"), end=b""), "no end mark"),
    "end mark cut off": (lz4_frame(end=bytes(3)), "no end mark"),
    "block cut off": (lz4_frame(stored_block(b"abc")[:-1], end=b""), "3 bytes; expected <= 2"),
    "block checksum cut off": (lz4_frame(lz4_block(b"abc"), flags=0x70, end=b"abc"), "no end mark"),
    "content checksum cut off": (lz4_frame(flags=0x64, end=bytes(7)), "content checksum"),
    "malformed block": (lz4_frame(struct.pack("<I", 3) + b"\xff\xff\xff"), "malformed"),
}


@pytest.mark.parametrize(("data", "reason"), LZ4_FAULTS.values(), ids=LZ4_FAULTS.keys())
def test_malformed_lz4_raises(data: bytes, reason: str) -> None:
    with pytest.raises(CorruptCompressedData, match=reason):
        decompress(Codec.LZ4, data, ROOMY)


# --- damaged data ---------------------------------------------------------------------------------


def outcome(codec: Codec, data: bytes, limit: int) -> bytes | None:
    """Return the result of `decompress`, None for one of its two errors; fail for any other."""
    try:
        plain = decompress(codec, data, limit)
    except (CorruptCompressedData, DecompressedTooLarge):
        return None
    assert len(plain) <= limit
    return plain


@each_real_codec
def test_cut_off_data_raises(codec: Codec) -> None:
    plain = noise(40_000)[:300] + bytes(70_000) + noise(300)
    packed = compress(codec, plain)
    for cut in range(len(packed)):
        short = outcome(codec, packed[:cut], ROOMY)
        if codec is Codec.SNAPPY:  # has no end mark, so a cut between two blocks isn't visible
            assert short is None or (plain.startswith(short) and short != plain)
        else:
            assert short is None


@each_real_codec
@examples(200)
@given(data=st.binary(max_size=200), limit=st.integers(0, 1000))
def test_arbitrary_data_decompresses_or_raises(codec: Codec, data: bytes, limit: int) -> None:
    start = {Codec.GZIP: b"\x1f\x8b\x08\0", Codec.SNAPPY: xerial_header, Codec.LZ4: lz4_frame()[:7]}
    outcome(codec, data, limit)
    outcome(codec, start[codec] + data, limit)


@each_real_codec
@examples(300)
@given(
    plain=st.sampled_from(list(PLAIN.values())),
    changes=st.lists(st.tuples(st.integers(0, 1 << 20), st.binary(max_size=6)), max_size=4),
    limit=st.integers(0, 200_000),
)
def test_mutated_data_decompresses_or_raises(
    codec: Codec, plain: bytes, changes: list[tuple[int, bytes]], limit: int
) -> None:
    packed = bytearray(compress(codec, plain))
    for where, new in changes:
        # Half of the changes are in the first bytes, where the structure is.
        position = (where >> 1) % (min(len(packed), 64) if where & 1 else len(packed))
        packed[position : position + (where % 7)] = new
        if not packed:
            break
    outcome(codec, bytes(packed), limit)


def test_unknown_codec_raises_corrupt_data() -> None:
    with pytest.raises(CorruptCompressedData, match="unknown codec 4"):
        decompress(4, b"", 1)  # type: ignore[arg-type]


# --- bombs ----------------------------------------------------------------------------------------


def gzip_of_zeros(size: int) -> bytes:
    packer = zlib.compressobj(wbits=31)
    return b"".join(packer.compress(bytes(MIB)) for _ in range(size // MIB)) + packer.flush()


def xerial_block(plain: bytes) -> bytes:
    block = snappy.compress(plain)
    return struct.pack(">i", len(block)) + block


def lz4_of_4_eib() -> bytes:
    content_size = struct.pack("<Q", 1 << 62)
    return lz4_frame(*[lz4_block(bytes(65536))] * 1024, flags=0x68, extra=content_size)


BOMBS: dict[str, tuple[Codec, Callable[[], bytes]]] = {
    "gzip": (Codec.GZIP, lambda: gzip_of_zeros(64 * MIB)),
    "gzip members": (Codec.GZIP, lambda: gzip.compress(bytes(MIB // 2)) * 128),
    "gzip tiny members": (Codec.GZIP, lambda: gzip.compress(bytes(1000)) * 70_000),
    "raw snappy": (Codec.SNAPPY, lambda: snappy.compress(bytes(64 * MIB))),
    "xerial": (Codec.SNAPPY, lambda: xerial_header + 64 * xerial_block(bytes(MIB - 1))),
    "xerial, one block": (Codec.SNAPPY, lambda: xerial_header + xerial_block(bytes(64 * MIB))),
    "lz4": (Codec.LZ4, lambda: compress(Codec.LZ4, bytes(64 * MIB))),
    "lz4, 4 MiB blocks": (
        Codec.LZ4,
        lambda: lz4_frame(*[lz4_block(bytes(4 * MIB))] * 16, bd=0x70),
    ),
    "lz4 of 4 EiB": (Codec.LZ4, lz4_of_4_eib),
}
"""Functions whose data decompresses to at least 64 MiB; the limit is 1 MiB.

Each process of the tests imports this module, so the data is made by the tests.
"""


@pytest.mark.parametrize(("codec", "make"), BOMBS.values(), ids=BOMBS.keys())
def test_bomb_raises_at_the_limit(codec: Codec, make: Callable[[], bytes]) -> None:
    data = make()
    tracemalloc.start()
    try:
        with pytest.raises(DecompressedTooLarge):
            decompress(codec, data, MIB)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # Twice the limit, the scratch buffer of lz4, and the input that zlib keeps.
    assert peak < 2.5 * MIB + len(data) + (4 * MIB if codec is Codec.LZ4 else 0)


# tracemalloc doesn't see the memory of libraries in Rust or C, and cramjam aborts the process
# if an allocation fails. So this runs in a process that may grow by 24 MiB only.
IN_LITTLE_MEMORY = """
import resource, sys
from aiokafka08.protocol.compression import *
data = sys.stdin.buffer.read()
decompress(Codec.LZ4, compress(Codec.LZ4, b"warm"), 4)
decompress(Codec.SNAPPY, compress(Codec.SNAPPY, b"warm"), 4)
with open("/proc/self/statm") as statm:
    now = int(statm.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (now + 24 * 1024 * 1024,) * 2)
try:
    decompress(Codec(int(sys.argv[1])), data, int(sys.argv[2]))
except ValueError as error:
    print(type(error).__name__)
"""


def in_little_memory(codec: Codec, data: bytes, limit: int) -> str:
    done = subprocess.run(
        [sys.executable, "-c", IN_LITTLE_MEMORY, str(int(codec)), str(limit)],
        input=data,
        capture_output=True,
        cwd=ROOT,
        check=False,
        timeout=50,
    )
    assert not done.returncode, done.stderr.decode()
    return done.stdout.decode().strip()


only_linux = pytest.mark.skipif(sys.platform != "linux", reason="limits its address space")


@only_linux
@pytest.mark.parametrize(("codec", "make"), BOMBS.values(), ids=BOMBS.keys())
def test_bomb_takes_little_memory_in_the_libraries(codec: Codec, make: Callable[[], bytes]) -> None:
    assert in_little_memory(codec, make(), MIB) == "DecompressedTooLarge"


@only_linux
@pytest.mark.parametrize("data", SNAPPY_FAULTS.values(), ids=SNAPPY_FAULTS.keys())
def test_claimed_snappy_size_allocates_nothing(data: bytes) -> None:
    assert in_little_memory(Codec.SNAPPY, data, 1 << 40) == "CorruptCompressedData"


@only_linux
def test_limit_above_the_memory_raises_too_large() -> None:
    data = gzip_of_zeros(64 * MIB)
    assert in_little_memory(Codec.GZIP, data, 1 << 40) == "DecompressedTooLarge"


# --- what takes long ---


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_data_that_takes_long_is_left(codec: Codec) -> None:
    limit = LONG_DECOMPRESS_BYTES[codec]
    for size in (0, 1, limit - 1, limit):
        assert decompress_unless_long(codec, compress(codec, bytes(size)), 1 << 30) == bytes(size)
    for size in (limit + 1, 2 * limit):
        assert decompress_unless_long(codec, compress(codec, bytes(size)), 1 << 30) is None
    with pytest.raises(DecompressedTooLarge):
        decompress_unless_long(codec, compress(codec, bytes(1000)), 999)


@pytest.mark.parametrize("stated", [0, 1, 1 << 31])
def test_wrong_gzip_size_changes_no_result(stated: int) -> None:
    """The size at the end of the data is a hint; here it belongs to the bytes that are ignored."""
    plain = bytes(3_000_000)
    data = compress(Codec.GZIP, plain) + stated.to_bytes(4, "little")
    assert decompress(Codec.GZIP, data, len(plain)) == plain
    with pytest.raises(DecompressedTooLarge):
        decompress(Codec.GZIP, data, len(plain) - 1)
    assert decompress_unless_long(Codec.GZIP, data, 1 << 32) is None


# --- without the libraries ------------------------------------------------------------------------

WITHOUT_SNAPPY = """
import sys
sys.modules["snappy"] = None
from aiokafka08.protocol.compression import *
for codec in Codec:
    for call in (lambda: compress(codec, b"abc"), lambda: decompress(codec, b"", 3)):
        try:
            call()
        except CorruptCompressedData:
            print(codec.name, "works")
        except ModuleNotFoundError as error:
            print(error)
        else:
            print(codec.name, "works")
"""


def test_none_and_gzip_work_without_the_libraries() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_SNAPPY],
        capture_output=True,
        cwd=ROOT,
        check=True,
        text=True,
        timeout=50,
    )
    missing = "no module named 'snappy'. Install python-snappy and cramjam"
    expected = ["NONE works", "GZIP works", f"codec snappy: {missing}", f"codec lz4: {missing}"]
    assert done.stdout.splitlines() == [line for line in expected for _ in range(2)]
