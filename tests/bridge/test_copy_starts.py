"""Where partitions begin that a session finds behind its start."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from unittest.mock import create_autospec

import pytest

from aiokafka08.bridge.config import BridgeConfig, parse_config
from aiokafka08.bridge.copy.copy_positions import StoredRuns
from aiokafka08.bridge.copy.copy_starts import CopyStart, CopyStarts
from aiokafka08.bridge.sink.events import TransactionCommitted
from aiokafka08.bridge.sink.sink import BridgeRun
from aiokafka08.bridge.source.source_reader import SourceReader
from aiokafka08.bridge.source.topic_identity import TopicIdentities
from aiokafka08.bridge.target.target_cluster import Target
from aiokafka08.structs import TopicPartition
from tests.bridge.sessions import UnstartedSession, record

HadRecords = Callable[[Iterable[TopicPartition]], Awaitable[dict[TopicPartition, bool]]]

FIRST, EMPTY, FILLED = (TopicPartition(name, 0) for name in ("first", "empty", "filled"))


@pytest.mark.parametrize("start", ["earliest", "latest"])
@pytest.mark.parametrize("appends", [False, True])
async def test_filled_topic_that_comes_later_is_not_copied(start: str, appends: bool) -> None:
    """In the first process of a bridge, too; the start has only refused those that it has seen."""
    append = 'append = ["filled"]' if appends else ""
    config = config_of(f'{append}\n[copy]\nstart = "{start}"')
    run, runs = BridgeRun(), StoredRuns(ends_only=True)
    starts = starts_of(config, run, has_records)
    found = await starts.find({FIRST: FIRST}, runs, has_run=False, wait_s=0)
    assert found.positions == {FIRST: CopyStart(9 if start == "latest" else 3, True)}
    run.has_begun = True
    pairs = {tp: tp for tp in (EMPTY, FILLED)}
    found = await starts.find(pairs, runs, has_run=False, wait_s=0)
    copied = pairs if appends else [EMPTY]
    assert found.positions == {tp: CopyStart(3, True) for tp in copied}
    left_out = {tp: one.reason for tp, one in found.left_out.items()}
    assert left_out.keys() == pairs.keys() - found.positions.keys()
    if not appends:
        assert "delete the target topic to copy it again; topics.append" in left_out[FILLED]


def config_of(more: str = "") -> BridgeConfig:
    return parse_config(
        'name = "x"\n[source]\nbootstrap = "a:1"\n[target]\nbootstrap = "b:1"\n'
        f'[topics]\ninclude = [".*"]\n{more}\n'
    )


def starts_of(
    config: BridgeConfig,
    run: BridgeRun,
    ever_had_records: HadRecords,
    *,
    committed: Mapping[TopicPartition, int] | None = None,
    begun_anew: Iterable[TopicPartition] = (),
) -> CopyStarts:
    """A session's starts, at a target without positions but for those given."""
    source = create_autospec(SourceReader, instance=True)
    target = create_autospec(Target, instance=True)
    identities = create_autospec(TopicIdentities, instance=True)
    source.reachable_bounds = bounds_of
    target.committed.return_value = dict(committed or {})
    target.ever_had_records = ever_had_records
    target.log_ends.return_value = {}
    identities.begun_anew, identities.reason.return_value = set(begun_anew), None
    return CopyStarts(config, source, target, identities, run, find_by_tail=nothing)


async def bounds_of(
    partitions: Iterable[TopicPartition], wait_s: float = 0.0
) -> dict[TopicPartition, tuple[int, int]]:
    return dict.fromkeys(partitions, (3, 9))


async def has_records(partitions: Iterable[TopicPartition]) -> dict[TopicPartition, bool]:
    return {tp: tp == FILLED for tp in partitions}


async def nothing(*_: object) -> None:
    return None


async def test_partition_without_a_commit_begins_again() -> None:
    """The next session of the process: what the copy has behind that is its own first round."""
    config = config_of()
    run, runs, pairs = BridgeRun(), StoredRuns(ends_only=True), {FILLED: FILLED}
    for ever_had_records in (nowhere, has_records):
        starts = starts_of(config, run, ever_had_records)
        found = await starts.find(pairs, runs, has_run=False, wait_s=0)
        assert found.positions == {FILLED: CopyStart(3, True)}
        assert found.begins == {FILLED}
        run.has_begun, run.begun = True, {FILLED}  # its first records were put
    run.begun.clear()  # a commit
    starts = starts_of(config, run, has_records)
    assert (await starts.find(pairs, runs, has_run=False, wait_s=0)).left_out.keys() == {FILLED}


async def test_recreated_topic_begins_at_0_whatever_is_committed() -> None:
    """A target before 2.5 may still return the former position: it doesn't wait for the markers."""
    committed = {FIRST: 5, EMPTY: 7}
    starts = starts_of(
        config_of(), BridgeRun(), has_records, committed=committed, begun_anew=[FIRST]
    )
    pairs = {tp: tp for tp in committed}
    found = await starts.find(pairs, StoredRuns(ends_only=True), has_run=True, wait_s=0)
    assert found.positions == {FIRST: CopyStart(0, True), EMPTY: CopyStart(7, False)}


async def nowhere(partitions: Iterable[TopicPartition]) -> dict[TopicPartition, bool]:
    return dict.fromkeys(partitions, False)


async def test_partition_begins_with_its_first_records() -> None:
    """What its copy has before isn't of this process: another program may fill it meanwhile."""
    run = BridgeRun()
    made = UnstartedSession(config_of(), run)
    starts = {FIRST: CopyStart(0, False), EMPTY: CopyStart(0, True)}
    await made.add(starts, begins={FIRST, EMPTY})
    await made.add({FILLED: CopyStart(5, False)})
    assert made.put == [(EMPTY, 0)]
    assert run.begun == set()
    await made.read({tp: [record(tp)] for tp in (FIRST, FILLED)})
    assert run.begun == {FIRST}
    for tp in (FIRST, EMPTY):
        made.sink.events.append(TransactionCommitted(0, {tp: 1}, {}, 1, 1))
    await made.read({tp: [record(tp, 1)] for tp in (FIRST, EMPTY)})
    assert run.begun == set()
