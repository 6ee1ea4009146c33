"""The roundrobin assignor, aiokafka's default: members get the partitions of all topics in turn."""

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
    """Assigns the partitions, in order of topic and number, to the members in order of ids.

    A member that hasn't subscribed to a topic is skipped. If all members have subscribed to the
    same topics, the members' partition counts differ by at most one.
    """

    name = "roundrobin"
    version = 0

    @classmethod
    def assign(
        cls, cluster: ClusterMetadata, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        assigned: dict[str, list[tuple[str, int]]] = {member: [] for member in members}
        wanted = {name: set(metadata.subscription) for name, metadata in members.items()}
        in_turn = itertools.cycle(sorted(members))
        for topic in sorted(set().union(*wanted.values())):
            for partition in sorted(cluster.partitions_for_topic(topic) or ()):
                # Members that haven't subscribed to the topic are skipped.
                subscriber = next(member for member in in_turn if topic in wanted[member])
                assigned[subscriber].append((topic, partition))
        return {
            member: by_topic(cls.version, partitions) for member, partitions in assigned.items()
        }

    @classmethod
    def metadata(cls, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        """Return the topics, without user data."""
        return ConsumerProtocolMemberMetadata(cls.version, list(topics), b"")

    @classmethod
    def on_assignment(cls, assignment: ConsumerProtocolMemberAssignment) -> None:
        """Do nothing: this assignor has no state."""
