"""Check that logs and polls keep the order of messages, within one call and between calls. Pure.

The names are those of Jepsen's Kafka checker. A poll "skips" if it passes over a message that is
known to be in the log; it is "nonmonotonic" if it returns a message again, or an earlier one.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from aiokafka08.testing.history.logs import History, ObservedLog
from aiokafka08.testing.history.operations import Anomaly, Message, Operation, Value, only

_NO_LOG: Final = ObservedLog(())


def _by_partition(messages: tuple[Message, ...]) -> dict[str, list[Message]]:
    by_partition: dict[str, list[Message]] = defaultdict(list)
    for message in messages:
        by_partition[message.partition].append(message)
    return by_partition


def _skipped(history: History, partition: str, first: int, last: int, when: float) -> list[Value]:
    """Return the values from index `first` to before `last` that a reader had to get by `when`."""
    log = history.logs.get(partition, _NO_LOG)
    return [
        value
        for offset, value in log.between(first, last)
        if not history.is_excused(partition, offset, value, when)
    ]


def within_polls(history: History) -> Iterator[Anomaly]:
    """`int-poll-skip`, `int-nonmonotonic-poll`: one call skips a message, or goes back."""
    for operation in history.operations:
        if len(operation.polled) < 2:
            continue
        for partition, messages in _by_partition(operation.polled).items():
            log = history.logs.get(partition, _NO_LOG)
            for first, second in pairwise(messages):
                before, after = log.index_of(first), log.index_of(second)
                if before is None or after is None or after - before == 1:
                    continue
                values = [first.value, second.value]
                facts: dict[str, object] = {
                    "partition": partition,
                    "values": values,
                    "delta": after - before,
                }
                if after <= before:
                    name = "int-nonmonotonic-poll"
                else:
                    name = "int-poll-skip"
                    skipped = _skipped(history, partition, before + 1, after, operation.order)
                    if not skipped:
                        continue
                    facts["skipped"] = skipped
                yield Anomaly(name, (only(operation, partition, values),), facts)


def within_sends(history: History) -> Iterator[Anomaly]:
    """`int-send-skip`, `int-nonmonotonic-send`: a call's messages are apart, or reversed."""
    for operation in history.operations:
        if len(operation.sent) < 2:
            continue
        for partition, messages in _by_partition(operation.sent).items():
            log = history.logs.get(partition, _NO_LOG)
            for first, second in pairwise(messages):
                before, after = log.first_index(first.value), log.first_index(second.value)
                if before is None or after is None or after - before == 1:
                    continue
                values = [first.value, second.value]
                facts: dict[str, object] = {
                    "partition": partition,
                    "values": values,
                    "delta": after - before,
                }
                if after <= before:
                    yield Anomaly(
                        "int-nonmonotonic-send", (only(operation, partition, values),), facts
                    )
                else:
                    facts["skipped"] = [value for _, value in log.between(before + 1, after)]
                    yield Anomaly("int-send-skip", (only(operation, partition, values),), facts)


def between_sends(history: History) -> Iterator[Anomaly]:
    """`nonmonotonic-send`: the log has two sends of a process in reverse order.

    Two sends have an order if the first was accepted before the second was called.
    """
    for operations in history.by_process.values():
        sends_by_partition: dict[str, list[Operation]] = defaultdict(list)
        barriers: list[tuple[float, frozenset[str]]] = []
        for operation in operations:
            if operation.sent and operation.status != "fail":
                for partition in _by_partition(operation.sent):
                    sends_by_partition[partition].append(operation)
            if _chooses_partitions(operation):
                barriers.append((operation.order, frozenset(operation.partitions)))
        for partition, sends in sends_by_partition.items():
            ends = [when for when, kept in barriers if partition not in kept]
            yield from _sends_out_of_order(history, partition, sends, ends)


