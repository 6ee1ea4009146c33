"""`list_offsets()`: one request per leader, moved leaders, errors and deadlines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from aiokafka08._core.net.limits import NetLimits
from aiokafka08._core.net.list_offsets import (
    find_first_messages,
    list_offsets,
    list_reachable_offsets,
)
from aiokafka08._core.net.router import Router
from aiokafka08.errors import (
    IllegalStateError,
    InvalidFetchRequestError,
    InvalidTopicError,
    KafkaError,
    KafkaTimeoutError,
    UnknownTopicOrPartitionError,
)
from aiokafka08.protocol.requests.list_offsets import (
    ALL_SEGMENTS,
    EARLIEST,
    LATEST,
    ListOffsetsRequest,
)
from aiokafka08.protocol.requests.metadata import MetadataRequest
from aiokafka08.structs import OffsetAndTimestamp, TopicPartition
from aiokafka08.testing import Answer, Close, Delay, EmbeddedCluster, Hang, Omit, Silence
from tests._core.net.conftest import MakeConfig, Recorder

pytestmark = pytest.mark.both_loops

Started = Callable[..., Awaitable[Router]]
T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


@pytest.fixture
async def started(make_config: MakeConfig) -> AsyncIterator[Started]:
    made = []

    async def start(cluster: EmbeddedCluster, **options: Any) -> Router:
        router = Router(make_config(cluster.bootstrap_servers, **options), Recorder())
        made.append(router)
        await router.start()
        return router

    yield start
    for router in made:
        await router.stop()


def filled(**options: Any) -> EmbeddedCluster:
    return EmbeddedCluster(brokers=3, topics={"t": 3}, **options)


def fill(cluster: EmbeddedCluster) -> None:
    for number in range(3):
        cluster.append("t", number, [b"x"] * (number + 1))
    cluster.delete_before("t", 2, 2)


async def test_first_and_last_offsets_come_from_all_leaders(started: Started) -> None:
    async with filled() as cluster:
        fill(cluster)
        router = await started(cluster)
        assert await list_offsets(router, dict.fromkeys((T0, T1, T2), LATEST)) == {
            T0: [1],
            T1: [2],
            T2: [3],
        }
        assert await list_offsets(router, dict.fromkeys((T0, T1, T2), EARLIEST)) == {
            T0: [0],
            T1: [0],
            T2: [2],
        }
        assert await list_offsets(router, {}) == {}


async def test_one_request_is_sent_per_leader(started: Started) -> None:
    async with filled() as cluster:
        cluster.create_topic("u", 6)
        router = await started(cluster)
        partitions = [TopicPartition("u", i) for i in range(6)] + [T0, T1, T2]
        before = [len(cluster.requests(ListOffsetsRequest, node)) for node in range(3)]
        await router.metadata.wait_for_topic("u", timeout_s=5)
        await list_offsets(router, dict.fromkeys(partitions, LATEST))
        asked = [
            [request for request in cluster.requests(ListOffsetsRequest, node) if request.topics]
            for node in range(3)
        ]
        assert [len(requests) for requests in asked] == [1, 1, 1], before


async def test_a_leader_that_moved_is_followed(started: Started) -> None:
    async with filled() as cluster:
        fill(cluster)
        router = await started(cluster)
        await router.metadata.wait_for_topic("t", timeout_s=5)
        cluster.move_leader("t", 1, to=2)
        assert await list_offsets(router, {T1: LATEST}) == {T1: [2]}


@pytest.mark.parametrize("effect", [Answer(6), Answer(3), Answer(-1), Close(), Omit()])
async def test_retriable_errors_are_retried(started: Started, effect: Any) -> None:
    async with filled() as cluster:
        fill(cluster)
        router = await started(cluster)
        await router.metadata.wait_for_topic("t", timeout_s=5)
        cluster.fault(
            ListOffsetsRequest, then=effect, times=2, where=lambda request: request.topics
        )
        found = await list_offsets(router, dict.fromkeys((T0, T1, T2), LATEST))
        assert found == {T0: [1], T1: [2], T2: [3]}


async def test_final_errors_are_raised_at_once(started: Started) -> None:
    async with filled() as cluster:
        router = await started(cluster)
        await router.metadata.wait_for_topic("t", timeout_s=5)
        cluster.fault(ListOffsetsRequest, then=Answer(4), times=None, node=1)
        with pytest.raises(InvalidFetchRequestError, match="t/1"):
            await asyncio.wait_for(list_offsets(router, dict.fromkeys((T0, T1, T2), LATEST)), 20)


async def test_a_leader_that_dies_is_waited_for(started: Started) -> None:
    async with filled() as cluster:
        fill(cluster)
        router = await started(cluster)
        await list_offsets(router, dict.fromkeys((T0, T1, T2), LATEST))
        cluster.kill(1, then="leaderless")
        asking = asyncio.create_task(list_offsets(router, dict.fromkeys((T0, T1, T2), LATEST)))
        await asyncio.wrap_future(cluster.next_request(MetadataRequest))
        assert not asking.done()
        cluster.elect()
        assert await asking == {T0: [1], T1: [2], T2: [3]}


async def test_a_hanging_leader_is_left_for_the_new_one(started: Started) -> None:
    async with filled() as cluster:
        fill(cluster)
        router = await started(cluster, request_timeout_ms=6000)
        await list_offsets(router, {T1: LATEST})
        cluster.fault(ListOffsetsRequest, then=Hang(), node=1, where=lambda r: r.topics)
        asked = cluster.next_request(ListOffsetsRequest, node=1)
        asking = asyncio.create_task(list_offsets(router, dict.fromkeys((T0, T1, T2), LATEST)))
        await asyncio.wrap_future(asked)
        cluster.move_leader("t", 1, to=2)
        assert await asking == {T0: [1], T1: [2], T2: [3]}


async def test_a_timeout_names_the_partitions_without_offsets(started: Started) -> None:
    async with filled() as cluster:
        router = await started(cluster)
        await router.metadata.wait_for_topic("t", timeout_s=5)
        cluster.fault(
            ListOffsetsRequest, then=Silence(), node=1, times=None, where=lambda r: r.topics
        )
        cluster.fault(ListOffsetsRequest, then=Answer(6), node=2, times=None)
        with pytest.raises(KafkaTimeoutError, match="no offsets within 500 ms") as caught:
            await list_offsets(router, dict.fromkeys((T0, T1, T2), LATEST), timeout_s=0.5)
        assert "t/0" not in str(caught.value)
        assert "t/1" in str(caught.value)
        assert "t/2: [Error 6]" in str(caught.value)


async def test_many_partitions_share_the_timeout(started: Started) -> None:
    """One leader gets several requests for them, one after the other."""
    tps = [TopicPartition("many", number) for number in range(1200)]
    async with EmbeddedCluster(topics={"many": len(tps)}) as cluster:
        router = await started(cluster)
        await router.metadata.wait_for_topic("many", timeout_s=5)
        fault = cluster.fault(ListOffsetsRequest, then=Delay(0.4), times=None)
        began = asyncio.get_running_loop().time()
        with pytest.raises(KafkaTimeoutError, match="no offsets within 600 ms") as caught:
            await list_offsets(router, dict.fromkeys(tps, LATEST), timeout_s=0.6)
        assert asyncio.get_running_loop().time() - began < 1.0
        assert "many/499:" not in str(caught.value)  # it was in the first request
        assert "many/500:" in str(caught.value)
        assert ", and 690 more" in str(caught.value)
        fault.cancel()
        listed = await list_offsets(router, dict.fromkeys(tps, LATEST))
        assert listed == {tp: [0] for tp in tps}


async def test_a_missing_topic_raises_in_time(started: Started) -> None:
    async with filled(auto_create=False) as cluster:
        router = await started(cluster)
        with pytest.raises(UnknownTopicOrPartitionError, match="'nowhere'"):
            await list_offsets(router, {TopicPartition("nowhere", 0): LATEST}, timeout_s=0.3)
        with pytest.raises(InvalidTopicError):
            await list_offsets(router, {TopicPartition("no where", 0): LATEST})


async def test_no_broker_raises_in_time(started: Started) -> None:
    async with filled() as cluster:
        router = await started(cluster)
        for node in range(3):
            cluster.kill(node)
        with pytest.raises(KafkaTimeoutError, match=r"'t': no metadata within \d+ ms"):
            await list_offsets(router, {T0: LATEST}, timeout_s=0.3)


async def test_a_missing_partition_raises(started: Started) -> None:
    async with filled() as cluster:
        router = await started(cluster, limits=NetLimits(partition_unknown_s=0.2))
        with pytest.raises(UnknownTopicOrPartitionError, match="no partition 7; it has 0 to 2"):
            await list_offsets(router, {TopicPartition("t", 7): LATEST, T0: LATEST})


async def test_an_added_partition_is_found(started: Started) -> None:
    async with filled() as cluster:
        router = await started(cluster)
        info = (await router.metadata.wait_for_topic("t", timeout_s=5)).partitions
        known = router.metadata.snapshot.topics["t"]
        fewer = known._replace(partitions={0: info[0]})
        router.metadata.snapshot = replace(router.metadata.snapshot, topics={"t": fewer})
        assert await list_offsets(router, {T1: LATEST}) == {T1: [0]}


async def test_stopping_the_client_ends_the_call(started: Started) -> None:
    async with filled() as cluster:
        router = await started(cluster, request_timeout_ms=60_000)
        await router.metadata.wait_for_topic("t", timeout_s=5)
        cluster.fault(ListOffsetsRequest, then=Answer(6), times=None)
        asking = asyncio.create_task(list_offsets(router, dict.fromkeys((T0, T1, T2), LATEST)))
        await asyncio.wrap_future(cluster.next_request(ListOffsetsRequest, nth=4))
        await router.stop()
        with pytest.raises(IllegalStateError, match="stopped"):
            await asyncio.wait_for(asking, 20)
        assert isinstance(asking.exception(), KafkaError)


# --- times of messages ----------------------------------------------------------------------------


def fill_times(cluster: EmbeddedCluster) -> None:
    for number in range(3):
        for at in (1000, 3000, 2000):
            cluster.append("t", number, [b"x"], timestamp_ms=number + at)


async def test_first_message_of_a_time_or_later_is_found(started: Started) -> None:
    async with filled(version="0.10", clock=lambda: 20.0) as cluster:
        fill_times(cluster)
        router = await started(cluster)
        await router.metadata.wait_for_topic("t", timeout_s=5)
        for times, expected in (
            ((1000, 1002, 9000), ((0, 1000), (1, 3001), None)),
            ((0, 3001, 1003), ((0, 1000), (1, 3001), (1, 3002))),
        ):
            assert await find_first_messages(
                router, dict(zip((T0, T1, T2), times, strict=True))
            ) == {
                tp: None if one is None else OffsetAndTimestamp(*one)
                for tp, one in zip((T0, T1, T2), expected, strict=True)
            }
        for node in range(3):
            asked = [one for one in cluster.requests(ListOffsetsRequest, node) if one.topics]
            assert len(asked) == 2
        cluster.move_leader("t", 1, to=2)
        assert await find_first_messages(router, {T1: 3000}) == {T1: OffsetAndTimestamp(1, 3001)}


@pytest.mark.parametrize(
    ("line", "options"), [("0.8.2", {}), ("0.9", {}), ("0.10", {"api_version": "0.10.0"})]
)
async def test_partitions_of_old_brokers_are_left_out(
    started: Started, line: str, options: dict[str, str]
) -> None:
    async with filled(version=line) as cluster:
        fill(cluster)
        router = await started(cluster, **options)
        await router.metadata.wait_for_topic("t", timeout_s=5)
        before = len(cluster.requests(ListOffsetsRequest))
        assert await find_first_messages(router, {T0: 0, T1: 0, T2: 0}) == {}
        asked = cluster.requests(ListOffsetsRequest)[before:]
        assert not [request for request in asked if request.topics]


async def test_a_topic_stored_in_format_0_is_left_out(started: Started) -> None:
    async with filled(version="0.10", clock=lambda: 20.0) as cluster:
        fill_times(cluster)
        router = await started(cluster)
        await router.metadata.wait_for_topic("t", timeout_s=5)
        cluster.fault(ListOffsetsRequest, then=Answer(43), times=None, node=1)
        assert await find_first_messages(router, {T0: 0, T1: 0}) == {
            T0: OffsetAndTimestamp(0, 1000)
        }
        cluster.fault(ListOffsetsRequest, then=Answer(6), node=0)
        assert await find_first_messages(router, {T0: 0}) == {T0: OffsetAndTimestamp(0, 1000)}


async def test_searches_in_many_partitions_are_several_requests(started: Started) -> None:
    """A request of all would take long to encode, and heartbeats wait behind it."""
    tps = [TopicPartition("many", number) for number in range(1200)]
    topics = {"many": len(tps)}
    async with EmbeddedCluster(version="0.10", topics=topics, clock=lambda: 20.0) as cluster:
        for number in (0, 700, 1199):
            cluster.append("many", number, [b"x"], timestamp_ms=1000)
        router = await started(cluster)
        await router.metadata.wait_for_topic("many", timeout_s=5)
        found = await find_first_messages(router, dict.fromkeys(tps, 500))
        assert [tp.partition for tp, one in found.items() if one] == [0, 700, 1199]
        asked = [one for one in cluster.requests(ListOffsetsRequest) if one.topics]
        assert [len(one.topics[0].partitions) for one in asked] == [500, 500, 200]
        # Those that the leader doesn't search in time are left out; the others aren't.
        cluster.fault(ListOffsetsRequest, then=Hang(), nth=2)
        found = await find_first_messages(router, dict.fromkeys(tps, 500))
        assert list(found) == tps[:500]


async def test_lists_of_segments_are_not_kept(started: Started) -> None:
    """All of a cluster's would stay in memory until the last leader has responded."""
    async with EmbeddedCluster(1, "0.8.2", {"t": 1}, segment_bytes=64) as cluster:
        for _ in range(300):
            cluster.append("t", 0, [b"v" * 30])
        router = await started(cluster)
        await router.metadata.fetch_all()
        listed = await list_reachable_offsets(router, [T0], LATEST, ALL_SEGMENTS)
    assert listed == {T0: (300, 0)}
