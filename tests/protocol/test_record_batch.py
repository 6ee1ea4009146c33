"""Record batches: both twins read and write what the protocol guide says, and refuse the rest."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka08.errors import CorruptRecordException
from aiokafka08.protocol.compression import BatchCodec, Codec, compress
from aiokafka08.protocol.message_set import LOG_APPEND_TIME, encode_entry
from aiokafka08.protocol.record_batch import (
    BatchHeader,
    ControlType,
    MessageRun,
    Stop,
    control_type,
    convert_batch,
    open_wrapper,
    parts_of,
    plain_records,
)
from tests.protocol import batch_vectors, oracle
from tests.protocol.batch_oracle import Row, batch, field, marker, record, records, signed, varint
from tests.protocol.strategies import examples
from tests.protocol.twins import each_twin, twin
from tests.support.paths import ROOT

pytestmark = each_twin

LIMIT = 1 << 20
ROWS = [
    Row(5, 1000, b"k", b"v"),
    Row(6, 990, None, b"", [(b"h", b"1"), (b"h", None), (b"", b"")]),
    Row(7, 2000, b"", None),
    Row(8, 1000, bytes(300), bytes(range(256)) * 300),
]

each_codec = pytest.mark.parametrize("codec", list(BatchCodec), ids=lambda codec: codec.name)
each_magic = pytest.mark.parametrize("magic", [0, 1])


def only(data: bytes) -> BatchHeader:
    """Return the header of a set with one batch."""
    [header] = parts_of(data)
    assert isinstance(header, BatchHeader)
    return header


def read(data: bytes) -> list[Row]:
    """Return all records of all batches of a set."""
    rows: list[Row] = []
    for part in parts_of(data):
        assert isinstance(part, BatchHeader)
        plain = plain_records(data, part, max_decompressed_bytes=LIMIT)
        rows += map(Row._make, twin.read_records(part, plain))
    return rows


def same(found: list[Row], expected: list[Row]) -> bool:
    """Whether rows are the same, however headers are stored."""
    return [(*row[:4], list(row[4])) for row in found] == [
        (*row[:4], list(row[4])) for row in expected
    ]


def messages(data: bytes) -> list[tuple[Any, ...]]:
    """Return what the readers of the old formats find."""
    return [
        (one.offset, one.timestamp, one.timestamp_type, one.key, one.value)
        for one in oracle.read(data)
    ]


# --- CRC-32C --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "crc"),
    [
        (b"", 0),
        (b"a", 0xC1D04330),
        (b"123456789", 0xE3069283),
        # RFC 3720, B.4
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(reversed(range(32))), 0x113FDB5C),
        (
            bytes.fromhex(
                "01c000000000000000000000000000001400000000000400000000140000001828000000000000000200000000000000"
            ),
            0xD9963A56,
        ),
    ],
)
def test_crc32c_equals_published_values(data: bytes, crc: int) -> None:
    assert twin.crc32c(data) == crc
    assert twin.crc32c(memoryview(bytearray(b"x" + data))[1:]) == crc


def test_pure_twin_without_crcmod_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['crcmod'] = None\n"
        "from aiokafka08.protocol import record_batch\n"
        "try: record_batch.crc32c(b'')\n"
        "except ModuleNotFoundError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "AIOKAFKA08_IMPL": "python", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.endswith("Install crcmod\n")


# --- reading --------------------------------------------------------------------------------------


@each_codec
def test_records_are_read_with_all_fields(codec: BatchCodec) -> None:
    assert same(read(batch(ROWS, codec=codec)), ROWS)


def test_header_has_the_fields_of_the_batch() -> None:
    data = batch(ROWS, producer_id=77, producer_epoch=3, base_sequence=9, attributes=0x10)
    header = only(b"".join([data, data[:70]]))
    assert (header.start, header.stop) == (0, len(data))
    assert (header.base_offset, header.last_offset, header.next_offset) == (5, 8, 9)
    assert (header.base_timestamp_ms, header.max_timestamp_ms) == (1000, 2000)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 3, 9)
    assert (header.leader_epoch, header.record_count, header.codec) == (7, 4, 0)
    assert (header.is_transactional, header.is_control, header.has_append_time) == (1, 0, 0)


def test_append_time_is_that_of_the_batch() -> None:
    data = batch(ROWS, attributes=LOG_APPEND_TIME, max_timestamp_ms=5555)
    assert only(data).has_append_time
    assert same(read(data), [row._replace(timestamp_ms=5555) for row in ROWS])


def test_compacted_batch_keeps_its_offsets() -> None:
    """Compaction removes records within and at both ends; the header's offsets stay."""
    rows = [Row(103, 5, b"a", b"1"), Row(109, 6, b"b", b"2")]
    data = batch(rows, base_offset=100, last_offset=120, base_timestamp_ms=900_000)
    header = only(data)
    assert (header.base_offset, header.last_offset, header.next_offset) == (100, 120, 121)
    assert same(read(data), rows)


