"""A ZooKeeper without brokers, for tests of what is written there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokafka08._core.zookeeper.cluster_check import ClusterZookeeper

if TYPE_CHECKING:
    from kazoo.client import KazooClient


class UncheckedZookeeper(ClusterZookeeper):
    """Accept any ZooKeeper.

    Args:
        connect: "host:port,host:port/chroot".
    """

    def __init__(self, connect: str) -> None:
        self.connect = connect

    async def prepare(self, timeout_s: float) -> None:
        """Do nothing: there are no brokers."""

    def verify(self, client: KazooClient, timeout_s: float) -> bool:
        """Return True."""
        return True
