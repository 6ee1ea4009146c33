"""Find the position of each cursor that has none: committed offset, auto_offset_reset, or a seek.

Each request is a task: one for the offset store, one for each leader. So a dead broker doesn't
delay the partitions of another one.

Invariant: a position that a broker refused is given up only when it is before the log's first
offset, or beyond the log's end in BEYOND_END_TRIES checks in a row. Then auto_offset_reset applies;
with "none" the error is raised, and the same offset is tried again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, NamedTuple

from aiokafka08._core.concurrency.notifier import Notifier
from aiokafka08._core.concurrency.task_set import TaskSet, run_together
from aiokafka08._core.net.list_offsets import list_offsets_of_leader
from aiokafka08._core.net.retry import attempt_timeout, is_final
from aiokafka08._core.net.router import Router
from aiokafka08._core.offset_store import OffsetStore
from aiokafka08._core.ranges.next_fetch import NextFetch
from aiokafka08._wording import partition_text
from aiokafka08.consumer.cursor import Cursor, StartPosition
from aiokafka08.consumer.observer import ConsumerObserver
from aiokafka08.errors import (
    KafkaError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
)
from aiokafka08.protocol.requests.list_offsets import EARLIEST, LATEST
from aiokafka08.structs import TopicPartition
from aiokafka08.telemetry import OffsetReset, PartitionFailed, StartedAtEnd

BEYOND_END_TRIES: Final = 3
"""How many checks in a row must find an offset beyond the end of the log before it is given up."""

# Kinds of start for which the end of the log is listed
_FROM_THE_END: Final = (
    StartPosition.LATEST,
    StartPosition.UNCOMMITTED_LATEST,
    StartPosition.REFUSED,
)


class _PositionSearch(NamedTuple):
    """A cursor, with its `start` and `next_fetch` at the time when the request was decided.

    A seek replaces the cursor's values, so the result for other values is stale.
    """

    cursor: Cursor
    start: StartPosition | None
    next_fetch: NextFetch

    @property
    def is_current(self) -> bool:
        return self.cursor.start is self.start and self.cursor.next_fetch is self.next_fetch


class StartOffsets:
    """Give cursors their positions; see the module.

    `reset`: the meaning of auto_offset_reset; None ("none") makes a missing position an error.
    """

    def __init__(
        self, router: Router, reset: StartPosition | None, observer: ConsumerObserver
    ) -> None:
        self._router = router
        self._reset = reset
        self._observer = observer
        self._store: OffsetStore
        self._fetch_s: float | None
        self._waiting: dict[Cursor, None] = {}
        self._requested: set[Cursor] = set()
        # The offset that was found after the end of the log, and how often in a row
        self._beyond_end: dict[Cursor, tuple[int, int]] = {}
        self._store_failure: KafkaError | None = None  # why the last request to the store failed
        self._failures: dict[Cursor, str] = {}  # why the last attempt failed
        # The partitions whose commit can't be read, although the store responds
        self._unreadable: set[Cursor] = set()
        self._tasks = TaskSet(observer.task_failed)
        self._changed = Notifier()

    def start(self, store: OffsetStore, fetch_s: float | None = None) -> None:
        """Begin to find positions.

        `fetch_s`: the timeout of each request to the store, until `wait_committed` has returned.
        """
        self._store, self._fetch_s = store, fetch_s
        self._tasks.start(self._watch(), "aiokafka08 positions")

    async def stop(self) -> None:
        await self._tasks.cancel()

    def add(self, cursor: Cursor) -> None:
        """Find the cursor's position if it has none and no new error; call this on its changes."""
        if cursor.start is not None and not cursor.has_new_error:
            self._waiting[cursor] = None
        elif cursor not in self._waiting:
            return  # the usual change: messages were returned
        self._changed.notify()

    def remove(self, cursor: Cursor) -> None:
        """Forget a cursor that isn't assigned any more."""
        self._waiting.pop(cursor, None)
        self._beyond_end.pop(cursor, None)
        self._failures.pop(cursor, None)
        self._unreadable.discard(cursor)
        self._changed.notify()

    def failure(self, cursor: Cursor) -> str | None:
        """Return why the position isn't found yet, as text; None if no attempt has failed."""
        return self._failures.get(cursor)

    async def wait_known(self, timeout_s: float) -> None:
        """Wait until each cursor has its position or an error, or until the time is over."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while any(cursor.start is not None and cursor.error is None for cursor in self._waiting):
            if not await self._changed.wait(deadline):
                return

    async def wait_committed(self, timeout_s: float) -> KafkaError | None:
        """Wait for the committed offsets; return None, or the store's last error at the timeout."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while any(
            cursor.start is StartPosition.STORED
            and cursor.error is None
            # Only the commit of this partition is unreadable, so the other partitions go on.
            and cursor not in self._unreadable
            for cursor in self._waiting
        ):
            if not await self._changed.wait(deadline):
                return self._store_failure or KafkaTimeoutError("the first attempt hasn't ended")
        self._fetch_s = None
        return None

    def is_searching(self, cursor: Cursor) -> bool:
        return cursor in self._waiting

    # --- which requests ---------------------------------------------------------------------------

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            now = loop.time()
            stored: list[Cursor] = []
            by_leader: dict[int, list[Cursor]] = {}
            next_due: float | None = None
            for cursor in list(self._waiting):
                if cursor.start is None or cursor.has_new_error:
                    self._end_search(cursor)
                elif cursor in self._requested:
                    pass
                elif cursor.start is StartPosition.REFUSED and cursor.buffer.pending:
                    pass  # what was fetched before the refusal is returned first
                elif cursor.not_before > now:
                    next_due = min(next_due or cursor.not_before, cursor.not_before)
                elif cursor.start is StartPosition.STORED:
                    stored.append(cursor)
                else:
                    snapshot = self._router.metadata.snapshot
                    leader = snapshot.leader(cursor.topic_partition)
                    if leader is not None:
                        by_leader.setdefault(leader, []).append(cursor)
                        continue
                    self._retry_later(cursor, snapshot.no_leader_reason(cursor.topic_partition))
                    next_due = min(next_due or cursor.not_before, cursor.not_before)
            if stored:
                self._request(stored, self._fetch_committed(_searches(stored)))
            for leader, cursors in by_leader.items():
                self._request(cursors, self._list_offsets(leader, _searches(cursors)))
            await self._changed.wait(next_due)

    def _request(self, cursors: list[Cursor], work: Coroutine[Any, Any, None]) -> None:
        self._requested.update(cursors)

        def ended(task: asyncio.Task[None]) -> None:
            self._requested.difference_update(cursors)
            self._changed.notify()

        self._tasks.start(work, "aiokafka08 positions").add_done_callback(ended)

    # --- the requests -----------------------------------------------------------------------------

    async def _fetch_committed(self, searches: list[_PositionSearch]) -> None:
        try:
            commits = await self._store.fetch_each(
                [search.cursor.topic_partition for search in searches], timeout_s=self._fetch_s
            )
        except KafkaError as error:
            self._store_failure = error
            for cursor in _current(searches):
                self._request_failed(cursor, error)
            return
        for cursor in _current(searches):
            committed = commits.get(cursor.topic_partition)
            if isinstance(committed, KafkaError) and not is_final(committed):
                # The retries go on until the stored offset is repaired. Report the same error once.
                is_known = self._failures.get(cursor) == str(committed)
                self._unreadable.add(cursor)
                self._changed.notify()
                self._retry_later(cursor, None if is_known else committed)
            elif isinstance(committed, KafkaError):
                # Imported here, because a consumer without a group needs no offset store.
                from aiokafka08._core.offset_store.responses import with_text

                where = (
                    f"{partition_text(cursor.topic_partition)}: its committed offset isn't known"
                )
                self._fail(cursor, with_text(committed, f"{where}: {committed}"))
            elif committed is not None:
                self._set_position(cursor, committed.offset)
            elif self._reset is not None:
                cursor.start = self._reset  # it stays in `_waiting`, and its leader is asked next
            else:
                self._fail(
                    cursor,
                    NoOffsetForPartitionError(
                        cursor.topic_partition,
                        f"{partition_text(cursor.topic_partition)}: no offset is committed, and "
                        "auto_offset_reset is 'none'. seek() to the offset to begin at",
                    ),
                )

    async def _list_offsets(self, leader: int, searches: list[_PositionSearch]) -> None:
        # One request can't list both ends of a partition (docs/brokers.md 3.12).
        first, last = await run_together(
            self._list_end(
                leader, searches, EARLIEST, (StartPosition.EARLIEST, StartPosition.REFUSED)
            ),
            self._list_end(leader, searches, LATEST, _FROM_THE_END),
        )
        at_end: list[tuple[TopicPartition, int]] = []
        for cursor in _current(searches):
            tp = cursor.topic_partition
            results = [listed[tp] for listed in (first, last) if tp in listed]
            error = next((result for result in results if isinstance(result, KafkaError)), None)
            bounds = [result[0] for result in results if isinstance(result, list) and result]
            if error is not None:
                self._request_failed(cursor, error)
            elif len(bounds) < len(results):
                self._request_failed(cursor, LeaderNotAvailableError("the leader names no offset"))
            elif cursor.start is StartPosition.REFUSED:
                self._verify(cursor, *bounds)  # REFUSED is in both results
            else:
                if cursor.start is StartPosition.UNCOMMITTED_LATEST and bounds[0]:
                    at_end.append((tp, bounds[0]))
                self._set_position(cursor, bounds[0])
        if at_end:
            self._router.telemetry.emit(StartedAtEnd(tuple(at_end)))

    async def _list_end(
        self,
        leader: int,
        searches: list[_PositionSearch],
        end: int,
        starts: tuple[StartPosition, ...],
    ) -> dict[TopicPartition, list[int] | KafkaError]:
        wanted = {
            search.cursor.topic_partition: end for search in searches if search.start in starts
        }
        if not wanted:
            return {}
        timeout_s = attempt_timeout(self._router.config.request_timeout_s)
        return await list_offsets_of_leader(
            self._router, leader, wanted, wanted, timeout_s=timeout_s
        )

    # --- the results ------------------------------------------------------------------------------

    def _verify(self, cursor: Cursor, first: int, last: int) -> None:
        """Decide about an offset that the broker refused; `last` is the offset after the log."""
        offset = cursor.next_fetch.offset
        if first <= offset <= last:
            self._beyond_end.pop(cursor, None)
            cursor.confirm_position()
            self._end_search(cursor)
            self._observer.position_found(cursor)  # if refused again, the back-off grows
            return
        # The refusal alone proves nothing. 0.8 refuses in a race with an append (KAFKA-2477), and
        # the log of a new leader may end earlier for a moment (docs/brokers.md 7.10).
        if offset > last:
            seen, tries = self._beyond_end.get(cursor, (offset, 0))
            tries = tries + 1 if seen == offset else 1
            self._beyond_end[cursor] = offset, tries
            if tries < BEYOND_END_TRIES:
                self._retry_later(cursor, OffsetOutOfRangeError(f"{offset} is beyond {last}"))
                return
        if self._reset is None:
            error = OffsetOutOfRangeError(
                {cursor.topic_partition: offset},
                f"{partition_text(cursor.topic_partition)}: offset {offset} is out of range, the "
                f"log goes from {first} to {last}, and auto_offset_reset is 'none'. seek() to an "
                "offset in the log",
            )
            self._beyond_end.pop(cursor, None)
            cursor.confirm_position()  # after the error was raised the broker is tried again
            self._fail(cursor, error)
            return
        new = first if self._reset is StartPosition.EARLIEST else last
        self._router.telemetry.emit(OffsetReset(cursor.topic_partition, offset, new))
        self._set_position(cursor, new)

    def _set_position(self, cursor: Cursor, offset: int) -> None:
        self._beyond_end.pop(cursor, None)
        self._end_search(cursor)
        cursor.seek(offset)
        self._observer.position_found(cursor)

    def _fail(self, cursor: Cursor, error: Exception) -> None:
        self._end_search(cursor)
        cursor.fail(error, asyncio.get_running_loop().time())
        if cursor.has_new_error:
            self._router.telemetry.emit(PartitionFailed(cursor.topic_partition, str(error)))
        self._observer.position_found(cursor)
        self.add(cursor)

    def _end_search(self, cursor: Cursor) -> None:
        self._waiting.pop(cursor, None)
        self._failures.pop(cursor, None)
        self._unreadable.discard(cursor)
        self._changed.notify()

    def _request_failed(self, cursor: Cursor, error: KafkaError) -> None:
        if is_final(error):
            self._fail(cursor, error)
        else:
            self._retry_later(cursor, error)

    def _retry_later(self, cursor: Cursor, reason: object) -> None:
        if reason is not None:
            self._failures[cursor] = str(reason)
            self._router.telemetry.emit(PartitionFailed(cursor.topic_partition, str(reason)))
        self._router.metadata.request_refresh()
        cursor.back_off(asyncio.get_running_loop().time())


def _searches(cursors: list[Cursor]) -> list[_PositionSearch]:
    """Copy the state of these cursors now, since the task of their request starts later."""
    return [_PositionSearch(cursor, cursor.start, cursor.next_fetch) for cursor in cursors]


def _current(searches: list[_PositionSearch]) -> list[Cursor]:
    """Return the cursors without a seek since their request; some may have been revoked."""
    return [search.cursor for search in searches if search.is_current]
