"""The base class of assignors, which divide the partitions among the members of a group.

Invariant: `assign` gives each partition to at most one member. The assignors of this package give
each partition of a subscribed topic to exactly one member, which has subscribed to that topic.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable, Mapping
from typing import Protocol

from aiokafka08.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)


class ClusterMetadata(Protocol):
    """What an assignor knows about the cluster."""

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the partitions of a subscribed topic; None if it has none."""

    def topics(self) -> set[str]:
        """Return the topics that exist and that at least one member has subscribed to."""


# Class methods, as in aiokafka. Each consumer makes its own instance of each class and calls the
# methods on that, so a user's assignor may define plain methods too, and keep state.
class AbstractPartitionAssignor(abc.ABC):
    """Divides the partitions among the members of a group; the leader runs it.

    The coordinator chooses an assignor that all members have, by its `name`; members without a
    common one can't form a group. Java's consumers come with "range", "roundrobin", "sticky" and
    "cooperative-sticky". The last isn't supported here, because its members revoke in two steps.
    """

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The name by which the members agree on an assignor."""

    @classmethod
    @abc.abstractmethod
    def assign(
        cls, cluster: ClusterMetadata, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> Mapping[str, ConsumerProtocolMemberAssignment]:
        """Return the assignment by member id; members that are left out get no partitions.

        The leader raises KafkaConfigurationError if a partition has two members, or if a member id
        isn't in `members`. A member doesn't read partitions of topics that it hasn't subscribed to.
        The result need not be deterministic: only the leader computes it.
        """

    @classmethod
    @abc.abstractmethod
    def metadata(cls, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        """Return what this member sends to the leader; `topics` are its subscription."""

    @classmethod
    @abc.abstractmethod
    def on_assignment(cls, assignment: ConsumerProtocolMemberAssignment) -> None:
        """React to this member's assignment, after each rebalance."""

    @classmethod  # noqa: B027
    def on_generation_assignment(cls, generation: int) -> None:
        """React to the generation of an assignment; called right after `on_assignment`."""


def by_topic(
    version: int, partitions: Iterable[tuple[str, int]]
) -> ConsumerProtocolMemberAssignment:
    """Return an assignment of these partitions, sorted."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return ConsumerProtocolMemberAssignment(version, list(topics.items()), b"")
