"""ApiVersions (18): the APIs of a broker, each with its versions."""

from __future__ import annotations

from dataclasses import dataclass

from aiokafka08.protocol.api import ApiKey, Request, Response
from aiokafka08.protocol.types import Int16


@dataclass(slots=True)
class VersionRange:
    api_key: Int16
    min_version: Int16
    max_version: Int16


@dataclass(slots=True)
class ApiVersionsResponse(Response):
    error_code: Int16
    api_versions: list[VersionRange]


@dataclass(slots=True)
class ApiVersionsRequest(Request[ApiVersionsResponse]):
    """For brokers ≥ 0.10: 0.8 closes the connection, 0.9 never responds (docs/brokers.md 2.2)."""

    api = ApiKey.API_VERSIONS
    versions = range(1)
    response = ApiVersionsResponse
