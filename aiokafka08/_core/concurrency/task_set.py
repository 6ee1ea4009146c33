"""Tie tasks to an object (`TaskSet`) or to a call (`run_together`), and end them with it.

Invariant: a task is in a `TaskSet` until it has ended. The event loop has weak references only, so
the garbage collector could take a task that nothing else refers to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class TaskSet:
    """Tasks of one event loop.

    `on_failure` is called with each exception of a task; None: the event loop logs it.
    """

    def __init__(self, on_failure: Callable[[BaseException], object] | None = None) -> None:
        self._on_failure = on_failure
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None], name: str | None = None) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def wait(self) -> None:
        """Wait until all tasks that are running now have ended."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def cancel(self) -> None:
        """Cancel all tasks, and wait until they have ended."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._on_failure is None or task.cancelled():
            return
        if (error := task.exception()) is not None:
            self._on_failure(error)


async def run_together(*work: Coroutine[Any, Any, T]) -> list[T]:
    """Run coroutines at the same time, and return their results in order.

    If one of them raises, or this call is cancelled, the others are cancelled and have ended when
    the exception is raised. With `asyncio.gather()` the others would run on in the background, and
    `asyncio.TaskGroup` would raise an `ExceptionGroup`, which callers don't expect.
    """
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
