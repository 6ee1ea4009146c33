"""Make a case as short as possible while it still shows its difference."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any

from tests.tools.differential.cases import Case, HalfClose, Send, Step
from tests.tools.differential.sets import MessageSet, Repeat, Wrap
from tests.tools.differential.wire import Counted, Request


async def shrink(case: Case, shows: Callable[[Case], Awaitable[bool]], attempts: int = 150) -> Case:
    """Return a case that shows the difference too, and of which no single part can be left out.

    It removes halves of the steps, then quarters and so on (ddmin), then requests, topics,
    partitions and messages. After `attempts` runs it returns what it has.
    """
    left = attempts
    smaller = True
    while smaller:
        smaller = False
        for candidate in reductions(case):
            if not left:
                return case
            left -= 1
            if await shows(candidate):
                case, smaller = candidate, True
                break
    return case


def reductions(case: Case) -> Iterator[Case]:
    """Iterate over cases with one part less, large parts first."""
    count = len(case.steps)
    size = count // 2
    while size:
        for at in range(0, count, size):
            steps = case.steps[:at] + case.steps[at + size :]
            if steps:
                yield replace(case, steps=steps)
        size //= 2
    for at, step in enumerate(case.steps):
        for smaller in _smaller_steps(step):
            yield replace(case, steps=(*case.steps[:at], smaller, *case.steps[at + 1 :]))


def _smaller_steps(step: Step) -> Iterator[Step]:
    if not isinstance(step, Send | HalfClose):
        return
    for at in range(len(step.requests)):
        if len(step.requests) > 1:
            yield replace(step, requests=step.requests[:at] + step.requests[at + 1 :])
    for at, request in enumerate(step.requests):
        for smaller in _smaller_requests(request):
            requests = (*step.requests[:at], smaller, *step.requests[at + 1 :])
            yield replace(step, requests=requests)
    if isinstance(step, Send) and step.split:
        yield replace(step, split=0)


def _smaller_requests(request: Request) -> Iterator[Request]:
    for body in _smaller_values(request.body):
        yield replace(request, body=body)


def _smaller_values(value: Any) -> Iterator[Any]:
    """Iterate over the value with one item of one of its lists or sets less."""
    if isinstance(value, Counted):
        yield list(value.items)
        return
    if isinstance(value, list):
        for at in range(len(value)):
            yield value[:at] + value[at + 1 :]
    if isinstance(value, list | tuple) and not isinstance(value, Repeat):
        for at, one in enumerate(value):
            for smaller in _smaller_values(one):
                parts = [*value[:at], smaller, *value[at + 1 :]]
                yield parts if isinstance(value, list) else tuple(parts)
    if isinstance(value, MessageSet | Wrap):
        messages = value.messages
        for at in range(len(messages)):
            yield replace(value, messages=messages[:at] + messages[at + 1 :])
        for at, one in enumerate(messages):
            for smaller in _smaller_values(one):
                yield replace(value, messages=(*messages[:at], smaller, *messages[at + 1 :]))
