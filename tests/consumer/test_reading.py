"""What a caller gets: one, many, a walk; fairly, once, and also when calls are cancelled."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

import pytest

from aiokafka08.errors import (
    ConsumerStoppedError,
    CorruptRecordException,
    IllegalStateError,
    KafkaConfigurationError,
    RecordTooLargeError,
)
from aiokafka08.protocol.api import FetchRequest
from aiokafka08.protocol.compression import Codec, compress, decompress
from aiokafka08.protocol.message_set import MessageSetReader, encode_entry
from aiokafka08.testing import EmbeddedCluster
from tests.consumer.conftest import MakeConsumer, take, tp, values
from tests.waiting import until


@pytest.mark.both_loops
async def test_getone_gives_each_message_of_each_partition_in_order(
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


async def test_getone_waits_for_what_comes(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    consumer = make_consumer("t")
    await consumer.start()
    waiting = asyncio.create_task(consumer.getone())
    await until(lambda: consumer.metrics()["asked_bytes"] > 0)
    cluster.append("t", 2, [b"new"])
    assert (await waiting).value == b"new"


async def test_getmany_by_partition_with_limits(
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


async def test_getmany_without_a_wait_gives_others_their_turn(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    """A caller who polls in a tight loop would else never see what it polls for."""
    cluster.append("t", 0, values(0, 1))
    consumer = make_consumer("t")
    await consumer.start()
    async with asyncio.timeout(10):
        while not (got := await consumer.getmany()):
            pass
    assert list(got) == [tp(0)]


@pytest.mark.parametrize("wrong", [0, -1, True, 1.5, "3"])
async def test_max_records_is_checked(make_consumer: MakeConsumer, wrong: Any) -> None:
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


async def test_a_walk_follows_seeks_and_pauses_at_once(
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


async def test_a_call_that_is_cancelled_loses_nothing(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    """A thousand cancelled calls, at every point that they come to."""
    consumer = make_consumer("t")
    await consumer.start()
    got: list[int] = []
    cancelled = written = 0
    for turn in itertools.count():
        if cancelled == 1000:
            break
        call = asyncio.create_task(consumer.getone())
        for _ in range(turn % 5):
            await asyncio.sleep(0)
        if turn % 3 == 0:
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
async def test_other_calls_that_time_out_lose_nothing(
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
    cluster: EmbeddedCluster, make_consumer: MakeConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aiokafka08.concurrency.loop_yield.HOLD_S", 0.0)
    for _ in range(5):
        cluster.append("t", 0, values(0, 4000), codec=Codec.SNAPPY)
    consumer = make_consumer("t")
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


async def test_decoding_much_lets_others_have_their_turn(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "aiokafka08.concurrency.loop_yield.HOLD_S", 0.0002
    )  # on any machine, any twin
    for _ in range(10):
        cluster.append("t", 0, values(0, 10_000))
    consumer = make_consumer("t")
    await consumer.start()
    await until(lambda: consumer.metrics()["buffered_bytes"] > 1_000_000)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counter = asyncio.create_task(count())
    got = await consumer.getmany(timeout_ms=1000)
    counter.cancel()
    assert sum(map(len, got.values())) > 20_000
    assert turns > 3


@pytest.mark.both_loops
@pytest.mark.parametrize("call", ["getone", "getone of a partition", "getmany", "getmany_arrow"])
async def test_sets_that_decompress_to_much_are_opened_with_turns_for_others(
    cluster: EmbeddedCluster,
    make_consumer: MakeConsumer,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
) -> None:
    """Twenty wrappers of an answer, a good MiB each, with nothing inside; then a message."""
    monkeypatch.setattr("aiokafka08.concurrency.loop_yield.HOLD_S", 0.0)
    much = bytes([0x7F]) * 1_100_000  # the beginning of a message of 2 GiB
    bomb = compress(Codec.GZIP, much)
    bombs = [encode_entry(n, None, bomb, attributes=Codec.GZIP) for n in range(20)]
    cluster.append_raw("t", 0, b"".join(bombs), next_offset=20)
    cluster.append("t", 0, values(20, 21))
    turns = [0]
    opened: list[int] = []  # in which turn

    def open_one(*how: Any) -> bytes:
        opened.append(turns[0])
        return decompress(*how)

    module = MessageSetReader.__module__
    monkeypatch.setattr(f"{module}.decompress", open_one)

    async def count() -> None:
        while True:
            turns[0] += 1
            await asyncio.sleep(0)

    consumer = make_consumer()
    consumer.assign([tp(0)])
    await consumer.start()
    await until(lambda: consumer.metrics()["lag"] == 21)
    counter = asyncio.create_task(count())
    async with asyncio.timeout(20):
        if call == "getmany":
            [record] = await take(consumer, 1)
            offset = record.offset
        elif call == "getmany_arrow":
            offset = (await consumer.getmany_arrow(timeout_ms=10_000))["offset"][0].as_py()
        else:
            wanted = [tp(0)] if call == "getone of a partition" else []
            offset = (await consumer.getone(*wanted)).offset
    counter.cancel()
    assert offset == 20
    assert len(opened) == 20
    assert len(set(opened)) == 20, "several in one turn of the loop"


async def test_getmany_hands_out_what_it_has_when_it_has_decompressed_enough(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aiokafka08.consumer.collector.CALL_DECOMPRESSED_BYTES", 5_000_000)
    for _ in range(10):
        cluster.append("t", 0, [bytes(2_000_000)], codec=Codec.GZIP)
    consumer = make_consumer("t")
    await consumer.start()
    await until(lambda: consumer.metrics()["lag"] == 10)
    seen: list[int] = []
    while sum(seen) < 10:
        got = await asyncio.wait_for(consumer.getmany(timeout_ms=1000), 20)
        seen.append(sum(map(len, got.values())))
    assert max(seen) == 3


async def test_pause_keeps_what_was_fetched_and_resume_gives_it(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    cluster.append("t", 0, values(0, 5))
    consumer = make_consumer("t")
    await consumer.start()
    await until(lambda: consumer.metrics()["buffered_bytes"] > 0)
    consumer.pause(tp(0))
    assert consumer.paused() == {tp(0)}
    cluster.append("t", 1, values(0, 5))
    assert {r.partition for r in await take(consumer, 5)} == {1}
    assert await consumer.getmany(timeout_ms=50) == {}
    assert consumer.metrics()["buffered_bytes"] > 0
    asked = len(cluster.requests(FetchRequest))
    consumer.resume(tp(0))
    assert [r.offset for r in await take(consumer, 5)] == list(range(5))
    assert len(cluster.requests(FetchRequest)) <= asked + 2  # not fetched again
    consumer.pause()
    consumer.resume()
    assert consumer.paused() == set()


async def test_seek_drops_what_was_fetched_and_late_answers(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    cluster.append("t", 0, values(0, 100))
    consumer = make_consumer()
    consumer.assign([tp(0)])
    consumer.seek(tp(0), 90)  # before the start already
    await consumer.start()
    assert (await consumer.getone()).offset == 90
    for offset in (10, 50, 99, 0):
        consumer.seek(tp(0), offset)
        assert await consumer.position(tp(0)) == offset
        assert (await consumer.getone()).offset == offset
    assert await consumer.seek_to_end()
    assert await consumer.position(tp(0)) == 100
    # An idle poll is under way from 100: its answer doesn't count any more.
    await until(lambda: consumer.metrics()["asked_bytes"] > 0)
    consumer.seek(tp(0), 98)
    cluster.append("t", 0, values(100, 101))
    assert [r.offset for r in await take(consumer, 3)] == [98, 99, 100]
    assert await consumer.seek_to_beginning(tp(0))
    assert (await consumer.getone()).offset == 0


async def test_wrong_seeks_and_partitions(make_consumer: MakeConsumer) -> None:
    consumer = make_consumer()
    consumer.assign([tp(0)])
    await consumer.start()
    for wrong in (-1, "3", None, 1.0, 2**63):
        with pytest.raises(ValueError, match="offset"):
            consumer.seek(tp(0), wrong)  # type: ignore[arg-type]
    with pytest.raises(IllegalStateError):
        consumer.seek(tp(1), 0)
    with pytest.raises(IllegalStateError):
        await consumer.position(tp(1))
    with pytest.raises(IllegalStateError):
        await consumer.seek_to_end(tp(1))
    with pytest.raises(TypeError):
        await consumer.seek_to_beginning("t")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        consumer.pause("t")  # type: ignore[arg-type]
    for call in (consumer.highwater, consumer.last_poll_timestamp, consumer.last_stable_offset):
        with pytest.raises(IllegalStateError):
            call(tp(1))


async def test_partitions_named_twice_or_wrongly(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    consumer = make_consumer("t")
    await consumer.start()
    for wrong in ("t", ("t",), 0):
        with pytest.raises(TypeError, match="TopicPartition"):
            await asyncio.wait_for(consumer.getone(wrong), 5)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="TopicPartition"):
            await consumer.getmany(wrong)  # type: ignore[arg-type]
    cluster.append_raw("t", 0, wrapper_of_nothing(0), next_offset=1)
    waiting = asyncio.create_task(consumer.getone(tp(0), tp(0)))
    await until(lambda: consumer.highwater(tp(0)) == 1)
    cluster.append("t", 0, values(1, 3))
    assert (await asyncio.wait_for(waiting, 5)).offset == 1
    pair = ("t", 0)  # a plain one will do
    assert (await asyncio.wait_for(consumer.getone(pair), 5)).offset == 2  # type: ignore[arg-type]


def wrapper_of_nothing(offset: int, padding: int = 0) -> bytes:
    """A compressed set that has nothing inside; brokers store it as it comes (brokers.md 6.8)."""
    value = compress(Codec.GZIP, b"")
    return encode_entry(offset, bytes(padding), value, attributes=Codec.GZIP)


async def test_sets_without_any_message_give_their_memory_back(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    """By `getmany`, which hands out nothing of them."""
    cluster.append_raw("t", 0, wrapper_of_nothing(0, 90_000), next_offset=1)
    cluster.append("t", 0, values(1, 2))
    consumer = make_consumer(max_partition_fetch_bytes=1000, fetch_max_bytes=200_000)
    consumer.assign([tp(0)])
    await consumer.start()
    assert [r.offset for r in await take(consumer, 1)] == [1]


async def test_an_offset_that_no_offset_can_follow_is_corrupt(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    """The CRC doesn't cover the offset."""
    cluster.append("t", 0, values(0, 2))
    consumer = make_consumer()
    consumer.assign([tp(0)])
    await consumer.start()
    assert len(await take(consumer, 2)) == 2
    cluster.append_raw("t", 0, encode_entry(2**63 - 1, None, b"x"), next_offset=3)
    for _ in range(2):
        with pytest.raises(CorruptRecordException, match="partition 0, offset 2"):
            await asyncio.wait_for(consumer.getone(), 5)
    cluster.append("t", 0, values(3, 4))
    consumer.seek(tp(0), 3)
    assert (await asyncio.wait_for(consumer.getone(), 5)).value == b"3"


