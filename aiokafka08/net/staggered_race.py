"""Several ways to one end, tried with a head start each: the first that works wins.

For addresses some of which may be dead or silent: a dead one costs nothing, a silent one its head
start, and all of them together no more than the time there is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Mapping
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

STAGGER_DELAY_S = 1.0
"""How long a silent address may keep the next one waiting."""


def stagger_delay(limit_s: float, count: int) -> float:
    """The head start where `count` attempts must end within `limit_s`: the last one has half."""
    return min(STAGGER_DELAY_S, limit_s / 2 / max(count, 1))


class AllAttemptsFailedError(Exception, Generic[K]):
    """No attempt worked; `errors` says why, in the order of the attempts."""

    def __init__(self, errors: Mapping[K, Exception]) -> None:
        super().__init__("; ".join(map(str, errors.values())))
        self.errors = errors


async def staggered_race(
    attempts: Mapping[K, Callable[[], Coroutine[Any, Any, T]]],
    *,
    delay_s: float,
    expected: tuple[type[Exception], ...],
    discard: Callable[[T], object] = lambda result: None,
) -> T:
    """The result of the first attempt that works; the others are cancelled.

    Args:
        attempts: tried in this order; each begins when those before it have failed, or have had
            their head start.
        delay_s: seconds.
        expected: what an attempt may raise; anything else is raised at once.
        discard: given the results of attempts that worked too, but later.

    Raises:
        AllAttemptsFailedError: none worked.
    """
    waiting = list(attempts.items())
    running: dict[asyncio.Task[T], K] = {}
    errors: dict[K, Exception] = {}
    results: list[T] = []
    try:
        while (waiting or running) and not results:
            if waiting:
                key, attempt = waiting.pop(0)
                running[asyncio.get_running_loop().create_task(attempt())] = key
            done, _ = await asyncio.wait(
                running,
                timeout=delay_s if waiting else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for task in sorted(done, key=list(running).index):
                key = running.pop(task)
                error = task.exception()
                if error is None:
                    results.append(task.result())
                elif isinstance(error, expected):
                    errors[key] = error
                else:
                    raise error
        await _end(running, discard)
    except BaseException:
        for result in results:
            discard(result)
        await _end(running, discard)
        raise
    for result in results[1:]:
        discard(result)
    if results:
        return results[0]
    raise AllAttemptsFailedError({key: errors[key] for key in attempts})


async def _end(running: dict[asyncio.Task[T], K], discard: Callable[[T], object]) -> None:
    """Cancel what runs, once, and wait for it. What it brings is discarded, also if nobody waits:
    the waiting itself may be cancelled, by one who is in a hurry."""
    tasks = list(running)
    running.clear()

    def ended(task: asyncio.Task[T]) -> None:
        if not task.cancelled() and task.exception() is None:
            discard(task.result())

    for task in tasks:
        task.cancel()
        task.add_done_callback(ended)
    if tasks:
        await asyncio.wait(tasks)
