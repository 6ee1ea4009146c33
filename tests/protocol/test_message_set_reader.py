"""Reading fetched sets: offsets, timestamps, wrappers, damage, slices."""

from __future__ import annotations

import gc
import pickle
import weakref
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka08.errors import CorruptRecordException
from aiokafka08.protocol.compression import Codec
from aiokafka08.protocol.message_set import LOG_APPEND_TIME, SetSummary
from tests.protocol.oracle import (
    LIMIT,
    TP,
    Record,
    brief,
    crc32,
    entry,
    message,
    raw_message,
    read,
    reader,
    sized,
    wrapper,
)
from tests.protocol.strategies import examples
from tests.protocol.twins import each_twin, twin

pytestmark = each_twin

each_magic = pytest.mark.parametrize("magic", [0, 1])
each_compression = pytest.mark.parametrize(
    "codec", [codec for codec in Codec if codec], ids=lambda codec: codec.name
)


def plain(offset: int, value: bytes | None = b"v", **how: Any) -> bytes:
    """Return the entry of a message without a key."""
    return entry(offset, message(None, value, **how))


def numbered(*offsets: int, **how: Any) -> bytes:
    """Return a set of messages whose values are their offsets."""
    return b"".join(plain(offset, str(offset).encode(), **how) for offset in offsets)


def failure(message_set: bytes, fetch_offset: int = 0, **how: Any) -> CorruptRecordException:
    """Return the first error in this set."""
    with pytest.raises(CorruptRecordException) as caught:
        reader(message_set, fetch_offset, **how).read(1000)
    return caught.value


# --- plain sets ---------------------------------------------------------------------------------


def test_large_set_in_a_view_gives_bytes() -> None:
    """The pure twin doesn't copy it as a whole."""
    keys = [None, b"k", b""] * 4
    entries = [
        entry(offset, message(key, bytes(200_000), magic=offset % 2, timestamp_ms=5))
        for offset, key in enumerate(keys)
    ]
    opened = wrapper(12, entry(12, message(b"i", b"inside")))
    frame = bytearray(b"".join(entries) + opened)
    one = reader(memoryview(frame))
    records = [record for _ in range(7) for record in one.read(2)]
    assert [record.key for record in records] == [*keys, b"i"]
    assert all(
        type(field) is bytes for record in records for field in (record.key, record.value) if field
    )
    frame[:] = bytes(len(frame))  # what was read is independent of the frame
    assert records[1].key == b"k"


def test_record_has_all_fields_of_the_message() -> None:
    data = entry(7, message(b"key", b"value")) + entry(
        8, message(None, None, magic=1, timestamp_ms=1_500_000_000_000)
    )
    first, second = read(data)
    assert first == Record(
        topic="topic",
        partition=3,
        offset=7,
        timestamp=None,
        timestamp_type=None,
        key=b"key",
        value=b"value",
        checksum=crc32(data[16:34]),
        serialized_key_size=3,
        serialized_value_size=5,
        headers=(),
    )
    assert second == Record(
        topic="topic",
        partition=3,
        offset=8,
        timestamp=1_500_000_000_000,
        timestamp_type=0,
        key=None,
        value=None,
        checksum=crc32(data[50:]),
        serialized_key_size=-1,
        serialized_value_size=-1,
        headers=(),
    )


@each_magic
@examples(100)
@given(
    fields=st.lists(
        st.tuples(st.none() | st.binary(max_size=30), st.none() | st.binary(max_size=30)),
        max_size=8,
    ),
    data=st.data(),
)
def test_null_and_empty_keys_and_values_differ(
    magic: int, fields: list[tuple[bytes | None, bytes | None]], data: st.DataObject
) -> None:
    message_set = b"".join(
        entry(offset, message(key, value, magic=magic))
        for offset, (key, value) in enumerate(fields, 10)
    )
    cut = data.draw(st.integers(0, 25))
    tail = entry(99, message(None, b"", magic=magic))[:cut]
    records = read(message_set + tail)
    assert [(record.key, record.value) for record in records] == fields
    assert [record.offset for record in records] == list(range(10, 10 + len(fields)))


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_set_of_any_buffer_is_not_referenced_by_records(kind: type) -> None:
    data = bytearray(numbered(0, 1))
    whole = twin.MessageSetReader(TP, kind(data), 0, max_decompressed_bytes=LIMIT)
    records = whole.read(10)
    data[:] = bytes(len(data))
    assert brief(records) == [(0, b"0"), (1, b"1")]
    assert all(type(record.value) is bytes for record in records)


def test_messages_below_the_fetch_offset_are_skipped() -> None:
    broken = plain(4, crc_error=1)
    assert brief(read(broken + numbered(5, 6, 8), 6)) == [(6, b"6"), (8, b"8")]


