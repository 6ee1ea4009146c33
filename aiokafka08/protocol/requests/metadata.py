"""Metadata (3): the brokers, and the leader of each partition."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from aiokafka08.protocol.api import ApiKey, Request, Response
from aiokafka08.protocol.types import (
    Boolean,
    Host,
    Int16,
    Int32,
    NullableString,
    NullSince,
    Since,
    String,
)


@dataclass(slots=True)
class Broker:
    node_id: Int32
    host: Host
    port: Int32
    rack: Annotated[NullableString, Since(1, absent=None)] = None


@dataclass(slots=True)
class PartitionState:
    error_code: Int16
    partition: Int32
    leader: Int32
    replicas: list[Int32]
    isr: list[Int32]


@dataclass(slots=True)
class TopicState:
    error_code: Int16
    topic: String
    is_internal: Annotated[Boolean, Since(1, absent=False)]
    partitions: list[PartitionState]


@dataclass(slots=True)
class MetadataResponse(Response):
    brokers: list[Broker]
    cluster_id: Annotated[NullableString, Since(2, absent=None)] = field(default=None, kw_only=True)
    controller_id: Annotated[Int32, Since(1, absent=-1)]
    topics: list[TopicState]


@dataclass(slots=True)
class MetadataRequest(Request[MetadataResponse]):
    """All topics are `[]` in version 0 and None in later ones, where `[]` means no topic."""

    api = ApiKey.METADATA
    versions = range(3)
    response = MetadataResponse

    topics: Annotated[list[String] | None, NullSince(1)]
