"""What `bridge verify` says about offsets that it doesn't compare."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import AsyncMock

import pytest

from aiokafka08.bridge.verify import verification
from aiokafka08.bridge.verify.sequence_check import CheckProgress
from aiokafka08.bridge.verify.verification import PartitionVerdict
from tests._tools.cli.conftest import RunCommand

FILE = (
    'name = "b"\n[source]\nbootstrap = "127.0.0.1:1"\n[target]\nbootstrap = "127.0.0.1:1"\n'
    '[topics]\ninclude = ["orders"]\n'
)


@pytest.mark.parametrize(
    ("waiting", "before", "expected"),
    [
        (
            [0, 1],
            1,
            [
                "1 offset at the source isn't copied yet; it wasn't compared: orders/1 (1)",
                "orders/0: 1 offset of the source is in front of the first message copied; it "
                "wasn't compared",
            ],
        ),
        (
            [2, 1],
            5,
            [
                "3 offsets at the source aren't copied yet; they weren't compared: orders/0 (2), "
                "orders/1 (1)",
                "orders/0: 5 offsets of the source are in front of the first message copied; they "
                "weren't compared",
            ],
        ),
    ],
    ids=["one", "several"],
)
def test_offsets_that_are_not_compared_are_named(
    cli: RunCommand,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    waiting: list[int],
    before: int,
    expected: list[str],
) -> None:
    progress = CheckProgress(9, 9, source_count=9, target_count=9)
    verdicts = [
        PartitionVerdict(
            "orders", number, "orders", progress, left, is_complete=True, before=before
        )
        for number, left in enumerate(waiting)
    ]
    monkeypatch.setattr(verification, "verify", AsyncMock(return_value=verdicts))
    path = tmp_path / "bridge.toml"
    path.write_text(FILE)
    done = cli("bridge", "verify", str(path))
    said = " ".join(done.err.split())
    assert done.code == 0, said
    for text in expected:
        assert text in said
