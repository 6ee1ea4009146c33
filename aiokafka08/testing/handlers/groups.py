"""Group membership, keys 11 - 16: requests to the coordinator, whose rules are in `group`.

Models: all that 0.9.0.1 and 0.10.2.2 were seen to answer (tests/contract/wire/test_groups.py).
Not: the limit on a group's members and the delay of its first rebalance (0.11 and later), code 14
while a new coordinator loads, the expiry of empty groups.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from aiokafka08.protocol.api import (
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
    Response,
    SyncGroupRequest,
    SyncGroupResponse,
)
from aiokafka08.testing.group import (
    INVALID_GROUP,
    NOT_COORDINATOR,
    UNKNOWN_MEMBER,
    GroupKey,
    Ticket,
    join_error,
)
from aiokafka08.testing.handlers.outcome import Context, Outcome, Reply, Wait

R = TypeVar("R", bound=Response)

UNKNOWN = -1


def join_group(context: Context, request: JoinGroupRequest) -> Outcome:
    """Answered when all members have joined, or the rebalance has taken a session timeout."""
    if not request.group:
        return Reply(join_error(INVALID_GROUP, request.member))
    if not _is_here(context, request.group):
        return Reply(join_error(NOT_COORDINATOR, request.member))
    ticket = context.state.groups.join(
        context.node.node_id, request, context.client_id, context.client_host, context.now_s
    )
    return _answer(context, request.group, ticket)


def sync_group(context: Context, request: SyncGroupRequest) -> Outcome:
    """Answered when the leader has brought the assignment."""
    if not _is_here(context, request.group):
        return Reply(SyncGroupResponse(NOT_COORDINATOR, b""))
    group = context.state.groups.find(request.group, context.now_s)
    if group is None:
        return Reply(SyncGroupResponse(UNKNOWN_MEMBER, b""))
    return _answer(context, request.group, group.sync(request, context.now_s))


def heartbeat(context: Context, request: HeartbeatRequest) -> Outcome:
    """-1 on 0.8.2, which has the request but no groups."""
    if context.line.heartbeat_is_a_stub:
        return Reply(GroupError(UNKNOWN))

    def beat() -> int:
        group = context.state.groups.find(request.group, context.now_s)
        if group is None:
            return UNKNOWN_MEMBER
        return group.heartbeat(request.member, request.generation, context.now_s)

    return _code(context, request.group, beat)


def leave_group(context: Context, request: LeaveGroupRequest) -> Outcome:
    """The others are told by their next heartbeats."""
    return _code(
        context,
        request.group,
        lambda: context.state.groups.leave(request.group, request.member, context.now_s),
    )


def list_groups(context: Context, request: ListGroupsRequest) -> Outcome:
    """The groups whose coordinator is this broker."""
    here = context.node.node_id
    listed = context.state.groups.names(here, context.now_s)
    if context.line.commits_make_groups:
        known = {one.group for one in listed}
        names = {key.group or "" for key in context.state.kafka_commits}
        listed += [
            ListedGroup(name, "")
            for name in sorted(names - known)
            if context.state.coordinator(name) == here
        ]
    return Reply(ListGroupsResponse(0, listed))


def describe_groups(context: Context, request: DescribeGroupsRequest) -> Outcome:
    """Groups that don't exist are "Dead", with code 0 at their coordinator and 16 elsewhere."""
    described = []
    for name in dict.fromkeys(request.groups):
        group = context.state.groups.find(name, context.now_s)
        if not _is_here(context, name):
            described.append(DescribedGroup(NOT_COORDINATOR, name, "", "", "", []))
        elif group is not None:
            described.append(group.described())
        else:
            committed = context.line.commits_make_groups and any(
                key.group == name for key in context.state.kafka_commits
            )
            state = "Empty" if committed else "Dead"
            described.append(DescribedGroup(0, name, state, "", "", []))
    return Reply(DescribeGroupsResponse(described))


def _is_here(context: Context, group: str) -> bool:
    return context.state.coordinator(group) == context.node.node_id


def _code(context: Context, group: str, act: Callable[[], int]) -> Outcome:
    if not _is_here(context, group):
        return Reply(GroupError(NOT_COORDINATOR))
    code = act()
    context.state.changed.add(GroupKey(group))
    return Reply(GroupError(code))


def _answer(context: Context, group: str, ticket: Ticket[R]) -> Outcome:
    context.state.changed.add(GroupKey(group))

    def check(expired: bool) -> Reply | None:
        return None if ticket.answer is None else Reply(ticket.answer)

    return check(False) or Wait(None, frozenset({GroupKey(group)}), check)
