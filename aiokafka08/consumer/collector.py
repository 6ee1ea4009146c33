"""Return buffered messages to the calls that take them: getone, getmany, getmany_arrow, async for.

Invariants: a message counts as taken when the call (or a step of `remaining`) returns it. Nothing
is awaited between taking a message and returning it, so a cancelled call has taken nothing. The
error of a partition is raised by the next call that reads the partition, after the messages before
it were returned, and before the call takes messages of other partitions. Of the calls pending at
the stop only `get_one` raises `ConsumerStoppedError`; the others return nothing.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from operator import length_hint
from typing import Final, NamedTuple, TypeVar

from aiokafka08._core.concurrency.loop_yield import LoopSlice
from aiokafka08._core.concurrency.notifier import Notifier
from aiokafka08._core.concurrency.offload import Offload
from aiokafka08.consumer.cursor import Cursor
from aiokafka08.consumer.limits import CONSUMER_LIMITS
from aiokafka08.consumer.observer import ConsumerObserver
from aiokafka08.consumer.record_buffer import Record
from aiokafka08.errors import ConsumerStoppedError, CorruptRecordException
from aiokafka08.protocol.message_set import ColumnMemory, Columns
from aiokafka08.structs import TopicPartition

SLICE_RECORDS: Final = 1000
"""How many messages are decoded to records in one step."""

SLICE_COLUMN_RECORDS: Final = 2000
"""How many messages are decoded to columns in one step: some 2 ms with the pure-Python twin."""

CALL_COLUMN_BYTES: Final = 4 * 1024 * 1024
"""A `get_columns` call returns once it has this many bytes of keys and values, even if these are
fewer messages than its limit. This bounds how long it decodes and how much memory is kept."""

KNOWN_ERROR_WAIT_S: Final = 0.2
"""How long `get_one` waits for other partitions before it raises a known error again."""

RecordsByPartition = dict[TopicPartition, list[Record]]

T = TypeVar("T")

KnownErrors = list[tuple[Cursor, Exception]]
"""The errors that a call has met and that an earlier call raised, with their cursors."""


class CollectedColumns(NamedTuple):
    """Messages as columns, partition by partition."""

    columns: Columns
    # The partitions in the order of the rows, with their numbers of rows
    runs: list[tuple[TopicPartition, int]]
    positions: dict[TopicPartition, int]  # the position of each partition before the call


class Collector:
    """Serve calls from the buffers of the assigned cursors; see the module."""

    __slots__ = (
        "_call_decompressed_bytes",
        "_column_memory",
        "_cursors",
        "_new_slice",
        "_observer",
        "_offload",
        "_ready",
        "_served",
        "_slice",
        "call_count",
        "changed",
        "remaining",
        "waiting_calls",
    )

    def __init__(
        self,
        cursors: Mapping[TopicPartition, Cursor],
        observer: ConsumerObserver,
        offload: Offload,
        *,
        call_decompressed_bytes: int = CONSUMER_LIMITS.call_decompressed_bytes,
        new_slice: Callable[[], LoopSlice] = LoopSlice,
    ) -> None:
        self.changed = Notifier()  # notified when a waiting call should check again
        self.call_count = 0  # calls for messages that have begun; steps of `remaining` don't count
        self.waiting_calls = 0
        # Iterator over the messages of the slice that `get_one` is returning; exhausted if there is
        # none. It is also the `remaining` of the served cursor's buffer. The public consumer steps
        # it before it calls `get_one`, and each step takes one message. It is replaced at a
        # `seek()`, and when the cursor is paused or revoked.
        self.remaining: Iterator[Record] = iter(())
        self._column_memory = ColumnMemory()
        self._cursors = cursors
        self._observer = observer
        self._offload = offload
        # The cursors with messages or an error; the first one is served next. Cursors with a new
        # error come first.
        self._ready: OrderedDict[Cursor, None] = OrderedDict()
        self._served: Cursor | None = None  # the cursor whose messages `remaining` returns
        self._slice: LoopSlice
        self._call_decompressed_bytes = call_decompressed_bytes
        self._new_slice = new_slice

    def start(self) -> None:
        self._slice = self._new_slice()

    def close(self) -> None:
        """Drop `remaining`, and wake the waiting calls; the observer's `check` then ends them."""
        self._stop_serving()
        self.changed.notify()

    def add_ready(self, cursor: Cursor) -> None:
        """Serve calls from this cursor if it has output and isn't paused or revoked."""
        if (
            cursor.has_output
            and not cursor.paused
            and not cursor.revoked
            and self._cursors.get(cursor.topic_partition) is cursor
        ):
            self._ready.setdefault(cursor)
            self._advance_failing(cursor)
        self.changed.notify()

    def remove(self, cursor: Cursor) -> None:
        """Return nothing more of this cursor until it is added again."""
        self._ready.pop(cursor, None)
        if self._served is cursor:
            self._stop_serving()

    async def get_one(self, partitions: Collection[TopicPartition]) -> Record:
        """Wait for the next message of these partitions, or of all partitions if none is named."""
        partitions = dict.fromkeys(partitions)  # each once
        self.call_count += 1
        loop = asyncio.get_running_loop()
        deadline = loop.time() + KNOWN_ERROR_WAIT_S
        while True:
            self._observer.check()
            await self._yield_if_due()
            known: KnownErrors = []
            record = self._next_record(partitions, known)
            if record is not None:
                return record
            if self._pending(partitions, known):
                await self._open_next(partitions)
                continue
            if loop.time() >= deadline:
                # Raise it only now, so that a caller that goes on after an error doesn't spin.
                self._raise_known(known)
            self._observer.call_starved(self._wanted(partitions))
            await self._wait_for_change(deadline if known else None)

    async def get_many(
        self, partitions: Collection[TopicPartition], timeout_s: float, limit: int | None
    ) -> RecordsByPartition:
        """Return buffered messages, at most `limit`; wait up to `timeout_s` for the first ones."""
        self._observer.check()
        partitions = dict.fromkeys(partitions)  # each once
        self.call_count += 1
        deadline = asyncio.get_running_loop().time() + timeout_s
        try:
            while True:
                count = self.changed.count
                known: KnownErrors = []
                records = await self._collect(partitions, limit, known)
                if records:
                    return records
                if not await self._wait(partitions, deadline, count):
                    self._raise_known(known)
                    return records
                self._observer.check()
        except ConsumerStoppedError:
            # As in aiokafka, a call that was pending when the consumer was stopped returns nothing.
            return {}

    async def get_columns(
        self,
        partitions: Collection[TopicPartition],
        timeout_s: float,
        limit: int,
        max_bytes: int,
    ) -> CollectedColumns:
        """As `get_many`, but return columns.

        Decoding stops after `limit` messages, when keys and values have `max_bytes` bytes, or when
        the task has held the event loop for too long (`LoopSlice.is_over`).
        """
        partitions = dict.fromkeys(partitions)  # each once
        self.call_count += 1
        deadline = asyncio.get_running_loop().time() + timeout_s
        try:
            while True:
                self._observer.check()
                count = self.changed.count
                await self._yield_if_due()
                known: KnownErrors = []
                collected = self._pop_columns(partitions, limit, max_bytes, known)
                if collected.runs:
                    return collected
                if self._pending(partitions, known):
                    await self._open_next(partitions)
                elif not await self._wait(partitions, deadline, count):
                    self._raise_known(known)
                    return collected
        except ConsumerStoppedError:
            return self._no_columns(max_bytes)

    async def run_steps(self, steps: Generator[None, None, T]) -> T:
        """Run a generator on the messages of a call; yield to the loop as the call does."""
        return await self._slice.run_steps(steps)

    # --- waiting ----------------------------------------------------------------------------------

    async def _wait(
        self, partitions: Collection[TopicPartition], deadline: float, count: int
    ) -> bool:
        """Wait for a change after the one with number `count`; False after the deadline."""
        if asyncio.get_running_loop().time() >= deadline:
            await asyncio.sleep(0)  # a caller that polls without waiting yields too
            return False
        if self.changed.count == count:  # else it has changed while the call yielded
            self._observer.call_starved(self._wanted(partitions))
            await self._wait_for_change(deadline)
        return True

    async def _wait_for_change(self, deadline: float | None) -> None:
        self.waiting_calls += 1
        try:
            await self.changed.wait(deadline)
        finally:
            self.waiting_calls -= 1
        self._slice.restart()  # the event loop has just run

    async def _yield_if_due(self) -> None:
        """Yield if this task has held the event loop for too long, in this call or in several."""
        if self._slice.is_over():
            await self._slice.next()
            self._observer.check()

    async def _open_next(self, partitions: Collection[TopicPartition]) -> None:
        """Open the wrapper of the first partition whose decoding has stopped at one."""
        for cursor in self._selected(partitions):
            if cursor.buffer.long_wrapper is not None:
                await self._open(cursor)
                break

    async def _open(self, cursor: Cursor) -> None:
        """Open, in a thread, the wrapper at which decoding has stopped, if there is one."""
        wrapper = cursor.buffer.long_wrapper
        if wrapper is not None:
            await self._offload.run(wrapper.open)
            self._slice.restart()
            # The partition may have been moved by `seek()`, paused or revoked: the opened wrapper
            # was then dropped with the buffer, or stays in it.
            self._observer.check()

    # --- which cursors ----------------------------------------------------------------------------

    def _wanted(self, partitions: Collection[TopicPartition]) -> set[Cursor] | None:
        if not partitions:
            return None
        return {self._cursors[tp] for tp in partitions if tp in self._cursors}

    def _selected(self, partitions: Collection[TopicPartition]) -> Iterable[Cursor]:
        """Return the ready cursors of these partitions, or all of them if no partition is named."""
        if not partitions:
            return list(self._ready)
        named = (self._cursors.get(tp) for tp in partitions)
        ready = [cursor for cursor in named if cursor is not None and cursor in self._ready]
        ready.sort(key=lambda cursor: not cursor.fails_next)
        return ready

    def _pending(self, partitions: Collection[TopicPartition], known: KnownErrors) -> bool:
        """Return whether more can be decoded, apart from what failed with a known error."""
        # A decoding step without a message doesn't prove that the buffer is exhausted, since it may
        # have stopped because it had decompressed a lot (`record_buffer.DECODE_STEP_BYTES`).
        failed = {cursor for cursor, _ in known}
        return any(
            cursor.buffer.pending for cursor in self._selected(partitions) if cursor not in failed
        )

    def _requeue(self, cursor: Cursor) -> None:
        """Serve the cursor after all others, or before them if a new error comes next."""
        if cursor not in self._ready:
            return
        del self._ready[cursor]
        if cursor.has_output:
            self._ready[cursor] = None
            self._advance_failing(cursor)

    def _advance_failing(self, cursor: Cursor) -> None:
        # A new error is raised before messages of other partitions are taken.
        if cursor.fails_next:
            self._ready.move_to_end(cursor, last=False)
            self._stop_serving()

    def _stop_serving(self) -> None:
        """End `remaining`; the rest of the slice stays in the buffer."""
        self._served, self.remaining = None, iter(())

    # --- one message ------------------------------------------------------------------------------

    def _next_record(
        self, partitions: Collection[TopicPartition], known: KnownErrors
    ) -> Record | None:
        """Return the next message; None if there is none yet. Raises as `_decode`."""
        if partitions:
            for cursor in self._selected(partitions):
                if self._begin_slice(cursor, known):
                    return next(cursor.buffer.remaining)
                if cursor.buffer.pending and not cursor.buffer.fails_next:
                    return None  # the next step decodes more of it
        else:
            for record in self.remaining:
                return record
            if self._served is not None:
                # Else the last slices of 1,000 partitions would take much memory.
                self._served.buffer.drop_returned()
                if self._served in self._ready:
                    self._advance_failing(self._served)
                self._stop_serving()
            tried = set[Cursor]()
            while self._ready and (cursor := next(iter(self._ready))) not in tried:
                tried.add(cursor)
                if self._begin_slice(cursor, known):
                    self._served, self.remaining = cursor, cursor.buffer.remaining
                    return next(self.remaining)
                if cursor.buffer.pending and not cursor.buffer.fails_next:
                    return None
        return None

    def _begin_slice(self, cursor: Cursor, known: KnownErrors) -> bool:
        """Return whether `remaining` of the cursor's buffer has a message. Raises as `_decode`."""
        buffer = cursor.buffer
        try:
            if length_hint(buffer.remaining) or buffer.start_next_slice():
                return True
            if self._decode(cursor, SLICE_RECORDS, known) and buffer.start_next_slice():
                return True
            self._find_error(cursor, known)
            return False
        finally:
            self._requeue(cursor)
            self._observer.messages_returned(cursor)

    # --- many messages ----------------------------------------------------------------------------

    async def _collect(
        self, partitions: Collection[TopicPartition], limit: int | None, known: KnownErrors
    ) -> RecordsByPartition:
        """Decode enough, yielding in between; then take all in one step, or raise a new error."""
        await self._yield_if_due()
        cursors = self._selected(partitions)
        missing = limit
        decompressed_bytes = 0
        has_records = False
        for cursor in cursors:
            buffer = cursor.buffer
            goal = buffer.added_sets  # exclude later sets, or the call might never end
            count = buffer.decoded_count
            while (
                cursor in self._ready  # else paused, revoked or moved while the call yielded
                and buffer.has_undecoded(goal)
                and (missing is None or count < missing)
                and not (has_records and decompressed_bytes >= self._call_decompressed_bytes)
            ):
                if buffer.long_wrapper is not None:
                    await self._open(cursor)
                    continue
                room = SLICE_RECORDS if missing is None else min(SLICE_RECORDS, missing - count)
                try:
                    if not self._decode(cursor, room, known):
                        break
                finally:
                    # Report a step without messages too, since it may have freed a set in the
                    # buffer.
                    self._observer.messages_returned(cursor)
                count = buffer.decoded_count
                has_records = has_records or count > 0
                decompressed_bytes += buffer.decompressed_bytes
                if self._slice.is_over():
                    await self._yield_if_due()
            self._find_error(cursor, known)
            if missing is not None:
                missing -= count
                if missing <= 0:
                    break
        return self._pop_records(cursors, limit)

    def _pop_records(self, cursors: Iterable[Cursor], limit: int | None) -> RecordsByPartition:
        popped: RecordsByPartition = {}
        for cursor in cursors:
            if cursor not in self._ready:
                continue  # paused, revoked or moved by seek() while the call yielded
            records = cursor.buffer.pop_records(limit)
            self._requeue(cursor)
            if records:
                popped[cursor.topic_partition] = records
                if cursor.start is not None:  # refused position; verify it once these are returned
                    self._observer.messages_returned(cursor)
                if limit is not None:
                    limit -= len(records)
                    if limit <= 0:
                        break
        return popped

    def _pop_columns(
        self,
        partitions: Collection[TopicPartition],
        limit: int,
        max_bytes: int,
        known: KnownErrors,
    ) -> CollectedColumns:
        """Decode and take messages without awaiting, until `is_over()`; or raise a new error."""
        cursors = self._selected(partitions)
        collected = self._no_columns(max_bytes)
        columns = collected.columns
        is_over = self._slice.is_over
        # Small steps for few bytes: the pure-Python twin checks `is_full` only before a step.
        step = min(SLICE_COLUMN_RECORDS, max_bytes // 2048)
        for index, cursor in enumerate(cursors):
            if index and (len(columns) >= limit or columns.is_full or is_over()):
                break
            position = cursor.buffer.position
            count = 0
            try:
                while popped := cursor.buffer.pop_columns(columns, min(step, limit - len(columns))):
                    count += popped
                    if len(columns) >= limit or columns.is_full or is_over():
                        break
            except CorruptRecordException as error:
                self._drop_damaged(cursor, error)
            if count:
                cursor.buffer.read_ahead(columns.last_offset)
            if count or not cursor.has_output:
                self._requeue(cursor)
            if count:
                collected.runs.append((cursor.topic_partition, count))
                collected.positions[cursor.topic_partition] = position
            self._observer.messages_returned(cursor)
            if not collected.runs and cursor.buffer.long_wrapper is not None:
                # Return, so that the caller opens the wrapper. Partitions with messages could
                # otherwise keep this one waiting for ever.
                return collected
            if not collected.runs:
                self._find_error(cursor, known)
            elif not count and cursor in self._ready:
                self._advance_failing(cursor)  # the next call raises the error
        return collected

    # --- errors -----------------------------------------------------------------------------------

    def _decode(self, cursor: Cursor, max_records: int, known: KnownErrors) -> bool:
        """Decode as `RecordBuffer.decode`; raise a new error, and append a known one to `known`.

        At damage, drop the buffer, so that the messages are fetched again.
        """
        try:
            return cursor.buffer.decode(max_records)
        except Exception as error:
            if isinstance(error, CorruptRecordException) and cursor.buffer.is_damaged:
                self._drop_damaged(cursor, error)
            elif cursor.is_new(error):
                self._observer.decoding_failed(cursor, error)
                self._note_raised(cursor, error)
                raise
            else:
                known.append((cursor, error))
            return False

    def _find_error(self, cursor: Cursor, known: KnownErrors) -> None:
        """If the cursor's error comes next, raise it if it is new, else append it to `known`."""
        error = cursor.error
        if error is None or cursor.buffer.pending or cursor not in self._ready:
            return
        if cursor.has_new_error:
            self._note_raised(cursor, error)
            raise error
        known.append((cursor, error))

    def _raise_known(self, known: KnownErrors) -> None:
        """Raise the first one of these errors, since the call has no messages to return."""
        for cursor, error in known:
            # An error doesn't count if the user has moved or paused its partition meanwhile.
            if cursor in self._ready and not cursor.is_new(error):
                self._note_raised(cursor, error)
                raise error

    def _note_raised(self, cursor: Cursor, error: Exception) -> None:
        """Note that a call raises this error now, and try the partition again after the others."""
        if cursor.error is error:
            cursor.error = None
        cursor.note_raised(error)
        self._requeue(cursor)
        self._observer.messages_returned(cursor)

    def _drop_damaged(self, cursor: Cursor, error: CorruptRecordException) -> None:
        cursor.drop_damaged(error, asyncio.get_running_loop().time())
        self._observer.damage_found(cursor)

    def _no_columns(self, max_bytes: int) -> CollectedColumns:
        return CollectedColumns(Columns(max_bytes, self._column_memory), [], {})