@pytest.mark.parametrize("cut", [0, 1, 11, 12, 13, 25, 26, 27, 30])
def test_cut_off_message_at_the_end_is_ignored(cut: int) -> None:
    data = numbered(0, 1) + entry(2, message(b"key", b"value"))[:cut]
    assert brief(read(data)) == [(0, b"0"), (1, b"1")]


@pytest.mark.parametrize("rest", [12, 20, 100])
def test_filler_of_modern_brokers_is_ignored(rest: int) -> None:
    """Its offset is -1, its size exceeds the bytes left (docs/brokers.md 7.8)."""
    filler = entry(-1, bytes(rest - 12), size=max(rest + 1, 61))
    assert len(filler) == rest
    assert brief(read(numbered(0) + filler)) == [(0, b"0")]


def test_empty_set_has_no_records() -> None:
    assert read(b"") == []


@each_magic
@examples(50)
@given(
    sizes=st.lists(st.integers(1, 5), max_size=6),
    wrapped=st.lists(st.booleans(), min_size=6, max_size=6),
    fetch_offset=st.integers(0, 20),
)
def test_slices_of_any_size_give_the_same_records(
    magic: int, sizes: list[int], wrapped: list[bool], fetch_offset: int
) -> None:
    message_set, offset = b"", 0
    for size, is_wrapped in zip(sizes, wrapped, strict=False):
        offsets = range(offset, offset + size)
        if is_wrapped:
            inner_from = 0 if magic else offset
            inner = numbered(*range(inner_from, inner_from + size), magic=magic)
            message_set += wrapper(offsets[-1], inner, magic=magic)
        else:
            message_set += numbered(*offsets, magic=magic)
        offset += size
    message_set += numbered(99)[:20]
    whole = read(message_set, fetch_offset)
    assert [record.offset for record in whole] == list(range(fetch_offset, offset))
    for most in (1, 2, 7, 1000):
        sliced = reader(message_set, fetch_offset)
        records: list[Record] = []
        while some := sliced.read(most):
            assert len(some) <= most
            records += some
        assert records == whole
        assert len(some) == 0


# --- wrappers -----------------------------------------------------------------------------------


@each_compression
def test_format_0_wrapper_has_absolute_offsets(codec: Codec) -> None:
    data = wrapper(7, numbered(5, 6, 7), codec) + numbered(8) + wrapper(11, numbered(9, 11), codec)
    assert [offset for offset, _ in brief(read(data))] == [5, 6, 7, 8, 9, 11]


@each_compression
def test_format_1_wrapper_has_relative_offsets(codec: Codec) -> None:
    """KIP-31: the wrapper's offset is that of the last message inside."""
    data = wrapper(102, numbered(0, 1, 2, magic=1), codec, magic=1)
    assert brief(read(data)) == [(100, b"0"), (101, b"1"), (102, b"2")]


def test_compacted_format_1_wrapper_keeps_its_gaps() -> None:
    data = wrapper(107, numbered(1, 4, 7, magic=1), magic=1)
    assert [offset for offset, _ in brief(read(data))] == [101, 104, 107]
    data = wrapper(
        107, numbered(0, 3, magic=1), magic=1
    )  # the last messages are missing, so offsets aren't relative
    assert [offset for offset, _ in brief(read(data))] == [104, 107]


def test_format_1_in_format_0_wrapper_has_absolute_offsets() -> None:
    """0.8.2 and 0.9 store messages of any magic and make the wrapper (docs/brokers.md 5.9, 6.3)."""
    records = read(wrapper(6, numbered(5, 6, magic=1, timestamp_ms=77)))
    assert brief(records) == [(5, b"5"), (6, b"6")]
    assert [record.timestamp for record in records] == [77, 77]


@each_magic
def test_fetch_inside_a_wrapper_skips_lower_offsets(magic: int) -> None:
    inner = numbered(0, 1, 2, 3, magic=1) if magic else numbered(10, 11, 12, 13)
    data = wrapper(13, inner, magic=magic) + numbered(14)
    for fetch_offset in range(9, 16):
        offsets = [record.offset for record in read(data, fetch_offset)]
        assert offsets == list(range(max(fetch_offset, 10), 15))


@each_magic
def test_wrapper_below_fetch_offset_is_not_decompressed(magic: int) -> None:
    garbage = entry(9, message(None, b"no gzip", magic=magic, attributes=1))
    assert brief(read(garbage + numbered(10), 10)) == [(10, b"10")]


def test_wrappers_log_append_time_is_that_of_all_inside() -> None:
    inner = plain(0, magic=1, timestamp_ms=5) + plain(1, magic=1, timestamp_ms=6)
    data = wrapper(1, inner, magic=1, attributes=LOG_APPEND_TIME, timestamp_ms=1000)
    assert [(one.timestamp, one.timestamp_type) for one in read(data)] == [(1000, 1)] * 2


