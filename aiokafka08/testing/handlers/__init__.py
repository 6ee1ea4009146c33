"""Request handlers: one function per API, `(RequestContext, request) -> HandlerResult`.

Each docstring says which behaviour of real brokers the handler models, and which it doesn't;
docs/brokers.md is the reference.

Invariant: a handler reads and changes `state`, but does no I/O. It returns a decision (`outcome`):
reply, wait, no reply or disconnect. `server` carries it out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from aiokafka08._core.server.work import Work, finish
from aiokafka08.protocol import api
from aiokafka08.protocol.requests.api_versions import ApiVersionsRequest
from aiokafka08.protocol.requests.committed_offsets import OffsetCommitRequest, OffsetFetchRequest
from aiokafka08.protocol.requests.fetch import FetchRequest
from aiokafka08.protocol.requests.groups import (
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
from aiokafka08.protocol.requests.sasl_handshake import SaslHandshakeRequest
from aiokafka08.protocol.requests.topics import CreateTopicsRequest, DeleteTopicsRequest
from aiokafka08.testing.handlers.api_versions import api_versions
from aiokafka08.testing.handlers.committed_offsets import (
    group_coordinator,
    offset_commit,
    offset_fetch,
)
from aiokafka08.testing.handlers.failures import failed
from aiokafka08.testing.handlers.fetch import fetch
from aiokafka08.testing.handlers.groups import (
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    sync_group,
)
from aiokafka08.testing.handlers.list_offsets import list_offsets
from aiokafka08.testing.handlers.metadata import metadata
from aiokafka08.testing.handlers.outcome import HandlerResult, RequestContext, RequestFailed
from aiokafka08.testing.handlers.produce import produce
from aiokafka08.testing.handlers.sasl_handshake import sasl_handshake
from aiokafka08.testing.handlers.topics import create_topics, delete_topics

__all__ = ["HANDLERS", "handle"]

# A handler whose work grows with the request returns `Work`, a generator that returns the result.
_Handler = Callable[[RequestContext, Any], HandlerResult | Work[HandlerResult]]

HANDLERS: Final[dict[type[api.Request[Any]], _Handler]] = {
    ProduceRequest: produce,
    FetchRequest: fetch,
    ListOffsetsRequest: list_offsets,
    MetadataRequest: metadata,
    OffsetCommitRequest: offset_commit,
    OffsetFetchRequest: offset_fetch,
    GroupCoordinatorRequest: group_coordinator,
    JoinGroupRequest: join_group,
    HeartbeatRequest: heartbeat,
    LeaveGroupRequest: leave_group,
    SyncGroupRequest: sync_group,
    DescribeGroupsRequest: describe_groups,
    ListGroupsRequest: list_groups,
    SaslHandshakeRequest: sasl_handshake,
    ApiVersionsRequest: api_versions,
    CreateTopicsRequest: create_topics,
    DeleteTopicsRequest: delete_topics,
}


def handle(context: RequestContext, request: api.Request[Any]) -> Work[HandlerResult]:
    """Handle a request; return the broker's decision."""
    try:
        steps: Work[HandlerResult] = finish(HANDLERS[type(request)](context, request))
        return (yield from steps)
    except RequestFailed:
        return (yield from failed(context, request))
