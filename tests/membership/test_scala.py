"""What is written in ZooKeeper and what follows from it: plain tests of pure code."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka08.errors import KafkaConfigurationError
from aiokafka08.structs import TopicPartition
from aiokafka08.zookeeper.scala_format import (
    RANGE,
    ROUNDROBIN,
    View,
    decide,
    new_member,
    read_partitions,
    read_registration,
    registration,
)

SCALA = b'{"version":1,"subscription":{"t":2},"pattern":"static","timestamp":"1405951234000"}'


def test_a_registration_is_what_scala_writes() -> None:
    assert registration(["t"], 1405951234000) == SCALA.replace(b'"t":2', b'"t":1')
    assert json.loads(registration(["b", "a"], 0))["subscription"] == {"a": 1, "b": 1}
    assert new_member("g").startswith("g_")
    assert new_member("g") != new_member("g")


def test_threads_are_numbered() -> None:
    assert read_registration("g_h-1-a", SCALA).threads([]) == {"t": ["g_h-1-a-0", "g_h-1-a-1"]}


def test_patterns_are_looked_up_among_the_topics() -> None:
    topics = ["ta", "tb", "other", "__consumer_offsets"]
    white = read_registration("m", b'{"subscription":{"t.*, x":1},"pattern":"white_list"}')
    black = read_registration("m", b'{"subscription":{"t.*":1},"pattern":"black_list"}')
    assert set(white.threads(topics)) == {"ta", "tb"}
    assert set(black.threads(topics)) == {"other"}


@pytest.mark.parametrize("pattern", ["(", "a{99999999999}", "(" * 10_000], ids=lambda p: p[:20])
def test_a_pattern_that_can_t_be_understood_is_told(pattern: str) -> None:
    broken = read_registration(
        "m", json.dumps({"subscription": {pattern: 1}, "pattern": "white_list"}).encode()
    )
    with pytest.raises(ValueError, match="can't be understood") as failure:
        broken.threads(["ta"])
    assert len(str(failure.value)) < 1000


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{not json",
        b"[]",
        b"{}",
        b'{"subscription":{"t":0}}',
        b'{"subscription":{"t":"1"}}',
        b'{"subscription":{"t":60000,"u":60000}}',
        b'{"subscription":{"t":1},"pattern":"other"}',
        b'{"subscription":{},"pattern":"white_list"}',
        b"\xff\xfe",
        pytest.param(b"[" * 100_000, id="deep"),
    ],
)
def test_garbage_is_told(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_registration("m", data)


def test_partitions_are_read() -> None:
    assert read_partitions(b'{"version":1,"partitions":{"10":[0],"2":[1]}}') == [2, 10]
    for garbage in (
        b"",
        b"[]",
        b'{"partitions":3}',
        b'{"partitions":{"a":1}}',
        b'{"partitions":{"-1":[]}}',
        b'{"partitions":{"2147483648":[]}}',
        b'{"partitions":[1e999]}',
        b"[" * 100_000,
    ):
        with pytest.raises(ValueError, match="names no partitions"):
            read_partitions(garbage)


counts = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(0, 9), min_size=1)
members = st.lists(
    st.sampled_from([f"g_h-{number}-x" for number in range(8, 14)]),
    min_size=1,
    max_size=4,
    unique=True,
)


@pytest.mark.parametrize("strategy", [RANGE, ROUNDROBIN])
@given(counts=counts, names=members)
def test_members_divide_all_without_overlap(
    strategy: str, counts: dict[str, int], names: list[str]
) -> None:
    view = View(
        {topic: [f"{name}-0" for name in names] for topic in counts},
        {topic: range(count) for topic, count in counts.items()},
    )
    dealt = [tp for name in names for tp in decide(strategy, view, counts, name)]
    assert sorted(dealt) == sorted(
        TopicPartition(topic, number) for topic, count in counts.items() for number in range(count)
    )


def test_threads_sort_as_strings() -> None:
    view = View({"t": ["g_h-9-0", "g_h-10-0"]}, {"t": [0, 1, 2]})
    assert set(decide(RANGE, view, ["t"], "g_h-10")) == {("t", 0), ("t", 1)}
    assert set(decide(RANGE, view, ["t"], "g_h-9")) == {("t", 2)}
    # One id may begin like another one.
    assert decide(RANGE, view, ["t"], "g_h-1") == {}


def test_roundrobin_deals_by_hash() -> None:
    # "[t,0]".hashCode() and so on rise with the number; those of two topics are mixed.
    view = View({"t": ["a-0", "b-0"], "u": ["a-0", "b-0"]}, {"t": range(3), "u": range(3)})
    mine = decide(ROUNDROBIN, view, ["t", "u"], "a")
    assert set(mine) == {("t", 0), ("t", 2), ("u", 1)}


def test_roundrobin_needs_equal_subscriptions() -> None:
    view = View({"t": ["a-0"], "u": ["a-0", "b-0"]}, {"t": [0], "u": [0]})
    with pytest.raises(KafkaConfigurationError, match="use range"):
        decide(ROUNDROBIN, view, ["t"], "a")
