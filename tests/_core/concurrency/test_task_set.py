"""The background tasks of an object."""

from __future__ import annotations

import asyncio

from aiokafka08._core.concurrency.task_set import TaskSet


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
