"""What `send_many` returns: the fate of many messages, told when somebody asks.

Kept as groups (these messages went into that batch, from this place on), not per message; the
`RecordMetadata` of a message is made when it is looked at. Law: awaiting walks over no more than a
few groups at a stretch, and looking at a message over none of those behind it.
"""

from __future__ import annotations

import copy
from array import array
from bisect import bisect_left
from collections.abc import Generator, Iterator, Sequence
from typing import Any, Final, NamedTuple, overload

from aiokafka08.concurrency.loop_yield import LoopYield
from aiokafka08.errors import KafkaError
from aiokafka08.producer.delivery import Delivery
from aiokafka08.structs import RecordMetadata, TopicPartition

_LOOK_EVERY: Final = 64
"""So many groups are waited for between two questions whether others want a turn of the loop."""


class DeliveryGroup(NamedTuple):
    """Messages that stand next to each other in one batch, in ascending order.

    `indices` are their places in the values given to `send_many`, `first` is the place in the batch
    of the first of them. `timestamp_ms` is the client's clock where the caller gave none.
    """

    indices: Sequence[int]
    delivery: Delivery
    first: int
    timestamp_ms: int


class Deliveries:
    """The messages of one `send_many` call. Await it for a sequence of `RecordMetadata`.

    Awaiting waits until all are acknowledged (with acks=0: read by the broker, as far as it can be
    asked) and raises the first failed message's error, whose text names it; `errors()` has all.
    May be awaited more than once, and by several tasks; cancelling one affects nothing else.
    """

    __slots__ = ("_count", "_groups", "_timestamps_ms", "_turns")

    def __init__(
        self,
        count: int,
        groups: list[DeliveryGroup],
        timestamps_ms: Sequence[int] | None,
        turns: LoopYield,
    ) -> None:
        self._count = count
        self._groups = groups
        self._timestamps_ms = timestamps_ms
        self._turns = turns

    def __repr__(self) -> str:
        return f"<Deliveries of {self._count} messages {'done' if self.done() else 'pending'}>"

    def __len__(self) -> int:
        return self._count

    def __await__(self) -> Generator[Any, None, Sequence[RecordMetadata]]:
        return self._wait().__await__()

    def done(self) -> bool:
        """Whether each message is acknowledged or given up."""
        return all(delivery.done for group in self._groups for delivery in group.delivery.parts())

    def errors(self) -> dict[int, KafkaError]:
        """The errors of the messages that were given up so far, by their place in `values`."""
        errors: dict[int, KafkaError] = {}
        for group in self._groups:
            for indices, error in _failed(group):
                errors.update(dict.fromkeys(indices, error))
        return dict(sorted(errors.items()))

    def counts(self) -> dict[TopicPartition, int]:
        """How many of the messages were given to each partition, whatever became of them."""
        counts: dict[TopicPartition, int] = {}
        for group in self._groups:
            tp = group.delivery.topic_partition
            counts[tp] = counts.get(tp, 0) + len(group.indices)
        return counts

    async def _wait(self) -> Sequence[RecordMetadata]:
        failed, first, cause = 0, self._count, None
        for number, group in enumerate(self._groups, 1):
            await group.delivery.wait_finished()
            for indices, error in _failed(group):
                failed += len(indices)
                if indices[0] < first:
                    first, cause = indices[0], error
            if number % _LOOK_EVERY == 0 and self._turns.is_due():
                await self._turns.yield_now()
        await self._turns.yield_if_due()  # many short ones may be awaited, one after the other
        if cause is not None:
            error = copy.copy(cause)
            error.args = (
                f"message {first} of {self._count}: {cause.text}"
                + (f" (and {failed - 1} others, see errors())" if failed > 1 else ""),
            )
            raise error from cause
        return Acknowledged(self._count, self._groups, self._timestamps_ms)


def _failed(group: DeliveryGroup) -> Iterator[tuple[Sequence[int], KafkaError]]:
    """The group's messages that were given up so far, in ascending order, with their errors."""
    first = group.first
    for part, places in group.delivery.spans(first, first + len(group.indices)):
        if part.error is not None:
            yield group.indices[places.start - first : places.stop - first], part.error


class Acknowledged(Sequence[RecordMetadata]):
    """Where each message went, in the order of the values; made on demand."""

    __slots__ = ("_count", "_group_of", "_groups", "_known", "_timestamps_ms")

    def __init__(
        self, count: int, groups: list[DeliveryGroup], timestamps_ms: Sequence[int] | None
    ) -> None:
        self._count = count
        self._groups = groups
        self._timestamps_ms = timestamps_ms
        self._known = 0
        self._group_of = array("I", bytes(array("I").itemsize * count))
        """Of each message the number of its group, from 1 on; 0: not among the `_known` ones."""

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
            return [self._at(one) for one in range(*index.indices(self._count))]
        if not -self._count <= index < self._count:
            raise IndexError(f"{index}: there are {self._count} messages")
        return self._at(index % self._count)

    def __iter__(self) -> Iterator[RecordMetadata]:
        return map(self._at, range(self._count))

    def _at(self, index: int) -> RecordMetadata:
        group_of = self._group_of
        while not group_of[index]:  # groups stand in the order of their messages, or nearly so
            indices = self._groups[self._known].indices
            self._known += 1
            if isinstance(indices, range):
                group_of[indices[0] : indices[-1] + 1] = array("I", [self._known]) * len(indices)
            else:
                for one in indices:
                    group_of[one] = self._known
        group = self._groups[group_of[index] - 1]
        indices = group.indices
        if isinstance(indices, range):
            place = index - indices[0]
        else:
            place = bisect_left(indices, index)
        delivery, place = group.delivery.at(group.first + place)
        given = self._timestamps_ms
        return delivery.metadata(place, group.timestamp_ms if given is None else given[index])
