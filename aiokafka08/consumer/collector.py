"""What the user takes: one message, many, or a walk; fairly over the partitions that have some.

Law: a message counts as taken when it is returned, and nothing is awaited between the taking and
the return: a call that is cancelled has taken nothing. Decoding goes in slices, with turns for the
event loop in between. Partitions take turns by slices; one whose messages were left over by a
limit comes last at the next call. An error of a partition is told when its messages before it are
taken: by `one` in the partition's turn, by `many` only where it has nothing else to give.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from operator import length_hint
from typing import NamedTuple

from aiokafka08.concurrency.notifier import Notifier
from aiokafka08.consumer.cursor import Cursor
from aiokafka08.consumer.record_buffer import Record
from aiokafka08.errors import CorruptRecordException
from aiokafka08.protocol.message_set import Columns
from aiokafka08.structs import TopicPartition

SLICE_RECORDS = 1000
"""How many messages are decoded at once."""

SLICE_S = 0.005
"""How long a call decodes before the event loop gets its turn."""

CALL_OPENED_BYTES = 128 * 1024 * 1024
"""A call that has decompressed so much hands out what there is, however many messages it may."""

Taken = dict[TopicPartition, list[Record]]


class TakenColumns(NamedTuple):
    """Messages of some partitions, one after the other, in columns."""

    columns: Columns
    runs: list[tuple[TopicPartition, int]]
    """How many are of which partition."""
    positions: dict[TopicPartition, int]
    """Where each partition stood before."""


class Collector:
    """Hands out what the cursors have buffered.

    Attributes:
        bell: rings when something has arrived, or a waiting call should look again.
        calls: how many calls there were that take messages, and `waiting` how many wait now. What
            is taken by walking is none.
        walk: the rest of the slice that is handed out, one message a step. Ends when the partition
            is sought, paused or taken away.

    Args:
        cursors: all that are assigned.
        check: raises where calls can't go on (stopped, failed).
        on_taken: called when a cursor's buffer has shrunk, or its error was told.
        on_starved: called before a call waits, with the cursors that it is about (None: all).
    """

    __slots__ = (
        "_check",
        "_cursors",
        "_on_starved",
        "_on_taken",
        "_ready",
        "_turn_ends",
        "bell",
        "calls",
        "waiting",
        "walk",
    )

    def __init__(
        self,
        cursors: Mapping[TopicPartition, Cursor],
        *,
        check: Callable[[], object],
        on_taken: Callable[[Cursor], object],
        on_starved: Callable[[set[Cursor] | None], object],
    ) -> None:
        self.bell = Notifier()
        self.walk: Iterator[Record] = iter(())
        self._cursors = cursors
        self._check = check
        self._on_taken = on_taken
        self._on_starved = on_starved
        self._ready: dict[Cursor, None] = {}  # whose turn it is, is first
        self._turn_ends = 0.0
        self.calls = 0
        self.waiting = 0

    def arrived(self, cursor: Cursor) -> None:
        """The cursor may have something to hand out."""
        if (
            cursor.has_something
            and not cursor.paused
            and not cursor.revoked
            and self._cursors.get(cursor.topic_partition) is cursor
        ):
            self._ready.setdefault(cursor)
        self.bell.notify()

    def withdraw(self, cursor: Cursor) -> None:
        """Nothing more of this cursor is handed out (until it arrives again)."""
        self._ready.pop(cursor, None)
        if self.walk is cursor.buffer.walk:
            self.walk = iter(())

    async def one(self, partitions: Collection[TopicPartition]) -> Record:
        """The next message, of the given partitions or of all."""
        partitions = dict.fromkeys(partitions)  # each once
        self.calls += 1
        while True:
            self._check()
            await self._let_others_work()
            record = self._next(partitions)
            if record is not None:
                return record
            if self._pending(partitions):
                continue
            self._on_starved(self._wanted(partitions))
            await self._wait_for_bell(None)

    async def many(
        self, partitions: Collection[TopicPartition], timeout_s: float, limit: int | None
    ) -> Taken:
        """What there is, at most `limit` messages; waits up to `timeout_s` for the first ones."""
        partitions = dict.fromkeys(partitions)  # each once
        self.calls += 1
        deadline = asyncio.get_running_loop().time() + timeout_s
        while True:
            self._check()
            rings = self.bell.count
            taken = await self._collect(partitions, limit)
            if taken or not await self._wait(partitions, deadline, rings):
                return taken

    async def columns(
        self, partitions: Collection[TopicPartition], timeout_s: float, limit: int
    ) -> TakenColumns:
        """As `many`, in columns: what can be decoded in `SLICE_S`, up to `limit` messages."""
        partitions = dict.fromkeys(partitions)  # each once
        self.calls += 1
        deadline = asyncio.get_running_loop().time() + timeout_s
        while True:
            self._check()
            rings = self.bell.count
            await self._let_others_work()
            taken = self._take_columns(partitions, limit)
            if not taken.runs and self._pending(partitions):
                continue
            if taken.runs or not await self._wait(partitions, deadline, rings):
                return taken

    # --- inside -----------------------------------------------------------------------------------

    async def _wait(
        self, partitions: Collection[TopicPartition], deadline: float, rings: int
    ) -> bool:
        """Wait for something to come since `rings`; False: the time is over."""
        if asyncio.get_running_loop().time() >= deadline:
            await asyncio.sleep(0)  # a caller who polls without waiting lets others work
            return False
        if self.bell.count == rings:  # else it came while others had their turn
            self._on_starved(self._wanted(partitions))
            await self._wait_for_bell(deadline)
        return True

    async def _wait_for_bell(self, deadline: float | None) -> None:
        self.waiting += 1
        try:
            await self.bell.wait(deadline)
        finally:
            self.waiting -= 1

    async def _let_others_work(self) -> None:
        """A turn for the event loop if the slice is over, be it within a call or over many."""
        loop = asyncio.get_running_loop()
        if loop.time() >= self._turn_ends:
            await asyncio.sleep(0)
            self._turn_ends = loop.time() + SLICE_S
            self._check()

    def _wanted(self, partitions: Collection[TopicPartition]) -> set[Cursor] | None:
        if not partitions:
            return None
        return {self._cursors[tp] for tp in partitions if tp in self._cursors}

    def _selected(self, partitions: Collection[TopicPartition]) -> Iterable[Cursor]:
        if not partitions:
            return list(self._ready)
        chosen = (self._cursors.get(tp) for tp in partitions)
        return [cursor for cursor in chosen if cursor is not None and cursor in self._ready]

    def _pending(self, partitions: Collection[TopicPartition]) -> bool:
        """Whether there is more to decode: a step of it may bring nothing (`TURN_BYTES`)."""
        return any(cursor.buffer.pending for cursor in self._selected(partitions))

    def _next(self, partitions: Collection[TopicPartition]) -> Record | None:
        if partitions:
            for cursor in self._selected(partitions):
                if self._begin(cursor):
                    return next(cursor.buffer.walk)
                if cursor.buffer.pending:
                    break  # not yet
            return None
        for record in self.walk:
            return record
        while self._ready:
            cursor = next(iter(self._ready))
            if self._begin(cursor):
                self.walk = cursor.buffer.walk
                return next(self.walk)
            if cursor.buffer.pending:
                break  # not yet
        return None

    def _begin(self, cursor: Cursor) -> bool:
        """Let the cursor's walk have a record next; its turn comes again behind the others'."""
        del self._ready[cursor]
        buffer = cursor.buffer
        try:
            if length_hint(buffer.walk) or buffer.next_slice():
                return True
            began = buffer.decode(SLICE_RECORDS) and buffer.next_slice()
            if not began and not buffer.pending:
                cursor.tell_error()
            return began
        finally:
            if cursor.has_something:
                self._ready[cursor] = None
            self._on_taken(cursor)

    async def _collect(self, partitions: Collection[TopicPartition], limit: int | None) -> Taken:
        """First decode enough, with turns for others; then take at once, or raise an error."""
        await self._let_others_work()
        cursors = self._selected(partitions)
        error: Exception | None = None
        missing = limit
        opened_bytes = 0
        found = False
        for cursor in cursors:
            buffer = cursor.buffer
            goal = buffer.end  # not what comes meanwhile: the call would have no end
            count = buffer.count
            while (
                buffer.decoded_to < goal
                and (missing is None or count < missing)
                and not (found and opened_bytes >= CALL_OPENED_BYTES)
            ):
                room = SLICE_RECORDS if missing is None else min(SLICE_RECORDS, missing - count)
                try:
                    if not buffer.decode(room):
                        break
                except Exception as failure:
                    error = error or failure
                    break
                finally:
                    self._on_taken(cursor)  # also where nothing was in what has been decoded
                count = buffer.count
                found = found or count > 0
                opened_bytes += buffer.opened_bytes
                await self._let_others_work()
            if missing is not None:
                missing -= count
                if missing <= 0:
                    break
        taken = self._take(cursors, limit)
        if not taken:
            if error is not None:
                raise error
            self._tell_errors(cursors)
        return taken

    def _take(self, cursors: Iterable[Cursor], limit: int | None) -> Taken:
        taken: Taken = {}
        for cursor in cursors:
            if cursor not in self._ready:
                continue  # paused, sought or taken away in the meantime
            records = cursor.buffer.take(limit)
            del self._ready[cursor]
            if cursor.has_something:
                self._ready[cursor] = None
            if records:
                taken[cursor.topic_partition] = records
                self._on_taken(cursor)
                if limit is not None:
                    limit -= len(records)
                    if limit <= 0:
                        break
        return taken

    def _take_columns(self, partitions: Collection[TopicPartition], limit: int) -> TakenColumns:
        """Decode and hand out at once, until the slice is over; or raise an error."""
        cursors = self._selected(partitions)
        columns = Columns()
        taken = TakenColumns(columns, [], {})
        error: Exception | None = None
        clock = asyncio.get_running_loop().time
        for index, cursor in enumerate(cursors):
            if index and (len(columns) >= limit or clock() >= self._turn_ends):
                break
            position = cursor.buffer.position
            count = 0
            try:
                while got := cursor.buffer.take_columns(
                    columns, min(SLICE_RECORDS, limit - len(columns))
                ):
                    count += got
                    if len(columns) >= limit or clock() >= self._turn_ends:
                        break
            except CorruptRecordException as failure:
                error = error or failure
            if count:
                del self._ready[cursor]
                if cursor.has_something:
                    self._ready[cursor] = None
                taken.runs.append((cursor.topic_partition, count))
                taken.positions[cursor.topic_partition] = position
            self._on_taken(cursor)
        if not taken.runs:
            if error is not None:
                raise error
            if not self._pending(partitions):
                self._tell_errors(cursors)
        return taken

    def _tell_errors(self, cursors: Iterable[Cursor]) -> None:
        for cursor in cursors:
            if cursor in self._ready and not cursor.buffer.pending:
                try:
                    cursor.tell_error()
                finally:
                    del self._ready[cursor]
                    self._on_taken(cursor)
