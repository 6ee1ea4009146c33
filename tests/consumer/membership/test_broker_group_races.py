"""Calls, refusals and garbage in the middle of a rebalance, on the embedded cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from aiokafka08 import TopicPartition
from aiokafka08.coordinator.assignors.range import RangePartitionAssignor
from aiokafka08.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from aiokafka08.errors import CommitFailedError, IllegalStateError
from aiokafka08.protocol.requests.committed_offsets import OffsetCommitRequest, OffsetFetchRequest
from aiokafka08.protocol.requests.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from aiokafka08.protocol.requests.list_offsets import ListOffsetsRequest
from aiokafka08.telemetry import Event, GroupLeft
from aiokafka08.testing import EmbeddedCluster
from aiokafka08.testing.faults import Answer, Delay
from tests.consumer.conftest import take
from tests.consumer.membership.conftest import ALL, MakeMember, RecordingListener, shared
from tests.support.waiting import until

pytestmark = pytest.mark.fast


@pytest.mark.parametrize("when", ["on_partitions_revoked", "on_partitions_assigned"])
async def test_listener_raising_cancelled_error_is_ignored(
    cluster: EmbeddedCluster, make_member: MakeMember, when: str
) -> None:
    async def wait_for_a_task_that_is_cancelled(partitions: object) -> None:
        worker = asyncio.create_task(asyncio.sleep(60))
        worker.cancel()
        await worker

    listener = RecordingListener()
    setattr(listener, when, wait_for_a_task_that_is_cancelled)
    one, two = make_member(), make_member("t")
    one.subscribe(["t"], listener=listener)
    async with asyncio.timeout(10):
        await one.start()
        await two.start()
    await until(lambda: shared(one, two, among=ALL), "sharing")
    beat = cluster.next_request(HeartbeatRequest, nth=4)
    await asyncio.wrap_future(beat)
    await two.stop()
    await until(lambda: one.assignment() == ALL, "taking over")


async def test_member_idle_during_a_revoke_keeps_no_partition(
    cluster: EmbeddedCluster, make_member: MakeMember, caplog: pytest.LogCaptureFixture
) -> None:
    """It began to revoke as a member that joins again; while its listener ran it became idle."""
    events: list[Event] = []
    revoking, idle = asyncio.Event(), asyncio.Event()

    async def wait(partitions: object) -> None:
        if partitions:
            revoking.set()
            await idle.wait()

    listener = RecordingListener()
    listener.on_partitions_revoked = wait  # type: ignore[assignment,method-assign]
    hung = make_member(max_poll_interval_ms=1000, on_event=events.append)
    hung.subscribe(["t"], listener=listener)
    await hung.start()
    cluster.fault(HeartbeatRequest, then=Answer(27))
    await asyncio.wait_for(revoking.wait(), 10)
    await until(lambda: "max_poll_interval_ms=1000" in caplog.text, "idleness")
    idle.set()
    await until(lambda: any(isinstance(event, GroupLeft) for event in events), "leaving")
    assert hung.assignment() == set()


async def test_seek_to_committed_ends_with_its_generation(
    cluster: EmbeddedCluster, make_member: MakeMember
) -> None:
    member = make_member("t")
    await member.start()
    cluster.append("t", 0, [b"v"] * 10)
    await member.commit({TopicPartition("t", 0): 3})
    fault = cluster.fault(OffsetFetchRequest, then=Answer(14), times=None)
    seeking = asyncio.create_task(member.seek_to_committed(TopicPartition("t", 0)))
    await until(lambda: fault.hits, "OffsetFetch")
    joins = member.metrics()["group_joins"]
    cluster.fault(HeartbeatRequest, then=Answer(27))
    await until(lambda: member.metrics()["group_joins"] > joins, "joining again")
    await until(lambda: member.assignment() == ALL, "coming back")
    member.seek(TopicPartition("t", 0), 7)
    fault.cancel()
    await seeking
    assert await member.position(TopicPartition("t", 0)) == 7


async def test_unsubscribe_during_start_ends_the_start(
    cluster: EmbeddedCluster, make_member: MakeMember
) -> None:
    cluster.fault(SyncGroupRequest, then=Delay(0.2))
    member = make_member("t")
    joined = cluster.next_request(SyncGroupRequest)
    starting = asyncio.create_task(member.start())
    await asyncio.wrap_future(joined)
    member.unsubscribe()
    async with asyncio.timeout(10):
        await starting
    assert member.assignment() == set()


async def test_refused_member_commits_and_revokes(
    cluster: EmbeddedCluster, make_member: MakeMember
) -> None:
    listener = RecordingListener()
    member = make_member(enable_auto_commit=True, auto_commit_interval_ms=3_600_000)
    member.subscribe(["t"], listener=listener)
    await member.start()
    cluster.append("t", 0, [b"v"] * 10)
    await take(member, 10)
    cluster.fault(HeartbeatRequest, then=Answer(30))
    with pytest.raises(Exception, match="the client is not authorized to use this group"):
        await member.getone()
    await until(lambda: member.metrics()["group_leaves"] == 1, "leaving")
    assert cluster.committed("g", "t", 0) == (10, "")
    assert listener.calls[-1] == ("revoked", ALL)
    assert member.assignment() == set()


async def test_unsubscribe_commits_before_it_leaves(
    cluster: EmbeddedCluster, make_member: MakeMember
) -> None:
    member = make_member("t", enable_auto_commit=True, auto_commit_interval_ms=3_600_000)
    await member.start()
    cluster.append("t", 0, [b"v"] * 10)
    await take(member, 10)
    cluster.fault(OffsetCommitRequest, then=Answer(14), times=3)  # the commit takes three retries
    member.unsubscribe()
    await until(lambda: member.metrics()["group_leaves"] == 1, "leaving")
    assert cluster.committed("g", "t", 0) == (10, "")
    member.subscribe(["t"])
    await until(lambda: member.assignment() == ALL, "coming back")
    assert await member.position(TopicPartition("t", 0)) == 10


async def test_commit_while_leaving_belongs_to_no_member(
    cluster: EmbeddedCluster, make_member: MakeMember
) -> None:
    """The coordinator has removed the member, and its response is on the way."""
    member, tp = make_member("t"), TopicPartition("t", 1)
    await member.start()
    cluster.fault(LeaveGroupRequest, then=Delay(0.2))
    leaving = cluster.next_request(LeaveGroupRequest)
    member.unsubscribe()
    member.assign([tp])
    await asyncio.wrap_future(leaving)
    await member.commit({tp: 3})
    assert cluster.committed("g", "t", 1) == (3, "")


GARBAGE = {
    "nothing": b"",
    "noise": b"\xff" * 40,
    "an array that is too long": b"\0\0\x7f\xff\xff\xff\0\1t",
    "invalid UTF-8": b"\0\0\0\0\0\1\0\2\xff\xfe\xff\xff\xff\xff",
    "no topic names": ConsumerProtocolMemberMetadata(0, ["a/b", "", ".", "x" * 300], b"").encode(),
    "an array that ends early": b"\0\0\0\0\0\2\0\1t",
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=list(GARBAGE))
async def test_garbage_metadata_of_one_member_is_ignored(
    make_member: MakeMember, garbage: bytes
) -> None:
    class Garbage(ConsumerProtocolMemberMetadata):
        def encode(self) -> bytes:
            return garbage

    class Garbled(RangePartitionAssignor):
        @classmethod
        def metadata(cls, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
            return Garbage(0, [], b"")

    one = make_member("t", partition_assignment_strategy=[RangePartitionAssignor])
    two = make_member("t", partition_assignment_strategy=[Garbled])
    three = make_member("t", partition_assignment_strategy=[RangePartitionAssignor])
    async with asyncio.timeout(20):
        await one.start()
        await two.start()
        await three.start()
    await until(lambda: shared(one, three, among=ALL), "sharing")
    assert two.assignment() == set()


@pytest.mark.parametrize("garbage", [b"\xff", b"\0\0\0\0\0\1", b"\xff" * 40])
async def test_garbage_assignment_is_reported_and_retried(
    cluster: EmbeddedCluster, make_member: MakeMember, garbage: bytes
) -> None:
    member = make_member("t")
    real, spoilt = ConsumerProtocolMemberAssignment.encode, [garbage]

    def spoil(self: ConsumerProtocolMemberAssignment) -> bytes:
        return spoilt.pop() if spoilt else real(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ConsumerProtocolMemberAssignment, "encode", spoil)
        async with asyncio.timeout(20):
            await member.start()
    assert member.assignment() == ALL
    assert member.metrics()["group_join_failures"] == 1


async def test_commit_of_lost_partitions_is_refused(
    cluster: EmbeddedCluster, make_member: MakeMember
) -> None:
    """A member that subscribes anew while it joins never takes over what it was assigned."""
    listener, two = RecordingListener(), make_member("t")
    one = make_member()
    one.subscribe(["t"], listener=listener)
    await one.start()
    for tp in ALL:
        cluster.append("t", tp.partition, [b"v"])
    await take(one, 4)
    cluster.fault(SyncGroupRequest, then=Delay(0.2), times=2)
    joined = cluster.next_request(SyncGroupRequest)
    starting = asyncio.create_task(two.start())
    await asyncio.wrap_future(joined)
    one.subscribe(["t"], listener=listener)
    listener.gate.clear()
    calls = len(listener.calls)
    await starting
    await until(lambda: len(listener.calls) > calls, "revoking for the new subscription")
    assert len(two.assignment()) == 2
    await two.commit(dict.fromkeys(two.assignment(), 10))
    with pytest.raises(CommitFailedError):
        await one.commit()
    assert {cluster.committed("g", *tp) for tp in two.assignment()} == {(10, "")}
    listener.gate.set()


async def test_commit_after_garbage_assignment_is_refused(
    cluster: EmbeddedCluster, make_member: MakeMember
) -> None:
    member = make_member("t")
    await member.start()
    for tp in ALL:
        cluster.append("t", tp.partition, [b"v"])
    await take(member, 4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ConsumerProtocolMemberAssignment, "encode", lambda self: b"\xff")
        cluster.fault(HeartbeatRequest, then=Answer(27))
        await until(lambda: member.metrics()["group_join_failures"], "joining")
        with pytest.raises(CommitFailedError):
            await member.commit()
    await until(lambda: len(member.engine.cursors) == 4, "joining again")
    await member.commit({TopicPartition("t", 0): 1})


async def test_join_may_take_as_long_as_the_other_members_need(
    cluster: EmbeddedCluster, make_member: MakeMember
) -> None:
    """They have the session timeout to join again; until then the coordinator doesn't respond."""
    member = make_member("t", session_timeout_ms=1000, request_timeout_ms=10_000)
    cluster.fault(JoinGroupRequest, then=Delay(0.5))
    await member.start()
    assert member.assignment() == ALL
    assert member.metrics()["group_join_failures"] == 0


