"""What `bridge groups` asks for before it commits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest.mock import AsyncMock, create_autospec

import pytest

from aiokafka08 import TopicPartition
from aiokafka08.admin import LogBounds
from aiokafka08.bridge.config import BridgeConfig, parse_config
from aiokafka08.bridge.copy.offset_runs import OffsetMap, OffsetRun
from aiokafka08.bridge.cutover import readiness, steps
from aiokafka08.bridge.cutover.readiness import Readiness, Step
from aiokafka08.bridge.cutover.steps import CARRIED_OVER, cut_over
from aiokafka08.bridge.groups import carry_over as groups
from aiokafka08.bridge.groups.carry_over import CopiedCluster, GroupTransfer
from aiokafka08.bridge.groups.group_plan import (
    UNREAD,
    CopiedPartition,
    GroupMove,
    SourceOffset,
)
from aiokafka08.bridge.groups.target_groups import TargetGroups
from aiokafka08.bridge.source.source_clients import source_admin
from aiokafka08.bridge.target import target_release
from aiokafka08.bridge.target.target_cluster import Target
from aiokafka08.errors import IllegalStateError, KafkaConnectionError
from tests._tools.cli.conftest import RunCommand

FILE = (
    'name = "b"\n[source]\nbootstrap = "127.0.0.1:1"\n[target]\nbootstrap = "127.0.0.1:1"\n'
    '[topics]\ninclude = ["orders"]\n[groups]\ninclude = ["billing"]\nstore = "kafka"\n'
)


TP, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)
MOVE = GroupMove("billing", TP, TP, "kafka", 4, "", 4, 4, "same")


def is_modern(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse_nothing(config: BridgeConfig) -> None:
        pass

    monkeypatch.setattr(target_release, "refuse_old_target", refuse_nothing)


@pytest.mark.parametrize("option", [[], ["--execute"]])
def test_partition_that_a_group_never_committed_is_named(
    cli: RunCommand, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, option: list[str]
) -> None:
    """It is no row, since nothing is to be carried over of it."""
    copied = {tp: CopiedPartition(tp, OffsetMap(), 5, LogBounds(0, 5), 5) for tp in (TP, OTHER)}
    cluster = CopiedCluster(copied, {"billing": {TP: SourceOffset(4, "", "kafka")}})
    transfer = create_autospec(GroupTransfer, instance=True)
    transfer.unmatched.return_value = None
    transfer.carry_over.return_value = transfer.look.return_value = ([MOVE], cluster)
    monkeypatch.setattr(groups, "GroupTransfer", lambda *_: transfer)
    is_modern(monkeypatch)
    path = tmp_path / "bridge.toml"
    path.write_text(FILE)
    done = cli("bridge", "groups", str(path), *option)
    assert done.code == 0
    text = "no offset is committed for orders/1 (billing): there these groups begin at"
    assert text in " ".join(done.err.split())


@pytest.mark.parametrize(("others", "is_refused"), [(["old.orders"], True), ([], False)])
async def test_groups_by_another_rename_are_refused(
    monkeypatch: pytest.MonkeyPatch, others: list[str], is_refused: bool
) -> None:
    """The offset runs are those of the other copies; the positions may also have expired."""
    copied = {TP: CopiedPartition(TP, OffsetMap([OffsetRun(0, 0, 5)]), None, LogBounds(0, 5), None)}

    async def elsewhere(config: BridgeConfig, target: Target, names: set[str]) -> list[str]:
        assert names == {"orders"}
        return others

    monkeypatch.setattr(groups, "positions_elsewhere", elsewhere)
    monkeypatch.setattr(groups, "source_admin", create_autospec(source_admin))
    monkeypatch.setattr(groups, "source_offsets", AsyncMock(return_value={}))
    monkeypatch.setattr(groups, "copied_partitions", AsyncMock(return_value=copied))
    target_groups = create_autospec(TargetGroups, instance=True)
    target_groups.members.return_value = {}
    monkeypatch.setattr(groups, "Target", create_autospec(Target))
    monkeypatch.setattr(groups, "TargetGroups", lambda *_: target_groups)
    transfer = GroupTransfer(parse_config(FILE))
    if is_refused:
        with pytest.raises(IllegalStateError, match="nothing is copied of orders, but bridge 'b'"):
            await transfer.look()
    else:
        assert (await transfer.look())[0] == []


STATE = TopicPartition("state", 0)
LEFT_OUT = CopiedCluster(
    {TP: CopiedPartition(TP, OffsetMap(), 5, LogBounds(0, 5), 5)},
    {
        "billing": {TP: SourceOffset(4, "", "kafka")},
        "both": {STATE: SourceOffset(3, "", "kafka")},
        "mixed": {
            TP: SourceOffset(2, "", "kafka"),
            STATE: SourceOffset(3, "", "kafka"),
            TopicPartition("state", 1): SourceOffset(-1, "", "zookeeper", "junk"),
            TopicPartition("orders", 7): SourceOffset(1, "", "zookeeper"),
            UNREAD: SourceOffset(-1, "", "zookeeper", "junk"),
        },
    },
)
NOTHING_OF_BOTH = "nothing of group 'both' is carried over: the bridge doesn't copy state"
PART_OF_MIXED = (
    "1 group leaves offsets behind, in topics that the bridge doesn't copy: 'mixed': state "
    "(2 offsets), orders/7 (no such partition)"
)


@pytest.mark.parametrize("option", [[], ["--execute"]])
def test_offsets_in_topics_that_are_not_copied_are_named(
    cli: RunCommand, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, option: list[str]
) -> None:
    """Such a group would begin anywhere at the target, and nobody would know before."""
    transfer = create_autospec(GroupTransfer, instance=True)
    transfer.unmatched.return_value = None
    transfer.carry_over.return_value = transfer.look.return_value = ([MOVE], LEFT_OUT)
    monkeypatch.setattr(groups, "GroupTransfer", lambda *_: transfer)
    is_modern(monkeypatch)
    path = tmp_path / "bridge.toml"
    path.write_text(FILE)
    done = cli("bridge", "groups", str(path), *option)
    assert done.code == 0  # the file says which topics are copied
    said = " ".join(done.err.split())
    assert NOTHING_OF_BOTH in said
    assert PART_OF_MIXED in said


def test_many_groups_that_are_left_out_are_shortened() -> None:
    offsets = {STATE: SourceOffset(3, "", "kafka")}
    cluster = CopiedCluster({}, {f"g{number:02}": offsets for number in range(12)})
    text = cluster.left_out_text()
    named = "; ".join(f"'g{number:02}': state" for number in range(10))
    assert text == (
        "nothing of 12 groups is carried over: the bridge doesn't copy their topics: "
        f"{named}; and 2 more"
    )
    assert CopiedCluster({}, {}).left_out_text() == ""


@pytest.mark.parametrize("moves", [[MOVE], []])
async def test_plan_and_cutover_name_offsets_that_are_left_out(
    monkeypatch: pytest.MonkeyPatch, moves: list[GroupMove]
) -> None:
    transfer = create_autospec(GroupTransfer, instance=True)
    transfer.carry_over.return_value = transfer.look.return_value = (moves, LEFT_OUT)
    monkeypatch.setattr(readiness, "GroupTransfer", lambda *_: transfer)
    look = Readiness(parse_config(FILE))
    step = await look.groups()
    assert (step.is_ready, step.leaves_out) == (bool(moves), True)
    first = "0 offsets to commit, 1 is at the target. " if moves else "no group of [groups] has "
    assert step.detail.startswith(first)
    left_out = f"{NOTHING_OF_BOTH.replace('nothing', 'Nothing')}. {PART_OF_MIXED}"
    assert step.detail.endswith(f". {left_out}")


@pytest.mark.parametrize(
    ("other", "detail"),
    [
        (
            "refunds/0 isn't at the target yet",
            "2 offsets of 2 groups, such as billing, orders/0: waiting: the partition isn't at "
            "the target yet",
        ),
        (
            "the bridge is at 2",
            "billing, orders/0: waiting: orders/0 isn't at the target yet. mail, refunds/0: "
            "waiting: the bridge is at 2",
        ),
    ],
)
async def test_plan_names_one_cause_of_all_offsets_once(
    monkeypatch: pytest.MonkeyPatch, other: str, detail: str
) -> None:
    """Before the first run no topic is at the target, so each offset waits."""
    orders, refunds = TopicPartition("orders", 0), TopicPartition("refunds", 0)
    waiting = replace(MOVE, source=orders, copy=orders, outcome="waiting")
    moves = [
        replace(waiting, reason="orders/0 isn't at the target yet"),
        replace(waiting, group="mail", source=refunds, copy=refunds, reason=other),
    ]
    transfer = create_autospec(GroupTransfer, instance=True)
    transfer.look.return_value = (moves, CopiedCluster({}, {}))
    monkeypatch.setattr(readiness, "GroupTransfer", lambda *_: transfer)
    step = await Readiness(parse_config(FILE)).groups()
    assert (step.is_ready, step.detail) == (False, detail)


async def test_last_step_of_cutover_names_what_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """ "carried over: yes" alone would read as if each group had arrived."""
    transfer = create_autospec(GroupTransfer, instance=True)
    transfer.carry_over.return_value = ([MOVE], LEFT_OUT)

    async def is_ready(*_: object) -> Step:
        return Step("any", True, "")

    async def is_modern(config: BridgeConfig) -> None:
        pass

    monkeypatch.setattr(readiness, "GroupTransfer", lambda *_: transfer)
    monkeypatch.setattr(steps, "refuse_old_target", is_modern)
    for name in ("topics", "producers", "copy", "consumers", "groups"):
        monkeypatch.setattr(Readiness, name, is_ready)
    done = [step async for step in cut_over(parse_config(FILE), {}, may_skip_verification=True)]
    assert (done[-1].step, done[-1].is_ready) == (CARRIED_OVER, True)
    assert f". But {NOTHING_OF_BOTH}. {PART_OF_MIXED}. Start the consumers" in done[-1].detail


def test_source_that_fails_leaves_no_commit_untold(
    cli: RunCommand, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Else the error is all that is shown of offsets that were committed."""
    transfer = create_autospec(GroupTransfer, instance=True)
    transfer.unmatched.side_effect = KafkaConnectionError("the source is away")
    monkeypatch.setattr(groups, "GroupTransfer", lambda *_: transfer)
    is_modern(monkeypatch)
    path = tmp_path / "bridge.toml"
    path.write_text(FILE)
    done = cli("bridge", "groups", str(path), "--execute")
    assert "the source is away" in done.err
    assert not transfer.carry_over.await_args_list
    transfer.close.assert_awaited_once()
