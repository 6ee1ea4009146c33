"""A service's test on a Kafka 0.8 that lives inside the test: no broker, no container, no mock.

pytest examples/test_my_service.py

pytest finds the fixture `kafka_cluster` by itself where aiokafka08 is installed; docs/testing.md
has its options, and the ways to let brokers fail.
"""

from __future__ import annotations

import asyncio

from aiokafka08 import AIOKafkaProducer
from aiokafka08.testing import EmbeddedCluster


async def place_order(bootstrap_servers: str, customer: str, article: str) -> int:
    """The service: a customer's orders stay in order, the answer is the order's number."""
    async with AIOKafkaProducer(bootstrap_servers=bootstrap_servers, acks="all") as producer:
        sent = await producer.send_and_wait("orders", article.encode(), key=customer.encode())
        return sent.offset


def test_an_order_is_in_the_log_under_its_customer(kafka_cluster: EmbeddedCluster) -> None:
    number = asyncio.run(place_order(kafka_cluster.bootstrap_servers, "alice", "tea"))
    [message] = kafka_cluster.log("orders", 0)
    assert (message.offset, message.key, message.value) == (number, b"alice", b"tea")
