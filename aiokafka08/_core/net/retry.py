"""Try a request again, with backoff, until it succeeds or a deadline passes.

Invariant: there is at least one attempt. All further attempts begin before the deadline. A final
failure is raised at once.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from aiokafka08._core.net.backoff import Backoff
from aiokafka08.errors import Action, BrokerResponseError, KafkaError

T = TypeVar("T")

# A failure this shortly before the deadline counts as one at the deadline: uvloop's timers count
# milliseconds, so an attempt's own timeout may come that early
_TIMER_SLACK_S: Final = 0.001


def is_final(error: KafkaError) -> bool:
    """Return True if a retry is pointless, False if another attempt may succeed."""
    if isinstance(error, BrokerResponseError):
        return error.action is Action.FINAL
    return not error.retriable


def attempt_timeout(timeout_s: float) -> float:
    """Return how many seconds of `timeout_s` one attempt may take."""
    # The rest is for another attempt: if the broker hangs, the caller has time to find the new
    # leader or coordinator and to send the request there.
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
        attempt: makes one attempt. It is given the seconds that the attempt may take, and limits
            itself to them. It returns the result, or returns or raises a `KafkaError`. A builtin
            `TimeoutError` means that its seconds were over.
        deadline: loop time after which no further attempt begins.
        backoff: the delays between attempts.
        timed_out: makes the error to raise at the deadline from the last failure before it, or from
            None if all attempts ended with `TimeoutError`.
        attempt_s: how many seconds one attempt may take.
        is_final: returns whether to raise a failure at once.

    Raises:
        KafkaError: a final failure of an attempt, or what `timed_out` makes.
    """
    clock = asyncio.get_running_loop().time
    last: KafkaError | None = None
    too_late = deadline - _TIMER_SLACK_S
    while True:
        try:
            result = await attempt(min(max(deadline - clock(), 0.0), attempt_s))
        except TimeoutError:
            pass
        except KafkaError as error:
            if is_final(error):
                raise
            # A failure at the deadline counts only if there is no other, because it often says no
            # more than that the time is over.
            last = error if last is None or clock() < too_late else last
        else:
            if not isinstance(result, KafkaError):
                return result
            if is_final(result):
                raise result
            last = result if last is None or clock() < too_late else last
        await asyncio.sleep(min(backoff.next(), max(deadline - clock(), 0.0)))
        if clock() >= deadline:
            raise timed_out(last)
