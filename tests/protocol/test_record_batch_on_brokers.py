"""Batches that Java's and librdkafka's producers wrote to a real 4.1.0: what Java's consumer reads.

The bytes are those of Fetch v10 (the first with zstd), which a broker takes from its log unchanged.
"""

from __future__ import annotations

import struct
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from aiokafka08.protocol.record_batch import (
    BatchCodec,
    BatchHeader,
    ControlType,
    control_type,
    convert_batch,
    parts_of,
    plain_records,
)
from tests.brokers.cluster import RealCluster
from tests.brokers.fixtures import BrokerClusters
from tests.brokers.wire import call
from tests.protocol import oracle
from tests.protocol.batch_oracle import Row, signed
from tests.protocol.twins import each_twin, twin

pytestmark = [pytest.mark.real, pytest.mark.release("4.1.0"), each_twin]

PEER = Path(__file__).parent / "BatchPeer.java"
COMPACTED = "batches-compacted"
JAVA, LIBRDKAFKA, APPEND = "batches-java", "batches-librdkafka", "batches-append-time"
TOPICS: dict[str, dict[str, str]] = {
    JAVA: {},
    LIBRDKAFKA: {},
    APPEND: {"message.timestamp.type": "LogAppendTime"},
}
LIMIT = 1 << 24
_NOT_READY = {3, 5, 6}
"""Codes for a partition that has just been created: a leader is elected before it leads."""


class Fetched(NamedTuple):
    """A partition in a response."""

    records: bytes
    aborted: list[tuple[int, int]]
    """(producer id, first offset) of aborted transactions; with read_committed only."""


class Line(NamedTuple):
    """A record as Java's consumer sees it."""

    row: Row
    timestamp_type: int


def fetch(port: int, topic: str, offset: int = 0, *, committed: bool = False) -> Fetched:
    """Fetch partition 0 without a session; a broker returns at most the rest of a segment."""
    name = struct.pack(">h", len(topic)) + topic.encode()
    body = struct.pack(">iiiibiii", -1, 100, 1, LIMIT, committed, 0, -1, 1) + name
    body += struct.pack(">iiiqqii", 1, 0, -1, offset, -1, LIMIT, 0)
    response = call(port, 1, 10, body)
    at = 4 + 2 + 4 + 4 + len(name) + 4
    _, error, _, _, _, count = struct.unpack_from(">ihqqqi", response, at)
    assert not error
    at += 34
    aborted = [struct.unpack_from(">qq", response, at + 16 * one) for one in range(max(count, 0))]
    at += 16 * max(count, 0)
    [size] = struct.unpack_from(">i", response, at)
    assert len(response) == at + 4 + size
    return Fetched(response[at + 4 :], [(producer, first) for producer, first in aborted])


def fetch_log(port: int, topic: str) -> bytes:
    """Return all segments of partition 0."""
    data, offset = b"", 0
    while segment := fetch(port, topic, offset).records:
        data += segment
        *_, last = parts_of(segment)
        offset = last.next_offset
    return data


def create_topic(servers: str, topic: str, config: dict[str, str]) -> None:
    """Create a topic, and wait until it has a leader."""
    admin = AdminClient({"bootstrap.servers": servers})
    [created] = admin.create_topics([NewTopic(topic, 1, 1, config=config)]).values()
    created.result(30)
    deadline = time.monotonic() + 30
    while not _has_leader(admin.list_topics(topic, 30).topics[topic]):
        assert time.monotonic() < deadline, f"{topic} has no leader"
        time.sleep(0.05)


def _has_leader(topic: Any) -> bool:
    return 0 in topic.partitions and topic.partitions[0].leader >= 0


def produce(port: int, topic: str, batch: bytes) -> tuple[int, int]:
    """Send a batch by Produce v7 (the first with zstd); return error code and first offset."""
    name = struct.pack(">h", len(topic)) + topic.encode()
    body = struct.pack(">hhii", -1, -1, 30_000, 1) + name
    body += struct.pack(">iii", 1, 0, len(batch)) + batch
    deadline = time.monotonic() + 30
    while True:
        error, offset = struct.unpack_from(">hq", call(port, 0, 7, body), 4 + len(name) + 4 + 4)
        if error not in _NOT_READY or time.monotonic() > deadline:
            return error, offset
        time.sleep(0.05)


