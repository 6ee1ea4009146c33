"""The commands on a real broker of each line, beside Kafka's own tools."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from kazoo.client import KazooClient

from aiokafka08 import AIOKafkaProducer
from aiokafka08._core.net.cluster import INTERNAL_TOPICS
from aiokafka08.errors import MessageSizeTooLargeError
from tests._tools.cli.conftest import RunCommand
from tests.brokers.cluster import RealCluster
from tests.brokers.fixtures import BrokerClusters, require_real_brokers
from tests.brokers.versions import VERSIONS
from tests.support.waiting import eventually

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

RELEASES = [name for name, version in VERSIONS.items() if version.needs_zookeeper]
SHOWN_RELEASE = {
    "0.8.0": "0.8.0",
    "0.8.1.1": "0.8.1",
    "0.8.2.2": "0.8.2",
    "0.9.0.1": "0.9",
    "0.10.2.2": "0.10.2",
    "3.9.1": "3.9",
}


def topics_of_kafka(cluster: RealCluster) -> set[str]:
    """Return the topics that the brokers have; `kafka-topics.sh --list` prints the same nodes."""
    client = KazooClient(cluster.zookeeper_connect)
    client.start()
    try:
        return set(client.get_children("/brokers/topics")) - INTERNAL_TOPICS
    finally:
        client.stop()
        client.close()


def offsets_of_kafka(cluster: RealCluster, version: str, topic: str, time: int) -> dict[int, int]:
    """Return the offset of each partition by the brokers' own tool; -2 is first, -1 last."""
    package = "org.apache.kafka" if version == "3.9.1" else "kafka"
    option = "--bootstrap-server" if version == "3.9.1" else "--broker-list"
    done = cluster.run_java(
        f"{package}.tools.GetOffsetShell",
        *(option, cluster.bootstrap_servers, "--topic", topic, "--time", str(time)),
    )
    found = re.findall(rf"^{topic}:(\d+):(\d+)", done.stdout, re.M)
    return {int(partition): int(offset) for partition, offset in found}


def send(cluster: RealCluster, topic: str, partition: int, *values: bytes) -> None:
    async def work() -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, acks="all"
        ) as producer:
            await (await producer.send_many(topic, list(values), partition=partition))

    asyncio.run(work())


@pytest.mark.parametrize("version", RELEASES)
def test_look_and_change_on_each_line(
    version: str,
    broker_clusters: BrokerClusters,
    unique_topic: Callable[..., str],
    cli: RunCommand,
) -> None:
    cluster = broker_clusters.get(version)
    server = ("-b", cluster.bootstrap_servers)
    zookeeper = (*server, "--zookeeper", cluster.zookeeper_connect)
    topic, missing = unique_topic("cli"), unique_topic("missing")
    made = cli("topic", "create", topic, "--partitions", "3", *zookeeper)
    name = f"cluster {cluster.bootstrap_servers}, ZooKeeper {cluster.zookeeper_connect}"
    how = "with 3 partitions, 1 replica of each"
    assert made == (0, b"", f"aiokafka08: topic {topic!r} was created {how}, on {name}\n")
    send(cluster, topic, 1, b"a", b"b", b"c")

    # Reading shows what Kafka's own tools show, and creates no topic.
    before = topics_of_kafka(cluster)
    assert topic in before
    with ThreadPoolExecutor() as threads:  # Java takes a second to start
        first = threads.submit(offsets_of_kafka, cluster, version, topic, -2)
        last = threads.submit(offsets_of_kafka, cluster, version, topic, -1)
        rows = cli("offsets", topic, *server, "--format", "json").json
        assert {one["partition"]: one["first"] for one in rows} == first.result()
        assert (
            {one["partition"]: one["last"] for one in rows} == last.result() == {0: 0, 1: 3, 2: 0}
        )
    at = cli("offsets", topic, "-p", "1", "--at", "-1h", *server, "--format", "json").json
    by_message = VERSIONS[version].number >= (0, 10, 1)
    assert [(one["at"], one["precision"]) for one in at] == [
        (0, "exact" if by_message else "≈, by segment")
    ]
    described = cli("metadata", topic, *server, "--format", "json").json
    assert [one["release"] for one in described["brokers"]] == [SHOWN_RELEASE[version]]
    assert [(one["partition"], one["leader"]) for one in described["partitions"]] == [
        (number, described["brokers"][0]["node"]) for number in range(3)
    ]
    for arguments in (["metadata", missing], ["offsets", missing], ["offsets", topic, "-p", "9"]):
        assert cli(*arguments, *server).code == 1
    assert set(cli("topics", "-q", *server).lines) - INTERNAL_TOPICS == before
    assert topics_of_kafka(cluster) == before

    # Changes.
    again = cli("topic", "create", topic, *zookeeper)
    assert again.code == 1
    assert again.err == f"aiokafka08: topic {topic!r} exists already\n"
    grown = cli("topic", "grow", topic, "5", *zookeeper)
    assert grown == (0, b"", f"aiokafka08: topic {topic!r} was grown to 5 partitions, on {name}\n")
    assert len(cli("offsets", topic, *server).lines) == 6
    less = cli("topic", "grow", topic, "2", *zookeeper)
    assert (less.code, "expected more than its 5 partitions" in less.err) == (1, True)
    if version == "0.8.0":
        refused = cli("topic", "config", topic, "--set", "retention.ms=1000", *zookeeper)
        assert (refused.code, "0.8.0 line have no topic configs" in refused.err) == (1, True)
        refused = cli("topic", "delete", topic, "--yes", *zookeeper)
        assert (refused.code, "can't delete topics" in refused.err) == (1, True)
        return
    assert_config_is_applied(cluster, topic, zookeeper, cli)
    gone = cli("topic", "delete", topic, "--yes", *zookeeper)
    if version == "0.8.1.1":
        assert (gone.code, "can't delete topics" in gone.err) == (1, True)
    else:
        assert gone == (0, b"", f"aiokafka08: topic {topic!r} was deleted, on {name}\n")
        assert topic not in cli("topics", "-q", *server).lines
    unknown = cli("topic", "config", missing, *zookeeper)
    assert unknown.code == 1  # similar names of other tests may follow
    assert unknown.err.startswith(f"aiokafka08: topic {missing!r} doesn't exist")


