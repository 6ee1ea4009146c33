"""Both twins return the same value or raise the same error, whatever the bytes."""

from __future__ import annotations

import gc
import random
import zlib
from array import array
from collections.abc import Callable
from typing import Any

import crcmod.predefined
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka08.errors import CorruptRecordException
from aiokafka08.protocol import message_set, record_batch
from aiokafka08.protocol.compression import Codec
from aiokafka08.protocol.types import Buffer
from tests.protocol.batch_oracle import BATCHES
from tests.protocol.entries import entries
from tests.protocol.golden import FETCHES, PRODUCES, message_sets
from tests.protocol.hostile import DECOMPRESSED_LIMIT
from tests.protocol.mutations import mutated, signed, signed_batches
from tests.protocol.oracle import TP, entry, message, wrapper
from tests.protocol.strategies import examples
from tests.protocol.test_mutations import DATA, ROUNDS, SUBJECTS
from tests.protocol.twins import TWINS, Twin

PURE = Twin("python")

if "c" in TWINS:
    from aiokafka08.protocol._message_set_c import crc32, crc32c

    COMPILED = Twin("c")
else:  # not built here (`nox -s tests` fails then): compare the pure twin with itself
    crc32 = zlib.crc32  # type: ignore[assignment]

    def crc32c(data: Buffer, tables: bool = False) -> int:
        return PURE.crc32c(data)

    COMPILED = PURE


# --- reading --------------------------------------------------------------------------------------


def reading(
    twin: Twin, data: Buffer, fetch_offset: int, check_crcs: bool, end_offset: int | None
) -> list[Any]:
    """Return all records and errors, after each damage too; without CRC checks also the pauses."""
    seen: list[Any] = [repr(twin.summarize_set(data))]
    for _ in range(5):
        whole = twin.MessageSetReader(
            TP,
            data,
            fetch_offset,
            check_crcs=check_crcs,
            max_decompressed_bytes=DECOMPRESSED_LIMIT,
            end_offset=end_offset,
            pause_after_bytes=2**63 if check_crcs else 100,
        )
        try:
            while (records := whole.read(7)) or whole.paused:
                seen.append((records, whole.decompressed_bytes, whole.paused))
            break
        except CorruptRecordException as error:
            seen.append((str(error), error.partition, error.offset, error.next_offset))
            with pytest.raises(CorruptRecordException):
                whole.read(7)
            if error.next_offset is None:
                break
            fetch_offset = error.next_offset
    return seen


def columns(twin: Twin, data: bytes, fetch_offset: int, max_bytes: int = 1 << 20) -> list[Any]:
    """Return the columns of a set up to its first damage, and that error."""
    whole = twin.MessageSetReader(
        TP, data, fetch_offset, max_decompressed_bytes=DECOMPRESSED_LIMIT, pause_after_bytes=100
    )
    made = twin.Columns(max_bytes)
    end: Any = None
    try:
        while whole.read_columns(made, 3) or whole.paused:
            pass
    except CorruptRecordException as error:
        end = str(error), error.offset, error.next_offset
    return [len(made), made.size_bytes, end, *column_buffers(made), made.last_offset]


def column_buffers(made: Any) -> list[Any]:
    """Return the content of the buffers of all columns."""
    return [
        [
            None if part is None else bytes(part)
            for part in (column.validity, column.offsets, column.data)
        ]
        + [column.null_count]
        for column in (
            made.column_key(),
            made.column_value(),
            made.column_offset(),
            made.column_timestamp(),
            made.column_timestamp_type(),
        )
    ]


def alike(data: bytes, fetch_offset: int = 0, end_offset: int | None = None) -> None:
    """Check that both twins read the same."""
    for check_crcs in (True, False):
        how = data, fetch_offset, check_crcs, end_offset
        assert reading(COMPILED, *how) == reading(PURE, *how)
    assert columns(COMPILED, data, fetch_offset) == columns(PURE, data, fetch_offset)


SETS = [one for vector in FETCHES + PRODUCES for one in message_sets(vector)]


def test_captured_sets_are_read_alike_from_every_offset() -> None:
    for data in SETS:
        for fetch_offset in range(0, 30, 3):
            alike(data, fetch_offset, fetch_offset + 5)


