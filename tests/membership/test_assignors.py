"""Who gets what, and how members say it: plain tests of pure code."""

from __future__ import annotations

import struct
import sys
from collections.abc import Mapping
from typing import Any

import pytest
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as TheirRange
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as TheirRoundRobin
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata as TheirMetadata
from hypothesis import given
from hypothesis import strategies as st

from aiokafka08.consumer.membership.generation import NextStep, next_step
from aiokafka08.consumer.membership.group_leader import (
    SubscribedTopics,
    assign_members,
    decode_members,
)
from aiokafka08.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka08.coordinator.assignors.range import RangePartitionAssignor
from aiokafka08.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka08.coordinator.assignors.sticky.sticky_assignor import (
    StickyPartitionAssignor,
    decode_previous,
    encode_previous,
)
from aiokafka08.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from aiokafka08.errors import KafkaProtocolError
from aiokafka08.protocol.api import JoinedMember
from aiokafka08.structs import TopicPartition

TOPICS = ("a", "b", "c")

counts = st.fixed_dictionaries({topic: st.integers(0, 7) for topic in TOPICS})
groups = st.dictionaries(
    st.sampled_from([f"m{number}" for number in range(6)]),
    st.sets(st.sampled_from(TOPICS), min_size=1),
    min_size=1,
)


def cluster(partitions: Mapping[str, int]) -> SubscribedTopics:
    return SubscribedTopics({topic: range(count) for topic, count in partitions.items()})


def dealt(
    assignor: AbstractPartitionAssignor,
    partitions: Mapping[str, int],
    members: Mapping[str, ConsumerProtocolMemberMetadata],
) -> dict[str, set[TopicPartition]]:
    given = assignor.assign(cluster(partitions), members)
    return {member: set(one.partitions()) for member, one in given.items()}


def wishes(group: Mapping[str, set[str]]) -> dict[str, ConsumerProtocolMemberMetadata]:
    return {
        member: ConsumerProtocolMemberMetadata(0, sorted(topics), b"")
        for member, topics in group.items()
    }