def test_create_time_in_a_wrapper_is_the_messages_own() -> None:
    inner = plain(0, magic=1, timestamp_ms=5) + plain(1, magic=1, timestamp_ms=6)
    data = wrapper(1, inner, magic=1, timestamp_ms=6)
    assert [(one.timestamp, one.timestamp_type) for one in read(data)] == [(5, 0), (6, 0)]


def test_log_append_time_of_a_plain_message_is_returned() -> None:
    (record,) = read(plain(0, magic=1, timestamp_ms=5, attributes=LOG_APPEND_TIME))
    assert (record.timestamp, record.timestamp_type) == (5, 1)


def test_timestamp_type_bit_is_ignored_in_format_0() -> None:
    """0.8 stores attribute bits beyond the codec and returns them (docs/brokers.md 5.10)."""
    (record,) = read(plain(0, b"v", attributes=LOG_APPEND_TIME))
    assert (record.timestamp, record.timestamp_type, record.value) == (None, None, b"v")
    (record,) = read(plain(0, b"v", attributes=-128))
    assert record.value == b"v"


@pytest.mark.parametrize(
    "inner",
    [(0, 0, 0), (2, 1, 0), (0, 1, 1), (1, 0, 2), (12, 12, 12), (14, 13, 12), (11, 12, 11)],
    ids=str,
)
@each_magic
def test_offsets_in_a_wrapper_that_do_not_rise_are_the_wrappers(
    magic: int, inner: tuple[int, ...]
) -> None:
    """No broker stores such offsets; Java's consumer of 0.10 returns all these messages."""
    data = numbered(9) + wrapper(12, numbered(*inner, magic=magic), magic=magic) + numbered(13)
    values = [(12, str(offset).encode()) for offset in inner]
    for most in (1, 2, 100):
        whole = reader(data, 9)
        records: list[Record] = []
        while some := whole.read(most):
            records += some
        assert brief(records) == [(9, b"9"), *values, (13, b"13")]
    assert brief(read(data, 12)) == [*values, (13, b"13")]
    assert brief(read(data, 13)) == [(13, b"13")]


@pytest.mark.parametrize(
    ("magic", "inner"),
    [(0, (5, 20)), (0, (-3, 1)), (0, (0,)), (1, (0, 1, 2)), (1, (7, 9))],
    ids=str,
)
def test_offsets_in_a_wrapper_that_do_not_fit_are_the_wrappers(
    magic: int, inner: tuple[int, ...]
) -> None:
    """Above the wrapper's offset they would hide later messages, below 0 they would be skipped."""
    data = wrapper(1, numbered(*inner, magic=magic), magic=magic) + numbered(2)
    assert [one.offset for one in read(data)] == [1] * len(inner) + [2]


def test_wrappers_in_a_wrapper_share_its_offset_if_theirs_do_not_rise() -> None:
    nested = [wrapper(offset, numbered(offset)) for offset in (5, 4, 3)]
    data = wrapper(5, nested[0] + numbered(2) + nested[1] + nested[2]) + numbered(6)
    assert brief(read(data)) == [(5, b"5"), (5, b"2"), (5, b"4"), (5, b"3"), (6, b"6")]
    sliced = reader(data)
    assert [brief(sliced.read(2)) for _ in range(3)] == [
        [(5, b"5"), (5, b"2")],
        [(5, b"4"), (5, b"3")],
        [(6, b"6")],
    ]


@each_compression
@each_magic
@pytest.mark.parametrize("nested", [False, True])
def test_wrapper_without_messages_is_corrupt(codec: Codec, magic: int, nested: bool) -> None:
    """Brokers store none (docs/brokers.md 6.8)."""
    empty = wrapper(6, b"", codec, magic=magic)
    data = numbered(5) + (wrapper(6, empty, codec, magic=magic) if nested else empty) + numbered(7)
    whole = reader(data)
    assert brief(whole.read(9)) == [(5, b"5")]
    with pytest.raises(CorruptRecordException) as caught:
        whole.read(9)
    assert (caught.value.offset, caught.value.next_offset) == (6, 7)
    assert brief(read(data, 7)) == [(7, b"7")]


@pytest.mark.parametrize("left", [1, 11, 12, 25, 26, 30, -1])
@pytest.mark.parametrize("kind", ["plain 0", "plain 1", "nested"])
@pytest.mark.parametrize("before", [0, 2])
def test_cut_off_message_in_a_wrapper_is_corrupt(kind: str, left: int, before: int) -> None:
    """A lost message isn't skipped silently: a fetch cuts the outermost set only."""
    magic = int(kind == "plain 1")
    first = 0 if magic else 6
    inner = numbered(*range(first, first + before), magic=magic)
    inner += plain(first + before, b"cut off", magic=magic)[:left]
    end = 6 + before
    data = wrapper(end, inner, magic=magic)
    if kind == "nested":
        data = wrapper(end, data)
    data = numbered(5) + data + numbered(end + 1)
    # Only the offsets of format 0 are known before the last message is.
    readable = [5, *range(6, 6 + before * (kind == "plain 0"))]
    for read_one in (offset_of_record, offset_of_column):
        whole = reader(data)
        assert [read_one(whole) for _ in readable] == readable
        with pytest.raises(CorruptRecordException, match="cut off") as caught:
            read_one(whole)
        assert (caught.value.offset, caught.value.next_offset) == (end, end + 1)
    assert [one.offset for one in read(data, end + 1)] == [end + 1]


