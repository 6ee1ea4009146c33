"""The metadata cache: the current snapshot of the cluster, and its refreshes.

A refresh runs every `metadata_max_age_ms`, and soon (with backoff) when a caller requests it.

Invariant: at most one refresh runs at a time. `fetch_all()` isn't a refresh and may run beside one:
both merge their responses into the snapshot that is current by then, and the response to the older
call replaces no topic that the newer call has updated. A snapshot object never changes. A failed
response removes nothing from the cache (see `cluster`).
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import Final

from aiokafka08._core.concurrency.loop_yield import in_steps, run_in_steps
from aiokafka08._core.names import similar_names
from aiokafka08._core.net.backoff import Backoff
from aiokafka08._core.net.cluster import ClusterSnapshot, MergedTopic, MergeOrder, TopicInfo
from aiokafka08._core.net.config import NetConfig
from aiokafka08._core.net.metadata_fetcher import MetadataFetcher, MetadataReply
from aiokafka08._core.net.node_registry import NodeRegistry
from aiokafka08._core.net.retry import is_final, retry
from aiokafka08._core.net.staggered_race import Stagger
from aiokafka08._core.net.versions import BrokerLine
from aiokafka08._core.topic_names import check_topic_name
from aiokafka08._wording import missing_topics_text, number_span
from aiokafka08.errors import (
    IllegalStateError,
    InvalidTopicError,
    KafkaError,
    KafkaTimeoutError,
    KafkaUnavailableError,
    LeaderNotAvailableError,
    UnknownTopicOrPartitionError,
)
from aiokafka08.protocol.requests.metadata import MetadataResponse, TopicState
from aiokafka08.telemetry import (
    MetadataChanged,
    MetadataFailed,
    Telemetry,
    TopicCreated,
    TopicMissing,
)

_log: Final = logging.getLogger("aiokafka08.net")

# The codes of a topic that doesn't exist; the second one while it is being created.
_ABSENT: Final = (UnknownTopicOrPartitionError.errno, LeaderNotAvailableError.errno)


class Metadata:
    """Keep a snapshot of the cluster, for the tracked topics or for all."""

    def __init__(self, nodes: NodeRegistry, config: NetConfig, telemetry: Telemetry) -> None:
        self.snapshot = ClusterSnapshot()  # the cluster as of the last response
        self.all_topics = False  # request every topic on each refresh (pattern subscriptions)
        # Set it to False only with `all_topics`. If True, a topic that a caller waits for is
        # requested by name if the brokers don't list it; they may then create it. If False, such a
        # topic counts as missing. Without `all_topics`, tracked and awaited topics are always
        # requested by name.
        self.may_create_topics = True
        self._topics: set[str] = set()
        self._waiting: Counter[str] = Counter()  # callers of `wait_for_topic()`, by topic
        self._fetcher = MetadataFetcher(nodes, config)
        self._nodes = nodes
        self._config = config
        self._telemetry = telemetry
        self._refreshing: asyncio.Task[None] | None = None
        # The timeouts of the callers that wait for a refresh
        self._caller_timeouts: set[asyncio.Timeout] = set()
        # How long the running refresh waits for one broker before it also asks the next one
        self._stagger = Stagger()
        self._started_refreshes = 0
        self._calls = 0  # number of the last call: a refresh, or `fetch_all()`
        self._order = MergeOrder()
        self._failure: KafkaError | None = None  # the error of the last refresh, if it failed
        self._tracked_wanted = False  # the next refresh requests the tracked topics too
        self._wanted = asyncio.Event()
        self._refresher: asyncio.Task[None] | None = None
        self._stopped = False
        # By topic; at most one warning in the life of this object
        self._warnings: dict[str, asyncio.Task[None]] = {}
        self._listeners: list[Callable[[ClusterSnapshot], object]] = []
        self._backoff = config.backoff()

    def start(self) -> None:
        """Start the background refreshes."""
        self._check()
        self._refresher = asyncio.get_running_loop().create_task(self._refresh_loop())

    def close(self) -> None:
        """Stop the refreshes; callers that wait for one get an error."""
        self._stopped = True
        for task in self._tasks():
            task.cancel()

    async def stop(self) -> None:
        """Stop the refreshes, and wait until the background tasks have ended."""
        self.close()
        await asyncio.gather(*self._tasks(), return_exceptions=True)

    def _tasks(self) -> list[asyncio.Task[None]]:
        tasks = (self._refresher, self._refreshing, *self._warnings.values())
        return [task for task in tasks if task is not None]

    def _check(self) -> None:
        if self._stopped:
            raise IllegalStateError("the client was stopped")

    def add_listener(self, listener: Callable[[ClusterSnapshot], object]) -> None:
        """Call `listener` with each new snapshot."""
        self._listeners.append(listener)

    def add_topics(self, topics: Iterable[str]) -> None:
        """Track these topics too, from the next refresh on; raises InvalidTopicError."""
        self._topics.update(map(check_topic_name, topics))

    def set_topics(self, topics: Iterable[str]) -> None:
        self._topics = set(map(check_topic_name, topics))

    def request_refresh(self) -> None:
        """Refresh soon in the background: something in the snapshot is stale."""
        self._wanted.set()

    async def refresh(self, timeout_s: float | None = None) -> ClusterSnapshot:
        """Refresh now and return the new snapshot.

        The refresh begins after the call; all callers that come while one runs share the next one.
        After `timeout_s` the refresh goes on for other callers.

        Raises:
            TimeoutError: it hasn't ended within `timeout_s`.
            NoBrokersAvailable: no broker responded.
            IllegalStateError: the client was stopped.
        """
        self._tracked_wanted = True
        return await self._next_refresh(timeout_s)

    async def _next_refresh(self, timeout_s: float | None) -> ClusterSnapshot:
        """Wait for a refresh that begins after this call; start it if necessary."""
        async with asyncio.timeout(timeout_s) as limit:
            self._caller_timeouts.add(limit)
            if timeout_s is not None:
                # This caller waits for the running refresh too, so a broker that hangs may take
                # only a part of its time.
                self._stagger.shorten(timeout_s / 4)
            try:
                # A running refresh isn't enough, because it may lack topics that were added since,
                # and its response may be older than the error that the caller has met.
                await self._wait_for_refresh(self._started_refreshes + 1)
            finally:
                self._caller_timeouts.discard(limit)
        return self.snapshot

    async def _wait_for_refresh(self, number: int) -> None:
        while True:
            self._check()
            if self._refreshing is None:
                self._refreshing = asyncio.get_running_loop().create_task(self._refresh())
                self._refreshing.add_done_callback(self._on_refreshed)
            task = self._refreshing
            await asyncio.wait((task,))
            self._check()
            if self._started_refreshes >= number:
                return task.result()

    async def wait_for_topic(
        self,
        topic: str,
        *,
        timeout_s: float,
        leaders: Callable[[Iterable[bool]], bool] = all,
        leaders_s: float = math.inf,
        until_unknown: bool = False,
    ) -> TopicInfo:
        """Return a topic with its partitions; request it, if necessary (brokers may create it).

        If the snapshot has partitions of the topic, return at once, even if they have no leaders.

        Args:
            topic: its name.
            timeout_s: how long to wait until the topic exists and its partitions have leaders. If
                some have no leader at the deadline, return them as they are.
            leaders: when to end that wait: `all` if every partition must have a leader, `any` if
                one such partition is enough.
            leaders_s: how much of `timeout_s` to wait for leaders, if the topic exists.
            until_unknown: end the wait when brokers have said for long enough that the topic
                doesn't exist. If False, report the topic with similar names (`warn_missing`).

        Raises:
            InvalidTopicError: the name is invalid.
            UnknownTopicOrPartitionError: the topic doesn't exist, and isn't created.
            KafkaTimeoutError: no broker reported the topic in time; the text has the last error.
            IllegalStateError: the client was stopped.
        """
        check_topic_name(topic)
        info = self.snapshot.topics.get(topic)
        if info is None or not info.partitions:
            # The topic is tracked after it was found, not before: otherwise a missing topic would
            # be requested for ever.
            self._waiting[topic] += 1
            try:
                info = await self._wait_for_topic(
                    topic, timeout_s, leaders, leaders_s, until_unknown=until_unknown
                )
            finally:
                self._waiting[topic] -= 1
                if not self._waiting[topic]:
                    del self._waiting[topic]
        self._topics.add(topic)
        return info

    async def wait_for_partitions(
        self, topic: str, partitions: Collection[int], *, timeout_s: float
    ) -> None:
        """Refresh until the snapshot has these partitions of a known topic; they may be new.

        `timeout_s` limits the wait for responses. If the responses lack partitions, the wait for
        these ends after `NetLimits.partition_unknown_s`, if that is shorter.

        Raises:
            UnknownTopicOrPartitionError: the brokers have left one of them out for that time.
            KafkaTimeoutError: no broker has responded.
            KafkaError: the last refresh before the end of that time failed.
            IllegalStateError: the client was stopped.
        """

        began = asyncio.get_running_loop().time()

        async def attempt(limit_s: float) -> bool | KafkaError:
            # Wait for all of `timeout_s`, not for `limit_s` only: without a response the partitions
            # can't be called missing.
            left_s = began + timeout_s - asyncio.get_running_loop().time()
            known = (await self.refresh(left_s)).partitions(topic)
            missing = [partition for partition in partitions if partition not in known]
            return not missing or UnknownTopicOrPartitionError(
                f"topic {topic!r} has no partition {', '.join(map(str, missing))}; it has "
                f"{number_span(list(known))}"
            )

        self._topics.add(topic)
        await retry(
            attempt,
            deadline=began + min(timeout_s, self._config.limits.partition_unknown_s),
            backoff=self._config.backoff(at_least_s=0.01),
            timed_out=lambda last: last or self.timed_out(topic, timeout_s),
        )

    def warn_missing(self, topic: str) -> None:
        """Report once, with similar names, that a missing topic is waited for (`TopicMissing`)."""
        if topic not in self._warnings and not self._stopped:
            task = asyncio.get_running_loop().create_task(self._warn_missing(topic))
            self._warnings[topic] = task

    async def _warn_missing(self, topic: str) -> None:
        try:
            # Not merged into the snapshot, which has the tracked topics only.
            listing = (await self._fetcher.all_topics())[0].response
        except KafkaError:
            # `MetadataFailed` and the caller's own error say more. Let a later call warn, when a
            # broker responds.
            del self._warnings[topic]
            return
        names = [state.topic for state in listing.topics]
        if topic in names:
            return  # it was created meanwhile
        similar = await run_in_steps(similar_names(topic, names))
        if self.snapshot.is_missing(topic):
            self._telemetry.emit(TopicMissing(topic, tuple(similar)))

    def timed_out(self, topic: str, timeout_s: float, last: KafkaError | None = None) -> KafkaError:
        """Return the error of a caller that has waited `timeout_s` for a topic.

        `last`: the last error; None for the error of the last refresh, or of the topic.
        """
        info = self.snapshot.topics.get(topic)
        last = last or self._failure or (None if info is None else self._unusable_error(info))
        if isinstance(last, UnknownTopicOrPartitionError | InvalidTopicError):
            return last
        return KafkaTimeoutError(
            f"topic {topic!r}: no metadata within {timeout_s * 1000:.0f} ms"
            + (f"; last error: {last.nested_text(KafkaTimeoutError)}" if last else "")
        )

    async def _wait_for_topic(
        self,
        topic: str,
        timeout_s: float,
        leaders: Callable[[Iterable[bool]], bool],
        leaders_s: float,
        *,
        until_unknown: bool,
    ) -> TopicInfo:
        loop = asyncio.get_running_loop()
        leaders_by = loop.time() + leaders_s
        info: TopicInfo | None = None
        unknown_since: float | None = None
        was_missing = False  # a response had the topic without partitions
        is_unknown = False  # at least two responses have lacked the topic, for long enough

        def note_unknown() -> None:
            nonlocal unknown_since, is_unknown
            if unknown_since is None:
                unknown_since = loop.time()
                return
            unknown_s = loop.time() - unknown_since
            if until_unknown:
                is_unknown = unknown_s >= self._unknown_s()
            elif unknown_s >= self._config.limits.topic_unknown_s:
                self.warn_missing(topic)

        async def attempt(limit_s: float) -> TopicInfo | KafkaError:
            nonlocal info, unknown_since, was_missing
            failure: KafkaError | None = None
            exists = info is not None and bool(info.partitions)
            if exists:
                limit_s = min(limit_s, max(leaders_by - loop.time(), 0.0))
            try:
                await self._next_refresh(limit_s)
            except TimeoutError:
                if not exists:
                    raise
            except KafkaError as error:
                if is_final(error):
                    raise
                failure = error
            info = self.snapshot.topics.get(topic)
            if info is None and failure is None and not self.may_create_topics:
                note_unknown()
            if info is not None:
                was_missing |= not info.partitions and info.error_code in _ABSENT
                if info.partitions and (
                    leaders(partition.leader is not None for partition in info.partitions.values())
                    or loop.time() >= leaders_by
                ):
                    return info
                unusable = self._unusable_error(info)
                if not isinstance(unusable, UnknownTopicOrPartitionError):
                    unknown_since = None
                elif failure is None:
                    note_unknown()
                return unusable
            if not self.may_create_topics:
                return UnknownTopicOrPartitionError(missing_topics_text([topic]))
            return failure or KafkaUnavailableError("the brokers' metadata left the topic out")

        # A topic that was just created has its leaders soon, so begin with short waits.
        first_s = min(max(self._config.retry_backoff_s, 0.01), 0.05)
        try:
            found = await retry(
                attempt,
                deadline=loop.time() + timeout_s,
                backoff=Backoff(first_s, max(self._config.retry_backoff_max_s, first_s)),
                timed_out=lambda last: self.timed_out(topic, timeout_s, last),
                is_final=lambda error: is_unknown or is_final(error),
            )
        except KafkaTimeoutError:
            if info is not None and info.partitions:
                return info
            raise
        if was_missing and topic not in self._topics:
            self._topics.add(topic)  # so that other callers don't report it again
            self._telemetry.emit(TopicCreated(topic, len(found.partitions)))
        return found

    def _unknown_s(self) -> float:
        versions = (node.version for node in self._nodes)
        if any(version is not None and version.line >= BrokerLine.V0_10 for version in versions):
            return self._config.limits.topic_creating_s
        return self._config.limits.topic_unknown_s

    def _unusable_error(self, info: TopicInfo) -> KafkaError:
        if info.error_code:
            return self._config.named(info.error)
        leaderless = [
            partition.partition
            for partition in info.partitions.values()
            if partition.leader is None
        ]
        return LeaderNotAvailableError(
            f"topic {info.topic!r}: partitions {leaderless} have no leader"
        )

    def _on_refreshed(self, task: asyncio.Task[None]) -> None:
        self._refreshing = None
        if not task.cancelled():
            task.exception()  # mark it as retrieved, since the callers of `refresh()` raise it

    def _new_call(self) -> int:
        self._calls += 1
        return self._calls

    async def _refresh(self) -> None:
        self._started_refreshes += 1
        call = self._new_call()
        needed = self._topics | self._waiting.keys()
        # Only the awaited topics, if no caller needs the tracked ones, so that the cost of a new
        # topic doesn't grow with the number of known topics.
        topics = sorted(needed if self._tracked_wanted else self._waiting)
        self._tracked_wanted = False
        self._stagger = Stagger()
        soonest = min(
            (when for limit in self._caller_timeouts if (when := limit.when()) is not None),
            default=math.inf,
        )
        try:
            if self.all_topics:
                by_name = self._waiting if self.may_create_topics else ()
                replies = await self._fetcher.all_topics(
                    by_name, soonest=soonest, stagger=self._stagger
                )
            else:
                replies = await self._fetcher.topics(
                    topics, needed, soonest=soonest, stagger=self._stagger
                )
        except KafkaError as error:
            self._failure = error
            self._telemetry.emit(MetadataFailed(str(error)))
            raise
        self._failure = None
        await self._merge(replies, call)

    async def fetch_all(self, timeout_s: float | None = None) -> MetadataResponse:
        """Request all topics once, merge the response into the snapshot, and return it.

        Raises:
            TimeoutError: it hasn't ended within `timeout_s`.
            NoBrokersAvailable: no broker responded.
            IllegalStateError: the client was stopped.
        """
        self._check()
        async with asyncio.timeout(timeout_s) as limit:
            call = self._new_call()
            replies = await self._fetcher.all_topics(soonest=limit.when() or math.inf)
            await self._merge(replies, call)
        return replies[0].response

    async def _merge(self, replies: Collection[MetadataReply], call: int) -> None:
        merged = {}
        for reply in replies:
            # In steps, so that the metadata of many topics doesn't hold the event loop.
            async for state in in_steps(reply.response.topics, _partition_count):
                known = self.snapshot.topics.get(state.topic)
                merged[state.topic] = MergedTopic.of(known, state)
        # Merge into the current snapshot, not into that from before the request: `fetch_all()` and
        # a refresh may overlap. The newer call may be done first, if its response is small.
        snapshot = self.snapshot
        for reply in replies:
            snapshot = self._order.merge(
                snapshot, reply.response, call=call, all_topics=reply.all_topics, merged=merged
            )
        if not self._stopped and snapshot != self.snapshot:
            self.adopt(snapshot)

    def adopt(self, snapshot: ClusterSnapshot) -> None:
        self.snapshot = snapshot
        self._telemetry.emit(MetadataChanged(tuple(snapshot.brokers), len(snapshot.topics)))
        self._nodes.follow(snapshot)
        for listener in self._listeners:
            try:
                listener(snapshot)
            except Exception:
                _log.exception("%s: metadata listener failed: %r", self._config.client_id, listener)

    async def _refresh_loop(self) -> None:
        loop = asyncio.get_running_loop()
        last = loop.time()
        while True:
            try:
                async with asyncio.timeout(self._config.metadata_max_age_s):
                    await self._wanted.wait()
            except TimeoutError:
                pass
            # Refresh at once, unless the last refresh has only just ended. Then back off: during an
            # outage, callers request a refresh again and again.
            if loop.time() - last > self._config.retry_backoff_max_s:
                self._backoff.reset()
            else:
                await asyncio.sleep(self._backoff.next())
            self._wanted.clear()
            try:
                await self.refresh()
            except KafkaError:
                self._wanted.set()  # `MetadataFailed` has reported the error; try again
            except Exception:
                self._wanted.set()
                _log.exception("%s: metadata not refreshed: internal error", self._config.client_id)
            last = loop.time()


def _partition_count(state: TopicState) -> int:
    return len(state.partitions)
