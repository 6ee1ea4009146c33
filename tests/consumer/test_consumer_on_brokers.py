"""The consumer on real brokers: compaction, transactions, 1,000 partitions, times, new partitions.

Tests of what all broker lines do alike are in tests/conformance/contract.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Any

import psutil
import pytest
from aiokafka import AIOKafkaProducer as ModernProducer

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer, OffsetAndTimestamp, TopicPartition
from aiokafka08._core.net.router import Router
from aiokafka08._core.ranges.range_reader import read_range
from aiokafka08.errors import (
    CorruptRecordException,
    KafkaError,
    RecordTooLargeError,
    UnsupportedCompressionTypeError,
    UnsupportedVersionError,
)
from aiokafka08.protocol.compression import Codec, compress
from aiokafka08.protocol.message_set import MessageSetReader, encode_entry
from aiokafka08.protocol.requests.produce import ProducePartition
from aiokafka08.telemetry import Event, PartitionFailed, Telemetry
from tests.brokers.cluster import RealCluster
from tests.brokers.fixtures import BrokerClusters
from tests.brokers.topics import NewTopic as NewBrokerTopic
from tests.conformance.contract.wire.requests import wrapper
from tests.consumer.conftest import until_no_fetch_is_in_flight
from tests.consumer.raw_writer import writing
from tests.support.waiting import eventually, until, until_raised

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

NewTopic = Callable[..., str]
MIB = 1 << 20


@asynccontextmanager
async def reading(
    cluster: RealCluster, *partitions: TopicPartition, **options: Any
) -> AsyncIterator[AIOKafkaConsumer]:
    options = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 100, **options}
    consumer = AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, **options)
    consumer.assign(partitions)
    async with consumer:
        yield consumer


async def read_to_end(consumer: AIOKafkaConsumer, tp: TopicPartition) -> list[Any]:
    """Read up to the current end of the log, as shown by the position."""
    [end] = (await consumer.end_offsets([tp])).values()
    records: list[Any] = []
    async with asyncio.timeout(60):
        while await consumer.position(tp) < end:
            for some in (await consumer.getmany(timeout_ms=100)).values():
                records += some
    return records


@asynccontextmanager
async def routed(consumer: AIOKafkaConsumer) -> AsyncIterator[Router]:
    """Start a router for ranges: on the consumer's own router long polls use the fetch lane."""
    router = Router(consumer._router.config, Telemetry())
    await router.start()
    try:
        yield router
    finally:
        await router.stop()


async def range_offsets(
    router: Router, tp: TopicPartition, start: int, end: int, **options: Any
) -> list[int]:
    offsets: list[int] = []
    at = start
    async with aclosing(read_range(router, tp, start, end, **options)) as sets:
        async for one in sets:
            assert at <= one.fetch_offset < one.end_offset <= end
            at = one.end_offset
            reader = MessageSetReader(
                tp, one.message_set, one.fetch_offset, max_decompressed_bytes=MIB
            )
            while records := reader.read(1000):
                offsets += [r.offset for r in records if r.offset < one.end_offset]
    return offsets


@pytest.mark.release("3.9.1")
@pytest.mark.parametrize("api_version", ["0.8.2", "0.9", None], ids=["v0", "v1", "v2"])
async def test_refused_topics_raise_and_the_others_are_read_on_3_9(
    broker_clusters: BrokerClusters, unique_topic: NewTopic, api_version: str | None
) -> None:
    """Each version of Fetch has null for the sets of refused topics (docs/brokers.md 7.17)."""
    cluster = await asyncio.to_thread(broker_clusters.get, "3.9.1")
    configs = {
        unique_topic("strict"): {"message.downconversion.enable": "false"},
        unique_topic("zstd"): {"compression.type": "zstd"},
        unique_topic("good"): None,
    }
    strict, zstd, good = (TopicPartition(topic, 0) for topic in configs)
    new = {topic: NewBrokerTopic(config=config) for topic, config in configs.items()}
    await asyncio.to_thread(cluster.create_topics, new)
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for tp in (strict, zstd, good):
            await producer.send_and_wait(tp.topic, b"0")
        options = {"api_version": api_version, "retry_backoff_ms": 50}
        async with reading(cluster, strict, zstd, good, **options) as consumer:
            errors: dict[type[KafkaError], str] = {}
            values: list[bytes | None] = []
            async with asyncio.timeout(20):
                for number in range(1, 4):
                    while len(values) < number or len(errors) < 2:
                        try:
                            values += [
                                r.value for r in (await consumer.getmany(good)).get(good, [])
                            ]
                            await consumer.getmany(strict, zstd, timeout_ms=100)
                        except KafkaError as error:
                            errors[type(error)] = str(error)
                    await producer.send_and_wait(good.topic, b"%d" % number)
            assert values == [b"0", b"1", b"2"]
            assert f"{strict.topic}/0 at offset 0" in errors[UnsupportedVersionError]
            assert "message.downconversion.enable" in errors[UnsupportedVersionError]
            assert f"{zstd.topic}/0 at offset 0" in errors[UnsupportedCompressionTypeError]
            assert "compression.type of the topic" in errors[UnsupportedCompressionTypeError]
            assert consumer.metrics()["fetch_request_failures"] == 0
            async with routed(consumer) as router:
                with pytest.raises(UnsupportedCompressionTypeError, match="zstd"):
                    await range_offsets(router, zstd, 0, 1)
                assert await range_offsets(router, good, 0, 2) == [0, 1]


