"""Commits and fetches under broker errors: retried, sent to another coordinator, or raised."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka08._core.offset_store import CommitIdentity
from aiokafka08.errors import (
    BrokerResponseError,
    CommitFailedError,
    GroupAuthorizationFailedError,
    KafkaTimeoutError,
    OffsetMetadataTooLargeError,
)
from aiokafka08.protocol.requests.committed_offsets import OffsetCommitRequest, OffsetFetchRequest
from aiokafka08.protocol.requests.groups import GroupCoordinatorRequest
from aiokafka08.structs import OffsetAndMetadata
from aiokafka08.testing import Answer, Close, EmbeddedCluster, Omit, Silence
from aiokafka08.testing.state import OFFSETS_TOPIC
from tests._core.offset_store.conftest import NewStore, at, tp

PLAIN = CommitIdentity()
LINES = ["0.8.1", "0.8.2", "0.9", "0.10"]
IN_KAFKA = LINES[1:]


@pytest.mark.parametrize("version", LINES)
async def test_fetch_returns_what_was_committed(new_store: NewStore, version: str) -> None:
    async with EmbeddedCluster(3, version, topics={"t": 3}) as cluster:
        store = await new_store(cluster.bootstrap_servers)
        assert await store.fetch([tp(0), tp(1)]) == {tp(0): None, tp(1): None}
        await store.commit(at(p0=3, p1=0), PLAIN)
        assert await store.fetch([tp(0), tp(1), tp(2)]) == {**at(p0=3, p1=0), tp(2): None}
        assert await store.fetch([]) == {}
        [commit] = cluster.requests(OffsetCommitRequest)
        assert commit.retention_time_ms == -1


@pytest.mark.parametrize("code", [-1, 7, 14, 15, 16, 99])
@pytest.mark.parametrize("version", IN_KAFKA)
async def test_retriable_error_is_retried(new_store: NewStore, version: str, code: int) -> None:
    async with EmbeddedCluster(1, version, topics={"t": 1}) as cluster:
        store = await new_store(cluster.bootstrap_servers)
        cluster.fault(OffsetCommitRequest, then=Answer(code), times=2)
        await store.commit(at(p0=3), PLAIN)
        cluster.fault(OffsetFetchRequest, then=Answer(code), times=2)
        assert await store.fetch([tp(0)]) == at(p0=3)
        # Codes 15 and 16 mean that the node isn't the coordinator.
        lookups = len(cluster.requests(GroupCoordinatorRequest))
        assert lookups == (2 + 4 if code in (15, 16) else 2)


@pytest.mark.parametrize("effect", [Close(), Close(after_bytes=6), Omit()])
@pytest.mark.parametrize("version", LINES)
async def test_lost_or_incomplete_response_is_retried(
    new_store: NewStore, version: str, effect: Close | Omit
) -> None:
    async with EmbeddedCluster(1, version, topics={"t": 2}) as cluster:
        store = await new_store(cluster.bootstrap_servers)
        fault = cluster.fault(OffsetCommitRequest, then=effect)
        await store.commit(at(p0=3, p1=4), PLAIN)
        assert fault.hits == 1
        assert len(cluster.requests(OffsetCommitRequest)) == 2
        fault = cluster.fault(OffsetFetchRequest, then=effect)
        assert await store.fetch([tp(0), tp(1)]) == at(p0=3, p1=4)
        assert fault.hits == 1


async def test_partition_left_out_each_time_is_named(new_store: NewStore) -> None:
    async with EmbeddedCluster(1, "0.8.1", topics={"t": 1}) as cluster:
        store = await new_store(cluster.bootstrap_servers)
        cluster.fault(OffsetCommitRequest, then=Omit(), times=None)
        with pytest.raises(KafkaTimeoutError, match=r"'g' not committed .* t/0: .*left"):
            await store.commit(at(p0=3), PLAIN, timeout_s=0.2)


@pytest.mark.parametrize("version", LINES)
async def test_partial_failure_commits_the_other_partitions(
    new_store: NewStore, version: str
) -> None:
    async with EmbeddedCluster(1, version, topics={"t": 3}) as cluster:
        store = await new_store(cluster.bootstrap_servers)
        # Partition 0 fails twice, partition 1 always, partition 2 never.
        cluster.fault(OffsetCommitRequest, then=Answer(-1, only=[("t", 0)]), times=1)
        cluster.fault(OffsetCommitRequest, then=Answer(-1, only=[("t", 0)]), times=1)
        await store.commit(at(p0=1, p2=1), PLAIN)
        *_, last = cluster.requests(OffsetCommitRequest)
        assert [one.partition for one in last.topics[0].partitions] == [0]  # 2 had succeeded
        cluster.fault(OffsetCommitRequest, then=Answer(12, only=[("t", 1)]), times=None)
        with pytest.raises(OffsetMetadataTooLargeError) as failure:
            await store.commit(at(p0=2, p1=2, p2=2), PLAIN)
        assert "t/1: " in str(failure.value)
        assert "t/0" not in str(failure.value)
        assert await store.fetch([tp(0), tp(1), tp(2)]) == {**at(p0=2, p2=2), tp(1): None}


@pytest.mark.parametrize("code", [22, 25, 27])
async def test_fenced_commit_raises_at_once(new_store: NewStore, code: int) -> None:
    async with EmbeddedCluster(1, "0.9", topics={"t": 2}) as cluster:
        store = await new_store(cluster.bootstrap_servers)
        cluster.fault(OffsetCommitRequest, then=Answer(code), times=None)
        with pytest.raises(CommitFailedError, match="rebalanced without this member") as failure:
            await store.commit(at(p0=1, p1=1), CommitIdentity(3, "me"))
        assert isinstance(failure.value.__cause__, BrokerResponseError)
        assert failure.value.__cause__.errno == code
        assert "t/0, t/1" in str(failure.value)
        [commit] = cluster.requests(OffsetCommitRequest)
        assert (commit.generation, commit.member) == (3, "me")


async def test_final_error_raises_at_once(new_store: NewStore) -> None:
    async with EmbeddedCluster(1, "0.9", topics={"t": 1}) as cluster:
        store = await new_store(cluster.bootstrap_servers)
        cluster.fault(OffsetCommitRequest, then=Answer(30), times=None)
        with pytest.raises(GroupAuthorizationFailedError, match="t/0"):
            await store.commit(at(p0=1), PLAIN)
        cluster.fault(OffsetFetchRequest, then=Answer(30), times=None)
        with pytest.raises(GroupAuthorizationFailedError, match="t/0"):
            await store.fetch([tp(0)])
        cluster.fault(GroupCoordinatorRequest, then=Answer(30), times=None)
        other = await new_store(cluster.bootstrap_servers)
        with pytest.raises(GroupAuthorizationFailedError, match="coordinator of group 'g'"):
            await other.commit(at(p0=1), PLAIN)


async def test_silent_broker_costs_part_of_the_timeout(new_store: NewStore) -> None:
    async with EmbeddedCluster(1, "0.8.2", topics={"t": 1}) as cluster:
        store = await new_store(cluster.bootstrap_servers)
        fault = cluster.fault(OffsetCommitRequest, then=Silence(perform=False))
        await store.commit(at(p0=2), PLAIN, timeout_s=8)
        assert fault.hits == 1
        assert await store.fetch([tp(0)]) == at(p0=2)


@pytest.mark.parametrize("version", IN_KAFKA)
async def test_killed_coordinator_is_replaced(new_store: NewStore, version: str) -> None:
    async with EmbeddedCluster(3, version, topics={"t": 1}) as cluster:
        store = await new_store(cluster.bootstrap_servers)
        await store.commit(at(p0=1), PLAIN)
        first = cluster.coordinator("g")
        assert first is not None
        cluster.kill(first)
        await store.commit(at(p0=2), PLAIN)
        assert cluster.coordinator("g") != first
        assert await store.fetch([tp(0)]) == at(p0=2)


async def test_moved_coordinator_is_found(new_store: NewStore) -> None:
    async with EmbeddedCluster(3, "0.9", topics={"t": 1}) as cluster:
        store = await new_store(cluster.bootstrap_servers)
        await store.commit(at(p0=1), PLAIN)
        first = cluster.coordinator("g")
        for partition in range(len(cluster._state.topics[OFFSETS_TOPIC])):
            if cluster.leader(OFFSETS_TOPIC, partition) == first:
                cluster.move_leader(OFFSETS_TOPIC, partition)
        assert cluster.coordinator("g") != first
        await store.commit(at(p0=2), PLAIN)
        assert await store.fetch([tp(0)]) == at(p0=2)


async def test_commit_to_unknown_topic_raises_at_timeout(new_store: NewStore) -> None:
    async with EmbeddedCluster(1, "0.8.1", topics={"t": 1}) as cluster:
        store = await new_store(cluster.bootstrap_servers)
        offsets = {tp(0): OffsetAndMetadata(1, ""), tp(0, "nope"): OffsetAndMetadata(1, "")}
        with pytest.raises(KafkaTimeoutError, match=r"within 200 ms: nope/0: \[Error 3\]"):
            await store.commit(offsets, PLAIN, timeout_s=0.2)
        assert await store.fetch([tp(0)]) == at(p0=1)


async def test_timeout_names_the_last_error_before_silence(
    new_store: NewStore,
) -> None:
    async with EmbeddedCluster(1, "0.8.1", topics={"t": 1}) as cluster:
        store = await new_store(cluster.bootstrap_servers)
        cluster.fault(OffsetCommitRequest, nth=2, times=100, then=Silence())
        with pytest.raises(KafkaTimeoutError, match=r"within 300 ms: nope/0: \[Error 3\]"):
            await store.commit({tp(0, "nope"): OffsetAndMetadata(1, "")}, PLAIN, timeout_s=0.3)


async def test_cancelled_commits_leave_the_store_usable(new_store: NewStore) -> None:
    async with EmbeddedCluster(1, "0.9", topics={"t": 1}) as cluster:
        store = await new_store(cluster.bootstrap_servers)
        for iterations in range(60):
            task = asyncio.create_task(store.commit(at(p0=iterations), PLAIN))
            for _ in range(iterations):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await store.commit(at(p0=1000), PLAIN)
        assert await store.fetch([tp(0)]) == at(p0=1000)
