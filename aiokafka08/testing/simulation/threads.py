"""Simulated threads: functions that block run in the event loop and take virtual time.

A function runs in one piece when its thread starts. Its result becomes visible later, after the
time that it has spent: a short random one, and all that the function has passed to `spend()`, such
as the wait for a server that doesn't respond.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import Callable
from concurrent.futures import Executor, Future
from random import Random
from typing import Any, Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_SHORTEST_S: Final = 0.00005
_LONGEST_S: Final = 0.002


class Threads:
    """The simulated threads of a run.

    Args:
        loop: the loop of the simulation.
        random: draws how long the work takes.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, random: Random) -> None:
        self._loop = loop
        self._random = random
        self._spent_s = 0.0
        self._is_running = False

    def monotonic(self) -> float:
        """Return the virtual time, which advances in a thread that spends some."""
        return self._loop.time() + self._spent_s

    def spend(self, seconds: float) -> None:
        """Let virtual time pass in the running thread, for simulations of blocking calls."""
        if self._is_running:  # outside of a thread nothing blocks
            self._spent_s += max(seconds, 0.0)

    def executor(self, threads: int, name: str) -> Executor:
        """Return an executor, as `environment.worker_threads`."""
        return SimulatedExecutor(self)

    async def run_in_thread(
        self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a function that blocks, as `environment.run_in_thread`."""
        call = functools.partial(contextvars.copy_context().run, function, *args, **kwargs)
        return await asyncio.wrap_future(self.start(call))

    def start(self, call: Callable[[], T]) -> Future[T]:
        """Start a thread with this work."""
        future: Future[T] = Future()

        def run() -> None:
            outer, self._spent_s, self._is_running = self._spent_s, 0.0, True
            finish: Callable[[], None]
            try:
                finish = functools.partial(future.set_result, call())
            except BaseException as error:
                finish = functools.partial(future.set_exception, error)
            spent_s, self._spent_s, self._is_running = self._spent_s, outer, False
            self._loop.call_later(spent_s + self._duration_s(), finish)

        future.set_running_or_notify_cancel()  # a thread can't be cancelled
        self._loop.call_later(self._duration_s(), run)
        return future

    def _duration_s(self) -> float:
        return self._random.uniform(_SHORTEST_S, _LONGEST_S)


class SimulatedExecutor(Executor):
    """An executor without threads; see `Threads`."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._is_shut_down = False

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """See `concurrent.futures`."""
        if self._is_shut_down:
            raise RuntimeError("cannot schedule new futures after shutdown")
        return self._threads.start(functools.partial(fn, *args, **kwargs))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """See `concurrent.futures`; it never waits."""
        self._is_shut_down = True
