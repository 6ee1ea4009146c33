"""Decide which partitions go into the next fetch request to one broker. Pure.

The queue keeps ready partitions separately, so the CPU time per request depends on how many are
ready, not on how many are assigned. A partition is urgent if it has become ready while a long poll
without it may be in flight, such as after a seek or a back-off. `plan_urgent` plans a request for
the urgent partitions that leaves beside the long poll.

Invariant: every ready partition goes into the next request, until MAX_EXPECTED_BYTES are expected
in the response. Exceptions: a partition that must be fetched alone (`next_fetch`) goes first, in a
request without the others, and is never urgent; a partition that can't borrow the memory that it
needs waits in the queue of `fetch_memory`, and is ready again, and urgent, when its turn comes.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Final

from aiokafka08.consumer.cursor import Cursor, PartitionFetch
from aiokafka08.consumer.fetch_memory import FetchMemory

SHORT_WAIT_S: Final = 0.002
"""The shortest wait of a request that leaves out partitions which may soon be ready; see `_wait_s`.
"""

ALONE_WAIT_S: Final = 0.5
"""The shortest wait of a request that tests whether the broker returns at once or holds the
response back until the wait is over (see `next_fetch`)."""

IDLE_WAIT_S: Final = 0.1
"""The lower limit of a request's maximum wait after an empty response; see `FetchQueue.idle`."""

MAX_EXPECTED_BYTES: Final = 8 * 1024 * 1024
"""The most bytes that are expected in the response to one request; the remaining partitions come
first in the next one. So a consumer that is behind in 1,000 partitions gets its first messages
soon, and one response takes little memory. A link of 1 Gbit/s with a round trip of 60 ms is still
filled."""


@dataclass(slots=True)
class FetchPlan:
    """The next request: its partitions, and how long the broker may wait for data."""

    fetches: list[PartitionFetch]
    wait_s: float
    alone: bool
    idle: bool = False  # whether any byte ends the wait, whatever `fetch_min_bytes` says


