"""`RealCluster` on real processes: when a method returns, its effect is visible.

The proxy has its own file (``test_proxy.py``), as have jars and settings (``test_jars.py``).
"""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.brokers import VERSIONS, HarnessError, RealCluster, UnsupportedByBrokerError
from tests.brokers.errors import HarnessTimeoutError
from tests.brokers.fixtures import BrokerClusters, require_real_brokers
from tests.brokers.ports import accepts
from tests.brokers.waiting import wait_for
from tests.brokers.wire import BrokerError, Message, fetch, metadata, produce
from tests.support.paths import ROOT

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

WITH_ZOOKEEPER = [name for name, version in VERSIONS.items() if version.needs_zookeeper]
OLD = "0.8.2.2"


@pytest.mark.parametrize("version", WITH_ZOOKEEPER)
def test_every_version_keeps_messages_over_a_crash(
    version: str, broker_clusters: BrokerClusters, unique_topic: Callable[..., str]
) -> None:
    cluster = broker_clusters.get(version)
    topic = unique_topic()
    cluster.create_topic(topic, partitions=2)
    view = metadata(cluster.port(0), [topic])
    assert view.brokers == {0: ("127.0.0.1", cluster.port(0))}
    assert view.leaders[topic] == {0: 0, 1: 0}
    assert [cluster.leader(topic, 1), cluster.isr(topic, 1)] == [0, [0]]
    # Without any retry: the topic is ready when create_topic returns.
    assert produce(cluster.port(0), topic, 1, [(b"k", b"v"), (None, b"w")]) == 0
    cluster.kill(0)
    assert not accepts(cluster.port(0))
    cluster.restart(0)

    def read_again() -> list[Message] | None:
        try:
            return fetch(cluster.port(0), topic, 1)
        except BrokerError:  # not the leader yet
            return None

    assert wait_for(read_again, 20, "the messages") == [
        Message(0, b"k", b"v"),
        Message(1, None, b"w"),
    ]


def test_missing_partition_is_awaited(
    broker_clusters: BrokerClusters, unique_topic: Callable[..., str]
) -> None:
    cluster = broker_clusters.get("0.8.2.2")
    topic = unique_topic()
    cluster.create_topic(topic)
    with pytest.raises(HarnessTimeoutError, match=f"{topic}-1; it is None"):
        cluster.wait_leader(topic, 1, [0], timeout=0.1)


@pytest.mark.parametrize("version", WITH_ZOOKEEPER)
def test_topic_config_compacts_the_log(
    version: str, broker_clusters: BrokerClusters, unique_topic: Callable[..., str]
) -> None:
    cluster = broker_clusters.get(version)
    topic = unique_topic()
    config = {"cleanup.policy": "compact", "segment.bytes": 4096}
    if version == "0.8.0":
        with pytest.raises(UnsupportedByBrokerError, match="no topic configs"):
            cluster.create_topic(topic, config=config)
        assert topic not in metadata(cluster.port(0)).leaders
        return
    cluster.create_topic(topic, config=config)
    for n in range(30):
        produce(cluster.port(0), topic, 0, [(b"key", b"%d" % n + b"." * 400)])
    # The newest closed segment and the open segment are left.
    wait_for(lambda: len(fetch(cluster.port(0), topic, 0)) < 15, 20, "the log is compacted")


@pytest.mark.parametrize("version", WITH_ZOOKEEPER)
def test_deleted_topic_is_gone(
    version: str, broker_clusters: BrokerClusters, unique_topic: Callable[..., str]
) -> None:
    cluster = broker_clusters.get(version)
    topic = unique_topic()
    cluster.create_topic(topic)
    with pytest.raises(HarnessError, match="exists already"):
        cluster.create_topic(topic)
    if VERSIONS[version].number < (0, 8, 2):
        with pytest.raises(UnsupportedByBrokerError, match=r"0\.8\.2 or newer"):
            cluster.delete_topic(topic)
        return
    cluster.delete_topic(topic)
    with pytest.raises(HarnessError, match="no topic"):
        cluster.delete_topic(topic)
    cluster.create_topic(topic, partitions=3)
    assert len(metadata(cluster.port(0), [topic]).leaders[topic]) == 3


