"""From offsets to tasks: what a query reads, how a micro-batch is limited, what counts as loss.

Pure: no pyspark, no network, no clock (`now` comes in). Law: what is planned covers each offset
between start and end exactly once; what can't be covered is named as a loss, which the caller
raises or logs as `failOnDataLoss` says. Rules are those of Spark's own Kafka source where it has
them.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from aiokafka08.errors import IllegalArgumentError, UnknownTopicOrPartitionError
from aiokafka08.spark.offsets import EARLIEST, LATEST, Offsets, text
from aiokafka08.spark.options import ByOffset, ByTime, Topics, TriggerLimits
from aiokafka08.structs import TopicPartition

MAX_TASKS = 1_000_000
"""More tasks than that in one query or batch are a mistake in the options."""

Resolved = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets of one partition, from `start` to before `end`."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        """How many offsets; compaction may have left fewer messages."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """What to read, and what can't be read any more."""

    ranges: tuple[OffsetRange, ...]
    losses: tuple[str, ...]


# --- which partitions -----------------------------------------------------------------------------


def choose_partitions(
    topics: Topics,
    known: Mapping[str, Collection[int]],
    internal: Collection[str] = (),
    *,
    missing_ok: bool = False,
) -> tuple[TopicPartition, ...]:
    """The partitions that are read, of those that the cluster has.

    Args:
        topics: what the options ask for.
        known: the cluster's topics and their partitions.
        internal: topics of the brokers' own, which a pattern never takes.
        missing_ok: leave out what isn't there (any more): a stream tells it as a loss.

    Raises:
        UnknownTopicOrPartitionError: a topic or partition isn't there.
    """
    if topics.pattern is not None:
        pattern = re.compile(topics.pattern)
        chosen = [name for name in known if pattern.fullmatch(name) and name not in internal]
        return tuple(TopicPartition(name, one) for name in sorted(chosen) for one in known[name])
    wanted = topics.subscribe or tuple(dict.fromkeys(tp.topic for tp in topics.assign or ()))
    missing = [name for name in wanted if not known.get(name)]
    if missing_ok:
        known = {name: known.get(name, ()) for name in wanted}
    elif missing:
        raise UnknownTopicOrPartitionError(
            f"{topics}: the cluster has no topic {', '.join(map(repr, missing))}"
        )
    if topics.assign is None:
        return tuple(TopicPartition(name, one) for name in sorted(wanted) for one in known[name])
    if missing_ok:
        return tuple(tp for tp in topics.assign if tp.partition in known[tp.topic])
    for tp in topics.assign:
        if tp.partition not in known[tp.topic]:
            raise UnknownTopicOrPartitionError(
                f"{topics}: topic {tp.topic!r} has no partition {tp.partition}; it has "
                f"{_numbers(known[tp.topic])}"
            )
    return topics.assign


def check_named(bound: ByOffset | ByTime, partitions: Collection[TopicPartition]) -> None:
    """Check that an option names each partition that is read, and no other.

    Raises:
        IllegalArgumentError: it doesn't; says which differ.
    """
    named = bound.offsets if isinstance(bound, ByOffset) else bound.timestamps_ms
    if named is None:
        return
    read = set(partitions)
    for differing, why in (
        (read - named.keys(), "doesn't name"),
        (named.keys() - read, "names, but the query doesn't read,"),
    ):
        if differing:
            shown = ", ".join(f"{topic}/{number}" for topic, number in sorted(differing)[:20])
            raise IllegalArgumentError(
                f"{bound.option} {why} {shown}"
                + (f" and {len(differing) - 20} more" if len(differing) > 20 else "")
                + "; each partition that is read must be named (-1 for latest, -2 for earliest)"
            )


def resolve(offsets: Offsets, earliest: Offsets, latest: Offsets) -> Resolved:
    """Offsets of an option, with -2 and -1 replaced by the ends of the log."""
    ends = {EARLIEST: earliest, LATEST: latest}
    return {tp: ends[one][tp] if one in ends else one for tp, one in offsets.items()}


# --- from offsets to ranges -----------------------------------------------------------------------


def plan_query(start: Offsets, end: Offsets, earliest: Offsets, latest: Offsets) -> QueryPlan:
    """The ranges of a batch query.

    Raises:
        IllegalArgumentError: a start is above its end.
    """
    ranges: list[OffsetRange] = []
    losses: list[str] = []
    for tp in sorted(start):
        first, last = start[tp], end[tp]
        if first > last:
            raise IllegalArgumentError(
                f"{_where(tp)}: the query would begin at offset {first} and end at {last}; the log "
                f"goes from {earliest[tp]} to {latest[tp]}"
            )
        ranges += within(tp, first, last, earliest, latest, losses)
    return QueryPlan(tuple(ranges), tuple(losses))


