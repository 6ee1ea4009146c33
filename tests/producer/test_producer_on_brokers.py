"""The producer on real brokers: acknowledgements and codecs, failover, back-pressure."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from kazoo.client import KazooClient

from aiokafka08 import AIOKafkaProducer
from aiokafka08._core.net.router import Router
from aiokafka08._core.ranges.range_router import router_config
from aiokafka08.errors import (
    CorruptRecordException,
    InvalidRecordError,
    InvalidTimestampError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    NotLeaderForPartitionError,
    UnknownTopicOrPartitionError,
    UnsupportedCodecError,
    UnsupportedVersionError,
)
from aiokafka08.protocol.api import Topic
from aiokafka08.protocol.message_set import DEFAULT_MAX_DECOMPRESSED_BYTES, MessageSetReader
from aiokafka08.protocol.requests.fetch import FetchPartition, FetchRequest
from aiokafka08.structs import ConsumerRecord, TopicPartition
from aiokafka08.telemetry import Acks0Unknown, BatchRetried, Telemetry
from tests.brokers.cluster import RealCluster
from tests.brokers.fixtures import BrokerClusters
from tests.producer.conftest import Producer
from tests.support.paths import ROOT
from tests.support.waiting import until

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

ALL = ["0.8.0", "0.8.1.1", "0.8.2.2", "0.9.0.1", "0.10.2.2", "3.9.1"]

ProducerFor = Callable[..., Awaitable[Producer]]
NewName = Callable[..., str]


@pytest.mark.full
@pytest.mark.parametrize("version", ALL)
async def test_an_unknown_topic_raises_soon_if_it_is_not_created(version: str) -> None:
    cluster = RealCluster(version, properties={"auto.create.topics.enable": "false"})
    await asyncio.to_thread(cluster.start)
    try:
        await asyncio.to_thread(cluster.create_topic, "t")
        async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            async with asyncio.timeout(20):  # `max_block_ms` is 40 s
                with pytest.raises(UnknownTopicOrPartitionError, match="'nowhere' doesn't exist"):
                    await producer.send("nowhere", b"v")
    finally:
        await asyncio.to_thread(cluster.close)


@asynccontextmanager
async def reader(cluster: RealCluster) -> AsyncIterator[Router]:
    config = router_config(
        {
            "bootstrap_servers": cluster.bootstrap_servers,
            "client_id": "test",
            "request_timeout_ms": 10000,
            "retry_backoff_ms": 50,
        }
    )
    router = Router(config, Telemetry())
    await router.start()
    try:
        yield router
    finally:
        await router.stop()


async def read(
    cluster: RealCluster, topic: str, partition: int = 0, count: int = 0
) -> list[ConsumerRecord[bytes, bytes]]:
    """Return the log of a partition, to its end and at least `count` messages."""
    records: list[ConsumerRecord[bytes, bytes]] = []
    topic_partition = TopicPartition(topic, partition)
    async with reader(cluster) as router:
        await router.metadata.wait_for_topic(topic, timeout_s=10)
        while True:
            offset = records[-1].offset + 1 if records else 0
            leader = router.metadata.snapshot.leader(topic_partition)
            fetch = FetchRequest(
                -1, 100, 1, [Topic(topic, [FetchPartition(partition, offset, 2 << 20)])]
            )
            response = (await router.request(fetch, node_id=leader)).topics[0].partitions[0]
            if (
                response.error_code == NotLeaderForPartitionError.errno
            ):  # the leader has just changed
                await router.metadata.refresh()
                continue
            assert response.error_code == 0
            decoded = MessageSetReader(
                topic_partition,
                response.message_set,
                offset,
                max_decompressed_bytes=DEFAULT_MAX_DECOMPRESSED_BYTES,
            ).read(1 << 30)
            records += decoded
            if len(records) >= count and not decoded:
                return records


async def test_a_partition_that_was_just_added_is_waited_for(
    broker_clusters: BrokerClusters, unique_topic: NewName, producer_for: ProducerFor
) -> None:
    cluster = await asyncio.to_thread(broker_clusters.get, "0.8.2.2")
    topic = unique_topic("grows")
    await asyncio.to_thread(cluster.create_topic, topic, 1)
    producer = await producer_for(cluster)
    await producer.send_and_wait(topic, b"v")

    def add_partition() -> None:  # as kafka-topics.sh --alter, without a wait
        client = KazooClient(cluster.zookeeper_connect)
        client.start()
        try:
            state = json.loads(client.get(f"/brokers/topics/{topic}")[0])
            state["partitions"]["1"] = state["partitions"]["0"]
            client.set(f"/brokers/topics/{topic}", json.dumps(state).encode())
        finally:
            client.stop()
            client.close()

    await asyncio.to_thread(add_partition)
    assert (await producer.send_and_wait(topic, b"v", partition=1)).partition == 1


@pytest.mark.parametrize("version", ALL)
async def test_every_broker_line_stores_every_kind_of_batch(
    version: str,
    broker_clusters: BrokerClusters,
    unique_topic: NewName,
    producer_for: ProducerFor,
) -> None:
    cluster = await asyncio.to_thread(broker_clusters.get, version)
    sent = [b"%d" % number * 30 for number in range(500)]
    for codec in (None, "gzip", "snappy", "lz4"):
        for acks in (0, 1, "all"):
            if codec == "lz4" and version in ("0.8.0", "0.8.1.1"):
                with pytest.raises(UnsupportedCodecError):
                    await producer_for(cluster, compression_type=codec)
                continue
            topic = unique_topic("kinds")
            producer = await producer_for(cluster, compression_type=codec, acks=acks)
            await producer.partitions_for(topic)
            futures = [await producer.send(topic, value, b"k", partition=1) for value in sent[:250]]
            deliveries = await producer.send_many(topic, sent[250:], partition=1)
            await producer.flush()
            records = await read(cluster, topic, 1, 500)
            assert [record.value for record in records] == sent
            assert [record.offset for record in records] == list(range(500))
            results = [future.result() for future in futures]
            offsets = [result.offset for result in await deliveries]
            if acks == 0:
                assert results == [None] * 250
                assert offsets == [-1] * 250
            else:
                assert [result.offset for result in results] + offsets == list(range(500))
                stamped = version in ("0.10.2.2", "3.9.1")
                assert (results[0].timestamp is not None) is stamped
            assert producer.events_of(BatchRetried) == producer.events_of(Acks0Unknown) == []
            await producer.stop()


@pytest.mark.parametrize("version", ["0.8.2.2", "0.9.0.1"])
async def test_acks_above_1_needs_the_0_8_lines(
    version: str,
    broker_clusters: BrokerClusters,
    unique_topic: NewName,
    producer_for: ProducerFor,
) -> None:
    cluster = await asyncio.to_thread(broker_clusters.get, version)
    if version == "0.9.0.1":
        with pytest.raises(UnsupportedVersionError, match=r"needs brokers of the 0\.8 lines"):
            await producer_for(cluster, acks=2)
        return
    # More replicas than exist: error 7 after the timeout, but stored (docs/brokers.md 5.1).
    topic = unique_topic("acks")
    await asyncio.to_thread(cluster.create_topic, topic)
    producer = await producer_for(
        cluster, acks=2, request_timeout_ms=1000, delivery_timeout_ms=1500
    )
    await producer.partitions_for(topic)
    with pytest.raises(KafkaTimeoutError):
        await producer.send_and_wait(topic, b"v", partition=0)
    assert producer.events_of(BatchRetried)[0].may_be_stored
    assert len(await read(cluster, topic)) >= 1


@pytest.mark.parametrize("version", ALL)
async def test_acks_0_messages_behind_a_refused_one_are_unknown(
    version: str,
    broker_clusters: BrokerClusters,
    unique_topic: NewName,
    producer_for: ProducerFor,
) -> None:
    cluster = await asyncio.to_thread(broker_clusters.get, version)
    topic = unique_topic("closed")
    producer = await producer_for(cluster, acks=0, max_request_size=2_000_000)
    await producer.send(topic, b"before", partition=0)
    await producer.flush()
    future = await producer.send(topic, b"v" * 1_500_000, partition=0)
    await producer.flush()
    assert await future is None
    assert producer.metrics()["acks0_unknown"] == 1
    await producer.send(topic, b"after", partition=0)
    await producer.flush()
    records = await read(cluster, topic, 0, 2)
    assert [record.value for record in records] == [b"before", b"after"]


@pytest.mark.parametrize("version", ["0.8.0", "0.8.2.2", "0.10.2.2", "3.9.1"])
@pytest.mark.parametrize("compression_type", [None, "snappy"])
async def test_a_batch_above_the_message_limit_arrives_in_parts(
    version: str,
    compression_type: str | None,
    broker_clusters: BrokerClusters,
    unique_topic: NewName,
    producer_for: ProducerFor,
) -> None:
    """A compressed batch, or any batch on a modern broker, is split if it is too large.

    docs/brokers.md 6.5, 5.4.
    """
    cluster = await asyncio.to_thread(broker_clusters.get, version)
    topic = unique_topic("split")
    producer = await producer_for(
        cluster,
        compression_type=compression_type,
        max_batch_size=3_000_000,
        max_request_size=3_000_000,
        linger_ms=1000,
    )
    sent = [random.Random(number).randbytes(30_000) for number in range(90)]
    futures = [await producer.send(topic, value, partition=0) for value in sent]
    assert [(await future).offset for future in futures] == list(range(90))
    records = await read(cluster, topic, 0, 90)
    assert [record.value for record in records] == sent
    if compression_type is not None or version == "3.9.1":
        assert producer.metrics()["retries"] > 0
    with pytest.raises(MessageSizeTooLargeError):
        await producer.send_and_wait(topic, b"".join(sent[:40]), partition=0)


@pytest.mark.every_line  # the codes and checks differ
@pytest.mark.parametrize("version", ["0.9.0.1", "0.10.2.2", "3.9.1"])
@pytest.mark.parametrize("compression_type", [None, "gzip"])
async def test_compacted_topic_refuses_only_the_messages_without_a_key(
    version: str,
    compression_type: str | None,
    broker_clusters: BrokerClusters,
    unique_topic: NewName,
    producer_for: ProducerFor,
) -> None:
    """The code is 2, on modern brokers 87, for the whole batch (docs/brokers.md 5.11)."""
    cluster = await asyncio.to_thread(broker_clusters.get, version)
    topic = unique_topic("compacted")
    config = {"cleanup.policy": "compact"}
    await asyncio.to_thread(cluster.create_topic, topic, config=config)
    producer = await producer_for(cluster, compression_type=compression_type, linger_ms=200)
    without = {7, 8, 50}
    futures = [
        await producer.send(topic, b"%d" % n, key=None if n in without else b"k%d" % n)
        for n in range(64)
    ]
    results = await asyncio.gather(*futures, return_exceptions=True)
    failed = {n: one for n, one in enumerate(results) if isinstance(one, BaseException)}
    assert set(failed) == without
    expected = InvalidRecordError if version == "3.9.1" else CorruptRecordException
    for error in failed.values():
        assert type(error) is expected
        assert "without a key. Either the topic is compacted" in str(error)
    stored = [b"%d" % n for n in range(64) if n not in without]
    assert [record.value for record in await read(cluster, topic, 0, len(stored))] == stored


@pytest.mark.parametrize("version", ["0.10.2.2", "3.9.1"])
async def test_old_timestamp_fails_its_message_alone(
    version: str,
    broker_clusters: BrokerClusters,
    unique_topic: NewName,
    producer_for: ProducerFor,
) -> None:
    cluster = await asyncio.to_thread(broker_clusters.get, version)
    topic = unique_topic("dated")
    config = {"message.timestamp.difference.max.ms": 3_600_000}
    await asyncio.to_thread(cluster.create_topic, topic, config=config)
    producer = await producer_for(cluster, linger_ms=200)
    now_ms = int(time.time() * 1000)
    times_ms = [1000 if n == 5 else now_ms for n in range(20)]
    sent = [await producer.send(topic, b"%d" % n, timestamp_ms=at) for n, at in enumerate(times_ms)]
    results = await asyncio.gather(*sent, return_exceptions=True)
    failed = [n for n, one in enumerate(results) if isinstance(one, InvalidTimestampError)]
    assert failed == [5]
    stored = [b"%d" % n for n in range(20) if n != 5]
    assert [record.value for record in await read(cluster, topic, 0, len(stored))] == stored


async def test_order_is_kept_when_leaders_are_killed_and_move(
    broker_clusters: BrokerClusters, unique_topic: NewName, producer_for: ProducerFor
) -> None:
    cluster = await asyncio.to_thread(broker_clusters.get, "0.8.2.2", 3)
    topic = unique_topic("order")
    await asyncio.to_thread(
        cluster.create_topic, topic, 3, 3, {"unclean.leader.election.enable": "false"}
    )
    producer = await producer_for(cluster, acks="all", max_batch_size=1000, compression_type="gzip")
    futures: list[Any] = []
    sent: list[list[bytes]] = [[], [], []]
    done = False

    async def send_on() -> None:
        while not done:
            for partition in range(3):
                value = b"%d" % len(futures)
                sent[partition].append(value)
                futures.append(await producer.send(topic, value, partition=partition))
            await asyncio.sleep(0.001)

    sending = asyncio.create_task(send_on())
    victim = await asyncio.to_thread(cluster.leader, topic, 0)
    await until(lambda: len(futures) > 30, "the first messages are sent")
    await asyncio.gather(*futures)
    cluster.pause(victim)  # a batch is in flight to it when it is killed
    count = len(futures)
    await until(lambda: len(futures) > count + 30, "messages are sent to the paused broker")
    await asyncio.to_thread(cluster.kill, victim)
    await asyncio.to_thread(cluster.expire, victim)
    others = set(cluster.nodes) - {victim}
    for partition in range(3):
        await asyncio.to_thread(cluster.wait_leader, topic, partition, others)
    await asyncio.to_thread(cluster.restart, victim)
    for partition in range(3):
        await asyncio.to_thread(cluster.wait_isr, topic, partition, cluster.nodes)
    second = await asyncio.to_thread(cluster.leader, topic, 0)
    await asyncio.to_thread(cluster.stop, second)
    done = True
    await sending
    await asyncio.gather(*futures)  # each of them acknowledged
    assert producer.metrics()["retries"] > 0
    for partition in range(3):
        values = [record.value for record in await read(cluster, topic, partition)]
        assert list(dict.fromkeys(values)) == sent[partition]


MEMORY = """
import asyncio, gc, json, os, resource, sys
import psutil
from aiokafka08.producer import AIOKafkaProducer

