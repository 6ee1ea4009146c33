"""Encode and decode the nodes of ZooKeeper groups in the format of the Scala consumer (0.8).

Pure, except for `new_member_id`.

Invariant: the Scala consumer of 0.8 reads the result of `encode_registration` as a member with one
thread for each topic. If a function can't decode its data, it raises ValueError with the reason,
and never another exception. Source: kafka.consumer.TopicCount of 0.8.2.2.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from aiokafka08 import environment
from aiokafka08._core.json_objects import json_object
from aiokafka08._core.net.cluster import INTERNAL_TOPICS
from aiokafka08._wording import shorten

MAX_THREADS: Final = 100_000
"""Largest number of threads accepted from one member, over all its topics, since
`MemberRegistration.threads` makes a name for each thread."""

_WILDCARDS: Final = ("white_list", "black_list")
# Up to this many keys, Scala's immutable map keeps the order of insertion
_ORDERED_KEYS: Final = 4
_32_BITS: Final = 0xFFFFFFFF


def new_member_id(group: str) -> str:
    host = re.sub(r"[^A-Za-z0-9.-]", "-", environment.host_name()) or "host"
    return f"{group}_{host}-{environment.wall_time_ms()}-{environment.unique_id()[:8]}"


def encode_registration(topics: Iterable[str], now_ms: int) -> bytes:
    """Return the registration of a member with one thread for each topic."""
    fields = {
        "version": 1,
        # A pattern is written as the topics that it matches now, so no other member has to evaluate
        # a Python regular expression.
        "subscription": dict.fromkeys(sorted(topics), 1),
        "pattern": "static",
        "timestamp": str(now_ms),
    }
    return json.dumps(fields, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class MemberRegistration:
    member: str  # the member's id
    # Topic → number of threads. With a pattern: regular expression → number of threads for each
    # topic that it selects; the Scala consumer takes only the first entry of its map.
    subscription: Mapping[str, int]
    pattern: str  # "white_list", "black_list", or any other text, which means "static"

    @property
    def is_wildcard(self) -> bool:
        """True if the member selects its topics by a regular expression."""
        return bool(self.subscription) and self.pattern in _WILDCARDS

    def threads(self, all_topics: Collection[str]) -> dict[str, list[str]]:
        """Return the names of the member's threads by topic; ValueError for a bad pattern."""
        if not self.is_wildcard:
            return {topic: self._names(count) for topic, count in self.subscription.items()}
        raw = _first_in_scala(self.subscription)
        count = self.subscription[raw]
        return {
            topic: self._names(count)
            for topic in all_topics
            if topic not in INTERNAL_TOPICS
            and _matches(raw, topic) == (self.pattern == "white_list")
        }

    def _names(self, count: int) -> list[str]:
        return [f"{self.member}-{number}" for number in range(count)]


def decode_registration(member: str, data: bytes) -> MemberRegistration:
    """Return the registration in a member's node; ValueError has the reason."""
    try:
        fields = json_object(data)
    except ValueError:
        raise ValueError(f"{shorten(data)} is no JSON object") from None
    subscription, pattern = fields.get("subscription"), fields.get("pattern", "static")
    if not isinstance(subscription, dict) or not all(
        type(count) is int and count > 0 for count in subscription.values()
    ):
        raise ValueError(
            f"subscription {shorten(subscription)}; expected topics with numbers of threads"
        )
    if sum(subscription.values()) > MAX_THREADS:
        raise ValueError(
            f"subscription {shorten(subscription)}; expected at most {MAX_THREADS} threads"
        )
    if not isinstance(pattern, str | None):
        raise ValueError(f"pattern {shorten(pattern)}; expected a text")
    return MemberRegistration(member, subscription, pattern or "")


def decode_partitions(data: bytes) -> list[int]:
    """Return the partition numbers in the brokers' node of a topic, or raise ValueError."""
    try:
        numbers = sorted(int(number) for number in json_object(data)["partitions"])
    except (ValueError, TypeError, KeyError, OverflowError):
        numbers = [-1]
    if numbers and not 0 <= numbers[0] <= numbers[-1] <= 0x7FFFFFFF:
        raise ValueError(f"{shorten(data)} names no partitions")
    return numbers


def _first_in_scala(keys: Collection[str]) -> str:
    """Return the first key of Scala's immutable map of these keys, which were added in order."""
    if len(keys) <= _ORDERED_KEYS:
        return next(iter(keys))
    # A larger map is a trie. It is ordered by five bits of the hash at a time, the lowest first;
    # the hash is Java's, whose bits Scala mixes.
    return min(keys, key=lambda key: [_mixed(java_hash(key)) >> at & 31 for at in range(0, 35, 5)])


def _mixed(value: int) -> int:
    """Return `improve` of scala.collection.immutable.HashMap, unsigned."""
    mixed = (value + ~(value << 9)) & _32_BITS
    mixed ^= mixed >> 14
    mixed = (mixed + (mixed << 4)) & _32_BITS
    return mixed ^ (mixed >> 10)


def java_hash(text: str) -> int:
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[at : at + 2], "big")) & _32_BITS
    return value - (1 << 32) if value >= 1 << 31 else value


def _matches(raw: str, topic: str) -> bool:
    cleaned = raw.strip().replace(",", "|").replace(" ", "").strip("\"'")
    try:
        return re.fullmatch(cleaned, topic) is not None
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(
            f"pattern {shorten(raw)}; expected a regular expression that Python can compile: "
            f"{error}"
        ) from None
