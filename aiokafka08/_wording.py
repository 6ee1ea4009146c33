"""How texts show values, counts, partitions and lists of names. Pure.

Invariant: whatever the values are, `shorten` bounds the length of one value's text, and `some_of`
the number of names.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import islice
from typing import Final, Protocol

from aiokafka08.structs import TopicPartition

_MAX_SHOWN: Final = 200
# The most names in a text.
_NAMES: Final = 10


class InPartition(Protocol):
    """A partition, or a value that is in one, such as a record."""

    @property
    def topic(self) -> str: ...

    @property
    def partition(self) -> int: ...


def shorten(value: object) -> str:
    """Return the repr of a value, cut off after 200 characters."""
    try:
        # The repr of a text isn't shorter than the text, so the rest of a large one isn't needed.
        shown = repr(value[: _MAX_SHOWN + 1] if isinstance(value, str | bytes) else value)
    except ValueError:  # an integer of more than 4,300 digits
        shown = f"<{type(value).__name__}>"
    return shown if len(shown) <= _MAX_SHOWN else f"{shown[:_MAX_SHOWN]}…"


def counted(number: int, noun: str) -> str:
    """Return a number and its noun, such as "1 group", "2 groups" or "2 offsets of group 'g'"."""
    head, of, rest = noun.partition(" of ")
    return f"{number} {head}{'' if number == 1 else 's'}{of}{rest}"


def number_span(numbers: Sequence[int]) -> str:
    """Return ascending numbers, such as "0 to 5" if there are no gaps, or "0, 2"."""
    if len(numbers) > 2 and list(numbers) == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(map(str, numbers)) or "none"


def some_of(names: Collection[object], most: int = _NAMES, separator: str = ", ") -> str:
    """Return names, and how many more there are; "none" if there are no names.

    Args:
        names: the names, in the order in which to show them; for a partition its `partition_name`.
        most: how many are shown.
        separator: the text between the names; use another one if they have commas (default ", ").
    """
    texts = [
        partition_name(name) if isinstance(name, TopicPartition) else str(name)
        for name in islice(names, most)
    ]
    if len(names) > most:
        texts.append(f"and {len(names) - most} more")
    return separator.join(texts) or "none"


def partition_text(place: InPartition) -> str:
    """Return "topic 'orders', partition 3": for the beginning of a text."""
    return f"topic {place.topic!r}, partition {place.partition}"


def partition_name(place: InPartition) -> str:
    """Return "orders/3": for lists, and inside a sentence."""
    return f"{place.topic}/{place.partition}"


def newer_protocol(what: str = "message format 2", release: str = "0.11") -> str:
    """Return the protocol that a feature needs and this client lacks, as in "headers need …"."""
    return f"{what} (brokers from {release} on), which this client doesn't speak"


def missing_topics_text(topics: Collection[str]) -> str:
    """Return the text of an error: brokers don't list these topics."""
    # Brokers leave out a topic that the principal may not describe; some answer as if it didn't
    # exist (docs/brokers.md 14.9).
    names = ", ".join(map(repr, topics))
    if len(topics) == 1:
        return f"topic {names} doesn't exist, or this principal may not describe it"
    return f"topics {names} don't exist, or this principal may not describe them"
