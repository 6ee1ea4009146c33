"""Unmodified clients through the gateway, judged by Kafka's own consumer of 4.1, and without it.

What a client was acknowledged is compared with what that consumer reads: offsets, keys, values and
timestamps. The same client without the gateway stores and reads nothing. What each client sends is
in docs/guides/gateway.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from tests._tools.gateway.foreign_work import program_command
from tests._tools.gateway.kafka_reader import KafkaReader, ReadRecord
from tests.brokers.cluster import RealCluster
from tests.brokers.java_process import JavaProcess
from tests.brokers.tools import JavaTools
from tests.conformance.foreign.older_clients import Client, install
from tests.consumer.membership.other_clients import JavaMember
from tests.support.full import in_full
from tests.support.old_packages import kafka_python_2
from tests.support.paths import ROOT
from tests.support.waiting import until

pytestmark = [pytest.mark.real, pytest.mark.release("4.1.0"), pytest.mark.timeout(400)]

COUNT = 50
KEYED = [(f"key-{number}", f"value-{number}") for number in range(COUNT)]

MakeJava = Callable[[str], JavaTools]


class Exchange(NamedTuple):
    """What a client's program has printed, and its exit code."""

    sent: list[ReadRecord]
    read: list[list[str]]
    committed: list[int]
    code: int
    errors: str

    @classmethod
    def run(cls, command: Sequence[str], timeout: float) -> Exchange:
        """Run a program to its end; blocks."""
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, cwd=ROOT)
        rows = [line.split() for line in done.stdout.splitlines()]
        sent = [ReadRecord(int(row[1]), int(row[2]), *row[3:]) for row in rows if row[0] == "sent"]
        read = [row[1:] for row in rows if row[0] == "read"]
        committed = [int(row[1]) for row in rows if row[0] == "committed"]
        return cls(sent, read, committed, done.returncode, done.stderr)

    def check(self, stored: list[ReadRecord], *, has_timestamps: bool) -> None:
        """Compare it with what the log holds."""
        assert self.code == 0, self.errors
        wanted = self.sent
        if not has_timestamps:
            wanted = [one._replace(timestamp=-1) for one in wanted]
        assert stored == wanted
        assert self.read == [[one.key, one.value] for one in stored]


# --- kafka-python and librdkafka ------------------------------------------------------------------

PYTHON_VERSIONS = ["0.8.1", "0.8.2", "0.9", "0.10", "0.10.1", "1.0.0"]


@pytest.mark.parametrize(
    ("client", "version"),
    [
        ("librdkafka", "0.9.0.1"),
        *in_full(("librdkafka", "0.8.2.2"), ("librdkafka", "0.10.2.2")),
        *in_full(*(("kafka-python", version) for version in PYTHON_VERSIONS)),
    ],
)
async def test_kafka_4_reads_what_a_client_was_acknowledged(
    client: str,
    version: str,
    servers: str,
    modern_cluster: RealCluster,
    new_topic: Callable[..., str],
    reader: KafkaReader,
) -> None:
    """kafka-python is 2.0.2."""
    topic, direct = new_topic(), new_topic()
    path = kafka_python_2() if client == "kafka-python" else None

    def exchanged(servers: str, topic: str, seconds: int) -> Exchange:
        arguments = ("exchange", client, version, servers, topic, str(seconds))
        return Exchange.run(program_command(*arguments, python_path=path), 200)

    done = await asyncio.to_thread(exchanged, servers, topic, 60)
    stored = await asyncio.to_thread(reader.read, topic)
    done.check(stored, has_timestamps=version.startswith(("0.10", "1")))
    assert done.committed == [len(done.sent)]
    without = await asyncio.to_thread(exchanged, modern_cluster.bootstrap_servers, direct, 4)
    if (client, version) in TAKEN_DIRECTLY:
        assert without.code == 0, without.errors
    else:
        assert without.code != 0
        assert not without.sent
        assert not await asyncio.to_thread(reader.read, direct)


TAKEN_DIRECTLY = {("kafka-python", "1.0.0"), ("librdkafka", "0.10.2.2")}
"""The first one sends versions that 4.1 has; the second one asks for them."""