def offset_of_record(whole: Any) -> int:
    [record] = whole.read(1)
    return int(record.offset)


def offset_of_column(whole: Any) -> int:
    columns = twin.Columns()
    assert whole.read_columns(columns, 1) == 1
    return int(columns.last_offset)


@pytest.mark.parametrize("rest", [1, 12, 20, 26])
@each_magic
def test_bytes_behind_the_last_message_in_a_wrapper_are_corrupt(magic: int, rest: int) -> None:
    """Then the position is known at the wrapper only, so none of its messages is returned."""
    inner = numbered(0, 1, magic=1) if magic else numbered(6, 7)
    data = numbered(5) + wrapper(7, inner + b"\x7f" * rest, magic=magic) + numbered(8)
    whole = reader(data)
    assert brief(whole.read(9)) == [(5, b"5")]
    with pytest.raises(CorruptRecordException) as caught:
        whole.read(9)
    assert (caught.value.offset, caught.value.next_offset) == (7, 8)


@pytest.mark.parametrize(
    "damage",
    [b"\x7f" * 30, entry(9, bytes(20), size=0), b"\x7f" * 5],
    ids=["cut off", "size 0", "stray bytes"],
)
def test_range_ends_before_damage_behind_its_end(damage: bytes) -> None:
    for data in (numbered(5, 6) + damage, wrapper(9, numbered(5, 6) + damage)):
        whole = twin.MessageSetReader(TP, data, 5, max_decompressed_bytes=LIMIT, end_offset=7)
        assert [one.offset for one in whole.read(9)] == [5, 6]
        assert whole.read(9) == []


def test_nested_wrapper_of_0_9_0_1_has_one_offset() -> None:
    """0.9.0.1 gives it one offset and leaves those inside unchanged (docs/brokers.md 6.7)."""
    nested = wrapper(5, numbered(0, 1, 2))
    data = wrapper(6, numbered(4) + nested + numbered(6)) + numbered(7)
    assert brief(read(data)) == [(4, b"4"), (5, b"0"), (5, b"1"), (5, b"2"), (6, b"6"), (7, b"7")]
    assert brief(read(data, 6)) == [(6, b"6"), (7, b"7")]
    sliced = reader(data, 5)
    assert [brief(sliced.read(2)) for _ in range(4)] == [
        [(5, b"0"), (5, b"1")],
        [(5, b"2"), (6, b"6")],
        [(7, b"7")],
        [],
    ]


def test_nested_wrapper_of_format_1_has_one_offset() -> None:
    nested = wrapper(5, numbered(0, 1, 2, magic=1), magic=1)
    data = wrapper(6, numbered(4) + nested + numbered(6))
    assert [offset for offset, _ in brief(read(data))] == [4, 5, 5, 5, 6]


@each_magic
def test_three_levels_of_wrappers_are_corrupt_and_skippable(magic: int) -> None:
    three = wrapper(5, wrapper(5, wrapper(5, numbered(5), magic=magic), magic=magic), magic=magic)
    data = numbered(4) + three + numbered(6)
    whole = reader(data)
    assert brief(whole.read(10)) == [(4, b"4")]
    with pytest.raises(CorruptRecordException, match="wrapper in a wrapper in a wrapper") as caught:
        whole.read(10)
    assert (caught.value.offset, caught.value.next_offset) == (5, 6)
    assert brief(read(data, 6)) == [(6, b"6")]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (entry(5, message(None, None, attributes=1)), "wrapper without a value"),
        (entry(5, message(None, b"no gzip", attributes=1)), "codec 1"),
        (entry(5, message(None, b"", attributes=2)), "codec 2"),
        (entry(5, message(None, b"\x04\x22\x4d\x18", attributes=3)), "codec 3"),
        (entry(5, message(None, b"plain on 0.8.1", attributes=4)), "codec 4"),
        (entry(5, message(None, b"", attributes=7)), "codec 7"),
    ],
    ids=["null value", "garbage", "empty snappy", "cut lz4", "codec 4", "codec 7"],
)
def test_wrapper_that_fails_to_decompress_is_corrupt(data: bytes, why: str) -> None:
    error = failure(data + numbered(6))
    assert why in str(error)
    assert (error.partition, error.offset, error.next_offset) == (TP, 5, 6)
    assert brief(read(data + numbered(6), 6)) == [(6, b"6")]


