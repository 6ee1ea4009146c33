"""What is kept in memory of the offsets topic."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import AsyncGenerator
from unittest.mock import create_autospec

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka08._wording import shorten
from aiokafka08.bridge.config import parse_config
from aiokafka08.bridge.copy import copy_positions as positions
from aiokafka08.bridge.copy.copy_positions import (
    MOST_DAMAGED,
    FoundPosition,
    StoredRuns,
    find_positions,
    read_stored_runs,
)
from aiokafka08.bridge.copy.offset_runs import (
    PAGE_RUNS,
    OffsetMap,
    OffsetRun,
    RunLog,
    RunRecord,
    check_runs,
)
from aiokafka08.bridge.copy.run_formats import RunsKey, encode_runs, encode_runs_key
from aiokafka08.bridge.target.target_cluster import Target, TargetRecord
from aiokafka08.errors import KafkaProtocolError
from aiokafka08.structs import TopicPartition
from tests.protocol.strategies import examples

TP = TopicPartition("t", 3)
RUNS = 40 * PAGE_RUNS + 5
CONFIG = parse_config(
    'name="x"\n[source]\nbootstrap="a:1"\n[target]\nbootstrap="b:1"\n[topics]\ninclude=["t"]\n'
)


def topic_of(runs: int) -> list[TargetRecord]:
    """The records of a bridge that copied 50 messages in each transaction, not compacted."""
    log, records = RunLog(), list[RunRecord]()
    for number in range(runs):
        written, log = log.append([OffsetRun(number * 50, number * 51, 50)])
        records += written
    return [
        TargetRecord(
            0,
            offset,
            encode_runs_key(RunsKey(*TP, source)),
            None if one is None else encode_runs(one),
            -1,
        )
        for offset, (source, one) in enumerate(records)
    ]


def stored(records: list[TargetRecord], *, ends_only: bool) -> StoredRuns:
    runs = StoredRuns(ends_only=ends_only)
    for record in records:
        runs.add(record)
    return runs


def test_ends_of_pages_tell_where_the_copy_goes_on() -> None:
    records = topic_of(RUNS)
    whole, ends = stored(records, ends_only=False), stored(records, ends_only=True)
    assert len(whole.offset_map(TP)) == RUNS
    assert len(ends.offset_map(TP)) == 40 + 5
    assert ends.offset_map(TP).end_source == whole.offset_map(TP).end_source == RUNS * 50
    following = [OffsetRun(RUNS * 50, RUNS * 51, 50)]
    after = [runs.run_logs()[TP].append(following)[0] for runs in (whole, ends)]
    assert after[0] == after[1] == [RunRecord(RUNS * 50, tuple(following))]


@pytest.mark.parametrize("ends_only", [False, True])
def test_popped_partition_has_all_its_keys(ends_only: bool) -> None:
    runs = stored(topic_of(RUNS), ends_only=ends_only)
    pages = [number * PAGE_RUNS * 50 for number in range(40)]
    single = [(40 * PAGE_RUNS + number) * 50 for number in range(5)]
    assert runs.topics() == {"t"}
    assert sorted(runs.pop(TP)) == [*pages, *single]
    assert runs.pop(TP) == []
    assert runs.offset_map(TP).end_source is None


@pytest.mark.parametrize(("ends_only", "limit"), [(False, 40), (True, 6)])
def test_memory_of_a_run_is_small(ends_only: bool, limit: int) -> None:
    """A transaction per second for a week is 600,000 runs of each partition."""
    records = topic_of(RUNS)
    tracemalloc.start()
    try:
        runs = stored(records, ends_only=ends_only)
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used / RUNS < limit
    assert runs.topics() == {"t"}


async def test_offsets_topic_is_decoded_outside_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A session of a bridge begins with it: 590,000 records took a second of the loop."""
    threads: set[int] = set()

    class Watched(StoredRuns):
        def add(self, record: TargetRecord) -> None:
            threads.add(threading.get_ident())
            super().add(record)

        def offset_map(self, tp: TopicPartition) -> OffsetMap:
            threads.add(threading.get_ident())
            return super().offset_map(tp)

    async def parts(topic: str) -> AsyncGenerator[list[TargetRecord]]:
        for record in topic_of(5):
            yield [record]

    monkeypatch.setattr(positions, "StoredRuns", Watched)
    target = create_autospec(Target, instance=True)
    target.parts_of = parts
    target.committed.return_value = {}
    target.ever_had_records.return_value = {TP: True}
    target.log_ends.return_value = {TP: 10_000}
    runs = await read_stored_runs(CONFIG, target, ends_only=True)
    found = await find_positions(CONFIG, target, {TP: TP}, runs, {TP})
    assert found == {TP: FoundPosition(250, "offsets topic")}
    assert threads
    assert threading.get_ident() not in threads


MOST = 2**63 - 1


