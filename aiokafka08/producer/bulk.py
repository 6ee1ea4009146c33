"""The way of many messages in at once: whole runs of them go into a batch in one step.

What a message costs is one turn of the builder's loop; turns, memory and metadata are asked for
per chunk (`admission`). Law: the event loop isn't held for longer than a few milliseconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from aiokafka08.producer.accumulator import Accumulator, PartitionQueue
from aiokafka08.producer.admission import Admission, Data
from aiokafka08.producer.deliveries import Group
from aiokafka08.producer.memory import BufferMemory
from aiokafka08.producer.partitioner import (
    DefaultPartitioner,
    RandomPartitioner,
    ScalaPartitioner080,
    ScalaPartitioner082,
    StickyPartitioner,
)
from aiokafka08.producer.routes import Route, choose_each
from aiokafka08.producer.sender import Sender
from aiokafka08.producer.turns import Turns
from aiokafka08.protocol.message_set import message_size

_HOLD_BYTES: Final = 128 * 1024
_HOLD_MESSAGES: Final = 1024

_CHOOSE_ANY: Final = {
    DefaultPartitioner,
    RandomPartitioner,
    ScalaPartitioner080,
    ScalaPartitioner082,
    StickyPartitioner,
}
"""Partitioners that promise nothing for messages without a key: asked once per run of them."""


class Bulk:
    """Puts sequences of messages into batches and wakes the sender."""

    def __init__(
        self,
        admission: Admission,
        accumulator: Accumulator,
        memory: BufferMemory,
        sender: Sender,
        turns: Turns,
    ) -> None:
        self._admission = admission
        self._accumulator = accumulator
        self._memory = memory
        self._sender = sender
        self._turns = turns
        self._clock = asyncio.get_running_loop().time

    async def append(
        self,
        topic: str,
        keys: Sequence[Data] | None,
        values: Sequence[Data],
        partition: int | None,
        timestamps_ms: Sequence[int] | None,
    ) -> list[Group]:
        """Append many messages, chunk by chunk as memory allows; says where they are.

        The loop isn't held for longer than a few milliseconds. Each wait for memory may take
        `delivery_timeout_ms`. Where an error is raised, or the call is cancelled, the messages that
        were accepted before are sent all the same.

        Raises:
            As `Intake.append`.
        """
        self._check_sizes(keys, values)
        groups: list[Group] = []
        if not values:
            return groups
        if self._turns.look():
            await self._turns.give()
        async with self._admission.turn(topic, bounded=False) as route:
            many = _Messages(range(len(values)), keys, values, timestamps_ms)
            if partition is not None:
                queue = await self._admission.queue(route, partition, None)
                runs = [(queue, many)]
            start = 0
            while start < len(values):
                if partition is None:
                    if keys is None and type(route.partitioner) in _CHOOSE_ANY:
                        runs = [(route.choose(None), many)]
                    else:
                        stop = min(start + _HOLD_MESSAGES, len(values))
                        runs = self._by_partition(route, many, start, stop)
                        start = stop
                for queue, messages in runs:
                    if messages is many:
                        start = await self._fill(queue, messages, start, groups)
                    else:
                        done = 0
                        while done < len(messages.values):
                            done = await self._fill(queue, messages, done, groups)
                if self._turns.look():
                    await self._turns.give()
        return groups

    def _by_partition(
        self, route: Route, many: _Messages, start: int, stop: int
    ) -> list[tuple[PartitionQueue, _Messages]]:
        """The messages from `start` to `stop`, sorted by the queue that the partitioner chooses."""
        chosen = choose_each(route, many.keys, start, stop)
        return [(queue, many.only(indices)) for queue, indices in chosen.items()]

    async def _fill(
        self, queue: PartitionQueue, messages: _Messages, start: int, groups: list[Group]
    ) -> int:
        """Append messages from `start` on to the queue's open batch while there is room in it and
        memory, at least one; says where the next one is."""
        accumulator, memory = self._accumulator, self._memory
        key = None if messages.keys is None else messages.keys[start]
        value = messages.values[start]
        given = messages.timestamps_ms
        since = self._clock()
        size, now_ms = await self._admission.admit(
            queue, key, value, None if given is None else given[start]
        )
        now = self._clock()
        batch = queue.open
        if batch is None or batch.builder.size_bytes + size > batch.limit_bytes:
            batch = accumulator.open_batch(queue, now, since=since)
        builder = batch.builder
        first, before = batch.count, builder.size_bytes
        stop = start
        try:
            stop = builder.extend(
                messages.keys,
                messages.values,
                now_ms if given is None else given,
                start,
                min(batch.limit_bytes, before + size + min(memory.room(), _HOLD_BYTES)),
            )
        finally:
            memory.give(size - (builder.size_bytes - before))
            accumulator.filled(batch, size, now)
        if accumulator.news:
            self._sender.wake()
        groups.append(Group(messages.indices[start:stop], batch.delivery, first, now_ms))
        return stop

    def _check_sizes(self, keys: Sequence[Data] | None, values: Sequence[Data]) -> None:
        longest = _longest(values) + (0 if keys is None else _longest(keys))
        if longest + 34 <= self._admission.max_message_bytes:
            return
        for index, value in enumerate(values):
            size = message_size(1, None if keys is None else keys[index], value)
            if size > self._admission.max_message_bytes:
                raise self._admission.too_large(size, f"message {index}")


def _longest(data: Sequence[Data]) -> int:
    try:
        return max(map(len, data), default=0)  # type: ignore[arg-type]
    except TypeError:  # some are None
        return max((len(one) for one in data if one is not None), default=0)


class _Messages:
    """A part of what `send_many` was given; `indices` are the places in the whole."""

    __slots__ = ("indices", "keys", "timestamps_ms", "values")

    def __init__(
        self,
        indices: Sequence[int],
        keys: Sequence[Data] | None,
        values: Sequence[Data],
        timestamps_ms: Sequence[int] | None,
    ) -> None:
        self.indices = indices
        self.keys = keys
        self.values = values
        self.timestamps_ms = timestamps_ms

    def only(self, indices: list[int]) -> _Messages:
        """Those at these places."""
        keys, values, timestamps = self.keys, self.values, self.timestamps_ms
        return _Messages(
            indices,
            None if keys is None else [keys[index] for index in indices],
            [values[index] for index in indices],
            None if timestamps is None else [timestamps[index] for index in indices],
        )
