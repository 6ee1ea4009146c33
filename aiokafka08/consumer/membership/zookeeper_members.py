"""Wait until a group has no members in ZooKeeper, before a member joins it at its broker.

Brokers from 0.9 on coordinate groups, but know nothing of the members in ZooKeeper: the Scala
consumers, and this client's consumers that began on 0.8. If a group has both, each partition is
read by a member of either kind. `BrokerGroup` waits here if `zookeeper_connect` is given.
"""

from __future__ import annotations

import asyncio

from aiokafka08 import environment
from aiokafka08.consumer.config import ConsumerConfig
from aiokafka08.errors import KafkaError, KafkaUnavailableError
from aiokafka08.telemetry import GroupJoinFailed, Telemetry
from aiokafka08.zookeeper.groups import members_of
from aiokafka08.zookeeper.session import ZookeeperSession


async def wait_until_left(
    config: ConsumerConfig, group: str, connect: str, telemetry: Telemetry
) -> None:
    """Return as soon as the group has no member in ZooKeeper.

    A member that crashed is in ZooKeeper until its session ends. So there are
    `rebalance_max_retries` attempts, with `rebalance_backoff_ms` between them.

    Args:
        group: the group's name.
        connect: "host:port,host:port/chroot".
        telemetry: is told each failed attempt.

    Raises:
        KafkaUnavailableError: members are left, which the text names; or ZooKeeper can't be asked.
    """
    reason = ""
    for attempt in range(config.rebalance_max_retries):
        if attempt:
            await asyncio.sleep(config.rebalance_backoff_s)
        try:
            members = await _members(connect, group, config.session_timeout_s)
        except KafkaError as error:
            if not (error.retriable or isinstance(error, KafkaUnavailableError)):
                raise
            reason = (
                f"{error}. So it isn't known whether the group has members there. If none is left, "
                "leave out zookeeper_connect"
            )
        else:
            if not members:
                return
            reason = (
                f"it has members in ZooKeeper, {', '.join(members)}. They don't see the members "
                "that brokers coordinate, so both would read all partitions. Stop them first"
            )
        telemetry.emit(GroupJoinFailed(group, reason))
    raise KafkaUnavailableError(
        f"group {group!r}: not joined after rebalance_max_retries={config.rebalance_max_retries} "
        f"tries: {reason}"
    )


async def _members(connect: str, group: str, timeout_s: float) -> list[str]:
    session = ZookeeperSession(connect, "aiokafka08.consumer.kazoo")
    request: asyncio.Future[list[str]] | None = None
    try:
        client = await session.open(timeout_s)
        request = asyncio.ensure_future(
            environment.run_in_thread(members_of, client, connect, group, timeout_s)
        )
        return await asyncio.shield(request)
    finally:
        await session.close()
        if request is not None:  # it can't be cancelled; without a session it soon ends
            await asyncio.gather(request, return_exceptions=True)
