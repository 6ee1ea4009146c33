"""Messages that can't be returned: corrupt, too large, empty sets, failing deserializers, holes."""

from __future__ import annotations

import asyncio
import json
import re
from itertools import chain

import pytest

from aiokafka08.errors import (
    CorruptRecordException,
    RecordTooLargeError,
)
from aiokafka08.protocol.compression import Codec
from aiokafka08.protocol.message_set import encode_entry
from aiokafka08.protocol.requests.fetch import FetchRequest
from aiokafka08.telemetry import Event, PartitionFailed
from aiokafka08.testing import Corrupt, EmbeddedCluster
from tests.conformance.contract.wire.requests import bad_crc
from tests.consumer.conftest import Consumer, MakeConsumer, take, tp, values
from tests.support.waiting import until

pytestmark = pytest.mark.twins


async def test_partition_named_twice_or_wrongly(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    consumer = make_consumer("t")
    await consumer.start()
    for wrong in ("t", ("t",), 0):
        with pytest.raises(TypeError, match="TopicPartition"):
            await asyncio.wait_for(consumer.getone(wrong), 5)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="TopicPartition"):
            await consumer.getmany(wrong)  # type: ignore[arg-type]
    cluster.append("t", 0, values(0, 1))
    assert (await asyncio.wait_for(consumer.getone(tp(0), tp(0)), 5)).offset == 0
    waiting = asyncio.create_task(consumer.getone(tp(0), tp(0)))
    cluster.append("t", 0, values(1, 3))
    assert (await asyncio.wait_for(waiting, 5)).offset == 1
    pair = ("t", 0)  # a plain one will do
    assert (await asyncio.wait_for(consumer.getone(pair), 5)).offset == 2  # type: ignore[arg-type]