class FetchQueue:
    """The partitions that one broker leads, by state; see the module."""

    def __init__(self, node_id: int, memory: FetchMemory, max_wait_s: float) -> None:
        self.node_id = node_id
        self.cursors: set[Cursor] = set()  # all partitions of this queue
        # True if the last `plan` left out a partition because borrowed memory was exhausted; that
        # partition waits in the queue of `fetch_memory`
        self.queued = False
        # Whether the broker's response is overdue, or its last request has failed; set by `fail`,
        # and cleared by `fetcher` when a response comes
        self.failing = False
        # Set by `fetcher`: the options let the broker respond at once, and its last response was
        # empty. The next request then waits for the first byte, for up to IDLE_WAIT_S. Without this
        # pause an idle consumer would take all of a CPU.
        self.idle = False
        self._memory = memory
        self._max_wait_s = max_wait_s
        self._ready: dict[Cursor, None] = {}  # in the order in which they became ready
        self._urgent: dict[Cursor, None] = {}  # the ready ones that are urgent
        self._urgent_in_flight = False
        self._full: set[Cursor] = set()
        self._backing_off: list[tuple[float, int, Cursor]] = []  # a heap, by the back-off's end
        self._backoffs: set[tuple[float, Cursor]] = set()  # the ends and cursors in the heap
        self._number = 0
        self._last_left_out = 0.0  # when a partition became full, or was fetched urgently

    @property
    def has_urgent(self) -> bool:
        return bool(self._urgent)

    @property
    def has_backoffs(self) -> bool:
        return bool(self._backing_off)

    def add(self, cursor: Cursor, now: float) -> None:
        self.cursors.add(cursor)
        self.update(cursor, now)

    def remove(self, cursor: Cursor) -> None:
        """Remove a partition that the broker doesn't lead any more or that isn't assigned."""
        self.cursors.discard(cursor)
        self._leave_out(cursor)
        self._memory.stop_waiting(cursor)

    def update(self, cursor: Cursor, now: float) -> bool:
        """Move the cursor to its state after a change; return whether to plan again."""
        if cursor not in self.cursors or not cursor.wants_fetch:
            self._leave_out(cursor)
            self._memory.stop_waiting(cursor)
        elif cursor in self._ready and not cursor.urgent and not cursor.not_before:
            return False  # the usual case: its buffer was read
        elif cursor.not_before > now:
            self._leave_out(cursor)
            if (cursor.not_before, cursor) not in self._backoffs:
                self._backoffs.add((cursor.not_before, cursor))
                self._number += 1
                heapq.heappush(self._backing_off, (cursor.not_before, self._number, cursor))
                return True
        elif cursor.has_room(share := self._memory.share_of(cursor), self._memory.room_of(share)):
            known = len(self._ready) + len(self._urgent)
            self._full.discard(cursor)
            self._ready[cursor] = None
            if cursor.urgent and not cursor.next_fetch.alone:
                self._urgent[cursor] = None
            return len(self._ready) + len(self._urgent) > known
        elif cursor not in self._full:
            self._leave_out(cursor)
            self._full.add(cursor)
            self._last_left_out = now
        return False

    def fail(self, now: float) -> bool:
        """Record that the broker fails; return whether partitions had waited for memory."""
        # From now on its partitions neither borrow nor wait for borrowed memory.
        self.failing = True
        waiting = [cursor for cursor in self._memory.waiters if cursor in self.cursors]
        for cursor in waiting:
            self._memory.stop_waiting(cursor)
            self.update(cursor, now)
        return bool(waiting)

    def end_backoffs(self, now: float) -> float | None:
        """Update the partitions whose back-off is over; return the end of the next one, or None."""
        while self._backing_off:
            at, _, cursor = self._backing_off[0]
            if at > now:
                return at
            heapq.heappop(self._backing_off)
            self._backoffs.discard((at, cursor))
            if cursor.not_before == at:
                self.update(cursor, now)
        return None

    def plan(self, now: float, wait_limit_s: float) -> FetchPlan | None:
        """Return the next request, or None if nothing is ready or memory is overdrawn.

        The fetches in it are in flight from now on: apply a response to each, or abandon it.
        `wait_limit_s` is the longest wait that is allowed for this broker's version.
        """
        self.queued = False
        if self._memory.is_overdrawn:
            return None
        # `_plan` removes a partition that must wait for memory from `_ready`. If that was one to be
        # fetched alone, plan the others.
        while self._ready:
            if (plan := self._plan(now, wait_limit_s)) is not None:
                return plan
        return None

    def plan_urgent(self, now: float) -> FetchPlan | None:
        """As `plan`, for the urgent partitions and without a wait. Call `end_urgent` afterwards."""
        self.queued = False
        if self._memory.is_overdrawn:
            return None
        fetches = self._begin_fetches(list(self._urgent))
        if not fetches:
            return None
        self._urgent_in_flight = True
        self._last_left_out = now
        return FetchPlan(fetches, 0.0, False)

    def end_urgent(self) -> None:
        self._urgent_in_flight = False

    def _plan(self, now: float, wait_limit_s: float) -> FetchPlan | None:
        """As `plan`; None if no chosen partition could borrow the memory that it needs."""
        alone = next((cursor for cursor in self._ready if cursor.next_fetch.alone), None)
        fetches = self._begin_fetches(list(self._ready) if alone is None else [alone])
        if not fetches:
            return None
        for fetch in fetches:
            fetch.cursor.urgent = False
        if alone is not None:
            return FetchPlan(fetches, max(self._max_wait_s, ALONE_WAIT_S), True)
        return FetchPlan(fetches, min(self._wait_s(now), wait_limit_s), False, self.idle)

    def _begin_fetches(self, chosen: list[Cursor]) -> list[PartitionFetch]:
        """Begin the fetches of one request, as far as memory is granted."""
        fetches: list[PartitionFetch] = []
        expected_bytes = 0
        for cursor in chosen:
            if not self._memory.borrow(cursor, failing=self.failing):
                self._leave_out(cursor)
                self.queued = True
                cursor.urgent = True  # a long poll may be in flight when its turn comes
                continue
            share_bytes = self._memory.share_of(cursor)
            # A partition at its last known end adds no expected bytes.
            if not cursor.is_at_end:
                expected_bytes += cursor.fetch_bytes(share_bytes)
                if fetches and expected_bytes > MAX_EXPECTED_BYTES:
                    break
            self._leave_out(cursor)
            cursor.part_bytes = self._memory.part_bytes
            fetches.append(cursor.begin_fetch(share_bytes))
        return fetches

    def _leave_out(self, cursor: Cursor) -> None:
        self._ready.pop(cursor, None)
        self._urgent.pop(cursor, None)
        self._full.discard(cursor)

    def _wait_s(self, now: float) -> float:
        """Return how long the broker may wait for data."""
        if self._ready:  # MAX_EXPECTED_BYTES left some out
            return 0.0
        longest_s = max(self._max_wait_s, IDLE_WAIT_S) if self.idle else self._max_wait_s
        if not self._full and not self._urgent_in_flight:
            return longest_s
        # A partition whose buffer is full becomes ready when the user reads the buffer, and must
        # not wait for a long poll then. A user who has just read may soon read again, so the wait
        # is as long as the time since a partition last became full. A partition that is fetched
        # urgently is to join the next long poll soon, too.
        return min(max(now - self._last_left_out, SHORT_WAIT_S), longest_s)