def test_batch_that_compaction_emptied_has_no_records() -> None:
    data = batch([], base_offset=40, last_offset=49, base_timestamp_ms=-1)
    assert only(data).next_offset == 50
    assert read(data) == []
    assert convert_batch(data, only(data), 1, max_decompressed_bytes=LIMIT) == (b"", 0, -1, -1, 50)


@pytest.mark.parametrize("base", [0, 2**63 - 1, -(2**63)])
def test_timestamps_wrap_around_as_in_java(base: int) -> None:
    plain = b"".join(
        varint(len(body)) + body
        for index, delta in enumerate([0, 1, -1, 2**63 - 1, -(2**63)])
        for body in [b"\0" + varint(delta) + varint(index) + b"\x01\x01\0"]
    )
    data = batch([], base_offset=0, last_offset=4, base_timestamp_ms=base, plain=plain, count=5)
    found = [row.timestamp_ms for row in read(data)]
    wrapped = [base, base + 1, base - 1, base + 2**63 - 1, base - 2**63]
    assert found == [(one + 2**63) % 2**64 - 2**63 for one in wrapped]


def test_negative_sizes_are_null_as_in_java() -> None:
    body = b"\0\0\0" + varint(-7) + varint(-2) + varint(1) + field(b"h") + varint(-9)
    data = batch([Row(0, 0, None, None)], plain=varint(len(body)) + body)
    assert same(read(data), [Row(0, 0, None, None, [(b"h", None)])])


def test_control_batches_and_transactions_show_in_headers() -> None:
    aborted = batch(ROWS[:2], attributes=0x10, producer_id=4)
    data = aborted + marker(7, 0, 4) + marker(8, 1, 4) + marker(9, 3, 4)
    parts = [part for part in parts_of(data) if isinstance(part, BatchHeader)]
    assert [part.is_control for part in parts] == [False, True, True, True]
    assert [part.is_transactional for part in parts] == [True] * 4
    assert [part.producer_id for part in parts] == [4] * 4
    assert list(map(control_type, read(data)[2:])) == [ControlType.ABORT, ControlType.COMMIT, 3]
    with pytest.raises(CorruptRecordException, match=r"offset 5.*its key is b'k'") as raised:
        control_type(ROWS[0])
    assert raised.value.next_offset == 6


# --- what real producers wrote --------------------------------------------------------------------

LOGS = batch_vectors.load()
each_log = pytest.mark.parametrize("log", LOGS.values(), ids=LOGS.keys())


@each_log
def test_log_of_a_broker_has_the_records_of_java_consumer(log: batch_vectors.Log) -> None:
    """Java's and librdkafka's, by each codec, in transactions; with append times; compacted."""
    found = []
    for part in parts_of(log.data):
        assert isinstance(part, BatchHeader)
        plain = plain_records(log.data, part, max_decompressed_bytes=LIMIT)
        rows = map(Row._make, twin.read_records(part, plain))
        found += [(row, part.has_append_time) for row in rows if not part.is_control]
    assert found == log.rows


