"""Requests that wait while a check of them has many steps: no change, no timeout is missed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from aiokafka08._core.server.work import PAUSE, Work
from aiokafka08.protocol.api import Topic
from aiokafka08.protocol.compression import Codec
from aiokafka08.protocol.requests.fetch import FetchPartition, FetchRequest
from aiokafka08.testing import LINES, controls
from aiokafka08.testing.handlers.fetch import fetch
from aiokafka08.testing.handlers.outcome import (
    Disconnect,
    Reply,
    RequestContext,
    Wait,
)
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


@pytest.mark.parametrize("version", ["0.8.0", "0.8.1", "0.8.2"])
@pytest.mark.parametrize("partition", [0, 199])
@pytest.mark.parametrize(("min_sets", "outcome"), [(2, Reply), (3, Wait)])
async def test_produce_during_the_first_look_of_a_fetch_counts_once(
    version: str, partition: int, min_sets: int, outcome: type[Reply | Wait]
) -> None:
    """Whether the fetch has looked at its partition before or looks at it afterwards."""
    state = ClusterState(LINES[version], BrokerSettings(), [BrokerState(0, "127.0.0.1", 0)])
    runtime = ClusterRuntime(state, time.time, 1 << 20)
    controls.create_topic(runtime, "t", 200, 1, None)

    def append() -> None:
        controls.append(runtime, "t", partition, [b"tea"], None, Codec.NONE, 0)

    append()
    size = state.topics["t"][partition].log.size_bytes
    items = [FetchPartition(number, 0, 1 << 20) for number in range(200)]
    request = FetchRequest(-1, 60_000, min_sets * size, [Topic("t", items)])
    client = (None, "127.0.0.1", 1)
    context = RequestContext(state, state.nodes[0], 0, 0, 0, 0.0, *client, lambda size: True)
    work = fetch(context, request)
    next(work)  # it has looked at half of the partitions
    append()
    results: list[object] = []

    def finish() -> Work[None]:
        results.append((yield from work))

    for _ in finish():
        pass
    assert isinstance(results[0], outcome)
    await runtime.close()
