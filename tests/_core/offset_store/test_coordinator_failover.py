"""Commits while real brokers are killed: the next coordinator has all acknowledged offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from aiokafka08 import AIOKafkaConsumer, TopicPartition
from aiokafka08.admin import AIOKafkaAdminClient
from tests.brokers.fixtures import BrokerClusters
from tests.support.full import in_full

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]


@pytest.mark.parametrize(
    "version",
    [
        "0.8.2.2",
        *in_full("0.9.0.1", "0.10.2.2", "3.9.1"),
    ],
)
async def test_killed_coordinator_loses_no_commit(
    broker_clusters: BrokerClusters, unique_topic: Callable[..., str], version: str
) -> None:
    cluster = await asyncio.to_thread(broker_clusters.get, version, 3)
    topic, group = unique_topic(), unique_topic("g")
    tp = TopicPartition(topic, 0)
    await asyncio.to_thread(cluster.create_topic, topic, 1, 3)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers, group_id=group, enable_auto_commit=False
    )
    consumer.assign([tp])
    async with (
        consumer,
        AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin,
    ):
        await consumer.commit({tp: 1})
        first = await admin.find_coordinator(group)
        for partition in range(4):  # offsets.topic.num.partitions of these clusters
            await asyncio.to_thread(
                cluster.wait_isr, "__consumer_offsets", partition, list(cluster.nodes)
            )
        await asyncio.to_thread(cluster.kill, first)
        await asyncio.to_thread(cluster.expire, first)
        for offset in range(2, 6):
            await consumer.commit({tp: offset})
            assert await consumer.committed(tp) == offset
        assert await admin.find_coordinator(group) != first
        await asyncio.to_thread(cluster.restart, first)
        assert await consumer.committed(tp) == 5
        await consumer.commit({tp: 6})
        assert await consumer.committed(tp) == 6
