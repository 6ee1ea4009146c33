"""The way of single messages in, and of the caller's own batches: into an open batch, in order.

`send` is the way of nearly all: ahead at once where the topic is known, memory is there and nobody
waits (`appender`). `append` is for the others: who can't go ahead takes its turn (`admission`), and
the time that this costs counts for its batch too.
"""

from __future__ import annotations

import asyncio

from aiokafka08.concurrency.loop_yield import LoopYield
from aiokafka08.producer.accumulator import Accumulator, Batch, PartitionQueue
from aiokafka08.producer.admission import Admission, Data
from aiokafka08.producer.appender import Appender, Send
from aiokafka08.producer.batch_builder import BatchBuilder, no_timestamps
from aiokafka08.producer.future import DeliveryFuture
from aiokafka08.producer.memory import BufferMemory
from aiokafka08.producer.sender import Sender


class Intake:
    """Puts messages into batches and wakes the sender.

    Attributes:
        send: `PureAppender.send`.
    """

    def __init__(
        self,
        admission: Admission,
        accumulator: Accumulator,
        memory: BufferMemory,
        sender: Sender,
        turns: LoopYield,
    ) -> None:
        self._admission = admission
        self._accumulator = accumulator
        self._memory = memory
        self._sender = sender
        self._clock = asyncio.get_running_loop().time
        self._turns = turns
        appender = Appender(
            admission.by_topic,
            memory,
            accumulator.batch_bytes,
            admission.max_message_bytes,
            self._append_slowly,
            self._on_full,
            turns.is_due,
        )
        self.send: Send = appender.send
        self._append_now = appender.append

    async def append(
        self, topic: str, key: Data, value: Data, partition: int | None, timestamp_ms: int | None
    ) -> DeliveryFuture:
        """Append a message: at once where that is possible, else when it is its turn.

        Raises:
            KafkaTimeoutError: that took longer than `delivery_timeout_ms`.
            MessageSizeTooLargeError: it is larger than `max_request_size` or `buffer_memory`.
            UnsupportedVersionError: a timestamp for message format 0.
            ProducerClosed, InvalidTopicError, UnknownTopicOrPartitionError: as `Routes.turn`.
        """
        if self._turns.was_due:
            await self._turns.yield_now()
        route = self._admission.by_topic.get(topic)
        if route is not None and route.is_open:
            if partition is None:
                queue: PartitionQueue | None = route.choose(key)
            else:
                queue = route.queues.get(partition)
            if queue is not None:
                future = self._append_now(queue, key, value, timestamp_ms)
                if future is not None:
                    return future
                partition = queue.topic_partition.partition  # chosen once
        since = self._clock()
        async with self._admission.turn(topic) as route:
            queue = await self._admission.queue(route, partition, key)
            size, timestamp_ms = await self._admission.admit(queue, key, value, timestamp_ms)
            return self._accept(queue, key, value, timestamp_ms, size, since)

    def _append_slowly(
        self, queue: PartitionQueue, key: Data, value: Data, timestamp_ms: int | None
    ) -> DeliveryFuture | None:
        """Append a message now, or not at all: None where there is no memory."""
        size, timestamp_ms = self._admission.measure(queue, key, value, timestamp_ms)
        if not self._memory.try_take(size):
            return None
        return self._accept(queue, key, value, timestamp_ms, size, None)

    def _on_full(self, batch: Batch, size: int) -> None:
        """The batch got full with a message of this size."""
        accumulator = self._accumulator
        accumulator.filled(batch, size, self._clock())
        if accumulator.news:
            self._sender.wake()

    async def append_batch(
        self, batch_builder: BatchBuilder, topic: str, partition: int
    ) -> DeliveryFuture:
        """Queue a batch that the caller has built.

        Raises:
            As `append`.
        """
        async with self._admission.turn(topic) as route:
            queue = await self._admission.queue(route, partition, None)
            self._admission.prepare(queue)
            if batch_builder.has_explicit_timestamps and queue.magic == 0:
                raise no_timestamps()
            size = batch_builder.size()
            if size > self._memory.limit_bytes:
                raise self._admission.too_large(size, "the batch")
            await self._admission.take(size)
            try:
                builder = batch_builder.take()
            except BaseException:
                self._memory.give(size)
                raise
            batch = self._accumulator.add_batch(queue, builder, self._clock())
            self._sender.wake()
            return DeliveryFuture(batch.delivery, 0, builder.max_timestamp_ms)

    def _accept(
        self,
        queue: PartitionQueue,
        key: Data,
        value: Data,
        timestamp_ms: int,
        size: int,
        since: float | None,
    ) -> DeliveryFuture:
        """Append a message whose memory is taken."""
        accumulator = self._accumulator
        batch = accumulator.append(queue, key, value, timestamp_ms, size, self._clock(), since)
        if accumulator.news:
            self._sender.wake()
        return DeliveryFuture(batch.delivery, batch.count - 1, timestamp_ms)
