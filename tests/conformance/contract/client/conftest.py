"""The fixture `broker`: a target as the tests of the clients see it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

import pytest

from aiokafka08.testing import EmbeddedCluster
from tests.brokers.cluster import RealCluster
from tests.conformance.contract.client.broker import AUTO_PARTITIONS, Broker
from tests.conformance.contract.conftest import RunningCluster
from tests.conformance.contract.targets import TargetSpec


@pytest.fixture
async def broker(spec: TargetSpec, request: pytest.FixtureRequest) -> AsyncIterator[Broker]:
    """One broker of each target; several where `on_targets` says so.

    An embedded one runs in the test's own event loop.
    """
    if spec.kind == "embedded":
        cluster = EmbeddedCluster(spec.brokers, spec.version, default_partitions=AUTO_PARTITIONS)
        async with cluster:
            yield (broker := _embedded(cluster))
            await broker.close()
    else:
        real_cluster: RunningCluster = request.getfixturevalue("real_cluster")
        yield (broker := _real(real_cluster(spec)))
        await broker.close()


def _embedded(cluster: EmbeddedCluster) -> Broker:
    async def create(
        name: str, partitions: int, replicas: int, config: Mapping[str, str] | None
    ) -> None:
        cluster.create_topic(name, partitions, replicas, config)

    async def compact(topic: str) -> None:
        cluster.compact(topic, 0)

    return Broker(cluster.bootstrap_servers, cluster.version, create, compact)


def _real(cluster: RealCluster) -> Broker:
    async def create(
        name: str, partitions: int, replicas: int, config: Mapping[str, str] | None
    ) -> None:
        await asyncio.to_thread(cluster.create_topic, name, partitions, replicas, config)

    async def compact(topic: str) -> None:
        """Do nothing: the broker's cleaner runs all the time."""

    return Broker(cluster.bootstrap_servers, cluster.version, create, compact)