def plan_batch(start: Offsets, end: Offsets, earliest: Offsets, latest: Offsets) -> QueryPlan:
    """The ranges of a micro-batch.

    Args:
        start: where the batch before it ended; partitions that were added since are missing.
        end: where this one ends; partitions that are gone are missing.
        earliest: the first offsets that there are, of the partitions in `end` that still are.
        latest: the offsets behind the last messages.
    """
    ranges: list[OffsetRange] = []
    losses: list[str] = []
    losses += gone_text(start.keys() - end.keys())
    for tp in sorted(end):
        last = end[tp]
        if tp not in earliest:
            losses.append(f"{_where(tp)} was deleted; the batch was to read it up to offset {last}")
            continue
        first = start.get(tp)
        if first is None:
            first = earliest[tp]
            if first > 0:
                losses.append(
                    f"{_where(tp)} was added and begins at offset {first} instead of 0: the range "
                    f"[0, {first}) aged out"
                )
        if last < first:
            if tp in start:
                losses.append(cut_text(tp, first, last))
            continue
        ranges += within(tp, first, last, earliest, latest, losses)
    return QueryPlan(tuple(ranges), tuple(losses))


def within(
    tp: TopicPartition,
    first: int,
    last: int,
    earliest: Offsets,
    latest: Offsets,
    losses: list[str],
) -> list[OffsetRange]:
    """What of the range from `first` to `last` is in the log, one range at most; what isn't goes to
    `losses`."""
    begin, end = earliest[tp], latest[tp]
    if first < last and first < begin:
        losses.append(
            f"{_where(tp)}: the range [{first}, {min(begin, last)}) aged out; the log begins at "
            f"offset {begin}"
        )
    if first < last and last > end:
        losses.append(
            f"{_where(tp)}: the range [{max(first, end)}, {last}) isn't there; the log ends at "
            f"offset {end}"
        )
    first, last = max(first, begin), min(last, end)
    return [OffsetRange(*tp, first, last)] if first < last else []


