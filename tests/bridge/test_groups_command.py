"""What `bridge groups` asks for before it commits."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import create_autospec

import pytest

from aiokafka08 import TopicPartition
from aiokafka08.admin import LogBounds
from aiokafka08.bridge.config import BridgeConfig
from aiokafka08.bridge.copy.offset_runs import OffsetMap
from aiokafka08.bridge.groups import carry_over as groups
from aiokafka08.bridge.groups.carry_over import CopiedCluster, GroupTransfer
from aiokafka08.bridge.groups.group_plan import CopiedPartition, GroupMove, SourceOffset
from aiokafka08.bridge.target import target_release
from aiokafka08.errors import KafkaConnectionError
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
    assert "nothing is committed of orders/1 (billing). At the target these groups" in done.err


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