async def test_last_possible_offset_is_corrupt(
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


async def test_offset_above_the_watermark_keeps_the_position(
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


async def test_deserializer_errors_are_raised_until_seek(
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


async def test_corrupt_message_names_its_offset_and_can_be_skipped(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    cluster.append("t", 0, values(0, 2))
    cluster.append_raw("t", 0, bad_crc(encode_entry(2, None, b"broken")))
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


CALLS = ["getone", "getone of a partition", "getmany", "getmany_arrow", "async for"]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("call", CALLS)
async def test_damage_on_the_way_is_fetched_again(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer, call: str, codec: Codec
) -> None:
    """The CRC is wrong in one response only; nobody seeks, and no call raises."""
    cluster.append("t", 0, values(0, 3), codec=codec)
    cluster.fault(FetchRequest, then=Corrupt())
    events: list[Event] = []
    consumer = make_consumer(on_event=events.append)
    consumer.assign([tp(0)])
    await consumer.start()
    got: list[bytes | None] = []
    async with asyncio.timeout(10):
        while len(got) < 3:
            got += await read(consumer, call)
    assert got == [b"0", b"1", b"2"]
    assert await consumer.position(tp(0)) == 3
    [failed] = [one for one in events if isinstance(one, PartitionFailed)]
    assert re.fullmatch(
        r"the next message is damaged or too large; fetching it again, from offset \d",
        failed.reason,
    )


@pytest.mark.parametrize("call", CALLS)
async def test_damage_of_two_fetches_is_raised_once(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer, call: str
) -> None:
    """Without a seek the third fetch brings the message."""
    cluster.append("t", 0, values(0, 3))
    cluster.fault(FetchRequest, then=Corrupt())
    cluster.fault(FetchRequest, then=Corrupt(), where=lambda request: begins_at(request, 2))
    consumer = make_consumer()
    consumer.assign([tp(0)])
    await consumer.start()
    got: list[bytes | None] = []
    errors: list[CorruptRecordException] = []
    async with asyncio.timeout(10):
        while len(got) < 3:
            try:
                got += await read(consumer, call)
            except CorruptRecordException as error:
                assert len(got) == 2, "raised after the messages before it"
                errors.append(error)
    assert got == [b"0", b"1", b"2"]
    assert [(one.partition, one.offset) for one in errors] == [(tp(0), 2)]


async def test_damage_beside_another_partition_loses_nothing(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    for partition in (0, 2):
        cluster.append("t", partition, values(0, 3))
    consumer = make_consumer()
    consumer.assign([tp(0), tp(2)])
    cluster.fault(FetchRequest, then=Corrupt())
    await consumer.start()
    got = await take(consumer, 6)
    for partition in (0, 2):
        assert [one.offset for one in got if one.partition == partition] == [0, 1, 2]


async def test_damage_of_a_paused_partition_loses_nothing(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    cluster.append("t", 0, values(0, 3))
    cluster.fault(FetchRequest, then=Corrupt())
    consumer = make_consumer()
    consumer.assign([tp(0)])
    await consumer.start()
    assert [one.offset for one in await take(consumer, 2)] == [0, 1]
    consumer.pause(tp(0))
    assert await consumer.getmany(timeout_ms=50) == {}
    assert await consumer.position(tp(0)) == 2
    consumer.resume(tp(0))
    assert (await asyncio.wait_for(consumer.getone(), 5)).offset == 2
    assert consumer.metrics()["buffered_bytes"] == 0


async def test_damage_in_a_message_larger_than_a_share(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    """It is fetched again as a whole."""
    cluster.append("t", 0, [b"0", bytes(100_000), b"2"])
    consumer = make_consumer(max_partition_fetch_bytes=1000, fetch_max_bytes=200_000)
    consumer.assign([tp(0)])
    await consumer.start()
    assert (await asyncio.wait_for(consumer.getone(), 5)).offset == 0
    await until(lambda: consumer.metrics()["buffered_bytes"] > 100_000)
    consumer.seek(tp(0), 1)
    large = cluster.fault(
        FetchRequest, then=Corrupt(at=-60_000), where=lambda one: asks_for(one, 100_000)
    )
    for offset in (1, 2):
        assert (await asyncio.wait_for(consumer.getone(), 5)).offset == offset
    assert large.hits == 1
    assert consumer.metrics()["buffered_bytes"] == 0


def begins_at(request: FetchRequest, offset: int) -> bool:
    return any(one.fetch_offset == offset for topic in request.topics for one in topic.partitions)


def asks_for(request: FetchRequest, count: int) -> bool:
    """Whether a partition's share of the response may have this many bytes."""
    return any(one.max_bytes >= count for topic in request.topics for one in topic.partitions)


async def read(consumer: Consumer, call: str) -> list[bytes | None]:
    """Return the values that one call returns."""
    if call == "getmany":
        records = await consumer.getmany(timeout_ms=1000)
        return [one.value for one in chain.from_iterable(records.values())]
    if call == "getmany_arrow":
        return (await consumer.getmany_arrow(timeout_ms=1000))["value"].to_pylist()
    if call == "async for":
        return [(await anext(consumer)).value]
    wanted = [tp(0)] if call == "getone of a partition" else []
    return [(await consumer.getone(*wanted)).value]


async def test_message_above_the_limit_raises_until_seek(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    cluster.append("t", 0, [b"a", bytes(300_000), b"c"])
    consumer = make_consumer("t", max_partition_fetch_bytes=1000, fetch_max_bytes=200_000)
    await consumer.start()
    assert (await consumer.getone()).value == b"a"
    for _ in range(2):
        text = r"^RecordTooLargeError: .*offset 1 takes 300026 bytes.*fetch_max"
        with pytest.raises(RecordTooLargeError, match=text) as caught:
            await consumer.getone()
        assert caught.value.args[1:3] == (tp(0), 1)  # for programs, as aiokafka's
    consumer.seek(tp(0), 2)
    assert (await consumer.getone()).value == b"c"


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
