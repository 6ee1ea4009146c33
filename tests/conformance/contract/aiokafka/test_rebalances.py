"""What a member of a group and its listener see of the rebalances."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.conformance.contract.aiokafka.libraries import Comparison, Library, outcome
from tests.support.names import unique_name
from tests.support.waiting import until

pytestmark = pytest.mark.real

Calls = list[tuple[str, list[int]]]
"""The calls of a listener, with the numbers of the partitions."""


def new_listener(library: Library, calls: Calls) -> Any:
    """Return a listener that records its calls."""

    base: Any = library.kafka.ConsumerRebalanceListener

    class Recording(base):
        def on_partitions_revoked(self, revoked: Collection[Any]) -> None:
            calls.append(("revoked", sorted(tp.partition for tp in revoked)))

        def on_partitions_assigned(self, assigned: Collection[Any]) -> None:
            calls.append(("assigned", sorted(tp.partition for tp in assigned)))

    return Recording()


# --- on_partitions_revoked ------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before the start", "after the start"])
async def test_first_join_revokes_no_partitions(compare: Comparison, when: str) -> None:
    async def observe(library: Library) -> Calls:
        calls: Calls = []
        topic = await library.create_topic(partitions=2)
        consumer = library.new_consumer(group_id=unique_name("g"))
        if when == "after the start":
            await library.run(consumer)
        consumer.subscribe([topic], listener=new_listener(library, calls))
        if when == "before the start":
            await library.run(consumer)
        await until(lambda: len(calls) >= 2, "the first join", timeout_s=20)
        await consumer.stop()
        return calls

    assert await compare(observe) == [("revoked", []), ("assigned", [0, 1])]


async def test_member_without_partitions_revokes_none(compare: Comparison) -> None:
    """Two members share one partition. When its owner leaves, the other member joins again."""

    async def observe(library: Library) -> Calls:
        topic, group = await library.create_topic(), unique_name("g")
        members: list[tuple[Any, Calls]] = []
        for _ in range(2):
            calls: Calls = []
            member = library.new_consumer(group_id=group, heartbeat_interval_ms=100)
            member.subscribe([topic], listener=new_listener(library, calls))
            members.append((await library.run(member), calls))
        await until(lambda: len(members[0][1]) == 4, "sharing", timeout_s=20)
        (owner, _), (other, calls) = sorted(members, key=lambda one: not one[0].assignment())
        await owner.stop()
        await until(lambda: other.assignment() and calls[-1][1], "taking over", timeout_s=20)
        return calls[-3:]

    expected = [("assigned", []), ("revoked", []), ("assigned", [0])]
    assert await compare(observe) == expected


async def test_new_subscription_revokes_the_old_partitions(compare: Comparison) -> None:
    async def observe(library: Library) -> Calls:
        calls: Calls = []
        one, two = [await library.create_topic(partitions=count) for count in (2, 1)]
        consumer = library.new_consumer(group_id=unique_name("g"))
        consumer.subscribe([one], listener=new_listener(library, calls))
        await library.run(consumer)
        consumer.subscribe([two], listener=new_listener(library, calls))
        await until(lambda: len(calls) == 4, "the next join", timeout_s=20)
        return calls

    assert await compare(observe) == [
        ("revoked", []),
        ("assigned", [0, 1]),
        ("revoked", [0, 1]),
        ("assigned", [0]),
    ]


# --- calls during a rebalance ---------------------------------------------------------------------

OnChange = Callable[[Any, Collection[Any]], Awaitable[None]]
"""Called in a listener, with the consumer and the partitions."""


@asynccontextmanager
async def rebalance_in_flight(
    library: Library, on_revoked: OnChange, on_assigned: OnChange
) -> AsyncIterator[Any]:
    """Yield a member of a group; until the block ends, its JoinGroup has no response.

    Another member's listener holds the rebalance up. The functions see the member's own calls in
    this rebalance. Each partition has ten messages: a fetch of a lower offset isn't refused, which
    would reset the position.
    """
    topic, group = await library.create_topic(partitions=3), unique_name("g")
    producer = await library.producer()
    for number in range(30):
        await producer.send_and_wait(topic, b"value", partition=number % 3)
    joins: list[str] = []
    watched, revoked, assigned, gate = (asyncio.Event() for _ in range(4))
    options = {"group_id": group, "heartbeat_interval_ms": 100, "enable_auto_commit": False}
    one, two = library.new_consumer(**options), library.new_consumer(**options)
    base: Any = library.kafka.ConsumerRebalanceListener

    class Watching(base):
        async def on_partitions_revoked(self, partitions: Collection[Any]) -> None:
            if watched.is_set() and not revoked.is_set():
                await on_revoked(one, partitions)
                revoked.set()

        async def on_partitions_assigned(self, partitions: Collection[Any]) -> None:
            joins.append("one")
            if watched.is_set() and not assigned.is_set():
                await on_assigned(one, partitions)
                assigned.set()

    class Holding(base):
        async def on_partitions_revoked(self, partitions: Collection[Any]) -> None:
            await gate.wait()

        def on_partitions_assigned(self, partitions: Collection[Any]) -> None:
            joins.append("two")

    one.subscribe([topic], listener=Watching())
    two.subscribe([topic], listener=Holding())
    gate.set()
    await library.run(one)
    await library.run(two)
    await until(lambda: sorted(joins) == ["one", "one", "two"], "sharing", timeout_s=20)
    watched.set()
    gate.clear()
    joining = asyncio.create_task(library.consumer(topic, **options))
    await asyncio.wait_for(revoked.wait(), 20)
    try:
        yield one
    finally:
        gate.set()
    await joining
    await asyncio.wait_for(assigned.wait(), 20)


async def ignore(consumer: Any, partitions: Collection[Any]) -> None:
    """Do nothing in a listener."""


async def test_former_partitions_work_during_rebalance(compare: Comparison) -> None:
    async def observe(library: Library) -> list[Any]:
        found: list[Any] = []

        async def use(one: Any, when: str) -> None:
            """Use a partition that `one` had before the rebalance."""
            partition = min(one.assignment())
            position = await one.position(partition)
            one.seek(partition, position + 1)
            if when == "revoked":  # for later ones see the next test
                await one.commit()
                await one.commit({partition: position + 1})
            found.append((when, await one.position(partition)))

        async def on_assigned(one: Any, partitions: Collection[Any]) -> None:
            found.append(("assigned", set(partitions) == one.assignment()))
            found.append(all([await one.position(tp) >= 0 for tp in partitions]))

        async with rebalance_in_flight(
            library, lambda one, _partitions: use(one, "revoked"), on_assigned
        ) as one:
            for _ in range(3):
                await use(one, "joining")
        return found

    joining = [("joining", position) for position in (2, 3, 4)]
    expected = [("revoked", 1), *joining, ("assigned", True), True]
    assert await compare(observe) == expected


async def test_commit_during_join_is_not_held_up(compare: Comparison) -> None:
    """aiokafka's commit waits behind its JoinGroup, and comes too late for its generation."""

    async def observe(library: Library) -> list[Any]:
        async with rebalance_in_flight(library, ignore, ignore) as one:
            partition = min(one.assignment())
            commit = asyncio.create_task(outcome(one.commit({partition: 7})))
            await asyncio.wait([commit], timeout=2)
            in_time = commit.done()
            one.seek(partition, 5)
            position = await one.position(partition)
        return [position, in_time, await commit, await one.committed(partition)]

    theirs, ours = await compare.both(observe)
    assert ours == [5, True, "returned", 7]
    assert theirs == [5, False, "CommitFailedError", None]
