"""TLS and SASL of a listener, in front of a real 4.1.0, for other clients that have it.

Each one produces, and reads as the only member of a group. With a wrong password, or without its
certificate, it fails with an error of its own, and stores nothing.
"""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from aiokafka08._tools.gateway.client_security import read_users, server_context
from aiokafka08._tools.gateway.gateway import Gateway
from aiokafka08.testing.history import read_jsonl
from tests._tools.gateway.foreign_work import Program
from tests._tools.gateway.gateways import HOST, first_port, make_certificate, running
from tests.brokers.cluster import RealCluster
from tests.brokers.tls import java_trust
from tests.brokers.tools import JavaResult, JavaTools
from tests.support.full import in_full
from tests.support.old_packages import kafka_python_2
from tests.support.waiting import until

pytestmark = [pytest.mark.real, pytest.mark.release("4.1.0"), pytest.mark.timeout(400)]

PASSWORD = "alice-secret"
WRONG = "wrong-secret"
COUNT = 20
LINES = [f"value {number}" for number in range(COUNT)]
STORE_PASSWORD = "of-no-value"  # it protects a key that exists only during the test

MakeJava = Callable[[str], JavaTools]


class Target:
    """A topic of the brokers behind the gateway, and the group with its name."""

    def __init__(self, cluster: RealCluster, topic: str) -> None:
        self._client: dict[str, str | int | float | bool] = {
            "bootstrap.servers": cluster.bootstrap_servers
        }
        self._topic = topic
        self._place = confluent_kafka.TopicPartition(topic, 0)

    def end(self) -> int:
        """Return how many messages are stored; blocks."""
        consumer = confluent_kafka.Consumer({**self._client, "group.id": "target"})
        try:
            found: int = consumer.get_watermark_offsets(self._place, timeout=60)[1]
        finally:
            consumer.close()
        return found

    def committed(self) -> int:
        """Return what the group has committed; blocks."""
        asked = [ConsumerGroupTopicPartitions(self._topic, [self._place])]
        admin = AdminClient(self._client)  # it has to live until the response has come
        (found,) = admin.list_consumer_group_offsets(asked).values()
        offset: int = found.result(60).topic_partitions[0].offset
        return offset


@pytest.fixture
def topic(new_topic: Callable[..., str]) -> str:
    return new_topic()


@pytest.fixture
def target(modern_cluster: RealCluster, topic: str) -> Target:
    return Target(modern_cluster, topic)


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate that is its own authority, for the gateway and its clients."""
    return make_certificate(tmp_path)[0]


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Callable[[], str]:
    """Return a function that returns the gateway's log so far, which has everything."""
    caplog.set_level(logging.DEBUG)
    return lambda: caplog.text


@asynccontextmanager
async def secured(
    cluster: RealCluster, certificate: Path, *, client_ca: Path | None = None
) -> AsyncIterator[Gateway]:
    """Run a gateway with TLS, and with the user alice unless clients need a certificate."""
    tls = server_context(certificate, certificate.with_name("key.pem"), client_ca)
    users = certificate.with_name("users.toml")
    users.write_text(f'alice = "{PASSWORD}"\n')
    users.chmod(0o600)
    known = None if client_ca else read_users(users)
    async with running(cluster.bootstrap_servers, tls=tls, users=known) as gateway:
        yield gateway


def check_principals(gateway: Gateway, principal: str) -> None:
    """See that `/clients` has the principal of the producer and of the member, and no password."""
    rows = json.loads(json.dumps(gateway.clients.rows()))
    for api in ("Produce", "JoinGroup", "OffsetCommit"):
        assert {row["principal"] for row in rows if api in str(row["requests"])} == {principal}
    assert "secret" not in str(rows)


def check_log(log: str, reason: str) -> None:
    """See that the log says why a client was refused, and has no password."""
    assert reason in log
    assert not any(secret in log for secret in (PASSWORD, WRONG))


# --- Kafka's own clients --------------------------------------------------------------------------


