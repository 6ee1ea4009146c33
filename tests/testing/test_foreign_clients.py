"""Unmodified foreign clients produce, consume and commit on the embedded cluster.

Each client is configured with the broker line; the embedded cluster responds only to what that line
knows.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import confluent_kafka
import pytest

from aiokafka08.protocol.requests.produce import ProduceRequest
from aiokafka08.testing import EmbeddedCluster
from tests.brokers.fixtures import require_real_brokers
from tests.brokers.java_process import write_logging_files
from tests.brokers.tools import JavaTools
from tests.brokers.versions import find_version
from tests.brokers.waiting import wait_for
from tests.consumer.membership.other_clients import KafkaPythonMember

with warnings.catch_warnings():  # of importlib.resources, in the import
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    from kafka.structs import OffsetAndMetadata
    from kafka.structs import TopicPartition as KafkaTopicPartition

MESSAGES = 200


def values_of(cluster: EmbeddedCluster, topic: str = "t") -> list[bytes | None]:
    partitions = range(3)
    return [message.value for number in partitions for message in cluster.log(topic, number)]


def codecs_of(cluster: EmbeddedCluster) -> set[int]:
    return {message.codec for number in range(3) for message in cluster.log("t", number)}


def expected() -> list[bytes]:
    return sorted(b"value %d" % number for number in range(MESSAGES))


# --- librdkafka -----------------------------------------------------------------------------------


def librdkafka(cluster: EmbeddedCluster) -> dict[str, object]:
    settings: dict[str, object] = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "log_level": 0,
    }
    if cluster.version != "0.10":  # from this version on the client sends ApiVersions
        fallback = {"0.9": "0.9.0.1", "0.8.2": "0.8.2.2"}.get(cluster.version, cluster.version)
        settings |= {"api.version.request": False, "broker.version.fallback": fallback}
    return settings


@pytest.mark.parametrize(
    ("version", "codec"),
    [
        *[("0.8.2", codec) for codec in ("none", "gzip", "snappy", "lz4")],
        ("0.8.0", "snappy"),
        ("0.8.1", "none"),
        ("0.9", "lz4"),
        ("0.10", "none"),
        ("0.10", "lz4"),
    ],
)
def test_librdkafka_produces_and_consumes(version: str, codec: str) -> None:
    with EmbeddedCluster(3, version, {"t": 3}) as cluster:
        settings = librdkafka(cluster)
        producer = confluent_kafka.Producer(
            {**settings, "compression.type": codec, "linger.ms": 50, "acks": -1}
        )
        errors: list[object] = []
        for number in range(MESSAGES):
            producer.produce(
                "t",
                b"value %d" % number,
                key=b"%d" % number,
                on_delivery=lambda error, message: errors.append(error),
            )
        assert producer.flush(20) == 0
        assert errors == [None] * MESSAGES
        assert sorted(filter(None, values_of(cluster))) == expected()
        number_of_codec = ("none", "gzip", "snappy", "lz4").index(codec)
        assert codecs_of(cluster) == {number_of_codec}

        consumer = confluent_kafka.Consumer(
            {**settings, "group.id": "g", "enable.auto.commit": False}
        )
        consumer.assign([confluent_kafka.TopicPartition("t", number, 0) for number in range(3)])
        found: list[bytes | None] = []
        while len(found) < MESSAGES:
            message = consumer.poll(10)
            assert message is not None
            assert message.error() is None
            found.append(message.value())
        assert sorted(filter(None, found)) == expected()
        end = cluster.offsets("t", 1).end
        partition = confluent_kafka.TopicPartition("t", 1)
        assert consumer.get_watermark_offsets(partition, timeout=10) == (0, end)
        consumer.close()


@pytest.mark.parametrize("version", ["0.8.2", "0.9", "0.10"])
def test_librdkafka_commits(version: str) -> None:
    with EmbeddedCluster(3, version, {"t": 3}) as cluster:
        consumer = confluent_kafka.Consumer({**librdkafka(cluster), "group.id": "g"})
        partition = confluent_kafka.TopicPartition("t", 0, 5, "a note")
        [done] = consumer.commit(offsets=[partition], asynchronous=False)
        assert done.error is None
        [found] = consumer.committed([confluent_kafka.TopicPartition("t", 0)], timeout=10)
        assert found.offset == 5
        # confluent-kafka 2 sends the terminating NUL of the C string too.
        assert cluster.committed("g", "t", 0) in {(5, "a note"), (5, "a note\0")}
        consumer.close()


def test_librdkafka_survives_a_failover() -> None:
    with EmbeddedCluster(3, topics={"t": 3}) as cluster:
        producer = confluent_kafka.Producer({**librdkafka(cluster), "acks": -1})
        begun = cluster.next_request(ProduceRequest, nth=20)
        killed = False
        for number in range(MESSAGES):
            producer.produce("t", b"value %d" % number, key=b"%d" % number)
            producer.poll(0.002)
            if begun.done() and not killed:
                cluster.kill(1)
                killed = True
        assert producer.flush(30) == 0
        assert killed
        assert set(filter(None, values_of(cluster))) >= set(expected())


# --- kafka-python ---------------------------------------------------------------------------------

API_VERSIONS = {"0.8.0": (0, 8, 0), "0.8.1": (0, 8, 1), "0.8.2": (0, 8, 2), "0.9": (0, 9)}


def kafka_python(cluster: EmbeddedCluster) -> dict[str, object]:
    return {
        "bootstrap_servers": cluster.bootstrap_servers.split(","),
        "api_version": API_VERSIONS.get(cluster.version),  # None: the client sends ApiVersions
    }


@pytest.mark.parametrize(
    ("version", "codec"),
    [
        ("0.8.2", None),
        ("0.8.2", "gzip"),
        ("0.8.2", "snappy"),
        ("0.8.0", "gzip"),
        ("0.8.1", None),
        ("0.9", "snappy"),
        ("0.10", None),
        ("0.10", "gzip"),
    ],
)
def test_kafka_python_produces_consumes_and_commits(version: str, codec: str | None) -> None:
    with EmbeddedCluster(3, version, {"t": 3}) as cluster:
        settings = kafka_python(cluster)
        producer = kafka.KafkaProducer(
            **settings, compression_type=codec, linger_ms=20, enable_idempotence=False
        )
        with closing(producer):
            sent = [
                producer.send("t", b"value %d" % number, key=b"%d" % number)
                for number in range(MESSAGES)
            ]
            for one in sent:
                one.get(10)
        assert sorted(filter(None, values_of(cluster))) == expected()
        assert codecs_of(cluster) == {(None, "gzip", "snappy").index(codec)}

        consumer = kafka.KafkaConsumer(
            **settings,
            group_id=None if version == "0.8.0" else "g",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            consumer_timeout_ms=10_000,
        )
        with closing(consumer):
            partitions = [KafkaTopicPartition("t", number) for number in range(3)]
            consumer.assign(partitions)
            found = [next(consumer).value for _ in range(MESSAGES)]
            assert sorted(found) == expected()
            ends = {one: cluster.offsets("t", one.partition).end for one in partitions}
            assert consumer.end_offsets(partitions) == ends
            if version != "0.8.0":
                consumer.commit({partitions[0]: OffsetAndMetadata(5, "a note", -1)})
                assert consumer.committed(partitions[0]) == 5
                if version == "0.8.1":
                    assert cluster.committed("g", "t", 0, "zookeeper") == (5, "")
                else:
                    assert cluster.committed("g", "t", 0) == (5, "a note")


# --- groups ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["0.9", "0.10"])
def test_kafka_python_and_librdkafka_share_a_group(version: str) -> None:
    with EmbeddedCluster(3, version, {"t": 6}) as cluster, ExitStack() as stack:
        one = KafkaPythonMember(cluster, "g", "t")
        stack.callback(one.stop)
        settings = librdkafka(cluster)
        two = confluent_kafka.Consumer({**settings, "group.id": "g", "session.timeout.ms": 6000})
        with closing(two):
            two.subscribe(["t"])

            def shared() -> bool:
                two.poll(0)
                yours = {tp.partition for tp in two.assignment()}
                return len(one.partitions) == len(yours) == 3 and not one.partitions & yours

            wait_for(shared, 40, "three partitions each")
        wait_for(lambda: len(one.partitions) == 6, 40, "all partitions for who is left")


# --- Kafka's own, of 0.8.2.2 ----------------------------------------------------------------------


@pytest.fixture
def java(tmp_path: Path) -> Iterator[JavaTools]:
    require_real_brokers()
    write_logging_files(tmp_path)
    tools = JavaTools(find_version("0.8.2.2"), tmp_path)
    yield tools
    tools.kill_all()


@pytest.mark.real
@pytest.mark.parametrize(
    ("producer", "codec"), [("new", "none"), ("new", "lz4"), ("old", "gzip"), ("old", "snappy")]
)
def test_java_produces_and_consumes(java: JavaTools, producer: str, codec: str) -> None:
    lines = [f"value {number}" for number in range(MESSAGES)]
    with EmbeddedCluster(3, topics={"t": 1, "other": 3}) as cluster:
        done = java.run(
            "kafka.tools.ConsoleProducer",
            *("--broker-list", cluster.bootstrap_servers, "--topic", "t"),
            *(("--new-producer",) if producer == "new" else ()),
            *(("--compression-codec", codec) if codec != "none" else ()),
            *("--request-required-acks", "-1"),
            input="".join(line + os.linesep for line in lines),
            timeout=50,
        )
        assert done.returncode == 0, done.stderr
        stored = cluster.log("t", 0)
        assert [message.value for message in stored] == [line.encode() for line in lines]
        assert {message.codec for message in stored} == {
            ("none", "gzip", "snappy", "lz4").index(codec)
        }
        shell = java.run(
            "kafka.tools.SimpleConsumerShell",
            *("--broker-list", cluster.bootstrap_servers, "--topic", "t", "--partition", "0"),
            *("--offset", "-2", "--no-wait-at-logend"),
            input=None,
            timeout=50,
        )
        assert shell.returncode == 0, shell.stderr
        assert [line for line in shell.stdout.splitlines() if line.startswith("value")] == lines
