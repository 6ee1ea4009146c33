"""Partitioners, compared with vectors of the real producers and with aiokafka; keyless messages.

PartitionerVectors.java has written `partitioner_vectors.json`; its comment has the command. For
each key the file has Java's `hash_code` and `murmur2` (signed), and the partition for each of
`partition_counts`: `java` from kafka-clients 0.8.2.2, `scala` from each version of the Scala
producer (`byte[]` keys with its ByteArrayPartitioner, strings with its DefaultPartitioner).
`java_without_key` are consecutive choices from a counter of 0.
"""

from __future__ import annotations

import importlib
import inspect
import json
import multiprocessing
import pathlib
import random
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka08.errors import IllegalArgumentError, UnknownTopicOrPartitionError
from aiokafka08.partitioner import (
    PARTITIONERS,
    BatchAware,
    DefaultPartitioner,
    Partitioner,
    RandomPartitioner,
    RoundRobinPartitioner,
    ScalaPartitioner080,
    ScalaPartitioner082,
    StickyPartitioner,
    java_bytes_hash_code,
    java_string_hash_code,
    murmur2,
    partitioner_factory,
)
from aiokafka08.producer import AIOKafkaProducer
from aiokafka08.producer.batch import PartitionQueue
from aiokafka08.producer.fast_path import MessageColumns, choose_each, pure_choose_each
from aiokafka08.producer.topics import TopicRoute
from aiokafka08.protocol import _murmur2_py
from aiokafka08.structs import TopicPartition
from aiokafka08.testing import EmbeddedCluster
from tests.support.paths import ROOT

AIOKAFKA: Any = importlib.import_module("aiokafka.partitioner")
VECTORS = json.loads((pathlib.Path(__file__).parent / "partitioner_vectors.json").read_text())
COUNTS: list[int] = VECTORS["partition_counts"]
BYTES: list[dict[str, Any]] = VECTORS["bytes"]
STRINGS: list[dict[str, Any]] = VECTORS["strings"]

BY_VERSION = {
    "0.8.0": ScalaPartitioner080,
    "0.8.1.1": ScalaPartitioner080,
    "0.8.2.2": ScalaPartitioner082,
}
MIN_INT = -(2**31)

each_name = pytest.mark.parametrize("name", PARTITIONERS)


def partitions(partitioner: Partitioner, key: bytes) -> list[int]:
    """Return a key's partition for each count; only the last partition has a leader."""
    return [partitioner(key, range(count), [count - 1]) for count in COUNTS]


# --- the real producers -------------------------------------------------------------------------


def test_vectors_contain_the_edge_cases() -> None:
    assert {len(bytes.fromhex(one["key"])) for one in BYTES} >= set(range(41))
    for keys in (BYTES, STRINGS):
        assert {one["hash_code"] for one in keys} >= {MIN_INT, MIN_INT + 1, -1, 0, 1, 2**31 - 1}
    assert any(ord(char) > 0xFFFF for one in STRINGS for char in one["key"])


def test_murmur2_equals_the_java_clients() -> None:
    for one in BYTES:
        assert murmur2(bytes.fromhex(one["key"])) == one["murmur2"] % 2**32


def test_keys_get_the_java_clients_partition() -> None:
    for one in BYTES:
        assert partitions(DefaultPartitioner(), bytes.fromhex(one["key"])) == one["java"]


def test_hash_codes_equal_javas() -> None:
    for one in BYTES:
        assert java_bytes_hash_code(bytes.fromhex(one["key"])) == one["hash_code"]
    for one in STRINGS:
        assert java_string_hash_code(one["key"]) == one["hash_code"]
    assert java_string_hash_code("polygenelubricants") == MIN_INT


@pytest.mark.parametrize("version", BY_VERSION)
def test_bytes_keys_get_the_scala_producers_partition(version: str) -> None:
    for one in BYTES:
        found = partitions(BY_VERSION[version](), bytes.fromhex(one["key"]))
        assert found == one["scala"][version]


@pytest.mark.parametrize("version", BY_VERSION)
def test_string_keys_get_the_scala_producers_partition(version: str) -> None:
    halves = 0
    for one in STRINGS:
        sent = bytes.fromhex(one["utf_8"])
        if sent.decode() != one["key"]:  # Java sends half a surrogate pair as "?"
            halves += 1
            continue
        assert partitions(BY_VERSION[version]("string"), sent) == one["scala"][version]
    assert halves == 2


@pytest.mark.parametrize("version", BY_VERSION)
def test_negative_hash_codes_are_handled_as_in_scala(version: str) -> None:
    keys = {one["hash_code"]: bytes.fromhex(one["key"]) for one in BYTES}
    for one in VECTORS["abs"]:
        positive = one["scala"][version]
        partition = BY_VERSION[version]()(keys[one["value"]], range(2**31), [])
        assert partition == positive


