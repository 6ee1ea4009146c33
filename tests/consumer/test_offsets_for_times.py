"""offsets_for_times(): never after the first message of the time, by messages or segments."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka08._core.net.offsets_for_times import FILE_TIME_GRAIN_MS, _start_offset
from aiokafka08.consumer import AIOKafkaConsumer
from aiokafka08.errors import KafkaTimeoutError
from aiokafka08.protocol.message_set import encode_entry
from aiokafka08.protocol.requests.fetch import FetchRequest
from aiokafka08.protocol.requests.list_offsets import ListOffsetsRequest
from aiokafka08.structs import OffsetAndTimestamp, TopicPartition
from aiokafka08.testing import Answer, EmbeddedCluster, Silence
from tests.consumer.conftest import tp, values


@dataclass(slots=True)
class Clock:
    seconds: float = 1_700_000_000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def timed(clock: Clock) -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(topics={"t": 4}, clock=clock) as running:
        yield running


async def test_offsets_for_times(timed: EmbeddedCluster, clock: Clock) -> None:
    """Ten messages, one a minute, in segments of three."""
    began = clock.seconds
    for number in range(10):
        if number % 3 == 0:
            timed.roll_segment("t", 0)
        timed.append("t", 0, values(number, number + 1))
        clock.seconds += 60
    async with AIOKafkaConsumer(bootstrap_servers=timed.bootstrap_servers) as consumer:
        for number in range(10):
            at = int((began + 60 * number) * 1000)
            found = await consumer.offsets_for_times({tp(0): at, tp(1): at})
            assert found == {tp(0): OffsetAndTimestamp(number - number % 3, None), tp(1): None}
        late = int(clock.seconds * 1000)
        assert await consumer.offsets_for_times({tp(0): late}) == {tp(0): None}
        assert await consumer.offsets_for_times({tp(0): 10 * late}) == {tp(0): None}
        assert await consumer.offsets_for_times({tp(0): 0}) == {tp(0): OffsetAndTimestamp(0, None)}
        assert await consumer.offsets_for_times({}) == {}
        with pytest.raises(ValueError, match="from 0 to"):
            await consumer.offsets_for_times({tp(0): -1})
        assert await consumer.end_offsets([tp(0), tp(1)]) == {tp(0): 10, tp(1): 0}
        timed.delete_before("t", 0, 3)
        assert await consumer.beginning_offsets([tp(0), tp(1)]) == {tp(0): 3, tp(1): 0}


async def test_missing_partition_is_waited_for(timed: EmbeddedCluster) -> None:
    servers = timed.bootstrap_servers
    async with AIOKafkaConsumer(bootstrap_servers=servers, request_timeout_ms=300) as consumer:
        with pytest.raises(KafkaTimeoutError, match=r"no partition .*partition=9\) within 300 ms"):
            await consumer.offsets_for_times({tp(0): 1, tp(9): 1})
    async with AIOKafkaConsumer(bootstrap_servers=servers) as consumer:
        created = TopicPartition("created", 0)
        assert await consumer.offsets_for_times({created: 0}) == {created: None}


async def test_brokers_with_timestamps_find_the_first_message(clock: Clock) -> None:
    """From 0.10.1 on; 0.10.0 returns the start of the segment, as older brokers do."""
    async with EmbeddedCluster(version="0.10", topics={"t": 2}, clock=clock) as cluster:
        for number in range(10):
            cluster.append("t", 0, values(number, number + 1), timestamp_ms=1000 * number)
        times = {tp(0): 4500, tp(1): 4500}
        for api_version, found in (
            ("auto", OffsetAndTimestamp(5, 5000)),
            ("0.10.2", OffsetAndTimestamp(5, 5000)),
            ("0.10.0", OffsetAndTimestamp(0, None)),
        ):
            async with AIOKafkaConsumer(
                bootstrap_servers=cluster.bootstrap_servers, api_version=api_version
            ) as consumer:
                assert await consumer.offsets_for_times(times) == {tp(0): found, tp(1): None}


async def test_no_result_is_verified_without_timestamps(clock: Clock) -> None:
    """An upgraded broker finds nothing for times before the file's (docs/brokers.md 8.14)."""
    began = int(clock.seconds * 1000)
    async with EmbeddedCluster(version="0.10", topics={"t": 2}, clock=clock) as cluster:
        for number in (0, 1):
            cluster.append_raw("t", number, encode_entry(0, None, b"old", magic=0))
        cluster.roll_segment("t", 1)
        cluster.append("t", 1, [b"new"], timestamp_ms=began + 500)
        async with AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
            segment = OffsetAndTimestamp(0, None)
            assert await consumer.offsets_for_times({tp(0): began, tp(1): began + 500}) == {
                tp(0): segment,
                tp(1): OffsetAndTimestamp(1, began + 500),
            }
            times = {tp(0): began + 5000, tp(1): began + 501}
            assert await consumer.offsets_for_times(times) == {tp(0): None, tp(1): segment}
            clock.seconds += 60
            cluster.append("t", 1, [b"newer"], timestamp_ms=began + 600)
            times = {tp(1): began + 30_000}
            assert await consumer.offsets_for_times(times) == {tp(1): None}
            # Without the fetch, the message can't be shown to be before the time.
            cluster.fault(FetchRequest, then=Answer(6), times=None)
            found = (await consumer.offsets_for_times(times))[tp(1)]
            assert found == OffsetAndTimestamp(1, None)


