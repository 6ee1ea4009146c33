"""`PartitionLog`, compared with a simple model: a list of entries."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka08.protocol.compression import Codec
from aiokafka08.protocol.message_set import encode_entry
from aiokafka08.testing.broker_lines import LINES
from aiokafka08.testing.log import PartitionLog
from aiokafka08.testing.message_sets import LogConfig
from aiokafka08.testing.validation import validate_set
from tests.conformance.contract.wire.requests import plain, wrapper
from tests.protocol.entries import entries

pytestmark = pytest.mark.fast

RULES = LogConfig(LINES["0.8.2"], 1 << 20, 1 << 30)
END = 1 << 60


def append(log: PartitionLog, message_set: bytes, now_ms: int = 0) -> int:
    validated = validate_set(message_set, log.end_offset, RULES, now_ms)
    log.append(validated, now_ms)
    return validated.first_offset


def new_log(segment_bytes: int = 1 << 30, retention_bytes: int | None = None) -> PartitionLog:
    return PartitionLog(segment_bytes, retention_bytes, 0)


def offsets_of(data: bytes) -> list[int]:
    return [entry.offset for entry in entries(data)]


class ModelLog:
    """The model: a log of plain messages in one segment."""

    def __init__(self) -> None:
        self.start = self.end = 0
        self.stored: list[tuple[int, bytes]] = []

    def read(self, offset: int, max_bytes: int, below: int) -> bytes:
        data = b"".join(entry for at, entry in self.stored if offset <= at < below)
        return data[: max(max_bytes, 0)] if offset < below else b""


step = st.one_of(
    st.tuples(st.just("append"), st.lists(st.binary(max_size=40), min_size=1, max_size=8)),
    st.tuples(st.just("remove"), st.sets(st.integers(0, 60), max_size=6)),
    st.tuples(st.just("delete_before"), st.integers(0, 60)),
    st.tuples(st.just("truncate"), st.integers(0, 60)),
)


@given(
    st.lists(step, max_size=12),
    st.lists(st.tuples(st.integers(0, 60), st.integers(-1, 300), st.integers(0, 70)), max_size=8),
)
def test_log_agrees_with_simple_model(
    steps: list[tuple[str, object]], reads: list[tuple[int, int, int]]
) -> None:
    log, slow = new_log(), ModelLog()
    for what, argument in steps:
        if what == "append":
            assert isinstance(argument, list)
            append(log, plain(*argument))
            for value in argument:
                slow.stored.append((slow.end, encode_entry(slow.end, None, value)))
                slow.end += 1
        elif what == "remove":
            assert isinstance(argument, set)
            log.remove(argument)
            slow.stored = [one for one in slow.stored if one[0] not in argument]
        elif what == "delete_before":
            assert isinstance(argument, int)
            log.delete_before(argument)
            slow.start = max(slow.start, min(argument, slow.end))
            slow.stored = [one for one in slow.stored if one[0] >= slow.start]
        else:
            assert isinstance(argument, int)
            log.truncate(argument)
            slow.end = min(slow.end, argument)
            slow.start = min(slow.start, slow.end)
            slow.stored = [one for one in slow.stored if one[0] < slow.end]
        assert (log.start_offset, log.end_offset) == (slow.start, slow.end)
    for offset, max_bytes, below in reads:
        expected = slow.read(offset, max_bytes, below)
        assert log.read(offset, max_bytes, below) == expected
        assert log.readable_bytes(offset, max_bytes, below) == len(expected)
    assert log.size_bytes == sum(len(entry) for _, entry in slow.stored)
    assert [offset for offset, _ in log.entries()] == [offset for offset, _ in slow.stored]


def test_read_spans_blocks() -> None:
    log = new_log()
    for _ in range(40):
        append(log, plain(*[bytes(1000)] * 100))
    assert log.end_offset == 4000
    assert offsets_of(log.read(0, END, END)) == list(range(4000))
    assert offsets_of(log.read(1234, END, 3210)) == list(range(1234, 3210))
    assert len(log.read(1500, 2_000_000, END)) == 2_000_000


def test_read_stays_in_one_segment() -> None:
    log = new_log(segment_bytes=300)
    for _ in range(9):
        append(log, plain(bytes(74)))  # 100 bytes
    assert log.list_offsets(-1, 99, END, 0) == [9, 6, 3, 0]
    assert offsets_of(log.read(4, END, END)) == [4, 5]
    # Compaction has emptied this segment: the read continues in the next one.
    log.remove({3, 4, 5})
    assert offsets_of(log.read(3, END, END)) == [6, 7, 8]


def test_old_line_segments_overflow() -> None:
    log = PartitionLog(250, None, 0, segments_overflow=True)
    for _ in range(7):
        append(log, plain(bytes(74)))
    assert log.list_offsets(-1, 99, END, 0) == [7, 6, 3, 0]


def test_retention_keeps_at_least_retention_bytes() -> None:
    log = new_log(segment_bytes=300, retention_bytes=450)
    for number in range(50):
        append(log, plain(bytes(74)))
        assert log.size_bytes <= 450 + 300
        if number > 5:
            assert log.size_bytes >= 450
    assert log.start_offset == log.list_offsets(-2, 1, END, 0)[0] == 45
    assert offsets_of(log.read(45, END, END)) == [45, 46, 47]


def test_retention_counts_from_the_last_append_or_the_timestamp() -> None:
    log = PartitionLog(1 << 30, None, 0, retention_ms=1000)
    for written_ms, latest_ms in ((1000, -1), (1000, 5000), (1000, -1)):
        log.append_raw(plain(b"x", first=log.end_offset), log.end_offset + 1, written_ms, latest_ms)
        log.roll(written_ms)
    starts = []
    for now_ms in (2000, 2001, 6000, 6001, 6001):
        log.retain(now_ms)
        starts.append(log.start_offset)
    assert starts == [0, 1, 1, 3, 3]
    assert log.list_offsets(-1, 99, END, 9000) == [3]


def test_retention_ends_a_log_whose_messages_are_all_due() -> None:
    log = PartitionLog(1 << 30, 0, 0)
    append(log, plain(b"x", b"y"))
    assert log.start_offset == 0  # an append keeps the last segment
    log.retain(0)
    assert (log.start_offset, log.end_offset, log.size_bytes) == (2, 2, 0)
    assert append(log, plain(b"z")) == 2
    assert offsets_of(log.read(2, END, END)) == [2]


def test_compaction_keeps_the_time_from_which_segments_roll() -> None:
    log = PartitionLog(1 << 30, None, 0, segment_ms=1000)
    log.append_raw(plain(b"x", b"y"), 2, 0, 500)
    log.remove({0})
    log.append_raw(plain(b"z", first=2), 3, 9000, 1500)
    log.append_raw(plain(b"z", first=3), 4, 9000, 1501)
    assert log.list_offsets(-1, 99, END, 0) == [4, 3, 0]


def test_list_offsets_by_segment_time() -> None:
    log = new_log()
    assert log.list_offsets(5000, 10, END, 6000) == [0]
    for number in range(4):
        append(log, plain(b"x", b"y"), now_ms=1000 * (number + 1))
        log.roll(1000 * (number + 1))
    # Segments 0, 2, 4, 6 last written at 1, 2, 3, 4 s, and an empty one at 8.
    assert log.list_offsets(-1, 10, END, 9000) == [8, 6, 4, 2, 0]
    assert log.list_offsets(3500, 10, END, 9000) == [4, 2, 0]
    assert log.list_offsets(3500, 2, END, 9000) == [4, 2]
    assert log.list_offsets(3000, 1, END, 9000) == [4]
    assert log.list_offsets(999, 10, END, 9000) == []
    # No offset is above the high watermark.
    assert log.list_offsets(-1, 10, 5, 9000) == [5, 4, 2, 0]
    with pytest.raises(ValueError, match="expected an integer >= 0"):
        log.list_offsets(-1, -1, END, 0)


def test_delete_before_inside_a_wrapper_keeps_it_whole() -> None:
    log = new_log()
    append(log, plain(b"a"))
    append(log, wrapper(Codec.GZIP, plain(b"b", b"c", b"d")))
    log.delete_before(2)
    assert log.start_offset == 2
    assert offsets_of(log.read(2, END, END)) == [3]
    assert log.list_offsets(-2, 1, END, 0) == [2]
    log.delete_before(99)
    assert (log.start_offset, log.end_offset, log.size_bytes) == (4, 4, 0)


def damaged(first: int) -> bytes:
    """Return a message, an entry with a damaged size field, and a message behind it."""
    entries = [plain(b"%d" % offset, first=offset) for offset in range(first, first + 3)]
    entries[1] = entries[1][:8] + bytes(4) + entries[1][12:]
    return b"".join(entries)


def test_damage_hides_no_entry_of_another_set() -> None:
    log = new_log()
    append(log, plain(b"a"))
    log.append_raw(damaged(1), 4, 0)
    append(log, plain(b"b"))
    assert [offset for offset, _ in log.entries()] == [0, 1, 4]


def test_damage_is_deleted_with_its_set() -> None:
    log = new_log()
    append(log, plain(b"a"))
    log.append_raw(damaged(1), 4, 0)
    append(log, plain(b"b"))
    log.remove({0})
    log.delete_before(2)
    assert log.read(2, END, END) == damaged(1)[len(plain(b"1")) :] + plain(b"b", first=4)
    log.truncate(4)
    assert log.read(2, END, END) == damaged(1)[len(plain(b"1")) :]
    log.truncate(3)
    assert log.size_bytes == 0


def test_remove_rewrites_wrappers() -> None:
    log = new_log()
    append(log, wrapper(Codec.GZIP, plain(b"a", b"b", b"c")))
    append(log, wrapper(Codec.GZIP, plain(b"d")))
    log.remove({1, 2, 3})
    [entry] = entries(log.read(0, END, END))
    assert (entry.offset, entry.codec, entry.crc_ok) == (0, Codec.GZIP, True)
    assert log.end_offset == 4


def test_read_bytes_are_independent_of_later_appends() -> None:
    log = new_log()
    append(log, plain(b"first"))
    before = log.read(0, END, END)
    append(log, plain(b"second"))
    assert offsets_of(before) == [0]
    assert before == plain(b"first")


def test_append_raw_keeps_bytes() -> None:
    log = new_log()
    strange = struct.pack(">qi", 7, 20) + bytes(20)
    log.append_raw(strange, 9, 0)
    assert log.read(7, END, END) == strange
    assert log.end_offset == 9
