"""Fixtures for tests of code that uses Kafka: `kafka_cluster`, `kafka_bootstrap_servers`.

pytest loads this module in every session on a machine where the package is installed, so it
imports nothing until a fixture is used.

    def test_my_service(kafka_bootstrap_servers):
        ...

    @pytest.mark.kafka_cluster(brokers=3, version="0.8.0", topics={"orders": 4})
    def test_failover(kafka_cluster):
        kafka_cluster.kill(0)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from aiokafka08.testing import EmbeddedCluster


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "kafka_cluster(**options): what the fixture `kafka_cluster` is made with"
        " (the arguments of aiokafka08.testing.EmbeddedCluster)",
    )


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    """An embedded Kafka cluster, new for each test, in a thread of its own."""
    from aiokafka08.testing import EmbeddedCluster

    options: dict[str, object] = {}
    for marker in reversed(list(request.node.iter_markers("kafka_cluster"))):
        if marker.args:
            raise pytest.UsageError("kafka_cluster takes its options by name")
        options |= marker.kwargs
    with EmbeddedCluster(**options) as cluster:  # type: ignore[arg-type]
        yield cluster


@pytest.fixture
def kafka_bootstrap_servers(kafka_cluster: EmbeddedCluster) -> str:
    """The addresses of `kafka_cluster`: "host:port,host:port"."""
    return kafka_cluster.bootstrap_servers
