"""ApiVersions: what the line answers, from its table."""

from __future__ import annotations

from aiokafka08.protocol.api import ApiVersionsRequest, ApiVersionsResponse, VersionRange
from aiokafka08.testing.handlers.outcome import Context, Outcome, Reply

UNSUPPORTED_VERSION = 35


def api_versions(context: Context, request: ApiVersionsRequest) -> Outcome:
    """The table of the line; a version above 0 is answered with 35 in the layout of 0.

    Not modelled: the keys between brokers (4 - 7) and SASL's (17), which the real one lists too.
    """
    if context.version != 0:
        return Reply(ApiVersionsResponse(UNSUPPORTED_VERSION, []))
    ranges = [
        VersionRange(key, versions.known.start, versions.known.stop - 1)
        for key, versions in sorted(context.line.apis.items())
    ]
    return Reply(ApiVersionsResponse(0, ranges))
