"""`gateway run --once` and `gateway restore`, with a real ZooKeeper."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient

from aiokafka08._core.zookeeper.cluster_writer import MARK
from aiokafka08.testing import EmbeddedCluster
from tests._tools.cli.conftest import RunCommand
from tests.brokers.fixtures import zookeeper_alone
from tests.brokers.zookeeper import ZooKeeperServer

pytestmark = [pytest.mark.real, pytest.mark.timeout(60)]

OLD = {"version": 1, "partitions": {"0": [7]}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    with zookeeper_alone(tmp_path_factory.mktemp("zookeeper")) as made:
        yield made


@pytest.fixture
def client(server: ZooKeeperServer) -> Iterator[KazooClient]:
    client = KazooClient(server.connect)
    client.start()
    try:
        client.create("/kafka/brokers/topics/t", json.dumps(OLD).encode(), makepath=True)
        yield client
        client.delete("/kafka", recursive=True)
    finally:
        client.stop()
        client.close()


def test_what_would_be_written_is_printed_only(
    cli: RunCommand, server: ZooKeeperServer, client: KazooClient
) -> None:
    with EmbeddedCluster(1, "0.10", {"t": 2}) as cluster:
        done = cli(
            *("gateway", "run", "--to", cluster.bootstrap_servers, "--listen", "127.0.0.1:9092"),
            *("--zookeeper", f"{server.connect}/kafka", "--once", "--format", "jsonl"),
        )
    assert done.code == 0, done.err
    rows = {row["node"]: row for row in map(json.loads, done.out.splitlines())}
    assert rows["/brokers/topics/t"]["change"] == "set"
    assert json.loads(rows["/brokers/topics/t"]["before"]) == OLD
    assert json.loads(rows["/brokers/topics/t"]["after"])[MARK] == {"before": OLD}
    broker = rows["/brokers/ids/0"]
    assert (broker["change"], broker["before"]) == ("create", None)
    assert json.loads(broker["after"])["port"] == 9092
    assert client.get_children("/kafka/brokers") == ["topics"]
    assert json.loads(client.get("/kafka/brokers/topics/t")[0]) == OLD


def test_what_brokers_had_written_is_put_back_and_printed(
    cli: RunCommand, server: ZooKeeperServer, client: KazooClient
) -> None:
    node = {"version": 1, "partitions": {"0": [0], "1": [0]}, MARK: {"before": OLD}}
    client.set("/kafka/brokers/topics/t", json.dumps(node).encode())
    created = {"version": 1, "partitions": {"0": [0]}, MARK: {}}
    client.create("/kafka/brokers/topics/new", json.dumps(created).encode())
    arguments: tuple[str, ...] = ("gateway", "restore", "--to", "kafka:9092")
    arguments += ("--zookeeper", f"{server.connect}/kafka", "--format", "jsonl")
    done = cli(*arguments)
    assert done.code == 0, done.err
    rows = {row["node"]: row for row in map(json.loads, done.out.splitlines())}
    assert rows["/brokers/topics/t"]["change"] == "set"
    assert rows["/brokers/topics/new"]["change"] == "delete"
    assert json.loads(client.get("/kafka/brokers/topics/t")[0]) == OLD
    assert client.get_children("/kafka/brokers/topics") == ["t"]
    assert not cli(*arguments).out


@pytest.mark.parametrize("command", ["run", "restore"])
def test_zookeeper_must_be_named(cli: RunCommand, command: str) -> None:
    once = ["--once"] if command == "run" else []
    done = cli("gateway", command, "--to", "kafka:9092", *once)
    assert done.code == 2
    assert "--zookeeper: missing; expected a ZooKeeper such as zk1:2181/kafka" in done.err


@pytest.mark.parametrize("command", ["run", "restore"])
def test_zookeeper_with_a_broker_is_an_error(
    cli: RunCommand, server: ZooKeeperServer, client: KazooClient, command: str
) -> None:
    data = b'{"version":1,"host":"kafka1","port":9092}'
    client.create("/kafka/brokers/ids/1", data, ephemeral=True, makepath=True)
    once = ["--once"] if command == "run" else []
    with EmbeddedCluster(1, "0.10", {"t": 2}) as cluster:
        done = cli(
            *("gateway", command, "--to", cluster.bootstrap_servers, *once),
            *("--zookeeper", f"{server.connect}/kafka"),
        )
    assert done.code == 1
    assert "/brokers/ids/1 is registered by a broker (kafka1:9092)" in done.err
