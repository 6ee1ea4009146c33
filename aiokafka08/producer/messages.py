"""Many messages as columns: the `Messages` protocol, for lists and for Arrow batches.

All knowledge of pyarrow is in `aiokafka08._core.arrow.ArrowRows`.

Invariants: `ArrowMessages` creates no Python object per row, except for a partitioner that has to
be called for each row. `too_large` and `split_by_queue` yield after a few milliseconds of work at
most, so that the caller can yield to the event loop.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Any, Final, Protocol, Self

from aiokafka08 import environment
from aiokafka08._core.arrow import ArrowRows
from aiokafka08.partitioner import (
    ANYWHERE_WITHOUT_KEY,
    BY_MURMUR2,
    BatchAware,
    Partitioner,
    partitions_of,
)
from aiokafka08.producer.batch import PartitionQueue
from aiokafka08.producer.fast_path import Data, MessageColumns, choose_each, longest
from aiokafka08.producer.topics import TopicRoute
from aiokafka08.protocol.message_set import BinaryColumn, message_size

# Number of listed messages that one step checks, or chooses partitions for
_STEP_MESSAGES: Final = 1024
# Maximum number of listed messages that are split by queue at once. The fixed cost of a batch is
# that of many messages, so the messages of one partition should go into one batch, although a batch
# lingers only for a short time.
_SPLIT_MESSAGES: Final = 32 * 1024
# Arrow rows that one step checks
_MEASURED_ROWS: Final = 65536
# Maximum number of Arrow rows that one step splits by queue. Since splitting copies the rows, such
# a step takes one or two milliseconds.
_SPLIT_ROWS: Final = 8192
# Maximum number of bytes that one step splits by queue, estimated by the average size of a row
_SPLIT_BYTES: Final = 2 * 1024 * 1024


class Messages(Protocol):
    """Columns of messages of one topic."""

    @property
    def indices(self) -> Sequence[int]:
        """The index of each message in what the user gave."""

    @property
    def keys(self) -> Sequence[Data] | None:
        """The keys; None if no message has a key."""

    @property
    def values(self) -> Sequence[Data]:
        """The values, one for each message."""

    @property
    def timestamps_ms(self) -> Sequence[int] | None:
        """The timestamps; None for the current time."""

    def named_partitions(self) -> Sequence[int]:
        """Return the partitions that the messages themselves name."""

    def too_large(self, limit_bytes: int) -> Generator[None, None, tuple[str, int] | None]:
        """Find the first message that is too large; return its label and its size."""

    def may_choose_once(self, partitioner: Partitioner) -> bool:
        """Whether to call the partitioner once for a run of messages instead of once for each."""

    def split_by_queue(
        self, route: TopicRoute, start: int
    ) -> Generator[None, None, tuple[Iterable[tuple[PartitionQueue, Messages]], int]]:
        """Split some messages, from index `start` on, by queue; return them and the next index."""


class ListedMessages:
    """The messages of `send_many`, or a part of them. The methods are those of `Messages`."""

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

    def named_partitions(self) -> Sequence[int]:
        return ()

    def too_large(self, limit_bytes: int) -> Generator[None, None, tuple[str, int] | None]:
        all_keys = self.keys
        if (
            # `longest()` creates no object per value.
            isinstance(self.values, BinaryColumn)
            and all_keys is None
            and message_size(1, None, None) + self.values.longest() <= limit_bytes
        ):
            return None
        for start in range(0, len(self.values), _STEP_MESSAGES):
            if start:
                yield
            stop = min(start + _STEP_MESSAGES, len(self.values))
            most = _longest(self.values, start, stop)
            most += 0 if all_keys is None else _longest(all_keys, start, stop)
            if message_size(1, None, None) + most <= limit_bytes:
                continue
            for index in range(start, stop):
                key = None if all_keys is None else all_keys[index]
                size = message_size(1, key, self.values[index])
                if size > limit_bytes:
                    return f"message {index}", size
        return None

    def may_choose_once(self, partitioner: Partitioner) -> bool:
        return self.keys is None and type(partitioner) in ANYWHERE_WITHOUT_KEY

    def split_by_queue(
        self, route: TopicRoute, start: int
    ) -> Generator[None, None, tuple[Iterable[tuple[PartitionQueue, Messages]], int]]:
        # A `BatchAware` partitioner has to be notified of closed batches before its next choices.
        most = _STEP_MESSAGES if isinstance(route.partitioner, BatchAware) else _SPLIT_MESSAGES
        end = min(start + most, len(self.values))
        chosen: dict[PartitionQueue, MessageColumns] = {}
        for first in range(start, end, _STEP_MESSAGES):
            if first > start:
                yield
            last = min(first + _STEP_MESSAGES, end)
            choose_each(route, self.keys, self.values, first, last, chosen)
        return ((queue, self._part(*columns)) for queue, columns in chosen.items()), end

    def _part(self, indices: list[int], keys: list[Data], values: list[Data]) -> ListedMessages:
        timestamps = self.timestamps_ms
        return ListedMessages(
            indices,
            None if self.keys is None else keys,
            values,
            None if timestamps is None else [timestamps[index] for index in indices],
        )


def _longest(data: Sequence[Data], start: int, stop: int) -> int:
    if isinstance(data, list):
        return longest(data, start, stop)
    return longest(list(data[start:stop]), 0, stop - start)


class ArrowMessages:
    """The rows of a record batch, or a part of them. The methods are those of `Messages`."""

    __slots__ = ("_rows", "indices", "keys", "timestamps_ms", "values")

    def __init__(self, rows: ArrowRows) -> None:
        self._rows = rows
        self.indices = rows.indices
        self.keys = rows.keys
        self.values = rows.values
        self.timestamps_ms = rows.timestamps_ms

    @classmethod
    def of(cls, batch: Any) -> Self:
        """Return the messages of a whole record batch. Raises as `ArrowRows.from_batch`."""
        return cls(ArrowRows.from_batch(batch, environment.wall_time_ms()))

    def named_partitions(self) -> Sequence[int]:
        return self._rows.named_partitions()

    def too_large(self, limit_bytes: int) -> Generator[None, None, tuple[str, int] | None]:
        overhead = message_size(1, None, None)
        for start in range(0, len(self.values), _MEASURED_ROWS):
            if start:
                yield
            large_row = self._rows.slice(start, _MEASURED_ROWS).find_larger_row(
                limit_bytes - overhead
            )
            if large_row is not None:
                return f"row {start + large_row[0]}", large_row[1] + overhead
        return None

    def may_choose_once(self, partitioner: Partitioner) -> bool:
        return (
            self.keys is None
            and not self._rows.has_partitions
            and type(partitioner) in ANYWHERE_WITHOUT_KEY
        )

    def split_by_queue(
        self, route: TopicRoute, start: int
    ) -> Generator[None, None, tuple[Iterable[tuple[PartitionQueue, Messages]], int]]:
        yield from ()
        rows = self._rows.slice(
            start, min(_SPLIT_ROWS, _SPLIT_BYTES // self._rows.average_row_bytes + 1)
        )
        keys, kind = rows.keys, type(route.partitioner)
        by_key = None
        if keys is not None and kind in BY_MURMUR2:
            by_key = partitions_of(keys, route.partitions)

        def choose(indices: list[int]) -> list[int]:
            # If `by_key` is given, `split_by_partition` passes only rows that have no key.
            if kind in ANYWHERE_WITHOUT_KEY and (keys is None or by_key is not None):
                return [_choose_partition(route, None)] * len(indices)
            return [
                _choose_partition(route, None if keys is None else keys[index]) for index in indices
            ]

        return [
            (route.queues[partition], ArrowMessages(part))
            for partition, part in rows.split_by_partition(by_key, choose)
        ], start + len(rows.values)


def _choose_partition(route: TopicRoute, key: bytes | None) -> int:
    return route.choose(key).topic_partition.partition
