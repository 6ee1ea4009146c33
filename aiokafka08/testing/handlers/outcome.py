"""What a handler gets and what it returns: decisions, which `server` carries out.

Pure data, and the two helpers that all handlers of partitions need.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from aiokafka08.protocol.api import Response, Topic
from aiokafka08.structs import TopicPartition
from aiokafka08.testing.broker_lines import Line
from aiokafka08.testing.state import ClusterState, Node


@dataclass(frozen=True, slots=True)
class Context:
    """Who asks, where and when. `layout`: the version whose layout the answer has; `now_ms` is
    wall-clock time, `now_s` that of a clock that never goes back."""

    state: ClusterState
    node: Node
    version: int
    layout: int
    now_ms: int
    now_s: float
    client_id: str
    client_host: str

    @property
    def line(self) -> Line:
        return self.state.line


@dataclass(slots=True)
class Reply:
    """Send this. `correlation_id` is the request's unless a quirk says otherwise."""

    response: Response
    correlation_id: int | None = None


@dataclass(frozen=True, slots=True)
class NoReply:
    """Done, and nothing is sent."""


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Close the connection; what is behind this request on it is lost."""


@dataclass(slots=True)
class Wait:
    """Not yet: call `check` whenever one of `keys` has changed, and once with True, which must give
    the reply, after `timeout_ms` (None: never)."""

    timeout_ms: int | None
    keys: frozenset[Hashable]
    check: Callable[[bool], Reply | None]


Outcome = Reply | NoReply | Disconnect | Wait


class _Numbered(Protocol):
    partition: int


P = TypeVar("P", bound=_Numbered)
T = TypeVar("T")


def last_wins(topics: Iterable[Topic[P]]) -> dict[TopicPartition, P]:
    """What is asked per partition; of a partition named twice the last one (brokers.md 3.12)."""
    return {
        TopicPartition(topic.topic, partition.partition): partition
        for topic in topics
        for partition in topic.partitions
    }


def by_topic(answers: dict[TopicPartition, T]) -> list[Topic[T]]:
    """Answers grouped by topic, in another order than they were asked (brokers.md 3.11)."""
    topics: dict[str, list[T]] = {}
    for key in reversed(answers):
        topics.setdefault(key.topic, []).append(answers[key])
    return [Topic(topic, partitions) for topic, partitions in topics.items()]
