"""A real broker with its ZooKeeper, and a group in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from kazoo.client import KazooClient

from tests.brokers import RealCluster
from tests.brokers.fixtures import BrokerClusters
from tests.consumer.membership.zookeeper.group_state import Group


@pytest.fixture(params=["0.8.2.2"])
def cluster(request: pytest.FixtureRequest, broker_clusters: BrokerClusters) -> RealCluster:
    return broker_clusters.get(request.param, 1)


@pytest.fixture
def registry(cluster: RealCluster) -> Iterator[KazooClient]:
    client = KazooClient(cluster.zookeeper_connect)
    client.start()
    yield client
    client.stop()
    client.close()


@pytest.fixture
def group(registry: KazooClient, cluster: RealCluster) -> Group:
    return Group(registry, cluster)


@pytest.fixture
async def restarted(cluster: RealCluster) -> AsyncIterator[RealCluster]:
    """The cluster, of which tests may stop ZooKeeper; everything is restarted at the end."""
    yield cluster
    await asyncio.to_thread(cluster.heal)
