"""Calls that wait for each other and batches that get old, on brokers that don't respond."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka08 import AIOKafkaProducer
from aiokafka08.errors import KafkaTimeoutError, UnknownTopicOrPartitionError
from aiokafka08.protocol.requests.metadata import MetadataRequest
from aiokafka08.protocol.requests.produce import ProduceRequest
from aiokafka08.testing import Hang
from aiokafka08.testing.simulation import World, simulate

DELIVERY_S = 10.0
CALLS = 6


async def durations(world: World, call: str) -> list[float]:
    """Return after how many seconds each call ended, of some that are made at once."""
    world.cluster.fault(ProduceRequest, then=Hang(), times=None)
    clock = asyncio.get_running_loop().time

    async def timed() -> float:
        begin = clock()
        try:
            if call == "send":
                await producer.send("t", b"v" * 74)
            else:
                await producer.send_many("t", [b"v" * 74] * 3)
        except KafkaTimeoutError:
            pass
        return clock() - begin

    async with AIOKafkaProducer(
        bootstrap_servers=world.cluster.bootstrap_servers,
        buffer_memory=200,
        delivery_timeout_ms=int(1000 * DELIVERY_S),
        request_timeout_ms=2 * int(1000 * DELIVERY_S),
    ) as producer:
        return await asyncio.gather(*(timed() for _ in range(CALLS)))


def test_each_waiting_send_ends_within_the_delivery_timeout() -> None:
    with simulate(1, brokers=1, topics={"t": 1}) as world:
        assert max(world.run(durations, world, "send")) <= DELIVERY_S + 1


def test_send_many_waits_for_its_turn_for_the_delivery_timeout() -> None:
    """Then it may wait as long for memory."""
    with simulate(1, brokers=1, topics={"t": 1}) as world:
        assert max(world.run(durations, world, "send_many")) <= 2 * DELIVERY_S + 1


def test_topic_is_looked_up_no_longer_than_max_block_ms() -> None:
    async def scenario(world: World) -> float:
        async with AIOKafkaProducer(
            bootstrap_servers=world.cluster.bootstrap_servers, max_block_ms=300
        ) as producer:
            world.cluster.fault(MetadataRequest, then=Hang(), times=None)
            begin = world.virtual_s
            with pytest.raises(KafkaTimeoutError, match="no metadata within 300 ms"):
                await producer.send("t", b"v")
            return world.virtual_s - begin

    with simulate(1, brokers=1, topics={"t": 1}) as world:
        assert world.run(scenario, world) == pytest.approx(0.3, abs=0.05)


def test_partition_that_was_missing_is_looked_up_no_longer_than_max_block_ms() -> None:
    """A moment ago the brokers didn't have it; now they don't respond."""

    async def scenario(world: World) -> float:
        async with AIOKafkaProducer(
            bootstrap_servers=world.cluster.bootstrap_servers, max_block_ms=5000
        ) as producer:
            with pytest.raises(UnknownTopicOrPartitionError):
                await producer.send("t", b"v", partition=7)
            world.cluster.fault(MetadataRequest, then=Hang(), times=None)
            await asyncio.sleep(1)
            begin = world.virtual_s
            with pytest.raises(KafkaTimeoutError, match="no metadata within 5000 ms"):
                await producer.send("t", b"v", partition=7)
            return world.virtual_s - begin

    with simulate(1, brokers=1, topics={"t": 1}) as world:
        assert world.run(scenario, world) == pytest.approx(5, abs=0.05)


def test_memory_is_waited_for_within_the_delivery_timeout() -> None:
    async def scenario(world: World) -> None:
        world.cluster.fault(ProduceRequest, then=Hang(), times=None)
        async with AIOKafkaProducer(
            bootstrap_servers=world.cluster.bootstrap_servers,
            buffer_memory=100,
            delivery_timeout_ms=2500,
            request_timeout_ms=20_000,
        ) as producer:
            await producer.send("t", b"v" * 74)
            await asyncio.sleep(1)
            with pytest.raises(KafkaTimeoutError, match="no memory within 2500 ms"):
                await producer.send("t", b"v" * 74)

    with simulate(1, brokers=1, topics={"t": 1}) as world:
        world.run(scenario, world)


def test_oldest_batch_ms_is_the_age_of_the_first_batch() -> None:
    async def scenario(world: World) -> None:
        world.cluster.fault(ProduceRequest, then=Hang(), times=None)
        async with AIOKafkaProducer(
            bootstrap_servers=world.cluster.bootstrap_servers, delivery_timeout_ms=20_000
        ) as producer:
            begin = world.virtual_s
            await producer.send("t", b"v", partition=0)
            await asyncio.sleep(2.0)
            await producer.send("t", b"v", partition=1)
            await asyncio.sleep(1.5)
            age_ms = 1000 * (world.virtual_s - begin)
            assert producer.metrics()["oldest_batch_ms"] == pytest.approx(age_ms, abs=1)

    with simulate(1, brokers=1, topics={"t": 2}) as world:
        world.run(scenario, world)


def test_batch_that_was_never_written_is_not_in_the_log() -> None:
    async def scenario(world: World) -> str:
        async with AIOKafkaProducer(
            bootstrap_servers=world.cluster.bootstrap_servers,
            delivery_timeout_ms=2000,
            request_timeout_ms=1000,
        ) as producer:
            await producer.partitions_for("t")
            world.cluster.kill(0, "unnoticed")
            with pytest.raises(KafkaTimeoutError, match="not acknowledged within 2000") as caught:
                await producer.send_and_wait("t", b"v")
            return str(caught.value)

    with simulate(1, brokers=1, topics={"t": 1}) as world:
        assert "in the log" not in world.run(scenario, world)
