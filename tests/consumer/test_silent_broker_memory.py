"""A silent broker and an idle long poll keep borrowed memory from no other partition.

In simulated time, so that the long waits cost nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from aiokafka08.protocol.requests.fetch import FetchRequest
from aiokafka08.testing import Delay, Hang
from aiokafka08.testing.simulation import World, simulate
from tests.consumer.conftest import Consumer, has_partition, tp
from tests.support.clients import OpenConsumer
from tests.support.waiting import until

LARGE = 150_000
"""More than half of what may be fetched: two of them don't fit at once."""

SOON_S = 15.0
"""Less than `request_timeout_ms`, after which a silent broker's requests fail anyway."""


def play(
    scenario: Callable[[World, OpenConsumer], Coroutine[Any, Any, None]], **options: Any
) -> None:
    """Run a scenario with three brokers; partition n of "t" is led by broker n."""
    with simulate(seed=3, brokers=3, version="0.8.2") as world:

        async def run() -> None:
            world.cluster.create_topic("t", 3, 2)
            consumer = OpenConsumer(
                bootstrap_servers=world.cluster.bootstrap_servers,
                fetch_max_bytes=200_000,
                max_partition_fetch_bytes=1000,
                auto_offset_reset="earliest",
                **options,
            )
            consumer.assign([tp(0), tp(1)])
            await consumer.start()
            try:
                await scenario(world, consumer)
            finally:
                for node in range(3):
                    world.resume(f"broker {node}")
                await consumer.stop()

        world.run(run)


def wants_large(partition: int) -> Callable[[FetchRequest], bool]:
    def matches(request: FetchRequest) -> bool:
        return has_partition(partition, request) and any(
            one.max_bytes >= LARGE for topic in request.topics for one in topic.partitions
        )

    return matches


async def read(consumer: Consumer, partition: int, count: int, within_s: float = SOON_S) -> None:
    """Read until this many messages of the partition have come."""
    async with asyncio.timeout(within_s):
        while count:
            count -= (await consumer.getone()).partition == partition


def test_silent_broker_returns_what_it_has_borrowed() -> None:
    async def scenario(world: World, consumer: OpenConsumer) -> None:
        world.cluster.append("t", 0, [bytes(LARGE)] * 3)
        hanging = world.cluster.fault(FetchRequest, then=Hang(), node=0, where=wants_large(0))
        await until(lambda: hanging.hits, "the fetch of the large message")
        world.pause("broker 0")
        world.cluster.append("t", 1, [bytes(LARGE)] * 5)
        await read(consumer, 1, 5)
        world.resume("broker 0")
        await read(consumer, 0, 3, 100.0)

    play(scenario)


def test_unreachable_new_leader_returns_its_borrowed_memory() -> None:
    """The partition moves there when its fetch has grown, so it borrows for its first request."""

    async def scenario(world: World, consumer: OpenConsumer) -> None:
        world.cluster.append("t", 0, [bytes(LARGE)] * 3)
        hanging = world.cluster.fault(FetchRequest, then=Hang(), node=0, where=wants_large(0))
        await until(lambda: hanging.hits, "the fetch of the large message")
        world.cluster.move_leader("t", 1, to=2)
        world.pause("broker 1")
        world.cluster.move_leader("t", 0, to=1)
        cursor = consumer.engine.cursors[tp(0)]
        await until(lambda: consumer.engine.fetcher.leader(cursor) == 1)
        world.cluster.append("t", 1, [bytes(LARGE)] * 5)
        await read(consumer, 1, 5)
        world.resume("broker 1")
        await read(consumer, 0, 3, 100.0)

    play(scenario)


def test_slow_broker_gets_its_large_message_at_last() -> None:
    """Each time its request is given up later, while another partition always needs the memory."""

    async def scenario(world: World, consumer: OpenConsumer) -> None:
        world.cluster.append("t", 0, [bytes(LARGE)])
        world.cluster.fault(FetchRequest, then=Delay(6), node=0, times=None, where=wants_large(0))

        async def feed() -> None:
            while True:
                world.cluster.append("t", 1, [bytes(LARGE)])
                await asyncio.sleep(0.5)

        feeding = asyncio.create_task(feed())
        await read(consumer, 0, 1, 100.0)
        feeding.cancel()

    play(scenario, request_timeout_ms=20_000)


def test_idle_long_poll_holds_no_borrowed_memory() -> None:
    async def scenario(world: World, consumer: OpenConsumer) -> None:
        world.cluster.append("t", 0, [bytes(LARGE // 2)])
        await read(consumer, 0, 1)
        cursor = consumer.engine.cursors[tp(0)]
        await until(lambda: cursor.in_flight is not None, "the long poll")
        world.cluster.append("t", 1, [bytes(LARGE)])
        await read(consumer, 1, 1)

    play(scenario, fetch_max_wait_ms=100_000, request_timeout_ms=200_000)