async def test_an_offset_above_the_high_watermark_is_corrupt_and_moves_nothing(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    cluster.append("t", 0, values(0, 2))
    cluster.append_raw("t", 0, encode_entry(1_000_000, None, b"x"), next_offset=3)
    cluster.append("t", 0, values(3, 5))
    consumer = make_consumer("t")
    await consumer.start()
    assert [r.offset for r in await take(consumer, 2)] == [0, 1]
    for _ in range(2):
        with pytest.raises(CorruptRecordException, match="partition 0, offset 2") as caught:
            await asyncio.wait_for(consumer.getone(), 5)
    assert caught.value.next_offset == 3
    assert await consumer.position(tp(0)) == 2
    assert consumer.metrics()["offset_resets"] == 0
    consumer.seek(tp(0), caught.value.next_offset)
    assert [r.value for r in await take(consumer, 2)] == [b"3", b"4"]


async def test_deserializers_and_their_errors(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    cluster.append("t", 0, [b'{"n": 0}', b'{"n": 1}', b"not json", b'{"n": 3}'])
    consumer = make_consumer("t", value_deserializer=json.loads)
    await consumer.start()
    assert [(await consumer.getone()).value for _ in range(2)] == [{"n": 0}, {"n": 1}]
    for _ in range(3):
        with pytest.raises(json.JSONDecodeError):
            await consumer.getone()
        with pytest.raises(json.JSONDecodeError):
            await consumer.getmany(timeout_ms=100)
        with pytest.raises(json.JSONDecodeError):
            await anext(consumer)
    assert await consumer.position(tp(0)) == 2
    cluster.append("t", 1, [b'"other"'])
    assert (await consumer.getone(tp(1))).value == "other"  # the others go on
    consumer.seek(tp(0), 3)
    assert (await consumer.getone()).value == {"n": 3}


async def test_a_corrupt_message_is_told_with_its_place_and_can_be_skipped(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    cluster.append("t", 0, values(0, 2))
    broken = bytearray(encode_entry(2, None, b"broken"))
    broken[-1] ^= 1
    cluster.append_raw("t", 0, bytes(broken))
    cluster.append("t", 0, values(3, 5))
    consumer = make_consumer("t")
    await consumer.start()
    assert [r.offset for r in await take(consumer, 2)] == [0, 1]
    for _ in range(2):
        with pytest.raises(CorruptRecordException) as caught:
            await consumer.getone()
    assert (caught.value.partition, caught.value.offset) == (tp(0), 2)
    assert caught.value.next_offset == 3
    consumer.seek(tp(0), caught.value.next_offset)
    assert [r.offset for r in await take(consumer, 2)] == [3, 4]


async def test_a_message_larger_than_the_limit(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    cluster.append("t", 0, [b"a", bytes(300_000), b"c"])
    consumer = make_consumer("t", max_partition_fetch_bytes=1000, fetch_max_bytes=200_000)
    await consumer.start()
    assert (await consumer.getone()).value == b"a"
    for _ in range(2):
        told = r"^RecordTooLargeError: .*offset 1 takes 300026 bytes.*fetch_max"
        with pytest.raises(RecordTooLargeError, match=told) as caught:
            await consumer.getone()
        assert caught.value.args[1:3] == (tp(0), 1)  # for programs, as aiokafka's
    consumer.seek(tp(0), 2)
    assert (await consumer.getone()).value == b"c"


async def test_messages_larger_than_a_share_are_fetched_up_to_the_limit(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    sizes = [10, 5_000, 150_000, 20, 90_000, 90_000, 30]
    for partition in range(4):
        cluster.append("t", partition, [bytes(size) for size in sizes])
    consumer = make_consumer("t", max_partition_fetch_bytes=1000, fetch_max_bytes=200_000)
    await consumer.start()
    got = await take(consumer, 4 * len(sizes))
    for partition in range(4):
        assert [len(r.value) for r in got if r.partition == partition] == sizes


async def test_a_paused_partition_that_holds_a_large_message_blocks_nobody(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    for partition in range(2):
        cluster.append("t", partition, [bytes(150_000)])
    consumer = make_consumer(max_partition_fetch_bytes=1000, fetch_max_bytes=200_000)
    consumer.assign([tp(0), tp(1)])
    await consumer.start()
    await until(lambda: consumer.metrics()["buffered_bytes"] > 150_000)
    first = next(p for p in (0, 1) if consumer.highwater(tp(p)) is not None)
    consumer.pause(tp(0), tp(1))
    consumer.resume(tp(1 - first))
    # The one has borrowed what the other needs; it was paused before the user took it.
    assert len(await take(consumer, 1)) == 1
    consumer.resume(tp(first))
    assert len(await take(consumer, 1)) == 1


async def test_one_partition_with_a_large_message_is_read_though_nobody_takes_the_other(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    for partition in range(2):
        cluster.append("t", partition, [bytes(150_000)])
    consumer = make_consumer(max_partition_fetch_bytes=1000, fetch_max_bytes=200_000)
    consumer.assign([tp(0), tp(1)])
    await consumer.start()
    await until(lambda: consumer.metrics()["buffered_bytes"] > 150_000)
    for partition in (0, 1):
        assert (await asyncio.wait_for(consumer.getone(tp(partition)), 10)).offset == 0


async def test_holes_of_compaction_are_passed(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    for partition in range(2):
        cluster.append("t", partition, values(0, 10))
    cluster.remove("t", 0, [0, 1, 4, 5, 6])
    cluster.roll_segment("t", 1)
    cluster.remove("t", 1, [5, 6, 7, 8, 9])  # the end of the log is empty
    consumer = make_consumer("t", fetch_max_bytes=1 << 17, max_partition_fetch_bytes=1 << 16)
    await consumer.start()
    got = await take(consumer, 10)
    assert [r.offset for r in got if r.partition == 0] == [2, 3, 7, 8, 9]
    assert [r.offset for r in got if r.partition == 1] == [0, 1, 2, 3, 4]
    async with asyncio.timeout(20):
        while await consumer.position(tp(1)) < 10:
            await consumer.getmany(timeout_ms=100)
    assert consumer.metrics()["lag"] == 0
    cluster.append("t", 1, values(10, 11))
    assert (await consumer.getone()).offset == 10


async def test_arrow_batches(cluster: EmbeddedCluster, make_consumer: MakeConsumer) -> None:
    cluster.append("t", 0, [b"v", None, b""], keys=[b"k", b"k2", None])
    cluster.append("t", 2, [b"w"])
    consumer = make_consumer("t")
    await consumer.start()
    assert (await consumer.getmany_arrow(tp(3))).num_rows == 0
    await until(lambda: consumer.metrics()["lag"] == 4)
    batch = await consumer.getmany_arrow(timeout_ms=1000, max_records=2)
    rest = await consumer.getmany_arrow(timeout_ms=1000)
    rows = sorted(
        (batch.to_pylist() + rest.to_pylist()), key=lambda row: (row["partition"], row["offset"])
    )
    assert batch.num_rows == 2
    assert batch.schema.names == [
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType",
    ]  # fmt: skip
    common = {"topic": "t", "timestamp": None, "timestampType": None}
    assert rows == [
        {"key": b"k", "value": b"v", "partition": 0, "offset": 0, **common},
        {"key": b"k2", "value": None, "partition": 0, "offset": 1, **common},
        {"key": None, "value": b"", "partition": 0, "offset": 2, **common},
        {"key": None, "value": b"w", "partition": 2, "offset": 0, **common},
    ]


async def test_arrow_needs_bytes_and_pyarrow(
    make_consumer: MakeConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = make_consumer("t", value_deserializer=str)
    await consumer.start()
    with pytest.raises(IllegalStateError, match="deserializers"):
        await consumer.getmany_arrow()
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(KafkaConfigurationError, match=r"aiokafka08\[arrow\]"):
        await consumer.getmany_arrow()


async def test_what_arrow_can_t_take_is_given_back(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.append("t", 0, values(0, 5))
    consumer = make_consumer("t")
    await consumer.start()

    def fail(runs: Any, columns: Any) -> Any:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr("aiokafka08.arrow.record_batch", fail)
        with pytest.raises(MemoryError):
            await consumer.getmany_arrow(timeout_ms=1000)
    assert (await consumer.getmany_arrow(timeout_ms=1000)).num_rows == 5


async def test_watermarks_lag_and_poll_times(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    consumer = make_consumer("t")
    assert not consumer.ready()
    await consumer.start()
    cluster.append("t", 0, values(0, 5))
    await until(lambda: consumer.highwater(tp(0)) == 5)
    assert consumer.metrics()["lag{t-0}"] == 5
    assert consumer.last_stable_offset(tp(0)) is None
    polled = consumer.last_poll_timestamp(tp(0))
    assert polled is not None
    assert polled > 1_700_000_000_000
    await take(consumer, 5)
    assert consumer.metrics()["lag"] == 0
    await until(consumer.ready)
    await consumer.stop()
    assert not consumer.ready()
