"""Times that options set, by a clock that moves: in virtual time a minute costs nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from itertools import pairwise
from typing import Any, TypeVar

import pytest

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka08.protocol.requests.committed_offsets import OffsetCommitRequest
from aiokafka08.protocol.requests.produce import ProduceRequest
from aiokafka08.telemetry import Disconnected, Event
from aiokafka08.testing import Answer
from aiokafka08.testing.simulation import World, simulate

T = TypeVar("T")
PLACE = TopicPartition("t", 0)


@pytest.mark.parametrize("linger_ms", [0, 3000, 10_000])
def test_message_lingers_for_linger_ms(linger_ms: int) -> None:
    async def play(world: World) -> float:
        clock = asyncio.get_running_loop().time
        servers = world.cluster.bootstrap_servers
        async with AIOKafkaProducer(bootstrap_servers=servers, linger_ms=linger_ms) as producer:
            await producer.partitions_for("t")
            begin = clock()
            sending = await producer.send("t", b"1", partition=0)
            await sending
            return clock() - begin

    assert linger_ms / 1000 <= _played(play) < linger_ms / 1000 + 0.1


def test_pauses_between_retries_grow_to_their_limit() -> None:
    async def play(world: World) -> list[float]:
        clock, times = asyncio.get_running_loop().time, list[float]()

        def note(request: object) -> bool:
            times.append(clock())
            return True

        world.cluster.fault(ProduceRequest, then=Answer(7), times=8, where=note)
        producer = AIOKafkaProducer(
            bootstrap_servers=world.cluster.bootstrap_servers,
            retry_backoff_ms=100,
            delivery_timeout_ms=60_000,
        )
        async with producer:
            await producer.send_and_wait("t", b"1", partition=0)
        return [after - before for before, after in pairwise(times)]

    pauses = _played(play)
    assert len(pauses) == 7
    assert pauses[0] < 0.2
    assert all(after > before for before, after in pairwise(pauses[:3]))
    assert 0.7 < max(pauses) < 1.3, "the limit is a second"


def test_idle_connection_is_closed_at_its_limit() -> None:
    async def play(world: World) -> list[float]:
        clock, closed = asyncio.get_running_loop().time, list[float]()

        def on_event(event: Event) -> None:
            if isinstance(event, Disconnected) and event.reason == "idle":
                closed.append(clock())

        producer = AIOKafkaProducer(
            bootstrap_servers=world.cluster.bootstrap_servers,
            connections_max_idle_ms=60_000,
            on_event=on_event,
        )
        async with producer:
            await producer.send_and_wait("t", b"1", partition=0)
            begin = clock()
            await asyncio.sleep(100.0)
        return [at - begin for at in closed]

    [idle_s] = _played(play)  # the last connection stays open
    assert 59.9 <= idle_s < 61.0


def test_automatic_commits_have_their_interval() -> None:
    async def play(world: World) -> list[float]:
        clock, times = asyncio.get_running_loop().time, list[float]()

        def note(request: object) -> bool:
            times.append(clock())
            return True

        world.cluster.fault(OffsetCommitRequest, then=Answer(0), times=None, where=note)
        consumer = AIOKafkaConsumer(
            bootstrap_servers=world.cluster.bootstrap_servers,
            group_id="g",
            auto_commit_interval_ms=7000,
        )
        consumer.assign([PLACE])
        async with consumer:
            await consumer.position(PLACE)
            await asyncio.sleep(60.0)
        return [after - before for before, after in pairwise(times)]

    pauses = _played(play)
    assert len(pauses) >= 7
    assert all(7.0 <= pause < 7.2 for pause in pauses[:-1])


def _played(play: Callable[[World], Coroutine[Any, Any, T]]) -> T:
    with simulate(1, brokers=1, version="0.9", topics={"t": 1}) as world:
        return world.run(play, world, limit_s=600.0)
