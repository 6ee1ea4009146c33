"""A message into its partition's open batch, in few steps: the way of nearly all.

`Appender` is the compiled one where the compiled message set is in use (`_producer_c`), else
`PureAppender`, the reference. Law: no waiting, no clock but that of the timestamp; where the usual
case doesn't hold `send` does nothing, and `append` leaves it to `slowly`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from aiokafka08.producer.batch import Batch, PartitionQueue
from aiokafka08.producer.compiled import compiled
from aiokafka08.producer.future import DeliveryFuture
from aiokafka08.producer.memory import BufferMemory
from aiokafka08.producer.topics import TopicRoute
from aiokafka08.protocol.message_set import message_size

_LOOK_EVERY: Final = 64
"""So many messages are sent between two questions whether others want a turn of the loop."""

_OVERHEAD_BYTES: Final = message_size(1, None, None)

_now = time.time
_running_loop = asyncio._get_running_loop

Data = bytes | None
Append = Callable[[PartitionQueue, Data, Data, int | None], DeliveryFuture | None]
Send = Callable[[str, Any, Any, int | None, int | None, object], DeliveryFuture | None]


class PureAppender:
    """Appends to open batches; for the loop that makes it.

    Args:
        by_topic: the topics that are known.
        memory: whose bytes the messages take.
        batch_bytes: when a batch is full.
        max_message_bytes: the largest message.
        slowly: called with the arguments of `append` where this isn't the usual case.
        on_full: called with the batch and the message's size when the batch got full.
        turn_is_due: asked now and then whether the sender should give others a turn of the loop.
    """

    __slots__ = (
        "_batch_bytes",
        "_by_topic",
        "_loop",
        "_max_message_bytes",
        "_memory",
        "_on_full",
        "_slowly",
        "_turn_is_due",
        "_until_look",
    )

    def __init__(
        self,
        by_topic: Mapping[str, TopicRoute],
        memory: BufferMemory,
        batch_bytes: int,
        max_message_bytes: int,
        slowly: Append,
        on_full: Callable[[Batch, int], object],
        turn_is_due: Callable[[], bool],
    ) -> None:
        self._by_topic = by_topic
        self._memory = memory
        self._batch_bytes = batch_bytes
        self._max_message_bytes = max_message_bytes
        self._slowly = slowly
        self._on_full = on_full
        self._turn_is_due = turn_is_due
        self._loop = asyncio.get_running_loop()
        self._until_look = _LOOK_EVERY

    def send(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp_ms: int | None,
        headers: object,
    ) -> DeliveryFuture | None:
        """The future of a message that was appended; None, and nothing has happened, where this
        isn't the usual case: of any kind, from a wrong argument to no memory.

        Raises:
            Exception: what the partitioner raises.
            IllegalArgumentError, MessageSizeTooLargeError: as `TopicRoute.choose` and `append`.
        """
        self._until_look -= 1
        if self._until_look <= 0:
            self._until_look = _LOOK_EVERY
            if self._turn_is_due():
                return None
        if timestamp_ms is not None or headers or _running_loop() is not self._loop:
            return None
        route = self._by_topic.get(topic)
        if route is None or not route.is_open:
            return None
        size = _OVERHEAD_BYTES
        if value is not None:
            if value.__class__ is not bytes:
                return None
            size += len(value)
        if key is not None:
            if key.__class__ is not bytes or len(key) > self._max_message_bytes:
                return None
            size += len(key)
        elif value is None:
            return None
        if size > self._memory.available_bytes():
            return None
        if partition is None:
            queue = route.choose(key)
        elif (queue := route.queues.get(partition)) is None:  # type: ignore[assignment]
            return None
        return self.append(queue, key, value, None)

    def append(
        self, queue: PartitionQueue, key: Data, value: Data, timestamp_ms: int | None
    ) -> DeliveryFuture | None:
        """The future of a message that was appended; or what `slowly` gives."""
        batch = queue.open_batch
        if batch is None or timestamp_ms is not None:
            return self._slowly(queue, key, value, timestamp_ms)
        builder = batch.builder
        if builder.magic:
            now_ms = int(_now() * 1000)
            size = 34
        else:
            now_ms = -1
            size = 26
        if value is not None:
            size += len(value)
        if key is not None:
            size += len(key)
        total = builder.size_bytes + size
        if total > batch.limit_bytes or not self._memory.try_acquire(size):
            return self._slowly(queue, key, value, None)
        builder.append(key, value, now_ms)
        index = batch.count
        batch.count = index + 1
        if total + size > self._batch_bytes and batch.due_at > 0.0:  # only once
            self._on_full(batch, size)
        return DeliveryFuture(batch.delivery, index, now_ms)


_compiled = compiled()
Appender: Final[type[PureAppender]] = PureAppender if _compiled is None else _compiled.Appender
