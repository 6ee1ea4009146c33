"""The gateway in front of 4.1.0 beside 3.9.1, which converts by itself: the same requests to both.

What the logs hold and what clients get is compared byte for byte, but for what can't be the same:
the epoch of the leader, and the CRC of a batch, which covers it no more than its position does. The
differences on purpose are those that docs/guides/gateway.md names, and tests of their own show.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from aiokafka08._tools.gateway.api_versions import CHANGES
from aiokafka08._tools.gateway.layouts import apis
from aiokafka08.protocol.api import Topic
from aiokafka08.protocol.compression import Codec, compress, decompress
from aiokafka08.protocol.message_set import MessageSetReader, encode_entry
from aiokafka08.protocol.record_batch import BatchHeader, parts_of, plain_records
from aiokafka08.protocol.requests.api_versions import ApiVersionsRequest
from aiokafka08.protocol.requests.committed_offsets import (
    CommitPartition,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from aiokafka08.protocol.requests.fetch import FetchPartition, FetchRequest
from aiokafka08.protocol.requests.groups import GroupCoordinatorRequest
from aiokafka08.protocol.requests.list_offsets import ListOffsetsPartition, ListOffsetsRequest
from aiokafka08.protocol.requests.produce import ProducePartition, ProduceRequest
from aiokafka08.structs import TopicPartition
from tests._tools.gateway.gateways import RawClient, first_port, running
from tests.brokers.cluster import RealCluster
from tests.brokers.fixtures import BrokerClusters
from tests.support.full import in_full
from tests.support.waiting import eventually

pytestmark = [pytest.mark.real, pytest.mark.release("3.9.1"), pytest.mark.timeout(240)]

NOW_MS = int(time.time() * 1000)
PARTITIONS = 15


class Side(NamedTuple):
    """A cluster, and a connection that speaks old versions to it."""

    cluster: RealCluster
    client: RawClient

    def batches(self, topic: str, partition: int) -> list[Any]:
        """Return what the log of a partition holds, without what depends on the cluster."""
        (folder,) = self.cluster.folder.rglob(f"{topic}-{partition}")
        data = (folder / "00000000000000000000.log").read_bytes()
        found = []
        for header in parts_of(data):
            assert isinstance(header, BatchHeader)
            plain = plain_records(data, header, max_decompressed_bytes=1 << 24)
            fields = header._replace(start=0, stop=0, crc=0, leader_epoch=0)
            found.append((fields, bytes(plain)))
        return found


@pytest.fixture
async def sides(broker_clusters: BrokerClusters) -> AsyncIterator[tuple[Side, Side]]:
    """The gateway's side and that of 3.9.1."""
    new = await asyncio.to_thread(broker_clusters.get, "4.1.0")
    old = await asyncio.to_thread(broker_clusters.get, "3.9.1")
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(running(new.bootstrap_servers))
        clients = [
            await stack.enter_async_context(await RawClient.connect(port))
            for port in (first_port(gateway), old.port(0))
        ]
        yield Side(new, clients[0]), Side(old, clients[1])


@pytest.fixture
def new_topic(unique_topic: Callable[..., str]) -> Callable[..., Awaitable[str]]:
    """Return a function that creates a topic in both clusters, with leaders."""

    async def create(sides: tuple[Side, Side]) -> str:
        name = unique_topic("both")
        for side in sides:
            admin = AdminClient({"bootstrap.servers": side.cluster.bootstrap_servers})
            made = admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name]
            await asyncio.to_thread(made.result, 30)

            async def has_leaders() -> bool:
                parts = [ListOffsetsPartition(number, -1) for number in range(PARTITIONS)]
                asked = ListOffsetsRequest(-1, [Topic(name, parts)])
                (found,) = (await side.client.call(asked, 0)).topics  # noqa: B023
                return not any(one.error_code for one in found.partitions)

            await eventually(has_leaders, 60)
        return name

    return create


