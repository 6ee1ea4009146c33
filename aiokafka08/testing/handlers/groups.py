"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup, ListGroups, DescribeGroups (API keys 11 - 16).

Invariant: only the group's coordinator carries out a request for a group. Other brokers respond
with NotCoordinatorForGroup, or leave the group out (ListGroups).

Models: all that 0.9.0.1 and 0.10.2.2 were observed to do
(tests/conformance/contract/wire/test_groups.py). Doesn't model: the limit of a group's members and
the delay of its first rebalance (0.11 and later), GroupLoadInProgress while a new coordinator
loads, the expiry of empty groups.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from aiokafka08._core.server.work import Work, in_steps
from aiokafka08.errors import (
    InvalidGroupIdError,
    NotCoordinatorForGroupError,
    UnknownError,
    UnknownMemberIdError,
)
from aiokafka08.protocol.api import Response
from aiokafka08.protocol.requests.groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    GroupError,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from aiokafka08.testing.group import (
    GroupKey,
    PendingResponse,
    join_error,
)
from aiokafka08.testing.handlers.outcome import HandlerResult, Reply, RequestContext, Wait

R = TypeVar("R", bound=Response)


def join_group(context: RequestContext, request: JoinGroupRequest) -> HandlerResult:
    """Respond when all members have joined, or when the rebalance has lasted too long.

    The limit is the longest rebalance timeout of a member; in version 0 that is its session
    timeout.
    """
    if not request.group:
        return Reply(join_error(InvalidGroupIdError.errno, request.member))
    if not _is_coordinator(context, request.group):
        return Reply(join_error(NotCoordinatorForGroupError.errno, request.member))
    if context.layout and request.rebalance_timeout_ms < 0:  # only v0 takes the session timeout
        request = replace(request, rebalance_timeout_ms=0)
    pending = context.state.groups.join(
        context.node.node_id, request, context.client_id or "", context.client_host, context.now_s
    )
    return _await_response(context, request.group, pending)


def sync_group(context: RequestContext, request: SyncGroupRequest) -> HandlerResult:
    """Respond when the leader has sent the assignment."""
    if not _is_coordinator(context, request.group):
        return Reply(SyncGroupResponse(NotCoordinatorForGroupError.errno, b""))
    group = context.state.groups.find(request.group, context.now_s)
    if group is None:
        return Reply(SyncGroupResponse(UnknownMemberIdError.errno, b""))
    return _await_response(context, request.group, group.sync(request, context.now_s))


def heartbeat(context: RequestContext, request: HeartbeatRequest) -> HandlerResult:
    """Extend the member's session.

    0.8.2 has the request but no groups, and responds with the error code of `UnknownError`.
    """
    if context.line.heartbeat_is_a_stub:
        return Reply(GroupError(UnknownError.errno))

    def beat() -> int:
        group = context.state.groups.find(request.group, context.now_s)
        if group is None:
            return UnknownMemberIdError.errno
        return group.heartbeat(request.member, request.generation, context.now_s)

    return _group_error(context, request.group, beat)


def leave_group(context: RequestContext, request: LeaveGroupRequest) -> HandlerResult:
    """Remove a member; the other members learn of it by their next heartbeats."""
    return _group_error(
        context,
        request.group,
        lambda: context.state.groups.leave(request.group, request.member, context.now_s),
    )


def list_groups(context: RequestContext, request: ListGroupsRequest) -> Work[HandlerResult]:
    """Return the groups that this broker coordinates."""
    here = context.node.node_id
    listed = context.state.groups.coordinated_by(here, context.now_s)
    if context.line.commits_make_groups:
        known = {group.group for group in listed}
        names = sorted({name or "" for name in context.state.committed_groups} - known)
        coordinators = yield from in_steps(context.state.coordinator, names)
        listed += [
            ListedGroup(name, "")
            for name, coordinator in zip(names, coordinators, strict=True)
            if coordinator == here
        ]
    return Reply(ListGroupsResponse(0, listed))


def describe_groups(context: RequestContext, request: DescribeGroupsRequest) -> Work[HandlerResult]:
    """Describe groups; a missing group is "Dead".

    Any broker other than the coordinator responds with NotCoordinatorForGroup.
    """

    def describe(name: str) -> DescribedGroup:
        group = context.state.groups.find(name, context.now_s)
        if not _is_coordinator(context, name):
            return DescribedGroup(NotCoordinatorForGroupError.errno, name, "", "", "", [])
        if group is not None:
            return group.described()
        committed = context.line.commits_make_groups and name in context.state.committed_groups
        return DescribedGroup(0, name, "Empty" if committed else "Dead", "", "", [])

    names = list(dict.fromkeys(request.groups))
    return Reply(DescribeGroupsResponse((yield from in_steps(describe, names))))


def _is_coordinator(context: RequestContext, group: str) -> bool:
    return context.state.coordinator(group) == context.node.node_id


def _group_error(context: RequestContext, group: str, act: Callable[[], int]) -> HandlerResult:
    if not _is_coordinator(context, group):
        return Reply(GroupError(NotCoordinatorForGroupError.errno))
    code = act()
    context.state.changed.add(GroupKey(group))
    return Reply(GroupError(code))


def _await_response(
    context: RequestContext, group: str, pending: PendingResponse[R]
) -> HandlerResult:
    context.state.changed.add(GroupKey(group))

    def check(expired: bool) -> Reply | None:
        return None if pending.response is None else Reply(pending.response)

    return check(False) or Wait(None, frozenset({GroupKey(group)}), check)
