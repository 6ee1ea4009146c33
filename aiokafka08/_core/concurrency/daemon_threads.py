"""`DaemonThreads`: run calls that block in threads that don't keep the process from ending.

The threads of an ordinary executor are joined at the end of `asyncio.run()`, and again at the end
of the interpreter. A call to a ZooKeeper or a name server that hangs would hold a stopped process
for its whole timeout.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

from aiokafka08._core.concurrency.offload import settle

P = ParamSpec("P")
T = TypeVar("T")


class DaemonThreads(ThreadPoolExecutor):
    """An executor that gives each call a thread of its own, which ends with the process.

    An event loop takes it as its default executor. Pass it only calls that may be cut at any point.
    """

    def __init__(self, name: str) -> None:
        # The base class is there for the event loop's type check; its own threads never start.
        super().__init__(1, name)
        self._name = name

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Start a call; see `concurrent.futures.Executor`."""
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()
        call = partial(fn, *args, **kwargs)
        threading.Thread(target=settle, args=(future, call), name=self._name, daemon=True).start()
        return future

    def shutdown(self, *_: Any, **__: Any) -> None:
        """Return at once, without waiting for running calls."""
