"""The ZooKeeper of one real cluster, given to clients of another one, and to those of its own."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafka08 import AIOKafkaConsumer, TopicPartition
from aiokafka08._tools.cli.main import main
from aiokafka08.admin import AIOKafkaAdminClient, NewTopic
from aiokafka08.errors import ZookeeperMismatchError
from tests.brokers import RealCluster
from tests.brokers.fixtures import BrokerClusters
from tests.brokers.registry import Registry
from tests.support.names import unique_name

pytestmark = [pytest.mark.real, pytest.mark.timeout(120), pytest.mark.release("0.10.2.2")]

RELEASES = ("0.8.2.2", "0.10.2.2")
Pair = tuple[RealCluster, RealCluster]


@pytest.fixture
def pair(broker_clusters: BrokerClusters) -> Pair:
    """Both have one broker, with the same node id."""
    older, newer = (broker_clusters.get(release) for release in RELEASES)
    older.create_topic(unique_name("t"))  # without one, brokers of 0.8 don't name themselves
    return older, newer


@pytest.mark.parametrize("swapped", [False, True], ids=RELEASES)
async def test_clients_refuse_the_zookeeper_of_another_cluster(pair: Pair, swapped: bool) -> None:
    """The node ids are equal, and only one side has a cluster id."""
    brokers, other = reversed(pair) if swapped else pair
    topic = unique_name("t")
    other.create_topic(topic)
    options: dict[str, Any] = {
        "bootstrap_servers": brokers.bootstrap_servers,
        "zookeeper_connect": other.zookeeper_connect,
    }
    consumer = AIOKafkaConsumer(
        group_id="g", offsets_storage="zookeeper", enable_auto_commit=False, **options
    )
    consumer.assign([TopicPartition(topic, 0)])
    with pytest.raises(ZookeeperMismatchError, match=r"it registers 0 at .*; the brokers are 0 at"):
        await consumer.start()
    await consumer.stop()
    async with AIOKafkaAdminClient(**options) as admin:
        for call in (
            admin.delete_topics([topic]),
            admin.create_topics([NewTopic(f"{topic}-new", 1, 1)]),
            admin.list_stored_groups(),
        ):
            with pytest.raises(ZookeeperMismatchError, match="isn't that of the brokers"):
                await call
    registry = Registry(other.zookeeper_connect)
    assert registry.has_topic(topic)
    assert not registry.has_topic(f"{topic}-new")


@pytest.mark.parametrize("own", [0, 1], ids=RELEASES)
async def test_clients_accept_their_own_zookeeper(pair: Pair, own: int) -> None:
    """By the cluster id from 0.10.1 on, otherwise by the endpoint."""
    cluster, topic = pair[own], unique_name("t")
    async with AIOKafkaAdminClient(
        bootstrap_servers=cluster.bootstrap_servers, zookeeper_connect=cluster.zookeeper_connect
    ) as admin:
        created = await admin.create_topics([NewTopic(topic, 1, 1)])
        assert created.topic_errors == [(topic, 0, None)]
        assert topic in (await admin.describe_cluster_nodes()).topics


def test_command_line_refuses_a_registry_without_brokers(
    pair: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    older, newer = pair
    with Registry(newer.zookeeper_connect).client() as client:
        client.ensure_path("/nobody")
    connect = f"{newer.zookeeper_connect}/nobody"
    assert main(["group", "list", "-b", older.bootstrap_servers, "--zookeeper", connect]) == 2
    assert "it registers no broker; the brokers are 0 at" in capsys.readouterr().err
