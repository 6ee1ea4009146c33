"""A subscribed topic that is created later is read by members of a group within seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

import pytest

from aiokafka08 import AIOKafkaConsumer, TopicPartition
from aiokafka08.protocol.requests.groups import JoinGroupRequest
from aiokafka08.protocol.requests.metadata import MetadataRequest
from aiokafka08.testing.simulation import World, simulate

pytestmark = pytest.mark.fast

LATER = {TopicPartition("later", partition) for partition in range(2)}


async def start_member(world: World, topics: Collection[str]) -> AIOKafkaConsumer[Any, Any]:
    """Start a member whose metadata is refreshed each 5 minutes, the default."""
    member: AIOKafkaConsumer[Any, Any] = AIOKafkaConsumer(
        "t",
        bootstrap_servers=world.cluster.bootstrap_servers,
        group_id="g",
        auto_offset_reset="earliest",
    )
    await member.start()
    member.subscribe(topics)
    return member


async def wait_owned(
    members: Collection[AIOKafkaConsumer[Any, Any]], partitions: set[TopicPartition]
) -> None:
    async with asyncio.timeout(60):
        while set().union(*(member.assignment() for member in members)) != partitions:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def test_topic_that_is_created_later_is_read_soon() -> None:
    """Only the member that doesn't lead has subscribed to it."""

    async def scenario() -> float:
        first = await start_member(world, ["t"])
        second = await start_member(world, ["t", "later"])
        known = {TopicPartition("t", 0)}
        await wait_owned([first, second], known)
        await asyncio.sleep(20)
        begin = world.virtual_s
        world.cluster.create_topic("later", 2)
        world.cluster.append("later", 0, [b"first"])
        await wait_owned([first, second], known | LATER)
        record = await asyncio.wait_for(second.getone(), 10)
        assert (record.topic, record.value) == ("later", b"first")
        seconds = world.virtual_s - begin
        requests = len(world.cluster.requests(MetadataRequest))
        joins = len(world.cluster.requests(JoinGroupRequest))
        await asyncio.sleep(30)
        assert len(world.cluster.requests(MetadataRequest)) - requests < 5
        assert len(world.cluster.requests(JoinGroupRequest)) == joins
        await asyncio.gather(first.stop(), second.stop())
        return seconds

    with simulate(1, version="0.9", topics={"t": 1}, auto_create=False) as world:
        assert world.run(scenario) < 10


def test_missing_topic_is_looked_for_about_once_a_second() -> None:
    """By the leader alone."""

    async def scenario() -> int:
        members = [await start_member(world, ["t", "later"]) for _ in range(3)]
        await asyncio.sleep(10)
        requests = len(world.cluster.requests(MetadataRequest))
        await asyncio.sleep(100)
        count = len(world.cluster.requests(MetadataRequest)) - requests
        await asyncio.gather(*(member.stop() for member in members))
        return count

    with simulate(1, version="0.9", topics={"t": 1}, auto_create=False) as world:
        assert 80 < world.run(scenario) < 130
