"""Brokers of a real 4.1.0 and gateways die while old clients work through them: nothing is lost.

`aiokafka08.testing.history` judges what each client did: an acknowledged message is in the log, in
the order of its producer, and twice only if its producer has reported a retry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    ElectionType,
    KafkaException,
)
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kazoo.client import KazooClient

from tests._tools.gateway.foreign_work import ForeignWork, Program
from tests._tools.gateway.java_work import JavaWork, ScalaWork
from tests._tools.gateway.processes import Gateways
from tests.brokers.cluster import RealCluster
from tests.brokers.fixtures import require_real_brokers, zookeeper_alone
from tests.support.delivery_check import DeliveryCheck
from tests.support.old_packages import kafka_python_2
from tests.support.waiting import eventually

pytestmark = pytest.mark.real

BROKERS = 3
PARTITIONS = 3
SAFE = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}
PROGRESS_S = 180
"""The longest that a client may need to send on; a busy machine slows down all elections."""
PATIENT = {
    # 3 and 2 s otherwise: beside many other tests brokers would lose their sessions by themselves.
    "broker.session.timeout.ms": 6000,
    "controller.quorum.fetch.timeout.ms": 4000,
}

Work = DeliveryCheck | ForeignWork


class Front:
    """Three brokers behind gateways, and the topics of clients.

    Attributes:
        groups: the groups whose offsets are in Kafka, with their topics.
        groups_in_zookeeper: those whose offsets are in ZooKeeper.
    """

    def __init__(
        self, cluster: RealCluster, gateways: Gateways, folder: Path, zookeeper: str | None
    ) -> None:
        self.cluster = cluster
        self.gateways = gateways
        self.folder = folder
        self.zookeeper = zookeeper
        self.groups: dict[str, str] = {}
        self.groups_in_zookeeper: dict[str, str] = {}
        self._topics: list[str] = []
        self._settings: dict[str, str | int | float] = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "log_level": 2,
            "socket.timeout.ms": 3000,  # so it soon leaves a broker that is paused
        }
        self._admin = AdminClient(self._settings)

    async def create(self, topic: str) -> str:
        """Create a topic, whose leaders are known when this returns."""
        made = self._admin.create_topics([NewTopic(topic, PARTITIONS, BROKERS, config=SAFE)])
        await asyncio.to_thread(made[topic].result, 60)
        self._topics.append(topic)
        await self.until_in_sync()
        return topic

    async def leader(self, partition: int) -> int:
        """Return who leads a partition of the first topic."""
        return int((await self._partitions(self._topics[0]))[partition].leader)

    async def until_in_sync(self) -> None:
        """Wait until each broker has each partition."""
        await self._until(lambda one: len(one.isrs) == BROKERS and one.leader >= 0)

    async def until_led_without(self, node: int) -> None:
        """Wait until other brokers lead all partitions."""
        await self._until(lambda one: one.leader not in (node, -1))

    async def move_leaders_back(self) -> None:
        """Let the first replica of each partition lead it, as it did in the beginning."""
        places = [Place(name, number) for name in self._topics for number in range(PARTITIONS)]

        async def elect() -> None:
            elected = self._admin.elect_leaders(ElectionType.PREFERRED, places)
            await asyncio.to_thread(elected.result, 60)

        # Again and again: a broker that is late with a heartbeat loses what it leads.
        await self._until(lambda one: one.leader == one.replicas[0], elect)

    async def until_committed(self) -> None:
        """Wait until each group has committed the end of each partition: its lag is 0."""
        for group, topic in self.groups.items():
            places = [Place(topic, number) for number in range(PARTITIONS)]
            ends = await asyncio.to_thread(self._ends, places)

            committed: dict[int, int] = {}

            async def is_at_end() -> bool:
                asked = [ConsumerGroupTopicPartitions(group, places)]  # noqa: B023
                (found,) = self._admin.list_consumer_group_offsets(asked).values()
                partitions = (await asyncio.to_thread(found.result, 60)).topic_partitions
                committed.update((one.partition, one.offset) for one in partitions)  # noqa: B023
                return committed == ends  # noqa: B023

            try:
                await eventually(is_at_end, 60, 0.5)
            except TimeoutError:
                raise AssertionError(f"{group}: {committed} of {ends} are committed") from None
        if self.groups_in_zookeeper:
            await asyncio.to_thread(self._check_zookeeper)

    def _check_zookeeper(self) -> None:
        """Compare what consumers have committed at their end; blocks."""
        client = KazooClient(self.zookeeper, timeout=60)
        client.start(60)
        try:
            for group, topic in self.groups_in_zookeeper.items():
                ends = self._ends([Place(topic, number) for number in range(PARTITIONS)])
                folder = f"/consumers/{group}/offsets/{topic}"
                found = {number: int(client.get(f"{folder}/{number}")[0]) for number in ends}
                assert found == ends
        finally:
            client.stop()
            client.close()

    def _ends(self, places: list[Place]) -> dict[int, int]:
        """Return the end of each partition; blocks."""
        consumer = Consumer({**self._settings, "group.id": "ends"})
        with closing(consumer):
            return {
                one.partition: consumer.get_watermark_offsets(one, timeout=60)[1] for one in places
            }

    async def _partitions(self, topic: str) -> dict[int, Any]:
        found = await asyncio.to_thread(self._admin.list_topics, topic, 5)
        partitions: dict[int, Any] = found.topics[topic].partitions
        return partitions

    async def _until(
        self, condition: Callable[[Any], bool], before: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Wait until it is true for each partition; `before` precedes each look."""

        async def is_true() -> bool:
            try:
                if before is not None:
                    await before()
                found = [await self._partitions(topic) for topic in self._topics]
            except KafkaException:  # the admin has asked a broker that is paused or too busy
                return False
            return all(
                len(one) == PARTITIONS and all(map(condition, one.values())) for one in found
            )

        await eventually(is_true, PROGRESS_S, 0.2)


