"""The background tasks of an object, and those of a call."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka08._core.concurrency.task_set import TaskSet, run_together


async def test_wait_awaits_tasks_and_failures_are_reported() -> None:
    failures: list[BaseException] = []
    error = RuntimeError("x")

    async def fail() -> None:
        await asyncio.sleep(0)
        raise error

    tasks = TaskSet(failures.append)
    task = tasks.start(fail(), "some work")
    assert task.get_name() == "some work"
    await tasks.wait()
    await asyncio.sleep(0)  # callbacks of the task
    assert failures == [error]
    await tasks.wait()


async def test_cancelled_wait_leaves_the_tasks_alone() -> None:
    done = asyncio.Event()

    async def work() -> None:
        await done.wait()

    tasks = TaskSet()
    task = tasks.start(work())
    waiting = asyncio.create_task(tasks.wait())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait((waiting,))
    assert not task.cancelling()
    done.set()
    await tasks.wait()
    assert task.done()


async def test_cancel_ends_all_tasks_without_a_failure() -> None:
    failures: list[BaseException] = []

    async def work() -> None:
        await asyncio.Event().wait()

    tasks = TaskSet(failures.append)
    running = [tasks.start(work()) for _ in range(2)]
    await tasks.cancel()
    assert all(task.cancelled() for task in running)
    assert not failures


async def test_results_of_a_call_are_in_order() -> None:
    async def work(number: int) -> int:
        for _ in range(5 - number):
            await asyncio.sleep(0)
        return number

    assert await run_together(*map(work, range(5))) == [0, 1, 2, 3, 4]
    assert await run_together() == []


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_no_task_of_a_call_outlives_it(is_cancelled: bool) -> None:
    ended = []

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(1)

    async def fail() -> None:
        for _ in range(3):
            await asyncio.sleep(0)
        if is_cancelled:
            await asyncio.Event().wait()
        raise KeyError("x")

    before = asyncio.all_tasks()
    call = asyncio.create_task(run_together(wait(), fail(), wait()))
    if is_cancelled:
        for _ in range(3):
            await asyncio.sleep(0)
        call.cancel()
    with pytest.raises(asyncio.CancelledError if is_cancelled else KeyError):
        await call
    assert ended == [1, 1]
    assert asyncio.all_tasks() == before
