"""A cluster that has groups, and members that leave at the end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterator
from typing import Any

import pytest

from aiokafka08 import AIOKafkaConsumer, TopicPartition
from aiokafka08.testing import EmbeddedCluster

MakeMember = Callable[..., AIOKafkaConsumer]

SESSION_MS = 1000
"""Short, but not so short that a busy machine ends it."""


@pytest.fixture(params=["0.9", "0.10"])
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[EmbeddedCluster]:
    """Two brokers; the topic "t" has four partitions."""
    running = EmbeddedCluster(2, request.param, {"t": 4}, group_min_session_timeout_ms=100)
    async with running:
        yield running


@pytest.fixture
async def make_member(cluster: EmbeddedCluster) -> AsyncIterator[MakeMember]:
    """A member of the group "g" with short waits; options win."""
    made: list[AIOKafkaConsumer] = []

    def make(*topics: str, **options: Any) -> AIOKafkaConsumer:
        member = AIOKafkaConsumer(*topics, **member_options(cluster, **options))
        made.append(member)
        return member

    yield make
    for member in made:
        await member.stop()


@pytest.fixture
def stops() -> Iterator[list[Callable[[], object]]]:
    """What is to be stopped at the end."""
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
    """Whether each partition has one owner, and each member as many as another, or one more."""
    counts = [len(member.assignment()) for member in members]
    owned = set().union(*(member.assignment() for member in members))
    return owned == set(among) and sum(counts) == len(among) and max(counts) - min(counts) <= 1
