"""Cursors, queues and responses for the tests of `fetch_memory` and `fetch_plan`."""

from __future__ import annotations

from aiokafka08.consumer.cursor import Cursor, FetchResult, PartitionFetch, ResponseContext
from aiokafka08.consumer.fetch_memory import FetchMemory
from aiokafka08.consumer.fetch_plan import FetchPlan, FetchQueue
from aiokafka08.consumer.record_buffer import Decoding
from aiokafka08.protocol.message_set import encode_entry
from aiokafka08.protocol.requests.fetch import FetchedPartition
from aiokafka08.structs import TopicPartition

KIB = 1 << 10
MIB = 1 << 20


def make_cursors(count: int) -> list[Cursor]:
    made = []
    for partition in range(count):
        cursor = Cursor(TopicPartition("t", partition), Decoding(), (0.1, 1.0))
        cursor.seek(0)
        made.append(cursor)
    return made


def make_queue(memory: FetchMemory, cursors: list[Cursor], now: float = 0.0) -> FetchQueue:
    queue = FetchQueue(1, memory, 0.5)
    for cursor in cursors:
        queue.add(cursor, now)
    return queue


def make_plan(queue: FetchQueue, now: float = 0.0) -> FetchPlan:
    queue.end_backoffs(now)
    plan = queue.plan(now, 0.5)
    assert plan is not None
    return plan


def partitions_of(plan: FetchPlan) -> list[int]:
    return [fetch.cursor.topic_partition.partition for fetch in plan.fetches]


def respond(
    fetch: PartitionFetch,
    message_set: bytes = b"",
    *,
    code: int = 0,
    now: float = 0.0,
    high_watermark: int = 1 << 40,
) -> FetchResult:
    return fetch.cursor.apply_response(
        fetch,
        FetchedPartition(0, code, high_watermark, message_set),
        ResponseContext(50 * MIB, None, True, now, 0),
    )


def filling(fetch: PartitionFetch) -> bytes:
    """Return a message set of the size that was requested."""
    return encode_entry(fetch.offset, None, bytes(fetch.max_bytes - 26))
