"""A list needs fewer requests, with measure.py of docs/guides/tuning.md."""

import pytest
from measure import rates, reading

from aiokafka08 import AIOKafkaProducer


@pytest.mark.asyncio
@pytest.mark.kafka_cluster(topics={"lines": 1})
async def test_a_list_needs_fewer_requests_than_single_messages(kafka_cluster):
    async with AIOKafkaProducer(bootstrap_servers=kafka_cluster.bootstrap_servers) as producer:
        start = reading(producer)
        for _ in range(100):
            await producer.send_and_wait("lines", b"x" * 100)
        between = reading(producer)
        await (await producer.send_many("lines", [b"x" * 100] * 10_000))
        end = reading(producer)
    assert rates(start, between)["messages_per_request"] == 1
    assert rates(between, end)["messages_per_request"] > 1000
