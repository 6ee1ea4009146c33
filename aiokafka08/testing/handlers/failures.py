"""Responses that have one error code for all or for some partitions.

`server` calls these functions when the fault `faults.Answer` strikes a request, and
`handlers.handle` calls `failed` when a handler raises `RequestFailed`.

Invariant: each request class in `handlers.HANDLERS` has an error response. With `only`, the
responses of all other partitions stay as they are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable
from typing import Any, TypeVar

from aiokafka08.errors import UnknownError
from aiokafka08.protocol import api
from aiokafka08.testing.handlers.list_offsets import offsets_error
from aiokafka08.testing.handlers.metadata import known_brokers, select_brokers
from aiokafka08.testing.handlers.outcome import (
    Disconnect,
    Outcome,
    Reply,
    RequestContext,
    by_partition,
    group_by_topic,
)
from aiokafka08.testing.steps import Steps

P = TypeVar("P")
R = TypeVar("R")


def error_response(context: RequestContext, request: api.Request[Any], code: int) -> api.Response:
    """Return a response with `code` for everything that the request names.

    A Metadata response still lists the brokers. The lists of ListGroups and ApiVersions are empty.
    JoinGroup has generation -1; errors of the coordinator itself have 0 (`group.join_error`).
    """
    match request:
        case api.ProduceRequest(topics=topics):
            return api.ProduceResponse(
                _map_partitions(topics, lambda p: api.ProducedPartition(p.partition, code, -1))
            )
        case api.FetchRequest(topics=topics):
            return api.FetchResponse(
                0,
                _map_partitions(topics, lambda p: api.FetchedPartition(p.partition, code, -1, b"")),
            )
        case api.ListOffsetsRequest(topics=topics):
            return api.ListOffsetsResponse(
                _map_partitions(topics, lambda p: offsets_error(context.layout, p.partition, code))
            )
        case api.MetadataRequest():
            names = request.topics or list(context.state.topics)
            states = [api.TopicState(code, name, False, []) for name in names]
            brokers = select_brokers(context, known_brokers(context), states)
            return api.MetadataResponse(brokers, -1, states)
        case api.OffsetCommitRequest(topics=topics):
            return api.OffsetCommitResponse(
                _map_partitions(topics, lambda p: api.PartitionError(p.partition, code))
            )
        case api.OffsetFetchRequest(topics=topics):
            if topics is None:
                return api.OffsetFetchResponse([], code)
            return api.OffsetFetchResponse(
                _map_partitions(topics, lambda p: api.CommittedPartition(p, -1, "", code))
            )
        case api.GroupCoordinatorRequest():
            return api.GroupCoordinatorResponse(code, -1, "", -1)
        case api.JoinGroupRequest():
            return api.JoinGroupResponse(code, -1, "", "", request.member, [])
        case api.SyncGroupRequest():
            return api.SyncGroupResponse(code, b"")
        case api.HeartbeatRequest() | api.LeaveGroupRequest():
            return api.GroupError(code)
        case api.DescribeGroupsRequest():
            return api.DescribeGroupsResponse(
                [api.DescribedGroup(code, group, "", "", "", []) for group in request.groups]
            )
        case api.ListGroupsRequest():
            return api.ListGroupsResponse(code, [])
        case api.ApiVersionsRequest():
            return api.ApiVersionsResponse(code, [])
    raise TypeError(f"{type(request).__name__} has no response with an error code")


def failed(context: RequestContext, request: api.Request[Any]) -> Steps[Outcome]:
    """Return what a broker does if its handler fails: it has Unknown for everything requested.

    A Metadata response then lists no brokers.
    """
    if not request.expects_response:
        return Disconnect()
    response = error_response(context, request, UnknownError.errno)
    if isinstance(response, api.MetadataResponse):
        response.brokers = []
    elif hasattr(response, "topics"):
        items = yield from by_partition(response.topics)
        response.topics = yield from group_by_topic(items)
    return Reply(response, layout=context.line.failure_layout)


def drop_partitions(
    request: api.Request[Any], only: Collection[tuple[str, int]]
) -> api.Request[Any]:
    """Return the request without these partitions."""
    topics = [
        api.Topic(
            topic.topic,
            [one for one in topic.partitions if (topic.topic, _partition_number(one)) not in only],
        )
        for topic in _topics(request)
    ]
    kept = [topic for topic in topics if topic.partitions]
    return dataclasses.replace(request, topics=kept)  # type: ignore[type-var]


def with_partition_errors(
    context: RequestContext,
    request: api.Request[Any],
    response: api.Response,
    code: int,
    only: Collection[tuple[str, int]],
) -> api.Response:
    """Return the response with `code` for these partitions.

    `request` is the client's request, before `drop_partitions`. Partitions that `drop_partitions`
    removed are missing from the response, and are added here.
    """
    failed = error_response(context, request, code)
    kept = {
        (topic.topic, one.partition): one for topic in _topics(response) for one in topic.partitions
    }
    for topic in _topics(failed):
        for one in topic.partitions:
            if (topic.topic, one.partition) in only:
                kept[topic.topic, one.partition] = one
    by_topic: dict[str, list[Any]] = {}
    for (name, _), one in kept.items():
        by_topic.setdefault(name, []).append(one)
    topics = [api.Topic(name, partitions) for name, partitions in by_topic.items()]
    return dataclasses.replace(response, topics=topics)  # type: ignore[type-var]


def _topics(message: Any) -> list[api.Topic[Any]]:
    topics: list[api.Topic[Any]] | None = message.topics
    return topics or []


def _partition_number(item: Any) -> int:
    """Return the number of a partition in a request; in OffsetFetch it is a plain integer."""
    return item if isinstance(item, int) else int(item.partition)


def _map_partitions(topics: Iterable[api.Topic[P]], make: Callable[[P], R]) -> list[api.Topic[R]]:
    return [
        api.Topic(topic.topic, [make(partition) for partition in topic.partitions])
        for topic in topics
    ]
