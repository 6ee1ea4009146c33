"""`ready()` and `ping()` of the clients through outages, idleness and cuts, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka08.admin import AIOKafkaAdminClient
from aiokafka08.errors import (
    ConsumerStoppedError,
    IllegalArgumentError,
    IllegalStateError,
    NoBrokersAvailable,
    ProducerClosed,
)
from aiokafka08.protocol.requests.groups import HeartbeatRequest
from aiokafka08.protocol.requests.metadata import MetadataRequest
from aiokafka08.telemetry import Connected, Disconnected, Event
from aiokafka08.testing import Answer, Silence
from aiokafka08.testing.simulation import World, simulate

pytestmark = pytest.mark.fast

SECONDS = 10.0
"""How long a client may take to find out that a broker is back: the longest pause is 6 s."""

Client = AIOKafkaProducer | AIOKafkaConsumer[Any, Any]
Scenario = Callable[[World, Client], Coroutine[Any, Any, None]]


def new_client(world: World, kind: str, **options: Any) -> Client:
    servers = world.cluster.bootstrap_servers
    if kind == "producer":
        return AIOKafkaProducer(bootstrap_servers=servers, **options)
    if kind == "member":
        return AIOKafkaConsumer("t", bootstrap_servers=servers, group_id="g", **options)
    return AIOKafkaConsumer(bootstrap_servers=servers, **options)


def play(
    scenario: Scenario, kind: str, *, version: str = "0.9", brokers: int = 1, **options: Any
) -> None:
    """Run a scenario with a started client, which does nothing by itself."""

    async def run() -> None:
        client = new_client(world, kind, **options)
        assert not client.ready()
        async with client:
            assert client.ready()
            await scenario(world, client)
        assert not client.ready()

    with simulate(1, version=version, brokers=brokers, topics={"t": 1}) as world:
        world.run(run)


async def wait_ready(client: Client, expected: bool, limit_s: float = SECONDS) -> None:
    async with asyncio.timeout(limit_s):
        while client.ready() is not expected:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def stays_ready(client: Client, seconds: float) -> None:
    end = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < end:
        await asyncio.sleep(0.5)
        assert client.ready()


@pytest.mark.parametrize("version", ["0.8.0", "0.9", "0.10"])
@pytest.mark.parametrize("kind", ["producer", "consumer"])
def test_client_is_ready_again_without_traffic(kind: str, version: str) -> None:
    """The broker is away for a minute, and nothing is sent."""

    async def scenario(world: World, client: Client) -> None:
        for _ in range(3):
            world.cluster.kill(0)
            await wait_ready(client, False)
            with pytest.raises(NoBrokersAvailable, match="refused"):
                await client.ping()
            await asyncio.sleep(60)
            assert not client.ready()
            world.cluster.restart(0)
            await wait_ready(client, True)
            await client.ping()

    play(scenario, kind, version=version)


@pytest.mark.parametrize("options", [{}, {"connections_max_idle_ms": 1000}], ids=repr)
@pytest.mark.parametrize("kind", ["producer", "consumer"])
def test_idle_client_stays_ready(kind: str, options: dict[str, Any]) -> None:
    """It keeps one connection, and closes the others."""

    async def scenario(world: World, client: Client) -> None:
        await stays_ready(client, 1500)
        assert world.cluster.connections() == 1

    play(scenario, kind, brokers=3, **options)


def test_kept_connection_is_not_opened_again_and_again() -> None:
    events: list[Event] = []

    async def scenario(world: World, client: Client) -> None:
        await stays_ready(client, 100)
        assert not [event for event in events if isinstance(event, Disconnected)]
        assert len([event for event in events if isinstance(event, Connected)]) == 1

    play(scenario, "producer", connections_max_idle_ms=1000, on_event=events.append)


@pytest.mark.parametrize("version", ["0.8.0", "0.9", "0.10"])
def test_connection_that_the_broker_closes_is_opened_again(version: str) -> None:
    """As it does after `connections.max.idle.ms`."""

    async def scenario(world: World, client: Client) -> None:
        for _ in range(3):
            await asyncio.sleep(20)
            assert world.cluster.drop_connections() == 1
            await asyncio.sleep(1)
            assert client.ready()
            assert world.cluster.connections() == 1

    play(scenario, "producer", version=version)


@pytest.mark.parametrize("version", ["0.8.0", "0.9", "0.10"])
@pytest.mark.parametrize("kind", ["producer", "consumer"])
def test_cut_connection_is_replaced_within_seconds(kind: str, version: str) -> None:
    """A firewall forgets the idle connection, and says nothing. New ones work.

    The next refresh of the metadata finds out.
    """

    async def scenario(world: World, client: Client) -> None:
        assert world.network.half_open() == 1
        before = len(world.cluster.history)
        await stays_ready(client, 60)
        assert len(world.cluster.history) == before
        await asyncio.sleep(SECONDS)
        await stays_ready(client, 40)
        assert len(world.cluster.history) > before

    play(scenario, kind, version=version, metadata_max_age_ms=60_000)


def test_ping_replaces_a_cut_connection() -> None:
    async def scenario(world: World, client: Client) -> None:
        assert world.network.half_open() == 1
        await client.ping()

    play(scenario, "producer")


def test_client_behind_a_dead_network_is_not_ready() -> None:
    """No packet arrives, and no connection ends: the next refresh fails."""

    async def scenario(world: World, client: Client) -> None:
        world.network.block("client", None)
        await asyncio.sleep(70)
        assert not client.ready()
        with pytest.raises(NoBrokersAvailable, match="within"):
            await client.ping(timeout_ms=2000)
        world.network.heal()
        await wait_ready(client, True)

    play(scenario, "producer", metadata_max_age_ms=60_000)


def test_consumer_is_not_ready_before_start_has_returned() -> None:
    async def scenario() -> None:
        world.network.refuse("broker 0")
        consumer = new_client(world, "consumer", start_timeout_ms=5000)
        start = asyncio.create_task(consumer.start())
        for _ in range(20):
            await asyncio.sleep(0.2)
            assert not consumer.ready()
        with pytest.raises(NoBrokersAvailable):
            await start
        assert not consumer.ready()

    with simulate(1, brokers=1) as world:
        world.run(scenario)


def test_member_is_ready_while_it_is_joined() -> None:
    """Also without partitions; not while the group rebalances, nor when its session has ended."""

    async def scenario(world: World, client: Client) -> None:
        assert isinstance(client, AIOKafkaConsumer)
        async with new_client(world, "member") as second:
            assert isinstance(second, AIOKafkaConsumer)
            await wait_ready(client, True)
            assert sorted([client.assignment(), second.assignment()], key=len) == [
                set(),
                {TopicPartition("t", 0)},
            ]
            assert second.ready()
        await wait_ready(client, True)
        silent = world.cluster.fault(HeartbeatRequest, then=Silence(), times=None)
        await wait_ready(client, False, limit_s=15)
        silent.cancel()
        await wait_ready(client, True, limit_s=60)
        client.unsubscribe()
        await wait_ready(client, True)
        client.subscribe(["t"])
        assert not client.ready()
        await wait_ready(client, True)

    play(scenario, "member")


def test_refreshes_with_errors_are_responses() -> None:
    async def scenario(world: World, client: Client) -> None:
        world.cluster.fault(MetadataRequest, then=Answer(5), times=None)
        await stays_ready(client, 100)

    play(scenario, "producer", version="0.10", metadata_max_age_ms=10_000)


def test_ping_of_each_client_says_what_failed() -> None:
    async def scenario() -> None:
        servers = world.cluster.bootstrap_servers
        admin = AIOKafkaAdminClient(bootstrap_servers=servers)
        producer = new_client(world, "producer")
        consumer = new_client(world, "consumer")
        for client in (admin, producer, consumer):
            with pytest.raises(IllegalStateError, match="isn't started"):
                await client.ping()
            await client.start()
            await client.ping()
            with pytest.raises(IllegalArgumentError, match="timeout_ms=0"):
                await client.ping(timeout_ms=0)
        world.cluster.kill(0)
        for client in (admin, producer, consumer):
            with pytest.raises(NoBrokersAvailable, match=r"kafka0:\d+: .*refused"):
                await client.ping(timeout_ms=3000)
        stopped = asyncio.ensure_future(consumer.ping(timeout_ms=60_000))
        await asyncio.sleep(0.01)
        await asyncio.gather(admin.close(), producer.stop(), consumer.stop())
        with pytest.raises(ConsumerStoppedError):
            await stopped
        for client, error in (
            (admin, IllegalStateError),
            (producer, ProducerClosed),
            (consumer, ConsumerStoppedError),
        ):
            with pytest.raises(error):
                await client.ping()

    with simulate(1, brokers=1) as world:
        world.run(scenario)
