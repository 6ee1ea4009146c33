"""The sticky assignor: balance, fewest moves, claims of earlier generations, user data."""

from __future__ import annotations

import struct
import sys

from hypothesis import given
from hypothesis import strategies as st

from aiokafka08.coordinator.assignors.sticky.sticky_assignor import (
    StickyPartitionAssignor,
    decode_previous,
    encode_previous,
)
from aiokafka08.coordinator.protocol import ConsumerProtocolMemberMetadata
from aiokafka08.structs import TopicPartition
from tests.coordinator.groups import TOPICS, assigned, cluster, counts


class StickyGroup:
    """Members with an assignor each, and rebalances among them."""

    def __init__(self) -> None:
        self.assignors: dict[str, StickyPartitionAssignor] = {}
        self.owned: dict[str, set[TopicPartition]] = {}
        self.generation = 0

    def rebalance(self, partitions: dict[str, int], topics: set[str]) -> None:
        members = {name: one.metadata(sorted(topics)) for name, one in self.assignors.items()}
        self.generation += 1
        assignments = next(iter(self.assignors.values())).assign(cluster(partitions), members)
        self.owned = {}
        for name, assignment in assignments.items():
            self.assignors[name].on_assignment(assignment)
            self.assignors[name].on_generation_assignment(self.generation)
            self.owned[name] = set(assignment.partitions())


@given(
    partitions=counts,
    steps=st.lists(st.integers(0, 5), min_size=1, max_size=8),
)
def test_sticky_is_balanced_with_fewest_moves(partitions: dict[str, int], steps: list[int]) -> None:
    group = StickyGroup()
    for number in steps:
        name = f"m{number}"
        if name not in group.assignors:
            group.assignors[name] = StickyPartitionAssignor()
        elif len(group.assignors) > 1:
            del group.assignors[name]
        before = group.owned
        group.rebalance(partitions, set(TOPICS))
        loads = [len(one) for one in group.owned.values()]
        assert max(loads) - min(loads) <= 1
        for member in before.keys() & group.owned.keys():
            lost = before[member] - group.owned[member]
            # A member that lost partitions has the smallest possible load, and nothing new.
            assert not lost or not group.owned[member] - before[member]
            assert not lost or len(group.owned[member]) <= -(-sum(loads) // len(loads))
    before = group.owned
    group.rebalance(partitions, set(TOPICS))
    assert group.owned == before


def test_sticky_effort_is_linear_in_moved_partitions() -> None:
    """The leader runs the assignor in the event loop, so it must not take quadratic time."""

    def steps(count: int) -> int:
        had = encode_previous([TopicPartition("a", number) for number in range(count)], 1)
        members = {
            f"m{number}": ConsumerProtocolMemberMetadata(0, ["a"], b"" if number else had)
            for number in range(20)
        }
        assignor, there, seen = StickyPartitionAssignor(), cluster({"a": count}), 0

        def count_step(*_: object) -> None:
            nonlocal seen
            seen += 1

        before = sys.getprofile()
        sys.setprofile(count_step)
        try:
            assignments = assignor.assign(there, members)
        finally:
            sys.setprofile(before)
        assert {len(one.partitions()) for one in assignments.values()} == {count // 20}
        return seen

    assert steps(2000) < 2.5 * steps(1000)


def test_claim_of_the_later_generation_wins() -> None:
    partition = TopicPartition("a", 0)
    members = {
        "early": ConsumerProtocolMemberMetadata(0, ["a"], encode_previous([partition], 3)),
        "late": ConsumerProtocolMemberMetadata(0, ["a"], encode_previous([partition], 4)),
    }
    owned = assigned(StickyPartitionAssignor(), {"a": 1}, members)
    assert owned == {"early": set(), "late": {partition}}


def test_claim_of_missing_or_unsubscribed_is_ignored() -> None:
    """One topic was recreated with fewer partitions, another was unsubscribed."""
    claimed = [TopicPartition("a", 0), TopicPartition("a", 7), TopicPartition("b", 0)]
    members = {
        "before": ConsumerProtocolMemberMetadata(0, ["a"], encode_previous(claimed, 3)),
        "new": ConsumerProtocolMemberMetadata(0, ["a", "b"], b""),
    }
    owned = assigned(StickyPartitionAssignor(), {"a": 1, "b": 1}, members)
    assert owned == {"before": {TopicPartition("a", 0)}, "new": {TopicPartition("b", 0)}}


def test_user_data_versions_and_garbage_are_decoded() -> None:
    version_1 = encode_previous([TopicPartition("a", 0), TopicPartition("a", 2)], 7)
    assert version_1 == (struct.pack(">ih1sI", 1, 1, b"a", 2) + struct.pack(">iii", 0, 2, 7))
    had = [TopicPartition("a", 0), TopicPartition("a", 2)]
    assert decode_previous(version_1) == (had, 7)
    assert decode_previous(version_1[:-4]) == (had, -1)
    assert decode_previous(b"") == ([], -1)
    members = {"m": ConsumerProtocolMemberMetadata(0, ["a"], b"\xff" * 9)}
    both = {TopicPartition("a", 0), TopicPartition("a", 1)}
    assert assigned(StickyPartitionAssignor(), {"a": 2}, members) == {"m": both}
