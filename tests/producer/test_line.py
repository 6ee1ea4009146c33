"""The lock of the senders to a topic: order, cancellation, few turns of the loop."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka08.concurrency.fair_lock import FairLock


async def test_those_who_wait_are_served_in_their_order_one_at_a_time() -> None:
    line, served, inside = FairLock(), [], 0

    async def visit(number: int) -> None:
        nonlocal inside
        async with line:
            inside += 1
            assert inside == 1
            served.append(number)
            if number % 7 == 0:
                await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*[visit(number) for number in range(100)])
    assert served == list(range(100))


async def test_whoever_comes_while_others_wait_comes_last() -> None:
    line, served = FairLock(), []

    async def visit(number: int) -> None:
        async with line:
            served.append(number)

    async with line:
        early = [asyncio.create_task(visit(number)) for number in range(5)]
        await asyncio.sleep(0)
    await visit(5)
    await asyncio.gather(*early)
    assert served == list(range(6))


async def test_many_are_served_in_few_turns_of_the_loop() -> None:
    line, turns = FairLock(), 0

    async def visit() -> None:
        async with line:
            pass

    async with line:
        visits = asyncio.gather(*[visit() for _ in range(1000)])
        await asyncio.sleep(0)
    while not visits.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns < 30


@pytest.mark.parametrize("wait", [0, 1, 2, 3])
@pytest.mark.parametrize("who", [0, 1, 2, 3])
async def test_a_cancelled_one_is_passed_over(who: int, wait: int) -> None:
    line, served = FairLock(), []

    async def visit(number: int) -> None:
        async with line:
            served.append(number)
            await asyncio.sleep(0)

    async with line:
        visits = [asyncio.create_task(visit(number)) for number in range(5)]
        await asyncio.sleep(0)
        visits[(who + 2) % 5].cancel()
    for _ in range(wait):
        await asyncio.sleep(0)
    visits[who].cancel()
    await asyncio.gather(*visits, return_exceptions=True)
    survivors = [number for number in range(5) if number not in (who, (who + 2) % 5)]
    assert [number for number in served if number in survivors] == survivors
    async with asyncio.timeout(1), line:
        pass


async def test_a_body_that_fails_leaves_the_line_open() -> None:
    line = FairLock()
    for _ in range(2):
        with pytest.raises(KeyError):
            async with line:
                raise KeyError
