"""Range, roundrobin and sticky: what holds for every group, and for aiokafka's assignors too."""

from __future__ import annotations

import pytest
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as TheirRange
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as TheirRoundRobin
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata as TheirMetadata
from hypothesis import given

from aiokafka08.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka08.coordinator.assignors.range import RangePartitionAssignor
from aiokafka08.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka08.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka08.structs import TopicPartition
from tests.coordinator.groups import assigned, cluster, counts, groups, subscriptions


@pytest.mark.parametrize(
    "assignor", [RangePartitionAssignor(), RoundRobinPartitionAssignor(), StickyPartitionAssignor()]
)
@given(partitions=counts, group=groups)
def test_each_partition_goes_to_one_subscriber(
    assignor: AbstractPartitionAssignor, partitions: dict[str, int], group: dict[str, set[str]]
) -> None:
    owned = assigned(assignor, partitions, subscriptions(group))
    assert set(owned) == set(group)
    everything = sorted(tp for one in owned.values() for tp in one)
    wanted = set().union(*group.values())
    assert everything == sorted(
        TopicPartition(topic, number) for topic in wanted for number in range(partitions[topic])
    )
    for member, one in owned.items():
        assert {tp.topic for tp in one} <= group[member]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(RangePartitionAssignor(), TheirRange), (RoundRobinPartitionAssignor(), TheirRoundRobin)],
)
@given(partitions=counts, group=groups)
def test_range_and_roundrobin_equal_aiokafka(
    ours: AbstractPartitionAssignor,
    theirs: type[TheirRange],
    partitions: dict[str, int],
    group: dict[str, set[str]],
) -> None:
    wanted = {member: TheirMetadata(0, sorted(topics), b"") for member, topics in group.items()}
    expected = {
        member: set(one.partitions())
        for member, one in theirs.assign(cluster(partitions), wanted).items()
    }
    assert assigned(ours, partitions, subscriptions(group)) == expected


def test_range_assigns_more_to_the_first_members() -> None:
    members = subscriptions({"two": {"a", "b"}, "one": {"a", "b"}})
    owned = assigned(RangePartitionAssignor(), {"a": 3, "b": 3}, members)
    assert owned["one"] == {TopicPartition(t, n) for t in "ab" for n in (0, 1)}
    assert owned["two"] == {TopicPartition(t, 2) for t in "ab"}
