"""A broker stalls, the client goes on elsewhere, and then the response comes: in virtual time.

Of two kinds: the broker has carried the request out at once, and the network brings the response
late; or the broker itself is stopped (SIGSTOP), goes on later, and answers as what it is by then.
Each waiter of the clients has a test: a late response completes no other request, assigns nothing
twice, moves no position and no commit back, and leaves nothing behind (`World.run` checks the
last).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka08._core.concurrency.daemon_thread import DaemonThread
from aiokafka08._core.net.config import NETWORK_DEFAULTS, net_config
from aiokafka08._core.net.coordinator_lookup import CoordinatorLookup
from aiokafka08._core.net.router import Router
from aiokafka08._core.ranges.range_reader import read_range
from aiokafka08._core.server.sasl import SaslSession
from aiokafka08.admin import AIOKafkaAdminClient
from aiokafka08.consumer.membership.broker_group import LEAVE_TIMEOUT_S
from aiokafka08.errors import KafkaConnectionError, KafkaTimeoutError, KafkaUnavailableError
from aiokafka08.protocol.api import Request, Topic
from aiokafka08.protocol.requests.committed_offsets import (
    CommitPartition,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from aiokafka08.protocol.requests.fetch import FetchPartition, FetchRequest
from aiokafka08.protocol.requests.groups import (
    DescribeGroupsRequest,
    GroupCoordinatorRequest,
    GroupProtocol,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    SyncGroupRequest,
)
from aiokafka08.protocol.requests.list_offsets import ListOffsetsPartition, ListOffsetsRequest
from aiokafka08.protocol.requests.metadata import MetadataRequest
from aiokafka08.protocol.requests.produce import ProduceRequest
from aiokafka08.protocol.requests.sasl_handshake import SaslHandshakeRequest
from aiokafka08.telemetry import (
    BatchRetried,
    Disconnected,
    Event,
    GroupJoined,
    Telemetry,
)
from aiokafka08.testing import Delay
from aiokafka08.testing.server import BrokerHandler
from aiokafka08.testing.simulation import World, simulate
from tests.support.waiting import until

pytestmark = pytest.mark.fast

STALL_S = 20.0
"""Longer than a response may be overdue (2 s), and than the request timeouts below."""
SETTLE_S = 3.0
"""By then an overdue response has led to fresh metadata."""
T0, T2 = TopicPartition("t", 0), TopicPartition("t", 2)
Stall = Callable[[World, int, type[Request[Any]]], Awaitable[None]]


async def answered_late(world: World, node: int, request: type[Request[Any]]) -> None:
    """Let the broker carry the next such request out at once, and respond late."""
    world.cluster.fault(request, then=Delay(STALL_S), node=node)


async def carried_out_late(world: World, node: int, request: type[Request[Any]]) -> None:
    """Stop the broker now; it goes on with what has come meanwhile."""
    party = f"broker {node}"
    world.pause(party)
    world.call_later(STALL_S, world.resume, party)


BOTH: Any = pytest.mark.parametrize("stall", [answered_late, carried_out_late])


def play(
    scenario: Callable[[World], Awaitable[None]], version: str = "0.9", **options: Any
) -> None:
    """Run it with two brokers; node 0 leads partitions 0 and 2 of the topic "t"."""
    given: dict[str, Any] = {"brokers": 2, "topics": {"t": 3}, **options}
    with simulate(1, version=version, **given) as world:

        async def run() -> None:
            await scenario(world)

        world.run(run)


class Seen:
    """The events of a client."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def of(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.events if type(event) is kind]

    def options(self, world: World, **options: Any) -> dict[str, Any]:
        return {
            "bootstrap_servers": world.cluster.bootstrap_servers,
            "on_event": self.events.append,
            **options,
        }


def values(world: World, partition: int = 0) -> list[bytes | None]:
    return [message.value for message in world.cluster.log("t", partition)]


# --- any request ----------------------------------------------------------------------------------

