"""Plan the ranges of a Spark query: partitions, offset ranges, batch limits and lost data.

Pure: no pyspark, no network, no clock. The rules follow Spark's own Kafka source where it has them.

Invariant: no two ranges of a `QueryPlan` overlap, and each offset between start and end that the
log still has is in one of them. If the log lacks some of these offsets, or a partition was deleted,
`losses` has a text that says so; the caller raises or logs it, as `failOnDataLoss` says.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from aiokafka08._core.names import did_you_mean
from aiokafka08._core.topic_names import is_topic_name
from aiokafka08._wording import (
    counted,
    missing_topics_text,
    partition_name,
    partition_text,
    some_of,
)
from aiokafka08.errors import IllegalArgumentError, UnknownTopicOrPartitionError
from aiokafka08.spark.java_pattern import compile_java_pattern
from aiokafka08.spark.offsets import EARLIEST, LATEST, PartitionOffsets
from aiokafka08.spark.options import OffsetBound, TimestampBound, TopicSelection, TriggerLimits
from aiokafka08.structs import TopicPartition

# Offsets of messages. The placeholders -2 (earliest) and -1 (latest) are resolved.
ResolvedOffsets = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets of one partition from `start` up to, but not including, `end`."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        """Number of offsets. After compaction the range may have fewer messages."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """The ranges that a query reads, and texts about lost ranges."""

    ranges: tuple[OffsetRange, ...]
    losses: tuple[str, ...]


# --- partitions and bounds ------------------------------------------------------------------------


def choose_partitions(
    topics: TopicSelection,
    existing: Mapping[str, Collection[int]],
    internal: Collection[str] = (),
    *,
    missing_ok: bool = False,
) -> tuple[TopicPartition, ...]:
    """Return the partitions that a query reads.

    Args:
        topics: the selection of the options.
        existing: the topics of the cluster with their partitions.
        internal: topics that the brokers use themselves; no pattern matches them.
        missing_ok: leave missing topics and partitions out.

    Raises:
        UnknownTopicOrPartitionError: a selected topic or partition doesn't exist.
    """
    if topics.pattern is not None:
        pattern = compile_java_pattern(topics.pattern)
        matches = [name for name in existing if pattern.search(name) and name not in internal]
        return tuple(
            TopicPartition(name, partition)
            for name in sorted(matches)
            for partition in existing[name]
        )
    names = topics.subscribe or tuple(dict.fromkeys(tp.topic for tp in topics.assign or ()))
    missing = [name for name in names if not existing.get(name)]
    if missing_ok:
        existing = {name: existing.get(name, ()) for name in names}
    elif missing:
        raise UnknownTopicOrPartitionError(
            f"{topics}: {missing_topics_text(missing)}. {_advice(missing, existing)}"
        )
    if topics.assign is None:
        return tuple(
            TopicPartition(name, partition)
            for name in sorted(names)
            for partition in existing[name]
        )
    if missing_ok:
        return tuple(tp for tp in topics.assign if tp.partition in existing[tp.topic])
    for tp in topics.assign:
        if tp.partition not in existing[tp.topic]:
            numbers = ", ".join(map(str, sorted(existing[tp.topic])))
            raise UnknownTopicOrPartitionError(
                f"{topics}: topic {tp.topic!r} has no partition {tp.partition}; expected one of "
                f"{numbers}"
            )
    return topics.assign


def is_selected(topics: TopicSelection, tp: TopicPartition) -> bool:
    """Return True if the options select a partition, whether it exists or not."""
    if topics.pattern is not None:
        return compile_java_pattern(topics.pattern).search(tp.topic) is not None
    return tp in (topics.assign or ()) or tp.topic in (topics.subscribe or ())


def check_bound_partitions(
    bound: OffsetBound | TimestampBound, partitions: Collection[TopicPartition]
) -> None:
    """Check that a bound has an entry for each partition of the query, and no other entry.

    Raises:
        IllegalArgumentError: the partitions differ.
    """
    if isinstance(bound, OffsetBound):
        entries: Mapping[TopicPartition, int] | None = bound.offsets
        expected = "an offset (-1: latest, -2: earliest)"
    else:
        entries = bound.timestamps_ms
        expected = "a timestamp in milliseconds since the epoch"
    if entries is None:
        return
    read = set(partitions)
    details = []
    for differing, detail in (
        (read - entries.keys(), "no entry for"),
        (entries.keys() - read, "entries for partitions that the query doesn't read:"),
    ):
        if differing:
            details.append(f"{detail} {some_of(sorted(differing))}")
    if details:
        raise IllegalArgumentError(
            f"{bound.option}: {'; '.join(details)}; expected {expected} for each partition of the "
            "query, and no other"
        )


def resolve_log_ends(
    offsets: PartitionOffsets, earliest: PartitionOffsets, latest: PartitionOffsets
) -> ResolvedOffsets:
    """Replace -2 and -1 by the earliest and the latest offset."""
    ends = {EARLIEST: earliest, LATEST: latest}
    return {tp: ends[offset][tp] if offset in ends else offset for tp, offset in offsets.items()}


# --- offset ranges --------------------------------------------------------------------------------


def plan_batch_query(
    start: PartitionOffsets,
    end: PartitionOffsets,
    earliest: PartitionOffsets,
    latest: PartitionOffsets,
) -> QueryPlan:
    """Return the ranges of a batch query.

    Raises:
        IllegalArgumentError: the query starts after its end.
    """
    ranges: list[OffsetRange] = []
    losses: list[str] = []
    for tp in sorted(start):
        first, last = start[tp], end[tp]
        if first > last:
            raise IllegalArgumentError(
                f"{partition_text(tp)}: the query would start at offset {first} and end at {last}; "
                f"expected an end >= the start. The log has the offsets from {earliest[tp]} to "
                f"{latest[tp]}"
            )
        ranges += clip_to_log(tp, first, last, earliest, latest, losses)
    return QueryPlan(tuple(ranges), tuple(losses))


def plan_micro_batch(
    start: PartitionOffsets,
    end: PartitionOffsets,
    earliest: PartitionOffsets,
    latest: PartitionOffsets,
    topics: TopicSelection,
) -> QueryPlan:
    """Return the ranges of a micro-batch.

    Args:
        start: the end of the previous batch; without partitions that were added since.
        end: the end of this batch; without partitions that were deleted or deselected.
        earliest: the first offsets of the partitions of `end`. Partitions that the brokers don't
            list are missing: a task waits for them, and reports the loss if they don't come back.
        latest: the offsets after the last messages of these partitions.
        topics: the present selection. An earlier run of the query may have selected more.
    """
    ranges: list[OffsetRange] = []
    losses: list[str] = []
    missing = start.keys() - end.keys()
    deselected = {tp for tp in missing if not is_selected(topics, tp)}
    losses += describe_deleted_partitions(missing - deselected)
    losses += describe_deselected_partitions(deselected, topics)
    for tp in sorted(end):
        first, last = start.get(tp), end[tp]
        if tp not in earliest:
            if (first or 0) < last:
                ranges.append(OffsetRange(*tp, first or 0, last))
            continue
        if first is None:
            first = earliest[tp]
            if first > 0:
                losses.append(
                    f"{partition_text(tp)} was added and begins at offset {first} instead of 0: "
                    f"the range [0, {first}) aged out"
                )
        if last < first:
            if tp in start:
                losses.append(describe_truncation(tp, first, last))
            continue
        ranges += clip_to_log(tp, first, last, earliest, latest, losses)
    return QueryPlan(tuple(ranges), tuple(losses))


def clip_to_log(
    tp: TopicPartition,
    first: int,
    last: int,
    earliest: PartitionOffsets,
    latest: PartitionOffsets,
    losses: list[str],
) -> list[OffsetRange]:
    """Return the part of the range from `first` to `last` that the log has: one range, or none.

    The texts of the missing parts are appended to `losses`.
    """
    begin, end = earliest[tp], latest[tp]
    if first < last and first < begin:
        losses.append(
            f"{partition_text(tp)}: the range [{first}, {min(begin, last)}) aged out; the log "
            f"begins at offset {begin}"
        )
    if first < last and last > end:
        losses.append(
            f"{partition_text(tp)}: the range [{max(first, end)}, {last}) doesn't exist; the log "
            f"ends at offset {end}"
        )
    first, last = max(first, begin), min(last, end)
    return [OffsetRange(*tp, first, last)] if first < last else []


# --- filters -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ColumnFilter:
    """The values of a column that a filter accepts: `values` for `topic`, `intervals` otherwise."""

    column: str
    # Pairs of the first and the last value, None for no bound.
    intervals: tuple[tuple[int | None, int | None], ...] = ()
    values: frozenset[str] = frozenset()


def apply_filters(
    ranges: Iterable[OffsetRange], filters: Collection[ColumnFilter]
) -> list[OffsetRange]:
    """Return the parts of the ranges that all filters accept."""
    accepted = list(ranges)
    for column_filter in filters:
        if column_filter.column == "topic":
            accepted = [part for part in accepted if part.topic in column_filter.values]
        elif column_filter.column == "partition":
            accepted = [
                part
                for part in accepted
                if any(
                    _intersect(part.partition, part.partition + 1, interval)
                    for interval in column_filter.intervals
                )
            ]
        else:
            accepted = [
                OffsetRange(part.topic, part.partition, *common)
                for part in accepted
                for interval in column_filter.intervals
                if (common := _intersect(part.start, part.end, interval)) is not None
            ]
    return accepted


def _intersect(
    start: int, end: int, interval: tuple[int | None, int | None]
) -> tuple[int, int] | None:
    """Return the part of the range from `start` to before `end` in an interval, or None."""
    first, last = interval
    start = start if first is None else max(start, first)
    end = end if last is None else min(end, last + 1)
    return (start, end) if start < end else None


# --- micro-batches --------------------------------------------------------------------------------


def find_ends_below(
    latest: PartitionOffsets, known: PartitionOffsets
) -> dict[TopicPartition, tuple[int, int]]:
    """Return the partitions whose log ends below a known offset, with that offset and the end."""
    return {tp: (known[tp], end) for tp, end in latest.items() if end < known.get(tp, end)}


def is_data_lost(known: PartitionOffsets, latest: PartitionOffsets) -> bool:
    """Return True if a known partition was deleted, or its log ends below its known offset."""
    return not known.keys() <= latest.keys() or bool(find_ends_below(latest, known))


def count_available(
    start: PartitionOffsets, latest: PartitionOffsets, earliest: PartitionOffsets
) -> int:
    """Return the number of offsets from `start` on, or from `earliest` on in an added partition."""
    return sum(_available_offsets(start, latest, earliest).values())


def is_batch_too_small(count: int, limits: TriggerLimits, waited_s: float) -> bool:
    """Return True if `minOffsetsPerTrigger` delays the batch.

    Args:
        count: the available offsets.
        limits: the options.
        waited_s: seconds since the last batch that was not delayed.
    """
    if limits.min_offsets is None or waited_s >= limits.max_delay_s:
        return False
    return count < limits.min_offsets


def partition_lags(
    consumed: PartitionOffsets, latest: PartitionOffsets
) -> dict[TopicPartition, int]:
    """Return how many offsets `consumed` is behind `latest`, per partition; 0 if it is beyond."""
    return {tp: max(end - consumed.get(tp, 0), 0) for tp, end in latest.items()}


def limit_batch(
    start: PartitionOffsets,
    latest: PartitionOffsets,
    earliest: PartitionOffsets,
    max_offsets: int,
) -> ResolvedOffsets:
    """Return the end of a batch of about `max_offsets`, shared in proportion to available offsets.

    The batch may exceed `max_offsets`, by less than one offset per partition.
    """
    sizes = _available_offsets(start, latest, earliest)
    total = sum(sizes.values())
    if total <= max_offsets:
        return dict(latest)
    end = dict(latest)
    for tp, size in sizes.items():
        first = start.get(tp, earliest.get(tp, 0))
        # At least one offset of each partition, so that none starves.
        end[tp] = min(latest[tp], first + max(1, max_offsets * size // total))
    return end


def _available_offsets(
    start: PartitionOffsets, latest: PartitionOffsets, earliest: PartitionOffsets
) -> dict[TopicPartition, int]:
    """Return the number of available offsets of each partition that has any."""
    sizes = {}
    for tp, end in latest.items():
        size = end - start.get(tp, earliest.get(tp, 0))
        if size > 0:
            sizes[tp] = size
    return sizes


# --- texts of errors and log lines ----------------------------------------------------------------


def describe_losses(losses: Iterable[str], fail: bool) -> str:
    """Return the text of the error, or of the warning, for lost data."""
    texts = "; ".join(losses)
    if fail:
        return f"data was lost: {texts}. Set the option failOnDataLoss to false to skip it"
    return f"data was lost, and the query continues (failOnDataLoss=false): {texts}"


def describe_deleted_partitions(partitions: Collection[TopicPartition]) -> list[str]:
    """Return one text that names the deleted partitions; no text if there are none."""
    names = some_of(sorted(partitions))
    text = f"the partitions {names} were deleted, or not selected at an earlier start"
    return [text] if partitions else []


def describe_missing_partitions(
    partitions: Collection[TopicPartition],
    brokers: Collection[str],
    topics: TopicSelection,
    fail: bool,
) -> str:
    """Return the text of the error, or of the warning, for partitions that brokers don't list.

    Args:
        partitions: partitions of a checkpoint.
        brokers: the addresses of the brokers.
        topics: the present selection.
        fail: whether the text is of an error.
    """
    text = (
        f"the brokers {some_of(brokers)} don't list {some_of(sorted(partitions))} of the "
        "checkpoint: a restarted broker doesn't know all topics yet, topics were deleted, or this "
        "principal may not describe them"
    )
    if fail:
        return (
            f"{text}. Nothing was skipped: once brokers list them, start the query again, and it "
            f"goes on where it was. If they were deleted for good, leave them out of {topics}, and "
            "set failOnDataLoss to false for one run"
        )
    return (
        f"{text}. The query goes on without them (failOnDataLoss=false). Once brokers list them, "
        "it reads them from where it was"
    )


def describe_deselected_partitions(
    partitions: Collection[TopicPartition], topics: TopicSelection
) -> list[str]:
    """Return one text that names partitions of a checkpoint that the query doesn't select now."""
    names = some_of(sorted(partitions))
    return [f"{topics} doesn't select {names} of the checkpoint any more"] if partitions else []


