"""Producers that are stopped whatever happens, and a cluster in the test's own loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from aiokafka08.producer import AIOKafkaProducer
from aiokafka08.telemetry import Event
from aiokafka08.testing import EmbeddedCluster

MakeProducer = Callable[..., Awaitable[AIOKafkaProducer]]


class Producer(AIOKafkaProducer):
    """Remembers what it told its hook."""

    def __init__(self, **options: Any) -> None:
        self.events: list[Event] = []
        super().__init__(on_event=self.events.append, **options)

    def told(self, kind: type[Event]) -> list[Any]:
        """The events of one kind."""
        return [event for event in self.events if type(event) is kind]


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    """Three brokers of 0.8.2 and the topic "t" with three partitions, one per broker."""
    async with EmbeddedCluster(brokers=3, version="0.8.2", topics={"t": 3}) as running:
        yield running


@pytest.fixture
async def producer_for() -> AsyncIterator[Callable[..., Awaitable[Producer]]]:
    """`await producer_for(cluster, **options)`: a started producer, quick to try again."""
    made: list[Producer] = []

    async def start(cluster: Any, **options: Any) -> Producer:
        options.setdefault("retry_backoff_ms", 10)
        options.setdefault("request_timeout_ms", 5000)
        producer = Producer(bootstrap_servers=cluster.bootstrap_servers, **options)
        made.append(producer)
        await producer.start()
        return producer

    yield start
    for producer in made:
        await producer.stop(timeout=10)
