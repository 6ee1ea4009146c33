"""Times by key, the earliest first. Pure.

A heap whose entries are dropped lazily: setting and discarding cost O(log n) at most, and what is
no longer wanted is swept out before it outgrows what is.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Timers(Generic[K]):
    """One time per key."""

    __slots__ = ("_heap", "_pushed", "_times")

    def __init__(self) -> None:
        self._times: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._pushed = 0  # breaks ties: keys needn't be comparable

    def __len__(self) -> int:
        return len(self._times)

    def __iter__(self) -> Iterator[K]:
        return iter(self._times)

    def set(self, key: K, time: float) -> None:
        """Give a key its time, in place of the one it had."""
        self._times[key] = time
        self._pushed += 1
        heapq.heappush(self._heap, (time, self._pushed, key))
        if len(self._heap) > 2 * len(self._times) + 64:
            self._heap = [entry for entry in self._heap if self._times.get(entry[2]) == entry[0]]
            heapq.heapify(self._heap)

    def discard(self, key: K) -> None:
        """Forget a key; it needn't be there."""
        self._times.pop(key, None)

    def first(self) -> float | None:
        """The earliest time of all."""
        heap = self._heap
        while heap:
            time, _, key = heap[0]
            if self._times.get(key) == time:
                return time
            heapq.heappop(heap)
        return None

    def pop_due(self, now: float) -> Iterator[K]:
        """Yields and forgets the keys whose time has come, earliest first."""
        while (time := self.first()) is not None and time <= now:
            key = heapq.heappop(self._heap)[2]
            del self._times[key]
            yield key
