"""`aiokafka08 exporter`: what it prints and serves, and how it ends."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from prometheus_client.parser import text_string_to_metric_families

from aiokafka08 import AIOKafkaProducer, TopicPartition
from aiokafka08._tools.cli.commands.exporter import parse_listen
from aiokafka08._tools.cli.main import INTERRUPTED, TERMINATED
from aiokafka08.admin import AIOKafkaAdminClient
from aiokafka08.errors import IllegalArgumentError
from aiokafka08.protocol.requests.list_offsets import ListOffsetsRequest
from aiokafka08.testing import EmbeddedCluster, Hang
from tests._tools.cli.conftest import RunCommand, command_line
from tests.brokers.ports import free_port
from tests.support.environments import as_users
from tests.support.waiting import eventually

Metrics = dict[str, dict[tuple[str, ...], float]]


def parsed(text: str) -> Metrics:
    """Return the values by name and labels; the labels are in order of their names."""
    found: Metrics = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = tuple(value for _, value in sorted(sample.labels.items()))
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


async def commit(servers: str, group: str, offsets: dict[TopicPartition, int]) -> None:
    async with AIOKafkaAdminClient(bootstrap_servers=servers) as admin:
        await admin.reset_consumer_group_offsets(group, dict(offsets))


def fill(cluster: EmbeddedCluster) -> None:
    """Write ten messages to orders/0, and commit 4 for the group billing."""
    cluster.append("orders", 0, [b"tea"] * 10)
    asyncio.run(commit(cluster.bootstrap_servers, "billing", {TopicPartition("orders", 0): 4}))


# --- --once ---------------------------------------------------------------------------------------


@pytest.mark.kafka_cluster(version="0.10", topics={"orders": 2, "other": 1})
def test_once_prints_the_metrics(cli: RunCommand, kafka_cluster: EmbeddedCluster) -> None:
    fill(kafka_cluster)
    done = cli("exporter", "-b", kafka_cluster.bootstrap_servers, "--once")
    assert (done.code, done.err) == (0, "")
    found = parsed(done.out.decode())
    assert found["kafka_up"] == {(): 1}
    assert found["kafka_brokers"] == {(): 1}
    topics = found["kafka_topic_partitions"]
    assert topics | {("orders",): 2, ("other",): 1} == topics
    assert found["kafka_topic_partition_current_offset"][("0", "orders")] == 10
    assert found["kafka_consumergroup_lag"] == {("billing", "0", "orders"): 6}
    assert "kafka_consumergroup_lag_seconds" not in found  # one sample says nothing of it
    assert found["kafka_consumergroup_info"] == {("billing", "kafka"): 1}
    assert found["kafka_exporter_scrape_errors"] == {(): 0}


@pytest.mark.kafka_cluster(version="0.10", topics={"orders": 1, "other": 1})
def test_filters_choose_topics_and_groups(cli: RunCommand, kafka_cluster: EmbeddedCluster) -> None:
    fill(kafka_cluster)
    asyncio.run(commit(kafka_cluster.bootstrap_servers, "test-1", {TopicPartition("other", 0): 0}))
    once = ("exporter", "-b", kafka_cluster.bootstrap_servers, "--once")
    found = parsed(cli(*once, "--topic-filter", "^or", "--group-exclude", "^test-").out.decode())
    assert found["kafka_topic_partitions"] == {("orders",): 1}
    assert found["kafka_consumergroup_info"] == {("billing", "kafka"): 1}
    found = parsed(cli(*once, "--topic-exclude", "^or|^__", "--group-filter", "est").out.decode())
    assert found["kafka_topic_partitions"] == {("other",): 1}
    assert found["kafka_consumergroup_info"] == {("test-1", "kafka"): 1}


@pytest.mark.kafka_cluster(version="0.8.2", topics={"orders": 1})
@pytest.mark.parametrize("has_offsets_topic", [False, True])
def test_once_says_that_groups_in_zookeeper_are_left_out(
    cli: RunCommand, kafka_cluster: EmbeddedCluster, has_offsets_topic: bool
) -> None:
    if has_offsets_topic:
        kafka_cluster.create_topic("__consumer_offsets", 1)
    done = cli("exporter", "-b", kafka_cluster.bootstrap_servers, "--once")
    assert done.code == 0
    assert len(done.err.splitlines()) == 1
    assert "groups in ZooKeeper" in done.err
    assert "Give --zookeeper host:2181/chroot" in done.err


def test_once_without_a_broker_says_why(cli: RunCommand) -> None:
    port = free_port()
    done = cli("exporter", "-b", f"127.0.0.1:{port}", "--once", "--timeout", "0.5")
    assert done.code == 1
    assert parsed(done.out.decode())["kafka_up"] == {(): 0}
    assert f"127.0.0.1:{port}" in done.err
    assert len(done.err.splitlines()) == 1


# --- mistakes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        (["--listen", "9308"], 2, "--listen 9308: expected [HOST]:PORT"),
        (["--listen", ":99999"], 2, "expected [HOST]:PORT"),
        (["--topic-filter", "("], 2, "topic-filter='(': expected a regular expression"),
        (["--group-exclude", "*"], 2, "group-exclude='*': expected a regular expression"),
        (["--interval", "0"], 2, "--interval"),
    ],
)
def test_wrong_option_is_one_line(
    cli: RunCommand, options: list[str], code: int, text: str
) -> None:
    done = cli("exporter", "-b", "127.0.0.1:1", *options)
    assert (done.code, done.out, len(done.err.splitlines())) == (code, b"", 1)
    assert text in done.err


def test_port_in_use_is_one_line(cli: RunCommand, kafka_cluster: EmbeddedCluster) -> None:
    taken = kafka_cluster.bootstrap_servers
    done = cli("exporter", "-b", taken, "--listen", taken)
    assert done.code == 1
    assert done.err == f"aiokafka08: {taken}: Address already in use: choose another --listen\n"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (":9308", ("", 9308)),
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("[::1]:9308", ("::1", 9308)),
        ("host.example:80", ("host.example", 80)),
    ],
)
def test_listen_is_parsed(text: str, address: tuple[str, int]) -> None:
    assert parse_listen(text) == address


@pytest.mark.parametrize("text", ["", "host", "host:", "host:-1", "host:٣", "::1:9308", ":65536"])
def test_wrong_listen_is_refused(text: str) -> None:
    with pytest.raises(IllegalArgumentError, match="expected \\[HOST\\]:PORT"):
        parse_listen(text)


# --- as a service ---------------------------------------------------------------------------------


@contextmanager
def service(
    *options: str, reads_log: bool = True
) -> Iterator[tuple[subprocess.Popen[str], Callable[[str], str]]]:
    """Run the exporter; yield its process, and a function that returns a page."""
    process = subprocess.Popen(
        command_line("exporter", "--listen", "127.0.0.1:0", "--interval", "1", *options),
        stderr=subprocess.PIPE,
        text=True,
        env=as_users(),
    )
    assert process.stderr is not None
    reader: threading.Thread | None = None
    try:
        line = process.stderr.readline()
        url = re.search(r"http://127\.0\.0\.1:\d+", line)
        assert url, line
        if reads_log:
            # What it logs later must not fill the pipe.
            reader = threading.Thread(target=process.stderr.read)
            reader.start()

        def page(path: str) -> str:
            with urllib.request.urlopen(url[0] + path, timeout=10) as response:
                text: str = response.read().decode()
            return text

        yield process, page
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        if reader is not None:
            reader.join()
        process.stderr.close()


@pytest.mark.kafka_cluster(version="0.10", brokers=2, topics={"orders": 2})
async def test_service_follows_the_cluster(kafka_cluster: EmbeddedCluster) -> None:
    """Series end with their topic and group, a dead broker gives kafka_up 0, SIGTERM ends it."""
    await asyncio.to_thread(fill, kafka_cluster)
    with service("-b", kafka_cluster.bootstrap_servers) as (process, page):

        async def shows(condition: Callable[[Metrics], object]) -> None:
            async def is_shown() -> bool:
                return bool(condition(parsed(await asyncio.to_thread(page, "/metrics"))))

            await eventually(is_shown)

        lag = "kafka_consumergroup_lag"
        await shows(lambda found: found.get(lag) == {("billing", "0", "orders"): 6})
        async with AIOKafkaProducer(
            bootstrap_servers=kafka_cluster.bootstrap_servers, acks="all"
        ) as producer:
            await producer.send_and_wait("orders", b"milk", partition=0)
        await shows(lambda found: found[lag] == {("billing", "0", "orders"): 7})
        await shows(lambda found: min(found["kafka_consumergroup_lag_seconds"].values()) > 1)

        kafka_cluster.delete_topic("orders")
        await shows(lambda found: ("orders",) not in found["kafka_topic_partitions"])
        await shows(lambda found: lag not in found)

        kafka_cluster.kill(1)
        await shows(lambda found: found["kafka_up"] == {(): 0})
        await shows(lambda found: found["kafka_brokers"] == {(): 1})
        kafka_cluster.restart(1)
        await shows(lambda found: found["kafka_up"] == {(): 1})
        kafka_cluster.kill(0)
        kafka_cluster.kill(1)
        await shows(lambda found: found["kafka_exporter_scrape_failures_total"][()] > 0)
        await shows(lambda found: found["kafka_up"] == {(): 0})
        assert await asyncio.to_thread(page, "/healthz") == "ok\n"

        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, 5) == TERMINATED


def test_service_waits_for_its_cluster() -> None:
    """No broker at the start: it serves, says so, and Ctrl-C ends it."""
    with service("-b", f"127.0.0.1:{free_port()}", "--timeout", "1") as (process, page):
        assert parsed(page("/metrics"))["kafka_up"] == {(): 0}
        process.send_signal(signal.SIGINT)
        assert process.wait(5) == INTERRUPTED


def first_problem(*options: str) -> str:
    """Return the first line that the service logs."""
    with service(*options, reads_log=False) as (process, _):
        assert process.stderr is not None
        return process.stderr.readline()


@pytest.mark.kafka_cluster(version="0.8.2", topics={"orders": 1})
def test_service_logs_an_incomplete_refresh(kafka_cluster: EmbeddedCluster) -> None:
    """Once, in words of the command line, and without the attempts of the ZooKeeper client."""
    address = f"127.0.0.1:{free_port()}"
    line = first_problem("-b", kafka_cluster.bootstrap_servers, "--zookeeper", address)
    gap = f"refresh incomplete: groups and topics in ZooKeeper not read: ZooKeeper {address} can't"
    assert " WARNING " in line
    assert gap in line
    line = first_problem("-b", address, "--timeout", "1")
    assert " ERROR " in line
    assert f"refresh failed: no broker among bootstrap.servers: {address}: " in line


@pytest.mark.kafka_cluster(version="0.8.2", topics={"orders": 1})
def test_sigterm_ends_a_refresh_that_hangs(kafka_cluster: EmbeddedCluster) -> None:
    """ZooKeeper accepts connections and says nothing, and so does the broker."""
    kafka_cluster.fault(ListOffsetsRequest, then=Hang(), nth=2, times=None)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        servers = kafka_cluster.bootstrap_servers
        with (
            service("-b", servers, "--zookeeper", address) as (process, page),
            silent.accept()[0],
        ):
            assert parsed(page("/metrics"))["kafka_up"] == {(): 0}
            process.send_signal(signal.SIGTERM)
            assert process.wait(5) == TERMINATED


def test_without_prometheus_client_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['prometheus_client'] = None\n"
        "from aiokafka08.cli.main import main\n"
        "sys.exit(main(['exporter', '-b', '127.0.0.1:1', '--once']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert done.returncode == 2
    assert "pip install 'aiokafka08[cli]'" in done.stderr
    assert "Traceback" not in done.stderr