# --- what comes again ---------------------------------------------------------------------------


def test_repeated_message_is_read_once() -> None:
    """3.9.1 sends the first batch after a control batch twice (docs/brokers.md 7.12)."""
    assert [one.offset for one in read(numbered(7, 7, 9, 11), 6)] == [7, 9, 11]
    assert [one.offset for one in read(numbered(7, 8, 7, 8, 9))] == [7, 8, 9]
    cut = numbered(7, 8) + numbered(7, 8)[:40]
    assert [one.offset for one in read(cut, 6)] == [7, 8]


@each_magic
def test_repeated_wrapper_is_read_once(magic: int) -> None:
    inner = numbered(0, 1, magic=1) if magic else numbered(7, 8)
    data = wrapper(8, inner, magic=magic) * 2 + numbered(9)
    assert [one.offset for one in read(data)] == [7, 8, 9]
    sliced = reader(data)
    assert [[one.offset for one in sliced.read(1)] for _ in range(4)] == [[7], [8], [9], []]


@each_magic
def test_wrapper_that_begins_below_the_entry_before_is_read(magic: int) -> None:
    """No broker sends that: a bit of the wrapper's offset is wrong, or one of the entry before."""
    inner = numbered(0, 1, 2, magic=1) if magic else numbered(6, 7, 8)
    data = numbered(6, 7) + wrapper(8, inner, magic=magic) + numbered(8, 9)
    values = [b"6", b"7", *((b"0", b"1", b"2") if magic else (b"6", b"7", b"8")), b"9"]
    assert brief(read(data)) == list(zip((6, 7, 8, 8, 8, 9), values, strict=True))


# --- damage -------------------------------------------------------------------------------------


def poisoned(kind: str) -> bytes:
    """Return messages 10 – 14; message 12 has a wrong CRC."""
    magic = int(kind.endswith("1"))
    first = 0 if magic and kind.startswith("wrapper") else 10
    inner = b"".join(
        plain(first + index, str(10 + index).encode(), magic=magic, crc_error=index == 2)
        for index in range(5)
    )
    return wrapper(14, inner, magic=magic) if kind.startswith("wrapper") else inner


each_poison = pytest.mark.parametrize("kind", ["plain 0", "plain 1", "wrapper 0", "wrapper 1"])


@each_poison
@pytest.mark.parametrize("most", [1, 2, 7])
def test_corrupt_message_raises_after_those_before_it(kind: str, most: int) -> None:
    """Brokers serve messages that were stored with a wrong inner CRC (docs/brokers.md 6.8)."""
    whole = reader(poisoned(kind) + numbered(15), 10)
    records: list[Record] = []
    while len(records) < 2:
        records += whole.read(most)
    assert brief(records) == [(10, b"10"), (11, b"11")]
    for _ in range(3):  # each further call raises too
        with pytest.raises(CorruptRecordException, match="CRC") as caught:
            whole.read(most)
    assert (caught.value.partition, caught.value.offset, caught.value.next_offset) == (TP, 12, 13)
    assert "topic 'topic', partition 3, offset 12" in str(caught.value)
    assert "seek() to 13 skips it" in str(caught.value)
    assert whole.error is caught.value


@each_poison
def test_reader_after_the_corrupt_message_reads_on(kind: str) -> None:
    data = poisoned(kind) + numbered(15)
    assert brief(read(data, 13)) == [(13, b"13"), (14, b"14"), (15, b"15")]


@each_poison
def test_wrong_crc_is_ignored_without_crc_checks(kind: str) -> None:
    assert [one.offset for one in read(poisoned(kind), 10, check_crcs=False)] == [
        10,
        11,
        12,
        13,
        14,
    ]


def test_repeated_raise_does_not_grow_the_traceback() -> None:
    whole = reader(plain(0, crc_error=1))
    depths = []
    for _ in range(5):
        with pytest.raises(CorruptRecordException) as caught:
            whole.read(1)
        depths.append(len(caught.traceback))
    assert len(set(depths)) == 1


@each_magic
def test_wrapper_with_wrong_crc_is_skipped_as_a_whole(magic: int) -> None:
    inner = numbered(0, 1, magic=1) if magic else numbered(10, 11)
    data = wrapper(11, inner, magic=magic, crc_error=1) + numbered(12)
    error = failure(data, 10)
    assert (error.offset, error.next_offset) == (11, 12)
    assert brief(read(data, 12)) == [(12, b"12")]


@pytest.mark.parametrize("size", [-(2**31), -12, -1, 0, 13])
def test_impossible_size_has_no_next_offset(size: int) -> None:
    for check_crcs in (True, False):
        whole = reader(numbered(4) + entry(5, bytes(20), size=size), check_crcs=check_crcs)
        assert brief(whole.read(10)) == [(4, b"4")]
        with pytest.raises(CorruptRecordException, match=f"size field says {size}") as caught:
            whole.read(10)
        assert (caught.value.offset, caught.value.next_offset) == (5, None)


