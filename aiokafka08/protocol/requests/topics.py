"""CreateTopics (19) and DeleteTopics (20), which go to the controller; from 0.10.1 on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from aiokafka08.protocol.api import ApiKey, Request, Response
from aiokafka08.protocol.types import Boolean, Int16, Int32, NullableString, Since, String


@dataclass(slots=True)
class ReplicaAssignment:
    """The brokers of one partition of a new topic; the first one is its preferred leader."""

    partition: Int32
    replicas: list[Int32]


@dataclass(slots=True)
class ConfigEntry:
    name: String
    value: String


@dataclass(slots=True)
class RequestedTopic:
    """A topic to create: by the two numbers, or by `assignments`, with both numbers -1."""

    topic: String
    partitions: Int32
    replication_factor: Int16
    assignments: list[ReplicaAssignment]
    configs: list[ConfigEntry]


@dataclass(slots=True)
class CreatedTopic:
    topic: String
    error_code: Int16
    error_message: Annotated[NullableString, Since(1, absent=None)] = None


@dataclass(slots=True)
class CreateTopicsResponse(Response):
    topics: list[CreatedTopic]


@dataclass(slots=True)
class CreateTopicsRequest(Request[CreateTopicsResponse]):
    """Create topics; wait up to `timeout_ms` for their leaders. With `validate_only` do neither."""

    api = ApiKey.CREATE_TOPICS
    versions = range(2)
    response = CreateTopicsResponse

    topics: list[RequestedTopic]
    timeout_ms: Int32
    validate_only: Annotated[Boolean, Since(1, absent=False)] = False


@dataclass(slots=True)
class DeletedTopic:
    topic: String
    error_code: Int16


@dataclass(slots=True)
class DeleteTopicsResponse(Response):
    topics: list[DeletedTopic]


@dataclass(slots=True)
class DeleteTopicsRequest(Request[DeleteTopicsResponse]):
    """Delete topics, and wait up to `timeout_ms` until they are deleted."""

    api = ApiKey.DELETE_TOPICS
    versions = range(1)
    response = DeleteTopicsResponse

    topics: list[String]
    timeout_ms: Int32