@pytest.mark.release("3.9.1")
async def test_zstd_of_a_producer_raises_and_can_be_passed_on_3_9(
    broker_clusters: BrokerClusters, unique_topic: NewTopic
) -> None:
    """The topic's settings don't matter: the batch itself can't be converted."""
    cluster = await asyncio.to_thread(broker_clusters.get, "3.9.1")
    tp = TopicPartition(unique_topic("mixed"), 0)
    await asyncio.to_thread(cluster.create_topic, tp.topic)
    for codec in (None, "zstd", None):
        async with ModernProducer(
            bootstrap_servers=cluster.bootstrap_servers, compression_type=codec
        ) as producer:
            await producer.send_and_wait(tp.topic, b"v" * 100, partition=0)
    async with reading(cluster, tp, retry_backoff_ms=50) as consumer, asyncio.timeout(20):
        assert (await consumer.getone()).offset == 0
        for _ in range(2):
            with pytest.raises(UnsupportedCompressionTypeError, match=r"at offset 1: .*zstd"):
                await consumer.getone()
        assert await consumer.position(tp) == 1
        consumer.seek(tp, 2)
        assert (await consumer.getone()).offset == 2


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.SNAPPY])
async def test_compacted_topic_is_read_on_0_8_2(
    broker_clusters: BrokerClusters, unique_topic: NewTopic, codec: Codec
) -> None:
    """Of 3,000 messages with 41 keys few are left; each of these comes once, in order."""
    cluster = await asyncio.to_thread(broker_clusters.get, "0.8.2.2")
    topic = unique_topic("compacted")
    config = {"cleanup.policy": "compact", "segment.bytes": 16_384}
    await asyncio.to_thread(cluster.create_topic, topic, config=config)
    tp = TopicPartition(topic, 0)
    async with writing(cluster.bootstrap_servers) as writer:
        for batch in range(30):
            numbers = range(batch * 100, batch * 100 + 100)
            keys = [b"key %d" % (number * 7 % 40 + (number < 500)) for number in numbers]
            await writer.write(topic, 0, [b"%d" % number for number in numbers], keys, codec)
    async with reading(cluster, tp, max_partition_fetch_bytes=2000) as consumer:

        async def holes() -> bool:
            consumer.seek(tp, 0)
            return len(await read_to_end(consumer, tp)) < 1500

        await eventually(holes, timeout_s=60, pause_s=0.2)
        consumer.seek(tp, 0)
        records = await read_to_end(consumer, tp)
        offsets = [record.offset for record in records]
        assert offsets == sorted(set(offsets))
        assert [int(record.value) for record in records] == offsets
        assert {record.key for record in records} == {b"key %d" % n for n in range(41)}
        assert await consumer.position(tp) == 3000
        assert consumer.metrics()["lag"] == 0
        async with routed(consumer) as router:
            for size in (100, 500, MIB):  # from in front of, inside and behind holes
                for start in (0, 1, offsets[5] + 1, offsets[-1]):
                    got = await range_offsets(router, tp, start, 3000, max_bytes=size)
                    # Compaction may have removed more meanwhile.
                    assert set(got) <= {o for o in offsets if o >= start}
                    assert got == sorted(set(got))
                    assert got[-1] == offsets[-1]


