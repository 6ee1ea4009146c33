"""A pattern of the bridge's file that matches nothing fails what would prove or finish a copy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from aiokafka08.bridge.config import read_config
from aiokafka08.bridge.verify.verify_state import last_verification, state_path
from aiokafka08.testing import EmbeddedCluster
from tests._tools.cli.conftest import RunCommand
from tests.bridge.clusters import Message, bridge_text, running_bridge, write
from tests.brokers import RealCluster
from tests.support.waiting import until

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]


async def test_pattern_without_a_match_fails_each_command(
    target: RealCluster, unique_topic: Callable[..., str], tmp_path: Path, cli: RunCommand
) -> None:
    """Exit code 0 of `verify` is the proof before the old cluster is switched off."""
    topic, path = unique_topic("orders"), tmp_path / "bridge.toml"
    async with EmbeddedCluster(version="0.8.2", topics={topic: 1}) as source:
        await write(source, topic, {0: [Message(None, b"one")]})

        async def bridge(name: str, *options: str) -> tuple[int, str, bytes]:
            done = await asyncio.to_thread(cli, "bridge", name, str(path), *options)
            return done.code, done.err, done.out

        path.write_text(bridge_text(topic, source, target, f'{topic}", "ordes'))
        wrong = "topics.include: 'ordes' matches no topic of the source. A pattern must match"
        for command in (("verify",), ("run", "--until-caught-up")):
            code, err, out = await bridge(*command)
            assert (code, out) == (1, b""), command
            assert wrong in err, command
        last = last_verification(state_path(path))
        assert last is not None
        assert not last.is_equal


async def test_run_waits_for_a_topic_of_each_pattern(
    target: RealCluster,
    unique_topic: Callable[..., str],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic, path = unique_topic("later"), tmp_path / "bridge.toml"
    async with EmbeddedCluster(version="0.8.2") as source:
        path.write_text(bridge_text(topic, source, target, topic, "[copy]\nrefresh_s = 1\n"))
        async with running_bridge(read_config(path)) as (status, _):
            await until(lambda: status.problem is None, timeout_s=60)
            assert f"topics.include: '{topic}' matches no topic of the source" in caplog.text
            source.create_topic(topic)
            await write(source, topic, {0: [Message(None, b"one")]})
            await until(lambda: status.records == 1, timeout_s=60)