def write_by_librdkafka(servers: str, topic: str) -> None:
    """Do what BatchPeer.java does."""
    base = int(time.time() * 1000)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        settings = {"bootstrap.servers": servers, "compression.type": codec, "linger.ms": 500}
        plain = confluent_kafka.Producer(settings)
        _send(plain, topic, base, 20)
        assert plain.flush(30) == 0
        sender = confluent_kafka.Producer({**settings, "transactional.id": f"{topic}-{codec}"})
        sender.init_transactions(30)
        for number in range(4):
            sender.begin_transaction()
            _send(sender, topic, base, 3)
            assert sender.flush(30) == 0
            if number % 2:
                sender.abort_transaction(30)
            else:
                sender.commit_transaction(30)


def _send(producer: confluent_kafka.Producer, topic: str, base: int, count: int) -> None:
    for index in range(count):
        producer.produce(
            topic,
            None if index % 5 == 4 else bytes(index * 11),
            None if index % 3 == 0 else b"key%d" % index,
            0,
            timestamp=base + 1000 * (index % 7),
            headers=[(f"hé{one}", None if one == 1 else bytes(one)) for one in range(index % 4)],
        )


def read_by_java(cluster: RealCluster, isolation: str, *topics: str) -> dict[str, list[Line]]:
    """Return what Java's consumer sees of each topic."""
    servers = cluster.bootstrap_servers
    done = cluster.run_java(str(PEER), "read", servers, isolation, *topics, timeout=120)
    assert done.returncode == 0, done.stderr
    seen: dict[str, list[Line]] = {topic: [] for topic in topics}
    for line in done.stdout.splitlines():
        topic, offset, kind, timestamp, *fields = line.split(" ")
        key, value, *headers = [None if one == "-" else bytes.fromhex(one[1:]) for one in fields]
        pairs = [(name or b"", one) for name, one in zip(headers[::2], headers[1::2], strict=True)]
        seen[topic].append(
            Line(Row(int(offset), int(timestamp), key, value, tuple(pairs)), int(kind))
        )
    return seen


def write_topics(cluster: RealCluster) -> None:
    """Create the topics, and let the producers write."""
    for topic, config in TOPICS.items():
        create_topic(cluster.bootstrap_servers, topic, config)
    for topic in (JAVA, APPEND):
        _run_peer(cluster, "write", topic)
    write_by_librdkafka(cluster.bootstrap_servers, LIBRDKAFKA)


def write_compacted(cluster: RealCluster, topic: str) -> None:
    """Write a topic, and wait until it is compacted."""
    config = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.0",
        "segment.ms": "10",
        "max.compaction.lag.ms": "10",
    }
    create_topic(cluster.bootstrap_servers, topic, config)
    _run_peer(cluster, "overwrite", topic)
    deadline = time.monotonic() + 240
    while not any(
        isinstance(part, BatchHeader) and not part.record_count
        for part in parts_of(fetch_log(cluster.port(0), topic))
    ):
        assert time.monotonic() < deadline, "the log cleaner hasn't run"
        time.sleep(0.2)


def _run_peer(cluster: RealCluster, what: str, topic: str) -> None:
    done = cluster.run_java(str(PEER), what, cluster.bootstrap_servers, topic, timeout=180)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def written(broker_clusters: BrokerClusters) -> RealCluster:
    """The cluster, with the topics."""
    cluster = broker_clusters.get("4.1.0")
    write_topics(cluster)
    return cluster


@pytest.fixture(scope="module")
def expected(written: RealCluster) -> dict[str, dict[str, list[Line]]]:
    """What Java's consumer sees, by isolation level and topic."""
    return {
        isolation: read_by_java(written, isolation, *TOPICS)
        for isolation in ("read_uncommitted", "read_committed")
    }


def batches(data: bytes) -> Iterator[tuple[BatchHeader, list[Row]]]:
    """Yield the batches of a set, each with its records."""
    for part in parts_of(data):
        assert isinstance(part, BatchHeader)
        plain = plain_records(data, part, max_decompressed_bytes=LIMIT)
        yield part, list(map(Row._make, twin.read_records(part, plain)))


Expected = dict[str, dict[str, list[Line]]]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("topic", TOPICS)
def test_records_are_those_of_java_consumer(
    written: RealCluster, expected: Expected, topic: str
) -> None:
    fetched = fetch(written.port(0), topic)
    lines = [
        Line(row, header.has_append_time)
        for header, rows in batches(fetched.records)
        for row in rows
        if not header.is_control
    ]
    assert len(lines) == 5 * (20 + 4 * 3)
    assert lines == expected["read_uncommitted"][topic]
    codecs = Counter(header.codec for header, _ in batches(fetched.records))
    assert set(codecs) == set(BatchCodec)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("topic", TOPICS)
