"""Fixtures: a cluster in the test's own loop, and producers that are stopped after the test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from aiokafka08.telemetry import Event
from aiokafka08.testing import EmbeddedCluster
from tests.support.clients import OpenProducer

MakeProducer = Callable[..., Awaitable[OpenProducer]]


class Producer(OpenProducer):
    """Keeps the events that it emits."""

    def __init__(self, **options: Any) -> None:
        self.events: list[Event] = []
        super().__init__(on_event=self.events.append, **options)

    def events_of(self, kind: type[Event]) -> list[Any]:
        """Return the events of one type, oldest first."""
        return [event for event in self.events if type(event) is kind]


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    """Run three brokers of 0.8.2, with the topic "t" of three partitions, one per broker."""
    async with EmbeddedCluster(brokers=3, version="0.8.2", topics={"t": 3}) as running:
        yield running


@pytest.fixture
async def producer_for() -> AsyncIterator[Callable[..., Awaitable[Producer]]]:
    """`await producer_for(cluster, **options)` returns a started producer with a short backoff."""
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