async def test_nothing_is_returned_once_the_revocation_has_begun(
    cluster: EmbeddedCluster, make_member: MakeMember
) -> None:
    """The listener commits what calls have returned so far; the next owner begins there."""
    member, listener = make_member(), RecordingListener()
    member.subscribe(["t"], listener=listener)
    await member.start()
    cluster.append("t", 0, [b"v"])
    await until(lambda: member.metrics()["buffered_bytes"], "a message in the buffer")
    listener.gate.clear()
    calls = len(listener.calls)
    cluster.fault(HeartbeatRequest, then=Answer(27))
    await until(lambda: len(listener.calls) > calls, "the revocation")
    assert await member.getmany(timeout_ms=0) == {}
    listener.gate.set()
    assert len(await take(member, 1)) == 1


async def test_join_hides_partitions_whose_offsets_nobody_fences(
    cluster: EmbeddedCluster, make_member: MakeMember
) -> None:
    """ZooKeeper would take a commit of these after their next owner has read further."""
    kept = {None: ALL, "kafka": ALL, "zookeeper": set()}
    for storage, visible in kept.items():
        member = make_member("t", group_id=f"g {storage}", offsets_storage=storage)
        await member.start()
        cluster.fault(JoinGroupRequest, then=Delay(0.2))
        cluster.fault(HeartbeatRequest, then=Answer(27))
        await asyncio.wrap_future(cluster.next_request(JoinGroupRequest))
        assert member.assignment() == visible
        if not visible:
            with pytest.raises(IllegalStateError, match="no partitions are assigned"):
                await member.commit()
        await member.stop()


async def test_seek_during_a_join_ends_with_the_join(
    cluster: EmbeddedCluster, make_member: MakeMember
) -> None:
    member, tp = make_member("t"), TopicPartition("t", 0)
    await member.start()
    await member.position(tp)
    fault = cluster.fault(ListOffsetsRequest, then=Answer(6), times=None)
    cluster.fault(JoinGroupRequest, then=Delay(0.2))
    cluster.fault(HeartbeatRequest, then=Answer(27))
    await asyncio.wrap_future(cluster.next_request(JoinGroupRequest))
    former = member.engine.cursor(tp)
    seeking = asyncio.create_task(member.seek_to_end(tp))
    await until(lambda: fault.hits, "searching the end")
    await until(lambda: member.engine.cursor(tp) is not former, "joining again")
    assert not member.engine.start_offsets.is_searching(former)
    fault.cancel()
    await seeking
