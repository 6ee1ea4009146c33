"""Where each partition is begun: committed offset, auto_offset_reset, and positions refused.

One task watches for cursors without a usable position and asks each leader in a task of its own,
so that a dead broker keeps nobody else waiting. Law: a position that the broker refused is given up
only when the log's bounds say so. A refusal alone proves nothing: 0.8 refuses in a race with an
append (KAFKA-2477), and a new leader's log may end earlier for a moment (docs/brokers.md 7.10); so
an offset beyond the end must be seen there several times.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from aiokafka08.concurrency.notifier import Notifier
from aiokafka08.consumer.cursor import Cursor, StartPosition
from aiokafka08.consumer.next_fetch import NextFetch
from aiokafka08.errors import (
    KafkaError,
    LeaderNotAvailableError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
)
from aiokafka08.net.list_offsets import ask_leader
from aiokafka08.net.retry import attempt_timeout, is_final
from aiokafka08.net.router import Router
from aiokafka08.offset_store import OffsetStore
from aiokafka08.protocol.api import EARLIEST, LATEST
from aiokafka08.structs import TopicPartition
from aiokafka08.telemetry import OffsetReset, PartitionFailed

BEYOND_END_TRIES = 3
"""How often an offset must be found beyond the log's end before it is given up."""


class _Mark(NamedTuple):
    """What tells later whether somebody has sought in the meantime."""

    cursor: Cursor
    start: StartPosition | None
    reach: NextFetch


