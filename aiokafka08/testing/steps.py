"""Work in steps: how a handler lets the brokers' other connections work in between.

A handler that may take long is a generator (`Steps`). What it yields says what it needs next:

- `PAUSE`: nothing, but others may have their turn first.
- `ALONE`: to be the only large request in work, since it needs much memory.
- an `Offload`: the result of a pure function, which runs in the cluster's worker thread. This makes
  the request a large one too.

`turns` runs the steps. Between two of them other requests may change the state.

Invariant: a step takes a few milliseconds at most. Work that grows with the items of a request uses
`in_steps`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

A = TypeVar("A")
B = TypeVar("B")
T = TypeVar("T")

FEW_ITEMS = 1000
"""A request or a response with more items (topics, partitions, members) is a large one."""

_STEP_ITEMS = 100


class Need(enum.Enum):
    """What steps yield, besides an `Offload`."""

    PAUSE = "a turn for others"
    ALONE = "no other large request at the same time"


PAUSE, ALONE = Need.PAUSE, Need.ALONE


@dataclass(frozen=True, slots=True)
class Offload:
    """A pure function to run in the worker thread; the steps go on with its result."""

    function: Callable[[], Any]


Steps = Generator[Need | Offload, Any, T]


def in_steps(function: Callable[[A], B], items: Sequence[A]) -> Steps[list[B]]:
    """Return the results of a function for all items."""
    results = []
    if len(items) > FEW_ITEMS:
        yield ALONE
    for number, item in enumerate(items, 1):
        results.append(function(item))
        if not number % _STEP_ITEMS:
            yield PAUSE
    return results


def finish(result: T | Steps[T]) -> Steps[T]:
    """Return a result that is there already, or the one at the end of these steps."""
    if isinstance(result, Generator):
        result = yield from result
    return result


def offload(function: Callable[[], T]) -> Steps[T]:
    """Return the result of a pure function, which runs in the worker thread."""
    result: T = yield Offload(function)
    return result