@pytest.mark.release("0.10.2.2")
async def test_cut_off_set_in_a_wrapper_is_raised_on_0_10(
    broker_clusters: BrokerClusters, unique_topic: NewTopic
) -> None:
    """It keeps the bytes of a wrapper of format 1 (docs/brokers.md 6.3, 6.10)."""
    cluster = await asyncio.to_thread(broker_clusters.get, "0.10.2.2")
    topic = unique_topic("cut")
    await asyncio.to_thread(cluster.create_topic, topic)
    tp = TopicPartition(topic, 0)
    inside = [encode_entry(n, None, b"%d" % n, magic=1, timestamp_ms=5) for n in range(3)]
    inside[2] = inside[2][:-1]
    value = compress(Codec.GZIP, b"".join(inside), magic=1)
    cut = encode_entry(1, None, value, magic=1, attributes=Codec.GZIP, timestamp_ms=5)
    async with writing(cluster.bootstrap_servers) as writer:
        await writer.write(topic, 0, [b"before"])
        assert await writer.write_sets(topic, [ProducePartition(0, cut)], version=2) == {0: 1}
        await writer.write(topic, 0, [b"after"])

    async def range_from_1() -> None:
        async with reading(cluster, tp) as other, routed(other) as router:
            await range_offsets(router, tp, 1, 4)

    async with reading(cluster, tp) as consumer:
        assert (await asyncio.wait_for(consumer.getone(), 20)).value == b"before"
        for read in (
            consumer.getone,
            partial(consumer.getmany, timeout_ms=200),
            partial(consumer.getmany_arrow, timeout_ms=200),
            range_from_1,
        ):
            with pytest.raises(CorruptRecordException, match="cut off") as caught:
                await until_raised(read)
            assert (caught.value.partition, caught.value.offset) == (tp, 2)
        assert caught.value.next_offset == 3
        consumer.seek(tp, 3)
        assert (await asyncio.wait_for(consumer.getone(), 20)).value == b"after"


@pytest.mark.parametrize("aborted", [False, True])
@pytest.mark.release("3.9.1")
async def test_log_ending_in_transaction_markers_is_read_on_3_9(
    broker_clusters: BrokerClusters, unique_topic: NewTopic, aborted: bool
) -> None:
    """Markers take offsets but are never returned; the position passes them, up to the end."""
    cluster = await asyncio.to_thread(broker_clusters.get, "3.9.1")
    topic = unique_topic("transactions")
    await asyncio.to_thread(cluster.create_topic, topic)
    tp = TopicPartition(topic, 0)
    written: list[int] = []
    producer = ModernProducer(
        bootstrap_servers=cluster.bootstrap_servers, transactional_id=topic, linger_ms=5
    )
    await producer.start()
    try:
        # Single small ones, so that markers stand close, and large ones behind markers (7.12).
        for size, count in [(5, 1)] * 8 + [(30_000, 3)] * 3 + [(5, 1)] * 4:
            await producer.begin_transaction()
            for _ in range(count):
                sent = await producer.send_and_wait(topic, bytes(size), partition=0)
                written.append(sent.offset)
            await (producer.abort_transaction() if aborted else producer.commit_transaction())
    finally:
        await producer.stop()
    for share in (100, 40_000, MIB):
        async with reading(cluster, tp, max_partition_fetch_bytes=share) as consumer:
            records = await read_to_end(consumer, tp)
            assert [record.offset for record in records] == written
            [end] = (await consumer.end_offsets([tp])).values()
            assert end == written[-1] + 2
            assert await consumer.position(tp) == end
            # It waits there, and finds what comes.
            before = consumer.metrics()["fetch_requests"]
            assert await consumer.getmany(timeout_ms=300) == {}
            assert consumer.metrics()["fetch_requests"] - before <= 6
            async with routed(consumer) as router:
                for offset in range(end):
                    rest = await range_offsets(router, tp, offset, end, max_bytes=share)
                    assert rest == [o for o in written if o >= offset]


