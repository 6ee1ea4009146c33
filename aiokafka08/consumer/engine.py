"""What is read at all: the cursors, and the parts that work on them, wired together.

`consumer` changes it for `assign()`, a membership for subscriptions (it is their `Assignee`). Knows
who has to hear of which change; decides nothing about partitions itself. Holds no reference to the
public consumer, so that one which is dropped without `stop()` can be told of.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Collection, Iterable

from aiokafka08.consumer.collector import Collector
from aiokafka08.consumer.commits import Commits
from aiokafka08.consumer.config import ConsumerConfig
from aiokafka08.consumer.cursor import Cursor, StartPosition
from aiokafka08.consumer.fetch_memory import FetchMemory
from aiokafka08.consumer.fetcher import Fetcher
from aiokafka08.consumer.member_state import MemberState
from aiokafka08.consumer.membership import Membership
from aiokafka08.consumer.start_offsets import StartOffsets
from aiokafka08.consumer.subscription import Kind, Subscription
from aiokafka08.errors import ConsumerStoppedError, IllegalStateError
from aiokafka08.net.cluster import ClusterSnapshot
from aiokafka08.net.lifecycle import Lifecycle
from aiokafka08.net.router import Router
from aiokafka08.offset_store import OffsetStore
from aiokafka08.structs import TopicPartition
from aiokafka08.telemetry import Event, Rebalanced

_log = logging.getLogger("aiokafka08.consumer")
_LOGGERS = ("net", "consumer")


class ConsumerEngine:
    """The partitions that are read now, with all that reads them."""

    def __init__(
        self,
        router: Router,
        config: ConsumerConfig,
        subscription: Subscription,
        member_state: MemberState,
        lifecycle: Lifecycle,
    ) -> None:
        self.cursors: dict[TopicPartition, Cursor] = {}
        self._router = router
        self._config = config
        self._subscription = subscription
        self._lifecycle = lifecycle
        self._membership: Membership | None = None
        self._crash: BaseException | None = None
        self._messages = 0  # handed out of partitions that aren't read any more
        self.feed = Collector(
            self.cursors,
            check=self.check,
            on_taken=self.changed,
            on_starved=self._make_room,
        )
        self.fetcher = Fetcher(
            router,
            FetchMemory(config.fetch_max_bytes, config.max_partition_fetch_bytes),
            min_bytes=config.fetch_min_bytes,
            max_wait_s=config.fetch_max_wait_s,
            on_arrival=self.feed.arrived,
            on_check=self._need_position,
            on_queued=self.feed.bell.notify,
            on_crash=self._crashed,
        )
        self.positions = StartOffsets(
            router,
            config.reset,
            on_change=self._got_position,
            on_crash=self._crashed,
        )
        self.commits = Commits(config, member_state, self.cursors, router, on_crash=self._crashed)

    def start(self, store: OffsetStore, membership: Membership) -> None:
        """Begin to read, with the store and the membership that the consumer has chosen."""
        self._membership = membership
        self.fetcher.start()
        self.positions.start(store)
        self.commits.start(store, membership)

    async def finish(self) -> None:
        """Hand out nothing more, tell calls that wait, and commit what was handed out: before the
        membership ends, which leaves the partitions to others."""
        self.feed.walk = iter(())
        self.feed.bell.notify()
        await self.commits.stop()

    async def stop(self) -> None:
        """End all that reads, after `finish`."""
        await self.positions.stop()
        await self.fetcher.stop()

    def check(self) -> None:
        """Raise where calls that take messages can't go on."""
        if self._lifecycle.stopped:
            raise ConsumerStoppedError
        self._lifecycle.check()
        if self._crash is not None:
            raise self._crash
        if self._membership is not None:
            self._membership.check()
        self.commits.check()

    def cursor(self, partition: TopicPartition) -> Cursor:
        """The cursor of an assigned partition.

        Raises:
            IllegalStateError: it isn't assigned.
        """
        cursor = self.cursors.get(partition)
        if cursor is None:
            raise IllegalStateError(f"partition {partition} is not assigned")
        return cursor

    def chosen(self, partitions: Collection[TopicPartition]) -> list[Cursor]:
        """The cursors of these partitions, of all where none is named.

        Raises:
            IllegalStateError: one isn't assigned.
            TypeError: one isn't a TopicPartition.
        """
        if not all(isinstance(partition, TopicPartition) for partition in partitions):
            raise TypeError("partitions must be TopicPartition instances")
        return [self.cursor(tp) for tp in partitions or list(self.cursors)]

    # --- what changes -----------------------------------------------------------------------------

    def replace(self, partitions: Iterable[TopicPartition]) -> None:
        """Read just these from now on. Those that stay keep position and buffer."""
        self._replace(partitions, ())
        self.fetcher.set_cursors(self.cursors.values())

    async def assign(
        self,
        partitions: Collection[TopicPartition],
        new_partitions: Collection[TopicPartition] = (),
        *,
        always_notify: bool = False,
    ) -> None:
        """See `membership.Assignee`."""
        old, new = frozenset(self.cursors), frozenset(partitions)
        as_before = old == new and not any(cursor.revoked for cursor in self.cursors.values())
        if as_before and not always_notify:
            return
        number = self._subscription.number
        await self._revoke(old - new)
        if self._subscription.number != number:
            return  # while the listener was awaited the user has subscribed to something else
        self._replace(new, new_partitions)
        self._router.telemetry.emit(Rebalanced(tuple(sorted(new - old)), tuple(sorted(old - new))))
        listener = self._subscription.listener
        if listener is not None:
            await _tell(listener.on_partitions_assigned, new)
        # Only now: the listener may seek before the first message comes.
        self.fetcher.set_cursors(self.cursors.values())

    def follow_metadata(self, snapshot: ClusterSnapshot) -> None:
        """Pass a new metadata snapshot to the fetcher and to the membership."""
        self.fetcher.follow(snapshot)
        if self._membership is not None:
            self._membership.on_change()

    def hold_back(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out nothing more of these partitions, which will be taken away."""
        for tp in partitions:
            cursor = self.cursors[tp]
            cursor.revoked = True
            self.feed.withdraw(cursor)

    async def revoke(self) -> None:
        """See `membership.Assignee`."""
        # What the user has named since, before this began or while the listener works, isn't
        # the membership's to take.
        end = self.commits.last_moment()
        if self._subscription.kind is not Kind.ASSIGNED:
            await self._revoke(frozenset(self.cursors))
        await self.commits.settled(end)
        if self._subscription.kind is not Kind.ASSIGNED:
            self.commits.give_back()
            self.replace(())

    def activity(self) -> int | None:
        """See `membership.Assignee`."""
        if self.feed.waiting:
            return None
        return self.feed.calls + self._messages_taken()

    def wake(self) -> None:
        """See `membership.Assignee`."""
        self.feed.bell.notify()

    def seek(self, cursor: Cursor, offset: int) -> None:
        """Go on at `offset`."""
        self.feed.withdraw(cursor)
        cursor.seek(offset)
        self.changed(cursor)
        self.feed.bell.notify()

    def restart(self, cursor: Cursor, start: StartPosition) -> None:
        """Find the position anew."""
        self.feed.withdraw(cursor)
        cursor.restart(start)
        self.changed(cursor)

    def pause(self, cursor: Cursor) -> None:
        """Hand out and fetch nothing more; what is buffered stays."""
        cursor.paused = True
        self.feed.withdraw(cursor)
        self.changed(cursor)

    def resume(self, cursor: Cursor) -> None:
        """Go on."""
        cursor.paused = False
        self.changed(cursor)
        self.feed.arrived(cursor)

    def changed(self, cursor: Cursor) -> None:
        """Something about the cursor is different now."""
        if cursor.start is not None:
            self.positions.need(cursor)
        self.fetcher.offer(cursor)

    # --- health -----------------------------------------------------------------------------------

    def healthy(self) -> bool:
        """Whether everything assigned has a position and a leader that answers."""
        return self._crash is None and all(
            cursor.position is not None and self.fetcher.reaches(cursor)
            for cursor in self.cursors.values()
        )

    def metrics(self) -> dict[str, float]:
        """Counters and gauges by their names; those of events that never came are 0."""
        cursors = self.cursors.values()
        known = {cursor.topic_partition: cursor.lag for cursor in cursors}
        lags = {tp: lag for tp, lag in known.items() if lag is not None}
        return {
            **{kind.name: 0 for kind in Event.__subclasses__() if kind.logger in _LOGGERS},
            **self._router.telemetry.counters,
            "messages_consumed": self._messages_taken(),
            "bytes_fetched": self.fetcher.fetched_bytes,
            "fetch_requests": self.fetcher.requests,
            "fetch_request_failures": self.fetcher.request_failures,
            "buffered_bytes": sum(cursor.buffer.buffered_bytes for cursor in cursors),
            "asked_bytes": sum(cursor.ask.max_bytes for cursor in cursors if cursor.ask),
            "assigned_partitions": len(self.cursors),
            "paused_partitions": sum(cursor.paused for cursor in cursors),
            "lag": sum(lags.values()),
            **{f"lag{{{tp.topic}-{tp.partition}}}": lag for tp, lag in lags.items()},
        }

    # --- inside -----------------------------------------------------------------------------------

    def _replace(
        self, partitions: Iterable[TopicPartition], new_partitions: Collection[TopicPartition]
    ) -> None:
        wanted = dict.fromkeys(partitions)
        for tp in [tp for tp in self.cursors if tp not in wanted]:
            cursor = self.cursors.pop(tp)
            self.feed.withdraw(cursor)
            self.positions.forget(cursor)
            cursor.seek(0)  # frees its memory, ends walks
            self._messages += cursor.buffer.handed_out
        config = self._router.config
        for tp in wanted:
            if tp in self.cursors:
                cursor = self.cursors[tp]
                if cursor.revoked:  # it was, but isn't any more
                    cursor.revoked = False
                    self.changed(cursor)
                    self.feed.arrived(cursor)
            else:
                cursor = Cursor(
                    tp,
                    self._config.decoding,
                    (config.retry_backoff_s, config.retry_backoff_max_s),
                )
                if tp in new_partitions and self._config.reset is not None:
                    cursor.restart(StartPosition.EARLIEST)
                self.cursors[tp] = cursor
                self.positions.need(cursor)
        self.feed.bell.notify()

    async def _revoke(self, partitions: frozenset[TopicPartition]) -> None:
        self.hold_back(partitions)
        await self.commits.automatic(partitions)
        listener = self._subscription.listener
        if partitions and listener is not None:
            await _tell(listener.on_partitions_revoked, partitions)

    def _messages_taken(self) -> int:
        return self._messages + sum(one.buffer.handed_out for one in self.cursors.values())

    def _need_position(self, cursor: Cursor) -> None:
        self.positions.need(cursor)
        self.feed.bell.notify()

    def _got_position(self, cursor: Cursor) -> None:
        self.fetcher.offer(cursor)
        self.feed.arrived(cursor)

    def _make_room(self, wanted: set[Cursor] | None) -> None:
        self.fetcher.make_room(wanted)

    def _crashed(self, error: BaseException) -> None:
        _log.error("the consumer can't go on", exc_info=error)
        self._crash = error
        self.feed.bell.notify()


async def _tell(
    method: Callable[[Collection[TopicPartition]], object], partitions: frozenset[TopicPartition]
) -> None:
    """Call a listener; what it raises is its own affair, as with aiokafka."""
    try:
        result = method(partitions)
        if inspect.isawaitable(result):
            await result
    except (Exception, asyncio.CancelledError) as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise  # it is this task that was cancelled, not one that the listener waited for
        _log.exception("a rebalance listener failed on %s", sorted(partitions))
