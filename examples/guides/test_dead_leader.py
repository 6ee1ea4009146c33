"""A producer goes on with the next leader, with shop.py of docs/testing.md, all in one loop."""

import asyncio

import pytest
from shop import place_order

from aiokafka08 import AIOKafkaProducer
from aiokafka08.testing import EmbeddedCluster

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.kafka_cluster(brokers=3, topics={"orders": 1}),
]


async def test_a_long_lived_producer_goes_on_with_the_new_leader(kafka_cluster):
    servers = kafka_cluster.bootstrap_servers
    async with AIOKafkaProducer(bootstrap_servers=servers, acks="all") as producer:
        await producer.send_and_wait("orders", b"tea")
        dead = kafka_cluster.leader("orders", 0)
        kafka_cluster.kill(dead)
        await asyncio.wait_for(producer.send_and_wait("orders", b"milk"), 10)
        assert kafka_cluster.leader("orders", 0) != dead
        assert [one.value for one in kafka_cluster.log("orders", 0)] == [b"tea", b"milk"]


async def test_a_cluster_in_the_same_loop():
    async with EmbeddedCluster(version="0.10") as cluster:
        await place_order(cluster.bootstrap_servers, b"tea")
        assert cluster.offsets("orders", 0).end == 1
