"""Exact translation of offsets, against a model that knows every message."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka08.bridge.copy.offset_runs import (
    PAGE_RUNS,
    RECORD_RUNS,
    SHARED_RUNS,
    OffsetMap,
    OffsetRun,
    RunLog,
    RunRecord,
    runs_of,
    runs_of_transaction,
)
from tests.protocol.strategies import examples


class Copy(NamedTuple):
    """What a bridge did: per transaction the source offsets and the first target offset."""

    transactions: list[tuple[list[int], int]]

    @property
    def messages(self) -> list[tuple[int, int]]:
        """(source offset, target offset) of each message."""
        return [
            (source, target + at)
            for sources, target in self.transactions
            for at, source in enumerate(sources)
        ]

    @property
    def runs(self) -> list[OffsetRun]:
        return [run for sources, target in self.transactions for run in runs_of(sources, target)]


@st.composite
def copies(draw: st.DrawFn) -> Copy:
    """Transactions with holes and shared offsets in the source, markers and aborted messages in the
    target. Messages that share an offset are in one transaction."""
    source, target = draw(st.integers(0, 50)), draw(st.integers(0, 50))
    transactions = []
    for gaps in draw(
        st.lists(st.lists(st.sampled_from([0, 0, 0, -1, 1, 7]), min_size=1, max_size=6), max_size=8)
    ):
        sources: list[int] = []
        for gap in gaps:
            source += gap if sources or gap > 0 else 0
            sources.append(source)
            source += 1
        transactions.append((sources, target))
        target += len(sources) + draw(st.sampled_from([0, 1, 1, 5]))
    return Copy(transactions)


@examples(100)
@given(copies())
def test_each_source_offset_finds_its_next_message(copy: Copy) -> None:
    known = OffsetMap(copy.runs)
    if not copy.messages:
        assert known.to_target(0) is None
        return
    end_source, end_target = (last + 1 for last in copy.messages[-1])
    for offset in range(end_source + 3):
        ahead = [target for source, target in copy.messages if source >= offset]
        if ahead:
            assert known.to_target(offset) == ahead[0]
        elif offset == end_source:
            assert known.to_target(offset) == end_target
        else:
            assert known.to_target(offset) is None
            assert known.to_target(offset, position=offset) == end_target


@examples(100)
@given(copies(), st.integers(0, 3))
def test_each_target_offset_finds_its_next_message(copy: Copy, beyond: int) -> None:
    known = OffsetMap(copy.runs)
    if not copy.messages:
        assert known.to_source(0) is None
        return
    position = copy.messages[-1][0] + 1 + beyond
    for offset in range(copy.messages[-1][1] + 5):
        ahead = [source for source, target in copy.messages if target >= offset]
        assert known.to_source(offset, position) == (ahead[0] if ahead else position)


@examples(100)
@given(copies())
def test_translation_there_and_back_is_the_same(copy: Copy) -> None:
    known = OffsetMap(copy.runs)
    first = dict(reversed(copy.messages))
    for source, target in copy.messages:
        assert (known.to_target(source), known.to_source(target)) == (first[source], source)
        assert known.copy_of(source) == first[source]
        assert known.copy_of(source, target) == target


@examples(100)
@given(copies(), st.integers(0, 8), st.integers(1, 4))
def test_topic_of_runs_holds_all_of_them(copy: Copy, restart_at: int, repeat: int) -> None:
    """Also when the bridge starts again, when transactions are aborted, and with full pages."""
    log, topic = RunLog(), dict[int, RunRecord]()
    step, end = copy.messages[-1] if copy.messages else (0, 0)
    runs: list[OffsetRun] = []
    for at in range(repeat * PAGE_RUNS // 3):
        for number, (sources, target) in enumerate(copy.transactions):
            moved = [source + at * (step + 1) for source in sources]
            added = runs_of(moved, target + at * (end + 2))
            runs += added
            log.append(added)  # aborted
            records, log = log.append(added)
            for record in records:
                if record.runs is None:
                    assert topic.pop(record.source).runs
                else:
                    topic[record.source] = record
            if number == restart_at:
                log = RunLog(topic.values())
    read = OffsetMap(run for record in topic.values() for run in record.runs or ())
    assert list(read) == list(OffsetMap(runs))
    assert len(topic) <= PAGE_RUNS + len(runs) // PAGE_RUNS + 1


def test_record_counts_stay_small() -> None:
    """A million transactions, one per second, take 1/128 as many records."""
    log, topic = RunLog(), set[int]()
    for number in range(10 * PAGE_RUNS):
        records, log = log.append([OffsetRun(number * 50, number * 51, 50)])
        for source, runs in records:
            (topic.discard if runs is None else topic.add)(source)
    assert len(topic) == 10


@examples(100)
@given(copies(), st.data())
def test_later_copy_of_a_message_counts(copy: Copy, data: st.DataObject) -> None:
    """Without transactions a restart repeats messages: no offset leads behind a lost one."""
    if not copy.messages:
        return
    sources = [source for source, _ in copy.messages]
    again = sources[sources.index(data.draw(st.sampled_from(sources))) :]
    target = copy.messages[-1][1] + 1 + data.draw(st.integers(0, 2))
    known = OffsetMap([*copy.runs, *runs_of(again, target)])
    log = copy.messages + list(zip(again, range(target, target + len(again)), strict=True))
    for offset in range(sources[-1] + 1):
        at = known.to_target(offset)
        assert at is not None
        rest = Counter(source for source, written in log if written >= at)
        assert rest >= Counter(source for source in sources if source >= offset)
        assert known.to_source(at) == min(source for source in sources if source >= offset)


@examples(200)
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 12)), max_size=30))
def test_lost_end_of_the_target_cuts_earlier_runs(
    steps: list[tuple[int, int]],
) -> None:
    """The topic's records, folded or not, give the place of each message that the target has."""
    log, target, source = RunLog(), list[int](), 0
    runs: list[OffsetRun] = []
    topic: dict[int, RunRecord] = {}
    for count, lost in steps:
        if lost > 9 and target:
            del target[-lost:]  # an unclean election
        added = [OffsetRun(source, len(target), count)]
        target += range(source, source + count)
        source += count
        runs += added
        records, log = log.append(added)
        assert log.end_target == len(target)
        for one in records:
            topic.pop(one.source, None)
            if one.runs is not None:
                topic[one.source] = one
    for known in (
        OffsetMap(runs),
        OffsetMap(run for one in topic.values() for run in one.runs or ()),
    ):
        for at, offset in enumerate(target):
            assert known.to_target(offset) == at
            assert known.to_source(at) == offset
        assert known.end_target == (len(target) or None)