@pytest.mark.parametrize("vector", VECTORS["java_without_key"], ids=lambda one: one["available"])
def test_round_robin_equals_the_java_clients(vector: dict[str, Any]) -> None:
    partitioner, everything = RoundRobinPartitioner(), range(vector["partitions"])
    for first in range(len(vector["available"]) or len(everything)):
        partitioner._counter = first
        picks = [partitioner(None, everything, vector["available"]) for _ in range(8)]
        assert picks == vector["picks"][first:][:8]


# --- aiokafka -----------------------------------------------------------------------------------


@given(st.binary(max_size=70))
def test_murmur2_equals_aiokafkas(key: bytes) -> None:
    assert murmur2(key) == AIOKAFKA.murmur2(key)
    for kind in (bytearray, memoryview):
        assert murmur2(kind(key)) == murmur2(key)  # type: ignore[arg-type]
        assert java_bytes_hash_code(kind(key)) == java_bytes_hash_code(key)  # type: ignore[arg-type]


@given(key=st.binary(max_size=20), count=st.integers(1, 50))
def test_default_gives_keys_aiokafkas_partition(key: bytes, count: int) -> None:
    ours, theirs = DefaultPartitioner(), AIOKAFKA.DefaultPartitioner()
    for some in ([], [0], list(range(0, count, 2))):
        assert ours(key, list(range(count)), some) == theirs(key, list(range(count)), some)


def test_default_spreads_keyless_messages_over_leaders() -> None:
    partitioner = DefaultPartitioner()
    chosen = [partitioner(None, range(6), (1, 3, 4)) for _ in range(3000)]
    assert all(800 < chosen.count(partition) < 1200 for partition in (1, 3, 4))
    assert {partitioner(None, range(3), ()) for _ in range(300)} == {0, 1, 2}


# --- all of them --------------------------------------------------------------------------------


@each_name
def test_key_keeps_its_partition_without_a_leader(name: str) -> None:
    partitioner = PARTITIONERS[name]()
    for key in (b"", b"key", b"\xc3\xbc" * 30):
        home = partitioner(key, range(12), range(12))
        for available in ([], [0], [one for one in range(12) if one != home]):
            assert partitioner(key, range(12), available) == home


@each_name
def test_chosen_partition_is_from_the_list(name: str) -> None:
    partitioner = PARTITIONERS[name]()
    for key in (None, b"key"):
        assert partitioner(key, [7], []) == 7
        assert partitioner(key, (3, 5), (5,)) in {3, 5}


@each_name
def test_keyless_messages_go_to_available_partitions(name: str) -> None:
    partitioner = PARTITIONERS[name]()
    for available in ([1, 3], [2], [0, 1, 2, 3], [3]):
        for _ in range(20):
            assert partitioner(None, range(4), available) in available
    for _ in range(20):  # no leader at all: any partition, the message waits
        assert partitioner(None, range(4), []) in range(4)


@each_name
@given(
    calls=st.lists(
        st.tuples(st.none() | st.text(max_size=5), st.sets(st.integers(0, 6))), max_size=20
    )
)
def test_any_calls_return_a_partition(name: str, calls: list[tuple[str | None, set[int]]]) -> None:
    partitioner = PARTITIONERS[name]()
    for key, available in calls:
        partition = partitioner(None if key is None else key.encode(), range(7), sorted(available))
        assert partition in (available if key is None and available else range(7))
        if isinstance(partitioner, BatchAware):
            partitioner.on_new_batch(partition)


@each_name
def test_partitioners_have_positional_only_parameters(name: str) -> None:
    parameters = inspect.signature(PARTITIONERS[name]()).parameters.values()
    assert [one.kind for one in parameters] == [inspect.Parameter.POSITIONAL_ONLY] * 3


# --- without a key ------------------------------------------------------------------------------


def picks(partitioner: Partitioner, available: list[int], times: int) -> list[int]:
    return [partitioner(None, range(6), available) for _ in range(times)]


def test_round_robin_is_fair_and_ignores_keys() -> None:
    partitioner = RoundRobinPartitioner()
    found = []
    for number in range(60):
        partitioner(b"%d" % number, range(6), [])
        found += picks(partitioner, [0, 2, 5], 1)
    assert Counter(found) == {0: 20, 2: 20, 5: 20}
    assert all(one != other for one, other in pairwise(found))


def test_round_robin_begins_at_a_random_partition() -> None:
    assert {picks(RoundRobinPartitioner(), [0, 1, 2], 1)[0] for _ in range(200)} == {0, 1, 2}


