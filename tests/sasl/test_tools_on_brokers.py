"""The command line, the exporter, Spark's driver and the bridge, through SASL once each."""

from __future__ import annotations

import asyncio
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aiokafka08 import AIOKafkaProducer, TopicPartition
from aiokafka08.bridge.config import parse_config
from aiokafka08.bridge.copy.status import CopyStatus
from aiokafka08.bridge.daemon import run_bridge
from aiokafka08.bridge.errors import TargetAuthenticationError
from aiokafka08.bridge.target.target_cluster import Target
from aiokafka08.bridge.verify.checked_target import TargetChecksums
from aiokafka08.spark.driver import DriverClient
from aiokafka08.spark.options import read_options
from tests._tools.cli.conftest import RunCommand, cli, command_line, folder_of_profiles
from tests.bridge.clusters import MESSAGES, TargetReader, bridge_text
from tests.brokers import RealCluster
from tests.brokers.ports import free_port
from tests.brokers.sasl import PASSWORDS, SaslUsers, client_module
from tests.sasl.conftest import StartCluster, options_of

__all__ = ["cli", "folder_of_profiles"]

RELEASE = "0.9.0.1"

pytestmark = [pytest.mark.heavy, pytest.mark.release(RELEASE)]

UniqueTopic = Callable[..., str]


def java_properties(cluster: RealCluster) -> dict[str, str]:
    """Return the properties of a Kerberised Java client."""
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.kerberos.service.name": "kafka",
        "sasl.jaas.config": client_module("GSSAPI", cluster.sasl.kdc),
    }


def write_properties(cluster: RealCluster, folder: Path) -> str:
    """Write the properties into a file, and return its path."""
    file = folder / "client.properties"
    file.write_text("".join(f"{k}={v}\n" for k, v in java_properties(cluster).items()))
    return str(file)


async def started_with_topic(start: StartCluster, topic: str) -> RealCluster:
    """Return the cluster of 0.9 with a topic of `MESSAGES`."""
    cluster = await asyncio.to_thread(start, RELEASE)
    await asyncio.to_thread(cluster.create_topic, topic)
    async with AIOKafkaProducer(**options_of(cluster, "GSSAPI")) as producer:
        for key, value in MESSAGES:
            await producer.send_and_wait(topic, value, key=key)
    return cluster


async def test_command_line_reads_the_properties_of_a_java_client(
    sasl_cluster: StartCluster, unique_topic: UniqueTopic, cli: RunCommand, tmp_path: Path
) -> None:
    topic = unique_topic()
    cluster = await asyncio.to_thread(sasl_cluster, RELEASE)
    await asyncio.to_thread(cluster.create_topic, topic)
    at = ("-b", cluster.sasl_bootstrap_servers, "-F", write_properties(cluster, tmp_path))
    done = await asyncio.to_thread(cli, "produce", topic, *at, stdin=b"tea\n")
    assert done.code == 0, done.err
    done = await asyncio.to_thread(cli, "consume", topic, *at, "--from", "beginning", "-e")
    assert (done.code, done.out) == (0, b"tea\n"), done.err


async def test_exporter_scrapes_a_kerberised_cluster(
    sasl_cluster: StartCluster, unique_topic: UniqueTopic, tmp_path: Path
) -> None:
    topic = unique_topic()
    cluster = await started_with_topic(sasl_cluster, topic)
    address = f"127.0.0.1:{free_port()}"
    process = subprocess.Popen(
        command_line(
            *("exporter", "-b", cluster.sasl_bootstrap_servers, "--listen", address),
            *("--interval", "1", "-F", write_properties(cluster, tmp_path)),
        ),
        stderr=subprocess.PIPE,
    )
    expected = f'topic="{topic}"'

    def scraped() -> bool:
        try:
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as response:
                return expected in response.read().decode()
        except OSError:
            return False

    try:
        async with asyncio.timeout(60):
            while not await asyncio.to_thread(scraped):
                assert process.poll() is None, process.communicate()[1]
                await asyncio.sleep(0.2)
    finally:
        process.terminate()
        process.communicate(timeout=30)


