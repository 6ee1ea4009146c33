"""Wakes whoever waits for something to change: look, and if there is nothing wait for a ring.

Looking and beginning to wait must not have an `await` between them; who can't help it compares
`rings` before and after.
"""

from __future__ import annotations

import asyncio


class Notifier:
    """Rings for all that wait at the moment."""

    __slots__ = ("_waiters", "rings")

    def __init__(self) -> None:
        self.rings = 0
        self._waiters: set[asyncio.Future[None]] = set()

    def ring(self) -> None:
        """Wake all that wait now."""
        self.rings += 1
        if self._waiters:
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(None)
            self._waiters.clear()

    async def wait(self, deadline: float | None = None) -> bool:
        """Wait for the next ring; False if `deadline` (loop time) came first."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiters.add(waiter)
        timer = None if deadline is None else loop.call_at(deadline, _expire, waiter)
        try:
            await waiter
        except TimeoutError:
            return False
        finally:
            self._waiters.discard(waiter)
            if timer is not None:
                timer.cancel()
        return True


def _expire(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_exception(TimeoutError())
