"""ApiVersions: the API versions that the line knows, from its table in `broker_lines`."""

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

    Models: a request of a version above 0 gets UnsupportedVersion, in the layout of version 0. The
    requests between brokers are listed too, although `server` refuses them.
    """
    if context.version != 0:
        return Reply(ApiVersionsResponse(UnsupportedVersionError.errno, []))
    line = context.line
    known = {key: versions.known for key, versions in line.apis.items()}
    known.update(line.refused_apis)
    ranges = [VersionRange(key, known[key].start, known[key].stop - 1) for key in sorted(known)]
    return Reply(ApiVersionsResponse(0, ranges))
