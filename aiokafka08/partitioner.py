"""Partitioners: choose the partition of a message.

A partitioner is called as in aiokafka: `partitioner(key_bytes, all_partitions, available)`. A
partitioner of this module may have state about one topic, so each topic gets its own instance
(`partitioner_factory`).

Invariant: a key's partition depends only on the key and `all_partitions`, so it doesn't change
while a partition has no leader.
"""

from __future__ import annotations

import copy
import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Literal, Protocol, runtime_checkable

from aiokafka08 import environment
from aiokafka08.protocol.message_set import murmur2, partitions_of

__all__ = [
    "PARTITIONERS",
    "BatchAware",
    "DefaultPartitioner",
    "Partitioner",
    "RandomPartitioner",
    "RoundRobinPartitioner",
    "ScalaPartitioner080",
    "ScalaPartitioner082",
    "StickyPartitioner",
    "java_bytes_hash_code",
    "java_string_hash_code",
    "murmur2",
    "partitioner_factory",
    "partitions_of",
]


class Partitioner(Protocol):
    """The interface of a partitioner; a function with these parameters is one too."""

    def __call__(
        self, key_bytes: bytes | None, all_partitions: Sequence[int], available: Sequence[int], /
    ) -> int:
        """Choose a partition.

        Args:
            key_bytes: the serialised key; None for a message without a key. b"" is a key.
            all_partitions: all partitions of the topic, ascending; never empty.
            available: the partitions that have a leader, ascending; may be empty.
        """


@runtime_checkable
class BatchAware(Protocol):
    """A partitioner that the producer notifies when a batch closes."""

    def on_new_batch(self, partition: int) -> None:
        """Called when the open batch of `partition` has closed; the next message begins another.

        The producer calls this on the topic's instance each time a batch closes (full, `linger_ms`
        over, flushed), before it asks for the partition of the next message.
        """


# --- Java's hashes ---


_MASK: Final = 0xFFFFFFFF
_POSITIVE: Final = 0x7FFFFFFF
_MIN_INT: Final = -0x80000000


def java_bytes_hash_code(data: bytes) -> int:
    """Return Java's `Arrays.hashCode(byte[])`, a signed 32-bit number."""
    hash_ = 1
    for byte in memoryview(data).cast("b"):
        hash_ = hash_ * 31 + byte & _MASK
    return _signed(hash_)


def java_string_hash_code(text: str) -> int:
    """Return Java's `String.hashCode()`, a signed 32-bit number over UTF-16 code units."""
    hash_ = 0
    for (unit,) in _UTF_16_UNITS.iter_unpack(text.encode("utf-16-le", "surrogatepass")):
        hash_ = hash_ * 31 + unit & _MASK
    return _signed(hash_)


_UTF_16_UNITS: Final = struct.Struct("<H")


def _signed(number: int) -> int:
    return number - 0x100000000 if number > _POSITIVE else number


# --- partitioners ---


class _Partitioner:
    """Choose by murmur2 of the key; at random for each message without a key."""

    __slots__ = ()

    def __call__(
        self, key_bytes: bytes | None, all_partitions: Sequence[int], available: Sequence[int], /
    ) -> int:
        """See `Partitioner`."""
        if key_bytes is None:
            return self._without_key(available or all_partitions)
        return all_partitions[self._positive_hash(key_bytes) % len(all_partitions)]

    def _positive_hash(self, key: bytes) -> int:
        return murmur2(key) & _POSITIVE

    def _without_key(self, candidates: Sequence[int]) -> int:
        # Once per message, so not random.choice, which takes eight times as long.
        return candidates[int(environment.random.random() * len(candidates))]


class DefaultPartitioner(_Partitioner):
    """Choose by murmur2 of the key; at random for each message without a key, as aiokafka does.

    Keys go to the same partitions as with the Java producer of Kafka 0.8.2 and later.
    """

    __slots__ = ()


class RoundRobinPartitioner(_Partitioner):
    """Choose by murmur2 of the key; one partition after the other for messages without a key.

    This is what the Java producer of 0.8.2 does. The first partition is random, so that producers
    don't all begin with the same one. Messages with keys aren't part of the rotation; in Java's
    later class of this name they are.
    """

    __slots__ = ("_counter",)

    def __init__(self) -> None:
        # Random, so that producers don't all begin with the same partition.
        self._counter = environment.random.getrandbits(31)

    def _without_key(self, candidates: Sequence[int]) -> int:
        counter = self._counter
        self._counter = counter + 1
        return candidates[counter % len(candidates)]


class StickyPartitioner(_Partitioner):
    """Choose by murmur2 of the key; without a key, one partition until its batch closes (KIP-480).

    Then it chooses another one at random, so batches fill even with a short `linger_ms`. A
    partition that loses its leader is replaced at once.
    """

    __slots__ = ("_current", "_previous")

    def __init__(self) -> None:
        self._current: int | None = None
        self._previous: int | None = None

    def on_new_batch(self, partition: int) -> None:
        """See `BatchAware`. Batches of other partitions than the current one are ignored."""
        if partition == self._current:
            self._current = None
            self._previous = partition

    def _without_key(self, candidates: Sequence[int]) -> int:
        current = self._current
        # A partition that has lost its leader isn't a candidate.
        if current is None or current not in candidates:
            others = [partition for partition in candidates if partition != self._previous]
            current = self._current = environment.random.choice(others or candidates)
        return current