@each_log
@each_magic
def test_log_of_a_broker_becomes_messages(log: batch_vectors.Log, magic: int) -> None:
    converted = [
        convert_batch(log.data, part, magic, max_decompressed_bytes=LIMIT)
        for part in parts_of(log.data)
        if isinstance(part, BatchHeader)
    ]
    assert messages(b"".join(one.data for one in converted)) == [
        (row.offset, *((row.timestamp_ms, kind) if magic else (None, None)), row.key, row.value)
        for row, kind in log.rows
    ]


# --- sets of several formats ----------------------------------------------------------------------


def test_set_of_three_formats_is_told_apart() -> None:
    old = [encode_entry(offset, b"k", b"v", magic=0) for offset in (0, 1)]
    newer = [encode_entry(offset, b"k", b"v", magic=1, timestamp_ms=5) for offset in (2, 4)]
    first, second = batch(ROWS), batch([Row(20, 1, None, b"x")])
    data = b"".join([*old, *newer, first, second, old[0]])
    found = list(parts_of(data))
    one, two = len(old[0]), len(newer[0])
    assert found[:2] == [
        MessageRun(0, 2 * one, 0, 2),
        MessageRun(2 * one, 2 * one + 2 * two, 1, 5),
    ]
    assert [part.next_offset for part in found[2:4]] == [9, 21]
    assert found[4] == MessageRun(len(data) - one, len(data), 0, 21)


@pytest.mark.parametrize(
    "tail", [batch(ROWS[:2]), encode_entry(9, b"k", b"v")], ids=["batch", "old"]
)
def test_cut_off_tail_is_left_out(tail: bytes) -> None:
    whole = batch(ROWS)
    for size in range(len(tail)):
        assert [part.stop for part in parts_of(whole + tail[:size])] == [len(whole)]


def test_filler_of_a_down_converting_broker_is_a_tail() -> None:
    assert list(parts_of(bytes.fromhex("ffffffffffffffff0000003d"))) == []


@pytest.mark.parametrize(
    ("tail", "why"),
    [
        (struct.pack(">qi", 9, -1) + bytes(60), "magic 0 with size -1"),
        (struct.pack(">qi", 9, 13) + bytes(60), "magic 0 with size 13"),
        (struct.pack(">qi", 9, 5), "size field says 5"),
        (struct.pack(">qiIB", 9, 49, 0, 3) + bytes(60), "magic 3"),
        (struct.pack(">qiIB", 9, 49, 0, 255) + bytes(60), "magic 255"),
        (struct.pack(">qiIB", 9, 48, 0, 2) + bytes(60), "magic 2 with size 48"),
        (signed(struct.pack(">qiib", -1, 0, 0, 2) + bytes(44)), "base offset -1"),
        (
            batch(ROWS, base_offset=2**63 - 1, last_offset=2**63 - 1),
            "base offset 9223372036854775807",
        ),
        (batch(ROWS, last_offset=4), "last offset delta -1"),
        (batch(ROWS, count=-1), "-1 records"),
        (batch(ROWS, count=5), "5 records"),
    ],
)
def test_impossible_header_raises_after_the_parts_before(tail: bytes, why: str) -> None:
    whole = batch([Row(0, 0, None, None)])
    parts = parts_of(whole + tail)
    assert next(parts).stop == len(whole)
    with pytest.raises(CorruptRecordException, match=why):
        next(parts)


# --- damaged batches ------------------------------------------------------------------------------


