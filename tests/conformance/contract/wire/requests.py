"""Functions that build, send and decode one request each, over a `WireClient`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from aiokafka08.protocol.api import Topic
from aiokafka08.protocol.compression import Codec, compress
from aiokafka08.protocol.message_set import encode_entry
from aiokafka08.protocol.requests.committed_offsets import (
    CommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from aiokafka08.protocol.requests.fetch import FetchPartition, FetchRequest, FetchResponse
from aiokafka08.protocol.requests.groups import GroupCoordinatorRequest, GroupCoordinatorResponse
from aiokafka08.protocol.requests.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from aiokafka08.protocol.requests.metadata import MetadataRequest, MetadataResponse
from aiokafka08.protocol.requests.produce import ProducePartition, ProduceRequest, ProduceResponse
from tests.conformance.contract.wire.wire_client import WireClient
from tests.protocol.entries import Entry, entries

Pair = tuple[bytes | None, bytes | None]


def plain(*values: bytes | Pair | None, first: int = 0, magic: int = 0) -> bytes:
    """Return a message set of plain messages; each is a value or a pair (key, value)."""
    pairs = [value if isinstance(value, tuple) else (None, value) for value in values]
    return b"".join(
        encode_entry(
            first + i, key, value, magic=magic, **({"timestamp_ms": 1000 + i} if magic else {})
        )
        for i, (key, value) in enumerate(pairs)
    )


def wrapper(codec: Codec, inner: bytes, magic: int = 0, offset: int = 0) -> bytes:
    """Return one compressed message around a message set."""
    value = compress(codec, inner, magic=magic)
    return encode_entry(offset, None, value, attributes=codec, magic=magic)


def nested(offset: int, count: int) -> bytes:
    """Return a wrapper in a wrapper, as 0.9.0.1 stores it: one offset for all messages."""
    inner = b"".join(encode_entry(number, None, b"%d" % number) for number in range(count))
    return wrapper(Codec.GZIP, wrapper(Codec.GZIP, inner, offset=offset), offset=offset)


def bad_crc(message_set: bytes) -> bytes:
    """Return the set with a wrong CRC in its first message."""
    return message_set[:12] + bytes(byte ^ 0xFF for byte in message_set[12:16]) + message_set[16:]


class Produced(NamedTuple):
    error_code: int
    offset: int


def produce_request(
    topic: str, message_set: bytes, partition: int = 0, acks: int = 1, timeout_ms: int = 15_000
) -> ProduceRequest:
    sets = [ProducePartition(partition, message_set)]
    return ProduceRequest(acks, timeout_ms, [Topic(topic, sets)])


def produce(
    wire: WireClient,
    topic: str,
    message_set: bytes,
    partition: int = 0,
    acks: int = 1,
    timeout_ms: int = 15_000,
) -> Produced:
    request = produce_request(topic, message_set, partition, acks, timeout_ms)
    response: ProduceResponse = wire.request(request)
    [one] = response.topics
    assert one.topic == topic
    [done] = one.partitions
    assert done.partition == partition
    return Produced(done.error_code, done.offset)


class Fetched(NamedTuple):
    error_code: int
    high_watermark: int
    message_set: bytes

    def entries(self) -> list[Entry]:
        return list(entries(self.message_set))

    def values(self) -> list[tuple[int, bytes | None]]:
        return [(entry.offset, entry.value) for entry in self.entries()]


def fetch_request(
    topic: str,
    offset: int,
    partition: int = 0,
    max_bytes: int = 1 << 20,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    replica_id: int = -1,
) -> FetchRequest:
    items = [FetchPartition(partition, offset, max_bytes)]
    return FetchRequest(replica_id, max_wait_ms, min_bytes, [Topic(topic, items)])


def fetch(
    wire: WireClient,
    topic: str,
    offset: int,
    partition: int = 0,
    max_bytes: int = 1 << 20,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    replica_id: int = -1,
    version: int = 0,
    layout: int | None = None,
) -> Fetched:
    request = fetch_request(topic, offset, partition, max_bytes, max_wait_ms, min_bytes, replica_id)
    response: FetchResponse = wire.request(request, version, layout)
    return fetched(response, topic, partition)


def fetched(response: FetchResponse, topic: str, partition: int = 0) -> Fetched:
    [one] = response.topics
    assert one.topic == topic
    [got] = one.partitions
    assert got.partition == partition
    return Fetched(got.error_code, got.high_watermark, bytes(got.message_set))


def list_offsets(
    wire: WireClient,
    topic: str,
    timestamp: int,
    count: int = 1,
    partition: int = 0,
    replica_id: int = -1,
) -> tuple[int, list[int]]:
    items = [ListOffsetsPartition(partition, timestamp, count)]
    response: ListOffsetsResponse = wire.request(
        ListOffsetsRequest(replica_id, [Topic(topic, items)])
    )
    [one] = response.topics
    [got] = one.partitions
    assert got.offsets is not None
    return got.error_code, got.offsets


def metadata(wire: WireClient, topics: Sequence[str] = ()) -> MetadataResponse:
    response: MetadataResponse = wire.request(MetadataRequest(list(topics)))
    return response


def commit(
    wire: WireClient,
    group: str | None,
    topic: str,
    offset: int,
    metadata: str | None = "",
    *,
    partition: int = 0,
    version: int = 0,
    generation: int = -1,
    member: str = "",
) -> int:
    items = [CommitPartition(partition, offset, -1, metadata)]
    request = OffsetCommitRequest(group, generation, member, -1, [Topic(topic, items)])
    response: OffsetCommitResponse = wire.request(request, version)
    [one] = response.topics
    [done] = one.partitions
    assert (one.topic, done.partition) == (topic, partition)
    return done.error_code


def committed(
    wire: WireClient, group: str | None, topic: str, *, partition: int = 0, version: int = 0
) -> tuple[int, str | None, int]:
    """Return the committed offset, its metadata and the error code."""
    request = OffsetFetchRequest(group, [Topic(topic, [partition])])
    response: OffsetFetchResponse = wire.request(request, version)
    [one] = response.topics
    [got] = one.partitions
    assert (one.topic, got.partition) == (topic, partition)
    return got.offset, got.metadata, got.error_code


def find_coordinator(wire: WireClient, group: str) -> GroupCoordinatorResponse:
    """Request the coordinator until the group has one."""
    deadline = time.monotonic() + 30
    while True:
        response: GroupCoordinatorResponse = wire.request(GroupCoordinatorRequest(group))
        if not response.error_code or time.monotonic() > deadline:
            return response
        assert response == GroupCoordinatorResponse(15, -1, "", -1)
        time.sleep(0.02)
