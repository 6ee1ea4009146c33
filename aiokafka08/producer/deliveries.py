"""The result of a `send_many()` call, from which the caller reads the outcome of each message.

`Deliveries` keeps one `DeliveryGroup` per run of messages that were appended to one batch, and no
object per message. `Acknowledged` makes a message's `RecordMetadata` when the caller reads it.

Invariant: awaiting a `Deliveries` checks after every 64 groups whether to yield to the event loop.
Reading an item of `Acknowledged` visits no group after the item's own.
"""

from __future__ import annotations

import asyncio
import copy
import functools
from array import array
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Final, NamedTuple, overload

from aiokafka08._core.concurrency.loop_yield import LoopYield
from aiokafka08.errors import KafkaError
from aiokafka08.producer.batch_delivery import BatchDelivery
from aiokafka08.producer.fast_path import DeliveryFuture
from aiokafka08.structs import RecordMetadata, TopicPartition

# Number of awaited groups after which `Deliveries` checks whether to yield to the event loop
_CHECK_EVERY: Final = 64


class DeliveryGroup(NamedTuple):
    """Messages of one `send_many()` call that stand next to each other in one batch."""

    indices: Sequence[int]  # their indices in the caller's values, ascending
    delivery: BatchDelivery
    first: int  # the index of the group's first message in its batch
    # The client's clock when they were appended; used if the caller gave no timestamps
    timestamp_ms: int


class Deliveries:
    """The messages of one `send_many()` call. Await it for a sequence of `RecordMetadata`.

    Awaiting it waits until each message is acknowledged or has failed. With acks=0 it waits until
    the broker has read the messages, the connection is lost, or `delivery_timeout_ms` is over. If
    messages failed, it raises the error of the first one and the text names that message;
    `errors()` returns all errors. It may be awaited more than once, and by several tasks;
    cancelling one of them affects nothing else. `len()` is the number of messages.
    """

    __slots__ = ("_count", "_groups", "_loop_yield", "_timestamps_ms")

    def __init__(
        self,
        count: int,
        groups: list[DeliveryGroup],
        timestamps_ms: Sequence[int] | None,
        loop_yield: LoopYield,
    ) -> None:
        self._count = count
        self._groups = groups
        self._timestamps_ms = timestamps_ms
        self._loop_yield = loop_yield

    def __repr__(self) -> str:
        return f"<Deliveries of {self._count} messages {'done' if self.done() else 'pending'}>"

    def __len__(self) -> int:
        return self._count

    def __await__(self) -> Generator[Any, None, Sequence[RecordMetadata]]:
        return self._wait().__await__()

    def done(self) -> bool:
        """Return True if each message is acknowledged or failed."""
        return all(delivery.done for group in self._groups for delivery in group.delivery.parts())

    def errors(self) -> dict[int, KafkaError]:
        """Return the errors of the messages that failed so far, by their index in `values`."""
        errors: dict[int, KafkaError] = {}
        for group in self._groups:
            for indices, error in _failed(group):
                errors.update(dict.fromkeys(indices, error))
        return dict(sorted(errors.items()))

    def counts(self) -> dict[TopicPartition, int]:
        """Return how many messages were appended for each partition, whatever their outcome."""
        counts: dict[TopicPartition, int] = {}
        for group in self._groups:
            tp = group.delivery.topic_partition
            counts[tp] = counts.get(tp, 0) + len(group.indices)
        return counts

    def add_done_callback(self, fn: Callable[[Deliveries], object]) -> None:
        """Call `fn` with this object, in the event loop, once each message is done."""
        asyncio.get_running_loop().call_soon(self._call_when_done, fn, 0)

    def _call_when_done(
        self, fn: Callable[[Deliveries], object], first: int, done: object = None
    ) -> None:
        """Call `fn` now, or when the groups from group `first` on are done.

        `done` is the future whose callback this is.
        """
        for number in range(first, len(self._groups)):
            for part in self._groups[number].delivery.parts():
                if not part.done:  # check again when it is done: it may be split
                    again = functools.partial(self._call_when_done, fn, number)
                    DeliveryFuture(part, 0, -1).add_done_callback(again)
                    return
        fn(self)

    async def _wait(self) -> Sequence[RecordMetadata]:
        failed, first, cause = 0, self._count, None
        for number, group in enumerate(self._groups, 1):
            delivery = group.delivery
            await delivery.wait_finished()
            if delivery.error is not None or delivery.split_into is not None:
                for indices, error in _failed(group):
                    failed += len(indices)
                    if indices[0] < first:
                        first, cause = indices[0], error
            if number % _CHECK_EVERY == 0:
                await self._loop_yield.yield_if_due()
        await self._loop_yield.yield_if_due()  # the caller may await many Deliveries in a row
        if cause is not None:
            error = copy.copy(cause)
            error.args = (
                f"message {first} of {self._count}: {cause.text}"
                + (f" (and {failed - 1} others, see errors())" if failed > 1 else ""),
            )
            raise error from cause
        return Acknowledged(self._count, self._groups, self._timestamps_ms)


def _failed(group: DeliveryGroup) -> Iterator[tuple[Sequence[int], KafkaError]]:
    """Yield the group's messages that failed so far, in ascending order, with their errors."""
    first = group.first
    for part, span in group.delivery.spans(first, first + len(group.indices)):
        if part.error is not None:
            yield group.indices[span.start - first : span.stop - first], part.error


class Acknowledged(Sequence[RecordMetadata]):
    """The `RecordMetadata` of each message, in the order of the values; made when it is read."""

    __slots__ = ("_count", "_group_of", "_groups", "_indexed", "_timestamps_ms")

    def __init__(
        self, count: int, groups: list[DeliveryGroup], timestamps_ms: Sequence[int] | None
    ) -> None:
        self._count = count
        self._groups = groups
        self._timestamps_ms = timestamps_ms
        self._indexed = 0
        # For each message the number of its group, where 1 is the first group. Only the first
        # `_indexed` groups are entered; the messages of later groups have 0.
        self._group_of = array("I", bytes(array("I").itemsize * count))

    def __repr__(self) -> str:
        return f"<Acknowledged {self._count} messages>"

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> RecordMetadata: ...
    @overload
    def __getitem__(self, index: slice) -> list[RecordMetadata]: ...
    def __getitem__(self, index: int | slice) -> RecordMetadata | list[RecordMetadata]:
        if isinstance(index, slice):
            return [self._at(message_index) for message_index in range(*index.indices(self._count))]
        if not -self._count <= index < self._count:
            raise IndexError(f"index {index}: there are {self._count} messages")
        return self._at(index % self._count)

    def __iter__(self) -> Iterator[RecordMetadata]:
        return map(self._at, range(self._count))

    def _at(self, index: int) -> RecordMetadata:
        group_of = self._group_of
        while not group_of[index]:  # groups are in the order of their messages, or nearly so
            indices = self._groups[self._indexed].indices
            self._indexed += 1
            if isinstance(indices, range):
                group_of[indices[0] : indices[-1] + 1] = array("I", [self._indexed]) * len(indices)
            else:
                for message_index in indices:
                    group_of[message_index] = self._indexed
        group = self._groups[group_of[index] - 1]
        indices = group.indices
        if isinstance(indices, range):
            in_group = index - indices[0]
        else:
            in_group = bisect_left(indices, index)
        delivery, in_batch = group.delivery.locate(group.first + in_group)
        timestamps = self._timestamps_ms
        return delivery.metadata(
            in_batch, group.timestamp_ms if timestamps is None else timestamps[index]
        )
