"""A consumer's records, start offsets, seek and pause, on every line of brokers."""

from __future__ import annotations

import asyncio
import time
import zlib

import pytest

from aiokafka08 import OffsetAndTimestamp, TopicPartition
from aiokafka08.errors import (
    CorruptRecordException,
    IllegalStateError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    UnknownTopicOrPartitionError,
)
from aiokafka08.protocol.compression import Codec, compress
from aiokafka08.protocol.message_set import encode_entry
from aiokafka08.telemetry import Event, OffsetReset
from tests.conformance.contract.client.broker import Broker, Consumer, read_records
from tests.conformance.contract.targets import on_targets
from tests.support.waiting import eventually, until_raised

pytestmark = [pytest.mark.both_loops, pytest.mark.twins, pytest.mark.fast]

TEN = [b"%d" % number for number in range(10)]


async def values(consumer: Consumer, count: int) -> list[object]:
    return [record.value for record in await read_records(consumer, count)]


# --- messages -------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4"])
async def test_records_equal_sent_messages(broker: Broker, codec: str | None) -> None:
    if codec == "lz4" and not broker.has_lz4:
        codec = "snappy"
    topic = await broker.create_topic(partitions=2)
    producer = await broker.producer(compression_type=codec, linger_ms=5)
    messages = [
        (b"key", b"value"),
        (None, b"no key"),
        (b"", b"empty key"),
        (b"empty value", b""),
        (b"tombstone", None),
        ("κλειδί".encode(), "värde ✓ 値".encode()),
        (b"large", bytes(range(250)) * 3600),
        (b"last", bytes(range(256)) * 20),
    ]
    begin = int(time.time() * 1000)
    futures = [await producer.send(topic, value, key, partition=1) for key, value in messages]
    await asyncio.gather(*futures)
    end = int(time.time() * 1000)
    reader = await broker.reader(topic, 0, 1)
    records = await read_records(reader, len(messages))
    assert [(one.topic, one.partition, one.offset) for one in records] == [
        (topic, 1, offset) for offset in range(len(messages))
    ]
    for record, (key, value) in zip(records, messages, strict=True):
        assert (record.key, record.value) == (key, value)
        assert record.serialized_key_size == (-1 if key is None else len(key))
        assert record.serialized_value_size == (-1 if value is None else len(value))
        assert record.headers == ()
        if broker.has_timestamps:
            assert record.timestamp is not None
            assert begin <= record.timestamp <= end
            assert record.timestamp_type == 0
        else:
            assert (record.timestamp, record.timestamp_type) == (None, None)


async def test_deserializers_are_applied(broker: Broker) -> None:
    topic = await broker.create_topic()
    producer = await broker.producer()
    await producer.send_and_wait(topic, b"17", b"key")
    await producer.send_and_wait(topic, None, b"key")
    await producer.send_and_wait(topic, b"not a number")
    reader = await broker.reader(
        topic,
        key_deserializer=lambda key: key and key.decode(),
        value_deserializer=lambda value: None if value is None else int(value),
    )
    first, second = await read_records(reader, 2)
    assert (first.key, first.value) == ("key", 17)
    assert (second.key, second.value) == ("key", None)
    for _ in range(2):
        with pytest.raises(ValueError, match="not a number"):
            await reader.getone()
    assert await reader.position(TopicPartition(topic, 0)) == 2


@on_targets(since="0.10")
async def test_timestamps_of_producer_and_broker(broker: Broker) -> None:
    an_hour_ago = int(time.time() * 1000) - 3_600_000
    producer = await broker.producer(compression_type="gzip")
    for config, kind in (({}, 0), ({"message.timestamp.type": "LogAppendTime"}, 1)):
        topic = await broker.create_topic(config=config)
        times = [an_hour_ago + 10, an_hour_ago + 5, an_hour_ago + 7]
        sent = await (await producer.send_many(topic, [b"v"] * 3, timestamps_ms=times))
        got = await read_records(await broker.reader(topic), 3)
        assert [one.timestamp_type for one in got] == [kind] * 3
        assert [one.timestamp for one in got] == [one.timestamp for one in sent]
        assert ([one.timestamp for one in got] == times) == (kind == 0)


