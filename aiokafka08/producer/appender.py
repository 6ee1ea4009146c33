"""A message into its partition's open batch, in few steps: the way of nearly all.

`Appender` is the compiled one where the compiled message set is in use (`_producer_c`), else
`PureAppender`, the reference. Law: no waiting, no clock but that of the timestamp; where the usual
case doesn't hold (no open batch, no room, no memory, a timestamp given) `slowly` decides.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from aiokafka08.producer.accumulator import Batch, PartitionQueue
from aiokafka08.producer.compiled import compiled
from aiokafka08.producer.delivery import DeliveryFuture
from aiokafka08.producer.memory import BufferMemory

_now = time.time

Data = bytes | None
Append = Callable[[PartitionQueue, Data, Data, int | None], DeliveryFuture | None]


class PureAppender:
    """Appends to open batches.

    Args:
        memory: whose bytes the messages take.
        batch_bytes: when a batch is full.
        slowly: called with the arguments of `append` where this isn't the usual case.
        on_full: called with the batch and the message's size when the batch got full.
    """

    __slots__ = ("_batch_bytes", "_memory", "_on_full", "_slowly")

    def __init__(
        self,
        memory: BufferMemory,
        batch_bytes: int,
        slowly: Append,
        on_full: Callable[[Batch, int], object],
    ) -> None:
        self._memory = memory
        self._batch_bytes = batch_bytes
        self._slowly = slowly
        self._on_full = on_full

    def append(
        self, queue: PartitionQueue, key: Data, value: Data, timestamp_ms: int | None
    ) -> DeliveryFuture | None:
        """The future of a message that was appended; or what `slowly` gives."""
        batch = queue.open
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
        if total > batch.limit_bytes or not self._memory.try_take(size):
            return self._slowly(queue, key, value, None)
        builder.append(key, value, now_ms)
        index = batch.count
        batch.count = index + 1
        if total + size > self._batch_bytes and batch.due_at > 0.0:  # only once
            self._on_full(batch, size)
        return DeliveryFuture(batch.delivery, index, now_ms)


_compiled = compiled()
Appender: Final[type[PureAppender]] = PureAppender if _compiled is None else _compiled.Appender