# --- sarama ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sarama(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of a program that takes minutes to compile."""
    (path,) = install(Client("sarama_releases"), tmp_path_factory.mktemp("sarama"))
    return path


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("release", ["0.8.2.0", "0.9.0.0", "0.10.2.0", "0.11.0.0", "1.0.0"])
async def test_kafka_4_reads_what_sarama_was_acknowledged(
    release: str,
    sarama: str,
    servers: str,
    modern_cluster: RealCluster,
    new_topic: Callable[..., str],
    reader: KafkaReader,
) -> None:
    topic, direct = new_topic(), new_topic()
    done = await asyncio.to_thread(Exchange.run, [sarama, servers, topic, release], 200)
    stored = await asyncio.to_thread(reader.read, topic)
    done.check(stored, has_timestamps=release >= "1" or release.startswith(("0.10", "0.11")))
    assert done.committed == [COUNT]
    if release in ("0.11.0.0", "1.0.0"):
        return  # without the gateway it neither ends nor fails for minutes
    command = [sarama, modern_cluster.bootstrap_servers, direct, release]
    without = await asyncio.to_thread(Exchange.run, command, 200)
    assert without.code != 0


# --- Kafka's own producers ------------------------------------------------------------------------


def lines(rows: Sequence[tuple[str, str]]) -> str:
    return "".join(f"{key}:{value}\n" for key, value in rows)


def console_producer(
    tools: JavaTools, release: str, servers: str, topic: str, codec: str, *arguments: str
) -> tuple[int, str]:
    """Run a console producer; return its exit code, and what it has written to stderr."""
    options = ["--broker-list", servers, "--topic", topic]
    options += ["--property", "parse.key=true", "--property", "key.separator=:"]
    if codec != "none":
        options += ["--compress"] if release == "0.8.0" else ["--compression-codec", codec]
    package = "kafka.producer" if release == "0.8.0" else "kafka.tools"
    done = tools.run(
        f"{package}.ConsoleProducer", *options, *arguments, input=lines(KEYED), timeout=150
    )
    return done.returncode, done.stderr


def acks(number: int) -> tuple[str, str]:
    return "--request-required-acks", str(number)


@pytest.mark.full
@pytest.mark.parametrize(
    ("release", "codec", "arguments"),
    [
        ("0.8.0", "none", acks(1)),
        ("0.8.0", "gzip", acks(-1)),
        ("0.8.2.2", "none", acks(0)),
        ("0.8.2.2", "gzip", acks(1)),
        ("0.8.2.2", "lz4", acks(-1)),
        ("0.8.2.2", "snappy", ("--new-producer",)),
        ("0.9.0.1", "none", ()),
        ("0.9.0.1", "snappy", ("--old-producer",)),
        ("0.9.0.1", "lz4", acks(-1)),
        ("0.10.2.2", "none", ()),
        ("0.10.2.2", "gzip", acks(-1)),
        ("0.10.2.2", "lz4", ("--old-producer",)),
    ],
)
async def test_kafka_4_reads_what_console_producers_send(
    release: str,
    codec: str,
    arguments: tuple[str, ...],
    servers: str,
    modern_cluster: RealCluster,
    new_topic: Callable[..., str],
    java: MakeJava,
    reader: KafkaReader,
) -> None:
    """Without the gateway some end with exit code 0, and everything is lost."""
    topic, direct = new_topic(), new_topic()
    tools = java(release)
    begin = time.time() * 1000
    code, errors = await asyncio.to_thread(
        console_producer, tools, release, servers, topic, codec, *arguments
    )
    assert code == 0, errors
    stored = await asyncio.to_thread(reader.read, topic)
    assert [(one.key, one.value) for one in stored] == KEYED
    assert [one.offset for one in stored] == list(range(COUNT))
    if release == "0.10.2.2":
        assert all(begin - 1000 <= one.timestamp <= time.time() * 1000 for one in stored)
    else:
        assert {one.timestamp for one in stored} == {-1}
    code, errors = await asyncio.to_thread(
        console_producer,
        tools,
        release,
        modern_cluster.bootstrap_servers,
        direct,
        codec,
        *arguments,
    )
    print(f"{release} {codec} {arguments} without the gateway: exit code {code}")
    assert not await asyncio.to_thread(reader.read, direct)
    if arguments in (acks(0), acks(-1)) and release.startswith("0.8"):
        assert code == 0  # its caller doesn't notice


