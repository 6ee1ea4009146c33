"""Encode the records of translated offsets at the target; decode those in this package's format.

All are big-endian; a string is an int16 length and UTF-8. A record without a value removes its key.

Invariant: a decoder returns a value, or None for a version that it doesn't know, or raises
`KafkaProtocolError`, whatever the bytes are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from aiokafka08.bridge.copy.offset_runs import OffsetRun
from aiokafka08.errors import KafkaProtocolError
from aiokafka08.protocol.types import Buffer, Int16, Int32, Int64, String, compiled

T = TypeVar("T")


def offset_syncs_topic(alias: str) -> str:
    """Return MirrorMaker 2's topic of offset syncs, at the target, for a source's alias."""
    return f"mm2-offset-syncs.{alias}.internal"


def checkpoints_topic(alias: str) -> str:
    """Return MirrorMaker 2's topic of checkpoints for a source's alias."""
    return f"{alias}.checkpoints.internal"


class RunsKey(NamedTuple):
    """The key of a record of runs (`OffsetRun`); `source` is the first run's source offset."""

    topic: str
    partition: int
    source: int


class OffsetSync(NamedTuple):
    """MirrorMaker 2's sync: the message at `upstream` in the source is at `downstream`."""

    topic: str
    partition: int
    upstream: int
    downstream: int


class Checkpoint(NamedTuple):
    """MirrorMaker 2's checkpoint: a group at `upstream` continues at `downstream`."""

    group: str
    # The topic's name at the target; the other records have its name at the source.
    topic: str
    partition: int
    upstream: int
    downstream: int
    # The text that the group stored with its offset.
    metadata: str


def encode_runs_key(key: RunsKey) -> bytes:
    """Encode the key of a record of runs."""
    return _encode(_RunsKeyStruct(*key))


def decode_runs_key(data: Buffer) -> RunsKey:
    """Decode the key of a record of runs."""
    key = _decode(_RunsKeyStruct, data)
    return RunsKey(key.topic, key.partition, key.source)


def encode_runs(runs: tuple[OffsetRun, ...]) -> bytes:
    """Encode the value of a record of runs."""
    return _encode(_RunsStruct(0, [_RunStruct(*run) for run in runs]))


def decode_runs(data: Buffer) -> tuple[OffsetRun, ...] | None:
    """Decode the value of a record of runs; None if its version isn't known."""
    if _version(data) != 0:
        return None
    value = _decode(_RunsStruct, data)
    return tuple(OffsetRun(run.source, run.target, run.length) for run in value.runs)


def encode_sync(sync: OffsetSync) -> tuple[bytes, bytes]:
    """Return the key and the value of an offset sync."""
    key = _SyncKeyStruct(sync.topic, sync.partition)
    return _encode(key), _encode(_SyncStruct(sync.upstream, sync.downstream))


def encode_checkpoint(checkpoint: Checkpoint) -> tuple[bytes, bytes]:
    """Return the key and the value of a checkpoint."""
    group, topic, partition, upstream, downstream, metadata = checkpoint
    return (
        _encode(_CheckpointKeyStruct(group, topic, partition)),
        _encode(_CheckpointStruct(0, upstream, downstream, metadata)),
    )


# The key and value in `aiokafka08-bridge.<name>.offsets`, this package's own.
@dataclass(slots=True)
class _RunsKeyStruct:
    topic: String
    partition: Int32
    source: Int64


@dataclass(slots=True)
class _RunStruct:
    source: Int64
    target: Int64
    length: Int64


@dataclass(slots=True)
class _RunsStruct:
    version: Int16
    runs: list[_RunStruct]


# The key and value in `mm2-offset-syncs.<alias>.internal`, for MirrorMaker 2's client and tools.
@dataclass(slots=True)
class _SyncKeyStruct:
    topic: String
    partition: Int32


@dataclass(slots=True)
class _SyncStruct:
    upstream: Int64
    downstream: Int64


# The key and value in `<alias>.checkpoints.internal`, likewise.
@dataclass(slots=True)
class _CheckpointKeyStruct:
    group: String
    topic: String
    partition: Int32


@dataclass(slots=True)
class _CheckpointStruct:
    version: Int16
    upstream: Int64
    downstream: Int64
    metadata: String


def _version(data: Buffer) -> int:
    if len(data) < 2:
        raise KafkaProtocolError(f"a record of offsets: {len(data)} bytes; expected at least 2")
    return int.from_bytes(data[:2], "big", signed=True)


def _decode(struct: type[T], data: Buffer) -> T:
    value, end = compiled(struct, 0).read(data, 0, len(data))
    if end != len(data):
        raise KafkaProtocolError(
            f"a record of offsets: {len(data) - end} bytes after its end; expected none"
        )
    return value  # type: ignore[no-any-return]


def _encode(value: object) -> bytes:
    out: list[Buffer] = []
    compiled(type(value), 0).write(value, out)
    return b"".join(out)