def test_wrong_crc_raises_unless_it_is_not_checked() -> None:
    data = batch(ROWS, crc_error=1)
    with pytest.raises(CorruptRecordException, match=r"offsets 5 to 8.*CRC") as raised:
        plain_records(data, only(data), max_decompressed_bytes=LIMIT)
    assert (raised.value.offset, raised.value.next_offset) == (5, 9)
    assert plain_records(data, only(data), max_decompressed_bytes=LIMIT, check_crc=False)


@pytest.mark.parametrize(
    "codec", [codec for codec in BatchCodec if codec], ids=lambda one: one.name
)
def test_undecompressible_records_raise(codec: BatchCodec) -> None:
    packed = batch(ROWS, codec=codec)[61:]
    for wrong in (b"", packed[:-3], b"\0" + packed):
        data = batch(ROWS, codec=codec, packed=wrong)
        with pytest.raises(CorruptRecordException, match=f"codec {codec:d}"):
            read(data)


@pytest.mark.parametrize(
    "codec", [codec for codec in BatchCodec if codec], ids=lambda one: one.name
)
def test_records_over_the_limit_raise(codec: BatchCodec) -> None:
    data = batch([Row(0, 0, None, bytes(LIMIT))], codec=codec)
    with pytest.raises(CorruptRecordException, match=f"more than {LIMIT} bytes"):
        read(data)
    assert plain_records(data, only(data), max_decompressed_bytes=2 * LIMIT)


@pytest.mark.parametrize("number", [5, 6, 7])
def test_unknown_codec_raises(number: int) -> None:
    data = batch(ROWS, attributes=number)
    with pytest.raises(CorruptRecordException, match=f"unknown codec {number}"):
        read(data)


def _sized(body: bytes) -> bytes:
    return varint(len(body)) + body


FAULTS = {
    "no bytes": (b"", "cut off"),
    "half a record": (record(ROWS[1], 5, 1000)[:-1], "cut off"),
    "six bytes": (_sized(b"\0\0\0\1\1"), "cut off"),
    "negative size": (varint(-1) + bytes(9), "size that it states"),
    "tiny size": (varint(5) + bytes(9), "size that it states"),
    "size of six bytes": (b"\x80" * 5 + b"\1" + bytes(9), "varint"),
    "timestamp of eleven bytes": (_sized(b"\0" + b"\x80" * 10 + bytes(9)), "varint"),
    "size too large": (varint(9) + record(ROWS[0], 5, 1000)[1:], "cut off"),
    "stray byte": (_sized(b"\0\0\0\1\1\0\0"), "size that it states"),
    "key too long": (_sized(b"\0\0\0" + varint(9) + b"\1\0"), "size that it states"),
    "value too long": (_sized(b"\0\0\0\1" + varint(9) + b"\0"), "size that it states"),
    "negative offset": (_sized(b"\0\0" + varint(-1) + b"\1\1\0"), "offset"),
    "offset above the last": (_sized(b"\0\0" + varint(4) + b"\1\1\0"), "offset"),
    "many headers": (_sized(b"\0\0\0\1\1" + varint(2**31 - 1)), "headers"),
    "negative count of headers": (_sized(b"\0\0\0\1\1" + varint(-1)), "headers"),
    "header without key": (_sized(b"\0\0\0\1\1" + varint(1) + b"\1\1"), "header without a key"),
    "header too long": (_sized(b"\0\0\0\1\1" + varint(1) + b"\0" + varint(5)), "size that it"),
    "varint beyond the end": (_sized(b"\0\0\0\1\1\x80"), "size that it states"),
}


@pytest.mark.parametrize(("plain", "why"), FAULTS.values(), ids=FAULTS.keys())
def test_damaged_record_raises_its_place(plain: bytes, why: str) -> None:
    data = batch(ROWS, plain=plain, count=1)
    with pytest.raises(CorruptRecordException, match=why) as raised:
        read(data)
    assert (raised.value.offset, raised.value.next_offset) == (5, 9)
    assert "record 1 of 1" in str(raised.value)
    with pytest.raises(CorruptRecordException) as other:
        twin.convert_records(only(data), plain, 1)
    assert str(other.value) == str(raised.value)


