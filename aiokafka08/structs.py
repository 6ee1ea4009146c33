"""The small values that callers give and get. Names, fields and order are those of aiokafka 0.14.

Law: plain data, no behaviour, no imports from the package. Errors live in `errors`, wire structs in
`protocol.api`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from aiokafka08.errors import KafkaError

KT = TypeVar("KT")
VT = TypeVar("VT")


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int


class BrokerMetadata(NamedTuple):
    """A broker as Metadata names it; `rack` is None before 0.10."""

    nodeId: int
    host: str
    port: int
    rack: str | None


class PartitionMetadata(NamedTuple):
    """A partition as Metadata describes it.

    `replicas` leaves out dead brokers and `isr` may be stale on 0.8 (brokers.md 4.7, 4.8): decide
    nothing on them. `leader` is -1 in an election.
    """

    topic: str
    partition: int
    leader: int
    replicas: list[int]
    isr: list[int]
    error: KafkaError | None


class OffsetAndMetadata(NamedTuple):
    """A committed offset: the next message to read, and a free string kept with it."""

    offset: int
    metadata: str


class OffsetAndTimestamp(NamedTuple):
    """An offset found by time; `timestamp` is None where the broker's line can't tell it."""

    offset: int
    timestamp: int | None


class RecordMetadata(NamedTuple):
    """Where a message went. `offset` is -1 where the broker was not asked (acks=0).

    `timestamp` is milliseconds since the epoch, None for message format 0. `timestamp_type` is 0
    for CreateTime, 1 for LogAppendTime, None for message format 0.
    """

    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    timestamp: int | None
    timestamp_type: int | None
    log_start_offset: int | None


@dataclass(slots=True)
class ConsumerRecord(Generic[KT, VT]):
    """A message as a consumer gets it.

    `timestamp` is milliseconds since the epoch and `timestamp_type` 0 (CreateTime) or 1
    (LogAppendTime); both are None for message format 0, which has no timestamps. `checksum` is the
    CRC-32 that the message carries. Sizes are bytes, -1 for null. `headers` is always empty:
    formats 0 and 1 have none.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int | None
    timestamp_type: int | None
    key: KT | None
    value: VT | None
    checksum: int | None
    serialized_key_size: int
    serialized_value_size: int
    headers: Sequence[tuple[str, bytes]] = field(default=())
