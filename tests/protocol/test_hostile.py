"""Hostile bytes: named cases, each length field replaced, arbitrary bytes, and bombs."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterator
from typing import Any

import cramjam
import pytest
import snappy
from hypothesis import given
from hypothesis import strategies as st

from aiokafka08.errors import CorruptRecordException, KafkaProtocolError
from aiokafka08.protocol import api
from aiokafka08.protocol.compression import Codec, compress
from aiokafka08.protocol.connection import ClientConnection
from aiokafka08.protocol.frame import FrameReader
from aiokafka08.protocol.requests.fetch import FetchRequest
from aiokafka08.protocol.requests.groups import (
    GroupCoordinatorRequest,
    GroupError,
    HeartbeatRequest,
)
from aiokafka08.protocol.requests.list_offsets import ListOffsetsRequest
from aiokafka08.protocol.requests.registry import APIS
from tests.protocol.decoding import Envelope, decode_request, feed, receive
from tests.protocol.hostile import (
    LENGTHS,
    Endured,
    bounded,
    endure_message_set,
    endure_request,
    endure_response,
    memory_traced,
)
from tests.protocol.oracle import brief, entry, message, raw_message, reader, sized, wrapper
from tests.protocol.strategies import examples, sample
from tests.protocol.twins import each_twin

pytestmark = each_twin

SPOKEN = [(request, version) for request in APIS.values() for version in request.versions]
each_api_and_version = pytest.mark.parametrize(
    ("request_class", "version"), SPOKEN, ids=lambda it: getattr(it, "__name__", f"v{it}")
)


@pytest.fixture
def seen() -> Endured:
    return Endured()


@pytest.fixture
def traced() -> Iterator[None]:
    with memory_traced():
        yield


# --- structs ------------------------------------------------------------------------------------


def coordinator_frame(host: bytes, *, length: int | None = None) -> bytes:
    size = struct.pack(">h", len(host) if length is None else length)
    return struct.pack(">ihi", 1, 0, 7) + size + host + struct.pack(">i", 9092)


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (coordinator_frame(b"", length=-2), "length -2"),
        (coordinator_frame(b"", length=-(2**15)), "length -32768"),
        (coordinator_frame(b"host", length=2**15 - 1), "needs 32767 bytes, 8 are left"),
        (coordinator_frame(b"\xff\xfe"), "not UTF-8"),
        (coordinator_frame(b"\xed\xa0\x80"), "not UTF-8"),
        (coordinator_frame(b"\xc3"), "not UTF-8"),
    ],
    ids=["-2", "-2^15", "2^15-1", "no UTF-8", "surrogate", "half a character"],
)
def test_bad_string_raises_protocol_error(frame: bytes, why: str) -> None:
    with pytest.raises(KafkaProtocolError, match=why):
        api.decode_response(GroupCoordinatorRequest, 0, frame)


@pytest.mark.parametrize("count", [2**31 - 1, 2**30, 1000, -1, -2, -(2**31)])
def test_bad_array_count_raises_without_allocating(count: int, traced: None) -> None:
    frame = struct.pack(">ii", 1, count) + bytes(20)
    with bounded(len(frame)), pytest.raises(KafkaProtocolError, match=f"{count}"):
        api.decode_response(ListOffsetsRequest, 0, frame)


@pytest.mark.parametrize("length", [2**31 - 1, 1000, -2, -(2**31)])
def test_bad_message_set_length_raises_without_allocating(length: int, traced: None) -> None:
    frame = struct.pack(">ii", 1, 1) + b"\0\1t" + struct.pack(">iihqi", 1, 0, 0, 5, length)
    with bounded(len(frame)), pytest.raises(KafkaProtocolError, match=f"{length}"):
        api.decode_response(FetchRequest, 0, frame + b"message set")


def test_array_of_least_items_takes_memory_in_proportion(traced: None) -> None:
    """As many topics as a frame can hold, each of the least size."""
    count = 20_000
    frame = struct.pack(">ii", 1, count) + (b"\0\0" + bytes(4)) * count
    with bounded(len(frame)):
        response = api.decode_response(ListOffsetsRequest, 0, frame)
    assert len(response.topics) == count


def stomped(data: bytes) -> Iterator[bytes]:
    """Yield the bytes with each hostile length, as int16 and as int32, at every position."""
    for value in LENGTHS:
        for stomp in (struct.pack(">i", value), struct.pack(">i", value)[2:]):
            for at in range(len(data) - len(stomp) + 1):
                yield data[:at] + stomp + data[at + len(stomp) :]


@each_api_and_version
def test_each_struct_length_replaced_decodes_or_raises(
    request_class: type[api.Request[Any]], version: int, seen: Endured
) -> None:
    request = sample(request_class, version)
    for frame in stomped(b"".join(api.encode_request(request, version, 7, "client"))[4:]):
        with bounded(len(frame)):
            endure_request(frame, seen)
    response = sample(request_class.response, version)
    for frame in stomped(b"".join(api.encode_response(response, version, 7))[4:]):
        with bounded(len(frame)):
            endure_response(request_class, version, frame, seen)
    assert seen.errors > 0
    assert seen.values > 0


@each_api_and_version
@examples(40)
@given(frame=st.binary(max_size=200))
def test_arbitrary_bytes_decode_or_raise_protocol_error(
    request_class: type[api.Request[Any]], version: int, frame: bytes
) -> None:
    seen = Endured()
    endure_response(request_class, version, b"\0\0\0\7" + frame, seen)
    header = struct.pack(">hhi", request_class.api, version, 7)
    endure_request(header + b"\xff\xff" + frame, seen)
    endure_request(frame, seen)
    assert seen.errors + seen.values == 3


@examples(200)
@given(stream=st.binary(max_size=300), requests=st.integers(0, 3))
def test_arbitrary_stream_is_responses_or_protocol_error(stream: bytes, requests: int) -> None:
    client = ClientConnection("me", max_frame_bytes=1000)
    for _ in range(requests):
        client.send(HeartbeatRequest("group", 1, "member"), 0)
    try:
        for matched in receive(client, stream):
            assert isinstance(matched[1], GroupError)
    except KafkaProtocolError:
        assert len(client.eof()) <= requests
    try:
        for frame in feed(FrameReader(1000, "the client"), stream):
            assert isinstance(decode_request(frame), Envelope)
    except KafkaProtocolError:
        pass


# --- message sets -------------------------------------------------------------------------------


@examples(300)
@given(message_set=st.binary(max_size=300), fetch_offset=st.integers(0, 2**63 - 1))
def test_arbitrary_bytes_are_records_or_corrupt(message_set: bytes, fetch_offset: int) -> None:
    endure_message_set(message_set, fetch_offset, Endured())


offsets = st.integers(-2, 20) | st.sampled_from([-(2**63), 2**63 - 1])
lengths = st.integers(-3, 40) | st.sampled_from(LENGTHS)


@st.composite
def bodies(draw: st.DrawFn, inner: st.SearchStrategy[bytes]) -> bytes:
    """Draw a message from its magic byte on, usually with one wrong length."""
    codec = draw(st.sampled_from([0, 0, 0, 1, 2, 3, 4, 7]))
    magic = draw(st.sampled_from([0, 0, 1, 1, 2, -1]))
    content = draw(inner) if codec else draw(st.binary(max_size=20))
    if codec in (1, 2, 3) and draw(st.integers(0, 7)):
        content = compress(Codec(codec), content, magic=magic == 1)
    body = struct.pack(">bb", magic, codec | draw(st.sampled_from([0, 8, -128])))
    if magic == 1:
        body += struct.pack(">q", draw(offsets))
    for field in (draw(st.none() | st.binary(max_size=5)), content):
        length = draw(lengths) if not draw(st.integers(0, 9)) else None
        encoded = sized(field)
        body += encoded if length is None else struct.pack(">i", length) + encoded[4:]
    return body[: draw(st.integers(0, len(body)))] if not draw(st.integers(0, 9)) else body


@st.composite
def sets(draw: st.DrawFn, inner: st.SearchStrategy[bytes]) -> bytes:
    message_set = b""
    for body in draw(st.lists(bodies(inner), max_size=4)):
        whole = raw_message(body, crc_error=not draw(st.integers(0, 7)))
        size = draw(lengths) if not draw(st.integers(0, 9)) else None
        message_set += entry(draw(offsets), whole, size=size)
    return message_set + draw(st.just(b"") | st.binary(max_size=30))


hostile_sets = st.recursive(st.binary(max_size=30), sets, max_leaves=6)


@examples(60)
@given(message_set=hostile_sets, fetch_offset=st.integers(0, 15))
def test_sets_with_wrong_lengths_are_records_or_corrupt(
    message_set: bytes, fetch_offset: int
) -> None:
    """The sets have right CRCs, wrappers in wrappers and single wrong lengths."""
    endure_message_set(message_set, fetch_offset, Endured())


@pytest.mark.parametrize("magic", [0, 1])
def test_each_set_length_replaced_is_records_or_corrupt(magic: int, seen: Endured) -> None:
    """The lengths of the set itself, and of the set inside a wrapper with a right CRC."""
    inner = b"".join(
        entry(offset, message(b"key", b"value", magic=magic, timestamp_ms=7)) for offset in range(2)
    )
    for message_set in stomped(inner + wrapper(3, inner, magic=magic)):
        with bounded(len(message_set)):
            endure_message_set(message_set, 0, seen)
    for inside in stomped(inner):
        with bounded(len(inside)):
            endure_message_set(wrapper(3, inside, Codec.LZ4, magic=magic), 2 * magic, seen)
    assert seen.corrupt > 1000
    assert seen.records > 1000


# --- bombs --------------------------------------------------------------------------------------

BOMB_BYTES = 64 << 20


def gzip_bomb(content: bytes) -> bytes:
    return gzip.compress(content, 9)


def snappy_bomb(content: bytes) -> bytes:
    return bytes(snappy.compress(content))


def xerial_bomb(content: bytes) -> bytes:
    return compress(Codec.SNAPPY, content)


def lz4_bomb(content: bytes) -> bytes:
    """Blocks of 4 MiB, the largest that a frame may have."""
    blocks = b""
    for start in range(0, len(content), 4 << 20):
        block = bytes(
            cramjam.lz4.compress_block(content[start : start + (4 << 20)], store_size=False)
        )
        blocks += struct.pack("<I", len(block)) + block
    return b"\x04\x22\x4d\x18\x60\x70\x73" + blocks + bytes(4)


@pytest.fixture(scope="module")
def bombs() -> dict[str, bytes]:
    """One message of 64 MiB of zeros, compressed."""
    content = entry(5, message(None, bytes(BOMB_BYTES)))
    return {
        make.__name__: make(content) for make in (gzip_bomb, snappy_bomb, xerial_bomb, lz4_bomb)
    }


@pytest.mark.parametrize("check_crcs", [True, False])
@pytest.mark.parametrize(
    ("name", "codec"),
    [("gzip_bomb", 1), ("snappy_bomb", 2), ("xerial_bomb", 2), ("lz4_bomb", 3)],
)
def test_bomb_raises_at_the_limit(
    bombs: dict[str, bytes], name: str, codec: int, check_crcs: bool, traced: None
) -> None:
    bomb = entry(5, message(None, bombs[name], attributes=codec))
    data = entry(4, message(None, b"4")) + bomb + entry(6, message(None, b"6"))
    limit = 1 << 20
    # The reader's copy of the set and the wrapper's value; twice the limit and an lz4 block.
    with bounded(0, more_bytes=2 * len(data) + 2 * limit + (4 << 20)):
        whole = reader(data, check_crcs=check_crcs, limit=limit)
        assert brief(whole.read(10)) == [(4, b"4")]
        with pytest.raises(CorruptRecordException, match=f"more than {limit} bytes") as caught:
            whole.read(10)
    assert (caught.value.offset, caught.value.next_offset) == (5, 6)
    assert brief(reader(data, 6, limit=limit).read(10)) == [(6, b"6")]


def test_bomb_in_a_wrapper_is_corrupt_at_the_limit(bombs: dict[str, bytes], traced: None) -> None:
    inside = entry(4, message(None, b"4")) + entry(
        5, message(None, gzip_bomb(bombs["gzip_bomb"] + bytes(1 << 20)), attributes=1)
    )
    data = wrapper(5, inside)
    limit = 1 << 19
    with bounded(len(data), more_bytes=4 * limit):
        whole = reader(data, limit=limit)
        assert brief(whole.read(10)) == [(4, b"4")]
        with pytest.raises(CorruptRecordException, match=f"more than {limit} bytes"):
            whole.read(10)


def test_wrappers_are_decompressed_one_at_a_time(traced: None) -> None:
    limit = 1 << 20
    bombs = [gzip_bomb(entry(at, message(None, bytes(limit - 26)))) for at in range(50)]
    data = b"".join(entry(at, message(None, bombs[at], attributes=1)) for at in range(50))
    with bounded(len(data), more_bytes=5 * limit):
        whole = reader(data, limit=limit)
        count = 0
        while whole.read(1):
            count += 1
    assert count == 50


def test_wrapper_of_least_messages_is_read_in_slices(traced: None) -> None:
    """Only the records of one slice take memory, not those of the whole wrapper."""
    limit = 1 << 20
    count = limit // 26 // 4
    inner = b"".join(entry(offset, message(None, None)) for offset in range(count))
    data = wrapper(count - 1, inner)
    with bounded(len(data), more_bytes=3 * limit):
        whole = reader(data, limit=limit)
        got = 0
        while some := whole.read(100):
            got += len(some)
    assert got == count