@pytest.mark.parametrize("name", ["random", "scala-0.8.0", "scala-0.8.2", "sticky"])
def test_partition_is_kept_while_it_is_available(name: str) -> None:
    partitioner = PARTITIONERS[name]()
    (first,) = set(picks(partitioner, [0, 1, 2], 50))
    others = [one for one in (0, 1, 2) if one != first]
    (second,) = set(picks(partitioner, others, 50))
    assert second in others
    # It doesn't return to the first one, nor change if no partition has a leader.
    assert set(picks(partitioner, [0, 1, 2], 50)) == {second}
    assert set(picks(partitioner, [], 50)) == {second}


def test_random_choice_differs_between_producers() -> None:
    assert {picks(RandomPartitioner(), [0, 1, 2], 1)[0] for _ in range(200)} == {0, 1, 2}


def test_sticky_changes_partition_when_its_batch_closes() -> None:
    partitioner = StickyPartitioner()
    seen = set()
    for _ in range(200):
        (before,) = set(picks(partitioner, [0, 1, 2], 3))
        partitioner.on_new_batch((before + 1) % 3)  # another partition's batch
        assert picks(partitioner, [0, 1, 2], 1) == [before]
        partitioner.on_new_batch(before)
        (after,) = set(picks(partitioner, [0, 1, 2], 3))
        assert after != before
        seen.add(after)
        partitioner.on_new_batch(before)  # notified twice
        assert picks(partitioner, [0, 1, 2], 1) == [after]
    assert seen == {0, 1, 2}


def test_sticky_stays_with_the_only_partition() -> None:
    partitioner = StickyPartitioner()
    for _ in range(3):
        assert picks(partitioner, [4], 2) == [4, 4]
        partitioner.on_new_batch(4)


def test_only_sticky_is_batch_aware() -> None:
    aware = {name for name, make in PARTITIONERS.items() if isinstance(make(), BatchAware)}
    assert aware == {"sticky"}


# --- Scala's key types --------------------------------------------------------------------------


@pytest.mark.parametrize("make", [ScalaPartitioner080, ScalaPartitioner082])
def test_string_key_that_is_not_utf_8_raises(make: type[ScalaPartitioner080]) -> None:
    with pytest.raises(ValueError, match="key of 3 bytes isn't UTF-8"):
        make("string")(b"\xff\xfe\xfd", range(3), [])
    with pytest.raises(ValueError, match="key_type='str': expected 'bytes' or 'string'"):
        make("str")  # type: ignore[arg-type]


def test_names_with_string_are_for_string_keys() -> None:
    sent, everywhere = "ключ".encode(), range(2**31)
    for name, make in (("scala-0.8.0", ScalaPartitioner080), ("scala-0.8.2", ScalaPartitioner082)):
        as_bytes = PARTITIONERS[name]()(sent, everywhere, [])
        as_string = PARTITIONERS[f"{name}-string"]()(sent, everywhere, [])
        assert as_bytes == make()(sent, everywhere, [])
        assert as_string == java_string_hash_code("ключ") != as_bytes


# --- one instance per topic ---------------------------------------------------------------------


@each_name
def test_name_makes_an_instance_per_topic(name: str) -> None:
    factory = partitioner_factory(name)
    one, other = factory(), factory()
    assert type(one) is type(other)
    assert one is not other


def test_class_makes_an_instance_per_topic() -> None:
    class Mine:
        def __call__(self, key: object, everything: Any, available: Any, /) -> int:
            return 3

    factory = partitioner_factory(Mine)
    assert isinstance(factory(), Mine)
    assert factory() is not factory()


@pytest.mark.parametrize("derived", [False, True])
def test_instance_of_ours_is_copied_per_topic(derived: bool) -> None:
    class Mine(ScalaPartitioner082):
        """A subclass with a __dict__ beside the slots."""

        def __init__(self) -> None:
            super().__init__("string")
            self.kept = "as it is"

    given_one: ScalaPartitioner082 = Mine() if derived else ScalaPartitioner082("string")
    factory = partitioner_factory(given_one)
    topics = [factory() for _ in range(100)]
    assert len({id(one) for one in [*topics, given_one]}) == 101
    assert len({picks(one, [0, 1, 2], 1)[0] for one in topics}) == 3  # each copy chose its own
    assert {one("ü".encode(), range(50), []) for one in topics} == {ord("ü") % 50}
    if derived:
        assert {one.kept for one in topics} == {"as it is"}  # type: ignore[attr-defined]


def test_any_other_callable_is_shared_by_all_topics() -> None:
    def mine(key: bytes | None, everything: Any, available: Any, /) -> int:
        return everything[-1]

    foreign = AIOKAFKA.DefaultPartitioner()
    for one in (mine, foreign):
        factory = partitioner_factory(one)
        assert factory() is one
        assert factory() is one


