"""A running bridge rides out outages of both clusters, and of ZooKeeper, that last for a while.

A producer writes before, during and after an outage, as far as the source takes messages. In the
end the target has each of them once, in order. The time that passes is the subject of these tests.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from aiokafka08 import AIOKafkaProducer
from aiokafka08.bridge.copy.status import CopyStatus
from aiokafka08.structs import TopicPartition
from tests.bridge.clusters import Message, TargetReader, bridge_config, running_bridge
from tests.brokers import RealCluster
from tests.brokers.fixtures import BrokerClusters
from tests.support.waiting import until

pytestmark = [pytest.mark.real, pytest.mark.full, pytest.mark.timeout(480)]

SETTINGS = "[copy]\ntransaction_s = 0.2\nrefresh_s = 5\n"
PAUSE_S = 0.1
RECOVERY_S = 150.0
"""How long the copy may take to go on, on a busy machine."""


class Writing:
    """A producer that writes a message to each of some partitions every `PAUSE_S` seconds.

    Attributes:
        written: What the source has acknowledged, by partition.
        between: Locks by partition; while one is held, no message is on its way. A message whose
            acknowledgement is lost with its leader would be written twice.
    """

    def __init__(self, source: RealCluster, topic: str, partitions: int) -> None:
        self._source, self._topic = source, topic
        self.written: dict[int, list[Message]] = {number: [] for number in range(partitions)}
        self.between: dict[int, asyncio.Lock] = {number: asyncio.Lock() for number in self.written}
        self._ended = asyncio.Event()

    @property
    def count(self) -> int:
        """How many messages the source has acknowledged."""
        return sum(map(len, self.written.values()))

    async def run(self, partition: int) -> None:
        """Write until `end()`."""
        written = self.written[partition]
        async with AIOKafkaProducer(
            bootstrap_servers=self._source.bootstrap_servers,
            acks="all",
            request_timeout_ms=120_000,
            delivery_timeout_ms=300_000,
        ) as producer:
            while not self._ended.is_set():
                one = Message(b"%d" % len(written), b"v" * 50)
                async with self.between[partition]:
                    await producer.send_and_wait(
                        self._topic, one.value, one.key, partition=partition
                    )
                    written.append(one)
                await asyncio.sleep(PAUSE_S)

    def end(self) -> None:
        """End the writing behind the messages on their way."""
        self._ended.set()


def copied_count(status: CopyStatus) -> int:
    """Return how many messages are committed; a failed worker may not have told of its last."""
    return sum(one.position for one in status.partitions.values())


@asynccontextmanager
async def copied_topic(
    source: RealCluster, target: RealCluster, topic: str, partitions: int = 1
) -> AsyncIterator[tuple[Writing, CopyStatus]]:
    """Run a bridge and producers; at the end all that was written must be copied."""
    writing = Writing(source, topic, partitions)
    config = bridge_config(topic, source, target, topic, SETTINGS)
    async with running_bridge(config) as (status, running):
        tasks = [asyncio.create_task(writing.run(number)) for number in range(partitions)]
        try:
            await until(lambda: status.records >= 10 * partitions, "the copy runs", 60)
            yield writing, status
            writing.end()
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await until(
            lambda: running.done() or copied_count(status) == writing.count, "the rest is copied",
            RECOVERY_S,
        )  # fmt: skip
        assert not running.done()
        assert not status.stopped
        assert status.problem is None


@pytest.mark.parametrize("outage", ["killed", "paused"])
async def test_target_away_for_30_s_is_ridden_out(
    outage: str,
    source: RealCluster,
    target: RealCluster,
    reader: TargetReader,
    unique_topic: Callable[..., str],
) -> None:
    topic = unique_topic("target")
    await asyncio.to_thread(source.create_topic, topic)
    (node,) = target.nodes
    async with copied_topic(source, target, topic) as (writing, status):
        await asyncio.to_thread(target.kill if outage == "killed" else target.pause, node)
        before = writing.count
        await asyncio.sleep(30)
        assert status.records <= before
        assert writing.count >= before + 50
        await asyncio.to_thread(target.restart if outage == "killed" else target.resume, node)
        returned = writing.count
        await until(lambda: status.records > returned, "the copy goes on", RECOVERY_S)
    assert await asyncio.to_thread(reader.messages, topic) == writing.written


async def test_source_leader_away_for_60_s_is_ridden_out(
    broker_clusters: BrokerClusters,
    target: RealCluster,
    reader: TargetReader,
    unique_topic: Callable[..., str],
) -> None:
    """The partition of the other broker is copied meanwhile."""
    source = await asyncio.to_thread(broker_clusters.get, "0.8.2.2", 2)
    topic = unique_topic("leader")
    await asyncio.to_thread(source.create_topic, topic, assignment={0: [0], 1: [1]})
    gone, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with copied_topic(source, target, topic, 2) as (writing, status):
        of = status.partitions
        async with writing.between[0]:
            count = len(writing.written[0])
            await until(lambda: of[gone].position == count, "all that is written is copied", 60)
            await asyncio.to_thread(source.kill, 0)
        await asyncio.to_thread(source.expire, 0)
        killed = of[other].position
        await asyncio.sleep(60)
        assert of[other].position >= killed + 100
        position = of[gone].position
        assert position == len(writing.written[0])
        await asyncio.to_thread(source.restart, 0)
        await until(lambda: of[gone].position > position + 10, "the copy goes on", RECOVERY_S)
    assert await asyncio.to_thread(reader.messages, topic) == writing.written


async def test_zookeeper_away_for_30_s_is_ridden_out(
    target: RealCluster, reader: TargetReader, unique_topic: Callable[..., str]
) -> None:
    """The brokers go on without it, and so does the copy; it only finds no new topics."""
    topic = unique_topic("zookeeper")
    source = RealCluster("0.8.2.2")
    await asyncio.to_thread(source.start)
    try:
        await asyncio.to_thread(source.create_topic, topic)
        async with copied_topic(source, target, topic) as (writing, status):
            await asyncio.to_thread(source.stop_zookeeper)
            before = writing.count
            await asyncio.sleep(30)
            assert writing.count >= before + 50
            assert status.records >= before + 50
            await asyncio.to_thread(source.start_zookeeper)
            late = f"{topic}-late"
            await asyncio.to_thread(source.create_topic, late, timeout=120)
            returned = writing.count
            await until(lambda: status.records > returned, "the copy goes on", RECOVERY_S)
        assert status.sessions == 1
    finally:
        await asyncio.to_thread(source.close)
    assert await asyncio.to_thread(reader.messages, topic) == writing.written