def test_records_before_a_damaged_one_are_read() -> None:
    plain = records(ROWS[:2], 5, 1000) + record(ROWS[1], 5, 1000)
    header = only(batch(ROWS, plain=plain, count=3))
    reader = iter(twin.read_records(header, plain))
    assert [next(reader)[0], next(reader)[0]] == [5, 6]
    with pytest.raises(CorruptRecordException, match="record 3 of 3: its offset"):
        next(reader)
    assert list(reader) == []


def test_bytes_behind_the_last_record_raise() -> None:
    data = batch(ROWS, count=3)
    reader = twin.read_records(only(data), data[61:])
    with pytest.raises(CorruptRecordException, match=r"bytes follow its 3 records"):
        list(reader)
    with pytest.raises(CorruptRecordException, match=r"bytes follow its 3 records"):
        twin.convert_records(only(data), data[61:], 0)


# --- conversion to old formats --------------------------------------------------------------------


@each_magic
@each_codec
def test_batch_becomes_messages_of_its_codec(magic: int, codec: BatchCodec) -> None:
    data = batch(ROWS, codec=codec)
    converted = convert_batch(data, only(data), magic, max_decompressed_bytes=LIMIT)
    assert (converted.messages, converted.next_offset) == (4, 9)
    attributes = 2 if codec is BatchCodec.ZSTD else codec
    assert converted.data[17] == attributes
    assert messages(converted.data) == [
        (row.offset, *((row.timestamp_ms, 0) if magic else (None, None)), row.key, row.value)
        for row in ROWS
    ]


def test_wrapper_has_the_last_offset_and_the_highest_time() -> None:
    """As Java's brokers write it: relative offsets inside format 1, absolute ones in format 0."""
    rows = [Row(103, 5, b"a", b"1"), Row(109, 3, b"b", b"2")]
    data = batch(rows, base_offset=100, last_offset=120, codec=BatchCodec.GZIP)
    header = only(data)
    for magic, inner in ((0, [103, 109]), (1, [3, 9])):
        converted = convert_batch(data, header, magic, max_decompressed_bytes=LIMIT)
        assert converted.next_offset == 121
        assert struct.unpack_from(">q", converted.data)[0] == 109
        if magic:
            assert struct.unpack_from(">q", converted.data, 18)[0] == 5
        opened = open_wrapper(converted.data, 0, max_decompressed_bytes=LIMIT)
        assert (opened.stop, opened.codec) == (len(converted.data), Codec.GZIP)
        step = len(opened.messages) // 2
        found = [struct.unpack_from(">q", opened.messages, at)[0] for at in (0, step)]
        assert found == inner
        assert [one[0] for one in messages(converted.data)] == [103, 109]


@pytest.mark.parametrize("codec", [BatchCodec.NONE, BatchCodec.LZ4], ids=lambda one: one.name)
def test_append_time_is_kept_by_format_1(codec: BatchCodec) -> None:
    data = batch(ROWS, codec=codec, attributes=LOG_APPEND_TIME, max_timestamp_ms=5555)
    converted = convert_batch(data, only(data), 1, max_decompressed_bytes=LIMIT)
    assert {one[1:3] for one in messages(converted.data)} == {(5555, 1)}
    assert converted.data[17] == codec | LOG_APPEND_TIME
    old = convert_batch(data, only(data), 0, max_decompressed_bytes=LIMIT)
    assert old.data[17] == codec


def test_control_batch_becomes_nothing() -> None:
    data = marker(7, 1, 4)
    assert convert_batch(data, only(data), 1, max_decompressed_bytes=LIMIT) == (b"", 0, -1, -1, 8)


