"""Bounded ranges: each offset once and in order, in any log and with failing brokers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from aiokafka08._core.net.router import Router
from aiokafka08._core.ranges.range_fetches import RangeFetches
from aiokafka08._core.ranges.range_reader import RawSet, read_range
from aiokafka08._core.ranges.range_router import open_range_router, router_config
from aiokafka08.errors import (
    CorruptRecordException,
    KafkaTimeoutError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    UnknownTopicOrPartitionError,
    UnsupportedCompressionTypeError,
)
from aiokafka08.protocol.compression import Codec
from aiokafka08.protocol.message_set import MessageSetReader, encode_entry
from aiokafka08.protocol.requests.fetch import FetchedPartition, FetchRequest
from aiokafka08.structs import TopicPartition
from aiokafka08.telemetry import Telemetry
from aiokafka08.testing import Answer, Close, Delay, EmbeddedCluster, Hang, Omit
from aiokafka08.testing.simulation import simulate
from tests.consumer.conftest import tp, values
from tests.support.waiting import until

pytestmark = pytest.mark.twins


@asynccontextmanager
async def started_router(cluster: EmbeddedCluster) -> AsyncIterator[Router]:
    new = Router(
        router_config(
            {
                "bootstrap_servers": cluster.bootstrap_servers,
                "client_id": "x",
                "request_timeout_ms": 5000,
                "retry_backoff_ms": 20,
                "metadata_max_age_ms": 60_000,
                "connections_max_idle_ms": 60_000,
            }
        ),
        Telemetry(),
    )
    await new.start()
    await new.metadata.wait_for_topic("t", timeout_s=5)
    yield new
    await new.stop()


@pytest.fixture
async def router(cluster: EmbeddedCluster) -> AsyncIterator[Router]:
    async with started_router(cluster) as started:
        yield started


async def read(
    router: Router, start: int, end: int, partition: int = 0, **options: Any
) -> list[int]:
    """Return the offsets of the messages in the range; check that the sets fit together."""
    offsets: list[int] = []
    at = start
    async with aclosing(read_range(router, tp(partition), start, end, **options)) as sets:
        async for one in sets:
            assert at <= one.fetch_offset < one.end_offset <= end
            at = one.end_offset
            reader = MessageSetReader(
                tp(partition), one.message_set, one.fetch_offset, max_decompressed_bytes=1 << 26
            )
            while records := reader.read(100):
                offsets += [record.offset for record in records if record.offset < one.end_offset]
    return offsets


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("in_flight", [1, 3])
async def test_range_is_read_once_and_in_order(
    cluster: EmbeddedCluster, router: Router, codec: Codec, in_flight: int
) -> None:
    choose = random.Random(1)
    at = 0
    while at < 3000:
        count = choose.randint(1, 80)
        cluster.append(
            "t", 0, [choose.randbytes(choose.randint(0, 300)) for _ in range(count)], codec=codec
        )
        at += count
    for start, end in [(0, 3000), (7, 2001), (1234, 1235), (50, 50)]:
        got = await read(router, start, end, max_bytes=10_000, in_flight=in_flight)
        assert got == list(range(start, end))


async def test_exceeded_quota_delays_the_next_fetch() -> None:
    embedded = EmbeddedCluster(version="0.10", topics={"t": 1})
    async with embedded as cluster, started_router(cluster) as router:
        cluster.append("t", 0, [b"v"] * 20)
        cluster.fault(FetchRequest, then=Omit(throttle_time_ms=300), where=lambda r: bool(r.topics))
        began = asyncio.get_running_loop().time()
        assert await read(router, 0, 20) == list(range(20))
        assert asyncio.get_running_loop().time() - began >= 0.29


async def test_lasting_quota_is_logged_and_ends_the_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "aiokafka08")
    embedded = EmbeddedCluster(version="0.10", topics={"t": 2})
    async with embedded as cluster, started_router(cluster) as router:
        for partition in range(2):
            cluster.append("t", partition, [b"v"] * 20)
        cluster.fault(FetchRequest, then=Omit(throttle_time_ms=100), times=None)
        began, fetches = asyncio.get_running_loop().time(), RangeFetches(router)
        reads = (read(router, 0, 20, of, fetches=fetches, timeout_s=1) for of in range(2))
        errors = await asyncio.wait_for(asyncio.gather(*reads, return_exceptions=True), 10)
        assert 0.9 <= asyncio.get_running_loop().time() - began <= 5
        for error in errors:
            assert isinstance(error, KafkaTimeoutError)
            assert "exceeds its quota. Raise consumer_byte_rate" in str(error)
        assert len(cluster.requests(FetchRequest)) < 60  # the delays are kept
    assert caplog.text.count("withholds data for 0.1 s: the client exceeds its quota") == 1


async def test_short_set_at_the_end_of_a_segment_costs_few_fetches() -> None:
    """Its span is forgotten after the sets that follow, though these begin at wrong guesses."""
    small = EmbeddedCluster(1, topics={"t": 1}, segment_bytes=100_100)
    async with small as cluster, started_router(cluster) as router:
        cluster.append("t", 0, [bytes(74)] * 1001)
        cluster.append("t", 0, [bytes(74)] * 999)
        assert await read(router, 0, 2000, max_bytes=5_000) == list(range(2000))
        assert len(cluster.requests(FetchRequest)) < 80  # 41 without guesses


async def test_several_fetches_are_in_flight(cluster: EmbeddedCluster, router: Router) -> None:
    cluster.append("t", 0, [bytes(74)] * 1000)
    cluster.fault(FetchRequest, then=Delay(0.05), times=None)
    loop = asyncio.get_running_loop()
    taken = {}
    for in_flight in (1, 4):
        before = len(cluster.requests(FetchRequest))
        began = loop.time()
        assert len(await read(router, 0, 1000, max_bytes=5_000, in_flight=in_flight)) == 1000
        taken[in_flight] = loop.time() - began
        # Messages of one size are guessed right: nothing is fetched twice.
        assert len(cluster.requests(FetchRequest)) - before == 20
    requests = [
        topic.partitions[0].fetch_offset
        for request in cluster.requests(FetchRequest)
        for topic in request.topics
    ]
    assert requests[-20:] == list(range(0, 1000, 50))


async def test_unread_range_holds_few_sets(cluster: EmbeddedCluster, router: Router) -> None:
    cluster.append("t", 0, [bytes(74)] * 1000)
    async with aclosing(read_range(router, tp(0), 0, 1000, max_bytes=5_000, in_flight=3)) as sets:
        await anext(sets)
        await until(lambda: len(cluster.requests(FetchRequest)) >= 4)
        await asyncio.sleep(0.1)
        assert len(cluster.requests(FetchRequest)) == 4


async def test_wrong_guesses_end_guessing(cluster: EmbeddedCluster, router: Router) -> None:
    """Large compressed sets: each fetch in the middle of one gets all of it again."""
    choose = random.Random(2)
    for _ in range(40):
        values = [choose.randbytes(100) for _ in range(choose.randint(10, 200))]
        cluster.append("t", 0, values, codec=Codec.GZIP)
    end = cluster.offsets("t", 0).end
    assert await read(router, 3, end, max_bytes=25_000) == list(range(3, end))
    fetched = len(cluster.requests(FetchRequest))
    assert fetched < 80


async def test_range_passes_holes_and_empty_ends(cluster: EmbeddedCluster, router: Router) -> None:
    cluster.append("t", 0, values(0, 100))
    cluster.remove("t", 0, [*range(10, 40), 99])
    kept = [*range(10), *range(40, 99)]
    assert await read(router, 0, 100, max_bytes=200) == kept
    assert await read(router, 15, 35) == []
    assert await read(router, 15, 41) == [40]
    cluster.append("t", 1, values(0, 10))
    cluster.roll_segment("t", 1)
    cluster.remove("t", 1, range(5, 10))
    assert await read(router, 0, 10, 1, limit_bytes=1 << 20) == list(range(5))
    assert await read(router, 7, 9, 1, limit_bytes=1 << 20) == []


async def test_range_hole_needs_proof_from_one_leader(
    cluster: EmbeddedCluster, router: Router
) -> None:
    cluster.append("t", 0, values(0, 10))
    asked: set[int] = set()

    class EmptyAtFirst(RangeFetches):
        def fetch(self, node_id: int, tp: Any, *args: Any, **options: Any) -> asyncio.Future[Any]:
            if node_id in asked:
                return super().fetch(node_id, tp, *args, **options)
            asked.add(node_id)
            return asyncio.ensure_future(self.respond_empty(tp))

        async def respond_empty(self, tp: TopicPartition) -> tuple[FetchedPartition, float]:
            for node in cluster.nodes:  # only a broker below 0.10 shows a part of any message
                await router.exact_version(node)
            cluster.move_leader(*tp)
            await router.metadata.refresh()
            return FetchedPartition(tp.partition, 0, 10, b""), 0.0

    assert await read(router, 0, 10, fetches=EmptyAtFirst(router)) == list(range(10))
    assert asked == {0, 1}


async def test_range_with_large_messages(cluster: EmbeddedCluster, router: Router) -> None:
    sizes = [10, 3000, 10, 50_000, 10, 10]
    cluster.append("t", 0, [bytes(size) for size in sizes])
    assert await read(router, 0, 6, max_bytes=100) == list(range(6))
    with pytest.raises(RecordTooLargeError, match="offset 3 takes 50026"):
        await read(router, 0, 6, max_bytes=100, limit_bytes=40_000)


async def test_range_survives_lost_connections_and_moved_leaders(
    cluster: EmbeddedCluster, router: Router
) -> None:
    cluster.append("t", 0, [bytes(74)] * 1000)
    for nth in (2, 5, 7):
        cluster.fault(FetchRequest, then=Close(after_bytes=100), nth=nth)
    cluster.fault(FetchRequest, then=Answer(6), nth=9, times=2)
    cluster.fault(FetchRequest, then=Answer(1), nth=14)  # KAFKA-2477
    got: list[int] = []
    async with aclosing(read_range(router, tp(0), 0, 1000, max_bytes=5_000)) as sets:
        async for one in sets:
            got += range(one.fetch_offset, one.end_offset)
            if len(got) == 500:
                cluster.move_leader("t", 0)
    assert got == list(range(1000))


async def test_unreadable_range_raises(cluster: EmbeddedCluster, router: Router) -> None:
    cluster.append("t", 0, values(0, 100))
    cluster.delete_before("t", 0, 50)
    with pytest.raises(OffsetOutOfRangeError, match=r"offset 10 of the range up to 60.*50 to 100"):
        await read(router, 10, 60)
    with pytest.raises(OffsetOutOfRangeError, match=r"offset 200 of the range up to 210.*to 100"):
        await read(router, 200, 210)
    with pytest.raises(OffsetOutOfRangeError, match=r"offset 100 of the range up to 110.*to 100"):
        await read(router, 90, 110)
    cluster.fault(FetchRequest, then=Answer(76, null_sets=True))
    with pytest.raises(UnsupportedCompressionTypeError, match=r"t/0 at offset 60: .*zstd"):
        await read(router, 60, 70)
    cluster.fault(FetchRequest, then=Answer(-1), times=None)
    with pytest.raises(CorruptRecordException, match=r"offset 60: .*error -1"):
        await read(router, 60, 70)
    cluster.clear_faults()
    cluster.append_raw("t", 1, (0).to_bytes(8, "big") + bytes(40))
    with pytest.raises(CorruptRecordException, match="offset 0"):
        await read(router, 0, 1, 1)
    cluster.append_raw("t", 2, encode_entry(1_000_000, None, b"x"), next_offset=1)
    cluster.append("t", 2, values(1, 3))
    with pytest.raises(CorruptRecordException, match=r"offset 0.*seek\(\) to 1"):
        await read(router, 0, 3, 2)


async def test_message_whose_offset_falls_is_raised_behind_the_others(
    cluster: EmbeddedCluster, router: Router
) -> None:
    """Also where the range ends: no range from there on would bring it."""
    bad = encode_entry(0, None, b"other")
    cluster.append_raw("t", 0, encode_entry(0, None, b"0") + bad, next_offset=1)
    with pytest.raises(CorruptRecordException, match=r"offset 1: .*in front of it") as caught:
        await read(router, 0, 1)
    assert caught.value.next_offset == 1
    cluster.append_raw("t", 0, encode_entry(1, None, b"1"), next_offset=2)
    with pytest.raises(CorruptRecordException, match=r"offset 1: .*seek\(\) to 1"):
        await read(router, 0, 2)
    assert await read(router, 1, 2)


async def test_range_waits_for_uncommitted_messages(
    cluster: EmbeddedCluster, router: Router
) -> None:
    """A new leader's high watermark may be below acknowledged offsets (docs/brokers.md 9.5)."""
    cluster.append("t", 0, values(0, 50))
    follower = 1 - cluster.leader("t", 0)
    cluster.kill(follower, then="unnoticed")
    cluster.append("t", 0, values(50, 60))
    assert cluster.offsets("t", 0) == (0, 50, 60)
    with pytest.raises(KafkaTimeoutError, match=r"offset 50 of the range up to 60 within 200 ms"):
        await read(router, 0, 60, timeout_s=0.2)
    at_the_end = cluster.fault(
        FetchRequest,
        then=Delay(0),
        times=None,
        where=lambda request: request.topics[0].partitions[0].fetch_offset == 60,
    )
    reading = asyncio.create_task(read(router, 0, 60))
    await until(lambda: at_the_end.hits > 1)
    assert not reading.done()
    cluster.notice(follower)
    assert await asyncio.wait_for(reading, 20) == list(range(60))


