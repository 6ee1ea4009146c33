"""A handler's input (`RequestContext`) and its decision (`HandlerResult`), which `server` performs.

Pure data, with helpers for the handlers of partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from aiokafka08._core.server.sasl import SaslSession
from aiokafka08._core.server.work import PAUSE, Work
from aiokafka08.protocol.api import Response, Topic
from aiokafka08.structs import TopicPartition
from aiokafka08.testing.broker_lines import LineRules, ResponseOrder
from aiokafka08.testing.state import BrokerState, ClusterState, java_hash


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The broker, the client and the time of a request."""

    state: ClusterState
    node: BrokerState
    version: int
    # The version whose layout the response has.
    layout: int
    # Wall-clock time, and the time of a monotonic clock.
    now_ms: int
    now_s: float
    client_id: str | None
    client_host: str
    # The number of the client's connection.
    connection: int
    # Reserves memory for a large response; False: there is none, and the handler disconnects.
    reserve: Callable[[int], bool]
    # None on a listener without SASL.
    session: SaslSession | None = None

    @property
    def line(self) -> LineRules:
        return self.state.line


@dataclass(slots=True)
class Reply:
    """Send this response; a field that is None has the value of the request."""

    response: Response
    # Only a quirk of 0.8.2 sets another correlation id, and one of 0.9 another layout.
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

    When one of `keys` has changed, `check(False)` is called, which returns the reply, or None to
    keep waiting. After `timeout_ms` (None: never) `check(True)` is called, which must return the
    reply. Instead of a reply, `check` may return Disconnect, or `Work` that returns one of these.
    """

    timeout_ms: int | None
    keys: frozenset[Hashable]
    check: Callable[[bool], Late | Work[Late]]


# The outcome of a request that waited; None: it keeps waiting.
Late = Reply | Disconnect | None

HandlerResult = Reply | NoReply | Disconnect | Wait

_STEP_PARTITIONS: Final = 1000
_STEP_HASHES: Final = 100
# A text of this length is too long for a topic's name.
_NO_NAME: Final = 256


class _HasPartition(Protocol):
    partition: int


K = TypeVar("K", bound=Hashable)
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


def group_by_topic(items: dict[TopicPartition, T], order: ResponseOrder) -> Work[list[Topic[T]]]:
    """Group the items of a response by topic, in the order of the release (brokers.md 3.11)."""
    topics: dict[str, dict[int, T]] = {}
    grouped: list[Topic[T]] = []
    for number, key in enumerate(reversed(items) if order is ResponseOrder.REVERSED else items, 1):
        if order is not ResponseOrder.REQUEST:
            topics.setdefault(key.topic, {})[key.partition] = items[key]
        elif grouped and grouped[-1].topic == key.topic:
            grouped[-1].partitions.append(items[key])
        else:  # a topic that the request names twice is in the response twice
            grouped.append(Topic(key.topic, [items[key]]))
        if not number % _STEP_PARTITIONS:
            yield PAUSE
    names: Iterable[str] = topics
    if order is ResponseOrder.HASH_MAP:
        names = yield from hash_map_order(topics, hash_of_name)
    for number, name in enumerate(names, 1):
        partitions = topics[name]
        numbers: Iterable[int] = partitions
        if order is ResponseOrder.HASH_MAP:
            numbers = yield from hash_map_order(partitions, int)
        grouped.append(Topic(name, [partitions[at] for at in numbers]))
        if not number % _STEP_PARTITIONS:
            yield PAUSE
    return grouped


def hash_of_name(name: str) -> int:
    """Return Java's hash of a topic's name; 0 for names that no topic has."""
    # The hash of a long text takes time.
    return java_hash(name) if len(name) < _NO_NAME else 0


def hash_map_order(keys: Collection[K], hash_of: Callable[[K], int]) -> Work[list[K]]:
    """Return the keys in the order in which a Java HashMap with these keys iterates over them.

    `hash_of` is Java's `hashCode` of a key.
    """
    if len(keys) < 2:
        return list(keys)
    # The table doubles when it is over three quarters full; a bucket keeps the order of insertion.
    size = 16
    while len(keys) * 4 > size * 3:
        size *= 2
    buckets: dict[int, list[K]] = {}
    for number, key in enumerate(keys, 1):
        value = hash_of(key) & 0xFFFFFFFF
        buckets.setdefault((value ^ value >> 16) & (size - 1), []).append(key)
        if not number % _STEP_HASHES:
            yield PAUSE
    ordered: list[K] = []
    for index in range(size):
        ordered += buckets.get(index, ())
        if not (index + 1) % _STEP_PARTITIONS:
            yield PAUSE
    return ordered
