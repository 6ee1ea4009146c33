"""The sticky assignor: balance like roundrobin, but move as few partitions as possible.

Members put their previous partitions into the user data, in the format of Java's sticky assignor,
so a group may mix Java's consumers and this client's.

Invariant: a partition moves to another member in three cases only: its previous member has left or
unsubscribed, another member claims it with a later generation, or the move makes the members' loads
more even. No two members exchange partitions of one topic.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MethodType
from typing import TYPE_CHECKING, Any, Final

from aiokafka08.coordinator.assignors.abstract import (
    AbstractPartitionAssignor,
    ClusterMetadata,
    by_topic,
)
from aiokafka08.coordinator.assignors.sticky.partition_movements import PartitionMovements
from aiokafka08.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from aiokafka08.errors import KafkaProtocolError
from aiokafka08.protocol.api import Topic
from aiokafka08.protocol.types import Buffer, Int32, compiled
from aiokafka08.structs import TopicPartition

if TYPE_CHECKING:
    from builtins import classmethod as class_or_instance_method
else:

    class class_or_instance_method(classmethod):
        """A class method that binds to the instance if it is called on one."""

        def __get__(self, instance: object, owner: type | None = None) -> Any:
            return MethodType(self.__func__, owner if instance is None else instance)


NO_GENERATION: Final = -1


@dataclass(slots=True)
class _OwnedPartitionsStruct:
    topics: list[Topic[Int32]]


class StickyPartitionAssignor(AbstractPartitionAssignor):
    """Leaves partitions with their previous members, and moves some to balance the members.

    To balance, a partition moves only to a member that has at least two partitions fewer. If all
    members have subscribed to the same topics, the members' partition counts differ by at most one.

    A member sends `member_assignment` and `generation` to the next leader. Each consumer has its
    own values, because it calls the methods on an instance. Calls on the class set the values of
    the class, as in aiokafka; so do class methods that override these methods and call `super()`.
    An instance without its own value uses that of the class.
    """

    name = "sticky"
    version = 0

    member_assignment: list[TopicPartition] | None = None
    generation = NO_GENERATION

    @class_or_instance_method
    def assign(
        cls, cluster: ClusterMetadata, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        wanted = {name: frozenset(members[name].subscription) for name in sorted(members)}
        existing = {
            topic: cluster.partitions_for_topic(topic) or set()
            for topic in sorted(frozenset().union(*wanted.values()))
        }
        subscribers = {
            topic: [name for name, topics in wanted.items() if topic in topics]
            for topic in existing
        }
        claimants = _claimants(members, wanted, existing)
        shares = {name: _MemberShare() for name in wanted}
        # The member with the latest claim owns a partition.
        for partition, (owner, *_) in claimants.items():
            shares[owner].add(*partition)
        # Topics with few subscribers first, because the others have more choice.
        for topic in sorted(existing, key=lambda topic: (len(subscribers[topic]), topic)):
            for number in sorted(existing[topic]):
                if TopicPartition(topic, number) not in claimants:
                    shares[_least_loaded(shares, subscribers[topic])].add(topic, number)
        # A member that was away claims what it owned in an earlier generation. An owner with too
        # many partitions first gives back those that another member claims.
        _return_to_earlier_claimants(shares, claimants)
        # Each move is to a member that has at least two partitions fewer, so this ends.
        while _move_one(shares, subscribers):
            pass
        _undo_exchanges(shares, claimants)
        return {
            member: by_topic(cls.version, share.partitions()) for member, share in shares.items()
        }

    @class_or_instance_method
    def metadata(cls, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        """Return the topics, and this member's previous partitions as user data."""
        return cls._metadata(topics, cls.member_assignment, cls.generation)

    @classmethod
    def _metadata(
        cls,
        topics: Iterable[str],
        partitions: Iterable[TopicPartition] | None,
        generation: int = NO_GENERATION,
    ) -> ConsumerProtocolMemberMetadata:
        user_data = b"" if partitions is None else encode_previous(partitions, generation)
        return ConsumerProtocolMemberMetadata(cls.version, list(topics), user_data)

    @class_or_instance_method
    def on_assignment(cls, assignment: ConsumerProtocolMemberAssignment) -> None:
        """Remember the partitions for the next rebalance."""
        cls.member_assignment = assignment.partitions()

    @class_or_instance_method
    def on_generation_assignment(cls, generation: int) -> None:
        """Remember the generation: of two claims to a partition, the later generation wins."""
        cls.generation = generation


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
        TopicPartition(topic.topic, number)
        for topic in previous.topics
        for number in topic.partitions
    ]
    return owned, generation


