"""What a producer's messages become in the log, on every line of brokers."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter

import pytest

from aiokafka08.errors import (
    IllegalArgumentError,
    InvalidTopicError,
    MessageSizeTooLargeError,
    ProducerClosed,
    UnknownTopicOrPartitionError,
    UnsupportedCodecError,
    UnsupportedVersionError,
)
from aiokafka08.partitioner import murmur2
from aiokafka08.structs import RecordMetadata, TopicPartition
from aiokafka08.telemetry import BatchFailed, Connected, Event
from tests.conformance.contract.client.broker import AUTO_PARTITIONS, Broker
from tests.conformance.contract.targets import on_targets
from tests.support.waiting import eventually

pytestmark = [pytest.mark.both_loops, pytest.mark.twins, pytest.mark.fast]

CODECS = {None: 0, "gzip": 1, "snappy": 2, "lz4": 3}
JAVA_MURMUR2 = {  # from Kafka's own UtilsTest
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
BAD_NAMES = ["", ".", "..", "a b", "a/b", "ü", "x" * 256]


# --- messages -------------------------------------------------------------------------------------


async def test_log_has_messages_as_sent(broker: Broker) -> None:
    topic = await broker.create_topic(partitions=2)
    producer = await broker.producer()
    messages = [
        (b"key", b"value"),
        (None, b"no key"),
        (b"", b"empty key"),
        (b"empty value", b""),
        (b"tombstone", None),
        (None, b""),
        ("κλειδί".encode(), "värde ✓ 値".encode()),
        (bytes(range(256)), bytes(range(256)) * 20),
    ]
    for number, (key, value) in enumerate(messages):
        sent = await producer.send_and_wait(topic, value, key, partition=1)
        assert sent[:4] == (topic, 1, TopicPartition(topic, 1), number)
        assert sent.log_start_offset is None
    log = await broker.log(topic, 1)
    assert [(one.offset, one.key, one.value) for one in log] == [
        (offset, key, value) for offset, (key, value) in enumerate(messages)
    ]
    assert await broker.log(topic, 0) == []


async def test_large_messages_are_stored(broker: Broker) -> None:
    topic = await broker.create_topic()
    producer = await broker.producer()
    large = bytes(range(250)) * 3600  # 900 kB
    first, second = await asyncio.gather(
        producer.send_and_wait(topic, large), producer.send_and_wait(topic, b"small", large[:50])
    )
    assert {first.offset, second.offset} == {0, 1}
    assert await broker.values(topic) == [large, b"small"]


@pytest.mark.parametrize("codec", CODECS)
async def test_every_codec_of_the_line(broker: Broker, codec: str | None) -> None:
    if codec == "lz4" and not broker.has_lz4:
        await broker.create_topic()
        with pytest.raises(UnsupportedCodecError, match=r"from 0\.8\.2 on"):
            await broker.producer(compression_type=codec)
        return
    topic = await broker.create_topic()
    producer = await broker.producer(compression_type=codec, linger_ms=10)
    values = [b"value %d " % number * 20 for number in range(200)]
    futures = [await producer.send(topic, value, b"%d" % len(value)) for value in values]
    assert [(await future).offset for future in futures] == list(range(200))
    log = await broker.log(topic)
    assert [(one.key, one.value) for one in log] == [(b"%d" % len(v), v) for v in values]
    assert {one.codec for one in log} == {CODECS[codec]}


@on_targets(below="0.8.2")
async def test_lz4_without_any_topic_is_refused_by_the_first_send(broker: Broker) -> None:
    """Before the first topic, 0.8.1 and 0.8.2 can't be told apart."""

    async def start_and_send() -> None:
        producer = await broker.producer(compression_type="lz4")
        await producer.send_and_wait(broker.unique_topic(), b"value")

    with pytest.raises(UnsupportedCodecError, match=r"from 0\.8\.2 on"):
        await start_and_send()


async def test_serializers_are_applied(broker: Broker) -> None:
    topic = await broker.create_topic()
    producer = await broker.producer(
        key_serializer=str.encode, value_serializer=lambda v: b"%d" % v
    )
    await producer.send_and_wait(topic, 7, "seven")
    [one] = await broker.log(topic)
    assert (one.key, one.value) == (b"seven", b"7")