def split(
    ranges: Sequence[OffsetRange], *, min_partitions: int | None, max_records: int | None
) -> list[OffsetRange]:
    """Cut ranges into tasks of balanced size.

    Args:
        ranges: one per partition, none of them empty.
        min_partitions: at least so many tasks, if there are as many offsets.
        max_records: at most so many offsets a task.

    Raises:
        IllegalArgumentError: that would be more than `MAX_TASKS`.
    """
    parts = [1 if max_records is None else -(-one.size // max_records) for one in ranges]
    wanted = max(sum(parts), min(min_partitions or 0, sum(one.size for one in ranges)))
    if wanted > MAX_TASKS:
        option = (
            f"minPartitions={min_partitions}"
            if sum(parts) < wanted
            else f"maxRecordsPerPartition={max_records}"
        )
        raise IllegalArgumentError(f"{option} makes {wanted} tasks; at most {MAX_TASKS} are made")
    # Where the pieces are largest, one more: no other way makes the largest piece smaller.
    largest = [
        (-one.size / count, index)
        for index, (one, count) in enumerate(zip(ranges, parts, strict=True))
    ]
    heapq.heapify(largest)
    for _ in range(wanted - sum(parts)):
        index = largest[0][1]
        parts[index] += 1
        heapq.heapreplace(largest, (-ranges[index].size / parts[index], index))
    return [
        OffsetRange(
            one.topic,
            one.partition,
            one.start + one.size * number // count,
            one.start + one.size * (number + 1) // count,
        )
        for one, count in zip(ranges, parts, strict=True)
        for number in range(count)
    ]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a filter on one column lets through: pairs of first and last value, None: no bound.

    `values` are names for the column topic.
    """

    column: str
    intervals: tuple[tuple[int | None, int | None], ...] = ()
    values: frozenset[str] = frozenset()


def narrow(ranges: Iterable[OffsetRange], filters: Collection[Wanted]) -> list[OffsetRange]:
    """What of the ranges the filters (all of them) let through."""
    left = list(ranges)
    for one in filters:
        if one.column == "topic":
            left = [part for part in left if part.topic in one.values]
        elif one.column == "partition":
            left = [
                part
                for part in left
                if any(_inside(part.partition, part.partition + 1, pair) for pair in one.intervals)
            ]
        else:
            left = [
                OffsetRange(part.topic, part.partition, *kept)
                for part in left
                for pair in one.intervals
                if (kept := _inside(part.start, part.end, pair)) is not None
            ]
    return left


def _inside(start: int, end: int, pair: tuple[int | None, int | None]) -> tuple[int, int] | None:
    first, last = pair
    start = start if first is None else max(start, first)
    end = end if last is None else min(end, last + 1)
    return (start, end) if start < end else None


# --- micro-batches --------------------------------------------------------------------------------


def went_back(latest: Offsets, known: Offsets) -> dict[TopicPartition, tuple[int, int]]:
    """Partitions whose end is below what was known of it, with both: a new leader may be behind."""
    return {tp: (known[tp], one) for tp, one in latest.items() if one < known.get(tp, one)}


def available(start: Offsets, latest: Offsets, earliest: Offsets) -> int:
    """How many offsets there are to read; partitions not in `start` from `earliest` on."""
    return sum(_sizes(start, latest, earliest).values())


def must_wait(count: int, limits: TriggerLimits, waited_s: float) -> bool:
    """Whether a batch of so many offsets is put off, as `minOffsetsPerTrigger` says.

    Args:
        count: offsets that there are.
        limits: the options.
        waited_s: seconds since the last batch that wasn't put off.
    """
    if limits.min_offsets is None or waited_s >= limits.max_delay_s:
        return False
    return count < limits.min_offsets


def limited(start: Offsets, latest: Offsets, earliest: Offsets, max_offsets: int) -> Resolved:
    """Where a batch of `max_offsets` ends: each partition gets its share of what there is.

    A partition with anything to read gets one offset at least, so that none starves.
    """
    sizes = _sizes(start, latest, earliest)
    total = sum(sizes.values())
    if total <= max_offsets:
        return dict(latest)
    end = dict(latest)
    for tp, size in sizes.items():
        first = start.get(tp, earliest.get(tp, 0))
        end[tp] = min(latest[tp], first + max(1, max_offsets * size // total))
    return end


def _sizes(start: Offsets, latest: Offsets, earliest: Offsets) -> dict[TopicPartition, int]:
    sizes = {}
    for tp, end in latest.items():
        size = end - start.get(tp, earliest.get(tp, 0))
        if size > 0:
            sizes[tp] = size
    return sizes


# --- words ----------------------------------------------------------------------------------------


def loss_text(losses: Iterable[str], fail: bool) -> str:
    """The error, or the warning, for what can't be read any more."""
    what = "; ".join(losses)
    if fail:
        return f"data was lost: {what}. Set the option failOnDataLoss to false to go on without it"
    return f"data was lost, and the query goes on (failOnDataLoss=false): {what}"


def gone_text(partitions: Collection[TopicPartition]) -> list[str]:
    """The loss of whole partitions, if there are any."""
    names = ", ".join(f"{topic}/{number}" for topic, number in sorted(partitions))
    return [f"the partitions {names} were deleted"] if names else []


def deleted_text(tp: TopicPartition, start: int, end: int) -> list[str]:
    """The loss of a range of a partition that is gone."""
    return [f"{_where(tp)} was deleted: the range [{start}, {end}) wasn't read"]


def beyond_text(tp: TopicPartition, start: int, end: int) -> str:
    """What a new query would begin at, and the log doesn't have."""
    return f"{_where(tp)}: the query would begin at offset {start}; the log ends at {end}"


def cut_text(tp: TopicPartition, known: int, end: int) -> str:
    """The loss of what was behind the end of a log."""
    return (
        f"{_where(tp)}: the log ended at offset {known} and ends at {end} now; it was cut by an "
        "unclean election, or the topic was deleted and created again"
    )


def lag_text(consumed: Offsets, latest: Offsets) -> str:
    """How far a query is behind, for the log."""
    behind = {tp: max(end - consumed.get(tp, 0), 0) for tp, end in latest.items()}
    if not behind:
        return "no partitions"
    most = max(behind, key=lambda tp: behind[tp])
    return (
        f"{sum(behind.values())} offsets behind in {len(behind)} partitions, most in "
        f"{most.topic}/{most.partition}: {behind[most]}; at {text(consumed)[:500]}"
    )


def _where(tp: TopicPartition) -> str:
    return f"topic {tp.topic!r}, partition {tp.partition}"


def _numbers(partitions: Collection[int]) -> str:
    return ", ".join(map(str, sorted(partitions)))
