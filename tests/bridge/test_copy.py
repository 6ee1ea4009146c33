"""A copy from real brokers to a real 4.1.0, read back by a client that isn't ours."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest

from aiokafka08.bridge.config import BridgeConfig
from aiokafka08.bridge.copy.status import CopyStatus
from aiokafka08.bridge.daemon import run_bridge
from aiokafka08.bridge.errors import BridgeFencedError
from aiokafka08.bridge.sink.sink import BridgeRun, TransactionSink
from aiokafka08.bridge.target.own_topics import create_own_topics
from aiokafka08.bridge.target.target_cluster import Target
from aiokafka08.bridge.target.topic_plan import LEAST_MESSAGE_BYTES
from aiokafka08.structs import TopicPartition
from tests.bridge.clusters import MESSAGES, Message, TargetReader, bridge_config, write
from tests.brokers import RealCluster
from tests.support.waiting import until

pytestmark = [pytest.mark.real, pytest.mark.timeout(180), pytest.mark.each_python]


async def test_copy_is_equal_and_goes_on_where_it_ended(
    source: RealCluster,
    target: RealCluster,
    reader: TargetReader,
    unique_topic: Callable[..., str],
) -> None:
    """Keys, values, nulls, order and partition; each message once, over two runs."""
    topic = unique_topic("copy")
    source.create_topic(topic, partitions=3)
    config = bridge_config(topic, source, target, topic)
    written: dict[int, list[Message]] = {0: [*MESSAGES], 1: [Message(b"1", b"one")] * 3, 2: []}
    await write(source, topic, written)
    first = CopyStatus()
    await run_bridge(config, first, until_caught_up=True)
    assert await asyncio.to_thread(reader.messages, topic) == written
    more = {0: MESSAGES, 2: [Message(b"2", b"two")]}
    await write(source, topic, more)
    second = CopyStatus()
    await run_bridge(config, second, until_caught_up=True)
    for partition, messages in more.items():
        written[partition] += messages
    assert await asyncio.to_thread(reader.messages, topic) == written
    assert (first.records, second.records) == (8, 6)
    assert second.lag() == 0
    assert second.partitions[TopicPartition(topic, 0)].position == 10


async def test_newer_start_fences_older_one(
    source: RealCluster,
    target: RealCluster,
    reader: TargetReader,
    unique_topic: Callable[..., str],
) -> None:
    """The older process ends with the error for exit code 3, and no message is there twice."""
    topic = unique_topic("fence")
    source.create_topic(topic)
    config = bridge_config(topic, source, target, topic, "[copy]\ntransaction_s = 0.2\n")
    await write(source, topic, {0: MESSAGES})
    old, new = CopyStatus(), CopyStatus()
    older = asyncio.create_task(run_bridge(config, old))
    try:
        await until(lambda: old.records == 5, "the older start copies", 60)
        newer = asyncio.create_task(run_bridge(config, new))
        await until(lambda: new.problem is None, "the newer start has claimed the bridge", 60)
        await write(source, topic, {0: MESSAGES})
        with pytest.raises(BridgeFencedError, match="a newer start has taken over"):
            await asyncio.wait_for(older, 60)
        await until(lambda: new.records == 5, "the newer start copies", 60)
        newer.cancel()
        await asyncio.gather(newer, return_exceptions=True)
    finally:
        older.cancel()
        await asyncio.gather(older, return_exceptions=True)
    assert await asyncio.to_thread(reader.messages, topic) == {0: MESSAGES * 2}


def zombie(config: BridgeConfig, number: int, copy: TopicPartition) -> Any:
    """Return a producer of an older start, with what it has copied in an open transaction."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": config.target.bootstrap,
            "transactional.id": config.transactional_id(number),
            "log_level": 0,
        }
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    for message in MESSAGES:
        producer.produce(copy.topic, message.value, message.key, copy.partition)
    assert producer.flush(30) == 0
    group = confluent_kafka.Consumer(
        {"bootstrap.servers": config.target.bootstrap, "group.id": config.position_group}
    )
    position = confluent_kafka.TopicPartition(*copy, 2 * len(MESSAGES))
    producer.send_offsets_to_transaction([position], group.consumer_group_metadata(), 30)
    group.close()
    return producer


@pytest.mark.full
async def test_fewer_producers_end_what_older_ones_have_open(
    source: RealCluster,
    target: RealCluster,
    reader: TargetReader,
    unique_topic: Callable[..., str],
) -> None:
    """A start with one producer fences the fourth of an older start, which commits too late."""
    topic = unique_topic("fewer")
    source.create_topic(topic)
    four = bridge_config(topic, source, target, topic, "[copy]\nproducers = 4\n")
    await write(source, topic, {0: MESSAGES})
    await run_bridge(four, CopyStatus(), until_caught_up=True)
    await write(source, topic, {0: MESSAGES})
    producer = await asyncio.to_thread(zombie, four, 3, TopicPartition(topic, 0))
    one = bridge_config(topic, source, target, topic, "[copy]\nproducers = 1\n")
    status = CopyStatus()
    await run_bridge(one, status, until_caught_up=True)
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        await asyncio.to_thread(producer.commit_transaction, 30)
    assert caught.value.args[0].name() in ("_FENCED", "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED")
    assert await asyncio.to_thread(reader.messages, topic) == {0: MESSAGES * 2}
    assert status.records == len(MESSAGES)


@pytest.mark.full
async def test_older_start_does_not_take_the_bridge_back(
    source: RealCluster, target: RealCluster, unique_topic: Callable[..., str]
) -> None:
    """After an outage the older process begins anew: it ends, and the newer one isn't fenced."""
    config = bridge_config(unique_topic("claims"), source, target, "none")
    connection = Target(config)
    older, newer = BridgeRun(), BridgeRun()
    sinks: list[TransactionSink] = []

    async def start(run: BridgeRun) -> TransactionSink:
        sinks.append(TransactionSink(config, connection, run))
        await sinks[-1].start(LEAST_MESSAGE_BYTES)
        return sinks[-1]

    try:
        await create_own_topics(config, connection, [], BridgeRun())
        assert not (await start(older)).has_run
        await start(older)  # its own claim is the last one
        current = await start(newer)
        assert current.has_run
        with pytest.raises(BridgeFencedError):
            await start(older)
        await current.check_owner()
    finally:
        for one in sinks:
            await one.close()
        await connection.close()
