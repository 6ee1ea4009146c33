"""A ZooKeeper without brokers, for tests of what is written there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from aiokafka08._core.zookeeper.cluster_check import ClusterZookeeper
from aiokafka08._core.zookeeper.security import OPEN

if TYPE_CHECKING:
    from kazoo.client import KazooClient


T = TypeVar("T")


class UncheckedZookeeper(ClusterZookeeper):
    """Accept any ZooKeeper.

    Args:
        connect: "host:port,host:port/chroot".
    """

    def __init__(self, connect: str) -> None:
        self.connect = self.shown = connect
        self.security = OPEN

    async def run(self, work: Callable[[], Awaitable[T]], timeout_s: float) -> T:
        """Run the work: there are no brokers to learn."""
        return await work()

    def verify(self, client: KazooClient, timeout_s: float) -> None:
        """Accept the ZooKeeper."""
