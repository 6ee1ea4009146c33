"""`start()` of a group's member ends after `start_timeout_ms` and says why, in virtual time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from aiokafka08 import AIOKafkaConsumer
from aiokafka08._core.net.coordinator_lookup import CoordinatorLookup
from aiokafka08.consumer.membership.broker_group import LEAVE_TIMEOUT_S
from aiokafka08.errors import (
    GroupAuthorizationFailedError,
    GroupCoordinatorNotAvailableError,
    InconsistentGroupProtocolError,
    KafkaError,
    KafkaTimeoutError,
)
from aiokafka08.protocol.requests.committed_offsets import OffsetFetchRequest
from aiokafka08.protocol.requests.groups import (
    GroupCoordinatorRequest,
    GroupProtocol,
    HeartbeatRequest,
    JoinGroupRequest,
    SyncGroupRequest,
)
from aiokafka08.protocol.requests.metadata import MetadataRequest
from aiokafka08.testing import Answer, Close, Delay, Hang
from aiokafka08.testing.simulation import World, simulate
from tests.support.clients import OpenConsumer
from tests.support.waiting import until

pytestmark = pytest.mark.fast

LIMIT_MS = 3000
Break = Callable[[World], object]


@pytest.fixture
def world() -> Iterator[World]:
    with simulate(1, version="0.9", brokers=1, topics={"t": 1}) as world:
        yield world


def new_member(world: World, **options: Any) -> AIOKafkaConsumer[Any, Any]:
    return AIOKafkaConsumer(
        "t",
        bootstrap_servers=world.cluster.bootstrap_servers,
        group_id="g",
        **{"start_timeout_ms": LIMIT_MS, **options},
    )


async def failure_of_start(world: World, **options: Any) -> tuple[KafkaError, float]:
    """Return the error, and the seconds until it came."""
    begin = asyncio.get_running_loop().time()
    async with asyncio.timeout(1000):
        with pytest.raises(KafkaError) as caught:
            await new_member(world, **options).start()
    return caught.value, asyncio.get_running_loop().time() - begin


def vanish(world: World) -> None:
    """Advertise an address on which nothing responds, not even by a refusal."""
    world.network.dns["lost.example"] = ["10.9.9.9"]
    world.cluster.advertise(0, "lost.example")


@pytest.mark.parametrize("request_timeout_ms", [LIMIT_MS, 40_000])
@pytest.mark.parametrize(
    ("wrong", "address", "reason"),
    [
        (lambda world: world.cluster.advertise(0, "kafka.internal"), "kafka.internal:9092", "name"),
        (lambda world: world.cluster.advertise(0, port=1234), "kafka0:1234", "refused"),
        (vanish, "lost.example:9092", "no connection within"),
    ],
    ids=["unresolvable", "refusing", "silent"],
)
def test_unreachable_coordinator_ends_the_start(
    world: World, wrong: Break, address: str, reason: str, request_timeout_ms: int
) -> None:
    """The broker at the bootstrap address names it, and responds itself."""

    async def scenario() -> tuple[KafkaError, float]:
        wrong(world)
        return await failure_of_start(world, request_timeout_ms=request_timeout_ms)

    error, seconds = world.run(scenario)
    assert isinstance(error, KafkaTimeoutError)
    assert seconds == pytest.approx(LIMIT_MS / 1000, abs=0.2)
    for part in (
        "group 'g': not joined within start_timeout_ms=3000",
        f"{address}: ",
        reason,
        f"The coordinator is node 0 at {address}, as the broker at kafka0:9092 says",
        "advertised.listeners",
    ):
        assert part.lower() in str(error).lower()


@pytest.mark.parametrize("request_class", [JoinGroupRequest, SyncGroupRequest])
@pytest.mark.parametrize(
    ("effect", "reason"),
    [
        (Answer(14), "GroupLoadInProgressError"),
        (Answer(16), "NotCoordinatorForGroupError"),
        (Answer(15), "GroupCoordinatorNotAvailableError"),
        (Answer(22), "IllegalGenerationError"),
        (Answer(25), "UnknownMemberIdError"),
        (Answer(27), "RebalanceInProgressError"),
        (Close(), "closed by the broker"),
    ],
    ids=repr,
)
def test_each_refusal_of_the_first_join_ends_the_start(
    world: World, request_class: type[Any], effect: Any, reason: str
) -> None:
    """A JoinGroup as another member waits for the session of the member that it was before."""

    async def scenario() -> tuple[KafkaError, float]:
        world.cluster.fault(request_class, then=effect, times=None)
        return await failure_of_start(world, session_timeout_ms=6000)

    error, seconds = world.run(scenario)
    waits_s = 6 if (request_class, effect) == (SyncGroupRequest, Answer(25)) else 0
    assert LIMIT_MS / 1000 - 0.2 < seconds < LIMIT_MS / 1000 + 0.2 + waits_s
    assert reason in str(error)
    assert "not joined within start_timeout_ms=3000" in str(error)


@pytest.mark.parametrize("code", [22, 27])
def test_rebalances_without_an_end_are_joined_after_pauses(world: World, code: int) -> None:
    async def scenario() -> None:
        async with new_member(world) as one:
            world.cluster.fault(SyncGroupRequest, then=Answer(code), times=None)
            world.cluster.fault(HeartbeatRequest, then=Answer(27))
            before = len(world.cluster.requests(JoinGroupRequest))
            await asyncio.sleep(30)
            assert 10 < len(world.cluster.requests(JoinGroupRequest)) - before < 100
            world.cluster.clear_faults()
            await until(lambda: len(one.assignment()) == 1)

    world.run(scenario)


def test_lookup_that_fails_ends_the_start(world: World) -> None:
    """By `start_timeout_ms`, be it shorter or longer than `request_timeout_ms`."""

    async def scenario() -> None:
        world.cluster.fault(GroupCoordinatorRequest, then=Answer(15), times=None)
        for request_timeout_ms in (1000, 40_000):
            error, seconds = await failure_of_start(world, request_timeout_ms=request_timeout_ms)
            assert isinstance(error, GroupCoordinatorNotAvailableError)
            assert seconds == pytest.approx(LIMIT_MS / 1000, abs=1.2)

    world.run(scenario)


def test_start_waits_for_the_other_members_of_a_rebalance(world: World) -> None:
    """These aren't errors: a member that is busy holds the group up for its session timeout."""

    async def scenario() -> None:
        options = {"session_timeout_ms": 20_000, "heartbeat_interval_ms": 10_000}
        async with new_member(world, **options):
            begin = world.virtual_s
            with world.process("late"):
                late = new_member(world, **options)
                await asyncio.create_task(late.start())
            assert world.virtual_s - begin > 2 * LIMIT_MS / 1000
            await late.stop()

    world.run(scenario)


