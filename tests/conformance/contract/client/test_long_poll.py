"""The long poll: `fetch_min_bytes` and `fetch_max_wait_ms`, on every line of brokers.

No test measures how fast "at once" is: the broker may wait for longer than a test may take.
"""

from __future__ import annotations

import asyncio

import pytest

from aiokafka08 import TopicPartition
from tests.conformance.contract.client.broker import Broker, Consumer, read_records
from tests.conformance.contract.targets import on_targets
from tests.support.waiting import until

pytestmark = pytest.mark.both_loops

LONG_MS = 300_000


async def wait_for_fetch(reader: Consumer) -> None:
    """Wait until a fetch is in flight, or has been answered."""
    await until(lambda: reader.metrics()["fetch_requests"], "a fetch is sent", timeout_s=20)


async def until_poll_hangs(reader: Consumer) -> None:
    """Wait until a fetch is in flight after everything in the log was read."""
    await until(lambda: reader.metrics()["requested_bytes"], "a poll is in flight", timeout_s=20)


async def test_min_bytes_reached_returns_at_once(broker: Broker) -> None:
    topic = await broker.new_log([bytes(100)] * 10)
    reader = await broker.reader(topic, fetch_min_bytes=1000, fetch_max_wait_ms=LONG_MS)
    assert [record.offset for record in await read_records(reader, 10, 40)] == list(range(10))


async def test_min_bytes_reached_over_partitions_returns_at_once(broker: Broker) -> None:
    topic = await broker.create_topic(partitions=3)
    for partition in range(3):
        await broker.fill(topic, [bytes(400)], partition=partition)
    reader = await broker.reader(topic, 0, 1, 2, fetch_min_bytes=1000, fetch_max_wait_ms=LONG_MS)
    assert {record.partition for record in await read_records(reader, 3, 40)} == {0, 1, 2}


async def test_too_few_bytes_return_after_max_wait(broker: Broker) -> None:
    topic = await broker.new_log([b"few"])
    loop = asyncio.get_running_loop()
    # Old lines never get a wait of more than 100 ms (docs/brokers.md 7.3).
    wait_ms = 400 if broker.version >= (0, 8, 2) else 80
    begin = loop.time()
    reader = await broker.reader(topic, fetch_min_bytes=100_000, fetch_max_wait_ms=wait_ms)
    [record] = await read_records(reader, 1, 40)
    assert record.value == b"few"
    assert loop.time() - begin >= wait_ms / 1000 * 0.9


@on_targets(since="0.8.2")
async def test_new_message_ends_long_poll(broker: Broker) -> None:
    topic = await broker.new_log([b"few"])
    reader = await broker.reader(topic, fetch_min_bytes=1000, fetch_max_wait_ms=LONG_MS)
    waiting = asyncio.create_task(reader.getone())
    await wait_for_fetch(reader)
    await broker.fill(topic, [b"still few"])
    assert not waiting.done()
    await broker.fill(topic, [bytes(1000)])
    async with asyncio.timeout(40):
        assert (await waiting).value == b"few"
    assert [record.offset for record in await read_records(reader, 2, 40)] == [1, 2]
    assert reader.metrics()["fetch_requests"] <= 2  # the next long poll may be in flight


@on_targets(since="0.8.1", below="0.8.2")
async def test_old_line_gets_short_max_wait(broker: Broker) -> None:
    """These brokers would hold back an error until `max_wait_ms` is over.

    Without a group it isn't found out that the broker is one of them.
    """
    topic = await broker.new_log([b"few"])
    reader = await broker.reader(
        topic,
        group_id=topic,
        enable_auto_commit=False,
        fetch_min_bytes=100_000,
        fetch_max_wait_ms=LONG_MS,
    )
    assert [record.value for record in await read_records(reader, 1, 40)] == [b"few"]


async def test_seek_while_a_poll_hangs_returns_the_log(broker: Broker) -> None:
    topic = await broker.new_log([b"0", b"1", b"2"])
    reader = await broker.reader(topic, fetch_max_wait_ms=broker.data_wait_ms)
    [tp] = reader.assignment()
    assert [record.offset for record in await read_records(reader, 3, 40)] == [0, 1, 2]
    for _ in range(20):
        await until_poll_hangs(reader)
        reader.seek(tp, 2)
        assert [record.offset for record in await read_records(reader, 1, 40)] == [2]
    assert await reader.seek_to_beginning(tp)
    assert [record.offset for record in await read_records(reader, 3, 40)] == [0, 1, 2]
    await broker.fill(topic, [b"3"])
    # The poll ends with a message that isn't wanted any more: it was asked for before the seek.
    assert [record.offset for record in await read_records(reader, 1, 40)] == [3]


@on_targets(since="0.8.1")
async def test_seek_to_committed_while_a_poll_hangs(broker: Broker) -> None:
    topic = await broker.new_log([b"0", b"1", b"2"])
    reader = await broker.reader(
        topic,
        fetch_max_wait_ms=LONG_MS,
        group_id=broker.unique_topic("g"),
        enable_auto_commit=False,
    )
    [tp] = reader.assignment()
    await read_records(reader, 3, 40)
    await reader.commit({tp: 1})
    await until_poll_hangs(reader)
    assert await reader.seek_to_committed(tp) == {tp: 1}
    assert [record.offset for record in await read_records(reader, 2, 40)] == [1, 2]


async def test_log_beside_a_hanging_poll_is_read_to_its_end(broker: Broker) -> None:
    """More than fits into one response."""
    topic = await broker.new_log([bytes(900)] * 300)
    reader = await broker.reader(topic, fetch_max_wait_ms=LONG_MS, max_partition_fetch_bytes=10_000)
    [tp] = reader.assignment()
    await reader.seek_to_end(tp)
    assert await reader.position(tp) == 300
    await until_poll_hangs(reader)
    reader.seek(tp, 0)
    assert [record.offset for record in await read_records(reader, 300, 40)] == list(range(300))


async def test_resume_while_a_poll_hangs_returns_the_log(broker: Broker) -> None:
    topic = await broker.create_topic(partitions=2)
    paused = TopicPartition(topic, 1)
    reader = broker.new_consumer(fetch_max_wait_ms=broker.data_wait_ms)
    reader.assign([TopicPartition(topic, 0), paused])
    reader.pause(paused)
    async with reader:
        await broker.fill(topic, [b"0"])
        await read_records(reader, 1, 40)
        await broker.fill(topic, [b"1"], partition=1)
        await until_poll_hangs(reader)
        reader.resume(paused)
        assert [record.partition for record in await read_records(reader, 1, 40)] == [1]


async def test_new_assignment_while_a_poll_hangs_is_read(broker: Broker) -> None:
    topic = await broker.create_topic(partitions=2)
    await broker.fill(topic, [b"1", b"2"], partition=1)
    reader = await broker.reader(topic, fetch_max_wait_ms=LONG_MS)
    await until_poll_hangs(reader)
    reader.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
    assert [record.value for record in await read_records(reader, 2, 40)] == [b"1", b"2"]


async def test_refused_offset_while_a_poll_hangs_is_reset(broker: Broker) -> None:
    """The broker refuses the offset of the fetch beside the poll, as it does in a poll."""
    topic = await broker.new_log([b"0", b"1"])
    reader = await broker.reader(topic, fetch_max_wait_ms=LONG_MS)
    [tp] = reader.assignment()
    await read_records(reader, 2, 40)
    await until_poll_hangs(reader)
    reader.seek(tp, 1000)
    assert [record.offset for record in await read_records(reader, 2, 40)] == [0, 1]