# --- all assignors --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "assignor", [RangePartitionAssignor(), RoundRobinPartitionAssignor(), StickyPartitionAssignor()]
)
@given(partitions=counts, group=groups)
def test_each_wanted_partition_goes_to_one_who_wants_it(
    assignor: AbstractPartitionAssignor, partitions: dict[str, int], group: dict[str, set[str]]
) -> None:
    given = dealt(assignor, partitions, wishes(group))
    assert set(given) == set(group)
    everything = sorted(tp for one in given.values() for tp in one)
    wanted = set().union(*group.values())
    assert everything == sorted(
        TopicPartition(topic, number) for topic in wanted for number in range(partitions[topic])
    )
    for member, one in given.items():
        assert {tp.topic for tp in one} <= group[member]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(RangePartitionAssignor(), TheirRange), (RoundRobinPartitionAssignor(), TheirRoundRobin)],
)
@given(partitions=counts, group=groups)
def test_range_and_roundrobin_deal_as_aiokafka_does(
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
    assert dealt(ours, partitions, wishes(group)) == expected


def test_range_gives_the_first_members_more() -> None:
    members = wishes({"two": {"a", "b"}, "one": {"a", "b"}})
    given = dealt(RangePartitionAssignor(), {"a": 3, "b": 3}, members)
    assert given["one"] == {TopicPartition(t, n) for t in "ab" for n in (0, 1)}
    assert given["two"] == {TopicPartition(t, 2) for t in "ab"}


# --- sticky ---------------------------------------------------------------------------------------


class StickyGroup:
    """Members with assignors of their own, and rebalances among them."""

    def __init__(self) -> None:
        self.assignors: dict[str, StickyPartitionAssignor] = {}
        self.owned: dict[str, set[TopicPartition]] = {}
        self.generation = 0

    def rebalance(self, partitions: dict[str, int], topics: set[str]) -> None:
        members = {name: one.metadata(sorted(topics)) for name, one in self.assignors.items()}
        self.generation += 1
        given = next(iter(self.assignors.values())).assign(cluster(partitions), members)
        self.owned = {}
        for name, assignment in given.items():
            self.assignors[name].on_assignment(assignment)
            self.assignors[name].on_generation_assignment(self.generation)
            self.owned[name] = set(assignment.partitions())


@given(
    partitions=counts,
    steps=st.lists(st.integers(0, 5), min_size=1, max_size=8),
)
def test_sticky_is_even_and_moves_no_more_than_that_needs(
    partitions: dict[str, int], steps: list[int]
) -> None:
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
            # Who lost something has no more than it must, and nothing new.
            assert not lost or not group.owned[member] - before[member]
            assert not lost or len(group.owned[member]) <= -(-sum(loads) // len(loads))
    before = group.owned
    group.rebalance(partitions, set(TOPICS))
    assert group.owned == before


def test_sticky_takes_steps_in_proportion_to_the_partitions_that_move() -> None:
    """The leader divides in the event loop."""

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
            given = assignor.assign(there, members)
        finally:
            sys.setprofile(before)
        assert {len(one.partitions()) for one in given.values()} == {count // 20}
        return seen

    assert steps(2000) < 2.5 * steps(1000)


def test_of_two_claims_the_later_generation_holds() -> None:
    partition = TopicPartition("a", 0)
    members = {
        "early": ConsumerProtocolMemberMetadata(0, ["a"], encode_previous([partition], 3)),
        "late": ConsumerProtocolMemberMetadata(0, ["a"], encode_previous([partition], 4)),
    }
    given = dealt(StickyPartitionAssignor(), {"a": 1}, members)
    assert given == {"early": set(), "late": {partition}}


def test_what_is_claimed_must_be_there_and_subscribed_to() -> None:
    """A topic was made anew with fewer partitions, another one isn't wanted any more."""
    claimed = [TopicPartition("a", 0), TopicPartition("a", 7), TopicPartition("b", 0)]
    members = {
        "before": ConsumerProtocolMemberMetadata(0, ["a"], encode_previous(claimed, 3)),
        "new": ConsumerProtocolMemberMetadata(0, ["a", "b"], b""),
    }
    given = dealt(StickyPartitionAssignor(), {"a": 1, "b": 1}, members)
    assert given == {"before": {TopicPartition("a", 0)}, "new": {TopicPartition("b", 0)}}


def test_user_data_of_version_0_is_read_and_garbage_counts_as_none() -> None:
    version_1 = encode_previous([TopicPartition("a", 0), TopicPartition("a", 2)], 7)
    assert version_1 == (struct.pack(">ih1sI", 1, 1, b"a", 2) + struct.pack(">iii", 0, 2, 7))
    had = [TopicPartition("a", 0), TopicPartition("a", 2)]
    assert decode_previous(version_1) == (had, 7)
    assert decode_previous(version_1[:-4]) == (had, -1)
    assert decode_previous(b"") == ([], -1)
    members = {"m": ConsumerProtocolMemberMetadata(0, ["a"], b"\xff" * 9)}
    both = {TopicPartition("a", 0), TopicPartition("a", 1)}
    assert dealt(StickyPartitionAssignor(), {"a": 2}, members) == {"m": both}


# --- the protocol "consumer" ----------------------------------------------------------------------

VERSION_0 = struct.pack(">hih1si2s", 0, 1, 1, b"t", 2, b"ud")
# As Java 3.9 writes them: owned partitions from 1 on, the generation from 2, the rack from 3.
OWNED = struct.pack(">ih1siii", 1, 1, b"t", 2, 0, 3)
LATER = [OWNED, OWNED + struct.pack(">i", 5), OWNED + struct.pack(">ih", 5, -1)]


def test_subscriptions_are_written_as_version_0() -> None:
    assert ConsumerProtocolMemberMetadata(0, ["t"], b"ud").encode() == VERSION_0


@pytest.mark.parametrize("version", range(4))
def test_subscriptions_of_all_versions_are_read(version: int) -> None:
    data = struct.pack(">h", version) + VERSION_0[2:]
    data += LATER[version - 1] if version else b""
    read = ConsumerProtocolMemberMetadata.decode(data)
    assert read == ConsumerProtocolMemberMetadata(version, ["t"], b"ud")


def test_null_user_data_is_empty() -> None:
    data = struct.pack(">hih1si", 0, 1, 1, b"t", -1)
    assert ConsumerProtocolMemberMetadata.decode(data).user_data == b""


@pytest.mark.parametrize("version", range(4))
def test_assignments_of_all_versions_are_read(version: int) -> None:
    written = ConsumerProtocolMemberAssignment(0, [("t", [0, 3])], b"").encode()
    assert written == struct.pack(">hih1siiii", 0, 1, 1, b"t", 2, 0, 3, 0)
    read = ConsumerProtocolMemberAssignment.decode(struct.pack(">h", version) + written[2:])
    assert read.partitions() == [TopicPartition("t", 0), TopicPartition("t", 3)]


def test_no_assignment_at_all_is_an_empty_one() -> None:
    assert ConsumerProtocolMemberAssignment.decode(b"").partitions() == []


@given(st.binary(max_size=40))
def test_hostile_bytes_are_one_typed_error(data: bytes) -> None:
    for kind in (ConsumerProtocolMemberMetadata, ConsumerProtocolMemberAssignment):
        try:
            kind.decode(data)
        except KafkaProtocolError:
            pass


# --- what answers mean ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("codes", "what"),
    [
        ((0,), NextStep.CONTINUE),
        ((14, -1, 7, 99), NextStep.RETRY),
        ((15, 16), NextStep.FIND_COORDINATOR),
        ((22, 27), NextStep.REJOIN),
        ((25,), NextStep.JOIN_AS_NEW),
        ((23, 24, 26, 30, 81), NextStep.FAIL),
    ],
)
def test_what_follows_from_an_error_code(codes: tuple[int, ...], what: NextStep) -> None:
    assert {next_step(code) for code in codes} == {what}


def test_what_is_given_may_be_told_once() -> None:
    class Lazy(RangePartitionAssignor):
        name = "lazy"

        def assign(self, cluster: object, members: object) -> dict[str, Any]:
            pairs = ((topic, [0, 1]) for topic in ("a", "b"))
            return {"m1": ConsumerProtocolMemberAssignment(0, pairs, b"")}

    [given] = assign_members(Lazy(), wishes({"m1": {"a", "b"}}), {"a": [0, 1], "b": [0, 1]})
    assert ConsumerProtocolMemberAssignment.decode(given.assignment).partitions() == [
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
def test_garbage_of_another_member_takes_nothing_from_the_others(
    garbage: bytes, strategy: type[AbstractPartitionAssignor]
) -> None:
    good = ConsumerProtocolMemberMetadata(0, ["a"], b"").encode()
    members = decode_members("g", [JoinedMember("m1", good), JoinedMember("m2", garbage)])
    partitions = {"a": {0, 1, 2}}
    dealt = assign_members(strategy(), members, partitions)
    owned = [
        tp
        for one in dealt
        for tp in ConsumerProtocolMemberAssignment.decode(one.assignment).partitions()
    ]
    assert sorted(owned) == [("a", 0), ("a", 1), ("a", 2)]
