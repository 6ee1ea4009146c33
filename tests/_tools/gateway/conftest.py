"""A gateway in front of the session's 4.1.0, topics of it, and Java programs of each release."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from aiokafka08._tools.gateway.gateway import Gateway
from tests._tools.gateway.gateways import HOST, first_port, running
from tests._tools.gateway.kafka_reader import KafkaReader, kafka_reader
from tests.brokers.cluster import RealCluster
from tests.brokers.java_process import write_logging_files
from tests.brokers.tools import JavaTools
from tests.brokers.versions import find_version


@pytest.fixture
async def gateway(modern_cluster: RealCluster) -> AsyncIterator[Gateway]:
    async with running(modern_cluster.bootstrap_servers) as made:
        yield made


@pytest.fixture
def servers(gateway: Gateway) -> str:
    return f"{HOST}:{first_port(gateway)}"


@pytest.fixture
def new_topic(modern_cluster: RealCluster, unique_topic: Callable[..., str]) -> Callable[..., str]:
    """Return a function that creates a topic of 4.1.0."""
    admin = AdminClient({"bootstrap.servers": modern_cluster.bootstrap_servers})

    def create(partitions: int = 1) -> str:
        name = unique_topic("gateway")
        admin.create_topics([NewTopic(name, partitions)])[name].result(30)
        return name

    return create


@pytest.fixture
def java(tmp_path: Path) -> Iterator[Callable[[str], JavaTools]]:
    """Return a function that returns the programs of a release."""
    made = []

    def tools(release: str) -> JavaTools:
        folder = tmp_path / release
        folder.mkdir()
        write_logging_files(folder)
        made.append(JavaTools(find_version(release), folder))
        return made[-1]

    yield tools
    for one in made:
        one.kill_all()


@pytest.fixture
def reader(modern_cluster: RealCluster) -> Iterator[KafkaReader]:
    """What Kafka's own consumer of today reads."""
    with kafka_reader(modern_cluster) as made:
        yield made
