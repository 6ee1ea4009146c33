"""A client belongs to the loop and process that started it, and says so."""

from __future__ import annotations

import asyncio
import os
import warnings

import pytest

from aiokafka08.errors import IllegalStateError
from aiokafka08.net.lifecycle import Lifecycle


def test_a_call_before_start_says_how_to_start() -> None:
    lifecycle = Lifecycle("AIOKafkaProducer")
    with pytest.raises(IllegalStateError, match=r"AIOKafkaProducer isn't started: await start\(\)"):
        lifecycle.check()
    assert not lifecycle.running


async def test_runs_between_start_and_stop() -> None:
    lifecycle = Lifecycle("AIOKafkaProducer")
    lifecycle.starting()
    lifecycle.check()
    assert lifecycle.running
    lifecycle.stopped = True
    assert not lifecycle.running
    with pytest.raises(IllegalStateError, match="was stopped"):
        lifecycle.check()


async def test_starts_once() -> None:
    lifecycle = Lifecycle("AIOKafkaProducer")
    lifecycle.starting()
    with pytest.raises(IllegalStateError, match="started already"):
        lifecycle.starting()
    lifecycle.stopped = True
    with pytest.raises(IllegalStateError, match="make a new one"):
        lifecycle.starting()


async def test_a_call_from_another_loop_is_refused() -> None:
    lifecycle = Lifecycle("AIOKafkaProducer")
    lifecycle.starting()

    async def call() -> None:
        lifecycle.check()

    with pytest.raises(IllegalStateError, match="another event loop"):
        await asyncio.to_thread(asyncio.run, call())


async def test_a_call_after_a_fork_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    lifecycle = Lifecycle("AIOKafkaProducer")
    lifecycle.starting()
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(IllegalStateError, match="before a fork"):
        lifecycle.check()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lifecycle.warn_if_dropped(object())  # it is the parent's to stop


async def test_dropped_without_stop_warns_and_names_the_call() -> None:
    lifecycle = Lifecycle("AIOKafkaAdminClient", "close()")
    lifecycle.warn_if_dropped(object())  # never started: nothing to say
    lifecycle.starting()
    with pytest.warns(ResourceWarning, match=r"AIOKafkaAdminClient was dropped without close\(\)"):
        lifecycle.warn_if_dropped(object())
    lifecycle.stopped = True
    lifecycle.warn_if_dropped(object())
