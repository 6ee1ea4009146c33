"""Partitioners: which partition of a topic a message goes to.

Each is called as in aiokafka: `partitioner(key_bytes, all_partitions, available) -> partition`.
`all_partitions` are all of the topic, ascending, leaderless ones included: a key's partition must
not change while a leader is missing. `available` are those with a leader. What a partitioner
remembers is about one topic, so the producer makes an instance per topic (`partitioner_factory`).
Which partitions there are is the metadata's business.
"""

from __future__ import annotations

import copy
import random
import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Literal, Protocol, runtime_checkable

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
    """What a producer takes for a partitioner; any function of this shape will do."""

    def __call__(
        self, key_bytes: bytes | None, all_partitions: Sequence[int], available: Sequence[int], /
    ) -> int:
        """Choose a partition.

        Args:
            key_bytes: the serialised key; None for a message without one. b"" is a key.
            all_partitions: all partitions of the topic, ascending. Never empty.
            available: those of them that have a leader, ascending. May be empty.
        """


@runtime_checkable
class BatchAware(Protocol):
    """A partitioner that wants to hear when a batch closes."""

    def on_new_batch(self, partition: int) -> None:
        """The open batch of `partition` was closed; its next message begins a new one.

        The producer calls this on its instance for the topic each time a batch closes (full,
        lingered long enough, flushed), before it asks for the partition of the next message.
        """


# --- Java's hashes ---


_MASK: Final = 0xFFFFFFFF
_POSITIVE: Final = 0x7FFFFFFF
_MIN_INT: Final = -0x80000000


def java_bytes_hash_code(data: bytes) -> int:
    """Java's `Arrays.hashCode(byte[])`, a signed 32-bit number."""
    hash_ = 1
    for byte in memoryview(data).cast("b"):
        hash_ = hash_ * 31 + byte & _MASK
    return _signed(hash_)


def java_string_hash_code(text: str) -> int:
    """Java's `String.hashCode()`, a signed 32-bit number: over UTF-16 units, not code points."""
    hash_ = 0
    for (unit,) in _UTF_16_UNITS.iter_unpack(text.encode("utf-16-le", "surrogatepass")):
        hash_ = hash_ * 31 + unit & _MASK
    return _signed(hash_)


_UTF_16_UNITS: Final = struct.Struct("<H")


def _signed(number: int) -> int:
    return number - 0x100000000 if number > _POSITIVE else number


# --- partitioners ---


class _Partitioner:
    """By murmur2 of the key; without one, at random for each message."""

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
        # An eighth of what random.choice costs, and once for each message.
        return candidates[int(random.random() * len(candidates))]


class DefaultPartitioner(_Partitioner):
    """What aiokafka does: murmur2 of the key as the Java client; no key: a random partition.

    Keys go where kafka-clients from 0.8.2 on puts them.
    """

    __slots__ = ()


class RoundRobinPartitioner(_Partitioner):
    """What the Java producer of 0.8.2 does: murmur2 of the key; no key: partitions in turn.

    Begins at a random one, so that many producers don't all begin with the same. Messages with
    keys keep their place and don't count, other than with Java's later class of this name.
    """

    __slots__ = ("_counter",)

    def __init__(self) -> None:
        self._counter = random.getrandbits(31)

    def _without_key(self, candidates: Sequence[int]) -> int:
        counter = self._counter
        self._counter = counter + 1
        return candidates[counter % len(candidates)]


class StickyPartitioner(_Partitioner):
    """Murmur2 of the key; no key: one partition until its batch closes, then another at random.

    Fills batches where `linger_ms` is short (KIP-480). The producer has to say when a batch
    closes: `on_new_batch`. A partition that isn't available any more is left at once.
    """

    __slots__ = ("_current", "_left")

    def __init__(self) -> None:
        self._current: int | None = None
        self._left: int | None = None

    def on_new_batch(self, partition: int) -> None:
        """See `BatchAware`. Batches of other partitions (of keys, or left before) don't matter."""
        if partition == self._current:
            self._current = None
            self._left = partition

    def _without_key(self, candidates: Sequence[int]) -> int:
        current = self._current
        if current is None or current not in candidates:
            others = [one for one in candidates if one != self._left]
            current = self._current = random.choice(others or candidates)
        return current


