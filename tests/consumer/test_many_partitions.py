"""Memory and progress with 1,000 partitions, slow users and partitions that no call reads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokafka08.protocol.requests.fetch import FetchRequest
from aiokafka08.testing import EmbeddedCluster
from tests.consumer.conftest import Consumer, tp, until_no_fetch_is_in_flight, values
from tests.support.waiting import until

PARTITIONS = 1000
KIB, MIB = 1 << 10, 1 << 20
OVERHEAD = 2 * PARTITIONS * 512


@pytest.fixture
async def wide() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(2, topics={"t": PARTITIONS}) as running:
        yield running


def reader(cluster: EmbeddedCluster, **options: Any) -> Consumer:
    consumer = Consumer(
        bootstrap_servers=cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        **options,
    )
    consumer.assign([tp(partition) for partition in range(PARTITIONS)])
    return consumer


def used(consumer: Consumer) -> float:
    metrics = consumer.metrics()
    assert metrics["buffered_bytes"] <= metrics["buffered_limit_bytes"]
    return metrics["buffered_bytes"] + metrics["requested_bytes"]


@pytest.mark.parametrize("fetch_max_bytes", [4 * MIB, 24 * MIB, 50 * MIB])
async def test_thousand_partitions_stay_within_fetch_max_bytes(
    wide: EmbeddedCluster, fetch_max_bytes: int
) -> None:
    """The least share of 16 KiB makes 15.6 MiB; above that `fetch_max_bytes` is the bound."""
    for partition in range(PARTITIONS):
        wide.append("t", partition, [bytes(974)] * 64)
    bound = max(fetch_max_bytes, PARTITIONS * 16 * KIB) + OVERHEAD
    seen: list[float] = []
    async with reader(wide, fetch_max_bytes=fetch_max_bytes) as consumer:

        def full() -> bool:
            seen.append(used(consumer))
            metrics = consumer.metrics()
            return metrics["assigned_partitions"] == sum(
                consumer.highwater(tp(partition)) is not None for partition in range(PARTITIONS)
            )

        await until(full, "a response for every partition")
        await until_no_fetch_is_in_flight(consumer)
        seen.append(used(consumer))
        # The user takes nothing: when all buffers are full, no further request is sent.
        requests = len(wide.requests(FetchRequest))
        await asyncio.sleep(0.5)
        assert len(wide.requests(FetchRequest)) <= requests + 2
        counts = dict.fromkeys(range(PARTITIONS), 0)
        async with asyncio.timeout(50):
            while sum(counts.values()) < PARTITIONS * 64:
                got = await consumer.getmany(timeout_ms=1000, max_records=5000)
                for one, records in got.items():
                    counts[one.partition] += len(records)
                seen.append(used(consumer))
        assert set(counts.values()) == {64}
        assert max(seen) <= bound
        assert consumer.metrics()["lag"] == 0


async def test_unread_partitions_delay_no_other(wide: EmbeddedCluster) -> None:
    """All buffers are full, all partitions but one are paused: that one is read to its end."""
    for partition in range(PARTITIONS):
        wide.append("t", partition, [bytes(974)] * 64)
    async with reader(wide, fetch_max_bytes=MIB) as consumer:
        await until(lambda: consumer.metrics()["buffered_bytes"] > 14 * MIB, "full buffers")
        consumer.pause(*(tp(partition) for partition in range(PARTITIONS) if partition != 7))
        for offset in range(64):
            record = await asyncio.wait_for(consumer.getone(), 10)
            assert (record.partition, record.offset) == (7, offset)
        consumer.resume(tp(8))
        assert (await asyncio.wait_for(consumer.getone(), 10)).partition == 8


async def test_getone_serves_partitions_in_turn(wide: EmbeddedCluster) -> None:
    for partition in range(0, PARTITIONS, 50):
        wide.append("t", partition, values(0, 3000))
    async with reader(wide) as consumer:
        await until(lambda: consumer.metrics()["lag"] == 20 * 3000)
        first: list[int] = []
        async with asyncio.timeout(20):
            for _ in range(20_000):
                record = await consumer.getone()
                if record.partition not in first:
                    first.append(record.partition)
        # A slice of a thousand of each partition, before the second slice of any.
        assert len(first) == 20