@pytest.mark.parametrize("codec", [None, "snappy"])
async def test_many_records_arrive_in_order(broker: Broker, codec: str | None) -> None:
    """There are more records than one fetch returns and than one slice decodes."""
    topic = await broker.create_topic(partitions=2)
    wanted = [b"%d " % number + bytes(100) for number in range(4000)]
    await broker.fill(topic, wanted, partition=0, compression_type=codec)
    await broker.fill(topic, wanted, partition=1, compression_type=codec, max_batch_size=1 << 20)
    reader = await broker.reader(topic, 0, 1, max_partition_fetch_bytes=50_000)
    got: dict[int, list[bytes | None]] = {0: [], 1: []}
    while any(len(one) < len(wanted) for one in got.values()):
        for tp, records in (await reader.getmany(timeout_ms=5000)).items():
            assert [one.offset for one in records] == list(
                range(len(got[tp.partition]), len(got[tp.partition]) + len(records))
            )
            got[tp.partition] += [one.value for one in records]
    assert got == {0: wanted, 1: wanted}


async def test_waiting_getone_returns_new_record_at_once(broker: Broker) -> None:
    topic = await broker.create_topic()
    reader = await broker.reader(topic, fetch_max_wait_ms=broker.data_wait_ms)
    producer = await broker.producer()
    for number in range(3):
        waiting = asyncio.create_task(reader.getone())
        await producer.send_and_wait(topic, b"%d" % number)
        assert (await asyncio.wait_for(waiting, 15)).offset == number


# --- getone, getmany, async for -------------------------------------------------------------------


