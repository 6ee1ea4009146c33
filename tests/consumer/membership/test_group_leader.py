"""The leader's work: garbage of one member, and assignors of any kind."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka08.consumer.membership.group_leader import assign_members, decode_members
from aiokafka08.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka08.coordinator.assignors.range import RangePartitionAssignor
from aiokafka08.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka08.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka08.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from aiokafka08.protocol.requests.groups import JoinedMember
from tests.coordinator.groups import subscriptions

pytestmark = pytest.mark.fast


def test_assignment_from_an_iterator_is_complete() -> None:
    """The assignor is of a kind that aiokafka doesn't have: its method isn't a class method."""

    class Lazy(RangePartitionAssignor):
        name = "lazy"

        def assign(self, cluster: object, members: object) -> Any:  # type: ignore[override]
            pairs = ((topic, [0, 1]) for topic in ("a", "b"))
            return {"m1": ConsumerProtocolMemberAssignment(0, pairs, b"")}

    [assignment] = assign_members(
        Lazy(), subscriptions({"m1": {"a", "b"}}), {"a": [0, 1], "b": [0, 1]}
    )
    assert ConsumerProtocolMemberAssignment.decode(assignment.assignment).partitions() == [
        ("a", 0),
        ("a", 1),
        ("b", 0),
        ("b", 1),
    ]


garbage = st.one_of(
    st.binary(max_size=60),
    st.binary(max_size=30).map(lambda rest: b"\0\0\0\0\0\1\0\1a" + rest),
)


@given(
    garbage=garbage,
    strategy=st.sampled_from(
        [RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor]
    ),
)
def test_garbage_metadata_leaves_other_members_whole(
    garbage: bytes, strategy: type[AbstractPartitionAssignor]
) -> None:
    good = ConsumerProtocolMemberMetadata(0, ["a"], b"").encode()
    members = decode_members("c", "g", [JoinedMember("m1", good), JoinedMember("m2", garbage)])
    partitions = {"a": {0, 1, 2}}
    assignments = assign_members(strategy(), members, partitions)
    owned = [
        tp
        for one in assignments
        for tp in ConsumerProtocolMemberAssignment.decode(one.assignment).partitions()
    ]
    assert sorted(owned) == [("a", 0), ("a", 1), ("a", 2)]
