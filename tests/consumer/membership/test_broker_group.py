"""Joining, rebalancing, fencing and leaving a group of brokers, on the embedded cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any, ClassVar, Literal

import pytest

from aiokafka08 import TopicPartition
from aiokafka08.coordinator.assignors.range import RangePartitionAssignor
from aiokafka08.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka08.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka08.errors import (
    CommitFailedError,
    GroupCoordinatorNotAvailableError,
    InconsistentGroupProtocolError,
    InvalidSessionTimeoutError,
    KafkaConfigurationError,
    UnsupportedVersionError,
)
from aiokafka08.protocol import api
from aiokafka08.protocol.requests.committed_offsets import OffsetCommitRequest
from aiokafka08.protocol.requests.fetch import FetchRequest
from aiokafka08.protocol.requests.groups import (
    GroupCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from aiokafka08.structs import OffsetAndMetadata
from aiokafka08.telemetry import CommitFailed, Event, GroupLeft
from aiokafka08.testing import EmbeddedCluster
from aiokafka08.testing.faults import Answer, Close, Delay, Silence
from tests.consumer.conftest import Consumer, take
from tests.consumer.membership.conftest import (
    ALL,
    SESSION_MS,
    MakeMember,
    RecordingListener,
    partitions,
    shared,
)
from tests.support.waiting import until

pytestmark = pytest.mark.fast

# --- start and stop
# --------------------------------------------------------------------------------


@pytest.mark.both_loops
async def test_start_returns_with_the_first_assignment(make_member: MakeMember) -> None:
    member = make_member("t")
    await member.start()
    assert member.assignment() == ALL


@pytest.mark.both_loops
async def test_two_members_share_and_one_takes_over(
    cluster: EmbeddedCluster, make_member: MakeMember
) -> None:
    one, two = make_member("t"), make_member("t")
    await one.start()
    await two.start()
    await until(lambda: shared(one, two, among=ALL), "sharing")
    for number in range(4):
        cluster.append("t", number, [b"%d" % number])
    got = [*await take(one, 2), *await take(two, 2)]
    assert {record.value for record in got} == {b"0", b"1", b"2", b"3"}
    await two.stop()
    await until(lambda: one.assignment() == ALL, "taking over")


async def test_new_member_continues_at_committed_offsets(
    cluster: EmbeddedCluster, make_member: MakeMember
) -> None:
    one = make_member("t", enable_auto_commit=True)
    await one.start()
    for number in range(4):
        cluster.append("t", number, [b"old"])
    await take(one, 4)
    two = make_member("t", enable_auto_commit=True)
    await two.start()
    await until(lambda: shared(one, two, among=ALL), "sharing")
    for number in range(4):
        cluster.append("t", number, [b"new"])
    got = [*await take(one, 2), *await take(two, 2)]
    assert {record.value for record in got} == {b"new"}
    assert {record.offset for record in got} == {1}


async def test_member_beyond_partition_count_gets_no_partitions(
    make_member: MakeMember,
) -> None:
    members = [make_member("t") for _ in range(5)]
    for member in members:
        await member.start()
    await until(lambda: shared(*members, among=ALL), "sharing")
    idle = next(member for member in members if not member.assignment())
    assert await idle.getmany(timeout_ms=10) == {}


async def test_stop_sends_leave_group(cluster: EmbeddedCluster, make_member: MakeMember) -> None:
    member = make_member("t")
    await member.start()
    await member.stop()
    [request] = cluster.requests(LeaveGroupRequest)
    assert request.group == "g"
    assert member.metrics()["group_leaves"] == 1


async def test_silent_member_is_replaced_after_its_session(
    cluster: EmbeddedCluster, make_member: MakeMember
) -> None:
    one = make_member("t", session_timeout_ms=SESSION_MS)
    dying = make_member("t", session_timeout_ms=SESSION_MS)
    await one.start()
    await dying.start()
    await until(lambda: shared(one, dying, among=ALL), "sharing")
    # The broker receives nothing from it any more.
    mine = dying.engine.member_state.member
    fault: dict[str, Any] = {"then": Silence(perform=False), "times": None}
    cluster.fault(HeartbeatRequest, where=lambda request: request.member == mine, **fault)
    cluster.fault(LeaveGroupRequest, where=lambda request: request.member == mine, **fault)
    await until(lambda: one.assignment() == ALL, "taking over")


async def test_cancelled_start_leaves_the_group(
    cluster: EmbeddedCluster, make_member: MakeMember
) -> None:
    cluster.fault(SyncGroupRequest, then=Delay(30), times=None)
    member = make_member("t")
    joined = cluster.next_request(SyncGroupRequest)
    starting = asyncio.create_task(member.start())
    await asyncio.wrap_future(joined)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert len(cluster.requests(LeaveGroupRequest)) == 1


# --- rebalances -----------------------------------------------------------------------------------


@pytest.mark.both_loops
async def test_rebalance_awaits_listener_before_and_after(make_member: MakeMember) -> None:
    listener = RecordingListener()
    one = make_member()
    one.subscribe(["t"], listener=listener)
    await one.start()
    assert listener.calls == [("revoked", frozenset()), ("assigned", ALL)]
    listener.gate.clear()
    two = make_member("t")
    starting = asyncio.create_task(two.start())
    await until(lambda: len(listener.calls) == 3, "revoking")
    assert listener.calls[2] == ("revoked", ALL)
    assert one.assignment() == ALL  # until the listener returns: it may commit
    assert await one.getmany(timeout_ms=0) == {}
    assert not starting.done()
    listener.gate.set()
    await starting
    await until(lambda: shared(one, two, among=ALL), "sharing")
    assert listener.calls[3] == ("assigned", frozenset(one.assignment()))


async def test_listener_can_commit_revoked_partitions(
    cluster: EmbeddedCluster, make_member: MakeMember
) -> None:
    one = make_member()

    class Committing(RecordingListener):
        async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
            await one.commit(dict.fromkeys(revoked, 7))
            await super().on_partitions_revoked(revoked)

    listener = Committing()
    one.subscribe(["t"], listener=listener)
    await one.start()
    two = make_member("t")
    await two.start()
    for number in range(4):
        assert cluster.committed("g", "t", number) == (7, "")


async def test_listener_error_does_not_end_the_rebalance(make_member: MakeMember) -> None:
    class Failing(RecordingListener):
        async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
            raise ValueError("mine")

    member = make_member()
    member.subscribe(["t"], listener=Failing())
    await member.start()
    assert member.assignment() == ALL


async def test_heartbeats_continue_while_listener_works(
    cluster: EmbeddedCluster, make_member: MakeMember
) -> None:
    listener = RecordingListener()
    one = make_member()
    one.subscribe(["t"], listener=listener)
    await one.start()
    listener.gate.clear()
    starting = asyncio.create_task(make_member("t").start())
    await until(lambda: listener.calls[-1][0] == "revoked", "revoking")
    await asyncio.wrap_future(cluster.next_request(HeartbeatRequest, nth=3))
    listener.gate.set()
    await starting


async def test_heartbeats_are_not_delayed_by_long_polls(
    cluster: EmbeddedCluster, make_member: MakeMember
) -> None:
    member = make_member("t", fetch_max_wait_ms=60_000)
    await member.start()
    cluster.fault(FetchRequest, then=Delay(60), times=None)
    await asyncio.wrap_future(cluster.next_request(HeartbeatRequest, nth=5))


async def test_leader_assigns_new_partitions(
    cluster: EmbeddedCluster, make_member: MakeMember
) -> None:
    one, two = make_member(), make_member()
    one.subscribe(pattern="t.*")
    two.subscribe(pattern="t.*")
    await one.start()
    await two.start()
    await until(lambda: shared(one, two, among=ALL), "sharing")
    cluster.create_topic("t2", 3)
    among = ALL | partitions(3, "t2")
    await until(lambda: shared(one, two, among=among), "the new topic")
    cluster.delete_topic("t2")


async def test_members_can_subscribe_to_different_topics(
    cluster: EmbeddedCluster, make_member: MakeMember
) -> None:
    cluster.create_topic("other", 2)
    one, two = make_member("t"), make_member("t", "other")
    await one.start()
    await two.start()
    among = ALL | partitions(2, "other")
    await until(lambda: one.assignment() | two.assignment() == among, "sharing")
    assert partitions(2, "other") <= two.assignment()
    assert not one.assignment() & two.assignment()


async def test_changed_subscription_triggers_rejoin_or_leave(
    cluster: EmbeddedCluster, make_member: MakeMember
) -> None:
    cluster.create_topic("other", 2)
    member = make_member("t")
    await member.start()
    member.subscribe(["other"])
    await until(lambda: member.assignment() == partitions(2, "other"), "the other topic")
    member.unsubscribe()
    assert member.assignment() == set()
    await until(lambda: member.metrics()["group_leaves"] == 1, "leaving")
    member.assign([TopicPartition("t", 1)])
    await member.commit({TopicPartition("t", 1): 3})
    assert member.assignment() == {TopicPartition("t", 1)}
    member.unsubscribe()
    member.subscribe(["t"])
    await until(lambda: member.assignment() == ALL, "coming back")


async def test_assign_right_after_unsubscribe_stays(
    cluster: EmbeddedCluster, make_member: MakeMember
) -> None:
    member = make_member("t")
    await member.start()
    cluster.append("t", 1, [b"v"])
    member.unsubscribe()
    member.assign([TopicPartition("t", 1)])
    await until(lambda: member.metrics()["group_leaves"] == 1, "leaving")
    assert [record.value for record in await take(member, 1)] == [b"v"]


# --- fencing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [22, 25, 27])
async def test_refused_heartbeat_triggers_rejoin(
    cluster: EmbeddedCluster, make_member: MakeMember, code: int
) -> None:
    # The broker waits for the old member id until its session expires.
    member = make_member("t", session_timeout_ms=SESSION_MS)
    await member.start()
    joins = len(cluster.requests(JoinGroupRequest))
    cluster.fault(HeartbeatRequest, then=Answer(code))
    await until(lambda: len(cluster.requests(JoinGroupRequest)) > joins, "joining again")
    await until(lambda: member.assignment() == ALL, "coming back")
    again = cluster.requests(JoinGroupRequest)[-1]
    first = cluster.requests(SyncGroupRequest)[0]
    assert again.member == ("" if code == 25 else first.member)


@pytest.mark.parametrize("code", [22, 25, 27])
async def test_fenced_commit_raises_and_triggers_rejoin(
    cluster: EmbeddedCluster, make_member: MakeMember, code: int
) -> None:
    member = make_member("t", session_timeout_ms=SESSION_MS, heartbeat_interval_ms=300)
    await member.start()
    cluster.fault(OffsetCommitRequest, then=Answer(code))
    with pytest.raises(CommitFailedError):
        await member.commit({TopicPartition("t", 0): OffsetAndMetadata(1, "")})
    await until(lambda: len(cluster.requests(JoinGroupRequest)) == 2, "joining again")
    await until(lambda: member.assignment() == ALL, "coming back")


async def test_commit_after_expired_session_is_fenced(
    cluster: EmbeddedCluster, make_member: MakeMember
) -> None:
    member = make_member("t", session_timeout_ms=200)
    lost = cluster.fault(HeartbeatRequest, then=Silence(perform=False), times=None)
    await member.start()

    def alive() -> bool:
        return any(one.members for one in cluster._state.groups._groups.values())

    await until(lambda: not alive(), "the end of the session")
    with pytest.raises(CommitFailedError, match="session_timeout_ms"):
        await member.commit({TopicPartition("t", 0): 1})
    assert cluster.committed("g", "t", 0) is None
    lost.cancel()
    await until(lambda: member.assignment() == ALL and alive(), "coming back")
    await until(lambda: member.engine.member_state.generation >= 1, "a new generation")


async def test_commit_request_has_generation_and_member(
    cluster: EmbeddedCluster, make_member: MakeMember
) -> None:
    member = make_member("t")
    await member.start()
    await member.commit({TopicPartition("t", 0): 1})
    [commit] = cluster.requests(OffsetCommitRequest)
    [sync] = cluster.requests(SyncGroupRequest)
    assert (commit.generation, commit.member) == (sync.generation, sync.member)


# --- max_poll_interval_ms ---------------------------------------------------------------------


async def test_member_without_polls_leaves_and_returns(
    cluster: EmbeddedCluster, make_member: MakeMember
) -> None:
    listener = RecordingListener()
    lazy = make_member(max_poll_interval_ms=200)
    lazy.subscribe(["t"], listener=listener)
    other = make_member("t")
    await lazy.start()
    await other.start()
    waiting = asyncio.create_task(other.getmany(timeout_ms=60_000))
    await until(lambda: other.assignment() == ALL, "taking over")
    await until(lambda: lazy.assignment() == set(), "leaving")
    assert listener.calls[-1][0] == "revoked"
    assert await lazy.getmany(timeout_ms=0) == {}
    await until(lambda: shared(lazy, other, among=ALL), "coming back")
    waiting.cancel()


@pytest.mark.parametrize("reads", ["never", "once"])
async def test_rebalances_do_not_count_as_polling(
    cluster: EmbeddedCluster, make_member: MakeMember, reads: str
) -> None:
    """A third member comes and goes, so that no generation lasts for `max_poll_interval_ms`."""
    events: list[Event] = []
    hung = make_member("t", max_poll_interval_ms=1500, on_event=events.append)
    working, visitor = make_member("t"), make_member()
    await hung.start()
    await working.start()
    waiting = asyncio.create_task(working.getmany(timeout_ms=60_000))
    if reads == "once":
        await hung.getmany(timeout_ms=0)
    await visitor.start()
    for _ in range(100):
        visitor.subscribe(["t"])
        await until(lambda: visitor.assignment() or has_left(events), "the visitor's assignment")
        visitor.unsubscribe()
        await until(lambda: shared(hung, working, among=ALL) or has_left(events), "its end")
        if has_left(events):
            break
    assert has_left(events)
    await until(lambda: working.assignment() == ALL, "taking over")
    assert await hung.getmany(timeout_ms=0) == {}
    await until(lambda: shared(hung, working, among=ALL), "coming back")
    waiting.cancel()


def has_left(events: list[Event]) -> bool:
    return any(isinstance(event, GroupLeft) and event.reason == "idle" for event in events)


async def test_waiting_for_records_counts_as_polling(
    cluster: EmbeddedCluster, make_member: MakeMember
) -> None:
    member = make_member("t", max_poll_interval_ms=100)
    await member.start()
    waiting = asyncio.create_task(member.getone())
    await asyncio.wrap_future(cluster.next_request(HeartbeatRequest, nth=15))
    cluster.append("t", 0, [b"v"])
    assert (await waiting).value == b"v"
    assert cluster.requests(LeaveGroupRequest) == []


# --- brokers that fail ----------------------------------------------------------------------------


@pytest.mark.parametrize("request_class", [JoinGroupRequest, SyncGroupRequest])
@pytest.mark.parametrize("effect", [Answer(14), Answer(15), Answer(16), Answer(-1), Close()])
async def test_retriable_join_error_is_retried(
    cluster: EmbeddedCluster,
    make_member: MakeMember,
    request_class: type[api.Request[api.Response]],
    effect: Answer | Close,
) -> None:
    cluster.fault(request_class, then=effect)
    member = make_member("t")
    await member.start()
    assert member.assignment() == ALL


async def test_killed_coordinator_moves_the_group(
    cluster: EmbeddedCluster, make_member: MakeMember
) -> None:
    one, two = make_member("t"), make_member("t")
    await one.start()
    await two.start()
    await until(lambda: shared(one, two, among=ALL), "sharing")
    coordinator = cluster.coordinator("g")
    assert coordinator is not None
    cluster.kill(coordinator)
    beat = cluster.next_request(HeartbeatRequest, node=1 - coordinator, nth=4)
    await asyncio.wrap_future(beat)
    await until(lambda: shared(one, two, among=ALL), "sharing")
    await one.commit(dict.fromkeys(one.assignment(), 1))


# --- refusals ---------------------------------------------------------------------------------


async def test_refused_session_timeout_or_strategy_raises(
    cluster: EmbeddedCluster, make_member: MakeMember
) -> None:
    with pytest.raises(InvalidSessionTimeoutError, match="session_timeout_ms=50"):
        await make_member("t", session_timeout_ms=50).start()
    member = make_member("t", partition_assignment_strategy=[RangePartitionAssignor])
    await member.start()
    other = make_member("t", partition_assignment_strategy=[RoundRobinPartitionAssignor])
    with pytest.raises(InconsistentGroupProtocolError, match="roundrobin"):
        await other.start()


async def test_start_without_coordinator_raises(
    cluster: EmbeddedCluster, make_member: MakeMember
) -> None:
    cluster.fault(GroupCoordinatorRequest, then=Answer(15), times=None)
    member = make_member("t", request_timeout_ms=300)
    with pytest.raises(GroupCoordinatorNotAvailableError, match="group 'g': no coordinator within"):
        await member.start()


async def test_refused_heartbeat_for_good_fails_the_calls(
    cluster: EmbeddedCluster, make_member: MakeMember
) -> None:
    member = make_member("t")
    await member.start()
    waiting = asyncio.create_task(member.getone())
    cluster.fault(HeartbeatRequest, then=Answer(30))
    with pytest.raises(Exception, match="the client is not authorized to use this group"):
        await waiting
    with pytest.raises(Exception, match="the client is not authorized to use this group"):
        await member.getmany()


async def set_back(cluster: EmbeddedCluster, member: Consumer) -> None:
    """Set the brokers back to 0.8.2; the member's call fails, and it gives up its partitions."""
    for node in range(2):
        cluster.kill(node)
    cluster.change_version("0.8.2")
    for node in range(2):
        cluster.restart(node)
    with pytest.raises(UnsupportedVersionError, match="don't support HeartbeatRequest"):
        async with asyncio.timeout(20):
            await member.getone()
    await until(lambda: not member.assignment(), "giving up the partitions")


