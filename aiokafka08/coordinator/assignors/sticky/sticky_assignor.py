"""The sticky assignor: balance like roundrobin, but move as few partitions as possible.

Members put their previous partitions into the user data, in the format of Java's sticky assignor.
Version 0 has the partitions, version 1 adds the generation after them. This assignor reads both and
writes version 1; a leader that knows only version 0 ignores the generation. So a group may mix
Java's consumers and this client's, and a consumer of either client may lead the group. For the
callers and the contract of `assign` see `abstract`.

Invariant: a partition moves to another member in three cases only: its previous member has left or
unsubscribed, another member claims it with a later generation, or the move makes the members' loads
more even.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from aiokafka08.coordinator.assignors.abstract import (
    AbstractPartitionAssignor,
    ClusterMetadata,
    by_topic,
)
from aiokafka08.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from aiokafka08.errors import KafkaProtocolError
from aiokafka08.protocol.api import Topic
from aiokafka08.protocol.types import Buffer, Int32, compiled
from aiokafka08.structs import TopicPartition

NO_GENERATION = -1


@dataclass(slots=True)
class _OwnedPartitionsStruct:
    topics: list[Topic[Int32]]


class StickyPartitionAssignor(AbstractPartitionAssignor):
    """Leaves partitions with their previous members, and moves some to balance the members.

    A partition moves only to a member that has at least two partitions fewer. If all members have
    subscribed to the same topics, the members' partition counts differ by at most one.
    """

    name = "sticky"

    def __init__(self) -> None:
        self._owned: list[TopicPartition] | None = None
        self._generation = NO_GENERATION

    def assign(
        self, cluster: ClusterMetadata, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        """See the class."""
        wanted = {name: frozenset(members[name].subscription) for name in sorted(members)}
        existing = {
            topic: cluster.partitions_for_topic(topic) or set()
            for topic in sorted(frozenset().union(*wanted.values()))
        }
        owners = _previous_owners(members, wanted, existing)
        shares = {name: _MemberShare() for name in wanted}
        for partition, owner in owners.items():
            shares[owner].add(*partition)
        subscribers = {
            topic: [name for name, topics in wanted.items() if topic in topics]
            for topic in existing
        }
        for topic, numbers in existing.items():
            for number in sorted(numbers):
                if TopicPartition(topic, number) not in owners:
                    shares[_least_loaded(shares, subscribers[topic])].add(topic, number)
        while _move_one(shares, subscribers):
            pass
        return {
            member: by_topic(
                (topic, number) for topic, numbers in share.topics.items() for number in numbers
            )
            for member, share in shares.items()
        }

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        """Return the topics, and this member's previous partitions as user data."""
        user_data = b"" if self._owned is None else encode_previous(self._owned, self._generation)
        return ConsumerProtocolMemberMetadata(0, list(topics), user_data)

    def on_assignment(self, assignment: ConsumerProtocolMemberAssignment) -> None:
        """Remember the partitions for the next rebalance."""
        self._owned = assignment.partitions()

    def on_generation_assignment(self, generation: int) -> None:
        """Remember the generation: of two claims to a partition, the later generation wins."""
        self._generation = generation


def encode_previous(partitions: Iterable[TopicPartition], generation: int) -> bytes:
    """Return the user data of a member that owned these partitions."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    out: list[Buffer] = []
    previous = _OwnedPartitionsStruct([Topic(topic, numbers) for topic, numbers in topics.items()])
    compiled(_OwnedPartitionsStruct, 0).write(previous, out)
    compiled(Int32, 0).write(generation, out)
    return b"".join(out)


def decode_previous(user_data: Buffer) -> tuple[list[TopicPartition], int]:
    """Return a member's previous partitions, and their generation.

    Raises:
        KafkaProtocolError: the bytes can't be decoded.
    """
    if not len(user_data):
        return [], NO_GENERATION
    end = len(user_data)
    previous, pos = compiled(_OwnedPartitionsStruct, 0).read(user_data, 0, end)
    generation = NO_GENERATION
    if pos < end:
        generation, _ = compiled(Int32, 0).read(user_data, pos, end)
    owned = [
        TopicPartition(one.topic, number) for one in previous.topics for number in one.partitions
    ]
    return owned, generation


def _previous_owners(
    members: Mapping[str, ConsumerProtocolMemberMetadata],
    wanted: Mapping[str, Collection[str]],
    existing: Mapping[str, Collection[int]],
) -> dict[TopicPartition, str]:
    """Return the member that keeps each partition; undecodable user data claims nothing."""
    owners: dict[TopicPartition, tuple[int, str]] = {}
    for name, topics in wanted.items():
        try:
            previous, generation = decode_previous(members[name].user_data)
        except KafkaProtocolError:
            continue
        for partition in previous:
            exists = partition.topic in topics and partition.partition in existing[partition.topic]
            if exists and owners.get(partition, (NO_GENERATION - 1, ""))[0] < generation:
                owners[partition] = (generation, name)
    return {partition: owner for partition, (_, owner) in owners.items()}


class _MemberShare:
    """The partitions of one member by topic; `size` is their number."""

    __slots__ = ("size", "topics")

    def __init__(self) -> None:
        self.size = 0
        self.topics: dict[str, list[int]] = {}

    def add(self, topic: str, number: int) -> None:
        self.topics.setdefault(topic, []).append(number)
        self.size += 1

    def pop(self, topic: str) -> int:
        """Remove the last partition of a topic and return its number."""
        numbers = self.topics[topic]
        number = numbers.pop()
        if not numbers:
            del self.topics[topic]
        self.size -= 1
        return number


def _least_loaded(shares: Mapping[str, _MemberShare], names: Iterable[str]) -> str:
    return min(names, key=lambda name: (shares[name].size, name))


def _move_one(
    shares: Mapping[str, _MemberShare], subscribers: Mapping[str, Collection[str]]
) -> bool:
    """Move one partition to a member with at least two fewer; return False if there is none."""
    for name in sorted(shares, key=lambda one: (-shares[one].size, one)):
        share = shares[name]
        for topic in share.topics:
            target = shares[_least_loaded(shares, subscribers[topic])]
            if share.size - target.size >= 2:
                target.add(topic, share.pop(topic))
                return True
    return False