@pytest.mark.release("3.9.1")
async def test_batch_above_the_limit_raises_on_3_9(
    broker_clusters: BrokerClusters, unique_topic: NewTopic
) -> None:
    """3.9 doesn't show its size (docs/brokers.md 7.11)."""
    cluster = await asyncio.to_thread(broker_clusters.get, "3.9.1")
    topic = unique_topic("large")
    await asyncio.to_thread(cluster.create_topic, topic)
    tp = TopicPartition(topic, 0)
    producer = ModernProducer(bootstrap_servers=cluster.bootstrap_servers)
    await producer.start()
    for size in (10, 300_000, 20):
        await producer.send_and_wait(topic, bytes(size), partition=0)
    await producer.stop()
    async with reading(
        cluster, tp, max_partition_fetch_bytes=1000, fetch_max_bytes=100_000
    ) as consumer:
        assert len((await consumer.getone()).value or b"") == 10
        with pytest.raises(
            RecordTooLargeError, match=r"offset 1 has a size .* 100000 bytes.*fetch_max_byte"
        ):
            await consumer.getone()
        consumer.seek(tp, 2)
        assert len((await consumer.getone()).value or b"") == 20


@pytest.mark.full  # the broker takes minutes to make so many partitions
@pytest.mark.timeout(900)
async def test_thousand_partitions_stay_within_their_memory(
    broker_clusters: BrokerClusters, unique_topic: NewTopic
) -> None:
    """64 MB in 1,000 partitions, 16 MiB of memory; all is buffered first, then read."""
    cluster = await asyncio.to_thread(broker_clusters.get, "0.8.2.2")
    topic, partitions = unique_topic("wide"), 1000
    await asyncio.to_thread(cluster.create_topic, topic, partitions, timeout=600)
    async with writing(cluster.bootstrap_servers) as writer:
        for first in range(0, partitions, 50):
            await writer.write_many(
                topic, {number: [bytes(1000)] * 64 for number in range(first, first + 50)}
            )
    bound = 16 * MIB
    process = psutil.Process()
    tps = [TopicPartition(topic, partition) for partition in range(partitions)]
    before = process.memory_info().rss
    async with reading(cluster, *tps, fetch_max_bytes=bound) as consumer:
        used: list[float] = []

        def memory() -> float:
            metrics = consumer.metrics()
            used.append(metrics["buffered_bytes"] + metrics["requested_bytes"])
            return metrics["buffered_bytes"]

        await until(lambda: memory() > 0.9 * bound, "buffers that are full")
        await until_no_fetch_is_in_flight(consumer)
        memory()
        requests = consumer.metrics()["fetch_requests"]
        await asyncio.sleep(1)
        assert consumer.metrics()["fetch_requests"] == requests, "a fetch although all are full"
        grown = process.memory_info().rss - before
        counts: dict[int, int] = {}
        async with asyncio.timeout(120):
            while sum(counts.values()) < 64 * partitions:
                got = await consumer.getmany(timeout_ms=1000, max_records=5000)
                for tp, records in got.items():
                    counts[tp.partition] = counts.get(tp.partition, 0) + len(records)
                memory()
    assert counts == dict.fromkeys(range(partitions), 64)
    # 16 KiB a partition are 15.6 MiB; the overhead of the sets comes on top.
    assert max(used) <= bound + 2 * partitions * 512
    print(f"buffered and requested: {max(used) / MIB:.1f} MiB; RSS grew by {grown / MIB:.1f} MiB")
    assert grown < 3 * bound


@pytest.mark.full
async def test_exceeded_quota_delays_and_fails_nothing(
    broker_clusters: BrokerClusters, unique_topic: NewTopic
) -> None:
    """docs/brokers.md 7.18."""
    cluster = await asyncio.to_thread(broker_clusters.get, "3.9.1")
    topic = unique_topic("throttled")  # also the name of the client
    await asyncio.to_thread(cluster.create_topic, topic, 2)
    await asyncio.to_thread(
        cluster.run_java,
        "kafka.admin.ConfigCommand",
        *("--bootstrap-server", cluster.bootstrap_servers),
        *("--alter", "--add-config", "consumer_byte_rate=100000"),
        *("--entity-type", "clients", "--entity-name", topic),
    )
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(60):  # 1.5 MB; the window of the quota is 1 MB in 10 s
            await producer.send_and_wait(topic, bytes(25_000), partition=number % 2)
    events: list[Event] = []
    tps = [TopicPartition(topic, partition) for partition in range(2)]
    async with reading(
        cluster,
        *tps,
        client_id=topic,
        max_partition_fetch_bytes=400_000,
        on_event=events.append,
    ) as consumer:
        began = time.monotonic()
        records = [record for tp in tps for record in await read_to_end(consumer, tp)]
        assert len(records) == 60
        assert time.monotonic() - began > 3
    assert [event for event in events if isinstance(event, PartitionFailed)] == []