class EmptyEndFetches(RangeFetches):
    """As the gateway responds at offsets without messages in front of the end of the log.

    Args:
        router: a started router.
        first: the first of the offsets.
        end: the end of the log.
        times: how many fetches at `first` get this response.
    """

    def __init__(self, router: Router, first: int, end: int, times: int) -> None:
        super().__init__(router)
        self.first, self.end, self.times = first, end, times

    def fetch(
        self, node_id: int, tp: TopicPartition, offset: int, max_bytes: int, **options: Any
    ) -> asyncio.Future[tuple[FetchedPartition, float]]:
        if offset != self.end and (offset != self.first or not self.times):
            return super().fetch(node_id, tp, offset, max_bytes, **options)
        self.times -= offset == self.first
        response = asyncio.get_running_loop().create_future()
        response.set_result((FetchedPartition(tp.partition, 0, offset, b""), 0.0))
        return response


async def test_range_ends_at_the_last_message_where_the_leader_says_so(
    cluster: EmbeddedCluster, router: Router
) -> None:
    """The gateway's watermark is at the offset if only control batches follow."""
    cluster.append("t", 0, values(0, 50))
    fetches = EmptyEndFetches(router, 50, 53, times=100)
    assert await read(router, 0, 53, fetches=fetches) == list(range(50))
    assert fetches.times > 90


