"""A group in ZooKeeper as ZooKeeper has it, and members of ours."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from aiokafka08 import AIOKafkaConsumer
from aiokafka08.errors import KafkaUnavailableError
from tests.brokers import RealCluster
from tests.membership.group_harness import PARTITIONS, Taking, eventually
from tests.names import unique_name


class Group:
    """A group as ZooKeeper has it."""

    def __init__(self, registry: KazooClient, cluster: RealCluster) -> None:
        self.name, self.topic = unique_name("g"), unique_name("t")
        self.registry = registry
        cluster.create_topic(self.topic, PARTITIONS)

    @property
    def root(self) -> str:
        return f"/consumers/{self.name}"

    def members(self) -> list[str]:
        try:
            return sorted(self.registry.get_children(f"{self.root}/ids"))
        except NoNodeError:
            return []

    def owners(self) -> dict[int, str]:
        found = {}
        for number in range(PARTITIONS):
            try:
                data, _ = self.registry.get(f"{self.root}/owners/{self.topic}/{number}")
            except NoNodeError:
                continue
            found[number] = data.decode().rpartition("-")[0]
        return found

    def offsets(self) -> list[int]:
        """What is committed, 0 where nothing is."""
        found = []
        for number in range(PARTITIONS):
            try:
                data, _ = self.registry.get(f"{self.root}/offsets/{self.topic}/{number}")
            except NoNodeError:
                data = b"0"
            found.append(int(data))
        return found

    def is_shared(self, members: int) -> bool:
        owners = self.owners()
        shares = Counter(owners.values())
        return (
            len(owners) == PARTITIONS
            and sorted(shares) == self.members()
            and set(shares.values()) == {PARTITIONS // members}
        )

    async def shared(self, members: int) -> None:
        """Wait until so many have it, all partitions owned, each a fair share."""
        await eventually(lambda: self.is_shared(members), f"sharing by {members}")


def ours(cluster: RealCluster, group: Group, **options: Any) -> Taking:
    """A member that commits as it goes; a round that fails is told once, and it goes on trying."""
    consumer = AIOKafkaConsumer(group.topic, **{**options_for(cluster, group.name), **options})
    return Taking(consumer, passing=(KafkaUnavailableError,))


def options_for(cluster: RealCluster, group: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": cluster.bootstrap_servers,
        "zookeeper_connect": cluster.zookeeper_connect,
        "group_id": group,
        "session_timeout_ms": 4000,
        "rebalance_backoff_ms": 300,
        "rebalance_max_retries": 30,
        "auto_offset_reset": "earliest",
        "auto_commit_interval_ms": 100,
    }


async def end_session(cluster: RealCluster, consumer: AIOKafkaConsumer) -> None:
    """Whoever connects as a session and closes it ends it."""
    membership: Any = consumer._engine._membership
    client = await membership._session.client()
    thief = KazooClient(cluster.zookeeper_connect, client_id=client.client_id)
    await asyncio.to_thread(thief.start)
    await asyncio.to_thread(thief.stop)
    await asyncio.to_thread(thief.close)
