"""Unmodified clients of old releases through the gateway, on a real 4.1.0 that refuses them.

What they were acknowledged is read back from the target by a client of today. `nox -s full` runs it
on 4.0.0 too.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from contextlib import closing
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka08._tools.gateway.gateway import Gateway
from aiokafka08.errors import UnsupportedVersionError
from tests.brokers.cluster import RealCluster
from tests.brokers.tools import JavaTools
from tests.support.full import in_full

with warnings.catch_warnings():  # of importlib.resources, in the import
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

pytestmark = [pytest.mark.real, pytest.mark.release("4.1.0"), pytest.mark.timeout(180)]
each_target = pytest.mark.parametrize(
    "modern_cluster", [pytest.param(None, id="4.1.0"), *in_full("4.0.0")], indirect=True
)

COUNT = 50
LINES = [f"value {number}" for number in range(COUNT)]
CODECS = ("none", "gzip", "snappy", "lz4")


def stored(cluster: RealCluster, topic: str, partitions: int = 1) -> list[Any]:
    """Return the messages of a topic, read by librdkafka of today; blocks."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "reader", "log_level": 2}
    )
    with closing(consumer):
        places = [confluent_kafka.TopicPartition(topic, number, 0) for number in range(partitions)]
        ends = [consumer.get_watermark_offsets(one, timeout=30)[1] for one in places]
        consumer.assign(places)
        found: list[Any] = []
        while len(found) < sum(ends):
            message = consumer.poll(30)
            assert message is not None
            assert message.error() is None
            found.append(message)
    return found


async def stored_values(cluster: RealCluster, topic: str) -> list[str]:
    return [one.value().decode() for one in await asyncio.to_thread(stored, cluster, topic)]


# --- kcat -----------------------------------------------------------------------------------------


