"""Start and stop of the clients in any state, and both clients in one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer, ConsumerStoppedError, TopicPartition
from aiokafka08.errors import IllegalStateError, KafkaError
from tests.conformance.contract.client.broker import AUTO_PARTITIONS, Broker, read_records

pytestmark = pytest.mark.both_loops

ENDED = (ConsumerStoppedError, KafkaError)


async def test_produce_and_consume_from_two_tasks(broker: Broker) -> None:
    topic = broker.unique_topic()
    producer = await broker.producer(compression_type="snappy")
    consumer = await broker.consumer(topic)
    count = 300

    async def produce() -> list[int]:
        sends = []
        for number in range(count):
            key = b"%d" % (number % 7)
            sends.append(asyncio.ensure_future(producer.send_and_wait(topic, b"%d" % number, key)))
            if number % 20 == 0:
                await asyncio.sleep(0)
        return [one.offset for one in await asyncio.gather(*sends)]

    async def consume() -> dict[bytes | None, list[bytes | None]]:
        by_key: dict[bytes | None, list[bytes | None]] = {}
        for _ in range(count):
            record = await consumer.getone()
            by_key.setdefault(record.key, []).append(record.value)
        return by_key

    async with asyncio.timeout(30):
        offsets, by_key = await asyncio.gather(produce(), consume())
    assert by_key == {
        b"%d" % key: [b"%d" % number for number in range(key, count, 7)] for key in range(7)
    }
    assert max(offsets) >= count // AUTO_PARTITIONS - 1


async def test_many_clients_in_one_loop(broker: Broker) -> None:
    topic = await broker.create_topic()
    producers = [await broker.producer() for _ in range(4)]
    consumers = [await broker.reader(topic) for _ in range(4)]
    await asyncio.gather(
        *[one.send_and_wait(topic, b"%d" % number) for number, one in enumerate(producers * 5)]
    )
    seen = await asyncio.gather(*[read_records(consumer, 20) for consumer in consumers])
    first = [record.value for record in seen[0]]
    assert sorted(first, key=lambda value: int(value or 0)) == [b"%d" % n for n in range(20)]
    assert all([record.value for record in records] == first for records in seen)


async def test_stop_ends_every_consumer_call(broker: Broker) -> None:
    topic = await broker.create_topic()
    tp = TopicPartition(topic, 0)
    reader = await broker.reader(topic, fetch_max_wait_ms=10_000)
    assert await reader.getmany(timeout_ms=10) == {}  # a long poll is in flight
    waiting = [asyncio.create_task(reader.getone(*some)) for some in ((), (tp,))]
    many = [asyncio.create_task(reader.getmany(*some, timeout_ms=30_000)) for some in ((), (tp,))]
    calls = [
        asyncio.create_task(call)
        for call in (
            reader.seek_to_end(),
            reader.position(tp),
            reader.end_offsets([tp]),
            reader.beginning_offsets([tp]),
            reader.offsets_for_times({tp: 0}),
            reader.topics(),
        )
    ]

    async def walk() -> list[object]:
        return [record async for record in reader]

    walking = asyncio.create_task(walk())
    await asyncio.sleep(0)
    async with asyncio.timeout(20):
        await asyncio.gather(reader.stop(), reader.stop())
        ends = await asyncio.gather(*waiting, *calls, return_exceptions=True)
        assert await asyncio.gather(*many) == [{}, {}]
        assert await walking == []
    for end in ends[: len(waiting)]:
        assert isinstance(end, ConsumerStoppedError), ends
    for end in ends[len(waiting) :]:
        assert isinstance(end, ConsumerStoppedError) or not isinstance(end, BaseException), ends
    with pytest.raises(ConsumerStoppedError):
        await reader.getone()
    with pytest.raises(ConsumerStoppedError):
        await reader.getmany()
    await reader.stop()


async def test_stop_during_start(broker: Broker) -> None:
    """Stop at every stage of the start; the fixtures check that no task is left."""
    topic = await broker.create_topic()
    for turns in (0, 1, 2, 5, 10, 20, 40):
        for client in (broker.new_consumer(topic), broker.new_producer()):
            starting = await _start_call(client.start(), turns)
            async with asyncio.timeout(20):
                await client.stop()
                end = await _outcome_of(starting)
            assert end is None or isinstance(end, ENDED), repr(end)
            await client.stop()
        for client in (broker.new_consumer(topic), broker.new_producer()):
            starting = await _start_call(client.start(), turns)
            starting.cancel()
            await _outcome_of(starting)
            await client.stop()


async def test_stop_during_offset_lookup(broker: Broker) -> None:
    topic = await broker.create_topic(partitions=3)
    for turns in range(0, 40, 4):
        reader = await broker.reader(topic, 0, 1, 2)
        searching = await _start_call(reader.seek_to_end(), turns)
        await reader.stop()
        end = await _outcome_of(searching)
        assert end is True or isinstance(end, ENDED), repr(end)


async def _start_call(call: Coroutine[Any, Any, Any], turns: int) -> asyncio.Task[Any]:
    """Run the call as a task for so many event-loop iterations."""
    task = asyncio.create_task(call)
    for _ in range(turns):
        await asyncio.sleep(0)
    return task


async def _outcome_of(task: asyncio.Task[Any]) -> object:
    """Return the result or the exception of the task."""
    return (await asyncio.gather(task, return_exceptions=True))[0]


async def test_stop_while_records_arrive(broker: Broker) -> None:
    topic = await broker.create_topic()
    await broker.fill(topic, [b"%d" % number for number in range(3000)])
    reader = await broker.reader(topic)
    got = []
    half = asyncio.Event()

    async def walk() -> None:
        async for record in reader:
            got.append(record.offset)
            if len(got) % 100 == 0:
                await asyncio.sleep(0)
            if len(got) == 1500:
                half.set()

    walking = asyncio.create_task(walk())
    await half.wait()
    await reader.stop()
    await asyncio.wait_for(walking, 20)
    assert got == list(range(len(got)))
    assert len(got) < 3000


async def test_calls_before_start_and_second_start_raise(broker: Broker) -> None:
    producer, consumer = broker.new_producer(), broker.new_consumer()
    for call in (
        producer.send("t", b"v"),
        producer.flush(),
        producer.partitions_for("t"),
        consumer.getone(),
        consumer.getmany(),
        consumer.topics(),
    ):
        with pytest.raises(IllegalStateError, match="start"):
            await call
    async with producer, consumer:
        for client in (producer, consumer):
            with pytest.raises(IllegalStateError, match="started already"):
                await client.start()
    for client in (producer, consumer):
        with pytest.raises(IllegalStateError, match="stopped"):
            await client.start()


@pytest.mark.parametrize("client_class", [AIOKafkaProducer, AIOKafkaConsumer])
async def test_bootstrap_with_dead_address(
    broker: Broker, client_class: type[AIOKafkaProducer | AIOKafkaConsumer]
) -> None:
    servers = ["127.0.0.1:1", broker.bootstrap_servers, "localhost:2"]
    async with client_class(bootstrap_servers=servers) as client:
        assert "127.0.0.1:1" in repr(client)


async def test_consumer_with_pinned_version(broker: Broker) -> None:
    topic = await broker.create_topic()
    await broker.fill(topic, [b"v"])
    for pinned in ("0.8.0", broker.version):
        reader = await broker.reader(topic, api_version=pinned)
        [record] = await read_records(reader, 1)
        assert record.value == b"v"
        modern = broker.has_timestamps and pinned != "0.8.0"
        assert (record.timestamp is not None) == modern
