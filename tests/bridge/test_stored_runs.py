"""What is kept in memory of the offsets topic."""

from __future__ import annotations

import tracemalloc

import pytest

from aiokafka08.bridge.formats import RunsKey, encode_runs, encode_runs_key
from aiokafka08.bridge.offset_runs import PAGE_RUNS, OffsetRun, RunLog, RunRecord
from aiokafka08.bridge.positions import StoredRuns
from aiokafka08.bridge.target_cluster import TargetRecord
from aiokafka08.structs import TopicPartition

TP = TopicPartition("t", 3)
RUNS = 40 * PAGE_RUNS + 5


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
