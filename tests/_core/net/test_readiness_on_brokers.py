"""`ready()` of an idle producer: a real broker closes idle connections, dies and returns."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka08 import AIOKafkaProducer
from aiokafka08.errors import NoBrokersAvailable
from aiokafka08.telemetry import Disconnected, Event
from tests.brokers import RealCluster
from tests.support.waiting import until

pytestmark = [pytest.mark.real, pytest.mark.timeout(150)]


@pytest.mark.release("0.9.0.1")
async def test_idle_producer_is_ready_while_the_broker_is_there() -> None:
    cluster = RealCluster("0.9.0.1", properties={"connections.max.idle.ms": 1000})
    events: list[Event] = []
    try:
        await asyncio.to_thread(cluster.start)
        async with AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, on_event=events.append
        ) as producer:
            await producer.ping()  # an unused connection isn't closed: docs/brokers.md 3.8
            await until(lambda: any(type(event) is Disconnected for event in events), "idleness")
            await until(producer.ready)
            await asyncio.to_thread(cluster.kill, 0)
            await until(lambda: not producer.ready())
            with pytest.raises(NoBrokersAvailable, match="refused"):
                await producer.ping()
            await asyncio.to_thread(cluster.restart, 0)
            await until(producer.ready)
            await producer.ping()
    finally:
        await asyncio.to_thread(cluster.close)
