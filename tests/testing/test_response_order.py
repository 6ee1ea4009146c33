"""Topics and partitions have the order of Java's HashMap, as 0.10.2.2 was seen to send them."""

from __future__ import annotations

from typing import TypeVar

import pytest

from aiokafka08._core.server.work import Work
from aiokafka08.structs import TopicPartition
from aiokafka08.testing.broker_lines import ResponseOrder
from aiokafka08.testing.handlers.outcome import group_by_topic
from aiokafka08.testing.state import java_hash

pytestmark = pytest.mark.fast

T = TypeVar("T")
ORDER = (5, 3, 0, 9, 2, 7, 1, 12, 4)


def finished(work: Work[T]) -> T:
    """Run work without pauses."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result


def grouped(
    names: tuple[str, ...], numbers: tuple[int, ...], order: ResponseOrder
) -> list[tuple[str, list[int]]]:
    items = {TopicPartition(name, number): number for name in names for number in numbers}
    topics = finished(group_by_topic(items, order))
    return [(topic.topic, topic.partitions) for topic in topics]


@pytest.mark.parametrize(
    ("names", "seen"),
    [
        (("o3-b", "o3-a", "o3-zz"), ["o3-b", "o3-a", "o3-zz"]),
        (("o9-b", "o9-a", "o9-zz"), ["o9-zz", "o9-b", "o9-a"]),
        (("q3-b", "q3-a", "q3-zz"), ["q3-a", "q3-b", "q3-zz"]),
    ],
)
def test_hash_map_order_is_that_of_a_real_broker(names: tuple[str, ...], seen: list[str]) -> None:
    ordered = grouped(names, ORDER, ResponseOrder.HASH_MAP)
    assert ordered == [(name, sorted(ORDER)) for name in seen]


def test_many_partitions_ascend_and_negative_ones_come_by_their_hash() -> None:
    many = tuple(reversed(range(5000)))
    [(_, numbers)] = grouped(("t",), many, ResponseOrder.HASH_MAP)
    assert numbers == list(range(5000))
    [(_, numbers)] = grouped(("t",), (-1, 7, 0), ResponseOrder.HASH_MAP)
    assert numbers == [-1, 0, 7]  # 0xffffffff ^ 0xffff ends with zeros


def test_order_of_the_request_keeps_a_topic_that_is_there_twice() -> None:
    keys = [TopicPartition("a", 2), TopicPartition("b", 0), TopicPartition("a", 1)]
    items = {key: key.partition for key in keys}
    topics = finished(group_by_topic(items, ResponseOrder.REQUEST))
    assert [(topic.topic, topic.partitions) for topic in topics] == [
        ("a", [2]),
        ("b", [0]),
        ("a", [1]),
    ]
    reverse = finished(group_by_topic(items, ResponseOrder.REVERSED))
    assert [(topic.topic, topic.partitions) for topic in reverse] == [("a", [1, 2]), ("b", [0])]


def test_java_hash_is_that_of_java() -> None:
    assert [java_hash(text) for text in ("", "a", "hello", "polygenelubricants")] == [
        0,
        97,
        99162322,
        -(2**31),
    ]
