"""The clusters of the bridge's tests, a reader of the target, and the command line."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests._tools.cli.conftest import cli, folder_of_profiles
from tests.bridge.clusters import TargetReader
from tests.brokers import RealCluster
from tests.brokers.fixtures import BrokerClusters

__all__ = ["cli", "folder_of_profiles"]


@pytest.fixture
def source(broker_clusters: BrokerClusters) -> RealCluster:
    return broker_clusters.get("0.8.2.2")


@pytest.fixture
def target(modern_cluster: RealCluster) -> RealCluster:
    return modern_cluster


@pytest.fixture
def reader(target: RealCluster) -> Iterator[TargetReader]:
    made = TargetReader(target)
    yield made
    made.close()
