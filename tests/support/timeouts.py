"""A pytest plugin: a test that exceeds its timeout fails, also inside an event loop.

pytest-timeout measures the time and calls the two hooks below. Its own alarm raises an exception
out of the code that happens to run. Inside an event loop that may be a callback, whose exceptions
go to the loop's exception handler (always so on uvloop, which calls signal handlers from a
callback), and the test would run for ever. Therefore the alarm of this module stops the loop. It
raises only where no loop runs, or where a second alarm shows that the test goes on: the loop
doesn't stop, or Hypothesis repeats what failed.

The time in which the main thread was ready to run, but other threads and processes had the CPUs,
doesn't count, up to `MOST_WAITS` timeouts. So a busy machine makes no test fail that computes. A
test that waits for ever fails in time, and one that computes for ever later by this time.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import threading
import traceback
from collections.abc import Generator, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import pytest_timeout

from tests.support.leaks import describe_tasks

REPEAT_SECONDS = 3.0
"""Time between the alarms after the first one."""

MOST_WAITS = 4
SHORT_WAIT_SECONDS = 0.5
"""A shorter wait for a CPU doesn't put the alarm off any more."""


def waited_for_cpu_s() -> float:
    """Return how long the main thread has been ready to run without a CPU, or 0 if not known."""
    try:
        return int(Path("/proc/self/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):  # another system than Linux, or a kernel without it
        return 0.0


def _other_threads() -> str:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "".join(
        f"\nthread {names.get(ident, ident)}:\n" + "".join(traceback.format_stack(frame)).rstrip()
        for ident, frame in sys._current_frames().items()
        if ident != threading.get_ident()
    )


class TimeoutExpiredError(KeyboardInterrupt):
    """The timeout has passed.

    Loops raise a KeyboardInterrupt out of callbacks, and Hypothesis doesn't take it for a failure,
    which it would repeat with other examples, up to the timeout each time.
    """


class Alarm:
    """The timer of one test. `report` is empty until the timeout has passed."""

    def __init__(self, settings: Any) -> None:
        self.settings = settings
        self.report = ""
        self._waited_s = 0.0  # up to the timer's start
        self._put_off_s = 0.0

    def start(self) -> None:
        self.report = ""
        self._waited_s, self._put_off_s = waited_for_cpu_s(), 0.0
        signal.signal(signal.SIGALRM, self._expire)
        signal.setitimer(signal.ITIMER_REAL, self.settings.timeout, REPEAT_SECONDS)

    def stop(self) -> None:
        signal.signal(signal.SIGALRM, signal.SIG_IGN)  # `_expire` would set the timer again
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)

    def _expire(self, signum: int, frame: FrameType | None) -> None:
        __tracebackhide__ = True
        if not self.settings.disable_debugger_detection and pytest_timeout.is_debugging():
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            loop = None
        if not self.report:
            waited_s = waited_for_cpu_s()
            most_s = MOST_WAITS * self.settings.timeout - self._put_off_s
            more_s = min(waited_s - self._waited_s, most_s)
            if more_s > SHORT_WAIT_SECONDS:
                self._waited_s = waited_s
                self._put_off_s += more_s
                signal.setitimer(signal.ITIMER_REAL, more_s, REPEAT_SECONDS)
                return
            self.report = f"Timeout: this took more than {self.settings.timeout:g} s"
            if loop is not None:
                self.report += f"\nasyncio tasks:\n{describe_tasks(asyncio.all_tasks(loop))}"
            self.report += _other_threads()
            if loop is not None:
                loop.call_soon_threadsafe(loop.stop)
                return
        raise TimeoutExpiredError


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
def _fail_after_timeout(item: pytest.Item) -> Iterator[None]:
    """Fail with the alarm's report if it has one, whatever error the stopped loop caused."""
    alarm = item.stash.get(_alarm, None)
    cause: BaseException | None = None
    try:
        yield
    except (RuntimeError, BaseExceptionGroup, TimeoutExpiredError) as error:
        if alarm is None or not alarm.report:
            raise
        cause = error
    if alarm is not None and alarm.report:
        raise pytest.fail.Exception(alarm.report, pytrace=False) from cause


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    with _fail_after_timeout(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    with _fail_after_timeout(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    # pytest-timeout stops its timer when a test fails. The teardown of a failed test's fixtures is
    # more likely to hang than anything else, so it gets a timer too.
    alarm = item.stash.get(_alarm, None)
    if alarm is None:
        return (yield)
    alarm.start()
    try:
        with _fail_after_timeout(item):
            return (yield)
    finally:
        alarm.stop()
