"""`LimitedLog`: log what others cause, and nothing that goes on in a loop can fill the disk.

What happens first is logged at once. What repeats within a minute is counted, and the count is
logged at the minute's end. What has repeated goes on being counted in the next minute.

Invariant: in a minute there are at most `MAX_KEYS` + 1 different lines, each twice at most.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Hashable, Mapping
from typing import Final

PERIOD_S: Final = 60.0
MAX_KEYS: Final = 200

_OTHERS: Final = "others"


class LimitedLog:
    """See the module; any thread may use it.

    Args:
        logger: where it is logged, as warnings.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._lock = threading.RLock()  # a handler of the log may report, too
        self._repeated: dict[Hashable, tuple[str, int]] = {}  # the text, and how often again
        self._timer: threading.Timer | None = None

    def report(self, key: Hashable, text: str) -> None:
        """Log a text, or count it if there was one with this key within the period."""
        with self._lock:
            if key not in self._repeated and len(self._repeated) >= MAX_KEYS:
                key, text = _OTHERS, f"more than {MAX_KEYS} different warnings in {PERIOD_S:g} s"
            if key in self._repeated:
                text, count = self._repeated[key]
                self._repeated[key] = text, count + 1
                return
            self._repeated[key] = text, 0
            if self._timer is None:
                self._begin_period()
        self._logger.warning("%s", text)

    def close(self) -> None:
        """Log what was counted, and begin anew with the next text."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = None
            repeated, self._repeated = self._repeated, {}
        self._log_counts(repeated)

    def _begin_period(self) -> None:
        self._timer = threading.Timer(PERIOD_S, self._end_period)
        self._timer.daemon = True
        self._timer.start()

    def _end_period(self) -> None:
        with self._lock:
            if self._timer is not threading.current_thread():
                return  # closed meanwhile
            self._timer = None
            repeated = self._repeated
            self._repeated = {key: (text, 0) for key, (text, count) in repeated.items() if count}
            if self._repeated:
                self._begin_period()
        self._log_counts(repeated)

    def _log_counts(self, repeated: Mapping[Hashable, tuple[str, int]]) -> None:
        for text, count in repeated.values():
            if count:
                self._logger.warning("%s (%d more times within %g s)", text, count, PERIOD_S)