@pytest.mark.parametrize(
    ("key", "runs", "expected"),
    [
        (RunsKey("t", 3, -5), [OffsetRun(-5, 0, 10)], "expected offsets >= 0"),
        (RunsKey("t", 3, 5), [OffsetRun(5, -1, 10)], "expected offsets >= 0"),
        (RunsKey("t", 3, 5), [OffsetRun(5, 0, 0)], "a length >= 1"),
        (RunsKey("t", 3, 5), [OffsetRun(5, 0, -2)], "a length >= 1"),
        (RunsKey("t", 3, 5), [OffsetRun(5, 0, 10), OffsetRun(-1, 20, 1)], "source=-1"),
        (RunsKey("t", 3, MOST), [OffsetRun(MOST, 0, 1)], "both in 64 bits"),
        (RunsKey("t", 3, 5), [OffsetRun(5, 2, MOST)], "both in 64 bits"),
        (RunsKey("t", 3, 5), [OffsetRun(6, 0, 10)], "expected source=5, as in the key"),
        (RunsKey("t", 3, 5), [], "no runs: expected at least one"),
        (RunsKey("t", -1, 5), [OffsetRun(5, 0, 10)], "expected a partition >= 0"),
    ],
)
async def test_impossible_runs_are_an_error_that_names_the_record(
    key: RunsKey, runs: list[OffsetRun], expected: str
) -> None:
    record = TargetRecord(0, 17, encode_runs_key(key), encode_runs(tuple(runs)), -1)
    text = await _error_of(record)
    assert text.startswith(f"topic {CONFIG.offsets_topic!r}, partition 0, offset 17: exact offsets")
    assert expected in text
    assert shorten(record.value) in text
    assert text.endswith("write a null for this key, and keep it from this topic")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"claim", b"\0\0"),
        (encode_runs_key(RunsKey("t", 3, 5)), b"\0"),
        (encode_runs_key(RunsKey("t", 3, 5)), b"\0\1rest"),
    ],
)
async def test_unreadable_runs_are_an_error_that_names_the_record(
    key: bytes, value: bytes | None
) -> None:
    text = await _error_of(TargetRecord(0, 17, key, value, -1))
    assert text.startswith(f"topic {CONFIG.offsets_topic!r}, partition 0, offset 17: exact offsets")
    assert "expected version 0. Run the release that wrote them" in text


async def _error_of(record: TargetRecord) -> str:
    """Read an offsets topic whose last record is damaged; return the text of the error."""
    with pytest.raises(KafkaProtocolError) as raised:
        await _read([*topic_of(5), record])
    return raised.value.text


async def _read(records: list[TargetRecord]) -> StoredRuns:
    """Read an offsets topic with these records, each in a part of its own."""

    async def parts(topic: str) -> AsyncGenerator[list[TargetRecord]]:
        for record in records:
            yield [record]

    target = create_autospec(Target, instance=True)
    target.parts_of = parts
    return await read_stored_runs(CONFIG, target)


@pytest.mark.parametrize("key", [encode_runs_key(RunsKey(*TP, 250)), b"claim"])
async def test_null_for_the_key_of_a_damaged_record_mends_it(key: bytes) -> None:
    """Before compaction, too: the newest segment isn't compacted, and the bridge writes nothing."""
    damaged, null = TargetRecord(0, 17, key, b"\0\0", -1), TargetRecord(0, 18, key, None, -1)
    assert (await _read([*topic_of(5), damaged, null])).offset_map(TP).end_source == 250
    assert (await _read([*topic_of(5), null])).offset_map(TP).end_source == 250
    with pytest.raises(KafkaProtocolError, match="partition 0, offset 17: exact offsets"):
        await _read([*topic_of(5), null, damaged])


async def test_valid_record_behind_a_damaged_one_replaces_it() -> None:
    key, value = encode_runs_key(RunsKey(*TP, 250)), encode_runs((OffsetRun(250, 255, 50),))
    damaged, valid = (TargetRecord(0, 17 + at, key, one, -1) for at, one in enumerate((b"", value)))
    assert (await _read([*topic_of(5), damaged, valid])).offset_map(TP).end_source == 300
    other = TargetRecord(0, 19, b"claim", b"", -1)
    with pytest.raises(KafkaProtocolError, match="offset 19: exact offsets"):
        await _read([*topic_of(5), damaged, other, valid])


numbers = st.integers(-(2**63), MOST) | st.integers(-2, 40)


@examples(200)
@given(st.lists(st.tuples(numbers, numbers, numbers), max_size=8))
def test_any_runs_are_refused_or_give_a_map(rows: list[tuple[int, int, int]]) -> None:
    """Whatever runs the records have: no other error, and a map that can be asked."""
    stored_runs, log = StoredRuns(), list[RunRecord]()
    for offset, row in enumerate(rows):
        key = encode_runs_key(RunsKey(*TP, row[0]))
        value = encode_runs((OffsetRun(*row),))
        stored_runs.add(TargetRecord(0, offset, key, value, -1))
        try:
            check_runs(row[0], [OffsetRun(*row)])
        except ValueError:
            assert key in stored_runs.damaged
        else:
            assert key not in stored_runs.damaged
            log.append(RunRecord(row[0], (OffsetRun(*row),)))
    known = stored_runs.offset_map(TP)
    assert (len(known) > 0) == bool(log)
    for one in known:
        assert known.to_source(one.target) == one.source
    RunLog(log).append([OffsetRun(MOST - 1, MOST - 1, 1)])


def test_map_takes_little_memory_while_it_is_made() -> None:
    """24 bytes for a run, twice: tuples of all runs took 240, and the garbage collector's time."""
    runs = stored(topic_of(10 * RUNS), ends_only=False)
    tracemalloc.start()
    try:
        assert len(runs.offset_map(TP)) == 10 * RUNS
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most / (10 * RUNS) < 80


async def test_topic_of_another_program_is_not_read_to_its_end() -> None:
    """The texts of its records would fill the memory."""
    foreign = [TargetRecord(0, at, b"%d" % at, b"?", -1) for at in range(2 * MOST_DAMAGED)]
    with pytest.raises(KafkaProtocolError, match=rf"offset {MOST_DAMAGED}: exact offsets can't"):
        await _read(foreign)