@pytest.mark.parametrize("cluster", ["0.9"], indirect=True)
async def test_brokers_set_back_to_a_release_without_groups_fail_the_calls(
    cluster: EmbeddedCluster, make_member: MakeMember
) -> None:
    member = make_member("t")
    await member.start()
    await set_back(cluster, member)


@pytest.mark.parametrize("cluster", ["0.9"], indirect=True)
@pytest.mark.parametrize("store", ["kafka", "zookeeper"])
async def test_member_of_a_group_that_is_gone_commits_nothing(
    cluster: EmbeddedCluster, make_member: MakeMember, store: Literal["kafka", "zookeeper"]
) -> None:
    """Members in ZooKeeper may have read further, and no broker would refuse the older offsets."""
    cluster.append("t", 0, [b"a"])
    failures: list[str] = []

    def on_event(event: Event) -> None:
        if isinstance(event, CommitFailed):
            failures.append(event.reason)

    member = make_member(
        "t",
        enable_auto_commit=True,
        auto_commit_interval_ms=3_600_000,
        offsets_storage=store,
        on_event=on_event,
    )
    await member.start()
    await member.getone()
    await set_back(cluster, member)
    assert cluster.committed("g", "t", 0, store=store) is None
    assert ["no groups any more" in reason for reason in failures] == [True]


