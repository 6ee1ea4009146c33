"""Bound the memory of fetched message sets, and divide it among the assigned partitions. Pure.

Invariant, for n assigned partitions: the sets that are requested and the sets that are buffered
undecoded take together at most the sum of

    max(fetch_max_bytes, n x 16 KiB)                  for the shares, and
    max(fetch_max_bytes, max_partition_fetch_bytes)   for messages larger than a share

A message larger than a share is fetched with bytes borrowed from one pool for all partitions, in
the order of the requests. A slow or paused partition never takes the share of another one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from aiokafka08.consumer.cursor import Cursor
from aiokafka08.consumer.record_buffer import SET_OVERHEAD_BYTES, FrameStore

MIN_SHARE_BYTES: Final = 16 * 1024
"""The smallest share, unless max_partition_fetch_bytes is smaller."""

# A fetch must show at least a message's header, which states its size (docs/brokers.md 7.1, 7.2)
_MIN_FETCH_BYTES: Final = 64

# max_bytes is an int32 on the wire
_MAX_FETCH_BYTES: Final = 0x7FFFFFFF


class FetchMemory:
    """Shares and borrowed bytes of one consumer; see the module.

    The bound doesn't include responses to abandoned fetches (up to one per connection), the unused
    parts of kept frames (`record_buffer.FrameStore`), and Python's own objects.
    """

    def __init__(self, fetch_max_bytes: int, max_partition_fetch_bytes: int) -> None:
        self._total = fetch_max_bytes
        self._per_partition = min(
            max(max_partition_fetch_bytes, _MIN_FETCH_BYTES), _MAX_FETCH_BYTES
        )
        # The largest message (or compressed set) that can be fetched
        self.limit_bytes = min(max(fetch_max_bytes, self._per_partition), _MAX_FETCH_BYTES)
        self._borrowers: dict[Cursor, int] = {}
        self.waiters: dict[Cursor, None] = {}  # they wait to borrow; the first is served first
        self._removed: set[Cursor] = set()  # not assigned any more, with fetches in flight
        # `share_bytes`: what a partition fetches at once, unless its fetch has grown. For all three
        # see `divide`.
        self.share_bytes = self._largest_share_bytes = self.part_bytes = 0
        self._has_room = True
        self.frames = FrameStore()  # the received frames that hold the buffered sets
        self.divide(1)

    def divide(self, partitions: int) -> None:
        """Divide the memory among this many partitions."""
        # A partition may have one share buffered while it fetches the next one. Below Fetch v3
        # brokers know no limit for a whole response, so the shares bound it (docs/brokers.md 7.9).
        even = self._total // (2 * max(partitions, 1))
        self.share_bytes = min(self._per_partition, max(even, MIN_SHARE_BYTES))
        # What a fetch may grow to (`Cursor.growth`) while a broker needs long for each response.
        self._largest_share_bytes = min(max(even, self.share_bytes), _MAX_FETCH_BYTES)
        # If the minimum share leaves no room for a second one, fetch only into an empty buffer.
        self._has_room = even >= self.share_bytes
        buffered = 2 if self._has_room else 1
        # What a partition may have buffered without borrowing, with the overhead of sets.
        self.part_bytes = buffered * (self._largest_share_bytes + SET_OVERHEAD_BYTES)
        self.frames.limit_bytes = max(self._total, partitions * MIN_SHARE_BYTES) // 4

    def buffered_limit_bytes(self, cursors: Iterable[Cursor]) -> int:
        """Return what these assigned partitions may have buffered together."""
        # A buffer that was filled when there were fewer partitions may still exceed its new part;
        # it shrinks only as the user reads it.
        return self.limit_bytes + sum(max(cursor.part_bytes, self.part_bytes) for cursor in cursors)

    def share_of(self, cursor: Cursor) -> int:
        """Return what this partition fetches at once without borrowing."""
        return min(self.share_bytes * cursor.growth, self._largest_share_bytes)

    def room_of(self, share_bytes: int) -> int:
        """Return what a partition with this share may have buffered when it fetches more."""
        # A response that was cut at its limit takes a whole share, plus its overhead.
        return share_bytes + SET_OVERHEAD_BYTES if self._has_room else 0

    def borrow(self, cursor: Cursor, *, failing: bool = False) -> bool:
        """Grant what the cursor's next fetch needs beyond its share; False if it has to wait."""
        extra = self._extra_bytes(cursor)
        # A long poll at the log's end, or an overdue response, would hold borrowed bytes for long.
        # So fetch a share. When a large message comes, borrow and fetch again.
        if extra > 0 and (failing or cursor.is_at_end):
            cursor.next_fetch.size_bytes = 0  # as after a response without messages
            extra = self._extra_bytes(cursor)
        if extra <= 0:
            self.release(cursor)  # what is buffered fits into its part, else it couldn't fetch
            self.waiters.pop(cursor, None)
            return True
        first = next(iter(self.waiters), cursor)
        if first is not cursor or not self._fits(cursor):
            self.waiters.setdefault(cursor)
            return False
        self.waiters.pop(cursor, None)
        self._borrowers[cursor] = cursor.borrowed_bytes = extra
        return True

    def release(self, cursor: Cursor) -> None:
        """Take back what the cursor has borrowed, if anything."""
        if cursor.borrowed_bytes:
            del self._borrowers[cursor]
            cursor.borrowed_bytes = 0

    def remove(self, cursor: Cursor) -> None:
        """Forget an unassigned cursor, once nothing is in flight for it."""
        self.release(cursor)
        if cursor.requested_bytes:
            # Counts as borrowed until the response has come. The fetcher then calls this again.
            self._removed.add(cursor)
        else:
            self._removed.discard(cursor)

    @property
    def removed_bytes(self) -> int:
        """Bytes that are still requested for partitions that aren't assigned any more."""
        return sum(cursor.requested_bytes for cursor in self._removed)

    @property
    def is_overdrawn(self) -> bool:
        """Whether no fetch may begin, since fetches of removed partitions overdraw the pool."""
        return bool(self._removed) and self._borrowed_bytes > self.limit_bytes

    def stop_waiting(self, cursor: Cursor) -> None:
        self.waiters.pop(cursor, None)

    def next_waiter(self) -> Cursor | None:
        """Return the first waiter if there are enough free bytes for it now; else None."""
        first = next(iter(self.waiters), None)
        return first if first is not None and self._fits(first) else None

    def idle_borrowers(self, wanted: set[Cursor] | None) -> list[Cursor]:
        """Return the cursors whose buffers hold borrowed bytes, and that no call wants to read.

        `wanted`: the cursors that calls want to read; None: all that aren't paused.
        """
        return [
            cursor
            for cursor in self._borrowers
            if cursor.in_flight is None
            and cursor.buffer.buffered_bytes
            and (cursor.paused or (wanted is not None and cursor not in wanted))
        ]

    def _extra_bytes(self, cursor: Cursor) -> int:
        share_bytes = self.share_of(cursor)
        extra = cursor.fetch_bytes(share_bytes) - share_bytes
        if cursor.superseded_bytes:  # the buffer is empty, so these bytes may use its room
            room_bytes = self._largest_share_bytes if self._has_room else 0
            extra += cursor.superseded_bytes - room_bytes
        return extra

    def _fits(self, cursor: Cursor) -> bool:
        other_bytes = self._borrowed_bytes - cursor.borrowed_bytes
        # A fetch never exceeds `limit_bytes`, so a single borrower always fits, except beside a
        # superseded fetch of its own.
        return other_bytes + self._extra_bytes(cursor) <= self.limit_bytes

    @property
    def _borrowed_bytes(self) -> int:
        return sum(self._borrowers.values()) + self.removed_bytes