def test_headers_show_which_records_are_committed(
    written: RealCluster, expected: Expected, topic: str
) -> None:
    """As a consumer reads: an aborted transaction lasts from its first offset to its marker."""
    fetched = fetch(written.port(0), topic, committed=True)
    to_come = sorted(fetched.aborted, key=lambda one: one[1], reverse=True)
    assert len(to_come) == 5 * 2
    aborted, rows, markers = set[int](), list[Row](), Counter[int]()
    for header, found in batches(fetched.records):
        while to_come and to_come[-1][1] <= header.last_offset:
            aborted.add(to_come.pop()[0])
        if header.is_control:
            [marker] = found
            markers[control_type(marker)] += 1
            if control_type(marker) is ControlType.ABORT:
                aborted.remove(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborted):
            rows += found
    assert rows == [line.row for line in expected["read_committed"][topic]]
    assert markers == {ControlType.ABORT: 10, ControlType.COMMIT: 10}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("magic", [0, 1])
def test_converted_batches_hold_the_same_records(
    written: RealCluster, expected: Expected, topic: str, magic: int
) -> None:
    data = fetch(written.port(0), topic).records
    converted = b"".join(
        convert_batch(data, part, magic, max_decompressed_bytes=LIMIT).data
        for part in parts_of(data)
        if isinstance(part, BatchHeader)
    )
    assert [
        (one.offset, one.timestamp, one.timestamp_type, one.key, one.value)
        for one in oracle.read(converted)
    ] == [
        (
            row.offset,
            row.timestamp_ms if magic else None,
            kind if magic else None,
            row.key,
            row.value,
        )
        for row, kind in expected["read_uncommitted"][topic]
    ]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("topic", [JAVA, LIBRDKAFKA])
def test_batches_written_again_are_the_same_bytes(written: RealCluster, topic: str) -> None:
    """Uncompressed ones, but for the numbers of the producer and of the leader's epoch."""
    data = fetch(written.port(0), topic).records
    plain = [
        (header, rows)
        for header, rows in batches(data)
        if not header.codec and not header.is_control
    ]
    # librdkafka sends a batch plain that compression doesn't make smaller, such as a single record.
    assert sum(len(rows) for _, rows in plain) >= 20 + 4 * 3
    for header, rows in plain:
        builder = twin.RecordBatchBuilder()
        for row in rows:
            builder.append(row.key, row.value, row.timestamp_ms, row.headers)
        again = builder.build(header.base_offset)
        theirs = bytearray(data[header.start : header.stop])
        for kept in (slice(12, 16), slice(21, 23), slice(43, 57)):
            theirs[kept] = again[kept]
        assert signed(bytes(theirs)) == again


@pytest.mark.timeout(600)
def test_java_consumer_reads_built_batches(modern_cluster: RealCluster) -> None:
    base = int(time.time() * 1000)
    rows = [
        Row(
            index,
            base + (-1) ** index * index,
            None if index % 3 else b"k",
            b"v" * index,
            ((b"h", None),) * (index % 3),
        )
        for index in range(300)
    ]
    topics = [f"built-{codec.name.lower()}-{twin.name}" for codec in BatchCodec]
    for topic, codec in zip(topics, BatchCodec, strict=True):
        create_topic(modern_cluster.bootstrap_servers, topic, {})
        builder = twin.RecordBatchBuilder(codec)
        for row in rows:
            builder.append(row.key, row.value, row.timestamp_ms, row.headers)
        assert produce(modern_cluster.port(0), topic, builder.build()) == (0, 0)
    for lines in read_by_java(modern_cluster, "read_uncommitted", *topics).values():
        assert [line.row for line in lines] == rows


@pytest.mark.full
@pytest.mark.timeout(600)
def test_compacted_batches_keep_their_offsets(modern_cluster: RealCluster) -> None:
    """Records go missing within a batch and at its end; a producer's last batch stays, empty."""
    topic = f"{COMPACTED}-{twin.name}"
    write_compacted(modern_cluster, topic)
    data = fetch_log(modern_cluster.port(0), topic)
    assert_compacted(data)
    seen = read_by_java(modern_cluster, "read_uncommitted", topic)[topic]
    assert [row for _, rows in batches(data) for row in rows] == [line.row for line in seen]


def assert_compacted(data: bytes) -> None:
    """Check the batches that the producers' log has become."""
    shapes = [
        (header.base_offset, header.last_offset, [row.offset for row in rows])
        for header, rows in batches(data)
    ]
    assert (0, 4, [1, 2, 3]) in shapes
    assert (5, 6, []) in shapes
