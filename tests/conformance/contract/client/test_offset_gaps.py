"""Offsets without a message: compaction holes, and a log whose start has moved."""

from __future__ import annotations

import random

import pytest

from aiokafka08 import TopicPartition
from aiokafka08.errors import OffsetOutOfRangeError
from aiokafka08.telemetry import Event, OffsetReset
from tests.conformance.contract.client.broker import Broker, read_records
from tests.conformance.contract.targets import on_targets
from tests.support.waiting import eventually

# 0.8.0 has no topic configs.
pytestmark = [pytest.mark.both_loops, on_targets(since="0.8.1"), pytest.mark.twins]


def value(offset: int) -> bytes:
    """Return a value that no codec compresses, so that segments fill."""
    return random.Random(offset).randbytes(200)


@pytest.mark.parametrize("codec", [None, "gzip"])
async def test_compaction_holes_are_skipped(broker: Broker, codec: str | None) -> None:
    if broker.version < (0, 9):
        codec = None  # wrappers may kill its cleaner, for all later tests (brokers.md 5.15)
    topic = await broker.create_topic(config={"cleanup.policy": "compact", "segment.bytes": "4096"})
    tp = TopicPartition(topic, 0)
    producer = await broker.producer(compression_type=codec)
    for batch in range(12):
        keys = [b"rare %d" % batch if n == 0 and batch % 5 == 0 else b"often" for n in range(5)]
        values = [value(batch * 5 + n) for n in range(5)]
        await (await producer.send_many(topic, values, keys, partition=0))
    await broker.compact(topic, below=30)
    reader = await broker.reader(topic, max_partition_fetch_bytes=1000)

    async def offsets_from(offset: int) -> list[int]:
        reader.seek(tp, offset)
        offsets = []
        while await reader.position(tp) < 60:
            for records in (await reader.getmany(timeout_ms=200)).values():
                for record in records:
                    assert record.value == value(record.offset)
                    offsets.append(record.offset)
        return offsets

    left = await offsets_from(0)
    assert {0, 25, 50, 59} <= set(left)  # the last message of each key
    assert left == sorted(set(left))
    assert len(left) < 30
    for start in (1, 2, 24, 25, 26, 51, 58, 59, 60):
        got = await offsets_from(start)
        # A cleaner that is still running may remove more.
        assert set(got) <= {offset for offset in left if offset >= start}
        assert {offset for offset in (25, 50, 59) if offset >= start} <= set(got)
        assert got == sorted(set(got))
    assert await reader.end_offsets([tp]) == {tp: 60}
    assert reader.metrics()["lag"] == 0


async def test_log_start_moved_by_retention(broker: Broker) -> None:
    """Retention has deleted the oldest segments: 8 to 12 KiB of 20 are left."""
    topic = await broker.create_topic(config={"segment.bytes": "4096", "retention.bytes": "8192"})
    tp = TopicPartition(topic, 0)
    producer = await broker.producer()
    for number in range(40):
        await producer.send_and_wait(topic, b"%d" % number + bytes(500))
    events: list[Event] = []
    reader = await broker.reader(topic, on_event=events.append)

    async def retention_is_done() -> bool:
        return (await reader.beginning_offsets([tp]))[tp] >= 16

    await eventually(retention_is_done, 40)
    fresh = await broker.reader(topic)
    first, *more = await read_records(fresh, 40 - (await fresh.beginning_offsets([tp]))[tp])
    assert first.offset >= 16
    assert [record.offset for record in more] == list(range(first.offset + 1, 40))
    assert await fresh.end_offsets([tp]) == {tp: 40}

    reader.seek(tp, 3)  # as after a long absence
    [again] = await read_records(reader, 1)
    assert again.offset == first.offset
    reported = [event for event in events if isinstance(event, OffsetReset)][-1]
    assert (reported.partition, reported.old_offset, reported.new_offset) == (tp, 3, first.offset)
    careful = await broker.reader(topic, auto_offset_reset="none")
    careful.seek(tp, 3)
    with pytest.raises(OffsetOutOfRangeError, match=f"from {first.offset} to 40"):
        await careful.getone()
