"""The nodes of a group in ZooKeeper, and members of this package."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from aiokafka08.errors import KafkaUnavailableError
from tests.brokers import RealCluster
from tests.consumer.membership.group_harness import PARTITIONS, CollectingMember, eventually
from tests.support.clients import OpenConsumer
from tests.support.names import unique_name


class Group:
    """The nodes of one group and topic, read by a session of the test."""

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
        """Return the committed offset of each partition, 0 if there is none."""
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
        """Wait until so many members own all partitions, each an equal share."""
        await eventually(lambda: self.is_shared(members), f"equal shares of {members} members")


def new_member(cluster: RealCluster, group: Group, **options: Any) -> CollectingMember:
    """Return a member that commits every 100 ms, and continues after a failed rebalance."""
    consumer = OpenConsumer(group.topic, **{**options_for(cluster, group.name), **options})
    return CollectingMember(consumer, ignored=(KafkaUnavailableError,))


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


async def end_session(cluster: RealCluster, consumer: OpenConsumer) -> None:
    """End a consumer's session: connect with its session id and close the session."""
    membership: Any = consumer.engine.membership
    client = await membership._session.client()
    thief = KazooClient(cluster.zookeeper_connect, client_id=client.client_id)
    await asyncio.to_thread(thief.start)
    await asyncio.to_thread(thief.stop)
    await asyncio.to_thread(thief.close)
