"""An embedded cluster in the test's own loop, and consumers that are stopped at the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pytest

from aiokafka08._core.concurrency.loop_yield import LoopSlice
from aiokafka08.consumer import AIOKafkaConsumer
from aiokafka08.protocol.requests.fetch import FetchRequest
from aiokafka08.structs import ConsumerRecord, TopicPartition
from aiokafka08.testing import EmbeddedCluster
from tests.support.clients import OpenConsumer
from tests.support.waiting import until

Consumer = AIOKafkaConsumer[Any, Any]
MakeConsumer = Callable[..., OpenConsumer]


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    """Two brokers of 0.8.2; the topic "t" has four partitions, 0 and 2 on node 0."""
    async with EmbeddedCluster(2, topics={"t": 4}) as running:
        yield running


@pytest.fixture
async def make_consumer(cluster: EmbeddedCluster) -> AsyncIterator[MakeConsumer]:
    """Make consumers of the cluster with short waits and "earliest"; options replace these."""
    made: list[OpenConsumer] = []

    def make(*topics: str, **options: Any) -> OpenConsumer:
        defaults = {
            "bootstrap_servers": cluster.bootstrap_servers,
            "auto_offset_reset": "earliest",
            "retry_backoff_ms": 20,
            "fetch_max_wait_ms": 100,
        }
        consumer = OpenConsumer(*topics, **{**defaults, **options})
        made.append(consumer)
        return consumer

    yield make
    for consumer in made:
        await consumer.stop()


def slices_of(seconds: float) -> dict[str, Any]:
    """Return the `parts` of a consumer that yields to the event loop after so many seconds."""
    return {"new_slice": partial(LoopSlice, seconds)}


def tp(partition: int, topic: str = "t") -> TopicPartition:
    return TopicPartition(topic, partition)


def values(start: int, stop: int) -> list[bytes | None]:
    return [b"%d" % number for number in range(start, stop)]


def has_partition(partition: int, request: FetchRequest) -> bool:
    return any(one.partition == partition for topic in request.topics for one in topic.partitions)


async def take(consumer: Consumer, count: int, *partitions: TopicPartition) -> list[Any]:
    """Take this many messages with `getmany`."""
    taken: list[ConsumerRecord[Any, Any]] = []
    async with asyncio.timeout(20):
        while len(taken) < count:
            got = await consumer.getmany(*partitions, timeout_ms=1000)
            taken += [record for records in got.values() for record in records]
    assert len(taken) == count, f"{len(taken)} messages instead of {count}"
    return taken


async def until_no_fetch_is_in_flight(consumer: Consumer) -> None:
    """Wait until all buffers are full: twenty checks in a row see no bytes requested."""
    quiet = 0

    def is_quiet() -> bool:
        nonlocal quiet
        quiet = 0 if consumer.metrics()["requested_bytes"] else quiet + 1
        return quiet >= 20

    await until(is_quiet, "no fetch in flight", timeout_s=30)
