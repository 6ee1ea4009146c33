"""Where partitions begin that a session finds behind its start."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from unittest.mock import AsyncMock, create_autospec

import pytest

from aiokafka08.bridge import copy_starts
from aiokafka08.bridge.config import BridgeConfig, parse_config
from aiokafka08.bridge.copy import CopySession
from aiokafka08.bridge.copy_starts import CopyStart, CopyStarts, FoundStarts
from aiokafka08.bridge.positions import StoredRuns
from aiokafka08.bridge.sink.events import TransactionCommitted
from aiokafka08.bridge.sink.sink import BridgeRun
from aiokafka08.bridge.source import SourceReader
from aiokafka08.bridge.status import CopyStatus
from aiokafka08.bridge.target import Target
from aiokafka08.bridge.topic_identity import TopicIdentities
from aiokafka08.structs import ConsumerRecord, TopicPartition

HadRecords = Callable[[Iterable[TopicPartition]], Awaitable[dict[TopicPartition, bool]]]

FIRST, EMPTY, FILLED = (TopicPartition(name, 0) for name in ("first", "empty", "filled"))


@pytest.mark.parametrize("start", ["earliest", "latest"])
@pytest.mark.parametrize("appends", [False, True])
async def test_filled_topic_that_comes_later_is_not_copied(
    start: str, appends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the first process of a bridge, too; the start has only refused those that it has seen."""
    append = 'append = ["filled"]' if appends else ""
    config = config_of(f'{append}\n[copy]\nstart = "{start}"')
    monkeypatch.setattr(copy_starts, "find_by_tail", nothing)
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


def starts_of(config: BridgeConfig, run: BridgeRun, ever_had_records: HadRecords) -> CopyStarts:
    """A session's starts, at a target without positions."""
    source = create_autospec(SourceReader, instance=True)
    target = create_autospec(Target, instance=True)
    identities = create_autospec(TopicIdentities, instance=True)
    source.reachable_bounds = bounds_of
    target.committed.return_value, target.ever_had_records = {}, ever_had_records
    target.log_ends.return_value = {}
    identities.reason.return_value = None
    return CopyStarts(config, source, target, identities, run)


async def bounds_of(
    partitions: Iterable[TopicPartition], wait_s: float = 0.0
) -> dict[TopicPartition, tuple[int, int]]:
    return dict.fromkeys(partitions, (3, 9))


async def has_records(partitions: Iterable[TopicPartition]) -> dict[TopicPartition, bool]:
    return {tp: tp == FILLED for tp in partitions}


async def nothing(*_: object) -> None:
    return None


async def test_partition_without_a_commit_begins_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next session of the process: what the copy has behind that is its own first round."""
    config = config_of()
    monkeypatch.setattr(copy_starts, "find_by_tail", nothing)
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


async def nowhere(partitions: Iterable[TopicPartition]) -> dict[TopicPartition, bool]:
    return dict.fromkeys(partitions, False)


async def test_partition_begins_with_its_first_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """What its copy has before isn't of this process: another program may fill it meanwhile."""
    run, status = BridgeRun(), CopyStatus()
    session = CopySession(config_of(), status, run)
    monkeypatch.setattr(session._sink, "put", lambda chunk: None)
    starts = FoundStarts({tp: CopyStart(0, False) for tp in (FIRST, EMPTY)}, begins={FIRST, EMPTY})
    find = AsyncMock(side_effect=[starts, FoundStarts({FILLED: CopyStart(5, False)})])
    monkeypatch.setattr(session._starts, "find", find)
    await session._add({tp: tp for tp in (FIRST, EMPTY)})
    await session._add({FILLED: FILLED})
    await session._put_chunk(EMPTY, [], 0)
    assert run.begun == set()
    for tp in (FIRST, FILLED):
        await session._put_chunk(tp, [record(tp)], 1)
    assert run.begun == {FIRST}
    for tp in (FIRST, EMPTY):
        session._sink._on_event(TransactionCommitted(0, {tp: 1}, {}, 1, 1))
    await session._apply_events()
    for tp in (FIRST, EMPTY):
        await session._put_chunk(tp, [record(tp)], 2)
    assert run.begun == set()
    await session._source.stop()
    await session._target.close()


def record(tp: TopicPartition) -> ConsumerRecord[bytes, bytes]:
    return ConsumerRecord(*tp, 0, -1, -1, b"k", b"v", 0, 1, 1, ())