async def test_range_waits_while_a_watermark_may_only_lag(
    cluster: EmbeddedCluster, router: Router
) -> None:
    """It rises above the range between two fetches, and falls once with a change of leaders."""
    cluster.append("t", 0, values(0, 60))
    fetches = EmptyEndFetches(router, 50, 60, times=2)
    assert await read(router, 50, 60, fetches=fetches) == list(range(50, 60))
    assert fetches.times == 0


async def test_range_of_a_deleted_topic_raises_soon(
    cluster: EmbeddedCluster, router: Router
) -> None:
    cluster.append("t", 0, values(0, 50))
    router.metadata.all_topics, router.metadata.may_create_topics = True, False
    cluster.delete_topic("t")
    with pytest.raises(UnknownTopicOrPartitionError, match=r"partition 0: .* from 10 to 50 wasn't"):
        await read(router, 10, 50, missing_s=0.1)


async def test_hanging_leader_is_left_for_another_one(
    cluster: EmbeddedCluster, router: Router
) -> None:
    cluster.append("t", 0, values(0, 50))
    fault = cluster.fault(FetchRequest, then=Hang(), node=0)
    reading = asyncio.create_task(read(router, 0, 50))
    await until(lambda: fault.hits)
    cluster.move_leader("t", 0)
    assert await asyncio.wait_for(reading, 10) == list(range(50))


