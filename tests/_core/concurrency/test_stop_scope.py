"""`StopScope`: results, errors, and what ends a coroutine."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka08._core.concurrency.stop_scope import StopScope


class Stopped(Exception):
    pass


async def test_run_returns_the_result_of_the_coroutine() -> None:
    async def answer() -> int:
        return 42

    assert await StopScope(Stopped).run(answer()) == 42


async def test_cancel_all_ends_every_call_with_the_given_error() -> None:
    scope = StopScope(Stopped)
    never = asyncio.Event()
    calls = [asyncio.create_task(scope.run(never.wait())) for _ in range(3)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    scope.cancel_all()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(result) for result in results] == [Stopped] * 3


async def test_the_coroutine_has_ended_when_a_cancelled_run_raises() -> None:
    ended = False

    async def work() -> None:
        nonlocal ended
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended = True

    call = asyncio.create_task(StopScope(Stopped).run(work()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert ended
