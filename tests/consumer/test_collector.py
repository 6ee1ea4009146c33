"""getone(), getmany() and async for: order, fairness, cancelled calls, yields to the event loop."""

from __future__ import annotations

import asyncio
import itertools
import sys
from typing import Any

import pytest

from aiokafka08.consumer.limits import ConsumerLimits
from aiokafka08.errors import (
    ConsumerStoppedError,
)
from aiokafka08.protocol.compression import (
    LONG_DECOMPRESS_BYTES,
    Codec,
    compress,
    decompress_unless_long,
)
from aiokafka08.protocol.message_set import MessageSetReader, encode_entry
from aiokafka08.testing import EmbeddedCluster
from tests.consumer.conftest import MakeConsumer, slices_of, take, tp, values
from tests.support.waiting import until

pytestmark = pytest.mark.twins


@pytest.mark.both_loops
async def test_getone_returns_each_message_in_order(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    for partition in range(4):
        cluster.append("t", partition, values(0, 30), codec=Codec(partition))
    consumer = make_consumer()
    consumer.assign([tp(partition) for partition in range(4)])
    await consumer.start()
    got: dict[int, list[int]] = {}
    for _ in range(120):
        record = await consumer.getone()
        assert (record.topic, record.timestamp, record.headers) == ("t", None, ())
        assert record.value == b"%d" % record.offset
        got.setdefault(record.partition, []).append(record.offset)
        assert await consumer.position(tp(record.partition)) == record.offset + 1
    assert got == {partition: list(range(30)) for partition in range(4)}
    assert consumer.metrics()["messages_consumed"] == 120


async def test_getone_waits_for_a_message(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    consumer = make_consumer("t")
    await consumer.start()
    waiting = asyncio.create_task(consumer.getone())
    await until(lambda: consumer.metrics()["requested_bytes"] > 0)
    cluster.append("t", 2, [b"new"])
    assert (await waiting).value == b"new"


async def test_getmany_respects_limits_and_rotates_partitions(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    for number in range(2):
        cluster.append("t", number, values(0, 2500))
    consumer = make_consumer("t", max_poll_records=600)
    await consumer.start()
    assert await consumer.getmany(tp(3), timeout_ms=50) == {}
    await until(lambda: consumer.metrics()["lag"] == 5000)
    sizes: list[int] = []
    seen: dict[Any, list[int]] = {tp(0): [], tp(1): []}
    first_partitions = []
    while len(seen[tp(0)]) + len(seen[tp(1)]) < 5000:
        got = await consumer.getmany(timeout_ms=1000)
        sizes.append(sum(map(len, got.values())))
        first_partitions.append(next(iter(got)).partition)
        for partition, records in got.items():
            seen[partition] += [record.offset for record in records]
    assert set(sizes[:-1]) <= {600, 500, 400}
    assert seen == {tp(0): list(range(2500)), tp(1): list(range(2500))}
    # A partition with messages left over comes last at the next call.
    assert first_partitions[:4] in ([0, 1, 0, 1], [1, 0, 1, 0])


async def test_getmany_of_some_partitions_leaves_the_others(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    for partition in range(4):
        cluster.append("t", partition, values(0, 5))
    consumer = make_consumer("t")
    await consumer.start()
    assert {r.partition for r in await take(consumer, 10, tp(1), tp(3))} == {1, 3}
    assert (await consumer.getone(tp(2))).partition == 2
    got = await consumer.getmany(max_records=1, timeout_ms=1000)
    assert sum(map(len, got.values())) == 1
    assert len(await take(consumer, 8)) == 8


async def test_getmany_without_timeout_yields(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    """Otherwise a caller that polls in a tight loop would block the fetches."""
    cluster.append("t", 0, values(0, 1))
    consumer = make_consumer("t")
    await consumer.start()
    async with asyncio.timeout(10):
        while not (got := await consumer.getmany()):
            pass
    assert list(got) == [tp(0)]


@pytest.mark.parametrize("wrong", [0, -1, True, 1.5, "3"])
async def test_wrong_max_records_raises(make_consumer: MakeConsumer, wrong: Any) -> None:
    consumer = make_consumer("t")
    await consumer.start()
    with pytest.raises(ValueError, match="max_records"):
        await consumer.getmany(max_records=wrong)


@pytest.mark.both_loops
async def test_async_for_ends_when_the_consumer_is_stopped(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    cluster.append("t", 1, values(0, 10))
    consumer = make_consumer("t")
    await consumer.start()
    got = []

    async def walk() -> None:
        async for record in consumer:
            got.append(record.offset)  # noqa: PERF401

    walking = asyncio.create_task(walk())
    await until(lambda: len(got) == 10)
    await consumer.stop()
    await walking
    assert got == list(range(10))
    with pytest.raises(ConsumerStoppedError):
        aiter(consumer)
    with pytest.raises(ConsumerStoppedError):
        await consumer.getone()
    with pytest.raises(ConsumerStoppedError):
        await consumer.getmany()


async def test_async_for_follows_seeks_and_pauses_at_once(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    cluster.append("t", 0, values(0, 10))
    cluster.append("t", 1, values(0, 10))
    consumer = make_consumer("t")
    await consumer.start()
    await until(lambda: consumer.metrics()["lag"] == 20)
    got = []
    async for record in consumer:
        got.append((record.partition, record.offset))
        first = got[0][0]
        if len(got) == 3:
            consumer.seek(tp(first), 8)
        if got.count((first, 8)) == 1 and got[-1] == (first, 8):
            consumer.pause(tp(first))
        if len(got) == 14:
            break
    other = 1 - first
    assert [offset for partition, offset in got if partition == first] == [0, 1, 2, 8]
    assert [offset for partition, offset in got if partition == other] == list(range(10))
    consumer.resume(tp(first))
    assert (await consumer.getone()).offset == 9


async def test_cancelled_getone_loses_nothing(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    """A thousand calls, cancelled at every point that they reach."""
    consumer = make_consumer("t")
    await consumer.start()
    got: list[int] = []
    cancelled = written = 0
    for attempt in itertools.count():
        if cancelled == 1000:
            break
        call = asyncio.create_task(consumer.getone())
        for _ in range(attempt % 5):
            await asyncio.sleep(0)
        if attempt % 3 == 0:
            cluster.append("t", 0, values(written, written + 1))
            written += 1
            await asyncio.sleep(0)
        call.cancel()
        try:
            got.append((await call).offset)
        except asyncio.CancelledError:
            cancelled += 1
    while len(got) < written:
        got.append((await consumer.getone()).offset)
    assert got == list(range(written))


@pytest.mark.parametrize("call", ["getmany", "anext"])
async def test_calls_that_time_out_lose_nothing(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer, call: str
) -> None:
    consumer = make_consumer("t")
    await consumer.start()
    walk = aiter(consumer)
    got: list[int] = []

    async def once() -> None:
        if call == "anext":
            got.append((await anext(walk)).offset)
        else:
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                got.extend(record.offset for record in records)

    for number in range(200):
        if number % 2:
            cluster.append("t", 0, values(0, 3))
        try:
            await asyncio.wait_for(once(), 0.001)
        except TimeoutError:
            pass
    async with asyncio.timeout(10):
        while len(got) < 300:
            await once()
    assert got == list(range(300))


async def test_getmany_cancelled_while_it_decodes_loses_nothing(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    for _ in range(5):
        cluster.append("t", 0, values(0, 4000), codec=Codec.SNAPPY)
    consumer = make_consumer("t", parts=slices_of(0.0))
    await consumer.start()
    await until(lambda: consumer.metrics()["lag"] == 20_000)
    got: list[int] = []
    cancelled = 0
    while len(got) < 20_000:
        call = asyncio.create_task(consumer.getmany(timeout_ms=1000))
        await asyncio.sleep(0)
        if cancelled < 3:
            call.cancel()
        try:
            for records in (await call).values():
                got.extend(record.offset for record in records)
        except asyncio.CancelledError:
            cancelled += 1
    assert cancelled == 3
    assert got == list(range(20_000))


async def test_long_decoding_yields_to_the_loop(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    for _ in range(10):
        cluster.append("t", 0, values(0, 10_000))
    consumer = make_consumer("t", parts=slices_of(0.0002))  # on any machine, any twin
    await consumer.start()
    await until(lambda: consumer.metrics()["buffered_bytes"] > 1_000_000)
    iterations = 0

    async def count() -> None:
        nonlocal iterations
        while True:
            iterations += 1
            await asyncio.sleep(0)

    counter = asyncio.create_task(count())
    got = await consumer.getmany(timeout_ms=1000)
    counter.cancel()
    assert sum(map(len, got.values())) > 20_000
    assert iterations > 3


async def test_returned_records_are_not_kept(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    for partition in range(2):
        cluster.append("t", partition, values(0, 3))
    consumer = make_consumer()
    consumer.assign([tp(0), tp(1)])
    await consumer.start()
    await until(lambda: consumer.metrics()["lag"] == 6)
    records = [await consumer.getone() for _ in range(4)]
    assert len({record.partition for record in records[:3]}) == 1
    references = sys.getrefcount(records[3])  # of a record whose slice is being returned
    assert [sys.getrefcount(records[index]) for index in range(3)] == [references - 1] * 3


async def test_two_busy_readers_share_the_messages(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    for partition in range(2):
        cluster.append("t", partition, values(0, 20_000))
    consumer = make_consumer("t", parts=slices_of(0.0005))
    await consumer.start()
    counts = [0, 0]

    async def read(reader: int, partition: int) -> None:
        while sum(counts) < 20_000:
            await consumer.getone(tp(partition))
            counts[reader] += 1

    await asyncio.gather(read(0, 0), read(1, 1))
    assert min(counts) > 2_000, counts


@pytest.mark.both_loops
@pytest.mark.parametrize("call", ["getone", "getone of a partition", "getmany", "getmany_arrow"])
async def test_large_compressed_sets_are_opened_one_per_iteration(
    cluster: EmbeddedCluster,
    make_consumer: MakeConsumer,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
) -> None:
    """Twenty compressed sets of over a MiB each; then a message.

    No set takes long enough for a thread here.
    """
    monkeypatch.setitem(LONG_DECOMPRESS_BYTES, Codec.GZIP, sys.maxsize)
    inside = [encode_entry(n, None, bytes(1_100_000)) for n in range(20)]
    bombs = [
        encode_entry(n, None, compress(Codec.GZIP, one), attributes=Codec.GZIP)
        for n, one in enumerate(inside)
    ]
    cluster.append_raw("t", 0, b"".join(bombs), next_offset=20)
    cluster.append("t", 0, values(20, 21))
    iterations = [0]
    opened: list[int] = []  # in which loop iteration

    def open_one(*how: Any) -> bytes | None:
        opened.append(iterations[0])
        return decompress_unless_long(*how)

    module = MessageSetReader.__module__
    monkeypatch.setattr(f"{module}.decompress_unless_long", open_one)

    async def count() -> None:
        while True:
            iterations[0] += 1
            await asyncio.sleep(0)

    consumer = make_consumer(parts=slices_of(0.0))
    consumer.assign([tp(0)])
    await consumer.start()
    await until(lambda: consumer.metrics()["lag"] == 21)
    counter = asyncio.create_task(count())
    async with asyncio.timeout(20):
        offsets: list[int] = []
        while len(offsets) < 21:
            if call == "getmany":
                offsets += [record.offset for record in await take(consumer, 21)]
            elif call == "getmany_arrow":
                batch = await consumer.getmany_arrow(timeout_ms=10_000)
                offsets += batch["offset"].to_pylist()
            else:
                wanted = [tp(0)] if call == "getone of a partition" else []
                offsets.append((await consumer.getone(*wanted)).offset)
    counter.cancel()
    assert offsets == list(range(21))
    assert len(opened) == 20
    assert len(set(opened)) == 20, "several in one loop iteration"


async def test_getmany_returns_after_decompressing_enough(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    for _ in range(10):
        cluster.append("t", 0, [bytes(2_000_000)], codec=Codec.GZIP)
    limits = ConsumerLimits(call_decompressed_bytes=5_000_000)
    consumer = make_consumer("t", parts={"limits": limits})
    await consumer.start()
    await until(lambda: consumer.metrics()["lag"] == 10)
    seen: list[int] = []
    while sum(seen) < 10:
        got = await asyncio.wait_for(consumer.getmany(timeout_ms=1000), 20)
        seen.append(sum(map(len, got.values())))
    assert max(seen) == 3
