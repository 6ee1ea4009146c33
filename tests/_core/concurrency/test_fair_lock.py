"""`FairLock`: order of acquisition, cancellation, loop iterations needed."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka08._core.concurrency.fair_lock import FairLock


async def test_waiters_acquire_the_lock_in_order_one_at_a_time() -> None:
    lock, acquired, inside = FairLock(), [], 0

    async def visit(number: int) -> None:
        nonlocal inside
        async with lock:
            inside += 1
            assert inside == 1
            acquired.append(number)
            if number % 7 == 0:
                await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*[visit(number) for number in range(100)])
    assert acquired == list(range(100))


async def test_a_new_waiter_comes_after_those_that_wait() -> None:
    lock, acquired = FairLock(), []

    async def visit(number: int) -> None:
        async with lock:
            acquired.append(number)

    async with lock:
        early = [asyncio.create_task(visit(number)) for number in range(5)]
        await asyncio.sleep(0)
    await visit(5)
    await asyncio.gather(*early)
    assert acquired == list(range(6))


async def test_a_thousand_waiters_need_few_loop_iterations() -> None:
    lock, iterations = FairLock(), 0

    async def visit() -> None:
        async with lock:
            pass

    async with lock:
        visits = asyncio.gather(*[visit() for _ in range(1000)])
        await asyncio.sleep(0)
    while not visits.done():
        iterations += 1
        await asyncio.sleep(0)
    assert iterations < 30


@pytest.mark.parametrize("wait", [0, 1, 2, 3])
@pytest.mark.parametrize("who", [0, 1, 2, 3])
async def test_a_cancelled_waiter_is_skipped(who: int, wait: int) -> None:
    lock, acquired = FairLock(), []

    async def visit(number: int) -> None:
        async with lock:
            acquired.append(number)
            await asyncio.sleep(0)

    async with lock:
        visits = [asyncio.create_task(visit(number)) for number in range(5)]
        await asyncio.sleep(0)
        visits[(who + 2) % 5].cancel()
    for _ in range(wait):
        await asyncio.sleep(0)
    visits[who].cancel()
    await asyncio.gather(*visits, return_exceptions=True)
    survivors = [number for number in range(5) if number not in (who, (who + 2) % 5)]
    assert [number for number in acquired if number in survivors] == survivors
    async with asyncio.timeout(1), lock:
        pass


async def test_the_lock_is_released_when_the_body_fails() -> None:
    lock = FairLock()
    for _ in range(2):
        with pytest.raises(KeyError):
            async with lock:
                raise KeyError
