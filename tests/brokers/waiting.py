"""Waiting for things outside this process: the only place of the harness that sleeps.

Law: every wait is for a named condition and has a deadline; nothing sleeps and hopes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from tests.brokers.errors import HarnessTimeoutError

T = TypeVar("T")

# Short at first, since most waits are; long enough later to leave the processor to the brokers.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 0.1


def wait_for(probe: Callable[[], T | None], timeout: float, what: str | Callable[[], str]) -> T:
    """Call ``probe`` until it gives something true and return that.

    ``what`` names the awaited thing in the error; as a callable it may tell what was seen last.
    """
    deadline = time.monotonic() + timeout
    pause = _FIRST_PAUSE
    while True:
        found = probe()
        if found:
            return found
        if time.monotonic() >= deadline:
            text = what if isinstance(what, str) else what()
            raise HarnessTimeoutError(f"waited {timeout:g} s in vain: {text}")
        time.sleep(pause)
        pause = min(pause * 1.25, _LONGEST_PAUSE)