class JavaClient:
    """The console producer and consumer of a release."""

    def __init__(self, tools: JavaTools, folder: Path, gateway: Gateway, topic: str) -> None:
        self._tools = tools
        self._folder = folder
        self._servers = f"{HOST}:{first_port(gateway)}"
        self._topic = topic

    async def produce(
        self, settings: Mapping[str, object], lines: list[str], *arguments: str
    ) -> JavaResult:
        """Send these lines, one after the other."""
        return await asyncio.to_thread(
            self._tools.run,
            "kafka.tools.ConsoleProducer",
            *("--broker-list", self._servers, "--topic", self._topic),
            *("--producer.config", self._file("producer", settings)),
            *("--request-required-acks", "-1", *arguments),
            input="".join(f"{line}\n" for line in lines),
            timeout=150,
        )

    async def consume(self, settings: Mapping[str, object]) -> JavaResult:
        """Read as many lines in the group with the topic's name, and commit."""
        group = {"group.id": self._topic, "auto.offset.reset": "earliest"}
        return await asyncio.to_thread(
            self._tools.run,
            "kafka.tools.ConsoleConsumer",
            *("--new-consumer", "--bootstrap-server", self._servers, "--topic", self._topic),
            *("--consumer.config", self._file("consumer", {**settings, **group})),
            *("--from-beginning", "--max-messages", str(COUNT)),
            input=None,
            timeout=150,
        )

    def _file(self, name: str, settings: Mapping[str, object]) -> str:
        path = self._folder / f"{name}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return str(path)


def sasl(mechanism: str, password: str) -> dict[str, object]:
    """Return the settings of a Java client from 0.10.2 on."""
    kind = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
    module = f"org.apache.kafka.common.security.{kind}LoginModule required"
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{module} username="alice" password="{password}";',
    }


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", *in_full("SCRAM-SHA-512", "PLAIN")])
async def test_java_client_of_0_10_2_logs_in_over_tls(
    mechanism: str,
    modern_cluster: RealCluster,
    certificate: Path,
    topic: str,
    target: Target,
    java: MakeJava,
    tmp_path: Path,
    log: Callable[[], str],
) -> None:
    """It has no error of a wrong login: it connects again until the time is over."""
    trust = await asyncio.to_thread(java_trust, certificate, tmp_path / "trust.p12")
    async with secured(modern_cluster, certificate) as gateway:
        client = JavaClient(java("0.10.2.2"), tmp_path, gateway, topic)
        right = trust | sasl(mechanism, PASSWORD)
        done = await client.produce(right, LINES)
        assert done.returncode == 0, done.stderr
        done = await client.consume(right)
        assert done.stdout.splitlines() == LINES, done.stderr
        check_principals(gateway, "alice")
        wrong = trust | sasl(mechanism, WRONG)
        refused = await client.produce(wrong, LINES[:1], "--max-block-ms", "4000")
    assert "Failed to update metadata after 4000 ms" in refused.stderr
    check_log(log(), f"login as user 'alice' failed: {mechanism}")
    assert await asyncio.to_thread(target.committed) == COUNT
    assert await asyncio.to_thread(target.end) == COUNT


@pytest.mark.full
async def test_java_client_of_0_9_needs_its_certificate(
    modern_cluster: RealCluster,
    certificate: Path,
    topic: str,
    target: Target,
    java: MakeJava,
    tmp_path: Path,
    log: Callable[[], str],
) -> None:
    """It knows TLS, but no SASL other than Kerberos."""
    trust = await asyncio.to_thread(java_trust, certificate, tmp_path / "trust.p12")
    trust["security.protocol"] = "SSL"
    own = await asyncio.to_thread(own_certificate, certificate, tmp_path / "own.p12")
    async with secured(modern_cluster, certificate, client_ca=certificate) as gateway:
        client = JavaClient(java("0.9.0.1"), tmp_path, gateway, topic)
        done = await client.produce(trust | own, LINES)
        assert done.returncode == 0, done.stderr
        done = await client.consume(trust | own)
        assert done.stdout.splitlines() == LINES, done.stderr
        check_principals(gateway, "commonName=me")
        refused = await client.produce(trust, LINES[:1], "--max-block-ms", "4000")
    assert "Failed to update metadata after 4000 ms" in refused.stderr
    check_log(log(), "no TLS: ")
    assert await asyncio.to_thread(target.committed) == COUNT
    assert await asyncio.to_thread(target.end) == COUNT


