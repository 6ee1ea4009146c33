"""The copy of what each line of brokers has: timestamps, compression, holes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from aiokafka08 import AIOKafkaProducer
from aiokafka08.bridge.daemon import run_bridge
from aiokafka08.bridge.status import CopyStatus
from tests.bridge.clusters import TargetReader, bridge_config
from tests.brokers import RealCluster
from tests.brokers.fixtures import BrokerClusters

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

FIRST_STAMP = 1_400_000_000_000


@pytest.mark.parametrize(
    "version",
    [
        pytest.param("0.8.0", marks=pytest.mark.full),
        pytest.param("0.9.0.1", marks=pytest.mark.full),
        "0.10.2.2",
        pytest.param("3.9.1", marks=pytest.mark.full),
    ],
)
async def test_records_of_each_line_arrive_as_they_are(
    version: str,
    broker_clusters: BrokerClusters,
    target: RealCluster,
    reader: TargetReader,
    unique_topic: Callable[..., str],
) -> None:
    """Compressed sets; timestamps where the line has them, of before the target's clock."""
    source = broker_clusters.get(version)
    topic = unique_topic("line")
    await asyncio.to_thread(source.create_topic, topic, 2)
    has_stamps = version in ("0.10.2.2", "3.9.1")
    values = [b"%d" % number * 20 for number in range(3000)]
    async with AIOKafkaProducer(
        bootstrap_servers=source.bootstrap_servers, acks="all", compression_type="gzip"
    ) as producer:
        for number, value in enumerate(values):
            stamp = FIRST_STAMP + number if has_stamps else None
            await producer.send(topic, value, partition=number % 2, timestamp_ms=stamp)
    text = '[target.topic_config]\n"retention.ms" = -1\n'
    config = bridge_config(topic, source, target, topic, text)
    status = CopyStatus()
    await run_bridge(config, status, until_caught_up=True)
    assert status.records == 3000
    found = await asyncio.to_thread(reader.read, topic)
    for partition in range(2):
        records = found[partition]
        assert [one.value() for one in records] == values[partition::2]
        stamps = [one.timestamp()[1] for one in records]
        if has_stamps:
            assert stamps == [FIRST_STAMP + number for number in range(partition, 3000, 2)]
        else:
            assert min(stamps) > FIRST_STAMP + 10**11, "the time of the copy"