async def test_headers_raise(broker: Broker) -> None:
    producer = await broker.producer()
    with pytest.raises(UnsupportedVersionError, match="headers need message format 2"):
        await producer.send(broker.unique_topic(), b"v", headers=[("name", b"value")])


# --- acknowledgements, order ----------------------------------------------------------------------


@pytest.mark.parametrize("acks", [0, 1, "all"])
async def test_every_acks_value_stores_messages(broker: Broker, acks: int | str) -> None:
    topic = await broker.create_topic()
    producer = await broker.producer(acks=acks)
    sent = [await producer.send_and_wait(topic, b"%d" % number) for number in range(20)]
    if acks == 0:
        assert sent == [None] * 20
    else:
        assert [one.offset for one in sent] == list(range(20))
    await producer.flush()
    assert await broker.values(topic) == [b"%d" % number for number in range(20)]
    assert producer.metrics()["messages_sent"] == 20


async def test_acks_above_replicas(broker: Broker) -> None:
    """Brokers from 0.9 on reject such numbers; older ones accept them."""
    if broker.version < (0, 9):
        await broker.producer(acks=2)
        return
    with pytest.raises(UnsupportedVersionError, match=r"acks=2 needs brokers of the 0\.8 lines"):
        await broker.producer(acks=2)


async def test_log_has_order_of_sends(broker: Broker) -> None:
    """No send waits for another: many requests are in flight, to three partitions at once."""
    topic = await broker.create_topic(partitions=3)
    producer = await broker.producer(max_batch_size=500, compression_type="snappy")
    futures = [
        await producer.send(topic, b"%d" % number, partition=number % 3) for number in range(1500)
    ]
    sent = await asyncio.gather(*futures)
    assert [one.partition for one in sent] == [number % 3 for number in range(1500)]
    assert [one.offset for one in sent] == [number // 3 for number in range(1500)]
    for partition in range(3):
        wanted = [b"%d" % number for number in range(partition, 1500, 3)]
        assert await broker.values(topic, partition) == wanted


async def test_flush_waits_for_all_sends(broker: Broker) -> None:
    topic = await broker.create_topic()
    producer = await broker.producer(linger_ms=60_000)
    futures = [await producer.send(topic, b"%d" % number) for number in range(10)]
    assert not any(future.done() for future in futures)
    await producer.flush()
    assert all(future.done() for future in futures)
    assert len(await broker.log(topic)) == 10


# --- topics and partitions ------------------------------------------------------------------------


async def test_first_send_creates_topic(broker: Broker) -> None:
    topic = broker.unique_topic("auto")
    producer = await broker.producer()
    sent = await asyncio.gather(*[producer.send_and_wait(topic, b"%d" % n) for n in range(30)])
    assert await producer.partitions_for(topic) == set(range(AUTO_PARTITIONS))
    places = Counter(one.partition for one in sent)
    for partition in range(AUTO_PARTITIONS):
        assert len(await broker.log(topic, partition)) == places[partition]


async def test_partitions_for_unknown_topic_creates_it(broker: Broker) -> None:
    producer = await broker.producer()
    assert await producer.partitions_for(broker.unique_topic()) == set(range(AUTO_PARTITIONS))


async def test_unknown_partition_raises(broker: Broker) -> None:
    topic = await broker.create_topic(partitions=2)
    producer = await broker.producer()
    with pytest.raises(UnknownTopicOrPartitionError, match=r"no partition 2; it has 0, 1"):
        await producer.send(topic, b"v", partition=2)
    with pytest.raises(IllegalArgumentError, match="partition=-1"):
        await producer.send(topic, b"v", partition=-1)
    assert (await producer.send_and_wait(topic, b"v", partition=1)).offset == 0


async def test_invalid_topic_name_fails_only_its_message(broker: Broker) -> None:
    topic = broker.unique_topic()
    producer = await broker.producer()
    good = asyncio.create_task(producer.send_and_wait(topic, b"v"))
    for name in BAD_NAMES:
        with pytest.raises(InvalidTopicError):
            await producer.send(name, b"v")
        with pytest.raises(InvalidTopicError):
            await producer.partitions_for(name)
    assert (await good).offset == 0


# --- size limits ----------------------------------------------------------------------------------


async def test_message_above_client_limit_raises_at_once(broker: Broker) -> None:
    topic = await broker.create_topic()
    producer = await broker.producer(max_request_size=10_000)
    with pytest.raises(MessageSizeTooLargeError, match="max_request_size=10000"):
        await producer.send(topic, bytes(10_000))
    with pytest.raises(MessageSizeTooLargeError, match="message 1"):
        await producer.send_many(topic, [b"v", bytes(10_000), b"v"])
    await producer.send_and_wait(topic, b"next")
    assert await broker.values(topic) == [b"next"]


async def test_message_above_broker_limit_fails_alone(broker: Broker) -> None:
    topic = await broker.create_topic(partitions=2)
    producer = await broker.producer(max_request_size=3_000_000, linger_ms=20)
    futures = [
        await producer.send(topic, value, partition=partition)
        for value, partition in [(b"a", 0), (bytes(1_100_000), 0), (b"b", 0), (b"c", 1)]
    ]
    results = await asyncio.gather(*futures, return_exceptions=True)
    assert isinstance(results[1], MessageSizeTooLargeError)
    assert [getattr(one, "offset", None) for one in results] == [0, None, 1, 0]
    assert await broker.values(topic) == [b"a", b"b"]


async def test_batch_too_large_for_broker_is_split(broker: Broker) -> None:
    """As one wrapper the messages exceed the broker's limit of 1,000,012 bytes."""
    topic = await broker.create_topic()
    producer = await broker.producer(
        max_request_size=4_000_000, max_batch_size=4_000_000, compression_type="gzip", linger_ms=50
    )
    noise = [random.Random(seed).randbytes(300_000) for seed in range(6)]
    futures = [await producer.send(topic, value) for value in noise]
    assert [(await future).offset for future in futures] == list(range(6))
    assert await broker.values(topic) == noise


# --- send_many, batches ---------------------------------------------------------------------------


async def test_send_many_spreads_and_keeps_order(broker: Broker) -> None:
    topic = await broker.create_topic(partitions=3)
    producer = await broker.producer(max_batch_size=1000)
    keys = [b"%d" % (number % 10) for number in range(1000)]
    values = [b"%d" % number for number in range(1000)]
    sent = await (await producer.send_many(topic, values, keys))
    assert [one.partition for one in sent] == [(murmur2(k) & 0x7FFFFFFF) % 3 for k in keys]
    for partition in range(3):
        here = [n for n, one in enumerate(sent) if one.partition == partition]
        assert [sent[n].offset for n in here] == list(range(len(here)))
        assert await broker.values(topic, partition) == [values[n] for n in here]


async def test_send_many_beyond_memory_waits_for_room(broker: Broker) -> None:
    topic = await broker.create_topic()
    producer = await broker.producer(buffer_memory=50_000, max_batch_size=5_000)
    values = [b"%06d" % number + bytes(200) for number in range(2000)]
    deliveries = await producer.send_many(topic, values, partition=0)
    assert len(deliveries) == 2000
    assert [one.offset for one in await deliveries] == list(range(2000))
    assert await broker.values(topic) == values
    assert producer.metrics()["buffer_used_bytes"] == 0


@pytest.mark.parametrize("codec", [None, "gzip"])
async def test_batch_built_by_caller(broker: Broker, codec: str | None) -> None:
    topic = await broker.create_topic(partitions=2)
    producer = await broker.producer(compression_type=codec, max_batch_size=1000)
    batch = producer.create_batch()
    count = 0
    while batch.append(key=b"k", value=b"%d" % count, timestamp=None) is not None:
        count += 1
    assert count == batch.record_count() > 10
    await producer.send_and_wait(topic, b"before", partition=1)
    future = await producer.send_batch(batch, topic, partition=1)
    await producer.send_and_wait(topic, b"after", partition=1)
    sent = await future
    assert isinstance(sent, RecordMetadata)
    assert (sent.partition, sent.offset) == (1, 1)
    values = [b"before", *(b"%d" % n for n in range(count)), b"after"]
    assert await broker.values(topic, 1) == values
    empty = producer.create_batch()
    assert await (await producer.send_batch(empty, topic, partition=0)) is None


# --- partitioners ---------------------------------------------------------------------------------


async def test_keys_map_to_partitions_as_in_java(broker: Broker) -> None:
    topic = await broker.create_topic(partitions=3)
    producer = await broker.producer()
    for key, java_hash in JAVA_MURMUR2.items():
        sent = await producer.send_and_wait(topic, b"v", key)
        assert sent.partition == (java_hash & 0x7FFFFFFF) % 3
    for number in range(20):
        key = b"key %d" % number
        places = {(await producer.send_and_wait(topic, b"v", key)).partition for _ in range(2)}
        assert places == {(murmur2(key) & 0x7FFFFFFF) % 3}


async def test_partitioners_named_and_custom(broker: Broker) -> None:
    topic = await broker.create_topic(partitions=3)
    in_turn = await broker.producer(partitioner="round_robin")
    places = [(await in_turn.send_and_wait(topic, b"v")).partition for _ in range(6)]
    assert sorted(places[:3]) == [0, 1, 2]
    assert places[:3] == places[3:]
    last = await broker.producer(partitioner=lambda key, everything, available: everything[-1])
    assert (await last.send_and_wait(topic, b"v", b"k")).partition == 2


# --- timestamps -----------------------------------------------------------------------------------


async def test_timestamps_follow_the_line(broker: Broker) -> None:
    topic = await broker.create_topic()
    producer = await broker.producer()
    begin = int(time.time() * 1000)
    sent = await producer.send_and_wait(topic, b"now")
    end = int(time.time() * 1000)
    [logged] = await broker.log(topic)
    if not broker.has_timestamps:
        assert (sent.timestamp, sent.timestamp_type, logged.timestamp) == (None, None, None)
        return
    assert sent.timestamp == logged.timestamp
    assert sent.timestamp is not None
    assert begin <= sent.timestamp <= end
    assert sent.timestamp_type == 0


async def test_timestamp_given_by_caller(broker: Broker) -> None:
    topic = await broker.create_topic()
    producer = await broker.producer()
    an_hour_ago = int(time.time() * 1000) - 3_600_000
    if not broker.has_timestamps:
        with pytest.raises(UnsupportedVersionError, match=r"from 0\.10 on"):
            await producer.send(topic, b"v", timestamp_ms=an_hour_ago)
        with pytest.raises(UnsupportedVersionError, match=r"from 0\.10 on"):
            await producer.send_many(topic, [b"v"], timestamps_ms=[an_hour_ago])
        with pytest.raises(UnsupportedVersionError, match=r"from 0\.10 on"):
            producer.create_batch().append(key=None, value=b"v", timestamp=an_hour_ago)
        assert (await producer.send_and_wait(topic, b"v")).offset == 0
        return
    sent = await producer.send_and_wait(topic, b"v", timestamp_ms=an_hour_ago)
    assert (sent.timestamp, sent.timestamp_type) == (an_hour_ago, 0)
    times = [an_hour_ago + 10, an_hour_ago + 5, an_hour_ago + 7]
    many = await (await producer.send_many(topic, [b"v"] * 3, timestamps_ms=times))
    assert [one.timestamp for one in many] == times
    assert [one.timestamp for one in await broker.log(topic)] == [an_hour_ago, *times]


@on_targets(since="0.10")
@pytest.mark.parametrize("codec", [None, "snappy"])
async def test_log_append_timestamps(broker: Broker, codec: str | None) -> None:
    topic = await broker.create_topic(config={"message.timestamp.type": "LogAppendTime"})
    producer = await broker.producer(compression_type=codec)
    an_hour_ago = int(time.time() * 1000) - 3_600_000
    sent = await producer.send_and_wait(topic, b"v", timestamp_ms=an_hour_ago)
    assert sent.timestamp_type == 1
    assert sent.timestamp is not None
    assert sent.timestamp > an_hour_ago + 3_000_000
    [logged] = await broker.log(topic)
    assert logged.timestamp == sent.timestamp


# --- events, stop ---------------------------------------------------------------------------------


async def test_producer_events_and_metrics(broker: Broker) -> None:
    topic = await broker.create_topic()
    events: list[Event] = []
    producer = await broker.producer(on_event=events.append, max_request_size=2_000_000)
    assert producer.ready()
    await asyncio.gather(*[producer.send_and_wait(topic, b"v") for _ in range(5)])
    with pytest.raises(MessageSizeTooLargeError):
        await producer.send_and_wait(topic, bytes(1_100_000))
    metrics = producer.metrics()
    assert (metrics["messages_sent"], metrics["messages_failed"]) == (5, 1)
    assert metrics["buffer_used_bytes"] == metrics["requests_in_flight"] == 0
    assert metrics["requests_sent"] >= 2
    assert metrics["bytes_sent"] > 1_100_000
    kinds = {type(event) for event in events}
    assert {Connected, BatchFailed} <= kinds
    assert metrics["connections_opened"] == sum(type(event) is Connected for event in events)
    await producer.stop()
    assert not producer.ready()
    assert producer.metrics()["messages_sent"] == 5


async def test_pinned_version_is_not_probed(broker: Broker) -> None:
    topic = await broker.create_topic()
    line = ".".join(map(str, broker.version[:3]))
    for pinned in ("0.8.0", line, broker.version):
        producer = await broker.producer(api_version=pinned)
        sent = await producer.send_and_wait(topic, b"v")
        assert (sent.timestamp is not None) == (pinned != "0.8.0" and broker.has_timestamps)
    assert len(await broker.log(topic)) == 3


async def test_stop_sends_what_is_buffered(broker: Broker) -> None:
    topic = await broker.create_topic(partitions=3)
    producer = await broker.producer(linger_ms=60_000)
    futures = [await producer.send(topic, b"v", partition=n % 3) for n in range(30)]
    await producer.stop()
    assert {(await future).offset for future in futures} == set(range(10))
    with pytest.raises(ProducerClosed):
        await producer.send(topic, b"v")
    await producer.stop()


async def test_stop_fails_sends_waiting_for_memory(broker: Broker) -> None:
    topic = await broker.create_topic()
    producer = await broker.producer(buffer_memory=20_000, max_batch_size=5_000)
    many = asyncio.create_task(producer.send_many(topic, [bytes(1000)] * 5000))
    flushing = asyncio.create_task(producer.flush())

    async def it_waits() -> bool:  # for memory: the first messages are stored
        metrics = producer.metrics()
        return metrics["senders_waiting"] > 0 and metrics["messages_sent"] > 0

    await eventually(it_waits)
    await producer.stop()
    with pytest.raises(ProducerClosed):
        await many
    await flushing
    logged = len(await broker.log(topic))
    assert logged == producer.metrics()["messages_sent"]
    assert 0 < logged < 5000


async def test_stop_with_all_calls_in_progress(broker: Broker) -> None:
    """Each call returns a result or raises `ProducerClosed`; acknowledged messages are stored."""
    topic = await broker.create_topic()
    producer = await broker.producer()
    sends = [asyncio.create_task(producer.send_and_wait(topic, b"%d" % n)) for n in range(100)]
    calls = [
        asyncio.create_task(producer.partitions_for(broker.unique_topic())),
        asyncio.create_task(producer.send_and_wait(broker.unique_topic(), b"v")),
        asyncio.create_task(producer.flush()),
    ]
    await asyncio.sleep(0)
    await asyncio.gather(producer.stop(), producer.stop())
    ends = await asyncio.gather(*sends, *calls, return_exceptions=True)
    assert all(not isinstance(end, BaseException) or type(end) is ProducerClosed for end in ends)
    values = await broker.values(topic)
    for number, end in enumerate(ends[:100]):
        if isinstance(end, RecordMetadata):
            assert values[end.offset] == b"%d" % number
