"""Divide the offset ranges of a query into Spark's tasks: split large ranges, combine small ones.

Pure: no pyspark, no network, no clock.

Invariant: each offset is in exactly one task. The ranges of a partition that are in one task are in
the order of their offsets. A partition is spread over several tasks only if `minPartitions`,
`maxRecordsPerPartition` or a filter on offsets splits it.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from aiokafka08.errors import IllegalArgumentError
from aiokafka08.spark.planning import OffsetRange
from aiokafka08.structs import TopicPartition

# Maximum number of tasks of a query or batch. Options that need more are probably a mistake.
MAX_TASKS: Final = 1_000_000
# Ranges are combined until there are this many tasks per core, unless `minPartitions` is given.
TASKS_PER_CORE: Final = 2
# Maximum number of offsets of combined ranges. To combine larger ones would save little of the cost
# of a task, and leave cores idle if there are more cores than the driver knows of.
MAX_COMBINED_OFFSETS: Final = 200_000
# The fixed cost of a range, as a number of offsets that cost as much to read.
_RANGE_COST: Final = 200

K = TypeVar("K", bound=Hashable)


def divide_into_tasks(
    ranges: Sequence[OffsetRange],
    leaders: Mapping[TopicPartition, int],
    *,
    parallelism: int,
    min_partitions: int | None,
    max_records: int | None,
) -> list[tuple[OffsetRange, ...]]:
    """Return the ranges of each task, balanced by their offsets.

    Args:
        ranges: none of them empty, and without overlaps.
        leaders: the node ids of the leaders, as far as they are known.
        parallelism: the number of tasks that Spark can run at the same time.
        min_partitions: the minimum number of tasks, unless there are fewer offsets. Small ranges
            are combined until there are this many tasks.
        max_records: the maximum number of offsets of a task.

    Raises:
        IllegalArgumentError: the options need more than `MAX_TASKS` tasks.
    """
    parts = split_ranges(ranges, min_partitions=min_partitions, max_records=max_records)
    count = TASKS_PER_CORE * parallelism if min_partitions is None else min_partitions
    if len(parts) <= count:
        return [(offset_range,) for offset_range in parts]
    # A task reads from as few leaders as possible, since each is a connection.
    by_leader: dict[int | None, list[OffsetRange]] = {}
    for offset_range in parts:
        leader = leaders.get(TopicPartition(offset_range.topic, offset_range.partition))
        by_leader.setdefault(leader, []).append(offset_range)
    costs = {leader: sum(map(_cost, led)) for leader, led in by_leader.items()}
    groups = [
        [offset_range for leader in together for offset_range in by_leader[leader]]
        for together in _balance(costs, count)
    ]
    limit = MAX_COMBINED_OFFSETS if max_records is None else min(max_records, MAX_COMBINED_OFFSETS)
    tasks: list[tuple[OffsetRange, ...]] = []
    for group, number in zip(groups, _share(groups, count), strict=True):
        for combined in _balance(
            {offset_range: _cost(offset_range) for offset_range in group}, number
        ):
            tasks += _cut(sorted(combined, key=_place), limit)
    return sorted(tasks, key=lambda task: _place(task[0]))


def split_ranges(
    ranges: Sequence[OffsetRange], *, min_partitions: int | None, max_records: int | None
) -> list[OffsetRange]:
    """Split ranges as the options say, into parts of balanced sizes.

    Args:
        ranges: none of them empty.
        min_partitions: the minimum number of parts, unless there are fewer offsets.
        max_records: the maximum number of offsets of a part.

    Raises:
        IllegalArgumentError: the options need more than `MAX_TASKS` parts.
    """
    parts = [
        1 if max_records is None else -(-offset_range.size // max_records)
        for offset_range in ranges
    ]
    count = max(
        sum(parts), min(min_partitions or 0, sum(offset_range.size for offset_range in ranges))
    )
    if count > MAX_TASKS:
        option = (
            f"minPartitions={min_partitions}"
            if sum(parts) < count
            else f"maxRecordsPerPartition={max_records}"
        )
        raise IllegalArgumentError(f"{option}: makes {count} tasks; expected at most {MAX_TASKS}")
    # Give each further part to the range whose parts are largest, because no other choice reduces
    # the size of the largest part.
    largest = [
        (-offset_range.size / number, index)
        for index, (offset_range, number) in enumerate(zip(ranges, parts, strict=True))
    ]
    heapq.heapify(largest)
    for _ in range(count - sum(parts)):
        index = largest[0][1]
        parts[index] += 1
        heapq.heapreplace(largest, (-ranges[index].size / parts[index], index))
    return [
        OffsetRange(
            offset_range.topic,
            offset_range.partition,
            offset_range.start + offset_range.size * part // number,
            offset_range.start + offset_range.size * (part + 1) // number,
        )
        for offset_range, number in zip(ranges, parts, strict=True)
        for part in range(number)
    ]


def _cost(offset_range: OffsetRange) -> int:
    return offset_range.size + _RANGE_COST


def _place(offset_range: OffsetRange) -> tuple[str, int, int]:
    return (offset_range.topic, offset_range.partition, offset_range.start)


def _cut(ranges: Iterable[OffsetRange], limit: int) -> Iterator[tuple[OffsetRange, ...]]:
    """Yield runs of ranges with at most `limit` offsets in total, or a single larger range."""
    task: list[OffsetRange] = []
    total = 0
    for offset_range in ranges:
        if task and total + offset_range.size > limit:
            yield tuple(task)
            task, total = [], 0
        task.append(offset_range)
        total += offset_range.size
    yield tuple(task)


def _share(groups: Sequence[Sequence[OffsetRange]], count: int) -> list[int]:
    """Return how many of `count` tasks each group gets: at least one, at most one per range."""
    costs = [sum(map(_cost, group)) for group in groups]
    numbers = [1] * len(groups)
    largest = [(-float(cost), index) for index, cost in enumerate(costs) if len(groups[index]) > 1]
    heapq.heapify(largest)
    # Each further task goes to the group whose tasks are largest.
    for _ in range(count - len(groups)):
        if not largest:
            break
        _, index = heapq.heappop(largest)
        numbers[index] += 1
        if numbers[index] < len(groups[index]):
            heapq.heappush(largest, (-costs[index] / numbers[index], index))
    return numbers


def _balance(costs: Mapping[K, int], count: int) -> list[list[K]]:
    """Return the keys in `count` lists of similar cost, or in fewer if there are fewer keys."""
    lists: list[list[K]] = [[] for _ in range(min(count, len(costs)))]
    cheapest = [(0, index) for index in range(len(lists))]
    # Add each key, the most expensive first, to the cheapest list.
    for key in sorted(costs, key=lambda key: -costs[key]):
        total, index = cheapest[0]
        lists[index].append(key)
        heapq.heapreplace(cheapest, (total + costs[key], index))
    return lists
