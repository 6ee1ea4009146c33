"""Group membership, keys 11 - 16: so far only what a cluster without any group answers.

JoinGroup, SyncGroup and LeaveGroup are refused: with 16 elsewhere than at the coordinator, and
there with 30, which no client retries. Real membership is to be built in this file's place.
"""

from __future__ import annotations

from aiokafka08.protocol.api import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    GroupError,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    ListGroupsRequest,
    ListGroupsResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from aiokafka08.testing.handlers.outcome import Context, Outcome, Reply

UNKNOWN, NOT_COORDINATOR, UNKNOWN_MEMBER, NOT_HERE_YET = -1, 16, 25, 30


def heartbeat(context: Context, request: HeartbeatRequest) -> Outcome:
    """-1 on 0.8.2, which has the request but no groups; else 16, or 25 at the coordinator."""
    if context.line.heartbeat_is_a_stub:
        return Reply(GroupError(UNKNOWN))
    here = context.state.coordinator(request.group) == context.node.node_id
    return Reply(GroupError(UNKNOWN_MEMBER if here else NOT_COORDINATOR))


def list_groups(context: Context, request: ListGroupsRequest) -> Outcome:
    """No groups."""
    return Reply(ListGroupsResponse(0, []))


def describe_groups(context: Context, request: DescribeGroupsRequest) -> Outcome:
    """Groups that don't exist are "Dead", with code 0 at their coordinator and 16 elsewhere."""
    described = []
    for group in dict.fromkeys(request.groups):
        if context.state.coordinator(group) == context.node.node_id:
            described.append(DescribedGroup(0, group, "Dead", "", "", []))
        else:
            described.append(DescribedGroup(NOT_COORDINATOR, group, "", "", "", []))
    return Reply(DescribeGroupsResponse(described))


def join_group(context: Context, request: JoinGroupRequest) -> Outcome:
    """Refused: not modelled yet."""
    code = _refusal(context, request.group)
    return Reply(JoinGroupResponse(code, 0, "", "", request.member, []))


def sync_group(context: Context, request: SyncGroupRequest) -> Outcome:
    """Refused: not modelled yet."""
    return Reply(SyncGroupResponse(_refusal(context, request.group), b""))


def leave_group(context: Context, request: LeaveGroupRequest) -> Outcome:
    """Refused: not modelled yet."""
    return Reply(GroupError(_refusal(context, request.group)))


def _refusal(context: Context, group: str) -> int:
    here = context.state.coordinator(group) == context.node.node_id
    return NOT_HERE_YET if here else NOT_COORDINATOR
