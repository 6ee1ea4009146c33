"""What a handler receives (`RequestContext`) and returns (`HandlerResult`): `server` performs it.

Pure data, with two helpers for the handlers of partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from aiokafka08._core.server.work import PAUSE, Work
from aiokafka08.protocol.api import Response, Topic
from aiokafka08.structs import TopicPartition
from aiokafka08.testing.broker_lines import LineRules
from aiokafka08.testing.sasl import SaslSession
from aiokafka08.testing.state import BrokerState, ClusterState


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The broker, the client and the time of a request.

    `layout` is the version whose layout the response has. `now_ms` is wall-clock time, `now_s` the
    time of a monotonic clock. `reserve(bytes)` makes room for a large response; it returns False if
    there is none, and the connection is closed then. `session`: None on a listener without SASL.
    """

    state: ClusterState
    node: BrokerState
    version: int
    layout: int
    now_ms: int
    now_s: float
    client_id: str | None
    client_host: str
    reserve: Callable[[int], bool]
    session: SaslSession | None = None

    @property
    def line(self) -> LineRules:
        return self.state.line


@dataclass(slots=True)
class Reply:
    """Send this response, with the request's correlation id and layout if these are None.

    Only a quirk of 0.8.2 sets another correlation id, and one of 0.9 another layout.
    """

    response: Response
    correlation_id: int | None = None
    layout: int | None = None


class RequestFailed(Exception):
    """The broker's handler failed: the whole request gets the error code of `UnknownError`.

    A Produce with acks=0 closes the connection.
    """


class DiskFull(Exception):
    """The broker can't store a message: it halts (docs/brokers.md 9.8)."""


@dataclass(frozen=True, slots=True)
class NoReply:
    """Send no response."""


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Close the connection; later requests on it are lost."""


@dataclass(slots=True)
class Wait:
    """Respond later.

    Whenever one of `keys` has changed, `runtime` calls `check(False)`, which returns the reply, or
    None to wait on. After `timeout_ms` (None: never) `runtime` calls `check(True)`, which must
    return the reply. Instead of a reply it may return Disconnect, or the steps to either.
    """

    timeout_ms: int | None
    keys: frozenset[Hashable]
    check: Callable[[bool], Late | Work[Late]]


Late = Reply | Disconnect | None
"""The outcome of a request that waited; None: it waits on."""

HandlerResult = Reply | NoReply | Disconnect | Wait

_STEP_PARTITIONS: Final = 1000


class _HasPartition(Protocol):
    partition: int


P = TypeVar("P", bound=_HasPartition)
T = TypeVar("T")


def by_partition(topics: Iterable[Topic[P]]) -> Work[dict[TopicPartition, P]]:
    """Return the items of a request by partition; of duplicates the last one (brokers.md 3.12)."""
    items: dict[TopicPartition, P] = {}
    for topic in topics:
        for number, partition in enumerate(topic.partitions, len(items) + 1):
            items[TopicPartition(topic.topic, partition.partition)] = partition
            if not number % _STEP_PARTITIONS:
                yield PAUSE
    return items


def group_by_topic(items: dict[TopicPartition, T]) -> Work[list[Topic[T]]]:
    """Group the items of a response by topic, in the reverse of their order (brokers.md 3.11)."""
    topics: dict[str, list[T]] = {}
    for number, key in enumerate(reversed(items), 1):
        topics.setdefault(key.topic, []).append(items[key])
        if not number % _STEP_PARTITIONS:
            yield PAUSE
    return [Topic(topic, partitions) for topic, partitions in topics.items()]
