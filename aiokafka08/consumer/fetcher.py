"""Fetch messages with a long poll per broker, into the buffers of the cursors.

Invariant: at most one long poll per broker is in flight (a broker answers one request at a time per
connection, docs/brokers.md 3.1), and at most one urgent request beside it, on a connection of its
own. The next long poll leaves as soon as the response to the last one is applied, if a partition is
ready; no call has to ask for messages. Messages for a position that was given up since the request
are dropped. An error of a partition concerns that partition alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from aiokafka08 import environment
from aiokafka08._core.concurrency.loop_yield import LoopSlice
from aiokafka08._core.concurrency.notifier import Notifier
from aiokafka08._core.concurrency.task_set import TaskSet
from aiokafka08._core.histogram import Histogram
from aiokafka08._core.net.cluster import ClusterSnapshot
from aiokafka08._core.net.quota import log_withheld
from aiokafka08._core.net.router import Lane, Router
from aiokafka08._core.net.transport import BrokerConnection
from aiokafka08._core.net.versions import BrokerLine
from aiokafka08._core.net.watchdog import ResponseWatchdog
from aiokafka08._core.ranges.next_fetch import may_hide_large
from aiokafka08.consumer.cursor import (
    Cursor,
    FetchResult,
    PartitionFetch,
    ResponseContext,
    ResponseTime,
)
from aiokafka08.consumer.fetch_memory import FetchMemory
from aiokafka08.consumer.fetch_plan import IDLE_WAIT_S, FetchPlan, FetchQueue
from aiokafka08.consumer.fetch_request import (
    QuotaExceededError,
    exchange,
    make_request,
)
from aiokafka08.consumer.observer import ConsumerObserver
from aiokafka08.errors import KafkaError, KafkaTimeoutError, broker_error
from aiokafka08.protocol.api import by_partition, left_out
from aiokafka08.protocol.frame import held_bytes
from aiokafka08.protocol.requests.fetch import FetchedPartition
from aiokafka08.telemetry import PartitionFailed

_log: Final = logging.getLogger("aiokafka08.consumer")

OLD_LINES_WAIT_S: Final = 0.1
"""The longest wait of brokers 0.8.0 and 0.8.1, which keep a partition's error back until the wait
is over (docs/brokers.md 7.3). A consumer without a group doesn't probe which 0.8 release a broker
has, so it doesn't limit the wait and gets the error later."""

WAITED_SHARE: Final = 0.8
"""A broker that responds after this share of the wait counts as having waited to the end, since the
two clocks may run at different speeds."""

HANGING_S: Final = 0.003
"""From this age on a long poll counts as hanging. Younger ones are likely to return right away. The
urgent partitions then join the next one, so no second connection is needed."""

URGENT_RETRY_S: Final = 30.0
"""The pause of the urgent requests after one has failed, since the broker may limit the connections
of a client, or be down."""


@dataclass(slots=True, eq=False)
class _Broker:
    """One leader: its queue, and the tasks that fetch from it."""

    queue: FetchQueue
    # How long an overdue response may hold borrowed memory that others wait for. Doubled each time
    # that a request is given up, so that a slow broker's response comes in time at last.
    patience_s: float
    changed: Notifier = field(default_factory=Notifier)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    # Loop time from which the long poll in flight counts as hanging; None: there is none, or its
    # wait is too short for that
    hangs_from: float | None = None
    is_urgent: bool = False  # whether the task of the urgent requests runs
    # Loop time before which no urgent request is sent, after one has failed or was throttled
    urgent_from: float = 0.0
    # Whether the last response had no data because the client exceeds its quota
    is_throttled: bool = False