async def test_new_partitions_are_read_from_their_beginning(
    broker_clusters: BrokerClusters, unique_topic: NewTopic
) -> None:
    """Also with "latest": messages from before the metadata refresh aren't lost."""
    cluster = await asyncio.to_thread(broker_clusters.get, "0.8.2.2")
    topic = unique_topic("growing")
    await asyncio.to_thread(cluster.create_topic, topic)
    async with AIOKafkaConsumer(
        topic, bootstrap_servers=cluster.bootstrap_servers, metadata_max_age_ms=10_000
    ) as consumer:
        await until(consumer.ready)
        await asyncio.to_thread(
            cluster.run_java,
            "kafka.admin.TopicCommand",
            *("--zookeeper", cluster.zookeeper_connect),
            *("--alter", "--topic", topic, "--partitions", "3"),
        )
        await asyncio.to_thread(cluster.wait_leader, topic, 2, [0])
        async with writing(cluster.bootstrap_servers) as writer:

            async def is_written(value: bytes) -> bool:
                try:
                    await writer.write(topic, 2, [value])
                except AssertionError:  # the broker learns of the partition after ZooKeeper
                    return False
                return True

            for number in range(20):
                await eventually(partial(is_written, b"%d" % number))
        assert len(consumer.assignment()) == 1
        got = [await asyncio.wait_for(consumer.getone(), 30) for _ in range(20)]
    assert [(r.partition, r.offset) for r in got] == [(2, number) for number in range(20)]


@pytest.mark.every_line
@pytest.mark.parametrize("version", ["0.10.2.2", "3.9.1"])
async def test_messages_without_timestamps_hide_none_after_them(
    broker_clusters: BrokerClusters, unique_topic: NewTopic, version: str
) -> None:
    """The broker 0.10.2.2 finds nothing here (docs/brokers.md 8.14)."""
    cluster = await asyncio.to_thread(broker_clusters.get, version)
    topic = unique_topic("mixed")
    await asyncio.to_thread(cluster.create_topic, topic, config={"segment.bytes": 4096})
    tp = TopicPartition(topic, 0)
    async with writing(cluster.bootstrap_servers) as writer:
        for _ in range(4):
            await writer.write(topic, 0, [bytes(1900)])
    yesterday = time.time_ns() // 1_000_000 - 86_400_000
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(4):
            at = yesterday + number
            await producer.send_and_wait(topic, bytes(1900), partition=0, timestamp_ms=at)
    async with reading(cluster, tp) as consumer:
        found = (await consumer.offsets_for_times({tp: yesterday}))[tp]
    assert found is not None
    assert found.offset <= 4