def own_certificate(certificate: Path, store: Path) -> dict[str, object]:
    """Create the keystore of a Java client, and return the settings for it; blocks."""
    command = ["openssl", "pkcs12", "-export", "-in", str(certificate), "-out", str(store)]
    command += ["-inkey", str(certificate.with_name("key.pem"))]
    command += ["-passout", f"pass:{STORE_PASSWORD}"]
    subprocess.run(command, check=True, capture_output=True)
    return {
        "ssl.keystore.location": store,
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.password": STORE_PASSWORD,
        "ssl.key.password": STORE_PASSWORD,
    }


# --- librdkafka and kafka-python ------------------------------------------------------------------


def librdkafka_settings(cafile: Path, password: str) -> dict[str, object]:
    return {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(cafile),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": password,
    }


def kafka_python_settings(cafile: Path, password: str) -> dict[str, object]:
    return {
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(cafile),
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "alice",
        "sasl_plain_password": password,
    }


@pytest.mark.full
@pytest.mark.parametrize(
    ("client", "mechanism", "settings", "impatient", "error"),
    [
        (
            ("librdkafka", "0.10.2.2"),  # as a client of today it asks for versions
            "SCRAM-SHA-512",
            librdkafka_settings,
            {"message.timeout.ms": 4000, "log_level": 3},
            "SASL authentication error",
        ),
        (
            ("kafka-python", "0.10"),
            "PLAIN",
            kafka_python_settings,
            {"max_block_ms": 4000},
            "Failed to update metadata after 4.0 secs",
        ),
    ],
    ids=["librdkafka", "kafka-python"],
)
async def test_python_client_logs_in_over_tls(
    client: tuple[str, str],
    mechanism: str,
    settings: Callable[[Path, str], dict[str, object]],
    impatient: dict[str, object],
    error: str,
    modern_cluster: RealCluster,
    certificate: Path,
    topic: str,
    target: Target,
    tmp_path: Path,
    log: Callable[[], str],
) -> None:
    """confluent-kafka of today, and kafka-python 2.0.2."""
    path = kafka_python_2() if client[0] == "kafka-python" else None
    async with secured(modern_cluster, certificate) as gateway:
        servers = f"{HOST}:{first_port(gateway)}"

        @asynccontextmanager
        async def program(work: str, *arguments: str, **others: object) -> AsyncIterator[Program]:
            file = tmp_path / f"{work}-{len(others)}.out"
            last = json.dumps(others)
            made = Program(file, work, *client, servers, *arguments, last, python_path=path)
            try:
                yield made
            finally:
                await asyncio.to_thread(made.stop)

        right = settings(certificate, PASSWORD)
        async with program("consume", topic, topic, **right) as member:
            async with program("produce", topic, "1", **right) as producer:
                await until(lambda: len(member.values) >= COUNT, "messages", 120, 0.2)
            (*sent,) = read_jsonl(producer.lines())
            assert {one.status for one in sent} == {"ok"}, producer.errors()
            await until(lambda: len(member.values) == len(sent), "all messages", 60, 0.2)
        check_principals(gateway, "alice")
        wrong = settings(certificate, WRONG) | impatient
        async with program("produce", topic, "1", **wrong) as producer:
            await until(lambda: error in producer.log(), error, 60, 0.2)
    check_log(log(), f"login as user 'alice' failed: {mechanism}")
    assert await asyncio.to_thread(target.committed) == len(sent)
    assert await asyncio.to_thread(target.end) == len(sent)
