"""The small values of the public API: partitions, offsets, records.

Names, fields and their order are those of aiokafka 0.14.

Invariant: this module holds plain data without behaviour. It imports no module of this package.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, NamedTuple

if TYPE_CHECKING:  # before 3.13 `typing` has no defaults, which only type checkers need (PEP 696)
    from typing_extensions import TypeVar

    KT = TypeVar("KT", default=bytes)
    VT = TypeVar("VT", default=bytes)
else:
    from typing import TypeVar

    KT = TypeVar("KT")
    VT = TypeVar("VT")

LAST_OFFSET: Final = 2**63 - 1
"""The largest offset, since the protocol has signed 64-bit integers."""


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int


class BrokerMetadata(NamedTuple):
    """A broker as a Metadata response names it; `rack` is None before 0.10."""

    nodeId: int
    host: str
    port: int
    rack: str | None


class PartitionMetadata(NamedTuple):
    """A partition as a Metadata response describes it.

    `leader` is -1 during an election. Don't rely on `replicas` and `isr`, because brokers of 0.8
    leave dead brokers out of `replicas`, and their `isr` may be stale (docs/brokers.md 4.7, 4.8).
    """

    topic: str
    partition: int
    leader: int
    replicas: list[int]
    isr: list[int]
    error: Exception | None


class OffsetAndMetadata(NamedTuple):
    """A committed offset (of the next message to read), and a string stored with it."""

    offset: int
    metadata: str


class OffsetAndTimestamp(NamedTuple):
    """An offset found by time.

    `timestamp` is None if the broker's version is too old to report it.
    """

    offset: int
    timestamp: int | None


class RecordMetadata(NamedTuple):
    """Where a message was stored. `offset` is -1 with acks=0: the broker doesn't report it.

    `timestamp` is in milliseconds since the epoch, None for message format 0. `timestamp_type` is 0
    for CreateTime, 1 for LogAppendTime, None for message format 0.
    """

    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    timestamp: int | None
    timestamp_type: int | None
    log_start_offset: int | None


class _Extensible:
    """Gives instances of a class with slots a `__dict__` for attributes set from outside."""

    __slots__ = ("__dict__",)


@dataclass(slots=True)
class ConsumerRecord(_Extensible, Generic[KT, VT]):
    """A record that the consumer returns.

    For type checkers it is generic in the types of `key` and `value`, by default bytes.
    `timestamp` is in milliseconds since the epoch, `timestamp_type` is 0 (CreateTime) or 1
    (LogAppendTime); both are None for message format 0, which has no timestamps. `checksum` is the
    CRC-32 in the message. Sizes are in bytes, -1 for null. Message formats 0 and 1 have no headers:
    `headers` is empty, unless the consumer's option `headers` is "embedded". Other attributes may
    be set, as FastStream does.
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
    headers: Sequence[tuple[str, bytes]] = ()
