"""A subscribed topic that is created later is read by members of a group within seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

import pytest

from aiokafka08 import AIOKafkaConsumer, TopicPartition
from aiokafka08.protocol.requests.groups import JoinGroupRequest
from aiokafka08.protocol.requests.metadata import MetadataRequest
from aiokafka08.testing import Answer
from aiokafka08.testing.simulation import World, simulate

pytestmark = pytest.mark.fast

LATER = {TopicPartition("later", partition) for partition in range(2)}


async def start_member(
    world: World, topics: Collection[str], group_id: str | None = "g"
) -> AIOKafkaConsumer[Any, Any]:
    """Start a member whose metadata is refreshed each 5 minutes, the default."""
    member: AIOKafkaConsumer[Any, Any] = AIOKafkaConsumer(
        "t",
        bootstrap_servers=world.cluster.bootstrap_servers,
        group_id=group_id,
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


@pytest.mark.parametrize("group_id", ["g", None])
def test_missing_topic_is_looked_for_less_and_less(group_id: str | None) -> None:
    """By the leader alone, or by the consumer without a group: about once a second, then each 5."""

    async def scenario() -> tuple[int, int]:
        count = 3 if group_id else 1
        members = [
            await start_member(world, ["t", "later"], group_id=group_id) for _ in range(count)
        ]
        begin = len(world.cluster.requests(MetadataRequest))
        await asyncio.sleep(20)
        later = len(world.cluster.requests(MetadataRequest))
        await asyncio.sleep(100)
        end = len(world.cluster.requests(MetadataRequest))
        await asyncio.gather(*(member.stop() for member in members))
        return later - begin, end - later

    with simulate(1, version="0.9", topics={"t": 1}, auto_create=False) as world:
        first, then = world.run(scenario)
    assert 10 < first < 25
    assert 15 < then < 30


@pytest.mark.parametrize("group_id", ["g", None])
def test_topic_without_authorization_isnt_looked_for(group_id: str | None) -> None:
    """More requests don't change that. A refresh by age notices it."""

    async def scenario() -> int:
        member = await start_member(world, ["t"], group_id=group_id)
        world.cluster.fault(MetadataRequest, then=Answer(29), times=None)
        member.subscribe(["t", "secret"])
        await asyncio.sleep(20)
        requests = len(world.cluster.requests(MetadataRequest))
        await asyncio.sleep(100)
        count = len(world.cluster.requests(MetadataRequest)) - requests
        world.cluster.clear_faults()
        await member.stop()
        return count

    with simulate(1, version="0.9", topics={"t": 1}, auto_create=False) as world:
        assert world.run(scenario) < 3
