"""aiokafka's default: all partitions of all topics are dealt to the members in turn."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

from aiokafka08.coordinator.assignors.abstract import (
    AbstractPartitionAssignor,
    ClusterMetadata,
    by_topic,
)
from aiokafka08.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)


class RoundRobinPartitionAssignor(AbstractPartitionAssignor):
    """Partitions by topic and number, members by id; a member that hasn't subscribed to a topic is
    passed over. Where all have subscribed to the same, loads differ by one at most."""

    name = "roundrobin"

    def assign(
        self, cluster: ClusterMetadata, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        """See the class."""
        given: dict[str, list[tuple[str, int]]] = {member: [] for member in members}
        wanted = {name: set(one.subscription) for name, one in members.items()}
        turns = itertools.cycle(sorted(members))
        for topic in sorted(set().union(*wanted.values())):
            for partition in sorted(cluster.partitions_for_topic(topic) or ()):
                taker = next(member for member in turns if topic in wanted[member])
                given[taker].append((topic, partition))
        return {member: by_topic(partitions) for member, partitions in given.items()}

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        """Only the topics."""
        return ConsumerProtocolMemberMetadata(0, list(topics), b"")

    def on_assignment(self, assignment: ConsumerProtocolMemberAssignment) -> None:
        """Nothing to remember."""
