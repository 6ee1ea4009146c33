"""What became of a batch: one `Delivery`, which its messages' futures look at.

So a batch of ten thousand messages is resolved in one step, and what nobody looks at costs nothing.
The future of one message is `future`'s, that of `send_many` `deliveries`'. A failure that nobody
asks about is told by one `BatchFailed` event, not per message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from aiokafka08.concurrency.loop_yield import LoopYield
from aiokafka08.errors import KafkaError
from aiokafka08.structs import RecordMetadata, TopicPartition

if TYPE_CHECKING:
    from aiokafka08.producer.future import DeliveryFuture

_CALLBACKS_PER_TURN: Final = 256
"""Futures told in one turn of the loop: others get theirs in between (about a millisecond)."""

_new_tuple = tuple.__new__


class Delivery:
    """The fate of one batch. Decided once: acknowledged, failed, or divided into two others.

    Attributes:
        done: it is acknowledged or failed.
        base_offset: that of the first message; -1 with acks=0.
        timestamp_ms: the broker's, under LogAppendTime; else -1.
        has_timestamps: the batch was stored in message format 1.
        error: why it failed.
        halves: what it was divided into: how many messages went to the first one, and both.
        turns: asked by who awaits a future that is done.
        watched: pending futures that have callbacks, in the order in which they got the first one.
    """

    __slots__ = (
        "_finished",
        "_is_finished",
        "base_offset",
        "done",
        "error",
        "halves",
        "has_timestamps",
        "loop",
        "timestamp_ms",
        "topic_partition",
        "turns",
        "watched",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        loop: asyncio.AbstractEventLoop | None,
        turns: LoopYield | None = None,
    ) -> None:
        self.topic_partition = topic_partition
        self.loop = loop
        self.turns = turns
        self.done = False
        self.base_offset = -1
        self.timestamp_ms = -1
        self.has_timestamps = False
        self.error: KafkaError | None = None
        self.halves: tuple[int, Delivery, Delivery] | None = None
        self.watched: list[DeliveryFuture | None] = []
        self._finished: asyncio.Future[None] | None = None
        self._is_finished = False

    def acknowledge(self, base_offset: int, timestamp_ms: int, *, has_timestamps: bool) -> None:
        """The batch is stored (or, with acks=0, written)."""
        if not self.done:
            self.base_offset = base_offset
            self.timestamp_ms = timestamp_ms
            self.has_timestamps = has_timestamps
            self._decide()

    def fail(self, error: KafkaError) -> None:
        """The batch is given up."""
        if not self.done:
            self.error = error
            self._decide()

    def divide(self, first_count: int, first: Delivery, second: Delivery) -> None:
        """The batch was split; the first `first_count` messages now belong to `first`."""
        self.halves = (first_count, first, second)
        watched, self.watched = self.watched, []
        for future in watched:
            assert future is not None
            future._place().watch(future)
        self.finish()

    def finish(self) -> None:
        """Nothing more will happen to the batch: with acks=0 that is later than `done`."""
        self._is_finished = True
        if self._finished is not None and not self._finished.done():
            self._finished.set_result(None)

    async def wait_finished(self) -> None:
        """Wait until the batch, or all that it was split into, is finished."""
        if not self._is_finished:
            if self._finished is None:
                self._finished = asyncio.get_running_loop().create_future()
            await asyncio.wait((self._finished,))  # others may wait for it too: not cancelled
        if self.halves is not None:
            await self.halves[1].wait_finished()
            await self.halves[2].wait_finished()

    def parts(self) -> list[Delivery]:
        """Itself, or what it was split into."""
        if self.halves is None:
            return [self]
        return self.halves[1].parts() + self.halves[2].parts()

    def spans(self, start: int, stop: int, before: int = 0) -> Iterator[tuple[Delivery, range]]:
        """The messages from `start` to before `stop`, by the delivery that they belong to now.

        `before`: so many stand before this one's first, in the numbers that are asked for.
        """
        if start >= stop:
            return
        if self.halves is None:
            yield self, range(start, stop)
            return
        first_count, first, second = self.halves
        middle = before + first_count
        yield from first.spans(start, min(stop, middle), before)
        yield from second.spans(max(start, middle), stop, middle)

    def at(self, index: int) -> tuple[Delivery, int]:
        """The delivery that message `index` belongs to now, and its index there."""
        delivery = self
        while delivery.halves is not None:
            first_count, first, second = delivery.halves
            if index < first_count:
                delivery = first
            else:
                delivery, index = second, index - first_count
        return delivery, index

    def metadata(self, index: int, timestamp_ms: int) -> RecordMetadata:
        """Where message `index` of the acknowledged batch went."""
        base_offset = self.base_offset
        topic_partition = self.topic_partition
        timestamp: int | None = None
        timestamp_type: int | None = None
        if self.has_timestamps:
            if self.timestamp_ms < 0:
                timestamp, timestamp_type = timestamp_ms, 0
            else:
                timestamp, timestamp_type = self.timestamp_ms, 1
        return _new_tuple(
            RecordMetadata,
            (
                topic_partition[0],
                topic_partition[1],
                topic_partition,
                base_offset + index if base_offset >= 0 else -1,
                timestamp,
                timestamp_type,
                None,
            ),
        )

    def watch(self, future: DeliveryFuture) -> None:
        """A future of one of its messages has a callback, to be told once it is decided."""
        if self.done:
            self.tell_soon(future)
        else:
            self.watched.append(future)

    def tell_soon(self, future: DeliveryFuture) -> None:
        """A future that is done has callbacks: they run in the next turn of the loop."""
        assert self.loop is not None
        alone: list[DeliveryFuture | None] = [future]
        self.loop.call_soon(_tell, alone, 0)

    def _decide(self) -> None:
        self.done = True
        watched, self.watched = self.watched, []
        if watched:
            assert self.loop is not None
            self.loop.call_soon(_tell, watched, 0)


def _tell(futures: list[DeliveryFuture | None], start: int) -> None:
    """Run the callbacks of many futures in one turn of the loop, instead of one turn's slot each.

    A callback may wake a task, which then runs at once, in its own context.
    """
    stop = min(start + _CALLBACKS_PER_TURN, len(futures))
    for index in range(start, stop):
        future = futures[index]
        assert future is not None
        futures[index] = None  # freed one by one, which keeps the garbage collector asleep
        try:
            future._tell()
        except BaseException:  # the program is to end: asyncio lets nothing else out
            future.get_loop().call_soon(_tell, futures, index + 1)
            raise
    if stop < len(futures):
        following = futures[stop]
        assert following is not None
        following.get_loop().call_soon(_tell, futures, stop)
