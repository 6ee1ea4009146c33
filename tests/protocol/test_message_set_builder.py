"""Building message sets: both formats, each codec, limits, split and conversion."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka08.protocol.compression import Codec, decompress
from aiokafka08.protocol.message_set import MessageSetBuilder, encode_entry, message_size
from tests.protocol.entries import Entry, entries
from tests.protocol.oracle import LIMIT, crc32, entry, message, read
from tests.protocol.strategies import examples
from tests.protocol.twins import each_twin, twin

pytestmark = each_twin

Messages = list[tuple[bytes | None, bytes | None, int]]

fields = st.none() | st.binary(max_size=40)
timestamps = st.integers(0, 2**63 - 1)
messages = st.lists(st.tuples(fields, fields, timestamps), max_size=8)
some_messages = st.lists(st.tuples(fields, fields, timestamps), min_size=1, max_size=8)

each_magic = pytest.mark.parametrize("magic", [0, 1])
each_codec = pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
each_compression = pytest.mark.parametrize(
    "codec", [codec for codec in Codec if codec], ids=lambda codec: codec.name
)


def built(magic: int, codec: Codec, content: Messages) -> MessageSetBuilder:
    builder: MessageSetBuilder = twin.MessageSetBuilder(magic, codec)
    for key, value, timestamp in content:
        builder.append(key, value, timestamp)
    return builder


def inside(message_set: bytes) -> tuple[Entry, list[Entry]]:
    """Return the only wrapper of a set, and the entries inside."""
    (outer,) = entries(message_set)
    assert outer.value is not None
    return outer, list(entries(decompress(Codec(outer.codec), outer.value, LIMIT)))


def by_the_book(magic: int, content: Messages) -> bytes:
    return b"".join(
        entry(offset, message(key, value, magic=magic, timestamp_ms=timestamp))
        for offset, (key, value, timestamp) in enumerate(content)
    )


@each_magic
@examples(100)
@given(content=messages)
def test_plain_set_has_the_documented_layout(magic: int, content: Messages) -> None:
    builder = built(magic, Codec.NONE, content)
    assert builder.build() == by_the_book(magic, content)
    assert len(builder) == len(content)
    assert builder.size_bytes == len(builder.build())


@each_magic
@each_compression
@examples(50)
@given(content=some_messages)
def test_compressed_set_is_one_wrapper_of_the_plain_set(
    magic: int, codec: Codec, content: Messages
) -> None:
    builder = built(magic, codec, content)
    (outer,) = entries(builder.build())
    assert outer.value is not None
    assert decompress(codec, outer.value, LIMIT) == by_the_book(magic, content)
    assert builder.size_bytes == len(by_the_book(magic, content))
    newest = max(timestamp for _, _, timestamp in content)
    assert outer == Entry(
        offset=len(content) - 1,
        crc=outer.crc,
        magic=magic,
        attributes=codec,
        timestamp_ms=newest if magic else None,
        key=None,
        value=outer.value,
        crc_ok=True,
    )
    assert crc32(builder.build()[16:]) == outer.crc


@each_magic
@each_codec
@examples(50)
@given(content=messages)
def test_built_set_is_read_back(magic: int, codec: Codec, content: Messages) -> None:
    records = read(built(magic, codec, content).build())
    assert [(record.offset, record.key, record.value) for record in records] == [
        (offset, key, value) for offset, (key, value, _) in enumerate(content)
    ]
    for record, (key, value, timestamp) in zip(records, content, strict=True):
        assert record.timestamp == (timestamp if magic else None)
        assert record.timestamp_type == (0 if magic else None)
        assert record.serialized_key_size == (-1 if key is None else len(key))
        assert record.serialized_value_size == (-1 if value is None else len(value))
        assert record.headers == ()
        assert (record.topic, record.partition) == ("topic", 3)


@each_magic
@each_codec
def test_builder_without_messages_builds_an_empty_set(magic: int, codec: Codec) -> None:
    """Brokers answer an empty wrapper as if it held a message (docs/brokers.md 6.8)."""
    builder: MessageSetBuilder = twin.MessageSetBuilder(magic, codec)
    assert builder.build() == b""
    assert builder.size_bytes == len(builder) == 0


@pytest.mark.parametrize(("magic", "checksum"), [(0, 0x1A), (1, 0x82)])
def test_lz4_checksum_is_the_one_of_the_message_format(magic: int, checksum: int) -> None:
    """Format 0 has Kafka's wrong checksum (docs/brokers.md 6.2, KAFKA-3160)."""
    (outer,) = entries(built(magic, Codec.LZ4, [(None, b"value", 0)]).build())
    assert outer.value is not None
    assert outer.value[:7] == bytes.fromhex("04224d186040") + bytes([checksum])


@each_magic
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_keys_and_values_of_any_buffer_are_copied(magic: int, kind: type) -> None:
    key, value = bytearray(b"key"), bytearray(b"value")
    builder: MessageSetBuilder = twin.MessageSetBuilder(magic)
    builder.append(kind(key), kind(value), 5)
    builder.append(None, kind(value), 5)
    builder.append(kind(b""), kind(b""), 5)
    key[:], value[:] = b"yek", b"eulav"
    content: Messages = [(b"key", b"value", 5), (None, b"value", 5), (b"", b"", 5)]
    expected = by_the_book(magic, content)
    if kind is not bytes:
        builder.append(None, kind(value), 5)
        expected = by_the_book(magic, [*content, (None, b"eulav", 5)])
    assert builder.build() == expected


