"""Replica placement, and the checks of new topics (pure)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from aiokafka08.admin import NewPartitions, NewTopic
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


def test_more_partitions_than_zookeeper_stores_raise() -> None:
    """Before an assignment is computed, which would take all memory."""
    with pytest.raises(InvalidPartitionsError, match=r"num_partitions=1099511627776; expected 1 "):
        assign_replicas(NewTopic("t", 2**40, 1), [0], 0)


@pytest.mark.parametrize("wrong", [b"x", "x", ["x"], 5])
def test_configs_that_are_no_mapping_raise(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"topic_configs=.*expected a mapping"):
        NewTopic("t", 1, 1, topic_configs=wrong)


@pytest.mark.parametrize("wrong", ["1", None, 0.5, float("nan")])
def test_counts_that_are_no_integers_raise(wrong: Any) -> None:
    for make in (lambda: NewTopic("t", wrong, 1), lambda: NewPartitions(wrong)):
        with pytest.raises(IllegalArgumentError, match="expected an integer"):
            make()


def test_zero_partitions_raises() -> None:
    with pytest.raises(InvalidPartitionsError, match="num_partitions=0"):
        assign_replicas(NewTopic("t", 0, 1), {0}, 0)


@pytest.mark.parametrize(("count", "assignment"), [(3, {0: [0]}), (-1, None)])
def test_numbers_with_assignment_raises(
    count: int, assignment: dict[int, list[int]] | None
) -> None:
    with pytest.raises(IllegalArgumentError, match="either"):
        NewTopic("t", count, count, assignment)
