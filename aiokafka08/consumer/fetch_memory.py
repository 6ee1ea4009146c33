"""Bound the memory of fetched message sets, and divide it among the assigned partitions.

Pure. `fetch_plan` borrows from it for each request; `fetcher` divides it and returns what was
borrowed. Invariant, for n assigned partitions: the sets that are requested and the sets that are
buffered undecoded take together at most the sum of

    max(fetch_max_bytes, n x 16 KiB)                  for the shares, and
    max(fetch_max_bytes, max_partition_fetch_bytes)   for messages larger than a share

- The share of a partition is fetch_max_bytes / 2n, but at least 16 KiB; max_partition_fetch_bytes
  bounds it, also below 16 KiB. Below Fetch v3 brokers know no limit for a whole response
  (docs/brokers.md 7.9), so the limit is kept here. A partition may have one share buffered while it
  fetches the next one. If fetch_max_bytes / 2n is less than the share (there are so many partitions
  that the minimum of 16 KiB applies), a partition fetches only while its buffer is empty. So a slow
  or paused partition never takes the memory of another one.
- While a broker needs long for each response, a fetch may grow to several shares (`Cursor.growth`),
  up to fetch_max_bytes / 2n, of which one may be buffered while the next one is fetched.
- A fetch that was requested and then superseded (by `seek()`, for instance) counts until its
  response has come. Until then the partition fetches only into an empty buffer, and borrows what
  both fetches take beyond the partition's part.
- A fetch of a partition that isn't assigned any more counts as borrowed until its response has
  come. If more than the pool is borrowed then, no other fetch begins before that. Exception: when
  no partition of a broker is left, because all were removed or have moved, `fetcher` doesn't wait
  for its responses. These fetches stop counting at once, and the connection drops the responses.
- A message larger than a share is fetched with bytes borrowed from one pool for all partitions, in
  the order of the requests. When another partition needs these bytes, they are taken back from a
  partition that is paused or that no waiting call reads. Its sets are dropped and fetched again
  later.
- A partition at its end doesn't borrow, since its long poll would hold the bytes for up to
  fetch_max_wait_ms. It fetches a share; when a large message comes, it borrows and fetches again.
- A partition of a broker whose response is overdue neither borrows nor waits for borrowed bytes: it
  fetches a share until the broker responds. What the broker's requests in flight have borrowed is
  taken back when another partition waits and the broker sends nothing (`fetcher`). These fetches
  stop counting at once, and the connection drops their responses. So up to one response per
  connection comes on top of the bound.

Each buffered set is a view into the response frame in which it came, and keeps that frame in
memory. The parts of these frames that belong to no buffered set come on top of the bound: at most a
quarter of max(fetch_max_bytes, n x 16 KiB) (`record_buffer.FrameStore`).

With 1,000 partitions and the default of 50 MiB a share is 25.6 KiB. The bound doesn't count these:
Python objects (SET_OVERHEAD_BYTES per set), a response while it is applied, a compressed set that
is being read, the records that the user holds, and the memory of up to two responses that each
connection keeps for the next ones (`protocol.frame`). When more partitions are assigned, each share
becomes smaller; a buffer that exceeds its new share shrinks only as the user reads it. Brokers from
0.11 on may exceed max_bytes by what down-conversion adds to one batch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
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

    Attributes:
        part_bytes: what a partition may have buffered without borrowing, with the overhead of sets.
    """

    def __init__(self, fetch_max_bytes: int, max_partition_fetch_bytes: int) -> None:
        self._total = fetch_max_bytes
        self._per_partition = min(
            max(max_partition_fetch_bytes, _MIN_FETCH_BYTES), _MAX_FETCH_BYTES
        )
        # The largest message (or compressed set) that can be fetched
        self.limit_bytes = min(max(fetch_max_bytes, self._per_partition), _MAX_FETCH_BYTES)
        self._borrowers: dict[Cursor, int] = {}
        self._waiters: dict[Cursor, None] = {}  # the first one is served first
        self._removed: set[Cursor] = set()  # not assigned any more, with fetches in flight
        # What a partition fetches at once, unless the fetch has grown
        self.share_bytes = self._largest_share_bytes = self.part_bytes = 0
        self._has_room = True
        self.frames = FrameStore()  # the received frames that hold the buffered sets
        self.divide(1)

    def divide(self, partitions: int) -> None:
        """Divide the memory among this many partitions."""
        even = self._total // (2 * max(partitions, 1))
        self.share_bytes = min(self._per_partition, max(even, MIN_SHARE_BYTES))
        self._largest_share_bytes = min(max(even, self.share_bytes), _MAX_FETCH_BYTES)
        # With the minimum of 16 KiB there is no second share: fetch only into an empty buffer.
        self._has_room = even >= self.share_bytes
        buffered = 2 if self._has_room else 1
        self.part_bytes = buffered * (self._largest_share_bytes + SET_OVERHEAD_BYTES)
        self.frames.limit_bytes = max(self._total, partitions * MIN_SHARE_BYTES) // 4

    def buffered_limit_bytes(self, cursors: Iterable[Cursor]) -> int:
        """Return what these assigned partitions may have buffered together.

        A buffer that was filled when there were fewer partitions may still exceed its new part.
        """
        return self.limit_bytes + sum(max(cursor.part_bytes, self.part_bytes) for cursor in cursors)

    def share_of(self, cursor: Cursor) -> int:
        """Return what this partition fetches at once without borrowing."""
        return min(self.share_bytes * cursor.growth, self._largest_share_bytes)

    def room_of(self, cursor: Cursor) -> int:
        """Return what this partition may have buffered when it fetches more."""
        # A response that was cut at its limit takes a whole share, plus its overhead.
        return self.share_of(cursor) + SET_OVERHEAD_BYTES if self._has_room else 0

    def borrow(self, cursor: Cursor, *, failing: bool = False) -> bool:
        """Grant what the cursor's next fetch needs beyond its share.

        Args:
            cursor: the partition to fetch.
            failing: whether its leader's response is overdue, or its last request has failed.

        Returns:
            False if the bytes aren't free: the cursor waits now, after those that wait already.
        """
        extra = self._extra_bytes(cursor)
        if extra > 0 and (failing or cursor.is_at_end):
            cursor.next_fetch.size_bytes = 0  # as after a response without messages
            extra = self._extra_bytes(cursor)
        if extra <= 0:
            self.release(cursor)  # what is buffered fits into its part, else it couldn't fetch
            self._waiters.pop(cursor, None)
            return True
        first = next(iter(self._waiters), cursor)
        if first is not cursor or not self._fits(cursor):
            self._waiters.setdefault(cursor)
            return False
        self._waiters.pop(cursor, None)
        self._borrowers[cursor] = cursor.borrowed_bytes = extra
        return True

    def release(self, cursor: Cursor) -> None:
        """Take back what the cursor has borrowed, if anything."""
        if cursor.borrowed_bytes:
            del self._borrowers[cursor]
            cursor.borrowed_bytes = 0

    def remove(self, cursor: Cursor) -> None:
        """Forget a cursor that isn't assigned any more, once nothing is in flight for it.

        Call this again when a response to it has come.
        """
        self.release(cursor)
        if cursor.requested_bytes:
            self._removed.add(cursor)
        else:
            self._removed.discard(cursor)

    @property
    def removed_bytes(self) -> int:
        """What is still in flight for partitions that aren't assigned any more."""
        return sum(cursor.requested_bytes for cursor in self._removed)

    @property
    def is_overdrawn(self) -> bool:
        """Whether no fetch may begin: more than the pool is borrowed, by removed partitions too."""
        return bool(self._removed) and self._borrowed_bytes > self.limit_bytes

    def stop_waiting(self, cursor: Cursor) -> None:
        """Remove the cursor from the waiters."""
        self._waiters.pop(cursor, None)

    @property
    def waiters(self) -> Collection[Cursor]:
        """The cursors that wait for borrowed bytes, in order."""
        return self._waiters.keys()

    def next_waiter(self) -> Cursor | None:
        """Return the first waiter if there are enough free bytes for it now."""
        first = next(iter(self._waiters), None)
        return first if first is not None and self._fits(first) else None

    def idle_borrowers(self, wanted: set[Cursor] | None) -> list[Cursor]:
        """Return the cursors with borrowed bytes in a buffer that no call reads.

        Args:
            wanted: the cursors that a waiting call wants to read; None: all that aren't paused.
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
        if cursor.superseded_bytes:  # the buffer is empty: its room is free for them
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