def describe_unread_range(tp: TopicPartition, start: int, end: int) -> list[str]:
    """Return the loss of a range whose partition was deleted while a task read it."""
    return [f"{partition_text(tp)} was deleted: the range [{start}, {end}) wasn't read"]


def describe_start_beyond_end(tp: TopicPartition, start: int, end: int) -> str:
    """Return the loss of the range between the end of the log and the start of a new query."""
    return f"{partition_text(tp)}: the query would start at offset {start}; the log ends at {end}"


def describe_truncation(tp: TopicPartition, known: int, end: int) -> str:
    """Return the loss of the messages after the new end of a truncated log."""
    return (
        f"{partition_text(tp)}: the end of the log went back from offset {known} to {end}; an "
        "unclean election truncated it, or the topic was deleted and created again"
    )


def describe_lags(lags: Mapping[TopicPartition, int]) -> str:
    """Return a log line: the lag of a query in total, and the largest lag of a partition."""
    if not lags:
        return "no partitions"
    total = sum(lags.values())
    text = f"{counted(total, 'offset')} behind in {counted(len(lags), 'partition')}"
    if not total:
        return text
    largest = max(lags, key=lambda tp: lags[tp])
    return f"{text}, most in {partition_name(largest)}: {lags[largest]}"


def _advice(missing: Sequence[str], existing: Iterable[str]) -> str:
    """Return advice about topics that don't exist."""
    impossible = [name for name in missing if not is_topic_name(name)]
    if impossible:
        names = ", ".join(map(repr, impossible))
        return f"No topic can have the name {names}: correct the option"
    similar = did_you_mean(missing[0], existing)
    return f"Create the topic, or correct the option{similar}"
