"""`metadata`, `topics` and `offsets` on the embedded cluster of each line."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from aiokafka08 import AIOKafkaProducer
from aiokafka08.protocol.requests.list_offsets import ListOffsetsRequest
from aiokafka08.protocol.requests.metadata import MetadataRequest
from aiokafka08.testing import LINES, EmbeddedCluster
from tests._tools.cli.conftest import RunCommand


def fill(cluster: EmbeddedCluster, topic: str, partition: int, count: int) -> None:
    async def send() -> None:
        async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            await (await producer.send_many(topic, [b"v"] * count, partition=partition))

    asyncio.run(send())


@pytest.fixture(params=LINES)
def cluster(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(3, request.param, {"orders": 2, "visits": 1}) as running:
        yield running


def test_metadata_shows_brokers_and_partitions(cluster: EmbeddedCluster, cli: RunCommand) -> None:
    server = ("-b", cluster.bootstrap_servers)
    done = cli("metadata", *server, "--format", "json")
    assert (done.code, "isr that is stale" in done.err) == (0, cluster.version.startswith("0.8"))
    addresses = cluster.bootstrap_servers.split(",")
    release = {"0.10": "0.10.2"}.get(cluster.version, cluster.version)  # by its API versions
    known = cluster.version == "0.10"
    assert done.json["brokers"] == [
        {
            "node": node,
            "host": "127.0.0.1",
            "port": int(addresses[node].partition(":")[2]),
            "rack": None,
            "release": release,
            "controller": done.json["brokers"][node]["controller"] if known else None,
        }
        for node in range(3)
    ]
    assert done.json["partitions"] == [
        {
            "topic": topic,
            "partition": partition,
            "leader": cluster.leader(topic, partition),
            "replicas": done.json["partitions"][index]["replicas"],
            "isr": done.json["partitions"][index]["isr"],
            "error": None,
        }
        for index, (topic, partition) in enumerate([("orders", 0), ("orders", 1), ("visits", 0)])
    ]
    assert len(cli("metadata", "orders", *server).lines) == 3
    assert len(cli("metadata", "--brokers", *server).lines) == 4
    assert "brokers" in cli("metadata", *server, "--format", "table").lines[0]
    for form in ("table", "tsv"):
        note = cli("metadata", *server, "--format", form).err
        assert note.endswith("give --zookeeper\n") == cluster.version.startswith("0.8")


@pytest.mark.kafka_cluster(version="0.8.2", topics={"orders": 1})
def test_metadata_without_its_zookeeper_says_why(
    kafka_cluster: EmbeddedCluster, cli: RunCommand
) -> None:
    server = ("-b", kafka_cluster.bootstrap_servers, "--timeout", "1")
    done = cli("metadata", *server, "--zookeeper", "127.0.0.1:1", "--format", "tsv")
    assert (done.code, len(done.lines)) == (1, 2)
    assert "aiokafka08: not read from ZooKeeper: " in done.err


def test_metadata_creates_no_topic(cluster: EmbeddedCluster, cli: RunCommand) -> None:
    """No request names a topic: on 0.8 that would create it."""
    server = ("-b", cluster.bootstrap_servers)
    for arguments in (["metadata", "nope"], ["offsets", "nope"], ["offsets", "orders"], ["topics"]):
        cli(*arguments, *server)
    assert cli("topics", "-q", *server).lines == ["orders", "visits"]
    named = [one.topics for one in cluster.requests(MetadataRequest)]
    assert not any(named)


def test_offsets_are_those_of_the_log(cluster: EmbeddedCluster, cli: RunCommand) -> None:
    server = ("-b", cluster.bootstrap_servers)
    fill(cluster, "orders", 1, 7)
    done = cli("offsets", "orders", *server, "--format", "json")
    assert done.json == [
        {"topic": "orders", "partition": 0, "first": 0, "last": 0},
        {"topic": "orders", "partition": 1, "first": 0, "last": 7},
    ]
    only = cli("offsets", "orders", "-p", "1", "-p", "1", *server, "--format", "jsonl")
    assert only.json == done.json[1]
    wrong = cli("offsets", "orders", "-p", "5", *server)
    assert (wrong.code, wrong.out) == (1, b"")
    assert wrong.err == "aiokafka08: topic 'orders' has no partition 5; it has 0, 1\n"


def test_offsets_at_a_time_tell_their_precision(cluster: EmbeddedCluster, cli: RunCommand) -> None:
    server = ("-b", cluster.bootstrap_servers, "--format", "json")
    fill(cluster, "orders", 0, 3)
    [first, empty] = cli("offsets", "orders", *server, "--at", "-1h").json
    assert first["at"] == 0
    assert first["precision"] == ("exact" if cluster.version == "0.10" else "≈, by segment")
    assert (first["timestamp"] is None) == (cluster.version != "0.10")
    assert (empty["at"], empty["precision"]) == (0, "no message that late")
    late = cli("offsets", "orders", *server, "--at", "2100-01-01").json
    assert [(one["at"], one["precision"]) for one in late] == [
        (3, "no message that late"),
        (0, "no message that late"),
    ]


def test_partition_without_leader_is_named(cli: RunCommand) -> None:
    with EmbeddedCluster(2, topics={"orders": 2}) as cluster:
        cluster.kill(1, then="leaderless")
        done = cli("offsets", "orders", "-b", cluster.bootstrap_servers, "--format", "json")
        lost = next(number for number in range(2) if cluster.leader("orders", number) < 0)
        shown = cli("metadata", "orders", "-b", cluster.bootstrap_servers, "--format", "jsonl")
        listed = cli("topics", "-b", cluster.bootstrap_servers, "--format", "json").json
    assert done.code == 1
    assert done.err == f"aiokafka08: topic 'orders': no leader for partitions {lost}\n"
    assert [row["last"] for row in done.json] == [None if one == lost else 0 for one in range(2)]
    assert '"leader":null' in shown.lines[lost]
    assert "LeaderNotAvailable" in shown.lines[lost]
    assert [one["leaderless"] for one in listed] == [1]


def test_dead_broker_has_no_release(cli: RunCommand) -> None:
    with EmbeddedCluster(2, "0.8.0", topics={"orders": 2}) as cluster:
        cluster.kill(1, then="unnoticed")
        server = ("-b", cluster.bootstrap_servers, "--timeout", "3")
        rows: list[dict[str, Any]] = cli("metadata", "--brokers", "--format", "json", *server).json
    assert [(one["node"], one["release"]) for one in rows] == [(0, "0.8.0"), (1, None)]


def test_cluster_without_topics_explains_missing_brokers(cli: RunCommand) -> None:
    with EmbeddedCluster(version="0.8.1") as cluster:
        done = cli("metadata", "-b", cluster.bootstrap_servers, "--format", "table")
        assert "name no broker while the cluster has no topic" in done.err
        rows = cli("topics", "-b", cluster.bootstrap_servers, "--format", "json").json
    assert (done.code, rows) == (0, [])


def test_topic_that_vanishes_meanwhile_is_one_line(cli: RunCommand) -> None:
    """It is there when the metadata is read, and gone when its offsets are asked for."""
    with EmbeddedCluster(topics={"orders": 1}) as cluster:
        gone = cluster.next_request(ListOffsetsRequest)
        gone.add_done_callback(lambda _: cluster.delete_topic("orders"))
        done = cli("offsets", "orders", "-b", cluster.bootstrap_servers, "--timeout", "1")
        assert (done.code, done.out) == (1, b"")
        assert done.err.startswith("aiokafka08: ")
        assert done.err.count("\n") == 1
        assert cli("topics", "-q", "-b", cluster.bootstrap_servers).lines == []


def test_internal_topic_is_marked(cli: RunCommand) -> None:
    with EmbeddedCluster(topics={"__consumer_offsets": 1, "orders": 1}) as cluster:
        rows = cli("topics", "-b", cluster.bootstrap_servers, "--format", "json").json
    assert [(one["topic"], one["internal"]) for one in rows] == [
        ("__consumer_offsets", True),
        ("orders", False),
    ]
