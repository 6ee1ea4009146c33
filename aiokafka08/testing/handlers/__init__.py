"""What a broker answers: one pure function per API, `(Context, request) -> Outcome`.

Each opens with what it models and what it doesn't; docs/brokers.md is the reference. Handlers
read and change `state`, and *return* what is to be done: reply, wait, disconnect (`outcome`).
Performing that is `server`'s work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiokafka08.protocol import api
from aiokafka08.testing.handlers.api_versions import api_versions
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
from aiokafka08.testing.handlers.outcome import Context, Outcome
from aiokafka08.testing.handlers.produce import produce

__all__ = ["HANDLERS", "handle"]

HANDLERS: dict[type[api.Request[Any]], Callable[[Context, Any], Outcome]] = {
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


def handle(context: Context, request: api.Request[Any]) -> Outcome:
    """What a broker does about a request."""
    return HANDLERS[type(request)](context, request)
