"""Whoever sends in a tight loop gives others turns of the event loop, at no cost of order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from aiokafka08.producer.turns import Turns
from aiokafka08.testing import EmbeddedCluster
from tests.producer.conftest import Producer

ProducerFor = Callable[..., Awaitable[Producer]]

pytestmark = pytest.mark.both_loops


@pytest.fixture(autouse=True)
def every_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn is due at once, however quick the machine."""
    monkeypatch.setattr("aiokafka08.producer.turns.HOLD_S", -1.0)


async def turns_until_done(task: asyncio.Task[object]) -> int:
    turns = 0
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    await task
    return turns


async def test_a_turn_is_due_for_the_task_that_looks_again_in_the_same_turn() -> None:
    turns = Turns()
    assert not turns.look()
    assert turns.look()
    await turns.give()
    assert not turns.due
    assert not turns.look()


async def test_a_turn_is_not_due_for_tasks_that_look_once_each() -> None:
    turns = Turns()

    async def look() -> bool:
        return turns.look()

    assert not any(await asyncio.gather(*[look() for _ in range(10)]))


async def test_nor_where_there_was_a_turn_meanwhile() -> None:
    turns = Turns()
    for _ in range(3):
        assert not turns.look()
        await asyncio.sleep(0)
        await asyncio.sleep(0)


@pytest.mark.parametrize("options", [{}, {"value_serializer": bytes}])
async def test_a_tight_loop_of_sends_gives_turns_and_keeps_its_order(
    cluster: EmbeddedCluster, producer_for: ProducerFor, options: dict[str, object]
) -> None:
    producer = await producer_for(cluster, **options)
    await producer.partitions_for("t")

    async def send() -> None:
        for number in range(5000):
            await producer.send("t", b"%d" % number, partition=0)

    assert await turns_until_done(asyncio.create_task(send())) > 5000 // 128 - 2
    await producer.flush()
    assert [entry.value for entry in cluster.log("t", 0)] == [b"%d" % n for n in range(5000)]


async def test_a_tight_loop_of_small_send_many_gives_turns(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster)
    await producer.partitions_for("t")

    async def send() -> None:
        for _ in range(100):
            await producer.send_many("t", [b"v"] * 10, partition=0)

    assert await turns_until_done(asyncio.create_task(send())) > 50
    await producer.flush()
    assert len(cluster.log("t", 0)) == 1000


async def test_tasks_that_send_once_keep_the_order_of_their_calls(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster)
    await producer.partitions_for("t")
    await asyncio.gather(*[producer.send("t", b"%d" % n, partition=0) for n in range(1000)])
    await producer.flush()
    assert [entry.value for entry in cluster.log("t", 0)] == [b"%d" % n for n in range(1000)]


async def test_a_send_that_is_cancelled_while_it_gives_a_turn_is_withdrawn(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster)
    await producer.partitions_for("t")
    accepted = 0

    async def send() -> None:
        nonlocal accepted
        for _ in range(1000):
            await producer.send("t", b"v", partition=0)
            accepted += 1

    task = asyncio.create_task(send())
    await asyncio.sleep(0)
    assert 0 < accepted < 1000
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await producer.flush()
    assert len(cluster.log("t", 0)) == accepted