def test_captured_sets_are_read_alike_cut_anywhere() -> None:
    for data in SETS:
        for cut in range(min(len(data), 400)):
            alike(data[:cut], 2)


@pytest.mark.parametrize("sign", [True, False])
def test_mutated_sets_are_read_alike(sign: bool) -> None:
    for number, subject in enumerate(SUBJECTS):
        for index in range(ROUNDS // 4):
            rng = random.Random(f"twins {number} {index}")
            data = mutated(rng, subject.data, DATA)
            if sign:
                data = signed(data)
                for magic in (0, 1):
                    alike(wrapper(20, data, rng.choice(list(Codec)[1:]), magic=magic))
            alike(data, rng.choice((0, 5)), rng.choice((None, 9)))


@examples(300)
@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_read_alike(data: bytes) -> None:
    alike(data)


EDGES = (-(2**63), -1, 0, 1, 2**62, 2**63 - 2, 2**63 - 1)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("outer", EDGES)
@pytest.mark.parametrize("inner", EDGES)
def test_offsets_at_the_ends_of_64_bits_are_read_alike(magic: int, outer: int, inner: int) -> None:
    one = entry(inner, message(None, b"v", magic=magic))
    set_of_two = one + entry(inner // 2, message(b"k", None, magic=magic))
    for data in (
        set_of_two,
        wrapper(outer, set_of_two, magic=magic),
        wrapper(outer, wrapper(inner, set_of_two, magic=magic), magic=magic),
        wrapper(outer, one + entry(inner, message(None, b"v"), size=3), magic=magic),
        wrapper(outer, one, magic=magic) + set_of_two,
    ):
        for fetch_offset in (0, 1, 2**63 - 1):
            for end_offset in (None, 1, 2**63 - 1):
                alike(data, fetch_offset, end_offset)


@pytest.mark.parametrize("timestamp", [-(2**63), -1, 0, (2**63 - 1) // 1000, 2**63 - 1])
def test_timestamps_at_the_ends_are_read_alike(timestamp: int) -> None:
    alike(entry(0, message(None, b"v", magic=1, timestamp_ms=timestamp, attributes=8)))


def test_any_contiguous_buffer_is_read_alike() -> None:
    data = entry(3, message(b"k", b"v"))
    for kind in (bytes, bytearray, memoryview, lambda it: memoryview(it).cast("b")):
        assert reading(COMPILED, kind(data), 0, True, None) == reading(PURE, data, 0, True, None)


@pytest.mark.parametrize("twin", [COMPILED, PURE], ids=["compiled", "pure"])
def test_reader_in_a_cycle_is_collected_without_a_warning(twin: Twin) -> None:
    data = bytearray(entry(3, message(b"k", b"v")) + entry(4, message(b"k", b"v", crc_error=1)))
    whole = twin.MessageSetReader(TP, memoryview(data), 0, max_decompressed_bytes=1)
    assert len(whole.read(5)) == 1
    with pytest.raises(CorruptRecordException) as caught:
        whole.read(5)
    caught.value.whole = whole  # type: ignore[attr-defined]
    del whole, caught
    gc.collect()  # a warning would fail the test
    data.clear()  # nothing refers to the bytes any more


# --- columns --------------------------------------------------------------------------------------


fields = st.none() | st.binary(max_size=20)


@examples(100)
@given(st.lists(st.tuples(fields, fields, st.integers(-1, 2**63 - 1)), max_size=70), st.data())
def test_columns_are_alike_from_sets_and_from_records(
    content: list[tuple[bytes | None, bytes | None, int]], data: st.DataObject
) -> None:
    magic = data.draw(st.sampled_from((0, 1)))
    whole = b"".join(
        entry(offset, message(key, value, magic=magic, timestamp_ms=time))
        for offset, (key, value, time) in enumerate(content)
    )
    max_bytes = data.draw(st.sampled_from((1 << 20, 1 << 30)))
    read = columns(COMPILED, whole, 0, max_bytes)
    assert read == columns(PURE, whole, 0, max_bytes)
    records = PURE.MessageSetReader(TP, whole, 0, max_decompressed_bytes=1).read(1000)
    for twin in (COMPILED, PURE):
        made = twin.Columns()
        made.extend(records)
        assert [*column_buffers(made), made.last_offset] == read[3:]


@examples(50)
@given(
    st.lists(st.tuples(fields, fields), max_size=70), st.binary(max_size=3), st.binary(max_size=3)
)
def test_delimited_values_are_alike_and_joined(
    content: list[tuple[bytes | None, bytes | None]], end: bytes, null: bytes
) -> None:
    data = b"".join(entry(at, message(key, value)) for at, (key, value) in enumerate(content))
    pairs = [tuple(null if one is None else one for one in pair) for pair in content]
    for twin in (COMPILED, PURE):
        made = twin.Columns()
        twin.MessageSetReader(TP, data, 0, max_decompressed_bytes=1).read_columns(made, 1000)
        assert made.delimited(end, null) == b"".join(value + end for _, value in pairs)
        keyed = b"".join(key + b"=" + value + end for key, value in pairs)
        assert made.delimited(end, null, b"=") == keyed
        assert len(made.column_value().data) == sum(len(value or b"") for _, value in content)


@examples(50)
@given(st.lists(st.binary(max_size=200), max_size=100), st.binary(min_size=1, max_size=1))
def test_split_blobs_are_alike_and_those_of_bytes(parts: list[bytes], delimiter: bytes) -> None:
    data = delimiter.join(parts)
    expected = data.split(delimiter)
    for twin in (COMPILED, PURE):
        assert list(twin.BinaryColumn.split(data, delimiter)) == expected
        assert list(twin.BinaryColumn.split(data, delimiter, True)) == [
            one for one in expected if one
        ]
        assert twin.BinaryColumn.split(data, delimiter).longest() == max(map(len, expected))
        with pytest.raises(ValueError, match="expected one byte"):
            twin.BinaryColumn.split(data, b"ab")


@pytest.mark.parametrize("twin", [COMPILED, PURE], ids=["compiled", "pure"])
def test_full_columns_accept_no_more_messages(twin: Twin) -> None:
    data = b"".join(entry(offset, message(None, b"v" * 10)) for offset in range(2000))
    whole = twin.MessageSetReader(TP, data, 0, max_decompressed_bytes=1)
    made = twin.Columns(25)
    assert whole.read_columns(made, 2) == 2
    assert not made.is_full
    assert whole.read_columns(made, 1) == 1
    assert made.is_full
    assert whole.read_columns(made, 5) == 0
    assert [record.offset for record in whole.read(1)] == [3], (
        "the full columns must not take a message"
    )
    records = whole.read(1)
    made.extend(records)
    assert len(made) == 4
    made.column_offset()
    with pytest.raises(ValueError, match="a column was read"):
        made.extend(records)
    for wrong in (0, -1, 2**30 + 1):
        with pytest.raises(ValueError, match="max_bytes"):
            twin.Columns(wrong)


def test_columns_with_a_column_read_are_full() -> None:
    data = entry(0, message(None, b"v")) * 2
    for twin in (COMPILED, PURE):
        made = twin.Columns()
        made.column_key()
        whole = twin.MessageSetReader(TP, data, 0, max_decompressed_bytes=1)
        assert made.is_full
        assert whole.read_columns(made, 1) == 0


@examples(50)
@given(st.lists(st.tuples(st.lists(st.tuples(fields, fields), max_size=90), st.booleans())))
def test_columns_in_reused_memory_are_as_in_new_memory(
    batches: list[tuple[list[tuple[bytes | None, bytes | None]], bool]],
) -> None:
    for twin in (COMPILED, PURE):
        memory = twin.ColumnMemory()
        kept = []
        for content, is_kept in batches:
            data = b"".join(
                entry(offset, message(key, value, magic=offset % 2, timestamp_ms=offset))
                for offset, (key, value) in enumerate(content)
            )
            reader = twin.MessageSetReader(TP, data, 0, max_decompressed_bytes=1)
            made = twin.Columns(1 << 20, memory)
            reader.read_columns(made, 1000)
            expected = columns(PURE, data, 0)[3:-1]
            assert column_buffers(made) == expected
            if is_kept:
                parts = [made.column_key(), made.column_value(), made.column_offset()]
                kept.append((parts, expected))
        for parts, expected in kept:
            for part, content_of in zip(parts, expected, strict=False):
                assert bytes(part.data) == content_of[2]


@pytest.mark.skipif("c" not in TWINS, reason="the pure twin reuses no memory")
def test_column_memory_is_reused_when_nothing_refers_to_it() -> None:
    data = entry(0, message(None, b"v" * 300)) * 100
    memory = COMPILED.ColumnMemory()

    def value_buffer() -> memoryview:
        made = COMPILED.Columns(1 << 20, memory)
        COMPILED.MessageSetReader(TP, data, 0, max_decompressed_bytes=1).read_columns(made, 100)
        buffer = made.column_value().data
        assert isinstance(buffer, memoryview)
        return buffer

    first = value_buffer()
    memory_of_first = id(first.obj)
    second = value_buffer()
    assert second.obj is not first.obj
    del first
    assert id(value_buffer().obj) == memory_of_first
    assert id(value_buffer().obj) == memory_of_first
    unread = COMPILED.Columns(1 << 20, memory)  # holds its memory before a column is read
    assert id(value_buffer().obj) not in (memory_of_first, id(second.obj))
    assert len(unread) == 0


@pytest.mark.skipif("c" not in TWINS, reason="the pure twin reuses no memory")
def test_few_messages_don_t_keep_the_memory_of_many() -> None:
    memory = COMPILED.ColumnMemory()
    for size, view in ((100_000, True), (10, False)):
        made = COMPILED.Columns(1 << 20, memory)
        data = entry(0, message(None, b"v" * size))
        COMPILED.MessageSetReader(TP, data, 0, max_decompressed_bytes=1).read_columns(made, 1)
        value = made.column_value().data
        assert isinstance(value, memoryview) == view
        assert bytes(value) == b"v" * size
        del made, value


# --- building -------------------------------------------------------------------------------------


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
@examples(40)
@given(
    content=st.lists(st.tuples(fields, fields, st.integers(0, 2**63 - 1)), max_size=12),
    data=st.data(),
)
def test_sets_are_built_alike(
    magic: int,
    codec: Codec,
    content: list[tuple[bytes | None, bytes | None, int]],
    data: st.DataObject,
) -> None:
    keys = [key for key, _, _ in content]
    values = [value for _, value, _ in content]
    times: Any = [time for _, _, time in content]
    times = data.draw(st.sampled_from((times, 5)))
    limit = data.draw(st.integers(0, 300))
    chosen_keys = data.draw(st.sampled_from((keys, None, tuple(keys))))
    results = []
    for twin in (COMPILED, PURE):
        builder = twin.MessageSetBuilder(magic, codec)
        builder.append(b"first", b"", 3)
        stop = builder.extend(chosen_keys, values, times, 0, limit)
        made = [stop, *state(builder), *state(builder.as_format_0())]
        if len(builder) > 1:
            for half in builder.split():
                made += state(half)
        results.append(made)
    assert results[0] == results[1]


def state(builder: Any) -> list[Any]:
    return [
        len(builder), builder.magic, builder.codec, builder.size_bytes, builder.max_timestamp_ms,
        bytes(builder.build()),
    ]  # fmt: skip


@pytest.mark.parametrize("twin", [COMPILED, PURE], ids=["compiled", "pure"])
def test_built_set_is_unchanged_by_later_appends(twin: Twin) -> None:
    builder = twin.MessageSetBuilder(0)
    builder.append(None, b"one", -1)
    built = builder.build()
    before = bytes(built)
    for _ in range(1000):
        builder.append(b"key", b"more", -1)
    assert bytes(built) == before
    assert bytes(builder.build())[: len(before)] == before


@pytest.mark.parametrize("twin", [COMPILED, PURE], ids=["compiled", "pure"])
@pytest.mark.parametrize("wrong", ["text", 5, [1]])
def test_value_of_a_wrong_type_raises_and_keeps_the_set(twin: Twin, wrong: Any) -> None:
    builder = twin.MessageSetBuilder(0)
    with pytest.raises(TypeError):
        builder.append(None, wrong, -1)
    with pytest.raises(TypeError):
        builder.extend(None, [b"one", wrong, b"two"], -1, 0, 1000)
    assert bytes(builder.build()) == entry(0, message(None, b"one"))
    assert len(builder) == 1


# --- building from columns ------------------------------------------------------------------------


TYPES = ["binary", "string", "large_binary", "large_string"]
texts = st.none() | st.text(max_size=8)


def blobs(twin: Twin, column: Any) -> Any:
    """Return the `BinaryColumn` of a column of Arrow's."""
    validity, offsets, data = column.buffers()
    wide = str(column.type).startswith("large")
    return twin.BinaryColumn(column.offset, len(column), validity, offsets, data, wide)


@st.composite
def columns_of(draw: st.DrawFn, rows: int) -> Any:
    """Draw a column of `rows` rows, often a slice of a longer one."""
    before, after = draw(st.integers(0, 9)), draw(st.integers(0, 2))
    count = before + rows + after
    content = draw(st.lists(texts, min_size=count, max_size=count))
    return pa.array(content, draw(st.sampled_from(TYPES))).slice(before, rows)


@pytest.mark.parametrize("magic", [0, 1])
@examples(100)
@given(data=st.data())
def test_sets_are_built_from_columns_as_from_lists(magic: int, data: st.DataObject) -> None:
    rows = data.draw(st.integers(0, 12))
    values, keys = data.draw(columns_of(rows)), data.draw(st.none() | columns_of(rows))
    times: Any = data.draw(st.lists(st.integers(0, 2**63 - 1), min_size=rows, max_size=rows))
    kind = data.draw(st.sampled_from(("list", "buffer", "one")))
    times = {"list": times, "buffer": memoryview(array("q", times)), "one": 7}[kind]
    start, limit = data.draw(st.integers(0, rows)), data.draw(st.integers(0, 300))
    lists = [
        None if column is None else column.cast("large_binary").to_pylist()
        for column in (keys, values)
    ]
    results = []
    for twin, from_columns in ((COMPILED, True), (PURE, True), (PURE, False)):
        given = lists
        if from_columns:
            given = [None if one is None else blobs(twin, one) for one in (keys, values)]
            assert [None if one is None else list(one) for one in given] == lists
        builder = twin.MessageSetBuilder(magic)
        stop = builder.extend(*given, times, start, limit)
        results.append([stop, *state(builder)])
    assert results[0] == results[1] == results[2]


def of_buffers(twin: Twin, how: tuple[Any, ...]) -> Any:
    try:
        return list(twin.BinaryColumn(*how))
    except ValueError as error:
        return str(error)


@examples(300)
@given(
    first=st.integers(-1, 9),
    count=st.integers(-1, 9),
    validity=st.none() | st.binary(max_size=2),
    offsets=st.none() | st.lists(st.integers(-1, 12), max_size=10),
    data=st.none() | st.binary(max_size=12),
    wide=st.booleans(),
    odd=st.sampled_from((b"", b"x")),
)
def test_contradicting_buffers_raise_alike(
    first: int,
    count: int,
    validity: bytes | None,
    offsets: list[int] | None,
    data: bytes | None,
    wide: bool,
    odd: bytes,
) -> None:
    raw = None if offsets is None else array("q" if wide else "i", offsets).tobytes() + odd
    how = first, count, validity, raw, data, wide
    assert of_buffers(COMPILED, how) == of_buffers(PURE, how)
    rising = None if offsets is None else array("q" if wide else "i", sorted(offsets)).tobytes()
    how = first, count, validity, rising, data, wide
    assert of_buffers(COMPILED, how) == of_buffers(PURE, how)


@pytest.mark.parametrize("twin", [COMPILED, PURE], ids=["compiled", "pure"])
def test_blobs_are_a_sequence(twin: Twin) -> None:
    column = blobs(twin, pa.array(["a", None, "", "bcd"]))
    assert [column[0], column[-1], column[1:3], len(column)] == [b"a", b"bcd", [None, b""], 4]
    for wrong in (4, -5):
        with pytest.raises(IndexError):
            column[wrong]
    assert list(twin.BinaryColumn(0, 0, None, None, None)) == []
    with pytest.raises(TypeError):
        twin.BinaryColumn(0, 1, None, "text", None)
    short, times = blobs(twin, pa.array(["k"])), memoryview(array("q", [1]))
    for keys, timestamps in ((short, 1), (None, times)):
        builder = twin.MessageSetBuilder(1)
        with pytest.raises(IndexError):
            builder.extend(keys, column, timestamps, 0, 1000)
        assert len(builder) == 1, "the messages before must stay"
        assert [one.value for one in entries(builder.build())] == [b"a"]


# --- record batches -------------------------------------------------------------------------------


def batch_outcomes(twin: Twin, data: bytes) -> list[Any]:
    """Return what a twin makes of a set of any formats, values and errors."""
    seen: list[Any] = []
    try:
        for part in record_batch.parts_of(data):
            builder = twin.RecordBatchBuilder()
            for limit in (150, 1 << 20):
                seen.append(outcome(builder.extend_from_messages, data, part.start, limit))
                seen.append((len(builder), builder.size_bytes, builder.max_timestamp_ms))
                seen.append((builder.seen_attributes, builder.build(9)))
            if isinstance(part, record_batch.BatchHeader):
                plain = record_batch.plain_records(
                    data, part, max_decompressed_bytes=DECOMPRESSED_LIMIT, check_crc=False
                )
                seen.append(outcome(lambda: list(twin.read_records(part, plain))))  # noqa: B023
                first = part.base_offset
                for options in (
                    {},
                    {"first_offset": first + 1, "relative_to": first},
                    {"limit_bytes": 50, "at_least": 1},
                    {"limit_bytes": 120},
                ):
                    seen += [
                        outcome(twin.convert_records, part, plain, magic, **options)
                        for magic in (0, 1)
                    ]
    except CorruptRecordException:
        pass
    return seen


def outcome(call: Callable[..., Any], *args: Any, **options: Any) -> Any:
    try:
        return call(*args, **options)
    except CorruptRecordException as error:
        return str(error), error.offset, error.next_offset


def test_mutated_batches_give_the_same_with_both_twins() -> None:
    pool, faults = [*BATCHES, *(one for one in DATA if one)], 0
    for number, data in enumerate([*BATCHES, *(message_sets(FETCHES[-1]))]):
        for index in range(ROUNDS * 5):
            changed = mutated(random.Random(f"{number} {index}"), data, pool)
            if index % 4:
                changed = signed_batches(changed)
            found = batch_outcomes(COMPILED, changed)
            assert found == batch_outcomes(PURE, changed), changed.hex()
            faults += sum("corrupt" in str(one) for one in found)
    assert faults > 500


# --- CRC-32 ---------------------------------------------------------------------------------------


def test_compiled_crc_equals_zlib_and_crcmod() -> None:
    by_crcmod = crcmod.predefined.mkCrcFun("crc-32")
    data = random.Random(1).randbytes(70_000)
    for length in (*range(700), 1024, 4095, 65_537):
        for start in (0, 1, 7, 15):
            part = memoryview(data)[start : start + length]
            assert crc32(part) == zlib.crc32(part)
    assert crc32(data) == by_crcmod(data)


def test_compiled_crc32c_equals_crcmod_with_and_without_the_instruction() -> None:
    by_crcmod = crcmod.predefined.mkCrcFun("crc-32c")
    data = random.Random(2).randbytes(300_000)
    for length in (*range(100), 1024, 4095, 65_537, len(data) - 16):
        for start in (0, 1, 7, 15):
            part = memoryview(data)[start : start + length]
            assert crc32c(part) == crc32c(part, tables=True) == by_crcmod(bytes(part))


# --- the choice -----------------------------------------------------------------------------------


def test_implementation_names_the_twin_in_use() -> None:
    chosen = Twin(message_set.IMPLEMENTATION)
    assert message_set.MessageSetReader is chosen.MessageSetReader
    assert message_set.MessageSetBuilder is chosen.MessageSetBuilder
    assert message_set.BinaryColumn is chosen.BinaryColumn
    assert message_set.Columns is chosen.Columns
    assert message_set.summarize_set is chosen.summarize_set
    assert record_batch.RecordBatchBuilder is chosen.RecordBatchBuilder
    assert record_batch.convert_records is chosen.convert_records
    assert record_batch.crc32c is chosen.crc32c
    assert record_batch.read_records is chosen.read_records