def fetch_sizes(cluster: EmbeddedCluster) -> list[int]:
    """Return the size that each fetch asked for, in order."""
    return [
        partition.max_bytes
        for one in cluster.requests(FetchRequest)
        for topic in one.topics
        for partition in topic.partitions
    ]


def test_offset_without_a_message_is_no_large_message() -> None:
    """A broker from 0.11 on may show nothing of either; for the first it waits for data."""
    with simulate(1, brokers=1, version="0.10", topics={"t": 1}) as world:

        async def scenario() -> list[int]:
            world.cluster.append("t", 0, values(0, 10))
            world.cluster.remove("t", 0, [9])
            async with started_router(world.cluster) as router:
                return await read(router, 0, 10)

        assert world.run(scenario) == [*range(9)]


async def test_fetches_are_smaller_after_a_timeout(
    cluster: EmbeddedCluster, router: Router
) -> None:
    """A slow link may not carry the usual ones in time."""
    cluster.append("t", 0, values(0, 50))
    cluster.fault(FetchRequest, then=Delay(1.2), times=1)
    assert await read(router, 0, 50, max_bytes=4_000_000, timeout_s=2) == list(range(50))
    sizes = fetch_sizes(cluster)
    assert sizes[0] == 4_000_000
    assert max(sizes[1:]) == 500_000


