"""The copy of what each line of brokers has: timestamps, compression, holes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import confluent_kafka
import pytest

from aiokafka08 import AIOKafkaProducer
from aiokafka08.admin import AIOKafkaAdminClient
from aiokafka08.bridge.copy.copy_positions import read_stored_runs
from aiokafka08.bridge.copy.copy_session import CopySession
from aiokafka08.bridge.copy.status import CopyStatus
from aiokafka08.bridge.cutover.steps import plan_steps
from aiokafka08.bridge.daemon import run_bridge
from aiokafka08.bridge.source.source_release import left_out
from aiokafka08.bridge.target.target_cluster import Target
from aiokafka08.bridge.verify.verification import verify
from aiokafka08.protocol.requests.produce import ProducePartition
from aiokafka08.structs import TopicPartition
from aiokafka08.testing import EmbeddedCluster
from tests.bridge.clusters import TargetReader, bridge_config, config_without_zookeeper, copy
from tests.brokers import RealCluster
from tests.brokers.fixtures import BrokerClusters
from tests.conformance.contract.wire.requests import nested
from tests.consumer.raw_writer import writing
from tests.support.full import in_full

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

FIRST_STAMP = 1_400_000_000_000


@pytest.mark.parametrize(
    "version",
    ["0.10.2.2", *in_full("0.8.0", "0.9.0.1", "3.9.1")],
)
async def test_records_of_each_line_arrive_as_they_are(
    version: str,
    broker_clusters: BrokerClusters,
    target: RealCluster,
    reader: TargetReader,
    unique_topic: Callable[..., str],
) -> None:
    """Compressed sets; timestamps where the line has them, of before the target's clock."""
    source = broker_clusters.get(version)
    topic = unique_topic("line")
    has_stamps = version in ("0.10.2.2", "3.9.1")
    await asyncio.to_thread(source.create_topic, topic, 2)
    values = [b"%d" % number * 20 for number in range(3000)]
    async with AIOKafkaProducer(
        bootstrap_servers=source.bootstrap_servers, acks="all", compression_type="gzip"
    ) as producer:
        for number, value in enumerate(values):
            stamp = FIRST_STAMP + number if has_stamps else None
            await producer.send(topic, value, partition=number % 2, timestamp_ms=stamp)
    config = bridge_config(topic, source, target, topic)
    status = CopyStatus()
    await run_bridge(config, status, until_caught_up=True)
    assert status.records == 3000
    found = await asyncio.to_thread(reader.read, topic)
    for partition in range(2):
        records = found[partition]
        assert [one.value() for one in records] == values[partition::2]
        stamps = [one.timestamp()[1] for one in records]
        if has_stamps:
            assert stamps == [FIRST_STAMP + number for number in range(partition, 3000, 2)]
        else:
            assert min(stamps) > FIRST_STAMP + 10**11, "the time of the copy"


@pytest.mark.release("0.9.0.1")
async def test_messages_that_share_an_offset_are_copied_once(
    broker_clusters: BrokerClusters,
    target: RealCluster,
    reader: TargetReader,
    unique_topic: Callable[..., str],
) -> None:
    """0.9.0.1 stores nested wrappers. Reads, chunks and transactions end between two of them."""
    source = await asyncio.to_thread(broker_clusters.get, "0.9.0.1")
    topic, counts = unique_topic("nested"), [2990, 30, 6990, 30]
    await asyncio.to_thread(source.create_topic, topic)
    async with writing(source.bootstrap_servers) as writer:
        await writer.write(topic, 0, [b"before"])
        for count in counts:
            await writer.write_sets(topic, [ProducePartition(0, nested(0, count))])
        await writer.write(topic, 0, [b"after"])
    config = bridge_config(topic, source, target, topic, "[copy]\ntransaction_records = 1000\n")
    status = await asyncio.wait_for(copy(config), 60)
    assert status.partitions[TopicPartition(topic, 0)].position == 6
    found = (await asyncio.to_thread(reader.read, topic))[0]
    values = [b"%d" % number for count in counts for number in range(count)]
    assert [one.value() for one in found] == [b"before", *values, b"after"]
    [verdict] = await verify(config)
    assert verdict.is_equal
    connection = Target(config)
    try:
        runs = await read_stored_runs(config, connection)
    finally:
        await connection.close()
    known = runs.offset_map(TopicPartition(topic, 0))
    at = 1
    for offset, count in enumerate(counts, 1):
        assert known.to_target(offset) == found[at].offset()
        behind = {known.to_source(one.offset() or 0) for one in found[at : at + count]}
        assert behind == {offset}
        at += count


async def test_headers_are_lost_and_aborted_messages_copied(
    broker_clusters: BrokerClusters,
    target: RealCluster,
    reader: TargetReader,
    unique_topic: Callable[..., str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Brokers of 0.11 and later convert their records for the old protocol; the bridge says so."""
    source = await asyncio.to_thread(broker_clusters.get, "3.9.1")
    topic = unique_topic("new")
    await asyncio.to_thread(source.create_topic, topic)
    await asyncio.to_thread(write_transactions, source.bootstrap_servers, topic)
    config = config_without_zookeeper(topic, source, target, topic)
    status = CopyStatus()
    await run_bridge(config, status, until_caught_up=True)
    found = (await asyncio.to_thread(reader.read, topic))[0]
    assert [one.value() for one in found] == [b"committed", b"aborted", b"last"]
    assert [one.headers() for one in found] == [None, None, None]
    warning = (
        "the source is of 3.9, and is read by the protocol of 0.8: message headers are left out, "
        "and messages of aborted transactions are copied like others"
    )
    assert caplog.text.count(warning) == 1
    steps = await plan_steps(config, {}, quiet_s=0.0)
    assert warning in steps[0].detail
    assert steps[0].is_ready


def write_transactions(servers: str, topic: str) -> None:
    """Write a committed, an aborted and a committed message, each with a header."""
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "transactional.id": topic})
    producer.init_transactions()
    for value, end in (
        (b"committed", producer.commit_transaction),
        (b"aborted", producer.abort_transaction),
        (b"last", producer.commit_transaction),
    ):
        producer.begin_transaction()
        producer.produce(topic, value, headers=[("trace", b"1")])
        producer.flush()
        end()


async def test_source_below_0_11_leaves_nothing_out(source: RealCluster) -> None:
    config = config_without_zookeeper("b", source, source, "t")
    assert await left_out(config) is None


async def test_source_that_tells_no_release_is_copied(
    target: RealCluster, unique_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that hangs at this question must not keep the bridge from its start."""
    topic, ping_brokers, hung = unique_topic("silent"), AIOKafkaAdminClient.ping_brokers, 0

    async def hang_once(admin: AIOKafkaAdminClient) -> dict[int, Any]:
        nonlocal hung
        hung += 1
        if hung == 1:
            await asyncio.Event().wait()
        return await ping_brokers(admin)

    monkeypatch.setattr(AIOKafkaAdminClient, "ping_brokers", hang_once)
    with EmbeddedCluster(version="0.8.2", topics={topic: 1}) as old:
        old.append(topic, 0, [b"v"] * 10)
        status = await copy(
            config_without_zookeeper(topic, old, target, topic),
            new_session=partial(CopySession, release_s=0.1),
        )
    assert (status.records, status.sessions) == (10, 1)
    assert hung
