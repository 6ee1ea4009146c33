"""Tasks with hashes that don't depend on addresses, and descriptions of waiting tasks."""

from __future__ import annotations

import asyncio
import inspect
import itertools
from collections.abc import Iterable
from typing import Any

from aiokafka08.testing.simulation.party import PARTY

_numbers = itertools.count()


class NumberedTask(asyncio.Task[Any]):
    """A task whose hash is its number, so that a set of tasks has the same order in each run.

    Attributes:
        party: The name of the party (`party.PARTY`) that has started it.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._number = next(_numbers)
        self.party = PARTY.get()
        super().__init__(*arguments, **options)

    def __hash__(self) -> int:
        # asyncio itself keeps tasks in sets, and so does much code that uses it.
        return self._number

    @classmethod
    def make(cls, loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> NumberedTask:
        """Make a task; a factory for `loop.set_task_factory`."""
        return cls(coroutine, loop=loop, **options)


def restart_numbers() -> None:
    """Begin a simulation: number tasks from 0."""
    global _numbers  # noqa: PLW0603  # the task factories of all loops share it
    _numbers = itertools.count()


def describe_tasks(tasks: Iterable[asyncio.Task[Any]]) -> str:
    """Return each task's name with its chain of coroutines and the future that the last one
    awaits.
    """
    return "\n".join(map(_describe, sorted(tasks, key=hash)))


def _describe(task: asyncio.Task[Any]) -> str:
    lines = [f"  {task.get_name()}:"]
    waiting: Any = task.get_coro()
    while waiting is not None:
        if inspect.iscoroutine(waiting):
            frame, inner = waiting.cr_frame, waiting.cr_await
        elif inspect.isasyncgen(waiting):
            frame, inner = waiting.ag_frame, waiting.ag_await
        elif inspect.isgenerator(waiting):
            frame, inner = waiting.gi_frame, waiting.gi_yieldfrom
        else:
            frame = inner = None
        if frame is not None:
            code = frame.f_code
            lines.append(f"    {code.co_qualname} ({code.co_filename}:{frame.f_lineno})")
        waiting = inner
    if (future := getattr(task, "_fut_waiter", None)) is not None:
        lines.append(f"    waits for {future!r}")
    return "\n".join(lines)
