"""Encode and decode the protocol type "consumer": members' subscriptions and assignments.

A member sends its metadata to the leader, and the leader sends an assignment to each member;
brokers pass both on as opaque bytes.

Invariant: these classes write version 0, which the Java consumers of 0.9 to 3.9 understand. They
read the fields of version 0 from every version, because every version begins with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, NamedTuple, Self

from aiokafka08.errors import KafkaProtocolError
from aiokafka08.protocol.api import Topic
from aiokafka08.protocol.types import Buffer, Int16, Int32, Sized, String, compiled
from aiokafka08.structs import TopicPartition

PROTOCOL_TYPE: Final = "consumer"

NullableBytes = Annotated[Buffer | None, Sized("i", text=False, nullable=True)]


@dataclass(slots=True)
class _SubscriptionStruct:
    version: Int16
    topics: list[String]
    user_data: NullableBytes


@dataclass(slots=True)
class _AssignmentStruct:
    version: Int16
    topics: list[Topic[Int32]]
    user_data: NullableBytes


@dataclass(slots=True)
class ConsumerProtocolMemberMetadata:
    """A member's subscription, and `user_data` for its assignor."""

    version: int
    subscription: Sequence[str]
    user_data: bytes

    def encode(self) -> bytes:
        return _encode(_SubscriptionStruct(0, list(self.subscription), self.user_data))

    @classmethod
    def decode(cls, data: Buffer) -> Self:
        """Decode any version; raise KafkaProtocolError if the data is invalid."""
        read = _decode(_SubscriptionStruct, data)
        return cls(read.version, read.topics, bytes(read.user_data or b""))


class Assignment(NamedTuple):
    """Partitions of one topic."""

    topic: str
    partitions: Sequence[int]


@dataclass(slots=True)
class ConsumerProtocolMemberAssignment:
    """A member's partitions: pairs of a topic and partition numbers."""

    version: int
    assignment: Iterable[Assignment | tuple[str, Sequence[int]]]
    user_data: bytes

    def __post_init__(self) -> None:
        self.assignment = list(self.assignment)  # an iterator could be read only once

    def partitions(self) -> list[TopicPartition]:
        return [
            TopicPartition(topic, partition)
            for topic, partitions in self.assignment
            for partition in partitions
        ]

    def encode(self) -> bytes:
        topics = [Topic(topic, list(partitions)) for topic, partitions in self.assignment]
        return _encode(_AssignmentStruct(0, topics, self.user_data))

    @classmethod
    def decode(cls, data: Buffer) -> Self:
        """Decode any version; raise KafkaProtocolError if the data is invalid."""
        if not len(data):
            # A member without partitions may get no bytes at all.
            return cls(0, [], b"")
        read = _decode(_AssignmentStruct, data)
        topics = [Assignment(topic.topic, topic.partitions) for topic in read.topics]
        return cls(read.version, topics, bytes(read.user_data or b""))


def _encode(value: _SubscriptionStruct | _AssignmentStruct) -> bytes:
    out: list[Buffer] = []
    compiled(type(value), 0).write(value, out)
    return b"".join(out)


def _decode(struct: type[Any], data: Buffer) -> Any:
    # Later versions add owned partitions (1), the generation (2) and the rack (3) after these
    # fields.
    value, _ = compiled(struct, 0).read(data, 0, len(data))
    if value.version < 0:
        raise KafkaProtocolError(f"consumer protocol: version {value.version}; expected 0 or more")
    return value
