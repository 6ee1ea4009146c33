"""The logs that a history proves: the values at the offsets of each partition. Pure.

As in Jepsen's Kafka checker, the offsets of every poll are facts, even if the poll failed. The
offsets of a send are facts if it was acknowledged, or if a successful poll returned one of its
messages.

Invariant: indexes count only offsets at which a value was observed, so gaps of compaction and of
transactions aren't taken for lost messages.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Final

from aiokafka08.testing.history.extremes import Extremes
from aiokafka08.testing.history.operations import (
    Message,
    Operation,
    Value,
    only,
    topic_of,
    unknown_place,
    validated,
)

# The call that reads a whole log: it proves the log's content, but is no consumer's poll.
LOG: Final = "log"

# Calls that poll, even if they returned nothing.
POLLS: Final = frozenset({"poll", "txn", "getone", "getmany", "getmany_arrow", "anext"})


class ObservedLog:
    """The values of one partition, by offset; a conflict leaves several at an offset."""

    def __init__(self, values_at: Iterable[Iterable[Value] | None]) -> None:
        """Make a log from the values at offsets 0, 1, 2, …; None is a gap."""
        self._at: dict[int, dict[Value, None]] = {
            offset: dict.fromkeys(values) for offset, values in enumerate(values_at) if values
        }

    def add(self, offset: int, value: Value) -> None:
        """Note that `value` was observed at `offset`."""
        self._at.setdefault(offset, {})[value] = None

    def without(self, dropped: Collection[tuple[int, Value]]) -> ObservedLog:
        """Return a log that lacks these values at these offsets."""
        log = ObservedLog(())
        for offset, values in self._at.items():
            for value in values:
                if (offset, value) not in dropped:
                    log.add(offset, value)
        return log

    @cached_property
    def offsets(self) -> list[int]:
        """The offsets at which something was observed, in order; indexes count these."""
        return sorted(self._at)

    @cached_property
    def places(self) -> dict[Value, list[int]]:
        """The offsets of each value, in order."""
        places: dict[Value, list[int]] = {}
        for offset in sorted(self._at):
            for value in self._at[offset]:
                places.setdefault(value, []).append(offset)
        return places

    @cached_property
    def _index_of_offset(self) -> dict[int, int]:
        return {offset: index for index, offset in enumerate(self.offsets)}

    def at(self, offset: int) -> Sequence[Value]:
        """Return the values at an offset, in the order of the operations."""
        return list(self._at.get(offset, ()))

    def first_index(self, value: Value) -> int | None:
        """Return the index of a value's first copy; None if it isn't in the log."""
        places = self.places.get(value)
        return None if not places else self._index_of_offset[places[0]]

    def values_by_last_index(self) -> list[list[Value]]:
        """Return for each index the values whose last copy is there."""
        values: list[list[Value]] = [[] for _ in self.offsets]
        for value, places in self.places.items():
            values[self._index_of_offset[places[-1]]].append(value)
        return values

    def index_of(self, message: Message) -> int | None:
        """Return the index of a polled message: by its offset, or else by its value.

        None if it isn't known, or was lost by a truncation.
        """
        if message.offset is not None:
            if message.value not in self._at.get(message.offset, ()):
                return None
            return self._index_of_offset[message.offset]
        return self.first_index(message.value)

    def index_from(self, offset: int) -> int:
        """Return the index of the first observed offset that is at least `offset`."""
        return bisect_left(self.offsets, offset)

    def between(self, first: int, last: int) -> Iterator[tuple[int, Value]]:
        """Yield (offset, value) of the indexes from `first` to before `last`."""
        for offset in self.offsets[max(first, 0) : last]:
            yield offset, next(iter(self._at[offset]))

    def conflicts(self) -> Iterator[tuple[int, int, list[Value]]]:
        """Yield (offset, index, values) of each offset with several values."""
        for index, offset in enumerate(self.offsets):
            if len(self._at[offset]) > 1:
                yield offset, index, list(self._at[offset])

    def read_until(self, values: Iterable[Value]) -> int:
        """Return the highest index that a reader of these values must have reached; -1: none."""
        known = (self.first_index(value) for value in values)
        return max((index for index in known if index is not None), default=-1)


class History:
    """A list of operations, in the order of their ends, and the logs that they prove.

    Attributes:
        operations: All, in order; open ones by the time of their invocation.
        logs: The logs, by partition.
        end: The last time in the history.
        last_read: When the last successful call that returned messages of a partition ended.
    """

    def __init__(self, operations: Iterable[Operation]) -> None:
        """Index the operations.

        Raises:
            ValueError: two sends have the same value for a partition; or see `validated()`.
            TypeError: see `validated()`.
        """
        self.operations = sorted(map(validated, operations), key=lambda operation: operation.order)
        self.end = max((operation.order for operation in self.operations), default=0.0)
        # By partition: (when, first offset that a deletion kept, or that a truncation lost)
        self._deletions: dict[str, list[tuple[float, int]]] = defaultdict(list)
        self._truncations: dict[str, list[tuple[float, int]]] = defaultdict(list)
        # (when, end of the log before; infinity if it isn't known)
        self._truncated_ends: dict[str, list[tuple[float, float]]] = defaultdict(list)
        # (first offset that was lost, end of the log before)
        self._refills: dict[str, list[tuple[int, float]]] = defaultdict(list)
        self._sources: dict[tuple[str, Value, int], Operation] = {}
        self._writers: dict[tuple[str, Value], Operation] = {}
        self._read_ok: dict[str, set[Value]] = defaultdict(set)
        self.last_read: dict[str, float] = {}
        self._readers: dict[tuple[str, Value], Operation] = {}
        self.logs: dict[str, ObservedLog] = {}
        self._index()
        self._deleted, self._truncated, self._refilled, self._ends = (
            {partition: Extremes(pairs) for partition, pairs in by_partition.items()}
            for by_partition in (
                self._deletions,
                self._truncations,
                self._refills,
                self._truncated_ends,
            )
        )
        self._build_logs()

    def writer(self, partition: str, value: Value) -> Operation | None:
        """Return the operation that sent a value; None if none is known."""
        writer = self._writers.get((partition, value))
        return writer or self._writers.get((unknown_place(partition), value))

    def reader(self, partition: str, value: Value) -> Operation | None:
        """Return the first operation that returned a value; None if none did."""
        return self._readers.get((partition, value))

    def source(self, partition: str, value: Value, offset: int) -> Operation | None:
        """Return an operation that shows a value at an offset, reduced to this message; or None."""
        writer = self.writer(partition, value)
        if writer is None or not any(
            message.value == value and message.offset == offset for message in writer.sent
        ):
            writer = self._sources.get((partition, value, offset))
        return None if writer is None else only(writer, partition, [value])

    def was_read(self, partition: str, value: Value) -> bool:
        """Whether a successful poll, or a read of the whole log, returned the value."""
        return value in self._read_ok[partition]

    @property
    def read_values(self) -> dict[str, set[Value]]:
        """The values that successful polls and reads of the whole log returned, by partition."""
        return self._read_ok

    def took_effect(self, operation: Operation) -> bool:
        """Whether a send is known to have stored its messages."""
        if operation.status == "ok":
            return True
        return operation.status in ("unknown", "open") and any(
            self.was_read(message.partition, message.value) for message in operation.sent
        )

    def is_excused(self, partition: str, offset: int, value: Value, when: float) -> bool:
        """Whether a reader may have missed a value in a call that ended at `when`."""
        # Retention may have removed the offset by then, or a truncation after the value's send may
        # have removed the value. Or the reader was ahead of a log that was truncated and has grown
        # again.
        if self._is_deleted(partition, offset, when) or self._is_refilled(partition, offset):
            return True
        writer = self.writer(partition, value)
        return self._is_truncated(
            partition, offset, -math.inf if writer is None else writer.invoked
        )

    def _is_deleted(self, partition: str, offset: int, when: float) -> bool:
        known = self._deleted.get(partition)
        return known is not None and offset < known.highest_before(when)

    def _is_truncated(self, partition: str, offset: int | None, sent: float) -> bool:
        """Whether a truncation after `sent` may have taken an offset."""
        known = self._truncated.get(partition)
        lost = math.inf if known is None else known.lowest_after(sent)
        if lost == math.inf or offset is None:
            return lost < math.inf
        # Offsets at or above the end that the log had before the truncation were stored later.
        return lost <= offset < self._ends[partition].highest_after(sent)

    def _is_refilled(self, partition: str, offset: int | None) -> bool:
        known = self._refilled.get(partition)
        if known is None or offset is None:
            return False
        return offset < known.highest_before(offset + 1)

    def was_truncated(self, partition: str, when: float, below: float = math.inf) -> bool:
        """Whether the cluster lost messages of a partition before a time, and below an offset."""
        known = self._truncated.get(partition)
        return known is not None and known.lowest_before(when) < below

    def may_be_unseen(self, message: Message, writer: Operation) -> bool:
        """Whether consumers may miss an acknowledged message for ever; see `is_excused`."""
        return self._is_refilled(message.partition, message.offset) or self.in_doubt(
            message.partition, message, writer, math.inf
        )

    def in_doubt(self, partition: str, message: Message, writer: Operation, when: float) -> bool:
        """Whether an acknowledged message may have been removed before `when`."""
        if message.offset is not None and self._is_deleted(partition, message.offset, when):
            return True
        return self._is_truncated(partition, message.offset, writer.invoked)

    def topics_sent(self) -> set[str]:
        """Return the topics to which something was sent."""
        return {topic_of(partition) for partition, _ in self._writers}

    def polls(self) -> Iterator[Operation]:
        """Yield the operations that polled for a consumer."""
        for operation in self.operations:
            if operation.call != LOG and (operation.polled or operation.call in POLLS):
                yield operation

    def sends(self) -> Iterator[Operation]:
        """Yield the operations that sent messages."""
        return (operation for operation in self.operations if operation.sent)

    @cached_property
    def by_process(self) -> dict[str, list[Operation]]:
        """The operations of each process, in order."""
        operations: dict[str, list[Operation]] = defaultdict(list)
        for operation in self.operations:
            operations[operation.process].append(operation)
        return operations

    def _index(self) -> None:
        for operation in self.operations:
            for message in operation.sent:
                key = message.partition, message.value
                if key in self._writers:
                    raise ValueError(
                        f"{message.partition}: {message.value!r} was sent twice: expected values "
                        "that are unique in their partition"
                    )
                self._writers[key] = operation
            for message in operation.polled:
                if operation.status == "ok":
                    self._read_ok[message.partition].add(message.value)
                    self.last_read[message.partition] = operation.order
                self._readers.setdefault((message.partition, message.value), operation)
            if operation.call in ("deleted", "truncated"):
                known = self._deletions if operation.call == "deleted" else self._truncations
                for partition, offset in operation.offsets.items():
                    at = operation.invoked if operation.call == "deleted" else operation.order
                    known[partition].append((at, offset))
                    if operation.call == "truncated":
                        end = float(operation.facts.get("end", math.inf))
                        self._truncated_ends[partition].append((at, end))
                        if end < math.inf:
                            self._refills[partition].append((offset, end))

    def _build_logs(self) -> None:
        final: dict[str, set[tuple[int | None, Value]]] = defaultdict(set)
        for operation in self.operations:
            told = [*operation.polled, *(operation.sent if self.took_effect(operation) else ())]
            for message in told:
                if message.offset is not None:
                    log = self.logs.get(message.partition)
                    if log is None:
                        log = self.logs[message.partition] = ObservedLog(())
                    log.add(message.offset, message.value)
                    self._sources.setdefault(
                        (message.partition, message.value, message.offset), operation
                    )
            if operation.call == LOG:
                for message in operation.polled:
                    final[message.partition].add((message.offset, message.value))
        for partition, truncations in self._truncations.items():
            log = self.logs.get(partition)
            if log is None:
                continue
            from_offset = min(lost for _, lost in truncations)
            when = max(at for at, _ in truncations)
            stale = set()
            for value, offsets in log.places.items():
                writer = self.writer(partition, value)
                if writer is not None and writer.invoked >= when:
                    continue
                stale |= {
                    (offset, value)
                    for offset in offsets
                    if offset >= from_offset
                    and (offset, value) not in final[partition]
                    and (None, value) not in final[partition]
                }
            self.logs[partition] = log.without(stale)