@pytest.mark.parametrize("rest", [12, 13, 20, 25])
def test_impossible_size_is_found_in_a_short_tail(rest: int) -> None:
    data = numbered(4) + entry(5, bytes(rest - 12), size=rest - 12)
    whole = reader(data)
    assert brief(whole.read(10)) == [(4, b"4")]
    with pytest.raises(CorruptRecordException, match="size field"):
        whole.read(10)


@pytest.mark.parametrize("size", [-12, 0, 13])
def test_impossible_size_in_a_wrapper_skips_to_next_entry(size: int) -> None:
    """The wrapper is complete, so its end is known."""
    data = wrapper(7, numbered(5) + entry(6, bytes(20), size=size)) + numbered(8)
    whole = reader(data)
    assert brief(whole.read(10)) == [(5, b"5")]
    with pytest.raises(CorruptRecordException, match="size field") as caught:
        whole.read(10)
    assert (caught.value.offset, caught.value.next_offset) == (6, 8)
    assert brief(read(data, 8)) == [(8, b"8")]


@pytest.mark.parametrize("size", [-12, 0, 13])
def test_impossible_size_in_format_1_wrapper_hides_offsets(
    size: int,
) -> None:
    """Relative offsets count from the last message inside, which can't be found."""
    inner = numbered(0, 1, magic=1) + entry(2, bytes(20), size=size)
    error = failure(wrapper(12, inner, magic=1) + numbered(13))
    assert (error.offset, error.next_offset) == (12, 13)
    assert "size" in str(error)


@pytest.mark.parametrize("check_crcs", [True, False])
@pytest.mark.parametrize(
    "body",
    [
        b"\0\0" + b"\xff\xff\xff\xfe" + sized(b""),
        b"\0\0" + b"\x80\0\0\0" + sized(b""),
        b"\0\0" + b"\0\0\0\x05" + sized(b""),
        b"\0\0" + b"\x7f\xff\xff\xff" + sized(b""),
        b"\0\0" + sized(b"key") + b"\xff\xff\xff\xfe",
        b"\0\0" + sized(None) + b"\0\0\0\5" + b"valu",
        b"\0\0" + sized(None) + b"\0\0\0\3" + b"valu",
        b"\0\0" + sized(None) + b"\x7f\xff\xff\xff" + b"v",
        b"\0\0" + sized(None) + b"\xff\xff\xff\xff" + b"v",
        b"\0\0" + sized(b"0123") + b"\0\0\0",
        b"\1\0" + sized(None) + sized(b"short"),
        b"\1\0" + bytes(8) + b"\0\0\0\6" + sized(b""),
        b"\2\0" + bytes(8) + sized(None) + sized(None),
        b"\x80\0" + sized(None) + sized(None),
    ],
    ids=[
        "key length -2",
        "key length -2^31",
        "key takes the value length",
        "key length 2^31-1",
        "value length -2",
        "value past the end",
        "bytes behind the value",
        "value length 2^31-1",
        "bytes behind a null value",
        "no room for the value length",
        "format 1 too short for its timestamp",
        "key past the end in format 1",
        "magic 2",
        "magic -128",
    ],
)
def test_contradicting_lengths_are_corrupt(body: bytes, check_crcs: bool) -> None:
    bad = entry(5, raw_message(body))
    data = numbered(4) + bad + numbered(6)
    for message_set, fetch_offset in ((data, 0), (wrapper(6, data), 0)):
        whole = reader(message_set, fetch_offset, check_crcs=check_crcs)
        assert brief(whole.read(10)) == [(4, b"4")]
        with pytest.raises(CorruptRecordException) as caught:
            whole.read(10)
        assert (caught.value.offset, caught.value.next_offset) == (5, 6)
        assert brief(read(message_set, 6)) == [(6, b"6")]


@each_compression
@each_magic
def test_wrapper_over_the_decompression_limit_is_corrupt(codec: Codec, magic: int) -> None:
    inner = plain(0, bytes(2000), magic=magic)
    data = wrapper(0, inner, codec, magic=magic) + numbered(1)
    assert len(reader(data, limit=len(inner)).read(10)) == 2
    error = failure(data, limit=len(inner) - 1)
    assert (error.offset, error.next_offset) == (0, 1)
    assert f"more than {len(inner) - 1} bytes" in str(error)


# --- summarize_set
# ---------------------------------------------------------------------------------


def test_summary_returns_the_next_fetch_offset() -> None:
    data = numbered(5, 6) + wrapper(9, numbered(7, 8, 9))
    assert twin.summarize_set(data) == SetSummary(
        next_offset=10, whole_bytes=len(data), tail_size=None
    )
    assert twin.summarize_set(b"") == SetSummary(None, 0, None)


