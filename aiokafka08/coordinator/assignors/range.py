"""Java's default: of each topic every member gets a run of partitions."""

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
    """Per topic: partitions by number, members by id, runs of equal length; where that doesn't come
    out even the first members have one more. With many small topics the first members get most."""

    name = "range"

    def assign(
        self, cluster: ClusterMetadata, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        """See the class."""
        given: dict[str, list[tuple[str, int]]] = {member: [] for member in members}
        for topic in {topic for one in members.values() for topic in one.subscription}:
            partitions = sorted(cluster.partitions_for_topic(topic) or ())
            takers = sorted(name for name, one in members.items() if topic in one.subscription)
            each, more = divmod(len(partitions), len(takers))
            start = 0
            for number, taker in enumerate(takers):
                end = start + each + (number < more)
                given[taker] += [(topic, partition) for partition in partitions[start:end]]
                start = end
        return {member: by_topic(partitions) for member, partitions in given.items()}

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        """Only the topics."""
        return ConsumerProtocolMemberMetadata(0, list(topics), b"")

    def on_assignment(self, assignment: ConsumerProtocolMemberAssignment) -> None:
        """Nothing to remember."""
