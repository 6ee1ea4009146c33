"""Decode the keys and values of the records in `__consumer_offsets`.

The coordinators of groups keep their state in this compacted topic. The key of a record is a
committed offset's (group, topic, partition), or a group's name; the value is the offset, or the
group with its members. A record without a value removes its key. The last value of each key counts.

| | key versions | value versions | releases |
|---|---|---|---|
| offset | 0, 1 (same layout) | 0 | 0.8.2 |
| | | 1: with the time of expiry | 0.9 – 2.0; later if the client set a retention time |
| | | 2: without | 2.1 |
| | | 3: with the leader epoch | 2.1.1 and later |
| group | 2 | 0 | 0.9, 0.10.0 |
| | | 1: with the rebalance timeout | 0.10.1 – 2.0 |
| | | 2: with the time of the last change | 2.1, 2.2 |
| | | 3: with group instance ids | 2.3 and later |

Invariant: a decoder returns a value, or None for a version that it doesn't know, or raises
`KafkaProtocolError`, whatever the bytes are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, NamedTuple, TypeVar

from aiokafka08.errors import KafkaProtocolError
from aiokafka08.protocol.types import (
    Buffer,
    Bytes,
    Int32,
    Int64,
    NullableString,
    Since,
    String,
    compiled,
)

T = TypeVar("T")

_OFFSET_KEYS: Final = range(2)
_GROUP_KEYS: Final = range(2, 3)
_OFFSET_VALUES: Final = range(4)
_GROUP_VALUES: Final = range(4)


class OffsetRecordKey(NamedTuple):
    """The key of a committed offset."""

    group: str
    topic: str
    partition: int


class GroupRecordKey(NamedTuple):
    """The key of a group's state."""

    group: str


@dataclass(slots=True)
class OffsetRecord:
    """A committed offset.

    Times are in milliseconds since the epoch. `expires_at_ms` is -1 if the record doesn't have it;
    then the broker's `offsets.retention.minutes` applies. `leader_epoch` is -1 if it isn't known.
    """

    offset: Int64
    leader_epoch: Annotated[Int32, Since(3, absent=-1)]
    metadata: NullableString
    committed_at_ms: Int64
    expires_at_ms: Annotated[Int64, Since(1, last=1, absent=-1)] = -1


@dataclass(slots=True)
class GroupMemberRecord:
    """A member of a group. Timeouts are in milliseconds, -1 if the record doesn't have them.

    `coordinator.protocol` decodes `subscription` and `assignment`.
    """

    member: String
    instance_id: Annotated[NullableString, Since(3, absent=None)]
    client_id: String
    client_host: String
    rebalance_timeout_ms: Annotated[Int32, Since(1, absent=-1)]
    session_timeout_ms: Int32
    subscription: Bytes
    assignment: Bytes


@dataclass(slots=True)
class GroupRecord:
    """The state of a group after its last rebalance; `members` is empty once all have left.

    `changed_at_ms` is in milliseconds since the epoch, -1 if the record doesn't have it.
    """

    protocol_type: String
    generation: Int32
    protocol: NullableString
    leader: NullableString
    changed_at_ms: Annotated[Int64, Since(2, absent=-1)]
    members: list[GroupMemberRecord]


def decode_record_key(data: Buffer) -> OffsetRecordKey | GroupRecordKey | None:
    """Decode a record's key; None if it is of a version that this module doesn't know.

    Raises:
        KafkaProtocolError: the bytes can't be decoded.
    """
    version = _version(data)
    if version in _OFFSET_KEYS:
        key = _decode(_OffsetKeyStruct, 0, data)
        return OffsetRecordKey(key.group, key.topic, key.partition)
    if version in _GROUP_KEYS:
        return GroupRecordKey(_decode(_GroupKeyStruct, 0, data).group)
    return None


def decode_offset_record(data: Buffer) -> OffsetRecord | None:
    """Decode the value of an `OffsetRecordKey`; see `decode_record_key`."""
    version = _version(data)
    return _decode(OffsetRecord, version, data) if version in _OFFSET_VALUES else None


def decode_group_record(data: Buffer) -> GroupRecord | None:
    """Decode the value of a `GroupRecordKey`; see `decode_record_key`."""
    version = _version(data)
    return _decode(GroupRecord, version, data) if version in _GROUP_VALUES else None


def encode_record_key(key: OffsetRecordKey | GroupRecordKey, version: int) -> bytes:
    """Encode a key: an offset's in version 0 or 1, a group's in version 2."""
    struct = (
        _OffsetKeyStruct(key.group, key.topic, key.partition)
        if isinstance(key, OffsetRecordKey)
        else _GroupKeyStruct(key.group)
    )
    return _encode(struct, 0, version)


def encode_record_value(value: OffsetRecord | GroupRecord, version: int) -> bytes:
    """Encode a value; raises ValueError if this version doesn't have one of its fields."""
    return _encode(value, version, version)


@dataclass(slots=True)
class _OffsetKeyStruct:
    group: String
    topic: String
    partition: Int32


@dataclass(slots=True)
class _GroupKeyStruct:
    group: String


def _version(data: Buffer) -> int:
    if len(data) < 2:
        raise KafkaProtocolError(
            f"a record of __consumer_offsets: {len(data)} bytes; expected at least 2"
        )
    return int.from_bytes(data[:2], "big", signed=True)


def _decode(struct: type[T], layout: int, data: Buffer) -> T:
    value, end = compiled(struct, layout).read(data, 2, len(data))
    if end != len(data):
        raise KafkaProtocolError(
            f"a record of __consumer_offsets: {len(data) - end} bytes after its end; expected none"
        )
    return value  # type: ignore[no-any-return]


def _encode(value: object, layout: int, version: int) -> bytes:
    out: list[Buffer] = [version.to_bytes(2, "big", signed=True)]
    compiled(type(value), layout).write(value, out)
    return b"".join(out)