def test_kraft_cluster_has_no_zookeeper(modern_cluster: RealCluster) -> None:
    port = modern_cluster.port(0)
    assert metadata(port).brokers == {0: ("127.0.0.1", port)}
    with pytest.raises(UnsupportedByBrokerError, match=r"4\.1\.0 has no ZooKeeper"):
        modern_cluster.create_topic("t")
    with pytest.raises(UnsupportedByBrokerError, match="has no ZooKeeper"):
        _ = modern_cluster.zookeeper_connect


@pytest.mark.full
@pytest.mark.timeout(400)
def test_killed_leader_is_replaced_in_kraft(
    broker_clusters: BrokerClusters, unique_topic: Callable[..., str]
) -> None:
    """Each broker is a controller too: the other two elect one, and leaders."""
    cluster = broker_clusters.get("4.1.0", brokers=3)
    topic = unique_topic()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 2})
    admin.create_topics([NewTopic(topic, 3, 3)])[topic].result(60)

    def is_led_by(nodes: set[int]) -> bool:
        views = [metadata(cluster.port(node), [topic]) for node in nodes]
        return all({*view.leaders[topic].values()} <= nodes for view in views)

    wait_for(lambda: is_led_by({0, 1, 2}), 60, "leaders")
    cluster.kill(1)
    wait_for(lambda: is_led_by({0, 2}), 120, "other leaders")
    cluster.restart(1)


def test_killed_leader_is_replaced(
    broker_clusters: BrokerClusters, unique_topic: Callable[..., str]
) -> None:
    cluster = broker_clusters.get(OLD, brokers=3)
    assert sorted(cluster.nodes) == [0, 1, 2]
    topic = unique_topic()
    cluster.create_topic(topic, assignment={0: [1, 2, 0]})
    cluster.wait_isr(topic, 0, {0, 1, 2})
    assert cluster.leader(topic) == 1
    for port in map(cluster.port, cluster.nodes):  # every broker knows it, not only the leader
        assert metadata(port, [topic]).leaders[topic] == {0: 1}

    cluster.kill(1)
    cluster.expire(1)
    assert cluster.wait_leader(topic, 0, {0, 2}) in {0, 2}
    cluster.wait_isr(topic, 0, {0, 2})
    cluster.restart(1)
    cluster.wait_isr(topic, 0, {0, 1, 2})

    leader = cluster.leader(topic)
    cluster.stop(
        leader
    )  # a controlled shutdown: the leadership has moved when the process has ended
    assert cluster.leader(topic) not in {-1, leader}
    # The next test gets the cluster with all brokers running.
    assert broker_clusters.get(OLD, brokers=3) is cluster
    cluster.wait_isr(topic, 0, {0, 1, 2})


def test_paused_broker_is_silent_until_resumed(broker_clusters: BrokerClusters) -> None:
    cluster = broker_clusters.get(OLD)
    cluster.pause(0)
    assert accepts(cluster.port(0))  # the kernel does
    with pytest.raises(TimeoutError):
        metadata(cluster.port(0), timeout=0.3)
    cluster.resume(0)
    metadata(cluster.port(0))
    cluster.pause(0)
    broker_clusters.get(OLD)  # the next test gets it resumed
    metadata(cluster.port(0))


def test_zookeeper_pauses_stops_and_restarts(
    broker_clusters: BrokerClusters, unique_topic: Callable[..., str]
) -> None:
    cluster = broker_clusters.get(OLD)
    topic = unique_topic()
    cluster.pause_zookeeper()
    with pytest.raises(HarnessError, match="ZooKeeper is paused"):
        cluster.create_topic(topic)
    cluster.resume_zookeeper()
    cluster.stop_zookeeper()
    with pytest.raises(HarnessError, match="ZooKeeper is stopped"):
        cluster.create_topic(topic)
    metadata(cluster.port(0))  # brokers respond without it
    cluster.start_zookeeper()
    cluster.create_topic(topic)
    assert cluster.leader(topic) == 0


