"""Compute the offsets that a reset of a group commits, from the caller's targets.

`find_offsets` refuses an offset outside the log. `plan_offsets` moves it to the nearest offset
inside, as Kafka's own tool does, and its result shows both (`PlannedOffset`).

Invariant: each returned offset lies within the log of its partition, as the leaders report it at
the time of the call; otherwise nothing is returned.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from aiokafka08._core.concurrency.task_set import run_together
from aiokafka08._core.net.config import as_integer
from aiokafka08._core.net.list_offsets import list_offsets
from aiokafka08._core.net.offsets_for_times import offsets_for_times
from aiokafka08._core.net.router import Router
from aiokafka08._wording import missing_topics_text, number_span, partition_name
from aiokafka08.admin.offset_positions import epoch_ms
from aiokafka08.errors import IllegalArgumentError, KafkaError, UnknownTopicOrPartitionError
from aiokafka08.protocol.requests.list_offsets import EARLIEST, LATEST
from aiokafka08.structs import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

ResetTarget = int | OffsetAndMetadata | Literal["earliest", "latest"] | datetime.datetime
"""Where a group's offset is moved to: an offset, perhaps with metadata; an end of the log; a time.
"""


@dataclass(frozen=True, slots=True)
class ShiftBy:
    """Move a committed offset by this many offsets; a negative number moves it back."""

    offsets: int


PlanTarget = ResetTarget | ShiftBy | Literal["current"]
"""A `ResetTarget`, or one that depends on the committed offset."""


class PlannedOffset(NamedTuple):
    """What a reset would commit for a partition.

    Attributes:
        topic: the topic.
        partition: the partition.
        current: the committed offset; None if nothing is committed.
        new: the offset after the reset.
        metadata: the text to commit with `new`.
        wanted: the offset that the target named; it differs from `new` if it is outside the log.
        error: why the committed offset, which the reset replaces, can't be read; None if it can, or
            there is none.
        found: if the target is a time, the first message of that time or later. Its timestamp is
            None if the broker knows only the start of the message's segment. `found` itself is None
            if there is no such message, or the target isn't a time.
    """

    topic: str
    partition: int
    current: int | None
    new: int
    metadata: str
    wanted: int
    error: str | None = None
    found: OffsetAndTimestamp | None = None


class _Logs(NamedTuple):
    """First offsets, ends, and the offsets that were found by time."""

    first: Mapping[TopicPartition, list[int]]
    end: Mapping[TopicPartition, list[int]]
    at_times: Mapping[TopicPartition, OffsetAndTimestamp | None]


def check_target(tp: object, target: object) -> ResetTarget:
    """Return a valid target of a partition, or raise IllegalArgumentError."""
    if isinstance(target, datetime.datetime):
        return target
    if isinstance(target, OffsetAndMetadata):
        if (offset := as_integer(target.offset)) is not None and offset >= 0:
            return OffsetAndMetadata(offset, target.metadata)
    elif (offset := as_integer(target)) is not None and offset >= 0:
        return offset
    if target == "earliest":
        return "earliest"
    if target == "latest":
        return "latest"
    raise IllegalArgumentError(
        f"{tp}: offset {target!r}; expected an integer >= 0, 'earliest', 'latest' or a datetime"
    )


def check_plan_target(tp: object, target: object) -> PlanTarget:
    """Return a valid target of a plan, or raise IllegalArgumentError."""
    if isinstance(target, ShiftBy):
        return target
    return "current" if target == "current" else check_target(tp, target)


async def find_offsets(
    router: Router, targets: Mapping[TopicPartition, ResetTarget]
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the offset of each target now.

    Raises:
        IllegalArgumentError: an offset is outside the log; the text names each such partition.
        UnknownTopicOrPartitionError: a partition doesn't exist.
        KafkaError: the leaders didn't report the offsets.
    """
    logs = await _read_logs(router, targets)
    plan = [_planned(tp, target, None, logs) for tp, target in targets.items()]
    outside = [
        f"{partition_name(planned)}: {planned.wanted}, expected {_range(logs, planned)}"
        for planned in plan
        if planned.wanted != planned.new
    ]
    if outside:
        raise IllegalArgumentError(f"offsets outside the log: {'; '.join(outside)}")
    return {
        TopicPartition(planned.topic, planned.partition): OffsetAndMetadata(
            planned.new, planned.metadata
        )
        for planned in plan
    }