@each_magic
def test_conversion_starts_at_the_first_offset(magic: int) -> None:
    data = batch(ROWS)
    converted = convert_batch(data, only(data), magic, max_decompressed_bytes=LIMIT, first_offset=7)
    assert [one[0] for one in messages(converted.data)] == [7, 8]
    behind = convert_batch(data, only(data), magic, max_decompressed_bytes=LIMIT, first_offset=9)
    assert behind == (b"", 0, -1, -1, 9)


@each_magic
def test_conversion_ends_before_the_limit(magic: int) -> None:
    plain = batch(ROWS)[61:]
    header = only(batch(ROWS))
    sizes = [len(oracle.entry(0, oracle.message(row.key, row.value, magic=magic))) for row in ROWS]
    for limit in range(sum(sizes[:3]) + 3):
        converted = twin.convert_records(header, plain, magic, limit_bytes=limit)
        taken = max(count for count in range(4) if sum(sizes[:count]) <= limit)
        assert converted.messages == taken
        assert len(converted.data) == sum(sizes[:taken])
        assert converted.next_offset == 5 + taken
        assert converted.last_offset == (4 + taken if taken else -1)
        forced = twin.convert_records(header, plain, magic, limit_bytes=limit, at_least=2)
        assert forced.messages == max(taken, 2)


def test_conversion_up_to_the_limit_ignores_later_damage() -> None:
    plain = records(ROWS[:2], 5, 1000) + bytes(7)
    header = only(batch(ROWS, plain=plain, count=3))
    converted = twin.convert_records(header, plain, 1, limit_bytes=40)
    assert (converted.messages, converted.next_offset) == (1, 6)
    with pytest.raises(CorruptRecordException):
        twin.convert_records(header, plain, 1)


# --- writing --------------------------------------------------------------------------------------


@each_codec
def test_built_batch_is_what_the_guide_says(codec: BatchCodec) -> None:
    builder = twin.RecordBatchBuilder(codec)
    for row in ROWS:
        builder.append(row.key, row.value, row.timestamp_ms, row.headers)
    assert (len(builder), builder.max_timestamp_ms) == (4, 2000)
    expected = bytearray(batch(ROWS, codec=codec))
    expected[12:16] = b"\xff" * 4  # the leader epoch
    assert builder.build(5) == signed(bytes(expected))
    assert builder.size_bytes == len(batch(ROWS))
    assert builder.build(5) == builder.build(5)


def test_codec_may_be_chosen_last() -> None:
    builder = twin.RecordBatchBuilder()
    builder.append(b"k", bytes(1000), 7)
    plain = builder.build()
    builder.codec = BatchCodec.ZSTD
    packed = builder.build()
    assert (only(packed).codec, only(plain).codec) == (BatchCodec.ZSTD, BatchCodec.NONE)
    assert same(read(packed), read(plain))


def test_builder_without_records_builds_nothing() -> None:
    builder = twin.RecordBatchBuilder()
    assert (builder.build(), len(builder), builder.size_bytes) == (b"", 0, 61)


rows_strategy = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=200),
        st.none() | st.binary(max_size=200),
        st.integers(-(2**63), 2**63 - 1),
        st.lists(st.tuples(st.binary(max_size=5), st.none() | st.binary(max_size=5)), max_size=3),
    ),
    min_size=1,
    max_size=200,
)


@examples(100)
@given(content=rows_strategy, codec=st.sampled_from(BatchCodec))
def test_what_is_built_is_read_back(content: list[Any], codec: BatchCodec) -> None:
    builder = twin.RecordBatchBuilder(codec)
    for one in content:
        builder.append(*one)
    data = builder.build(1000)
    expected = [
        Row(1000 + index, timestamp, key, value, headers)
        for index, (key, value, timestamp, headers) in enumerate(content)
    ]
    assert same(read(data), expected)
    assert only(data).max_timestamp_ms == max(row.timestamp_ms for row in expected)


# --- conversion from old formats ------------------------------------------------------------------


