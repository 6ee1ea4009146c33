"""Which versions the gateway offers: those that it can pass on, and those that it translates.

Requests that change topics, settings, rights or the cluster itself are offered as far as the
gateway has an answer for them: that the client isn't authorized. Each client of the gateway would
have the rights that the target gives the gateway.

Clients that negotiate read them in the response to ApiVersions. The target's response is changed in
one place only, the array of ranges, so that features and throttle times come from the target.

Invariant: a version is offered only if `handler` translates, passes or answers a request of it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from aiokafka08._tools.gateway.headers import API_VERSIONS
from aiokafka08._tools.gateway.layouts import Api, apis, behind_tags, encode_varint, read_varint
from aiokafka08.errors import KafkaProtocolError, UnsupportedVersionError
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

CHANGES: Final = frozenset(
    {
        "CreateTopics", "DeleteTopics", "DeleteRecords", "CreatePartitions", "AlterConfigs",
        "IncrementalAlterConfigs", "AlterReplicaLogDirs", "AlterPartitionReassignments",
        "ElectLeaders", "CreateAcls", "DeleteAcls", "AlterClientQuotas",
        "AlterUserScramCredentials", "CreateDelegationToken", "RenewDelegationToken",
        "ExpireDelegationToken", "UpdateFeatures", "UnregisterBroker", "AddRaftVoter",
        "RemoveRaftVoter",
        "StreamsGroupHeartbeat",  # it creates the topics of its topology
    }
)  # fmt: skip
"""The APIs that change the cluster; they never reach the target."""

_RANGE: Final = struct.Struct(">hhh")
_UNSUPPORTED_VERSION: Final = UnsupportedVersionError.errno
_FLEXIBLE: Final = 3


def is_translated(key: int, version: int) -> bool:
    """Return whether the gateway translates this version."""
    return key in TRANSLATED and version in TRANSLATED[key][0]


def unsupported_version(correlation_id: int) -> list[Buffer]:
    """Return the answer to a version of ApiVersions that the gateway doesn't know.

    As that of brokers it is of version 0, with the versions of ApiVersions alone.
    """
    versions = apis()[API_VERSIONS].versions
    ranges = _RANGE.pack(API_VERSIONS, versions[0], versions[-1])
    return [struct.pack(">ihi", correlation_id, _UNSUPPORTED_VERSION, 1) + ranges]


Versions = Callable[[Api], range]
"""From an API to the versions of it that clients may send, apart from those that are translated."""


def offered(version: int, frame: memoryview, versions: Versions) -> list[Buffer]:
    """Return the target's response to ApiVersions with the ranges that the gateway offers.

    Args:
        version: the version of the response.
        frame: its frame.
        versions: see `Versions`.

    Raises:
        KafkaProtocolError: the frame isn't such a response.
    """
    if len(frame) < 6:
        raise KafkaProtocolError(f"ApiVersionsResponse: {len(frame)} bytes; expected at least 6")
    error_code = int.from_bytes(frame[4:6], "big", signed=True)
    if error_code == _UNSUPPORTED_VERSION:
        version = 0  # a target that doesn't know the version says so in version 0
    is_flexible = version >= _FLEXIBLE
    if is_flexible:
        count, pos = read_varint(frame, 6)
        count -= 1
    else:
        count, pos = int.from_bytes(frame[6:10], "big", signed=True), 10
    if not 0 <= count <= (len(frame) - pos) // _RANGE.size:
        raise KafkaProtocolError(
            f"ApiVersionsResponse version {version}: {count} ranges in {len(frame) - pos} bytes"
        )
    made = []
    for _ in range(count):
        if len(frame) - pos < _RANGE.size:
            raise KafkaProtocolError(f"ApiVersionsResponse version {version}: cut off at {pos}")
        key, first, last = _RANGE.unpack_from(frame, pos)
        pos += _RANGE.size
        if is_flexible:
            pos = behind_tags(frame, pos)
        made += [_RANGE.pack(key, *ends) for ends in _offered_range(key, first, last, versions)]
    if is_flexible:
        array = encode_varint(len(made) + 1) + b"".join(one + b"\0" for one in made)
    else:
        array = len(made).to_bytes(4, "big") + b"".join(made)
    return [frame[:6], array, frame[pos:]]


def _offered_range(
    key: int, first: int, last: int, versions: Versions
) -> Iterator[tuple[int, int]]:
    """Yield the first and last version that are offered of an API, if there are any."""
    api = apis().get(key)
    known = range(0) if api is None else versions(api)
    if not known:
        return
    known_first, known_last = max(first, known[0]), min(last, known[-1])
    if known_first > known_last:
        return
    old, becomes = TRANSLATED.get(key, (range(0), -1))
    if known_first <= becomes <= known_last and known_first == old[-1] + 1:
        known_first = old[0]
    yield known_first, known_last
