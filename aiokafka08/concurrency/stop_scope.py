"""StopScope of the user that wait for the network: `stop()` ends them all, by name."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from aiokafka08.errors import ConsumerStoppedError

T = TypeVar("T")


class StopScope:
    """What waits at the moment."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`; cancelled with its caller.

        Raises:
            ConsumerStoppedError: `stop` came first.
        """
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        try:
            await asyncio.wait((task,))
        finally:
            self._tasks.discard(task)
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        if task.cancelled():
            raise ConsumerStoppedError
        return task.result()

    def stop(self) -> None:
        """End all."""
        for task in self._tasks:
            task.cancel()
