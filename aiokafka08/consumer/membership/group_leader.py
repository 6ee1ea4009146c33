"""The leader's work: who gets what, by the assignor that all members share.

Pure. Law: what goes out gives each partition to one member at most, whatever an assignor of the
user's own returns; a member whose metadata can't be read gets nothing and stops nobody else.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping

from aiokafka08.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka08.coordinator.assignors.range import RangePartitionAssignor
from aiokafka08.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka08.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from aiokafka08.errors import IllegalArgumentError, KafkaConfigurationError, KafkaProtocolError
from aiokafka08.protocol.api import JoinedMember, MemberAssignment
from aiokafka08.structs import TopicPartition

_log = logging.getLogger("aiokafka08.consumer")

DEFAULT_STRATEGIES = (RoundRobinPartitionAssignor, RangePartitionAssignor)
"""aiokafka's default, and behind it Java's: a group of either kind can be joined."""

Members = Mapping[str, ConsumerProtocolMemberMetadata]


class Cluster:
    """What an assignor is told of the cluster."""

    def __init__(self, partitions: Mapping[str, Collection[int]]) -> None:
        self._partitions = partitions

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """See `ClusterMetadata`."""
        return set(self._partitions.get(topic, ())) or None

    def topics(self) -> set[str]:
        """See `ClusterMetadata`."""
        return {topic for topic, numbers in self._partitions.items() if numbers}


def make_assignors(strategies: Iterable[object]) -> dict[str, AbstractPartitionAssignor]:
    """An assignor of each of these classes (or the object itself), by name, in order.

    Raises:
        IllegalArgumentError: one isn't an assignor, or two have the same name.
    """
    assignors: dict[str, AbstractPartitionAssignor] = {}
    for strategy in tuple(strategies) or DEFAULT_STRATEGIES:
        assignor = strategy
        if isinstance(strategy, type) and issubclass(strategy, AbstractPartitionAssignor):
            try:
                assignor = strategy()
            except TypeError as error:
                raise IllegalArgumentError(
                    f"partition_assignment_strategy: {strategy.__name__}: {error}"
                ) from error
        if not isinstance(assignor, AbstractPartitionAssignor):
            raise IllegalArgumentError(
                f"partition_assignment_strategy has {strategy!r}: allowed are classes derived from "
                "aiokafka08.coordinator.assignors.abstract.AbstractPartitionAssignor"
            )
        if assignor.name in assignors:
            raise IllegalArgumentError(
                f"partition_assignment_strategy has two of the name {assignor.name!r}"
            )
        assignors[assignor.name] = assignor
    return assignors


def read_members(group: str, members: Iterable[JoinedMember]) -> Members:
    """What the members want, of those that can be understood."""
    wanted = {}
    for member in members:
        try:
            wanted[member.member] = ConsumerProtocolMemberMetadata.decode(member.metadata)
        except KafkaProtocolError as error:
            _log.warning(
                "group %r: member %r gets nothing, it can't be understood: %s",
                group,
                member.member,
                error,
            )
    return wanted


def divide(
    assignor: AbstractPartitionAssignor, members: Members, partitions: Mapping[str, Collection[int]]
) -> list[MemberAssignment]:
    """What goes into the leader's SyncGroup.

    Args:
        members: what they want.
        partitions: of all topics that some member has subscribed to.

    Raises:
        KafkaConfigurationError: the assignor gives a partition twice, or to nobody that is there.
        Exception: what an assignor of the user's own raises.
    """
    given = assignor.assign(Cluster(partitions), members)
    owners: dict[TopicPartition, str] = {}
    for member, assignment in given.items():
        if member not in members:
            raise KafkaConfigurationError(
                f"the assignor {assignor.name!r} gives to {member!r}, who isn't in the group"
            )
        for partition in assignment.partitions():
            other = owners.setdefault(partition, member)
            if other != member:
                raise KafkaConfigurationError(
                    f"the assignor {assignor.name!r} gives {partition} to {other!r} and to "
                    f"{member!r}"
                )
    nothing = ConsumerProtocolMemberAssignment(0, [], b"")
    return [MemberAssignment(member, given.get(member, nothing).encode()) for member in members]
