"""Test a service on a Kafka 0.8 inside the test process: no broker, no container, no mock.

pytest examples/test_my_service.py

pytest finds the fixture `kafka_cluster` if aiokafka08 is installed. docs/testing.md has its
options, and the ways to make brokers fail.
"""

from __future__ import annotations

import asyncio

from aiokafka08 import AIOKafkaProducer
from aiokafka08.testing import EmbeddedCluster


async def place_order(bootstrap_servers: str, customer: str, article: str) -> int:
    """Store an order and return its number; a customer's orders keep their order."""
    async with AIOKafkaProducer(bootstrap_servers=bootstrap_servers, acks="all") as producer:
        sent = await producer.send_and_wait("orders", article.encode(), key=customer.encode())
        return sent.offset


def test_an_order_is_in_the_log_under_its_customer(kafka_cluster: EmbeddedCluster) -> None:
    number = asyncio.run(place_order(kafka_cluster.bootstrap_servers, "alice", "tea"))
    [message] = kafka_cluster.log("orders", 0)
    assert (message.offset, message.key, message.value) == (number, b"alice", b"tea")
