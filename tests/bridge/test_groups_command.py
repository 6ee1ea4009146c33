"""What `bridge groups` asks for before it commits."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import create_autospec

import pytest

from aiokafka08.bridge.config import BridgeConfig
from aiokafka08.bridge.groups import carry_over as groups
from aiokafka08.bridge.groups.carry_over import GroupTransfer
from aiokafka08.bridge.target import target_release
from aiokafka08.errors import KafkaConnectionError
from tests._tools.cli.conftest import RunCommand

FILE = (
    'name = "b"\n[source]\nbootstrap = "127.0.0.1:1"\n[target]\nbootstrap = "127.0.0.1:1"\n'
    '[topics]\ninclude = ["orders"]\n[groups]\ninclude = ["billing"]\nstore = "kafka"\n'
)


def test_source_that_fails_leaves_no_commit_untold(
    cli: RunCommand, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Else the error is all that is shown of offsets that were committed."""
    transfer = create_autospec(GroupTransfer, instance=True)
    transfer.unmatched.side_effect = KafkaConnectionError("the source is away")
    transfer.carry_over.return_value = []

    async def is_modern(config: BridgeConfig) -> None:
        pass

    monkeypatch.setattr(groups, "GroupTransfer", lambda *_: transfer)
    monkeypatch.setattr(target_release, "refuse_old_target", is_modern)
    path = tmp_path / "bridge.toml"
    path.write_text(FILE)
    done = cli("bridge", "groups", str(path), "--execute")
    assert "the source is away" in done.err
    assert not transfer.carry_over.await_args_list
    transfer.close.assert_awaited_once()
