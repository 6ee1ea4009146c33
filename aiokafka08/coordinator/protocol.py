"""The protocol type "consumer": what members tell the leader, and what the leader gives them.

Brokers pass these bytes on unread. Law: version 0 is written, as the Java consumers of 0.9 to 3.9
understand it; of any version the fields of version 0 are read, which come first, and what follows
is ignored (owned partitions from 1 on, the generation from 2, the rack from 3).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, Self

from aiokafka08.errors import KafkaProtocolError
from aiokafka08.protocol.api import Topic
from aiokafka08.protocol.types import Buffer, Int16, Int32, Sized, String, compiled
from aiokafka08.structs import TopicPartition

PROTOCOL_TYPE = "consumer"

NullableBytes = Annotated[Buffer | None, Sized("i", text=False, nullable=True)]


@dataclass(slots=True)
class _Subscription:
    version: Int16
    topics: list[String]
    user_data: NullableBytes


@dataclass(slots=True)
class _Assignment:
    version: Int16
    topics: list[Topic[Int32]]
    user_data: NullableBytes


@dataclass(slots=True)
class ConsumerProtocolMemberMetadata:
    """What a member wants; `user_data` is its assignor's."""

    version: int
    subscription: Sequence[str]
    user_data: bytes

    def encode(self) -> bytes:
        """As version 0."""
        return _encoded(_Subscription(0, list(self.subscription), self.user_data))

    @classmethod
    def decode(cls, data: Buffer) -> Self:
        """From any version.

        Raises:
            KafkaProtocolError: it can't be read.
        """
        read = _decoded(_Subscription, data)
        return cls(read.version, read.topics, bytes(read.user_data or b""))


class Assignment(NamedTuple):
    """Partitions of one topic."""

    topic: str
    partitions: Sequence[int]


@dataclass(slots=True)
class ConsumerProtocolMemberAssignment:
    """What a member gets: pairs of a topic and numbers of partitions."""

    version: int
    assignment: Iterable[Assignment | tuple[str, Sequence[int]]]
    user_data: bytes

    def __post_init__(self) -> None:
        self.assignment = list(self.assignment)  # it is gone through more than once

    def partitions(self) -> list[TopicPartition]:
        """All of it."""
        return [
            TopicPartition(topic, partition)
            for topic, partitions in self.assignment
            for partition in partitions
        ]

    def encode(self) -> bytes:
        """As version 0."""
        topics = [Topic(topic, list(partitions)) for topic, partitions in self.assignment]
        return _encoded(_Assignment(0, topics, self.user_data))

    @classmethod
    def decode(cls, data: Buffer) -> Self:
        """From any version; nothing at all means no partitions.

        Raises:
            KafkaProtocolError: it can't be read.
        """
        if not len(data):
            return cls(0, [], b"")
        read = _decoded(_Assignment, data)
        topics = [Assignment(one.topic, one.partitions) for one in read.topics]
        return cls(read.version, topics, bytes(read.user_data or b""))


def _encoded(value: _Subscription | _Assignment) -> bytes:
    out: list[Buffer] = []
    compiled(type(value), 0).write(value, out)
    return b"".join(out)


def _decoded(struct: type[Any], data: Buffer) -> Any:
    value, _ = compiled(struct, 0).read(data, 0, len(data))
    if value.version < 0:
        raise KafkaProtocolError(f"the consumer protocol in version {value.version}")
    return value