@pytest.mark.parametrize("shown", [12, 13, 25, 26, 60])
def test_summary_returns_the_size_of_a_cut_off_message(shown: int) -> None:
    whole, tail = numbered(5), plain(6, bytes(100))
    assert twin.summarize_set(whole + tail[:shown]) == SetSummary(6, len(whole), len(tail))
    assert twin.summarize_set(tail[:shown]) == SetSummary(None, 0, len(tail))


@pytest.mark.parametrize("shown", range(12))
def test_summary_of_less_than_a_header_has_no_size(shown: int) -> None:
    whole = numbered(5)
    assert twin.summarize_set(whole + numbered(6)[:shown]) == SetSummary(6, len(whole), None)


def test_summary_ignores_the_filler_of_modern_brokers() -> None:
    whole = numbered(5)
    for filler in (entry(-1, bytes(10), size=61), entry(-1, b"", size=100_000)):
        assert twin.summarize_set(whole + filler) == SetSummary(6, len(whole), None)
        assert twin.summarize_set(filler) == SetSummary(None, 0, None)


@pytest.mark.parametrize("size", [-(2**31), -12, -1, 0, 13])
def test_summary_stops_at_an_impossible_size(size: int) -> None:
    whole = numbered(5)
    assert twin.summarize_set(whole + entry(6, bytes(20), size=size)) == SetSummary(
        6, len(whole), None
    )


@pytest.mark.parametrize(
    ("offsets", "rises"), [((), True), ((0, 5), True), ((5, 5), False), ((5, 4), False)], ids=str
)
def test_summary_says_whether_offsets_rise(offsets: tuple[int, ...], rises: bool) -> None:
    assert twin.summarize_set(numbered(*offsets)).rises is rises


def test_summary_never_returns_a_lower_offset() -> None:
    """Whatever a broker sends, the next fetch offset is above all offsets received."""
    assert twin.summarize_set(numbered(5, 9, 7)).next_offset == 10
    assert twin.summarize_set(plain(-1)) == SetSummary(None, len(plain(-1)), None, rises=False)
    assert twin.summarize_set(numbered(5) + plain(-1)).next_offset == 6


@given(
    sizes=st.lists(st.integers(0, 50), max_size=6),
    cut=st.integers(0, 61),
    kind=st.sampled_from([bytes, bytearray, memoryview]),
)
def test_summary_agrees_with_the_reader(sizes: list[int], cut: int, kind: type) -> None:
    data = b"".join(plain(offset, bytes(size)) for offset, size in enumerate(sizes))
    tail = plain(77, bytes(50))[:cut]
    seen = twin.summarize_set(kind(data + tail))
    assert seen.next_offset == (len(read(data + tail)) or None)
    assert seen.whole_bytes == len(data)
    assert seen.tail_size == (76 if cut >= 12 else None)


def test_reader_continues_in_a_copy_of_its_set() -> None:
    data = bytearray(b"".join(entry(offset, message(None, b"v")) for offset in range(5)))
    whole = reader(memoryview(data))
    assert len(whole.read(2)) == 2
    whole.move_to(bytes(data))
    data.clear()  # nothing refers to the bytes any more
    assert [record.offset for record in whole.read(10)] == [2, 3, 4]


def test_record_accepts_assignments_and_pickles() -> None:
    [record] = reader(entry(0, message(b"k", b"v"))).read(1)
    same = pickle.loads(pickle.dumps(record))
    assert same == record
    record.value = None
    del record.key
    assert record.value is None
    assert not hasattr(record, "key")
    record.consumer = "mine"  # type: ignore[attr-defined]
    assert pickle.loads(pickle.dumps(record)).consumer == "mine"


@pytest.mark.parametrize("attribute", ["value", "consumer"])
def test_record_in_a_cycle_is_collected(attribute: str) -> None:
    """The reader may leave its records untracked by the garbage collector."""

    class Context:
        record: Any

    context = Context()
    gone = weakref.ref(context)
    [context.record] = reader(entry(0, message(None, b"v"))).read(1)
    setattr(context.record, attribute, context)
    del context
    gc.collect()
    assert gone() is None


# --- turns --------------------------------------------------------------------------------------


@each_compression
def test_call_pauses_once_it_decompressed_enough(codec: Codec) -> None:
    one, two = numbered(0, 1), numbered(2, 3)
    data = wrapper(1, one, codec) + wrapper(3, two, codec) + numbered(4)
    whole = turning(data, 1)
    seen = []
    while (records := whole.read(10)) or whole.paused:
        seen.append(([record.offset for record in records], whole.decompressed_bytes, whole.paused))
    assert seen == [([0, 1], len(one), True), ([2, 3, 4], len(two), False)]


