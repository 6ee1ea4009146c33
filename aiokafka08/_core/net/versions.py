"""Identify a broker's release line, and the API versions that it shares with this client. Pure.

A line is a family of releases, such as 0.8.2 or everything from 0.10 to 3.9. The sequence of probes
follows docs/brokers.md §2.

Invariant: no probe creates anything on the broker, and none leaves an error in its log, except
OffsetFetch, on which 0.8.0 logs a stack trace (only with `exact`). ApiVersions, which does harm on
0.9 (docs/brokers.md 2.2), is sent only if the probes before it have ruled out 0.9, or if the broker
has closed the connection on two of them.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

from aiokafka08.errors import (
    IllegalArgumentError,
    KafkaConnectionError,
    KafkaProtocolError,
    UnknownTopicOrPartitionError,
    UnrecognizedBrokerVersion,
    UnsupportedVersionError,
)
from aiokafka08.protocol.api import ApiKey, Request, Topic, decode_response
from aiokafka08.protocol.requests.api_versions import ApiVersionsRequest
from aiokafka08.protocol.requests.fetch import FetchRequest
from aiokafka08.protocol.requests.list_offsets import ListOffsetsRequest
from aiokafka08.protocol.requests.metadata import MetadataRequest

T = TypeVar("T")


class BrokerLine(enum.IntEnum):
    """A family of broker versions, in order.

    V0_8 stands for any of the next three lines, while it isn't known which. V0_10 stands for all
    brokers from 0.10 to 3.9, which report their versions by ApiVersions.
    """

    V0_8 = 0
    V0_8_0 = 1
    V0_8_1 = 2
    V0_8_2 = 3
    V0_9 = 4
    V0_10 = 5

    def __str__(self) -> str:
        return self.name[1:].replace("_", ".")


_APIS_0_8_0: Final = {
    ApiKey.PRODUCE: range(1),
    ApiKey.FETCH: range(1),
    ApiKey.LIST_OFFSETS: range(1),
    ApiKey.METADATA: range(1),
}
_APIS_0_8_1: Final = _APIS_0_8_0 | {ApiKey.OFFSET_COMMIT: range(1), ApiKey.OFFSET_FETCH: range(1)}
_APIS_0_8_2: Final = _APIS_0_8_1 | {
    ApiKey.OFFSET_COMMIT: range(2),
    ApiKey.OFFSET_FETCH: range(2),
    ApiKey.GROUP_COORDINATOR: range(1),
}
_APIS_0_9: Final = _APIS_0_8_2 | {
    ApiKey.PRODUCE: range(2),
    ApiKey.FETCH: range(2),
    ApiKey.OFFSET_COMMIT: range(3),
    ApiKey.JOIN_GROUP: range(1),
    ApiKey.HEARTBEAT: range(1),
    ApiKey.LEAVE_GROUP: range(1),
    ApiKey.SYNC_GROUP: range(1),
    ApiKey.DESCRIBE_GROUPS: range(1),
    ApiKey.LIST_GROUPS: range(1),
}
_APIS_0_10: Final = _APIS_0_9 | {
    ApiKey.PRODUCE: range(3),
    ApiKey.FETCH: range(3),
    ApiKey.LIST_OFFSETS: range(2),
    ApiKey.METADATA: range(3),
    ApiKey.OFFSET_FETCH: range(3),
    ApiKey.API_VERSIONS: range(1),
    ApiKey.SASL_HANDSHAKE: range(2),
    ApiKey.SASL_AUTHENTICATE: range(2),
    ApiKey.DELETE_GROUPS: range(1),
}
# Releases that added API versions, with the versions that older releases have instead of those in
# `_APIS_0_10`. Of two releases that extended the same API, the newer one comes first.
_ADDED_AFTER_0_10_0: Final[Mapping[tuple[int, ...], Mapping[ApiKey, range]]] = {
    (0, 10, 1): {ApiKey.LIST_OFFSETS: range(1), ApiKey.METADATA: range(2)},
    (0, 10, 2): {ApiKey.OFFSET_FETCH: range(2)},
    (1, 1): {ApiKey.DELETE_GROUPS: range(0)},
    (2, 2): {ApiKey.SASL_AUTHENTICATE: range(1)},
    (1, 0): {ApiKey.SASL_HANDSHAKE: range(1), ApiKey.SASL_AUTHENTICATE: range(0)},
}

LINE_APIS: Final[Mapping[BrokerLine, Mapping[ApiKey, range]]] = {
    BrokerLine.V0_8: _APIS_0_8_0,
    BrokerLine.V0_8_0: _APIS_0_8_0,
    BrokerLine.V0_8_1: _APIS_0_8_1,
    BrokerLine.V0_8_2: _APIS_0_8_2,
    BrokerLine.V0_9: _APIS_0_9,
    BrokerLine.V0_10: _APIS_0_10,
}
"""The API versions that each line shares with this client (docs/brokers.md §2, §8). V0_10 has those
of its newest release; an older release shows in its ApiVersions response what it lacks."""


@dataclass(frozen=True, slots=True)
class BrokerVersion:
    """The line of one broker and the API versions that it and this client share."""

    line: BrokerLine
    apis: Mapping[ApiKey, range]  # per API the versions that both sides support
    # The release, as far as the broker's responses show it: "0.9", "3.5 or 3.6"; by default that of
    # the line
    release: str = field(default="", compare=False)
    # The message format to produce: 1 from 0.10 on, else 0. A field, since it is read per message.
    magic: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "magic", 1 if self.line >= BrokerLine.V0_10 else 0)
        if not self.release:
            object.__setattr__(self, "release", str(self.line))

    @classmethod
    def of(cls, line: BrokerLine) -> BrokerVersion:
        return cls(line, LINE_APIS[line])

    @classmethod
    def pinned(cls, api_version: str | tuple[int, ...] | None) -> BrokerVersion | None:
        """Return the version that the option `api_version` pins; None for "auto" and None.

        Raises:
            IllegalArgumentError: it isn't "auto", a tuple such as (0, 8, 2) or a string like
                "0.8.2".
            UnsupportedVersionError: brokers of this version dropped the requests of 0.8.
        """
        if api_version in (None, "auto"):
            return None
        numbers = api_version
        if isinstance(api_version, str) and re.fullmatch(r"[0-9]+(\.[0-9]+)*", api_version):
            numbers = tuple(map(int, api_version.split(".")))
        if isinstance(numbers, tuple) and numbers and all(type(n) is int for n in numbers):
            if numbers >= (4,):
                raise UnsupportedVersionError(
                    f"api_version={api_version!r}: brokers from 4.0 on dropped the requests of "
                    "0.8; expected at most 3.9"
                )
            if numbers >= (0, 10):
                apis = dict(_APIS_0_10)
                for release, before in _ADDED_AFTER_0_10_0.items():
                    if numbers < release:
                        apis |= before
                return cls(BrokerLine.V0_10, apis)
            for line, first in (
                (BrokerLine.V0_9, (0, 9)),
                (BrokerLine.V0_8_2, (0, 8, 2)),
                (BrokerLine.V0_8_1, (0, 8, 1)),
                (BrokerLine.V0_8_0, (0, 8)),
            ):
                if numbers >= first:
                    return cls.of(line)
        raise IllegalArgumentError(
            f"api_version={api_version!r}: expected 'auto' or a version from 0.8.0 to 3.9, such "
            "as (0, 8, 2) or '0.8.2'"
        )

    @property
    def is_exact(self) -> bool:
        """Whether the line is known, and not only that it is one of the 0.8 lines."""
        return self.line is not BrokerLine.V0_8

    def supports(self, request: type[Request[Any]], version: int = 0) -> bool:
        return version in self.apis.get(request.api, ())

    def highest(self, request: type[Request[Any]]) -> int:
        """Return the highest version of an API that both sides support.

        Raises UnsupportedVersionError if the broker line doesn't have this API.
        """
        versions = self.apis.get(request.api)
        if not versions:
            raise UnsupportedVersionError(
                f"brokers of the {self.line} line don't support {request.__name__}"
            )
        return versions[-1]


class Probe(NamedTuple):
    """A request to send; `fresh`: on a new connection, because the broker closed the last one."""

    request: Request[Any]
    version: int
    fresh: bool = False


Steps = Generator[Probe, memoryview | None, T]
"""Yields probes; is sent each response's frame, or None if the broker closed the connection."""


