"""The request class of each api key that this package knows.

The embedded cluster, which reads all of them, and the tests import it; the client imports the
modules of the requests that it sends. `_core.net.versions` names those, and their versions.
"""

from __future__ import annotations

from typing import Any, Final

from aiokafka08.protocol.api import Request
from aiokafka08.protocol.requests.api_versions import ApiVersionsRequest
from aiokafka08.protocol.requests.committed_offsets import OffsetCommitRequest, OffsetFetchRequest
from aiokafka08.protocol.requests.fetch import FetchRequest
from aiokafka08.protocol.requests.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    GroupCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    SyncGroupRequest,
)
from aiokafka08.protocol.requests.list_offsets import ListOffsetsRequest
from aiokafka08.protocol.requests.metadata import MetadataRequest
from aiokafka08.protocol.requests.produce import ProduceRequest
from aiokafka08.protocol.requests.sasl_authenticate import SaslAuthenticateRequest
from aiokafka08.protocol.requests.sasl_handshake import SaslHandshakeRequest
from aiokafka08.protocol.requests.topics import CreateTopicsRequest, DeleteTopicsRequest

APIS: Final[dict[int, type[Request[Any]]]] = {
    request.api: request
    for request in (
        ProduceRequest,
        FetchRequest,
        ListOffsetsRequest,
        MetadataRequest,
        OffsetCommitRequest,
        OffsetFetchRequest,
        GroupCoordinatorRequest,
        JoinGroupRequest,
        HeartbeatRequest,
        LeaveGroupRequest,
        SyncGroupRequest,
        DescribeGroupsRequest,
        ListGroupsRequest,
        DeleteGroupsRequest,
        SaslHandshakeRequest,
        ApiVersionsRequest,
        CreateTopicsRequest,
        DeleteTopicsRequest,
        SaslAuthenticateRequest,
    )
}
