"""Which line of brokers is this, and which versions of each API does it speak?

Pure: `detect()` is a generator that says what to ask next and is sent the raw answers; `probe` does
the asking on a throw-away connection. The sequence follows docs/brokers.md §2: it creates nothing
on the broker and never sends what 0.9 meets with silence.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from aiokafka08.errors import (
    IllegalArgumentError,
    KafkaConnectionError,
    KafkaProtocolError,
    UnrecognizedBrokerVersion,
    UnsupportedVersionError,
)
from aiokafka08.protocol.api import (
    ApiKey,
    ApiVersionsRequest,
    HeartbeatRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetFetchRequest,
    Request,
    decode_response,
)

T = TypeVar("T")


class BrokerLine(enum.IntEnum):
    """A line of brokers, in order. V0_10 stands for all up to 3.9: ApiVersions tells the rest."""

    V0_8_0 = 0
    V0_8_1 = 1
    V0_8_2 = 2
    V0_9 = 3
    V0_10 = 4

    def __str__(self) -> str:
        return self.name[1:].replace("_", ".")


_APIS_0_8_0 = {
    ApiKey.PRODUCE: range(1),
    ApiKey.FETCH: range(1),
    ApiKey.LIST_OFFSETS: range(1),
    ApiKey.METADATA: range(1),
}
_APIS_0_8_1 = _APIS_0_8_0 | {ApiKey.OFFSET_COMMIT: range(1), ApiKey.OFFSET_FETCH: range(1)}
_APIS_0_8_2 = _APIS_0_8_1 | {
    ApiKey.OFFSET_COMMIT: range(2),
    ApiKey.OFFSET_FETCH: range(2),
    ApiKey.GROUP_COORDINATOR: range(1),
}
_APIS_0_9 = _APIS_0_8_2 | {
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
_APIS_0_10 = _APIS_0_9 | {
    ApiKey.PRODUCE: range(3),
    ApiKey.FETCH: range(3),
    ApiKey.LIST_OFFSETS: range(2),
    ApiKey.METADATA: range(2),
    ApiKey.API_VERSIONS: range(1),
}
LINE_APIS: Mapping[BrokerLine, Mapping[ApiKey, range]] = {
    BrokerLine.V0_8_0: _APIS_0_8_0,
    BrokerLine.V0_8_1: _APIS_0_8_1,
    BrokerLine.V0_8_2: _APIS_0_8_2,
    BrokerLine.V0_9: _APIS_0_9,
    BrokerLine.V0_10: _APIS_0_10,
}
"""What each line speaks, of what this client speaks (docs/brokers.md §2, §8)."""


@dataclass(frozen=True, slots=True)
class BrokerVersion:
    """The line of one broker and the API versions that it and this client share."""

    line: BrokerLine
    apis: Mapping[ApiKey, range]

    @classmethod
    def of(cls, line: BrokerLine) -> BrokerVersion:
        """What a broker of this line speaks."""
        return cls(line, LINE_APIS[line])

    @classmethod
    def pinned(cls, api_version: str | tuple[int, ...] | None) -> BrokerVersion | None:
        """The version that the option `api_version` pins; None for "auto" and None.

        Raises:
            IllegalArgumentError: it isn't "auto", a tuple such as (0, 8, 2) or text like "0.8.2".
        """
        if api_version in (None, "auto"):
            return None
        numbers = api_version
        if isinstance(api_version, str) and re.fullmatch(r"[0-9]+(\.[0-9]+)*", api_version):
            numbers = tuple(map(int, api_version.split(".")))
        if isinstance(numbers, tuple) and numbers and all(type(n) is int for n in numbers):
            if numbers >= (4,):
                raise UnsupportedVersionError(
                    f"api_version={api_version!r}: brokers from 4.0 on dropped the requests of 0.8"
                )
            if (0, 10) <= numbers < (0, 10, 1):
                return cls(BrokerLine.V0_10, {**_APIS_0_10, ApiKey.LIST_OFFSETS: range(1)})
            for line, first in (
                (BrokerLine.V0_10, (0, 10)),
                (BrokerLine.V0_9, (0, 9)),
                (BrokerLine.V0_8_2, (0, 8, 2)),
                (BrokerLine.V0_8_1, (0, 8, 1)),
                (BrokerLine.V0_8_0, (0, 8)),
            ):
                if numbers >= first:
                    return cls.of(line)
        raise IllegalArgumentError(
            f"api_version={api_version!r}: allowed are 'auto' and versions from 0.8.0 to 3.9, "
            "as (0, 8, 2) or '0.8.2'"
        )

    @property
    def magic(self) -> int:
        """The message format to write: 1 from 0.10 on, else 0."""
        return 1 if self.line >= BrokerLine.V0_10 else 0

    def supports(self, request: type[Request[Any]], version: int = 0) -> bool:
        """Whether the broker understands this version of the API."""
        return version in self.apis.get(request.api, ())

    def highest(self, request: type[Request[Any]]) -> int:
        """The highest version of an API that both sides speak.

        Raises:
            UnsupportedVersionError: the broker's line doesn't have this API.
        """
        versions = self.apis.get(request.api)
        if not versions:
            raise UnsupportedVersionError(
                f"brokers of the {self.line} line don't know {request.__name__}"
            )
        return versions[-1]


class Probe(NamedTuple):
    """What to ask next; `fresh`: on a new connection, since the last one was closed."""

    request: Request[Any]
    version: int
    fresh: bool = False


Steps = Generator[Probe, memoryview | None, T]
"""Yields what to ask, is sent the answer's frame, or None for "it closed"; returns its find."""

