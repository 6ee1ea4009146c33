"""Produce 0 to 2 by version 3: which batches are made, and what is answered for damaged sets."""

from __future__ import annotations

import random
import struct
from typing import NamedTuple

import pytest

from aiokafka08._tools.gateway.batch_limits import BatchLimits
from aiokafka08._tools.gateway.headers import read_head
from aiokafka08._tools.gateway.old_produce import translate_produce
from aiokafka08._tools.gateway.translation import Budget, Translation
from aiokafka08.errors import KafkaProtocolError
from aiokafka08.protocol.api import Topic, decode_response, encode_request, encode_response
from aiokafka08.protocol.compression import Codec, compress
from aiokafka08.protocol.message_set import encode_entry
from aiokafka08.protocol.record_batch import (
    BatchHeader,
    Record,
    parts_of,
    plain_records,
    read_records,
)
from aiokafka08.protocol.requests.produce import (
    ProducedPartition,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
)
from aiokafka08.protocol.types import Buffer
from tests._tools.gateway.gateways import responded

NOW_MS = 1_795_000_000_000
PLAIN_0 = encode_entry(0, b"k", b"v0") + encode_entry(1, None, None)
PLAIN_1 = encode_entry(0, b"k", b"v1", magic=1, timestamp_ms=NOW_MS)


def wrapper(codec: Codec, messages: bytes, magic: int = 0, attributes: int = 0) -> bytes:
    value = compress(codec, messages, magic=magic)
    return encode_entry(
        0, None, value, magic=magic, attributes=codec | attributes, timestamp_ms=NOW_MS
    )


class Asked(NamedTuple):
    """A request of version 3: its acks, and its record sets."""

    acks: int
    sets: dict[tuple[str, int], bytes]


def request(sets: dict[tuple[str, int], bytes], acks: int = 1, version: int = 0) -> memoryview:
    topics: dict[str, list[ProducePartition]] = {}
    for (topic, partition), data in sets.items():
        topics.setdefault(topic, []).append(ProducePartition(partition, data))
    asked = ProduceRequest(acks, 500, [Topic(topic, parts) for topic, parts in topics.items()])
    return memoryview(b"".join(encode_request(asked, version, 7, "me")[1:]))


def translated(frame: memoryview) -> Translation:
    return translate_produce(read_head(frame), frame, BatchLimits(), Budget())


def asked(translation: Translation) -> Asked | None:
    """Read the request for the target by the protocol guide."""
    if translation.request is None:
        return None
    data = b"".join(translation.request)
    assert data[:12] == struct.pack(">hhih", 0, 3, 7, 2) + b"me"
    transactional_id, acks, timeout_ms, count = struct.unpack_from(">hhii", data, 12)
    assert (transactional_id, timeout_ms) == (-1, 500)
    pos, sets = 24, {}
    for _ in range(count):
        (size,) = struct.unpack_from(">h", data, pos)
        topic = data[pos + 2 : pos + 2 + size].decode()
        pos += 2 + size
        (partitions,) = struct.unpack_from(">i", data, pos)
        pos += 4
        for _ in range(partitions):
            partition, size = struct.unpack_from(">ii", data, pos)
            sets[topic, partition] = data[pos + 8 : pos + 8 + size]
            pos += 8 + size
    assert pos == len(data)
    return Asked(acks, sets)


def answered(
    translation: Translation, results: dict[tuple[str, int], tuple[int, int]], version: int = 0
) -> dict[tuple[str, int], tuple[int, int, int]]:
    """Return error, offset and time of each partition, given error and offset of the target."""
    topics: dict[str, list[ProducedPartition]] = {}
    for (topic, partition), (error, offset) in results.items():
        topics.setdefault(topic, []).append(ProducedPartition(partition, error, offset, 5))
    target = ProduceResponse([Topic(topic, parts) for topic, parts in topics.items()], 30)
    frame = b"".join(encode_response(target, 2, 7)[1:]) if results else b""
    made = responded(translation, frame)
    response = decode_response(ProduceRequest, version, made)
    assert response.throttle_time_ms == (30 if version and results else 0)
    return {
        (topic.topic, one.partition): (one.error_code, one.offset, one.timestamp)
        for topic in response.topics
        for one in topic.partitions
    }


def test_messages_and_errors_are_counted() -> None:
    sets = {("t", 0): PLAIN_0 + PLAIN_0, ("t", 1): PLAIN_1, ("t", 2): PLAIN_0[:-1] + b"x"}
    parts = [ProducedPartition(0, 0, 9, 5), ProducedPartition(1, 6, -1, 5)]
    budget = Budget()
    answer = encode_response(ProduceResponse([Topic("t", parts)], 30), 2, 7)[1:]
    responded(translated(request(sets)), b"".join(answer), budget)
    assert (budget.messages, budget.errors) == (4, 2)
    frame, budget = request({("t", 0): PLAIN_0}, acks=0), Budget()
    translate_produce(read_head(frame), frame, BatchLimits(), budget)
    assert budget.messages == 2


