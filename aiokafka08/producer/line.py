"""A lock whose waiters are served in the order in which they came, and soon after one another.

`asyncio.Lock` wakes the next one when it is released, so each costs a turn of the event loop, and
a thousand senders who come again as soon as they are served never get out of the queue: each turn
sends a message or two. Here whoever leaves wakes the next two. Law: first come, first served; one
who is woken before its turn goes on waiting at its place.
"""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import islice
from types import TracebackType

_AHEAD = 2


class _Place:
    __slots__ = ("woken",)

    def __init__(self) -> None:
        self.woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Line:
    """`async with line:` waits for its turn, and has it until the body ends."""

    __slots__ = ("_busy", "_places")

    def __init__(self) -> None:
        self._busy = False
        self._places: deque[_Place] = deque()

    async def __aenter__(self) -> None:
        if not self._busy and not self._places:
            self._busy = True
            return
        place = _Place()
        self._places.append(place)
        try:
            while True:
                await place.woken
                if not self._busy and self._places[0] is place:
                    break
                place.woken = asyncio.get_running_loop().create_future()
        except BaseException:
            self._places.remove(place)
            if not self._busy:  # it may have been its turn
                self._wake()
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
        self._wake()

    def _wake(self) -> None:
        for place in islice(self._places, _AHEAD):
            if not place.woken.done():
                place.woken.set_result(None)
