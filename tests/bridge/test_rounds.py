"""A bridge that is killed at any time, between clusters whose brokers are killed, loses nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.brokers import RealCluster
from tests.brokers.fixtures import BrokerClusters
from tests.tools.bridge_rounds import play

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]


async def test_killed_bridge_loses_and_doubles_nothing(
    source: RealCluster, target: RealCluster, unique_topic: Callable[..., str], tmp_path: Path
) -> None:
    """One round; the number of producers changes between it and the last start."""
    await play(source, target, unique_topic("kill"), tmp_path, rounds=1, seed=1, faults=["bridge"])


@pytest.mark.full
async def test_killed_brokers_lose_and_double_nothing(
    broker_clusters: BrokerClusters,
    target: RealCluster,
    unique_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    """Two rounds, with a leader of the source and the target's broker killed too."""
    source = broker_clusters.get("0.8.2.2", 3)
    for seed, fault in enumerate(["source", "target"]):
        topic = unique_topic("kill")
        await play(source, target, topic, tmp_path, rounds=1, seed=seed, faults=[fault])
