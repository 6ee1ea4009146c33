"""`when_available`: repeat a call while the target isn't ready, such as a loading coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from aiokafka08._core.net.backoff import Backoff
from aiokafka08._core.net.retry import retry
from aiokafka08.bridge.errors import TargetUnavailableError

T = TypeVar("T")

_FIRST_S: Final = 0.1
_LONGEST_S: Final = 2.0


async def when_available(
    call: Callable[[], Awaitable[T]],
    *,
    timeout_s: float = 30.0,
    only: type[TargetUnavailableError] = TargetUnavailableError,
) -> T:
    """Return the result of a call, which is repeated until the target is ready for it.

    Args:
        call: starts the call, which must be idempotent.
        timeout_s: after this time the last error is raised (default 30.0).
        only: the errors after which the call is repeated (default: all that a retry may cure).

    Raises:
        TargetUnavailableError: the target wasn't ready in time.
        KafkaError: other errors of the call, at once.
    """
    return await retry(
        lambda _: call(),
        deadline=asyncio.get_running_loop().time() + timeout_s,
        backoff=Backoff(_FIRST_S, _LONGEST_S),
        timed_out=lambda last: last or TargetUnavailableError("the target didn't respond in time"),
        is_final=lambda error: not isinstance(error, only),
    )
