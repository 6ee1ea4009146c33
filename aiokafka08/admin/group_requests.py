"""Send ListGroups and DescribeGroups to the brokers that coordinate groups (0.9 and later).

`admin.groups` calls these functions. Groups of 0.8 are in ZooKeeper: `zookeeper.groups`.

Invariant: a retriable error is retried until `request_timeout_ms` is over, any other is raised at
once. A response without the group is a retriable error, not a dead group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from aiokafka08.errors import KafkaError, KafkaTimeoutError, broker_error
from aiokafka08.net.coordinator_lookup import CoordinatorLookup
from aiokafka08.net.retry import retry
from aiokafka08.net.router import Router
from aiokafka08.protocol.api import DescribedGroup, DescribeGroupsRequest, ListGroupsRequest

T = TypeVar("T")


async def list_groups(router: Router, node_id: int) -> list[tuple[str, str]]:
    """Return name and protocol type of each group that this broker coordinates.

    Raises:
        KafkaError: the broker doesn't respond in time, or refuses.
    """

    async def attempt(timeout_s: float) -> list[tuple[str, str]] | KafkaError:
        response = await router.request(ListGroupsRequest(), node_id=node_id, timeout_s=timeout_s)
        if response.error_code:
            return broker_error(response.error_code, f"groups of node {node_id}")
        return [(one.group, one.protocol_type) for one in response.groups]

    return await _retry(router, attempt)


async def describe_group(
    router: Router, group: str, coordinator_id: int | None = None
) -> tuple[int, DescribedGroup]:
    """Return the node id of a group's coordinator, and the group with its members.

    Args:
        coordinator_id: the coordinator's node id; None to look it up.

    Raises:
        KafkaError: the coordinator doesn't respond in time, or refuses.
    """
    coordinator = CoordinatorLookup(router, group, coordinator_id)

    async def attempt(timeout_s: float) -> tuple[int, DescribedGroup] | KafkaError:
        node_id = await coordinator.node_id(timeout_s=timeout_s)
        try:
            response = await router.request(
                DescribeGroupsRequest([group]), node_id=node_id, timeout_s=timeout_s
            )
        except KafkaError:
            coordinator.invalidate(node_id)
            raise
        for one in response.groups:
            if one.group == group and not one.error_code:
                return node_id, one
            if one.group == group:
                coordinator.invalidate(node_id)
                return broker_error(one.error_code, f"group {group!r}")
        return KafkaTimeoutError(f"group {group!r}: node {node_id} left it out of its response")

    return await _retry(router, attempt)


async def _retry(router: Router, attempt: Callable[[float], Awaitable[T | KafkaError]]) -> T:
    limit_s = router.config.request_timeout_s
    return await retry(
        attempt,
        deadline=asyncio.get_running_loop().time() + limit_s,
        backoff=router.config.backoff(at_least_s=0.01),
        timed_out=lambda last: last or KafkaTimeoutError("no response"),
        attempt_s=max(limit_s / 4, 1.0),
        is_final=lambda error: not error.retriable,
    )
