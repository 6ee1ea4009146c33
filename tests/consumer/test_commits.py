"""Commits: their order, what is committed when, failures, revoked partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

import pytest

from aiokafka08 import ConsumerRebalanceListener, OffsetAndMetadata, TopicPartition
from aiokafka08.errors import (
    CommitFailedError,
    ConsumerStoppedError,
    GroupAuthorizationFailedError,
    IllegalArgumentError,
    IllegalOperation,
    IllegalStateError,
    KafkaTimeoutError,
)
from aiokafka08.protocol.requests.committed_offsets import OffsetCommitRequest, OffsetFetchRequest
from aiokafka08.telemetry import CommitFailed, Event
from aiokafka08.testing import Answer, Delay, EmbeddedCluster, Silence
from tests.consumer.conftest import Consumer, MakeConsumer, take, tp, values
from tests.support.clients import OpenConsumer
from tests.support.waiting import until

HOUR_MS = 3_600_000


async def started(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer, **options: Any
) -> OpenConsumer:
    """Start a consumer of the group "g" that reads partition 0, which has ten messages."""
    if not cluster.offsets("t", 0).end:
        cluster.append("t", 0, values(0, 10))
    defaults = {"auto_commit_interval_ms": HOUR_MS, "heartbeat_interval_ms": 200}
    consumer = make_consumer(**{"group_id": "g", **defaults, **options})
    consumer.assign([tp(0)])
    await consumer.start()
    return consumer


def committed(cluster: EmbeddedCluster, partition: int = 0) -> int | None:
    commit = cluster.committed("g", "t", partition)
    return None if commit is None else commit.offset


async def test_older_position_never_overwrites_a_newer_one(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    consumer = await started(cluster, make_consumer)
    await consumer.commit({tp(0): 1})  # the coordinator is known now
    for effect in (Delay(0.05), Answer(14), Answer(16)):
        cluster.fault(OffsetCommitRequest, then=effect)
        older = asyncio.create_task(consumer.commit({tp(0): 3}))
        await asyncio.sleep(0)
        await asyncio.gather(older, consumer.commit({tp(0): 5}))
        assert committed(cluster) == 5


async def test_each_way_of_taking_moves_the_committed_position(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    consumer = await started(cluster, make_consumer)
    await consumer.getone()
    await consumer.commit()
    assert committed(cluster) == 1
    await consumer.getmany(timeout_ms=1000, max_records=3)
    await consumer.commit()
    assert committed(cluster) == 4
    async for _ in consumer:
        break
    await consumer.commit()
    assert committed(cluster) == 5
    consumer.seek(tp(0), 2)
    await consumer.commit()
    assert committed(cluster) == 2


async def test_unknown_position_is_not_committed(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    fault = cluster.fault(OffsetFetchRequest, then=Answer(14), times=None)
    consumer = await started(cluster, make_consumer)
    await until(lambda: fault.hits)
    await consumer.commit()
    await consumer.stop()
    assert committed(cluster) is None


async def test_commit_without_assignment_or_start_raises(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    consumer = make_consumer(group_id="g")
    with pytest.raises(IllegalStateError, match="isn't started"):
        await consumer.commit({tp(0): 1})
    await consumer.start()
    with pytest.raises(IllegalStateError, match="no partitions are assigned"):
        await consumer.commit()
    await consumer.stop()
    with pytest.raises(ConsumerStoppedError):
        await consumer.commit({tp(0): 1})
    with pytest.raises(ConsumerStoppedError):
        await consumer.committed(tp(0))


@pytest.mark.parametrize(
    "group", ["", 3, "x" * 32768, "\ud800"], ids=["empty", "number", "long", "surrogate"]
)
async def test_invalid_group_id_is_refused(make_consumer: MakeConsumer, group: Any) -> None:
    with pytest.raises(IllegalArgumentError, match=r"group_id=.*: expected a non-empty") as failure:
        make_consumer(group_id=group)
    assert len(str(failure.value)) < 300


async def test_exception_in_auto_commit_is_raised_by_calls(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = await started(cluster, make_consumer, auto_commit_interval_ms=20)

    async def broken(*args: object, **options: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(consumer.engine.store, "commit", broken)
    with pytest.raises(ZeroDivisionError):
        async for _ in consumer:
            pass
    monkeypatch.undo()


async def test_failed_auto_commits_emit_events_and_go_on(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    events: list[Event] = []
    consumer = await started(
        cluster,
        make_consumer,
        auto_commit_interval_ms=20,
        request_timeout_ms=2000,
        on_event=events.append,
    )
    await consumer.getmany(timeout_ms=1000, max_records=4)
    await until(lambda: committed(cluster) == 4)
    fault = cluster.fault(OffsetCommitRequest, then=Answer(-1), times=None)
    await until(lambda: any(isinstance(event, CommitFailed) for event in events))
    assert all("t/0: " in event.reason for event in events if isinstance(event, CommitFailed))
    assert consumer.metrics()["auto_commit_failures"] >= 1
    await take(consumer, 6)
    fault.cancel()
    await until(lambda: committed(cluster) == 10)


async def test_final_auto_commit_error_is_raised_by_the_next_call(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    consumer = await started(cluster, make_consumer, auto_commit_interval_ms=20)
    await take(consumer, 10)
    cluster.fault(OffsetCommitRequest, then=Answer(30), times=1)
    with pytest.raises(GroupAuthorizationFailedError, match="'g' not committed: t/0"):
        await consumer.getone()
    await until(lambda: committed(cluster) == 10)


@pytest.mark.parametrize("code", [22, 25, 27])
async def test_fenced_commit_raises_and_notifies_the_membership(
    cluster: EmbeddedCluster,
    make_consumer: MakeConsumer,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
) -> None:
    consumer = await started(cluster, make_consumer)
    fenced: list[tuple[int, int]] = []
    consumer.engine.member_state.generation, consumer.engine.member_state.member = 7, "me"
    monkeypatch.setattr(
        consumer.engine.membership,
        "on_commit_fenced",
        lambda error, generation: fenced.append((error.errno, generation)),
    )
    cluster.fault(OffsetCommitRequest, then=Answer(code))
    with pytest.raises(CommitFailedError, match="rebalanced"):
        await consumer.commit({tp(0): 3})
    assert fenced == [(code, 7)]
    [request] = cluster.requests(OffsetCommitRequest)
    assert (request.generation, request.member) == (7, "me")


async def test_waiting_commit_is_refused_when_the_session_ends(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    consumer = await started(cluster, make_consumer)
    await consumer.commit({tp(0): 1})
    commits, offsets = consumer.engine.commits, {tp(0): OffsetAndMetadata(3, "")}
    cluster.fault(OffsetCommitRequest, then=Delay(0.05))
    first = asyncio.create_task(consumer.commit({tp(0): 2}))
    await until(lambda: commits.is_committing, "the first commit")
    second = asyncio.create_task(commits.commit(offsets))
    await asyncio.sleep(0)
    consumer.engine.member_state.session_lost = True
    await first
    with pytest.raises(CommitFailedError, match="session in ZooKeeper has ended"):
        await second
    with pytest.raises(CommitFailedError, match="session in ZooKeeper has ended"):
        await consumer.commit()
    assert committed(cluster) == 2


async def test_commit_carries_the_generation_of_its_positions(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    consumer = await started(cluster, make_consumer)
    await consumer.commit({tp(0): 1})
    consumer.engine.member_state.generation = 1
    cluster.fault(OffsetCommitRequest, then=Delay(0.05))
    first = asyncio.create_task(consumer.commit({tp(0): 2}))
    second = asyncio.create_task(consumer.commit({tp(0): 3}))  # waits for the first one
    await asyncio.sleep(0)
    consumer.engine.member_state.generation = 2
    await asyncio.gather(first, second)
    assert [one.generation for one in cluster.requests(OffsetCommitRequest)] == [-1, 1, 1]


async def test_commit_in_the_background_has_the_identity_of_its_call(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    """The membership may end the generation before the task of the commit first runs."""
    consumer = await started(cluster, make_consumer)
    await take(consumer, 10)
    consumer.engine.member_state.generation = 1
    consumer.unsubscribe()
    consumer.engine.member_state.generation = 2
    await consumer.stop()
    assert [one.generation for one in cluster.requests(OffsetCommitRequest)] == [1]


@pytest.mark.parametrize("ended_by", ["cancel_pending", "lost session"])
async def test_late_commit_in_the_background_is_not_sent(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer, ended_by: str
) -> None:
    """ZooKeeper would accept it, though other members may have read further by then."""
    events: list[Event] = []
    consumer = await started(cluster, make_consumer, on_event=events.append)
    await take(consumer, 10)
    state = consumer.engine.member_state
    state.session_lost = ended_by == "lost session"
    consumer.unsubscribe()
    state.session_lost = False  # a new session, of which the positions know nothing
    if ended_by == "cancel_pending":
        consumer.engine.commits.cancel_pending()
    await until(lambda: any(isinstance(event, CommitFailed) for event in events), "the failure")
    await consumer.stop()
    assert committed(cluster) is None
    assert cluster.requests(OffsetCommitRequest) == []


class Listener(ConsumerRebalanceListener):
    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster
        self.calls: list[tuple[str, set[TopicPartition], int | None]] = []

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self.calls.append(("revoked", set(revoked), committed(self.cluster)))

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self.calls.append(("assigned", set(assigned), committed(self.cluster)))


@pytest.mark.parametrize("automatic", [True, False])
async def test_revoked_partitions_are_committed_before_the_listener(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer, automatic: bool
) -> None:
    consumer = await started(cluster, make_consumer, enable_auto_commit=automatic)
    listener = Listener(cluster)
    consumer.subscribed.listener = listener
    await take(consumer, 10)
    assignment = consumer.engine
    await assignment.assign([tp(0), tp(1)])
    assert await consumer.position(tp(1)) == 0
    await assignment.assign([])
    assert listener.calls == [
        ("assigned", {tp(0), tp(1)}, None),
        ("revoked", {tp(0), tp(1)}, 10 if automatic else None),
        ("assigned", set(), 10 if automatic else None),
    ]
    assert [committed(cluster, number) for number in (0, 1)] == (
        [10, 0] if automatic else [None] * 2
    )


@pytest.mark.parametrize("automatic", [True, False])
async def test_unassigned_partitions_are_committed_with_auto_commit(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer, automatic: bool
) -> None:
    cluster.append("t", 1, values(0, 10))
    consumer = await started(cluster, make_consumer, enable_auto_commit=automatic)
    await take(consumer, 10)
    consumer.assign([tp(1)])
    await take(consumer, 10)
    consumer.unsubscribe()
    await consumer.stop()
    assert [committed(cluster, number) for number in (0, 1)] == [10 if automatic else None] * 2


async def test_partitions_of_a_new_assignment_are_committed_first(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    consumer = await started(cluster, make_consumer)
    await take(consumer, 10)
    await consumer.engine.assign([tp(1)])
    assert committed(cluster) == 10
    assert committed(cluster, 1) is None


async def test_commit_delays_a_rebalance_half_a_session_at_most(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    events: list[Event] = []
    consumer = await started(cluster, make_consumer, session_timeout_ms=600, on_event=events.append)
    await take(consumer, 10)
    cluster.fault(OffsetCommitRequest, then=Silence(perform=False), times=None)
    async with asyncio.timeout(20):  # not request_timeout_ms
        await consumer.engine.assign([])
    assert any(isinstance(event, CommitFailed) for event in events)
    assert consumer.assignment() == set()


async def test_joining_member_begins_at_the_last_commit(
    make_consumer: MakeConsumer,
) -> None:
    async with EmbeddedCluster(1, "0.9", topics={"t": 2}) as cluster:
        for number in range(2):
            cluster.append("t", number, values(0, 100))
        options = {
            "bootstrap_servers": cluster.bootstrap_servers,
            "group_id": "g",
            "auto_commit_interval_ms": HOUR_MS,
            "heartbeat_interval_ms": 20,
        }
        one = make_consumer("t", **options)
        await one.start()
        taken = [await one.getone() for _ in range(50)]
        two = make_consumer("t", **options)
        starting = asyncio.create_task(two.start())
        while len(one.assignment()) != 1:  # goes on while the other one joins
            for records in (await one.getmany(timeout_ms=10, max_records=1)).values():
                taken += records
        await starting
        for consumer in (one, two):
            [mine] = consumer.assignment()
            while await consumer.position(mine) < 100:
                for records in (await consumer.getmany(timeout_ms=1000)).values():
                    taken += records
        offsets = sorted((record.partition, record.offset) for record in taken)
        assert offsets == [(number, offset) for number in range(2) for offset in range(100)]
        await one.stop()
        await two.stop()


async def test_stop_goes_on_when_the_last_commit_fails(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    consumer = await started(cluster, make_consumer, session_timeout_ms=600)
    await take(consumer, 10)
    cluster.fault(OffsetCommitRequest, then=Answer(14), times=None)
    async with asyncio.timeout(20):
        await consumer.stop()
    assert committed(cluster) is None


async def test_waiting_commit_ends_when_the_consumer_stops(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    consumer = await started(cluster, make_consumer)
    await take(consumer, 10)
    fault = cluster.fault(OffsetCommitRequest, then=Answer(14), times=None)
    waiting = asyncio.create_task(consumer.commit({tp(0): 3}))
    await until(lambda: fault.hits)
    fault.cancel()
    await consumer.stop()
    with pytest.raises(ConsumerStoppedError):
        await waiting
    assert committed(cluster) == 10  # nothing later than the last commit


async def test_commit_after_one_that_hangs_times_out(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    consumer = await started(cluster, make_consumer, request_timeout_ms=500)
    cluster.fault(OffsetCommitRequest, then=Answer(14), times=None)
    results = await asyncio.gather(
        consumer.commit({tp(0): 3}), consumer.commit({tp(0): 4}), return_exceptions=True
    )
    cluster.clear_faults()
    assert [type(result) for result in results] == [KafkaTimeoutError] * 2


async def test_committed_can_be_called_while_messages_flow(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    consumer: Consumer = await started(cluster, make_consumer, auto_commit_interval_ms=1)

    async def poll_committed() -> list[int | None]:
        return [await consumer.committed(tp(0)) for _ in range(50)]

    polling = asyncio.create_task(poll_committed())
    await take(consumer, 10)
    seen = [offset or 0 for offset in await polling]
    assert seen == sorted(seen)


@pytest.mark.parametrize("automatic", [True, False])
async def test_commit_in_flight_ends_before_revoke_returns(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer, automatic: bool
) -> None:
    consumer = await started(
        cluster,
        make_consumer,
        session_timeout_ms=600,
        enable_auto_commit=automatic,
        offsets_storage="zookeeper",  # ZooKeeper doesn't refuse stale commits
    )
    fault = cluster.fault(OffsetCommitRequest, then=Answer(14), times=None)
    in_flight = asyncio.create_task(consumer.commit({tp(0): 3}))
    await until(lambda: fault.hits)
    waiting = asyncio.create_task(consumer.commit({tp(0): 4}))
    await asyncio.sleep(0)
    consumer.subscribed.unsubscribe()
    async with asyncio.timeout(20):
        await consumer.engine.revoke()
    for commit in (in_flight, waiting):
        with pytest.raises(CommitFailedError, match="were revoked meanwhile"):
            await commit
    assert await consumer.committed(tp(0)) is None  # the commit in flight has met the fault by now
    fault.cancel()
    assert await consumer.committed(tp(0)) is None


async def test_revoke_waits_for_a_short_commit(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    consumer = await started(cluster, make_consumer, enable_auto_commit=False)
    cluster.fault(OffsetCommitRequest, then=Answer(14), times=2)
    in_flight = asyncio.create_task(consumer.commit({tp(0): 3}))
    await asyncio.sleep(0)
    consumer.subscribed.unsubscribe()
    await consumer.engine.revoke()
    assert committed(cluster) == 3
    await in_flight


async def test_commit_without_a_group_raises(make_consumer: MakeConsumer) -> None:
    consumer = make_consumer("t")
    await consumer.start()
    for call in (
        consumer.commit(),
        consumer.commit({tp(0): 3}),
        consumer.committed(tp(0)),
        consumer.seek_to_committed(),
    ):
        with pytest.raises(IllegalOperation, match="group_id"):
            await call