bootstrap, topic, size = sys.argv[1], sys.argv[2], int(sys.argv[3])

async def main():
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        value = os.urandom(size)
        for _ in range(20000):  # warm: code, buffers, allocator
            await producer.send(topic, value)
        await producer.flush()
        gc.collect()
        process = psutil.Process()
        before = most = process.memory_info().rss
        print("paused?", flush=True)
        await asyncio.to_thread(sys.stdin.readline)

        sent, blocked = 0, None
        async def flood():
            nonlocal sent
            while True:
                await producer.send(topic, value)
                sent += 1

        tasks = [asyncio.create_task(flood()) for _ in range(10)]
        while blocked != sent:
            blocked = sent
            for _ in range(10):
                await asyncio.sleep(0.05)
                most = max(most, process.memory_info().rss)
        metrics = producer.metrics()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        print(json.dumps({"before": before, "most": most, "sent": sent, **metrics}), flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        await producer.flush()
        print(json.dumps(producer.metrics()), flush=True)

asyncio.run(main())
"""

CONSTANT_BYTES = 16 * 1024 * 1024
"""Memory that a producer may take beside `buffer_memory`: the request being written and its copy in
the transport, the reserve of growing buffers (an eighth), and the allocator's overhead."""


@pytest.mark.parametrize("size", [10, 1000])
async def test_with_a_paused_broker_memory_is_bounded_and_senders_wait(
    size: int, broker_clusters: BrokerClusters, unique_topic: NewName
) -> None:
    cluster = await asyncio.to_thread(broker_clusters.get, "0.8.2.2")
    topic = unique_topic("memory")

    def run() -> tuple[dict[str, float], dict[str, float]]:
        with subprocess.Popen(
            [sys.executable, "-c", MEMORY, cluster.bootstrap_servers, topic, str(size)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as child:
            assert child.stdin is not None
            assert child.stdout is not None
            try:
                assert child.stdout.readline() == "paused?\n"
                cluster.pause(0)
                child.stdin.write("\n")
                child.stdin.flush()
                full = json.loads(child.stdout.readline())
                cluster.resume(0)
                child.stdin.write("\n")
                child.stdin.flush()
                return full, json.loads(child.stdout.readline())
            finally:
                cluster.resume(0)
                child.kill()

    full, end = await asyncio.to_thread(run)
    assert full["buffer_used_bytes"] > 0.99 * full["buffer_limit_bytes"]
    assert full["senders_waiting"] >= 1
    assert full["most"] - full["before"] < full["buffer_limit_bytes"] + CONSTANT_BYTES
    assert end["messages_sent"] == 20000 + full["sent"]
    assert end["buffer_used_bytes"] == 0
