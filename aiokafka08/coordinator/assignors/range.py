"""The range assignor, Java's default: each member gets consecutive partitions of each topic."""

from __future__ import annotations

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


class RangePartitionAssignor(AbstractPartitionAssignor):
    """Assigns each topic on its own: partitions in order of their numbers, members in order of ids.

    Each subscriber of a topic gets consecutive partitions. Their counts differ by at most one: the
    first subscribers get the remainder of the division, one partition each. With many small topics
    the first members get most partitions.
    """

    name = "range"
    version = 0

    @classmethod
    def assign(
        cls, cluster: ClusterMetadata, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        assigned: dict[str, list[tuple[str, int]]] = {member: [] for member in members}
        for topic in {topic for metadata in members.values() for topic in metadata.subscription}:
            partitions = sorted(cluster.partitions_for_topic(topic) or ())
            subscribers = sorted(
                name for name, metadata in members.items() if topic in metadata.subscription
            )
            each, more = divmod(len(partitions), len(subscribers))
            start = 0
            for number, subscriber in enumerate(subscribers):
                # The first subscribers get the remainder, one partition each.
                end = start + each + (number < more)
                assigned[subscriber] += [(topic, partition) for partition in partitions[start:end]]
                start = end
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