REQUESTS: list[Request[Any]] = [
    MetadataRequest(["t"]),
    ListOffsetsRequest(-1, [Topic("t", [ListOffsetsPartition(0, -1)])]),
    FetchRequest(-1, 0, 0, [Topic("t", [FetchPartition(0, 0, 1000)])]),
    GroupCoordinatorRequest("g"),
    OffsetFetchRequest("g", [Topic("t", [0])]),
    OffsetCommitRequest("g", -1, "", -1, [Topic("t", [CommitPartition(0, 1, -1, "")])]),
    JoinGroupRequest("g", 6000, "", "consumer", [GroupProtocol("range", b"")]),
    SyncGroupRequest("g", 1, "m", []),
    HeartbeatRequest("g", 1, "m"),
    LeaveGroupRequest("g", "m"),
    ListGroupsRequest(),
    DescribeGroupsRequest(["g"]),
]


@pytest.mark.parametrize("late", REQUESTS, ids=lambda request: type(request).__name__)
def test_late_response_completes_no_later_request(late: Request[Any]) -> None:
    """Its request was given up; the one behind it on the connection gets its own response."""

    async def scenario(world: World) -> None:
        world.cluster.append("t", 0, [b"v"])
        world.cluster.append("t", 2, [b"v"] * 7)
        router = await started_router(world)
        await router.request(GroupCoordinatorRequest("g"), node_id=0)  # and not in the late request
        world.cluster.fault(type(late), then=Delay(5), node=0)
        with pytest.raises(KafkaTimeoutError):
            await router.request(late, node_id=0, timeout_s=1)
        ends = ListOffsetsRequest(-1, [Topic("t", [ListOffsetsPartition(2, -1)])])
        response = await router.request(ends, node_id=0, timeout_s=10)
        [topic] = response.topics
        [listed] = topic.partitions
        assert (listed.partition, listed.error_code, listed.offset) == (2, 0, 7)
        history = world.cluster.history
        [later] = [one for one in history if one.request == ends]
        before = [one for one in history if one.connection == later.connection]
        assert type(before[before.index(later) - 1].request) is type(late)
        await router.stop()

    play(scenario, version="0.10")


async def started_router(world: World, **options: Any) -> Router:
    given: dict[str, Any] = {
        **NETWORK_DEFAULTS,
        "bootstrap_servers": world.cluster.bootstrap_servers,
        "client_id": "tests",
        "security_protocol": "PLAINTEXT",
    }
    config = net_config(**given | options)
    router = Router(config, Telemetry())
    router.metadata.add_topics(["t"])
    await router.start()
    return router


@BOTH
def test_late_metadata_brings_no_former_leader_back(stall: Stall) -> None:
    async def scenario(world: World) -> None:
        # The only broker that it is connected to is asked first.
        router = await started_router(world, bootstrap_servers="kafka0:9092")
        await stall(world, 0, MetadataRequest)
        refresh = asyncio.create_task(router.metadata.refresh(10))
        await asyncio.sleep(0.5)
        world.cluster.move_leader("t", 0, to=1)
        snapshot = await refresh
        assert snapshot.leader(T0) == 1
        await asyncio.sleep(STALL_S)
        assert router.metadata.snapshot.leader(T0) == 1
        await router.stop()

    play(scenario)


@BOTH
def test_late_coordinator_is_not_taken_for_the_present_one(stall: Stall) -> None:
    async def scenario(world: World) -> None:
        router = await started_router(world, bootstrap_servers="kafka0:9092")
        lookup = CoordinatorLookup(router, "g")
        former = await lookup.node_id()
        await stall(world, 0, GroupCoordinatorRequest)
        lookup.invalidate(former)
        search = asyncio.create_task(lookup.node_id(timeout_s=15))
        await asyncio.sleep(0.5)
        present = world.cluster.move_coordinator("g")
        async with asyncio.timeout(15):
            found = await search
        if found != present:  # the search was faster than the move
            lookup.invalidate(found)
            found = await lookup.node_id(timeout_s=15)
        assert found == present
        await asyncio.sleep(STALL_S)
        assert await lookup.node_id() == present
        await router.stop()

    play(scenario)


