"""A lock whose waiters are served in the order in which they came, and soon after one another.

`asyncio.Lock` wakes the next one when it is released, so each costs a turn of the event loop, and
a thousand senders who come again once they are served are long in getting out of the queue, in
many small requests (docs/performance.md). Here whoever leaves wakes two more, so those woken double
by the turn while nobody has to wait inside. Law: first come, first served; one who is woken before
its turn goes on waiting at its place.
"""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType


class _Place:
    __slots__ = ("woken",)

    def __init__(self) -> None:
        self.woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class FairLock:
    """`async with line:` waits for its turn, and has it until the body ends."""

    __slots__ = ("_busy", "_places", "_woken")

    def __init__(self) -> None:
        self._busy = False
        self._places: deque[_Place] = deque()
        self._woken = 0  # of them, and haven't run since

    async def __aenter__(self) -> None:
        if not self._busy and not self._places:
            self._busy = True
            return
        place = _Place()
        self._places.append(place)
        try:
            while True:
                await place.woken
                self._woken -= 1
                if not self._busy and self._places[0] is place:
                    break
                place.woken = asyncio.get_running_loop().create_future()
        except BaseException:
            self._places.remove(place)
            if not place.woken.cancelled():  # woken and cancelled in the same turn of the loop
                self._woken -= 1
            if not self._busy:  # it may have been its turn
                self._wake_more()
            raise
        self._places.popleft()
        self._busy = True

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._busy = False
        self._wake_more()

    def _wake_more(self) -> None:
        """The first one, so that the line goes on, and two behind those that are woken."""
        for index in (0, self._woken, self._woken + 1):
            if index < len(self._places) and not self._places[index].woken.done():
                self._places[index].woken.set_result(None)
                self._woken += 1
