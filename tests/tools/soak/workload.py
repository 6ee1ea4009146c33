"""A producer and a group of two members on one cluster, whose brokers are killed in turn.

Messages are numbered, and what is kept about them is bounded: the numbers on their way, and those
that are acknowledged and haven't been read.

Invariant: an acknowledged message is read by the group, once or more.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Any

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka08.errors import KafkaError
from tests.brokers.cluster import RealCluster

PARTITIONS = 4
MEMBERS = 2
TOPIC = "soak"
SAFE = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}
_OUTSTANDING = 100
"""How many messages of a partition may be on their way."""
_PAUSE_S = 0.02
_DOWN_S = 5.0
_DRAIN_S = 120.0


@dataclass
class Counts:
    """What has happened so far."""

    acknowledged: int = 0
    failed: int = 0
    read: int = 0
    repeated: int = 0
    errors: int = 0
    kills: int = 0


@dataclass
class Ledger:
    """The numbers of one partition's messages that aren't done."""

    on_their_way: set[int] = field(default_factory=set)
    read_early: set[int] = field(default_factory=set)
    unread: set[int] = field(default_factory=set)

    def acknowledge(self, number: int) -> None:
        """Note that a message is stored."""
        self.on_their_way.remove(number)
        if number in self.read_early:
            self.read_early.remove(number)
        else:
            self.unread.add(number)

    def fail(self, number: int) -> None:
        """Note that nobody knows whether a message is stored."""
        self.on_their_way.remove(number)
        self.read_early.discard(number)

    def read(self, number: int) -> bool:
        """Note that the group got a message; return whether for the first time."""
        if number in self.unread:
            self.unread.remove(number)
            return True
        if number in self.on_their_way and number not in self.read_early:
            self.read_early.add(number)
            return True
        return False


class Workload:
    """The clients of one cluster; they run inside `running()`.

    Args:
        cluster: it has started.
        name: of the topic and the group.
    """

    def __init__(self, cluster: RealCluster, name: str = TOPIC) -> None:
        self.cluster = cluster
        self.counts = Counts()
        self._topic = name
        self._ledgers = [Ledger() for _ in range(PARTITIONS)]
        self._stop = asyncio.Event()

    async def create_topic(self) -> None:
        """Create the topic; with three brokers no kill may lose a message."""
        replicas = len(self.cluster.nodes)
        config = SAFE if replicas >= 3 else {}
        await asyncio.to_thread(
            self.cluster.create_topic,
            self._topic,
            partitions=PARTITIONS,
            replication_factor=replicas,
            config=config,
        )

    @contextlib.asynccontextmanager
    async def running(self) -> Any:
        """Run the clients during the body; then wait until the group has read all, and stop."""
        async with contextlib.AsyncExitStack() as stack:
            producer = await stack.enter_async_context(self._producer())
            members = [
                await stack.enter_async_context(self._member(number)) for number in range(MEMBERS)
            ]
            senders = [
                asyncio.create_task(self._send(producer, number)) for number in range(PARTITIONS)
            ]
            receivers = [asyncio.create_task(self._receive(member)) for member in members]
            try:
                yield
                self._stop.set()
                await asyncio.gather(*senders)
                await self._drain()
            finally:
                for task in (*senders, *receivers):
                    task.cancel()
                ends = await asyncio.gather(*senders, *receivers, return_exceptions=True)
                for end in ends:
                    if isinstance(end, Exception):
                        raise end

    async def kill_and_restart(self) -> None:
        """Kill the next broker by SIGKILL, and start it again after a while."""
        nodes = sorted(self.cluster.nodes)
        node = nodes[self.counts.kills % len(nodes)]
        self.counts.kills += 1
        await asyncio.to_thread(self.cluster.kill, node)
        await asyncio.sleep(_DOWN_S)
        await asyncio.to_thread(self.cluster.restart, node)
        if len(nodes) > 1:
            for partition in range(PARTITIONS):
                await asyncio.to_thread(
                    self.cluster.wait_isr, self._topic, partition, nodes, timeout=120.0
                )

    @property
    def unread(self) -> int:
        """How many acknowledged messages the group hasn't read."""
        return sum(len(ledger.unread) for ledger in self._ledgers)

    def _producer(self) -> AIOKafkaProducer:
        return AIOKafkaProducer(
            bootstrap_servers=self.cluster.bootstrap_servers,
            client_id=f"soak-{self.cluster.version}",
            acks="all",
            linger_ms=5,
            compression_type="gzip",
            request_timeout_ms=10_000,
            start_timeout_ms=60_000,
        )

    def _member(self, number: int) -> AIOKafkaConsumer[Any, Any]:
        zookeeper = self.cluster.version.startswith("0.8")
        consumer: AIOKafkaConsumer[Any, Any] = AIOKafkaConsumer(
            bootstrap_servers=self.cluster.bootstrap_servers,
            zookeeper_connect=self.cluster.zookeeper_connect if zookeeper else None,
            client_id=f"soak-{self.cluster.version}-{number}",
            group_id=self._topic,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            rebalance_max_retries=30,
        )
        consumer.subscribe([self._topic])
        return consumer

    async def _send(self, producer: AIOKafkaProducer, partition: int) -> None:
        ledger = self._ledgers[partition]
        room = asyncio.Semaphore(_OUTSTANDING)
        outcomes: set[asyncio.Task[None]] = set()
        for number in itertools.count():
            if self._stop.is_set():
                break
            await room.acquire()
            ledger.on_their_way.add(number)
            try:
                delivery = await producer.send(self._topic, b"%d" % number, partition=partition)
            except KafkaError:
                room.release()
                self._fail(ledger, number)
                continue
            task = asyncio.create_task(self._await_outcome(ledger, number, delivery, room))
            outcomes.add(task)
            task.add_done_callback(outcomes.discard)
            await asyncio.sleep(_PAUSE_S)
        await asyncio.gather(*outcomes)

    async def _await_outcome(
        self, ledger: Ledger, number: int, delivery: Awaitable[Any], room: asyncio.Semaphore
    ) -> None:
        try:
            await delivery
        except KafkaError:
            self._fail(ledger, number)
        else:
            self.counts.acknowledged += 1
            ledger.acknowledge(number)
        finally:
            room.release()

    def _fail(self, ledger: Ledger, number: int) -> None:
        self.counts.failed += 1
        ledger.fail(number)

    async def _receive(self, consumer: AIOKafkaConsumer[Any, Any]) -> None:
        while True:
            try:
                taken = await consumer.getmany(timeout_ms=500)
                for records in taken.values():
                    for record in records:
                        self.counts.read += 1
                        is_new = self._ledgers[record.partition].read(int(record.value or b""))
                        self.counts.repeated += not is_new
                if taken:
                    await consumer.commit()
            except KafkaError:
                self.counts.errors += 1
                await asyncio.sleep(0.5)

    async def _drain(self) -> None:
        deadline = asyncio.get_running_loop().time() + _DRAIN_S
        while self.unread:
            if asyncio.get_running_loop().time() > deadline:
                raise AssertionError(
                    f"{self.cluster.version}: {self.unread} acknowledged messages weren't read"
                )
            await asyncio.sleep(0.1)
