"""Send ListGroups, DescribeGroups and DeleteGroups to the brokers that coordinate groups.

Brokers from 0.9 on coordinate groups, and those from 1.1 on delete them.

Invariant: a retriable error is retried until `request_timeout_ms` is over, any other is raised at
once. A response without the group is a retriable error, not a dead group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from aiokafka08._core.net.coordinator_lookup import CoordinatorLookup
from aiokafka08._core.net.retry import retry
from aiokafka08._core.net.router import Lane, Router
from aiokafka08.errors import (
    GroupIdNotFound,
    KafkaError,
    KafkaTimeoutError,
    NoError,
    broker_error,
)
from aiokafka08.protocol.api import left_out
from aiokafka08.protocol.requests.groups import (
    DeleteGroupsRequest,
    DescribedGroup,
    DescribeGroupsRequest,
    ListGroupsRequest,
)

T = TypeVar("T")


async def list_groups(router: Router, node_id: int) -> list[tuple[str, str]]:
    """Return name and protocol type of each group that this broker coordinates."""

    async def attempt(timeout_s: float) -> list[tuple[str, str]] | KafkaError:
        response = await router.request(ListGroupsRequest(), node_id=node_id, timeout_s=timeout_s)
        if response.error_code:
            return broker_error(response.error_code, f"groups of node {node_id}")
        return [(group.group, group.protocol_type) for group in response.groups]

    return await _retry(router, attempt)


async def describe_group(
    router: Router, coordinator: CoordinatorLookup
) -> tuple[int, DescribedGroup]:
    """Return the node id of a group's coordinator, and the group with its members."""
    group = coordinator.group

    async def attempt(timeout_s: float) -> tuple[int, DescribedGroup] | KafkaError:
        node_id = await coordinator.node_id(timeout_s=timeout_s)
        try:
            response = await router.request(
                DescribeGroupsRequest([group]), node_id=node_id, timeout_s=timeout_s
            )
        except KafkaError:
            coordinator.invalidate(node_id)
            raise
        for described in response.groups:
            if described.group == group and not described.error_code:
                return node_id, described
            if described.group == group:
                coordinator.invalidate(node_id)
                return broker_error(described.error_code, f"group {group!r}")
        return left_out(f"group {group!r}", node_id)

    return await _retry(router, attempt)


async def delete_group(router: Router, coordinator: CoordinatorLookup) -> bool | None:
    """Delete a group without members, with its offsets; return False if there was none.

    Returns None if the coordinator is older than 1.1 and has no request for it. Raises
    NonEmptyGroup if the group has members.
    """
    group = coordinator.group

    async def attempt(timeout_s: float) -> bool | KafkaError | None:
        node_id = await coordinator.node_id(timeout_s=timeout_s)
        try:
            connection = await router.connection(node_id, Lane.CONTROL, timeout_s=timeout_s)
            if not connection.version.supports(DeleteGroupsRequest):
                return None
            response = await connection.request(DeleteGroupsRequest([group]), timeout_s=timeout_s)
        except KafkaError:
            coordinator.invalidate(node_id)
            raise
        code = next(
            (result.error_code for result in response.groups if result.group == group), None
        )
        if code is None:
            return left_out(f"group {group!r}", node_id)
        if code in (NoError.errno, GroupIdNotFound.errno):
            return code == NoError.errno
        coordinator.invalidate(node_id)
        return broker_error(code, f"group {group!r}")

    return await _retry(router, attempt)


async def _retry(router: Router, attempt: Callable[[float], Awaitable[T | KafkaError]]) -> T:
    limit_s = router.config.request_timeout_s

    async def named_attempt(timeout_s: float) -> T | KafkaError:
        result = await attempt(timeout_s)
        return router.config.named(result) if isinstance(result, KafkaError) else result

    return await retry(
        named_attempt,
        deadline=asyncio.get_running_loop().time() + limit_s,
        backoff=router.config.backoff(at_least_s=0.01),
        timed_out=lambda last: last or KafkaTimeoutError("no response"),
        attempt_s=max(limit_s / 4, 1.0),  # leaves time for another coordinator
        is_final=lambda error: not error.retriable,
    )