def plain(magic: int, count: int = 3, size: int = 20) -> bytes:
    return b"".join(
        encode_entry(
            number,
            (None, b"", b"key")[number % 3],
            None if number % 4 == 3 else b"%d" % number * size,
            magic=magic,
            timestamp_ms=NOW_MS + number if magic else -1,
        )
        for number in range(count)
    )


def wrapped(codec: Codec, magic: int, count: int = 3, *, checksum_of: int | None = None) -> bytes:
    checksum_of = magic if checksum_of is None else checksum_of
    value = compress(codec, plain(magic, count), magic=checksum_of)
    return encode_entry(
        count - 1, None, value, magic=magic, attributes=codec, timestamp_ms=NOW_MS + count - 1
    )


SETS: dict[str, bytes] = {
    **{f"plain {magic}": plain(magic) for magic in (0, 1)},
    **{
        f"{codec.name} {magic}": wrapped(codec, magic)
        for magic in (0, 1)
        for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
    },
    "one": plain(1, 1),
    "many": plain(1, 500),
    "cut off": plain(1)[:-3],
    "only cut off": plain(1, 1)[:-3],
    "empty": b"",
    "bad crc": plain(1, 1)[:-1] + b"x",
}


async def produce(side: Side, version: int, topic: str, sets: list[bytes], acks: int = 1) -> Any:
    parts = [ProducePartition(number, data) for number, data in enumerate(sets)]
    response = await side.client.call(ProduceRequest(acks, 30_000, [Topic(topic, parts)]), version)
    return sorted(
        (one.partition, one.error_code, one.offset, one.timestamp)
        for one in response.topics[0].partitions
    )


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_logs_and_results_of_produce_are_equal(
    version: int, sides: tuple[Side, Side], new_topic: Any
) -> None:
    topic = await new_topic(sides)
    sets = list(SETS.values())
    for acks in (1, -1):
        results = [await produce(side, version, topic, sets, acks) for side in sides]
        assert results[0] == results[1]
    for partition, name in enumerate(SETS):
        logs = [side.batches(topic, partition) for side in sides]
        assert logs[0] == logs[1], name
        assert bool(logs[0]) == (name not in ("only cut off", "empty", "bad crc"))