async def plan_offsets(
    router: Router,
    targets: Mapping[TopicPartition, PlanTarget],
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    errors: Mapping[TopicPartition, KafkaError],
) -> list[PlannedOffset]:
    """Return the plan of a reset, in the order of topics and partitions.

    "current" without a committed offset means "latest". `errors` has the partitions whose committed
    offset can't be read.

    Raises:
        IllegalArgumentError: nothing is committed for a partition that is to be shifted; the text
            names each such partition.
        UnknownTopicOrPartitionError: a partition doesn't exist.
        KafkaError: the leaders didn't report the offsets.
    """
    rootless = [
        partition_name(tp)
        for tp, target in sorted(targets.items(), key=lambda item: item[0])
        if isinstance(target, ShiftBy) and tp not in committed
    ]
    if rootless:
        raise IllegalArgumentError(
            f"offsets of {', '.join(rootless)} can't be shifted: nothing is committed there. Name "
            "an offset, an end of the log, or a time"
        )
    logs = await _read_logs(router, targets)
    return [
        _planned(tp, targets[tp], committed.get(tp), logs)._replace(
            error=errors[tp].text if tp in errors else None
        )
        for tp in sorted(targets)
    ]


async def _read_logs(router: Router, targets: Mapping[TopicPartition, PlanTarget]) -> _Logs:
    """Return the bounds of the logs; raise UnknownTopicOrPartitionError for a missing partition."""
    # Fetch all topics, because a request by a topic's name might create it.
    await router.metadata.fetch_all()
    for topic, partition in targets:
        partitions = sorted(router.metadata.snapshot.partitions(topic))
        if not partitions:
            raise UnknownTopicOrPartitionError(missing_topics_text([topic]))
        if partition not in partitions:
            raise UnknownTopicOrPartitionError(
                f"topic {topic!r} has no partition {partition}; it has {number_span(partitions)}"
            )
    first, end = await run_together(
        list_offsets(router, dict.fromkeys(targets, EARLIEST)),
        list_offsets(router, dict.fromkeys(targets, LATEST)),
    )
    times_ms = {
        tp: epoch_ms(target)
        for tp, target in targets.items()
        if isinstance(target, datetime.datetime)
    }
    at_times = await offsets_for_times(router, times_ms) if times_ms else {}
    return _Logs(first, end, at_times)


def _planned(
    tp: TopicPartition, target: PlanTarget, current: OffsetAndMetadata | None, logs: _Logs
) -> PlannedOffset:
    first, end = logs.first[tp][0], logs.end[tp][0]
    metadata, found = "", None
    if isinstance(target, OffsetAndMetadata):
        wanted, metadata = target
    elif isinstance(target, int):
        wanted = target
    elif isinstance(target, ShiftBy) and current is not None:
        wanted = current.offset + target.offsets
    elif isinstance(target, datetime.datetime):
        found = logs.at_times.get(tp)
        wanted = end if found is None else found.offset
    elif target == "current" and current is not None:
        wanted, metadata = current
    else:
        wanted = first if target == "earliest" else end
    new = min(max(wanted, first), end)
    committed = None if current is None else current.offset
    return PlannedOffset(*tp, committed, new, metadata, wanted, found=found)


def _range(logs: _Logs, planned: PlannedOffset) -> str:
    tp = TopicPartition(planned.topic, planned.partition)
    return f"{logs.first[tp][0]} to {logs.end[tp][0]}"
