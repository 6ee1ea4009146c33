"""`LoopYield`: when a task should yield to the event loop, and running a generator's steps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator

import pytest

from aiokafka08._core.concurrency.loop_yield import LoopSlice, LoopYield

pytestmark = pytest.mark.both_loops


NEVER_S = -1.0
"""The second call in a loop iteration is due, however fast the machine is."""


async def test_second_call_of_a_task_in_one_iteration_is_due() -> None:
    loop_yield = LoopYield(NEVER_S)
    assert not loop_yield.is_due()
    assert loop_yield.is_due()
    await loop_yield.yield_now()
    assert not loop_yield.was_due
    assert not loop_yield.is_due()


async def test_it_is_not_due_before_the_hold_time_is_over() -> None:
    loop_yield = LoopYield(3600.0)
    assert not any(loop_yield.is_due() for _ in range(1000))


async def test_pop_due_resets_it() -> None:
    loop_yield = LoopYield(NEVER_S)
    assert not loop_yield.pop_due()
    assert loop_yield.pop_due()
    assert not loop_yield.was_due


async def test_tasks_that_call_once_each_are_not_due() -> None:
    loop_yield = LoopYield(NEVER_S)

    async def call() -> bool:
        return loop_yield.is_due()

    assert not any(await asyncio.gather(*[call() for _ in range(10)]))


async def test_a_new_loop_iteration_is_measured_anew() -> None:
    loop_yield = LoopYield(NEVER_S)
    for _ in range(3):
        assert not loop_yield.is_due()
        await asyncio.sleep(0)
        await asyncio.sleep(0)


async def test_it_is_never_due_outside_a_task_of_its_loop() -> None:
    loop_yield = LoopYield(NEVER_S)
    due: list[bool] = []
    asyncio.get_running_loop().call_soon(lambda: due.extend(loop_yield.is_due() for _ in range(3)))
    await asyncio.sleep(0)
    due += [await asyncio.to_thread(loop_yield.is_due) for _ in range(3)]
    assert due == [False] * 6


async def test_slice_ignores_the_time_of_other_tasks() -> None:
    loop_slice = LoopSlice(0.5)
    assert loop_slice.is_over()  # before the first one

    async def hold_the_loop() -> None:
        time.sleep(0.6)

    async def begin_slice() -> bool:
        loop_slice.restart()
        return loop_slice.is_over()

    _, is_over = await asyncio.gather(hold_the_loop(), begin_slice())
    assert not is_over
    time.sleep(0.6)
    assert loop_slice.is_over()
    await loop_slice.next()
    assert not loop_slice.is_over()


async def test_run_steps_yields_between_the_steps() -> None:
    def work() -> Generator[None, None, str]:
        for _ in range(10):
            yield
        return "done"

    task = asyncio.create_task(LoopYield(NEVER_S).run_steps(work()))
    iterations = 0
    while not task.done():
        iterations += 1
        await asyncio.sleep(0)
    assert iterations >= 5
    assert task.result() == "done"
