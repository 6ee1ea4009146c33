"""`LimitedLog`: log what clients cause, and a client in a loop can't fill the disk.

What happens first is logged at once. What repeats within a minute is counted, and the count is
logged at the minute's end.

Invariant: in a minute there are at most `MAX_KEYS` + 1 different lines, each twice at most.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Hashable
from typing import Final

PERIOD_S: Final = 60.0
MAX_KEYS: Final = 200

_OTHERS: Final = "others"


class LimitedLog:
    """See the module; used in the event loop only.

    Args:
        logger: where it is logged, as warnings.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._repeated: dict[Hashable, tuple[str, int]] = {}  # the text, and how often again
        self._timer: asyncio.TimerHandle | None = None

    def report(self, key: Hashable, text: str) -> None:
        """Log a text, or count it if there was one with this key within the period."""
        if key not in self._repeated and len(self._repeated) >= MAX_KEYS:
            key, text = _OTHERS, f"more than {MAX_KEYS} different warnings in {PERIOD_S:g} s"
        if key in self._repeated:
            text, count = self._repeated[key]
            self._repeated[key] = text, count + 1
            return
        self._repeated[key] = text, 0
        self._logger.warning("%s", text)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(PERIOD_S, self._end_period)

    def close(self) -> None:
        """Log what was counted, and no longer wait for the end of the period."""
        if self._timer is not None:
            self._timer.cancel()
        self._end_period()

    def _end_period(self) -> None:
        self._timer = None
        repeated, self._repeated = self._repeated, {}
        for text, count in repeated.values():
            if count:
                self._logger.warning("%s (%d more times within %g s)", text, count, PERIOD_S)
