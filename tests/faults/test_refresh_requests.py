"""Who notices that the metadata is stale requests a refresh: one test for each caller.

Each client is idle but for the one path, and its metadata never ages. The leader moves, only that
path meets the consequence, and the client must go on within one refresh: soon, and without another
request to the former leader, which would bring the refresh by another path.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka08._core.net.config import NETWORK_DEFAULTS, net_config
from aiokafka08._core.net.node import Lane
from aiokafka08._core.net.router import Router
from aiokafka08.errors import KafkaError
from aiokafka08.protocol.requests.fetch import FetchRequest
from aiokafka08.protocol.requests.list_offsets import ListOffsetsRequest
from aiokafka08.protocol.requests.metadata import MetadataRequest
from aiokafka08.protocol.requests.produce import ProduceRequest
from aiokafka08.telemetry import Telemetry
from aiokafka08.testing import Close, Hang
from aiokafka08.testing.simulation import World, simulate
from tests.support.waiting import until

pytestmark = pytest.mark.fast

NEVER_MS = 10**9
OVERDUE_S = 2.0
"""After it, the metadata is refreshed for a response that doesn't come."""
started: list[Any] = []
"""The clients of the running scenario, which ends them."""
T0, T2 = TopicPartition("t", 0), TopicPartition("t", 2)


def play(
    scenario: Callable[[World], Awaitable[None]], version: str = "0.9", **options: Any
) -> None:
    """Run it with two brokers; node 0 leads partitions 0 and 2 of the topic "t"."""
    with simulate(1, version=version, **{"brokers": 2, "topics": {"t": 3}, **options}) as world:

        async def run() -> None:
            try:
                await scenario(world)
            finally:
                while started:
                    await started.pop().stop()

        world.run(run)


def options(world: World, **given: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": world.cluster.bootstrap_servers,
        "metadata_max_age_ms": NEVER_MS,
        "connections_max_idle_ms": NEVER_MS,
        "request_timeout_ms": 600_000,
        **given,
    }


def move(world: World) -> None:
    world.cluster.move_leader("t", 0, to=1)


def moving(world: World) -> Callable[[object], bool]:
    """Return the condition of a fault that moves the leader when the fault strikes."""

    def strike(request: object) -> bool:
        if world.cluster.leader("t", 0) == 0:
            move(world)
        return True

    return strike


def to_former_leader(world: World, request: Any) -> list[Any]:
    """Return the requests to node 0 that name partition 0 of the topic."""
    return [
        one
        for one in world.cluster.requests(request, 0)
        for topic in one.topics
        if any(partition.partition == 0 for partition in topic.partitions)
    ]


def refreshes(world: World) -> int:
    return len(world.cluster.requests(MetadataRequest))


# --- the producer ---------------------------------------------------------------------------------


async def idle_producer(world: World, **given: Any) -> AIOKafkaProducer:
    """Return a producer with a connection to each broker: losing one isn't losing the last."""
    producer = AIOKafkaProducer(**options(world, delivery_timeout_ms=1_200_000, **given))
    started.append(producer)
    await producer.start()
    for partition in (1, 2):
        await producer.send_and_wait("t", b"v", partition=partition)
    await asyncio.sleep(60)
    return producer


def test_produce_response_with_not_leader_refreshes() -> None:
    """`BatchResolver.resolve`."""

    async def scenario(world: World) -> None:
        producer = await idle_producer(world)
        before = refreshes(world)
        move(world)
        async with asyncio.timeout(3):
            await producer.send_and_wait("t", b"v", partition=0)
        assert len(to_former_leader(world, ProduceRequest)) == 1
        assert refreshes(world) == before + 1

    play(scenario)


def test_lost_produce_request_refreshes() -> None:
    """`Sink.request_failed`: the broker that is gone is tried no second time."""

    async def scenario(world: World) -> None:
        producer = await idle_producer(world, retry_backoff_ms=1000)
        before = refreshes(world)
        world.cluster.fault(ProduceRequest, then=Close(), node=0, where=moving(world))
        async with asyncio.timeout(3):
            await producer.send_and_wait("t", b"v", partition=0)
        assert len(to_former_leader(world, ProduceRequest)) == 1
        assert refreshes(world) == before + 1

    play(scenario)


def test_overdue_produce_response_refreshes() -> None:
    """`Sink.check_deadlines`."""

    async def scenario(world: World) -> None:
        producer = await idle_producer(world)
        world.cluster.fault(ProduceRequest, then=Hang(), node=0, where=moving(world))
        async with asyncio.timeout(2 * OVERDUE_S + 1):
            await producer.send_and_wait("t", b"v", partition=0)

    play(scenario)


