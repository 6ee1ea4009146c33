"""`delivery_timeout_ms` counts from the call that sends a message, not from earlier ones."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pyarrow
import pytest

from aiokafka08.errors import KafkaTimeoutError
from aiokafka08.protocol.requests.produce import ProduceRequest
from aiokafka08.testing import EmbeddedCluster, Hang
from tests.producer.conftest import Producer
from tests.support.waiting import until

ProducerFor = Callable[..., Awaitable[Producer]]
Send = Callable[[Producer], Awaitable[Awaitable[object]]]
TIMEOUT_MS = 800
LINGER_MS = 80
"""A longer one would take from the time of a batch's later messages."""


async def send(producer: Producer) -> Awaitable[object]:
    return await producer.send("t", b"v", partition=0)


async def send_with_timestamp(producer: Producer) -> Awaitable[object]:
    return await producer.send("t", b"v", partition=0, timestamp_ms=1)


async def send_many(producer: Producer) -> Awaitable[object]:
    return await producer.send_many("t", [b"v"], partition=0)


async def send_arrow(producer: Producer) -> Awaitable[object]:
    columns = {"value": pyarrow.array([b"v"]), "partition": pyarrow.array([0])}
    return await producer.send_arrow("t", pyarrow.record_batch(columns))


async def send_batch(producer: Producer) -> Awaitable[object]:
    batch = producer.create_batch()
    assert batch.append(key=None, value=b"v", timestamp=None) is not None
    return await producer.send_batch(batch, "t", partition=0)


async def send_without_waiting(producer: Producer) -> Awaitable[object]:
    """Send from a task that holds the event loop, so that no timer has run since the first send."""
    call = producer.send("t", b"v", partition=0)
    try:
        call.send(None)
    except StopIteration as returned:
        future: Awaitable[object] = returned.value
        return future
    pytest.fail("send() waits")


DOORS = [send, send_with_timestamp, send_many, send_arrow, send_batch]


@pytest.mark.parametrize("is_in_flight", [False, True], ids=["buffered", "behind one in flight"])
@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
async def test_a_late_message_has_its_own_delivery_timeout(
    door: Send, is_in_flight: bool, producer_for: ProducerFor
) -> None:
    async with EmbeddedCluster(version="0.10", topics={"t": 1}) as cluster:
        producer = await producer_for(cluster, delivery_timeout_ms=TIMEOUT_MS, linger_ms=LINGER_MS)
        clock = asyncio.get_running_loop().time
        cluster.fault(ProduceRequest, then=Hang(), times=None)
        futures = [await send(producer)]
        if is_in_flight:
            flushing = asyncio.create_task(producer.flush())
            await asyncio.wrap_future(cluster.next_request(ProduceRequest))
            futures.append(await send(producer))
        late_at = clock() + 0.8 * TIMEOUT_MS / 1000
        await until(lambda: clock() >= late_at, "an old batch")
        sent_at = clock()
        late = await door(producer)
        with pytest.raises(KafkaTimeoutError, match="not acknowledged within 800 ms"):
            await late
        assert clock() - sent_at >= 0.9 * TIMEOUT_MS / 1000
        await asyncio.gather(*futures, return_exceptions=True)
        if is_in_flight:
            await flushing


async def test_a_message_sent_while_the_loop_is_held_has_its_time(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster, delivery_timeout_ms=TIMEOUT_MS, linger_ms=LINGER_MS)
    clock = asyncio.get_running_loop().time
    cluster.fault(ProduceRequest, then=Hang(), times=None)
    early = await send(producer)
    late_at = clock() + 0.8 * TIMEOUT_MS / 1000
    while clock() < late_at:  # the event loop doesn't run
        pass
    sent_at = clock()
    late = await send_without_waiting(producer)
    with pytest.raises(KafkaTimeoutError):
        await late
    assert clock() - sent_at >= 0.9 * TIMEOUT_MS / 1000
    with pytest.raises(KafkaTimeoutError):
        await early


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
async def test_waiting_for_memory_is_part_of_the_timeout(
    door: Send, producer_for: ProducerFor
) -> None:
    async with EmbeddedCluster(version="0.10", topics={"t": 1}) as cluster:
        producer = await producer_for(cluster, buffer_memory=100, delivery_timeout_ms=60_000)
        memory = producer.engine.memory
        clock = asyncio.get_running_loop().time
        cluster.fault(ProduceRequest, then=Hang(), times=None)
        assert memory.try_acquire(100)
        called_at = clock()
        waiting = asyncio.create_task(accept(door, producer))
        await until(lambda: memory.waiters, "waiting for memory")
        began_at = clock()
        await until(lambda: clock() > began_at + 0.05, "some time")
        memory.release(100)
        sent = await waiting
        age_s = producer.metrics()["oldest_batch_ms"] / 1000
        assert called_at <= clock() - age_s < began_at + 0.05
        await producer.stop(timeout=0)
        with pytest.raises(KafkaTimeoutError):
            await sent


async def accept(door: Send, producer: Producer) -> Awaitable[object]:
    return await door(producer)