async def strike(front: Front, works: Sequence[Work], number: int) -> None:
    """Kill a leader, move leaders, pause another one, and kill a gateway; `number` counts rounds.

    A single gateway is started again at once. Of two, clients use the other one meanwhile, which is
    paused behind that.
    """

    async def go_on() -> None:
        await asyncio.gather(*(work.acknowledged(20, timeout=PROGRESS_S) for work in works))

    cluster, gateways = front.cluster, front.gateways
    await go_on()
    killed = await front.leader(0)
    await asyncio.to_thread(cluster.kill, killed)
    await go_on()
    await asyncio.to_thread(cluster.restart, killed)
    await front.until_in_sync()
    await front.move_leaders_back()
    await go_on()
    paused = await front.leader(1)
    await asyncio.to_thread(cluster.pause, paused)
    await front.until_led_without(paused)
    await go_on()
    await asyncio.to_thread(cluster.resume, paused)
    await front.until_in_sync()
    struck = number % len(gateways.ports)
    await asyncio.to_thread(gateways.kill, struck)
    if len(gateways.ports) > 1:
        await go_on()
    await asyncio.to_thread(gateways.start, struck)
    await go_on()
    if len(gateways.ports) > 1:
        other = (number + 1) % len(gateways.ports)
        gateways.pause(other)
        await go_on()
        gateways.resume(other)


async def run_strikes(
    folder: Path,
    rounds: int,
    begin: Callable[[Front, AsyncExitStack], Awaitable[list[Work]]],
    *,
    gateways: int = 1,
    has_zookeeper: bool = False,
) -> None:
    """Let clients work while everything dies `rounds` times, and judge them."""
    require_real_brokers()
    async with AsyncExitStack() as outer:
        zookeeper: str | None = None
        if has_zookeeper:
            (folder / "zookeeper").mkdir()
            server = zookeeper_alone(folder / "zookeeper")
            zookeeper = (await asyncio.to_thread(outer.enter_context, server)).connect
        cluster = await asyncio.to_thread(
            outer.enter_context, RealCluster("4.1.0", BROKERS, PATIENT, start_timeout=180)
        )
        options = ("--zookeeper", zookeeper) if zookeeper else ()
        processes = Gateways(cluster.bootstrap_servers, folder, gateways, *options, brokers=BROKERS)
        outer.enter_context(closing(processes))
        for number in range(gateways):
            await asyncio.to_thread(processes.start, number)
        front = Front(cluster, processes, folder, zookeeper)
        async with AsyncExitStack() as stack:
            works = await begin(front, stack)
            for number in range(rounds):
                await strike(front, works, number)
        for work in works:
            await work.check()
            if isinstance(work, ForeignWork):
                print(work.summary())
        await front.until_committed()


async def own_work(
    front: Front, stack: AsyncExitStack, topic: str, version: str | None, **options: Any
) -> DeliveryCheck:
    """Start this client as of a line of brokers; it is in a group if the line has them."""
    await front.create(topic)
    common = {"api_version": version, "request_timeout_ms": 10_000}
    group = {"group_id": topic, "session_timeout_ms": 6000, "auto_commit_interval_ms": 500}
    if version != "0.8.2":
        front.groups[topic] = topic
    work = DeliveryCheck(
        front.gateways.servers,
        topic,
        PARTITIONS,
        producer={**common, "linger_ms": 20, "compression_type": "snappy"},
        consumer=common if version == "0.8.2" else common | group,
        outstanding=20,
        **options,
    )
    await stack.enter_async_context(work.running(drain_timeout=PROGRESS_S))
    return work


async def foreign_work(
    front: Front, stack: AsyncExitStack, topic: str, client: str, version: str, *path: Path
) -> ForeignWork:
    """Start a producer and a member of another client."""
    await front.create(topic)
    front.groups[f"{topic}-group"] = topic
    servers = front.gateways.servers
    work = ForeignWork(client, version, servers, topic, PARTITIONS, front.folder, *path)
    await stack.enter_async_context(work.running())
    return work


