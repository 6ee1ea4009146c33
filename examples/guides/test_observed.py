"""A retry is counted and seen, with observed.py of docs/monitoring.md."""

import pytest
from observed import observed_producer
from prometheus_client import CollectorRegistry

from aiokafka08.errors import NotLeaderForPartitionError
from aiokafka08.protocol.requests.produce import ProduceRequest
from aiokafka08.telemetry import BatchRetried
from aiokafka08.testing import Answer


@pytest.mark.asyncio
@pytest.mark.kafka_cluster(topics={"orders": 1})
async def test_a_retry_is_counted_and_seen(kafka_cluster):
    registry, events = CollectorRegistry(), []
    kafka_cluster.fault(ProduceRequest, then=Answer(NotLeaderForPartitionError.errno))
    async with observed_producer(
        kafka_cluster.bootstrap_servers, registry, events.append
    ) as producer:
        await producer.send_and_wait("orders", b"tea")
        labels = {"client_id": "shop"}
        assert registry.get_sample_value("aiokafka08_producer_messages_sent_total", labels) == 1
        assert registry.get_sample_value("aiokafka08_producer_retries_total", labels) == 1
    [retried] = [event for event in events if isinstance(event, BatchRetried)]
    assert "NotLeaderForPartition" in str(retried)