def _claimants(
    members: Mapping[str, ConsumerProtocolMemberMetadata],
    wanted: Mapping[str, Collection[str]],
    existing: Mapping[str, Collection[int]],
) -> dict[TopicPartition, list[str]]:
    """Return the members that claim each partition, the latest generation first.

    If two members claim a partition with the same generation, the first member wins. Undecodable
    user data claims nothing.
    """
    claims: dict[TopicPartition, dict[int, str]] = {}
    for name, topics in wanted.items():
        try:
            previous, generation = decode_previous(members[name].user_data)
        except KafkaProtocolError:
            continue
        for partition in previous:
            if partition.topic in topics and partition.partition in existing[partition.topic]:
                claims.setdefault(partition, {}).setdefault(generation, name)
    return {
        partition: [names[generation] for generation in sorted(names, reverse=True)]
        for partition, names in claims.items()
    }


class _MemberShare:
    """The partitions of one member by topic; `size` is their number."""

    __slots__ = ("size", "topics")

    def __init__(self) -> None:
        self.size = 0
        self.topics: dict[str, dict[int, None]] = {}

    def add(self, topic: str, number: int) -> None:
        self.topics.setdefault(topic, {})[number] = None
        self.size += 1

    def remove(self, topic: str, number: int) -> None:
        numbers = self.topics[topic]
        del numbers[number]
        if not numbers:
            del self.topics[topic]
        self.size -= 1

    def last(self, topic: str) -> int:
        """Return the partition of a topic that was added last."""
        return next(reversed(self.topics[topic]))

    def partitions(self) -> list[TopicPartition]:
        return [
            TopicPartition(topic, number)
            for topic, numbers in self.topics.items()
            for number in numbers
        ]


def _move(old: _MemberShare, new: _MemberShare, topic: str, number: int) -> None:
    old.remove(topic, number)
    new.add(topic, number)


def _least_loaded(shares: Mapping[str, _MemberShare], names: Iterable[str]) -> str:
    return min(names, key=lambda name: (shares[name].size, name))


def _return_to_earlier_claimants(
    shares: Mapping[str, _MemberShare], claimants: Mapping[TopicPartition, list[str]]
) -> None:
    """Move partitions to the members with the second latest claim, where it balances the loads."""
    for partition, names in claimants.items():
        if len(names) > 1 and shares[names[0]].size - shares[names[1]].size >= 2:
            _move(shares[names[0]], shares[names[1]], *partition)


def _move_one(
    shares: Mapping[str, _MemberShare], subscribers: Mapping[str, Collection[str]]
) -> bool:
    """Move one partition to a member with at least two fewer; return False if there is none."""
    for name in sorted(shares, key=lambda name: (-shares[name].size, name)):
        share = shares[name]
        for topic in share.topics:
            target = shares[_least_loaded(shares, subscribers[topic])]
            if share.size - target.size >= 2:
                _move(share, target, topic, share.last(topic))
                return True
    return False


def _undo_exchanges(
    shares: Mapping[str, _MemberShare], claimants: Mapping[TopicPartition, list[str]]
) -> None:
    """Give back what two members have exchanged."""
    movements = PartitionMovements()
    for name, share in shares.items():
        for partition in share.partitions():
            movements.move_partition(partition, claimants.get(partition, [name])[0], name)
    for tp_a, owner_a, tp_b, owner_b in movements.exchanges():
        for partition, old, new in ((tp_a, owner_b, owner_a), (tp_b, owner_a, owner_b)):
            _move(shares[old], shares[new], *partition)
            movements.move_partition(partition, old, new)