class Fetcher:
    """Fetch for the assigned cursors; see the module."""

    def __init__(
        self,
        router: Router,
        memory: FetchMemory,
        observer: ConsumerObserver,
        *,
        min_bytes: int,
        max_wait_s: float,
        new_slice: Callable[[], LoopSlice] = LoopSlice,
    ) -> None:
        self.requests = 0  # how many fetch requests were sent
        self.request_failures = 0  # how many of them failed as a whole
        # The times of successful requests, from the write to the response, which may wait for
        # messages
        self.request_times = Histogram("fetch_request_seconds")
        self.fetched_bytes = 0  # bytes of all message sets that came
        self._router = router
        self.memory = memory  # limits the bytes that cursors buffer and request
        self._observer = observer
        self._min_bytes = min_bytes
        self._max_wait_s = max_wait_s
        self._responds_at_once = min_bytes == 0 or max_wait_s < IDLE_WAIT_S
        self._new_slice = new_slice
        self._queues: dict[Cursor, FetchQueue | None] = {}  # all cursors; None: no leader
        self._brokers: dict[int, _Broker] = {}
        # Whether the memory was overdrawn at the last check, so that brokers may wait to plan
        self._was_overdrawn = False
        self._tasks = TaskSet(observer.task_failed)
        self._leaderless = Notifier()
        self._time: Callable[[], float]
        self._leader_finder: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._time = asyncio.get_running_loop().time
        self._leader_finder = self._tasks.start(self._find_leaders(), "aiokafka08 leader finder")
        self.follow_leaders(self._router.metadata.snapshot)

    async def stop(self) -> None:
        """End all tasks; fetches in flight are abandoned."""
        self._leader_finder = None
        self._brokers.clear()
        await self._tasks.cancel()

    def set_cursors(self, cursors: Iterable[Cursor]) -> None:
        """Fetch for these cursors from now on, and for no others."""
        wanted = dict.fromkeys(cursors)
        for cursor, queue in list(self._queues.items()):
            if cursor not in wanted:
                del self._queues[cursor]
                if queue is not None:
                    queue.remove(cursor)
                cursor.change_leader()  # drops the fetch in flight
                self.memory.remove(cursor)
        for cursor in wanted:
            self._queues.setdefault(cursor, None)
        self.memory.divide(len(wanted))
        self.follow_leaders(self._router.metadata.snapshot)

    def follow_leaders(self, snapshot: ClusterSnapshot) -> None:
        """Move each cursor to the queue of its leader in this snapshot. No effect when stopped."""
        if self._leader_finder is None:
            return
        now = asyncio.get_running_loop().time()
        for cursor, queue in self._queues.items():
            leader = snapshot.leader(cursor.topic_partition)
            if queue is not None and leader == queue.node_id:
                continue
            if queue is not None:
                queue.remove(cursor)
                cursor.change_leader()
                self._release_memory(cursor)
            if leader is None:
                self._queues[cursor] = None
                self._leaderless.notify()
                continue
            broker = self._broker(leader)
            self._queues[cursor] = broker.queue
            broker.queue.add(cursor, now)
            self._queue_changed(broker)
        for node_id, broker in list(self._brokers.items()):
            if not broker.queue.cursors:
                del self._brokers[node_id]
                for task in broker.tasks:
                    task.cancel()
        self._serve_waiters()

    def update(self, cursor: Cursor) -> None:
        """Plan anew after a change of the cursor: a read, `seek()`, pause, resume or failure."""
        if cursor in self._queues:
            if cursor.borrowed_bytes:
                self._release_memory(cursor)
            self._update_queue(cursor)
            if not self.memory.waiters and not self._was_overdrawn:
                return
        else:
            self.memory.remove(cursor)
        self._serve_waiters()

    def reclaim_memory(self, wanted: set[Cursor] | None) -> None:
        """Take borrowed memory back from buffers that no call reads, if a cursor waits for it."""
        waiters = self.memory.waiters
        # `wanted`: the cursors that a waiting call wants to read; None: all.
        if waiters and (wanted is None or not wanted.isdisjoint(waiters)):
            for cursor in self.memory.idle_borrowers(wanted):
                if cursor.position is not None:
                    cursor.drop_buffer()  # the messages are fetched again later
                    self.update(cursor)  # returns the borrowed bytes

    def report_damage(self, cursor: Cursor) -> None:
        text = "the next message is damaged or too large; fetching it again, from offset"
        self._emit_failure(cursor, cursor.error or f"{text} {cursor.next_fetch.offset}")

    @property
    def requested_bytes(self) -> int:
        return sum(cursor.requested_bytes for cursor in self._queues) + self.memory.removed_bytes

    @property
    def buffered_limit_bytes(self) -> int:
        return self.memory.buffered_limit_bytes(self._queues)

    @property
    def hanging_polls(self) -> int:
        """Number of long polls in flight that hang, or will if no message comes."""
        return sum(broker.hangs_from is not None for broker in self._brokers.values())

    def leader(self, cursor: Cursor) -> int | None:
        queue = self._queues.get(cursor)
        return None if queue is None else queue.node_id

    def has_live_leader(self, cursor: Cursor) -> bool:
        """Whether the partition has a leader, and that broker responds."""
        queue = self._queues.get(cursor)
        return queue is not None and not queue.failing

    # --- the requests to one broker ---------------------------------------------------------------

    def _broker(self, node_id: int) -> _Broker:
        """Return the broker's entry; begin to poll it if it is new."""
        if node_id not in self._brokers:
            queue = FetchQueue(node_id, self.memory, self._max_wait_s)
            broker = _Broker(queue, self._router.config.limits.overdue_s)
            self._brokers[node_id] = broker
            self._start(broker, self._poll(broker), f"aiokafka08 fetch from node {node_id}")
        return self._brokers[node_id]

    async def _poll(self, broker: _Broker) -> None:
        loop = asyncio.get_running_loop()
        queue, changed = broker.queue, broker.changed
        backoff = self._router.config.backoff()
        while True:
            now, count = loop.time(), changed.count
            next_due = queue.end_backoffs(now)
            plan = queue.plan(now, self._wait_limit_s(queue.node_id))
            if queue.queued:
                self._observer.memory_exhausted()
            self._serve_waiters()
            if plan is None:
                self.reclaim_memory(None)  # from paused partitions
                if changed.count == count:
                    await changed.wait(next_due)
                continue
            try:
                fetched, took = await self._fetch(broker, plan, Lane.FETCH)
            except KafkaError as error:
                self._request_failed(broker, plan, error)
                await asyncio.sleep(backoff.next())
                continue
            except QuotaExceededError as exceeded:
                self._throttled(broker, plan, exceeded.delay_s)
                await asyncio.sleep(exceeded.delay_s)
                continue
            backoff.reset()
            broker.is_throttled = False
            queue.idle = self._responds_at_once and not any(
                partition.message_set for partition in fetched.values()
            )
            await self._apply_response(queue.node_id, plan, fetched, took)

    def _queue_changed(self, broker: _Broker) -> None:
        broker.changed.notify()
        if broker.hangs_from is not None:
            self._start_urgent(broker)

    def _start_urgent(self, broker: _Broker) -> None:
        """Start the urgent requests if the hanging long poll would delay a partition."""
        if not broker.is_urgent and (broker.queue.has_urgent or broker.queue.has_backoffs):
            broker.is_urgent = True
            name = f"aiokafka08 urgent fetch from node {broker.queue.node_id}"
            self._start(broker, self._fetch_urgent(broker), name)

    async def _fetch_urgent(self, broker: _Broker) -> None:
        """Fetch the urgent partitions while the long poll hangs, until there are none."""
        loop = asyncio.get_running_loop()
        queue, changed = broker.queue, broker.changed
        try:
            # These requests don't wait, so messages that are in the log come at once. Once the long
            # poll has ended, urgent partitions join the next one, which the broker may hold back
            # for `fetch_max_wait_ms`.
            while broker.hangs_from is not None:
                now, count = loop.time(), changed.count
                next_due = queue.end_backoffs(now)
                begin = max(broker.hangs_from, broker.urgent_from)
                if queue.has_urgent and now < begin:
                    next_due = begin
                else:
                    plan = queue.plan_urgent(now)
                    if queue.queued:  # the plan left out a partition: note it before the request
                        self._observer.memory_exhausted()
                    if plan is not None:
                        await self._send_urgent(broker, plan)
                        continue
                if next_due is None:
                    return
                if changed.count == count:
                    await changed.wait(next_due)
        finally:
            broker.is_urgent = False

    async def _send_urgent(self, broker: _Broker, plan: FetchPlan) -> None:
        try:
            fetched, took = await self._fetch(broker, plan, Lane.URGENT_FETCH)
        except KafkaError:
            # The partitions join the next long poll, which finds out whether the broker is lost.
            self.request_failures += 1
            self._router.metadata.request_refresh()
            broker.urgent_from = asyncio.get_running_loop().time() + URGENT_RETRY_S
            self._abandon(plan.fetches)
        except QuotaExceededError as exceeded:
            broker.urgent_from = asyncio.get_running_loop().time() + exceeded.delay_s
            self._throttled(broker, plan, exceeded.delay_s)
        else:
            await self._apply_response(broker.queue.node_id, plan, fetched, took)
        finally:
            broker.queue.end_urgent()

    async def _fetch(
        self, broker: _Broker, plan: FetchPlan, lane: Lane
    ) -> tuple[dict[tuple[str, int], FetchedPartition], ResponseTime]:
        """Send the request; return the response by partition, and the time that it took."""
        node_id = broker.queue.node_id
        request = make_request(plan, self._min_bytes)
        metadata, overdue_s = self._router.metadata, self._router.config.limits.overdue_s
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(None) as limit:
                connection = self._router.open_lane(node_id, lane)
                if connection is None or not connection.writable:
                    on_overdue = partial(self._overdue, broker, plan, None, limit)
                    with ResponseWatchdog(metadata, overdue_s, on_overdue=on_overdue):
                        connection = await self._router.connection(node_id, lane)
                        await connection.wait_writable()
                sent = loop.time()
                self.requests += 1
                if plan.wait_s > HANGING_S:
                    broker.hangs_from = sent + HANGING_S
                    self._start_urgent(broker)
                on_overdue = partial(self._overdue, broker, plan, connection, limit)
                response = await exchange(
                    self._router, connection, request, plan.wait_s, on_overdue
                )
        except (KafkaError, QuotaExceededError):
            raise
        except TimeoutError:  # `_overdue` has ended the wait
            raise KafkaTimeoutError(
                f"node {node_id}: gave up an overdue fetch, since other partitions wait for memory"
            ) from None
        # Cancelled, or a bug. No response is applied.
        except BaseException:
            self._abandon(plan.fetches)
            raise
        finally:
            if lane is Lane.FETCH:
                broker.hangs_from = None
        broker.queue.failing = False
        if self._has_borrowed(plan):
            broker.patience_s = overdue_s
        began, ended = connection.response_began, loop.time()
        self.request_times.add(ended - sent)
        return by_partition(response.topics), ResponseTime(began - sent, ended - began)

    def _overdue(
        self,
        broker: _Broker,
        plan: FetchPlan,
        connection: BrokerConnection | None,
        limit: asyncio.Timeout,
    ) -> None:
        """Mark the broker as failing; end the wait if others need what the request borrowed."""
        self._mark_failing(broker)
        if limit.expired() or not self.memory.waiters or not self._has_borrowed(plan):
            return
        # `connection` is None until it is open and writable.
        if connection is not None:
            # `HANGING_S` allows for a timer that runs a little early.
            silent_s = connection.response_wait_s - plan.wait_s + HANGING_S
            if silent_s < broker.patience_s:
                return
        broker.patience_s *= 2
        limit.reschedule(self._time())

    def _mark_failing(self, broker: _Broker) -> None:
        if broker.queue.fail(self._time()):
            self._queue_changed(broker)
            self._serve_waiters()

    def _has_borrowed(self, plan: FetchPlan) -> bool:
        return any(fetch.cursor.borrowed_bytes for fetch in plan.fetches)

    async def _apply_response(
        self,
        node_id: int,
        plan: FetchPlan,
        response: dict[tuple[str, int], FetchedPartition],
        took: ResponseTime,
    ) -> None:
        """Pass each cursor its part of the response; yield to the event loop in between."""
        # All sets are parts of one frame.
        frame_bytes = next(
            (held_bytes(partition.message_set) for partition in response.values()), 0
        )
        context = ResponseContext(
            self.memory.limit_bytes,
            sum(took) >= plan.wait_s * WAITED_SHARE if plan.alone else None,
            may_hide_large(self._router.version(node_id)),
            self._time(),
            environment.wall_time_ms(),
            self.memory.frames.new_frame(frame_bytes),
            took,
        )
        loop_slice = self._new_slice()
        loop_slice.restart()
        fetches = iter(plan.fetches)
        try:
            for fetch in fetches:
                cursor = fetch.cursor
                fetched = response.pop(cursor.topic_partition, None)
                if fetched is None:
                    self._left_out(fetch)
                    continue
                self.fetched_bytes += len(fetched.message_set)
                result = cursor.apply_response(fetch, fetched, context)
                self._carry_out(result, fetch, fetched.error_code)
                if loop_slice.is_over():
                    await loop_slice.next()
        finally:
            self._abandon(fetches)  # the rest, if this task is cancelled
        self.memory.frames.trim()

    def _left_out(self, fetch: PartitionFetch) -> None:
        """Back off from a partition that is missing in the response."""
        cursor = fetch.cursor
        if cursor.abandon_fetch(fetch):
            error = left_out("the partition")
            cursor.back_off(asyncio.get_running_loop().time())
            self._emit_failure(cursor, error)
        self.update(cursor)

    def _carry_out(self, result: FetchResult, fetch: PartitionFetch, error_code: int) -> None:
        cursor = fetch.cursor
        match result:
            case FetchResult.DATA:
                self._observer.messages_fetched(cursor)
            case FetchResult.EMPTY | FetchResult.STALE:
                pass  # nothing that a call waits for
            case FetchResult.ERROR:
                if isinstance(cursor.error, KafkaError):
                    self._router.config.named(cursor.error)
                self._emit_failure(cursor, cursor.error)
                self._observer.messages_fetched(cursor)
            case FetchResult.OFFSET_REFUSED:
                self._emit_failure(cursor, f"offset {fetch.offset} was refused")
                self._observer.offset_refused(cursor)
            case FetchResult.REFRESH:
                self._emit_failure(cursor, broker_error(error_code))
                self._router.metadata.request_refresh()
            case FetchResult.DAMAGED:
                self.report_damage(cursor)
            case FetchResult.RETRY:
                self._emit_failure(cursor, broker_error(error_code))
        self.update(cursor)

    def _request_failed(self, broker: _Broker, plan: FetchPlan, error: KafkaError) -> None:
        """Put the partitions back: they are ready again, or move to another leader."""
        self.request_failures += 1
        self._mark_failing(broker)
        self._router.metadata.request_refresh()
        now = asyncio.get_running_loop().time()
        for fetch in plan.fetches:
            cursor = fetch.cursor
            if cursor.abandon_fetch(fetch) and not error.retriable:
                cursor.fail(error, now)
                self._emit_failure(cursor, error)
                self._observer.messages_fetched(cursor)
            self.update(cursor)

    def _throttled(self, broker: _Broker, plan: FetchPlan, delay_s: float) -> None:
        """Put the partitions back, and log the first of several delays in a row."""
        self._abandon(plan.fetches)
        if not broker.is_throttled:
            broker.is_throttled = True
            log_withheld(_log, self._router.config.client_id, broker.queue.node_id, delay_s)

    def _abandon(self, fetches: Iterable[PartitionFetch]) -> None:
        """Put back the partitions of fetches that get no response."""
        for fetch in fetches:
            fetch.cursor.abandon_fetch(fetch)
            self.update(fetch.cursor)

    # --- inside -----------------------------------------------------------------------------------

    def _start(self, broker: _Broker, work: Coroutine[Any, Any, None], name: str) -> None:
        """Start a task that ends when no cursor is led by this broker any more."""
        task = self._tasks.start(work, name)
        broker.tasks.add(task)
        task.add_done_callback(broker.tasks.discard)

    def _emit_failure(self, cursor: Cursor, reason: object) -> None:
        self._router.telemetry.emit(PartitionFailed(cursor.topic_partition, str(reason)))

    def _release_memory(self, cursor: Cursor) -> None:
        """Return borrowed memory if nothing is buffered in it or in flight for it."""
        if not cursor.requested_bytes and not cursor.buffer.buffered_bytes:
            self.memory.release(cursor)

    def _update_queue(self, cursor: Cursor) -> None:
        queue = self._queues.get(cursor)
        if queue is not None and queue.update(cursor, self._time()):
            broker = self._brokers.get(queue.node_id)
            if broker is not None:
                self._queue_changed(broker)

    def _serve_waiters(self) -> None:
        """Let brokers whose partitions wait for memory plan again, if there is enough now."""
        was_overdrawn, self._was_overdrawn = self._was_overdrawn, self.memory.is_overdrawn
        if was_overdrawn and not self._was_overdrawn:
            for broker in self._brokers.values():
                self._queue_changed(broker)
        cursor = self.memory.next_waiter()
        if cursor is not None:
            self._update_queue(cursor)

    def _wait_limit_s(self, node_id: int) -> float:
        version = self._router.version(node_id)
        if version is not None and version.line in (BrokerLine.V0_8_0, BrokerLine.V0_8_1):
            return OLD_LINES_WAIT_S
        return max(self._max_wait_s, IDLE_WAIT_S)

    async def _find_leaders(self) -> None:
        """Refresh the metadata while partitions have no leader."""
        config = self._router.config
        backoff = config.backoff()
        while True:
            leaderless = [cursor for cursor, queue in self._queues.items() if queue is None]
            if not leaderless:
                backoff.reset()
                await self._leaderless.wait()
                continue
            snapshot = self._router.metadata.snapshot
            for cursor in leaderless:
                reason = snapshot.no_leader_reason(cursor.topic_partition)
                if reason is not None:  # None: no metadata was requested yet
                    self._emit_failure(cursor, reason)
            # Such a partition is in no fetch request, so no error code reveals its new leader.
            self._router.metadata.request_refresh()
            await asyncio.sleep(backoff.next())
