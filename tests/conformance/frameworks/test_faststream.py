"""An unmodified FastStream service on brokers that have no headers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aiokafka08.testing import EmbeddedCluster
from tests.brokers.fixtures import BrokerClusters
from tests.conformance.frameworks.running import run_program

SERVICE = Path(__file__).parent / "faststream_service.py"
TOPICS = ("orders", "answers", "batch", "manual", "parallel")
EXPECTED: list[list[Any]] = [
    ["answer", {"answer": 1}, "application/json", "id-1"],
    ["batch", 1],
    ["batch", 2],
    ["batch", 3],
    ["manual", "hello"],
    ["manual", "hello"],
    ["order", 1, "application/json", "id-1", "ä"],
    ["parallel", 0],
    ["parallel", 1],
    ["parallel", 2],
]


async def run_service(servers: str, prefix: str, group: str, **environment: str) -> tuple[str, str]:
    """Run the service with embedded headers, and return its output and its log."""
    options = {"AIOKAFKA08_HEADERS": "embedded", **environment}
    return await run_program(SERVICE, servers, prefix, group, **options)


def check(out: str, log: str, *, with_group: bool = True) -> None:
    wanted = [one for one in EXPECTED if with_group or one[0] not in ("manual", "parallel")]
    assert json.loads(out.splitlines()[-1]) == wanted
    assert "ERROR" not in log
    assert "Traceback" not in log


@pytest.mark.parametrize(("version", "group"), [("0.9", "g"), ("0.8.2", "")])
async def test_service_on_the_embedded_cluster(version: str, group: str) -> None:
    async with EmbeddedCluster(version=version, topics=dict.fromkeys(TOPICS, 1)) as cluster:
        out, log = await run_service(cluster.bootstrap_servers, "", group)
    check(out, log, with_group=bool(group))


@pytest.mark.real
@pytest.mark.timeout(150)
@pytest.mark.parametrize("version", ["0.8.2.2", "0.9.0.1", "0.10.2.2"])
async def test_service_on_real_brokers(
    broker_clusters: BrokerClusters, unique_topic: Callable[..., str], version: str
) -> None:
    """With ZooKeeper the service creates its topics itself, and logs no warning either."""
    cluster = await asyncio.to_thread(broker_clusters.get, version)
    prefix = unique_topic("faststream")
    out, log = await run_service(
        cluster.bootstrap_servers,
        prefix,
        prefix,
        AIOKAFKA08_ZOOKEEPER_CONNECT=cluster.zookeeper_connect,
    )
    check(out, log)
    assert "WARNING" not in log
