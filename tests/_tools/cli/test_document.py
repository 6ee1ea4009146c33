"""docs/cli.md is what the commands declare, and its examples run."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka08._core.metrics.endpoint import MetricsEndpoint, Page
from tests._tools.cli.conftest import RunCommand
from tests._tools.cli.document import PAGE, examples, page
from tests._tools.cli.test_real import topics_of_kafka
from tests.bridge.clusters import bridge_text
from tests.brokers.cluster import RealCluster
from tests.brokers.fixtures import BrokerClusters
from tests.brokers.ports import free_port
from tests.support.paths import ROOT


def test_page_is_up_to_date() -> None:
    """If this fails: python -m tests._tools.cli.document."""
    assert PAGE.read_text() == page()


def test_examples_name_the_addresses_of_the_page() -> None:
    for name, example in examples():
        addresses = set(re.findall(r"[\w.-]+:\d{4,5}", example.command))
        new = set()
        if name.startswith("gateway"):
            new = {"kafka4-1:9092", "kafka4-2:9092", "10.0.0.5:9092", "127.0.0.1:9094"}
        assert addresses <= {"kafka1:9092", "zk1:2181", *new}, name
        assert "\n" not in example.command


@pytest.fixture
def shell(tmp_path: Path) -> dict[str, str]:
    """The environment of a shell in which `aiokafka08` is this checkout's command."""
    script = tmp_path / "bin" / "aiokafka08"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m aiokafka08 "$@"\n')
    script.chmod(0o755)
    return {
        **os.environ,
        "PATH": f"{script.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOME": str(tmp_path),
    }


async def prepare(cluster: RealCluster) -> None:
    """Write messages to `orders`, and let the group `billing` commit in ZooKeeper and in Kafka."""
    servers = cluster.bootstrap_servers
    async with AIOKafkaProducer(bootstrap_servers=servers, acks="all") as producer:
        for partition in range(2):
            await (await producer.send_many("orders", [b"tea"] * 10, partition=partition))
    async with AIOKafkaConsumer(
        "orders",
        bootstrap_servers=servers,
        zookeeper_connect=cluster.zookeeper_connect,
        group_id="billing",
        offsets_storage="dual",
        auto_offset_reset="earliest",
        max_poll_records=5,
    ) as consumer:
        await consumer.getone()
        await consumer.commit()


@pytest.mark.real
@pytest.mark.timeout(480)
def test_every_example_runs(
    broker_clusters: BrokerClusters,
    modern_cluster: RealCluster,
    cli: RunCommand,
    shell: dict[str, str],
    tmp_path: Path,
) -> None:
    """In the order of the page, on one broker of 0.8.2.2."""
    cluster = broker_clusters.get("0.8.2.2")
    before = topics_of_kafka(cluster)
    cluster.create_topic("orders", partitions=2)
    bridge = tmp_path / "bridge.toml"
    bridge.write_text(bridge_text("examples", cluster, modern_cluster, "orders"))
    gateway = tmp_path / "gateway.toml"
    gateway.write_text(f'to = "{modern_cluster.bootstrap_servers}"\n')
    page = Page("application/json", b"[]")
    pages = {"/clients": lambda: page}
    clients = MetricsEndpoint(
        "127.0.0.1", 0, lambda: page, lambda: page, client_id="test", others=pages
    )
    registry = KazooClient(cluster.zookeeper_connect)
    try:
        registry.start()
        registry.ensure_path("/kafka")  # a chroot without brokers
        asyncio.run(prepare(cluster))
        for name, example in examples():
            command = example.command.replace("kafka1:9092", cluster.bootstrap_servers)
            command = command.replace("zk1:2181", cluster.zookeeper_connect)
            command = command.replace("bridge.toml", str(bridge))
            command = re.sub(r"-c 1000\b|-c 1000000\b", "-c 100", command)
            if name == "cluster":
                command += " --port 0"  # 9092 may be in use
            command = command.replace(",kafka4-2:9092", "").replace(
                "kafka4-1:9092", modern_cluster.bootstrap_servers
            )
            command = command.replace("gateway.toml", str(gateway))
            command = command.replace("http://127.0.0.1:9094", clients.url.removesuffix("/metrics"))
            if name in ("gateway", "gateway run"):
                command += f" --listen 127.0.0.1:{free_port()}"
            if name in ("exporter", "console"):
                command += " --listen 127.0.0.1:0"  # and so may 9308 or 8008
            command = command.replace("--watch 60s", "--watch 1s")
            finds = name in ("doctor", "gateway check")
            codes = {0, 1} if finds else {example.code}  # it may have findings
            if example.until_interrupted or set(command) & set("|$>"):
                code, output = run_in_shell(command, example.until_interrupted, shell, tmp_path)
            else:
                done = cli(*shlex.split(command)[1:])
                code, output = done.code, done.err
            assert code in codes, f"{command}\n{output}"
            assert "Traceback" not in output
    finally:
        clients.close()
        registry.delete("/kafka")
        registry.stop()
        registry.close()
        for topic in topics_of_kafka(cluster) - before:
            cluster.delete_topic(topic)


def run_in_shell(
    command: str, until_interrupted: bool, shell: dict[str, str], folder: Path
) -> tuple[int, str]:
    """Run an example to its end, or until it has printed something if it has no end.

    Return the exit code and what it printed.
    """
    process = subprocess.Popen(
        ["bash", "-c", f"set -o pipefail; {command}"],
        cwd=folder,
        env=shell,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        process_group=0,
        bufsize=0,  # `communicate` gets what `readline` leaves
    )
    output = b""
    try:
        if until_interrupted:
            assert process.stdout is not None
            output = process.stdout.readline()
            os.killpg(process.pid, signal.SIGINT)
        output += process.communicate(timeout=60)[0]
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    return process.returncode, output.decode()