def only_batch(message_set: Buffer) -> tuple[BatchHeader, list[Record]]:
    """Return the batch of a set, whose CRC is right, and its records."""
    asked_for = asked(translated(request({("t", 0): bytes(message_set)})))
    assert asked_for is not None
    data = asked_for.sets["t", 0]
    (header,) = parts_of(data)
    assert isinstance(header, BatchHeader)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
    plain = plain_records(data, header, max_decompressed_bytes=1 << 20)
    return header, list(read_records(header, plain))


pytestmark = pytest.mark.twins  # without the compiled one they need crcmod


@pytest.mark.parametrize("codec", list(Codec))
def test_set_becomes_one_batch_of_its_codec(codec: Codec) -> None:
    header, records = only_batch(PLAIN_0 if codec is Codec.NONE else wrapper(codec, PLAIN_0))
    assert header.codec == codec
    assert records == [(0, -1, b"k", b"v0", ()), (1, -1, None, None, ())]


def test_timestamps_of_format_1_are_kept() -> None:
    header, records = only_batch(wrapper(Codec.GZIP, PLAIN_1, magic=1))
    assert records == [(0, NOW_MS, b"k", b"v1", ())]
    assert header.max_timestamp_ms == NOW_MS


@pytest.mark.parametrize(
    "message_set",
    [
        wrapper(Codec.GZIP, PLAIN_0) + wrapper(Codec.SNAPPY, PLAIN_1, magic=1),
        PLAIN_0 + wrapper(Codec.GZIP, PLAIN_1, magic=1),
        wrapper(Codec.GZIP, PLAIN_0 + PLAIN_1),
    ],
    ids=["two wrappers", "plain and wrapper", "formats mixed inside"],
)
def test_sets_that_brokers_refuse_become_one_batch(message_set: bytes) -> None:
    header, records = only_batch(message_set)
    assert header.codec == Codec.GZIP
    assert [(record[0], record[3]) for record in records] == [(0, b"v0"), (1, None), (2, b"v1")]


@pytest.mark.parametrize("tail", [PLAIN_1[:-1], PLAIN_1[:5], b"\0"])
def test_cut_off_message_at_the_end_is_left_out(tail: bytes) -> None:
    assert [record[3] for record in only_batch(PLAIN_1 + tail)[1]] == [b"v1"]


@pytest.mark.parametrize("message_set", [b"", PLAIN_1[:-1]])
def test_set_without_whole_message_stores_nothing(message_set: bytes) -> None:
    translation = translated(request({("t", 3): message_set}))
    assert asked(translation) is None
    assert answered(translation, {}) == {("t", 3): (0, -1, -1)}


@pytest.mark.parametrize(
    ("message_set", "code"),
    [
        (PLAIN_1[:-1] + b"x", 2),
        (wrapper(Codec.GZIP, wrapper(Codec.GZIP, PLAIN_0)), 2),
        (wrapper(Codec.GZIP, PLAIN_0[:-1]), 2),
        (wrapper(Codec.GZIP, b""), 2),
        (encode_entry(0, None, None, attributes=Codec.GZIP), 2),
        (encode_entry(0, None, b"no gzip", attributes=Codec.GZIP), 2),
        (encode_entry(0, None, PLAIN_0, attributes=7), 2),
        (bytes(30), 2),
        (encode_entry(0, None, b"v", magic=1, attributes=8, timestamp_ms=NOW_MS), 32),
        (wrapper(Codec.GZIP, PLAIN_1, magic=1, attributes=8), 32),
    ],
    ids=[
        "crc", "nested", "cut off inside", "empty wrapper", "null wrapper", "not compressed",
        "unknown codec", "zeros", "broker's timestamp", "broker's timestamp of a wrapper",
    ],
)  # fmt: skip
def test_damaged_set_is_answered_and_never_sent(message_set: bytes, code: int) -> None:
    frame = request({("a", 0): message_set, ("a", 1): PLAIN_1, ("b", 0): PLAIN_0}, version=2)
    translation = translated(frame)
    asked_for = asked(translation)
    assert asked_for is not None
    assert list(asked_for.sets) == [("a", 1), ("b", 0)]
    # The target answers in an order of its own.
    result = answered(translation, {("b", 0): (0, 8), ("a", 1): (3, -1)}, version=2)
    assert result == {("a", 0): (code, -1, -1), ("a", 1): (3, -1, 5), ("b", 0): (0, 8, 5)}


