"""Times that options set, by a clock that moves: in virtual time a minute costs nothing.

Each time ends within a moment after its limit, and never before: `is_in_time()`. Elsewhere:
sessions of ZooKeeper (`tests/testing/test_simulated_zookeeper.py`,
`tests/consumer/membership/zookeeper/test_simulated_groups.py`), the start of a member
(`tests/consumer/membership/test_start_of_a_member.py`), `request_timeout_ms` of each request behind
others (`tests/_core/net/test_transport.py`), idle lanes of a node (`tests/_core/net/test_node.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from itertools import pairwise
from typing import Any, TypeVar

import pytest

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka08.protocol.requests.committed_offsets import OffsetCommitRequest
from aiokafka08.protocol.requests.groups import (
    HeartbeatRequest,
    LeaveGroupRequest,
)
from aiokafka08.protocol.requests.metadata import MetadataRequest
from aiokafka08.protocol.requests.produce import ProduceRequest
from aiokafka08.telemetry import BatchRetried, Disconnected, Event, MetadataChanged
from aiokafka08.testing import Answer, Silence
from aiokafka08.testing.simulation import Network, World, simulate

T = TypeVar("T")
PLACE = TopicPartition("t", 0)
LATENCY_S = 0.001
MOMENT_S = 0.05
"""More than a connection and a request take in the simulated network."""
ROUNDING_S = 1e-6


def is_in_time(seconds: float, limit_s: float) -> bool:
    return limit_s - ROUNDING_S <= seconds < limit_s + MOMENT_S


def clock() -> float:
    return asyncio.get_running_loop().time()


def arrivals(world: World, request: type[Any]) -> list[float]:
    """Return the times at which such requests arrive, as they come."""
    times: list[float] = []

    def note(received: object) -> bool:
        times.append(clock())
        return False

    world.cluster.fault(request, then=Answer(0), times=None, where=note)
    return times


def pauses(times: list[float]) -> list[float]:
    return [after - before for before, after in pairwise(times)]


# --- linger_ms ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("linger_ms", "limit_s"),
    [
        (0, 0.0),
        (0.5, 0.0005),
        (3000, 3.0),
        (3000.75, 3.00075),
        (30_000.5, 30.0005),
        (90_000, 60.0),  # half of `delivery_timeout_ms`
    ],
)
def test_message_lingers_for_linger_ms(linger_ms: float, limit_s: float) -> None:
    async def play(world: World) -> tuple[float, list[float]]:
        times = arrivals(world, ProduceRequest)
        servers = world.cluster.bootstrap_servers
        async with AIOKafkaProducer(bootstrap_servers=servers, linger_ms=linger_ms) as producer:
            await producer.partitions_for("t")
            begin = clock()
            sent = [await producer.send("t", b"1", partition=0)]
            await asyncio.sleep(limit_s / 2)  # a later message doesn't make it wait longer
            if linger_ms:
                sent.append(await producer.send("t", b"2", partition=0))
            await asyncio.gather(*sent)
        return begin, times

    begin, times = _played(play)
    assert len(times) == 1
    assert is_in_time(times[0] - begin, limit_s)


def test_message_that_waited_for_its_topic_lingers_too() -> None:
    """The wait counts towards a linger above a tenth of `delivery_timeout_ms`, not below."""

    async def play(world: World, linger_ms: float) -> float:
        times = arrivals(world, ProduceRequest)
        servers = world.cluster.bootstrap_servers
        async with AIOKafkaProducer(bootstrap_servers=servers, linger_ms=linger_ms) as producer:
            begin = clock()
            await (await producer.send(f"new-{linger_ms}", b"1", partition=0))
        return times[0] - begin

    assert 3.05 < _played(lambda world: play(world, 3000)) < 3.2
    assert is_in_time(_played(lambda world: play(world, 30_000.5)), 30.0005)


# --- requests and connections ---------------------------------------------------------------------


def test_pauses_between_retries_grow_to_their_limit() -> None:
    async def play(world: World) -> list[float]:
        times = arrivals(world, ProduceRequest)
        world.cluster.fault(ProduceRequest, then=Answer(7), times=8)
        producer = AIOKafkaProducer(
            bootstrap_servers=world.cluster.bootstrap_servers,
            retry_backoff_ms=100,
            delivery_timeout_ms=60_000,
        )
        async with producer:
            await producer.send_and_wait("t", b"1", partition=0)
        return pauses(times)

    waited = _played(play)
    limits = [min(0.1 * 2**attempt, 1.0) for attempt in range(8)]
    assert len(waited) == len(limits)
    for pause, limit_s in zip(waited, limits, strict=True):
        assert 0.8 * limit_s <= pause < 1.2 * limit_s + MOMENT_S


def test_request_without_a_response_ends_at_its_timeout() -> None:
    async def play(world: World) -> list[float]:
        sent, given_up = arrivals(world, ProduceRequest), list[float]()

        def on_event(event: Event) -> None:
            if isinstance(event, BatchRetried):
                given_up.append(clock())

        world.cluster.fault(ProduceRequest, then=Silence(), times=3)
        producer = AIOKafkaProducer(
            bootstrap_servers=world.cluster.bootstrap_servers,
            request_timeout_ms=7000,
            on_event=on_event,
        )
        async with producer:
            await producer.send_and_wait("t", b"1", partition=0)
        return [at - begin + LATENCY_S for begin, at in zip(sent, given_up, strict=False)]

    waited = _played(play)
    assert len(waited) == 3
    assert all(is_in_time(seconds, 7.0) for seconds in waited)


def test_metadata_is_refreshed_at_its_age() -> None:
    async def play(world: World) -> list[float]:
        producer = AIOKafkaProducer(
            bootstrap_servers=world.cluster.bootstrap_servers, metadata_max_age_ms=7000
        )
        async with producer:
            await producer.partitions_for("t")
            times = arrivals(world, MetadataRequest)
            await asyncio.sleep(60.0)
        return pauses(times)

    waited = _played(play)
    assert len(waited) >= 7
    assert all(is_in_time(pause, 7.0) for pause in waited)


def test_idle_connection_is_closed_at_its_limit() -> None:
    async def play(world: World) -> list[float]:
        last_used: list[float] = []
        closed: list[float] = []

        def on_event(event: Event) -> None:
            if isinstance(event, MetadataChanged):
                last_used.append(clock())
            if isinstance(event, Disconnected) and event.reason == "idle":
                closed.append(clock())

        producer = AIOKafkaProducer(
            bootstrap_servers=world.cluster.bootstrap_servers,
            connections_max_idle_ms=60_000,
            on_event=on_event,
        )
        async with producer:
            await asyncio.sleep(30.0)
            await producer.send_and_wait("t", b"1", partition=0)
            await asyncio.sleep(100.0)
        return [at - last_used[-1] for at in closed]

    [idle_s] = _played(play)  # the last connection stays open
    assert is_in_time(idle_s, 60.0)


# --- members of groups ----------------------------------------------------------------------------


def test_automatic_commits_have_their_interval() -> None:
    async def play(world: World) -> list[float]:
        times = arrivals(world, OffsetCommitRequest)
        consumer = AIOKafkaConsumer(
            bootstrap_servers=world.cluster.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
            auto_commit_interval_ms=7000,
        )
        consumer.assign([PLACE])
        async with consumer:
            await consumer.position(PLACE)
            for _ in range(60):
                world.cluster.append("t", 0, [b"1"])
                await consumer.getone()
                await asyncio.sleep(1.0)
        return pauses(times)

    waited = _played(play)
    assert len(waited) >= 7
    assert all(is_in_time(pause, 7.0) for pause in waited[:-1])  # the last one is that of stop()


def member(world: World, **options: Any) -> AIOKafkaConsumer:
    servers = world.cluster.bootstrap_servers
    return AIOKafkaConsumer("t", bootstrap_servers=servers, group_id="g", **options)


def test_heartbeats_have_their_interval() -> None:
    async def play(world: World) -> list[float]:
        times = arrivals(world, HeartbeatRequest)
        async with member(world, session_timeout_ms=10_000, heartbeat_interval_ms=2500):
            await asyncio.sleep(60.0)
        return pauses(times)

    waited = _played(play)
    assert len(waited) >= 20
    assert all(is_in_time(pause, 2.5) for pause in waited)


def test_silent_member_is_replaced_after_its_session() -> None:
    async def play(world: World) -> float:
        heartbeats = arrivals(world, HeartbeatRequest)
        with world.process("silent"):
            silent = member(world, session_timeout_ms=10_000, heartbeat_interval_ms=3000)
            await silent.start()
        await asyncio.sleep(20.0)
        world.pause("silent")
        last = heartbeats[-1]
        async with member(world, session_timeout_ms=30_000) as other:
            assert other.assignment() == {PLACE}
            replaced = clock() - last
        world.resume("silent")
        await silent.stop()
        return replaced

    assert is_in_time(_played(play), 10.0)


def test_member_that_reads_nothing_leaves_after_max_poll_interval_ms() -> None:
    """Its heartbeats see whether it reads: so it may take an interval of them longer."""

    async def play(world: World) -> float:
        leaving = arrivals(world, LeaveGroupRequest)
        options = {"max_poll_interval_ms": 40_000, "heartbeat_interval_ms": 2000}
        async with member(world, **options) as consumer:
            world.cluster.append("t", 0, [b"1", b"2"])
            await consumer.getone()
            begin = clock()
            await asyncio.sleep(60.0)
            left = list(leaving)
        return left[0] - begin

    assert 40.0 <= _played(play) < 42.0 + MOMENT_S


def _played(play: Callable[[World], Coroutine[Any, Any, T]]) -> T:
    network = Network(latency_ms=(1000 * LATENCY_S, 1000 * LATENCY_S))
    with simulate(1, brokers=1, version="0.9", topics={"t": 1}, network=network) as world:
        return world.run(play, world, limit_s=600.0)
