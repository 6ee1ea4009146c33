"""JSON values, with events.py of docs/guides/values.md."""

import pytest
from events import new_consumer, new_producer


@pytest.mark.asyncio
@pytest.mark.kafka_cluster(topics={"events": 1})
async def test_an_object_comes_back(kafka_cluster):
    async with new_producer(kafka_cluster.bootstrap_servers) as producer:
        await producer.send_and_wait("events", {"user": 7})
        await producer.send_and_wait("events", None, key=b"7")  # a tombstone
    async with new_consumer(kafka_cluster.bootstrap_servers) as consumer:
        assert (await consumer.getone()).value == {"user": 7}
        assert (await consumer.getone()).value is None