def assert_config_is_applied(
    cluster: RealCluster, topic: str, zookeeper: tuple[str, ...], cli: RunCommand
) -> None:
    """The running broker obeys a changed config, and its removal."""
    changed = cli(
        *("topic", "config", topic, *zookeeper, "--format", "json"),
        *("--set", "max.message.bytes=200", "--set", "cleanup.policy=delete"),
    )
    done = f"topic {topic!r}: max.message.bytes=200 was set, cleanup.policy=delete was set, on "
    assert (changed.code, changed.err.startswith(f"aiokafka08: {done}")) == (0, True)
    assert {one["name"]: one["value"] for one in changed.json} == {
        "max.message.bytes": "200",
        "cleanup.policy": "delete",
    }

    async def accepts(expected: bool) -> bool:
        try:
            await asyncio.to_thread(send, cluster, topic, 0, b"x" * 1000)
        except MessageSizeTooLargeError:
            return not expected
        return expected

    asyncio.run(eventually(lambda: accepts(False)))
    removed = cli(
        *("topic", "config", topic, *zookeeper, "--unset", "max.message.bytes", "--format", "json")
    )
    assert removed.json == [{"topic": topic, "name": "cleanup.policy", "value": "delete"}]
    asyncio.run(eventually(lambda: accepts(True)))
    assert cli("topic", "config", topic, *zookeeper, "--format", "json").json == removed.json
    again = cli("topic", "config", topic, *zookeeper, "--unset", "max.message.bytes")
    text = f"aiokafka08: topic {topic!r}: max.message.bytes isn't set; nothing to remove\n"
    assert (again.code, again.err) == (0, text)
    wrong = cli("topic", "config", topic, *zookeeper, "--unset", "retention.mss")
    assert (wrong.code, wrong.out) == (1, b"")
    assert "Did you mean 'retention.ms'" in wrong.err


