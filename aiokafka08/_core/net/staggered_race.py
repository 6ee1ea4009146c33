"""Try several coroutines with staggered starts and return the first success (Happy Eyeballs).

Invariant: when `staggered_race()` has returned or raised without being cancelled itself, all its
attempts have ended, and every result but the returned one was passed to `discard`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Coroutine, Hashable, Mapping
from typing import Any, Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

STAGGER_DELAY_S: Final = 1.0
"""The longest time for which an attempt that hangs delays the next one."""


def stagger_delay(limit_s: float, count: int) -> float:
    """Return the delay between starts if `count` attempts have `limit_s` in all."""
    # The last attempt has at least half of the time.
    return min(STAGGER_DELAY_S, limit_s / 2 / max(count, 1))


class Stagger:
    """The maximum delay between two starts, which may be shortened while the race runs."""

    __slots__ = ("_shortened", "delay_s")

    def __init__(self, delay_s: float = math.inf) -> None:
        self.delay_s = delay_s
        self._shortened: asyncio.Future[None] | None = None

    def shorten(self, delay_s: float) -> None:
        """Start the next attempt earlier, if `delay_s` is less than the present delay."""
        if delay_s < self.delay_s:
            self.delay_s = delay_s
            if self._shortened is not None and not self._shortened.done():
                self._shortened.set_result(None)

    def shortened(self) -> asyncio.Future[None]:
        if self._shortened is None or self._shortened.done():
            self._shortened = asyncio.get_running_loop().create_future()
        return self._shortened


class AllAttemptsFailedError(Exception, Generic[K]):
    """Every attempt failed; `errors` holds their errors, in the order of the attempts."""

    def __init__(self, errors: Mapping[K, Exception]) -> None:
        super().__init__("; ".join(map(str, errors.values())))
        self.errors = errors


async def staggered_race(
    attempts: Mapping[K, Callable[[], Coroutine[Any, Any, T]]],
    *,
    delay_s: float | Stagger,
    expected: tuple[type[Exception], ...],
    discard: Callable[[T], object] = lambda result: None,
    again: Callable[[Exception], bool] = lambda error: False,
) -> T:
    """Return the result of the first attempt that succeeds, and cancel the others.

    Args:
        attempts: started in this order. The next one starts as soon as a running one fails, and at
            the latest `delay_s` after the last start.
        delay_s: the maximum number of seconds between two starts; a `Stagger` may be shortened.
        expected: the exceptions of an attempt that count as its failure. Any other exception is
            raised at once.
        discard: called with each further result, if several attempts succeed.
        again: called with each failure; True starts the attempt again, after the waiting ones. The
            attempt itself has to back off.

    Raises:
        AllAttemptsFailedError: no attempt succeeded; it has the last error of each.
    """
    waiting = list(attempts.items())
    running: dict[asyncio.Task[T], K] = {}
    errors: dict[K, Exception] = {}
    results: list[T] = []
    stagger = delay_s if isinstance(delay_s, Stagger) else Stagger(delay_s)
    try:
        while (waiting or running) and not results:
            if waiting:
                key, attempt = waiting.pop(0)
                running[asyncio.get_running_loop().create_task(attempt())] = key
            # An attempt that fails starts the next one at once; one that hangs delays it by
            # `delay_s`.
            done = await _wait(running, stagger if waiting else None)
            for task in sorted(done, key=list(running).index):
                key = running.pop(task)
                error = task.exception()
                if error is None:
                    results.append(task.result())
                elif isinstance(error, expected):
                    errors[key] = error
                    if again(error):
                        waiting.append((key, attempts[key]))
                else:
                    raise error
        await _cancel(running, discard)
    except BaseException:
        for result in results:
            discard(result)
        await _cancel(running, discard)
        raise
    for result in results[1:]:
        discard(result)
    if results:
        return results[0]
    raise AllAttemptsFailedError({key: errors[key] for key in attempts})


async def _wait(
    running: Collection[asyncio.Task[T]], stagger: Stagger | None
) -> set[asyncio.Task[T]]:
    """Wait until an attempt has ended or the next one is due; return those that ended."""
    if stagger is None:
        return (await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED))[0]
    clock = asyncio.get_running_loop().time
    began = clock()
    while True:
        shortened = stagger.shortened()
        awaited: set[asyncio.Future[Any]] = {*running, shortened}
        done, _ = await asyncio.wait(
            awaited,
            timeout=max(began + stagger.delay_s - clock(), 0.0),
            return_when=asyncio.FIRST_COMPLETED,
        )
        ended = {task for task in running if task in done}
        if ended or shortened not in done:
            return ended


async def _cancel(running: dict[asyncio.Task[T], K], discard: Callable[[T], object]) -> None:
    """Cancel the running attempts, wait until they have ended, and discard their results."""
    tasks = list(running)
    running.clear()

    def ended(task: asyncio.Task[T]) -> None:
        if not task.cancelled() and task.exception() is None:
            discard(task.result())

    for task in tasks:
        # Cancel each attempt only once, so that it can clean up undisturbed. The callback discards
        # its result even if the wait below is cancelled.
        task.cancel()
        task.add_done_callback(ended)
    if tasks:
        await asyncio.wait(tasks)