_ALIVE = ListOffsetsRequest(-1, [])
"""Every broker from 0.8.0 to 3.9 answers it."""


def detect() -> Steps[BrokerVersion]:
    """Find a broker's line: yields probes, is sent each answer's frame, or None for "it closed".

    Raises:
        UnsupportedVersionError: a broker from 4.0 on, which dropped the requests of 0.8.
        UnrecognizedBrokerVersion: the peer answers like no known line.
        KafkaProtocolError: an answer isn't what was asked: not a Kafka broker.
        KafkaConnectionError: it lives, and then closes on what it answered before.
    """
    frame = yield Probe(_ALIVE, 0)
    if frame is None:
        # Once more: the connection may have been cut by chance, and ApiVersions must not reach an
        # 0.9, whose silence costs other connections their answers (docs/brokers.md 2.2).
        frame = yield Probe(_ALIVE, 0, fresh=True)
        if frame is None:
            return (yield from _detect_modern())
    decode_response(ListOffsetsRequest, 0, frame)

    frame = yield from _ask_twice(OffsetFetchRequest("probe", []), 0)
    if frame is None:
        return BrokerVersion.of(BrokerLine.V0_8_0)
    decode_response(OffsetFetchRequest, 0, frame)

    frame = yield from _ask_twice(HeartbeatRequest("probe", -1, ""), 0)
    if frame is None:
        return BrokerVersion.of(BrokerLine.V0_8_1)
    if decode_response(HeartbeatRequest, 0, frame).error_code == -1:
        return BrokerVersion.of(BrokerLine.V0_8_2)

    frame = yield from _ask_twice(MetadataRequest([]), 1)
    if frame is None:
        raise UnrecognizedBrokerVersion("the broker knows Heartbeat, but closes on Metadata 1")
    # 0.9 ignores the version and answers in the layout of 0: only one layout uses every byte.
    if _fits(frame, 0):
        return BrokerVersion.of(BrokerLine.V0_9)
    if not _fits(frame, 1):
        raise UnrecognizedBrokerVersion("the broker's Metadata answer fits no known layout")

    frame = yield from _ask_twice(ApiVersionsRequest(), 0)
    if frame is None:
        raise UnrecognizedBrokerVersion("the broker knows Metadata 1, but closes on ApiVersions")
    return _from_api_versions(frame)


def _ask_twice(request: Request[Any], version: int) -> Steps[memoryview | None]:
    """The answer; None where the broker closes on the request each time, though it is alive.

    One close proves nothing: a dying broker, or a proxy, closes as well, and an 0.8.2 broker that
    is taken for an 0.8.0 would be refused all commits.
    """
    frame = yield Probe(request, version)
    if frame is not None:
        return frame
    frame = yield Probe(_ALIVE, 0, fresh=True)
    if frame is None:
        raise KafkaConnectionError("it closes its connections while it is asked for its version")
    decode_response(ListOffsetsRequest, 0, frame)
    return (yield Probe(request, version))


def _detect_modern() -> Steps[BrokerVersion]:
    """The peer closes on ListOffsets 0: a 4.x broker, or no broker at all."""
    frame = yield Probe(ApiVersionsRequest(), 0, fresh=True)
    if frame is None:
        raise KafkaProtocolError(
            "it closes on ListOffsets and on ApiVersions: not a Kafka broker, or a listener that "
            "wants TLS (security_protocol='SSL' and ssl_context)"
        )
    return _from_api_versions(frame)


def _fits(frame: memoryview, version: int) -> bool:
    try:
        decode_response(MetadataRequest, version, frame)
    except KafkaProtocolError:
        return False
    return True


def _from_api_versions(frame: memoryview) -> BrokerVersion:
    answer = decode_response(ApiVersionsRequest, 0, frame)
    offered = {one.api_key: one for one in answer.api_versions}
    # 4.x still says Produce 0, but can't take it: Fetch is the honest one (docs/brokers.md 2.4).
    fetch = offered.get(ApiKey.FETCH)
    if fetch is None or fetch.min_version > 2:
        first = "no Fetch at all" if fetch is None else f"Fetch from version {fetch.min_version} on"
        raise UnsupportedVersionError(
            f"the broker offers {first}: it is a 4.x (or later) broker, which dropped the requests "
            "of 0.8 (KIP-896). This client speaks to brokers 0.8.0 to 3.9; use a current client"
        )
    return BrokerVersion(
        BrokerLine.V0_10,
        {
            key: range(offered[key].min_version, min(ours[-1], offered[key].max_version) + 1)
            for key, ours in LINE_APIS[BrokerLine.V0_10].items()
            if key in offered
        },
    )
