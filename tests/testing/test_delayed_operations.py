"""Requests that wait while a check of them has many steps: no change, no timeout is missed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from aiokafka08._core.server.work import PAUSE, Work
from aiokafka08.testing import LINES
from aiokafka08.testing.handlers.outcome import Disconnect, Reply, Wait
from aiokafka08.testing.runtime import ClusterRuntime
from aiokafka08.testing.state import BrokerSettings, BrokerState, ClusterState

pytestmark = pytest.mark.fast


class StepwiseExchange:
    """Runs work step by step, as the test says."""

    def __init__(self) -> None:
        self.work: Work[None] | None = None
        self.ended: Callable[[], None]

    def run(self, work: Work[None], ended: Callable[[], None]) -> object:
        self.work, self.ended = work, ended
        return object()

    def step(self) -> None:
        assert self.work is not None
        next(self.work)

    def finish(self) -> None:
        assert self.work is not None
        for _ in self.work:
            pass
        self.work = None
        self.ended()


class WaitingRequest:
    """A request that waits for one of two flags; its check looks at one of them at each step."""

    def __init__(self, timeout_ms: int | None = None) -> None:
        state = ClusterState(LINES["0.8.2"], BrokerSettings(), [BrokerState(0, "127.0.0.1", 0)])
        self.runtime = ClusterRuntime(state, time.time, 1 << 20)
        self.exchange: Any = StepwiseExchange()
        self.flags = [False, False]
        self.replies: list[Reply | Disconnect] = []
        self.wait = Wait(timeout_ms, frozenset(["flag"]), self._check)

    def delay(self, since: int = 0) -> None:
        self.runtime.delay(self.wait, self.exchange, self._respond, since)

    def set_first(self) -> None:
        self.flags[0] = True
        self.runtime.state.changed.add("flag")
        self.runtime.complete_delayed()

    def touch(self) -> None:
        self.runtime.state.changed.add("flag")
        self.runtime.complete_delayed()

    def _check(self, expired: bool) -> Work[Reply | Disconnect | None]:
        is_set = False
        for index in range(2):
            is_set |= self.flags[index]
            yield PAUSE
        return Disconnect() if is_set or expired else None

    def _respond(self, outcome: Reply | Disconnect) -> Work[None]:
        self.replies.append(outcome)
        return
        yield


async def test_change_behind_a_running_check_is_seen() -> None:
    request = WaitingRequest()
    request.delay()
    request.touch()
    request.exchange.step()  # has looked at the first flag
    request.set_first()
    request.exchange.finish()
    assert request.replies == [Disconnect()]
    await request.runtime.close()


async def test_timeout_during_a_check_responds() -> None:
    request = WaitingRequest(timeout_ms=1)
    request.delay()
    request.touch()
    request.exchange.step()
    await asyncio.sleep(0.01)  # the timer of one millisecond fires
    request.exchange.finish()
    assert request.replies == [Disconnect()]
    await request.runtime.close()


async def test_change_between_the_decision_to_wait_and_the_wait_is_seen() -> None:
    request = WaitingRequest()
    since = request.runtime.changes
    request.set_first()  # behind the steps of the handler, which has decided to wait
    request.delay(since)
    request.exchange.finish()
    assert request.replies == [Disconnect()]
    await request.runtime.close()
