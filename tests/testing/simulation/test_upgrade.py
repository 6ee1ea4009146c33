"""The real client through changes of its brokers, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka08._core.net.config import OffsetsStorage
from aiokafka08.errors import KafkaUnavailableError
from aiokafka08.telemetry import Event, GroupJoined
from aiokafka08.testing import EmbeddedCluster
from aiokafka08.testing.simulation import World, simulate


async def change_version(cluster: EmbeddedCluster, version: str) -> None:
    for node in cluster.nodes:
        cluster.stop(node)
    cluster.change_version(version)
    await asyncio.sleep(20)
    for node in cluster.nodes:
        cluster.restart(node)
    await asyncio.sleep(20)


@pytest.mark.parametrize("versions", [["0.9", "0.8.2"], ["0.8.1", "0.10"]])
def test_clients_survive_an_upgrade_and_its_undoing(versions: list[str]) -> None:
    with simulate(1, version="0.8.2", topics={"t": 1}) as world:

        async def run() -> list[bytes | None]:
            cluster = world.cluster
            servers = cluster.bootstrap_servers
            async with (
                AIOKafkaProducer(bootstrap_servers=servers, request_timeout_ms=5000) as producer,
                AIOKafkaConsumer(
                    "t", bootstrap_servers=servers, auto_offset_reset="earliest"
                ) as consumer,
            ):
                values = []
                for version in (None, *versions):
                    if version is not None:
                        await change_version(cluster, version)
                    await producer.send_and_wait("t", (version or "first").encode())
                    values.append((await consumer.getone()).value)
                return values

        expected = [b"first", *(version.encode() for version in versions)]
        assert world.run(run) == expected


def member(
    world: World, offsets_storage: OffsetsStorage = "zookeeper", topics: Sequence[str] = ("t",)
) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        *topics,
        bootstrap_servers=world.cluster.bootstrap_servers,
        zookeeper_connect=world.zookeeper_connect,
        offsets_storage=offsets_storage,
        group_id="g",
        auto_offset_reset="earliest",
    )


def test_group_of_zookeeper_keeps_its_partitions() -> None:
    """Members that start after the upgrade are coordinated by a broker, and would read them too."""
    with simulate(1, version="0.8.2", topics={"t": 2}) as world:

        async def run() -> None:
            async with member(world):
                await change_version(world.cluster, "0.9")
                late = member(world)
                with pytest.raises(KafkaUnavailableError, match="has members in ZooKeeper, g_"):
                    await late.start()
                assert not late.assignment()
                await late.stop()
            async with member(world) as later:
                assert len(later.assignment()) == 2

        world.run(run)


def test_member_waits_as_long_as_a_session_in_zookeeper() -> None:
    """A member that crashed is there until its session ends, after 10 s by default."""
    with simulate(1, version="0.8.2", topics={"t": 2}) as world:

        async def run() -> None:
            first, late = member(world), member(world)
            await first.start()
            await change_version(world.cluster, "0.9")
            start = asyncio.create_task(late.start())
            await asyncio.sleep(10)
            await first.stop()
            await start
            assert len(late.assignment()) == 2
            await late.stop()

        world.run(run)


def test_group_without_known_members_is_not_joined() -> None:
    with simulate(1, version="0.9", topics={"t": 2}) as world:

        async def run() -> None:
            world.zookeeper.disconnect(3600)
            refused = member(world, offsets_storage="kafka")
            with pytest.raises(KafkaUnavailableError, match="leave out zookeeper_connect"):
                await refused.start()
            await refused.stop()

        world.run(run)


def test_member_joins_behind_an_outage_of_zookeeper() -> None:
    """The user gets the error once per period, and no error for what isn't subscribed any more."""
    with simulate(1, version="0.9", topics={"t": 1}) as world:

        async def run() -> None:
            world.cluster.append("t", 0, [b"x"])
            async with member(world, "kafka", ()) as consumer:
                world.zookeeper.disconnect(60)
                consumer.subscribe(["t"])
                with pytest.raises(KafkaUnavailableError, match="leave out zookeeper_connect"):
                    await consumer.getone()
                assert (await consumer.getone()).value == b"x"

        world.run(run)


def test_assigned_partition_is_read_without_the_group() -> None:
    with simulate(1, version="0.9", topics={"t": 1}) as world:

        async def run() -> None:
            world.cluster.append("t", 0, [b"x"])
            async with member(world, "kafka", ()) as consumer:
                world.zookeeper.disconnect(3600)
                consumer.subscribe(["t"])
                await asyncio.sleep(1)
                consumer.unsubscribe()
                consumer.assign([TopicPartition("t", 0)])
                await asyncio.sleep(100)
                assert (await consumer.getone()).value == b"x"

        world.run(run)


@pytest.mark.parametrize("version", ["0.9", "0.10"])
def test_group_of_broker_survives_an_upgrade(version: str) -> None:
    """docs/brokers.md 8.19: real brokers store the group."""
    joined: list[tuple[str, int]] = []

    def joins(name: str) -> Callable[[Event], None]:
        def on_event(event: Event) -> None:
            if isinstance(event, GroupJoined):
                joined.append((name, event.generation))

        return on_event

    with simulate(1, version="0.9", topics={"t": 2}) as world:

        def start(name: str) -> AIOKafkaConsumer:
            servers = world.cluster.bootstrap_servers
            return AIOKafkaConsumer(
                "t",
                bootstrap_servers=servers,
                group_id="g",
                session_timeout_ms=30_000,
                on_event=joins(name),
            )

        async def run() -> None:
            async with start("one"):
                async with start("two"):
                    pass
                await asyncio.sleep(10)
                await change_version(world.cluster, version)
                async with start("three"):
                    pass

        world.run(run)
    assert sorted(joined) == [
        *(("one", number) for number in (1, 2, 3, 4)),
        ("three", 4),
        ("two", 2),
    ]
