"""Run long calls of pure functions in threads, so that they don't hold the event loop.

The producer and the consumer use no other threads for work on messages.

Invariants: the work has all its inputs before it begins, and changes nothing that other code sees.
So if its caller is cancelled, the work runs to its end and its result is discarded. After `stop()`
no thread is left. If the system refuses to start a thread, the work runs in the event loop.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
from collections.abc import Callable
from typing import Any, Final, TypeVar

from aiokafka08 import environment

T = TypeVar("T")

_MAX_THREADS: Final = min(4, os.cpu_count() or 1)


def settle(result: concurrent.futures.Future[T], call: Callable[[], T]) -> None:
    """Make the call, and give its result or its error to `result`."""
    try:
        result.set_result(call())
    except BaseException as error:
        result.set_exception(error)


class Offload:
    """The threads of one client; they start when there is work. For use in one event loop."""

    def __init__(self) -> None:
        # Threads of its own: in the event loop's default executor, the work would queue behind the
        # blocking calls of the user's program. If such a call waits for a message, it may wait for
        # ever.
        self._executor = environment.worker_threads(_MAX_THREADS, "aiokafka08")
        self._running: set[asyncio.Future[Any]] = set()
        self._stopped = False

    async def run(self, work: Callable[[], T]) -> T:
        """Call `work` in a thread; return its result or raise its error.

        Raises RuntimeError after `stop()`.
        """
        todo = [work]
        result: concurrent.futures.Future[T] = concurrent.futures.Future()

        def do() -> None:
            try:
                work = todo.pop()
            except IndexError:  # done already
                return
            settle(result, work)

        try:
            self._executor.submit(do)
        except RuntimeError:
            if self._stopped:
                raise
            # The process has reached its limit of threads. The executor has queued `do` all the
            # same. If an existing thread has run it already, this call does nothing.
            do()
        running = asyncio.wrap_future(result)
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        return await asyncio.shield(running)

    async def stop(self) -> None:
        """Wait until the work that has begun has ended, and end the threads."""
        self._stopped = True
        try:
            if self._running:
                # A thread can't be interrupted. The longest work is one call of a codec.
                await asyncio.wait(self._running)
        finally:  # if this is cancelled, the threads end when their work does
            self._executor.shutdown(wait=not self._running)
