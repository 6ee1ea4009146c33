"""Wake the tasks that wait for some state to change.

A `Notifier` carries no state. A task that awaits anything between reading the state and `wait()`
may miss a notification. So it must note `count` before it reads the state, and must not wait if
`count` has changed since.

Invariant: `notify()` wakes every task that waits at that moment, in the order of their calls of
`wait()`, and no task that begins to wait later.
"""

from __future__ import annotations

import asyncio


class Notifier:
    """Wake all current waiters at once."""

    __slots__ = ("_waiters", "count")

    def __init__(self) -> None:
        self.count = 0  # number of `notify()` calls so far
        self._waiters: dict[asyncio.Future[None], None] = {}

    def notify(self) -> None:
        self.count += 1
        if self._waiters:
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(None)
            self._waiters.clear()

    async def wait(self, deadline: float | None = None) -> bool:
        """Wait for the next `notify()`; return False if the loop time `deadline` comes first."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiters[waiter] = None
        timer = None if deadline is None else loop.call_at(deadline, _expire, waiter)
        try:
            await waiter
        except TimeoutError:
            return False
        finally:
            self._waiters.pop(waiter, None)
            if timer is not None:
                timer.cancel()
        return True


def _expire(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_exception(TimeoutError())
