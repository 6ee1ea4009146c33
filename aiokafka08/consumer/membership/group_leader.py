"""The work of a group's leader: decode what the members want and run the assignor.

Pure, except for a log line.

Invariant: no assignment that `assign_members` returns gives a partition to two members. If an
assignor does so, `assign_members` raises KafkaConfigurationError. A member whose metadata can't be
decoded gets no partitions and doesn't affect the others.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from aiokafka08.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka08.coordinator.assignors.range import RangePartitionAssignor
from aiokafka08.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka08.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from aiokafka08.errors import IllegalArgumentError, KafkaConfigurationError, KafkaProtocolError
from aiokafka08.protocol.requests.groups import JoinedMember, MemberAssignment
from aiokafka08.structs import TopicPartition

_log: Final = logging.getLogger("aiokafka08.consumer")

DEFAULT_STRATEGIES: Final = (RoundRobinPartitionAssignor, RangePartitionAssignor)
"""aiokafka's default, then Java's, so that the consumer can join a group of either client."""


class SubscribedTopics:
    """The part of the cluster metadata that an assignor sees (`ClusterMetadata`)."""

    def __init__(self, partitions: Mapping[str, Collection[int]]) -> None:
        self._partitions = partitions

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return set(self._partitions.get(topic, ())) or None

    def topics(self) -> set[str]:
        return {topic for topic, numbers in self._partitions.items() if numbers}


def make_assignors(strategies: Iterable[object]) -> dict[str, AbstractPartitionAssignor]:
    """Return the assignors by name, in order: an instance of each class, or the instance given.

    Raises IllegalArgumentError for something else, or for two assignors of one name.
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
                f"partition_assignment_strategy contains {strategy!r}; expected classes derived "
                "from aiokafka08.coordinator.assignors.abstract.AbstractPartitionAssignor"
            )
        if assignor.name in assignors:
            raise IllegalArgumentError(
                f"partition_assignment_strategy contains two assignors named {assignor.name!r}; "
                "expected different names"
            )
        assignors[assignor.name] = assignor
    return assignors


def decode_members(
    client_id: str, group: str, members: Iterable[JoinedMember]
) -> dict[str, ConsumerProtocolMemberMetadata]:
    """Return the metadata of the members by id; leave out those that can't be decoded."""
    decoded = {}
    for member in members:
        try:
            decoded[member.member] = ConsumerProtocolMemberMetadata.decode(member.metadata)
        except KafkaProtocolError as error:
            _log.warning(
                "%s: group %r: member %r gets no partitions: its metadata can't be decoded: %s",
                client_id,
                group,
                member.member,
                error,
            )
    return decoded


def assign_members(
    assignor: AbstractPartitionAssignor,
    members: Mapping[str, ConsumerProtocolMemberMetadata],
    partitions: Mapping[str, Collection[int]],
) -> list[MemberAssignment]:
    """Run the assignor and return the assignments for the leader's SyncGroup.

    Raises:
        KafkaConfigurationError: the assignor assigned a partition to two members, or to an unknown
            one.
        Exception: what the user's own assignor raises.
    """
    assignments = assignor.assign(SubscribedTopics(partitions), members)
    owners: dict[TopicPartition, str] = {}
    for member, assignment in assignments.items():
        if member not in members:
            raise KafkaConfigurationError(
                f"assignor {assignor.name!r} assigned partitions to {member!r}, which isn't in the "
                "group; expected members of the group"
            )
        for partition in assignment.partitions():
            owner = owners.setdefault(partition, member)
            if owner != member:
                raise KafkaConfigurationError(
                    f"assignor {assignor.name!r} assigned {partition} to {owner!r} and to "
                    f"{member!r}; expected one owner for each partition"
                )
    nothing = ConsumerProtocolMemberAssignment(0, [], b"")
    return [
        MemberAssignment(member, assignments.get(member, nothing).encode()) for member in members
    ]
