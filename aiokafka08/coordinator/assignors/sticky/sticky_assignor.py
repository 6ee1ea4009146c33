"""Members keep what they had: as even as roundrobin, with the fewest moves.

Members say in their user data what they had, in the layout of Java's assignor of the same name:
version 0 has the partitions, version 1 the generation behind them. Both are read, and version 1 is
written, which readers of version 0 read as theirs. A leader of either kind divides for members of
the other.
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
class _Previous:
    topics: list[Topic[Int32]]


class StickyPartitionAssignor(AbstractPartitionAssignor):
    """Loads differ by one at most where all have subscribed to the same, and no partition moves
    unless that makes them more even."""

    name = "sticky"

    def __init__(self) -> None:
        self._had: list[TopicPartition] | None = None
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
        shares = {name: _Share() for name in wanted}
        for partition, owner in owners.items():
            shares[owner].add(*partition)
        takers = {
            topic: [name for name, topics in wanted.items() if topic in topics]
            for topic in existing
        }
        for topic, numbers in existing.items():
            for number in sorted(numbers):
                if TopicPartition(topic, number) not in owners:
                    shares[_least(shares, takers[topic])].add(topic, number)
        while _even_out(shares, takers):
            pass
        return {
            member: by_topic(
                (topic, number) for topic, numbers in share.topics.items() for number in numbers
            )
            for member, share in shares.items()
        }

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        """The topics, and what this member had."""
        user_data = b"" if self._had is None else encode_previous(self._had, self._generation)
        return ConsumerProtocolMemberMetadata(0, list(topics), user_data)

    def on_assignment(self, assignment: ConsumerProtocolMemberAssignment) -> None:
        """To be kept the next time."""
        self._had = assignment.partitions()

    def on_generation_assignment(self, generation: int) -> None:
        """Of claims to one partition that of the later generation holds."""
        self._generation = generation


def encode_previous(partitions: Iterable[TopicPartition], generation: int) -> bytes:
    """The user data of a member that had these."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    out: list[Buffer] = []
    previous = _Previous([Topic(topic, numbers) for topic, numbers in topics.items()])
    compiled(_Previous, 0).write(previous, out)
    compiled(Int32, 0).write(generation, out)
    return b"".join(out)


def decode_previous(user_data: Buffer) -> tuple[list[TopicPartition], int]:
    """What a member had, and in which generation.

    Raises:
        KafkaProtocolError: it can't be read.
    """
    if not len(user_data):
        return [], NO_GENERATION
    end = len(user_data)
    previous, pos = compiled(_Previous, 0).read(user_data, 0, end)
    generation = NO_GENERATION
    if pos < end:
        generation, _ = compiled(Int32, 0).read(user_data, pos, end)
    had = [
        TopicPartition(one.topic, number) for one in previous.topics for number in one.partitions
    ]
    return had, generation


def _previous_owners(
    members: Mapping[str, ConsumerProtocolMemberMetadata],
    wanted: Mapping[str, Collection[str]],
    existing: Mapping[str, Collection[int]],
) -> dict[TopicPartition, str]:
    """Who may keep what; user data that can't be read counts as none."""
    owners: dict[TopicPartition, tuple[int, str]] = {}
    for name, topics in wanted.items():
        try:
            had, generation = decode_previous(members[name].user_data)
        except KafkaProtocolError:
            continue
        for partition in had:
            known = partition.topic in topics and partition.partition in existing[partition.topic]
            if known and owners.get(partition, (NO_GENERATION - 1, ""))[0] < generation:
                owners[partition] = (generation, name)
    return {partition: owner for partition, (_, owner) in owners.items()}


class _Share:
    """What one member is given; `size` is the number of its partitions."""

    __slots__ = ("size", "topics")

    def __init__(self) -> None:
        self.size = 0
        self.topics: dict[str, list[int]] = {}

    def add(self, topic: str, number: int) -> None:
        self.topics.setdefault(topic, []).append(number)
        self.size += 1

    def pop(self, topic: str) -> int:
        """Take the partition of a topic away that came last."""
        numbers = self.topics[topic]
        number = numbers.pop()
        if not numbers:
            del self.topics[topic]
        self.size -= 1
        return number


def _least(shares: Mapping[str, _Share], names: Iterable[str]) -> str:
    return min(names, key=lambda name: (shares[name].size, name))


def _even_out(shares: Mapping[str, _Share], takers: Mapping[str, Collection[str]]) -> bool:
    """Move one partition from a member to one that has two fewer, or more; False: none is left."""
    for name in sorted(shares, key=lambda one: (-shares[one].size, one)):
        share = shares[name]
        for topic in share.topics:
            least = shares[_least(shares, takers[topic])]
            if share.size - least.size >= 2:
                least.add(topic, share.pop(topic))
                return True
    return False
