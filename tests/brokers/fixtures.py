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
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.brokers.cluster import RealCluster
from tests.brokers.errors import MissingToolError
from tests.brokers.kdc import Kdc
from tests.brokers.sasl import PASSWORDS, PRINCIPALS, REFUSED, SaslUsers
from tests.brokers.versions import VERSIONS
from tests.brokers.zookeeper import ZooKeeperServer
from tests.support.debian_tools import skipped_if_missing


def require_real_brokers() -> None:
    """Skip the test if AIOKAFKA08_NO_REAL_BROKERS=1 is set."""
    if os.environ.get("AIOKAFKA08_NO_REAL_BROKERS") == "1":
        pytest.skip("AIOKAFKA08_NO_REAL_BROKERS=1: real brokers are not wanted here")


@contextmanager
def zookeeper_alone(folder: Path, release: str = "0.8.2.2") -> Iterator[ZooKeeperServer]:
    """Run the ZooKeeper of a release without brokers, with its files in `folder`."""
    require_real_brokers()
    server = ZooKeeperServer(VERSIONS[release], folder)
    try:
        server.start(60)
        yield server
    finally:
        server.kill()


class BrokerClusters:
    """The real clusters of the session, started on demand."""

    def __init__(self) -> None:
        self._clusters: dict[tuple[str, int, bool], RealCluster] = {}
        self._kdc: Kdc | None = None
        self._lock = threading.Lock()  # asynchronous tests call it in worker threads

    def get(self, version: str, brokers: int = 1, *, sasl: bool = False) -> RealCluster:
        """Return the session's cluster of a version, with all its nodes running.

        Other tests share the cluster: use new names for topics and groups (``unique_topic``). Nodes
        that an earlier test killed or paused are started again.

        With ``sasl`` it has SASL_PLAINTEXT, SSL and SASL_SSL listeners too, a KDC, an authorizer,
        and the users of `tests.brokers.sasl`; the test is skipped where the KDC can't be had.
        """
        require_real_brokers()
        with self._lock:
            return self._get(version, brokers, sasl=sasl)

    def kdc(self) -> Kdc:
        """Return the session's KDC, with the principals of `tests.brokers.sasl`."""
        require_real_brokers()
        with self._lock:
            return self._running_kdc()

    def _running_kdc(self) -> Kdc:
        if self._kdc is None:
            with skipped_if_missing("MIT Kerberos", "krb5-kdc krb5-admin-server krb5-user"):
                self._kdc = Kdc().__enter__()
            for principal in PRINCIPALS:
                self._kdc.add_principal(principal)
        return self._kdc

    def _get(self, version: str, brokers: int, *, sasl: bool) -> RealCluster:
        cluster = self._clusters.get((version, brokers, sasl))
        if cluster is not None:
            cluster.heal()
            return cluster
        users = SaslUsers(PASSWORDS, self._running_kdc(), REFUSED) if sasl else None
        cluster = RealCluster(version, brokers, ssl=sasl, sasl=users)
        try:
            cluster.start()
        except MissingToolError as error:
            pytest.fail(
                f"{error}\nOr set AIOKAFKA08_NO_REAL_BROKERS=1 to skip the tests on real brokers.",
                pytrace=False,
            )
        self._clusters[version, brokers, sasl] = cluster
        return cluster

    def close(self) -> None:
        """Close all clusters."""
        while self._clusters:
            self._clusters.popitem()[1].close()
        if self._kdc is not None:
            self._kdc.close()
            self._kdc = None


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
def modern_cluster(request: pytest.FixtureRequest, broker_clusters: BrokerClusters) -> RealCluster:
    """The session's cluster of 4.1.0, which this client refuses, and to which the bridge copies.

    A parameter of the test (`indirect`) may name another release.
    """
    return broker_clusters.get(getattr(request, "param", None) or "4.1.0")


@pytest.fixture(scope="session")
def unique_topic() -> Callable[..., str]:
    """Return a function that returns a new short name per call: ``unique_topic("orders")``."""
    # Clusters of ``python -m tests.brokers`` outlive a run: the names of two runs must differ.
    run = uuid.uuid4().hex[:4]
    numbers = itertools.count(1)

    def new_name(prefix: str = "t") -> str:
        return f"{prefix}-{run}-{next(numbers)}"

    return new_name
