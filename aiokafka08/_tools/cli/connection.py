"""Open clients from `Settings`, and run a command's coroutine; no other module of `cli` does.

The clients aren't started: `async with` starts and stops them. Keyword arguments override the
settings. `run()` uses uvloop if it is installed.

Invariant: Ctrl-C and SIGTERM cancel the coroutine, so its `finally` and `async with` blocks run. A
second Ctrl-C cancels the waits in these, and a third one ends the process at once.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from aiokafka08._core.net.tls import ssl_context
from aiokafka08._tools.cli.notes import note
from aiokafka08._tools.cli.settings import Settings
from aiokafka08._tools.cli.signals import Terminated

if TYPE_CHECKING:
    from aiokafka08._core.net.router import Router
    from aiokafka08.admin import AIOKafkaAdminClient
    from aiokafka08.consumer import AIOKafkaConsumer
    from aiokafka08.producer import AIOKafkaProducer

T = TypeVar("T")

# Within this time further Ctrl-C count as one: a user may press the key twice, and a script may
# pass on the signal that the terminal has sent to all processes.
_ONE_CTRL_C_S: Final = 1.0


def admin_client(
    settings: Settings, *, uses_zookeeper: bool = True, **options: Any
) -> AIOKafkaAdminClient:
    """Return an admin client, with ZooKeeper if the settings name it.

    `uses_zookeeper` is False for a command that only brokers answer (default True).
    """
    from aiokafka08.admin import AIOKafkaAdminClient

    given = admin_options(settings) if uses_zookeeper else _network(settings)
    return AIOKafkaAdminClient(**{**given, **options})


def admin_options(settings: Settings) -> dict[str, Any]:
    """Return the arguments of an admin client, for code that opens one itself."""
    return {**_network(settings), **_zookeeper(settings)}


def producer(settings: Settings, **options: Any) -> AIOKafkaProducer:
    """Return a producer with `acks="all"`, unless the settings or the options say otherwise."""
    from aiokafka08.producer import AIOKafkaProducer

    values = {"acks": "all", **settings.producer, "headers": settings.headers}
    return AIOKafkaProducer(**{**_network(settings), **values, **options})


def consumer(settings: Settings, *topics: str, **options: Any) -> AIOKafkaConsumer[Any, Any]:
    """Return a consumer; it joins a group only if `options` have a `group_id`."""
    from aiokafka08.consumer import AIOKafkaConsumer

    if options.get("group_id") is None:
        zookeeper: dict[str, Any] = {}
    else:
        zookeeper = _zookeeper(settings)
    return AIOKafkaConsumer(
        *topics,
        **{
            **_network(settings),
            **zookeeper,
            # Return values as they are, whatever AIOKAFKA08_HEADERS is. `records.headers` reads
            # embedded headers.
            "headers": "refuse",
            **settings.consumer,
            "group_id": None,
            **options,
        },
    )


def range_router(settings: Settings) -> AbstractAsyncContextManager[Router]:
    """Return the context of a started router for `read_range()`; it creates no topic."""
    from aiokafka08._core.ranges.range_router import open_range_router

    return open_range_router(_network(settings))


def _zookeeper(settings: Settings) -> dict[str, Any]:
    """Return the arguments for ZooKeeper; print a note if a given one isn't used."""
    if settings.unused_zookeeper is not None:
        note(settings.unused_zookeeper)
    return {
        "zookeeper_connect": settings.zookeeper_connect,
        "zookeeper_check": settings.zookeeper_check,
        "zookeeper_options": settings.zookeeper_options,
    }


def _network(settings: Settings) -> dict[str, Any]:
    return {**settings.network, "ssl_context": ssl_context(settings.tls)}


