"""Damage at or behind the end of what a set returns: no call waits for ever, none is silent."""

from __future__ import annotations

import asyncio
import struct
from functools import partial
from itertools import chain

import pytest

from aiokafka08._core.ranges.next_fetch import FAILED_READ_TRIES
from aiokafka08.consumer.limits import ConsumerLimits
from aiokafka08.errors import CorruptRecordException
from aiokafka08.protocol.compression import Codec, compress
from aiokafka08.protocol.message_set import encode_entry
from aiokafka08.protocol.requests.fetch import FetchRequest
from aiokafka08.testing import Answer, EmbeddedCluster
from tests.conformance.contract.wire.requests import bad_crc, nested, wrapper
from tests.consumer.conftest import Consumer, MakeConsumer, tp
from tests.support.waiting import until_raised

pytestmark = pytest.mark.twins

CALLS = [
    "getone",
    "getone of a partition",
    "async for",
    "getmany",
    "getmany of 1",
    "getmany of 2",
    "getmany_arrow",
    "getmany_arrow of 1",
    "getmany_arrow of 2",
]


def good(*offsets: int) -> bytes:
    return b"".join(encode_entry(offset, None, b"%d" % offset) for offset in offsets)


async def offsets_of(consumer: Consumer, call: str, timeout_ms: int = 5000) -> list[int]:
    """Return the offsets that one call returns; fail if it takes long."""
    async with asyncio.timeout(6):
        name, _, limit = call.partition(" of ")
        max_records = int(limit) if limit.isdigit() else None
        if name == "getmany":
            records = await consumer.getmany(timeout_ms=timeout_ms, max_records=max_records)
            return [one.offset for one in chain.from_iterable(records.values())]
        if name == "getmany_arrow":
            batch = await consumer.getmany_arrow(timeout_ms=timeout_ms, max_records=max_records)
            return list(batch["offset"].to_pylist())
        if name == "async for":
            return [(await anext(aiter(consumer))).offset]
        return [(await consumer.getone(*([tp(0)] if limit else []))).offset]


async def read_until_error(
    consumer: Consumer, call: str
) -> tuple[list[int], CorruptRecordException]:
    got: list[int] = []
    while True:
        try:
            returned = await offsets_of(consumer, call)
        except CorruptRecordException as error:
            return got, error
        assert returned, "the call ended without an error"
        got += returned


def entry_of_size(offset: int, size: int) -> bytes:
    """Return an entry whose size field was damaged."""
    return struct.pack(">qi", offset, size) + good(offset)[12:]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("size", [0, 13, -1])
async def test_damaged_size_behind_good_messages_is_raised(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer, call: str, size: int
) -> None:
    """The error has the position, whatever the damaged bytes say."""
    damaged = bytes(4000) if not size else entry_of_size(7_000_000, size)
    cluster.append_raw("t", 0, good(0, 1), next_offset=2)
    cluster.append_raw("t", 0, damaged, next_offset=3)
    cluster.append_raw("t", 0, good(3, 4), next_offset=5)
    consumer = make_consumer()
    consumer.assign([tp(0)])
    await consumer.start()
    got, error = await read_until_error(consumer, call)
    assert got == [0, 1]
    assert (error.partition, error.offset, error.next_offset) == (tp(0), 2, None)
    assert "seek() to a clearly later offset" in error.text
    assert await consumer.position(tp(0)) == 2
    with pytest.raises(CorruptRecordException, match="offset 2"):
        await until_raised(partial(offsets_of, consumer, call, timeout_ms=100))
    consumer.seek(tp(0), 3)
    assert await offsets_of(consumer, call)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("is_last", [True, False], ids=["last", "between"])