class RandomPartitioner(_Partitioner):
    """Murmur2 of the key; no key: one random partition, kept while it is available.

    The 0.8 protocol guide's choice where producers outnumber brokers: each needs a connection to
    one broker only.
    """

    __slots__ = ("_chosen",)

    def __init__(self) -> None:
        self._chosen: int | None = None

    def _without_key(self, candidates: Sequence[int]) -> int:
        chosen = self._chosen
        if chosen is None or chosen not in candidates:
            chosen = self._chosen = random.choice(candidates)
        return chosen


class _ScalaPartitioner(RandomPartitioner):
    __slots__ = ("_hash_code",)

    def __init__(self, key_type: Literal["bytes", "string"] = "bytes") -> None:
        super().__init__()
        if key_type not in ("bytes", "string"):
            raise ValueError(f"key_type is 'bytes' or 'string', not {key_type!r}")
        self._hash_code: Callable[[bytes], int] = (
            java_bytes_hash_code if key_type == "bytes" else _utf_8_hash_code
        )


class ScalaPartitioner080(_ScalaPartitioner):
    """Puts keys where the Scala producer of Kafka 0.8.0 and 0.8.1 puts them.

    By the hash code of the key object, its sign bit dropped, modulo the number of all partitions.
    Without a key it keeps to one random partition as `RandomPartitioner`; the Scala producer
    chose again at each metadata refresh (every ten minutes, and after a failed send).

    Args:
        key_type: what the key was in the Scala producer. "bytes": `byte[]`, with
            `kafka.producer.ByteArrayPartitioner` configured (its default partitioner put such
            keys anywhere, by the address of the array: nothing can be kept together with that).
            "string": `String`, with the default partitioner and `StringEncoder` in UTF-8; a call
            raises ValueError when a key isn't UTF-8.
    """

    __slots__ = ()

    def _positive_hash(self, key: bytes) -> int:
        return self._hash_code(key) & _POSITIVE


class ScalaPartitioner082(_ScalaPartitioner):
    """Puts keys where the Scala producer of Kafka 0.8.2 (and later) puts them.

    As `ScalaPartitioner080`, but a negative hash code is negated, and the smallest one, which has
    no positive counterpart, counts as 0 (KAFKA-1469). So about half of the keys lie elsewhere.
    """

    __slots__ = ()

    def _positive_hash(self, key: bytes) -> int:
        hash_code = self._hash_code(key)
        return 0 if hash_code == _MIN_INT else abs(hash_code)


def _utf_8_hash_code(key: bytes) -> int:
    try:
        return java_string_hash_code(str(key, "utf-8"))
    except UnicodeDecodeError:
        raise ValueError(
            f"a partitioner of string keys was given a key of {len(key)} bytes that isn't UTF-8"
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
"""The names that a producer's `partitioner=` takes, and what makes an instance for a topic."""


BY_MURMUR2: Final[frozenset[type]] = frozenset(
    {DefaultPartitioner, RandomPartitioner, RoundRobinPartitioner, StickyPartitioner}
)
"""Partitioners that put a key where `partitions_of` says."""

ANYWHERE_WITHOUT_KEY: Final[frozenset[type]] = frozenset(
    {
        DefaultPartitioner,
        RandomPartitioner,
        ScalaPartitioner080,
        ScalaPartitioner082,
        StickyPartitioner,
    }
)
"""Partitioners that promise nothing for messages without a key: asked once per run of them."""


def partitioner_factory(
    partitioner: str | Partitioner | type[Partitioner],
) -> Callable[[], Partitioner]:
    """What makes the partitioner of one topic, from the `partitioner=` given to a producer.

    Args:
        partitioner: a name of `PARTITIONERS`; or a class, called without arguments for each
            topic; or an instance of the partitioners here or of a class derived from them, of
            which each topic gets a copy; or any other callable, which all topics share.

    Raises:
        ValueError: no partitioner has this name.
        TypeError: it is neither a name nor callable.
    """
    if isinstance(partitioner, str):
        factory = PARTITIONERS.get(partitioner)
        if factory is None:
            raise ValueError(f"no partitioner {partitioner!r}; there are {', '.join(PARTITIONERS)}")
        return factory
    if isinstance(partitioner, type):
        return partitioner
    if not callable(partitioner):
        raise TypeError(f"a partitioner is a name or a callable, not {type(partitioner).__name__}")
    if isinstance(partitioner, _Partitioner):
        return partial(copy.copy, partitioner)
    return lambda: partitioner
