"""What one broker is asked next: the partitions that it leads, queued by what they wait for.

Pure. A partition is ready, full (its buffer must be taken first), backing off, or out (paused,
without a position, being asked for). Law: everything that is ready goes into the next request; a
partition that isn't never holds one up. Each change of a cursor is told by `offer`, so a request
costs what is in it and not what is assigned. `fetcher` sends.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection
from dataclasses import dataclass

from aiokafka08.consumer.cursor import Cursor, PartitionFetch
from aiokafka08.consumer.fetch_memory import FetchMemory

SHORT_WAIT_S = 0.002
"""The least wait of a fetch that leaves out partitions whose buffers are full: see `_wait`."""

ALONE_WAIT_S = 0.5
"""The least wait of a fetch that finds out whether a broker waits (`reach`)."""

MAX_ASKED_BYTES = 128 * 1024 * 1024
"""What one request asks for at most; the rest goes first into the next one."""


@dataclass(slots=True)
class FetchPlan:
    """The next request: its partitions, and how long the broker may wait for data."""

    asks: list[PartitionFetch]
    wait_s: float
    alone: bool


class FetchQueue:
    """The partitions that one broker leads.

    Attributes:
        queued: whether the last `plan` had to leave one out that waits for lent memory now.
    """

    def __init__(self, node_id: int, shares: FetchMemory, max_wait_s: float) -> None:
        self.node_id = node_id
        self.cursors: set[Cursor] = set()
        self.queued = False
        self._shares = shares
        self._max_wait_s = max_wait_s
        self._ready: dict[Cursor, None] = {}  # in the order in which they became so
        self._full: dict[Cursor, float] = {}  # since when
        self._delayed: list[tuple[float, int, Cursor]] = []
        self._number = 0
        self._last_full = 0.0

    def add(self, cursor: Cursor, now: float) -> None:
        """The broker leads this partition now."""
        self.cursors.add(cursor)
        self.offer(cursor, now)

    def remove(self, cursor: Cursor) -> None:
        """The broker doesn't lead it any more, or nobody reads it."""
        self.cursors.discard(cursor)
        self._ready.pop(cursor, None)
        self._full.pop(cursor, None)
        self._shares.leave(cursor)

    def offer(self, cursor: Cursor, now: float) -> bool:
        """The cursor may have changed; True if it is ready now."""
        if cursor not in self.cursors or not cursor.wanted:
            self._ready.pop(cursor, None)
            self._full.pop(cursor, None)
            self._shares.leave(cursor)
        elif cursor.not_before > now:
            self._ready.pop(cursor, None)
            self._full.pop(cursor, None)
            self._number += 1
            heapq.heappush(self._delayed, (cursor.not_before, self._number, cursor))
            return True  # the loop has to look when that will be
        elif cursor.fetchable(self._shares.room_bytes, self._shares.share_bytes):
            self._full.pop(cursor, None)
            self._ready[cursor] = None
            return True
        elif cursor not in self._full:
            self._ready.pop(cursor, None)
            self._full[cursor] = self._last_full = now
        return False

    def due(self, now: float) -> float | None:
        """Let those whose back-off is over be ready; when the next one will be."""
        while self._delayed:
            at, _, cursor = self._delayed[0]
            if at > now:
                return at
            heapq.heappop(self._delayed)
            if cursor.not_before == at:
                self.offer(cursor, now)
        return None

    def plan(self, now: float, wait_limit_s: float) -> FetchPlan | None:
        """The next request; None where nothing is ready. `wait_limit_s`: for this line of brokers.

        What is in it counts as asked for: answer it or give it up.
        """
        self.queued = False
        while self._ready:  # one that was to be asked alone may have to queue: then the others
            if (found := self._plan(now, wait_limit_s)) is not None:
                return found
        return None

    def _plan(self, now: float, wait_limit_s: float) -> FetchPlan | None:
        """As `plan`; None where none of those chosen got the memory it needs."""
        alone = next((cursor for cursor in self._ready if cursor.reach.alone), None)
        chosen: Collection[Cursor] = list(self._ready) if alone is None else [alone]
        asks: list[PartitionFetch] = []
        asked_bytes = 0
        for cursor in chosen:
            if not self._shares.borrow(cursor):
                del self._ready[cursor]
                self.queued = True
                continue
            asked_bytes += cursor.fetch_bytes(self._shares.share_bytes)
            if asks and asked_bytes > MAX_ASKED_BYTES:
                break
            del self._ready[cursor]
            asks.append(cursor.request(self._shares.share_bytes))
        if not asks:
            return None
        if alone is not None:
            return FetchPlan(asks, max(self._max_wait_s, ALONE_WAIT_S), True)
        return FetchPlan(asks, min(self._wait(now), wait_limit_s), False)

    def _wait(self, now: float) -> float:
        """How long the broker may wait for data.

        A partition whose buffer is full isn't asked for, but may be emptied in the next moment, and
        then must not wait behind an idle poll: so the poll is as short as the last one has been
        full, from 2 ms up to the whole wait for a user who takes nothing for long.
        """
        if not self._full or self._ready:
            return self._max_wait_s if not self._ready else 0.0
        return min(max(now - self._last_full, SHORT_WAIT_S), self._max_wait_s)
