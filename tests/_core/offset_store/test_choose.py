"""The offset store by the brokers' line and the options."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka08._core.net.versions import BrokerLine
from aiokafka08._core.offset_store import CommitIdentity
from aiokafka08._core.offset_store.choose import default_storage
from aiokafka08._core.offset_store.deferred_store import DeferredOffsetStore
from aiokafka08._core.offset_store.kafka_store import KafkaOffsetStore
from aiokafka08._core.offset_store.zookeeper_v0_store import ZookeeperV0OffsetStore
from aiokafka08.errors import (
    IllegalArgumentError,
    KafkaConfigurationError,
    KafkaTimeoutError,
    KafkaUnavailableError,
)
from aiokafka08.protocol.requests.committed_offsets import OffsetFetchRequest
from aiokafka08.testing import EmbeddedCluster, Hang
from tests._core.offset_store.conftest import NewStore, at, tp


@pytest.mark.parametrize(
    ("line", "without_zookeeper", "with_zookeeper"),
    [
        (BrokerLine.V0_8_0, "zookeeper", "zookeeper"),
        (BrokerLine.V0_8_1, "zookeeper", "zookeeper"),
        (BrokerLine.V0_8_2, "kafka", "zookeeper"),
        (BrokerLine.V0_9, "kafka", "kafka"),
        (BrokerLine.V0_10, "kafka", "kafka"),
    ],
)
def test_default_storage_of_each_line(
    line: BrokerLine, without_zookeeper: str, with_zookeeper: str
) -> None:
    assert default_storage(line, False) == without_zookeeper
    assert default_storage(line, True) == with_zookeeper


async def test_store_on_0_8_0_requires_zookeeper_connect(new_store: NewStore) -> None:
    async with EmbeddedCluster(1, "0.8.0", topics={"t": 1}) as cluster:
        for storage in (None, "zookeeper"):
            with pytest.raises(KafkaConfigurationError, match=r"'g'.*zookeeper_connect="):
                await new_store(cluster.bootstrap_servers, storage)


@pytest.mark.parametrize("group", ["a/b", "..", "a\nb", "a\0b"])
async def test_group_that_cannot_be_a_node_is_refused(new_store: NewStore, group: str) -> None:
    async with EmbeddedCluster(1, "0.8.1", topics={"t": 1}) as cluster:
        with pytest.raises(IllegalArgumentError, match="can't be a node of ZooKeeper"):
            await new_store(cluster.bootstrap_servers, group=group)


@pytest.mark.parametrize(
    ("version", "chosen"), [("0.8.1", ZookeeperV0OffsetStore), ("0.8.2", KafkaOffsetStore)]
)
async def test_store_without_any_topic_is_chosen_later(
    new_store: NewStore, version: str, chosen: type
) -> None:
    async with EmbeddedCluster(1, version) as cluster:
        store = await new_store(cluster.bootstrap_servers)
        assert await store.fetch([]) == {}
        with pytest.raises(KafkaUnavailableError, match="no topic yet") as failure:
            await store.fetch([tp(0)])
        assert failure.value.retriable
        cluster.create_topic("t")
        await store.commit(at(p0=5), CommitIdentity())
        assert await store.fetch([tp(0)]) == at(p0=5)
        assert isinstance(store, DeferredOffsetStore)
        assert isinstance(store._store, chosen)


async def test_choice_of_the_store_ends_in_the_time_of_a_call(new_store: NewStore) -> None:
    async with EmbeddedCluster(1, "0.8.2") as cluster:
        store = await new_store(cluster.bootstrap_servers, request_timeout_ms=60_000)
        cluster.create_topic("t")
        probe = cluster.fault(OffsetFetchRequest, then=Hang(), times=None)
        async with asyncio.timeout(20):
            failures = await asyncio.gather(
                store.commit(at(p0=5), CommitIdentity(), timeout_s=0.2),
                store.fetch([tp(0)], timeout_s=0.2),
                return_exceptions=True,
            )
        assert [type(one) for one in failures] == [KafkaTimeoutError, KafkaTimeoutError]
        probe.cancel()


async def test_group_with_any_name_works_in_kafka(new_store: NewStore) -> None:
    async with EmbeddedCluster(1, "0.9", topics={"t": 1}) as cluster:
        store = await new_store(cluster.bootstrap_servers, group="a/b")
        assert await store.fetch([]) == {}