# --- assignors ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "strategy", [RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor]
)
async def test_each_assignor_shares_all_partitions(
    make_member: MakeMember, strategy: type[RangePartitionAssignor]
) -> None:
    members = [make_member("t", partition_assignment_strategy=[strategy]) for _ in range(3)]
    for member in members:
        await member.start()
    await until(lambda: shared(*members, among=ALL), "sharing")


async def test_assignor_of_class_methods_runs_as_in_aiokafka(make_member: MakeMember) -> None:
    """As a program has it that was written for aiokafka: state on the class, and `super()`."""

    class Remembering(StickyPartitionAssignor):
        name = "remembering"
        assigned: ClassVar[list[int]] = []

        @classmethod
        def assign(cls, cluster: Any, members: Any) -> Any:
            cls.assigned.append(len(members))
            return super().assign(cluster, members)

        @classmethod
        def on_assignment(cls, assignment: Any) -> None:
            super().on_assignment(assignment)

    one = make_member("t", partition_assignment_strategy=[Remembering])
    await one.start()
    assert Remembering.assigned == [1]
    assert set(Remembering.member_assignment or ()) == one.assignment() == ALL
    assert StickyPartitionAssignor.member_assignment is None


async def test_each_consumer_has_its_own_sticky_assignor(make_member: MakeMember) -> None:
    """Two members in one process; a class's state would be that of the member that joined last."""
    members = [
        make_member("t", partition_assignment_strategy=[StickyPartitionAssignor]) for _ in range(2)
    ]
    for member in members:
        await member.start()
    await until(lambda: shared(*members, among=ALL), "sharing")
    before = [member.assignment() for member in members]
    joined = make_member("t", partition_assignment_strategy=[StickyPartitionAssignor])
    await joined.start()
    await until(lambda: shared(*members, joined, among=ALL), "sharing among three")
    for member, owned in zip(members, before, strict=True):
        assert member.assignment() <= owned
    assert StickyPartitionAssignor.member_assignment is None


async def test_assignor_with_two_owners_fails_the_leader(make_member: MakeMember) -> None:
    class Greedy(RangePartitionAssignor):
        name = "greedy"

        @classmethod
        def assign(cls, cluster, members):  # type: ignore[no-untyped-def]
            [everything] = super().assign(cluster, {"me": next(iter(members.values()))}).values()
            return dict.fromkeys(members, everything)

    one = make_member("t", partition_assignment_strategy=[Greedy])
    await one.start()
    two = make_member("t", partition_assignment_strategy=[Greedy])
    starting = asyncio.create_task(two.start())
    with pytest.raises(KafkaConfigurationError, match=r"assigned .* to .* and to"):
        await one.getone()
    await starting  # the leader has left, and a single member can't share a partition
    assert two.assignment() == ALL
