"""`Work`: how a handler lets the server's other connections work in between.

A handler that may take long is a generator of steps (`Work`). After each step it yields what the
next one needs (`Need`). Between two steps other requests may change the server's state.

Invariant: a step takes a few milliseconds at most. Work that grows with the items of a request uses
`in_steps`.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

A = TypeVar("A")
B = TypeVar("B")
T = TypeVar("T")

# A request or a response with more items is a large one.
FEW_ITEMS: Final = 1000

_STEP_ITEMS: Final = 100


class Need(enum.Enum):
    """The values that steps yield, besides an `OffloadedCall` or a future to wait for."""

    # Nothing, but other connections may work first.
    PAUSE = "a turn for others"
    # To be the only large request in progress, since it needs much memory.
    ALONE = "no other large request at the same time"


PAUSE: Final = Need.PAUSE
ALONE: Final = Need.ALONE


@dataclass(frozen=True, slots=True)
class OffloadedCall:
    """A pure function to run in the worker thread; the steps continue with its result."""

    # A request that offloads a call counts as a large one.

    function: Callable[[], Any]


Work = Generator[Need | OffloadedCall | asyncio.Future[Any], Any, T]


def in_steps(function: Callable[[A], B], items: Sequence[A]) -> Work[list[B]]:
    """Return the results of a function for all items."""
    results = []
    if len(items) > FEW_ITEMS:
        yield ALONE
    for number, item in enumerate(items, 1):
        results.append(function(item))
        if not number % _STEP_ITEMS:
            yield PAUSE
    return results


def finish(result: T | Work[T]) -> Work[T]:
    """Return `result`, or if it is a generator of steps, run them and return their result."""
    if isinstance(result, Generator):
        result = yield from result
    return result


def offload(function: Callable[[], T]) -> Work[T]:
    """Return the result of a pure function, which runs in the worker thread."""
    result: T = yield OffloadedCall(function)
    return result
