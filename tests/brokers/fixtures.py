"""Pytest fixtures for tests on real brokers; loaded by ``pytest_plugins`` in tests/conftest.py.

Clusters are started when a test first asks for them, one per (version, number of brokers), and end
with the session. Without Java or Maven such a test *fails* and says what to install: a suite that
skips its real brokers silently proves nothing. The way out is AIOKAFKA08_NO_REAL_BROKERS=1.
"""

from __future__ import annotations

import itertools
import os
import threading
import uuid
from collections.abc import Callable, Iterator

import pytest

from tests.brokers.cluster import RealCluster
from tests.brokers.errors import MissingToolError


def require_real_brokers() -> None:
    """Skip where the user said that real brokers are not wanted."""
    if os.environ.get("AIOKAFKA08_NO_REAL_BROKERS") == "1":
        pytest.skip("AIOKAFKA08_NO_REAL_BROKERS=1: real brokers are not wanted here")


class BrokerClusters:
    """The real clusters of this session, started on demand."""

    def __init__(self) -> None:
        self._clusters: dict[tuple[str, int], RealCluster] = {}
        self._lock = threading.Lock()  # asynchronous tests call from worker threads

    def get(self, version: str, brokers: int = 1) -> RealCluster:
        """The session's cluster of this version, with all its nodes running.

        It is shared: use topics and groups of your own (``unique_topic``). What an earlier test
        killed or paused is brought back here.
        """
        require_real_brokers()
        with self._lock:
            return self._get(version, brokers)

    def _get(self, version: str, brokers: int) -> RealCluster:
        cluster = self._clusters.get((version, brokers))
        if cluster is not None:
            cluster.heal()
            return cluster
        cluster = RealCluster(version, brokers)
        try:
            cluster.start()
        except MissingToolError as error:
            pytest.fail(
                f"{error}\nOr set AIOKAFKA08_NO_REAL_BROKERS=1 to do without real brokers.",
                pytrace=False,
            )
        self._clusters[version, brokers] = cluster
        return cluster

    def close(self) -> None:
        """Kill all of them."""
        while self._clusters:
            self._clusters.popitem()[1].close()


@pytest.fixture(scope="session")
def broker_clusters() -> Iterator[BrokerClusters]:
    """The real clusters of this session: ``broker_clusters.get("0.8.2.2", brokers=3)``."""
    clusters = BrokerClusters()
    try:
        yield clusters
    finally:
        clusters.close()


@pytest.fixture(scope="session")
def unique_topic() -> Callable[..., str]:
    """A function that gives a new short name at each call: ``unique_topic("orders")``."""
    # The run's part keeps names apart on clusters that outlive a run (python -m tests.brokers).
    run = uuid.uuid4().hex[:4]
    numbers = itertools.count(1)

    def new_name(prefix: str = "t") -> str:
        return f"{prefix}-{run}-{next(numbers)}"

    return new_name