async def test_message_whose_offset_falls_is_raised(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer, call: str, is_last: bool
) -> None:
    """Behind the message before it; at the end of the log too, before the next one comes."""
    other = encode_entry(0, None, b"other")
    cluster.append_raw("t", 0, good(0) + other, next_offset=1)
    if not is_last:
        cluster.append_raw("t", 0, good(1), next_offset=2)
    consumer = make_consumer(fetch_max_wait_ms=50)
    consumer.assign([tp(0)])
    await consumer.start()
    got, error = await read_until_error(consumer, call)
    assert got == [0]
    assert (error.partition, error.offset, error.next_offset) == (tp(0), 1, 1)
    assert "a message in front of it" in error.text
    assert await consumer.position(tp(0)) == 1
    if is_last:
        cluster.append_raw("t", 0, good(1), next_offset=2)
    with pytest.raises(CorruptRecordException, match="offset 1"):
        await until_raised(partial(offsets_of, consumer, call, timeout_ms=100))
    consumer.seek(tp(0), 1)
    assert await offsets_of(consumer, call) == [1]


@pytest.mark.parametrize("call", ["getone", "getmany", "getmany_arrow"])
async def test_broker_that_fails_at_the_damage_confirms_it(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer, call: str
) -> None:
    """A real broker reads over the damage when it looks for the offset, and responds -1."""
    cluster.append_raw("t", 0, good(0, 1) + bytes(400), next_offset=3)
    cluster.fault(
        FetchRequest,
        then=Answer(-1),
        times=None,
        where=lambda one: one.topics[0].partitions[0].fetch_offset == 2,
    )
    consumer = make_consumer()
    consumer.assign([tp(0)])
    await consumer.start()
    got, error = await read_until_error(consumer, call)
    assert got == [0, 1]
    assert (error.partition, error.offset) == (tp(0), 2)


