"""ApiVersions: the API versions that the line knows, from its table in `broker_lines`."""

from __future__ import annotations

from aiokafka08.errors import UnsupportedVersionError
from aiokafka08.protocol.api import ApiVersionsRequest, ApiVersionsResponse, VersionRange
from aiokafka08.testing.handlers.outcome import Outcome, Reply, RequestContext


def api_versions(context: RequestContext, request: ApiVersionsRequest) -> Outcome:
    """Return the line's table; UnsupportedVersion, in the layout of 0, for a version above 0.

    Doesn't model: the keys between brokers (4 - 7) and SASL's (17), which real brokers list too.
    """
    if context.version != 0:
        return Reply(ApiVersionsResponse(UnsupportedVersionError.errno, []))
    ranges = [
        VersionRange(key, versions.known.start, versions.known.stop - 1)
        for key, versions in sorted(context.line.apis.items())
    ]
    return Reply(ApiVersionsResponse(0, ranges))
