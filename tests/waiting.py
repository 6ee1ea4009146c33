"""How tests wait in an event loop: for a named condition, with a deadline, and never for luck."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest


async def until(
    condition: Callable[[], object], what: str = "it", timeout_s: float = 10, pause_s: float = 0.002
) -> None:
    """Look again and again, with turns for others, until the condition is true; fail with `what`
    where it isn't in time."""
    try:
        async with asyncio.timeout(timeout_s):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(pause_s)
    except TimeoutError:
        pytest.fail(f"not within {timeout_s:g} s: {what}")
