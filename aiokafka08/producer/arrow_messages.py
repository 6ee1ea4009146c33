"""Messages as the rows of an Arrow batch, for `Bulk`: spread over partitions column by column.

Law: no Python object per row, but where a partitioner has to be asked row by row. What Arrow has to
do with it is `aiokafka08.arrow.Rows`.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from typing import Any, Final, Self

from aiokafka08.arrow import Rows
from aiokafka08.producer.accumulator import PartitionQueue
from aiokafka08.producer.partitioner import (
    ANYWHERE_WITHOUT_KEY,
    BY_MURMUR2,
    Partitioner,
    partitions_of,
)
from aiokafka08.producer.topics import TopicRoute
from aiokafka08.protocol.message_set import message_size

_MEASURED_ROWS: Final = 65536
_ROWS: Final = 8192
_BYTES: Final = 2 * 1024 * 1024
"""How many are spread, and so copied, at a time: a millisecond or two of the event loop."""


class ArrowMessages:
    """A record batch, or a part of it; `bulk.Messages` says what the methods are for."""

    __slots__ = ("_rows", "indices", "keys", "timestamps_ms", "values")

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self.indices = rows.indices
        self.keys = rows.keys
        self.values = rows.values
        self.timestamps_ms = rows.timestamps_ms

    @classmethod
    def of(cls, batch: Any) -> Self:
        """Those of a whole batch. Raises as `Rows.of`."""
        return cls(Rows.of(batch, int(time.time() * 1000)))

    def named(self) -> Sequence[int]:
        """See `Messages`."""
        return self._rows.named()

    def too_large(self, limit_bytes: int) -> Generator[None, None, tuple[str, int] | None]:
        """See `Messages`."""
        overhead = message_size(1, None, None)
        for start in range(0, len(self.values), _MEASURED_ROWS):
            if start:
                yield
            found = self._rows.part(start, _MEASURED_ROWS).longer(limit_bytes - overhead)
            if found is not None:
                return f"row {start + found[0]}", found[1] + overhead
        return None

    def is_run(self, partitioner: Partitioner) -> bool:
        """See `Messages`."""
        return (
            self.keys is None
            and not self._rows.names_partitions
            and type(partitioner) in ANYWHERE_WITHOUT_KEY
        )

    def spread(
        self, route: TopicRoute, start: int
    ) -> tuple[Sequence[tuple[PartitionQueue, ArrowMessages]], int]:
        """See `Messages`."""
        rows = self._rows.part(start, min(_ROWS, _BYTES // self._rows.row_bytes + 1))
        keys, kind = rows.keys, type(route.partitioner)
        by_key = None
        if keys is not None and kind in BY_MURMUR2:
            by_key = partitions_of(keys, route.partitions)

        def choose(places: list[int]) -> list[int]:
            if kind in ANYWHERE_WITHOUT_KEY and (keys is None or by_key is not None):
                return [_chosen(route, None)] * len(places)  # none of them has a key
            return [_chosen(route, None if keys is None else keys[place]) for place in places]

        return [
            (route.queues[partition], ArrowMessages(part))
            for partition, part in rows.by_partition(by_key, choose)
        ], start + len(rows.values)


def _chosen(route: TopicRoute, key: bytes | None) -> int:
    return route.choose(key).topic_partition.partition
