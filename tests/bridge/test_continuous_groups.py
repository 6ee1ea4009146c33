"""Groups that are carried over again and again wait for a target that is away."""

from __future__ import annotations

import asyncio
import logging
import socket

import pytest

from aiokafka08.bridge.config import BridgeConfig, parse_config
from aiokafka08.bridge.groups import carry_over_continuously
from aiokafka08.bridge.status import CopyStatus
from tests.waiting import until


def config_without_target(port: int) -> BridgeConfig:
    return parse_config(
        f'name = "b"\n[source]\nbootstrap = "127.0.0.1:{port}"\n'
        f'[target]\nbootstrap = "127.0.0.1:{port}"\n[topics]\ninclude = ["orders"]\n'
        f'[groups]\ninclude = ["billing"]\nstore = "kafka"\ninterval_s = 0.1\n'
    )


async def test_target_away_at_the_start_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    """With `continuous = true` an error here would end `bridge run`."""
    caplog.set_level(logging.WARNING, "aiokafka08.bridge")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # it doesn't listen
        config = config_without_target(closed.getsockname()[1])
        work = asyncio.create_task(carry_over_continuously(config, {}, CopyStatus()))
        try:
            await until(lambda: work.done() or len(caplog.records) >= 2, timeout_s=60)
            assert not work.done()
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
    for one in caplog.records[:2]:
        text = one.getMessage()
        assert "groups not carried over: target.bootstrap=" in text
        assert "no broker responds" in text
