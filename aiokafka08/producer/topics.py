"""The topics that the producer has sent to: partitions, partitioner, queues and waiting calls.

The compiled twin (`_producer_c`) reads the slots `available`, `is_open`, `partitioner`,
`partitions` and `queues` of `TopicRoute`.

Invariant: calls that send to one topic are served in FIFO order. While `is_open` is True the topic
is known, and no call has acquired it or waits for it, so a call may append at once. Otherwise a
call has to `acquire` the topic. While that call waits for metadata or for memory, later calls to
the topic wait; while it waits for a partition that it named, only calls that name this partition
wait.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import math
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, Final

from aiokafka08._core.concurrency.fair_lock import FairLock
from aiokafka08._core.net.cluster import ClusterSnapshot
from aiokafka08._core.net.config import as_integer
from aiokafka08._core.net.router import Router
from aiokafka08._core.topic_names import check_topic_name
from aiokafka08._wording import number_span
from aiokafka08.errors import (
    IllegalArgumentError,
    KafkaError,
    KafkaTimeoutError,
    UnknownTopicOrPartitionError,
)
from aiokafka08.partitioner import BatchAware, Partitioner, without_step
from aiokafka08.producer.accumulator import Accumulator
from aiokafka08.producer.batch import PartitionQueue
from aiokafka08.producer.options import ProducerOptions
from aiokafka08.structs import TopicPartition

_log: Final = logging.getLogger("aiokafka08.producer")

LEADER_WAIT_S: Final = 3.0
"""How long a call waits until at least one partition of a topic has a leader.