@each_magic
@pytest.mark.parametrize("bad", ["text", 5, [1]])
def test_value_that_is_no_buffer_raises_and_appends_nothing(magic: int, bad: object) -> None:
    builder = built(magic, Codec.NONE, [(None, b"before", 1)])
    before = builder.build()
    for key, value in ((bad, b""), (None, bad)):
        with pytest.raises(TypeError):
            builder.append(key, value, 2)  # type: ignore[arg-type]
    assert builder.build() == before
    assert builder.size_bytes == len(before)


@each_magic
@given(key=fields, value=fields)
def test_message_size_is_the_size_in_the_set(
    magic: int, key: bytes | None, value: bytes | None
) -> None:
    assert message_size(magic, key, value) == len(by_the_book(magic, [(key, value, 0)]))


@given(
    offset=st.integers(-(2**63), 2**63 - 1),
    key=fields,
    value=fields,
    magic=st.integers(0, 1),
    attributes=st.integers(0, 127),
    timestamp=timestamps,
)
def test_encode_entry_has_the_documented_layout(
    offset: int,
    key: bytes | None,
    value: bytes | None,
    magic: int,
    attributes: int,
    timestamp: int,
) -> None:
    encoded = encode_entry(
        offset, key, value, magic=magic, attributes=attributes, timestamp_ms=timestamp
    )
    assert encoded == entry(
        offset,
        message(key, value, magic=magic, attributes=attributes, timestamp_ms=timestamp),
    )
    (again,) = entries(encoded)
    assert again == Entry(
        offset,
        struct.unpack_from(">I", encoded, 12)[0],
        magic,
        attributes,
        timestamp if magic else None,
        key,
        value,
        True,
    )


# --- extend -------------------------------------------------------------------------------------


@each_magic
@given(
    content=messages,
    start=st.integers(0, 8),
    limit=st.integers(0, 400),
    before=st.integers(0, 2),
    with_keys=st.booleans(),
    one_timestamp=st.booleans(),
)
def test_extend_appends_up_to_the_limit(
    magic: int,
    content: Messages,
    start: int,
    limit: int,
    before: int,
    with_keys: bool,
    one_timestamp: bool,
) -> None:
    start = min(start, len(content))
    if not with_keys:
        content = [(None, value, timestamp) for _, value, timestamp in content]
    if one_timestamp:
        content = [(key, value, 77) for key, value, _ in content]
    first: Messages = [(None, b"x" * 10, 7)] * before
    builder = built(magic, Codec.NONE, first)
    stop = builder.extend(
        [key for key, _, _ in content] if with_keys else None,
        [value for _, value, _ in content],
        77 if one_timestamp else [timestamp for _, _, timestamp in content],
        start,
        limit,
    )
    assert start <= stop <= len(content)
    taken = first + content[start:stop]
    assert builder.build() == by_the_book(magic, taken)
    if len(taken) > 1 and stop > start:
        assert builder.size_bytes <= limit
    if not first and start < len(content):
        assert stop > start, "an empty builder takes its first message whatever the size"
    if stop < len(content):
        key, value, _ = content[stop]
        assert builder.size_bytes + message_size(magic, key, value) > limit


def test_extend_fills_the_limit_to_the_byte() -> None:
    values = [b"v" * 74] * 10  # 100 bytes each in format 0
    builder: MessageSetBuilder = twin.MessageSetBuilder(0)
    assert builder.extend(None, values, 0, 0, 300) == 3
    assert builder.extend(None, values, 0, 3, 399) == 3
    assert builder.extend(None, values, 0, 3, 400) == 4
    assert builder.extend(None, values, 0, 10, 9999) == 10
    assert len(builder) == 4


def test_extend_continues_at_the_returned_index() -> None:
    values = [str(index).encode() for index in range(1000)]
    parts, start = [], 0
    while start < len(values):
        builder: MessageSetBuilder = twin.MessageSetBuilder(1)
        start = builder.extend(None, values, 5, start, 1000)
        parts.append(builder)
    assert [record.value for part in parts for record in read(part.build())] == values
    assert all(part.size_bytes <= 1000 for part in parts)


# --- split and as_format_0 ------------------------------------------------------------------------


@each_magic
@each_codec
@examples(30)
@given(content=st.lists(st.tuples(fields, fields, timestamps), min_size=2, max_size=9))
def test_split_returns_two_halves_in_order(magic: int, codec: Codec, content: Messages) -> None:
    builder = built(magic, codec, content)
    before = builder.build()
    halves = builder.split()
    middle = len(content) // 2
    for half, part in zip(halves, (content[:middle], content[middle:]), strict=True):
        # As if only these messages had been appended: bytes, wrapper timestamp, sizes.
        alone = built(magic, codec, part)
        assert half.build() == alone.build()
        assert len(half) == len(part)
        assert half.size_bytes == alone.size_bytes
        assert half.max_timestamp_ms == alone.max_timestamp_ms
        assert (half.magic, half.codec) == (magic, codec)
    assert builder.build() == before


@each_magic
@examples(60)
@given(content=messages)
def test_key_lengths_are_those_of_the_messages(magic: int, content: Messages) -> None:
    builder = built(magic, Codec.NONE, content)
    sizes = [-1 if key is None else len(key) for key, _, _ in content]
    assert builder.key_lengths() == (min(sizes, default=-1), max(sizes, default=-1))


@each_magic
@each_codec
@examples(30)
@given(content=messages)
def test_as_format_0_equals_a_set_built_in_format_0(
    magic: int, codec: Codec, content: Messages
) -> None:
    builder = built(magic, codec, content)
    converted = builder.as_format_0()
    assert converted.build() == built(0, codec, content).build()
    assert converted.size_bytes == built(0, codec, content).size_bytes
    assert (converted.magic, converted.codec, len(converted)) == (0, codec, len(content))
    # More messages can be appended.
    converted.append(b"k", b"v", 1)
    assert converted.build() == built(0, codec, [*content, (b"k", b"v", 1)]).build()
