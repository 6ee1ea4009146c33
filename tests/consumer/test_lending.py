"""Memory lent for large messages comes back, and whoever waits for it gets it."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka08.protocol.api import FetchRequest
from aiokafka08.testing import EmbeddedCluster, Hang
from aiokafka08.testing.state import Partition
from tests.consumer.conftest import Consumer, MakeConsumer, tp
from tests.waiting import until

LARGE = 150_000
"""More than half of what may be fetched: two of them don't fit at once."""


def reader(make_consumer: MakeConsumer, *partitions: int) -> Consumer:
    consumer = make_consumer(max_partition_fetch_bytes=1000, fetch_max_bytes=200_000)
    consumer.assign([tp(partition) for partition in partitions])
    return consumer


def lose_leader(partition: Partition) -> None:
    partition.leader = -1


async def holding(consumer: Consumer) -> None:
    await until(lambda: consumer.metrics()["buffered_bytes"] > LARGE, "a large message")


async def test_what_a_removed_partition_had_borrowed_goes_to_who_waits_for_it(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    for partition in (0, 2):  # of one broker: nobody else's poll wakes its loop
        cluster.append("t", partition, [bytes(LARGE)])
    consumer = reader(make_consumer, 0, 2)
    await consumer.start()
    await holding(consumer)
    holder = next(p for p in (0, 2) if consumer._engine.cursors[tp(p)].borrowed_bytes)
    other = 2 - holder
    await until(lambda: consumer._engine._fetcher._memory.waiters, "a queue")
    consumer.assign([tp(other)])
    assert (await asyncio.wait_for(consumer.getone(), 5)).partition == other


async def test_a_call_that_waits_already_gets_what_others_have_borrowed_and_nobody_takes(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the call looks between the answer and the next request."""
    monkeypatch.setattr("aiokafka08.concurrency.loop_yield.HOLD_S", 0.0)
    cluster.append("t", 0, [bytes(LARGE)])
    consumer = reader(make_consumer, 0, 1)
    await consumer.start()
    await holding(consumer)
    waiting = asyncio.create_task(consumer.getone(tp(1)))
    await asyncio.sleep(0)
    cluster.append("t", 1, [bytes(LARGE)])
    assert (await asyncio.wait_for(waiting, 5)).partition == 1
    assert (await asyncio.wait_for(consumer.getone(tp(0)), 5)).partition == 0


async def test_a_partition_that_lost_its_leader_keeps_nothing_that_it_had_borrowed(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    cluster.append("t", 0, [bytes(LARGE)])
    hanging = cluster.fault(
        FetchRequest,
        then=Hang(),
        node=0,
        where=lambda asked: asked.topics[0].partitions[0].max_bytes > LARGE,
    )
    consumer = reader(make_consumer, 0, 1)
    await consumer.start()
    await until(lambda: hanging.hits, "the fetch of the large message")
    cluster._change("t", 0, lose_leader)  # its connections stay open, as behind a dead switch
    consumer._router.metadata.request_refresh()
    await until(lambda: not consumer.ready())
    cluster.append("t", 1, [bytes(LARGE)])
    assert (await asyncio.wait_for(consumer.getone(), 5)).partition == 1
