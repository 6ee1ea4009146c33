"""Wait in an event loop for a named condition, with a deadline.

Tests use these functions in place of `asyncio.sleep`, except where the passage of time is the
subject of the test.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest


async def until(
    condition: Callable[[], object], what: str = "it", timeout_s: float = 10, pause_s: float = 0.002
) -> None:
    """Wait until `condition()` is true; fail with `what` if it isn't before the deadline.

    The event loop runs between two checks.
    """
    try:
        async with asyncio.timeout(timeout_s):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(pause_s)
    except TimeoutError:
        pytest.fail(f"not within {timeout_s:g} s: {what}")


async def eventually(
    condition: Callable[[], Awaitable[bool]], timeout_s: float = 20.0, pause_s: float = 0.02
) -> None:
    """Wait until `await condition()` is true: for what brokers or clients learn with a delay.

    Raises:
        TimeoutError: the condition isn't true before the deadline.
    """
    async with asyncio.timeout(timeout_s):
        while not await condition():  # noqa: ASYNC110
            await asyncio.sleep(pause_s)


async def until_raised(read: Callable[[], Awaitable[object]], timeout_s: float = 20.0) -> None:
    """Read again until it raises: a call that ends during another fetch returns nothing.

    Raises:
        Exception: what `read` raises.
    """
    async with asyncio.timeout(timeout_s):
        while True:
            assert not await read()