def test_call_below_the_pause_opens_all_wrappers() -> None:
    data = b"".join(wrapper(offset, numbered(offset), Codec.SNAPPY) for offset in range(10))
    whole = turning(data, 5 * len(numbered(0)))
    assert [len(whole.read(100)) for _ in range(3)] == [5, 5, 0]


def test_pause_counts_wrappers_in_wrappers() -> None:
    inner = wrapper(0, numbered(0), Codec.GZIP) + wrapper(1, numbered(1), Codec.GZIP)
    whole = turning(wrapper(1, inner, Codec.GZIP), len(inner) + 1)
    seen = []
    while (records := whole.read(9)) or whole.paused:
        seen.append((len(records), whole.paused))
    assert seen == [(1, True), (1, False)]


def turning(data: bytes, pause_after_bytes: int) -> Any:
    return twin.MessageSetReader(
        TP, data, 0, max_decompressed_bytes=LIMIT, pause_after_bytes=pause_after_bytes
    )


# --- wrappers that take long to open --------------------------------------------------------------


def leaving_long(data: bytes | memoryview, fetch_offset: int = 0, limit: int = 1 << 26) -> Any:
    return twin.MessageSetReader(
        TP, data, fetch_offset, max_decompressed_bytes=limit, leave_long=True
    )


def test_reader_that_waits_continues_in_a_copy() -> None:
    large = b"".join(plain(offset, bytes(200_000)) for offset in range(1, 11))
    data = bytearray(numbered(0) + wrapper(10, large) + numbered(11))
    whole = leaving_long(memoryview(data))
    assert [record.offset for record in whole.read(100)] == [0]
    whole.move_to(bytes(data))
    data.clear()  # nothing refers to the bytes any more, nor does the wrapper
    assert whole.read(100) == []
    whole.long_wrapper.open()
    assert [record.offset for record in whole.read(100)] == list(range(1, 12))


@each_compression
@pytest.mark.parametrize("magic", [0, 1])
def test_reader_waits_at_a_long_wrapper(codec: Codec, magic: int) -> None:
    large = plain(1, bytes(2_000_000), magic=magic)
    data = numbered(0) + wrapper(1, large, codec, magic=magic) + numbered(2)
    whole = leaving_long(data)
    assert [record.offset for record in whole.read(10)] == [0]
    for _ in range(2):
        assert whole.paused
        assert not whole.long_wrapper.is_open
        assert whole.read(10) == []
        assert whole.decompressed_bytes == 0
    whole.long_wrapper.open()
    whole.long_wrapper.open()
    assert whole.long_wrapper.is_open
    assert [record.offset for record in whole.read(10)] == [1, 2]
    assert whole.long_wrapper is None
    assert whole.decompressed_bytes == len(large)


@each_compression
def test_columns_wait_at_a_long_wrapper(codec: Codec) -> None:
    whole = leaving_long(wrapper(0, plain(0, bytes(2_000_000)), codec))
    columns = twin.Columns()
    assert (whole.read_columns(columns, 10), whole.paused) == (0, True)
    whole.long_wrapper.open()
    assert whole.read_columns(columns, 10) == 1


def test_long_wrapper_in_a_wrapper_is_left_too() -> None:
    inner = wrapper(0, plain(0, bytes(2_000_000)), Codec.GZIP)
    whole = leaving_long(wrapper(0, inner, Codec.SNAPPY) + numbered(1))
    assert whole.read(10) == []
    whole.long_wrapper.open()
    assert [record.offset for record in whole.read(10)] == [0, 1]


@each_compression
def test_short_wrapper_is_opened_at_once(codec: Codec) -> None:
    whole = leaving_long(wrapper(0, plain(0, bytes(200_000)), codec))
    assert len(whole.read(10)) == 1
    assert whole.long_wrapper is None


@each_compression
def test_long_wrapper_above_the_limit_is_corrupt(codec: Codec) -> None:
    whole = leaving_long(wrapper(0, plain(0, bytes(4_000_000)), codec), limit=3_000_000)
    assert whole.read(10) == []
    whole.long_wrapper.open()
    for _ in range(2):
        with pytest.raises(CorruptRecordException, match="more than 3000000 bytes"):
            whole.read(10)


def test_wrong_crc_of_a_long_wrapper_is_found_first() -> None:
    data = bytearray(wrapper(0, plain(0, bytes(2_000_000)), Codec.GZIP))
    data[-1] ^= 1
    with pytest.raises(CorruptRecordException, match="CRC"):
        leaving_long(bytes(data)).read(10)


def test_reader_that_moves_keeps_an_open_wrapper() -> None:
    data = wrapper(0, plain(0, bytes(2_000_000)), Codec.GZIP) + numbered(1)
    whole = leaving_long(data)
    assert whole.read(10) == []
    whole.long_wrapper.open()
    whole.move_to(bytes(bytearray(data)))
    assert [record.offset for record in whole.read(10)] == [0, 1]