# --- messages -------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("acks", [1, "all"])
def test_late_produce_response_changes_no_delivery(stall: Stall, acks: int | str) -> None:
    """The batch was sent again to the new leader: that one's response counts."""

    async def scenario(world: World) -> None:
        seen = Seen()
        options = seen.options(world, request_timeout_ms=60_000, acks=acks)
        async with AIOKafkaProducer(**options) as producer:
            await producer.send_and_wait("t", b"0", partition=0)
            await stall(world, 0, ProduceRequest)
            future = await producer.send("t", b"1", partition=0)
            await asyncio.sleep(SETTLE_S)
            assert not future.done()
            world.cluster.move_leader("t", 0, to=1)
            async with asyncio.timeout(5):
                delivered = await future
            await asyncio.sleep(STALL_S)
            assert future.result() == delivered
            [retried] = seen.of(BatchRetried)
            assert retried.may_be_stored
            # The connection with the late response goes on, and so does the partition.
            assert (await producer.send_and_wait("t", b"x", partition=2)).offset == 0
            assert (await producer.send_and_wait("t", b"2", partition=0)).offset == len(
                values(world)
            ) - 1
            assert seen.of(Disconnected) == []
            metrics = producer.metrics()
            assert metrics["requests_in_flight"] == metrics["buffer_used_bytes"] == 0
            assert metrics["messages_sent"] == 4
        stored_twice = stall is answered_late
        assert values(world) == [b"0", b"1", *[b"1"] * stored_twice, b"2"]

    play(scenario)


@BOTH
def test_late_fetch_response_returns_nothing_twice(stall: Stall) -> None:
    async def scenario(world: World) -> None:
        seen = Seen()
        consumer: AIOKafkaConsumer[Any, Any] = AIOKafkaConsumer(
            **seen.options(world, auto_offset_reset="earliest")
        )
        consumer.assign([T0, T2])
        async with consumer:
            await until(lambda: len(world.cluster.requests(FetchRequest, 0)) > 1, "long polls")
            await stall(world, 0, FetchRequest)
            world.cluster.append("t", 2, [b"ends the long poll"])
            await asyncio.sleep(1)
            world.cluster.append("t", 0, [b"0", b"1"])
            await asyncio.sleep(SETTLE_S)
            world.cluster.move_leader("t", 0, to=1)
            async with asyncio.timeout(SETTLE_S + 5):
                assert [(await consumer.getone(T0)).offset for _ in range(2)] == [0, 1]
            await asyncio.sleep(STALL_S)
            assert await consumer.position(T0) == 2
            world.cluster.append("t", 0, [b"2"])
            assert (await consumer.getone(T0)).offset == 2
            assert (await consumer.getone(T2)).offset == 0  # of the broker that stalled
            assert await consumer.getmany(timeout_ms=1000) == {}

    play(scenario)


