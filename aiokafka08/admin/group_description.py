"""`GroupDescriptions`, the result of `describe_consumer_groups`.

Groups and members are named tuples, with the items of aiokafka's tuples in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from aiokafka08.coordinator.protocol import ConsumerProtocolMemberAssignment
from aiokafka08.errors import KafkaProtocolError
from aiokafka08.protocol.requests.groups import DescribedGroup
from aiokafka08.structs import TopicPartition


def assigned_partitions(assignment: bytes) -> list[TopicPartition]:
    """Return the partitions of a member's assignment; an unreadable one counts as none."""
    try:
        return ConsumerProtocolMemberAssignment.decode(assignment).partitions()
    except KafkaProtocolError:
        # The protocols of groups other than consumer groups have another format.
        return []


class MemberDescription(NamedTuple):
    """A member of a group.

    `aiokafka08.coordinator.protocol` decodes `member_metadata`, which has the subscription, and
    `member_assignment`. Client id and host are "" for groups in ZooKeeper.
    """

    member_id: str
    client_id: str
    client_host: str
    member_metadata: bytes
    member_assignment: bytes


def member_row(member: MemberDescription) -> dict[str, Any]:
    """Return a member as a row for the commands' tables and the console's pages."""
    assigned = sorted(assigned_partitions(member.member_assignment))
    return {
        "member": member.member_id,
        "client_id": member.client_id,
        "host": member.client_host,
        "partitions": [f"{tp.topic}/{tp.partition}" for tp in assigned],
    }


class GroupDescription(NamedTuple):
    """A group with its members.

    `state` is the broker's word: "Stable", "Empty", "Dead", or the name of a rebalance's step.
    `protocol` is the name of the assignor. `error_code` is 0, since errors are raised.
    """

    error_code: int
    group: str
    state: str
    protocol_type: str
    protocol: str
    members: list[MemberDescription]


@dataclass(frozen=True, slots=True)
class GroupDescriptions:
    """The described groups of one coordinator."""

    groups: list[GroupDescription]

    @classmethod
    def of(cls, described: Iterable[DescribedGroup]) -> Self:
        """Return the description of groups that were received."""
        return cls(
            [
                GroupDescription(
                    group.error_code,
                    group.group,
                    group.state,
                    group.protocol_type,
                    group.protocol,
                    [
                        MemberDescription(
                            member.member,
                            member.client_id,
                            member.client_host,
                            bytes(member.metadata),
                            bytes(member.assignment),
                        )
                        for member in group.members
                    ],
                )
                for group in described
            ]
        )

    def to_object(self) -> dict[str, Any]:
        """Return dicts in place of the tuples."""
        return {
            "groups": [
                {**group._asdict(), "members": [member._asdict() for member in group.members]}
                for group in self.groups
            ]
        }
