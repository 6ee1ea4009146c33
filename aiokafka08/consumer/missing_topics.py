"""Report topics that don't exist, whether the consumer names them at its start or later.

Invariant: a topic is reported once at most (`TopicMissing`), not before it has been missing for
`NetLimits.topic_unknown_s`, and without a request that could create it. At most MOST_REPORTED of
the topics that are missing at one time are reported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from aiokafka08._core.concurrency.task_set import TaskSet
from aiokafka08._core.net.router import Router
from aiokafka08.consumer.subscription import Subscription

MOST_REPORTED: Final = 10
"""Limits the work: each report needs a list of all topics, and compares their names."""


class MissingTopicReporter:
    """Checks the named topics while one is missing.

    `on_failure` is called with an exception of the background task, which is a bug.
    """

    def __init__(
        self,
        router: Router,
        subscription: Subscription,
        on_failure: Callable[[BaseException], object],
    ) -> None:
        self._router = router
        self._subscription = subscription
        self._tasks = TaskSet(on_failure)
        self._is_watching = False

    def watch(self) -> None:
        """Start the checks if a topic is missing; call after changes of topics or metadata."""
        if self._missing() and not self._is_watching:
            self._is_watching = True
            self._tasks.start(self._watch(), "aiokafka08 missing topics")

    async def stop(self) -> None:
        self._is_watching = True  # `watch` starts nothing any more
        await self._tasks.cancel()

    async def _watch(self) -> None:
        before: set[str] = set()
        while missing := self._missing():
            for topic in [topic for topic in missing if topic in before][:MOST_REPORTED]:
                self._router.metadata.warn_missing(topic)
            before = set(missing)
            await asyncio.sleep(self._router.config.limits.topic_unknown_s)
        self._is_watching = False

    def _missing(self) -> list[str]:
        snapshot = self._router.metadata.snapshot
        return list(filter(snapshot.is_missing, self._subscription.unknown(snapshot)))
