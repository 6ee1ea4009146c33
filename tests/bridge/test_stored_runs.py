"""What is kept in memory of the offsets topic."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import AsyncGenerator
from unittest.mock import create_autospec

import pytest

from aiokafka08.bridge import positions
from aiokafka08.bridge.config import parse_config
from aiokafka08.bridge.formats import RunsKey, encode_runs, encode_runs_key
from aiokafka08.bridge.offset_runs import PAGE_RUNS, OffsetMap, OffsetRun, RunLog, RunRecord
from aiokafka08.bridge.positions import (
    FoundPosition,
    StoredRuns,
    find_positions,
    read_stored_runs,
)
from aiokafka08.bridge.target_cluster import TargetCluster, TargetRecord
from aiokafka08.structs import TopicPartition

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
    target = create_autospec(TargetCluster, instance=True)
    target.parts_of = parts
    target.committed.return_value = {}
    target.ever_had_records.return_value = {TP: True}
    runs = await read_stored_runs(CONFIG, target, ends_only=True)
    found = await find_positions(CONFIG, target, {TP: TP}, runs, has_run=True)
    assert found == {TP: FoundPosition(250, "offsets topic")}
    assert threads
    assert threading.get_ident() not in threads


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
