"""`AIOKafkaAdminClient` on real brokers: topics, the cluster, and the errors of refused calls."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aiokafka08.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka08.errors import (
    IllegalStateError,
    InvalidTopicError,
    KafkaConnectionError,
    KafkaUnavailableError,
    UnsupportedVersionError,
)
from tests.brokers.fixtures import BrokerClusters

pytestmark = pytest.mark.real

NewName = Callable[..., str]


@pytest.mark.parametrize("version", ["0.8.0", "0.8.1.1", "0.8.2.2", "0.9.0.1", "0.10.2.2", "3.9.1"])
async def test_topic_is_created_described_and_extended(
    broker_clusters: BrokerClusters, unique_topic: NewName, version: str
) -> None:
    cluster = broker_clusters.get(version)
    name = unique_topic()
    configs: dict[str, object] = {} if version == "0.8.0" else {"retention.ms": 60000}
    async with AIOKafkaAdminClient(
        bootstrap_servers=cluster.bootstrap_servers, zookeeper_connect=cluster.zookeeper_connect
    ) as admin:
        made = await admin.create_topics([NewTopic(name, 2, 1, topic_configs=configs)])
        assert made.topic_errors == [(name, 0, None)]
        assert name in await admin.list_topics()
        (topic,) = await admin.describe_topics([name])
        assert topic["error_code"] == 0
        assert sorted(
            (one["partition"], one["leader"], one["replicas"]) for one in topic["partitions"]
        ) == [(0, 0, [0]), (1, 0, [0])]

        grown = await admin.create_partitions({name: NewPartitions(3)})
        assert grown.topic_errors == [(name, 0, None)]
        (topic,) = await admin.describe_topics([name])
        assert len(topic["partitions"]) == 3

        again = await admin.create_topics([NewTopic(name, 1, 1)])
        ((_, code, text),) = again.topic_errors
        assert code == 36
        assert name in str(text)


async def test_describe_unknown_topic_creates_nothing(
    broker_clusters: BrokerClusters, unique_topic: NewName
) -> None:
    cluster = broker_clusters.get("0.8.2.2")
    name = unique_topic()
    async with AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        (topic,) = await admin.describe_topics([name])
        assert topic == {"error_code": 3, "topic": name, "is_internal": False, "partitions": []}
        assert name not in await admin.list_topics()


@pytest.mark.release("0.10.2.2")
async def test_describe_cluster_names_brokers(
    broker_clusters: BrokerClusters, unique_topic: NewName
) -> None:
    cluster = broker_clusters.get("0.10.2.2")
    async with AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        described = await admin.describe_cluster()
    port = int(cluster.bootstrap_servers.rpartition(":")[2])
    (broker,) = described["brokers"]
    assert (broker["host"], broker["port"], broker["rack"]) == ("127.0.0.1", port, None)
    assert described["controller_id"] == broker["node_id"]
    assert described["cluster_id"]


async def test_validate_only_creates_nothing(
    broker_clusters: BrokerClusters, unique_topic: NewName
) -> None:
    cluster = broker_clusters.get("0.8.2.2")
    name, other = unique_topic(), unique_topic()
    async with AIOKafkaAdminClient(
        bootstrap_servers=cluster.bootstrap_servers, zookeeper_connect=cluster.zookeeper_connect
    ) as admin:
        fine, too_many = (
            await admin.create_topics([NewTopic(name, 1, 1), NewTopic(other, 1, 2)], None, True)
        ).topic_errors
        assert fine == (name, 0, None)
        assert too_many[1] == 38
        assert name not in await admin.list_topics()


@pytest.mark.release("0.9.0.1")
async def test_topic_is_deleted_or_refused(
    broker_clusters: BrokerClusters, unique_topic: NewName
) -> None:
    cluster = broker_clusters.get("0.9.0.1")
    name = unique_topic()
    cluster.create_topic(name)
    async with AIOKafkaAdminClient(
        bootstrap_servers=cluster.bootstrap_servers, zookeeper_connect=cluster.zookeeper_connect
    ) as admin:
        assert (await admin.delete_topics([name])).topic_errors == [(name, 0, None)]
        ((_, code, text),) = (await admin.delete_topics([name])).topic_errors
        assert code == 3
        assert name in str(text)


async def test_create_without_zookeeper_names_the_options(
    broker_clusters: BrokerClusters,
) -> None:
    cluster = broker_clusters.get("0.8.2.2")
    async with AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        with pytest.raises(UnsupportedVersionError, match="zookeeper_connect="):
            await admin.create_topics([NewTopic("t", 1, 1)])


async def test_wrong_chroot_and_wrong_address_differ(
    broker_clusters: BrokerClusters,
) -> None:
    cluster = broker_clusters.get("0.8.2.2")

    async def create(zookeeper_connect: str) -> None:
        async with AIOKafkaAdminClient(
            bootstrap_servers=cluster.bootstrap_servers,
            request_timeout_ms=2000,
            zookeeper_connect=zookeeper_connect,
        ) as admin:
            await admin.create_topics([NewTopic("t", 1, 1)])

    with pytest.raises(KafkaUnavailableError, match="has no chroot /nowhere"):
        await create(f"{cluster.zookeeper_connect}/nowhere")
    with pytest.raises(KafkaConnectionError, match=r"127\.0\.0\.1:1 can't be reached"):
        await create("127.0.0.1:1")


async def test_invalid_topic_name_is_refused_locally(broker_clusters: BrokerClusters) -> None:
    cluster = broker_clusters.get("0.8.2.2")
    async with AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        with pytest.raises(InvalidTopicError, match="'a b'"):
            await admin.describe_topics(["a b"])


async def test_calls_before_start_and_after_close_raise(
    broker_clusters: BrokerClusters,
) -> None:
    cluster = broker_clusters.get("0.8.2.2")
    admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    with pytest.raises(IllegalStateError, match="isn't started"):
        await admin.list_topics()
    await admin.start()
    await admin.close()
    await admin.close()
    with pytest.raises(IllegalStateError, match="was stopped"):
        await admin.list_topics()


async def test_client_dropped_without_close_warns(broker_clusters: BrokerClusters) -> None:
    cluster = broker_clusters.get("0.8.2.2")
    clients = [AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)]
    await clients[0].start()
    router = clients[0]._router
    with pytest.warns(ResourceWarning, match=r"dropped without close\(\)"):
        clients.clear()
    await router.stop()
