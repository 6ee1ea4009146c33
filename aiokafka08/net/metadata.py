"""The metadata cache: one snapshot, refreshed by one request at a time.

Refreshed at once (with backoff) when somebody has met NotLeaderForPartition, LeaderNotAvailable,
UnknownTopicOrPartition or a socket error, and every `metadata_max_age_ms`. What an answer means is
`cluster`'s business; whom to ask, and how, `inquiry`'s.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable

from aiokafka08.errors import (
    IllegalStateError,
    InvalidTopicError,
    KafkaError,
    KafkaTimeoutError,
    KafkaUnavailableError,
    LeaderNotAvailableError,
    UnknownTopicOrPartitionError,
)
from aiokafka08.net.backoff import Backoff
from aiokafka08.net.cluster import (
    ClusterSnapshot,
    TopicInfo,
    check_topic_name,
)
from aiokafka08.net.config import NetConfig
from aiokafka08.net.metadata_fetcher import MetadataFetcher, MetadataReply
from aiokafka08.net.node_registry import NodeRegistry
from aiokafka08.net.retry import is_final, retry
from aiokafka08.protocol.api import MetadataResponse
from aiokafka08.telemetry import MetadataChanged, MetadataFailed, Telemetry

_logger = logging.getLogger("aiokafka08.net")


class Metadata:
    """Keeps the snapshot fresh, for the topics that somebody has asked for (or for all)."""

    def __init__(self, nodes: NodeRegistry, config: NetConfig, telemetry: Telemetry) -> None:
        self.snapshot = ClusterSnapshot()
        self.all_topics = False
        """Ask for every topic on each refresh (pattern subscriptions)."""
        self.may_create_topics = True
        """Beside all topics, ask by name for one that isn't among them and is waited for: brokers
        may create it then."""
        self._topics: set[str] = set()
        self._waiting: Counter[str] = Counter()  # topics that `topic()` waits for
        self._inquiry = MetadataFetcher(nodes, config)
        self._nodes = nodes
        self._config = config
        self._telemetry = telemetry
        self._refreshing: asyncio.Task[None] | None = None
        self._begun = 0  # refreshes that have sent their questions
        self._wanted = asyncio.Event()
        self._changed = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._stopped = False
        self._watchers: list[Callable[[ClusterSnapshot], object]] = []
        self._backoff = config.backoff()

    def start(self) -> None:
        """Start keeping the snapshot fresh.

        Raises:
            IllegalStateError: it was stopped.
        """
        self._check()
        self._keeper = asyncio.get_running_loop().create_task(self._keep_fresh())

    def close(self) -> None:
        """Stop; whoever waits for a refresh gets an error."""
        self._stopped = True
        for task in self._tasks():
            task.cancel()
        self._tell_changed()

    async def stop(self) -> None:
        """`close`, and wait until the background work has ended."""
        self.close()
        await asyncio.gather(*self._tasks(), return_exceptions=True)

    def _tasks(self) -> list[asyncio.Task[None]]:
        return [task for task in (self._keeper, self._refreshing) if task is not None]

    def _check(self) -> None:
        if self._stopped:
            raise IllegalStateError("the client was stopped")

    def add_listener(self, watcher: Callable[[ClusterSnapshot], object]) -> None:
        """Call `watcher` with each new snapshot."""
        self._watchers.append(watcher)

    def add_topics(self, topics: Iterable[str]) -> None:
        """Keep these topics in the snapshot from the next refresh on.

        Raises:
            InvalidTopicError: a name that brokers don't take.
        """
        self._topics.update(map(check_topic_name, topics))

    def set_topics(self, topics: Iterable[str]) -> None:
        """Keep just these topics in the snapshot. Raises as `add_topics`."""
        self._topics = set(map(check_topic_name, topics))

    def request_refresh(self) -> None:
        """Something is stale: refresh soon, in the background."""
        self._wanted.set()

    async def refresh(self) -> ClusterSnapshot:
        """Ask now; the snapshot after the answer.

        Callers share one refresh. A refresh that is under way already is not joined but waited for,
        and another one asked for: the broker may have answered it before what the caller has met
        (NotLeaderForPartition, say) was so, and topics that were added since aren't in it.

        Raises:
            NoBrokersAvailable: no broker answered.
            IllegalStateError: the client was stopped.
        """
        wanted = self._begun + 1
        while True:
            self._check()
            if self._refreshing is None:
                self._refreshing = asyncio.get_running_loop().create_task(self._refresh())
                self._refreshing.add_done_callback(self._refreshed)
            task = self._refreshing
            await asyncio.wait((task,))
            self._check()
            if self._begun >= wanted:
                task.result()
                return self.snapshot

    async def wait_change(self, timeout_s: float) -> None:
        """Wait for the next new snapshot, or until the time is over."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            pass

    async def wait_for_topic(
        self, topic: str, *, timeout_s: float, leaders: Callable[[Iterable[bool]], bool] = all
    ) -> TopicInfo:
        """A topic with its partitions, asked for if need be (brokers may create it then).

        Waits until the topic is there and its partitions have leaders (`all` or `any` of them), or
        the time is over; partitions that are without a leader then are given as they are.

        Raises:
            InvalidTopicError: a name that brokers don't take.
            UnknownTopicOrPartitionError: the topic doesn't exist, and isn't created.
            KafkaTimeoutError: no broker could tell in time; says what was seen last.
            IllegalStateError: the client was stopped.
        """
        check_topic_name(topic)
        info = self.snapshot.topics.get(topic)
        if info is None or not info.partitions:
            # Not among the tracked ones yet: a name that isn't there isn't asked for for ever.
            self._waiting[topic] += 1
            try:
                info = await self._wait_for_topic(topic, timeout_s, leaders)
            finally:
                self._waiting[topic] -= 1
                if not self._waiting[topic]:
                    del self._waiting[topic]
        self._topics.add(topic)
        return info

    async def _wait_for_topic(
        self, topic: str, timeout_s: float, leaders: Callable[[Iterable[bool]], bool]
    ) -> TopicInfo:
        info: TopicInfo | None = None

        async def attempt(limit_s: float) -> TopicInfo | KafkaError:
            nonlocal info
            failure: KafkaError | None = None
            try:
                async with asyncio.timeout(limit_s):
                    await self.refresh()
            except KafkaError as error:
                if is_final(error):
                    raise
                failure = error
            info = self.snapshot.topics.get(topic)
            if info is not None:
                if info.partitions and leaders(
                    one.leader is not None for one in info.partitions.values()
                ):
                    return info
                return self._why_unusable(info)
            if not self.may_create_topics:
                return UnknownTopicOrPartitionError(f"the cluster has no topic {topic!r}")
            return failure or KafkaUnavailableError("the brokers' metadata left the topic out")

        def timed_out(last: KafkaError | None) -> KafkaError:
            if isinstance(last, UnknownTopicOrPartitionError | InvalidTopicError):
                return last
            return KafkaTimeoutError(
                f"no metadata of topic {topic!r} within {timeout_s * 1000:.0f} ms"
                + (f"; last seen: {last}" if last else "")
            )

        first_s = min(max(self._config.retry_backoff_s, 0.01), 0.05)
        try:
            return await retry(
                attempt,
                deadline=asyncio.get_running_loop().time() + timeout_s,
                backoff=Backoff(first_s, max(self._config.retry_backoff_max_s, first_s)),
                timed_out=timed_out,
            )
        except KafkaTimeoutError:
            if info is not None and info.partitions:
                return info
            raise

    def _why_unusable(self, info: TopicInfo) -> KafkaError:
        if info.error_code:
            return info.error
        leaderless = [one.partition for one in info.partitions.values() if one.leader is None]
        return LeaderNotAvailableError(
            f"topic {info.topic!r}: partitions {leaderless} have no leader"
        )

    def _refreshed(self, task: asyncio.Task[None]) -> None:
        self._refreshing = None
        if not task.cancelled():
            task.exception()  # told to those who wait; nobody else needs it

    async def _refresh(self) -> None:
        self._begun += 1
        topics = sorted(self._topics | self._waiting.keys())
        try:
            if self.all_topics:
                answers = await self._inquiry.everything(
                    self._waiting if self.may_create_topics else ()
                )
            else:
                answers = await self._inquiry.topics(topics)
        except KafkaError as error:
            self._telemetry.emit(MetadataFailed(error.text))
            raise
        self._merge(answers)

    async def fetch_all(self) -> MetadataResponse:
        """Ask for all topics once, whatever is tracked; the answer is merged into the snapshot.

        Raises:
            NoBrokersAvailable: no broker answered.
            IllegalStateError: the client was stopped.
        """
        self._check()
        answers = await self._inquiry.everything()
        self._merge(answers)
        return answers[0].response

    def _merge(self, answers: Iterable[MetadataReply]) -> None:
        # Into the snapshot of this moment: another answer may have come since this was asked for.
        snapshot = self.snapshot
        for answer, everything in answers:
            snapshot = snapshot.merge(answer, everything=everything)
        if self._stopped or snapshot == self.snapshot:
            return
        self.snapshot = snapshot
        self._telemetry.emit(MetadataChanged(tuple(snapshot.brokers), len(snapshot.topics)))
        self._nodes.follow(snapshot)
        for watcher in self._watchers:
            try:
                watcher(snapshot)
            except Exception:
                _logger.exception("a watcher of the metadata failed: %r", watcher)
        self._tell_changed()

    def _tell_changed(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _keep_fresh(self) -> None:
        loop = asyncio.get_running_loop()
        last = loop.time()
        while True:
            try:
                async with asyncio.timeout(self._config.metadata_max_age_s):
                    await self._wanted.wait()
            except TimeoutError:
                pass
            # The first complaint is heard at once; during an outage they come in crowds.
            if loop.time() - last > self._config.retry_backoff_max_s:
                self._backoff.reset()
            else:
                await asyncio.sleep(self._backoff.next())
            self._wanted.clear()
            try:
                await self.refresh()
            except KafkaError:
                self._wanted.set()  # told by the refresh already; try until it works
            except Exception:
                self._wanted.set()
                _logger.exception("the refresh of the metadata failed")
            last = loop.time()
