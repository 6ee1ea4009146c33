"""How tests end: nothing left behind, and no waiting for ever.

At the end of an asynchronous test come, in this order: the ends of its fixtures, the look at the
tasks that are left, the end of the loop, the collection of garbage.

pytest-timeout keeps the time and calls the two hooks below; its own alarm raises out of whatever
runs just then. Inside an event loop that may be a callback, whose exceptions go to the loop's
exception handler (always so on uvloop, which calls signal handlers from a callback): the test
would go on for ever. So this alarm stops the loop, and raises only where none runs, or where a
second alarm shows that the loop doesn't come to stop.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import signal
import sys
import threading
import traceback
from collections.abc import AsyncIterator, Generator, Iterator
from types import FrameType
from typing import Any

import pytest
import pytest_timeout
from pytest_asyncio import is_async_test

AGAIN_SECONDS = 3.0
"""Between the alarms after the first one."""


def where(task: asyncio.Task[Any]) -> str:
    """The task's name, and the chain of coroutines down to the line where it waits."""
    steps = []
    waiting: Any = task.get_coro()
    while waiting is not None:
        if inspect.iscoroutine(waiting):
            frame, inner = waiting.cr_frame, waiting.cr_await
        elif inspect.isasyncgen(waiting):
            frame, inner = waiting.ag_frame, waiting.ag_await
        else:  # perhaps what `__anext__` or `asend` gave; only the collector knows of what
            frame = None
            inner = next(filter(inspect.isasyncgen, gc.get_referents(waiting)), None)
        if frame is not None:
            code = frame.f_code
            steps.append(f"{code.co_qualname} ({code.co_filename}:{frame.f_lineno})")
        waiting = inner
    return f"  {task.get_name()}: " + ("\n      ".join(steps) or repr(task))


def describe(tasks: set[asyncio.Task[Any]]) -> str:
    return "\n".join(sorted(where(task) for task in tasks))


@pytest.fixture
async def tasks_left_behind() -> AsyncIterator[None]:
    """Set up before, and so torn down after, the test's own fixtures: see `no_task_left_behind`."""
    before = asyncio.all_tasks()
    yield
    left = {task for task in asyncio.all_tasks() - before if task is not asyncio.current_task()}
    if left:
        pytest.fail(f"asyncio tasks left behind:\n{describe(left)}", pytrace=False)


@pytest.fixture
def garbage_collected(request: pytest.FixtureRequest) -> Iterator[None]:
    """An unclosed socket or transport is told of when it is collected: so in its test's name."""
    yield
    if is_async_test(request.node):
        gc.collect()


@pytest.fixture(autouse=True)
def no_task_left_behind(request: pytest.FixtureRequest, garbage_collected: None) -> None:
    if is_async_test(request.node):
        request.getfixturevalue("tasks_left_behind")


def pytest_collection_finish() -> None:
    # What is here now stays; the collections after each test needn't look at it again and again.
    gc.collect()
    gc.freeze()


def _other_threads() -> str:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "".join(
        f"\nthread {names.get(ident, ident)}:\n" + "".join(traceback.format_stack(frame)).rstrip()
        for ident, frame in sys._current_frames().items()
        if ident != threading.get_ident()
    )


class Alarm:
    """The timer of one test. `report` is empty until it has rung."""

    def __init__(self, settings: Any) -> None:
        self.settings = settings
        self.report = ""

    def start(self) -> None:
        self.report = ""
        signal.signal(signal.SIGALRM, self._ring)
        signal.setitimer(signal.ITIMER_REAL, self.settings.timeout, AGAIN_SECONDS)

    def stop(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)

    def _ring(self, signum: int, frame: FrameType | None) -> None:
        __tracebackhide__ = True
        if not self.settings.disable_debugger_detection and pytest_timeout.is_debugging():
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            loop = None
        if not self.report:
            self.report = f"Timeout: this took more than {self.settings.timeout:g} s"
            if loop is not None:
                self.report += f"\nasyncio tasks:\n{describe(asyncio.all_tasks(loop))}"
            self.report += _other_threads()
            if loop is not None:
                loop.call_soon_threadsafe(loop.stop)
                return
        pytest.fail(self.report)


_alarm = pytest.StashKey[Alarm]()


def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool | None:
    if settings.method != "signal" or threading.current_thread() is not threading.main_thread():
        return None
    item.stash[_alarm] = Alarm(settings)
    item.stash[_alarm].start()
    return True


def pytest_timeout_cancel_timer(item: pytest.Item) -> bool | None:
    alarm = item.stash.get(_alarm, None)
    if alarm is None:
        return None
    alarm.stop()
    return True


@contextlib.contextmanager
def _in_time(item: pytest.Item) -> Iterator[None]:
    """Where the alarm has rung, the failure is its report, whatever came of stopping the loop."""
    alarm = item.stash.get(_alarm, None)
    cause: BaseException | None = None
    try:
        yield
    except (RuntimeError, BaseExceptionGroup) as error:
        if alarm is None or not alarm.report:
            raise
        cause = error
    if alarm is not None and alarm.report:
        raise pytest.fail.Exception(alarm.report, pytrace=False) from cause


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    with _in_time(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    with _in_time(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    # pytest-timeout stops its timer when a test fails, but what a failed test leaves to its
    # fixtures is likelier to hang than anything.
    alarm = item.stash.get(_alarm, None)
    if alarm is None:
        return (yield)
    alarm.start()
    try:
        with _in_time(item):
            return (yield)
    finally:
        alarm.stop()
