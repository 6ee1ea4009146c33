"""Append single messages on the fast path of `send()`, with the compiled code if it is available.

The fast path appends a message to its partition's open batch without waiting. In every unusual case
(an unknown topic, a waiting call, a key or value that isn't bytes, a timestamp, headers, short
memory) `Appender.send()` appends nothing and returns None; its caller then sends the message by the
slow path.

Invariant: the compiled twins in `_producer_c` and the pure ones have the same effects for the same
arguments. `_producer_c` imports no module of the producer: `load_compiled_producer()` passes it the
classes whose slots it reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from aiokafka08 import environment
from aiokafka08.partitioner import DefaultPartitioner
from aiokafka08.producer.batch import Batch, PartitionQueue
from aiokafka08.producer.batch_delivery import (
    BatchDelivery,
    PureDeliveryFuture,
    pure_run_callbacks,
)
from aiokafka08.producer.memory import BufferMemory
from aiokafka08.producer.topics import TopicRoute
from aiokafka08.protocol import twins
from aiokafka08.protocol.message_set import message_size

__all__ = [
    "Append",
    "Appender",
    "DeliveryFuture",
    "PureAppender",
    "SendNow",
    "are_bytes",
    "choose_each",
    "longest",
    "run_callbacks",
]

_compiled = twins.load_compiled_producer(
    Batch, BatchDelivery, BufferMemory, DefaultPartitioner, PartitionQueue, TopicRoute
)

if TYPE_CHECKING or _compiled is None:
    DeliveryFuture = PureDeliveryFuture
else:
    DeliveryFuture = _compiled.DeliveryFuture

# Number of messages after which the appender checks whether to yield to the event loop
_CHECK_EVERY: Final = 64

# Format 1 has the larger overhead, so memory for a message of this size is enough in both formats.
_OVERHEAD_BYTES: Final = message_size(1, None, None)

_running_loop = asyncio._get_running_loop

Data = bytes | None
Append = Callable[[PartitionQueue, Data, Data, int | None], DeliveryFuture | None]
SendNow = Callable[[str, Any, Any, int | None, int | None, object], DeliveryFuture | None]


class PureAppender:
    """Append single messages to open batches; used in the event loop that it is made in.

    Args:
        by_topic: the routes of the topics that the producer has sent to.
        batch_bytes: size at which a batch is full.
        max_message_bytes: the size of the largest message allowed.
        append_slowly: called with the arguments of `append()` if there is no open batch with room,
            the message has a timestamp, or memory is short.
        on_full: called with the batch and the message's size when a message fills the batch.
        yield_is_due: called now and then; True makes `send()` return None, so that the slow path
            yields to the event loop.
    """

    __slots__ = (
        "_append_slowly",
        "_batch_bytes",
        "_by_topic",
        "_loop",
        "_max_message_bytes",
        "_memory",
        "_on_full",
        "_until_check",
        "_yield_is_due",
    )

    def __init__(
        self,
        by_topic: Mapping[str, TopicRoute],
        memory: BufferMemory,
        batch_bytes: int,
        max_message_bytes: int,
        append_slowly: Append,
        on_full: Callable[[Batch, int], object],
        yield_is_due: Callable[[], bool],
    ) -> None:
        self._by_topic = by_topic
        self._memory = memory
        self._batch_bytes = batch_bytes
        self._max_message_bytes = max_message_bytes
        self._append_slowly = append_slowly
        self._on_full = on_full
        self._yield_is_due = yield_is_due
        self._loop = asyncio.get_running_loop()
        self._until_check = _CHECK_EVERY

    def send(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp_ms: int | None,
        headers: object,
    ) -> DeliveryFuture | None:
        """Append a message and return its future, or append nothing and return None.

        Raises:
            Exception: what the partitioner or `append_slowly` raises, for example
                MessageSizeTooLargeError.
            IllegalArgumentError: as `TopicRoute.choose`.
        """
        self._until_check -= 1
        if self._until_check <= 0:
            self._until_check = _CHECK_EVERY
            if self._yield_is_due():
                return None
        # Wrong arguments take the slow path too, which raises the error.
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
        else:
            named = route.queues.get(partition) if type(partition) is int else None
            if named is None:
                return None
            queue = named
        return self.append(queue, key, value, None)

    def append(
        self, queue: PartitionQueue, key: Data, value: Data, timestamp_ms: int | None
    ) -> DeliveryFuture | None:
        """Append a message and return its future, or call `append_slowly` and return its result."""
        batch = queue.open_batch
        if batch is None or timestamp_ms is not None:
            return self._append_slowly(queue, key, value, timestamp_ms)
        builder = batch.builder
        # 34 and 26: `message_size` of a message without key and value, in formats 1 and 0.
        if builder.magic:
            # The only clock that the fast path reads for each message.
            now_ms = int(environment.wall_time() * 1000)
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
            return self._append_slowly(queue, key, value, None)
        builder.append(key, value, now_ms)
        index = batch.count
        batch.count = index + 1
        # Full: another message of this size wouldn't fit. `on_full` makes the batch due (due_at =
        # -inf), so it is called once per batch.
        if total + size > self._batch_bytes and batch.due_at > 0.0:
            self._on_full(batch, size)
        return DeliveryFuture(batch.delivery, index, now_ms)


def pure_are_bytes(items: list[Any], start: int, stop: int) -> bool:
    """Return whether the items from `start` to `stop` are all bytes, of no subclass, or None."""
    return set(map(type, items[start:stop])) <= {bytes, type(None)}


def pure_longest(items: list[Data], start: int, stop: int) -> int:
    """Return the length of the longest item from `start` to `stop`; None has none."""
    part = items[start:stop]
    try:
        return max(map(len, part), default=0)  # type: ignore[arg-type]
    except TypeError:  # some are None
        return max((len(item) for item in part if item is not None), default=0)


MessageColumns = tuple[list[int], list[Data], list[Data]]
"""The indices, keys and values of messages."""


def pure_choose_each(
    route: TopicRoute,
    keys: Sequence[Data] | None,
    values: Sequence[Data],
    start: int,
    stop: int,
    chosen: dict[PartitionQueue, MessageColumns],
) -> None:
    """Call `TopicRoute.choose` for the keys from `start` to `stop`, and fill `chosen`."""
    key = None
    # Walk the messages in their own order, since they usually lie in memory in that order. To walk
    # them partition by partition takes several times as long.
    for index in range(start, stop):
        if keys is not None:
            key = keys[index]
        queue = route.choose(key)
        columns = chosen.get(queue)
        if columns is None:
            columns = chosen[queue] = ([], [], [])
        columns[0].append(index)
        columns[1].append(key)
        columns[2].append(values[index])


Appender: Final[type[PureAppender]] = PureAppender if _compiled is None else _compiled.Appender
"""The appender in use."""
are_bytes: Final = pure_are_bytes if _compiled is None else _compiled.are_bytes
"""`pure_are_bytes` or its compiled twin, whichever is in use."""
longest: Final = pure_longest if _compiled is None else _compiled.longest
"""`pure_longest` or its compiled twin, whichever is in use."""
choose_each: Final = pure_choose_each if _compiled is None else _compiled.choose_each
"""`pure_choose_each` or its compiled twin, whichever is in use."""
run_callbacks: Final = pure_run_callbacks if _compiled is None else _compiled.run_callbacks
"""`batch_delivery.pure_run_callbacks` or its compiled twin, whichever is in use."""
