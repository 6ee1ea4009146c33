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

    On 0.9 a group that has lost all its members, as on a busy machine it may, begins again at 1.
    """

    def __init__(self) -> None:
        self._owners: dict[tuple[int, int, TopicPartition], str] = {}
        self._life = self._latest = 0
        self.twice: list[str] = []

    def heard(self, event: Event) -> None:
        if isinstance(event, GroupJoined):
            self._life += event.generation == 1 < self._latest
            self._latest = event.generation
            for partition in event.partitions:
                place = (self._life, event.generation, partition)
                owner = self._owners.setdefault(place, event.member)
                if owner != event.member:
                    self.twice.append(f"{partition} in generation {event.generation}")


async def rounds(cluster: EmbeddedCluster, count: int, seed: int) -> None:
    chance, owners = random.Random(seed), Owners()
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
        name = member._standing.member
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
