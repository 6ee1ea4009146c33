"""Which versions the gateway offers: those that it can pass on, and those that it translates.

Requests that change topics, settings, rights or the cluster itself are never passed on, because
each client would have the rights that the target gives the gateway. They are offered in the
versions in which the gateway can answer that the client isn't authorized.

Clients that negotiate read the versions in the response to ApiVersions. The target's response is
changed in one place only, the array of ranges, so that features and throttle times come from the
target.

Invariant: a version is offered only if `handler` translates, passes or answers its requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from aiokafka08._tools.gateway.headers import API_VERSIONS, CORRELATION_BYTES, RequestHead
from aiokafka08._tools.gateway.layouts import Api, apis
from aiokafka08._tools.gateway.messages import Values, message_of, response_frame
from aiokafka08.errors import UnsupportedVersionError
from aiokafka08.protocol.api import ApiKey
from aiokafka08.protocol.types import Buffer

TRANSLATED: Final[Mapping[int, tuple[range, int]]] = {
    ApiKey.PRODUCE: (range(3), 3),
    ApiKey.FETCH: (range(4), 10),
    ApiKey.LIST_OFFSETS: (range(1), 1),
    ApiKey.OFFSET_COMMIT: (range(2), 2),
    ApiKey.OFFSET_FETCH: (range(1), 1),
}
"""By API: the versions that are translated, and the version that the target gets."""

CHANGES: Final = frozenset({
    "CreateTopics", "DeleteTopics", "DeleteRecords", "CreatePartitions", "AlterConfigs",
    "IncrementalAlterConfigs", "AlterReplicaLogDirs", "AlterPartitionReassignments",
    "ElectLeaders", "CreateAcls", "DeleteAcls", "AlterClientQuotas", "AlterUserScramCredentials",
    "CreateDelegationToken", "RenewDelegationToken", "ExpireDelegationToken", "UpdateFeatures",
    "UnregisterBroker", "AddRaftVoter", "RemoveRaftVoter",
    "StreamsGroupHeartbeat",  # it creates the topics of its topology
})  # fmt: skip
"""The APIs that change the cluster; they never reach the target."""

_UNSUPPORTED_VERSION: Final = UnsupportedVersionError.errno
_RANGES: Final = frozenset({"ApiKeys"})


def is_translated(key: int, version: int) -> bool:
    """Return whether the gateway translates this version."""
    return key in TRANSLATED and version in TRANSLATED[key][0]


def unsupported_version(head: RequestHead) -> list[Buffer]:
    """Return the answer to a version of ApiVersions that the gateway doesn't know.

    Like the answer of a broker it has version 0, and lists only the versions of ApiVersions.
    """
    api = apis()[API_VERSIONS]
    known = {"ApiKey": api.key, "MinVersion": api.versions[0], "MaxVersion": api.versions[-1]}
    values = {"ErrorCode": _UNSUPPORTED_VERSION, "ApiKeys": [known]}
    return response_frame(api, head._replace(version=0), values)


Versions = Callable[[Api], range]
"""Returns the versions of an API that clients may send, apart from those that are translated."""


def offered(version: int, frame: memoryview, versions: Versions) -> list[Buffer]:
    """Return the target's response to ApiVersions with the ranges that the gateway offers.

    Args:
        version: the version of the response.
        frame: its frame.
        versions: see `Versions`.

    Raises:
        KafkaProtocolError: the frame isn't such a response.
    """
    code = frame[CORRELATION_BYTES : CORRELATION_BYTES + 2]
    if int.from_bytes(code, "big") == _UNSUPPORTED_VERSION:
        version = 0  # a target that doesn't know the version says so in version 0
    response = message_of(apis()[API_VERSIONS], "response", version, _RANGES)
    values = response.read(frame)
    values["ApiKeys"] = list(_offered(values["ApiKeys"], versions))
    return response.changed(frame, values)


def _offered(ranges: Sequence[Values], versions: Versions) -> Iterator[Values]:
    """Yield the ranges of versions that the gateway offers, given those of the target."""
    for one in ranges:
        api = apis().get(one["ApiKey"])
        known = range(0) if api is None else versions(api)
        if not known:
            continue
        first, last = max(one["MinVersion"], known[0]), min(one["MaxVersion"], known[-1])
        old, becomes = TRANSLATED.get(one["ApiKey"], (range(0), -1))
        if first <= becomes <= last and first == old[-1] + 1:
            first = old[0]
        if first <= last:
            yield {"ApiKey": one["ApiKey"], "MinVersion": first, "MaxVersion": last}
