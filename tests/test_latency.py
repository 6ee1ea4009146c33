"""Times in `metrics()`: of acknowledgements, requests and commits, measured in virtual time."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka08.errors import (
    GroupCoordinatorNotAvailableError,
    KafkaTimeoutError,
    NotLeaderForPartitionError,
)
from aiokafka08.protocol.api import Request
from aiokafka08.protocol.requests.committed_offsets import OffsetCommitRequest
from aiokafka08.protocol.requests.fetch import FetchRequest
from aiokafka08.protocol.requests.produce import ProduceRequest
from aiokafka08.testing import Answer, Delay
from aiokafka08.testing.simulation import World, simulate

Metrics = dict[str, float]
NETWORK_S = 0.05
"""More than a simulated network takes for a request and its response."""


def produced(use: Callable[[World, AIOKafkaProducer], Awaitable[None]], **options: Any) -> Metrics:
    """Return the metrics of a producer after `use`."""
    with simulate(1, brokers=1, topics={"t": 1}) as world:

        async def scenario() -> Metrics:
            servers = world.cluster.bootstrap_servers
            async with AIOKafkaProducer(bootstrap_servers=servers, **options) as producer:
                await use(world, producer)
                return producer.metrics()

        return world.run(scenario)


def delay(world: World, request: type[Request[Any]], seconds: float) -> None:
    world.cluster.fault(request, then=Delay(seconds), times=None)


def member(world: World, **options: Any) -> AIOKafkaConsumer[bytes, bytes]:
    """Return a member of a group that commits only when it is asked to."""
    return AIOKafkaConsumer(
        "t",
        bootstrap_servers=world.cluster.bootstrap_servers,
        group_id="g",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **options,
    )


def buckets(metrics: Metrics, name: str) -> dict[float, float]:
    start = f"{name}_bucket{{"
    return {
        float(key.removeprefix(start).removesuffix("}")): value
        for key, value in metrics.items()
        if key.startswith(start)
    }


def test_acknowledgement_counts_from_the_first_message_of_a_batch() -> None:
    async def use(world: World, producer: AIOKafkaProducer) -> None:
        delay(world, ProduceRequest, 0.2)
        first = await producer.send("t", b"1")
        await asyncio.sleep(0.3)
        await asyncio.gather(first, await producer.send("t", b"2"))

    metrics = produced(use, linger_ms=400)
    assert (metrics["acknowledgement_seconds_count"], metrics["messages_sent"]) == (1, 2)
    assert 0.6 <= metrics["acknowledgement_seconds_sum"] < 0.6 + NETWORK_S
    assert metrics["request_seconds_count"] == 1
    assert 0.2 <= metrics["request_seconds_sum"] < 0.2 + NETWORK_S


def test_buckets_count_the_times_up_to_their_bound() -> None:
    async def use(world: World, producer: AIOKafkaProducer) -> None:
        for seconds in (0.0, 0.3, 0.7, 3.0):
            world.cluster.fault(ProduceRequest, then=Delay(seconds))
            await producer.send_and_wait("t", b"1")

    found = buckets(produced(use), "request_seconds")
    assert [found[bound] for bound in (0.001, 0.25, 0.5, 1.0, 2.5, 5.0, math.inf)] == [
        *(0, 1, 2, 3, 3, 4, 4)
    ]
    assert list(found) == sorted(found)


def test_retried_batch_has_one_time_and_each_request_its_own() -> None:
    async def use(world: World, producer: AIOKafkaProducer) -> None:
        world.cluster.fault(ProduceRequest, then=Answer(NotLeaderForPartitionError.errno))
        await producer.send_and_wait("t", b"1")

    metrics = produced(use, retry_backoff_ms=1000)
    assert metrics["request_seconds_count"] == metrics["requests_sent"] == 2
    assert metrics["acknowledgement_seconds_count"] == 1
    assert metrics["request_seconds_sum"] < 2 * NETWORK_S
    assert metrics["acknowledgement_seconds_sum"] > 0.8


def test_messages_that_fail_have_no_time_of_acknowledgement() -> None:
    async def use(world: World, producer: AIOKafkaProducer) -> None:
        delay(world, ProduceRequest, 5)
        with pytest.raises(KafkaTimeoutError):
            await producer.send_and_wait("t", b"1")
        await asyncio.sleep(10)  # the late response comes

    metrics = produced(use, delivery_timeout_ms=1000)
    assert metrics["acknowledgement_seconds_count"] == 0
    assert metrics["request_seconds_count"] == 1


def test_acks_0_has_no_time_of_acknowledgement() -> None:
    async def use(world: World, producer: AIOKafkaProducer) -> None:
        await producer.send_and_wait("t", b"1")
        await producer.flush()

    metrics = produced(use, acks=0)
    assert (metrics["messages_sent"], metrics["acknowledgement_seconds_count"]) == (1, 0)


def test_commit_and_fetch_have_times() -> None:
    with simulate(1, brokers=1, version="0.9", topics={"t": 1}) as world:
        world.cluster.append("t", 0, [b"1"])

        async def scenario() -> tuple[Metrics, Metrics]:
            async with member(world, fetch_max_wait_ms=500) as consumer:
                await consumer.getone()
                world.cluster.fault(
                    OffsetCommitRequest, then=Answer(GroupCoordinatorNotAvailableError.errno)
                )
                delay(world, OffsetCommitRequest, 0.2)
                delay(world, FetchRequest, 1)
                before = consumer.metrics()
                await consumer.commit()
                await asyncio.sleep(10)
                return before, consumer.metrics()

        before, after = world.run(scenario)
    assert before["commit_seconds_count"] == 0
    assert after["commit_seconds_count"] == 1
    assert 0.2 < after["commit_seconds_sum"] < 0.2 + 0.5  # with a retry and its back-off
    fetches, seconds = (
        after[f"fetch_request_seconds_{what}"] - before[f"fetch_request_seconds_{what}"]
        for what in ("count", "sum")
    )
    assert 5 <= fetches <= 7
    assert 1 < seconds / fetches < 1.6


def test_commit_that_fails_has_no_time() -> None:
    with simulate(1, brokers=1, version="0.9", topics={"t": 1}) as world:
        world.cluster.append("t", 0, [b"1"])

        async def scenario() -> Metrics:
            async with member(world, request_timeout_ms=2000) as consumer:
                await consumer.getone()
                delay(world, OffsetCommitRequest, 5)
                with pytest.raises(KafkaTimeoutError):
                    await consumer.commit()
                return consumer.metrics()

        assert world.run(scenario)["commit_seconds_count"] == 0
