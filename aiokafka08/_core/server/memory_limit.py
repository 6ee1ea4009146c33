"""`MemoryLimit`: a limit on the memory that the connections of a server hold together.

All listeners of a server share one `MemoryLimit`.

Invariant: the reported bytes of requests and unread responses are within the limit after each
report.
"""

from __future__ import annotations

import operator
from typing import Protocol


class MemoryHolder(Protocol):
    """A connection, as `MemoryLimit` sees it."""

    def drop_kept(self) -> int:
        """Free the memory that only makes later requests faster; return how many bytes."""

    def evict(self, reason: str) -> None:
        """Close the connection at once and log the reason."""


class MemoryLimit:
    """The memory of all connections of a server, and the limit.

    Args:
        limit_bytes: close connections when they hold more than this together.
        option: the name of the option that sets the limit, for the reason of an eviction.
    """

    def __init__(self, limit_bytes: int, option: str) -> None:
        self._limit_bytes = limit_bytes
        self._option = option
        self._held: dict[MemoryHolder, int] = {}
        self._total_bytes = 0

    def holds(self, holder: MemoryHolder, held_bytes: int) -> bool:
        """Note how many bytes a connection holds; return False if this has closed it."""
        self._total_bytes += held_bytes - self._held.get(holder, 0)
        self._held[holder] = held_bytes
        if self._total_bytes > self._limit_bytes:
            self._reduce()
        return holder in self._held

    def forget(self, holder: MemoryHolder) -> None:
        """Remove a connection that has ended."""
        self._total_bytes -= self._held.pop(holder, 0)

    def _reduce(self) -> None:
        # Until 1/32 of the limit is free. This looks at all connections, so it mustn't happen at
        # each report; and to free much at once would take long.
        enough_bytes = self._limit_bytes * 31 // 32
        # Free buffers for later requests first: without them the connections are only slower.
        for holder in self._held:
            freed_bytes = holder.drop_kept()
            self._held[holder] -= freed_bytes
            self._total_bytes -= freed_bytes
            if self._total_bytes <= enough_bytes:
                return
        if self._total_bytes <= self._limit_bytes:
            return
        by_size = sorted(self._held.items(), key=operator.itemgetter(1))
        while self._total_bytes > enough_bytes:
            largest, held_bytes = by_size.pop()
            self.forget(largest)
            largest.evict(
                f"it holds {held_bytes} bytes of requests and responses, the most of all "
                f"connections; {self._option}={self._limit_bytes} for all together"
            )
