"""Partitions that are fetched beside a long poll, on a connection of their own.

The wait of the polls is longer than any test may take. So a message that comes has come beside a
poll, or after one that the test has ended.
"""

from __future__ import annotations

import asyncio

import pytest

from aiokafka08.protocol.requests.fetch import FetchRequest
from aiokafka08.testing import Answer, Close, Delay, EmbeddedCluster, Hang
from aiokafka08.testing.faults import Effect
from tests.consumer.conftest import Consumer, MakeConsumer, has_partition, take, tp, values
from tests.support.clients import OpenConsumer
from tests.support.waiting import until

LONG_MS = 300_000


def is_urgent(request: FetchRequest) -> bool:
    return request.max_wait_ms == 0


def urgent_requests(cluster: EmbeddedCluster) -> list[FetchRequest]:
    return [request for request in cluster.requests(FetchRequest) if is_urgent(request)]


def hanging_polls(cluster: EmbeddedCluster) -> int:
    return len(cluster.requests(FetchRequest)) - len(urgent_requests(cluster))


async def until_poll_hangs(consumer: OpenConsumer) -> None:
    """Wait for a long poll in flight.

    `requested_bytes` wouldn't show it: while a response is applied, its bytes are still counted.
    """
    await until(lambda: consumer.engine.fetcher.hanging_polls, "a poll is in flight")


async def offsets(consumer: Consumer, count: int) -> list[int]:
    async with asyncio.timeout(20):
        return [(await consumer.getone()).offset for _ in range(count)]


