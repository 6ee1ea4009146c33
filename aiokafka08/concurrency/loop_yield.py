"""When a task that never has to wait is to give the others a turn of the loop.

`send()` and `send_many()` return at once while there is memory, so a coroutine that calls them in a
tight loop would hold the event loop until memory is full: timers late, acknowledgements unread.
Nor does it wait who awaits a result that is there, and walking over a million values takes long.
Law: only the task that holds the loop is asked to give a turn, and before its message has a place
in the log; so tasks that send one message each keep the order of their calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Final, TypeVar

T = TypeVar("T")

_running_loop = asyncio._get_running_loop

HOLD_S: Final = 0.004
"""How long the event loop may be held at a stretch."""


class LoopYield:
    """Watches for how long the loop has had no turn; used in one loop only.

    Attributes:
        due: the running task has held the loop for too long; it should `give` a turn.
    """

    __slots__ = ("_loop", "_since", "_task", "_watching", "due")

    def __init__(self) -> None:
        self.due = False
        self._loop = asyncio.get_running_loop()
        self._watching = False
        self._since = 0.0
        self._task: asyncio.Task[object] | None = None

    def look(self) -> bool:
        """Whether a turn is `due`; to be asked now and then by whoever works without waiting.

        Never where no task of this loop asks: a result that is there may be awaited anywhere.
        """
        if _running_loop() is not self._loop:
            return False
        task = asyncio.current_task(self._loop)
        if task is None:
            return False
        now = self._loop.time()
        if not self._watching:  # the first one in this turn of the loop
            self._watching = True
            self._since = now
            self._loop.call_soon(self._turned)
        elif task is self._task:
            self.due = now - self._since > HOLD_S
        self._task = task
        return self.due

    async def give(self) -> None:
        """Let everybody else have a turn."""
        self.due = False
        await asyncio.sleep(0)

    def take(self) -> bool:
        """`look`, for an iterator: if so it lets the others have their turn, by yielding None."""
        due = self.look()
        self.due = False
        return due

    async def through(self, steps: Generator[None, None, T]) -> T:
        """What long work comes to that yields now and then; where it does a turn may be given."""
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
            if self.look():
                await self.give()

    def _turned(self) -> None:
        self._watching = self.due = False
        self._task = None
