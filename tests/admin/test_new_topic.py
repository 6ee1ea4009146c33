"""Replica placement, and the checks of new topics (pure)."""

from __future__ import annotations

from collections import Counter

import pytest

from aiokafka08.admin import NewTopic
from aiokafka08.admin.new_topic import assign_replicas
from aiokafka08.errors import (
    IllegalArgumentError,
    InvalidPartitionsError,
    InvalidReplicationAssignmentError,
    InvalidReplicationFactorError,
)


@pytest.mark.parametrize("factor", [1, 2, 3, 4])
def test_replicas_differ_and_leaders_are_balanced(factor: int) -> None:
    assignment = assign_replicas(NewTopic("t", 12, factor), {1, 5, 7, 9}, start=2)
    assert list(assignment) == list(range(12))
    assert all(len(set(nodes)) == factor for nodes in assignment.values())
    assert set(Counter(nodes[0] for nodes in assignment.values()).values()) == {3}


def test_followers_of_one_leader_are_spread() -> None:
    assignment = assign_replicas(NewTopic("t", 12, 2), {0, 1, 2, 3}, start=0)
    followers = {nodes[1] for nodes in assignment.values() if nodes[0] == 0}
    assert followers == {1, 2, 3}


def test_given_assignment_is_sorted_by_partition() -> None:
    topic = NewTopic("t", -1, -1, {1: [2, 0], 0: [0, 2]})
    assert assign_replicas(topic, {0, 1, 2}, 0) == {0: [0, 2], 1: [2, 0]}


@pytest.mark.parametrize(
    "wanted", [{0: [0], 2: [1]}, {0: [0], 1: [0, 1]}, {0: [0, 0]}, {0: [9]}, {0: []}]
)
def test_impossible_assignment_raises(wanted: dict[int, list[int]]) -> None:
    with pytest.raises(InvalidReplicationAssignmentError, match="topic 't'"):
        assign_replicas(NewTopic("t", -1, -1, wanted), {0, 1}, 0)


def test_more_replicas_than_live_brokers_raises() -> None:
    with pytest.raises(
        InvalidReplicationFactorError, match="=3; expected 1 to 2, the number of live"
    ):
        assign_replicas(NewTopic("t", 1, 3), {0, 1}, 0)


def test_zero_partitions_raises() -> None:
    with pytest.raises(InvalidPartitionsError, match="num_partitions=0"):
        assign_replicas(NewTopic("t", 0, 1), {0}, 0)


@pytest.mark.parametrize(("count", "assignment"), [(3, {0: [0]}), (-1, None)])
def test_numbers_with_assignment_raises(
    count: int, assignment: dict[int, list[int]] | None
) -> None:
    with pytest.raises(IllegalArgumentError, match="either"):
        NewTopic("t", count, count, assignment)