async def test_broker_that_fails_at_an_offset_is_explained(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    """Without a sight of damaged bytes: the consumer has begun there."""
    cluster.append_raw("t", 0, good(0, 1), next_offset=2)
    cluster.fault(FetchRequest, then=Answer(-1), times=None)
    consumer = make_consumer(retry_backoff_ms=1, parts={"limits": ConsumerLimits(max_tries=4)})
    consumer.assign([tp(0)])
    await consumer.start()
    text = r"offset 0: .*\(error -1; its log says why\).*seek\(\) to a clearly later offset"
    with pytest.raises(CorruptRecordException, match=text) as caught:
        await asyncio.wait_for(consumer.getone(), 30)
    assert (caught.value.partition, caught.value.offset) == (tp(0), 0)


@pytest.mark.parametrize("call", ["getone", "getmany", "getmany_arrow"])
async def test_broker_that_fails_behind_its_watermark_is_asked_few_times(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer, call: str
) -> None:
    """No new leader fails so: the log has the offset."""
    cluster.append_raw("t", 0, good(0, 1) + bytes(400), next_offset=7)
    cluster.append("t", 0, [b"7"])
    consumer = make_consumer()
    consumer.assign([tp(0)])
    await consumer.start()
    assert (await consumer.getone()).offset == 0
    consumer.seek(tp(0), 5)
    fault = cluster.fault(
        FetchRequest,
        then=Answer(-1),
        times=None,
        where=lambda one: one.topics[0].partitions[0].fetch_offset == 5,
    )
    with pytest.raises(CorruptRecordException, match="offset 5"):
        await offsets_of(consumer, call)
    assert fault.hits == FAILED_READ_TRIES
    fault.cancel()
    consumer.seek(tp(0), 7)
    assert await offsets_of(consumer, call) == [7]


@pytest.mark.parametrize("call", CALLS)
async def test_damage_at_the_end_of_a_wrapper_is_raised(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer, call: str
) -> None:
    """Behind its last message, whose offset is that of the wrapper. Then reading goes on."""
    inside = good(0, 1, 2) + entry_of_size(0, 5)
    wrapper = encode_entry(2, None, compress(Codec.GZIP, inside), attributes=Codec.GZIP)
    cluster.append_raw("t", 0, wrapper, next_offset=3)
    cluster.append_raw("t", 0, good(3), next_offset=4)
    consumer = make_consumer()
    consumer.assign([tp(0)])
    await consumer.start()
    got, error = await read_until_error(consumer, call)
    assert got in ([], [0, 1, 2])
    assert error.partition == tp(0)
    assert error.next_offset == 3
    consumer.seek(tp(0), error.next_offset)
    assert await offsets_of(consumer, call) == [3]


@pytest.mark.parametrize("call", CALLS)
async def test_position_passes_a_shared_offset_with_its_last_message(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer, call: str
) -> None:
    cluster.append_raw("t", 0, good(0) + nested(1, 5) + good(2), next_offset=3)
    consumer = make_consumer()
    consumer.assign([tp(0)])
    await consumer.start()
    got: list[int] = []
    while len(got) < 7:
        got += await offsets_of(consumer, call)
        expected = 3 if len(got) == 7 else 2 if len(got) == 6 else 1
        assert await consumer.position(tp(0)) == expected
    assert got == [0, 1, 1, 1, 1, 1, 2]


@pytest.mark.parametrize("slices", [1, 2, 3, 4, 5])
async def test_calls_in_turn_return_a_shared_offset_once(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer, slices: int
) -> None:
    """Records and columns of the same set, each with a limit."""
    cluster.append_raw("t", 0, nested(0, 5) + nested(1, 4) + good(2), next_offset=3)
    consumer = make_consumer()
    consumer.assign([tp(0)])
    await consumer.start()
    got: list[bytes | None] = []
    async with asyncio.timeout(10):
        while len(got) < 10:
            records = await consumer.getmany(timeout_ms=1000, max_records=slices)
            got += [one.value for one in chain.from_iterable(records.values())]
            if len(got) < 10:
                got.append((await consumer.getone()).value)
            if len(got) < 10:
                batch = await consumer.getmany_arrow(timeout_ms=1000, max_records=slices)
                got += batch["value"].to_pylist()
    assert got == [b"0", b"1", b"2", b"3", b"4", b"0", b"1", b"2", b"3", b"2"]
    assert await consumer.position(tp(0)) == 3
    assert consumer.metrics()["buffered_bytes"] == 0


async def test_commit_within_a_shared_offset_repeats_it(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    """At least once: nothing is lost after a restart."""
    cluster.append_raw("t", 0, good(0) + nested(1, 5) + good(2), next_offset=3)
    options = {"group_id": "g", "offsets_storage": "kafka", "enable_auto_commit": False}
    first = make_consumer(**options)
    first.assign([tp(0)])
    await first.start()
    assert [await offsets_of(first, "getone") for _ in range(2)] == [[0], [1]]
    await first.commit()
    await first.stop()
    second = make_consumer(**options)
    second.assign([tp(0)])
    await second.start()
    assert [(await offsets_of(second, "getone"))[0] for _ in range(6)] == [1] * 5 + [2]


@pytest.mark.parametrize("call", CALLS)
async def test_damage_within_a_shared_offset_is_raised_again(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer, call: str
) -> None:
    """Each attempt returns the messages before it again, and then says how to go on."""
    plain = good(0) + bad_crc(good(1))
    twice = wrapper(Codec.GZIP, wrapper(Codec.GZIP, plain, offset=1), offset=1)
    cluster.append_raw("t", 0, good(0) + twice + good(2), next_offset=3)
    consumer = make_consumer(retry_backoff_ms=1)
    consumer.assign([tp(0)])
    await consumer.start()
    assert (await consumer.getone()).offset == 0
    for _ in range(3):
        got, error = await read_until_error(consumer, call)
        assert set(got) <= {1}
        assert len(got) <= 2
        assert (error.offset, error.next_offset) == (1, 2)
    consumer.seek(tp(0), 2)
    assert await offsets_of(consumer, call) == [2]