async def test_urgent_request_has_only_what_has_changed(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    cluster.append("t", 0, values(0, 3))
    consumer = make_consumer(fetch_max_wait_ms=LONG_MS)
    consumer.assign([tp(0), tp(2)])
    await consumer.start()
    assert await offsets(consumer, 3) == [0, 1, 2]
    await until_poll_hangs(consumer)
    polls = consumer.metrics()["fetch_requests"]
    await until(lambda: hanging_polls(cluster) == polls, "the poll has arrived")
    consumer.seek(tp(0), 1)
    assert await offsets(consumer, 2) == [1, 2]
    (urgent,) = urgent_requests(cluster)
    assert not has_partition(2, urgent)
    assert hanging_polls(cluster) == polls


async def test_seeks_in_a_loop_share_an_urgent_request(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    for partition in (0, 2):
        cluster.append("t", partition, values(0, 3))
    consumer = make_consumer(fetch_max_wait_ms=LONG_MS)
    consumer.assign([tp(0), tp(2)])
    await consumer.start()
    assert len(await take(consumer, 6)) == 6
    await until_poll_hangs(consumer)
    slow = cluster.fault(FetchRequest, then=Delay(0.3), where=is_urgent)
    for _ in range(50):
        for partition in (0, 2):
            consumer.seek(tp(partition), 0)
            await asyncio.sleep(0)
    await until(lambda: slow.hits, "the first request is answered late")
    consumer.seek(tp(0), 2)
    consumer.seek(tp(2), 2)
    assert [record.offset for record in await take(consumer, 2)] == [2, 2]
    assert len(urgent_requests(cluster)) <= 3


async def test_superseded_poll_loses_and_repeats_nothing(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    """The poll returns the next message, at a position that was given up and reached again."""
    consumer = make_consumer(fetch_max_wait_ms=LONG_MS)
    consumer.assign([tp(0)])
    await consumer.start()
    await until_poll_hangs(consumer)
    for number in range(20):
        cluster.append("t", 0, values(number, number + 1))
        assert await offsets(consumer, 1) == [number]
        await until_poll_hangs(consumer)
        begin = max(number - 2, 0)
        consumer.seek(tp(0), begin)
        assert await offsets(consumer, number + 1 - begin) == list(range(begin, number + 1))


@pytest.mark.parametrize("code", [3, 6, -1])
async def test_partition_is_fetched_again_after_its_error(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer, code: int
) -> None:
    cluster.append("t", 2, values(0, 1))
    consumer = make_consumer(fetch_max_wait_ms=LONG_MS)
    consumer.assign([tp(0), tp(2)])
    fault = cluster.fault(
        FetchRequest,
        then=Answer(code, only=[("t", 0)]),
        times=3,
        where=lambda request: has_partition(0, request),
    )
    await consumer.start()
    await until(lambda: fault.is_over, "the errors are over")
    cluster.append("t", 0, values(0, 2))
    async with asyncio.timeout(20):
        assert [(await consumer.getone(tp(0))).offset for _ in range(2)] == [0, 1]


async def test_partition_of_a_new_leader_is_fetched(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    """A poll hangs at the new leader, for another partition."""
    consumer = make_consumer(fetch_max_wait_ms=LONG_MS)
    consumer.assign([tp(0), tp(1)])
    await consumer.start()
    await until(lambda: hanging_polls(cluster) >= 2, "both brokers are polled")
    cluster.append("t", 0, values(0, 1))
    assert await offsets(consumer, 1) == [0]
    await until_poll_hangs(consumer)
    cluster.move_leader("t", 0)
    cluster.append("t", 0, values(1, 2))
    assert await offsets(consumer, 1) == [1]


@pytest.mark.parametrize("effect", [Close(), Close(after_bytes=10), Answer(6)])
async def test_failed_urgent_request_is_left_to_the_poll(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer, effect: Effect
) -> None:
    cluster.append("t", 0, values(0, 3))
    consumer = make_consumer(fetch_max_wait_ms=400)
    consumer.assign([tp(0)])
    await consumer.start()
    assert await offsets(consumer, 3) == [0, 1, 2]
    fault = cluster.fault(FetchRequest, then=effect, where=is_urgent)
    for _ in range(3):
        await until_poll_hangs(consumer)
        consumer.seek(tp(0), 1)
        assert await offsets(consumer, 2) == [1, 2]
    assert fault.hits == 1
    if isinstance(effect, Close):  # not tried again for each seek
        assert len(urgent_requests(cluster)) == 1


async def test_hanging_urgent_request_delays_no_other_partition(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    cluster.append("t", 0, values(0, 3))
    consumer = make_consumer(fetch_max_wait_ms=400, request_timeout_ms=1500)
    consumer.assign([tp(0), tp(2)])
    await consumer.start()
    assert await offsets(consumer, 3) == [0, 1, 2]
    await until_poll_hangs(consumer)
    fault = cluster.fault(FetchRequest, then=Hang(), where=is_urgent)
    consumer.seek(tp(0), 1)
    await until(lambda: fault.hits, "the urgent request hangs")
    for number in range(5):
        cluster.append("t", 2, values(number, number + 1))
        async with asyncio.timeout(20):
            assert (await consumer.getone(tp(2))).offset == number
    assert await offsets(consumer, 2) == [1, 2]  # after its timeout


async def test_stop_ends_an_urgent_request(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    consumer = make_consumer(fetch_max_wait_ms=LONG_MS)
    consumer.assign([tp(0)])
    await consumer.start()
    await until_poll_hangs(consumer)
    fault = cluster.fault(FetchRequest, then=Hang(), where=is_urgent)
    consumer.seek(tp(0), 0)
    await until(lambda: fault.hits, "the urgent request hangs")
    async with asyncio.timeout(10):
        await consumer.stop()


async def test_urgent_requests_stay_within_the_memory(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    for partition in (0, 2):
        cluster.append("t", partition, [bytes(30_000)] * 20)
    consumer = make_consumer(
        fetch_max_wait_ms=LONG_MS, max_partition_fetch_bytes=50_000, fetch_max_bytes=200_000
    )
    consumer.assign([tp(0), tp(2)])
    await consumer.start()
    assert len(await take(consumer, 40)) == 40
    for _ in range(30):
        await until_poll_hangs(consumer)
        for partition in (0, 2):
            consumer.seek(tp(partition), 0)
        for _ in range(20):
            await asyncio.sleep(0.0002)
            metrics = consumer.metrics()
            assert metrics["requested_bytes"] + metrics["buffered_bytes"] <= 200_000 + 4 * 512
    assert len(await take(consumer, 40)) == 40


async def test_fetch_of_an_unassigned_partition_counts(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    consumer = make_consumer(fetch_max_wait_ms=LONG_MS, max_partition_fetch_bytes=50_000)
    consumer.assign([tp(0)])
    await consumer.start()
    await until_poll_hangs(consumer)
    consumer.assign([tp(2)])
    assert consumer.metrics()["requested_bytes"] >= 50_000
    # Without a pause: an urgent fetch takes a few iterations of the loop.
    await until(
        lambda: consumer.metrics()["requested_bytes"] >= 100_000, "both are in flight", pause_s=0
    )
    cluster.append("t", 0, values(0, 1))  # ends the poll
    cluster.append("t", 2, values(0, 1))
    assert await offsets(consumer, 1) == [0]
    await until(lambda: consumer.metrics()["requested_bytes"] == 50_000, "only one is in flight")


async def test_memory_is_reclaimed_before_an_urgent_request(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    """An urgent request leaves a partition out for want of memory, and has another one."""
    large = 150_000  # two don't fit at once
    for partition in (0, 2):
        cluster.append("t", partition, [b"", bytes(large), b""])
    cluster.create_topic("u", 1)
    assert cluster.leader("u", 0) == cluster.leader("t", 0) == cluster.leader("t", 2)
    consumer = make_consumer(
        fetch_max_wait_ms=LONG_MS, max_partition_fetch_bytes=1000, fetch_max_bytes=200_000
    )
    consumer.assign([tp(0), tp(2), tp(0, "u")])
    await consumer.start()
    await consumer.seek_to_end()
    await until_poll_hangs(consumer)
    consumer.seek(tp(0), 1)
    await until(lambda: consumer.metrics()["buffered_bytes"] > large, "a large message, not read")
    waiting = asyncio.ensure_future(consumer.getone(tp(2)))
    await until(lambda: consumer.engine.collector.waiting_calls, "the call waits")
    slow = cluster.fault(FetchRequest, then=Delay(0.2), where=is_urgent)
    consumer.seek(tp(2), 1)
    await until(lambda: slow.hits, "the response that will show the size")
    consumer.seek(tp(0, "u"), 0)
    async with asyncio.timeout(20):
        assert (await waiting).offset == 1
