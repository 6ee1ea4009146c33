"""`BufferMemory`: waiters are served in FIFO order, and cancelled waiters hold nothing."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka08.errors import ProducerClosed
from aiokafka08.producer.memory import BufferMemory


async def waiters(memory: BufferMemory, *sizes: int) -> list[asyncio.Task[None]]:
    tasks = [asyncio.create_task(memory.acquire(size)) for size in sizes]
    await asyncio.sleep(0)
    return tasks


async def done_soon(tasks: list[asyncio.Task[None]]) -> list[bool]:
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return [task.done() for task in tasks]


async def test_waiters_are_served_in_fifo_order() -> None:
    memory = BufferMemory(100)
    await memory.acquire(90)
    assert memory.available_bytes() == 10
    tasks = await waiters(memory, 50, 10, 40)
    assert memory.waiters == 3
    assert memory.available_bytes() == 0
    assert not memory.try_acquire(1)  # smaller requests don't overtake the large one
    memory.release(30)
    assert await done_soon(tasks) == [False, False, False]
    memory.release(20)
    assert await done_soon(tasks) == [True, True, False]
    memory.release(40)
    assert await done_soon(tasks) == [True, True, True]
    assert memory.used_bytes == 100
    assert memory.available_bytes() == 0


async def test_cancelling_a_waiter_serves_smaller_ones_behind_it() -> None:
    memory = BufferMemory(100)
    await memory.acquire(90)
    tasks = await waiters(memory, 50, 10)
    tasks[0].cancel()
    assert await done_soon(tasks) == [True, True]
    assert memory.used_bytes == 100


async def test_waiter_cancelled_when_served_releases_its_memory() -> None:
    memory = BufferMemory(100)
    await memory.acquire(100)
    tasks = await waiters(memory, 60, 60)
    memory.release(100)  # serves the first; its task hasn't run yet
    tasks[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await tasks[0]
    await tasks[1]
    assert memory.used_bytes == 60


async def test_release_skips_a_waiter_that_was_just_cancelled() -> None:
    memory = BufferMemory(100)
    await memory.acquire(100)
    tasks = await waiters(memory, 60, 60)
    tasks[0].cancel()
    memory.release(100)
    await asyncio.gather(*tasks, return_exceptions=True)
    assert memory.used_bytes == 60
    assert memory.waiters == 0


async def test_close_raises_in_all_waiters() -> None:
    memory = BufferMemory(100)
    await memory.acquire(100)
    tasks = await waiters(memory, 1, 1)
    memory.close(ProducerClosed("stopped"))
    for task in tasks:
        with pytest.raises(ProducerClosed, match="stopped"):
            await task
    with pytest.raises(ProducerClosed):
        await memory.acquire(1)
    memory.release(100)
    assert memory.used_bytes == 0


async def test_waiter_served_just_before_the_close_gets_the_error() -> None:
    """It would append its message after the producer has stopped."""
    memory = BufferMemory(100)
    await memory.acquire(100)
    tasks = await waiters(memory, 60)
    memory.release(100)  # serves it; its task hasn't run yet
    memory.close(ProducerClosed("the producer was stopped"))
    with pytest.raises(ProducerClosed):
        await tasks[0]
    assert memory.used_bytes == 0
