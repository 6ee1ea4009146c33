"""Sets that are larger as one batch than the target takes: they are split, in order, or refused."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest

from aiokafka08._tools.gateway.batch_limits import BatchLimits, split_batch
from aiokafka08._tools.gateway.headers import read_head
from aiokafka08._tools.gateway.layouts import TakesLongError
from aiokafka08._tools.gateway.old_produce import translate_produce
from aiokafka08._tools.gateway.translation import Budget, Translation
from aiokafka08.protocol.api import Topic, decode_response, encode_request, encode_response
from aiokafka08.protocol.compression import Codec, compress
from aiokafka08.protocol.message_set import encode_entry
from aiokafka08.protocol.record_batch import BatchHeader, parts_of, plain_records, read_records
from aiokafka08.protocol.requests.produce import (
    ProducedPartition,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
)

pytestmark = pytest.mark.twins

KB = 1000


class Target:
    """A broker that stores batches up to a size.

    Args:
        limit: the size.
        readable: whether it tells its limit.
        fails_at: the number of a batch, from 0 on, that gets error 7.
    """

    def __init__(self, limit: int, *, readable: bool = True, fails_at: int = -1) -> None:
        self.limit = limit
        self.readable = readable
        self.fails_at = fails_at
        self.keys: list[int] = []
        self.acks: list[int] = []
        self.logs: dict[int, list[bytes | None]] = {}
        self.batches = 0

    def answer(self, frame: bytes) -> bytes:
        key, version = struct.unpack_from(">hh", frame)
        self.keys.append(key)
        if key == 32:
            assert version == 1
            value = struct.pack(">h", 8) + b"%08d" % self.limit
            config = b"\0\x11max.message.bytes" + value + b"\0\4\0" + bytes(4)
            configs = struct.pack(">i", 1) + config if self.readable else bytes(4)
            code = 0 if self.readable else 29
            return frame[4:8] + struct.pack(">iihhb", 0, 1, code, -1, 2) + b"\0\1t" + configs
        assert (key, version) == (0, 3)
        acks, _, topics = struct.unpack_from(">hii", frame, 14)
        assert (frame[8:14], topics, frame[24:27]) == (b"\0\2me\xff\xff", 1, b"\0\1t")
        self.acks.append(acks)
        (partitions,) = struct.unpack_from(">i", frame, 27)
        pos, results = 31, []
        for _ in range(partitions):
            partition, size = struct.unpack_from(">ii", frame, pos)
            data = frame[pos + 8 : pos + 8 + size]
            pos += 8 + size
            results.append(self._store(partition, data))
        response = ProduceResponse([Topic("t", results)], 5)
        return b"".join(encode_response(response, 2, 1)[1:])

    def _store(self, partition: int, data: bytes) -> ProducedPartition:
        (header,) = parts_of(data)
        assert isinstance(header, BatchHeader)
        plain = plain_records(data, header, max_decompressed_bytes=1 << 27)
        values = [record[3] for record in read_records(header, plain)]
        if len(data) > self.limit:
            return ProducedPartition(partition, 10, -1, -1)
        self.batches += 1
        if self.batches - 1 == self.fails_at:
            return ProducedPartition(partition, 7, -1, -1)
        log = self.logs.setdefault(partition, [])
        log += values
        return ProducedPartition(partition, 0, 100 + len(log) - len(values), -1)


def value(number: int, size: int = KB) -> bytes:
    return random.Random(number).randbytes(size)


def messages(count: int, size: int = KB) -> bytes:
    return b"".join(encode_entry(number, None, value(number, size)) for number in range(count))


def wrapped(codec: Codec, inner: bytes) -> bytes:
    return encode_entry(0, None, compress(codec, inner), attributes=codec)


def translated(sets: dict[int, bytes], limits: BatchLimits, acks: int = 1) -> Translation:
    parts = [ProducePartition(number, data) for number, data in sets.items()]
    asked = ProduceRequest(acks, 500, [Topic("t", parts)])
    frame = memoryview(b"".join(encode_request(asked, 1, 1, "me")[1:]))
    return translate_produce(read_head(frame), frame, limits, Budget())


def carried_out(step: Translation, target: Target) -> Translation | dict[int, tuple[int, int]]:
    """Return error and offset of each partition, or the last step if the client expects none."""
    while step.request is not None:
        answer = memoryview(target.answer(b"".join(step.request)))
        if not step.is_answered:
            return step
        try:
            made = step.respond(answer, Budget(is_quick=True))
        except TakesLongError:
            made = step.respond(answer, Budget())
        if isinstance(made, list):
            response = decode_response(ProduceRequest, 1, b"".join(made))
            return {
                one.partition: (one.error_code, one.offset)
                for topic in response.topics
                for one in topic.partitions
            }
        step = made
    return step


@pytest.mark.parametrize("readable", [True, False])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_large_set_is_stored_in_parts(codec: Codec, readable: bool) -> None:
    limits, target = BatchLimits(), Target(70 * KB, readable=readable)
    data = messages(200) if codec is Codec.NONE else wrapped(codec, messages(200))
    for again in range(2):
        result = carried_out(translated({0: data, 3: messages(2)}, limits), target)
        assert result == {0: (0, 100 + 200 * again), 3: (0, 100 + 2 * again)}
        assert target.logs[0] == [value(number) for number in range(200)] * (1 + again)
    assert target.keys.count(32) == 1
    assert target.batches <= (8 if readable else 16)


def test_limit_that_is_known_costs_no_waiting() -> None:
    limits, target = BatchLimits(), Target(70 * KB)
    carried_out(translated({0: messages(200)}, limits), target)
    step = translated({0: messages(60)}, limits)
    assert not step.is_exclusive
    assert translated({0: messages(80)}, limits).is_exclusive
    # A single message can't be split, and a small batch needs no limit.
    assert not translated({0: messages(1, 100 * KB)}, BatchLimits()).is_exclusive
    assert not translated({0: messages(10)}, BatchLimits()).is_exclusive


def test_message_over_the_limit_gets_error_10_and_nothing_is_stored() -> None:
    target = Target(70 * KB)
    data = messages(80) + encode_entry(0, None, value(9, 80 * KB))
    assert carried_out(translated({0: data}, BatchLimits()), target) == {0: (10, -1)}
    assert target.logs == {}


def test_first_error_ends_it_and_says_what_is_stored(caplog: pytest.LogCaptureFixture) -> None:
    target = Target(70 * KB, fails_at=2)
    result = carried_out(translated({0: messages(200)}, BatchLimits()), target)
    assert result == {0: (7, -1)}
    stored = len(target.logs[0])
    assert target.logs[0] == [value(number) for number in range(stored)]
    assert "topic 't', partition 0: error 7 in the middle of a set" in caplog.text
    assert f"{stored} messages are stored, from offset 100 on; {200 - stored} aren't" in caplog.text


def test_set_without_acknowledgement_is_split_too() -> None:
    limits, target = BatchLimits(), Target(70 * KB)
    end = carried_out(translated({0: messages(200)}, limits, acks=0), target)
    assert isinstance(end, Translation)
    assert (end.request, end.expects_response, end.failure) == (None, False, None)
    assert target.logs[0] == [value(number) for number in range(200)]
    assert set(target.acks) == {1}
    carried_out(translated({0: messages(20)}, limits, acks=0), target)
    assert target.acks[-1] == 0


def test_error_without_acknowledgement_ends_the_connection() -> None:
    target = Target(70 * KB, fails_at=0)
    end: Any = carried_out(translated({0: messages(200)}, BatchLimits(), acks=0), target)
    assert end.failure == "acks=0, and errors {('t', 0): 7}"


def test_limit_that_became_lower_is_learnt_for_the_next_time() -> None:
    limits, target = BatchLimits(), Target(70 * KB)
    carried_out(translated({0: messages(200)}, limits), target)
    target.limit = 30 * KB
    assert carried_out(translated({1: messages(50)}, limits), target) == {1: (10, -1)}
    assert carried_out(translated({2: messages(50)}, limits), target) == {2: (0, 100)}
    assert target.logs[2] == [value(number) for number in range(50)]


def test_partition_that_comes_twice_keeps_its_order() -> None:
    target = Target(70 * KB)
    parts = [ProducePartition(0, encode_entry(0, None, b"%d" % one)) for one in range(2)]
    asked = ProduceRequest(1, 500, [Topic("t", parts)])
    frame = memoryview(b"".join(encode_request(asked, 1, 1, "me")[1:]))
    step = translate_produce(read_head(frame), frame, BatchLimits(), Budget())
    assert carried_out(step, target) == {0: (0, 100)}
    assert target.logs[0] == [b"0", b"1"]


def test_parts_have_the_records_of_the_whole() -> None:
    data = b"".join(
        encode_entry(
            number,
            (None, b"", b"key")[number % 3],
            None if number % 4 == 3 else value(number, number % 700),
            magic=1,
            timestamp_ms=1_700_000_000_000 + number,
        )
        for number in range(300)
    )
    step = translated({0: data}, BatchLimits())
    assert step.request is not None
    batch = b"".join(step.request)[39:]

    def rows(one: bytes) -> list[Any]:
        (header,) = parts_of(one)
        assert isinstance(header, BatchHeader)
        plain = plain_records(one, header, max_decompressed_bytes=1 << 24)
        return [record[1:] for record in read_records(header, plain)]

    for limit in (1, 500, 5000, 50_000):
        pieces = split_batch(batch, limit)
        assert [row for piece in pieces for row in rows(piece)] == rows(batch)
        assert all(len(piece) <= limit or len(rows(piece)) == 1 for piece in pieces)
