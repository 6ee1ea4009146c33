"""What `bridge status` says of partitions that are behind, and of positions under other names."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import AsyncMock, create_autospec

import pytest

from aiokafka08.bridge.config import BridgeConfig, parse_config
from aiokafka08.bridge.copy import read_progress as module
from aiokafka08.bridge.copy.read_progress import (
    PartitionProgress,
    other_copies,
    standstill_text,
)
from aiokafka08.bridge.target.target_cluster import Target
from aiokafka08.structs import TopicPartition
from tests._tools.cli.conftest import RunCommand

FILE = (
    'name = "b"\n[source]\nbootstrap = "127.0.0.1:1"\n[target]\nbootstrap = "127.0.0.1:1"\n'
    '[topics]\ninclude = ["orders"]\n'
)


def at(number: int, position: int | None, end: int = 421) -> PartitionProgress:
    return PartitionProgress("orders", number, "orders", position, end, end - (position or 0))


def test_partition_that_stands_still_behind_the_end_is_named() -> None:
    before = [at(0, 420), at(1, 421), at(2, None)]
    assert standstill_text(before, before, 3.0) == (
        "2 partitions are behind and haven't advanced for 3 s: orders/0 (1 behind), orders/2 (421 "
        "behind). Is 'bridge run' up? If it is, its log and its /healthz name the partitions that "
        "are stopped, with the reason"
    )
    text = standstill_text([at(0, 420), at(1, 7)], [at(0, 420), at(1, 9)], 3.0)
    # It may also be throttled, or wait for its turn.
    assert text == (
        "1 partition is behind and hasn't advanced for 3 s: orders/0 (1 behind). Others have, so "
        "'bridge run' is up: this may pass. Its log and its /healthz name the partitions that are "
        "stopped, with the reason"
    )


def test_partitions_that_advance_or_are_at_the_end_are_no_standstill() -> None:
    assert standstill_text([at(0, 419), at(1, 421)], [at(0, 420), at(1, 421)], 3.0) == ""
    unknown = PartitionProgress("orders", 0, "orders", 3, None, None)
    assert standstill_text([unknown], [unknown], 3.0) == ""


def use(
    monkeypatch: pytest.MonkeyPatch,
    looks: Sequence[Sequence[PartitionProgress]],
    others: Sequence[str] = (),
) -> AsyncMock:
    reading = AsyncMock(side_effect=[list(look) for look in looks])
    monkeypatch.setattr(module, "read_progress", reading)
    monkeypatch.setattr(module, "other_copies", AsyncMock(return_value=list(others)))
    monkeypatch.setattr(asyncio, "sleep", AsyncMock())
    return reading


def status(cli: RunCommand, tmp_path: Path) -> tuple[list[int | None], str]:
    """Return the positions and what stderr says of them."""
    path = tmp_path / "bridge.toml"
    path.write_text(FILE)
    done = cli("bridge", "status", str(path), "--format", "json")
    assert done.code == 0
    return [row["position"] for row in done.json], " ".join(done.err.split())


def test_status_looks_again_at_what_is_behind(
    cli: RunCommand, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use(monkeypatch, [[at(0, 420), at(1, 9)], [at(0, 420), at(1, 12)]])
    positions, text = status(cli, tmp_path)
    assert positions == [420, 12]
    assert "1 partition is behind and hasn't advanced for 3 s: orders/0 (1 behind)" in text


def test_status_of_a_copy_at_the_end_says_nothing(
    cli: RunCommand, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    reading = use(monkeypatch, [[at(0, 421)]])
    assert status(cli, tmp_path) == ([421], "")
    assert reading.await_count == 1


def test_status_without_any_position_says_so(
    cli: RunCommand, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use(monkeypatch, [[at(0, None)]])
    _, text = status(cli, tmp_path)
    assert "nothing is copied yet: start 'bridge run', or check name, target and rename in" in text


def test_status_by_another_rename_names_the_copies(
    cli: RunCommand, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use(monkeypatch, [[at(0, None)]], [f"old.{number:02}" for number in range(12)])
    _, text = status(cli, tmp_path)
    assert (
        "nothing is copied of orders, but bridge 'b' has positions in other topics of the target: "
        "old.00, old.01, old.02, old.03, old.04, old.05, old.06, old.07, old.08, old.09, and 2 "
        "more. Give the same rules of topics.rename and --rename as to its 'bridge run'"
    ) in text
    assert "start 'bridge run'" not in text


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([at(0, None), at(1, None)], ["old.orders"]),
        ([at(0, None), at(1, 3)], []),  # a partition that was added
        ([], []),
    ],
)
async def test_positions_under_other_names_are_found(
    monkeypatch: pytest.MonkeyPatch, rows: list[PartitionProgress], expected: list[str]
) -> None:
    target = create_autospec(Target, instance=True)
    target.partition_counts.return_value = {"orders": 2, "old.orders": 2, "free": 1}
    asked: list[TopicPartition] = []

    async def committed(group: str, partitions: Sequence[TopicPartition]) -> object:
        asked.extend(partitions)
        return {tp: 3 for tp in partitions if tp.topic == "old.orders"}

    target.committed.side_effect = committed
    monkeypatch.setattr(module, "Target", lambda _: target)
    config: BridgeConfig = parse_config(FILE)
    assert await other_copies(config, rows) == expected
    assert not [tp for tp in asked if tp.topic == "orders"]
    assert target.close.await_count == len(expected)