async def test_no_result_is_verified_with_several_segments(clock: Clock) -> None:
    """The first segment was written late enough; a later one has messages of the time."""
    began = int(clock.seconds * 1000)
    async with EmbeddedCluster(version="0.10", topics={"t": 1}, clock=clock) as cluster:
        cluster.append("t", 0, [b"of before"], timestamp_ms=began - 600_000)
        clock.seconds += 1
        cluster.roll_segment("t", 0)
        cluster.append_raw("t", 0, encode_entry(1, None, b"old", magic=0))
        clock.seconds += 1
        cluster.roll_segment("t", 0)
        cluster.append("t", 0, [b"wanted"], timestamp_ms=began - 300_000)
        async with AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
            found = await consumer.offsets_for_times({tp(0): began - 400_000})
    assert found == {tp(0): OffsetAndTimestamp(0, None)}


async def test_unsupported_time_lookup_falls_back_to_segments(clock: Clock) -> None:
    """The broker can't open a set, or takes too long; other partitions aren't affected."""
    began = int(clock.seconds * 1000)
    broken = encode_entry(0, None, b"no gzip", attributes=1, magic=1, timestamp_ms=began + 9000)
    async with EmbeddedCluster(version="0.10", topics={"t": 2}, clock=clock) as cluster:
        cluster.append_raw("t", 0, broken)
        cluster.append("t", 1, [b"fine"], timestamp_ms=began)
        times = {tp(0): began, tp(1): began}
        segment, message = OffsetAndTimestamp(0, None), OffsetAndTimestamp(0, began)
        async with AIOKafkaConsumer(
            bootstrap_servers=cluster.bootstrap_servers, request_timeout_ms=4000
        ) as consumer:
            found = await consumer.offsets_for_times(times)
            assert found == {tp(0): segment, tp(1): message}
            cluster.fault(
                ListOffsetsRequest,
                then=Silence(),
                times=None,
                where=lambda request: any(
                    part.timestamp == began for topic in request.topics for part in topic.partitions
                ),
            )
            found = await consumer.offsets_for_times(times)
            assert found == {tp(0): segment, tp(1): segment}


async def test_segment_heads_take_one_request_per_leader(clock: Clock) -> None:
    began = int(clock.seconds * 1000)
    async with EmbeddedCluster(2, "0.10", topics={"t": 12}, clock=clock) as cluster:
        for number in range(12):
            cluster.append("t", number, [b"x"], timestamp_ms=began - 60_000)
        async with AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
            times = {tp(number): began for number in range(12)}
            assert await consumer.offsets_for_times(times) == dict.fromkeys(times)
        assert len(cluster.requests(FetchRequest)) == 2


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 5000)), max_size=6),
    st.booleans(),
    st.integers(0, 30_000),
)
def test_result_is_never_after_the_first_message(
    segments: list[tuple[int, int]], ends_empty: bool, at: int
) -> None:
    """Segments of a few messages with growing times; file times are whole seconds, rounded down."""
    starts, files, messages, offset, now = [], [], [], 0, 0
    for count, step in segments:
        starts.append(offset)
        for _ in range(count):
            now += step
            messages.append((offset, now))
            offset += 1
        files.append(now // 1000 * 1000)
    if ends_empty or not segments:
        starts.append(offset)
        files.append(now // 1000 * 1000)
    listed = sorted({offset, *starts}, reverse=True)
    wanted = at - FILE_TIME_GRAIN_MS
    older = [start for start, file in zip(starts, files, strict=True) if file <= wanted]
    found = _start_offset(sorted(older, reverse=True)[:1], listed)
    true = next((offset for offset, time in messages if time >= at), None)
    if true is not None:
        assert found is not None
        assert found <= true