def alive_request() -> ListOffsetsRequest:
    return ListOffsetsRequest(-1, [])


METADATA_PROBE: Final = Probe(MetadataRequest([]), 1)
"""Brokers of 0.8 and 0.9 ignore the version, and respond in layout 0 with all topics."""

FETCH_PROBE: Final = Probe(FetchRequest(-1, 0, 0, []), 1)
"""0.8 ignores the version. Layout 1, of 0.9 to 3.9, begins with the throttle time."""


# A group that never commits
_PROBE_GROUP: Final = "aiokafka08-version-probe"

# How many topics to probe, so that they aren't all deleted within a round trip
_PROBE_TOPICS: Final = 10


def detect_version(exact: bool = False) -> Steps[BrokerVersion]:
    """Find a broker's version: yield probes, and receive the frame of each response.

    None in place of a frame means that the broker closed the connection. `exact`: find out which of
    the 0.8 lines it is. Otherwise, or if the broker has no topic yet, all three are
    `BrokerLine.V0_8`.

    Raises:
        UnsupportedVersionError: it is a broker from 4.0 on, which dropped the requests of 0.8.
        UnrecognizedBrokerVersion: the peer's responses fit no known line.
        KafkaProtocolError: a response doesn't match its request: it isn't a Kafka broker.
        KafkaConnectionError: the broker closes the connection on a request to which it responded
            before.
    """
    frame = yield Probe(alive_request(), 0)
    if frame is None:
        # The connection may have been lost by chance. Try once more: that makes it unlikely that
        # ApiVersions reaches a 0.9 broker, which would then lose responses on other connections
        # (docs/brokers.md 2.2).
        frame = yield Probe(alive_request(), 0, fresh=True)
        if frame is None:
            return (yield from _detect_from_api_versions())
    decode_response(ListOffsetsRequest, 0, frame)

    frame = yield from _probe_twice(FETCH_PROBE)
    if frame is None:
        raise UnrecognizedBrokerVersion(
            "the broker supports ListOffsets, but closes the connection on Fetch 1"
        )
    if is_of_0_8(frame):
        line = (yield from _detect_0_8_line()) if exact else BrokerLine.V0_8
        return BrokerVersion.of(line)
    decode_response(FetchRequest, 1, frame)

    frame = yield from _probe_twice(METADATA_PROBE)
    if frame is None:
        raise UnrecognizedBrokerVersion(
            "the broker supports Fetch 1, but closes the connection on Metadata 1"
        )
    if is_before_0_10(frame):
        return BrokerVersion.of(BrokerLine.V0_9)
    if not _fits(MetadataRequest, 1, frame):
        raise UnrecognizedBrokerVersion("the broker's Metadata response fits no known layout")

    frame = yield from _probe_twice(Probe(ApiVersionsRequest(), 0))
    if frame is None:
        raise UnrecognizedBrokerVersion(
            "the broker supports Metadata 1, but closes the connection on ApiVersions"
        )
    return _from_api_versions(frame)


