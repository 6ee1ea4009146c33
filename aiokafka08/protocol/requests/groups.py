"""GroupCoordinator (10) and the requests to a group's coordinator (11 – 16, DeleteGroups 42)."""

from __future__ import annotations

from aiokafka08.fields import ByFields
from aiokafka08.protocol.api import ApiKey, Request, Response
from aiokafka08.protocol.types import Bytes, Int16, Int32, NullableString, String


class GroupCoordinatorResponse(Response):
    error_code: Int16
    node_id: Int32
    host: String
    port: Int32


class GroupCoordinatorRequest(Request[GroupCoordinatorResponse]):
    """Named ConsumerMetadata in 0.8.2, GroupCoordinator in 0.9, FindCoordinator later."""

    api = ApiKey.GROUP_COORDINATOR
    versions = range(1)
    response = GroupCoordinatorResponse

    group: NullableString


class GroupProtocol(ByFields):
    name: String
    metadata: Bytes


class JoinedMember(ByFields):
    member: String
    metadata: Bytes


class JoinGroupResponse(Response):
    error_code: Int16
    generation: Int32
    protocol: String
    leader: String
    member: String
    members: list[JoinedMember]


class JoinGroupRequest(Request[JoinGroupResponse]):
    """In version 0 the session timeout is also the limit for a rebalance."""

    api = ApiKey.JOIN_GROUP
    versions = range(1)
    response = JoinGroupResponse

    group: String
    session_timeout_ms: Int32
    member: String
    protocol_type: String
    protocols: list[GroupProtocol]


class GroupError(Response):
    """A response that is only an error code (Heartbeat, LeaveGroup)."""

    error_code: Int16


class HeartbeatRequest(Request[GroupError]):
    api = ApiKey.HEARTBEAT
    versions = range(1)
    response = GroupError

    group: String
    generation: Int32
    member: String


class LeaveGroupRequest(Request[GroupError]):
    api = ApiKey.LEAVE_GROUP
    versions = range(1)
    response = GroupError

    group: String
    member: String


class MemberAssignment(ByFields):
    member: String
    assignment: Bytes


class SyncGroupResponse(Response):
    error_code: Int16
    assignment: Bytes


class SyncGroupRequest(Request[SyncGroupResponse]):
    api = ApiKey.SYNC_GROUP
    versions = range(1)
    response = SyncGroupResponse

    group: String
    generation: Int32
    member: String
    assignments: list[MemberAssignment]


class DescribedMember(ByFields):
    member: String
    client_id: String
    client_host: String
    metadata: Bytes
    assignment: Bytes


class DescribedGroup(ByFields):
    error_code: Int16
    group: String
    state: String
    protocol_type: String
    protocol: String
    members: list[DescribedMember]


class DescribeGroupsResponse(Response):
    groups: list[DescribedGroup]


class DescribeGroupsRequest(Request[DescribeGroupsResponse]):
    api = ApiKey.DESCRIBE_GROUPS
    versions = range(1)
    response = DescribeGroupsResponse

    groups: list[String]


class ListedGroup(ByFields):
    group: String
    protocol_type: String


class ListGroupsResponse(Response):
    error_code: Int16
    groups: list[ListedGroup]


class ListGroupsRequest(Request[ListGroupsResponse]):
    api = ApiKey.LIST_GROUPS
    versions = range(1)
    response = ListGroupsResponse


class DeletedGroup(ByFields):
    group: String
    error_code: Int16


class DeleteGroupsResponse(Response):
    throttle_time_ms: Int32
    groups: list[DeletedGroup]


class DeleteGroupsRequest(Request[DeleteGroupsResponse]):
    """Remove groups without members, with their committed offsets (brokers from 1.1 on)."""

    api = ApiKey.DELETE_GROUPS
    versions = range(1)
    response = DeleteGroupsResponse

    groups: list[String]