class RandomPartitioner(_Partitioner):
    """Choose by murmur2 of the key; without a key, one random partition while it has a leader.

    The 0.8 protocol guide recommends this where producers outnumber brokers: each producer needs a
    connection to one broker only.
    """

    __slots__ = ("_chosen",)

    def __init__(self) -> None:
        self._chosen: int | None = None

    def _without_key(self, candidates: Sequence[int]) -> int:
        chosen = self._chosen
        if chosen is None or chosen not in candidates:
            chosen = self._chosen = environment.random.choice(candidates)
        return chosen


class _ScalaPartitioner(RandomPartitioner):
    __slots__ = ("_hash_code",)

    def __init__(self, key_type: Literal["bytes", "string"] = "bytes") -> None:
        super().__init__()
        if key_type not in ("bytes", "string"):
            raise ValueError(f"key_type={key_type!r}: expected 'bytes' or 'string'")
        self._hash_code: Callable[[bytes], int] = (
            java_bytes_hash_code if key_type == "bytes" else _utf_8_hash_code
        )


class ScalaPartitioner080(_ScalaPartitioner):
    """Choose the partition that the Scala producer of Kafka 0.8.0 and 0.8.1 chooses for a key.

    That is the hash code of the key object without its sign bit, modulo the number of all
    partitions. Without a key it keeps one random partition, as `RandomPartitioner` does; the Scala
    producer chose again at each metadata refresh (every ten minutes, and after a failed send).

    Args:
        key_type: the key's type in the Scala producer. "bytes": `byte[]`, with
            `kafka.producer.ByteArrayPartitioner` configured. (The Scala producer's default
            partitioner chose by the array's address, so equal keys went to different partitions.)
            "string": `String`, with the default partitioner and `StringEncoder` in UTF-8; a call
            raises ValueError for a key that isn't UTF-8.
    """

    __slots__ = ()

    def _positive_hash(self, key: bytes) -> int:
        return self._hash_code(key) & _POSITIVE


class ScalaPartitioner082(_ScalaPartitioner):
    """Choose the partition that the Scala producer of Kafka 0.8.2 and later chooses for a key.

    It differs from `ScalaPartitioner080` for negative hash codes, that is for about half of the
    keys: it negates them. The lowest hash code, which has no positive counterpart, counts as 0
    (KAFKA-1469).
    """

    __slots__ = ()

    def _positive_hash(self, key: bytes) -> int:
        hash_code = self._hash_code(key)
        # The lowest hash code has no positive counterpart (KAFKA-1469).
        return 0 if hash_code == _MIN_INT else abs(hash_code)


def _utf_8_hash_code(key: bytes) -> int:
    try:
        return java_string_hash_code(str(key, "utf-8"))
    except UnicodeDecodeError:
        raise ValueError(
            f"partition of a string key: a key of {len(key)} bytes isn't UTF-8. Encode keys as "
            "UTF-8, or use key_type='bytes' (the names without '-string')"
        ) from None


# --- by name ---


PARTITIONERS: Final[dict[str, Callable[[], Partitioner]]] = {
    "murmur2": DefaultPartitioner,
    "scala-0.8.0": ScalaPartitioner080,
    "scala-0.8.0-string": partial(ScalaPartitioner080, "string"),
    "scala-0.8.2": ScalaPartitioner082,
    "scala-0.8.2-string": partial(ScalaPartitioner082, "string"),
    "round_robin": RoundRobinPartitioner,
    "sticky": StickyPartitioner,
    "random": RandomPartitioner,
}
"""The names that a producer's `partitioner=` accepts, with factories of a topic's partitioner."""


BY_MURMUR2: Final[frozenset[type]] = frozenset(
    {DefaultPartitioner, RandomPartitioner, RoundRobinPartitioner, StickyPartitioner}
)
"""Partitioners that choose the partition of a key as `partitions_of` does."""

ANYWHERE_WITHOUT_KEY: Final[frozenset[type]] = frozenset(
    {
        DefaultPartitioner,
        RandomPartitioner,
        ScalaPartitioner080,
        ScalaPartitioner082,
        StickyPartitioner,
    }
)
"""Partitioners that may choose once for a run of messages without a key."""


def partitioner_factory(
    partitioner: str | Partitioner | type[Partitioner],
) -> Callable[[], Partitioner]:
    """Return the factory that makes a topic's partitioner, given a producer's `partitioner=`.

    Args:
        partitioner: one of these:

            - a name in `PARTITIONERS`;
            - a class: it is called without arguments for each topic;
            - an instance of a partitioner class of this module, or of a subclass: each topic gets a
              copy of the instance;
            - any other callable: all topics share it.

    Raises:
        ValueError: no partitioner has this name.
        TypeError: it is neither a name nor callable.

    The error texts don't name the option: the caller puts `partitioner=…` before them.
    """
    if isinstance(partitioner, str):
        factory = PARTITIONERS.get(partitioner)
        if factory is None:
            raise ValueError(f"expected one of {', '.join(PARTITIONERS)}")
        return factory
    if isinstance(partitioner, type):
        return partitioner
    if not callable(partitioner):
        raise TypeError("expected a name or a callable")
    return partial(without_step, partitioner)


def without_step(partitioner: Partitioner) -> Partitioner:
    """Return a copy of a partitioner of this module; any other one is returned itself."""
    # The copy's calls don't change the original.
    return copy.copy(partitioner) if isinstance(partitioner, _Partitioner) else partitioner
