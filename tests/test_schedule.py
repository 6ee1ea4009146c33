"""The order in which xdist's processes get the tests."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from tests.contract.targets import TargetSpec
from tests.schedule import DEFAULT_VERSION, MODERN, SPARK, arrange, group_of


def shares(order: list[int], processes: int) -> list[list[int]]:
    """Split an order as xdist's `worksteal` does at its start."""
    left, made = list(order), []
    for number in range(processes):
        size = len(left) // (processes - number)
        made.append(left[:size])
        del left[:size]
    return made


@pytest.mark.parametrize("processes", [1, 2, 3, 5])
def test_each_group_is_in_one_share_and_no_test_is_lost(processes: int) -> None:
    groups = [*["a"] * 30, *["b"] * 20, *["c"] * 10, *["d"] * 5, *[None] * 1000]
    random.Random(processes).shuffle(groups)
    order = arrange(groups, processes)
    assert sorted(order) == list(range(len(groups)))
    for group in "abcd":
        used = [any(groups[one] == group for one in share) for share in shares(order, processes)]
        assert used.count(True) == 1
    for share in shares(order, processes):
        # Other processes take tests from the end, where none has a group.
        free = [groups[one] is None for one in share]
        assert free == sorted(free)


def test_more_grouped_tests_than_others_lose_none() -> None:
    assert sorted(arrange(["a"] * 9 + [None] + ["b"], 3)) == list(range(11))
    assert arrange([], 3) == []


class Item:
    """What `group_of` reads of a test."""

    nodeid = "tests/failover/test_failover.py::test_a_pause"

    def __init__(self, *fixturenames: str, real: bool = False, **params: object) -> None:
        self.fixturenames = fixturenames
        self.callspec = SimpleNamespace(params=params)
        self._real = real

    def get_closest_marker(self, name: str) -> object:
        return self._real and name == "real"


@pytest.mark.parametrize(
    ("item", "group"),
    [
        (Item("spec", real=True, spec=TargetSpec("real", "0.9.0.1", 1)), "0.9.0.1"),
        (Item("spec", spec=TargetSpec("embedded", "0.9", 1)), None),
        (Item("broker_clusters", version="3.9.1", size=1), "3.9.1"),
        (Item("broker_clusters", cluster=("0.8.1.1", 1)), "0.8.1.1"),
        (Item("broker_clusters", names=()), DEFAULT_VERSION),
        (Item("own_cluster", real=True), "tests/failover"),
        (Item("modern_cluster", "broker_clusters", version="0.10.2.2"), MODERN),
        (Item("spark", "broker_clusters", version="3.9.1"), SPARK),
        (Item("kafka_cluster", version="0.8.0"), None),
        (None, None),
    ],
)
def test_group_is_what_a_test_shares_with_others(item: Any, group: str | None) -> None:
    assert group_of(item) == group