def _sends_out_of_order(
    history: History, partition: str, sends: list[Operation], barriers: list[float]
) -> Iterator[Anomaly]:
    log = history.logs.get(partition, _NO_LOG)
    pending: list[tuple[float, int, int, Operation]] = []  # (accepted, number, last index, send)
    highest: tuple[int, Operation] | None = None
    barrier = 0
    for number, send in enumerate(sorted(sends, key=lambda send: send.invoked)):
        messages = [message for message in send.sent if message.partition == partition]
        # First copies count, since a retry may store a message again.
        indexes = [log.first_index(message.value) for message in messages]
        while pending and pending[0][0] <= send.invoked:
            _, _, index, earlier = heapq.heappop(pending)
            if highest is None or index > highest[0]:
                highest = index, earlier
        while barrier < len(barriers) and barriers[barrier] <= send.invoked:
            highest, pending = None, []
            barrier += 1
        if (first := indexes[0]) is not None and highest is not None and first <= highest[0]:
            values = [_value_at(history, partition, highest), messages[0].value]
            yield Anomaly(
                "nonmonotonic-send",
                (only(highest[1], partition, values), only(send, partition, values)),
                {"partition": partition, "values": values, "delta": first - highest[0]},
            )
        # A send of unknown result may be stored after later sends, because the network may still
        # hold its bytes, in a connection that the client has closed.
        if (last := indexes[-1]) is not None and send.status == "ok":
            accepted = send.accepted if send.accepted is not None else send.ended
            if accepted is not None:
                heapq.heappush(pending, (accepted, number, last, send))


def _value_at(history: History, partition: str, highest: tuple[int, Operation]) -> Value:
    log = history.logs[partition]
    return next(
        message.value
        for message in highest[1].sent
        if message.partition == partition and log.first_index(message.value) == highest[0]
    )


def _chooses_partitions(operation: Operation) -> bool:
    return operation.call in ("assign", "subscribe") and operation.status not in ("fail", "open")


@dataclass(slots=True)
class _Position:
    """A consumer's place in a partition: it must continue at index `next_index`."""

    next_index: int
    after: Operation
    value: Value | None = None


def between_polls(history: History) -> Iterator[Anomaly]:
    """`poll-skip` and `nonmonotonic-poll`: a call doesn't continue where the last one ended."""
    # A seek sets the place where the next call must continue. A new assignment by a group may move
    # it anywhere (`group_checks` checks where); so may the end of a subscription.
    for operations in history.by_process.values():
        positions: dict[str, _Position] = {}
        for operation in operations:
            match operation.call:
                case "assign" | "subscribe" if _chooses_partitions(operation):
                    positions = {
                        name: position
                        for name, position in positions.items()
                        if name in operation.partitions
                    }
                case "assigned":
                    positions = {}
                case "revoked":
                    for name in operation.partitions:
                        positions.pop(name, None)
                case "seek":
                    for name in operation.partitions:
                        positions.pop(name, None)
                    for name, offset in operation.offsets.items():
                        index = history.logs.get(name, _NO_LOG).index_from(offset)
                        positions[name] = _Position(index, operation)
                case "log":
                    pass
                case _ if operation.polled:
                    yield from _polled(history, operation, positions)


def _polled(
    history: History, operation: Operation, positions: dict[str, _Position]
) -> Iterator[Anomaly]:
    for partition, messages in _by_partition(operation.polled).items():
        log = history.logs.get(partition, _NO_LOG)
        known = positions.get(partition)
        index = log.index_of(messages[0])
        if known is not None and index is not None and index != known.next_index:
            last_value = None if known.value is None else [known.value]
            witness = (
                only(known.after, partition, last_value),
                only(operation, partition, [messages[0].value]),
            )
            facts: dict[str, object] = {
                "partition": partition,
                "delta": index - known.next_index + 1,
            }
            # A seek beyond the end of a truncated log is reset.
            sought = known.after.offsets.get(partition)
            is_reset = sought is not None and history.was_truncated(
                partition, operation.order, sought
            )
            if index < known.next_index and not is_reset:
                facts["values"] = [known.value, messages[0].value]
                yield Anomaly("nonmonotonic-poll", witness, facts)
            elif skipped := _skipped(history, partition, known.next_index, index, operation.order):
                facts["skipped"] = skipped
                yield Anomaly("poll-skip", witness, facts)
        if operation.status == "ok":
            last = log.index_of(messages[-1])
            if last is not None:
                positions[partition] = _Position(last + 1, operation, messages[-1].value)
            else:
                positions.pop(partition, None)


CHECKS: Final = (within_polls, within_sends, between_sends, between_polls)
