"""Decide when a task that never has to wait yields to the event loop.

`send()` returns at once while there is memory, awaiting a completed future doesn't suspend, and
walking over a million values takes long. Loops that do any of this call `is_due()` now and then.

Invariant: the result of `LoopYield.is_due()` changes from False to True only in a call whose
preceding call was made by the same task, in the same loop iteration. So tasks that send one message
each per iteration keep the order of their calls. Once it is True, it is True for every task, until
one yields (`yield_now`, `pop_due`) or the iteration ends.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Generator, Iterable
from typing import Final, TypeVar

T = TypeVar("T")

_running_loop = asyncio._get_running_loop

HOLD_S: Final = 0.004
"""For how long a task may hold the event loop before it should yield."""

SLICE_S: Final = 0.003
"""The length of a `LoopSlice`. Another task that a timer wakes may wait for two of them: one runs
before the timer's callback, and one before the task that it wakes."""


STEP_ITEMS: Final = 500
"""How many topics or partitions one step of `in_steps` or `in_chunks` handles."""


class LoopSlice:
    """A slice of event-loop time. The owner works until it is over, yields, and begins the next.

    Unlike a `LoopYield`, it doesn't depend on other tasks, so a busy task can't use up the slice of
    another owner.
    """

    __slots__ = ("_ends", "_slice_s", "_time")

    def __init__(self, slice_s: float = SLICE_S) -> None:
        self._ends = 0.0
        self._slice_s = slice_s
        self._time = asyncio.get_running_loop().time

    def is_over(self) -> bool:
        """Return True if the slice has ended, or none has begun yet."""
        return self._time() >= self._ends

    def restart(self) -> None:
        self._ends = self._time() + self._slice_s

    async def next(self) -> None:
        """Let the event loop run other tasks and callbacks once, then begin a slice."""
        await asyncio.sleep(0)
        self.restart()

    async def run_steps(self, steps: Generator[None, None, T]) -> T:
        """Return a generator's result; between its steps yield to the loop if the slice is over."""
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
            if self.is_over():
                await self.next()


async def in_steps(items: Iterable[T], weight: Callable[[T], int]) -> AsyncIterator[T]:
    """Yield the items, and yield to the event loop after each `STEP_ITEMS` of them.

    `weight`: how many further items an item counts as, such as a topic's partitions.
    """
    done = 0
    for item in items:
        yield item
        done += 1 + weight(item)
        # Steps have a fixed size, so that the longest one doesn't grow with the cluster.
        if done >= STEP_ITEMS:
            done = 0
            await asyncio.sleep(0)


async def in_chunks(items: Iterable[T]) -> AsyncIterator[list[T]]:
    """Yield the items in lists of `STEP_ITEMS`, and yield to the event loop after each list."""
    rest = iter(items)
    while chunk := list(itertools.islice(rest, STEP_ITEMS)):
        yield chunk
        await asyncio.sleep(0)


async def run_in_steps(steps: Generator[None, None, T]) -> T:
    """Run a generator to its end; return its result; yield to the loop after each step."""
    return await LoopSlice(0.0).run_steps(steps)


def finish_steps(steps: Generator[None, None, T]) -> T:
    """Run a generator to its end and return its result, for code outside an event loop."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


class LoopYield:
    """Measures how long tasks have held the event loop in one iteration. For one loop only."""

    __slots__ = ("_hold_s", "_loop", "_measuring", "_since", "_task", "was_due")

    def __init__(self, hold_s: float = HOLD_S) -> None:
        # True if the last `is_due()` of this loop iteration returned True, and no task has yielded
        # since. A caller that can't await where it calls `is_due()` reads this later, and yields.
        self.was_due = False
        self._hold_s = hold_s
        self._loop = asyncio.get_running_loop()
        self._measuring = False
        self._since = 0.0
        self._task: asyncio.Task[object] | None = None

    def is_due(self) -> bool:
        """Return whether tasks have held the loop for more than `hold_s` in this iteration."""
        # An awaitable may call this from its `__await__`, and a user may await it in another event
        # loop.
        if _running_loop() is not self._loop:
            return False
        task = asyncio.current_task(self._loop)
        if task is None:
            return False
        now = self._loop.time()
        if not self._measuring:  # the first call in this loop iteration
            self._measuring = True
            self._since = now
            self._loop.call_soon(self._next_iteration)
        elif task is self._task:
            self.was_due = now - self._since > self._hold_s
        self._task = task
        return self.was_due

    async def yield_if_due(self) -> None:
        if self.is_due():
            await self.yield_now()

    async def yield_now(self) -> None:
        """Let the event loop run other tasks and callbacks once."""
        self.was_due = False
        await asyncio.sleep(0)

    def pop_due(self) -> bool:
        """Return `is_due()` and reset it."""
        # For the iterator of an `__await__`, which can't await `yield_now()`. If the result is
        # True, the iterator yields None, which suspends the task until the next loop iteration.
        due = self.is_due()
        self.was_due = False
        return due

    async def run_steps(self, steps: Generator[None, None, T]) -> T:
        """Return a generator's result; between its steps yield to the loop if that is due."""
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
            await self.yield_if_due()

    def _next_iteration(self) -> None:
        self._measuring = self.was_due = False
        self._task = None
