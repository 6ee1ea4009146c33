"""Topics as the producer knows them: partitions, partitioner, queues, and the order of senders.

Follows the metadata snapshots and tells the accumulator who leads. Law: senders of one topic are
served in the order of their calls. Where nobody waits and the topic is known, `TopicRoute.is_open`,
a sender may go ahead at once; else it takes its turn (`TopicRoutes.turn`), and those after it queue
up, be it for metadata or for memory.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

from aiokafka08.concurrency.fair_lock import FairLock
from aiokafka08.errors import (
    IllegalArgumentError,
    KafkaError,
    KafkaTimeoutError,
    UnknownTopicOrPartitionError,
)
from aiokafka08.net.cluster import ClusterSnapshot, check_topic_name
from aiokafka08.net.router import Router
from aiokafka08.net.versions import BrokerVersion
from aiokafka08.producer.accumulator import Accumulator, PartitionQueue
from aiokafka08.producer.compiled import compiled
from aiokafka08.producer.partitioner import BatchAware, Partitioner
from aiokafka08.structs import TopicPartition

_log = logging.getLogger("aiokafka08.producer")

_SLICE_S = 3.0
"""A topic that is there, but where no partition has a leader, is used after this long."""


class TopicRoute:
    """One topic.

    Attributes:
        partitions: all of them, ascending; empty while the topic isn't known.
        available: those with a leader.
        queues: by partition.
        is_open: the topic is known and no sender waits: whoever comes may go ahead.
    """

    __slots__ = (
        "_failures",
        "_last_failure",
        "_line",
        "_waiting",
        "available",
        "is_open",
        "partitioner",
        "partitions",
        "queues",
        "topic",
    )

    def __init__(self, topic: str, partitioner: Partitioner) -> None:
        self.topic = topic
        self.partitioner = partitioner
        self.partitions: list[int] = []
        self.available: list[int] = []
        self.queues: dict[int, PartitionQueue] = {}
        self.is_open = False
        self._line = FairLock()
        self._waiting = 0
        self._failures = 0
        self._last_failure: KafkaError | None = None

    def choose(self, key: bytes | None) -> PartitionQueue:
        """The queue of the partition that the partitioner chooses.

        Raises:
            IllegalArgumentError: it chose one that there isn't.
        """
        partition = self.partitioner(key, self.partitions, self.available)
        queue = self.queues.get(partition)
        if queue is None:
            raise self.no_such_choice(partition)
        return queue

    def no_such_choice(self, partition: object) -> IllegalArgumentError:
        """The error for a partition that the partitioner chose, but that there isn't."""
        return IllegalArgumentError(
            f"the partitioner chose {partition!r}; topic {self.topic!r} has the partitions "
            f"{self.partitions}"
        )


def pure_choose_each(
    route: TopicRoute, keys: Sequence[bytes | None] | None, start: int, stop: int
) -> dict[PartitionQueue, list[int]]:
    """`TopicRoute.choose` for the keys from `start` to `stop`: their places, by queue."""
    chosen: dict[PartitionQueue, list[int]] = {}
    for index in range(start, stop):
        queue = route.choose(None if keys is None else keys[index])
        indices = chosen.get(queue)
        if indices is None:
            chosen[queue] = [index]
        else:
            indices.append(index)
    return chosen


_compiled = compiled()
choose_each: Final = pure_choose_each if _compiled is None else _compiled.choose_each
"""`pure_choose_each`, in C where the compiled message set is in use."""