def up(data: bytes, codec: BatchCodec = BatchCodec.NONE) -> list[Row]:
    """Convert a whole set, wrappers included; return what the batch has."""
    builder = twin.RecordBatchBuilder(codec)
    pos, why = builder.extend_from_messages(data)
    while why is Stop.WRAPPER:
        opened = open_wrapper(data, pos, max_decompressed_bytes=LIMIT)
        inside, why = builder.extend_from_messages(opened.messages)
        assert (inside, why) == (len(opened.messages), Stop.END)
        pos, why = builder.extend_from_messages(data, opened.stop)
    assert (pos, why) == (len(data), Stop.END)
    return read(builder.build())


@each_magic
@each_codec
def test_messages_become_a_batch(magic: int, codec: BatchCodec) -> None:
    data = b"".join(
        encode_entry(0, row.key, row.value, magic=magic, timestamp_ms=row.timestamp_ms)
        for row in ROWS
    )
    expected = [
        Row(index, row.timestamp_ms if magic else -1, row.key, row.value)
        for index, row in enumerate(ROWS)
    ]
    assert same(up(data, codec), expected)


def test_wrappers_and_plain_messages_of_both_formats_become_one_batch() -> None:
    one = encode_entry(0, b"a", b"1")
    two = encode_entry(0, b"b", b"2", magic=1, timestamp_ms=7)
    inner_0, inner_1 = one + encode_entry(1, None, b"3"), two + two
    data = (
        two
        + oracle.wrapper(1, inner_0, Codec.GZIP)
        + one
        + oracle.wrapper(1, inner_1, Codec.SNAPPY, magic=1)
        + oracle.entry(
            3, oracle.message(b"key", compress(Codec.LZ4, inner_1, magic=1), magic=1, attributes=3)
        )
    )
    assert same(
        up(data),
        [
            Row(0, 7, b"b", b"2"),
            Row(1, -1, b"a", b"1"),
            Row(2, -1, None, b"3"),
            Row(3, -1, b"a", b"1"),
            *(Row(offset, 7, b"b", b"2") for offset in range(4, 8)),
        ],
    )


@each_magic
def test_large_sets_are_converted_both_ways(magic: int) -> None:
    """From 256 KiB on the compiled twin works without the GIL, if the buffer is read-only."""
    rows = [Row(index, 7 + index, b"key%d" % index, bytes(100)) for index in range(5000)]
    data = b"".join(
        encode_entry(row.offset, row.key, row.value, magic=magic, timestamp_ms=row.timestamp_ms)
        for row in rows
    )
    builder, writable = twin.RecordBatchBuilder(), twin.RecordBatchBuilder()
    assert builder.extend_from_messages(data) == (len(data), Stop.END)
    assert writable.extend_from_messages(bytearray(data)) == (len(data), Stop.END)
    made = builder.build()
    assert builder.size_bytes == len(made) > 1 << 19
    assert writable.build() == made
    assert same(read(made), [row if magic else row._replace(timestamp_ms=-1) for row in rows])
    assert twin.convert_records(only(made), made[61:], magic).data == data
    damaged = bytearray(made)
    damaged[-1] = 1  # the count of headers
    with pytest.raises(CorruptRecordException, match="record 5000 of 5000"):
        twin.convert_records(only(bytes(damaged)), damaged[61:], magic)
    with pytest.raises(CorruptRecordException, match="CRC"):
        twin.RecordBatchBuilder().extend_from_messages(data[:-1] + b"x")