@BOTH
def test_late_urgent_fetch_returns_nothing_twice(stall: Stall) -> None:
    """It has a connection of its own, beside a long poll that hangs."""

    def is_urgent(request: FetchRequest) -> bool:
        return request.max_wait_ms == 0

    async def scenario(world: World) -> None:
        world.cluster.append("t", 0, [b"0", b"1", b"2"])
        options = Seen().options(world, auto_offset_reset="earliest", fetch_max_wait_ms=60_000)
        consumer: AIOKafkaConsumer[Any, Any] = AIOKafkaConsumer(**options)
        consumer.assign([T0, T2])
        async with consumer:
            assert [(await consumer.getone()).offset for _ in range(3)] == [0, 1, 2]
            await asyncio.sleep(1)  # the long poll hangs
            urgent = world.cluster.next_request(FetchRequest, node=0, where=is_urgent)
            if stall is answered_late:
                late = Delay(STALL_S)
                world.cluster.fault(FetchRequest, then=late, node=0, where=is_urgent)
            consumer.seek(T0, 1)
            if stall is carried_out_late:
                await stall(world, 0, FetchRequest)
            await asyncio.sleep(SETTLE_S)
            assert urgent.done() == (stall is answered_late)
            world.cluster.move_leader("t", 0, to=1)
            async with asyncio.timeout(SETTLE_S + 5):
                assert [(await consumer.getone(T0)).offset for _ in range(2)] == [1, 2]
            await asyncio.sleep(STALL_S)
            assert urgent.done()
            assert await consumer.position(T0) == 3
            world.cluster.append("t", 0, [b"3"])
            world.cluster.append("t", 2, [b"0"])
            assert (await consumer.getone(T0)).offset == 3
            assert (await consumer.getone(T2)).offset == 0  # of the broker that stalled
            assert await consumer.getmany(timeout_ms=1000) == {}

    play(scenario)


@BOTH
@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_late_start_offset_moves_no_position(stall: Stall, reset: str) -> None:
    """The position was found at the new leader; messages behind it have been read since."""

    async def scenario(world: World) -> None:
        world.cluster.append("t", 0, [b"0"])
        options = Seen().options(world, auto_offset_reset=reset)
        consumer: AIOKafkaConsumer[Any, Any] = AIOKafkaConsumer(**options)
        async with consumer:
            consumer.assign([T2])
            await consumer.position(T2)  # so the version of node 0 is known
            await stall(world, 0, ListOffsetsRequest)
            consumer.assign([T0])
            await asyncio.sleep(SETTLE_S)
            world.cluster.move_leader("t", 0, to=1)
            async with asyncio.timeout(15):
                at = await consumer.position(T0)
            assert at == (0 if reset == "earliest" else 1)
            world.cluster.append("t", 0, [b"1", b"2"])
            for offset in range(at, 3):
                assert (await consumer.getone(T0)).offset == offset
            await asyncio.sleep(STALL_S)
            assert await consumer.position(T0) == 3
            assert await consumer.getmany(timeout_ms=1000) == {}

    play(scenario)


@BOTH
def test_late_offsets_of_a_call_come_from_the_new_leader(stall: Stall) -> None:
    async def scenario(world: World) -> None:
        world.cluster.append("t", 0, [b"0"])
        consumer: AIOKafkaConsumer[Any, Any] = AIOKafkaConsumer(**Seen().options(world))
        async with consumer:
            assert await consumer.end_offsets([T0]) == {T0: 1}
            await stall(world, 0, ListOffsetsRequest)
            call = asyncio.create_task(consumer.end_offsets([T0]))
            await asyncio.sleep(SETTLE_S)
            world.cluster.move_leader("t", 0, to=1)
            world.cluster.append("t", 0, [b"1"])
            async with asyncio.timeout(STALL_S - SETTLE_S - 1):
                assert await call == {T0: 2}
            await asyncio.sleep(STALL_S)
            assert await consumer.end_offsets([T0, T2]) == {T0: 2, T2: 0}

    play(scenario)


@BOTH
def test_late_fetch_of_a_range_is_read_once(stall: Stall) -> None:
    async def scenario(world: World) -> None:
        world.cluster.append("t", 0, [b"v"] * 50)
        router = await started_router(world, request_timeout_ms=20_000)
        await stall(world, 0, FetchRequest)

        async def read() -> list[int]:
            return [one.end_offset async for one in read_range(router, T0, 0, 50)]

        reading = asyncio.create_task(read())
        await asyncio.sleep(SETTLE_S)
        assert not reading.done()
        world.cluster.move_leader("t", 0, to=1)
        async with asyncio.timeout(STALL_S - SETTLE_S - 1):
            assert await reading == [50]
        await asyncio.sleep(STALL_S)
        await router.stop()

    play(scenario)


