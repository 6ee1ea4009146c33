"""`Lifecycle`: start, stop, and the event loop and process that a client belongs to."""

from __future__ import annotations

import asyncio
import os
import warnings

import pytest

from aiokafka08._core.net.lifecycle import Lifecycle
from aiokafka08.errors import IllegalStateError


def test_a_call_before_start_is_refused_with_a_hint() -> None:
    lifecycle = Lifecycle("AIOKafkaProducer", "billing-1")
    with pytest.raises(IllegalStateError, match=r"AIOKafkaProducer isn't started. Await start\(\)"):
        lifecycle.check()
    assert not lifecycle.is_running


async def test_a_client_is_running_between_start_and_stop() -> None:
    lifecycle = Lifecycle("AIOKafkaProducer", "billing-1")
    lifecycle.bind_to_loop()
    lifecycle.check()
    assert lifecycle.is_running
    lifecycle.stopped = True
    assert not lifecycle.is_running
    with pytest.raises(IllegalStateError, match="was stopped"):
        lifecycle.check()


async def test_a_second_start_is_refused() -> None:
    lifecycle = Lifecycle("AIOKafkaProducer", "billing-1")
    lifecycle.bind_to_loop()
    with pytest.raises(IllegalStateError, match="started already"):
        lifecycle.bind_to_loop()
    lifecycle.stopped = True
    with pytest.raises(IllegalStateError, match="Create a new one"):
        lifecycle.bind_to_loop()


async def test_a_call_from_another_loop_is_refused() -> None:
    lifecycle = Lifecycle("AIOKafkaProducer", "billing-1")
    lifecycle.bind_to_loop()

    async def call() -> None:
        lifecycle.check()

    with pytest.raises(IllegalStateError, match="another event loop"):
        await asyncio.to_thread(asyncio.run, call())


async def test_a_call_after_a_fork_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    lifecycle = Lifecycle("AIOKafkaProducer", "billing-1")
    lifecycle.bind_to_loop()
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(IllegalStateError, match="before a fork"):
        lifecycle.check()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lifecycle.warn_if_not_stopped(object())  # it is the parent's to stop


async def test_a_client_dropped_without_stop_warns() -> None:
    lifecycle = Lifecycle("AIOKafkaAdminClient", "billing-1", "close()")
    lifecycle.warn_if_not_stopped(object())  # never started: nothing to say
    lifecycle.bind_to_loop()
    with pytest.warns(ResourceWarning, match=r"^Unclosed AIOKafkaAdminClient: .* close\(\)"):
        lifecycle.warn_if_not_stopped(object())
    lifecycle.stopped = True
    lifecycle.warn_if_not_stopped(object())