def _detect_0_8_line() -> Steps[BrokerLine]:
    """Tell the 0.8 lines apart by OffsetFetch 1 for a partition that exists."""
    # Few callers get here, so most programs don't need to import the structs.
    from aiokafka08.protocol.requests.committed_offsets import OffsetFetchRequest

    for _ in range(2):
        frame = yield from _probe_twice(Probe(MetadataRequest([]), 0))
        if frame is None:
            raise UnrecognizedBrokerVersion("the broker closes the connection on Metadata 0")
        # 0.8.1 responds UnknownTopicOrPartition for each partition, and so does 0.8.2 for a topic
        # that was deleted after the Metadata response. So ask for several topics, and ask again if
        # the first response has only this code. Without a partition, both lines respond alike.
        existing = [
            Topic(topic.topic, [topic.partitions[0].partition])
            for topic in decode_response(MetadataRequest, 0, frame).topics
            if topic.partitions
        ][:_PROBE_TOPICS]
        frame = yield from _probe_twice(Probe(OffsetFetchRequest(_PROBE_GROUP, existing), 1))
        if frame is None:
            # It doesn't know the request.
            return BrokerLine.V0_8_0
        codes = {
            partition.error_code
            for topic in decode_response(OffsetFetchRequest, 1, frame).topics
            for partition in topic.partitions
        }
        if not codes:
            return BrokerLine.V0_8
        if codes != {UnknownTopicOrPartitionError.errno}:
            # It isn't the group's coordinator, or it is, and finds no committed offset.
            return BrokerLine.V0_8_2
    # It reads the request as version 0 and finds nothing committed in ZooKeeper.
    return BrokerLine.V0_8_1


def _probe_twice(probe: Probe) -> Steps[memoryview | None]:
    """Return the response; None if the broker closes the connection on this request twice."""
    frame = yield probe
    if frame is not None:
        return frame
    # A single close proves nothing, since a dying broker and a proxy close connections too. If a
    # 0.8.2 broker were taken for a 0.8.0 one, all commits would fail.
    frame = yield Probe(alive_request(), 0, fresh=True)
    if frame is None:
        raise KafkaConnectionError("it closes its connections while its version is probed")
    decode_response(ListOffsetsRequest, 0, frame)
    return (yield probe)


