"""What a message needs before it may go into a batch: its turn, its size, and memory.

Shared by the ways in (`intake` for one message, `bulk` for many). Law: whoever can't go ahead at
once takes its turn at the topic (`routes`), in the order of the calls, and waits for memory
(`memory`) at most `delivery_timeout_ms`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiokafka08.errors import KafkaTimeoutError, MessageSizeTooLargeError
from aiokafka08.producer.accumulator import Accumulator, PartitionQueue
from aiokafka08.producer.batch_builder import no_timestamps
from aiokafka08.producer.memory import BufferMemory
from aiokafka08.producer.options import ProducerOptions
from aiokafka08.producer.sender import Sender
from aiokafka08.producer.topics import TopicRoute, TopicRoutes

Data = bytes | None

_now = time.time


class Admission:
    """Says when and how a message may go in.

    Attributes:
        by_topic: the topics that were asked for, known or not yet.
    """

    def __init__(
        self,
        accumulator: Accumulator,
        memory: BufferMemory,
        routes: TopicRoutes,
        sender: Sender,
        options: ProducerOptions,
        metadata_timeout_s: float,
    ) -> None:
        self.by_topic = routes.by_topic
        self._accumulator = accumulator
        self._memory = memory
        self._routes = routes
        self._sender = sender
        self._options = options
        self._max_message_bytes = options.max_message_bytes
        self._metadata_timeout_s = min(metadata_timeout_s, options.delivery_timeout_s)
        self._clock = asyncio.get_running_loop().time

    @property
    def max_message_bytes(self) -> int:
        """The largest message, its offset and size fields included."""
        return self._max_message_bytes

    def prepare(self, queue: PartitionQueue) -> None:
        """As `TopicRoutes.prepare`."""
        self._routes.prepare(queue)

    @asynccontextmanager
    async def turn(self, topic: str, *, bounded: bool = True) -> AsyncIterator[TopicRoute]:
        """Wait for this sender's turn; what it then does has `delivery_timeout_ms` if `bounded`.

        Raises as `TopicRoutes.turn`, and KafkaTimeoutError.
        """
        known = False
        limit_s = self._options.delivery_timeout_s if bounded else None
        try:
            async with (
                asyncio.timeout(limit_s),
                self._routes.turn(topic, self._metadata_timeout_s) as route,
            ):
                known = True
                yield route
        except TimeoutError:
            if known:
                raise self._no_memory() from None
            raise KafkaTimeoutError(
                f"the message was not accepted within {limit_s} s: others wait before it"
            ) from None

    async def queue(self, route: TopicRoute, partition: int | None, key: Data) -> PartitionQueue:
        """The queue for a message: that of the named partition, or as the partitioner chooses.

        Raises as `TopicRoutes.queue` and `TopicRoute.choose`.
        """
        if partition is None:
            return route.choose(key)
        return await self._routes.queue(route, partition, self._metadata_timeout_s)

    def measure(
        self, queue: PartitionQueue, key: Data, value: Data, timestamp_ms: int | None
    ) -> tuple[int, int]:
        """The size in the message set, and the timestamp (-1 in format 0).

        Raises:
            MessageSizeTooLargeError: larger than `max_request_size` or `buffer_memory`.
            UnsupportedVersionError: a timestamp for message format 0.
        """
        if queue.open is None:
            self._routes.prepare(queue)
        if queue.magic == 0:
            if timestamp_ms is not None:
                raise no_timestamps()
            timestamp_ms = -1
            size = 26
        else:
            if timestamp_ms is None:
                timestamp_ms = int(_now() * 1000)
            size = 34
        if key is not None:
            size += len(key)
        if value is not None:
            size += len(value)
        if size > self._max_message_bytes:
            raise self.too_large(size)
        return size, timestamp_ms

    async def admit(
        self, queue: PartitionQueue, key: Data, value: Data, timestamp_ms: int | None
    ) -> tuple[int, int]:
        """As `measure`; the memory for the message is taken then.

        Raises:
            KafkaTimeoutError: there was none within `delivery_timeout_ms`.
        """
        size, timestamp = self.measure(queue, key, value, timestamp_ms)
        if self._memory.try_take(size):
            return size, timestamp
        await self.take(size)
        taken, size = size, 0
        try:  # the next batch may be of another format now
            size, timestamp = self.measure(queue, key, value, timestamp_ms)
        finally:
            self._memory.give(taken - size)
        return size, timestamp

    async def take(self, size: int) -> None:
        """Take memory; while anybody waits for it, batches don't linger.

        Raises:
            KafkaTimeoutError: there was none within `delivery_timeout_ms`.
        """
        memory = self._memory
        if memory.try_take(size):
            return
        self._accumulator.hurry(self._clock())
        self._sender.wake()
        try:
            async with asyncio.timeout(self._options.delivery_timeout_s):
                await memory.take(size)
        except TimeoutError:
            raise self._no_memory() from None
        finally:
            if not memory.waiting:
                self._accumulator.relax()

    def _no_memory(self) -> KafkaTimeoutError:
        """The error for having waited too long."""
        limit_ms = self._options.delivery_timeout_s * 1000
        return KafkaTimeoutError(
            f"no memory within {limit_ms:.0f} ms: buffer_memory={self._options.buffer_memory} is "
            "full of messages that aren't acknowledged"
        )

    def too_large(self, size: int, where: str = "the message") -> MessageSizeTooLargeError:
        """The error for a message of `size` bytes."""
        return self._options.too_large(size, where)