def test_unknown_name_or_no_callable_raises() -> None:
    with pytest.raises(ValueError, match="expected one of murmur2, scala-0"):
        partitioner_factory("murmur")
    with pytest.raises(TypeError, match="expected a name or a callable"):
        partitioner_factory(3)  # type: ignore[arg-type]


def test_import_of_partitioners_needs_no_codec_library() -> None:
    code = "import sys; sys.modules.update(cramjam=None, snappy=None);import aiokafka08.partitioner"
    root = ROOT
    subprocess.run([sys.executable, "-c", code], cwd=root, check=True)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_murmur2_in_use_equals_the_pure_one(kind: type) -> None:
    random_bytes = random.Random(2)
    for length in (*range(40), 1000, 4097):
        for _ in range(20):
            data = random_bytes.randbytes(length)
            assert murmur2(kind(data)) == _murmur2_py.murmur2(data)


# --- for many at once ---


def route(partitioner: Partitioner) -> TopicRoute:
    made = TopicRoute("t", partitioner)
    made.partitions = [0, 1, 2, 3]
    made.available = [1, 3]
    made.queues = {
        number: PartitionQueue(TopicPartition("t", number), 1000) for number in made.partitions
    }
    return made


@pytest.mark.parametrize("name", ["murmur2", "scala-0.8.2", "round_robin"])
@pytest.mark.parametrize("each", [choose_each, pure_choose_each])
def test_choose_each_chooses_as_route_choose(each: Any, name: str) -> None:
    one = route(PARTITIONERS[name]())
    keys = [b"%d" % number for number in range(100)] + [b"", b"\xff" * 7]
    values = [b"value of %b" % key for key in keys]
    chosen: dict[PartitionQueue, MessageColumns] = {}
    each(one, keys, values, 3, 50, chosen)
    each(one, keys, values, 50, 102, chosen)
    assert sorted(index for columns in chosen.values() for index in columns[0]) == [*range(3, 102)]
    for queue, (indices, some_keys, some_values) in chosen.items():
        assert [one.choose(keys[index]) for index in indices] == [queue] * len(indices)
        assert indices == sorted(indices)
        assert some_keys == [keys[index] for index in indices]
        assert some_values == [values[index] for index in indices]


@pytest.mark.parametrize("each", [choose_each, pure_choose_each])
def test_choose_each_spreads_keyless_messages_over_leaders(each: Any) -> None:
    one = route(DefaultPartitioner())
    for keys in (None, [None] * 300):
        chosen: dict[PartitionQueue, MessageColumns] = {}
        each(one, keys, [b"v"] * 300, 0, 300, chosen)
        assert {queue.topic_partition.partition for queue in chosen} == {1, 3}
        assert min(len(indices) for indices, _, _ in chosen.values()) > 90


def _choices(each: Any, pipe: Any) -> None:
    """In a forked child: send the partitions of 64 messages without keys."""
    chosen: dict[PartitionQueue, MessageColumns] = {}
    each(route(DefaultPartitioner()), None, [b"v"] * 64, 0, 64, chosen)
    pipe.send({queue.topic_partition.partition: indices for queue, (indices, *_) in chosen.items()})
    pipe.close()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("each", [choose_each, pure_choose_each])
def test_forked_children_choose_differently(each: Any) -> None:
    choices = []
    for _ in range(2):
        here, there = multiprocessing.Pipe()
        child = multiprocessing.get_context("fork").Process(target=_choices, args=(each, there))
        child.start()
        there.close()
        choices.append(here.recv())
        child.join()
        here.close()
    assert choices[0] != choices[1]


@pytest.mark.parametrize("each", [choose_each, pure_choose_each])
def test_choose_each_raises_for_a_missing_partition(each: Any) -> None:
    with pytest.raises(IllegalArgumentError, match="the partitioner chose 7"):
        each(route(lambda key, partitions, available: 7), None, [b"v"], 0, 1, {})


async def test_predicted_partition_is_that_of_the_next_send(cluster: EmbeddedCluster) -> None:
    """An instrumentor reads the prediction before each send: it must not move the rotation."""
    servers = cluster.bootstrap_servers
    async with AIOKafkaProducer(bootstrap_servers=servers, partitioner="round_robin") as producer:
        await producer.send_and_wait("t", b"v")
        for _ in range(4):
            predicted = producer._partition("t", None, None, b"v", None, b"v")
            assert (await producer.send_and_wait("t", b"v")).partition == predicted
        with pytest.raises(UnknownTopicOrPartitionError, match="has no partition 3"):
            producer._partition("t", 3, None, b"v", None, b"v")