def run(work: Coroutine[Any, Any, T], *, end_with_stdout: bool = False) -> T:
    """Run a coroutine to its end and return its result.

    Args:
        work: the coroutine.
        end_with_stdout: True cancels it as soon as the reader of stdout closes its end of the pipe,
            for commands that may wait long before they write again (default False).

    Raises:
        KeyboardInterrupt: Ctrl-C.
        Terminated: SIGTERM.
        BrokenPipeError: stdout was closed (only with `end_with_stdout`).
    """
    with _Interrupts() as interrupts, asyncio.Runner(loop_factory=_loop_factory()) as runner:
        try:
            return runner.run(_cancellable(work, end_with_stdout, interrupts))
        except BaseException:
            # The runner waits for the threads of the default executor. A call of kazoo can't be
            # cancelled, and may take until its timeout, so its executor is replaced. At the end of
            # the process `run_process()` doesn't wait for it either.
            runner.get_loop().set_default_executor(ThreadPoolExecutor(1))
            raise


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        from uvloop import new_event_loop
    except ImportError:  # also if a mere folder has the name uvloop
        return None
    return new_event_loop


class _Interrupts:
    """Cancels a task at Ctrl-C, in place of asyncio's handler; only in the main thread.

    While the event loop is opened or closed, Ctrl-C waits: uvloop can't be closed after an
    exception in its own code.
    """

    # Asyncio's handler raises KeyboardInterrupt at each Ctrl-C after the first, also while
    # `finally` blocks run.

    def __init__(self) -> None:
        self._task: asyncio.Task[Any] | None = None
        self._count = 0
        self._last = 0.0
        self._is_late = False
        self._restore: Callable[[], object] = lambda: None

    def __enter__(self) -> _Interrupts:
        if threading.current_thread() is threading.main_thread():
            before = signal.signal(signal.SIGINT, self._interrupt)
            self._restore = lambda: signal.signal(signal.SIGINT, before)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: object
    ) -> None:
        self._restore()
        if self._is_late or (self._count and isinstance(error, asyncio.CancelledError)):
            raise KeyboardInterrupt from None

    def cancel(self, task: asyncio.Task[Any]) -> None:
        """Cancel this task at each Ctrl-C; at once if one came before this call."""
        self._task = task
        if self._count:
            task.cancel()

    def _interrupt(self, number: int, frame: object) -> None:
        now = time.monotonic()
        is_repeated = self._count > 0 and now - self._last < _ONE_CTRL_C_S
        self._last = now
        if is_repeated:
            return
        self._count += 1
        self._is_late = self._count > 2 or (self._task is not None and self._task.done())
        if self._count > 2:
            raise KeyboardInterrupt
        if self._task is not None and not self._task.done():
            self._task.cancel()
            self._task.get_loop().call_soon_threadsafe(lambda: None)  # wakes the event loop


async def _cancellable(
    work: Coroutine[Any, Any, T], end_with_stdout: bool, interrupts: _Interrupts
) -> T:
    """Await the coroutine; cancel it on SIGTERM, and with `end_with_stdout` if stdout closes."""
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    interrupts.cancel(task)
    reasons: list[Exception] = []

    def cancel(reason: Exception) -> None:
        if not reasons:
            reasons.append(reason)
            task.cancel()

    in_main_thread = threading.current_thread() is threading.main_thread()
    if in_main_thread:
        loop.add_signal_handler(signal.SIGTERM, cancel, Terminated())
    try:
        with _watched_stdout(loop, cancel) if end_with_stdout else _nothing():
            return await work
    except asyncio.CancelledError:
        if reasons:
            raise reasons[0] from None
        raise
    finally:
        if in_main_thread:
            loop.remove_signal_handler(signal.SIGTERM)


@contextmanager
def _nothing() -> Iterator[None]:
    yield


@contextmanager
def _watched_stdout(
    loop: asyncio.AbstractEventLoop, cancel: Callable[[Exception], None]
) -> Iterator[None]:
    """Call `cancel` when stdout has no reader any more, if it is a pipe and the system is Linux."""
    # Elsewhere the next write fails.
    try:
        descriptor = sys.stdout.fileno()
        is_pipe = stat.S_ISFIFO(os.fstat(descriptor).st_mode)
    except (AttributeError, OSError, ValueError):
        is_pipe = False
    if not is_pipe or not hasattr(select, "epoll"):
        yield
        return
    # An epoll object becomes readable when it has an event. It reports errors even with mask 0.
    with select.epoll() as errors:
        errors.register(descriptor, 0)
        loop.add_reader(errors.fileno(), cancel, BrokenPipeError())
        try:
            yield
        finally:
            loop.remove_reader(errors.fileno())
