"""An embedded cluster with groups, members that are stopped at the end, and a listener."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from typing import Any

import pytest

from aiokafka08 import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka08.testing import EmbeddedCluster
from tests.support.clients import OpenConsumer

MakeMember = Callable[..., OpenConsumer]

SESSION_MS = 1000
"""Short, but long enough that it doesn't expire on a busy machine."""


@pytest.fixture(params=["0.9", "0.10"])
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[EmbeddedCluster]:
    """Two brokers; the topic "t" has four partitions."""
    running = EmbeddedCluster(2, request.param, {"t": 4}, group_min_session_timeout_ms=100)
    async with running:
        yield running


@pytest.fixture
async def make_member(cluster: EmbeddedCluster) -> AsyncIterator[MakeMember]:
    """Return a factory for members of the group "g" with short timeouts; options override them."""
    made: list[OpenConsumer] = []

    def make(*topics: str, **options: Any) -> OpenConsumer:
        member = OpenConsumer(*topics, **member_options(cluster, **options))
        made.append(member)
        return member

    yield make
    for member in made:
        await member.stop()


@pytest.fixture
def stops() -> Iterator[list[Callable[[], object]]]:
    """Functions to call at the end of the test."""
    stops: list[Callable[[], object]] = []
    yield stops
    for stop in stops:
        stop()


def member_options(cluster: EmbeddedCluster, **options: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": cluster.bootstrap_servers,
        "group_id": "g",
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "retry_backoff_ms": 20,
        "fetch_max_wait_ms": 100,
        "session_timeout_ms": 10_000,
        "heartbeat_interval_ms": 20,
        "metadata_max_age_ms": 100,
        **options,
    }


def partitions(count: int, topic: str = "t") -> set[TopicPartition]:
    return {TopicPartition(topic, number) for number in range(count)}


def shared(*members: AIOKafkaConsumer, among: Collection[TopicPartition]) -> bool:
    """Return True if each partition has one owner and the members' loads differ by at most one."""
    counts = [len(member.assignment()) for member in members]
    owned = set().union(*(member.assignment() for member in members))
    return owned == set(among) and sum(counts) == len(among) and max(counts) - min(counts) <= 1


ALL = frozenset(partitions(4))
"""The partitions of the topic "t" of `cluster`."""


class RecordingListener(ConsumerRebalanceListener):
    """Records its calls; `on_partitions_revoked` returns when `gate` is set."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, frozenset[TopicPartition]]] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self.calls.append(("revoked", frozenset(revoked)))
        await self.gate.wait()

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        await asyncio.sleep(0)
        self.calls.append(("assigned", frozenset(assigned)))