async def java_work(front: Front, stack: AsyncExitStack, topic: str) -> JavaWork:
    """Start Kafka's producer and consumer of 0.10.2.2 in Java."""
    await front.create(topic)
    servers = front.gateways.servers
    work = JavaWork("0.10.2.2", servers, topic, PARTITIONS, front.folder)
    front.groups[work.group] = topic
    await stack.enter_async_context(work.running())
    return work


async def scala_work(front: Front, stack: AsyncExitStack, topic: str) -> ScalaWork:
    """Start Kafka's producer and consumer of 0.8.2.2 in Scala."""
    assert front.zookeeper is not None
    await front.create(topic)
    servers = front.gateways.servers
    work = ScalaWork("0.8.2.2", servers, topic, PARTITIONS, front.folder, front.zookeeper)
    front.groups_in_zookeeper[work.group] = topic
    await until_in_zookeeper(front.zookeeper, topic)
    await stack.enter_async_context(work.running())
    return work


async def until_in_zookeeper(connect: str, topic: str) -> None:
    """Wait until consumers find the partitions of a topic there."""
    client = KazooClient(connect, timeout=60)
    await asyncio.to_thread(client.start, 60)
    last = f"/brokers/topics/{topic}/partitions/{PARTITIONS - 1}/state"
    try:
        await eventually(lambda: asyncio.to_thread(client.exists, last), 60, 0.2)
    finally:
        client.stop()
        client.close()


@pytest.mark.full
@pytest.mark.timeout(900)
async def test_this_client_loses_nothing_when_brokers_and_gateway_die(
    tmp_path: Path, unique_topic: Callable[..., str]
) -> None:
    async def begin(front: Front, stack: AsyncExitStack) -> list[Work]:
        return [await own_work(front, stack, unique_topic("own"), None)]

    await run_strikes(tmp_path, 1, begin)


@pytest.mark.full
@pytest.mark.timeout(900)
async def test_librdkafka_loses_nothing_when_brokers_and_gateway_die(
    tmp_path: Path, unique_topic: Callable[..., str]
) -> None:
    """As for 0.9. It tells of retries by statistics, which may come too late on a busy machine."""

    async def begin(front: Front, stack: AsyncExitStack) -> list[Work]:
        return [
            await foreign_work(front, stack, unique_topic("rd"), "librdkafka", "0.9.0.1"),
        ]

    await run_strikes(tmp_path, 1, begin)


@pytest.mark.full
@pytest.mark.timeout(3600)
async def test_clients_of_all_lines_lose_nothing_in_three_rounds(
    tmp_path: Path, unique_topic: Callable[..., str]
) -> None:
    """One of the groups has two members of this client and one of kafka-python 2.0.2."""
    old = kafka_python_2()

    async def begin(front: Front, stack: AsyncExitStack) -> list[Work]:
        works: list[Work] = [
            await own_work(front, stack, unique_topic("own"), "0.8.2"),
            await own_work(front, stack, unique_topic("own"), "0.9", members=2),
        ]
        shared = unique_topic("shared")
        servers = front.gateways.servers
        member = Program(
            tmp_path / "member.out",
            *("consume", "kafka-python", "0.10.1", servers, shared, shared),
            python_path=old,
        )
        stack.callback(member.stop)
        works.append(await own_work(front, stack, shared, None, members=2, foreign=member))
        for version in ("0.8.2", "0.9", "0.10"):
            topic = unique_topic("py")
            works.append(await foreign_work(front, stack, topic, "kafka-python", version, old))
        topic = unique_topic("py3")
        works.append(await foreign_work(front, stack, topic, "kafka-python", "0.10.1"))
        for version in ("0.9.0.1", "0.10.2.2"):
            topic = unique_topic("rd")
            works.append(await foreign_work(front, stack, topic, "librdkafka", version))
        return works

    await run_strikes(tmp_path, 3, begin)


@pytest.mark.parametrize(
    "rounds",
    [
        pytest.param(3, marks=pytest.mark.timeout(900)),
        pytest.param(20, marks=[pytest.mark.full, pytest.mark.timeout(7200)]),
    ],
)
async def test_two_gateways_lose_nothing_for_scala_java_and_python(
    rounds: int, tmp_path: Path, unique_topic: Callable[..., str]
) -> None:
    """The Scala consumer finds brokers in ZooKeeper, which one of the gateways keeps current."""

    async def begin(front: Front, stack: AsyncExitStack) -> list[Work]:
        return [
            await own_work(front, stack, unique_topic("own"), None),
            await scala_work(front, stack, unique_topic("scala")),
            await java_work(front, stack, unique_topic("java")),
            await foreign_work(
                front, stack, unique_topic("py"), "kafka-python", "0.10", kafka_python_2()
            ),
        ]

    await run_strikes(tmp_path, rounds, begin, gateways=2, has_zookeeper=True)