# --- groups ---------------------------------------------------------------------------------------


def member_options(world: World, seen: Seen, **options: Any) -> dict[str, Any]:
    return seen.options(
        world,
        group_id="g",
        session_timeout_ms=6000,
        heartbeat_interval_ms=1000,
        request_timeout_ms=8000,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **options,
    )


@BOTH
def test_late_committed_offset_moves_no_position(stall: Stall) -> None:
    async def scenario(world: World) -> None:
        world.cluster.append("t", 0, [b"0", b"1", b"2"])
        options = member_options(world, Seen())
        async with assigned(T0, **options) as before:
            await before.commit({T0: 1})
        coordinator = world.cluster.coordinator("g")
        assert coordinator is not None
        lead_elsewhere(world, coordinator)
        async with assigned(T2, **options) as consumer:
            await consumer.position(T2)
            await stall(world, coordinator, OffsetFetchRequest)
            consumer.assign([T0])
            await asyncio.sleep(1)
            world.cluster.move_coordinator("g")
            async with asyncio.timeout(15):
                assert [(await consumer.getone()).offset for _ in range(2)] == [1, 2]
            await asyncio.sleep(STALL_S)
            assert await consumer.position(T0) == 3
            assert await consumer.committed(T0) == 1

    play(scenario)


@BOTH
def test_late_commit_takes_no_later_one_back(stall: Stall) -> None:
    async def scenario(world: World) -> None:
        async with assigned(T0, **member_options(world, Seen())) as consumer:
            await consumer.commit({T0: 1})
            coordinator = world.cluster.coordinator("g")
            assert coordinator is not None
            await stall(world, coordinator, OffsetCommitRequest)
            commit = asyncio.create_task(consumer.commit({T0: 5}))
            await asyncio.sleep(1)
            world.cluster.move_coordinator("g")
            await commit
            await consumer.commit({T0: 9})
            await asyncio.sleep(STALL_S)
            assert await consumer.committed(T0) == 9
        assert committed(world) == 9

    play(scenario)


def test_commit_carried_out_late_takes_no_later_one_back() -> None:
    """The call that gave it up raises; the coordinator goes on with it before the later one."""

    async def scenario(world: World) -> None:
        async with assigned(T0, **member_options(world, Seen())) as consumer:
            await consumer.commit({T0: 1})
            coordinator = world.cluster.coordinator("g")
            assert coordinator is not None
            await carried_out_late(world, coordinator, OffsetCommitRequest)
            with pytest.raises(KafkaTimeoutError):
                await consumer.commit({T0: 5})
            for _ in range(5):
                try:
                    await consumer.commit({T0: 9})
                    break
                except KafkaTimeoutError:
                    pass
            await asyncio.sleep(STALL_S)
            assert await consumer.committed(T0) == 9
        assert committed(world) == 9

    play(scenario)


@pytest.mark.parametrize("request_class", [JoinGroupRequest, SyncGroupRequest])
@BOTH
def test_late_join_assigns_nothing_twice(stall: Stall, request_class: type[Request[Any]]) -> None:
    """The member has joined again meanwhile, as another one."""

    async def scenario(world: World) -> None:
        seen = Seen(), Seen()
        one, two = (
            AIOKafkaConsumer("t", **member_options(world, seen[0])),
            AIOKafkaConsumer("t", **member_options(world, seen[1], start_timeout_ms=600_000)),
        )
        twice: list[object] = []

        async def watch() -> None:
            while True:
                await asyncio.sleep(0.05)
                if both := one.assignment() & two.assignment():
                    twice.append((world.virtual_s, both))

        async with one:
            coordinator = world.cluster.coordinator("g")
            assert coordinator is not None
            lead_elsewhere(world, coordinator)
            await stall(world, coordinator, request_class)
            watching = asyncio.create_task(watch())
            async with two:
                await until(
                    lambda: one.assignment() and two.assignment(), "both read", timeout_s=120
                )
                await asyncio.sleep(3 * STALL_S)
                assert one.assignment() | two.assignment() == {
                    TopicPartition("t", number) for number in range(3)
                }
                joined = [len(one_seen.of(GroupJoined)) for one_seen in seen]
                await asyncio.sleep(3 * STALL_S)
                assert [len(one_seen.of(GroupJoined)) for one_seen in seen] == joined
            watching.cancel()
        assert twice == []

    play(scenario)


