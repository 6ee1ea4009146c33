"""Provide real clusters and topic names to tests; ``pytest_plugins`` in tests/conftest.py loads it.

A cluster per version and number of brokers is started at its first use, and closed at the end of
the session, or when `tests.support.schedule` knows that this process has no more tests for it. A
test that fails may leave brokers in any state: the clusters are closed behind it, so that no later
test fails for the same reason. Without Java or Maven a test on real brokers *fails*, with what to
install: a suite that skips them silently proves nothing. AIOKAFKA08_NO_REAL_BROKERS=1 skips them.
"""

from __future__ import annotations

import itertools
import os
import threading
import uuid
from collections.abc import Callable, Generator, Iterator

import pytest

from tests.brokers.cluster import RealCluster
from tests.brokers.errors import MissingToolError


def require_real_brokers() -> None:
    """Skip the test if AIOKAFKA08_NO_REAL_BROKERS=1 is set."""
    if os.environ.get("AIOKAFKA08_NO_REAL_BROKERS") == "1":
        pytest.skip("AIOKAFKA08_NO_REAL_BROKERS=1: real brokers are not wanted here")


class BrokerClusters:
    """The real clusters of the session, started on demand."""

    def __init__(self) -> None:
        self._clusters: dict[tuple[str, int], RealCluster] = {}
        self._lock = threading.Lock()  # asynchronous tests call it in worker threads

    def get(self, version: str, brokers: int = 1) -> RealCluster:
        """Return the session's cluster of a version, with all its nodes running.

        Other tests share the cluster: use new names for topics and groups (``unique_topic``). Nodes
        that an earlier test killed or paused are started again.
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
                f"{error}\nOr set AIOKAFKA08_NO_REAL_BROKERS=1 to skip the tests on real brokers.",
                pytrace=False,
            )
        self._clusters[version, brokers] = cluster
        return cluster

    def close(self) -> None:
        """Close all clusters."""
        while self._clusters:
            self._clusters.popitem()[1].close()


_clusters = pytest.StashKey[BrokerClusters]()
_failed = pytest.StashKey[bool]()


def close_clusters(config: pytest.Config) -> None:
    """Close the clusters that run; a later test starts its own again."""
    if (clusters := config.stash.get(_clusters, None)) is not None:
        clusters.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if "broker_clusters" in getattr(item, "fixturenames", ()):
        item.stash[_failed] = item.stash.get(_failed, False) or report.failed
        # Not before the teardown: what the test has opened is closed there.
        if report.when == "teardown" and item.stash[_failed]:
            close_clusters(item.config)
    return report


@pytest.fixture(scope="session")
def broker_clusters(pytestconfig: pytest.Config) -> Iterator[BrokerClusters]:
    """Return the session's real clusters: ``broker_clusters.get("0.8.2.2", brokers=3)``."""
    clusters = pytestconfig.stash[_clusters] = BrokerClusters()
    try:
        yield clusters
    finally:
        clusters.close()


@pytest.fixture
def modern_cluster(broker_clusters: BrokerClusters) -> RealCluster:
    """The session's cluster of 4.1.0, which this client refuses, and to which the bridge copies."""
    return broker_clusters.get("4.1.0")


@pytest.fixture(scope="session")
def unique_topic() -> Callable[..., str]:
    """Return a function that returns a new short name per call: ``unique_topic("orders")``."""
    # Clusters of ``python -m tests.brokers`` outlive a run: the names of two runs must differ.
    run = uuid.uuid4().hex[:4]
    numbers = itertools.count(1)

    def new_name(prefix: str = "t") -> str:
        return f"{prefix}-{run}-{next(numbers)}"

    return new_name
