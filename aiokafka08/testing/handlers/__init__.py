"""Request handlers: one function per API, `(RequestContext, request) -> Outcome`.

A handler whose work grows with the request returns the steps to its outcome (`steps`).

Each docstring says which behaviour of real brokers the handler models, and which it doesn't;
docs/brokers.md is the reference. `server` calls `handle` for each request; `cluster` looks up in
`HANDLERS` which request classes a fault may name.

Invariant: a handler reads and changes `state`, but does no I/O. It returns a decision (`outcome`):
reply, wait, no reply or disconnect. `server` carries it out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiokafka08.protocol import api
from aiokafka08.testing.handlers.api_versions import api_versions
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
from aiokafka08.testing.handlers.offsets import group_coordinator, offset_commit, offset_fetch
from aiokafka08.testing.handlers.outcome import Outcome, RequestContext, RequestFailed
from aiokafka08.testing.handlers.produce import produce
from aiokafka08.testing.steps import Steps, finish

__all__ = ["HANDLERS", "handle"]

_Handler = Callable[[RequestContext, Any], Outcome | Steps[Outcome]]

HANDLERS: dict[type[api.Request[Any]], _Handler] = {
    api.ProduceRequest: produce,
    api.FetchRequest: fetch,
    api.ListOffsetsRequest: list_offsets,
    api.MetadataRequest: metadata,
    api.OffsetCommitRequest: offset_commit,
    api.OffsetFetchRequest: offset_fetch,
    api.GroupCoordinatorRequest: group_coordinator,
    api.JoinGroupRequest: join_group,
    api.HeartbeatRequest: heartbeat,
    api.LeaveGroupRequest: leave_group,
    api.SyncGroupRequest: sync_group,
    api.DescribeGroupsRequest: describe_groups,
    api.ListGroupsRequest: list_groups,
    api.ApiVersionsRequest: api_versions,
}


def handle(context: RequestContext, request: api.Request[Any]) -> Steps[Outcome]:
    """Handle a request; return what the broker does."""
    try:
        steps: Steps[Outcome] = finish(HANDLERS[type(request)](context, request))
        return (yield from steps)
    except RequestFailed:
        return (yield from failed(context, request))