def test_restart_at_other_port_from_ending_thread(broker_clusters: BrokerClusters) -> None:
    cluster = broker_clusters.get(OLD)
    before = cluster.bootstrap_servers
    thread = threading.Thread(target=cluster.restart, args=(0,), kwargs={"port": 0})
    thread.start()
    thread.join()
    assert cluster.bootstrap_servers != before
    # Had the broker been tied to the thread (PR_SET_PDEATHSIG) it would be dead by now.
    view = metadata(cluster.port(0))
    assert set(view.brokers.values()) <= {("127.0.0.1", cluster.port(0))}


def test_console_tools_of_the_jars(
    broker_clusters: BrokerClusters, unique_topic: Callable[..., str]
) -> None:
    cluster = broker_clusters.get(OLD)
    topic = unique_topic()
    cluster.create_topic(topic)
    # It starts first and keeps running: it must see later messages, and no pipe may fill up.
    consumer = cluster.popen_java(
        "kafka.tools.ConsoleConsumer",
        *("--zookeeper", cluster.zookeeper_connect, "--topic", topic, "--from-beginning"),
    )
    done = cluster.run_java(
        "kafka.tools.ConsoleProducer",
        *("--broker-list", cluster.bootstrap_servers, "--topic", topic),
        *(
            "--request-required-acks",
            "1",
        ),  # its default is acks=0: it may end before the messages are stored
        input="grüße\n2\n",
    )
    assert done.returncode == 0, done
    values = [message.value for message in fetch(cluster.port(0), topic, 0)]
    assert values == ["grüße".encode(), b"2"]
    wait_for(lambda: consumer.stdout() == "grüße\n2\n", 20, consumer.stderr)
    assert consumer.terminate(20) is not None


@pytest.fixture(scope="module")
def ssl_cluster() -> Iterator[RealCluster]:
    require_real_brokers()
    with RealCluster("0.9.0.1", ssl=True) as cluster:
        yield cluster


def test_ssl_certificate_is_verified_by_python(ssl_cluster: RealCluster) -> None:
    context = ssl.create_default_context(cafile=str(ssl_cluster.ca_path))
    context.verify_flags |= ssl.VERIFY_X509_STRICT  # the default of Python 3.13
    host, port = ssl_cluster.ssl_bootstrap_servers.split(":")
    for name in ("127.0.0.1", "localhost"):
        with (
            socket.create_connection((host, int(port)), timeout=20) as plain,
            context.wrap_socket(plain, server_hostname=name) as secure,
            secure.makefile("rb") as stream,
        ):
            # ListOffsets v0 without topics
            secure.sendall(bytes.fromhex("00000012 0002 0000 00000007 0000 ffffffff 00000000"))
            assert stream.read(12).hex() == "000000080000000700000000"
    metadata(ssl_cluster.port(0))  # the plain listener exists too


@pytest.mark.parametrize("death", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_processes_end_with_their_parent(death: signal.Signals, tmp_path: Path) -> None:
    require_real_brokers()
    with subprocess.Popen(
        [sys.executable, "-m", "tests.brokers", OLD],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        cwd=ROOT,
    ) as parent:
        try:
            assert parent.stdout is not None
            lines = dict(parent.stdout.readline().split() for _ in range(2))
            ports = [int(address.rpartition(":")[2]) for address in lines.values()]
            assert list(lines) == ["bootstrap_servers", "zookeeper_connect"]
            assert all(map(accepts, ports))
            assert list(tmp_path.iterdir())
        finally:
            parent.send_signal(death)
    wait_for(lambda: not any(map(accepts, ports)), 20, "all processes are gone")
    wait_for(lambda: not list(tmp_path.iterdir()), 20, "the folder is gone")


def test_failed_broker_start_shows_its_log() -> None:
    require_real_brokers()
    with pytest.raises(HarnessError, match=r'(?s)ended at its start:.*"many"'):
        RealCluster(OLD, properties={"num.io.threads": "many"}).start()
