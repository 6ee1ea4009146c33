"""Iterate several asynchronous generators at the same time, within a budget.

Invariant: the items of a source keep their order, and a source continues only after the caller has
used its previous item. Sources begin in the order in which they are given, while the costs of the
active ones are within the budget; one is active in any case.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterable
from typing import TypeVar

T = TypeVar("T")


async def merge(
    sources: Iterable[tuple[int, AsyncGenerator[T, None]]], budget: int
) -> AsyncGenerator[T, None]:
    """Yield the items of all sources, in the order in which they come; raise a source's error.

    Close the generator (`contextlib.aclosing`) if you don't iterate to its end. `sources` are
    generators, each with its cost; `budget` is the maximum cost of the active ones.
    """
    waiting = deque(sources)
    active: dict[asyncio.Task[T | None], tuple[int, AsyncGenerator[T, None]]] = {}
    done: deque[asyncio.Task[T | None]] = deque()
    is_done = asyncio.Event()

    def on_done(task: asyncio.Task[T | None]) -> None:
        done.append(task)
        is_done.set()

    def advance(cost: int, source: AsyncGenerator[T, None]) -> None:
        task = asyncio.get_running_loop().create_task(_next(source))
        active[task] = cost, source
        task.add_done_callback(on_done)

    cost = 0  # the sum of the costs of the active sources
    try:
        while waiting or active:
            while waiting and (not active or cost + waiting[0][0] <= budget):
                cost += waiting[0][0]
                advance(*waiting.popleft())
            if not done:
                is_done.clear()
                await is_done.wait()
            task = done.popleft()
            item = task.result()
            if item is None:
                cost -= active.pop(task)[0]
                continue
            yield item
            # Not earlier, so that `finally` closes the source if the caller stops.
            advance(*active.pop(task))
            del item, task  # the item may be large
    finally:
        for task in active:
            task.cancel()
        await asyncio.gather(*active, return_exceptions=True)
        for _, generator in active.values():
            await generator.aclose()


async def _next(source: AsyncGenerator[T, None]) -> T | None:
    return await anext(source, None)