async def test_driver_of_spark_reads_a_kerberised_cluster(
    sasl_cluster: StartCluster, unique_topic: UniqueTopic
) -> None:
    topic = unique_topic()
    cluster = await started_with_topic(sasl_cluster, topic)
    given = {"kafka.bootstrap.servers": cluster.sasl_bootstrap_servers, "subscribe": topic}
    given |= {f"kafka.{name}": value for name, value in java_properties(cluster).items()}

    def latest() -> dict[TopicPartition, int]:
        driver = DriverClient(read_options(given, streaming=False))
        try:
            return dict(driver.latest(driver.partitions(), {}))
        finally:
            driver.close()

    assert await asyncio.to_thread(latest) == {TopicPartition(topic, 0): len(MESSAGES)}


@pytest.fixture
def target() -> Iterator[RealCluster]:
    """A cluster of 4.1.0, closed behind the test: an idle broker of 4.1.0 takes much of a CPU."""
    with RealCluster("4.1.0", sasl=SaslUsers(PASSWORDS)) as cluster:
        yield cluster


async def test_bridge_copies_from_kerberos_to_a_password(
    sasl_cluster: StartCluster, target: RealCluster, unique_topic: UniqueTopic
) -> None:
    """From 0.9.0.1 to 4.1.0."""
    for mechanism in ("SCRAM-SHA-512", "PLAIN"):
        topic = unique_topic()
        source = await started_with_topic(sasl_cluster, topic)
        module = java_properties(source)["sasl.jaas.config"].replace('"', '\\"')
        text = bridge_text(topic, source, target, topic)
        text = text.replace(source.bootstrap_servers, source.sasl_bootstrap_servers)
        text = text.replace(target.bootstrap_servers, target.sasl_bootstrap_servers)
        text += (
            "[source.properties]\n"
            '"security.protocol" = "SASL_PLAINTEXT"\n'
            f'"sasl.jaas.config" = "{module}"\n'
            "[target.properties]\n"
            '"security.protocol" = "SASL_PLAINTEXT"\n'
            f'"sasl.mechanism" = "{mechanism}"\n'
            '"sasl.username" = "alice"\n'
            f'"sasl.password" = "{PASSWORDS["alice"]}"\n'
        )
        status = CopyStatus()
        await run_bridge(parse_config(text), status, until_caught_up=True)
        assert status.records == len(MESSAGES)
        reader = TargetReader(target)
        try:
            assert await asyncio.to_thread(reader.messages, topic) == {0: MESSAGES}
        finally:
            reader.close()


@pytest.mark.parametrize("client", ["connection", "verifier"])
async def test_wrong_password_of_the_target_is_named_within_seconds(
    target: RealCluster, client: str
) -> None:
    """librdkafka tries again for ever, and ends a call with _TRANSPORT after its timeout."""
    text = (
        'name = "refused"\n'
        '[source]\nbootstrap = "127.0.0.1:1"\n'
        f'[target]\nbootstrap = "{target.sasl_bootstrap_servers}"\n'
        '[topics]\ninclude = ["t"]\n'
        "[target.properties]\n"
        '"security.protocol" = "SASL_PLAINTEXT"\n'
        '"sasl.mechanism" = "PLAIN"\n'
        '"sasl.username" = "alice"\n'
        '"sasl.password" = "not-hers"\n'
    )
    config = parse_config(text)
    connection = Target(config)

    async def use() -> None:
        if client == "connection":
            await connection.partition_counts()
        else:
            await connection.close()  # its own client is refused, too
            verifier = TargetChecksums(connection, config)
            try:
                async for _ in verifier.read(TopicPartition("t", 0), 0, 1):
                    pass
            finally:
                await verifier.close()

    try:
        async with asyncio.timeout(20):
            with pytest.raises(TargetAuthenticationError) as refused:
                await use()
    finally:
        if client == "connection":
            await connection.close()
    named = ("sasl.mechanism=PLAIN", "sasl.username='alice'", target.sasl_bootstrap_servers)
    assert all(part in refused.value.text for part in named), refused.value.text
    assert "not-hers" not in refused.value.text