def test_builder_stops_at_the_limit() -> None:
    entries = [encode_entry(0, b"k", b"v" * 20) for _ in range(4)]
    data = b"".join(entries)
    builder = twin.RecordBatchBuilder()
    builder.append(b"k", b"v" * 20, -1)
    each = builder.size_bytes - 61
    for limit in range(61, 61 + 4 * each + 2):
        builder = twin.RecordBatchBuilder()
        pos, why = builder.extend_from_messages(data, 0, limit)
        taken = max(1, (limit - 61) // each)
        assert (len(builder), pos) == (taken, taken * len(entries[0]))
        assert why is (Stop.END if taken == 4 else Stop.FULL)


def test_whole_messages_of_a_cut_off_set_are_taken() -> None:
    one = encode_entry(0, b"k", b"v")
    for size in range(len(one)):
        builder = twin.RecordBatchBuilder()
        assert builder.extend_from_messages(one + one[:size]) == (len(one), Stop.END)
        assert len(builder) == 1


def test_builder_sees_the_attributes_of_messages() -> None:
    builder = twin.RecordBatchBuilder()
    builder.extend_from_messages(memoryview(encode_entry(0, None, b"", magic=1, attributes=8)))
    assert builder.seen_attributes == LOG_APPEND_TIME


def test_builder_ignores_the_type_of_timestamp_in_format_0() -> None:
    builder = twin.RecordBatchBuilder()
    builder.extend_from_messages(memoryview(encode_entry(0, None, b"", attributes=8)))
    assert (len(builder), builder.seen_attributes) == (1, 0)


BAD_ENTRIES = {
    "CRC": (oracle.entry(0, oracle.message(None, b"v", crc_error=1)), "CRC"),
    "magic": (oracle.entry(0, oracle.raw_message(b"\2" + bytes(30))), "magic 2"),
    "tiny": (struct.pack(">qi", 0, 13) + bytes(30), "magic 0 with size 13"),
    "tiny tail": (struct.pack(">qi", 0, 3), "size field says 3"),
    "format 1 too short": (oracle.entry(0, oracle.raw_message(b"\1" + bytes(12))), "magic 1"),
    "key": (oracle.entry(0, oracle.raw_message(b"\0\0" + struct.pack(">ii", 9, 0))), "key and"),
    "negative key": (
        oracle.entry(0, oracle.raw_message(b"\0\0" + struct.pack(">ii", -2, 0))),
        "key and",
    ),
    "value": (oracle.entry(0, oracle.raw_message(b"\0\0" + struct.pack(">ii", 0, 1))), "key and"),
    "stray": (oracle.entry(0, oracle.raw_message(bytes(11))), "key and"),
}


@pytest.mark.parametrize(("bad", "why"), BAD_ENTRIES.values(), ids=BAD_ENTRIES.keys())
def test_damaged_message_raises_after_those_before(bad: bytes, why: str) -> None:
    builder = twin.RecordBatchBuilder()
    with pytest.raises(CorruptRecordException, match=why):
        builder.extend_from_messages(encode_entry(0, b"k", b"v") + bad)
    assert len(builder) == 1


@pytest.mark.parametrize(
    ("value", "attributes", "why"),
    [
        (None, 1, "no value"),
        (b"", 1, "codec 1"),
        (b"abc", 2, "codec 2"),
        (b"abc", 3, "codec 3"),
        (b"abc", 4, "codec 4"),
        (b"abc", 7, "codec 7"),
    ],
)
@each_magic
def test_wrapper_that_does_not_open_raises(
    value: bytes | None, attributes: int, why: str, magic: int
) -> None:
    data = encode_entry(0, b"k", value, magic=magic, attributes=attributes)
    assert twin.RecordBatchBuilder().extend_from_messages(data) == (0, Stop.WRAPPER)
    with pytest.raises(CorruptRecordException, match=why):
        open_wrapper(data, 0, max_decompressed_bytes=LIMIT)


@each_magic
def test_down_and_up_again_gives_the_same_records(magic: int) -> None:
    data = batch(ROWS, codec=BatchCodec.SNAPPY)
    converted = convert_batch(data, only(data), magic, max_decompressed_bytes=LIMIT)
    assert same(
        up(converted.data),
        [
            Row(index, row.timestamp_ms if magic else -1, row.key, row.value)
            for index, row in enumerate(ROWS)
        ],
    )
