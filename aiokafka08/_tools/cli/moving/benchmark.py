"""The measurements of `bench`: producing, consuming, and the latency from end to end.

Invariant: only messages that were acknowledged or read count. `bench consume` changes nothing;
the others write to the named topic, and nowhere else.
"""

from __future__ import annotations

import asyncio
import os
import random
import struct
import time
from collections import deque
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any, Final

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer, Deliveries
from aiokafka08._core.concurrency.rate import RateLimit
from aiokafka08._tools.cli.connection import consumer, producer, range_router
from aiokafka08._tools.cli.notes import note
from aiokafka08._tools.cli.progress import Progress
from aiokafka08._tools.cli.settings import Settings
from aiokafka08._tools.reading.positions import Bounds
from aiokafka08._tools.reading.read_plan import plan_ranges, select_partitions, select_topics
from aiokafka08._tools.reading.read_records import read_bounded
from aiokafka08._wording import partition_text
from aiokafka08.errors import KafkaTimeoutError
from aiokafka08.protocol.message_set import Columns
from aiokafka08.structs import TopicPartition

# How many random values are made, before the measurement begins; they are sent again and again.
_DISTINCT_VALUES: Final = 1000
# How many messages each call of `send_many` sends, and how many calls may be unawaited.
_CALL_MESSAGES: Final = 2000
_PENDING_CALLS: Final = 64
# The beginning of a message that measures latency: the run, and the number of the message.
_STAMP: Final = struct.Struct(">16sq")


async def measure_produce(
    settings: Settings,
    topic: str,
    *,
    messages: int,
    size: int,
    bytes_per_s: float | None,
    compression: str | None,
) -> dict[str, Any]:
    """Send random messages of `size` bytes; return the row of the output."""
    source = random.Random(0)
    values = [source.randbytes(size) for _ in range(_DISTINCT_VALUES)]
    call = [values[index % _DISTINCT_VALUES] for index in range(_CALL_MESSAGES)]
    options = {} if compression is None else {"compression_type": compression}
    if compression == "none":
        options = {"compression_type": None}  # type: ignore[dict-item]
    async with producer(settings, **options) as sending:
        await sending.partitions_for(topic)  # connecting isn't part of the figures
        pending: deque[Deliveries] = deque()
        began = time.monotonic()
        limit = None if bytes_per_s is None else RateLimit(bytes_per_s, began)
        with Progress("produced", messages, "messages") as progress:
            for first in range(0, messages, _CALL_MESSAGES):
                part = call[: messages - first]
                pending.append(await sending.send_many(topic, part))
                while len(pending) > _PENDING_CALLS or (pending and pending[0].done()):
                    progress.add(len(await pending.popleft()))
                if limit is not None:
                    delay_s = limit.delay_s(len(part) * size, time.monotonic())
                    await asyncio.sleep(delay_s)
            for deliveries in pending:
                await deliveries
        return throughput_row("produce", messages, messages * size, time.monotonic() - began)


async def measure_consume(
    settings: Settings, topics: Sequence[str], *, messages: int | None
) -> dict[str, Any]:
    """Read topics up to their present ends, or at least `messages` messages; return the row."""
    async with range_router(settings) as router:
        snapshot = await router.metadata.refresh()
        tps = select_partitions(select_topics(topics, snapshot), (), snapshot)
        ranges = await plan_ranges(router, tps, Bounds(), Bounds(), stop_at_end=True, note=note)
        count = size = 0
        began = time.monotonic()
        total = messages or sum((range_.stop or 0) - range_.start for range_ in ranges)
        with Progress("consumed", total, "messages") as progress:
            async with aclosing(read_bounded(router, ranges, as_columns=True)) as source:
                async for _, batch in source:
                    count += len(batch)
                    if isinstance(batch, Columns):  # always; the type also allows records
                        size += batch.size_bytes
                    progress.add(len(batch))
                    if messages is not None and count >= messages:
                        break
        return throughput_row("consume", count, size, time.monotonic() - began)


async def measure_latency(
    settings: Settings, topic: str, *, messages: int, size: int, partition: int
) -> list[dict[str, Any]]:
    """Send one message at a time and read it; return the rows "acknowledged" and "end to end".

    Raises:
        KafkaTimeoutError: a message didn't come back in time.
    """
    run = os.urandom(16)
    padding = bytes(max(size - _STAMP.size, 0))
    sent_s: list[float] = []
    read_s: list[float] = []
    tp = TopicPartition(topic, partition)
    reading = consumer(
        settings, auto_offset_reset="latest", fetch_max_wait_ms=500, allow_auto_create_topics=False
    )
    async with producer(settings, linger_ms=0) as sending, reading:
        await sending.partitions_for(topic)
        reading.assign([tp])
        reading.seek(tp, (await reading.end_offsets([tp]))[tp])
        for number in range(messages):
            began = time.perf_counter()
            stamp = _STAMP.pack(run, number)
            read = asyncio.create_task(_until_read(reading, stamp))
            try:
                await _send(sending, tp, stamp + padding)
                sent_s.append(time.perf_counter() - began)
                async with asyncio.timeout(settings.timeout_s):
                    await read
            except TimeoutError:
                raise KafkaTimeoutError(
                    f"{partition_text(tp)}: message {number + 1} wasn't read "
                    f"within {settings.timeout_s:g} s"
                ) from None
            finally:
                read.cancel()
            read_s.append(time.perf_counter() - began)
    return [
        latency_row("acknowledged", sent_s, size),
        latency_row("end to end", read_s, size),
    ]


async def _send(sending: AIOKafkaProducer, tp: TopicPartition, value: bytes) -> None:
    await sending.send_and_wait(tp.topic, value, partition=tp.partition)


async def _until_read(reading: AIOKafkaConsumer[bytes, bytes], stamp: bytes) -> None:
    """Read until a message begins with the stamp; skip those of other programs."""
    while not (await reading.getone()).value.startswith(stamp):  # type: ignore[union-attr]
        pass


def throughput_row(name: str, messages: int, size: int, seconds: float) -> dict[str, Any]:
    """Return a row of `bench produce` or `bench consume`."""
    elapsed = max(seconds, 1e-9)
    return {
        "bench": name,
        "messages": messages,
        "bytes": size,
        "seconds": round(seconds, 3),
        "messages_per_s": round(messages / elapsed),
        "mb_per_s": round(size / elapsed / 1e6, 1),
    }


def latency_row(name: str, seconds: Sequence[float], size: int) -> dict[str, Any]:
    """Return a row of `bench latency`, with the latencies in milliseconds."""
    ordered = sorted(seconds)

    def at(share: float) -> float:
        return round(ordered[min(int(len(ordered) * share), len(ordered) - 1)] * 1000, 3)

    return {
        "bench": name,
        "messages": len(ordered),
        "bytes": size * len(ordered),
        "p50_ms": at(0.5),
        "p90_ms": at(0.9),
        "p99_ms": at(0.99),
        "max_ms": at(1),
    }
