"""ApiVersions: the API versions that the line knows, from its table in `broker_lines`.

`handlers.handle` dispatches the requests to `api_versions`.
"""

from __future__ import annotations

from aiokafka08.errors import UnsupportedVersionError
from aiokafka08.protocol.requests.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    VersionRange,
)
from aiokafka08.testing.handlers.outcome import HandlerResult, Reply, RequestContext


def api_versions(context: RequestContext, request: ApiVersionsRequest) -> HandlerResult:
    """Return the API versions of the broker line.

    Models: a request of a version above 0 gets UnsupportedVersion, in the layout of version 0.
    Doesn't model: real brokers also list the API keys 4 - 7, which only brokers use.
    """
    if context.version != 0:
        return Reply(ApiVersionsResponse(UnsupportedVersionError.errno, []))
    ranges = [
        VersionRange(key, versions.known.start, versions.known.stop - 1)
        for key, versions in sorted(context.line.apis.items())
    ]
    return Reply(ApiVersionsResponse(0, ranges))
