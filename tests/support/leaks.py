"""A pytest plugin: a test fails if it leaves tasks, sockets or coroutines behind.

At the end of an asynchronous test come, in this order: the teardown of its fixtures, the check for
tasks that are left, the end of the event loop, and a garbage collection. If the process has more
files open than before a test, of whatever kind, the collection is a full one: without it a later
test would fail for a socket that this one has left. Else it visits only what is young: a full one
after each test would take a tenth of the time of all tests.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import itertools
import os
from collections.abc import AsyncIterator, Generator, Iterator
from typing import Any

import pytest
from pytest_asyncio import is_async_test


def describe_tasks(tasks: set[asyncio.Task[Any]]) -> str:
    """Return each task's name with its chain of coroutines, down to the line where it waits."""
    return "\n".join(sorted(map(_describe, tasks)))


def _describe(task: asyncio.Task[Any]) -> str:
    steps = []
    waiting: Any = task.get_coro()
    while waiting is not None:
        if inspect.iscoroutine(waiting):
            frame, inner = waiting.cr_frame, waiting.cr_await
        elif inspect.isasyncgen(waiting):
            frame, inner = waiting.ag_frame, waiting.ag_await
        else:  # the result of `__anext__` or `asend`? Only the collector knows its generator
            frame = None
            inner = next(filter(inspect.isasyncgen, gc.get_referents(waiting)), None)
        if frame is not None:
            code = frame.f_code
            steps.append(f"{code.co_qualname} ({code.co_filename}:{frame.f_lineno})")
        waiting = inner
    return f"  {task.get_name()}: " + ("\n      ".join(steps) or repr(task))


@pytest.fixture
async def tasks_left_behind() -> AsyncIterator[None]:
    """Fail if tasks are left after the test.

    `no_task_left_behind` requests it before the test's own fixtures, so its teardown comes after
    theirs.
    """
    before = asyncio.all_tasks()
    yield
    left = {task for task in asyncio.all_tasks() - before if task is not asyncio.current_task()}
    if left:
        pytest.fail(f"asyncio tasks left behind:\n{describe_tasks(left)}", pytrace=False)


@pytest.fixture
def garbage_collected(request: pytest.FixtureRequest) -> Iterator[None]:
    """Collect garbage after the test: unclosed sockets then warn in the name of their test."""
    before = _open_files()
    yield
    if _open_files() > before:
        gc.collect()
    elif is_async_test(request.node):
        gc.collect(1)


def _open_files() -> int:
    return len(os.listdir("/dev/fd"))


@pytest.fixture(autouse=True)
def no_task_left_behind(request: pytest.FixtureRequest, garbage_collected: None) -> None:
    if is_async_test(request.node):
        request.getfixturevalue("tasks_left_behind")


TESTS_PER_FREEZE = 50

_tests_ended = itertools.count(1)


def _freeze() -> None:
    """Exclude the objects that exist now from later garbage collections.

    The collection after each test would visit all modules, and what pytest keeps of each test.
    """
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Pause the garbage collector: what is made here is kept, and it visits all of it each time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    _freeze()


def pytest_runtest_logfinish() -> None:
    # Between two tests: what is frozen now belongs to no test.
    if next(_tests_ended) % TESTS_PER_FREEZE == 0:
        _freeze()
