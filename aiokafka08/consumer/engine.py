"""Own the assigned cursors and the parts that work on them, and connect these parts.

Invariant: `cursors` holds exactly the partitions that are assigned now, also while one is being
revoked (`Cursor.revoked`). A partition that was removed and is assigned again gets a new cursor, so
a part that still holds the old one can't affect it. While a member rejoins a group that a broker
coordinates, `cursors` is empty, and `assigned` shows the partitions of the last generation. The
engine holds no reference to the public consumer, so a consumer that is dropped without `stop()` is
collected, and warns.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from aiokafka08._core.concurrency.loop_yield import LoopSlice
from aiokafka08._core.concurrency.offload import Offload
from aiokafka08._core.net.cluster import ClusterSnapshot, check_partitions
from aiokafka08._core.net.lifecycle import Lifecycle, run_all_steps
from aiokafka08._core.net.router import Router
from aiokafka08._core.offset_store import OffsetStore
from aiokafka08._core.offset_store.choose import choose_offset_store
from aiokafka08._core.offset_store.no_store import no_group_error
from aiokafka08._wording import partition_text, some_of
from aiokafka08.consumer.collector import Collector
from aiokafka08.consumer.commits import Committer, known_positions
from aiokafka08.consumer.config import ConsumerConfig
from aiokafka08.consumer.cursor import Cursor, StartPosition
from aiokafka08.consumer.fetch_memory import FetchMemory
from aiokafka08.consumer.fetcher import Fetcher
from aiokafka08.consumer.limits import CONSUMER_LIMITS, ConsumerLimits
from aiokafka08.consumer.member_state import MemberState
from aiokafka08.consumer.membership import Membership
from aiokafka08.consumer.membership.choose import (
    check_group_options,
    check_subscribe,
    choose_membership,
)
from aiokafka08.consumer.missing_topics import MissingTopicReporter
from aiokafka08.consumer.start_offsets import StartOffsets
from aiokafka08.consumer.subscription import Subscription, SubscriptionKind
from aiokafka08.errors import (
    ConsumerStoppedError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    PartitionRevokedError,
)
from aiokafka08.protocol.twins import CONSUMER_TWINS, are_compiled
from aiokafka08.structs import OffsetAndMetadata, TopicPartition
from aiokafka08.telemetry import Event, PartitionFailed, Rebalanced

_log: Final = logging.getLogger("aiokafka08.consumer")
_LOGGERS: Final = ("net", "consumer")

FETCH_COMMITTED_PART: Final = 0.9
"""The part of `start_timeout_ms` that one attempt to read the committed offsets may take."""


class ConsumerEngine:
    """The assigned partitions of one consumer, with all that reads them; see the module.

    Raises IllegalArgumentError and KafkaConfigurationError as `check_group_options`.
    """

    def __init__(
        self,
        router: Router,
        config: ConsumerConfig,
        subscription: Subscription,
        lifecycle: Lifecycle,
        *,
        limits: ConsumerLimits = CONSUMER_LIMITS,
        new_slice: Callable[[], LoopSlice] = LoopSlice,
        new_offload: Callable[[], Offload] = Offload,
    ) -> None:
        self.cursors: dict[TopicPartition, Cursor] = {}  # the assigned partitions
        self._former: dict[TopicPartition, Cursor] = {}  # see `assigned`
        self._is_started = False
        # True while `start()` waits for positions; `activity` counts that as a waiting call
        self._waits_for_positions = False
        self._router = router
        self.config = config
        self._subscription = subscription
        self._lifecycle = lifecycle
        self._limits = limits
        self._assignors = check_group_options(config)
        self.member_state = MemberState()  # generation, member id and session
        # The membership in the group; None until the start has chosen it
        self.membership: Membership | None = None
        # The offset store of the group; None until it is started
        self.store: OffsetStore | None = None
        self._failure: BaseException | None = None  # each call raises it
        # Errors after which a part continues, by the part's name: the next calls raise each once.
        self._reported: dict[str, KafkaError] = {}
        # The number of the subscription whose listener knows that the group has revoked all
        # partitions; None while the group has assigned some.
        self._revoked_subscription: int | None = None
        self._returned_count = 0  # messages of partitions that aren't assigned any more
        self.offload = new_offload()  # the threads of this consumer
        # Serves the calls that take messages
        self.collector = Collector(
            self.cursors,
            self,
            self.offload,
            call_decompressed_bytes=limits.call_decompressed_bytes,
            new_slice=new_slice,
        )
        self.commits = Committer(config, self.member_state, self.cursors, router, self)
        self.start_offsets = StartOffsets(router, config.reset, self)  # finds missing positions
        self.fetcher = Fetcher(
            router,
            FetchMemory(config.fetch_max_bytes, config.max_partition_fetch_bytes),
            self,
            min_bytes=config.fetch_min_bytes,
            max_wait_s=config.fetch_max_wait_s,
            new_slice=new_slice,
        )
        self.missing_topics = MissingTopicReporter(router, subscription, self.task_failed)
        router.metadata.add_listener(self._metadata_changed)

    # --- start and stop ---------------------------------------------------------------------------

    def bind_loop(self) -> None:
        self.collector.start()

    async def start(self) -> None:
        """Find the brokers and the topics, choose offset store and membership for them, and begin.

        With a subscription, this returns when the first partitions are assigned, and their
        positions are known or weren't found in `ConsumerLimits.start_positions_s`.

        Raises:
            KafkaTimeoutError: the committed offsets aren't known after `start_timeout_ms`. (A
                missing response of a partition's leader doesn't fail the start.)
        """
        router, subscription = self._router, self._subscription
        self._track_topics()
        await router.start(keep_connected=True)
        if subscription.by_topic:
            check_subscribe(self.config, router)
        for topic in sorted(subscription.tracked_topics or ()):
            await router.metadata.wait_for_topic(topic, timeout_s=router.config.request_timeout_s)
        group = self.config.group_id
        coordinator = None
        if group is not None:
            from aiokafka08._core.net.coordinator_lookup import CoordinatorLookup

            coordinator = CoordinatorLookup(router, group)
        zookeeper = None
        if coordinator is not None and self.config.zookeeper_connect is not None:
            from aiokafka08._core.zookeeper.cluster_check import ClusterZookeeper
            from aiokafka08._core.zookeeper.security import OPEN

            zookeeper = ClusterZookeeper(
                router,
                self.config.zookeeper_connect,
                self.config.zookeeper_check,
                self.config.zookeeper_security or OPEN,
            )
        store = await choose_offset_store(
            router,
            coordinator,
            self.config.offsets_storage,
            zookeeper,
            timeout_s=router.config.start_timeout_s,
            check_session=self.commits.check_session,
        )
        try:
            await store.start()
        except BaseException:
            await store.stop()
            raise
        self.store = store  # only now: until then commit() and committed() refuse
        self.membership = choose_membership(
            self.config,
            self._assignors,
            router,
            subscription,
            self,
            self.member_state,
            coordinator,
            zookeeper,
        )
        self.fetcher.start()
        net = router.config
        # An attempt ends before the start does, so that the error of the start can say why.
        fetch_s = min(net.request_timeout_s, net.start_timeout_s * FETCH_COMMITTED_PART)
        self.start_offsets.start(store, fetch_s if subscription.by_topic else None)
        self.commits.start(store, self.membership)
        await self.membership.start()
        if subscription.by_topic:
            # So that messages sent after the start are read, even if positions begin at the end.
            limit_s = min(self._limits.start_positions_s, router.config.request_timeout_s)
            self._waits_for_positions = True
            try:
                await self.start_offsets.wait_known(limit_s)
                error = await self.start_offsets.wait_committed(
                    max(router.config.start_timeout_s - limit_s, 0.0)
                )
            finally:
                self._waits_for_positions = False
            if error is not None:
                raise KafkaTimeoutError(
                    f"group {group!r}: committed offsets unknown after start_timeout_ms="
                    f"{router.config.start_timeout_s * 1000:.0f}; last error: "
                    f"{error.nested_text(KafkaTimeoutError)}"
                    f"{'' if coordinator is None else coordinator.unreachable_hint()}"
                )
        self._is_started = True

    async def stop(self) -> None:
        """End all work; run all steps, then raise the first error."""
        await run_all_steps(
            self._router.config.client_id,
            self.finish,
            self._stop_membership,
            self._stop_reading,
            self.offload.stop,
            self._drop_buffers,
            self._stop_store,
            self._router.stop,
        )

    async def finish(self) -> None:
        """End the calls that take messages, and commit the positions after their messages."""
        # This must end before the membership does. Then other members read the partitions.
        self.collector.close()
        await self.commits.stop()

    async def _stop_membership(self) -> None:
        if self.membership is not None:
            await self.membership.stop()

    async def _stop_reading(self) -> None:
        await run_all_steps(
            self._router.config.client_id,
            self.missing_topics.stop,
            self.start_offsets.stop,
            self.fetcher.stop,
        )

    async def _drop_buffers(self) -> None:
        """Free what was fetched and not returned. No thread decompresses it any more."""
        for cursor in self.cursors.values():
            cursor.drop_buffer()

    async def _stop_store(self) -> None:
        if self.store is not None:
            await self.store.stop()

    # --- for the public consumer ------------------------------------------------------------------

    @property
    def member_id(self) -> str:
        return self.member_state.member

    @property
    def generation(self) -> int:
        return self.member_state.generation

    def require_store(self) -> OffsetStore:
        """Return the group's offset store; raise IllegalStateError or IllegalOperation."""
        if self.store is None:
            raise self._lifecycle.still_starting()
        if self.config.group_id is None:
            raise no_group_error()
        return self.store

    async def fetch_committed(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int | None]:
        """Fetch the committed offsets; None where nothing is committed."""
        for tp in partitions:
            if not isinstance(tp, TopicPartition):
                raise TypeError(f"partition {tp!r}: expected a TopicPartition")
        check_partitions(partitions)
        committed = await self.require_store().fetch(partitions)
        commits = {tp: committed.get(tp) for tp in partitions}
        return {tp: None if commit is None else commit.offset for tp, commit in commits.items()}

    @property
    def assigned(self) -> Mapping[TopicPartition, Cursor]:
        """The partitions that are assigned; during a rebalance those of the last generation."""
        return self.cursors or self._former

    def cursor(self, partition: TopicPartition) -> Cursor:
        """Return the cursor of an assigned partition, or raise IllegalStateError."""
        cursor = self.assigned.get(partition)
        if cursor is None:
            raise IllegalStateError(
                f"partition {partition}: not assigned to this consumer. Use assign() or "
                "subscribe() to read it"
            )
        return cursor

    def check_commit(self, partitions: Collection[TopicPartition]) -> None:
        """Raise an error unless all these partitions are assigned.

        Raises:
            PartitionRevokedError: a partition of the subscription isn't assigned to this member.
            CommitFailedError: the same, and the session in ZooKeeper has ended.
            IllegalStateError: another partition isn't assigned, such as one that doesn't exist.
        """
        for tp in partitions:
            if tp in self.assigned:
                continue
            subscription, snapshot = self._subscription, self._router.metadata.snapshot
            if (
                subscription.by_topic
                and tp.topic in subscription.topics(snapshot)
                and tp.partition in snapshot.partitions(tp.topic)
            ):
                self.commits.check_session()
                raise PartitionRevokedError(
                    f"commit of offsets: {partition_text(tp)}: not assigned to this member now; "
                    "the one that has it begins at the committed offset"
                )
            self.cursor(tp)

    def commit_positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return what `commit()` without offsets commits: nothing if the group assigns nothing.

        Raises:
            PartitionRevokedError: the group rebalances, and commits must wait for its end.
            CommitFailedError: the same, and the session in ZooKeeper has ended.
            IllegalStateError: nothing is assigned or subscribed.
        """
        if not self.assigned:
            if not self._subscription.by_topic:
                raise IllegalStateError("commit(): no partitions are assigned")
            if self.membership is None or not self.membership.is_joined:
                self.commits.check_session()
                raise PartitionRevokedError(
                    "commit(): no partitions are assigned while the group rebalances. Their next "
                    "members begin at the committed offsets"
                )
        return known_positions(self.assigned)

    def select(self, partitions: Collection[TopicPartition]) -> list[Cursor]:
        """Return the cursors of these partitions, or of all if none is named.

        Raises IllegalStateError if one isn't assigned, TypeError if one isn't a `TopicPartition`.
        """
        if not all(isinstance(partition, TopicPartition) for partition in partitions):
            raise TypeError(f"partitions={partitions!r}: expected TopicPartition instances")
        return [self.cursor(tp) for tp in partitions or list(self.assigned)]

    def set_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Assign just these partitions. Those that stay keep their position and buffer."""
        self._set_partitions(partitions, ())
        self.fetcher.set_cursors(self.cursors.values())

    def subscription_changed(self) -> None:
        """Return nothing more of partitions outside the subscription; assign anew."""
        self._track_topics()
        if not self._lifecycle.is_running:
            return
        meant = self._subscription.partitions(self._router.metadata.snapshot)
        self._stop_returning(self.cursors.keys() - meant)
        if self._subscription.kind is not SubscriptionKind.NONE:
            self._router.metadata.request_refresh()
        if self.membership is not None:
            self.membership.on_change()
        self.missing_topics.watch()

    def seek(self, cursor: Cursor, offset: int) -> None:
        """Continue at `offset`, for the user."""
        # Messages that calls have taken no longer hold back the position to commit.
        cursor.unreturned = ()
        cursor.seek(offset)
        self.rewind(cursor, offset)

    def rewind(self, cursor: Cursor, offset: int) -> None:
        """Continue at `offset`, whose message a call has taken but doesn't return."""
        self.collector.remove(cursor)
        # Messages before `offset` that other calls have taken and not returned still hold back the
        # position to commit.
        cursor.unreturned = tuple(one for one in cursor.unreturned if one.position < offset)
        cursor.put_back(offset)
        self._cursor_changed(cursor)
        self.collector.changed.notify()

    def fail(self, cursor: Cursor, error: Exception) -> None:
        """Let the next call raise `error` in place of the partition's next message."""
        if cursor.is_new(error):
            self.decoding_failed(cursor, error)
        cursor.fail(error, asyncio.get_running_loop().time())
        self._cursor_changed(cursor)
        self.collector.add_ready(cursor)

    def restart(self, cursor: Cursor, start: StartPosition) -> None:
        """Give up the position; `start` tells how to find the next one."""
        self.collector.remove(cursor)
        cursor.unreturned = ()
        cursor.restart(start)
        self._cursor_changed(cursor)

    def pause(self, cursor: Cursor) -> None:
        """Return and fetch nothing more; buffered messages stay."""
        cursor.paused = True
        self.collector.remove(cursor)
        self._cursor_changed(cursor)

    def resume(self, cursor: Cursor) -> None:
        cursor.resume()
        self._cursor_changed(cursor)
        self.collector.add_ready(cursor)

    async def wait_positions(self, partitions: Collection[TopicPartition]) -> bool:
        """Wait until these partitions have positions; False after `request_timeout_ms`.

        Raises:
            IllegalStateError: one isn't assigned (any more).
            KafkaError: its position can't be found.
        """
        deadline = asyncio.get_running_loop().time() + self._router.config.request_timeout_s
        while True:
            self.check()
            missing = [cursor for cursor in self.select(partitions) if cursor.position is None]
            for cursor in missing:
                try:
                    cursor.raise_error()
                finally:
                    self._cursor_changed(cursor)
            if not missing:
                return True
            if not await self.collector.changed.wait(deadline):
                return False

    def is_healthy(self) -> bool:
        """Whether the start has ended, and all assigned partitions can be read now."""
        membership = self.membership
        has_partitions = not self._subscription.by_topic or (
            membership is not None and membership.is_joined
        )
        return (
            self._is_started
            and self._failure is None
            and has_partitions
            and self._router.is_reachable()
            and all(
                cursor.position is not None and self.fetcher.has_live_leader(cursor)
                for cursor in self.cursors.values()
            )
        )

    def metrics(self) -> dict[str, float]:
        """Return counters and gauges by name; an event that never occurred counts 0."""
        cursors = self.cursors.values()
        known = {cursor.topic_partition: cursor.lag for cursor in cursors}
        lags = {tp: lag for tp, lag in known.items() if lag is not None}
        return {
            **{kind.name: 0 for kind in Event.__subclasses__() if kind.logger in _LOGGERS},
            **self._router.telemetry.counters,
            "messages_consumed": self._messages_returned(),
            "bytes_fetched": self.fetcher.fetched_bytes,
            "fetch_requests": self.fetcher.requests,
            "fetch_request_failures": self.fetcher.request_failures,
            **self.fetcher.request_times.metrics(),
            **self.commits.times.metrics(),
            "buffered_bytes": sum(cursor.buffer.buffered_bytes for cursor in cursors),
            "buffered_limit_bytes": self.fetcher.buffered_limit_bytes,
            "requested_bytes": self.fetcher.requested_bytes,
            "assigned_partitions": len(self.cursors),
            "paused_partitions": sum(cursor.paused for cursor in cursors),
            "compiled": int(are_compiled(CONSUMER_TWINS)),
            "lag": sum(lags.values()),
            **{f"lag{{{tp.topic}-{tp.partition}}}": lag for tp, lag in lags.items()},
        }

    # --- for the membership: `membership.Assignee` ------------------------------------------------

    async def assign(
        self,
        partitions: Collection[TopicPartition],
        new_partitions: Collection[TopicPartition] = (),
        *,
        always_notify: bool = False,
    ) -> None:
        old, new = frozenset(self.cursors), frozenset(partitions)
        unchanged = old == new and not any(cursor.revoked for cursor in self.cursors.values())
        if unchanged and not always_notify:
            return
        number = self._subscription.number
        if old - new:
            await self._revoke(old - new)
        if self._subscription.number != number:
            return  # the user has changed the subscription while the listener was awaited
        self._revoked_subscription = None
        self._set_partitions(new, new_partitions)
        self.commits.level_stores_soon(new - old)
        self._router.telemetry.emit(Rebalanced(tuple(sorted(new - old)), tuple(sorted(old - new))))
        listener = self._subscription.listener
        if listener is not None:
            await self._call_listener(listener.on_partitions_assigned, new)
        # Fetching begins only now, because the listener may seek before the first message comes.
        self.fetcher.set_cursors(self.cursors.values())

    async def revoke(self, *, rejoins: bool = False) -> None:
        # The user may have called assign() since the membership decided to revoke: before this
        # method began, or while it awaited a commit or the listener. The membership must not revoke
        # what the user assigned, so check the kind of the subscription before each step.
        deadline = self.commits.revoke_deadline()
        number = self._subscription.number
        if (
            self._subscription.kind is not SubscriptionKind.ASSIGNED
            and self._revoked_subscription != number
        ):
            self._revoked_subscription = number
            await self._revoke(frozenset(self.cursors))
        await self.commits.wait_pending(deadline)
        if self._subscription.kind is not SubscriptionKind.ASSIGNED:
            self.commits.cancel_pending()
            former = dict(self.assigned)
            self.set_partitions(())
            # Not with offsets in ZooKeeper: it would accept a commit of the former partitions after
            # another member has read further.
            if rejoins and self.config.offsets_storage in (None, "kafka"):
                self._former = former

    def activity(self) -> int | None:
        if self.collector.waiting_calls or self._waits_for_positions:
            return None
        return self.collector.call_count + self._messages_returned()

    def membership_failed(self, error: BaseException) -> None:
        self._fail_calls(error)

    def report_error(self, error: KafkaError | None) -> None:
        if error is None:
            self._reported.pop("membership", None)
        else:
            self._reported["membership"] = error
            self.collector.changed.notify()

    # --- for the parts: `observer.ConsumerObserver` -----------------------------------------------

    def check(self) -> None:
        if self._lifecycle.stopped:
            raise ConsumerStoppedError
        self._lifecycle.check()
        if self._failure is not None:
            raise self._failure
        if self._reported:
            raise self._reported.pop(next(iter(self._reported)))
        if self.membership is not None:
            self.membership.on_call()

    def messages_fetched(self, cursor: Cursor) -> None:
        self.collector.add_ready(cursor)

    def offset_refused(self, cursor: Cursor) -> None:
        self.start_offsets.add(cursor)
        self.collector.changed.notify()

    def memory_exhausted(self) -> None:
        self.collector.changed.notify()

    def position_found(self, cursor: Cursor) -> None:
        self.fetcher.update(cursor)
        self.collector.add_ready(cursor)

    def messages_returned(self, cursor: Cursor) -> None:
        self._cursor_changed(cursor)

    def damage_found(self, cursor: Cursor) -> None:
        self.fetcher.report_damage(cursor)

    def decoding_failed(self, cursor: Cursor, error: Exception) -> None:
        notes = "; ".join(getattr(error, "__notes__", ()))
        # The text of an error of this package begins with its class.
        named = str(error) if isinstance(error, KafkaError) else f"{type(error).__name__}: {error}"
        reason = f"{named}; {notes}" if notes else named
        self._router.telemetry.emit(PartitionFailed(cursor.topic_partition, reason))

    def call_starved(self, wanted: set[Cursor] | None) -> None:
        self.fetcher.reclaim_memory(wanted)

    def commit_failed(self, error: KafkaError) -> None:
        self._reported["commits"] = error
        self.collector.changed.notify()

    def task_failed(self, error: BaseException) -> None:
        _log.error(
            "%s: consumer failed: internal error in a background task; calls raise it",
            self._router.config.client_id,
            exc_info=error,
        )
        self._fail_calls(error)

    # --- inside -----------------------------------------------------------------------------------

    def _fail_calls(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error
        self.collector.changed.notify()

    def _track_topics(self) -> None:
        topics, metadata = self._subscription.tracked_topics, self._router.metadata
        metadata.all_topics = topics is None or not metadata.may_create_topics
        metadata.set_topics(topics or ())

    def _metadata_changed(self, snapshot: ClusterSnapshot) -> None:
        self.missing_topics.watch()
        self.fetcher.follow_leaders(snapshot)
        if self.membership is not None:
            self.membership.on_change()

    def _cursor_changed(self, cursor: Cursor) -> None:
        self.start_offsets.add(cursor)
        self.fetcher.update(cursor)

    def _set_partitions(
        self, partitions: Iterable[TopicPartition], new_partitions: Collection[TopicPartition]
    ) -> None:
        for cursor in self._former.values():
            self.start_offsets.remove(cursor)
        self._former = {}
        wanted = dict.fromkeys(sorted(partitions))  # the order of a set varies by process
        for tp in [tp for tp in self.cursors if tp not in wanted]:
            cursor = self.cursors.pop(tp)
            self.collector.remove(cursor)
            self.start_offsets.remove(cursor)
            cursor.drop_buffer()
            self._returned_count += cursor.buffer.returned_count
        config = self._router.config
        for tp in wanted:
            if tp in self.cursors:
                cursor = self.cursors[tp]
                if cursor.revoked:  # being revoked, but assigned again before it was removed
                    cursor.revoked = False
                    cursor.urgent = True
                    self._cursor_changed(cursor)
                    self.collector.add_ready(cursor)
            else:
                cursor = Cursor(
                    tp,
                    self.config.decoding,
                    (config.retry_backoff_s, config.retry_backoff_max_s),
                    self._limits.max_tries,
                )
                if tp in new_partitions and self.config.reset is not None:
                    cursor.restart(StartPosition.EARLIEST)
                self.cursors[tp] = cursor
                self.start_offsets.add(cursor)
        self.collector.changed.notify()

    def _stop_returning(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no more messages of partitions that are about to be revoked."""
        for tp in partitions:
            cursor = self.cursors[tp]
            cursor.revoked = True
            self.collector.remove(cursor)

    async def _revoke(self, partitions: frozenset[TopicPartition]) -> None:
        self._stop_returning(partitions)
        await self.commits.commit_revoked(partitions)
        listener = self._subscription.listener
        if listener is not None:
            await self._call_listener(listener.on_partitions_revoked, partitions)

    def _messages_returned(self) -> int:
        return self._returned_count + sum(
            cursor.buffer.returned_count for cursor in self.cursors.values()
        )

    async def _call_listener(
        self,
        method: Callable[[Collection[TopicPartition]], object],
        partitions: frozenset[TopicPartition],
    ) -> None:
        """Call a rebalance listener. Log what it raises, as aiokafka does."""
        try:
            result = method(partitions)
            if inspect.isawaitable(result):
                await result
        except (Exception, asyncio.CancelledError) as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise  # this task was cancelled, not one that the listener awaits
            _log.exception(
                "%s: rebalance listener failed for partitions %s",
                self._router.config.client_id,
                some_of(sorted(partitions)),
            )