def test_time_of_other_members_isnt_limited_though_a_sync_fails(world: World) -> None:
    """Each SyncGroup comes after another member's change, each JoinGroup waits for that member."""

    async def scenario() -> None:
        world.cluster.fault(SyncGroupRequest, then=Answer(27), times=3)
        world.cluster.fault(JoinGroupRequest, then=Delay(LIMIT_MS / 1000 - 1), times=4)
        begin = world.virtual_s
        async with new_member(world) as member:
            assert world.virtual_s - begin > 2 * LIMIT_MS / 1000
            assert len(member.assignment()) == 1

    world.run(scenario)


@pytest.mark.parametrize("code", [22, 27])
def test_repeated_order_to_rejoin_is_followed_with_pauses(world: World, code: int) -> None:
    """The first one at once: other members wait. After the start too."""

    async def scenario() -> None:
        async with new_member(world) as member:
            world.cluster.fault(SyncGroupRequest, then=Answer(code), times=None)
            joins = len(world.cluster.requests(JoinGroupRequest))
            member.subscribe(["t", "other"])
            await asyncio.sleep(60)
            assert 50 < len(world.cluster.requests(JoinGroupRequest)) - joins < 90

    world.run(scenario)


@pytest.mark.parametrize("code", [27, 30])
def test_error_of_the_start_is_only_raised(
    world: World, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The caller has it: it isn't logged as well."""

    async def scenario() -> None:
        world.cluster.fault(JoinGroupRequest, then=Answer(code), times=None)
        await failure_of_start(world)

    world.run(scenario)
    assert not [one for one in caplog.records if one.levelno >= logging.ERROR]


def test_error_that_ends_a_started_member_is_a_warning(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The caller may read for minutes before the next call raises it."""

    async def scenario() -> None:
        async with new_member(world) as member:
            world.cluster.fault(JoinGroupRequest, then=Answer(30), times=None)
            member.subscribe(["t", "other"])
            with pytest.raises(GroupAuthorizationFailedError):
                await asyncio.wait_for(member.getone(), 60)

    world.run(scenario)
    [line] = [one for one in caplog.records if "the membership failed" in one.getMessage()]
    assert "group 'g'" in line.getMessage()
    assert "GroupAuthorizationFailedError" in line.getMessage()
    assert (line.levelno, line.exc_info) == (logging.WARNING, None)


def test_coordinator_that_comes_in_time_is_joined(world: World) -> None:
    async def scenario() -> None:
        world.cluster.advertise(0, "kafka.internal")
        world.call_later(2, world.cluster.advertise, 0)
        async with new_member(world) as member:
            assert len(member.assignment()) == 1

    world.run(scenario)


@pytest.mark.parametrize(
    ("effect", "reason"),
    [
        (Answer(14), "GroupLoadInProgressError"),
        (Answer(15), "GroupCoordinatorNotAvailableError"),
        (Answer(16), "NotCoordinatorForGroupError"),
        (Hang(), "not fetched within"),
        (Close(), "closed by the broker"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("request_timeout_ms", [2000, LIMIT_MS, 40_000])
@pytest.mark.parametrize("start_timeout_ms", [LIMIT_MS, 10_000])
def test_unknown_committed_offsets_end_the_start(
    world: World, effect: Any, reason: str, request_timeout_ms: int, start_timeout_ms: int
) -> None:
    async def scenario() -> tuple[KafkaError, float]:
        world.cluster.fault(OffsetFetchRequest, then=effect, times=None)
        return await failure_of_start(
            world, request_timeout_ms=request_timeout_ms, start_timeout_ms=start_timeout_ms
        )

    error, seconds = world.run(scenario)
    assert isinstance(error, KafkaTimeoutError)
    limit_s = start_timeout_ms / 1000
    assert limit_s - 0.3 < seconds < limit_s + 0.3 + LEAVE_TIMEOUT_S
    text = str(error)
    assert f"group 'g': committed offsets unknown after start_timeout_ms={start_timeout_ms}" in text
    assert reason in text


def test_group_of_another_kind_is_named(world: World) -> None:
    """Kafka Connect has groups with the same requests; the error code alone doesn't tell."""

    async def scenario() -> None:
        async with OpenConsumer(bootstrap_servers=world.cluster.bootstrap_servers) as client:
            node_id = await CoordinatorLookup(client.router, "g").node_id()
            join = JoinGroupRequest("g", 10_000, "", "connect", [GroupProtocol("default", b"")])
            assert not (await client.router.request(join, node_id=node_id)).error_code
            error, _ = await failure_of_start(world)
            assert isinstance(error, InconsistentGroupProtocolError)
            assert "'connect'" in str(error)
            assert "another group_id" in str(error)
            assert "partition_assignment_strategy" not in str(error)

    world.run(scenario)


def test_metadata_that_does_not_come_keeps_no_assignment_back() -> None:
    """The leader of a group assigns what it knows: its session would end while it waits."""

    async def scenario(world: World) -> float:
        def lose_metadata(joined: Any) -> None:
            coordinator = joined.result().node
            world.cluster.fault(MetadataRequest, then=Close(), node=coordinator, times=None)
            world.cluster.fault(MetadataRequest, then=Hang(), node=1 - coordinator, times=None)

        world.cluster.next_request(JoinGroupRequest).add_done_callback(lose_metadata)
        begin = asyncio.get_running_loop().time()
        async with new_member(
            world, api_version="0.9", start_timeout_ms=60_000, session_timeout_ms=6000
        ) as member:
            assert len(member.assignment()) == 1
            return asyncio.get_running_loop().time() - begin

    with simulate(1, version="0.9", brokers=2, topics={"t": 1}) as world:
        assert world.run(scenario, world) < 10
