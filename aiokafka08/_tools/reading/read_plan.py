"""Turn topics, partitions and positions into the ranges of offsets that a read covers.

Invariant: a topic, partition or offset that doesn't exist is an error that names it. Nothing is
created. The cost is one Metadata request, two ListOffsets requests per broker, and the search by
time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from aiokafka08._core.names import did_you_mean, glob_hint
from aiokafka08._core.net.cluster import INTERNAL_TOPICS, ClusterSnapshot
from aiokafka08._core.net.list_offsets import list_offsets
from aiokafka08._core.net.offsets_for_times import offsets_for_times
from aiokafka08._core.net.router import Router
from aiokafka08._tools.reading.positions import (
    BEGINNING,
    Bounds,
    OffsetSpan,
    Position,
    PositionKind,
    describe_segments,
    refuse_segment,
    resolve,
)
from aiokafka08._wording import missing_topics_text, number_span
from aiokafka08.errors import IllegalArgumentError, UnknownTopicOrPartitionError
from aiokafka08.protocol.requests.list_offsets import EARLIEST, LATEST
from aiokafka08.structs import OffsetAndTimestamp, TopicPartition

# Shows a line to the user, on stderr.
Note = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """The offsets to read of one partition."""

    tp: TopicPartition
    start: int
    # Read the offsets before this one; None: without an end.
    stop: int | None
    # The log at the time of planning.
    log: OffsetSpan

    @property
    def is_in_log(self) -> bool:
        """Return True if the log has all of the range already."""
        return self.stop is not None and self.stop <= self.log.end


def select_topics(names: Iterable[str], snapshot: ClusterSnapshot) -> list[str]:
    """Return the topics that are named, or matched by a regular expression (`^…`).

    Raises:
        UnknownTopicOrPartitionError: a topic doesn't exist, or a pattern matches none.
        IllegalArgumentError: a pattern isn't a regular expression.
    """
    selected: dict[str, None] = {}
    for name in names:
        if name.startswith("^"):
            try:
                pattern = re.compile(name)
            except re.error as error:
                raise IllegalArgumentError(
                    f"topic {name!r}: {error}; expected a regular expression after ^"
                    f"{glob_hint(name.removeprefix('^'))}"
                ) from None
            internal = INTERNAL_TOPICS
            matches = [
                topic for topic in snapshot.topics if pattern.match(topic) and topic not in internal
            ]
            if not matches:
                raise UnknownTopicOrPartitionError(f"no topic matches {name!r}{glob_hint(name)}")
        elif name not in snapshot.topics:
            raise UnknownTopicOrPartitionError(
                f"{missing_topics_text([name])}. See the existing ones with 'aiokafka08 topics'"
                f"{did_you_mean(name, snapshot.topics)}"
            )
        else:
            matches = [name]
        selected |= dict.fromkeys(sorted(matches))
    return list(selected)


def select_partitions(
    topics: Iterable[str], partitions: Collection[int], snapshot: ClusterSnapshot
) -> list[TopicPartition]:
    """Return the partitions of the topics; all if `partitions` is empty.

    Raises:
        UnknownTopicOrPartitionError: a topic doesn't have a partition; the text names the existing.
    """
    selected = []
    for topic in topics:
        existing = sorted(snapshot.partitions(topic))
        for partition in sorted(set(partitions)) or existing:
            if partition not in existing:
                raise UnknownTopicOrPartitionError(
                    f"topic {topic!r} has no partition {partition}; it has {number_span(existing)}"
                )
            selected.append(TopicPartition(topic, partition))
    return selected


async def plan_ranges(
    router: Router,
    tps: Sequence[TopicPartition],
    start: Bounds,
    end: Bounds,
    *,
    stop_at_end: bool,
    note: Note,
) -> list[PartitionRange]:
    """Turn positions into offsets.

    Args:
        router: a started router whose metadata covers all topics.
        tps: the partitions.
        start: where to begin; by default at the beginning.
        end: where to stop; by default `stop_at_end` decides.
        stop_at_end: stop no later than at the present end of the log.
        note: called with a line for each start time that brokers without an index by time resolve
            only to the start of a segment.

    Raises:
        OffsetOutOfRangeError: a log doesn't have an offset.
        IllegalArgumentError: a position names a partition that isn't read; or an end is a time, and
            the broker has no index by time.
        KafkaError: a request failed.
    """
    _check_named_partitions(tps, start, end)
    starts = {tp: start.of(tp.partition) or BEGINNING for tp in tps}
    ends = {tp: end.of(tp.partition) for tp in tps}
    logs = await log_bounds(router, tps)
    found_starts = await _find_times(router, starts)
    found_ends = await _find_times(router, ends)
    ranges = []
    by_segment: dict[TopicPartition, int] = {}
    for tp in tps:
        log = logs[tp]
        first = resolve(starts[tp], tp, log, found=found_starts.get(tp))
        position, stop = ends[tp], None
        if position is not None:
            found = found_ends.get(tp)
            # Without a timestamp the offset is only the start of a segment.
            if found is not None and found.timestamp is None:
                raise refuse_segment(tp, position)
            stop = resolve(position, tp, log, found=found, is_end=True)
        if stop_at_end:
            stop = log.end if stop is None else min(stop, log.end)
        start_found = found_starts.get(tp)
        if start_found is not None and start_found.timestamp is None:
            by_segment[tp] = first
        ranges.append(PartitionRange(tp, first, stop, log))
    for text in describe_segments(by_segment, starts):
        note(text)
    return ranges


async def log_bounds(
    router: Router, tps: Collection[TopicPartition]
) -> dict[TopicPartition, OffsetSpan]:
    """Return the bounds of each partition's log.

    Raises:
        KafkaError: a request failed.
    """
    first = await list_offsets(router, dict.fromkeys(tps, EARLIEST))
    end = await list_offsets(router, dict.fromkeys(tps, LATEST))
    return {tp: OffsetSpan((first[tp] or [0])[0], (end[tp] or [0])[0]) for tp in tps}


async def offsets_at(
    router: Router, times_ms: Mapping[TopicPartition, int], *, note: Note
) -> dict[TopicPartition, int]:
    """Return the offset of the first message at or after a time; -1 if there is none.

    Args:
        router: a started router.
        times_ms: milliseconds since the epoch; -1 is the end of the log, -2 its beginning.
        note: called with a line for each time that brokers without an index by time resolve only
            to the start of a segment.

    Raises:
        KafkaError: a request failed.
    """
    logs = await log_bounds(router, [tp for tp, at in times_ms.items() if at < 0])
    positions = {tp: Position(PositionKind.TIME, at) for tp, at in times_ms.items() if at >= 0}
    offsets = {tp: log.end if times_ms[tp] == -1 else log.first for tp, log in logs.items()}
    by_segment: dict[TopicPartition, int] = {}
    for tp, result in (await _find_times(router, positions)).items():
        offsets[tp] = -1 if result is None else result.offset
        if result is not None and result.timestamp is None:
            by_segment[tp] = result.offset
    for text in describe_segments(by_segment, positions):
        note(text)
    return {tp: offsets[tp] for tp in times_ms}


async def _find_times(
    router: Router, positions: Mapping[TopicPartition, Position | None]
) -> dict[TopicPartition, OffsetAndTimestamp | None]:
    times = {
        tp: position.number
        for tp, position in positions.items()
        if position is not None and position.kind is PositionKind.TIME
    }
    return await offsets_for_times(router, times) if times else {}


def _check_named_partitions(tps: Collection[TopicPartition], start: Bounds, end: Bounds) -> None:
    read = {tp.partition for tp in tps}
    for option, bounds in (("--from", start), ("--to", end)):
        for partition in bounds.by_partition:
            if partition not in read:
                raise IllegalArgumentError(
                    f"{option}={partition}=…: partition {partition} isn't read; expected one of "
                    f"{number_span(sorted(read))}"
                )
