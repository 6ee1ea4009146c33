"""Compressed messages that take long to open are opened in a thread, while the call waits."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

import pytest

from aiokafka08 import AIOKafkaConsumer
from aiokafka08._core.arrow import require_pyarrow
from aiokafka08.errors import ConsumerStoppedError, CorruptRecordException
from aiokafka08.protocol.compression import LONG_DECOMPRESS_BYTES, Codec
from aiokafka08.protocol.message_set import encode_entry
from aiokafka08.testing import EmbeddedCluster
from tests.consumer.conftest import MakeConsumer, tp, values
from tests.support.clients import OpenConsumer
from tests.support.gated_offload import GatedOffload, offload_threads
from tests.support.waiting import until

pytestmark = [pytest.mark.both_loops, pytest.mark.twins]

COUNT = 600
LONG = [b"%04d" % number + bytes(2000) for number in range(COUNT)]
"""Decompress to more than what any codec decompresses in the event loop."""

Read = Callable[[AIOKafkaConsumer], Coroutine[Any, Any, list[tuple[int, bytes | None]]]]
T = TypeVar("T")


async def by_getone(consumer: AIOKafkaConsumer) -> list[tuple[int, bytes | None]]:
    record = await consumer.getone()
    return [(record.offset, record.value)]


async def by_iteration(consumer: AIOKafkaConsumer) -> list[tuple[int, bytes | None]]:
    async for record in consumer:
        return [(record.offset, record.value)]
    return []


async def by_getmany(consumer: AIOKafkaConsumer) -> list[tuple[int, bytes | None]]:
    found = await consumer.getmany(timeout_ms=1000)
    return [(one.offset, one.value) for records in found.values() for one in records]


async def by_columns(consumer: AIOKafkaConsumer) -> list[tuple[int, bytes | None]]:
    batch = await consumer.getmany_arrow(timeout_ms=1000)
    return list(
        zip(batch.column("offset").to_pylist(), batch.column("value").to_pylist(), strict=True)
    )


each_call = pytest.mark.parametrize("read", [by_getone, by_iteration, by_getmany, by_columns])


@pytest.fixture(autouse=True)
def pyarrow() -> None:
    require_pyarrow()  # else the first call of getmany_arrow() imports it through the Offload


@pytest.fixture
def make_consumer(make_consumer: MakeConsumer) -> MakeConsumer:
    """Make consumers whose threads a test can hold back."""
    return partial(make_consumer, parts={"new_offload": GatedOffload})


async def started(make_consumer: MakeConsumer, *partitions: int) -> OpenConsumer:
    consumer = make_consumer()
    consumer.assign([tp(partition) for partition in partitions or (0,)])
    await consumer.start()
    return consumer


async def held_reading(
    make_consumer: MakeConsumer, read: Callable[[AIOKafkaConsumer], Coroutine[Any, Any, T]]
) -> tuple[AIOKafkaConsumer, GatedOffload, asyncio.Task[T]]:
    """Start a consumer of partition 0 and a call, and hold back the wrapper that it opens."""
    consumer = await started(make_consumer)
    offload = GatedOffload.hold()
    reading = asyncio.create_task(read(consumer))
    await offload.wait_begun()
    return consumer, offload, reading


async def take(
    consumer: AIOKafkaConsumer, count: int, read: Read
) -> list[tuple[int, bytes | None]]:
    taken: list[tuple[int, bytes | None]] = []
    while len(taken) < count:
        taken += await read(consumer)
    return taken


@each_call
@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
async def test_long_wrapper_is_opened_in_a_thread(
    codec: Codec, read: Read, cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    assert sum(map(len, LONG)) > LONG_DECOMPRESS_BYTES[codec]
    cluster.append("t", 0, values(0, 5), codec=codec)
    consumer = await started(make_consumer)
    await take(consumer, 5, read)
    assert GatedOffload.made.begun == 0
    cluster.append("t", 0, LONG, codec=codec)
    taken = await take(consumer, COUNT, read)
    assert taken == [(5 + number, value) for number, value in enumerate(LONG)]
    [thread] = GatedOffload.made.threads
    assert thread != threading.get_ident()


async def test_random_data_is_opened_in_a_thread(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    value = random.Random(1).randbytes(900_000)
    cluster.append("t", 0, [value], codec=Codec.GZIP)
    consumer = await started(make_consumer)
    assert await take(consumer, 1, by_getone) == [(0, value)]
    assert GatedOffload.made.begun == 1


@each_call
async def test_seek_meanwhile_drops_the_wrapper(
    read: Read, cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    cluster.append("t", 0, LONG, codec=Codec.GZIP)
    cluster.append("t", 0, values(0, 5))
    consumer, offload, reading = await held_reading(make_consumer, read)
    consumer.seek(tp(0), COUNT + 2)
    offload.may_end.set()
    taken = await reading
    if len(taken) < 3:
        taken += await take(consumer, 3 - len(taken), read)
    assert [offset for offset, _ in taken] == [COUNT + 2, COUNT + 3, COUNT + 4]


@each_call
async def test_seek_back_meanwhile_reads_all_again(
    read: Read, cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    cluster.append("t", 0, LONG, codec=Codec.GZIP)
    consumer, offload, reading = await held_reading(make_consumer, read)
    consumer.seek(tp(0), 7)
    offload.may_end.set()
    taken = await reading
    taken += await take(consumer, COUNT - 7 - len(taken), read)
    assert [offset for offset, _ in taken] == list(range(7, COUNT))


@each_call
async def test_cancelled_call_takes_nothing(
    read: Read, cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    cluster.append("t", 0, LONG, codec=Codec.GZIP)
    consumer, offload, reading = await held_reading(make_consumer, read)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    again = asyncio.ensure_future(take(consumer, COUNT, read))
    offload.may_end.set()
    assert [offset for offset, _ in await again] == list(range(COUNT))


@each_call
async def test_stop_meanwhile_ends_the_call(
    read: Read, cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    cluster.append("t", 0, LONG, codec=Codec.GZIP)
    consumer, _, reading = await held_reading(make_consumer, read)
    await consumer.stop()
    if read is by_getone:
        with pytest.raises(ConsumerStoppedError):
            await reading
    else:
        assert await reading == []
    assert not offload_threads()


async def test_pause_meanwhile_keeps_the_messages(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    cluster.append("t", 0, LONG, codec=Codec.GZIP)
    consumer = await started(make_consumer)
    collector = consumer.engine.collector
    offload = GatedOffload.hold()
    reading = asyncio.ensure_future(take(consumer, COUNT, by_getmany))
    await offload.wait_begun()
    assert not collector.waiting_calls
    consumer.pause(tp(0))
    offload.may_end.set()
    await until(lambda: collector.waiting_calls, "the call waits for other partitions")
    assert not reading.done()
    consumer.resume(tp(0))
    assert [offset for offset, _ in await reading] == list(range(COUNT))
    assert offload.begun == 1


@pytest.mark.parametrize("read", [by_getmany, by_columns])
async def test_busy_partition_doesnt_keep_a_wrapper_closed(
    read: Read, cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    cluster.append("t", 0, LONG, codec=Codec.GZIP)
    cluster.append("t", 1, values(0, 1000))
    consumer = make_consumer(max_poll_records=10)
    consumer.assign([tp(0), tp(1)])
    await consumer.start()
    fetched = COUNT + 1000
    await until(lambda: consumer.metrics()["lag"] == fetched, "both partitions are fetched")
    taken = [one for _ in range(3) for one in await read(consumer)]
    assert (0, LONG[0]) in taken


async def test_revoked_partition_returns_nothing_more(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    cluster.append("t", 0, LONG, codec=Codec.GZIP)
    cluster.append("t", 1, values(0, 3))
    consumer, offload, reading = await held_reading(make_consumer, AIOKafkaConsumer.getone)
    consumer.assign([tp(1)])
    offload.may_end.set()
    record = await reading
    assert (record.partition, record.offset) == (1, 0)


async def test_calls_side_by_side_return_each_message_once(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    cluster.append("t", 0, LONG, codec=Codec.GZIP)
    consumer = await started(make_consumer)
    offload = GatedOffload.hold()
    reading = [asyncio.ensure_future(consumer.getone()) for _ in range(COUNT)]
    await offload.wait_begun()
    offload.may_end.set()
    offsets = [record.offset for record in await asyncio.gather(*reading)]
    assert sorted(offsets) == list(range(COUNT))


async def test_limit_before_the_wrapper_doesnt_open_it(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    cluster.append("t", 0, values(0, 5))
    cluster.append("t", 0, LONG, codec=Codec.GZIP)
    consumer = await started(make_consumer)
    taken: list[Any] = []
    while len(taken) < 5:
        found = await consumer.getmany(timeout_ms=1000, max_records=5 - len(taken))
        taken += found.get(tp(0), [])
    assert GatedOffload.made.begun == 0
    assert len(await take(consumer, COUNT, by_getmany)) == COUNT


async def test_getmany_returns_partitions_in_their_order(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    consumer = await started(make_consumer, 0, 1, 2)
    for partition in range(3):
        cluster.append("t", partition, LONG, codec=Codec.GZIP)
    got: dict[int, list[int]] = {0: [], 1: [], 2: []}
    while sum(map(len, got.values())) < 3 * COUNT:
        found = await consumer.getmany(tp(2), tp(0), tp(1), timeout_ms=1000, max_records=500)
        order = [one.partition for one in found]
        assert order == [partition for partition in (2, 0, 1) if partition in order]
        for one, records in found.items():
            got[one.partition] += [record.offset for record in records]
    assert list(got.values()) == 3 * [list(range(COUNT))]


@each_call
async def test_corrupt_wrapper_raises_at_its_place(
    read: Read, cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    cluster.append("t", 0, values(0, 2))
    damaged = b"\x1f\x8b\x08" + random.Random(2).randbytes(600_000)
    wrapper = encode_entry(2, None, damaged, attributes=Codec.GZIP)
    cluster.append_raw("t", 0, wrapper, next_offset=3)
    cluster.append("t", 0, values(3, 5))
    consumer = await started(make_consumer)
    assert [offset for offset, _ in await take(consumer, 2, read)] == [0, 1]
    for _ in range(2):
        with pytest.raises(CorruptRecordException) as caught:
            await read(consumer)
        assert (caught.value.offset, caught.value.next_offset) == (2, 3)
    assert GatedOffload.made.begun >= 1
    consumer.seek(tp(0), 3)
    assert [offset for offset, _ in await take(consumer, 2, read)] == [3, 4]


@pytest.mark.parametrize("paused", [0, 1])
@pytest.mark.parametrize("read", [by_getone, by_getmany])
async def test_pause_meanwhile_keeps_the_error(
    read: Read, paused: int, cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    """The call raises nothing of a partition that it must not read any more."""
    bad = LONG[0] if not paused else b"bad"

    def not_bad(value: bytes) -> bytes:
        if value == bad:
            raise ValueError("bad")
        return value

    cluster.append("t", 0, LONG, codec=Codec.GZIP)
    cluster.append("t", 1, [b"bad"] if paused else [b"good"])
    consumer = make_consumer(value_deserializer=not_bad)
    consumer.assign([tp(0), tp(1)])
    offload = GatedOffload.hold()
    await consumer.start()
    await until(lambda: consumer.metrics()["buffered_bytes"] > 1000, "both are buffered")
    reading = asyncio.create_task(read(consumer))
    await offload.wait_begun()
    consumer.pause(tp(paused))
    offload.may_end.set()
    assert await reading
    consumer.resume(tp(paused))
    with pytest.raises(ValueError, match="bad"):
        await take(consumer, 2 * COUNT, read)
