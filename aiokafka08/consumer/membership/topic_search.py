"""Look for topics that don't exist yet more often than `metadata_max_age_ms` says.

Invariant: while the same topics are missing, the pauses between two requests grow to a second, and
after SOON_LOOKS requests to five seconds. A topic that brokers refuse to show isn't looked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from aiokafka08._core.net.router import Router
from aiokafka08.errors import TopicAuthorizationFailedError

SOON_LOOKS: Final = 10
"""How many requests follow one another within about a second."""

LONG_PAUSE_S: Final = 5.0
"""The pause between the requests after these. Before the first one, a warning names the topics."""

# How many missing topics have a warning
_MOST_WARNINGS: Final = 10


class TopicSearch:
    """Request the metadata again while topics are missing."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._backoff = router.config.backoff()
        self._slow_backoff = router.config.backoff(at_least_s=LONG_PAUSE_S)
        self._missing: frozenset[str] = frozenset()

    def next_look(self, topics: Iterable[str]) -> float | None:
        """Request a refresh if a topic is missing; return the loop time of the next call."""
        missing = frozenset(topic for topic in topics if self._is_missing(topic))
        if missing != self._missing:
            self._missing = missing
            self._backoff.reset()
        if not missing:
            return None
        self._router.metadata.request_refresh()
        if self._backoff.attempts < SOON_LOOKS:
            backoff = self._backoff
        else:
            backoff = self._slow_backoff
            for topic in sorted(missing)[:_MOST_WARNINGS]:
                self._router.metadata.warn_missing(topic)
        return asyncio.get_running_loop().time() + backoff.next()

    def _is_missing(self, topic: str) -> bool:
        info = self._router.metadata.snapshot.topics.get(topic)
        if info is None:
            return True
        # Only an operator ends a lack of authorization, and a refresh by age notices that.
        return not info.partitions and info.error_code != TopicAuthorizationFailedError.errno
