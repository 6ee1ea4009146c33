"""The base class of assignors.

Each consumer makes an instance of its own of each class that `partition_assignment_strategy` names,
so an assignor may keep state; class methods do as well.
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
    """What an assignor can ask about the cluster."""

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """The partitions of a topic that a member has subscribed to; None: there is none."""

    def topics(self) -> set[str]:
        """The topics that members have subscribed to and that exist."""


class AbstractPartitionAssignor(abc.ABC):
    """Divides partitions among the members of a group; runs at the leader.

    All members must have an assignor of the same `name`. They may be Java's: these come with the
    names "range", "roundrobin", "sticky" and "cooperative-sticky" (not here: it needs members that
    revoke in two steps).
    """

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """What members agree on."""

    @abc.abstractmethod
    def assign(
        self, cluster: ClusterMetadata, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> Mapping[str, ConsumerProtocolMemberAssignment]:
        """Who gets what: member id → assignment; members that are left out get nothing."""

    @abc.abstractmethod
    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        """What this member tells the leader; `topics` are those it has subscribed to."""

    @abc.abstractmethod
    def on_assignment(self, assignment: ConsumerProtocolMemberAssignment) -> None:
        """What this member has got, after each rebalance."""

    def on_generation_assignment(self, generation: int) -> None:  # noqa: B027
        """The generation that `on_assignment` was about."""


def by_topic(
    partitions: Iterable[tuple[str, int]],
) -> ConsumerProtocolMemberAssignment:
    """An assignment of these partitions, sorted."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return ConsumerProtocolMemberAssignment(0, list(topics.items()), b"")
