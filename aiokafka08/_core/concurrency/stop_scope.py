"""End the pending calls of a client when the client is stopped.

The callers get an error that names the reason, not a bare `CancelledError`.

Invariant: when `run()` has returned or raised, its task has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class StopScope:
    """Run coroutines that `cancel_all()` can end; `stopped` returns the error for their callers."""

    def __init__(self, stopped: Callable[[], Exception]) -> None:
        self._stopped = stopped
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return the coroutine's result. If the caller is cancelled, cancel the coroutine too.

        Raises what `stopped` returns, if `cancel_all()` cancelled the coroutine.
        """
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        try:
            await asyncio.wait((task,))
        finally:
            self._tasks.discard(task)
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        if task.cancelled():
            raise self._stopped()
        return task.result()

    def cancel_all(self) -> None:
        for task in self._tasks:
            task.cancel()
