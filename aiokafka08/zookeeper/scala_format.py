"""The registry and the arithmetic of the Scala high-level consumer (0.8), which groups in ZooKeeper
share with it: what a member writes about itself, and who then reads which partitions.

Pure. Law: every member computes the same from the same view, whatever it is written in. A member
has one or more threads, "<member>-<number>", sorted as strings; partitions go to threads. What is
read and written where is `registry`'s business. Source: kafka.consumer.{TopicCount,
PartitionAssignor} of 0.8.2.2; 0.8.0 and 0.8.1 have range only.
"""

from __future__ import annotations

import json
import re
import socket
import time
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from aiokafka08.errors import KafkaConfigurationError
from aiokafka08.net.cluster import INTERNAL_TOPICS
from aiokafka08.structs import TopicPartition

RANGE, ROUNDROBIN = "range", "roundrobin"

MOST_THREADS = 100_000
"""Of one member, over all of its topics: a registration is taken apart into names of threads."""


def new_member(group: str) -> str:
    """An id as the Scala consumer makes it; no two are the same."""
    host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname()) or "host"
    return f"{group}_{host}-{time.time_ns() // 1_000_000}-{uuid.uuid4().hex[:8]}"


def registration(topics: Iterable[str], now_ms: int) -> bytes:
    """What a member of one thread writes about itself.

    Patterns are written as the topics they match now: so nobody else has to understand them.
    """
    fields = {
        "version": 1,
        "subscription": dict.fromkeys(sorted(topics), 1),
        "pattern": "static",
        "timestamp": str(now_ms),
    }
    return json.dumps(fields, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class Registered:
    """What a member has written: topics, or with `pattern` one regular expression, each with its
    number of threads."""

    member: str
    subscription: Mapping[str, int]
    pattern: str

    @property
    def is_wildcard(self) -> bool:
        """Whether it means topics by a regular expression."""
        return self.pattern != "static"

    def threads(self, all_topics: Collection[str]) -> dict[str, list[str]]:
        """Its threads by topic.

        Raises:
            ValueError: the regular expression can't be understood.
        """
        if not self.is_wildcard:
            return {topic: self._threads(count) for topic, count in self.subscription.items()}
        [(raw, count)] = self.subscription.items()
        return {
            topic: self._threads(count)
            for topic in all_topics
            if topic not in INTERNAL_TOPICS
            and _allows(raw, topic) == (self.pattern == "white_list")
        }

    def _threads(self, count: int) -> list[str]:
        return [f"{self.member}-{number}" for number in range(count)]


def read_registration(member: str, data: bytes) -> Registered:
    """What is in a member's node.

    Raises:
        ValueError: something else than a registration; says what.
    """
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        raise ValueError(f"{data[:100]!r} is no JSON") from None
    if not isinstance(fields, dict):
        raise ValueError(f"{data[:100]!r} is no JSON object")
    subscription, pattern = fields.get("subscription"), fields.get("pattern", "static")
    if not isinstance(subscription, dict) or not all(
        type(count) is int and count > 0 for count in subscription.values()
    ):
        raise ValueError(
            f"subscription {_short(subscription)}: it must be topics with thread numbers"
        )
    if sum(subscription.values()) > MOST_THREADS:
        raise ValueError(
            f"subscription {_short(subscription)}: more than {MOST_THREADS} threads of one member"
        )
    if pattern not in ("static", "white_list", "black_list"):
        raise ValueError(f"pattern {_short(pattern)}: it must be static, white_list or black_list")
    if pattern != "static" and len(subscription) != 1:
        raise ValueError(f"subscription {_short(subscription)}: one pattern is expected")
    return Registered(member, subscription, pattern)


def read_partitions(data: bytes) -> list[int]:
    """The partitions in a topic's node of the brokers.

    Raises:
        ValueError: something else is in it.
    """
    try:
        numbers = sorted(int(number) for number in json.loads(data)["partitions"])
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        numbers = [-1]
    if numbers and not 0 <= numbers[0] <= numbers[-1] <= 0x7FFFFFFF:
        raise ValueError(f"{data[:100]!r} names no partitions")
    return numbers


@dataclass(frozen=True, slots=True)
class View:
    """The registry at one moment: threads by topic over all members, and partitions by topic."""

    threads: Mapping[str, Sequence[str]]
    partitions: Mapping[str, Sequence[int]]


def decide(
    strategy: str, view: View, topics: Iterable[str], member: str
) -> dict[TopicPartition, str]:
    """The partitions of one member, each with its thread.

    Args:
        topics: those that the member has subscribed to.

    Raises:
        KafkaConfigurationError: roundrobin, and the members' subscriptions differ.
    """
    mine = sorted(topic for topic in topics if view.partitions.get(topic))
    dealt = _roundrobin(view, mine) if strategy == ROUNDROBIN else _range(view, mine)
    own = re.compile(re.escape(member) + r"-[0-9]+")
    return {tp: thread for tp, thread in dealt.items() if own.fullmatch(thread)}


def _range(view: View, topics: Iterable[str]) -> dict[TopicPartition, str]:
    dealt = {}
    for topic in topics:
        threads, partitions = sorted(view.threads.get(topic, ())), sorted(view.partitions[topic])
        if not threads:
            continue
        each, more = divmod(len(partitions), len(threads))
        start = 0
        for number, thread in enumerate(threads):
            end = start + each + (number < more)
            dealt.update({TopicPartition(topic, one): thread for one in partitions[start:end]})
            start = end
    return dealt


def _roundrobin(view: View, topics: Collection[str]) -> dict[TopicPartition, str]:
    if len({frozenset(threads) for threads in view.threads.values()}) > 1:
        raise KafkaConfigurationError(
            "roundrobin in a ZooKeeper group needs members that all subscribe to the same topics, "
            "with as many threads; use range"
        )
    # Of partitions with equal hashes (topics "Aa" and "BB") Scala's members take those of the topic
    # first that they wrote last in their registration. All should have written them sorted.
    partitions = [
        TopicPartition(topic, number)
        for topic in sorted(topics, reverse=True)
        for number in view.partitions[topic]
    ]
    partitions.sort(key=lambda tp: _java_hash(f"[{tp.topic},{tp.partition}]"))
    threads = sorted(next(iter(view.threads.values()), ()))
    if not threads:
        return {}
    return {tp: threads[number % len(threads)] for number, tp in enumerate(partitions)}


def _allows(raw: str, topic: str) -> bool:
    cleaned = raw.strip().replace(",", "|").replace(" ", "").strip("\"'")
    try:
        return re.fullmatch(cleaned, topic) is not None
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"the pattern {_short(raw)} can't be understood: {error}") from None


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:99]}…"


def _java_hash(text: str) -> int:
    """`String.hashCode`, signed; topic names are ASCII."""
    value = 0
    for character in text:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value
