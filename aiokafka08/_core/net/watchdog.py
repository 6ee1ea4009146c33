"""Refresh the metadata while a broker's response is overdue.

A broker that hangs (paused, or cut off without a TCP reset) keeps its connections open, so a
client notices only after `request_timeout_ms`. The other brokers know of a new leader much earlier.

Invariant: an overdue response only triggers a metadata refresh and the `on_overdue` callback. The
producer's sinks and the consumer's fetcher decide what a new leader means for their requests in
flight. The fetcher's requests also have their deadline here, so that each has only one timer.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Self

from aiokafka08._core.net.metadata_cache import Metadata


class ResponseWatchdog:
    """Watch one response, from construction until `stop()` or the end of a `with` block.

    Args:
        metadata: refreshed each time that the watchdog fires.
        overdue_s: seconds beyond `expected_s` after which the response is overdue. The watchdog
            fires then, and every `overdue_s` seconds from then on (`NetLimits.overdue_s`).
        expected_s: seconds that the response may take on a healthy broker.
        on_overdue: called each time that the watchdog fires.
        timeout_s: seconds after which the watchdog calls `on_timeout`, and stops watching.
        on_timeout: see `timeout_s`.
    """

    __slots__ = (
        "_deadline",
        "_due",
        "_loop",
        "_metadata",
        "_on_overdue",
        "_on_timeout",
        "_overdue_s",
        "_timer",
        "limit_s",
    )

    def __init__(
        self,
        metadata: Metadata,
        overdue_s: float,
        *,
        expected_s: float = 0.0,
        on_overdue: Callable[[], object] | None = None,
        timeout_s: float = math.inf,
        on_timeout: Callable[[], object] | None = None,
    ) -> None:
        self._metadata = metadata
        self._on_overdue = on_overdue
        self._on_timeout = on_timeout
        self._loop = asyncio.get_running_loop()
        self._overdue_s = overdue_s
        self.limit_s = expected_s + overdue_s  # seconds after which the response is overdue
        now = self._loop.time()
        self._deadline = now + timeout_s
        self._set_timer(now + self.limit_s)

    def stop(self) -> None:
        """Stop watching: the response has arrived, or the caller has given it up."""
        self._timer.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _fire(self) -> None:
        self._metadata.request_refresh()
        if self._on_overdue is not None:
            self._on_overdue()
        if self._due < self._deadline:
            self._set_timer(self._due + self._overdue_s)
        elif self._on_timeout is not None:
            self._on_timeout()

    def _set_timer(self, due: float) -> None:
        # `_fire` reads `_due`, not the clock, because uvloop may run a timer up to a millisecond
        # early. It can't read the timer's `when()`: if the time is in the past, uvloop's `call_at`
        # returns a Handle without it.
        self._due = min(due, self._deadline)
        self._timer = self._loop.call_at(self._due, self._fire)
