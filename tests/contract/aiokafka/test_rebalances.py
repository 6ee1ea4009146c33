"""What a member of a group and its listener see of the rebalances."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from tests.contract.aiokafka.libraries import Comparison, Library
from tests.names import unique_name
from tests.waiting import until

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