def test_message_for_a_leaderless_partition_refreshes() -> None:
    """`Sender._send_due`: such a partition is in no request, so no error code tells its leader."""

    async def scenario(world: World) -> None:
        world.cluster.kill(0, then="leaderless")
        producer = AIOKafkaProducer(**options(world))
        started.append(producer)
        await producer.start()
        await producer.send_and_wait("t", b"v", partition=1)
        await asyncio.sleep(60)
        future = await producer.send("t", b"v", partition=0)
        await asyncio.sleep(1)
        assert not future.done()
        world.cluster.elect()
        async with asyncio.timeout(3):
            await future

    play(scenario)


# --- the consumer ---------------------------------------------------------------------------------


async def idle_consumer(
    world: World, *partitions: TopicPartition, **given: Any
) -> AIOKafkaConsumer[Any, Any]:
    """Return a consumer whose long polls are in flight."""
    consumer: AIOKafkaConsumer[Any, Any] = AIOKafkaConsumer(
        **options(world, auto_offset_reset="earliest", **given)
    )
    started.append(consumer)
    consumer.assign(partitions)
    await consumer.start()
    for partition in partitions:
        await consumer.position(partition)
    await asyncio.sleep(60)
    return consumer


async def reads_on(world: World, consumer: AIOKafkaConsumer[Any, Any], limit_s: float = 3) -> None:
    world.cluster.append("t", 0, [b"v"])
    async with asyncio.timeout(limit_s):
        assert (await consumer.getone(T0)).value == b"v"


def test_fetch_response_with_not_leader_refreshes() -> None:
    """`Fetcher._carry_out`."""

    async def scenario(world: World) -> None:
        consumer = await idle_consumer(world, T0)
        before = len(to_former_leader(world, FetchRequest))
        move(world)  # the broker responds to the long poll
        await reads_on(world, consumer)
        assert len(to_former_leader(world, FetchRequest)) == before

    play(scenario)


def test_lost_fetch_refreshes() -> None:
    """`Fetcher._request_failed`."""

    async def scenario(world: World) -> None:
        consumer = await idle_consumer(world, T0, TopicPartition("t", 1))
        world.cluster.fault(FetchRequest, then=Close(), node=0, where=moving(world))
        await until(lambda: world.cluster.leader("t", 0) == 1, "the next poll is lost")
        before = len(to_former_leader(world, FetchRequest))
        await reads_on(world, consumer)
        assert len(to_former_leader(world, FetchRequest)) == before

    play(scenario)


def test_lost_urgent_fetch_refreshes() -> None:
    """`Fetcher._send_urgent`: the long poll beside it hangs on."""

    async def scenario(world: World) -> None:
        world.cluster.append("t", 0, [b"v"])
        consumer = await idle_consumer(world, T0, T2, fetch_max_wait_ms=300_000)
        polls = world.cluster.fault(FetchRequest, then=Hang(), node=0)
        await consumer.getone(T0)
        world.cluster.append("t", 2, [b"ends the long poll"])
        await until(lambda: polls.hits, "the next one is in flight, and stays so")
        strike = moving(world)
        world.cluster.fault(
            FetchRequest,
            then=Close(),
            node=0,
            where=lambda request: request.max_wait_ms == 0 and strike(request),
        )
        consumer.seek(T0, 0)
        await until(lambda: world.cluster.leader("t", 0) == 1, "the urgent fetch is lost")
        before = len(to_former_leader(world, FetchRequest))
        async with asyncio.timeout(3):
            assert (await consumer.getone(T0)).offset == 0
        assert len(to_former_leader(world, FetchRequest)) == before

    play(scenario)


def test_overdue_fetch_response_refreshes() -> None:
    """`ResponseWatchdog._fire`, which also watches ListOffsets and the reads of ranges."""

    async def scenario(world: World) -> None:
        consumer = await idle_consumer(world, T0)
        world.cluster.fault(FetchRequest, then=Hang(), node=0)
        await asyncio.sleep(1)  # the next poll hangs
        move(world)
        await reads_on(world, consumer, limit_s=10)

    play(scenario)


def test_assigned_partition_without_a_leader_refreshes() -> None:
    """`Fetcher._find_leaders`."""

    async def scenario(world: World) -> None:
        world.cluster.kill(0, then="leaderless")
        consumer = await idle_consumer(world, TopicPartition("t", 1))
        consumer.assign([TopicPartition("t", 1), T0])
        consumer.seek(T0, 0)  # so no search for its position refreshes
        await asyncio.sleep(60)
        world.cluster.elect()
        await reads_on(world, consumer, limit_s=6)

    play(scenario)


