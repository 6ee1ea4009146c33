"""`max_poll_interval_ms` in groups of brokers: only the user's calls count as use of a member."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka08 import TopicPartition
from aiokafka08.telemetry import Event, GroupLeft
from tests.conformance.contract.client.broker import Broker
from tests.conformance.contract.targets import on_targets
from tests.support.names import unique_name
from tests.support.waiting import until


@on_targets(since="0.9")
@pytest.mark.timeout(150)
async def test_hung_member_leaves_a_group_that_keeps_rebalancing(broker: Broker) -> None:
    """A third member comes and goes more often than every `max_poll_interval_ms`."""
    topic, events = await broker.create_topic(partitions=2), list[Event]()
    options = {
        "group_id": unique_name("g"),
        "session_timeout_ms": 6000,
        "heartbeat_interval_ms": 100,
    }
    working = await broker.consumer(topic, **options)
    waiting = asyncio.create_task(working.getmany(timeout_ms=120_000))
    hung = await broker.consumer(
        topic, max_poll_interval_ms=6000, on_event=events.append, **options
    )
    async with asyncio.timeout(90):
        while not any(isinstance(event, GroupLeft) for event in events):
            visitor = broker.new_consumer(topic, **options)
            await visitor.start()
            await visitor.stop()
    assert hung.assignment() == set()
    everything = {TopicPartition(topic, 0), TopicPartition(topic, 1)}
    await until(lambda: working.assignment() == everything, "taking over", timeout_s=30)
    waiting.cancel()
    assert await hung.getmany(timeout_ms=0) == {}
    await until(lambda: len(hung.assignment()) == 1, "coming back", timeout_s=30)