class StartOffsets:
    """Gives cursors their positions.

    Args:
        reset: what auto_offset_reset says; None: to be told as an error.
        on_change: called when a cursor has got a position, or an error to tell.
        on_crash: called with what ended the task that should never end.
    """

    def __init__(
        self,
        router: Router,
        reset: StartPosition | None,
        *,
        on_change: Callable[[Cursor], object],
        on_crash: Callable[[BaseException], object],
    ) -> None:
        self._router = router
        self._store: OffsetStore | None = None  # until `start`
        self._reset = reset
        self._on_change = on_change
        self._on_crash = on_crash
        self._waiting: set[Cursor] = set()
        self._asking: set[Cursor] = set()
        self._beyond: dict[Cursor, tuple[int, int]] = {}  # which offset, how often
        self._tasks: set[asyncio.Task[None]] = set()
        self._bell = Notifier()

    def start(self, store: OffsetStore) -> None:
        """Begin to work, with the store that has the committed offsets."""
        self._store = store
        self._spawn(self._watch())

    async def stop(self) -> None:
        """End all work."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def need(self, cursor: Cursor) -> None:
        """This cursor may need a position."""
        if cursor.start is not None and cursor.error is None:
            self._waiting.add(cursor)
            self._bell.notify()

    def forget(self, cursor: Cursor) -> None:
        """This cursor isn't read any more."""
        self._waiting.discard(cursor)
        self._beyond.pop(cursor, None)

    # --- inside -----------------------------------------------------------------------------------

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name="aiokafka08 positions")
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_crash(error)

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            now = loop.time()
            stored: list[Cursor] = []
            by_leader: dict[int, list[Cursor]] = {}
            next_due: float | None = None
            for cursor in list(self._waiting):
                if cursor.start is None or cursor.error is not None:
                    self._waiting.discard(cursor)
                elif cursor in self._asking:
                    pass
                elif cursor.start is StartPosition.CHECK and cursor.buffer.pending:
                    pass  # what was fetched before the refusal is handed out first
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
                    self._try_later(cursor, snapshot.no_leader_reason(cursor.topic_partition))
                    next_due = min(next_due or cursor.not_before, cursor.not_before)
            if stored:
                self._ask(stored, self._fetch_stored(_marks(stored)))
            for leader, cursors in by_leader.items():
                self._ask(cursors, self._ask_leader(leader, _marks(cursors)))
            await self._bell.wait(next_due)

    def _ask(self, cursors: list[Cursor], work: Coroutine[Any, Any, None]) -> None:
        self._asking.update(cursors)

        def asked(task: asyncio.Task[None]) -> None:
            self._asking.difference_update(cursors)
            self._bell.notify()

        self._spawn(work).add_done_callback(asked)

    async def _fetch_stored(self, before: list[_Mark]) -> None:
        try:
            assert self._store is not None  # only tasks of `start` get here
            found = await self._store.fetch([mark.cursor.topic_partition for mark in before])
        except KafkaError as error:
            for cursor in _unchanged(before):
                self._refused(cursor, error)
            return
        for cursor in _unchanged(before):
            committed = found.get(cursor.topic_partition)
            if committed is not None:
                self._begin(cursor, committed.offset)
            elif self._reset is not None:
                cursor.start = self._reset
            else:
                topic, partition = cursor.topic_partition
                self._tell(
                    cursor,
                    NoOffsetForPartitionError(
                        cursor.topic_partition,
                        f"topic {topic!r}, partition {partition}: no offset is committed, and "
                        "auto_offset_reset is 'none'; seek() to where it shall begin",
                    ),
                )

    async def _ask_leader(self, leader: int, before: list[_Mark]) -> None:
        # Both ends of one partition need two requests (docs/brokers.md 3.12).
        first, last = await asyncio.gather(
            self._list(leader, before, EARLIEST, (StartPosition.EARLIEST, StartPosition.CHECK)),
            self._list(leader, before, LATEST, (StartPosition.LATEST, StartPosition.CHECK)),
        )
        for cursor in _unchanged(before):
            tp = cursor.topic_partition
            answers = [answer[tp] for answer in (first, last) if tp in answer]
            error = next((one for one in answers if isinstance(one, KafkaError)), None)
            bounds = [one[0] for one in answers if isinstance(one, list) and one]
            if error is not None:
                self._refused(cursor, error)
            elif len(bounds) < len(answers):
                self._refused(cursor, LeaderNotAvailableError("the leader names no offset"))
            elif cursor.start is StartPosition.CHECK:
                self._check(cursor, *bounds)
            else:
                self._begin(cursor, bounds[0])

    async def _list(
        self, leader: int, before: list[_Mark], timestamp: int, starts: tuple[StartPosition, ...]
    ) -> dict[TopicPartition, list[int] | KafkaError]:
        asked = {mark.cursor.topic_partition: timestamp for mark in before if mark.start in starts}
        if not asked:
            return {}
        timeout_s = attempt_timeout(self._router.config.request_timeout_s)
        return await ask_leader(self._router, leader, asked, asked, timeout_s=timeout_s)

    def _check(self, cursor: Cursor, first: int, last: int) -> None:
        """The broker refused the offset; the log goes from `first` up to before `last`."""
        offset = cursor.reach.offset
        if first <= offset <= last:
            self._beyond.pop(cursor, None)
            cursor.confirmed()
            self._waiting.discard(cursor)
            self._on_change(cursor)  # it backs off by itself if this goes on
            return
        if offset > last:
            of, tries = self._beyond.get(cursor, (offset, 0))
            tries = tries + 1 if of == offset else 1
            self._beyond[cursor] = offset, tries
            if tries < BEYOND_END_TRIES:
                self._try_later(cursor, OffsetOutOfRangeError(f"{offset} is beyond {last}"))
                return
        if self._reset is None:
            topic, partition = cursor.topic_partition
            error = OffsetOutOfRangeError(
                {cursor.topic_partition: offset},
                f"topic {topic!r}, partition {partition}: offset {offset} is out of range, the log "
                f"goes from {first} to {last}; auto_offset_reset is 'none', so seek() is needed",
            )
            self._beyond.pop(cursor, None)
            cursor.confirmed()  # once told, the broker is asked again
            self._tell(cursor, error)
            return
        new = first if self._reset is StartPosition.EARLIEST else last
        self._router.telemetry.emit(OffsetReset(cursor.topic_partition, offset, new))
        self._begin(cursor, new)

    def _begin(self, cursor: Cursor, offset: int) -> None:
        self._beyond.pop(cursor, None)
        self._waiting.discard(cursor)
        cursor.seek(offset)
        self._on_change(cursor)

    def _tell(self, cursor: Cursor, error: Exception) -> None:
        self._waiting.discard(cursor)
        cursor.fail(error, asyncio.get_running_loop().time())
        self._on_change(cursor)

    def _refused(self, cursor: Cursor, error: KafkaError) -> None:
        if is_final(error):
            self._tell(cursor, error)
        else:
            self._try_later(cursor, error)

    def _try_later(self, cursor: Cursor, reason: object) -> None:
        if reason is not None:
            self._router.telemetry.emit(PartitionFailed(cursor.topic_partition, str(reason)))
        self._router.metadata.request_refresh()
        cursor.back_off(asyncio.get_running_loop().time())


def _marks(cursors: list[Cursor]) -> list[_Mark]:
    """To be taken where it is decided what to ask: a task begins only later."""
    return [_Mark(cursor, cursor.start, cursor.reach) for cursor in cursors]


def _unchanged(before: list[_Mark]) -> list[Cursor]:
    return [
        cursor for cursor, start, reach in before if cursor.start is start and cursor.reach is reach
    ]
