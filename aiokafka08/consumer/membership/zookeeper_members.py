"""Look for the members that a group has in ZooKeeper, before this member joins it at a broker.

Brokers from 0.9 on know nothing of the members in ZooKeeper: the Scala consumers, and this client's
consumers that began on 0.8. If a group has both kinds of members, each partition is read twice.
"""

from __future__ import annotations

import asyncio

from aiokafka08 import environment
from aiokafka08._core.zookeeper.cluster_check import ClusterZookeeper
from aiokafka08._core.zookeeper.group_nodes import members_of
from aiokafka08._core.zookeeper.session import ZookeeperSession
from aiokafka08.consumer.config import ConsumerConfig
from aiokafka08.errors import KafkaError, KafkaUnavailableError
from aiokafka08.telemetry import GroupJoinFailed, Telemetry


class ZookeeperMembers:
    """Checks whether a group still has members in ZooKeeper.

    `telemetry` gets an event for each check that finds members, or fails.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        group: str,
        zookeeper: ClusterZookeeper,
        telemetry: Telemetry,
    ) -> None:
        self._config = config
        self._group = group
        self._zookeeper = zookeeper
        self._telemetry = telemetry
        self._looks = 0
        self._began_at = 0.0
        self._reason = ""

    async def have_left(self) -> bool:
        if not self._looks:
            self._began_at = asyncio.get_running_loop().time()
        self._looks += 1
        try:
            members = await self._read()
        except KafkaError as error:
            if not (error.retriable or isinstance(error, KafkaUnavailableError)):
                raise
            self._reason = (
                f"{error}. So it isn't known whether the group has members there. If none is left, "
                "leave out zookeeper_connect"
            )
        else:
            if not members:
                return True
            self._reason = (
                f"it has members in ZooKeeper, {', '.join(members)}. They don't see the members "
                "that brokers coordinate, so both would read all partitions. Stop them first; one "
                "that has crashed stays until its session ends"
            )
        self._telemetry.emit(GroupJoinFailed(self._group, self._reason))
        return False

    def refusal(self) -> KafkaUnavailableError | None:
        """Return the error for the user after enough checks, and reset their count; None before."""
        config = self._config
        waited_s = asyncio.get_running_loop().time() - self._began_at
        # A member that crashed is in ZooKeeper until its session ends.
        least_s = config.session_timeout_s + 2 * config.rebalance_backoff_s
        if self._looks < config.rebalance_max_retries or waited_s < least_s:
            return None
        tries, self._looks = self._looks, 0
        return KafkaUnavailableError(
            f"group {self._group!r}: not joined in {waited_s:.0f} s, {tries} tries "
            f"(rebalance_max_retries={config.rebalance_max_retries}, session_timeout_ms="
            f"{config.session_timeout_s * 1000:.0f}): {self._reason}"
        )

    async def _read(self) -> list[str]:
        timeout_s = self._config.session_timeout_s
        session = ZookeeperSession(self._zookeeper, "aiokafka08.consumer.kazoo")
        request: asyncio.Future[list[str]] | None = None
        try:
            client = await session.open(timeout_s)
            request = asyncio.ensure_future(
                environment.run_in_thread(
                    members_of, client, self._zookeeper.shown, self._group, timeout_s
                )
            )
            return await asyncio.shield(request)
        finally:
            await session.close()
            if request is not None:  # it can't be cancelled; without a session it soon ends
                await asyncio.gather(request, return_exceptions=True)