def test_wrong_changes_are_one_line(
    broker_clusters: BrokerClusters, unique_topic: Callable[..., str], cli: RunCommand
) -> None:
    cluster = broker_clusters.get("0.8.2.2")
    server = ("-b", cluster.bootstrap_servers)
    zookeeper = (*server, "--zookeeper", cluster.zookeeper_connect)
    topic = unique_topic("cli")
    for arguments, code, part in (
        (["create", topic, *server], 1, "--zookeeper host:2181"),
        (["create", topic, *server, "--zookeeper", "127.0.0.1:1", "--timeout", "1"], 1, ":1"),
        (["create", topic, *server, "--zookeeper", "::"], 2, "zookeeper.connect='::': bad host"),
        (["create", topic, *server, "--zookeeper", "a:b"], 2, "expected 'host:port,host:port/"),
        (["create", topic, *zookeeper, "--partitions", "0"], 1, "expected 1 to 100000"),
        (["create", topic, *zookeeper, "--replicas", "2"], 1, "replicas=2; expected"),
        (["create", topic, *zookeeper, "--assignment", "7"], 1, "replicas [7]; expected"),
        (["create", "a b", *zookeeper], 1, "a b"),
        (["create", topic, *zookeeper, "--set", "retention.m=1"], 1, "'retention.m' on the 0.8"),
        (["create", topic, *zookeeper, "--set", "retention.ms=1h"], 1, "expected an integer"),
        (["grow", topic, "2", *zookeeper], 1, "doesn't exist"),
        (["delete", topic, "--yes", *zookeeper], 1, "doesn't exist"),
    ):
        done = cli("topic", *arguments)
        assert (done.code, done.out) == (code, b""), done
        assert part in done.err
        assert done.err.count("\n") == 1
    tried = cli("topic", "create", topic, *zookeeper, "--dry-run")
    assert (tried.code, tried.err.endswith(". Nothing was changed\n")) == (0, True)
    assert topic not in cli("topics", "-q", *server).lines


def test_name_whose_metrics_collide_is_refused_as_by_kafka(
    broker_clusters: BrokerClusters, unique_topic: Callable[..., str], cli: RunCommand
) -> None:
    """0.8.2.2 itself makes `a.b` beside `a_b`; Kafka's own tool refuses it from 0.9 on."""
    with_line = unique_topic("cli").replace("-", "_")
    with_dot = with_line.replace("_", ".")
    for version in ("0.8.2.2", "0.9.0.1"):
        cluster = broker_clusters.get(version)
        zookeeper = ("-b", cluster.bootstrap_servers, "--zookeeper", cluster.zookeeper_connect)
        done = cli("topic", "create", with_line, *zookeeper)
        assert done.code == 0, done.err
        done = cli("topic", "create", with_dot, *zookeeper)
        assert (done.code, done.out) == (1, b"")
        assert f"{with_line!r}" in done.err
        assert with_dot not in topics_of_kafka(cluster)
        of_kafka = cluster.run_java(
            "kafka.admin.TopicCommand",
            *("--zookeeper", cluster.zookeeper_connect, "--create", "--topic", with_dot),
            *("--partitions", "1", "--replication-factor", "1"),
        )
        assert (with_dot in topics_of_kafka(cluster)) == (version == "0.8.2.2"), of_kafka
        assert ("collides" in of_kafka.stdout + of_kafka.stderr) == (version == "0.9.0.1")


def test_broker_of_4_x_is_named_with_what_to_use(
    modern_cluster: RealCluster, cli: RunCommand
) -> None:
    for arguments in (["metadata"], ["topics"], ["offsets", "t"]):
        done = cli(*arguments, "-b", modern_cluster.bootstrap_servers)
        assert (done.code, done.out) == (1, b"")
        assert "it is a 4.x (or later) broker" in done.err
        assert "Use a current client, such as aiokafka, kcat" in done.err
        assert "aiokafka08 bridge" in done.err
        assert done.err.count("\n") == 1


def test_tls_by_names_of_java_and_of_librdkafka(cli: RunCommand) -> None:
    require_real_brokers()
    with RealCluster("0.9.0.1", ssl=True) as cluster:
        cluster.create_topic("orders")
        tls = ("-b", cluster.ssl_bootstrap_servers, "-X", "security.protocol=ssl")
        java = f"ssl.truststore.location={cluster.ca_path}"
        for options in (
            ("-X", f"ssl.ca.location={cluster.ca_path}"),
            ("-X", java, "-X", "ssl.truststore.type=PEM"),
            ("-X", "enable.ssl.certificate.verification=false"),
        ):
            assert cli("topics", "-q", *tls, *options) == (0, b"orders\n", "")
        done = cli("topics", "-q", *tls, "--timeout", "2")
        assert (done.code, done.out) == (1, b"")
        assert "certificate" in done.err
        assert done.err.count("\n") == 1
        done = cli("topics", "-q", "-b", cluster.ssl_bootstrap_servers, "--timeout", "2")
        assert (done.code, "TLS" in done.err) == (1, True)
