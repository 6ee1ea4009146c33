"""What `bridge verify` says on stderr."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

from aiokafka08.bridge.verify import verification
from aiokafka08.bridge.verify.sequence_check import CheckProgress
from aiokafka08.bridge.verify.verification import OffsetPair, PartitionVerdict
from tests._tools.cli.conftest import RunCommand

FILE = (
    'name = "b"\n[source]\nbootstrap = "127.0.0.1:1"\n[target]\nbootstrap = "127.0.0.1:1"\n'
    '[topics]\ninclude = ["orders"]\n'
)


Verify = Callable[[list[PartitionVerdict]], tuple[int, list[str]]]


@pytest.fixture
def verify(cli: RunCommand, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Verify:
    """Return a function that returns what the command says about verdicts: exit code and stderr."""
    path = tmp_path / "bridge.toml"
    path.write_text(FILE)

    def run(verdicts: list[PartitionVerdict]) -> tuple[int, list[str]]:
        monkeypatch.setattr(verification, "verify", AsyncMock(return_value=verdicts))
        done = cli("bridge", "verify", str(path))
        return done.code, [line.removeprefix("aiokafka08: ") for line in done.err.splitlines()]

    return run


def verdict(number: int, waiting: int = 0, before: int = 0, **others: Any) -> PartitionVerdict:
    progress = CheckProgress(9, 9, source_count=9, target_count=9)
    complete = {"is_complete": True, "before": before, **others}
    return PartitionVerdict("orders", number, "orders", progress, waiting, **complete)


@pytest.mark.parametrize(
    ("waiting", "before", "expected"),
    [
        (
            [0, 1],
            [1, 0],
            [
                "1 offset at the source isn't copied yet; it wasn't compared: orders/1 (1)",
                "1 offset of the source is in front of the first message copied; it wasn't "
                "compared: orders/0 (1)",
            ],
        ),
        (
            [2, 1],
            [5, 1],
            [
                "3 offsets at the source aren't copied yet; they weren't compared: orders/0 (2), "
                "orders/1 (1)",
                "6 offsets of the source are in front of the first message copied; they weren't "
                "compared: orders/0 (5), orders/1 (1)",
            ],
        ),
    ],
    ids=["one", "several"],
)
def test_offsets_that_are_not_compared_are_named(
    verify: Verify, waiting: list[int], before: list[int], expected: list[str]
) -> None:
    verdicts = [
        verdict(number, *counts) for number, counts in enumerate(zip(waiting, before, strict=True))
    ]
    assert verify(verdicts) == (0, expected)


def test_partitions_of_an_outcome_are_one_line(verify: Verify) -> None:
    """A thousand partitions don't scroll away what is wrong with one."""
    right: dict[str, Any] = {"first_map": OffsetPair(0, 0, 0), "last_map": OffsetPair(8, 9, 9)}
    uncovered: dict[str, Any] = {
        "first_map": OffsetPair(0, 0, 0),
        "last_map": OffsetPair(8, 9, None),
    }
    wrong: dict[str, Any] = {"first_map": OffsetPair(0, 0, 7), "last_map": OffsetPair(8, 9, 9)}
    verdicts = [
        *(verdict(number, **right) for number in range(12)),
        *(verdict(number, **uncovered) for number in range(12, 14)),
        verdict(14, **wrong),
        *(verdict(number, is_complete=False, has_begun=False) for number in range(15, 27)),
    ]
    code, (maps, unchecked, mistake, idle) = verify(verdicts)
    assert code == 1
    first = "12 offset maps are right: orders/0 (first 0 -> 0, last 8 -> 9), orders/1 (first 0"
    assert maps.startswith(first)
    assert maps.endswith("orders/9 (first 0 -> 0, last 8 -> 9), and 2 more")
    assert unchecked == (
        "2 offset maps aren't checked, since no stored runs cover them: orders/12 (last 8 -> 9), "
        "orders/13 (last 8 -> 9)"
    )
    assert mistake.startswith("orders/14: wrong offset map: offset 0 of the source is offset 0 of ")
    assert idle.startswith("nothing is copied yet of 12 partitions: orders/15, ")
    assert idle.endswith(", orders/24, and 2 more")
