"""Tasks cover each offset once, in order, balanced, from few leaders, in the number asked for."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from aiokafka08.spark.planning import OffsetRange
from aiokafka08.spark.task_plan import MAX_COMBINED_OFFSETS, TASKS_PER_CORE, divide_into_tasks
from aiokafka08.structs import TopicPartition

Tasks = list[tuple[OffsetRange, ...]]


def ranges_of(sizes: list[int], start: int = 0) -> list[OffsetRange]:
    """Return one range per partition of topic t."""
    return [OffsetRange("t", number, start, start + size) for number, size in enumerate(sizes)]


def leaders_of(ranges: list[OffsetRange], brokers: int) -> dict[TopicPartition, int]:
    return {TopicPartition(one.topic, one.partition): one.partition % brokers for one in ranges}


def divide(
    ranges: list[OffsetRange],
    brokers: int = 1,
    parallelism: int = 2,
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> Tasks:
    return divide_into_tasks(
        ranges,
        leaders_of(ranges, brokers),
        parallelism=parallelism,
        min_partitions=min_partitions,
        max_records=max_records,
    )


def sizes(tasks: Tasks) -> list[int]:
    return [sum(one.size for one in task) for task in tasks]


@given(
    st.lists(st.integers(1, 400_000), min_size=1, max_size=60),
    st.integers(1, 9),
    st.integers(1, 8),
    st.none() | st.integers(1, 100),
    st.none() | st.integers(5_000, 10**6),
)
def test_tasks_read_each_offset_once_and_in_order(
    counts: list[int],
    brokers: int,
    parallelism: int,
    min_partitions: int | None,
    max_records: int | None,
) -> None:
    ranges = ranges_of(counts, start=7)
    tasks = divide(ranges, brokers, parallelism, min_partitions, max_records)
    for task in tasks:
        assert list(task) == sorted(task, key=lambda one: (one.topic, one.partition, one.start))
    parts = sorted(itertools.chain(*tasks), key=lambda one: (one.partition, one.start))
    for one in ranges:
        mine = [part for part in parts if part.partition == one.partition]
        assert [part.start for part in mine] == [one.start, *(part.end for part in mine[:-1])]
        assert mine[-1].end == one.end
        if min_partitions is None and max_records is None:
            assert mine == [one]
    wanted = TASKS_PER_CORE * parallelism if min_partitions is None else min_partitions
    assert len(tasks) >= min(wanted, len(parts))
    limit = min(max_records or MAX_COMBINED_OFFSETS, MAX_COMBINED_OFFSETS)
    assert len(tasks) <= max(wanted, brokers) + 2 * sum(counts) // limit + 1
    for task, size in zip(tasks, sizes(tasks), strict=True):
        assert len(task) == 1 or size <= limit
        assert max_records is None or size <= max_records


@given(st.lists(st.integers(1, 300), min_size=50, max_size=500), st.integers(1, 5))
def test_small_ranges_make_two_balanced_tasks_per_core(counts: list[int], brokers: int) -> None:
    tasks = divide(ranges_of(counts), brokers, parallelism=4)
    assert len(tasks) == TASKS_PER_CORE * 4
    costs = [sum(one.size + 200 for one in task) for task in tasks]
    by_broker: dict[int, list[int]] = {}
    for task, cost in zip(tasks, costs, strict=True):
        [broker] = {one.partition % brokers for one in task}  # one connection per task
        by_broker.setdefault(broker, []).append(cost)
    for mine in by_broker.values():
        assert max(mine) - min(mine) <= 500  # as much as one range costs


def test_more_leaders_than_tasks_share_a_task() -> None:
    ranges = ranges_of([10] * 300)
    tasks = divide(ranges, brokers=30, parallelism=2)
    assert len(tasks) == 4
    leaders = [{one.partition % 30 for one in task} for task in tasks]
    assert sorted(map(len, leaders)) == [7, 7, 8, 8]  # no leader in two tasks


def test_large_range_has_a_task_of_its_own() -> None:
    tasks = divide(ranges_of([5_000_000, *[12] * 499]))
    assert sizes(tasks)[0] == 5_000_000
    assert [len(task) for task in tasks] == [1, 167, 166, 166]


def test_large_ranges_are_not_combined() -> None:
    assert len(divide(ranges_of([150_000] * 100))) == 100
    assert 50 <= len(divide(ranges_of([100_000] * 100))) <= 55


def test_min_partitions_replaces_the_number_of_cores() -> None:
    ranges = ranges_of([12] * 500)
    assert len(divide(ranges, min_partitions=32)) == 32
    assert len(divide(ranges, min_partitions=1)) == 1
    assert len(divide(ranges, min_partitions=600)) == 600


def test_max_records_limits_combined_ranges() -> None:
    tasks = divide(ranges_of([12] * 500), max_records=120)
    assert max(sizes(tasks)) == 120
    assert len(tasks) <= 56


def test_ranges_of_a_partition_keep_their_order_in_a_task() -> None:
    """A filter on offsets leaves several ranges of a partition."""
    ranges = [OffsetRange("t", 0, start, start + 2) for start in range(0, 64_000, 1000)]
    tasks = divide(ranges)
    assert len(tasks) == 4
    assert all(list(task) == sorted(task, key=lambda one: one.start) for task in tasks)


def test_partitions_without_a_leader_have_a_task() -> None:
    ranges = ranges_of([5] * 20)
    tasks = divide_into_tasks(ranges, {}, parallelism=1, min_partitions=None, max_records=None)
    assert [len(task) for task in tasks] == [10, 10]
