"""What a subscription means in a cluster. No event loop."""

from __future__ import annotations

import re
from typing import Any

import pytest

from aiokafka08._core.net.cluster import ClusterSnapshot
from aiokafka08.consumer.subscription import Subscription, SubscriptionKind
from aiokafka08.errors import IllegalArgumentError, IllegalStateError, InvalidTopicError
from aiokafka08.protocol.requests.metadata import (
    Broker,
    MetadataResponse,
    PartitionState,
    TopicState,
)
from aiokafka08.structs import TopicPartition


def snapshot(topics: dict[str, int], codes: dict[str, int] | None = None) -> ClusterSnapshot:
    states = [
        TopicState(
            (codes or {}).get(name, 0),
            name,
            name.startswith("__"),
            [PartitionState(0, number, 1, [1], [1]) for number in range(partitions)],
        )
        for name, partitions in topics.items()
    ]
    response = MetadataResponse([Broker(1, "localhost", 9092)], 1, states)
    return ClusterSnapshot().merge(response, all_topics=True)


CLUSTER = snapshot({"orders": 2, "orders.dead": 1, "users": 1, "__consumer_offsets": 4})


def test_new_subscription_is_empty() -> None:
    new = Subscription()
    assert (new.kind, new.by_topic, new.topics(CLUSTER)) == (
        SubscriptionKind.NONE,
        False,
        frozenset(),
    )
    assert new.partitions(CLUSTER) == frozenset()


def test_topics_mean_all_their_partitions() -> None:
    new = Subscription()
    new.subscribe(["orders", "absent"])
    assert new.topics(CLUSTER) == {"orders", "absent"}
    assert new.partitions(CLUSTER) == {TopicPartition("orders", 0), TopicPartition("orders", 1)}
    assert new.unknown(CLUSTER) == ["absent"]
    assert new.tracked_topics == frozenset({"orders", "absent"})


@pytest.mark.parametrize("pattern", ["orders", re.compile("ord.*")])
def test_pattern_matches_from_the_beginning_of_the_name(pattern: str | re.Pattern[str]) -> None:
    new = Subscription()
    new.subscribe_pattern(pattern)
    assert new.topics(CLUSTER) == {"orders", "orders.dead"}
    assert len(new.partitions(CLUSTER)) == 3
    assert new.tracked_topics is None
    assert new.unknown(CLUSTER) == []


def test_pattern_excludes_internal_topics_by_default() -> None:
    new = Subscription()
    new.subscribe_pattern(".*")
    assert new.topics(CLUSTER) == {"orders", "orders.dead", "users"}
    new = Subscription(exclude_internal_topics=False)
    new.subscribe_pattern(".*")
    assert "__consumer_offsets" in new.topics(CLUSTER)
    named = Subscription()
    named.subscribe(["__consumer_offsets"])
    assert len(named.partitions(CLUSTER)) == 4


def test_pattern_excludes_unreadable_topics() -> None:
    new = Subscription()
    new.subscribe_pattern(".*")
    assert new.topics(snapshot({"a": 1, "b": 1}, codes={"a": 29})) == {"b"}


def test_new_topics_and_partitions_come_with_the_snapshot() -> None:
    new = Subscription()
    new.subscribe_pattern("o")
    later = snapshot({"orders": 3, "own": 1})
    assert new.partitions(later) - new.partitions(CLUSTER) == {
        TopicPartition("orders", 2),
        TopicPartition("own", 0),
    }


def test_assigned_partitions_are_just_those() -> None:
    new = Subscription()
    new.assign([TopicPartition("users", 7)])
    assert new.partitions(CLUSTER) == new.assigned == {TopicPartition("users", 7)}
    assert new.tracked_topics == frozenset({"users"})
    assert not new.by_topic


def test_kinds_exclude_each_other_until_unsubscribed() -> None:
    def acts(new: Subscription) -> list[tuple[SubscriptionKind, object]]:
        return [
            (SubscriptionKind.TOPICS, lambda: new.subscribe(["orders"])),
            (SubscriptionKind.PATTERN, lambda: new.subscribe_pattern("o")),
            (SubscriptionKind.ASSIGNED, lambda: new.assign([TopicPartition("users", 0)])),
        ]

    new = Subscription()
    for kind, act in acts(new):
        for other, first in acts(new):
            new.unsubscribe()
            first()  # type: ignore[operator]
            number = new.number
            if kind is other:
                act()  # type: ignore[operator]
                assert new.number > number
            else:
                with pytest.raises(IllegalStateError, match=f"subscribed to {other.value}"):
                    act()  # type: ignore[operator]
                assert (new.kind, new.number) == (other, number)


@pytest.mark.parametrize(
    ("partitions", "error", "text"),
    [
        ("t2", TypeError, "partitions='t2': expected a list of TopicPartition"),
        (TopicPartition("t", 0), TypeError, "list of TopicPartition"),
        (None, TypeError, "partitions=None"),
        (["t2"], TypeError, "'t2' in the list; expected"),
        ([("t", 0, 1)], TypeError, "in the list; expected"),
        ([("t", "0")], IllegalArgumentError, "topic 't', partition '0': expected an integer >= 0"),
        ([TopicPartition("t", -1)], IllegalArgumentError, "partition -1: expected an integer >= 0"),
        ([TopicPartition("t", True)], IllegalArgumentError, "partition True"),
        ([TopicPartition("t", 2**31)], IllegalArgumentError, "partition 2147483648"),
        ([TopicPartition("a b", 0)], InvalidTopicError, "invalid topic name 'a b'"),
    ],
)
def test_invalid_partition_is_named(partitions: Any, error: type[Exception], text: str) -> None:
    new = Subscription()
    with pytest.raises(error, match=text):
        new.assign(partitions)
    assert new.kind is SubscriptionKind.NONE


def test_plain_pair_is_a_partition() -> None:
    new = Subscription()
    new.assign([("t", 0)])  # type: ignore[list-item]
    [assigned] = new.assigned
    assert type(assigned) is TopicPartition


def test_invalid_name_or_pattern_changes_nothing() -> None:
    new = Subscription()
    with pytest.raises(InvalidTopicError, match="a b"):
        new.subscribe(["a b"])
    with pytest.raises(InvalidTopicError):
        new.subscribe("abc")
    with pytest.raises(InvalidTopicError):
        new.assign([TopicPartition("", 0)])
    with pytest.raises(ValueError, match="pattern"):
        new.subscribe_pattern("(")
    with pytest.raises(TypeError, match="b'abc'"):
        new.subscribe_pattern(b"abc")  # type: ignore[arg-type]
    for wrong in (-1, "0", None, 1.0):
        with pytest.raises(IllegalArgumentError, match="topic 't', partition"):
            new.assign([TopicPartition("t", wrong)])  # type: ignore[arg-type]
    assert new.kind is SubscriptionKind.NONE
