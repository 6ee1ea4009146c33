"""Check whether messages are lost, stored twice or made up. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from aiokafka08.testing.history.logs import LOG, History, ObservedLog
from aiokafka08.testing.history.operations import (
    Anomaly,
    Operation,
    Value,
    only,
    topic_of,
)


def inconsistent_offsets(history: History) -> Iterator[Anomaly]:
    """Two values at one offset of a partition."""
    for partition, log in history.logs.items():
        for offset, index, values in log.conflicts():
            told = (history.source(partition, value, offset) for value in values)
            yield Anomaly(
                "inconsistent-offsets",
                tuple(operation for operation in told if operation is not None)[:2],
                {"partition": partition, "offset": offset, "index": index, "values": values},
            )


def aborted_reads(history: History) -> Iterator[Anomaly]:
    """A message was read whose send had failed for certain (Jepsen: G1a)."""
    for operation in history.operations:
        if operation.status != "ok":
            continue
        for message in operation.polled:
            writer = history.writer(message.partition, message.value)
            if writer is not None and writer.status == "fail":
                yield Anomaly(
                    "aborted-read",
                    (
                        only(writer, message.partition, [message.value]),
                        only(operation, message.partition, [message.value]),
                    ),
                    {"partition": message.partition, "value": message.value},
                )


def unwritten_reads(history: History) -> Iterator[Anomaly]:
    """A message was read that no process sent to this partition, though the topic has senders."""
    topics = history.topics_sent()
    for operation in history.operations:
        for message in operation.polled:
            if topic_of(message.partition) not in topics:
                continue
            if history.writer(message.partition, message.value) is None:
                yield Anomaly(
                    "unwritten-read",
                    (only(operation, message.partition, [message.value]),),
                    {"partition": message.partition, "value": message.value},
                )


def lost_writes(history: History) -> Iterator[Anomaly]:
    """An acknowledged message isn't in the log, or readers went past it without getting it."""
    # A read of the whole log decides, if there is one. Otherwise consumers must have read all
    # messages below the highest index that one of them reached (Jepsen).
    whole_logs = _whole_logs(history)
    yield from _missing_in_logs(history, whole_logs)
    for partition, values in list(history.read_values.items()):
        log = history.logs.get(partition)
        if log is not None and partition not in whole_logs:
            yield from _not_read(history, partition, log, values)


def _whole_logs(history: History) -> dict[str, tuple[Operation, set[Value]]]:
    whole_logs: dict[str, tuple[Operation, set[Value]]] = {}
    for operation in history.operations:
        if operation.call == LOG and operation.status == "ok":
            values: dict[str, set[Value]] = {name: set() for name in operation.partitions}
            for message in operation.polled:
                values.setdefault(message.partition, set()).add(message.value)
            whole_logs.update({name: (operation, inside) for name, inside in values.items()})
    return whole_logs


def _missing_in_logs(
    history: History, whole_logs: dict[str, tuple[Operation, set[Value]]]
) -> Iterator[Anomaly]:
    for send in history.sends():
        for message in send.sent:
            partition, value = message.partition, message.value
            if send.status != "ok" or partition not in whole_logs:
                continue
            read, inside = whole_logs[partition]
            if (
                send.order <= read.invoked
                and value not in inside
                and not history.in_doubt(partition, message, send, read.order)
            ):
                yield Anomaly(
                    "lost-write",
                    (only(send, partition, [value]), only(read, partition, ())),
                    {"partition": partition, "value": value, "offset": message.offset},
                )


def _not_read(
    history: History, partition: str, log: ObservedLog, values: set[Value]
) -> Iterator[Anomaly]:
    bound = log.read_until(values)
    passed = history.last_read.get(partition, -math.inf)
    ordered = log.values_by_last_index()[: bound + 1]
    last = ordered[bound] if bound >= 0 else []
    witness = next((value for value in last if value in values), None)
    for value in (value for group in ordered for value in group if value not in values):
        writer = history.writer(partition, value)
        if writer is None or not history.took_effect(writer):
            continue
        if all(
            history.is_excused(partition, offset, value, passed) for offset in log.places[value]
        ):
            continue
        reader = None if witness is None else history.reader(partition, witness)
        yield Anomaly(
            "lost-write",
            (
                only(writer, partition, [value]),
                *((only(reader, partition, [witness]),) if reader and witness is not None else ()),
            ),
            {
                "partition": partition,
                "value": value,
                "index": log.first_index(value),
                "max_read_index": bound,
            },
        )


def unseen(history: History) -> Iterator[Anomaly]:
    """Acknowledged messages that no consumer got by the end; one anomaly per partition."""
    polled = {(m.partition, m.value) for poll in history.polls() for m in poll.polled}
    if not polled and next(history.polls(), None) is None:
        return  # the history has no consumer
    missing: dict[str, list[Operation]] = defaultdict(list)
    values: dict[str, list[Value]] = defaultdict(list)
    for send in history.sends():
        for message in send.sent:
            key = message.partition, message.value
            if (
                send.status == "ok"
                and key not in polled
                and not history.may_be_unseen(message, send)
            ):
                missing[message.partition].append(send)
                values[message.partition].append(message.value)
    for partition, writers in missing.items():
        first = only(writers[0], partition, values[partition][:1])
        yield Anomaly("unseen", (first,), {"partition": partition, "values": values[partition]})


def duplicates(history: History) -> Iterator[Anomaly]:
    """A message is in the log twice, and its producer didn't report that this may happen."""
    # A report is an operation `retried` with `may_be_stored`. It names the message's producer and
    # partition, and comes between the start and the end of the message's send. It explains as many
    # further copies as it has messages.
    told: dict[tuple[str, str], list[Operation]] = defaultdict(list)
    for operation in history.operations:
        if operation.call == "retried" and operation.facts.get("may_be_stored"):
            for partition in operation.partitions:
                told[operation.process, partition].append(operation)
    budgets = {
        key: sum(int(report.facts.get("messages", 1)) for report in reports)
        for key, reports in told.items()
    }
    for partition, log in history.logs.items():
        for value, offsets in log.places.items():
            if len(offsets) < 2:
                continue
            writer = history.writer(partition, value)
            if writer is not None and _is_explained(writer, partition, told):
                key = writer.process, partition
                budgets[key] -= len(offsets) - 1
                if budgets[key] >= 0:
                    continue
            places = [history.source(partition, value, offset) for offset in offsets[:2]]
            shown = [operation for operation in places if operation is not None]
            if any(message.offset == offsets[0] for message in shown[-1].polled):
                del shown[:-1]  # one operation shows both places
            yield Anomaly(
                "duplicate",
                tuple(shown),
                {
                    "partition": partition,
                    "value": value,
                    "count": len(offsets),
                    "offsets": list(offsets),
                },
            )


def _is_explained(
    writer: Operation, partition: str, told: dict[tuple[str, str], list[Operation]]
) -> bool:
    reports = told.get((writer.process, partition), ())
    # The messages of a call that raised while it buffered them may still be sent.
    lives_on = writer.status == "unknown" and writer.accepted is None
    end = float("inf") if writer.ended is None or lives_on else writer.ended
    return any(writer.invoked <= report.order <= end for report in reports)


CHECKS: Final = (
    inconsistent_offsets,
    aborted_reads,
    unwritten_reads,
    lost_writes,
    unseen,
    duplicates,
)
