"""What `bridge cutover --rollback` says about offsets that it doesn't commit."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiokafka08 import TopicPartition
from aiokafka08.bridge.config import BridgeConfig
from aiokafka08.bridge.groups import rollback
from aiokafka08.bridge.groups.carry_over import FileOffsets
from aiokafka08.bridge.groups.rollback import Rollback, RollbackMove
from aiokafka08.bridge.wording import nothing_matches
from tests._tools.cli.conftest import RunCommand
from tests.bridge.test_groups_command import FILE

BEYOND = RollbackMove("a", TopicPartition("orders", 0), 80, 50, 60, "beyond", "read beyond")
REFUSED = RollbackMove("b", TopicPartition("orders", 0), 40, 30, 40, "refused", "members: m")


def roll_back(
    cli: RunCommand,
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    moves: list[RollbackMove],
    unmatched: str | None = None,
) -> tuple[int, str]:
    async def decided(config: BridgeConfig, offsets: FileOffsets, **options: bool) -> Rollback:
        return Rollback(moves, unmatched)

    monkeypatch.setattr(rollback, "roll_back", decided)
    path = folder / "bridge.toml"
    path.write_text(FILE)
    done = cli("bridge", "cutover", str(path), "--rollback")
    return done.code, done.err


NEW = RollbackMove("c", TopicPartition("orders", 0), 40, None, 40, "move")


def test_offset_that_was_never_committed_is_null(
    cli: RunCommand, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Not -1, which looks like an offset; on a terminal it is a word."""

    async def decided(config: BridgeConfig, offsets: FileOffsets, **options: bool) -> Rollback:
        return Rollback([NEW, REFUSED], None)

    monkeypatch.setattr(rollback, "roll_back", decided)
    path = tmp_path / "bridge.toml"
    path.write_text(FILE)
    command = ("bridge", "cutover", str(path), "--rollback", "--format")
    done = cli(*command, "json")
    assert [row["before"] for row in done.json] == [None, 30]
    assert cli(*command, "tsv").lines[1].split("\t")[4] == ""
    assert "nothing" in cli(*command, "table").lines[2].split()


def test_rollback_of_nothing_says_why(
    cli: RunCommand, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    code, text = roll_back(cli, monkeypatch, tmp_path, [])
    assert (code, "no group of [groups] has committed offsets at the target" in text) == (0, True)


def test_each_outcome_that_is_left_is_explained(
    cli: RunCommand, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    code, text = roll_back(cli, monkeypatch, tmp_path, [BEYOND, REFUSED])
    assert code == 1
    assert "1 offset not moved: the groups have read messages that only the target has" in text
    assert "1 offset refused: the groups have members" in text


@pytest.mark.parametrize("moves", [[], [REFUSED]])
def test_pattern_of_no_group_is_named_with_similar_groups(
    cli: RunCommand, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, moves: list[RollbackMove]
) -> None:
    groups = [f"a{number:02}" for number in range(40)] + ["billing"]
    text = nothing_matches("group", ["biling", "zz.*"], groups)
    code, shown = roll_back(cli, monkeypatch, tmp_path, moves, text)
    assert code == 1
    assert "groups.include: 'biling', 'zz.*' matches no group of the source" in shown
    assert "and 11 more. Did you mean 'billing'?" in shown
    assert "no group of [groups] has committed" not in shown
