"""Log events that other parties cause, so that no endless repetition fills the disk.

The first event of a key is logged at once. Repetitions within a minute are counted, and the count
is logged at the minute's end; counting then goes on in the next minute.

Invariant: whatever the texts are, at most `MAX_KEYS` + 1 of each kind are logged in a minute. Each
is logged at most twice, and is cut off at `MAX_CHARACTERS` before it is escaped.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Final, Protocol

from aiokafka08._core.names import visible

PERIOD_S: Final = 60.0
MAX_KEYS: Final = 200
MAX_CHARACTERS: Final = 1000

_OTHERS: Final = "others"


class _Timer(Protocol):
    def cancel(self) -> object: ...


Later = Callable[[float, Callable[[], object]], _Timer]
"""Calls a function after a delay in seconds; returns a timer that can be cancelled."""


def later_in_loop(delay_s: float, call: Callable[[], object]) -> asyncio.TimerHandle:
    """Call a function in the running event loop after the delay."""
    return asyncio.get_running_loop().call_later(delay_s, call)


def later_in_thread(delay_s: float, call: Callable[[], object]) -> threading.Timer:
    timer = threading.Timer(delay_s, call)
    timer.daemon = True
    timer.start()
    return timer


class LimitedLog:
    """See the module; any thread may use it, if `later` can be called there."""

    def __init__(self, logger: logging.Logger, later: Later) -> None:
        self._logger = logger
        self._later = later
        self._lock = threading.RLock()  # re-entrant: a log handler may call `report` itself
        # By kind and key: the text, and how often it was repeated.
        self._repeated: dict[tuple[str, Hashable], tuple[str, int]] = {}
        self._timer: _Timer | None = None
        self._period = 0

    def report(self, key: Hashable, text: str, kind: str = "") -> None:
        """Log a text as one line, or count it if there was one with this key within the period.

        Args:
            key: the subject of the text.
            text: the text.
            kind: each kind has its own limit of `MAX_KEYS`, so that many keys of one kind don't
                hide the texts of another one. A program has few kinds.
        """
        with self._lock:
            text, full_key = one_line(text), (kind, key)
            if full_key not in self._repeated and self._count(kind) >= MAX_KEYS:
                full_key = kind, _OTHERS
                text = f"more than {MAX_KEYS} different warnings in {PERIOD_S:g} s"
            if full_key in self._repeated:
                text, count = self._repeated[full_key]
                self._repeated[full_key] = text, count + 1
                return
            self._repeated[full_key] = text, 0
            if self._timer is None:
                self._begin_period()
        self._logger.warning("%s", text)

    def close(self) -> None:
        """Log the counts, and begin anew with the next text."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = None
            repeated, self._repeated = self._repeated, {}
        self._log_counts(repeated)

    def _count(self, kind: str) -> int:
        return sum(1 for one, _ in self._repeated if one == kind)

    def _begin_period(self) -> None:
        self._period += 1
        self._timer = self._later(PERIOD_S, partial(self._end_period, self._period))

    def _end_period(self, period: int) -> None:
        with self._lock:
            if self._timer is None or self._period != period:
                return  # closed meanwhile
            self._timer = None
            repeated = self._repeated
            self._repeated = {key: (text, 0) for key, (text, count) in repeated.items() if count}
            if self._repeated:
                self._begin_period()
        self._log_counts(repeated)

    def _log_counts(self, repeated: Mapping[tuple[str, Hashable], tuple[str, int]]) -> None:
        for text, count in repeated.values():
            if count:
                self._logger.warning("%s (%d more times within %g s)", text, count, PERIOD_S)


def one_line(text: str) -> str:
    """Cut a text off after `MAX_CHARACTERS`, and escape line breaks and invisible characters."""
    return visible(text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS - 1]}…")