def test_start_offset_from_a_former_leader_refreshes() -> None:
    """`StartOffsets._retry_later`."""

    async def scenario(world: World) -> None:
        consumer = await idle_consumer(world, T0, T2)
        consumer.pause(T0)  # it is in no long poll
        await asyncio.sleep(60)
        before = len(to_former_leader(world, ListOffsetsRequest))
        move(world)
        await consumer.seek_to_end(T0)
        async with asyncio.timeout(3):
            assert await consumer.position(T0) == 0
        assert len(to_former_leader(world, ListOffsetsRequest)) == before + 1

    play(scenario)


def test_offsets_of_a_former_leader_refresh() -> None:
    """`list_offsets._request_until_complete`."""

    async def scenario(world: World) -> None:
        consumer = await idle_consumer(world, T2)
        move(world)
        async with asyncio.timeout(3):
            assert await consumer.end_offsets([T0]) == {T0: 0}
        assert len(to_former_leader(world, ListOffsetsRequest)) == 1

    play(scenario)


@pytest.mark.parametrize("group_id", [None, "g"])
def test_missing_topic_of_a_subscription_refreshes(group_id: str | None) -> None:
    """`TopicSearch.next_look`."""

    async def scenario(world: World) -> None:
        consumer: AIOKafkaConsumer[Any, Any] = AIOKafkaConsumer(
            "t", **options(world, group_id=group_id)
        )
        started.append(consumer)
        await consumer.start()
        consumer.subscribe(["t", "later"])
        await asyncio.sleep(60)
        world.cluster.create_topic("later", 1)
        await until(
            lambda: TopicPartition("later", 0) in consumer.assignment(), "it is found", timeout_s=30
        )

    play(scenario, auto_create=False)


def test_changed_subscription_refreshes() -> None:
    """`ConsumerEngine.subscription_changed`: a topic that is known may have new partitions."""

    async def scenario(world: World) -> None:
        consumer: AIOKafkaConsumer[Any, Any] = AIOKafkaConsumer(**options(world))
        started.append(consumer)
        await consumer.start()
        consumer.subscribe(["t"])
        await until(lambda: len(consumer.assignment()) == 3, "its partitions are assigned")
        consumer.unsubscribe()  # so no fetch notices the change
        await asyncio.sleep(60)
        world.cluster.delete_topic("t")
        world.cluster.create_topic("t", 4)
        before = refreshes(world)
        consumer.subscribe(["t"])
        await until(lambda: refreshes(world) > before, "a refresh", timeout_s=3)
        await until(lambda: len(consumer.assignment()) == 4, "the new one is assigned")

    play(scenario)


# --- the router -----------------------------------------------------------------------------------


async def idle_router(world: World, **given: Any) -> Router:
    settings: dict[str, Any] = {
        **NETWORK_DEFAULTS,
        "client_id": "tests",
        "security_protocol": "PLAINTEXT",
        **options(world),
    }
    router = Router(net_config(**settings), Telemetry())
    started.append(router)
    router.metadata.add_topics(["t"])
    await router.start(**given)
    for node in (0, 1):
        await router.request(MetadataRequest(["t"]), node_id=node)
    await asyncio.sleep(60)
    return router


Meet = Callable[[World, Router], Awaitable[object]]


async def lose_a_request(world: World, router: Router) -> None:
    world.cluster.fault(ListOffsetsRequest, then=Close(), node=0)
    await router.request(ListOffsetsRequest(-1, []), node_id=0)


async def lose_a_connection(world: World, router: Router) -> None:
    world.network.refuse("broker 0")
    await router.connection(0, Lane.JOIN)


async def lose_a_probe_of_the_line(world: World, router: Router) -> None:
    world.network.refuse("broker 0")
    world.cluster.drop_connections(0)
    await asyncio.sleep(0.1)
    await router.exact_version(0, timeout_s=0.05)


async def name_an_unknown_node(world: World, router: Router) -> None:
    await router.exact_version(77, timeout_s=0.05)


@pytest.mark.parametrize(
    "meet",
    [lose_a_request, lose_a_connection, lose_a_probe_of_the_line, name_an_unknown_node],
)
def test_error_of_a_node_refreshes(meet: Meet) -> None:
    """`Router.request`, `connection`, `exact_version` and `_node`."""

    async def scenario(world: World) -> None:
        router = await idle_router(world)
        move(world)
        assert router.metadata.snapshot.leader(T0) == 0
        with pytest.raises(KafkaError):
            await meet(world, router)
        await until(lambda: router.metadata.snapshot.leader(T0) == 1, "a refresh", timeout_s=3)

    play(scenario, version="0.8.2")


def test_loss_of_the_last_connection_refreshes() -> None:
    """`Router.start(keep_connected=True)`."""

    async def scenario(world: World) -> None:
        router = await idle_router(world, keep_connected=True)
        move(world)
        world.cluster.drop_connections()
        await until(lambda: router.metadata.snapshot.leader(T0) == 1, "a refresh", timeout_s=3)

    play(scenario)
