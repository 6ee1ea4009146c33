"""Where partitions begin that a session finds behind its start."""

from __future__ import annotations

from collections.abc import Iterable
from unittest.mock import create_autospec

import pytest

from aiokafka08.bridge import copy_starts
from aiokafka08.bridge.config import parse_config
from aiokafka08.bridge.copy_starts import CopyStart, CopyStarts
from aiokafka08.bridge.positions import StoredRuns
from aiokafka08.bridge.sink.base import BridgeRun
from aiokafka08.bridge.source import SourceReader
from aiokafka08.bridge.target_cluster import TargetCluster
from aiokafka08.bridge.topic_identity import TopicIdentities
from aiokafka08.structs import TopicPartition

FIRST, EMPTY, FILLED = (TopicPartition(name, 0) for name in ("first", "empty", "filled"))


@pytest.mark.parametrize("start", ["earliest", "latest"])
@pytest.mark.parametrize("appends", [False, True])
async def test_filled_topic_that_comes_later_is_not_copied(
    start: str, appends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the first process of a bridge, too; the start has only refused those that it has seen."""
    append = 'append = ["filled"]' if appends else ""
    config = parse_config(
        'name = "x"\n[source]\nbootstrap = "a:1"\n[target]\nbootstrap = "b:1"\n'
        f'[topics]\ninclude = [".*"]\n{append}\n[copy]\nstart = "{start}"'
    )
    source = create_autospec(SourceReader, instance=True)
    target = create_autospec(TargetCluster, instance=True)
    identities = create_autospec(TopicIdentities, instance=True)
    source.reachable_bounds = bounds_of
    target.committed.return_value = {}
    target.ever_had_records = has_records
    identities.begun_anew, identities.reason.return_value = set(), None
    monkeypatch.setattr(copy_starts, "find_by_tail", nothing)
    starts = CopyStarts(config, source, target, identities, BridgeRun())
    runs = StoredRuns(ends_only=True)
    found = await starts.find({FIRST: FIRST}, runs, has_run=False, wait_s=0)
    assert found.positions == {FIRST: CopyStart(9 if start == "latest" else 3, True)}
    pairs = {tp: tp for tp in (EMPTY, FILLED)}
    found = await starts.find(pairs, runs, has_run=False, wait_s=0)
    copied = pairs if appends else [EMPTY]
    assert found.positions == {tp: CopyStart(3, True) for tp in copied}
    left_out = {tp: one.reason for tp, one in found.left_out.items()}
    assert left_out.keys() == pairs.keys() - found.positions.keys()
    if not appends:
        assert "delete the target topic to copy it again; topics.append" in left_out[FILLED]


async def bounds_of(
    partitions: Iterable[TopicPartition], wait_s: float = 0.0
) -> dict[TopicPartition, tuple[int, int]]:
    return dict.fromkeys(partitions, (3, 9))


async def has_records(partitions: Iterable[TopicPartition]) -> dict[TopicPartition, bool]:
    return {tp: tp == FILLED for tp in partitions}


async def nothing(*_: object) -> None:
    return None
