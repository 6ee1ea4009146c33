"""ResponseWatchdog about a broker that is silent: somebody else may lead its partitions by now.

A broker that hangs (paused, cut off without a reset) keeps its connections, so nothing tells that
it is gone before `request_timeout_ms`; the others know of a new leader far earlier. Law: an overdue
answer asks for metadata, and does nothing else; what a new leader means for what is under way is
for those who wait to decide.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Self

from aiokafka08.net.metadata import Metadata

OVERDUE_S = 2.0
"""How long after its expected time a silent broker is doubted."""


class ResponseWatchdog:
    """Watches one wait for a broker, from now to `end()` (or the end of a `with` block).

    Args:
        metadata: asked for new leaders when the answer is overdue, again and again.
        expected_s: seconds that the answer may well take.
        on_overdue: called each time too.

    Attributes:
        after_s: how long the broker may be silent.
        overdue: the answer should have come.
    """

    __slots__ = ("_loop", "_metadata", "_on_overdue", "_timer", "after_s", "overdue")

    def __init__(
        self,
        metadata: Metadata,
        *,
        expected_s: float = 0.0,
        on_overdue: Callable[[], object] | None = None,
    ) -> None:
        self.overdue = False
        self._metadata = metadata
        self._on_overdue = on_overdue
        self._loop = asyncio.get_running_loop()
        self.after_s = expected_s + OVERDUE_S
        self._timer = self._loop.call_later(self.after_s, self._complain)

    def end(self) -> None:
        """The answer has come, or nobody waits for it any longer."""
        self._timer.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def _complain(self) -> None:
        self.overdue = True
        self._timer = self._loop.call_later(OVERDUE_S, self._complain)
        self._metadata.request_refresh()
        if self._on_overdue is not None:
            self._on_overdue()
