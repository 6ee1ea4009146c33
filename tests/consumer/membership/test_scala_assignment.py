"""The Scala consumer's assignment arithmetic: properties that hold for any group."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka08._core.zookeeper.scala_registry import GroupSnapshot
from aiokafka08.consumer.membership.scala_assignment import (
    RANGE,
    ROUNDROBIN,
    assign_to_member,
)
from aiokafka08.errors import KafkaConfigurationError
from aiokafka08.structs import TopicPartition

counts = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(0, 9), min_size=1)
members = st.lists(
    st.sampled_from([f"g_h-{number}-x" for number in range(8, 14)]),
    min_size=1,
    max_size=4,
    unique=True,
)


@pytest.mark.parametrize("strategy", [RANGE, ROUNDROBIN])
@given(counts=counts, names=members)
def test_each_partition_is_assigned_to_one_member(
    strategy: str, counts: dict[str, int], names: list[str]
) -> None:
    snapshot = GroupSnapshot(
        {topic: [f"{name}-0" for name in names] for topic in counts},
        {topic: range(count) for topic, count in counts.items()},
    )
    assigned = [tp for name in names for tp in assign_to_member(strategy, snapshot, counts, name)]
    assert sorted(assigned) == sorted(
        TopicPartition(topic, number) for topic, count in counts.items() for number in range(count)
    )


def test_threads_sort_as_strings_not_as_numbers() -> None:
    snapshot = GroupSnapshot({"t": ["g_h-9-0", "g_h-10-0"]}, {"t": [0, 1, 2]})
    assert set(assign_to_member(RANGE, snapshot, ["t"], "g_h-10")) == {("t", 0), ("t", 1)}
    assert set(assign_to_member(RANGE, snapshot, ["t"], "g_h-9")) == {("t", 2)}
    # One id may begin like another one.
    assert assign_to_member(RANGE, snapshot, ["t"], "g_h-1") == {}


def test_roundrobin_orders_partitions_by_java_hash() -> None:
    # "[t,0]".hashCode() and so on rise with the number; those of two topics are mixed.
    snapshot = GroupSnapshot(
        {"t": ["a-0", "b-0"], "u": ["a-0", "b-0"]}, {"t": range(3), "u": range(3)}
    )
    mine = assign_to_member(ROUNDROBIN, snapshot, ["t", "u"], "a")
    assert set(mine) == {("t", 0), ("t", 2), ("u", 1)}


def test_roundrobin_with_different_subscriptions_raises() -> None:
    snapshot = GroupSnapshot({"t": ["a-0"], "u": ["a-0", "b-0"]}, {"t": [0], "u": [0]})
    with pytest.raises(KafkaConfigurationError, match="use range"):
        assign_to_member(ROUNDROBIN, snapshot, ["t"], "a")
