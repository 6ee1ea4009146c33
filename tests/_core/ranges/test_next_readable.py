"""The search for the next readable offset behind damage, on embedded brokers and a real one."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from aiokafka08._core.ranges.next_readable import find_readable
from aiokafka08._core.ranges.range_reader import read_range
from aiokafka08._core.ranges.range_router import open_range_router
from aiokafka08.errors import CorruptRecordException
from aiokafka08.protocol.message_set import encode_entry
from aiokafka08.protocol.requests.fetch import FetchRequest
from aiokafka08.structs import TopicPartition
from aiokafka08.testing import Answer, EmbeddedCluster
from tests.brokers.fixtures import BrokerClusters
from tests.consumer.raw_writer import writing
from tests.consumer.test_consumer_on_brokers import NewTopic, damage_size_field

TP = TopicPartition("t", 0)


def network_of(bootstrap_servers: str) -> dict[str, Any]:
    return {"bootstrap_servers": bootstrap_servers, "client_id": "reader"}


@pytest.mark.parametrize("last_bad", [0, 1, 2, 3, 10, 100, 998, 999])
async def test_first_offset_behind_the_damage_is_found(last_bad: int) -> None:
    async with EmbeddedCluster(1, topics={"t": 1}) as cluster:
        for _ in range(100):
            cluster.append("t", 0, [bytes(100)] * 10)
        fault = cluster.fault(
            FetchRequest,
            then=Answer(-1),
            times=None,
            where=lambda one: one.topics[0].partitions[0].fetch_offset <= last_bad,
        )
        network = {**network_of(cluster.bootstrap_servers), "retry_backoff_ms": 1}
        async with open_range_router(network) as router:
            await router.metadata.refresh()
            assert await find_readable(router, TP, 0) == last_bad + 1
        assert fault.hits <= 3 * 22


async def test_bytes_that_are_no_message_are_passed() -> None:
    """The broker fails to read over them, or returns them."""
    async with EmbeddedCluster(1, topics={"t": 1}) as cluster:
        cluster.append("t", 0, [b"0", b"1"])
        for offset in range(2, 5):
            cluster.append_raw("t", 0, bytes(40), next_offset=offset + 1)
        cluster.append_raw("t", 0, encode_entry(5, None, bytes(100_000)), next_offset=6)
        async with open_range_router(network_of(cluster.bootstrap_servers)) as router:
            await router.metadata.refresh()
            assert await find_readable(router, TP, 3) == 5
            assert await find_readable(router, TP, 6) == 6


@pytest.mark.real
async def test_index_entry_behind_the_damage_is_found_on_0_8_2(
    broker_clusters: BrokerClusters, unique_topic: NewTopic
) -> None:
    """Sets of 1,260 bytes: the next index entry stands at the fourth one (docs/brokers.md 7.19)."""
    cluster = await asyncio.to_thread(broker_clusters.get, "0.8.2.2")
    topic = unique_topic("damaged")
    await asyncio.to_thread(cluster.create_topic, topic)
    async with writing(cluster.bootstrap_servers) as writer:
        for _ in range(50):
            await writer.write(topic, 0, [bytes(100)] * 10)
    damage_size_field(cluster, topic, message=25, message_bytes=126)
    network = {**network_of(cluster.bootstrap_servers), "retry_backoff_ms": 1}
    async with open_range_router(network) as router:
        await router.metadata.refresh()
        assert await find_readable(router, TopicPartition(topic, 0), 26) == 40
        sets = read_range(router, TopicPartition(topic, 0), 30, 60)
        async with aclosing(sets), asyncio.timeout(20):
            with pytest.raises(CorruptRecordException, match="offset 30: the broker") as caught:
                await anext(sets)
        assert caught.value.next_offset == 40
