"""Name topics, partitions, brokers and durations in findings. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TypeVar

from aiokafka08._wording import some_of
from aiokafka08.structs import TopicPartition

K = TypeVar("K")


def grouped(details: Iterable[tuple[TopicPartition, K]]) -> Iterator[tuple[str, K]]:
    """Group each topic's partitions by their (hashable) detail; yield (place, detail) per group."""
    # So a dead broker with a thousand partitions makes one finding per topic.
    places: dict[tuple[str, K], list[int]] = {}
    for tp, detail in details:
        places.setdefault((tp.topic, detail), []).append(tp.partition)
    for (topic, detail), numbers in places.items():
        yield place(topic, numbers), detail


def place(topic: str, partitions: Collection[int]) -> str:
    """Return "topic 'orders', partitions 0, 3-5"."""
    word = "partition" if len(partitions) == 1 else "partitions"
    return f"topic {topic!r}, {word} {ranges(partitions)}"


def topic_list(names: Collection[str]) -> str:
    """Return "topic 'orders'" or "3 topics: a, b, c"."""
    if len(names) == 1:
        return f"topic {next(iter(names))!r}"
    return f"{len(names)} topics: {some_of(sorted(names))}"


def ranges(numbers: Iterable[int]) -> str:
    """Return "0, 3-5" for 0, 3, 4 and 5."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs)


def node_list(node_ids: Iterable[int]) -> str:
    """Return "broker 1" or "brokers 1, 2"."""
    ids = sorted(node_ids)
    return f"{'broker' if len(ids) == 1 else 'brokers'} {', '.join(map(str, ids))}"


def duration(seconds: float) -> str:
    """Return "45 s", "12 min" or "3.5 h"."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
