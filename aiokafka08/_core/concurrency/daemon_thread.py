"""Run calls that may hang, one after another, in a thread that the process doesn't wait for.

Invariant: there is at most one thread, and none without a call. A call whose caller has given up
isn't begun.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from aiokafka08._core.concurrency.offload import settle

T = TypeVar("T")


class DaemonThread:
    """The thread; it starts with a call and ends after the last one."""

    def __init__(self) -> None:
        self._calls: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._lock = threading.Lock()
        self._is_running = False

    async def run(self, call: Callable[[], T]) -> T:
        """Call it in the thread, after the earlier calls; return its result or raise its error."""
        result: Future[T] = Future()
        with self._lock:
            self._calls.append((result, call))
            if not self._is_running:
                # A daemon: Kerberos may wait for a KDC for minutes, and nothing can interrupt it.
                # The threads of `offload` would delay the stop of a client and the exit of the
                # process.
                threading.Thread(target=self._work, name="aiokafka08-call", daemon=True).start()
                self._is_running = True
        return await asyncio.wrap_future(result)

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._calls:
                    self._is_running = False
                    return
                result, call = self._calls.popleft()
            if not result.set_running_or_notify_cancel():
                continue
            settle(result, call)
