"""GroupCoordinator (10), and the requests that coordinators handle (11 – 16, DeleteGroups 42).

ListGroups (16) goes to each broker; the others go to the coordinator of their group.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from aiokafka08.protocol.api import ApiKey, Request, Response
from aiokafka08.protocol.types import Bytes, Host, Int16, Int32, NullableString, Since, String


@dataclass(slots=True)
class GroupCoordinatorResponse(Response):
    error_code: Int16
    node_id: Int32
    host: Host
    port: Int32


@dataclass(slots=True)
class GroupCoordinatorRequest(Request[GroupCoordinatorResponse]):
    """Named ConsumerMetadata in 0.8.2, GroupCoordinator in 0.9, FindCoordinator later."""

    api = ApiKey.GROUP_COORDINATOR
    versions = range(1)
    response = GroupCoordinatorResponse

    group: NullableString


@dataclass(slots=True)
class GroupProtocol:
    name: String
    metadata: Bytes


@dataclass(slots=True)
class JoinedMember:
    member: String
    metadata: Bytes


@dataclass(slots=True)
class JoinGroupResponse(Response):
    error_code: Int16
    generation: Int32
    protocol: String
    leader: String
    member: String
    members: list[JoinedMember]


@dataclass(slots=True)
class JoinGroupRequest(Request[JoinGroupResponse]):
    """In version 0 the session timeout is also the limit for a rebalance.

    Version 1 (brokers from 0.10.1 on) names that limit, `rebalance_timeout_ms`.
    """

    api = ApiKey.JOIN_GROUP
    versions = range(2)
    response = JoinGroupResponse

    group: String
    session_timeout_ms: Int32
    rebalance_timeout_ms: Annotated[Int32, Since(1, absent=-1)] = field(default=-1, kw_only=True)
    member: String
    protocol_type: String
    protocols: list[GroupProtocol]


@dataclass(slots=True)
class GroupError(Response):
    """A response that is only an error code (Heartbeat, LeaveGroup)."""

    error_code: Int16


@dataclass(slots=True)
class HeartbeatRequest(Request[GroupError]):
    api = ApiKey.HEARTBEAT
    versions = range(1)
    response = GroupError

    group: String
    generation: Int32
    member: String


@dataclass(slots=True)
class LeaveGroupRequest(Request[GroupError]):
    api = ApiKey.LEAVE_GROUP
    versions = range(1)
    response = GroupError

    group: String
    member: String


@dataclass(slots=True)
class MemberAssignment:
    member: String
    assignment: Bytes


@dataclass(slots=True)
class SyncGroupResponse(Response):
    error_code: Int16
    assignment: Bytes


@dataclass(slots=True)
class SyncGroupRequest(Request[SyncGroupResponse]):
    api = ApiKey.SYNC_GROUP
    versions = range(1)
    response = SyncGroupResponse

    group: String
    generation: Int32
    member: String
    assignments: list[MemberAssignment]


@dataclass(slots=True)
class DescribedMember:
    member: String
    client_id: String
    client_host: String
    metadata: Bytes
    assignment: Bytes


@dataclass(slots=True)
class DescribedGroup:
    error_code: Int16
    group: String
    state: String
    protocol_type: String
    protocol: String
    members: list[DescribedMember]


@dataclass(slots=True)
class DescribeGroupsResponse(Response):
    groups: list[DescribedGroup]


@dataclass(slots=True)
class DescribeGroupsRequest(Request[DescribeGroupsResponse]):
    api = ApiKey.DESCRIBE_GROUPS
    versions = range(1)
    response = DescribeGroupsResponse

    groups: list[String]


@dataclass(slots=True)
class ListedGroup:
    group: String
    protocol_type: String


@dataclass(slots=True)
class ListGroupsResponse(Response):
    error_code: Int16
    groups: list[ListedGroup]


@dataclass(slots=True)
class ListGroupsRequest(Request[ListGroupsResponse]):
    api = ApiKey.LIST_GROUPS
    versions = range(1)
    response = ListGroupsResponse


@dataclass(slots=True)
class DeletedGroup:
    group: String
    error_code: Int16


@dataclass(slots=True)
class DeleteGroupsResponse(Response):
    throttle_time_ms: Int32
    groups: list[DeletedGroup]


@dataclass(slots=True)
class DeleteGroupsRequest(Request[DeleteGroupsResponse]):
    """Remove groups without members, with their committed offsets (brokers from 1.1 on)."""

    api = ApiKey.DELETE_GROUPS
    versions = range(1)
    response = DeleteGroupsResponse

    groups: list[String]