def dump(cluster: RealCluster, side: Side, topic: str, partition: int) -> list[str]:
    """Return what DumpLogSegments of a release prints about a partition of a side; blocks.

    Libraries don't compress alike, so the size of a compressed batch is left out too.
    """
    (folder,) = side.cluster.folder.rglob(f"{topic}-{partition}")
    done = cluster.run_java(
        "kafka.tools.DumpLogSegments",
        *("--files", str(folder / "00000000000000000000.log"), "--print-data-log"),
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    _, *lines = done.stdout.splitlines()  # the first one has the path
    lines = [re.sub(r" (position|crc|partitionLeaderEpoch): \d+", "", line) for line in lines]
    return [
        line if "compresscodec: none" in line else re.sub(r" size: \d+", "", line) for line in lines
    ]


@pytest.mark.parametrize(
    "name",
    [
        "GZIP 1",
        *in_full("plain 0", "plain 1", "SNAPPY 0", "SNAPPY 1", "LZ4 0", "LZ4 1", "GZIP 0"),
    ],
)
async def test_dumps_of_the_logs_are_equal(
    name: str, sides: tuple[Side, Side], new_topic: Any
) -> None:
    """By Kafka's own tool; the other tests read the logs by the gateway's codec."""
    topic = await new_topic(sides)
    for side in sides:
        for version in (0, 1, 2):
            await produce(side, version, topic, [SETS[name]])
    ours, theirs = [
        await asyncio.to_thread(dump, sides[0].cluster, side, topic, 0) for side in sides
    ]
    assert ours == theirs
    assert sum(line.startswith("baseOffset") for line in ours) == 3
    assert sum(line.startswith("| offset") for line in ours) == 9
    assert all("isvalid: true" in line for line in ours if line.startswith("baseOffset"))


@pytest.mark.parametrize("version", [0, 1, 2, 3])
async def test_fetched_messages_are_equal(
    version: int, sides: tuple[Side, Side], new_topic: Any
) -> None:
    """Of logs with three batches of each codec.

    3.9.1 cuts what it converts to the size that the batches had, so it may send less at a time.
    """
    topic = await new_topic(sides)
    names = ["plain 0", "plain 1", "GZIP 1", "SNAPPY 1", "LZ4 1", "LZ4 0"]
    sets = [SETS[name] for name in names]
    for side in sides:
        for _ in range(3):
            await produce(side, 2, topic, sets)

    async def fetched(side: Side, offset: int, max_bytes: int) -> list[Any]:
        parts = [FetchPartition(number, offset, max_bytes) for number in range(len(sets))]
        request = FetchRequest(-1, 500, 1, [Topic(topic, parts)])
        (found,) = (await side.client.call(request, version)).topics
        return sorted(
            (one.partition, one.error_code, one.high_watermark, messages(one.message_set))
            for one in found.partitions
        )

    for offset in (0, 3, 6, 9, 10):
        for max_bytes in (1 << 20, 1000):
            both = [await fetched(side, offset, max_bytes) for side in sides]
            for ours, theirs in zip(*both, strict=True):
                assert ours[:3] == theirs[:3]
                count = min(len(ours[3]), len(theirs[3]))
                assert ours[3][:count] == theirs[3][:count], f"offset {offset}, {max_bytes} bytes"
                assert bool(count) == (offset < 9)
                if max_bytes > 1000:
                    assert len(ours[3]) >= len(theirs[3])


def messages(message_set: bytes) -> list[Any]:
    """Return the entries of a set, with wrappers opened: libraries don't compress alike.

    The filler that 3.9.1 puts behind the last entry is left out.
    """
    found: list[Any] = []
    pos = 0
    while len(message_set) - pos >= 12:
        stop = pos + 12 + int.from_bytes(message_set[pos + 8 : pos + 12], "big")
        if stop > len(message_set) or message_set[pos : pos + 8] == b"\xff" * 8:
            break
        magic, attributes = message_set[pos + 16 : pos + 18]
        if attributes & 7:
            head = bytes(message_set[pos : pos + 8] + message_set[pos + 16 : pos + 26 + 8 * magic])
            value = bytes(message_set[pos + 26 + 8 * magic : stop])
            found.append((head[:-4], messages(decompress(Codec(attributes & 7), value, 1 << 20))))
        else:
            found.append(bytes(message_set[pos:stop]))
        pos = stop
    return found


async def test_offsets_are_listed_and_committed_equally(
    sides: tuple[Side, Side], new_topic: Any
) -> None:
    topic = await new_topic(sides)
    found: list[list[Any]] = [[], []]
    for side, results in zip(sides, found, strict=True):
        await produce(side, 2, topic, [plain(1)])
        for timestamp in (-1, -2):
            asked = ListOffsetsRequest(-1, [Topic(topic, [ListOffsetsPartition(0, timestamp)])])
            results.append((await side.client.call(asked, 0)).topics)
        missing = ListOffsetsRequest(-1, [Topic("no-such", [ListOffsetsPartition(0, -1)])])
        results.append((await side.client.call(missing, 0)).topics)
        await side.client.call(GroupCoordinatorRequest(topic), 0)  # it creates the topic of offsets

        async def is_loaded() -> bool:
            asked = OffsetFetchRequest(topic, [Topic(topic, [0])])
            found = (await side.client.call(asked, 1)).topics  # noqa: B023
            return bool(found) and not found[0].partitions[0].error_code

        await eventually(is_loaded, 60)
        for version in (0, 1):
            fetch = OffsetFetchRequest(topic, [Topic(topic, [0, 1])])
            results.append((await side.client.call(fetch, version)).topics)
            part = CommitPartition(0, 7 + version, -1, "note")
            commit = OffsetCommitRequest(topic, -1, "", -1, [Topic(topic, [part])])
            results.append((await side.client.call(commit, version)).topics)
    ours, theirs = found
    assert [one[0].partitions[0].error_code for one in ours[3:]] == [3, 0, 0, 0]
    # Version 1 of 3.9.1 doesn't see what version 0 has put into ZooKeeper.
    in_store = ours[5][0].partitions[0]
    assert (in_store.offset, theirs[5][0].partitions[0].offset) == (7, -1)
    del ours[5], theirs[5]
    assert ours == theirs


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("acks", [0, 1, -1])
async def test_set_that_only_old_brokers_take_is_stored_in_parts(
    acks: int, codec: Codec, sides: tuple[Side, Side], unique_topic: Any
) -> None:
    """3.9.1 refuses it, as 4.1.0 does: both measure the batch."""
    name = unique_topic("parts")
    for side in sides:
        admin = AdminClient({"bootstrap.servers": side.cluster.bootstrap_servers})
        new = NewTopic(name, 1, 1, config={"max.message.bytes": "100000"})
        await asyncio.to_thread(admin.create_topics([new])[name].result, 30)
    values = [random.Random(number).randbytes(1000) for number in range(500)]
    data = b"".join(
        encode_entry(number, None, value, magic=1, timestamp_ms=NOW_MS + number)
        for number, value in enumerate(values)
    )
    if codec:
        data = encode_entry(
            499,
            None,
            compress(codec, data, magic=1),
            magic=1,
            attributes=codec,
            timestamp_ms=NOW_MS,
        )
    produce_all = ProduceRequest(acks, 30_000, [Topic(name, [ProducePartition(0, data)])])
    ours, theirs = sides
    if acks:
        (refused,) = (await theirs.client.call(produce_all, 2)).topics[0].partitions
        assert refused.error_code == 10
        (stored,) = (await ours.client.call(produce_all, 2)).topics[0].partitions
        assert (stored.error_code, stored.offset) == (0, 0)
    else:
        ours.client.send_request(produce_all, 2)
        listed = ListOffsetsRequest(-1, [Topic(name, [ListOffsetsPartition(0, -1)])])
        (end,) = (await ours.client.call(listed, 0)).topics[0].partitions
        assert end.offsets == [500]  # later requests have waited
    batches = ours.batches(name, 0)
    assert 6 <= len(batches) <= 8
    fetch = FetchRequest(-1, 500, 1, [Topic(name, [FetchPartition(0, 0, 1 << 22)])])
    found = (await ours.client.call(fetch, 2)).topics[0].partitions[0].message_set
    reader = MessageSetReader(TopicPartition(name, 0), found, 0, max_decompressed_bytes=1 << 24)
    records = reader.read(1000)
    while more := reader.read(1000):
        records += more
    assert [one.value for one in records] == values
    assert [one.timestamp for one in records] == [NOW_MS + number for number in range(500)]


async def test_dropped_versions_are_translated_or_ones_that_old_clients_do_not_send(
    sides: tuple[Side, Side],
) -> None:
    """Of the APIs that the gateway offers, but for those that it always refuses."""
    ours, theirs = [
        {
            one.api_key: range(one.min_version, one.max_version + 1)
            for one in (await side.client.call(ApiVersionsRequest(), 0)).api_versions
        }
        for side in sides
    ]
    gone = {
        (apis()[key].name, version)
        for key, versions in ours.items()
        for version in theirs.get(key, ())
        if version < versions[0]
        and apis()[key].name not in CHANGES
        and not apis()[key].is_between_brokers
    }
    assert gone == {
        ("OffsetForLeaderEpoch", 0),
        ("OffsetForLeaderEpoch", 1),
        ("DescribeConfigs", 0),
        ("DescribeAcls", 0),
        ("DescribeLogDirs", 0),
        ("DescribeDelegationToken", 0),
    }
