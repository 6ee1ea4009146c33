"""The effect of the settings in docs/guides/tuning.md, which are settings.py here."""

import asyncio

import pytest
from settings import LATENCY, MANY_PARTITIONS, RATE, SMALL_CONSUMER, SMALL_PROCESS

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer

pytestmark = [pytest.mark.asyncio, pytest.mark.kafka_cluster(topics={"lines": 16})]
LINES = [b"a line of text that repeats itself, %d" % number for number in range(2000)]


async def send(cluster, settings, lines=LINES):
    """Send lines from 100 tasks; return the producer's counters."""
    async with AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, **settings
    ) as producer:

        async def send_some(some):
            for line in some:
                await producer.send("lines", line)

        await asyncio.gather(*(send_some(lines[first::100]) for first in range(100)))
        await producer.flush()
        return producer.metrics()


async def test_lingering_and_compression_send_fewer_bytes(kafka_cluster):
    plain = await send(kafka_cluster, LATENCY)
    packed = await send(kafka_cluster, RATE)
    assert plain["messages_sent"] == packed["messages_sent"] == len(LINES)
    assert packed["bytes_sent"] < plain["bytes_sent"] / 2


async def test_the_sticky_partitioner_fills_the_batch_of_one_partition(kafka_cluster):
    await send(kafka_cluster, MANY_PARTITIONS, LINES[:100])
    used = [number for number in range(16) if kafka_cluster.log("lines", number)]
    assert len(used) < 16


async def test_a_small_process_sends_and_reads_all(kafka_cluster):
    found = await send(kafka_cluster, SMALL_PROCESS)
    assert found["buffer_limit_bytes"] == 1 << 20
    async with AIOKafkaConsumer(
        "lines",
        bootstrap_servers=kafka_cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        **SMALL_CONSUMER,
    ) as consumer:
        read = 0
        while read < len(LINES):
            for messages in (await consumer.getmany(timeout_ms=1000)).values():
                read += len(messages)
            assert consumer.metrics()["buffered_bytes"] <= 1 << 20
