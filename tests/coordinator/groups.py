"""What the tests of assignors share: random groups, and assignors run on them."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import strategies as st

from aiokafka08.consumer.membership.group_leader import SubscribedTopics
from aiokafka08.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka08.coordinator.protocol import ConsumerProtocolMemberMetadata
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


def assigned(
    assignor: AbstractPartitionAssignor,
    partitions: Mapping[str, int],
    members: Mapping[str, ConsumerProtocolMemberMetadata],
) -> dict[str, set[TopicPartition]]:
    assignments = assignor.assign(cluster(partitions), members)
    return {member: set(one.partitions()) for member, one in assignments.items()}


def subscriptions(group: Mapping[str, set[str]]) -> dict[str, ConsumerProtocolMemberMetadata]:
    return {
        member: ConsumerProtocolMemberMetadata(0, sorted(topics), b"")
        for member, topics in group.items()
    }