@pytest.mark.parametrize("version", ["0.8.0", "0.8.2.2", "0.10.2.2", "3.9.1"])
async def test_offsets_by_time_on_each_line(
    broker_clusters: BrokerClusters, unique_topic: NewTopic, version: str
) -> None:
    """A segment of about 4 KiB every half second; the messages have no timestamps.

    The result is never after the first message, also on brokers that find timestamps.
    """
    cluster = await asyncio.to_thread(broker_clusters.get, version)
    topic = unique_topic("timed")
    config = {"segment.bytes": 4096} if version != "0.8.0" else None
    await asyncio.to_thread(cluster.create_topic, topic, config=config)
    tp = TopicPartition(topic, 0)
    times: list[int] = []
    async with writing(cluster.bootstrap_servers) as writer:
        for _ in range(12):
            times.append(time.time_ns() // 1_000_000)
            await writer.write(topic, 0, [bytes(1900)])
            await asyncio.sleep(0.25)
    async with reading(cluster, tp) as consumer:
        found = [(await consumer.offsets_for_times({tp: at}))[tp] for at in times]
        for true, one in enumerate(found):
            assert one is not None
            assert one.offset <= true
        assert await consumer.offsets_for_times({tp: 0}) == {tp: OffsetAndTimestamp(0, None)}
        late = times[-1] + 3_600_000
        assert await consumer.offsets_for_times({tp: late}) == {tp: None}
        if config:  # a second for coarse file times, and a segment: some six messages
            assert found[-1] is not None
            assert found[-1].offset >= 3


@pytest.mark.parametrize("call", ["getone", "getmany", "getmany_arrow"])
async def test_damaged_log_is_raised_and_passed_on_0_8_2(
    broker_clusters: BrokerClusters, unique_topic: NewTopic, call: str
) -> None:
    """A size field in the log file is 0. The broker fails to read over it (docs/brokers.md 7.19):
    a seek to the next offset doesn't help, and one behind the next index entry does."""
    cluster = await asyncio.to_thread(broker_clusters.get, "0.8.2.2")
    topic = unique_topic("damaged")
    await asyncio.to_thread(cluster.create_topic, topic)
    tp = TopicPartition(topic, 0)
    async with writing(cluster.bootstrap_servers) as writer:
        for _ in range(200):
            await writer.write(topic, 0, [bytes(100)] * 10)
    damage_size_field(cluster, topic, message=25, message_bytes=126)
    async with reading(cluster, tp, retry_backoff_ms=10) as consumer:
        got = 0
        async with asyncio.timeout(20):
            while got < 25:
                got += await count_of(consumer, call)
        assert got == 25
        with pytest.raises(CorruptRecordException, match="a clearly later offset") as caught:
            await asyncio.wait_for(count_of(consumer, call), 20)
        assert (caught.value.partition, caught.value.offset) == (tp, 25)
        consumer.seek(tp, 26)
        with pytest.raises(CorruptRecordException, match="offset 26: the broker fails to read"):
            await until_raised(partial(count_of, consumer, call))
        assert await consumer.position(tp) == 26
        consumer.seek(tp, 500)
        assert (await asyncio.wait_for(consumer.getone(), 10)).offset == 500


def damage_size_field(
    cluster: RealCluster, topic: str, *, message: int, message_bytes: int
) -> None:
    """Overwrite the size field of one message of a log of equal ones with 0, while it is open."""
    [log] = cluster.folder.glob(f"data-*/{topic}-0/*.log")
    with log.open("r+b") as file:
        file.seek(message * message_bytes + 8)
        assert int.from_bytes(file.read(4), "big") == message_bytes - 12
        file.seek(message * message_bytes + 8)
        file.write(bytes(4))


async def count_of(consumer: AIOKafkaConsumer, call: str) -> int:
    """Return how many messages one call returns."""
    if call == "getone":
        await consumer.getone()
        return 1
    if call == "getmany":
        return sum(map(len, (await consumer.getmany(timeout_ms=1000)).values()))
    return (await consumer.getmany_arrow(timeout_ms=1000)).num_rows


@pytest.mark.release("0.9.0.1")
async def test_commit_within_a_shared_offset_repeats_it_on_0_9(
    broker_clusters: BrokerClusters, unique_topic: NewTopic
) -> None:
    """0.9.0.1 stores a wrapper in a wrapper unchanged: five messages with one offset."""
    cluster = await asyncio.to_thread(broker_clusters.get, "0.9.0.1")
    topic = unique_topic("nested")
    await asyncio.to_thread(cluster.create_topic, topic)
    tp = TopicPartition(topic, 0)
    inner = wrapper(Codec.GZIP, b"".join(encode_entry(i, None, b"%d" % i) for i in range(5)))
    async with writing(cluster.bootstrap_servers) as writer:
        await writer.write(topic, 0, [b"before"])
        await writer.write_sets(topic, [ProducePartition(0, wrapper(Codec.GZIP, inner))])
        await writer.write(topic, 0, [b"after"])
    group = {"group_id": topic, "enable_auto_commit": False}
    async with reading(cluster, tp, **group) as consumer:
        assert [(await consumer.getone()).value for _ in range(2)] == [b"before", b"0"]
        await consumer.commit()
    async with reading(cluster, tp, **group) as consumer:
        got = [(await asyncio.wait_for(consumer.getone(), 10)).value for _ in range(6)]
        assert got == [b"0", b"1", b"2", b"3", b"4", b"after"]
        assert await consumer.position(tp) == 3
