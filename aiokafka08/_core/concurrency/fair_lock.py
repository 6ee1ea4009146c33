"""A FIFO lock that wakes several waiters per event-loop iteration.

Invariant: waiters acquire the lock in the order in which they came, one at a time. A waiter that is
woken before its turn keeps its place in the queue.
"""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType


class _Waiter:
    __slots__ = ("woken",)

    def __init__(self) -> None:
        self.woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class FairLock:
    """`async with lock:` acquires the lock, and releases it when the body ends."""

    __slots__ = ("_locked", "_waiters", "_woken")

    def __init__(self) -> None:
        self._locked = False
        self._waiters: deque[_Waiter] = deque()
        self._woken = 0  # waiters that were woken and haven't run since

    @property
    def waiters(self) -> int:
        return len(self._waiters)

    @property
    def is_used(self) -> bool:
        return self._locked or bool(self._waiters)

    async def __aenter__(self) -> None:
        if not self._locked and not self._waiters:
            self._locked = True
            return
        waiter = _Waiter()
        self._waiters.append(waiter)
        try:
            while True:
                await waiter.woken
                self._woken -= 1
                if not self._locked and self._waiters[0] is waiter:
                    break
                waiter.woken = asyncio.get_running_loop().create_future()
        except BaseException:
            self._waiters.remove(waiter)
            if not waiter.woken.cancelled():  # it was woken before its task was cancelled
                self._woken -= 1
            if not self._locked:  # this waiter may have been the next to acquire it
                self._wake_more()
            raise
        self._waiters.popleft()
        self._locked = True

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._locked = False
        self._wake_more()

    def _wake_more(self) -> None:
        """Wake the next two waiters that aren't woken yet, and in any case the first one."""
        # `asyncio.Lock` wakes one waiter per release, so each waiter costs one loop iteration, and
        # many waiting `send()` calls cause many small requests (docs/performance.md). Here, if the
        # tasks await nothing while they hold the lock, each iteration wakes twice as many waiters
        # as the one before. The woken ones are usually the first in the queue; if one ran too early
        # and waits again, this may wake fewer, but always the first one.
        for index in (0, self._woken, self._woken + 1):
            if index < len(self._waiters) and not self._waiters[index].woken.done():
                self._waiters[index].woken.set_result(None)
                self._woken += 1
