"""Run a client's coroutine in an event loop of its own, for the modules that use asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop

from tests.tools.bench.measure import Measurement


def run(
    work: Coroutine[Any, Any, Measurement],
    new_loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop,
) -> Measurement:
    """Run the work in an event loop of its own."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(work)