class TopicRoutes:
    """All topics that this producer has sent to.

    Attributes:
        by_topic: those that were asked for, known or not yet.
    """

    def __init__(
        self,
        router: Router,
        accumulator: Accumulator,
        new_partitioner: Callable[[], Partitioner],
        check_broker: Callable[[BrokerVersion, str], None],
        wake: Callable[[], object],
    ) -> None:
        self.by_topic: dict[str, TopicRoute] = {}
        self._router = router
        self._accumulator = accumulator
        self._new_partitioner = new_partitioner
        self._check_broker = check_broker
        self._wake = wake
        self._loop = asyncio.get_running_loop()
        self._finding: set[asyncio.Task[object]] = set()
        self._closed: KafkaError | None = None
        router.metadata.watch(self._follow)

    def close(self, error: KafkaError) -> None:
        """No more turns: whoever waits for one, or for metadata, gets the error."""
        self._closed = error
        for route in self.by_topic.values():
            route.is_open = False
        for task in self._finding:
            task.cancel()

    @asynccontextmanager
    async def turn(self, topic: str, metadata_timeout_s: float) -> AsyncIterator[TopicRoute]:
        """Wait for this sender's turn at a topic, and for the topic to be known.

        Raises:
            KafkaError: that which `close` was given.
            InvalidTopicError, UnknownTopicOrPartitionError, KafkaTimeoutError: as
                `Metadata.topic`.
        """
        route = self.by_topic.get(topic)
        if route is None:
            check_topic_name(topic)
            route = self.by_topic[topic] = TopicRoute(topic, self._new_partitioner())
        failures = route._failures
        route._waiting += 1
        route.is_open = False
        try:
            async with route._line:
                if self._closed is not None:
                    raise copy.copy(self._closed)
                if route._last_failure is not None and route._failures > failures:
                    raise copy.copy(route._last_failure)  # that of the one before, which waited too
                if not route.partitions:
                    try:
                        await self._find(route, metadata_timeout_s)
                    except KafkaError as error:
                        route._failures += 1
                        route._last_failure = error
                        raise
                yield route
        finally:
            route._waiting -= 1
            if route._waiting == 0:
                route.is_open = bool(route.partitions) and self._closed is None
                if not route.partitions:
                    self.by_topic.pop(topic, None)

    async def partitions(self, topic: str, metadata_timeout_s: float) -> set[int]:
        """The partitions of a topic. Raises as `turn`."""
        route = self.by_topic.get(topic)
        if route is not None and route.partitions:  # whoever waits there waits for memory
            return set(route.partitions)
        async with self.turn(topic, metadata_timeout_s) as route:
            return set(route.partitions)

    async def queue(
        self, route: TopicRoute, partition: object, metadata_timeout_s: float
    ) -> PartitionQueue:
        """The queue of a partition that the caller names; asks for metadata if it isn't known.

        Raises:
            IllegalArgumentError: it isn't a partition number.
            UnknownTopicOrPartitionError: the topic doesn't have it.
        """
        if isinstance(partition, bool) or not isinstance(partition, int) or partition < 0:
            raise IllegalArgumentError(f"partition={partition!r}: allowed are integers from 0 on")
        if partition not in route.queues:
            await self._guarded(self._router.metadata.refresh(), metadata_timeout_s, route.topic)
        queue = route.queues.get(partition)
        if queue is None:
            raise UnknownTopicOrPartitionError(
                f"topic {route.topic!r} has no partition {partition}; it has {route.partitions}"
            )
        return queue

    def prepare(self, queue: PartitionQueue) -> None:
        """Before a new batch: decide on its message format by the leader's line.

        Raises:
            UnsupportedCodecError, UnsupportedVersionError: that broker can't take what the options
                ask for.
        """
        leader = queue.leader
        version = None if leader is None else self._router.version(leader)
        if version is None:
            version = self._router.version()  # the lowest line met: old formats suit all
        if version is not None:
            queue.magic = version.magic
            self._check_broker(version, f"node {leader}")

    # --- inside -----------------------------------------------------------------------------------

    async def _find(self, route: TopicRoute, timeout_s: float) -> None:
        metadata = self._router.metadata
        deadline = self._loop.time() + timeout_s
        while True:
            left = max(deadline - self._loop.time(), 0.0)
            try:
                await self._guarded(
                    metadata.topic(route.topic, timeout_s=min(left, _SLICE_S), leaders=any),
                    None,
                    route.topic,
                )
            except KafkaError as error:
                if not error.retriable or left <= _SLICE_S:
                    raise
            else:
                self._update(route, metadata.snapshot)
                return

    async def _guarded(
        self, work: Coroutine[Any, Any, object], timeout_s: float | None, topic: str
    ) -> None:
        """Wait for metadata in a task that `close` can end."""
        task: asyncio.Task[object] = self._loop.create_task(work)
        self._finding.add(task)
        task.add_done_callback(self._found)
        try:
            await asyncio.wait((task,), timeout=timeout_s)
        finally:
            task.cancel()
        if self._closed is not None:
            raise copy.copy(self._closed)
        if not task.done():
            raise KafkaTimeoutError(f"no metadata of topic {topic!r} within {timeout_s} s")
        task.result()

    def _found(self, task: asyncio.Task[object]) -> None:
        self._finding.discard(task)
        if not task.cancelled():
            task.exception()  # told to the sender that waits; it may have been cancelled meanwhile

    def _follow(self, snapshot: ClusterSnapshot) -> None:
        for route in self.by_topic.values():
            self._update(route, snapshot)
        if self._accumulator.news:
            self._wake()

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
                    queue.on_new_batch = partial(_tell_new_batch, route.partitioner)
            leader = snapshot.leader(topic_partition)
            self._accumulator.set_leader(queue, leader, now)
            if leader is not None:
                available.append(partition)
        route.partitions = sorted(partitions)
        route.available = available


def _tell_new_batch(partitioner: BatchAware, partition: int) -> None:
    """What a partitioner of the user's raises must not end the sending of batches."""
    try:
        partitioner.on_new_batch(partition)
    except Exception:
        _log.exception("%r failed in on_new_batch(%d)", partitioner, partition)