@pytest.mark.parametrize("damaged_at", [0, 1])
def test_damaged_set_of_a_partition_that_comes_twice_is_reported(damaged_at: int) -> None:
    parts = [ProducePartition(0, PLAIN_1), ProducePartition(0, PLAIN_1)]
    parts[damaged_at] = ProducePartition(0, PLAIN_1[:-1] + b"x")
    both = ProduceRequest(1, 500, [Topic("t", parts)])
    translation = translated(memoryview(b"".join(encode_request(both, 0, 7, "me")[1:])))
    assert answered(translation, {("t", 0): (0, 8)}) == {("t", 0): (2, -1, -1)}


@pytest.mark.parametrize("second", [b"", PLAIN_1[:-1] + b"x"], ids=["empty", "damaged"])
def test_error_of_a_partition_remains_whatever_comes_behind_it(second: bytes) -> None:
    parts = [ProducePartition(0, PLAIN_1[:-1] + b"x"), ProducePartition(0, second)]
    both = ProduceRequest(1, 500, [Topic("t", parts)])
    translation = translated(memoryview(b"".join(encode_request(both, 0, 7, "me")[1:])))
    assert answered(translation, {}) == {("t", 0): (2, -1, -1)}


@pytest.mark.parametrize(
    "message_set",
    [encode_entry(0, b"k", b"v", attributes=8), wrapper(Codec.GZIP, PLAIN_0, attributes=8)],
    ids=["message", "wrapper"],
)
def test_bit_3_of_format_0_means_nothing(message_set: bytes) -> None:
    _, records = only_batch(message_set)
    assert records[0][1] == -1


def test_bomb_is_refused() -> None:
    bomb = wrapper(Codec.GZIP, bytes(200 << 20))
    assert len(bomb) < 1 << 20
    translation = translated(request({("t", 0): bomb}))
    assert asked(translation) is None
    assert answered(translation, {}) == {("t", 0): (2, -1, -1)}


def test_damaged_set_without_acknowledgement_ends_the_connection() -> None:
    translation = translated(request({("t", 0): PLAIN_1[:-1] + b"x", ("t", 1): PLAIN_1}, acks=0))
    asked_for = asked(translation)
    assert asked_for is not None
    assert (asked_for.acks, list(asked_for.sets)) == (0, [("t", 1)])
    assert (
        translation.failure
        == "acks=0, and damaged or too large messages for topic 't', partition 0"
    )
    assert not translation.expects_response
    assert translated(request({("t", 1): PLAIN_1}, acks=0)).failure is None


@pytest.mark.parametrize(
    ("version", "code", "old"),
    [
        (0, 10, 10), (0, 87, 2), (1, 87, 2), (2, 32, 32), (1, 32, -1), (0, 29, 3), (1, 29, 29),
        (2, 56, 6), (0, 21, -1), (1, 21, 21), (2, 44, -1), (0, 89, 7),
    ],
)  # fmt: skip
def test_codes_are_those_that_the_line_knows(version: int, code: int, old: int) -> None:
    translation = translated(request({("t", 0): PLAIN_1}, version=version))
    result = answered(translation, {("t", 0): (code, -1)}, version)
    assert result == {("t", 0): (old, -1, 5 if version == 2 else -1)}


def test_request_of_too_many_partitions_is_refused() -> None:
    """100 MiB of them would take gigabytes."""
    head = struct.pack(">hhih", 0, 0, 7, -1) + struct.pack(">hii", 1, 500, 1) + b"\0\x01t"
    frame = head + struct.pack(">i", 200_000) + bytes(8 * 200_000)
    with pytest.raises(KafkaProtocolError, match="ProduceRequest version 0: "):
        translated(memoryview(frame))


def test_mutated_requests_are_translated_or_refused() -> None:
    """Whatever the bytes are: a result, or a typed error, and only whole batches."""
    chance = random.Random(3)
    sets = {("t", 0): wrapper(Codec.GZIP, PLAIN_0), ("t", 1): PLAIN_1 + PLAIN_0}
    frame = bytes(request(sets, version=2))
    refused = 0
    for _ in range(1000):
        mutated = bytearray(frame)
        for _ in range(chance.randrange(1, 4)):
            mutated[chance.randrange(12, len(frame))] = chance.choice((0, 1, 127, 128, 255))
        try:
            translation = translated(memoryview(bytes(mutated)))
        except KafkaProtocolError:
            refused += 1
            continue
        if translation.request is not None:
            assert b"".join(translation.request)
    assert 100 < refused < 900
