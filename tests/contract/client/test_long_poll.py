"""The long poll: `fetch_min_bytes` and `fetch_max_wait_ms`, on every line of brokers.

No test measures how fast "at once" is: the broker may wait for longer than a test may take.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.contract.client.broker import Broker, Consumer, read_records
from tests.contract.targets import on_targets
from tests.waiting import until

pytestmark = pytest.mark.both_loops

LONG_MS = 300_000


async def wait_for_fetch(reader: Consumer) -> None:
    """Wait until a fetch is in flight, or has been answered."""
    await until(lambda: reader.metrics()["fetch_requests"], "a fetch is sent", timeout_s=20)


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


@on_targets(below="0.8.2")
async def test_old_line_gets_short_max_wait(broker: Broker) -> None:
    """These brokers would hold back an error until `max_wait_ms` is over."""
    topic = await broker.new_log([b"few"])
    reader = await broker.reader(topic, fetch_min_bytes=100_000, fetch_max_wait_ms=LONG_MS)
    assert [record.value for record in await read_records(reader, 1, 40)] == [b"few"]
