"""Accept messages: choose the partition, acquire memory, append to the partition's open batch.

Invariants: messages of one partition are appended in the order of the calls, with one exception:
if a call yields to the event loop before it appends, calls of other tasks may append meanwhile.
`append` and `append_batch` wait at most `delivery_timeout_ms` in all; in `append_many` the wait for
earlier calls and metadata has this limit, and so has each wait for memory. `delivery_timeout_ms` of
a message counts from the call, in `append_many` from the step that buffers the message. Memory
acquired for a message is released if the message isn't appended.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Final

from aiokafka08 import environment
from aiokafka08._core.concurrency.loop_yield import LoopYield
from aiokafka08.errors import KafkaTimeoutError
from aiokafka08.producer.accumulator import Accumulator
from aiokafka08.producer.batch import Batch, PartitionQueue
from aiokafka08.producer.batch_builder import BatchBuilder, no_timestamps
from aiokafka08.producer.deliveries import DeliveryGroup
from aiokafka08.producer.fast_path import Appender, Data, DeliveryFuture, SendNow
from aiokafka08.producer.memory import BufferMemory
from aiokafka08.producer.messages import Messages
from aiokafka08.producer.options import ProducerOptions
from aiokafka08.producer.topics import TopicRoute, TopicRoutes
from aiokafka08.protocol.message_set import message_size

# Bytes that `append_many` appends in one step
_APPEND_BYTES: Final = 128 * 1024


class Intake:
    """Accepts messages of one producer."""

    def __init__(
        self,
        topics: TopicRoutes,
        accumulator: Accumulator,
        memory: BufferMemory,
        options: ProducerOptions,
        loop_yield: LoopYield,
    ) -> None:
        self._topics = topics
        self._accumulator = accumulator
        self._memory = memory
        self._options = options
        self._metadata_timeout_s = min(options.max_block_s, options.delivery_timeout_s)
        self._loop_yield = loop_yield
        self._clock = asyncio.get_running_loop().time
        appender = Appender(
            topics.by_topic,
            memory,
            accumulator.batch_bytes,
            options.max_message_bytes,
            self._try_append,
            self._batch_full,
            loop_yield.is_due,
        )
        # The fast path, `PureAppender.send` or its compiled twin
        self.send: SendNow = appender.send
        self._append_now = appender.append

    async def append(
        self, topic: str, key: Data, value: Data, partition: int | None, timestamp_ms: int | None
    ) -> DeliveryFuture:
        """Append a message; wait for metadata, earlier calls and memory if necessary.

        Raises:
            KafkaTimeoutError: that took longer than `delivery_timeout_ms`.
            MessageSizeTooLargeError: the message exceeds `max_request_size` or `buffer_memory`.
            UnsupportedVersionError: a timestamp for message format 0.
            ProducerClosed, InvalidTopicError, UnknownTopicOrPartitionError: as
                `TopicRoutes.acquire`.
        """
        # The fast path returned None because this task has run for too long.
        if self._loop_yield.was_due:
            await self._loop_yield.yield_now()
        route = self._topics.by_topic.get(topic)
        if route is not None and route.is_open:
            queue: PartitionQueue | None = None
            if partition is None:
                queue = route.choose(key)
            elif type(partition) is int:  # `route.queue` below handles other values
                queue = route.queues.get(partition)
            if queue is not None:
                future = self._append_now(queue, key, value, timestamp_ms)
                if future is not None:
                    return future
                partition = queue.topic_partition.partition  # don't call the partitioner again
        since = self._clock()
        named = () if partition is None else (partition,)
        async with self._acquire_topic(topic, named) as route:
            queue = route.choose(key) if partition is None else route.queue(partition)
            size, timestamp_ms = await self._reserve(queue, key, value, timestamp_ms)
            return self._append(queue, key, value, timestamp_ms, size, since)

    async def append_batch(
        self, batch_builder: BatchBuilder, topic: str, partition: int | None
    ) -> DeliveryFuture:
        """Queue a batch that the user has filled. Raises as `append`."""
        since = self._clock()
        named = () if partition is None else (partition,)
        async with self._acquire_topic(topic, named) as route:
            # The partitioner chooses as for a message without a key.
            queue = route.choose(None) if partition is None else route.queue(partition)
            self._topics.choose_format(queue)
            if batch_builder.has_explicit_timestamps and queue.magic == 0:
                raise no_timestamps()
            size = batch_builder.size()
            if size > self._memory.limit_bytes:
                raise self._options.too_large(size, "the batch")
            await self._acquire_memory(size)
            try:
                builder = batch_builder.take()
            except BaseException:
                self._memory.release(size)
                raise
            batch = self._accumulator.add_batch(queue, builder, self._clock(), since)
            return DeliveryFuture(batch.delivery, 0, builder.max_timestamp_ms)

    async def append_many(
        self, topic: str, messages: Messages, partition: int | None = None
    ) -> list[DeliveryGroup]:
        """Append many messages, as many at a time as memory allows; return their places in batches.

        If an error is raised, or the caller is cancelled, the messages that were appended before
        are sent all the same. If `partition` is None, a message goes to the partition that it
        names; if it names none, to the one that the partitioner chooses. Raises as `append`.
        """
        too_large = await self._loop_yield.run_steps(
            messages.too_large(self._options.max_message_bytes)
        )
        if too_large is not None:
            label, size = too_large
            raise self._options.too_large(size, label)
        groups: list[DeliveryGroup] = []
        count = len(messages.values)
        if not count:
            return groups
        await self._loop_yield.yield_if_due()
        named = list(messages.named_partitions())
        if partition is not None:
            named.append(partition)
        async with self._acquire_topic(topic, named, bounded=False) as route:
            if partition is not None:
                queue = route.queue(partition)
            start = 0
            while start < count:
                if partition is not None:
                    start = await self._fill_batch(queue, messages, start, groups)
                elif messages.may_choose_once(route.partitioner):
                    start = await self._fill_batch(route.choose(None), messages, start, groups)
                else:
                    parts, start = await self._loop_yield.run_steps(
                        messages.split_by_queue(route, start)
                    )
                    for queue, part in parts:
                        done = 0
                        while done < len(part.values):
                            done = await self._fill_batch(queue, part, done, groups)
        return groups

    # --- one message ------------------------------------------------------------------------------

    def _try_append(
        self, queue: PartitionQueue, key: Data, value: Data, timestamp_ms: int | None
    ) -> DeliveryFuture | None:
        """Append a message for the appender; return None if there is no memory for it now."""
        size, timestamp_ms = self._measure(queue, key, value, timestamp_ms)
        if not self._memory.try_acquire(size):
            return None
        return self._append(queue, key, value, timestamp_ms, size, None)

    def _batch_full(self, batch: Batch, size: int) -> None:
        """Make a batch due; the appender has filled it by adding a message of `size` bytes."""
        self._accumulator.messages_added(batch, size, self._clock())

    def _append(
        self,
        queue: PartitionQueue,
        key: Data,
        value: Data,
        timestamp_ms: int,
        size: int,
        since: float | None,
    ) -> DeliveryFuture:
        """Append a message whose memory is acquired."""
        batch = self._accumulator.append(
            queue, key, value, timestamp_ms, size, self._clock(), since
        )
        return DeliveryFuture(batch.delivery, batch.count - 1, timestamp_ms)

    # --- many messages ----------------------------------------------------------------------------

    async def _fill_batch(
        self, queue: PartitionQueue, messages: Messages, start: int, groups: list[DeliveryGroup]
    ) -> int:
        """Append messages, from index `start` on, to one batch, and return the next index.

        Appends at least one message, and more while the batch and the memory have room.
        """
        accumulator, memory = self._accumulator, self._memory
        key = None if messages.keys is None else messages.keys[start]
        value = messages.values[start]
        timestamps = messages.timestamps_ms
        timestamp = None if timestamps is None else timestamps[start]
        since = now = self._clock()
        size, now_ms = self._measure(queue, key, value, timestamp)
        if not memory.try_acquire(size):
            size, now_ms = await self._reserve(queue, key, value, timestamp)
            now = self._clock()
        batch = accumulator.batch_for(queue, size, now, since)
        builder = batch.builder
        first, size_before = batch.count, builder.size_bytes
        stop = start
        try:
            stop = builder.extend(
                messages.keys,
                messages.values,
                now_ms if timestamps is None else timestamps,
                start,
                min(
                    batch.limit_bytes,
                    # The size of one step is limited, so that a long list doesn't hold the event
                    # loop.
                    size_before + size + min(memory.available_bytes(), _APPEND_BYTES),
                ),
            )
        finally:
            # So far, memory is acquired for the first message only. This acquires it for the
            # others, or releases it after an error.
            memory.release(size - (builder.size_bytes - size_before))
            accumulator.messages_added(batch, size, now)
        groups.append(DeliveryGroup(messages.indices[start:stop], batch.delivery, first, now_ms))
        if self._loop_yield.is_due():
            await self._loop_yield.yield_now()
        return stop

    # --- what a message needs ---------------------------------------------------------------------

    @asynccontextmanager
    async def _acquire_topic(
        self, topic: str, named: Iterable[int], *, bounded: bool = True
    ) -> AsyncIterator[TopicRoute]:
        """Acquire the topic, with the partitions named, within `delivery_timeout_ms`.

        The body has to end by then if `bounded`. Raises as `TopicRoutes.acquire`; if the time is
        over, the error of `TopicRoutes.timed_out`, or KafkaTimeoutError if the body ran already.
        """
        acquired = False
        try:
            async with (
                asyncio.timeout(self._options.delivery_timeout_s) as limit,
                self._topics.acquire(topic, self._metadata_timeout_s, named) as route,
            ):
                acquired = True
                if not bounded:
                    limit.reschedule(None)
                yield route
        except TimeoutError:
            if acquired:
                raise self._no_memory() from None
            raise self._topics.timed_out(topic, self._options.delivery_timeout_s) from None

    def _measure(
        self, queue: PartitionQueue, key: Data, value: Data, timestamp_ms: int | None
    ) -> tuple[int, int]:
        """Return the message's size in a message set, and its timestamp (-1 in format 0).

        Raises:
            MessageSizeTooLargeError: it exceeds `max_request_size` or `buffer_memory`.
            UnsupportedVersionError: a timestamp for message format 0.
        """
        if queue.open_batch is None:
            self._topics.choose_format(queue)
        if queue.magic == 0:
            if timestamp_ms is not None:
                raise no_timestamps()
            timestamp_ms = -1
        elif timestamp_ms is None:
            timestamp_ms = environment.wall_time_ms()
        size = message_size(queue.magic, key, value)
        if size > self._options.max_message_bytes:
            raise self._options.too_large(size, "the message")
        return size, timestamp_ms

    async def _reserve(
        self, queue: PartitionQueue, key: Data, value: Data, timestamp_ms: int | None
    ) -> tuple[int, int]:
        """Measure a message, and acquire memory for it. Raises as `_measure`, `_acquire_memory`."""
        size, timestamp = self._measure(queue, key, value, timestamp_ms)
        if self._memory.try_acquire(size):
            return size, timestamp
        await self._acquire_memory(size)
        # The message format of the next batch may have changed while this call waited, and with it
        # the size. If the message is larger now, the negative release acquires the difference.
        acquired, size = size, 0
        try:
            size, timestamp = self._measure(queue, key, value, timestamp_ms)
        finally:
            self._memory.release(acquired - size)
        return size, timestamp

    async def _acquire_memory(self, size: int) -> None:
        """Acquire memory; raise KafkaTimeoutError after `delivery_timeout_ms`."""
        memory = self._memory
        if memory.try_acquire(size):
            return
        # While a call waits for memory, batches don't linger.
        self._accumulator.suspend_linger(self._clock())
        try:
            async with asyncio.timeout(self._options.delivery_timeout_s):
                await memory.acquire(size)
        except TimeoutError:
            raise self._no_memory() from None
        finally:
            if not memory.waiters:
                self._accumulator.resume_linger()

    def _no_memory(self) -> KafkaTimeoutError:
        limit_ms = self._options.delivery_timeout_s * 1000
        return KafkaTimeoutError(
            f"no memory within {limit_ms:.0f} ms: buffer_memory={self._options.buffer_memory} is "
            "full of messages that aren't acknowledged"
        )
