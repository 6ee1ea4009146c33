"""Planning covers each offset once, in balanced tasks, within the limits, and names losses."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka08.errors import IllegalArgumentError, UnknownTopicOrPartitionError
from aiokafka08.spark.offsets import from_checkpoint, parse_offsets, to_checkpoint
from aiokafka08.spark.options import OffsetBound, TimestampBound, TopicSelection, TriggerLimits
from aiokafka08.spark.planning import (
    OffsetRange,
    check_bound_partitions,
    choose_partitions,
    count_available,
    describe_lags,
    describe_losses,
    find_ends_below,
    is_batch_too_small,
    limit_batch,
    partition_lags,
    plan_batch_query,
    plan_micro_batch,
    resolve_log_ends,
)
from aiokafka08.spark.task_plan import MAX_TASKS, split_ranges
from aiokafka08.structs import TopicPartition


def tp(partition: int = 0, topic: str = "t") -> TopicPartition:
    return TopicPartition(topic, partition)


KNOWN = {"a": [0, 1], "ab": [0], "b": [0], "__consumer_offsets": [0]}


@pytest.mark.parametrize(
    ("topics", "expected"),
    [
        (TopicSelection(subscribe=("b", "a")), [tp(0, "a"), tp(1, "a"), tp(0, "b")]),
        (TopicSelection(pattern="a.*"), [tp(0, "a"), tp(1, "a"), tp(0, "ab")]),
        (TopicSelection(pattern="a"), [tp(0, "a"), tp(1, "a"), tp(0, "ab")]),
        (TopicSelection(pattern="^a$"), [tp(0, "a"), tp(1, "a")]),
        (TopicSelection(pattern="b"), [tp(0, "ab"), tp(0, "b")]),
        (TopicSelection(pattern=".*_offsets"), []),
        (TopicSelection(assign=(tp(1, "a"),)), [tp(1, "a")]),
    ],
)
def test_topic_selection_chooses_partitions(
    topics: TopicSelection, expected: list[TopicPartition]
) -> None:
    assert list(choose_partitions(topics, KNOWN, {"__consumer_offsets"})) == expected


@pytest.mark.parametrize(
    ("topics", "message"),
    [
        (TopicSelection(subscribe=("a", "x", "y")), "topics 'x', 'y' don't exist, or this"),
        (TopicSelection(assign=(tp(0, "x"),)), "topic 'x' doesn't exist, or this"),
        (
            TopicSelection(assign=(tp(7, "a"),)),
            "topic 'a' has no partition 7; expected one of 0, 1",
        ),
    ],
)
def test_missing_topic_or_partition_raises(topics: TopicSelection, message: str) -> None:
    with pytest.raises(UnknownTopicOrPartitionError) as caught:
        choose_partitions(topics, KNOWN)
    assert message in str(caught.value)


def test_bound_must_have_an_entry_for_each_partition() -> None:
    bound = OffsetBound("startingOffsets", {tp(0): 1, tp(1): -2})
    check_bound_partitions(bound, [tp(0), tp(1)])
    with pytest.raises(IllegalArgumentError, match=r"startingOffsets: no entry for t/2.* -2: earl"):
        check_bound_partitions(bound, [tp(0), tp(1), tp(2)])
    with pytest.raises(IllegalArgumentError, match="startingOffsets: entries for partitions"):
        check_bound_partitions(bound, [tp(0)])
    with pytest.raises(
        IllegalArgumentError,
        match=r"no entry for t/2; entries for partitions .* doesn't read: t/1; expected",
    ):
        check_bound_partitions(bound, [tp(0), tp(2)])
    with pytest.raises(
        IllegalArgumentError,
        match="endingOffsetsByTimestamp: no entry for t/0; expected a timestamp in milliseconds",
    ) as caught:
        check_bound_partitions(TimestampBound("endingOffsetsByTimestamp", None, {}), [tp(0)])
    assert "latest" not in str(caught.value)
    check_bound_partitions(TimestampBound("startingTimestamp", 5), [tp(0)])


def test_minus_1_and_minus_2_are_the_ends_of_the_log() -> None:
    found = resolve_log_ends(
        {tp(0): -2, tp(1): -1, tp(2): 7}, dict.fromkeys(map(tp, range(3)), 3), {tp(1): 9}
    )
    assert found == {tp(0): 3, tp(1): 9, tp(2): 7}


EARLIEST, LATEST = {tp(0): 10}, {tp(0): 100}
SELECTION = TopicSelection(subscribe=("t",))


@pytest.mark.parametrize(
    ("start", "end", "ranges", "losses"),
    [
        (10, 100, [(10, 100)], []),
        (50, 50, [], []),
        (5, 100, [(10, 100)], ["the range [5, 10) aged out; the log begins at offset 10"]),
        (5, 8, [], ["the range [5, 8) aged out"]),
        (90, 120, [(90, 100)], ["the range [100, 120) doesn't exist; the log ends at offset 100"]),
        (110, 120, [], ["the range [110, 120) doesn't exist"]),
    ],
)
def test_plan_has_existing_ranges_and_the_losses(
    start: int, end: int, ranges: list[tuple[int, int]], losses: list[str]
) -> None:
    for plan in (
        plan_batch_query({tp(0): start}, {tp(0): end}, EARLIEST, LATEST),
        plan_micro_batch({tp(0): start}, {tp(0): end}, EARLIEST, LATEST, SELECTION),
    ):
        assert [(one.start, one.end) for one in plan.ranges] == ranges
        assert len(plan.losses) == len(losses)
        for loss, expected in zip(plan.losses, losses, strict=True):
            assert expected in loss
            assert "topic 't', partition 0" in loss


def test_query_that_starts_after_its_end_raises() -> None:
    with pytest.raises(IllegalArgumentError, match="start at offset 120 and end at 100; expected"):
        plan_batch_query({tp(0): 120}, {tp(0): 100}, EARLIEST, LATEST)


def test_batch_that_ends_before_its_start_is_a_loss() -> None:
    plan = plan_micro_batch({tp(0): 60}, {tp(0): 50}, EARLIEST, LATEST, SELECTION)
    assert plan.ranges == ()
    assert "the end of the log went back from offset 60 to 50" in plan.losses[0]


def test_added_partition_is_read_from_its_earliest_offset() -> None:
    plan = plan_micro_batch(
        {}, {tp(0): 100, tp(1): 5}, {tp(0): 10, tp(1): 0}, {tp(0): 100, tp(1): 5}, SELECTION
    )
    assert plan.ranges == (OffsetRange("t", 0, 10, 100), OffsetRange("t", 1, 0, 5))
    [loss] = plan.losses
    assert "was added and begins at offset 10 instead of 0: the range [0, 10) aged out" in loss


def test_partition_that_the_end_lacks_is_a_loss() -> None:
    [loss] = plan_micro_batch(
        {tp(0): 20, tp(3): 1}, {tp(0): 20}, EARLIEST, LATEST, SELECTION
    ).losses
    assert loss == "the partitions t/3 were deleted, or not selected at an earlier start"


def test_partition_that_brokers_do_not_list_is_left_to_a_task() -> None:
    start, end = {tp(0): 20, tp(1): 5, tp(3): 9}, {tp(0): 30, tp(1): 5, tp(2): 7, tp(3): 8}
    plan = plan_micro_batch(start, end, {}, {}, SELECTION)
    assert plan.ranges == (OffsetRange("t", 0, 20, 30), OffsetRange("t", 2, 0, 7))
    assert plan.losses == ()


@pytest.mark.parametrize(
    ("selection", "shown"),
    [
        (TopicSelection(subscribe=("t",)), "subscribe='t' doesn't select gone/0, gone/1"),
        (TopicSelection(pattern="^t$"), "subscribePattern='^t$' doesn't select gone/0, gone/1"),
        (TopicSelection(assign=(tp(0),)), "assign=t/0 doesn't select gone/0, gone/1"),
    ],
)
def test_partition_that_the_options_leave_out_is_not_called_deleted(
    selection: TopicSelection, shown: str
) -> None:
    start = {tp(0): 20, tp(0, "gone"): 1, tp(1, "gone"): 1}
    [loss] = plan_micro_batch(start, {tp(0): 20}, EARLIEST, LATEST, selection).losses
    assert loss == f"{shown} of the checkpoint any more"


# --- tasks ----------------------------------------------------------------------------------------


def sizes(ranges: list[OffsetRange]) -> list[int]:
    return [one.size for one in ranges]


def cut(*starts_and_ends: tuple[int, int]) -> list[OffsetRange]:
    return [OffsetRange("t", i, start, end) for i, (start, end) in enumerate(starts_and_ends)]


@pytest.mark.parametrize(
    ("ranges", "min_partitions", "max_records", "expected"),
    [
        (cut((0, 10), (0, 5)), None, None, [10, 5]),
        (cut((0, 10), (0, 5)), 2, None, [10, 5]),
        (cut((0, 10), (0, 5)), 3, None, [5, 5, 5]),
        (cut((0, 10)), 4, None, [2, 3, 2, 3]),
        (cut((0, 3)), 10, None, [1, 1, 1]),
        (cut((0, 10), (0, 2)), None, 4, [3, 3, 4, 2]),
        (cut((0, 10), (0, 2)), 2, 4, [3, 3, 4, 2]),
        (cut((0, 100), (0, 1)), 5, 100, [25, 25, 25, 25, 1]),
        ([], 5, 5, []),
    ],
)
def test_tasks_are_balanced(
    ranges: list[OffsetRange],
    min_partitions: int | None,
    max_records: int | None,
    expected: list[int],
) -> None:
    tasks = split_ranges(ranges, min_partitions=min_partitions, max_records=max_records)
    assert sizes(tasks) == expected


@given(
    st.lists(st.tuples(st.integers(0, 2**40), st.integers(1, 2**40)), max_size=20),
    st.none() | st.integers(1, 300),
    st.none() | st.integers(2**33, 2**41),
)
def test_tasks_cover_each_offset_once(
    pairs: list[tuple[int, int]], min_partitions: int | None, max_records: int | None
) -> None:
    ranges = [OffsetRange("t", i, start, start + size) for i, (start, size) in enumerate(pairs)]
    tasks = split_ranges(ranges, min_partitions=min_partitions, max_records=max_records)
    for one in ranges:
        mine = [task for task in tasks if task.partition == one.partition]
        assert [task.start for task in mine] == [one.start, *(task.end for task in mine[:-1])]
        assert mine[-1].end == one.end
        assert max(sizes(mine)) - min(sizes(mine)) <= 1
        assert max_records is None or max(sizes(mine)) <= max_records
    if ranges and min_partitions:
        assert len(tasks) >= min(min_partitions, sum(one.size for one in ranges))
    assert all(task.size > 0 for task in tasks)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_partitions": MAX_TASKS + 1, "max_records": None}, f"minPartitions={MAX_TASKS + 1}"),
        ({"min_partitions": None, "max_records": 1}, "maxRecordsPerPartition=1"),
    ],
)
def test_too_many_tasks_raise(options: dict[str, int | None], message: str) -> None:
    with pytest.raises(IllegalArgumentError, match=message):
        split_ranges(cut((0, 2**50)), **options)


# --- limits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "latest", "most", "expected"),
    [
        ([0, 0], [100, 100], 1000, [100, 100]),
        ([0, 0], [100, 100], 50, [25, 25]),
        ([0, 0], [300, 100], 40, [30, 10]),
        ([0, 0], [1000, 1], 10, [9, 1]),  # each partition gets at least one offset
        ([5, 50], [5, 100], 10, [5, 60]),
        ([50, 0], [40, 100], 10, [40, 10]),  # truncated: a loss when the batch is planned
        ([0, 2**62], [0, 2**63 - 1], 2**62, [0, 2**63 - 1]),
    ],
)
def test_batch_limit_is_shared_in_proportion(
    start: list[int], latest: list[int], most: int, expected: list[int]
) -> None:
    ends = limit_batch(dict(enumerate_tp(start)), dict(enumerate_tp(latest)), {}, most)
    assert ends == dict(enumerate_tp(expected))


def enumerate_tp(numbers: list[int]) -> list[tuple[TopicPartition, int]]:
    return [(tp(i), number) for i, number in enumerate(numbers)]


def test_batch_limit_counts_added_partition_from_earliest() -> None:
    assert limit_batch({}, {tp(0): 1100}, {tp(0): 1000}, 10) == {tp(0): 1010}
    assert count_available({}, {tp(0): 1100}, {tp(0): 1000}) == 100


@given(
    st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 2**40)), min_size=1, max_size=10),
    st.integers(1, 2**41),
)
def test_limited_batches_reach_the_end(pairs: list[tuple[int, int]], most: int) -> None:
    start = {tp(i): first for i, (first, _) in enumerate(pairs)}
    latest = {tp(i): first + size for i, (first, size) in enumerate(pairs)}
    end = limit_batch(start, latest, {}, most)
    assert all(start[one] <= end[one] <= latest[one] for one in latest)
    assert count_available(start, end, {}) <= max(most, 0) + len(latest)
    assert (end == start) == (latest == start)


@pytest.mark.parametrize(
    ("least", "count", "waited_s", "waits"),
    [
        (None, 0, 0, False),
        (10, 9, 0, True),
        (10, 10, 0, False),
        (10, 9, 59.9, True),
        (10, 9, 60, False),
        (10, 0, 60, False),
    ],
)
def test_small_batch_is_delayed_up_to_max_trigger_delay(
    least: int | None, count: int, waited_s: float, waits: bool
) -> None:
    assert is_batch_too_small(count, TriggerLimits(least, None, 60), waited_s) is waits


def test_find_ends_below_returns_known_offset_and_end() -> None:
    assert find_ends_below({tp(0): 5, tp(1): 5}, {tp(0): 6, tp(2): 9}) == {tp(0): (6, 5)}


def test_texts_of_losses_and_lag() -> None:
    assert "failOnDataLoss to false" in describe_losses(["a", "b"], True)
    assert describe_losses(["a", "b"], False).endswith("a; b")
    lags = partition_lags({tp(0): 5, tp(2): 9}, {tp(0): 10, tp(1): 7, tp(2): 8})
    assert describe_lags(lags) == "12 offsets behind in 3 partitions, most in t/1: 7"
    assert describe_lags({tp(0): 0, tp(1): 0}) == "0 offsets behind in 2 partitions"
    assert describe_lags({}) == "no partitions"


# --- at scale -------------------------------------------------------------------------------------


def test_thousand_partitions_of_a_trillion_offsets() -> None:
    partitions = [tp(i, f"topic-{i % 10}") for i in range(1000)]
    earliest = dict.fromkeys(partitions, 10**6)
    latest = dict.fromkeys(partitions, 10**12)
    start = {one: 10**6 + i for i, one in enumerate(partitions)}
    end = limit_batch(start, latest, earliest, 10**9)
    assert 10**9 - 1000 <= count_available(start, end, earliest) <= 10**9
    assert max(end[one] - start[one] for one in partitions) <= 10**6
    plan = plan_micro_batch(start, end, earliest, latest, TopicSelection(pattern="."))
    assert plan.losses == ()
    tasks = split_ranges(plan.ranges, min_partitions=20_000, max_records=None)
    assert len(tasks) == 20_000
    assert sum(sizes(tasks)) == count_available(start, end, earliest)
    assert max(sizes(tasks)) <= 1.05 * min(sizes(tasks))
    stored = json.dumps(to_checkpoint(end))
    assert len(stored) < 25_000
    assert from_checkpoint(json.loads(stored)) == end
    assert parse_offsets("startingOffsets", stored) == end


def test_missing_topic_is_created_or_corrected_but_not_if_impossible() -> None:
    existing = {"orders": [0]}
    for name, advice in (
        ("ordrs", r"Create the topic, or correct the option\. Did you mean 'orders'\?"),
        ("a b", "No topic can have the name 'a b': correct the option"),
    ):
        with pytest.raises(UnknownTopicOrPartitionError, match=advice):
            choose_partitions(TopicSelection(subscribe=(name,)), existing)
