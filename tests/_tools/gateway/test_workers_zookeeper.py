"""Workers and a real ZooKeeper: one process keeps the nodes, whichever worker ends."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from kazoo.client import KazooClient

from aiokafka08.testing import EmbeddedCluster
from tests._tools.gateway.worker_processes import workers_gateway
from tests.brokers.fixtures import zookeeper_alone
from tests.brokers.waiting import wait_for
from tests.brokers.zookeeper import ZooKeeperServer

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

WAIT_S = 60.0
KEPT = ("/brokers/ids/0", "/controller")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ZooKeeperServer]:
    folder = tmp_path / "zookeeper"
    folder.mkdir()
    with zookeeper_alone(folder, "0.10.2.2") as made:
        yield made


@pytest.fixture
def zookeeper(server: ZooKeeperServer) -> Iterator[KazooClient]:
    """A client in an empty chroot."""
    client = KazooClient(server.connect, timeout=60)
    client.start(60)
    client.ensure_path("/kafka")
    client.chroot = "/kafka"
    yield client
    client.stop()
    client.close()


def connections_to(process: psutil.Process, port: int) -> int:
    return sum(1 for one in process.net_connections("tcp") if one.raddr and one.raddr.port == port)


def test_nodes_survive_the_end_of_each_worker(
    server: ZooKeeperServer, zookeeper: KazooClient, tmp_path: Path
) -> None:
    options = "--observe", "--zookeeper", f"{server.connect}/kafka"
    port = int(server.connect.rpartition(":")[2])

    def sessions() -> list[tuple[int, int]]:
        """Return the sessions and the creation of the nodes that live as long as a session."""
        found = [zookeeper.exists(path) for path in KEPT]
        return [(one.ephemeralOwner, one.czxid) for one in found if one is not None]

    with (
        EmbeddedCluster(version="0.10", topics={"t": 2}) as cluster,
        workers_gateway(cluster.bootstrap_servers, tmp_path, 2, *options) as gateway,
    ):
        wait_for(lambda: len(sessions()) == len(KEPT), WAIT_S, "the nodes are there")
        before = sessions()
        assert len({owner for owner, _ in before}) == 1
        assert json.loads(zookeeper.get("/brokers/ids/0")[0])["port"] == gateway.port
        assert connections_to(psutil.Process(gateway.pid), port) == 1
        for number in range(2):
            worker = gateway.workers()[number]
            assert connections_to(worker, port) == 0
            worker.kill()
            worker.wait(30)
            topic = f"new-{number}"
            cluster.create_topic(topic, 1)
            state = f"/brokers/topics/{topic}/partitions/0/state"
            wait_for(lambda: zookeeper.exists(state), WAIT_S, "the new topic is written")  # noqa: B023
            gateway.wait_for_workers()
            assert sessions() == before
        gateway.end(signal.SIGTERM)
        assert not sessions()
