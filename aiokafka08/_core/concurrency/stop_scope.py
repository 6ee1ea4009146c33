"""End the pending calls of a client when the client is stopped.

A user's task may be waiting for the network in a public method of the client. `StopScope` runs each
such call as a task of its own. `cancel_all()` cancels these tasks, and their callers get an error
that names the reason, not a bare `CancelledError`. The consumer wraps its public calls in a scope.

Invariant: when `run()` has returned or raised, its task has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class StopScope:
    """Run coroutines that `cancel_all()` can end.

    Args:
        stopped: returns the exception to raise in the callers of cancelled coroutines.
    """

    def __init__(self, stopped: Callable[[], Exception]) -> None:
        self._stopped = stopped
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return the coroutine's result. If the caller is cancelled, cancel the coroutine too.

        Raises:
            Exception: what `stopped` returns, if `cancel_all()` cancelled the coroutine.
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
        """Cancel every coroutine that runs now."""
        for task in self._tasks:
            task.cancel()
