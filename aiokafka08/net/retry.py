"""Try a request again, with backoff, until it succeeds or a deadline passes.

`retry()` is the one loop that topic lookups, ListOffsets, coordinator lookups, the offset stores
and the admin client share. The caller passes one attempt as a coroutine function, and a function
that makes the error for the deadline from the last failure. Loops without a deadline (the
consumer's fetches, joining a group) use `backoff` directly.

Invariant: there is at least one attempt, no attempt but the first begins at or after the deadline,
and a final failure is raised at once.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import TypeVar

from aiokafka08.errors import Action, BrokerResponseError, KafkaError
from aiokafka08.net.backoff import Backoff

T = TypeVar("T")


def is_final(error: KafkaError) -> bool:
    """Return whether another attempt can't help."""
    if isinstance(error, BrokerResponseError):
        return error.action is Action.FINAL
    return not error.retriable


def attempt_timeout(timeout_s: float) -> float:
    """Return how many seconds of `timeout_s` one attempt may take.

    A broker that doesn't respond then leaves time to find its successor and send the request there.
    """
    return min(max(timeout_s / 4, 1.0), timeout_s)


async def retry(
    attempt: Callable[[float], Awaitable[T | KafkaError]],
    *,
    deadline: float,
    backoff: Backoff,
    timed_out: Callable[[KafkaError | None], KafkaError],
    attempt_s: float = math.inf,
    is_final: Callable[[KafkaError], bool] = is_final,
) -> T:
    """Call `attempt` until it returns a result, and return that.

    Args:
        attempt: Makes one attempt. It is given the seconds that the attempt may take, and limits
            itself to them. It returns the result, or returns or raises a `KafkaError`. A builtin
            `TimeoutError` means that its seconds were over.
        deadline: Loop time after which no further attempt begins.
        backoff: The delays between attempts.
        timed_out: Makes the error to raise at the deadline. It is given the last failure, if any.
            A failure at the deadline doesn't replace an earlier one: it only says that the time
            was over.
        attempt_s: How many seconds one attempt may take.
        is_final: Returns whether to raise a failure at once.

    Raises:
        KafkaError: A final failure of an attempt, or what `timed_out` makes.
    """
    clock = asyncio.get_running_loop().time
    last: KafkaError | None = None
    while True:
        try:
            result = await attempt(min(max(deadline - clock(), 0.0), attempt_s))
        except TimeoutError:
            pass
        except KafkaError as error:
            if is_final(error):
                raise
            last = error if last is None or clock() < deadline else last
        else:
            if not isinstance(result, KafkaError):
                return result
            if is_final(result):
                raise result
            last = result if last is None or clock() < deadline else last
        await asyncio.sleep(min(backoff.next(), max(deadline - clock(), 0.0)))
        if clock() >= deadline:
            raise timed_out(last)