async def test_fetches_grow_again_after_a_timeout(
    cluster: EmbeddedCluster, router: Router, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or else a broker that hung once would make the rest of a long range slow."""
    monkeypatch.setattr("aiokafka08._core.ranges.range_reader._MIN_FETCH_BYTES", 100)
    cluster.append("t", 0, [bytes(74)] * 1000)
    cluster.fault(FetchRequest, then=Delay(1.2), times=1)
    assert await read(router, 0, 1000, max_bytes=2_000, timeout_s=2) == list(range(1000))
    sizes = fetch_sizes(cluster)
    assert (sizes[0], min(sizes), sizes[-1]) == (2_000, 250, 2_000)
    assert min(sizes.count(smaller) for smaller in (250, 500, 1_000)) >= 8


async def test_range_without_responses_times_out(cluster: EmbeddedCluster, router: Router) -> None:
    """Long before `request_timeout_ms`, with `timeout_s`."""
    cluster.append("t", 0, values(0, 50))
    cluster.fault(FetchRequest, then=Hang(), times=None)
    with pytest.raises(KafkaTimeoutError, match=r"no progress at offset 0 .* within 200 ms"):
        await asyncio.wait_for(read(router, 0, 50, timeout_s=0.2), 4)


async def test_range_can_be_closed_and_cancelled(cluster: EmbeddedCluster, router: Router) -> None:
    cluster.append("t", 0, [bytes(74)] * 1000)
    async with aclosing(read_range(router, tp(0), 0, 1000, max_bytes=5_000)) as sets:
        async for _ in sets:
            break
    cluster.fault(FetchRequest, then=Delay(1.0), times=None)
    reading = asyncio.create_task(read(router, 0, 1000, max_bytes=5_000))
    await until(lambda: len(cluster.requests(FetchRequest)) > 4)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading


async def read_all(router: Router, counts: list[int], **options: Any) -> list[list[int]]:
    """Read all partitions at the same time, with shared fetches."""
    fetches = RangeFetches(router)
    return await asyncio.gather(
        *(
            read(router, 0, count, partition, fetches=fetches, **options)
            for partition, count in enumerate(counts)
        )
    )


def fetched_partitions(cluster: EmbeddedCluster) -> list[list[int]]:
    """Return the partitions of each Fetch request, in the order of the requests."""
    return [
        [one.partition for topic in request.topics for one in topic.partitions]
        for request in cluster.requests(FetchRequest)
    ]


async def test_ranges_share_one_request_per_leader(
    cluster: EmbeddedCluster, router: Router
) -> None:
    for partition in range(4):
        cluster.append("t", partition, values(0, 20))
    found = await read_all(router, [20] * 4)
    assert found == [list(range(20))] * 4
    assert sorted(map(sorted, fetched_partitions(cluster))) == [[0, 2], [1, 3]]


async def test_ranges_of_many_fetches_share_requests(
    cluster: EmbeddedCluster, router: Router
) -> None:
    for partition in range(4):
        for _ in range(100):
            cluster.append("t", partition, [bytes(74)] * 10)
        assert cluster.offsets("t", partition).end == 1000
    assert await read_all(router, [1000] * 4, max_bytes=5_000) == [list(range(1000))] * 4
    requests = fetched_partitions(cluster)
    assert all(len(one) == len(set(one)) for one in requests)  # no partition twice in a request
    assert len(requests) < 60  # 80 fetches


async def test_waiting_range_does_not_delay_the_others(
    cluster: EmbeddedCluster, router: Router
) -> None:
    """Of two ranges on one broker, one waits for its high watermark."""
    cluster.append("t", 0, values(0, 50))
    for _ in range(100):
        cluster.append("t", 2, [bytes(74)] * 10)
    follower = 1 - cluster.leader("t", 0)
    cluster.kill(follower, then="unnoticed")
    cluster.append("t", 0, values(50, 60))
    fetches = RangeFetches(router)
    waiting = asyncio.create_task(read(router, 0, 60, fetches=fetches))
    await until(lambda: any(one == [0] for one in fetched_partitions(cluster)))
    other = read(router, 0, 1000, 2, fetches=fetches, max_bytes=1_000, in_flight=1)
    assert await asyncio.wait_for(other, 10) == list(range(1000))
    assert not waiting.done()
    cluster.notice(follower)
    assert await asyncio.wait_for(waiting, 20) == list(range(60))


def test_fetch_alone_waits_for_the_other_requests() -> None:
    """Otherwise the time of another request would count as the broker's wait for data.

    In virtual time, which only the network and the broker take.
    """
    with simulate(1, brokers=1, version="0.8.2", topics={"t": 3}) as world:
        cluster = world.cluster

        async def scenario() -> None:
            cluster.append("t", 0, values(0, 5))
            cluster.append("t", 2, values(0, 5))
            async with started_router(cluster) as router:
                fetches = RangeFetches(router)

                def fetch(partition: int, offset: int, *, alone: bool) -> asyncio.Future[Any]:
                    one = tp(partition)
                    return fetches.fetch(0, one, offset, 1000, timeout_s=5, alone=alone)

                slow = cluster.fault(FetchRequest, then=Delay(0.3), times=1)
                first = fetch(0, 0, alone=False)
                await until(lambda: slow.hits)
                alone, later = fetch(2, 0, alone=True), fetch(0, 5, alone=False)
                _, elapsed_s = await alone
                assert first.done()
                assert not later.done()
                assert elapsed_s < 0.25
                assert (await later)[0].message_set == b""

        world.run(scenario)
        assert fetched_partitions(cluster) == [[0], [2], [0]]
        assert [one.max_wait_ms for one in cluster.requests(FetchRequest)] == [0, 500, 0]


async def test_only_one_range_at_a_time_fetches_large_messages(
    cluster: EmbeddedCluster, router: Router
) -> None:
    for partition in range(4):
        cluster.append("t", partition, [bytes(900_000)] * 3)
    fetches = RangeFetches(router)
    readers = [
        read_range(router, tp(partition), 0, 3, fetches=fetches, max_bytes=1000)
        for partition in range(4)
    ]
    firsts = [asyncio.create_task(anext(one)) for one in readers]
    await until(lambda: any(one.done() for one in firsts))
    await asyncio.sleep(0.1)  # the others would be ready by now
    assert sum(one.done() for one in firsts) == 1
    rest = asyncio.gather(*(drain(first, one) for first, one in zip(firsts, readers, strict=True)))
    assert await asyncio.wait_for(rest, 20) == [3] * 4


async def drain(first: asyncio.Task[RawSet], rest: AsyncGenerator[RawSet, None]) -> int:
    """Return the number of offsets of all sets; `first` is the request for the first one."""
    count = (await first).end_offset
    async with aclosing(rest) as sets:
        async for one in sets:
            count = one.end_offset
    return count


async def test_cancelled_readers_cancel_their_request(
    cluster: EmbeddedCluster, router: Router
) -> None:
    cluster.append("t", 0, values(0, 5))
    cluster.append("t", 2, values(0, 5))
    cluster.fault(FetchRequest, then=Hang(), times=None)
    fetches = RangeFetches(router)
    readers = [
        asyncio.create_task(read(router, 0, 5, partition, fetches=fetches)) for partition in (0, 2)
    ]
    await until(lambda: cluster.requests(FetchRequest))
    [request] = [
        task for task in asyncio.all_tasks() if "_LeaderFetches._request" in repr(task.get_coro())
    ]
    readers[0].cancel()
    await asyncio.gather(readers[0], return_exceptions=True)
    assert not request.done()
    readers[1].cancel()
    await asyncio.gather(readers[1], return_exceptions=True)
    await asyncio.gather(request, return_exceptions=True)
    assert request.cancelled()


@pytest.mark.parametrize("start", [0, 2, 4, 6])
async def test_damage_that_the_broker_fails_to_read_is_raised_at_once(start: int) -> None:
    """It fails at these offsets with error -1 (docs/brokers.md 7.19)."""
    async with EmbeddedCluster(1, topics={"t": 1}) as cluster:
        cluster.append("t", 0, [b"0", b"1"])
        cluster.append_raw("t", 0, bytes(400), next_offset=7)
        cluster.append("t", 0, [b"7"])
        network = {"bootstrap_servers": cluster.bootstrap_servers, "client_id": "reader"}
        async with open_range_router(network) as router:
            await router.metadata.refresh()
            sets = read_range(router, TopicPartition("t", 0), start, 8, timeout_s=60)
            async with aclosing(sets), asyncio.timeout(10):
                if not start:
                    assert (await anext(sets)).end_offset == 2
                with pytest.raises(
                    CorruptRecordException, match=r"error -1.*seek\(\) to 7"
                ) as caught:
                    await anext(sets)
    assert (caught.value.offset, caught.value.next_offset) == (start or 2, 7)