@BOTH
def test_late_heartbeat_ends_no_later_generation(stall: Stall) -> None:
    async def scenario(world: World) -> None:
        seen = Seen()
        async with AIOKafkaConsumer("t", **member_options(world, seen)) as consumer:
            coordinator = world.cluster.coordinator("g")
            assert coordinator is not None
            lead_elsewhere(world, coordinator)
            await stall(world, coordinator, HeartbeatRequest)
            await asyncio.sleep(SETTLE_S)
            world.cluster.move_coordinator("g")
            await asyncio.sleep(STALL_S - SETTLE_S - 1)
            joined = len(seen.of(GroupJoined))
            await asyncio.sleep(STALL_S)
            assert len(seen.of(GroupJoined)) == joined
            assert len(consumer.assignment()) == 3
            world.cluster.append("t", 0, [b"v"])
            assert (await consumer.getone()).offset == 0
            await consumer.commit()
        assert committed(world) == 1

    play(scenario)


@BOTH
def test_late_leave_keeps_neither_stop_nor_the_next_member(stall: Stall) -> None:
    async def scenario(world: World) -> None:
        options = member_options(world, Seen())
        consumer = AIOKafkaConsumer("t", **options)
        await consumer.start()
        coordinator = world.cluster.coordinator("g")
        assert coordinator is not None
        lead_elsewhere(world, coordinator)
        await stall(world, coordinator, LeaveGroupRequest)
        async with asyncio.timeout(LEAVE_TIMEOUT_S + 1):
            await consumer.stop()
        async with AIOKafkaConsumer("t", **options, start_timeout_ms=60_000) as following:
            assert len(following.assignment()) == 3
            await asyncio.sleep(2 * STALL_S)
            assert len(following.assignment()) == 3

    play(scenario)


@contextlib.asynccontextmanager
async def assigned(
    partition: TopicPartition, **options: Any
) -> AsyncIterator[AIOKafkaConsumer[Any, Any]]:
    consumer: AIOKafkaConsumer[Any, Any] = AIOKafkaConsumer(**options)
    consumer.assign([partition])
    async with consumer:
        yield consumer


def committed(world: World) -> int:
    commit = world.cluster.committed("g", "t", 0)
    assert commit is not None
    return commit.offset


def lead_elsewhere(world: World, node: int) -> None:
    """Let the other broker lead the topic: only the coordinator is to stall."""
    for partition in range(3):
        if world.cluster.leader("t", partition) == node:
            world.cluster.move_leader("t", partition, to=1 - node)


# --- the admin client, and the begin of a connection ----------------------------------------------

Call = Callable[[AIOKafkaAdminClient], Awaitable[Any]]
CALLS: dict[str, tuple[type[Request[Any]], Call]] = {
    "list_topics": (MetadataRequest, lambda admin: admin.list_topics()),
    "describe_topics": (MetadataRequest, lambda admin: admin.describe_topics(["t"])),
    "list_consumer_groups": (ListGroupsRequest, lambda admin: admin.list_consumer_groups()),
    "describe_consumer_groups": (
        DescribeGroupsRequest,
        lambda admin: admin.describe_consumer_groups(["g"]),
    ),
    "find_coordinator": (GroupCoordinatorRequest, lambda admin: admin.find_coordinator("g")),
    "list_consumer_group_offsets": (
        OffsetFetchRequest,
        lambda admin: admin.list_consumer_group_offsets("g"),
    ),
    "list_offsets": (
        ListOffsetsRequest,
        lambda admin: admin.list_offsets({T0: "earliest", T2: "latest"}),
    ),
    "list_consumer_group_lag": (
        ListOffsetsRequest,
        lambda admin: admin.list_consumer_group_lag("g"),
    ),
    "describe_cluster": (MetadataRequest, lambda admin: admin.describe_cluster()),
}


