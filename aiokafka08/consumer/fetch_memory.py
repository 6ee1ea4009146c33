"""How much memory fetching may take, split over the partitions.

Pure. The law, for n assigned partitions: message sets that are asked for and message sets that are
buffered, undecoded, take together at most

    max(fetch_max_bytes, n x 16 KiB)  +  fetch_max_bytes for messages larger than a share

- A partition's share is min(max_partition_fetch_bytes, fetch_max_bytes / 2n), but 16 KiB at least:
  brokers below Fetch v3 know no limit of a whole answer (docs/brokers.md 7.9), so it is kept here.
  It may have one share buffered while the next one is on its way; where 16 KiB is the share, only
  one of both. So no partition lives at another's cost, whoever is slow or paused.
- A message larger than that is fetched with bytes lent from one pool for all, in the order of the
  requests. What a paused partition has borrowed is taken back (its sets are fetched again later)
  when another one needs it.

The sets stay in the frames that they came in: what has been read of these takes at most a quarter
of that again (`frames`).

With 1,000 partitions and the default of 50 MiB a share is 25.6 KiB. Not counted: Python objects
(`buffer.CHUNK_OVERHEAD_BYTES` a set is), an answer while it is being taken over, a compressed set
that is being read, what the user holds, the memory of up to two answers that a connection keeps for
the next ones (`protocol/frame`); sets shrink to new shares only as they are taken. Brokers from
0.11 on may exceed max_bytes by what down-conversion adds to one batch.
"""

from __future__ import annotations

from collections.abc import Collection

from aiokafka08.consumer.cursor import Cursor
from aiokafka08.consumer.frames import FrameStore
from aiokafka08.consumer.record_buffer import CHUNK_OVERHEAD_BYTES

FLOOR_BYTES = 16 * 1024
"""The least that a partition asks for, unless max_partition_fetch_bytes says less."""

_LEAST_BYTES = 64
"""A fetch shows at least a message's header, which tells its size (docs/brokers.md 7.1, 7.2)."""

_MOST_BYTES = 0x7FFFFFFF
"""max_bytes is an int32 on the wire."""


class FetchMemory:
    """Splits the memory; see the module.

    Attributes:
        share_bytes: what a partition asks for at once.
        room_bytes: what it may have buffered while it asks for more.
        limit_bytes: the largest message (or compressed set) that can be fetched.
        frames: the answers that the buffered sets are parts of.
    """

    def __init__(self, fetch_max_bytes: int, max_partition_fetch_bytes: int) -> None:
        self._total = fetch_max_bytes
        self._per_partition = min(max(max_partition_fetch_bytes, _LEAST_BYTES), _MOST_BYTES)
        self.limit_bytes = min(max(fetch_max_bytes, self._per_partition), _MOST_BYTES)
        self._lent: dict[Cursor, int] = {}
        self._queue: dict[Cursor, None] = {}
        self.share_bytes = self.room_bytes = 0
        self.frames = FrameStore()
        self.split(1)

    def split(self, partitions: int) -> None:
        """Split anew, for this many partitions."""
        even = self._total // (2 * max(partitions, 1))
        self.share_bytes = min(self._per_partition, max(even, FLOOR_BYTES))
        # An answer that was cut off at its limit takes a whole share, and its overhead.
        room_bytes = self.share_bytes + CHUNK_OVERHEAD_BYTES
        self.room_bytes = room_bytes if even >= self.share_bytes else 0
        self.frames.limit_bytes = max(self._total, partitions * FLOOR_BYTES) // 4

    def borrow(self, cursor: Cursor) -> bool:
        """Lend what the cursor's next fetch needs beyond its share; False: it has to queue."""
        extra = self._extra(cursor)
        if extra <= 0:
            self._queue.pop(cursor, None)
            return True
        first = next(iter(self._queue), cursor)
        if first is not cursor or not self._fits(cursor):
            self._queue.setdefault(cursor)
            return False
        self._queue.pop(cursor, None)
        self._lent[cursor] = cursor.extra_bytes = extra
        return True

    def give_back(self, cursor: Cursor) -> None:
        """The cursor needs no more than its share, for now."""
        if cursor.extra_bytes:
            del self._lent[cursor]
            cursor.extra_bytes = 0

    def leave(self, cursor: Cursor) -> None:
        """The cursor doesn't wait for its turn any more."""
        self._queue.pop(cursor, None)

    @property
    def queue(self) -> Collection[Cursor]:
        """Who wants to borrow and couldn't."""
        return self._queue.keys()

    def next_in_queue(self) -> Cursor | None:
        """Who could borrow now."""
        first = next(iter(self._queue), None)
        return first if first is not None and self._fits(first) else None

    def idle_borrowers(self, wanted: set[Cursor] | None) -> list[Cursor]:
        """Who holds lent bytes in its buffer while nobody wants its messages.

        `wanted`: the cursors that a waiting call is about; None: all that aren't paused.
        """
        return [
            cursor
            for cursor in self._lent
            if cursor.ask is None
            and cursor.buffer.buffered_bytes
            and (cursor.paused or (wanted is not None and cursor not in wanted))
        ]

    def _extra(self, cursor: Cursor) -> int:
        return cursor.fetch_bytes(self.share_bytes) - self.share_bytes

    def _fits(self, cursor: Cursor) -> bool:
        others = sum(self._lent.values()) - cursor.extra_bytes
        return not others or others + self._extra(cursor) <= self.limit_bytes
