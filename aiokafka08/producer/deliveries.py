"""What `send_many` returns: the fate of many messages, told when somebody asks.

Kept as groups (these messages went into that batch, from this place on), not per message; the
`RecordMetadata` of a message is made when it is looked at.
"""

from __future__ import annotations

import copy
from array import array
from collections.abc import Generator, Iterator, Sequence
from typing import Any, NamedTuple, overload

from aiokafka08.errors import KafkaError
from aiokafka08.producer.delivery import Delivery
from aiokafka08.structs import RecordMetadata, TopicPartition


class Group(NamedTuple):
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

    __slots__ = ("_count", "_groups", "_timestamps_ms")

    def __init__(
        self, count: int, groups: list[Group], timestamps_ms: Sequence[int] | None
    ) -> None:
        self._count = count
        self._groups = groups
        self._timestamps_ms = timestamps_ms

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
            if all(one.error is None for one in group.delivery.parts()):
                continue
            for place, index in enumerate(group.indices, group.first):
                error = group.delivery.at(place)[0].error
                if error is not None:
                    errors[index] = error
        return dict(sorted(errors.items()))

    def counts(self) -> dict[TopicPartition, int]:
        """How many of the messages were given to each partition, whatever became of them."""
        counts: dict[TopicPartition, int] = {}
        for group in self._groups:
            tp = group.delivery.topic_partition
            counts[tp] = counts.get(tp, 0) + len(group.indices)
        return counts

    async def _wait(self) -> Sequence[RecordMetadata]:
        for group in self._groups:
            await group.delivery.wait_finished()
        errors = self.errors()
        if errors:
            index, cause = next(iter(errors.items()))
            error = copy.copy(cause)
            error.args = (
                f"message {index} of {self._count}: {cause.text}"
                + (f" (and {len(errors) - 1} others, see errors())" if len(errors) > 1 else ""),
            )
            raise error from cause
        return Acknowledged(self._count, self._groups, self._timestamps_ms)


class Acknowledged(Sequence[RecordMetadata]):
    """Where each message went, in the order of the values; made on demand."""

    __slots__ = ("_count", "_group_of", "_groups", "_place_of", "_timestamps_ms")

    def __init__(
        self, count: int, groups: list[Group], timestamps_ms: Sequence[int] | None
    ) -> None:
        self._count = count
        self._groups = groups
        self._timestamps_ms = timestamps_ms
        self._group_of: array[int] | None = None
        self._place_of: array[int] | None = None

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
        if self._group_of is None or self._place_of is None:
            group_of = array("L", bytes(array("L").itemsize * self._count))
            place_of = array("L", group_of)
            for number, group in enumerate(self._groups):
                for place, one in enumerate(group.indices, group.first):
                    group_of[one] = number
                    place_of[one] = place
            self._group_of, self._place_of = group_of, place_of
        group = self._groups[self._group_of[index]]
        delivery, place = group.delivery.at(self._place_of[index])
        given = self._timestamps_ms
        return delivery.metadata(place, group.timestamp_ms if given is None else given[index])