@pytest.mark.parametrize("name", CALLS)
@BOTH
def test_late_response_to_an_admin_call_is_in_no_later_result(stall: Stall, name: str) -> None:
    """The call has another broker's answer, or a typed error in its time; the next one is right."""
    request, call = CALLS[name]

    async def scenario(world: World) -> None:
        options = member_options(world, Seen())
        async with assigned(T0, **options) as consumer:
            await consumer.commit({T0: 1})
        async with AIOKafkaAdminClient(
            bootstrap_servers=world.cluster.bootstrap_servers, request_timeout_ms=4000
        ) as admin:
            expected = repr(await call(admin))
            node = [one.node for one in world.cluster.history if type(one.request) is request][-1]
            await stall(world, node, request)
            async with asyncio.timeout(12):
                try:
                    found = repr(await call(admin))
                except (KafkaTimeoutError, KafkaUnavailableError, KafkaConnectionError):
                    found = expected
            assert found == expected
            await asyncio.sleep(STALL_S)
            assert repr(await call(admin)) == expected

    play(scenario, version="0.10")


@pytest.mark.parametrize("version", ["0.8.0", "0.8.2", "0.9", "0.10"])
@BOTH
def test_late_response_to_a_probe_leaves_the_broker_usable(stall: Stall, version: str) -> None:
    async def scenario(world: World) -> None:
        await stall(world, 0, ListOffsetsRequest)
        seen = Seen()
        options = seen.options(world, request_timeout_ms=60_000, metadata_max_age_ms=1000)
        producer = AIOKafkaProducer(**options)
        async with asyncio.timeout(STALL_S / 2):
            await producer.start()
        try:
            assert (await producer.send_and_wait("t", b"v", partition=1)).offset == 0
            late = await producer.send("t", b"v", partition=0)
            await asyncio.sleep(2 * STALL_S)
            assert (await late).offset == 0
            assert (await producer.send_and_wait("t", b"v", partition=0)).offset == 1
        finally:
            await producer.stop()

    play(scenario, version=version)


@BOTH
def test_late_step_of_an_authentication_leaves_the_broker_usable(stall: Stall) -> None:
    async def scenario(world: World) -> None:
        await stall(world, 0, SaslHandshakeRequest)
        options = Seen().options(
            world,
            request_timeout_ms=8000,
            retry_backoff_ms=100,
            delivery_timeout_ms=10 * 60_000,
            security_protocol="SASL_PLAINTEXT",
            sasl_plain_username="alice",
            sasl_plain_password="secret",
        )
        producer = AIOKafkaProducer(**options)
        async with asyncio.timeout(STALL_S / 2):
            await producer.start()
        try:
            assert (await producer.send_and_wait("t", b"v", partition=1)).offset == 0
            late = await producer.send("t", b"v", partition=0)
            await asyncio.sleep(2 * STALL_S)
            assert (await late).offset == 0
        finally:
            await producer.stop()

    play(scenario, version="0.10", sasl={"alice": "secret"})


