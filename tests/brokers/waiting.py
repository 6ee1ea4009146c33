"""Wait for conditions outside this process; no other module of the harness sleeps.

Invariant: each wait has a named condition and a deadline.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from tests.brokers.errors import HarnessTimeoutError

T = TypeVar("T")

# Short at first, since most waits are short. Longer later, to leave the CPU to the brokers.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 0.1


def wait_for(probe: Callable[[], T | None], timeout: float, what: str | Callable[[], str]) -> T:
    """Call ``probe`` until it returns a true value, and return that value.

    ``what`` is the condition, for the error. A callable can add the last state.
    """
    deadline = time.monotonic() + timeout
    pause = _FIRST_PAUSE
    while True:
        found = probe()
        if found:
            return found
        if time.monotonic() >= deadline:
            text = what if isinstance(what, str) else what()
            raise HarnessTimeoutError(f"condition not met within {timeout:g} s: {text}")
        time.sleep(pause)
        pause = min(pause * 1.25, _LONGEST_PAUSE)
