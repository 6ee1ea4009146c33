"""Responses that have one error code for all or for some partitions.

Invariant: each request class in `handlers.HANDLERS` has an error response. An error for some
partitions (`only`) leaves the responses of all others as they are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final, TypeVar

from aiokafka08._core.server.work import Work
from aiokafka08.errors import UnknownError
from aiokafka08.protocol import api
from aiokafka08.protocol.requests.api_versions import ApiVersionsRequest, ApiVersionsResponse
from aiokafka08.protocol.requests.committed_offsets import (
    CommittedPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    PartitionError,
)
from aiokafka08.protocol.requests.fetch import FetchedPartition, FetchRequest, FetchResponse
from aiokafka08.protocol.requests.groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    GroupCoordinatorRequest,
    GroupCoordinatorResponse,
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
from aiokafka08.protocol.requests.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from aiokafka08.protocol.requests.metadata import MetadataRequest, MetadataResponse, TopicState
from aiokafka08.protocol.requests.produce import ProducedPartition, ProduceRequest, ProduceResponse
from aiokafka08.protocol.requests.sasl_handshake import (
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from aiokafka08.protocol.requests.topics import (
    CreatedTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletedTopic,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from aiokafka08.testing.broker_lines import LineRules
from aiokafka08.testing.handlers.list_offsets import offsets_error
from aiokafka08.testing.handlers.metadata import known_brokers, select_brokers
from aiokafka08.testing.handlers.outcome import (
    Disconnect,
    HandlerResult,
    Reply,
    RequestContext,
    by_partition,
    group_by_topic,
)

_BY_PARTITION: Final = (
    ProduceResponse,
    FetchResponse,
    ListOffsetsResponse,
    OffsetCommitResponse,
    OffsetFetchResponse,
)

P = TypeVar("P")
R = TypeVar("R")


def error_response(context: RequestContext, request: api.Request[Any], code: int) -> api.Response:
    """Return a response with `code` for everything that the request names.

    A Metadata response still lists the brokers. The lists of ListGroups, SaslHandshake and
    ApiVersions are empty.
    """
    match request:
        case ProduceRequest(topics=topics):
            return ProduceResponse(
                _map_partitions(topics, lambda p: ProducedPartition(p.partition, code, -1))
            )
        case FetchRequest(topics=topics):
            return FetchResponse(
                0,
                _map_partitions(topics, lambda p: FetchedPartition(p.partition, code, -1, b"")),
            )
        case ListOffsetsRequest(topics=topics):
            return ListOffsetsResponse(
                _map_partitions(topics, lambda p: offsets_error(context.layout, p.partition, code))
            )
        case MetadataRequest():
            names = request.topics or list(context.state.topics)
            states = [TopicState(code, name, False, []) for name in names]
            brokers = select_brokers(context, known_brokers(context), states)
            return MetadataResponse(brokers, -1, states)
        case OffsetCommitRequest(topics=topics):
            return OffsetCommitResponse(
                _map_partitions(topics, lambda p: PartitionError(p.partition, code))
            )
        case OffsetFetchRequest(topics=topics):
            if topics is None:
                return OffsetFetchResponse([], code)
            return OffsetFetchResponse(
                _map_partitions(topics, lambda p: CommittedPartition(p, -1, "", code))
            )
        case GroupCoordinatorRequest():
            return GroupCoordinatorResponse(code, -1, "", -1)
        case JoinGroupRequest():
            # Generation -1, unlike the coordinator's own errors, which have 0 (`group.join_error`).
            return JoinGroupResponse(code, -1, "", "", request.member, [])
        case SyncGroupRequest():
            return SyncGroupResponse(code, b"")
        case HeartbeatRequest() | LeaveGroupRequest():
            return GroupError(code)
        case DescribeGroupsRequest():
            return DescribeGroupsResponse(
                [DescribedGroup(code, group, "", "", "", []) for group in request.groups]
            )
        case ListGroupsRequest():
            return ListGroupsResponse(code, [])
        case SaslHandshakeRequest():
            return SaslHandshakeResponse(code, [])
        case CreateTopicsRequest(topics=new_topics):
            names = list(dict.fromkeys(topic.topic for topic in new_topics))
            return CreateTopicsResponse([CreatedTopic(name, code) for name in names])
        case DeleteTopicsRequest(topics=names):
            return DeleteTopicsResponse([DeletedTopic(name, code) for name in names])
        case ApiVersionsRequest():
            return ApiVersionsResponse(code, [])
    raise TypeError(f"{type(request).__name__} has no response with an error code")


def failed(context: RequestContext, request: api.Request[Any]) -> Work[HandlerResult]:
    """Return the result of a broker handler that fails: Unknown for all that was requested.

    A Metadata response then lists no brokers.
    """
    if not request.expects_response:
        return Disconnect()
    response = error_response(context, request, UnknownError.errno)
    if isinstance(response, MetadataResponse):
        response.brokers = []
    elif isinstance(response, _BY_PARTITION):
        topics: list[api.Topic[Any]] = response.topics
        items = yield from by_partition(topics)
        line = context.line
        order = line.fetch_order if isinstance(request, FetchRequest) else line.response_order
        response.topics = yield from group_by_topic(items, order)
    return Reply(response, layout=context.line.failure_layout)


def drop_partitions(
    line: LineRules, request: api.Request[Any], failing: Collection[tuple[str, int]]
) -> api.Request[Any]:
    """Return the request without these partitions, which will have errors."""
    topics = [
        api.Topic(
            topic.topic,
            [
                partition
                for partition in topic.partitions
                if (topic.topic, _partition_number(partition)) not in failing
            ],
        )
        for topic in _topics(request)
    ]
    kept = [topic for topic in topics if topic.partitions]
    others = dataclasses.replace(request, topics=kept)  # type: ignore[call-arg]
    if isinstance(others, FetchRequest) and line.errors_end_the_wait and kept != _topics(request):
        # An error ends the wait of a real fetch, so the fetch of the others doesn't wait either.
        others.max_wait_ms = 0
    return others


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
    errors = error_response(context, request, code)
    kept = {
        (topic.topic, partition.partition): partition
        for topic in _topics(response)
        for partition in topic.partitions
    }
    for topic in _topics(errors):
        for partition in topic.partitions:
            if (topic.topic, partition.partition) in only:
                kept[topic.topic, partition.partition] = partition
    by_topic: dict[str, list[Any]] = {}
    for (name, _), partition in kept.items():
        by_topic.setdefault(name, []).append(partition)
    topics = [api.Topic(name, partitions) for name, partitions in by_topic.items()]
    return dataclasses.replace(response, topics=topics)  # type: ignore[call-arg]


def set_null(response: FetchResponse, code: int) -> None:
    """Set the message set of each partition with the error `code` to null."""
    for topic in _topics(response):
        for partition in topic.partitions:
            if partition.error_code == code:
                partition.message_set = None


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