def kcat(servers: str, fallback: str, *arguments: str, lines: list[str] | None = None) -> Any:
    program = shutil.which("kcat")
    if program is None:
        pytest.skip("kcat is not installed: apt-get install kcat")
    options = ["-X", f"broker.version.fallback={fallback}"]
    if not fallback.startswith("0.10"):
        options += ["-X", "api.version.request=false"]
    return subprocess.run(
        [program, "-q", "-b", servers, *options, "-X", "message.timeout.ms=20000", *arguments],
        input=None if lines is None else "".join(f"{line}\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=60,
    )


@each_target
@pytest.mark.parametrize("fallback", ["0.8.2.2", "0.9.0.1", "0.10.2.2"])
async def test_kcat_produces_and_consumes_in_all_codecs(
    fallback: str, servers: str, modern_cluster: RealCluster, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    wanted = []
    for codec in CODECS:
        lines = [f"{codec} {line}" for line in LINES]
        sent = await asyncio.to_thread(
            kcat, servers, fallback, "-P", "-t", topic, "-z", codec, lines=lines
        )
        assert sent.returncode == 0, sent.stderr
        wanted += lines
    assert await stored_values(modern_cluster, topic) == wanted
    read = await asyncio.to_thread(kcat, servers, fallback, "-C", "-t", topic, "-e")
    assert read.stdout.splitlines() == wanted, read.stderr


@each_target
async def test_kcat_without_a_gateway_stores_nothing(
    modern_cluster: RealCluster, new_topic: Callable[..., str]
) -> None:
    """The control: 4.1 closes the connection of such a client."""
    topic = new_topic()
    arguments = ("-P", "-t", topic, "-X", "message.timeout.ms=2000")
    servers = modern_cluster.bootstrap_servers
    sent = await asyncio.to_thread(kcat, servers, "0.9.0.1", *arguments, lines=LINES)
    assert sent.returncode != 0
    assert await stored_values(modern_cluster, topic) == []


def write_transactions(servers: str, topic: str) -> None:
    """Write 0, 1 and 2 in a transaction each, of which the second one is aborted."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": servers,
            "transactional.id": topic,
            "compression.type": "zstd",
        }
    )
    producer.init_transactions(30)
    for number in range(3):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number, headers=[("h", b"v")])
        if number == 1:
            producer.flush(30)
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)


@each_target
@pytest.mark.parametrize(
    ("fallback", "values"), [("0.8.2.2", ["0", "1", "2"]), ("0.10.2.2", ["0", "2"])]
)
async def test_kcat_reads_to_the_end_of_a_log_with_transactions_and_zstd(
    fallback: str,
    values: list[str],
    servers: str,
    modern_cluster: RealCluster,
    new_topic: Callable[..., str],
) -> None:
    """A control batch is the last of the log. The old client is sent no zstd.

    It gets the aborted message too, as from 3.9.1; with the newer fallback kcat negotiates and
    leaves it out itself.
    """
    topic = new_topic()

    await asyncio.to_thread(write_transactions, modern_cluster.bootstrap_servers, topic)
    read = await asyncio.to_thread(kcat, servers, fallback, "-C", "-t", topic, "-e")
    assert read.stdout.splitlines() == values, read.stderr


async def test_this_package_reads_to_the_end_of_a_log_with_transactions(
    servers: str, modern_cluster: RealCluster, new_topic: Callable[..., str]
) -> None:
    """A control batch is the last of the log, so no message is in front of its end."""
    topic = new_topic()
    await asyncio.to_thread(write_transactions, modern_cluster.bootstrap_servers, topic)
    command = [sys.executable, "-m", "aiokafka08", "consume", topic, "-b", servers, "--exit"]
    read = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)
    assert (read.stdout.splitlines(), read.stderr) == (["0", "1", "2"], "")


# --- kafka-python ---------------------------------------------------------------------------------


@each_target
@pytest.mark.parametrize("version", [(0, 8, 2), (0, 9), (0, 10), (0, 10, 1), (1, 0, 0)])
async def test_kafka_python_of_each_line_works(
    version: tuple[int, ...], servers: str, modern_cluster: RealCluster, new_topic: Any
) -> None:
    """(1, 0, 0) doesn't negotiate, and sends what 4.1 takes: that has to pass."""
    topic = new_topic()
    common = {"bootstrap_servers": servers, "api_version": version}

    def produce_and_consume() -> tuple[list[bytes], int | None]:
        producer = kafka.KafkaProducer(
            **common, compression_type="gzip", linger_ms=20, enable_idempotence=False
        )
        with closing(producer):
            for sent in [producer.send(topic, line.encode(), key=b"k") for line in LINES]:
                sent.get(30)
        consumer = kafka.KafkaConsumer(
            **common, group_id=topic, enable_auto_commit=False, auto_offset_reset="earliest"
        )
        with closing(consumer):
            partition = kafka.TopicPartition(topic, 0)
            consumer.assign([partition])
            values = [next(consumer).value for _ in LINES]
            consumer.commit()
            return values, consumer.committed(partition)

    values, committed = await asyncio.to_thread(produce_and_consume)
    assert values == [line.encode() for line in LINES]
    assert committed == COUNT
    assert await stored_values(modern_cluster, topic) == LINES


# --- this client, and clients of today ------------------------------------------------------------


async def test_this_client_produces_and_consumes_in_a_group(
    servers: str, modern_cluster: RealCluster, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(2)
    async with AIOKafkaProducer(bootstrap_servers=servers, compression_type="lz4") as producer:
        for number in range(COUNT):
            await producer.send_and_wait(
                topic, b"%d" % number, b"key", number % 2, timestamp_ms=1_795_000_000_000 + number
            )
    found = await asyncio.to_thread(stored, modern_cluster, topic, 2)
    rows = sorted((one.timestamp()[1], one.key(), one.value()) for one in found)
    assert rows == [(1_795_000_000_000 + n, b"key", b"%d" % n) for n in range(COUNT)]
    for _ in range(2):
        async with AIOKafkaConsumer(
            topic,
            bootstrap_servers=servers,
            group_id=topic,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer:
            seen: list[Any] = []
            while len(seen) < COUNT:
                for records in (await consumer.getmany(timeout_ms=1000)).values():
                    seen += records
            assert sorted(int(record.value or b"") for record in seen) == list(range(COUNT))
            await consumer.commit({TopicPartition(topic, 0): 0, TopicPartition(topic, 1): 0})


@each_target
async def test_librdkafka_of_today_passes(
    servers: str, gateway: Gateway, modern_cluster: RealCluster, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(3)

    def use() -> list[bytes]:
        admin = AdminClient({"bootstrap.servers": servers})
        nodes = admin.describe_cluster().result(30).nodes
        assert {node.id: node.port for node in nodes} == gateway.ports
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": servers, "enable.idempotence": True, "compression.type": "zstd"}
        )
        for line in LINES:
            producer.produce(topic, line.encode(), headers=[("h", b"v")])
        assert producer.flush(30) == 0
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": servers, "group.id": topic, "auto.offset.reset": "earliest"}
        )
        with closing(consumer):
            consumer.subscribe([topic])
            found: list[Any] = []
            while len(found) < COUNT:
                message = consumer.poll(30)
                assert message is not None
                assert message.error() is None
                assert message.headers() == [("h", b"v")]
                found.append(message.value())
        return found

    found = await asyncio.to_thread(use)
    assert sorted(found) == sorted(line.encode() for line in LINES)


# --- Kafka's own clients --------------------------------------------------------------------------


@each_target
@pytest.mark.parametrize(
    ("release", "codec", "acks"),
    [("0.8.2.2", "none", "1"), ("0.8.2.2", "snappy", "0"), ("0.8.0", "gzip", "-1")],
)
async def test_scala_producers_store_what_they_send(
    release: str,
    codec: str,
    acks: str,
    servers: str,
    modern_cluster: RealCluster,
    new_topic: Callable[..., str],
    java: Callable[[str], JavaTools],
) -> None:
    """Without a gateway those with acks 0 and -1 end with 0, and everything is lost."""
    topic = new_topic()
    arguments = ["--broker-list", servers, "--topic", topic, "--request-required-acks", acks]
    if codec != "none":
        arguments += ["--compress"] if release == "0.8.0" else ["--compression-codec", codec]
    done = await asyncio.to_thread(
        java(release).run,
        "kafka.producer.ConsoleProducer" if release == "0.8.0" else "kafka.tools.ConsoleProducer",
        *arguments,
        input="".join(f"{line}\n" for line in LINES),
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert await stored_values(modern_cluster, topic) == LINES


@each_target
async def test_scala_shells_read(
    servers: str,
    modern_cluster: RealCluster,
    new_topic: Callable[..., str],
    java: Callable[[str], JavaTools],
) -> None:
    topic = new_topic()
    async with AIOKafkaProducer(bootstrap_servers=servers, compression_type="gzip") as producer:
        for line in LINES:
            await producer.send_and_wait(topic, line.encode())
    tools = java("0.8.2.2")
    read = await asyncio.to_thread(
        tools.run,
        "kafka.tools.SimpleConsumerShell",
        *("--broker-list", servers, "--topic", topic, "--partition", "0", "--offset", "-2"),
        *("--max-messages", str(COUNT), "--no-wait-at-logend"),
        input=None,
        timeout=120,
    )
    assert [line for line in read.stdout.splitlines() if "value" in line] == LINES, read.stderr
    ends = await asyncio.to_thread(
        tools.run,
        "kafka.tools.GetOffsetShell",
        *("--broker-list", servers, "--topic", topic, "--time", "-1"),
        input=None,
        timeout=120,
    )
    assert f"{topic}:0:{COUNT}" in ends.stdout, ends.stderr


@pytest.mark.parametrize("release", ["0.9.0.1", "0.10.2.2"])
async def test_java_clients_of_their_day_produce_and_consume(
    release: str,
    servers: str,
    modern_cluster: RealCluster,
    new_topic: Callable[..., str],
    java: Callable[[str], JavaTools],
) -> None:
    """The consumer is in a group, and reads to the end of a log behind its control batches."""
    topic = new_topic()
    tools = java(release)
    done = await asyncio.to_thread(
        tools.run,
        "kafka.tools.ConsoleProducer",
        *("--broker-list", servers, "--topic", topic, "--compression-codec", "lz4"),
        *("--request-required-acks", "-1"),
        input="".join(f"{line}\n" for line in LINES),
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert await stored_values(modern_cluster, topic) == LINES
    read = await asyncio.to_thread(
        tools.run,
        "kafka.tools.ConsoleConsumer",
        *("--new-consumer", "--bootstrap-server", servers, "--topic", topic, "--from-beginning"),
        *("--max-messages", str(COUNT)),
        input=None,
        timeout=120,
    )
    assert [line for line in read.stdout.splitlines() if "value" in line] == LINES, read.stderr


@pytest.mark.full
@pytest.mark.parametrize("modern_cluster", ["4.0.0"], indirect=True)
async def test_groups_of_0_9_and_0_10_cannot_join_at_4_0_0(
    servers: str, new_topic: Callable[..., str], java: Callable[[str], JavaTools]
) -> None:
    """It takes no JoinGroup 0 and 1, which 4.0.1 takes again."""
    topic = new_topic()
    with pytest.raises(UnsupportedVersionError, match="JoinGroupRequest"):
        async with AIOKafkaConsumer(topic, bootstrap_servers=servers, group_id=topic) as consumer:
            await consumer.getone()
    read = await asyncio.to_thread(
        java("0.10.2.2").run,
        "kafka.tools.ConsoleConsumer",
        *("--new-consumer", "--bootstrap-server", servers, "--topic", topic),
        input=None,
        timeout=120,
    )
    assert "too new to support JOIN_GROUP version 1" in read.stderr


@each_target
async def test_java_clients_of_4_1_pass(
    servers: str,
    modern_cluster: RealCluster,
    new_topic: Callable[..., str],
    java: Callable[[str], JavaTools],
) -> None:
    topic = new_topic()
    tools = java("4.1.0")
    done = await asyncio.to_thread(
        tools.run,
        "org.apache.kafka.tools.ConsoleProducer",
        *("--bootstrap-server", servers, "--topic", topic),
        input="".join(f"{line}\n" for line in LINES),
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    read = await asyncio.to_thread(
        tools.run,
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", servers, "--topic", topic, "--from-beginning"),
        *("--max-messages", str(COUNT), "--group", topic),
        input=None,
        timeout=120,
    )
    assert read.stdout.splitlines() == LINES, read.stderr
    quorum = await asyncio.to_thread(
        tools.run,
        "org.apache.kafka.tools.MetadataQuorumCommand",
        *("--bootstrap-server", servers, "describe", "--status"),
        input=None,
        timeout=120,
    )
    assert "LeaderId" in quorum.stdout, quorum.stderr
    assert modern_cluster.bootstrap_servers not in quorum.stdout
