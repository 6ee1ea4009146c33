"""The way of many messages in at once: whole runs of them go into a batch in one step.

What a message costs is one turn of the builder's loop; turns, memory and metadata are asked for
per chunk (`admission`). Law: the event loop isn't held for longer than a few milliseconds. Messages
as Arrow has them are `arrow_messages`'.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from typing import Final, Protocol

from aiokafka08.concurrency.loop_yield import LoopYield
from aiokafka08.producer.accumulator import Accumulator, PartitionQueue
from aiokafka08.producer.admission import Admission, Data
from aiokafka08.producer.deliveries import DeliveryGroup
from aiokafka08.producer.memory import BufferMemory
from aiokafka08.producer.partitioner import ANYWHERE_WITHOUT_KEY, Partitioner
from aiokafka08.producer.sender import Sender
from aiokafka08.producer.topics import TopicRoute, choose_each
from aiokafka08.protocol.message_set import message_size

_HOLD_BYTES: Final = 128 * 1024
_HOLD_MESSAGES: Final = 1024


class Messages(Protocol):
    """What `Bulk` is given: columns of messages, kept in one way or another."""

    @property
    def indices(self) -> Sequence[int]:
        """Their places in what the caller gave."""

    @property
    def keys(self) -> Sequence[Data] | None:
        """None: no message has a key."""

    @property
    def values(self) -> Sequence[Data]:
        """As many as messages."""

    @property
    def timestamps_ms(self) -> Sequence[int] | None:
        """None: now."""

    def named(self) -> Sequence[int]:
        """The partitions that messages name themselves."""

    def too_large(self, limit_bytes: int) -> Generator[None, None, tuple[str, int] | None]:
        """The first message that takes more than so many bytes, in words, and what it takes.

        Yields every few messages.
        """

    def is_run(self, partitioner: Partitioner) -> bool:
        """Whether all may go wherever the partitioner chooses once."""

    def spread(
        self, route: TopicRoute, start: int
    ) -> tuple[Sequence[tuple[PartitionQueue, Messages]], int]:
        """Some messages from `start` on, by their partition's queue, and where the rest begins."""


class Bulk:
    """Puts sequences of messages into batches and wakes the sender."""

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
        self._turns = turns
        self._clock = asyncio.get_running_loop().time

    async def append(
        self, topic: str, messages: Messages, partition: int | None = None
    ) -> list[DeliveryGroup]:
        """Append many messages, chunk by chunk as memory allows; says where they are.

        The loop isn't held for longer than a few milliseconds. Each wait for memory may take
        `delivery_timeout_ms`. Where an error is raised, or the call is cancelled, the messages that
        were accepted before are sent all the same.

        Args:
            topic: where to.
            messages: what to append.
            partition: one for all; None: what they name themselves, else the partitioner's choice.

        Raises:
            As `Intake.append`.
        """
        found = await self._turns.run_steps(messages.too_large(self._admission.max_message_bytes))
        if found is not None:
            where, size = found
            raise self._admission.too_large(size, where)
        groups: list[DeliveryGroup] = []
        count = len(messages.values)
        if not count:
            return groups
        await self._turns.yield_if_due()
        async with self._admission.turn(topic, bounded=False) as route:
            if partition is not None:
                queue = await self._admission.queue(route, partition, None)
            for named in messages.named():
                await self._admission.queue(route, named, None)
            start = 0
            while start < count:
                if partition is not None:
                    start = await self._fill(queue, messages, start, groups)
                elif messages.is_run(route.partitioner):
                    start = await self._fill(route.choose(None), messages, start, groups)
                else:
                    parts, start = messages.spread(route, start)
                    for queue, part in parts:
                        done = 0
                        while done < len(part.values):
                            done = await self._fill(queue, part, done, groups)
        return groups

    async def _fill(
        self, queue: PartitionQueue, messages: Messages, start: int, groups: list[DeliveryGroup]
    ) -> int:
        """Append messages from `start` on to the queue's open batch while there is room in it and
        memory, at least one; says where the next one is. Others get a turn where one is due."""
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
        groups.append(DeliveryGroup(messages.indices[start:stop], batch.delivery, first, now_ms))
        await self._turns.yield_if_due()
        return stop


class ListedMessages:
    """What `send_many` was given, or a part of it."""

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

    def named(self) -> Sequence[int]:
        """See `Messages`."""
        return ()

    def too_large(self, limit_bytes: int) -> Generator[None, None, tuple[str, int] | None]:
        """See `Messages`."""
        all_keys = self.keys
        for start in range(0, len(self.values), _HOLD_MESSAGES):
            if start:
                yield
            values = self.values[start : start + _HOLD_MESSAGES]
            keys = None if all_keys is None else all_keys[start : start + _HOLD_MESSAGES]
            longest = _longest(values) + (0 if keys is None else _longest(keys))
            if message_size(1, None, None) + longest <= limit_bytes:
                continue
            for place, value in enumerate(values):
                size = message_size(1, None if keys is None else keys[place], value)
                if size > limit_bytes:
                    return f"message {start + place}", size
        return None

    def is_run(self, partitioner: Partitioner) -> bool:
        """See `Messages`."""
        return self.keys is None and type(partitioner) in ANYWHERE_WITHOUT_KEY

    def spread(
        self, route: TopicRoute, start: int
    ) -> tuple[Sequence[tuple[PartitionQueue, Messages]], int]:
        """See `Messages`."""
        stop = min(start + _HOLD_MESSAGES, len(self.values))
        chosen = choose_each(route, self.keys, start, stop)
        return [(queue, self._only(indices)) for queue, indices in chosen.items()], stop

    def _only(self, indices: list[int]) -> ListedMessages:
        keys, values, timestamps = self.keys, self.values, self.timestamps_ms
        return ListedMessages(
            indices,
            None if keys is None else [keys[index] for index in indices],
            [values[index] for index in indices],
            None if timestamps is None else [timestamps[index] for index in indices],
        )


def _longest(data: Sequence[Data]) -> int:
    try:
        return max(map(len, data), default=0)  # type: ignore[arg-type]
    except TypeError:  # some are None
        return max((len(one) for one in data if one is not None), default=0)
