"""The long polls: one loop per leader, each request with all partitions that are ready there.

Carries out what `source` plans and what `cursor` decides; what is fetched waits in the cursors'
buffers, within the memory that `shares` splits. Law: one request per broker is under way at a time
(they answer one at a time, docs/brokers.md 3.1), the next one leaves as soon as it is answered,
whatever the user does meanwhile.

How long a partition may wait behind an idle poll: one that is new, resumed or sought joins the next
request of its leader, so it waits for the one under way, `fetch_max_wait_ms` at most, once. One
whose full buffer is taken waits hardly at all (`source`). A broker that fails is asked again after
a back-off of its own; a partition's error concerns that partition alone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from functools import partial

from aiokafka08.concurrency.notifier import Notifier
from aiokafka08.consumer.cursor import Cursor, FetchResult, PartitionFetch
from aiokafka08.consumer.fetch_memory import FetchMemory
from aiokafka08.consumer.fetch_plan import FetchPlan, FetchQueue
from aiokafka08.consumer.next_fetch import may_hide_large
from aiokafka08.errors import KafkaError, KafkaProtocolError
from aiokafka08.net.cluster import ClusterSnapshot
from aiokafka08.net.router import Lane, Router
from aiokafka08.net.versions import BrokerLine
from aiokafka08.net.watchdog import ResponseWatchdog
from aiokafka08.protocol.api import FetchedPartition, FetchPartition, FetchRequest, by_topic
from aiokafka08.protocol.frame import held_bytes
from aiokafka08.telemetry import PartitionFailed

OLD_LINES_WAIT_S = 0.1
"""0.8.0 and 0.8.1 keep a partition's error back for the whole wait (docs/brokers.md 7.3)."""

SLICE_S = 0.005
"""How long answers are taken over before the loop gets its turn."""

WAITED_SHARE = 0.8
"""An answer after this share of the wait counts as one that has waited (clocks differ)."""