def _detect_from_api_versions() -> Steps[BrokerVersion]:
    """Identify a peer that closes on ListOffsets 0: a 4.x broker, or no broker."""
    frame = yield Probe(ApiVersionsRequest(), 0, fresh=True)
    if frame is None:
        raise KafkaProtocolError(
            "it closes on ListOffsets and on ApiVersions: not a Kafka broker, a balancer without a "
            "broker behind it, a SASL listener (set security_protocol='SASL_PLAINTEXT'; for "
            "commands security.protocol=SASL_PLAINTEXT), or a TLS listener "
            "(set security_protocol='SSL' and ssl_context; for commands security.protocol=SSL and "
            "ssl.ca.location), or one that demands a client certificate "
            "(ssl_context.load_cert_chain; for commands ssl.certificate.location)"
        )
    version = _from_api_versions(frame)
    if version.supports(ListOffsetsRequest):
        # Before the authentication, brokers answer ApiVersions and SaslHandshake (brokers.md 14.1).
        raise KafkaConnectionError(
            "it closes on ListOffsets, and answers ApiVersions: a SASL listener, and this client "
            "doesn't authenticate (set security_protocol='SASL_PLAINTEXT'; for commands "
            "security.protocol=SASL_PLAINTEXT), or a broker that is stopping"
        )
    return version


def is_of_0_8(frame: memoryview) -> bool:
    """Return whether a response to `FETCH_PROBE` is of 0.8."""
    return _fits(FetchRequest, 0, frame)


def is_before_0_10(frame: memoryview) -> bool:
    """Return whether a response to `METADATA_PROBE` is of 0.8 or 0.9."""
    # Layout 1 has more fields (racks, the controller id), and decoding must use every byte, so such
    # a response doesn't fit layout 0. A response in layout 0 may fit layout 1, for some topics.
    return _fits(MetadataRequest, 0, frame)


def _fits(request: type[Request[Any]], version: int, frame: memoryview) -> bool:
    try:
        decode_response(request, version, frame)
    except KafkaProtocolError:
        return False
    return True


def _from_api_versions(frame: memoryview) -> BrokerVersion:
    response = decode_response(ApiVersionsRequest, 0, frame)
    offered = {api.api_key: api for api in response.api_versions}
    # Check Fetch, not Produce: 4.x still lists Produce 0, but rejects it. It lists exactly the
    # Fetch versions that it supports (docs/brokers.md 2.4).
    fetch = offered.get(ApiKey.FETCH)
    if fetch is None or fetch.min_version > 2:
        first = "no Fetch at all" if fetch is None else f"Fetch from version {fetch.min_version} on"
        raise UnsupportedVersionError(
            f"the broker offers {first}: it is a 4.x (or later) broker, which dropped the requests "
            "of 0.8 (KIP-896); expected a broker from 0.8.0 to 3.9. Use a current client, such as "
            "aiokafka, kcat, or Kafka's own tools. To copy topics to it, see aiokafka08 bridge; to "
            "let old clients use it, aiokafka08 gateway"
        )
    return BrokerVersion(
        BrokerLine.V0_10,
        {
            key: range(offered[key].min_version, min(ours[-1], offered[key].max_version) + 1)
            for key, ours in LINE_APIS[BrokerLine.V0_10].items()
            if key in offered
        },
        release_of({key: api.max_version for key, api in offered.items()}),
    )


# The releases, newest first, each with an API version that no older release has
_RELEASES: Final[tuple[tuple[str, ApiKey, int], ...]] = (
    ("3.9", ApiKey.FETCH, 17),
    ("3.8", ApiKey.PRODUCE, 11),
    ("3.7", ApiKey.FETCH, 16),
    ("3.5 or 3.6", ApiKey.FETCH, 15),
    ("3.1 to 3.4", ApiKey.FETCH, 13),
    ("3.0", ApiKey.LIST_OFFSETS, 7),
    ("2.8", ApiKey.METADATA, 11),
    ("2.7", ApiKey.FETCH, 12),
    ("2.5 or 2.6", ApiKey.OFFSET_FETCH, 7),
    ("2.4", ApiKey.METADATA, 9),
    ("2.3", ApiKey.FETCH, 11),
    ("2.2", ApiKey.LIST_OFFSETS, 5),
    ("2.1", ApiKey.FETCH, 10),
    ("2.0", ApiKey.FETCH, 8),
    ("1.1", ApiKey.FETCH, 7),
    ("1.0", ApiKey.FETCH, 6),
    ("0.11", ApiKey.FETCH, 5),
    ("0.10.2", ApiKey.OFFSET_FETCH, 2),
    ("0.10.1", ApiKey.FETCH, 3),
)


def release_of(max_versions: Mapping[int, int]) -> str:
    """Return the release of a broker that offers APIs up to these versions (`ApiKey` → version)."""
    for release, api, version in _RELEASES:
        if max_versions.get(api, -1) >= version:
            return release
    return "0.10.0"