async def test_getmany_returns_available_records_within_limits(broker: Broker) -> None:
    topic = await broker.create_topic(partitions=2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    await broker.fill(topic, TEN, partition=0)
    await broker.fill(topic, TEN, partition=1)
    reader = await broker.reader(topic, 0, 1)
    some = await reader.getmany(second, timeout_ms=5000, max_records=4)
    assert {tp: [one.value for one in records] for tp, records in some.items()} == {second: TEN[:4]}
    got: list[tuple[int, object]] = []
    while len(got) < 16:
        more = await reader.getmany(timeout_ms=5000, max_records=5)
        assert 0 < sum(map(len, more.values())) <= 5
        got += [(one.partition, one.value) for records in more.values() for one in records]
    assert [value for partition, value in got if partition == 0] == TEN
    assert [value for partition, value in got if partition == 1] == TEN[4:]
    assert await reader.getmany(timeout_ms=0) == {}
    assert await reader.getmany(first, timeout_ms=10) == {}
    with pytest.raises(ValueError, match="max_records=0"):
        await reader.getmany(max_records=0)


async def test_max_poll_records_bounds_getmany(broker: Broker) -> None:
    topic = await broker.new_log(TEN)
    reader = await broker.reader(topic, max_poll_records=3)
    sizes = [len((await reader.getmany(timeout_ms=5000))[TopicPartition(topic, 0)]) for _ in "1234"]
    assert sizes == [3, 3, 3, 1]


async def test_getone_of_named_partition(broker: Broker) -> None:
    topic = await broker.create_topic(partitions=2)
    await broker.fill(topic, TEN, partition=0)
    await broker.fill(topic, TEN, partition=1)
    reader = await broker.reader(topic, 0, 1)
    for partition, value in ((1, b"0"), (0, b"0"), (1, b"1"), (1, b"2"), (0, b"1")):
        record = await asyncio.wait_for(reader.getone(TopicPartition(topic, partition)), 20)
        assert (record.partition, record.value) == (partition, value)


async def test_async_for_resumes_at_position(broker: Broker) -> None:
    topic = await broker.new_log(TEN)
    reader = await broker.reader(topic)
    got = []
    async for record in reader:
        got.append(record.value)
        if len(got) == 4:
            break
    assert (await reader.getone()).value == b"4"
    assert await reader.position(TopicPartition(topic, 0)) == 5
    async for record in reader:
        got.append(record.value)
        if record.offset == 9:
            await reader.stop()
    assert got == TEN[:4] + TEN[5:]


async def test_getone_cancelled_often_loses_nothing(broker: Broker) -> None:
    """The call is cancelled before it runs, while it waits, and just as messages arrive."""
    topic = await broker.create_topic(partitions=2)
    producer = await broker.producer()
    reader = await broker.reader(topic, 0, 1)
    got: dict[int, list[int]] = {0: [], 1: []}

    async def send() -> None:
        for number in range(200):
            await producer.send_and_wait(topic, b"v", partition=number % 2)

    sending = asyncio.create_task(send())
    cancelled = turns = 0
    while cancelled < 1000 or len(got[0]) + len(got[1]) < 200:
        turns += 1
        call = asyncio.create_task(reader.getone())
        for _ in range(turns % 9):
            await asyncio.sleep(0)
        call.cancel()
        try:
            record = await call
        except asyncio.CancelledError:
            cancelled += 1
        else:
            got[record.partition].append(record.offset)
    await sending
    assert got == {0: list(range(100)), 1: list(range(100))}


# --- start offsets --------------------------------------------------------------------------------


async def test_start_offset_follows_reset_policy(broker: Broker) -> None:
    topic = await broker.new_log(TEN)
    tp = TopicPartition(topic, 0)
    earliest = await broker.reader(topic, auto_offset_reset="earliest")
    latest = await broker.reader(topic, auto_offset_reset="latest")
    none = await broker.reader(topic, auto_offset_reset="none")
    assert await earliest.position(tp) == 0
    assert await latest.position(tp) == 10
    with pytest.raises(NoOffsetForPartitionError, match=r"seek\(\)"):
        await none.getone()
    with pytest.raises(NoOffsetForPartitionError, match=r"seek\(\)"):
        await until_raised(lambda: none.getmany(timeout_ms=500))
    none.seek(tp, 5)
    await broker.fill(topic, [b"new"])
    assert await values(earliest, 2) == [b"0", b"1"]
    assert await values(latest, 1) == [b"new"]
    assert await values(none, 1) == [b"5"]


async def test_reset_policy_defaults_to_latest(broker: Broker) -> None:
    topic = await broker.new_log(TEN)
    consumer = await broker.consumer(topic, auto_offset_reset="latest")
    assert await consumer.position(TopicPartition(topic, 0)) == 10


@pytest.mark.parametrize("codec", [None, "gzip", "snappy"])
async def test_seek_moves_position(broker: Broker, codec: str | None) -> None:
    """With a codec the ten messages are in one wrapper, which the broker returns whole."""
    topic = await broker.new_log(TEN, compression_type=codec)
    tp = TopicPartition(topic, 0)
    reader = await broker.reader(topic)
    assert await values(reader, 3) == TEN[:3]
    for offset in (7, 2, 9, 0, 5):
        reader.seek(tp, offset)
        assert await reader.position(tp) == offset
        assert await values(reader, 1) == [b"%d" % offset]
        assert await reader.position(tp) == offset + 1
    for wrong in (-1, 1.5, "1", None):
        with pytest.raises(ValueError, match="offset"):
            reader.seek(tp, wrong)  # type: ignore[arg-type]
    with pytest.raises(IllegalStateError, match="not assigned"):
        reader.seek(TopicPartition(topic, 1), 0)
    assert await values(reader, 4) == TEN[6:]


async def test_seek_to_beginning_and_end(broker: Broker) -> None:
    topic = await broker.create_topic(partitions=2)
    both = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    await broker.fill(topic, TEN, partition=0)
    await broker.fill(topic, TEN[:4], partition=1)
    reader = await broker.reader(topic, 0, 1)
    assert await reader.seek_to_end()
    assert [await reader.position(tp) for tp in both] == [10, 4]
    assert await reader.seek_to_beginning(both[1])
    assert [await reader.position(tp) for tp in both] == [10, 0]
    assert await values(reader, 4) == TEN[:4]
    assert await reader.seek_to_beginning()
    assert [await reader.position(tp) for tp in both] == [0, 0]
    assert len(await values(reader, 14)) == 14
    with pytest.raises(IllegalStateError, match="not assigned"):
        await reader.seek_to_end(TopicPartition(topic, 7))


@pytest.mark.parametrize("reset", ["earliest", "latest", "none"])
async def test_offset_out_of_range_follows_reset_policy(broker: Broker, reset: str) -> None:
    topic = await broker.new_log(TEN)
    tp = TopicPartition(topic, 0)
    events: list[Event] = []
    reader = await broker.reader(topic, auto_offset_reset=reset, on_event=events.append)
    reader.seek(tp, 1000)
    if reset == "none":
        with pytest.raises(OffsetOutOfRangeError, match="from 0 to 10"):
            await reader.getone()
        reader.seek(tp, 3)
        assert await values(reader, 1) == [b"3"]
        return
    waiting = asyncio.create_task(reader.getone())
    if reset == "latest":

        async def it_was_reset() -> bool:
            return await reader.position(tp) == 10

        await eventually(it_was_reset)
        await broker.fill(topic, [b"new"])
    assert (await waiting).value == (b"0" if reset == "earliest" else b"new")
    [reported] = [event for event in events if isinstance(event, OffsetReset)]
    assert (reported.partition, reported.old_offset) == (tp, 1000)
    assert reported.new_offset == (0 if reset == "earliest" else 10)
    assert reader.metrics()["offset_resets"] == 1


# --- offsets --------------------------------------------------------------------------------------


async def test_beginning_and_end_offsets(broker: Broker) -> None:
    topic = await broker.create_topic(partitions=2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    reader = await broker.reader(topic)
    assert await reader.beginning_offsets([first, second]) == {first: 0, second: 0}
    assert await reader.end_offsets([first, second]) == {first: 0, second: 0}
    assert await reader.position(first) == 0
    await broker.fill(topic, TEN)
    assert await reader.beginning_offsets([first]) == {first: 0}
    assert await reader.end_offsets([first, second]) == {first: 10, second: 0}
    assert await reader.position(first) == 0  # the position has not moved
    assert await values(reader, 1) == [b"0"]
    assert reader.highwater(first) == 10
    assert reader.last_stable_offset(first) is None
    polled = reader.last_poll_timestamp(first)
    assert polled is not None
    assert abs(polled - time.time() * 1000) < 20_000
    assert reader.metrics()["lag"] == 9


async def test_offsets_of_unknown_partition_raise(broker: Broker) -> None:
    topic = await broker.create_topic()
    missing = TopicPartition(topic, 5)
    reader = await broker.reader(topic)
    for call in (
        reader.end_offsets([missing]),
        reader.beginning_offsets([TopicPartition(topic, 0), missing]),
    ):
        with pytest.raises(UnknownTopicOrPartitionError, match="no partition 5"):
            await call
    assert await reader.end_offsets([]) == {}


async def test_offsets_for_times_never_skip_messages(broker: Broker) -> None:
    topic = await broker.create_topic(partitions=2)
    full, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
    await broker.fill(topic, TEN)
    reader = await broker.reader(topic)
    now = int(time.time() * 1000)
    for at in (0, 1, now - 3_600_000, now - 5_000):
        found = await reader.offsets_for_times({full: at, empty: at})
        [first] = [one for one in found.values() if one is not None]
        assert found == {full: first, empty: None}
        assert first.offset == 0
        assert (first.timestamp is not None) == broker.has_timestamps
    assert await reader.offsets_for_times({full: now + 3_600_000}) == {full: None}
    assert await reader.offsets_for_times({}) == {}
    with pytest.raises(ValueError, match="expected milliseconds from 0"):
        await reader.offsets_for_times({full: -1})


@pytest.mark.parametrize("codec", [None, "gzip"])
async def test_offsets_for_times_find_message_timestamps(broker: Broker, codec: str | None) -> None:
    topic = await broker.create_topic()
    tp, began = TopicPartition(topic, 0), int(time.time() * 1000) - 60_000
    times = [began + 1000 * number for number in (0, 4, 2, 6, 8)] if broker.has_timestamps else None
    async with broker.new_producer(compression_type=codec, linger_ms=50) as producer:
        await (await producer.send_many(topic, TEN[:5], partition=0, timestamps_ms=times))
    reader = await broker.reader(topic)
    if times is None:
        assert await reader.offsets_for_times({tp: began}) == {tp: OffsetAndTimestamp(0, None)}
        return
    for at, offset in ((0, 0), (1, 1), (4000, 1), (4001, 3), (8000, 4)):
        expected = OffsetAndTimestamp(offset, times[offset])
        assert await reader.offsets_for_times({tp: began + at}) == {tp: expected}
    assert await reader.offsets_for_times({tp: began + 8001}) == {tp: None}


# --- pause, large and corrupt messages ------------------------------------------------------------


async def test_paused_partition_returns_nothing_and_loses_nothing(broker: Broker) -> None:
    topic = await broker.create_topic(partitions=2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    await broker.fill(topic, TEN, partition=0)
    await broker.fill(topic, TEN, partition=1)
    reader = await broker.reader(topic, 0, 1)
    assert [
        one.value for one in (await reader.getmany(first, timeout_ms=5000, max_records=3))[first]
    ] == TEN[:3]
    reader.pause(first)
    assert reader.paused() == {first}
    assert await values(reader, 10) == TEN
    await broker.fill(topic, [b"more"], partition=1)
    assert [one.partition for one in await read_records(reader, 1)] == [1]
    assert await reader.getmany(timeout_ms=50) == {}
    assert await reader.position(first) == 3
    reader.resume(first)
    assert reader.paused() == set()
    assert await values(reader, 7) == TEN[3:]
    reader.pause(second)
    reader.seek(second, 4)
    assert await reader.getmany(timeout_ms=50) == {}
    reader.resume(second)
    assert await values(reader, 7) == [*TEN[4:], b"more"]


@pytest.mark.parametrize("codec", [None, "gzip"])
async def test_message_larger_than_fetch_size_is_fetched(broker: Broker, codec: str | None) -> None:
    noise = zlib.compress(bytes(range(256)) * 4, 0) * 300  # incompressible
    wanted = [b"small", b"%d" % 5 + noise, b"small too", noise[:70_000], b"last"]
    topic = await broker.create_topic()
    for value in wanted:
        await broker.fill(topic, [value], compression_type=codec)
    reader = await broker.reader(topic, max_partition_fetch_bytes=1000)
    assert await values(reader, 5) == wanted


async def test_message_larger_than_limit_raises_and_is_skippable(broker: Broker) -> None:
    topic = await broker.create_topic()
    for value in (b"before", bytes(60_000), b"after"):
        await broker.fill(topic, [value])
    reader = await broker.reader(topic, max_partition_fetch_bytes=1000, fetch_max_bytes=20_000)
    assert await values(reader, 1) == [b"before"]
    text = rf"{topic}.*offset 1.*20000 .*seek\(\)"
    with pytest.raises(RecordTooLargeError, match=text):
        await reader.getone()
    with pytest.raises(RecordTooLargeError, match=text):  # raised again, by the end of a call
        await until_raised(lambda: reader.getmany(timeout_ms=500), timeout_s=30)
    reader.seek(TopicPartition(topic, 0), 2)
    assert await values(reader, 1) == [b"after"]


@on_targets(below="0.10")
async def test_corrupt_message_raises_and_is_skippable(broker: Broker) -> None:
    """These lines keep a wrapper with a wrong inner CRC; later ones convert its messages."""
    topic = await broker.new_log([b"before"])
    inner = bytearray(encode_entry(0, None, b"good") + encode_entry(1, None, b"damaged"))
    inner[-1] ^= 1
    wrapper = encode_entry(0, None, compress(Codec.GZIP, inner), attributes=Codec.GZIP)
    await broker.append_raw(topic, wrapper)
    await broker.fill(topic, [b"after"])
    reader = await broker.reader(topic)
    assert await values(reader, 2) == [b"before", b"good"]
    with pytest.raises(CorruptRecordException):
        await reader.getone()
    with pytest.raises(CorruptRecordException) as caught:
        await until_raised(lambda: reader.getmany(timeout_ms=500), timeout_s=30)
    tp = TopicPartition(topic, 0)
    error = caught.value
    assert (error.partition, error.offset, error.next_offset) == (tp, 2, 3)
    reader.seek(tp, 3)
    assert await values(reader, 1) == [b"after"]
    careless = await broker.reader(topic, check_crcs=False)
    assert await values(careless, 4) == [b"before", b"good", b"damagee", b"after"]


async def test_consumer_metrics(broker: Broker) -> None:
    topic = await broker.new_log(TEN)
    reader = await broker.reader(topic)
    await read_records(reader, 10)
    assert reader.ready()
    metrics = reader.metrics()
    assert metrics["messages_consumed"] == 10
    assert metrics["assigned_partitions"] == 1
    assert metrics["lag"] == metrics[f"lag{{{topic}-0}}"] == 0
    assert metrics["buffered_bytes"] == 0
    assert metrics["bytes_fetched"] > 10 * 26
    assert metrics["fetch_requests"] >= 1
    await reader.stop()
    assert not reader.ready()
    assert reader.metrics()["messages_consumed"] == 10