# --- Kafka's own consumers ------------------------------------------------------------------------


class JavaPrograms(NamedTuple):
    """The programs of a release, for brokers at these addresses."""

    version: str
    bootstrap_servers: str
    tools: JavaTools

    def popen_java(self, main_class: str, *args: str) -> JavaProcess:
        return self.tools.popen(main_class, *args)


def produce(cluster: RealCluster, topic: str, partitions: int, first: int, count: int) -> set[str]:
    """Send values to all partitions by a client of today; blocks."""
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers})
    values = [f"value {number}" for number in range(first, first + count)]
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % partitions)
    assert producer.flush(60) == 0
    return {*values}


@contextlib.contextmanager
def member(programs: JavaPrograms, folder: Path, topic: str) -> Iterator[JavaMember]:
    made = JavaMember(programs, folder, f"{topic}-group", topic, from_beginning=True)
    try:
        yield made
    finally:
        made.process.kill()


@pytest.mark.full
@pytest.mark.parametrize("release", ["0.9.0.1", "0.10.2.2"])
async def test_group_of_java_consumers_survives_a_kill(
    release: str,
    servers: str,
    modern_cluster: RealCluster,
    new_topic: Callable[..., str],
    java: MakeJava,
    tmp_path: Path,
) -> None:
    """Two members share the partitions; the other one takes over, and a third one goes on."""
    topic = new_topic(4)
    programs = JavaPrograms(release, servers, java(release))

    def send(first: int, count: int) -> Any:
        return asyncio.to_thread(produce, modern_cluster, topic, 4, first, count)

    with member(programs, tmp_path, topic) as one, member(programs, tmp_path, topic) as two:
        values = await send(0, 4)

        def is_all_read() -> bool:
            return values <= {*one.values, *two.values}

        number = 4
        while not (one.values and two.values):
            await until(is_all_read, "all values", 120, 0.2)
            values |= await send(number, 4)
            number += 4
        await until(is_all_read, "all values", 120, 0.2)
        one.process.kill()
        values |= await send(number, 40)
        await until(is_all_read, "all values after the kill", 120, 0.2)
        await asyncio.to_thread(two.stop)
    with member(programs, tmp_path, topic) as three:
        more = await send(number + 40, 40)
        await until(lambda: more <= {*three.values}, "the values of the third", 120, 0.2)
        assert {*three.values} == more  # it goes on behind what the group has committed
        await asyncio.to_thread(three.stop)
    admin = AdminClient({"bootstrap.servers": modern_cluster.bootstrap_servers})
    places = [confluent_kafka.TopicPartition(topic, partition) for partition in range(4)]
    asked = [ConsumerGroupTopicPartitions(f"{topic}-group", places)]
    (found,) = admin.list_consumer_group_offsets(asked).values()
    committed = (await asyncio.to_thread(found.result, 30)).topic_partitions
    assert sum(one.offset for one in committed) == number + 80


@pytest.mark.full
@pytest.mark.parametrize("release", ["0.8.2.2", "0.9.0.1", "0.10.2.2"])
async def test_java_consumers_without_the_gateway_read_nothing(
    release: str,
    modern_cluster: RealCluster,
    new_topic: Callable[..., str],
    java: MakeJava,
    reader: KafkaReader,
    tmp_path: Path,
) -> None:
    """That of 0.8.2.2 fails; the others read nothing in 20 s, while one of today reads all."""
    topic = new_topic()
    tools = java(release)
    servers = modern_cluster.bootstrap_servers
    await asyncio.to_thread(produce, modern_cluster, topic, 1, 0, COUNT)
    if release == "0.8.2.2":
        done = await asyncio.to_thread(
            tools.run,
            "kafka.tools.SimpleConsumerShell",
            *("--broker-list", servers, "--topic", topic, "--partition", "0", "--offset", "-2"),
            *("--max-messages", str(COUNT), "--no-wait-at-logend"),
            input=None,
            timeout=120,
        )
        assert "value" not in done.stdout
        assert "Exception" in done.stderr + done.stdout
        return
    with member(JavaPrograms(release, servers, tools), tmp_path, topic) as old:
        await asyncio.sleep(20)  # it says nothing, so there is nothing else to wait for
        assert len(await asyncio.to_thread(reader.read, topic)) == COUNT
        assert not old.values
