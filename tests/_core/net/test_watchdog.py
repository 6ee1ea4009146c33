"""`ResponseWatchdog`: its timers on each event loop."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from aiokafka08._core.net.watchdog import ResponseWatchdog

pytestmark = pytest.mark.both_loops


class Refreshes:
    """Stands in for the metadata."""

    count = 0

    def request_refresh(self) -> None:
        self.count += 1


async def test_watchdog_fires_on_after_the_loop_was_held() -> None:
    """On uvloop the handle of a time in the past isn't a timer handle: it has no `when()`."""
    metadata: Any = Refreshes()
    timed_out = asyncio.Event()
    with ResponseWatchdog(metadata, 0.01, timeout_s=0.1, on_timeout=timed_out.set):
        await asyncio.sleep(0)
        time.sleep(0.05)  # several refreshes are due when the loop runs again
        await timed_out.wait()
    assert metadata.count >= 5