If the topic is known by then, the call goes on, and its messages are buffered until there is a
leader. If it isn't, the call waits until its timeout.
"""


class TopicRoute:
    __slots__ = (
        "available",
        "awaited",
        "callers",
        "failures",
        "is_open",
        "last_failure",
        "lock",
        "missing",
        "partitioner",
        "partitions",
        "queues",
        "topic",
    )

    def __init__(self, topic: str, partitioner: Partitioner) -> None:
        self.topic = topic
        self.partitioner = partitioner  # chooses among its partitions
        self.partitions: list[int] = []  # all partitions, ascending; empty until the topic is known
        self.available: list[int] = []  # the partitions with a leader, ascending
        self.queues: dict[int, PartitionQueue] = {}  # the queues by partition
        self.is_open = False  # a call may append without `TopicRoutes.acquire`
        self.lock = FairLock()  # held by the call that has acquired the topic
        self.callers = 0  # number of calls that have the lock, or wait for it or for a partition
        self.failures = 0  # number of lookups of the topic that failed
        self.last_failure: KafkaError | None = None
        # Partitions that callers named and that don't exist, each with the loop time of the last
        # lookup that found it missing
        self.missing: dict[int, float] = {}
        # Partitions that callers wait for, each with the lock of the call that looks it up. A call
        # holds the lock until it has appended, so that calls with this partition stay in order.
        self.awaited: dict[int, FairLock] = {}

    def queue(self, partition: object) -> PartitionQueue:
        return self.queues[_partition_number(partition)]

    def choose(self, key: bytes | None) -> PartitionQueue:
        """Return the queue of the partition that the partitioner chooses."""
        partition = self.partitioner(key, self.partitions, self.available)
        queue = self.queues.get(partition)
        if queue is None:
            raise IllegalArgumentError(
                f"the partitioner chose {partition!r}: topic {self.topic!r} has the partitions "
                f"{self.partitions}"
            )
        return queue


class TopicRoutes:
    """All topics that this producer has sent to."""

    def __init__(
        self,
        router: Router,
        accumulator: Accumulator,
        options: ProducerOptions,
        new_partitioner: Callable[[], Partitioner],
        leader_wait_s: float = LEADER_WAIT_S,
    ) -> None:
        # The topics, whether known or still being looked up
        self.by_topic: dict[str, TopicRoute] = {}
        self._router = router
        self._accumulator = accumulator
        self._options = options
        self._new_partitioner = new_partitioner
        self._leader_wait_s = leader_wait_s
        self._loop = asyncio.get_running_loop()
        self._snapshot = router.metadata.snapshot  # the one that the routes were last updated to
        self._lookups: set[asyncio.Task[object]] = set()
        self._closed: KafkaError | None = None
        router.metadata.add_listener(self._metadata_changed)

    @property
    def waiters(self) -> int:
        locks = [route.lock for route in self.by_topic.values()]
        for route in self.by_topic.values():
            locks.extend(route.awaited.values())
        return len(self._lookups) + sum(lock.waiters for lock in locks)

    def close(self, error: KafkaError) -> None:
        """Refuse every further call, and raise the error in all calls that wait here."""
        self._closed = error
        for route in self.by_topic.values():
            route.is_open = False
        for task in self._lookups:
            task.cancel()

    @asynccontextmanager
    async def acquire(
        self, topic: str, metadata_timeout_s: float, named: Iterable[object] = ()
    ) -> AsyncIterator[TopicRoute]:
        """Wait until earlier calls are served, and the topic and its `named` partitions are known.

        Later calls wait until the body has ended. `metadata_timeout_s` limits the lookup of the
        topic, and that of each partition.

        Raises:
            KafkaError: a copy of the error that `close` was called with.
            IllegalArgumentError: one of `named` isn't a partition number.
            InvalidTopicError, UnknownTopicOrPartitionError, KafkaTimeoutError: as
                `Metadata.wait_for_topic` and `Metadata.wait_for_partitions`.
        """
        numbers = {_partition_number(partition) for partition in named}
        route = self.by_topic.get(topic)
        if route is None:
            check_topic_name(topic)
            route = self.by_topic[topic] = TopicRoute(topic, self._new_partitioner())
        failures = route.failures
        route.callers += 1
        route.is_open = False
        # The deadline counts from the call, not from the time when it gets the lock.
        arrived_at = self._loop.time()
        deadline = arrived_at + metadata_timeout_s
        try:
            async with AsyncExitStack() as awaited:
                while True:
                    async with route.lock:
                        await self._find(route, failures, deadline)
                        lacking = [
                            number
                            for number in numbers
                            if number not in route.queues or number in route.awaited
                        ]
                        if not lacking:
                            yield route
                            return
                    # All calls wait in ascending order, so that they don't deadlock.
                    for number in sorted(lacking):
                        numbers.discard(number)
                        await awaited.enter_async_context(
                            self._await_partition(route, number, arrived_at, metadata_timeout_s)
                        )
        finally:
            route.callers -= 1
            if route.callers == 0:
                route.is_open = bool(route.partitions) and self._closed is None
                if not route.partitions:
                    self.by_topic.pop(topic, None)

    def timed_out(self, topic: str, limit_s: float) -> KafkaError:
        """Return the error of a call that couldn't `acquire` the topic in time."""
        route = self.by_topic.get(topic)
        if route is None or not route.partitions:
            return self._router.metadata.timed_out(topic, limit_s)
        return KafkaTimeoutError(
            f"topic {topic!r}: message not accepted within {limit_s} s, because earlier calls "
            "still wait for memory"
        )

    async def partitions(self, topic: str, metadata_timeout_s: float) -> set[int]:
        """Return the partitions of a topic. Raises as `acquire`."""
        route = self.by_topic.get(topic)
        if route is not None and route.partitions:
            # Don't `acquire` the topic: calls that have acquired it may be waiting for memory.
            return set(route.partitions)
        async with self.acquire(topic, metadata_timeout_s) as route:
            return set(route.partitions)

    def predict(self, topic: str, partition: int | None, key: bytes | None) -> int:
        """Return the partition that a message would go to now; the partitioner's state stays.

        Raises IllegalArgumentError if `partition` isn't a number, UnknownTopicOrPartitionError if
        the topic isn't known or has no such partition.
        """
        if partition is not None:
            partition = _partition_number(partition)
        snapshot = self._router.metadata.snapshot
        partitions = sorted(snapshot.partitions(topic))
        if not partitions or (partition is not None and partition not in partitions):
            raise UnknownTopicOrPartitionError(
                f"topic {topic!r} has no partition {partition}; it has {number_span(partitions)}"
                if partitions
                else f"topic {topic!r}: no metadata"
            )
        if partition is not None:
            return partition
        leaders = (snapshot.leader(TopicPartition(topic, number)) for number in partitions)
        available = [
            number for number, leader in zip(partitions, leaders, strict=True) if leader is not None
        ]
        route = self.by_topic.get(topic)
        partitioner = self._new_partitioner() if route is None else route.partitioner
        return without_step(partitioner)(key, partitions, available)

    def choose_format(self, queue: PartitionQueue) -> None:
        """Set the message format of the queue's next batch to one that the leader reads."""
        leader = queue.leader
        version = None if leader is None else self._router.version(leader)
        is_leader_known = version is not None
        if version is None:
            version = self._router.version()  # of the oldest broker, whose format all can read
        if version is not None:
            queue.magic = version.magic
            if version.line not in self._options.supported_lines:
                broker = f"node {leader}" if is_leader_known else "the oldest known broker"
                raise self._options.unsupported_line(version, broker)

    # --- inside -----------------------------------------------------------------------------------

    async def _find(self, route: TopicRoute, failures: int, deadline: float) -> None:
        """Look the topic up unless it is known; `failures`: `route.failures` at the call."""
        if self._closed is not None:
            raise copy.copy(self._closed)
        if route.last_failure is not None and route.failures > failures:
            # An earlier call's lookup failed while this one waited for it.
            raise copy.copy(route.last_failure)
        if route.partitions:
            return
        metadata = self._router.metadata
        lookup = metadata.wait_for_topic(
            route.topic,
            timeout_s=max(deadline - self._loop.time(), 0.0),
            leaders=any,
            leaders_s=self._leader_wait_s,
            until_unknown=True,
        )
        try:
            await self._wait_for(lookup)
        except KafkaError as error:
            route.failures += 1
            route.last_failure = error
            raise
        self._update(route, metadata.snapshot)

    @asynccontextmanager
    async def _await_partition(
        self, route: TopicRoute, number: int, arrived_at: float, timeout_s: float
    ) -> AsyncIterator[None]:
        """Wait until a partition is known; later calls that name it wait for the body's end."""
        lock = route.awaited.setdefault(number, FairLock())
        try:
            async with lock:
                if self._closed is not None:
                    raise copy.copy(self._closed)
                if number not in route.queues:
                    await self._find_partition(route, number, arrived_at, timeout_s)
                yield
        finally:
            if not lock.is_used:
                route.awaited.pop(number, None)

    async def _find_partition(
        self, route: TopicRoute, number: int, arrived_at: float, timeout_s: float
    ) -> None:
        metadata = self._router.metadata
        missing_at = route.missing.get(number, -math.inf)
        # A call that came before the last lookup failed doesn't look the partition up again. A call
        # that comes soon after that failure refreshes once without waiting for the partition, since
        # the brokers have had the time to learn of it.
        if missing_at < arrived_at:
            keep_s = self._router.config.limits.partition_unknown_s
            lookup: Coroutine[Any, Any, object]
            if self._loop.time() < missing_at + keep_s:
                lookup = self._refresh(route.topic, timeout_s)
            else:
                lookup = metadata.wait_for_partitions(route.topic, [number], timeout_s=timeout_s)
            try:
                await self._wait_for(lookup)
            except UnknownTopicOrPartitionError:
                route.missing[number] = self._loop.time()
                raise
        if number not in route.queues:
            raise UnknownTopicOrPartitionError(
                f"topic {route.topic!r} has no partition {number}; it has "
                f"{number_span(route.partitions)}"
            )
        route.missing.pop(number, None)

    async def _refresh(self, topic: str, timeout_s: float) -> None:
        metadata = self._router.metadata
        try:
            await metadata.refresh(timeout_s)
        except TimeoutError:
            raise metadata.timed_out(topic, timeout_s) from None

    async def _wait_for(self, lookup: Coroutine[Any, Any, object]) -> None:
        """Run a metadata lookup in a task that `close` can cancel."""
        task: asyncio.Task[object] = self._loop.create_task(lookup)
        self._lookups.add(task)
        task.add_done_callback(self._lookup_done)
        try:
            await asyncio.wait((task,))
        finally:
            task.cancel()
        if self._closed is not None:
            raise copy.copy(self._closed)
        task.result()

    def _lookup_done(self, task: asyncio.Task[object]) -> None:
        self._lookups.discard(task)
        if not task.cancelled():
            # Mark the exception as retrieved: the call that would raise it may be cancelled.
            task.exception()

    def _metadata_changed(self, snapshot: ClusterSnapshot) -> None:
        before, self._snapshot = self._snapshot, snapshot
        # A topic whose metadata is the same object hasn't changed. Leaders depend on the brokers
        # too.
        same_brokers = snapshot.brokers.keys() == before.brokers.keys()
        for route in self.by_topic.values():
            topic = route.topic
            if not (same_brokers and snapshot.topics.get(topic) is before.topics.get(topic)):
                self._update(route, snapshot)

    def _update(self, route: TopicRoute, snapshot: ClusterSnapshot) -> None:
        partitions = snapshot.partitions(route.topic)
        if not partitions:
            return
        now = self._loop.time()
        available = []
        for partition in sorted({*partitions, *route.queues}):
            topic_partition = TopicPartition(route.topic, partition)
            queue = route.queues.get(partition)
            if queue is None:
                queue = route.queues[partition] = self._accumulator.new_queue(topic_partition)
                if isinstance(route.partitioner, BatchAware):
                    queue.on_new_batch = partial(
                        _call_on_new_batch, self._router.config.client_id, route.partitioner
                    )
            leader = snapshot.leader(topic_partition)
            self._accumulator.set_leader(queue, leader, now)
            if leader is not None:
                available.append(partition)
        route.partitions = sorted(partitions)
        route.available = available


def _partition_number(partition: object) -> int:
    number = as_integer(partition)
    if number is None or number < 0:
        raise IllegalArgumentError(f"partition={partition!r}: expected an integer >= 0")
    return number


def _call_on_new_batch(client_id: str, partitioner: BatchAware, partition: int) -> None:
    """Call the user's code; an exception there must not stop the sending of batches."""
    try:
        partitioner.on_new_batch(partition)
    except Exception:
        _log.exception("%s: %r failed in on_new_batch(%d)", client_id, partitioner, partition)
