"""Fetch and ListOffsets (docs/brokers.md 7, 8.1, 8.2)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import pytest

from aiokafka08.errors import ReplicaNotAvailableError
from aiokafka08.protocol.api import ApiKey, Topic
from aiokafka08.protocol.compression import Codec
from aiokafka08.protocol.requests.committed_offsets import OffsetFetchRequest
from aiokafka08.protocol.requests.fetch import FetchPartition, FetchRequest
from aiokafka08.protocol.requests.list_offsets import (
    ListedOffsets,
    ListOffsetsPartition,
    ListOffsetsRequest,
)
from aiokafka08.protocol.requests.metadata import MetadataRequest
from aiokafka08.protocol.requests.produce import ProducePartition, ProduceRequest
from aiokafka08.testing.broker_lines import LineRules
from tests.conformance.contract.targets import on_lines
from tests.conformance.contract.wire.requests import (
    fetch,
    fetch_request,
    fetched,
    list_offsets,
    plain,
    produce,
    wrapper,
)
from tests.conformance.contract.wire.target import Target, has_config
from tests.conformance.contract.wire.wire_client import LONG_MS, WireClient
from tests.support.names import unique_name

ENTRY = 26  # bytes of an entry of format 0 without its value

WAIT_MS = 300


def took(act: Callable[[], object]) -> float:
    started = time.monotonic()
    act()
    return (time.monotonic() - started) * 1000


def waits(act: Callable[[int], object], at_once: bool) -> bool:
    """Return whether the broker responds at once, or (`at_once` False) not before `max_wait_ms`."""
    return took(lambda: act(LONG_MS if at_once else WAIT_MS)) >= (0 if at_once else WAIT_MS * 0.9)


def until_data(target: Target) -> int:
    """Return a `max_wait_ms` for data to come; old brokers may oversleep it (brokers.md 7.13)."""
    return LONG_MS if target.line.errors_end_the_wait else 4000


@pytest.fixture
def filled(wire: WireClient, topic: str) -> str:
    """A topic with five messages of 100 bytes in partition 0."""
    for number in range(5):
        produce(wire, topic, plain(bytes([number]) * 100))
    return topic


@pytest.mark.parametrize("max_bytes", [5, 12, 20, 125])
def test_max_bytes_below_one_message_cuts_it(
    target: Target, wire: WireClient, filled: str, max_bytes: int
) -> None:
    # The bytes are as stored: 0.10 converts only whole messages.
    version = 2 if target.line.message_format else 0
    whole = fetch(wire, filled, 1, version=version).message_set
    cut = fetch(wire, filled, 1, max_bytes=max_bytes, max_wait_ms=WAIT_MS)
    assert cut == (0, 5, whole[:max_bytes])


def test_max_bytes_cuts_in_the_middle_of_a_message(wire: WireClient, filled: str) -> None:
    got = fetch(wire, filled, 0, max_bytes=3 * 126 + 50)
    assert got.error_code == 0
    assert [offset for offset, _ in got.values()] == [0, 1, 2]
    # 0.10 converts whole messages only.
    assert len(got.message_set) >= 3 * 126


@on_lines(lambda line: line.message_format == 0)
def test_max_bytes_of_exactly_one_message(target: Target, wire: WireClient, filled: str) -> None:
    assert len(fetch(wire, filled, 0, max_bytes=428).message_set) == 428


def test_max_bytes_zero(target: Target, wire: WireClient, filled: str) -> None:
    """0.8.2 counts what could be read without max_bytes, but not at the end of the log."""
    at_once = target.line.name == "0.8.2"
    assert waits(lambda wait_ms: fetch(wire, filled, 0, max_bytes=0, max_wait_ms=wait_ms), at_once)


def test_max_bytes_negative(wire: WireClient, filled: str) -> None:
    assert fetch(wire, filled, 0, max_bytes=-1) == (-1, -1, b"")
    assert fetch(wire, filled, 5, max_bytes=-1) == (0, 5, b"")  # at the log's end


@pytest.mark.parametrize("offset", [6, 1000, -1, -5])
def test_offsets_out_of_range(wire: WireClient, filled: str, offset: int) -> None:
    assert fetch(wire, filled, offset) == (1, -1, b"")


def test_unknown_topic_and_partition(wire: WireClient, topic: str) -> None:
    assert fetch(wire, topic, 0, partition=99) == (3, -1, b"")
    assert fetch(wire, unique_name("missing"), 0) == (3, -1, b"")


def test_error_ends_wait_from_0_8_2_on(target: Target, wire: WireClient, filled: str) -> None:
    at_once = target.line.errors_end_the_wait
    assert waits(lambda wait_ms: fetch(wire, filled, 1000, max_wait_ms=wait_ms), at_once)


def test_fetch_at_log_end_waits(wire: WireClient, filled: str) -> None:
    assert took(lambda: fetch(wire, filled, 5, max_wait_ms=WAIT_MS)) >= WAIT_MS * 0.9
    assert fetch(wire, filled, 5) == (0, 5, b"")


@pytest.mark.parametrize(("max_wait_ms", "min_bytes"), [(LONG_MS, 0), (0, 1), (-1, 1)])
def test_fetch_without_wait(
    wire: WireClient, filled: str, max_wait_ms: int, min_bytes: int
) -> None:
    got = fetch(wire, filled, 5, max_wait_ms=max_wait_ms, min_bytes=min_bytes)
    assert got == (0, 5, b"")


def test_fetch_of_no_topics_returns_at_once(wire: WireClient) -> None:
    assert wire.request(FetchRequest(-1, LONG_MS, 1, [])).topics == []


def test_min_bytes_not_reached_returns_available_data(wire: WireClient, filled: str) -> None:
    milliseconds = took(lambda: fetch(wire, filled, 0, max_wait_ms=WAIT_MS, min_bytes=1_000_000))
    assert milliseconds >= WAIT_MS * 0.9
    got = fetch(wire, filled, 0, max_wait_ms=50, min_bytes=1_000_000)
    assert len(got.values()) == 5


def test_new_data_ends_wait(target: Target, wire: WireClient, filled: str) -> None:
    def later() -> None:
        with WireClient(target.address(0)) as other:
            produce(other, filled, plain(b"new"))

    timer = threading.Timer(0.2, later)
    timer.start()
    got = fetch(wire, filled, 5, max_wait_ms=until_data(target))
    timer.join()
    assert got.values() == [(5, b"new")]


def test_min_bytes_counts_all_partitions(target: Target, wire: WireClient, topic: str) -> None:
    items = [Topic(topic, [FetchPartition(i, 0, 1000) for i in range(3)])]
    wire.send(FetchRequest(-1, until_data(target), 2 * ENTRY + 110, items))
    with WireClient(target.address(0)) as other:
        # The first is so small that it isn't enough if an old broker counts it twice (7.13).
        produce(other, topic, plain(bytes(10)), partition=0)
        produce(other, topic, plain(bytes(100)), partition=2)
    response = wire.receive(FetchRequest)
    sizes = {p.partition: len(p.message_set) for t in response.topics for p in t.partitions}
    assert sizes == {0: 36, 1: 0, 2: 126}


def test_responses_come_in_request_order(target: Target, filled: str) -> None:
    with WireClient(target.address(0)) as wire:
        started = time.monotonic()
        first = wire.send(fetch_request(filled, 5, max_wait_ms=WAIT_MS))
        second = wire.send(MetadataRequest([filled]))
        frames = [wire.read_frame(), wire.read_frame()]
        ids = [int.from_bytes(frame[:4], "big") for frame in frames]
        assert ids == [first, second]
        assert (time.monotonic() - started) * 1000 >= WAIT_MS * 0.9


def test_produce_behind_long_poll_is_stored_after_it(
    target: Target, wire: WireClient, filled: str
) -> None:
    with WireClient(target.address(0)) as busy:
        busy.send(fetch_request(filled, 5, max_wait_ms=WAIT_MS))
        busy.send(ProduceRequest(1, 1000, [Topic(filled, [ProducePartition(0, plain(b"x"))])]))
        assert fetched(busy.receive(FetchRequest), filled) == (0, 5, b"")
        assert busy.receive(ProduceRequest).topics[0].partitions[0].offset == 5


def test_offset_inside_wrapper_returns_whole_wrapper(wire: WireClient, topic: str) -> None:
    produce(wire, topic, wrapper(Codec.GZIP, plain(b"0", b"1", b"2")))
    for offset in range(3):
        [entry] = fetch(wire, topic, offset).entries()
        assert (entry.offset, entry.codec) == (2, Codec.GZIP)


def test_duplicate_partition_gets_one_response(wire: WireClient, filled: str) -> None:
    items = [FetchPartition(0, 0, 1000), FetchPartition(0, 4, 1000)]
    response = wire.request(FetchRequest(-1, 0, 1, [Topic(filled, items)]))
    assert fetched(response, filled).values() == [(4, bytes([4]) * 100)]


@pytest.mark.parametrize("replica_id", [-2, -3])
def test_negative_replica_id_on_leader(wire: WireClient, filled: str, replica_id: int) -> None:
    assert len(fetch(wire, filled, 0, replica_id=replica_id).values()) == 5


def test_replica_id_of_no_replica(target: Target, wire: WireClient, filled: str) -> None:
    """From 0.8.1 on the whole fetch fails; 0.8.0 serves it."""
    items = [FetchPartition(number, 0, 1000) for number in (0, 99)]
    response = wire.request(FetchRequest(5, 0, 0, [Topic(filled, items)]))
    codes = {one.partition: one.error_code for one in response.topics[0].partitions}
    assert codes == ({0: 0, 99: 3} if target.line.name == "0.8.0" else {0: -1, 99: -1})
    unknown = fetch(wire, filled, 0, partition=99, replica_id=-2)
    assert unknown.error_code == ReplicaNotAvailableError.errno


def test_fetch_versions_and_layouts(target: Target, wire: WireClient, filled: str) -> None:
    highest = {"0.8.0": 0, "0.8.1": 0, "0.8.2": 0, "0.9": 1, "0.10": 2}[target.line.name]
    for version in range(3):
        got = fetch(wire, filled, 0, version=version, layout=min(version, highest))
        assert len(got.values()) == 5
        assert {one.magic for one in got.entries()} == {1 if min(version, highest) == 2 else 0}


# --- ListOffsets ----------------------------------------------------------------------------------

FAR = 4_102_444_800_000  # the year 2100


@pytest.mark.parametrize(
    ("timestamp", "count", "response"),
    [
        (-1, 1, (0, [5])),
        (-1, 10, (0, [5, 0])),
        (-2, 1, (0, [0])),
        (-2, 10, (0, [0])),
        (FAR, 1, (0, [5])),
        (FAR, 10, (0, [5, 0])),
        (1000, 10, (0, [])),
        (-1, 0, (0, [])),
        (-1, -1, (-1, [])),
        (-3, 10, (0, [])),
        (-100, 10, (0, [])),
    ],
)
def test_list_offsets_by_timestamp(
    wire: WireClient, filled: str, timestamp: int, count: int, response: tuple[int, list[int]]
) -> None:
    assert list_offsets(wire, filled, timestamp, count) == response


def test_list_offsets_of_empty_partition(wire: WireClient, topic: str) -> None:
    for timestamp in (-1, -2, FAR):
        assert list_offsets(wire, topic, timestamp, 10) == (0, [0])


def test_list_offsets_of_no_topics(wire: WireClient, topic: str) -> None:
    assert list_offsets(wire, topic, -1, partition=99) == (3, [])
    assert list_offsets(wire, unique_name("missing"), -1) == (3, [])
    assert wire.request(ListOffsetsRequest(-1, [])).topics == []


def test_list_offsets_of_duplicate_partition(wire: WireClient, filled: str) -> None:
    items = [ListOffsetsPartition(0, -1, 1), ListOffsetsPartition(0, -2, 1)]
    [one] = wire.request(ListOffsetsRequest(-1, [Topic(filled, items)])).topics
    assert [(p.partition, p.offsets) for p in one.partitions] == [(0, [0])]


# --- versions of 0.10.2 -------------------------------------------------------------------------


def knows_fetch(version: int) -> Callable[[LineRules], bool]:
    return lambda line: version in line.apis[ApiKey.FETCH].known


def fetch_sizes(
    wire: WireClient,
    topic: str,
    order: Sequence[int],
    max_bytes: int,
    partition_bytes: int = 1 << 20,
) -> list[tuple[int, int]]:
    """Return partition and size of each set in a Fetch response v3, in its order."""
    items = [FetchPartition(number, 0, partition_bytes) for number in order]
    request = FetchRequest(-1, 0, 0, [Topic(topic, items)], max_bytes=max_bytes)
    [one] = wire.request(request, 3).topics
    return [(part.partition, len(part.message_set)) for part in one.partitions]


@on_lines(knows_fetch(3))
def test_fetch_v3_limits_the_response_in_its_order(wire: WireClient, topic: str) -> None:
    """docs/brokers.md 7.20"""
    for number in range(3):
        for size in (100, 100, 900):
            produce(wire, topic, plain(bytes(size), magic=1), number)
    small, all_ = 134, 2 * 134 + 934
    assert fetch_sizes(wire, topic, (2, 0, 1), 1 << 20) == [(2, all_), (0, all_), (1, all_)]
    # The second partition has what is left, the third nothing, since its first message doesn't fit.
    limit = all_ + small + 50
    assert fetch_sizes(wire, topic, (1, 0, 2), limit) == [(1, all_), (0, small + 50), (2, 0)]
    assert fetch_sizes(wire, topic, (1, 0), all_ + 133) == [(1, all_), (0, 0)]
    # The first message comes, however long it is.
    assert fetch_sizes(wire, topic, (2, 1), 0) == [(2, small), (1, 0)]
    assert fetch_sizes(wire, topic, (2, 1), 1 << 20, 10) == [(2, small), (1, 0)]
    assert fetch_sizes(wire, topic, (2, 1), 140, 200) == [(2, 140), (1, 0)]


@on_lines(knows_fetch(3))
def test_empty_partitions_leave_the_limit_to_others(wire: WireClient, topic: str) -> None:
    produce(wire, topic, plain(bytes(100)), 2)
    assert fetch_sizes(wire, topic, (7, 0, 2), 1) == [(7, 0), (0, 0), (2, 134)]


@on_lines(knows_fetch(3))
def test_fetch_v3_without_a_message_below_a_negative_limit(wire: WireClient, topic: str) -> None:
    items = [FetchPartition(0, 0, 1 << 20), FetchPartition(1, 0, 1 << 20)]
    request = FetchRequest(-1, 0, 0, [Topic(topic, items)], max_bytes=-1)
    assert [part.error_code for part in wire.request(request, 3).topics[0].partitions] == [0, 0]
    produce(wire, topic, plain(b"x"), 0)
    assert [part.error_code for part in wire.request(request, 3).topics[0].partitions] == [-1, 0]


@on_lines(knows_fetch(3))
def test_partitions_have_the_order_of_a_hash_map_but_in_fetch(wire: WireClient, topic: str) -> None:
    """docs/brokers.md 3.11"""
    order, missing = [2, 0, 9, 1], unique_name("missing")
    fetch_items = [FetchPartition(number, 0, 100) for number in order]
    topics = [Topic(missing, fetch_items[:1]), Topic(topic, fetch_items)]
    for version in (0, 2, 3):
        response = wire.request(FetchRequest(-1, 0, 0, topics), version)
        numbers = [
            (one.topic, [part.partition for part in one.partitions]) for one in response.topics
        ]
        assert numbers == [(topic, order), (missing, [2])]
    listed = [ListOffsetsPartition(number, -1) for number in order]
    for version in (0, 1):
        [one] = wire.request(ListOffsetsRequest(-1, [Topic(topic, listed)]), version).topics
        assert [part.partition for part in one.partitions] == sorted(order)
    [one] = wire.request(OffsetFetchRequest("g", [Topic(topic, order)]), 0).topics
    assert [part.partition for part in one.partitions] == sorted(order)


def by_message(wire: WireClient, topic: str, *timestamps: int) -> list[tuple[int, int, int]]:
    """Return code, timestamp and offset of ListOffsets v1 for these times of partition 0."""
    items = [ListOffsetsPartition(0, at) for at in timestamps]
    [one] = wire.request(ListOffsetsRequest(-1, [Topic(topic, items)]), version=1).topics
    return [(p.error_code, p.timestamp, p.offset) for p in one.partitions]


@on_lines(lambda line: line.message_format == 1)
def test_list_offsets_by_message_timestamp(wire: WireClient, topic: str) -> None:
    assert by_message(wire, topic, 0) == [(0, -1, -1)]
    produce(wire, topic, plain(b"without a time"))
    assert by_message(wire, topic, 0) == [(0, -1, -1)]
    produce(wire, topic, plain(b"a", b"b", magic=1))
    produce(wire, topic, wrapper(Codec.GZIP, plain(b"c", b"d", b"e", magic=1), magic=1))
    for at, response in (
        (0, (0, 1000, 1)),
        (1000, (0, 1000, 1)),
        (1001, (0, 1001, 2)),
        (1002, (0, 1002, 5)),
        (1003, (0, -1, -1)),
        (-1, (0, -1, 6)),
        (-2, (0, -1, 0)),
        (-3, (0, -1, 0)),
    ):
        assert (at, by_message(wire, topic, at)) == (at, [response])
    assert by_message(wire, topic, 0, 1000) == [(42, -1, -1)]
    assert by_message(wire, topic, 0, 0) == [(42, -1, -1)]
    missing = ListOffsetsPartition(99, 0)
    [one] = wire.request(ListOffsetsRequest(-1, [Topic(topic, [missing])]), version=1).topics
    assert one.partitions == [ListedOffsets(99, 3)]


@on_lines(has_config("message.timestamp.type"))
def test_list_offsets_by_log_append_time(target: Target, wire: WireClient) -> None:
    topic = unique_name()
    target.create_topic(topic, config={"message.timestamp.type": "LogAppendTime"})
    produce(wire, topic, wrapper(Codec.GZIP, plain(b"a", b"b", magic=1), magic=1))
    [(code, timestamp, offset)] = by_message(wire, topic, 2000)
    assert (code, offset) == (0, 0)
    assert timestamp > 1_700_000_000_000
    assert by_message(wire, topic, timestamp + 1) == [(0, -1, -1)]


@on_lines(has_config("segment.bytes"))
def test_segment_rolls_when_set_does_not_fit(target: Target, wire: WireClient) -> None:
    topic = unique_name()
    target.create_topic(topic, config={"segment.bytes": "4096"})
    for _ in range(10):
        produce(wire, topic, plain(bytes(1000)))
    starts = [10, 8, 4, 0] if target.line.segments_overflow else [10, 9, 6, 3, 0]
    assert list_offsets(wire, topic, -1, 100) == (0, starts)
    # A fetch reads one segment only.
    first = starts[-2]
    assert [offset for offset, _ in fetch(wire, topic, 1).values()] == list(range(1, first))
    assert fetch(wire, topic, first).values()[0][0] == first