@BOTH
def test_late_second_token_leaves_the_broker_usable(
    stall: Stall, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tokens are no requests below 1.0. The connection was given up, and another authenticates."""
    receive = BrokerHandler._receive_token
    tokens: list[object] = []

    async def scenario(world: World) -> None:
        def receive_late(self: Any, session: SaslSession, frame: Any, exchange: Any) -> None:
            tokens.append(session)
            if len(tokens) > 2 or tokens.count(session) < 2:
                receive(self, session, frame, exchange)
            elif stall is carried_out_late:
                world.call_later(
                    STALL_S, receive, self, session, memoryview(bytes(frame)), exchange
                )
            else:
                token = session.receive(frame)
                answer = [len(token).to_bytes(4, "big") + token]
                world.call_later(STALL_S, exchange.respond, answer)

        async def call_here(self: DaemonThread, step: Callable[[], object]) -> object:
            return step()  # a simulation has no threads

        monkeypatch.setattr(DaemonThread, "run", call_here)
        monkeypatch.setattr(BrokerHandler, "_receive_token", receive_late)
        options = Seen().options(
            world,
            bootstrap_servers="kafka0:9092",
            request_timeout_ms=8000,
            retry_backoff_ms=100,
            start_timeout_ms=60_000,
            delivery_timeout_ms=10 * 60_000,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="SCRAM-SHA-256",
            sasl_plain_username="alice",
            sasl_plain_password="secret",
        )
        producer = AIOKafkaProducer(**options)
        async with asyncio.timeout(STALL_S):
            await producer.start()
        try:
            assert tokens[0] is tokens[1]  # the first authentication is the one that waits
            assert (await producer.send_and_wait("t", b"v", partition=0)).offset == 0
            await asyncio.sleep(2 * STALL_S)
            assert (await producer.send_and_wait("t", b"v", partition=0)).offset == 1
        finally:
            await producer.stop()

    play(scenario, version="0.10", sasl={"alice": "secret"})


# --- groups in ZooKeeper --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "away_s",
    [
        pytest.param(None, id="result lost"),
        pytest.param(3.0, id="in the session"),
        pytest.param(STALL_S, id="after the session"),
    ],
)
@pytest.mark.parametrize("delay_s", [0.0, 0.05, 1.0])
def test_late_zookeeper_result_assigns_nothing_twice(away_s: float | None, delay_s: float) -> None:
    """A member is cut off from ZooKeeper while another one joins.

    Its next change takes effect without a result; or what it asks is carried out when the network
    is back; or its session has ended by then, and the other member has all partitions.
    """

    async def scenario(world: World) -> None:
        one, two = (
            AIOKafkaConsumer(
                "t",
                **member_options(world, Seen(), start_timeout_ms=600_000),
                zookeeper_connect=world.zookeeper_connect,
                rebalance_max_retries=100,
            )
            for _ in range(2)
        )
        twice: list[object] = []

        async def watch() -> None:
            while True:
                await asyncio.sleep(0.05)
                if both := one.assignment() & two.assignment():
                    twice.append((world.virtual_s, both))

        def cut() -> None:
            if away_s is not None:
                world.zookeeper.disconnect(away_s, clients, silent=True)
                return
            for client in clients:
                world.zookeeper.lose_response(client)

        with world.process("one"):
            await asyncio.create_task(one.start())
        assert len(one.assignment()) == 3
        await one.commit({T0: 1})
        clients = world.zookeeper.clients  # the group's session, and that of the offsets
        watching = asyncio.create_task(watch())
        world.call_later(delay_s, cut)
        with world.process("two"):
            joining = asyncio.create_task(two.start())
        await asyncio.sleep(delay_s + 0.1)
        with world.process("one"):
            late = asyncio.create_task(one.commit({T0: 2}))
        await joining
        await asyncio.gather(late, return_exceptions=True)
        await asyncio.sleep(2 * STALL_S)
        owner = one if T0 in one.assignment() else two
        await owner.commit({T0: 9})
        await asyncio.sleep(2 * STALL_S)
        everything = {TopicPartition("t", number) for number in range(3)}
        assert one.assignment() | two.assignment() == everything
        assert one.assignment()
        assert two.assignment()
        assert twice == []
        watching.cancel()
        assert await two.committed(T0) == await one.committed(T0) == 9
        await asyncio.gather(one.stop(), two.stop())

    play(scenario, version="0.8.2")
