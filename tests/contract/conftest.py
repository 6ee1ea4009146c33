"""`broker`: the embedded cluster of each line, and a real broker of each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

import pytest

from aiokafka08.testing import EmbeddedCluster
from tests.brokers.cluster import RealCluster
from tests.brokers.fixtures import BrokerClusters
from tests.contract.broker import AUTO_PARTITIONS, Broker
from tests.contract.targets import targets


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Both loops where it costs little: on the embedded cluster; `--loop=both` means all."""
    if config.getoption("--loop") != "auto":
        return
    names = {"uvloop", "both_loops"}
    left_out = [
        item
        for item in items
        if item.get_closest_marker("real") and names <= {*item.keywords, *_params(item)}
    ]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def _params(item: pytest.Item) -> list[str]:
    return item.name.partition("[")[2].rstrip("]").split("-")


@pytest.fixture(scope="module")
def healthy(broker_clusters: BrokerClusters) -> dict[tuple[str, int], RealCluster]:
    """The real clusters that were seen running in this module; its tests leave them so."""
    return {}


def _real(request: pytest.FixtureRequest, version: str, brokers: int) -> RealCluster:
    seen: dict[tuple[str, int], RealCluster] = request.getfixturevalue("healthy")
    if (version, brokers) not in seen:
        clusters: BrokerClusters = request.getfixturevalue("broker_clusters")
        seen[version, brokers] = clusters.get(version, brokers)
    return seen[version, brokers]


@pytest.fixture(params=targets())
def target(request: pytest.FixtureRequest) -> EmbeddedCluster | RealCluster:
    kind, version, brokers = request.param
    if kind == "real":
        return _real(request, version, brokers)
    return EmbeddedCluster(brokers, version, default_partitions=AUTO_PARTITIONS)


@pytest.fixture
async def broker(target: EmbeddedCluster | RealCluster) -> AsyncIterator[Broker]:
    """One broker of each line, embedded and real; several where `on_targets` says so."""
    if isinstance(target, EmbeddedCluster):
        async with target as cluster:
            yield (broker := _embedded(cluster))
            await broker.close()
    else:
        yield (broker := _through_zookeeper(target))
        await broker.close()


def _embedded(cluster: EmbeddedCluster) -> Broker:
    async def create(
        name: str, partitions: int, replicas: int, config: Mapping[str, str] | None
    ) -> None:
        cluster.create_topic(name, partitions, replicas, config)

    async def compact(topic: str) -> None:
        cluster.compact(topic, 0)

    return Broker(cluster.bootstrap_servers, cluster.version, create, compact)


def _through_zookeeper(cluster: RealCluster) -> Broker:
    async def create(
        name: str, partitions: int, replicas: int, config: Mapping[str, str] | None
    ) -> None:
        await asyncio.to_thread(cluster.create_topic, name, partitions, replicas, config)

    async def compact(topic: str) -> None:
        """Its cleaner is at work all the time."""

    return Broker(cluster.bootstrap_servers, cluster.version, create, compact)
