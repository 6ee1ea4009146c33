"""Look for topics that don't exist yet more often than `metadata_max_age_ms` says.

Invariant: while the same topics are missing, the pauses between two requests grow to a second, and
after SOON_LOOKS requests to five seconds. A topic that brokers refuse to show isn't looked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from aiokafka08._core.net.router import Router

SOON_LOOKS: Final = 10
"""How many requests follow one another within about a second."""

LONG_PAUSE_S: Final = 5.0
"""The pause between the requests after these."""


class TopicSearch:
    """Request the metadata again while topics are missing."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._backoff = router.config.backoff()
        self._slow_backoff = router.config.backoff(at_least_s=LONG_PAUSE_S)
        self._missing: frozenset[str] = frozenset()

    def next_look(self, topics: Iterable[str]) -> float | None:
        """Request a refresh if a topic is missing; return the time of the next call, or None."""
        missing = frozenset(filter(self._router.metadata.snapshot.is_missing, topics))
        if missing != self._missing:
            self._missing = missing
            self._backoff.reset()
        if not missing:
            return None
        self._router.metadata.request_refresh()
        is_soon = self._backoff.attempts < SOON_LOOKS
        backoff = self._backoff if is_soon else self._slow_backoff
        return asyncio.get_running_loop().time() + backoff.next()
