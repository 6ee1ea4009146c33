"""Members come, go and die at random: never two owners in one generation, always all owned at the
end. The seed is in the test's name."""

from __future__ import annotations

import random
from typing import Any

import pytest

from aiokafka08 import AIOKafkaConsumer, TopicPartition
from aiokafka08.coordinator.assignors.range import RangePartitionAssignor
from aiokafka08.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka08.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka08.protocol import api
from aiokafka08.telemetry import Event, GroupJoined
from aiokafka08.testing import EmbeddedCluster
from aiokafka08.testing.faults import Silence
from tests.membership.conftest import SESSION_MS, member_options, partitions, shared
from tests.waiting import until

ALL = partitions(7)
MOST_MEMBERS = 5


class Owners:
    """Who had what in which generation; `twice` is what two had.

    A generation is its number and its members: on 0.9 a group that has lost all of them, as on a
    busy machine it may, begins again at 1, with new ones.
    """

    def __init__(self) -> None:
        self._members: dict[tuple[int, str], frozenset[str]] = {}
        self._owners: dict[tuple[int, frozenset[str], TopicPartition], str] = {}
        self.twice: list[str] = []

    def dealt(self, asked: api.SyncGroupRequest) -> bool:
        """The broker reads what a leader has dealt; never what a watch waits for."""
        members = frozenset(one.member for one in asked.assignments)
        for member in members:
            self._members[asked.generation, member] = members
        return False

    def heard(self, event: Event) -> None:
        """A member has joined."""
        if isinstance(event, GroupJoined):
            # not [...]: the client would only log what its hook raises
            members = self._members.get((event.generation, event.member), frozenset())
            for partition in event.partitions:
                place = (event.generation, members, partition)
                owner = self._owners.setdefault(place, event.member)
                if owner != event.member:
                    self.twice.append(f"{partition} in generation {event.generation}")


def test_two_owners_in_one_generation_are_noticed_whatever_group_had_its_number_before() -> None:
    owners, zero = Owners(), TopicPartition("t", 0)

    def deal(generation: int, *members: str) -> None:
        dealt = [api.MemberAssignment(member, b"") for member in members]
        assert not owners.dealt(api.SyncGroupRequest("g", generation, members[0], dealt))

    def join(generation: int, member: str) -> None:
        owners.heard(GroupJoined("g", generation, member, False, (zero,)))

    deal(2, "a", "b")
    join(2, "a")
    deal(1, "c")  # it begins again; nobody hears of the first generation
    deal(2, "c", "d")
    join(2, "c")
    join(2, "c")
    assert owners.twice == []
    join(2, "d")
    assert owners.twice == [f"{zero} in generation 2"]


async def rounds(cluster: EmbeddedCluster, count: int, seed: int) -> None:
    chance, owners = random.Random(seed), Owners()
    cluster.next_request(api.SyncGroupRequest, where=owners.dealt)
    members: list[AIOKafkaConsumer] = []
    dead: list[AIOKafkaConsumer] = []
    options: dict[str, Any] = member_options(
        cluster,
        session_timeout_ms=SESSION_MS,
        on_event=owners.heard,
        partition_assignment_strategy=[
            StickyPartitionAssignor,
            RangePartitionAssignor,
            RoundRobinPartitionAssignor,
        ],
    )

    def die(member: AIOKafkaConsumer) -> None:
        """Nothing that it sends about the group reaches the broker any more."""
        name = member._engine._member_state.member
        for request in (api.HeartbeatRequest, api.LeaveGroupRequest, api.JoinGroupRequest):
            cluster.fault(
                request,
                then=Silence(perform=False),
                times=None,
                where=lambda asked: asked.member == name,
            )

    try:
        for number in range(count):
            acts = ["join"] * (len(members) < MOST_MEMBERS) * 2
            acts += ["leave", "die"] * (len(members) > 1)
            match chance.choice(acts):
                case "join":
                    members.append(AIOKafkaConsumer("t", **options))
                    await members[-1].start()
                case "leave":
                    await members.pop(chance.randrange(len(members))).stop()
                case "die":
                    dead.append(members.pop(chance.randrange(len(members))))
                    die(dead[-1])
            if chance.random() < 0.3 or number == count - 1:
                await until(lambda: shared(*members, among=ALL), f"sharing in round {number}")
    finally:
        for member in [*members, *dead]:
            await member.stop()
    assert owners.twice == []


@pytest.fixture(params=["0.9", "0.10"])
async def seven(request: pytest.FixtureRequest) -> Any:
    async with EmbeddedCluster(
        1, request.param, {"t": 7}, group_min_session_timeout_ms=100
    ) as cluster:
        yield cluster


@pytest.mark.parametrize("seed", [1, 2])
async def test_ten_rounds(seven: EmbeddedCluster, seed: int) -> None:
    await rounds(seven, 10, seed)


@pytest.mark.full
@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", [11, 12, 13])
async def test_a_hundred_rounds(seven: EmbeddedCluster, seed: int) -> None:
    await rounds(seven, 100, seed)
