"""Members join, leave and fall silent at random, in virtual time.

No partition may have two owners in one generation, and at the end each must have one.
"""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest

from aiokafka08 import TopicPartition
from aiokafka08.coordinator.assignors.range import RangePartitionAssignor
from aiokafka08.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka08.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka08.protocol.requests.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    MemberAssignment,
    SyncGroupRequest,
)
from aiokafka08.telemetry import Event, GroupJoined
from aiokafka08.testing import EmbeddedCluster
from aiokafka08.testing.faults import Silence
from aiokafka08.testing.simulation import simulate
from tests.consumer.membership.conftest import SESSION_MS, member_options, partitions, shared
from tests.support.clients import OpenConsumer
from tests.support.waiting import until

ALL = partitions(7)
MOST_MEMBERS = 5


class Owners:
    """The owner of each partition in each generation; `conflicts` lists those with two owners.

    A generation is identified by its number and its members: on 0.9 a group that has lost all
    members, which may happen on a busy machine, starts again at 1 with new ones.
    """

    def __init__(self) -> None:
        self._members: dict[tuple[int, str], frozenset[str]] = {}
        self._owners: dict[tuple[int, frozenset[str], TopicPartition], str] = {}
        self.conflicts: list[str] = []

    def record_sync(self, request: SyncGroupRequest) -> bool:
        """Record the members of a generation; return False to be called again."""
        members = frozenset(one.member for one in request.assignments)
        for member in members:
            self._members[request.generation, member] = members
        return False

    def record_event(self, event: Event) -> None:
        """Record the partitions of a member that has joined."""
        if isinstance(event, GroupJoined):
            # .get(), because the client would only log a KeyError of this hook
            members = self._members.get((event.generation, event.member), frozenset())
            for partition in event.partitions:
                place = (event.generation, members, partition)
                owner = self._owners.setdefault(place, event.member)
                if owner != event.member:
                    self.conflicts.append(f"{partition} in generation {event.generation}")


def test_owner_log_finds_two_owners_in_one_generation() -> None:
    owners, zero = Owners(), TopicPartition("t", 0)

    def sync(generation: int, *members: str) -> None:
        assignments = [MemberAssignment(member, b"") for member in members]
        assert not owners.record_sync(SyncGroupRequest("g", generation, members[0], assignments))

    def join(generation: int, member: str) -> None:
        owners.record_event(GroupJoined("g", generation, member, False, (zero,)))

    sync(2, "a", "b")
    join(2, "a")
    sync(1, "c")  # the group starts again; no member reports the first generation
    sync(2, "c", "d")
    join(2, "c")
    join(2, "c")
    assert owners.conflicts == []
    join(2, "d")
    assert owners.conflicts == [f"{zero} in generation 2"]


async def rebalance_at_random(cluster: EmbeddedCluster, count: int, seed: int) -> None:
    rng, owners = random.Random(seed), Owners()
    cluster.next_request(SyncGroupRequest, where=owners.record_sync)
    members: list[OpenConsumer] = []
    dead: list[OpenConsumer] = []
    options: dict[str, Any] = member_options(
        cluster,
        session_timeout_ms=SESSION_MS,
        on_event=owners.record_event,
        partition_assignment_strategy=[
            StickyPartitionAssignor,
            RangePartitionAssignor,
            RoundRobinPartitionAssignor,
        ],
    )

    def silence(member: OpenConsumer) -> None:
        """Drop all its requests about the group from now on."""
        name = member.engine.member_state.member
        for kind in (HeartbeatRequest, LeaveGroupRequest, JoinGroupRequest):
            cluster.fault(
                kind,
                then=Silence(perform=False),
                times=None,
                where=lambda request: request.member == name,
            )

    try:
        for number in range(count):
            actions = ["join"] * (len(members) < MOST_MEMBERS) * 2
            actions += ["leave", "die"] * (len(members) > 1)
            match rng.choice(actions):
                case "join":
                    members.append(OpenConsumer("t", **options))
                    await members[-1].start()
                case "leave":
                    await members.pop(rng.randrange(len(members))).stop()
                case "die":
                    dead.append(members.pop(rng.randrange(len(members))))
                    silence(dead[-1])
            if rng.random() < 0.3 or number == count - 1:
                await until(lambda: shared(*members, among=ALL), f"sharing in round {number}")
    finally:
        for member in [*members, *dead]:
            await member.stop()
    assert owners.conflicts == []


@pytest.mark.parametrize("version", ["0.9", "0.10"])
def test_hundred_random_rebalances(version: str) -> None:
    with simulate(
        11, brokers=1, version=version, topics={"t": 7}, group_min_session_timeout_ms=100
    ) as world:
        world.run(partial(rebalance_at_random, world.cluster, 100, 11))
