"""The buffer of a partition: positions, slices, deserializers, corrupt messages, memory."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka08.consumer.record_buffer import (
    DECODE_STEP_BYTES,
    SET_OVERHEAD_BYTES,
    Decoding,
    RecordBuffer,
)
from aiokafka08.errors import CorruptRecordException
from aiokafka08.protocol.compression import Codec, compress
from aiokafka08.protocol.message_set import Columns, encode_entry
from aiokafka08.structs import TopicPartition
from tests.conformance.contract.wire.requests import bad_crc

pytestmark = pytest.mark.twins

TP = TopicPartition("t", 3)


def messages(*offsets: int) -> bytes:
    return b"".join(encode_entry(offset, b"k", b"%d" % offset) for offset in offsets)


def buffer(position: int = 0, **decoding: Any) -> RecordBuffer:
    new = RecordBuffer(TP, Decoding(**decoding))
    new.reset(position)
    return new


def drain(full: RecordBuffer, slice_records: int = 1000) -> list[int]:
    offsets: list[int] = []
    while True:
        offsets += [record.offset for record in full.remaining]
        if not full.start_next_slice() and not full.decode(slice_records):
            return offsets


def test_position_moves_with_each_returned_record() -> None:
    some = buffer(5)
    some.add_set(messages(5, 6, 9), 5, 12)
    assert some.position == 5
    assert some.decode(10)
    assert some.position == 5
    assert some.start_next_slice()
    positions = [(record.offset, some.position) for record in some.remaining]
    # Behind the last message comes the set's end: what is in between is a hole.
    assert positions == [(5, 6), (6, 7), (9, 12)]
    assert not some.pending


@pytest.mark.parametrize("columns", [False, True])
def test_position_stays_at_a_shared_offset_while_decoding_pauses_within_it(columns: bool) -> None:
    """A step ends before each large wrapper; the messages of all of them have one offset."""

    def wrapper(offset: int, plain: bytes) -> bytes:
        packed = compress(Codec.GZIP, plain)
        return encode_entry(offset, None, packed, attributes=Codec.GZIP, magic=1)

    large = wrapper(0, encode_entry(0, None, bytes(DECODE_STEP_BYTES), magic=1))
    some = buffer()
    some.add_set(wrapper(7, large * 3), 0, 8)
    positions = []
    while some.pending:
        if some.long_wrapper is not None:
            some.long_wrapper.open()
        count = 0
        if columns:
            count = some.pop_columns(Columns(1 << 30), 10)
        elif some.decode(10):
            count = len(some.pop_records(10))
        if count:
            positions.append(some.position)
    assert positions == [7, 7, 8]


def test_slices_of_several_sets_come_in_order() -> None:
    some = buffer()
    some.add_set(messages(*range(5)), 0, 5)
    some.add_set(messages(*range(5, 9)), 5, 9)
    assert drain(some, 2) == list(range(9))
    assert some.position == 9
    assert some.buffered_bytes == 0
    assert some.returned_count == 9


def test_set_read_to_its_last_message_is_released() -> None:
    some = buffer()
    some.add_set(messages(0, 1, 2), 0, 3)
    assert some.decode(3)
    assert not some.buffered_bytes
    some.pop_records(None)
    assert (some.position, some.pending) == (3, False)


def test_messages_before_the_fetch_offset_are_dropped() -> None:
    some = buffer(3)
    some.add_set(messages(*range(5)), 3, 5)
    assert drain(some) == [3, 4]


def test_set_without_wanted_messages_moves_the_position() -> None:
    some = buffer(3)
    some.add_set(messages(1, 2), 3, 7)
    assert not some.decode(10)
    assert some.position == 7
    assert not some.pending


def test_hole_after_buffered_records_is_passed_with_them() -> None:
    some = buffer(3)
    some.add_set(messages(3), 3, 4)
    some.skip_to(9)
    assert some.position == 3
    assert drain(some) == [3]
    assert some.position == 9
    some.skip_to(11)
    assert some.position == 11


def test_hole_behind_several_slices_is_passed_after_the_last() -> None:
    some = buffer()
    some.add_set(messages(*range(4)), 0, 4)
    some.add_set(messages(1, 2), 4, 9)  # all before the fetch offset, as compaction may leave them
    assert [some.decode(2), some.decode(2), some.decode(2)] == [True, True, False]
    positions = []
    while some.start_next_slice():
        positions += [(record.offset, some.position) for record in some.remaining]
    assert positions == [(0, 1), (1, 2), (2, 3), (3, 9)]


def test_set_is_charged_until_it_is_decoded() -> None:
    some = buffer()
    data = messages(*range(10))
    some.add_set(data, 0, 10)
    assert some.buffered_bytes == len(data) + SET_OVERHEAD_BYTES
    some.decode(5)
    assert some.buffered_bytes
    some.decode(100)
    assert some.buffered_bytes == 0


def test_reset_drops_everything_and_ends_iterators() -> None:
    some = buffer()
    some.add_set(messages(*range(10)), 0, 10)
    some.decode(4)
    some.decode(4)
    some.start_next_slice()
    walk = some.remaining
    assert next(walk).offset == 0
    some.reset(77)
    assert list(walk) == []
    assert (some.position, some.pending, some.buffered_bytes) == (77, False, 0)
    assert some.returned_count == 1


def test_pop_records_returns_whole_and_partial_slices() -> None:
    some = buffer()
    some.add_set(messages(*range(10)), 0, 10)
    while some.decode(4):
        pass
    assert [record.offset for record in some.pop_records(3)] == [0, 1, 2]
    assert some.position == 3
    assert [record.offset for record in some.pop_records(3)] == [3, 4, 5]
    assert [record.offset for record in some.pop_records(None)] == [6, 7, 8, 9]
    assert some.position == 10
    assert some.pop_records(None) == []


def test_popped_list_is_unchanged_by_a_reset() -> None:
    some = buffer()
    some.add_set(messages(0, 1), 0, 2)
    some.decode(10)
    taken = some.pop_records(None)
    some.reset(0)
    assert [record.offset for record in taken] == [0, 1]


def test_corrupt_message_raises_each_time_it_is_next() -> None:
    some = buffer()
    some.add_set(messages(0, 1) + bad_crc(messages(2)) + messages(3), 0, 4)
    assert some.decode(10)
    assert not some.decode(10)  # not yet: 0 and 1 come first
    assert [record.offset for record in some.pop_records(None)] == [0, 1]
    for _ in range(3):
        with pytest.raises(CorruptRecordException) as caught:
            some.decode(10)
        assert (caught.value.partition, caught.value.offset) == (TP, 2)
        assert some.position == 2
        assert some.pending
        assert some.is_damaged


def test_error_at_the_end_of_a_slice_waits_for_its_records() -> None:
    """Of damage, and of a deserializer."""
    bad = bad_crc(messages(2))
    for some, last in ((buffer(), bad), (buffer(value_deserializer=not_two), messages(2))):
        some.add_set(messages(0, 1) + last, 0, 3)
        assert some.decode(2)
        assert not some.decode(2)
        assert len(some.pop_records(None)) == 2
        with pytest.raises((CorruptRecordException, ValueError)):
            some.decode(2)


def not_two(value: bytes) -> bytes:
    """Fail for the message with offset 2."""
    if value == b"2":
        raise ValueError
    return value


def test_only_damage_of_the_next_message_counts() -> None:
    """Not that behind decoded ones, and not the error of a deserializer."""
    some = buffer(value_deserializer=int)
    some.add_set(messages(0) + encode_entry(1, None, b"no number") + bytes(40), 0, 3)
    some.decode(10)
    assert not some.is_damaged
    assert [record.offset for record in some.pop_records(None)] == [0]
    with pytest.raises(ValueError, match="no number"):
        some.decode(10)
    assert not some.is_damaged


def test_crcs_are_not_checked_with_check_crcs_false() -> None:
    some = buffer(check_crcs=False)
    some.add_set(bad_crc(messages(0)), 0, 1)
    assert drain(some) == [0]


def test_deserializers_get_bytes_or_none_and_keep_the_sizes() -> None:
    some = buffer(key_deserializer=lambda key: [key], value_deserializer=lambda value: [value])
    some.add_set(encode_entry(0, None, b"v") + encode_entry(1, b"k", None), 0, 2)
    some.decode(10)
    first, second = some.pop_records(None)
    assert (first.key, first.value, first.serialized_value_size) == ([None], [b"v"], 1)
    assert (second.key, second.value, second.serialized_key_size) == ([b"k"], [None], 1)


class Picky:
    """A deserializer that fails on one value until `poison` is cleared; it records its calls."""

    def __init__(self, poison: bytes) -> None:
        self.poison: bytes | None = poison
        self.calls: list[Any] = []

    def __call__(self, value: Any) -> Any:
        self.calls.append(value)
        if value == self.poison:
            raise ValueError("can't read this")
        return (value,)


def test_deserializer_error_is_raised_at_its_message() -> None:
    picky = Picky(b"2")
    some = buffer(key_deserializer=lambda key: (key,), value_deserializer=picky)
    some.add_set(messages(*range(5)), 0, 5)
    assert some.decode(10)
    assert not some.decode(10)
    assert [record.value for record in some.pop_records(None)] == [(b"0",), (b"1",)]
    for _ in range(2):
        with pytest.raises(ValueError, match="can't read") as caught:
            some.decode(10)
        [note] = caught.value.__notes__
        assert "topic 't', partition 3, offset 2: " in note
        assert "seek() to 3 " in note
        assert some.position == 2
    picky.poison = None
    assert some.decode(10)
    rest = some.pop_records(None)
    assert [record.value for record in rest] == [(b"2",), (b"3",), (b"4",)]
    assert {record.key for record in rest} == {(b"k",)}  # not deserialized twice
    assert some.position == 5


def test_deserializer_error_raised_again_has_one_note() -> None:
    error = ValueError("always the same")

    def same(value: Any) -> Any:
        raise error

    some = buffer(value_deserializer=same)
    some.add_set(messages(0), 0, 1)
    for _ in range(2):
        with pytest.raises(ValueError, match="always"):
            some.decode(1)
    assert len(error.__notes__) == 1


def test_stop_iteration_of_a_deserializer_is_raised() -> None:
    def stop(value: Any) -> Any:
        raise StopIteration

    some = buffer(value_deserializer=stop)
    some.add_set(messages(0), 0, 1)
    with pytest.raises(StopIteration):
        some.decode(1)
    assert some.position == 0


@given(
    st.sets(st.integers(0, 60), max_size=30),
    st.sets(st.integers(0, 70), max_size=5),
    st.lists(st.tuples(st.sampled_from(["decode", "walk", "take", "slice"]), st.integers(0, 9))),
)
def test_random_calls_return_each_message_once_in_order(
    written: set[int], cut: set[int], calls: list[tuple[str, int]]
) -> None:
    offsets, end, at = sorted(written), 70, 0
    some = buffer()
    for stop in sorted(cut | {end}):
        inside = [offset for offset in offsets if at <= offset < stop]
        if inside:
            some.add_set(messages(*inside), at, stop)
        else:
            some.skip_to(stop)
        at = stop
    got: list[int] = []

    def check() -> None:
        rest = offsets[len(got) :]
        assert got == offsets[: len(got)]
        assert (got[-1] if got else -1) < some.position <= (rest[0] if rest else end)
        assert some.returned_count == len(got)
        assert some.pending or some.position == end

    for call, number in calls:
        before = some.position
        if call == "decode":
            some.decode(number + 1)
        elif call == "take":
            got += [record.offset for record in some.pop_records(number or None)]
        elif call == "walk":
            got += [record.offset for record in itertools.islice(some.remaining, number)]
        elif not some.decoded_count:
            some.start_next_slice()
        assert some.position >= before
        check()
    got += drain(some)
    check()
    assert got == offsets