def test_page_leaves_out_what_the_target_has_lost() -> None:
    """A run of each round; in the middle the target goes back by one and a half of them."""
    log, target, pages = RunLog(), 0, list[RunRecord]()
    runs: list[OffsetRun] = []
    for number in range(PAGE_RUNS + 10):
        if number == 60:
            target -= 15
        runs.append(OffsetRun(number * 20, target, 10))
        target += 10
        records, log = log.append(runs[-1:])
        pages += [one for one in records if one.runs is not None and len(one.runs) > 1]
    page = pages[0]
    assert page.runs is not None
    assert len(page.runs) == PAGE_RUNS - 1
    assert OffsetMap(page.runs).to_target(60 * 20) == 60 * 10 - 15
    assert OffsetMap(page.runs).to_target(58 * 20 + 5) == 60 * 10 - 15


@pytest.mark.parametrize(
    "run", [OffsetRun(5, 4, 1), OffsetRun(-1, 9, 1), OffsetRun(5, 9, 0), OffsetRun(5, -9, 1)]
)
def test_impossible_run_is_refused(run: OffsetRun) -> None:
    with pytest.raises(ValueError, match="expected"):
        OffsetMap([OffsetRun(0, 0, 5)]).add(run)


def test_source_offsets_out_of_order_are_refused() -> None:
    with pytest.raises(ValueError, match="source offset 2 after 3: expected no smaller one"):
        runs_of([1, 3, 2], 0)


@pytest.mark.parametrize("count", [SHARED_RUNS, SHARED_RUNS + 1, 3 * RECORD_RUNS])
def test_many_messages_share_an_offset(count: int) -> None:
    """Each group goes on with all of them, and the records are small and have their own keys."""
    added = runs_of_transaction(runs_of([4, *[5] * count, 6, 6], 0))
    records, log = RunLog().append(added)
    assert len({one.source for one in records}) == len(records)
    assert max(len(one.runs or ()) for one in records) <= RECORD_RUNS
    known = OffsetMap(run for record in records for run in record.runs or ())
    assert list(known) == list(OffsetMap(added))
    assert [known.to_target(offset) for offset in (4, 5, 6)] == [0, 1, count + 1]
    assert {known.to_source(at) for at in range(1, count + 1)} == {5}
    assert known.to_source(count + 1) == known.to_source(count + 2) == 6
    assert known.end_target == log.end_target == count + 3


def test_many_messages_share_the_last_offset() -> None:
    known = OffsetMap(runs_of_transaction(runs_of([4, *[5] * 3 * SHARED_RUNS], 0)))
    assert {known.to_source(at, 6) for at in range(1, 3 * SHARED_RUNS + 2)} == {5}
    assert known.to_target(6, 6) is not None


def test_shared_offset_behind_a_message_of_somebody_else_is_no_later_copy() -> None:
    """Another producer writes at 2, between messages with offset 5."""
    known = OffsetMap(runs_of_transaction([*runs_of([4, 5], 0), *runs_of([5, 5, 6], 3)]))
    assert [known.to_target(offset) for offset in (4, 5, 6)] == [0, 1, 5]


def test_target_offsets_of_copies_are_those_in_runs() -> None:
    known = OffsetMap([OffsetRun(10, 0, 5), OffsetRun(15, 6, 5)])
    assert [at for at in range(15) if known.has_copy_at(at)] == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10]
    assert not OffsetMap().has_copy_at(0)


@examples(20)
@given(
    st.lists(
        st.sampled_from([1, 2, PAGE_RUNS - 1, RECORD_RUNS - 1, RECORD_RUNS, 2 * RECORD_RUNS + 9]),
        max_size=3,
    ),
    st.integers(0, 2),
)
def test_records_of_many_runs_are_small(counts: list[int], restart_at: int) -> None:
    """A thinly compacted source has a run for nearly each message."""
    log, topic, runs = RunLog(), dict[int, RunRecord](), list[OffsetRun]()
    for number, count in enumerate(counts):
        at = len(runs)
        added = [OffsetRun(3 * one, at + number + one - at, 1) for one in range(at, at + count)]
        runs += added
        records, log = log.append(added)
        assert len({one.source for one in records}) == len(records)
        for record in records:
            topic.pop(record.source, None)
            if record.runs is not None:
                assert 0 < len(record.runs) <= RECORD_RUNS
                assert record.runs[0].source == record.source
                topic[record.source] = record
        if number == restart_at:
            log = RunLog(topic.values())
    read = OffsetMap(run for record in topic.values() for run in record.runs or ())
    assert list(read) == list(OffsetMap(runs))
    if runs:
        assert log.end_target in (0, runs[-1].target + 1)
        assert len(topic) <= len(runs) // PAGE_RUNS + PAGE_RUNS