class Fetcher:
    """Fetches for the cursors that it is given.

    Args:
        on_arrival: called when a cursor has got messages, or an error to tell.
        on_check: called when a cursor's position has to be checked.
        on_queued: called when one has to wait for lent memory: calls that wait may make room.
        on_crash: called with what ended a loop that should never end.
    """

    def __init__(
        self,
        router: Router,
        shares: FetchMemory,
        *,
        min_bytes: int,
        max_wait_s: float,
        on_arrival: Callable[[Cursor], object],
        on_check: Callable[[Cursor], object],
        on_queued: Callable[[], object],
        on_crash: Callable[[BaseException], object],
    ) -> None:
        self.requests = 0
        self.request_failures = 0
        self.fetched_bytes = 0
        self._router = router
        self._shares = shares
        self._min_bytes = min_bytes
        self._max_wait_s = max_wait_s
        self._on_arrival = on_arrival
        self._on_check = on_check
        self._on_queued = on_queued
        self._on_crash = on_crash
        self._cursors: dict[Cursor, FetchQueue | None] = {}  # with the source of its leader
        self._sources: dict[int, tuple[FetchQueue, Notifier, asyncio.Task[None]]] = {}
        self._failing: set[int] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._leaderless = Notifier()
        self._finder: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to fetch."""
        loop = asyncio.get_running_loop()
        self._finder = loop.create_task(self._find_leaders(), name="aiokafka08 leader finder")
        self._finder.add_done_callback(self._ended)
        self.follow(self._router.metadata.snapshot)

    async def stop(self) -> None:
        """End all loops; what is under way is given up."""
        tasks = [*(task for _, _, task in self._sources.values()), *self._ending]
        if self._finder is not None:
            tasks.append(self._finder)
        self._finder = None
        self._sources.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def set_cursors(self, cursors: Iterable[Cursor]) -> None:
        """Fetch for these from now on, and for no others."""
        wanted = dict.fromkeys(cursors)
        for cursor, source in list(self._cursors.items()):
            if cursor not in wanted:
                del self._cursors[cursor]
                if source is not None:
                    source.remove(cursor)
                cursor.moved()
                self._shares.give_back(cursor)
        for cursor in wanted:
            self._cursors.setdefault(cursor, None)
        self._shares.split(len(wanted))
        self.follow(self._router.metadata.snapshot)

    def follow(self, snapshot: ClusterSnapshot) -> None:
        """PartitionFetch each partition's leader in this snapshot."""
        if self._finder is None:
            return
        now = asyncio.get_running_loop().time()
        for cursor, source in self._cursors.items():
            leader = snapshot.leader(cursor.topic_partition)
            if source is not None and leader == source.node_id:
                continue
            if source is not None:
                source.remove(cursor)
                cursor.moved()
                self._release(cursor)
            if leader is None:
                self._cursors[cursor] = None
                self._leaderless.notify()
                continue
            new, bell = self._source(leader)
            self._cursors[cursor] = new
            new.add(cursor, now)
            bell.notify()
        for node_id, (source, _, task) in list(self._sources.items()):
            if not source.cursors:
                del self._sources[node_id]
                task.cancel()
                self._ending.add(task)
                task.add_done_callback(self._ending.discard)
        self._serve_queue()

    def offer(self, cursor: Cursor) -> None:
        """The cursor has changed: taken from, sought, paused, resumed, told its error."""
        self._release(cursor)
        self._offer(cursor)
        self._serve_queue()

    def make_room(self, wanted: set[Cursor] | None) -> None:
        """Take lent memory back from buffers that nobody waits for, if somebody needs it."""
        queue = self._shares.queue
        if queue and (wanted is None or not wanted.isdisjoint(queue)):
            for cursor in self._shares.idle_borrowers(wanted):
                position = cursor.position
                if position is not None:
                    cursor.seek(position)  # fetched again later
                    self.offer(cursor)

    def reaches(self, cursor: Cursor) -> bool:
        """Whether the partition has a leader, and that one answers."""
        source = self._cursors.get(cursor)
        return source is not None and source.node_id not in self._failing

    # --- inside -----------------------------------------------------------------------------------

    def _source(self, node_id: int) -> tuple[FetchQueue, Notifier]:
        if node_id not in self._sources:
            source, bell = FetchQueue(node_id, self._shares, self._max_wait_s), Notifier()
            task = asyncio.get_running_loop().create_task(
                self._poll(source, bell), name=f"aiokafka08 fetch from node {node_id}"
            )
            task.add_done_callback(self._ended)
            self._sources[node_id] = (source, bell, task)
        return self._sources[node_id][:2]

    async def _poll(self, source: FetchQueue, bell: Notifier) -> None:
        loop = asyncio.get_running_loop()
        config = self._router.config
        backoff = config.backoff()
        while True:
            now, rings = loop.time(), bell.count
            next_due = source.due(now)
            plan = source.plan(now, self._wait_limit_s(source.node_id))
            if source.queued:
                self._on_queued()
            self._serve_queue()
            if plan is None:
                self.make_room(None)
                if bell.count == rings:
                    await bell.wait(next_due)
                continue
            try:
                answer, elapsed_s = await self._ask(source.node_id, plan)
            except KafkaError as error:
                self._unanswered(source, plan, error)
                await asyncio.sleep(backoff.next())
                continue
            except BaseException:
                for ask in plan.asks:
                    ask.cursor.give_up(ask)
                raise
            backoff.reset()
            self._failing.discard(source.node_id)
            waited = elapsed_s >= plan.wait_s * WAITED_SHARE if plan.alone else None
            await self._take(source.node_id, plan, answer, waited)

    async def _ask(
        self, node_id: int, plan: FetchPlan
    ) -> tuple[dict[tuple[str, int], FetchedPartition], float]:
        """The answer by topic and partition (their order isn't the request's, 3.11), and how long
        it took."""
        asked = [
            (topic, FetchPartition(partition, ask.offset, ask.max_bytes))
            for ask in plan.asks
            for topic, partition in (ask.cursor.topic_partition,)
        ]
        request = FetchRequest(
            -1,
            round(plan.wait_s * 1000),
            1 if plan.alone else self._min_bytes,
            by_topic(asked),
        )
        metadata = self._router.metadata
        fails = partial(self._failing.add, node_id)
        with ResponseWatchdog(metadata, on_overdue=fails):
            connection = await self._router.connection(node_id, Lane.FETCH)
        loop = asyncio.get_running_loop()
        sent = loop.time()
        self.requests += 1
        with ResponseWatchdog(metadata, expected_s=plan.wait_s, on_overdue=fails):
            answer = await connection.request(
                request, timeout_s=plan.wait_s + self._router.config.request_timeout_s
            )
        return {
            (topic.topic, fetched.partition): fetched
            for topic in answer.topics
            for fetched in topic.partitions
        }, loop.time() - sent

    async def _take(
        self,
        node_id: int,
        plan: FetchPlan,
        answer: dict[tuple[str, int], FetchedPartition],
        waited: bool | None,
    ) -> None:
        """Give each cursor its part. The loop gets its turn in between."""
        loop = asyncio.get_running_loop()
        turn_ends = loop.time() + SLICE_S
        now_ms = time.time_ns() // 1_000_000
        hides_large = may_hide_large(self._router.version(node_id))
        held = max((held_bytes(one.message_set) for one in answer.values()), default=0)
        frame = self._shares.frames.new(held)
        for ask in plan.asks:
            fetched = answer.pop(ask.cursor.topic_partition, None)
            if fetched is None:
                if ask.cursor.give_up(ask):
                    error = KafkaProtocolError("the broker left it out of its answer")
                    ask.cursor.back_off(loop.time())
                    self._failed(ask.cursor, error)
                    self.offer(ask.cursor)
                continue
            self.fetched_bytes += len(fetched.message_set)
            verdict = ask.cursor.answered(
                ask,
                fetched,
                limit_bytes=self._shares.limit_bytes,
                waited=waited,
                hides_large=hides_large,
                now=loop.time(),
                now_ms=now_ms,
                frame=frame,
            )
            self._act(ask, verdict, fetched.error_code)
            if loop.time() >= turn_ends:
                await asyncio.sleep(0)
                turn_ends = loop.time() + SLICE_S
        self._shares.frames.trim()

    def _act(self, ask: PartitionFetch, verdict: FetchResult, error_code: int) -> None:
        cursor = ask.cursor
        match verdict:
            case FetchResult.DATA:
                self._on_arrival(cursor)
            case FetchResult.QUIET:
                self._on_arrival(cursor)  # the position may have moved over a hole
            case FetchResult.ERROR:
                self._failed(cursor, cursor.error)
                self._on_arrival(cursor)
            case FetchResult.CHECK:
                self._failed(cursor, f"offset {ask.offset} was refused")
                self._on_check(cursor)
            case FetchResult.REFRESH:
                self._failed(cursor, f"error code {error_code}")
                self._router.metadata.request_refresh()
            case FetchResult.RETRY:
                self._failed(cursor, f"error code {error_code}")
            case FetchResult.LATE:
                pass
        self.offer(cursor)

    def _unanswered(self, source: FetchQueue, plan: FetchPlan, error: KafkaError) -> None:
        """A request failed: the broker rests, its partitions stay ready (or move)."""
        self.request_failures += 1
        self._failing.add(source.node_id)
        self._router.metadata.request_refresh()
        now = asyncio.get_running_loop().time()
        for ask in plan.asks:
            if ask.cursor.give_up(ask):
                if not error.retriable:
                    ask.cursor.fail(error, now)
                    self._failed(ask.cursor, error)
                    self._on_arrival(ask.cursor)
                self.offer(ask.cursor)

    def _failed(self, cursor: Cursor, reason: object) -> None:
        self._router.telemetry.emit(PartitionFailed(cursor.topic_partition, str(reason)))

    def _release(self, cursor: Cursor) -> None:
        """Lent memory goes back where nothing is in it or under way for it."""
        if cursor.ask is None and not cursor.buffer.buffered_bytes:
            self._shares.give_back(cursor)

    def _offer(self, cursor: Cursor) -> None:
        source = self._cursors.get(cursor)
        if source is not None and source.offer(cursor, asyncio.get_running_loop().time()):
            running = self._sources.get(source.node_id)
            if running is not None:
                running[1].notify()

    def _serve_queue(self) -> None:
        """Let the first who waits for lent memory try again, if there is enough now."""
        cursor = self._shares.next_in_queue()
        if cursor is not None:
            self._offer(cursor)

    def _wait_limit_s(self, node_id: int) -> float:
        version = self._router.version(node_id)
        if version is not None and version.line < BrokerLine.V0_8_2:
            return OLD_LINES_WAIT_S
        return self._max_wait_s

    async def _find_leaders(self) -> None:
        """While partitions have no leader, nobody's answer would tell that there is one again."""
        config = self._router.config
        backoff = config.backoff()
        while True:
            lost = [cursor for cursor, source in self._cursors.items() if source is None]
            if not lost:
                backoff.reset()
                await self._leaderless.wait()
                continue
            snapshot = self._router.metadata.snapshot
            for cursor in lost:
                reason = snapshot.no_leader_reason(cursor.topic_partition)
                if reason is not None:  # else it hasn't been asked for yet
                    self._failed(cursor, reason)
            self._router.metadata.request_refresh()
            await asyncio.sleep(backoff.next())

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_crash(error)
