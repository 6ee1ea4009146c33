"""Memory borrowed for large messages is returned, and partitions that wait for it get it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka08.protocol.requests.fetch import FetchRequest
from aiokafka08.testing import EmbeddedCluster, Hang, Silence
from aiokafka08.testing.controls import find_partition
from aiokafka08.testing.runtime import ClusterRuntime
from tests.consumer.conftest import Consumer, MakeConsumer, slices_of, take, tp
from tests.support.clients import OpenConsumer
from tests.support.waiting import until

pytestmark = pytest.mark.twins

LARGE = 150_000
"""More than half of what may be fetched: two of them don't fit at once."""


def reader(make_consumer: MakeConsumer, *partitions: int, **options: Any) -> OpenConsumer:
    consumer = make_consumer(max_partition_fetch_bytes=1000, fetch_max_bytes=200_000, **options)
    consumer.assign([tp(partition) for partition in partitions])
    return consumer


def lose_leader(runtime: ClusterRuntime) -> None:
    partition = find_partition(runtime.state, "t", 0)
    partition.leader = -1
    runtime.state.changed.add(partition.key)


async def holding(consumer: Consumer) -> None:
    await until(lambda: consumer.metrics()["buffered_bytes"] > LARGE, "a large message")


async def test_bytes_of_a_removed_partition_go_to_the_waiter(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    for partition in (0, 2):  # of one broker: no poll of another broker wakes its task
        cluster.append("t", partition, [bytes(LARGE)])
    consumer = reader(make_consumer, 0, 2)
    await consumer.start()
    await holding(consumer)
    holder = next(p for p in (0, 2) if consumer.engine.cursors[tp(p)].borrowed_bytes)
    other = 2 - holder
    await until(lambda: consumer.engine.fetcher.memory.waiters, "a waiter")
    consumer.assign([tp(other)])
    assert (await asyncio.wait_for(consumer.getone(), 5)).partition == other


async def test_waiting_call_reclaims_bytes_of_unread_buffers(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    """Also if the call checks between a response and the next request."""
    cluster.append("t", 0, [bytes(LARGE)])
    consumer = reader(make_consumer, 0, 1, parts=slices_of(0.0))
    await consumer.start()
    await holding(consumer)
    waiting = asyncio.create_task(consumer.getone(tp(1)))
    await asyncio.sleep(0)
    cluster.append("t", 1, [bytes(LARGE)])
    assert (await asyncio.wait_for(waiting, 5)).partition == 1
    assert (await asyncio.wait_for(consumer.getone(tp(0)), 5)).partition == 0


async def test_partition_that_loses_its_leader_returns_its_bytes(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    cluster.append("t", 0, [bytes(LARGE)])
    hanging = cluster.fault(
        FetchRequest,
        then=Hang(),
        node=0,
        where=lambda request: request.topics[0].partitions[0].max_bytes > LARGE,
    )
    consumer = reader(make_consumer, 0, 1)
    await consumer.start()
    await until(lambda: hanging.hits, "the fetch of the large message")
    cluster._call(lose_leader)  # its connections stay open, as behind a dead switch
    consumer.router.metadata.request_refresh()
    await until(lambda: not consumer.ready())
    cluster.append("t", 1, [bytes(LARGE)])
    assert (await asyncio.wait_for(consumer.getone(), 5)).partition == 1


async def test_messages_above_the_share_are_fetched_up_to_the_limit(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    sizes = [10, 5_000, 150_000, 20, 90_000, 90_000, 30]
    for partition in range(4):
        cluster.append("t", partition, [bytes(size) for size in sizes])
    consumer = make_consumer("t", max_partition_fetch_bytes=1000, fetch_max_bytes=200_000)
    await consumer.start()
    got = await take(consumer, 4 * len(sizes))
    for partition in range(4):
        assert [len(r.value) for r in got if r.partition == partition] == sizes


async def test_paused_partition_with_large_message_blocks_no_other(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    for partition in range(2):
        cluster.append("t", partition, [bytes(150_000)])
    consumer = make_consumer(max_partition_fetch_bytes=1000, fetch_max_bytes=200_000)
    consumer.assign([tp(0), tp(1)])
    await consumer.start()
    await until(lambda: consumer.metrics()["buffered_bytes"] > 150_000)
    first = next(p for p in (0, 1) if consumer.highwater(tp(p)) is not None)
    consumer.pause(tp(0), tp(1))
    consumer.resume(tp(1 - first))
    # The one has borrowed what the other needs; it was paused before the user took it.
    assert len(await take(consumer, 1)) == 1
    consumer.resume(tp(first))
    assert len(await take(consumer, 1)) == 1


async def test_unread_partition_with_large_message_blocks_no_other(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    for partition in range(2):
        cluster.append("t", partition, [bytes(150_000)])
    consumer = make_consumer(max_partition_fetch_bytes=1000, fetch_max_bytes=200_000)
    consumer.assign([tp(0), tp(1)])
    await consumer.start()
    await until(lambda: consumer.metrics()["buffered_bytes"] > 150_000)
    for partition in (0, 1):
        assert (await asyncio.wait_for(consumer.getone(tp(partition)), 10)).offset == 0


async def test_returned_memory_ends_an_overdraft(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    """Node 0, which leads 0, 2 and 4, owes a response for removed partitions: node 1 isn't polled
    until the borrower, which is of node 0, was read."""
    cluster.create_topic("u", 5)
    consumer = make_consumer(fetch_max_bytes=100_000, max_partition_fetch_bytes=20_000)
    consumer.assign([tp(number, "u") for number in range(5)])
    await consumer.start()
    cluster.append("u", 0, [bytes(95_000)])
    await until(lambda: consumer.metrics()["buffered_bytes"] > 95_000, "the large message")
    silence = cluster.fault(FetchRequest, then=Silence(), node=0, times=None)
    await until(lambda: silence.hits, "a poll without a response")
    consumer.assign([tp(number, "u") for number in (0, 1, 3)])
    idle = consumer.engine.cursors[tp(1, "u")]
    await until(lambda: idle.in_flight is None, "the end of the last poll")
    assert consumer.engine.fetcher.memory.is_overdrawn
    cluster.append("u", 1, [b"v"])
    assert (await consumer.getone(tp(0, "u"))).offset == 0
    async with asyncio.timeout(5):
        assert (await consumer.getone(tp(1, "u"))).offset == 0


LONG_MS = 300_000
"""Longer than any test may take: what comes doesn't come at the end of a long poll."""


async def test_large_messages_never_wait_for_a_long_poll(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    """Only one fits at a time. The partition that ends first leaves its bytes to the other one, and
    a partition that waited for them isn't held up by the poll of an empty one (2, 3)."""
    for partition, count in ((0, 2), (1, 5)):
        cluster.append("t", partition, [bytes(LARGE)] * count)
    consumer = make_consumer(
        max_partition_fetch_bytes=1000, fetch_max_bytes=200_000, fetch_max_wait_ms=LONG_MS
    )
    consumer.assign([tp(partition) for partition in range(4)])
    await consumer.start()
    got = await take(consumer, 7)
    assert sorted((one.partition, one.offset) for one in got) == [
        *((0, offset) for offset in range(2)),
        *((1, offset) for offset in range(5)),
    ]
