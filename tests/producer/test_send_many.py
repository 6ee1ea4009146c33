"""`send_many`: sequences of messages, accepted as memory allows, with a result for each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from aiokafka08 import Deliveries
from aiokafka08.errors import (
    IllegalArgumentError,
    KafkaError,
    MessageSizeTooLargeError,
    UnsupportedVersionError,
)
from aiokafka08.partitioner import murmur2
from aiokafka08.protocol.requests.produce import ProduceRequest
from aiokafka08.testing import Answer, EmbeddedCluster, Hang
from tests.producer.conftest import Producer
from tests.support.waiting import until

ProducerFor = Callable[..., Awaitable[Producer]]


async def test_every_message_has_its_metadata(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster)
    values = [b"%d" % number for number in range(10000)]
    deliveries = await producer.send_many("t", values)
    assert len(deliveries) == 10000
    results = await deliveries
    assert deliveries.done()
    assert len(results) == 10000
    logs = [cluster.log("t", partition) for partition in range(3)]
    for value, result in zip(values, results, strict=True):
        assert logs[result.partition][result.offset].value == value
    assert results[-1] == results[9999]
    assert [one.offset for one in results[5:8]] == [results[n].offset for n in (5, 6, 7)]
    with pytest.raises(IndexError):
        results[10000]
    assert await deliveries is not None  # again
    assert deliveries.errors() == {}
    assert producer.metrics()["messages_sent"] == 10000


async def test_keys_choose_partitions_and_order_is_kept(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster)
    keys = [b"key %d" % (number % 17) for number in range(5000)]
    results = await (
        await producer.send_many("t", list(map(str.encode, map(str, range(5000)))), keys)
    )
    for number, (key, result) in enumerate(zip(keys, results, strict=True)):
        assert result.partition == (murmur2(key) & 0x7FFFFFFF) % 3
        message = cluster.log("t", result.partition)[result.offset] if number % 500 == 0 else None
        assert message is None or (message.key, message.value) == (key, b"%d" % number)
    for partition in range(3):
        offsets = [one.offset for one in results if one.partition == partition]
        assert offsets == sorted(offsets)


async def test_a_named_partition_with_a_tuple_and_a_generator(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster, value_serializer=str.encode)
    results = await (await producer.send_many("t", (str(n) for n in range(10)), partition=2))
    assert [(one.partition, one.offset) for one in results] == [(2, n) for n in range(10)]
    nothing = await (await producer.send_many("t", ()))
    assert list(nothing) == []


async def test_round_robin_chooses_for_each_message(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster, partitioner="round_robin")
    results = await (await producer.send_many("t", [b"v"] * 300))
    partitions = [one.partition for one in results]
    assert [partitions.count(partition) for partition in range(3)] == [100, 100, 100]
    assert len(set(partitions[:3])) == 3


async def test_timestamps_of_format_1(producer_for: ProducerFor) -> None:
    async with EmbeddedCluster(version="0.10", topics={"t": 2}) as cluster:
        producer = await producer_for(cluster)
        times = [1000 + number for number in range(100)]
        keys = [b"%d" % number for number in range(100)]
        results = await (await producer.send_many("t", keys, keys, timestamps_ms=times))
        assert [one.timestamp for one in results] == times
        assert [
            cluster.log("t", one.partition)[one.offset].timestamp_ms for one in results
        ] == times
        results = await (await producer.send_many("t", keys))
        assert all(one.timestamp is not None and one.timestamp > 1100 for one in results)


async def test_wrong_arguments_raise_before_anything_is_buffered(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster, max_request_size=1000)
    with pytest.raises(TypeError, match="list of values"):
        await producer.send_many("t", b"value")
    with pytest.raises(TypeError, match="value 1 is str: expected bytes"):
        await producer.send_many("t", [b"good", "bad"])
    with pytest.raises(TypeError, match="key 2 is int: expected bytes"):
        await producer.send_many("t", [b""] * 3, [None, b"k", 7])
    with pytest.raises(IllegalArgumentError, match="1 keys for 2 values"):
        await producer.send_many("t", [b"", b""], [b""])
    with pytest.raises(IllegalArgumentError, match="1 timestamps_ms for 2 values"):
        await producer.send_many("t", [b"", b""], timestamps_ms=[1])
    with pytest.raises(IllegalArgumentError, match=r"timestamps_ms\[1\]=-5"):
        await producer.send_many("t", [b"", b""], timestamps_ms=[1, -5])
    with pytest.raises(UnsupportedVersionError, match="timestamp"):
        await producer.send_many("t", [b""], timestamps_ms=[1])
    with pytest.raises(MessageSizeTooLargeError, match="message 1 takes 1001 bytes"):
        await producer.send_many("t", [b"", b"v" * 967])
    with pytest.raises(MessageSizeTooLargeError, match="message 1 takes 1001 bytes"):
        await producer.send_many("t", [b"", b"v" * 900], [b"", b"k" * 67])
    assert cluster.requests(ProduceRequest) == []
    assert producer.metrics()["buffer_used_bytes"] == 0
    await (await producer.send_many("t", [b"v" * 966]))


@pytest.mark.parametrize("codec", [None, "gzip"])
async def test_keys_and_values_may_be_missing(
    cluster: EmbeddedCluster, producer_for: ProducerFor, codec: str | None
) -> None:
    """Both may be missing as well: a log that is copied may have such messages."""
    producer = await producer_for(cluster, compression_type=codec)
    pairs = [(None, b""), (b"", None), (None, None), (b"k", b"v"), (None, None)]
    keys, values = zip(*pairs, strict=True)
    await (await producer.send_many("t", values, keys, partition=0))
    await (await producer.send_many("t", [None, b""], partition=0))
    stored = [(one.key, one.value) for one in cluster.log("t", 0)]
    assert stored == [*pairs, (None, None), (None, b"")]


async def test_values_that_are_no_bytes_keep_their_places(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    """They are converted in several steps, and among others."""
    producer = await producer_for(cluster)
    values = [b"%d" % number for number in range(5000)]
    given = [bytearray(one) if one[-1] % 2 else one for one in values]
    await (await producer.send_many("t", given, given, partition=0))
    assert [(one.key, one.value) for one in cluster.log("t", 0)] == [(one, one) for one in values]


async def test_a_serializer_exception_has_a_note_with_the_index(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster, value_serializer=str.encode)
    with pytest.raises(TypeError) as caught:
        await producer.send_many("t", ["a", "b", 3, "d"])
    assert caught.value.__notes__ == ["raised by value_serializer for value 2"]
    assert producer.metrics()["buffer_used_bytes"] == 0


async def test_an_error_names_the_first_message_that_failed(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster)
    cluster.fault(
        ProduceRequest,
        then=Answer(29),
        where=lambda request: request.topics[0].partitions[0].partition == 1,
    )
    values = [b"%d" % number for number in range(100)]
    deliveries = await producer.send_many("t", values, keys=values)
    with pytest.raises(KafkaError) as caught:
        await deliveries
    errors = deliveries.errors()
    first = min(errors)
    assert set(errors) == {n for n in range(100) if (murmur2(values[n]) & 0x7FFFFFFF) % 3 == 1}
    assert f"message {first} of 100: produce to t/1" in str(caught.value)
    assert f"and {len(errors) - 1} others" in str(caught.value)
    assert type(caught.value).__name__ == "TopicAuthorizationFailedError"


async def test_an_error_in_a_split_batch_names_the_right_message(producer_for: ProducerFor) -> None:
    async with EmbeddedCluster(topics={"t": 1}, message_max_bytes=1000) as cluster:
        producer = await producer_for(cluster)
        values = [b"v"] * 50
        values[37] = b"v" * 2000
        deliveries = await producer.send_many("t", values)
        with pytest.raises(MessageSizeTooLargeError, match="message 37 of 50"):
            await deliveries
        assert list(deliveries.errors()) == [37]


async def test_done_callback_comes_once_after_all_messages(producer_for: ProducerFor) -> None:
    """Also where batches are split, and where all is done already."""
    called: list[Deliveries] = []
    async with EmbeddedCluster(topics={"t": 3}, message_max_bytes=1000) as cluster:
        producer = await producer_for(cluster)
        values = [b"%d" % number for number in range(200)]
        values[37] = b"v" * 2000
        deliveries = await producer.send_many("t", values, keys=values)
        deliveries.add_done_callback(called.append)
        assert not called
        await until(lambda: bool(called), "the callback is called")
        assert deliveries.done()
        assert list(deliveries.errors()) == [37]
        deliveries.add_done_callback(called.append)
        (await producer.send_many("t", [])).add_done_callback(called.append)
        assert len(called) == 1  # never inside the call that adds it
        await until(lambda: len(called) == 3, "the other two are called")
    assert called[:2] == [deliveries, deliveries]


async def test_messages_beyond_the_memory_are_accepted_in_chunks(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster, buffer_memory=5000, max_batch_size=1000)
    most = 0
    sending = asyncio.create_task(producer.send_many("t", [b"v" * 74] * 1000))
    while not sending.done():
        most = max(most, int(producer.metrics()["buffer_used_bytes"]))
        await asyncio.sleep(0)
    assert 3000 <= most <= 5000
    assert len(await sending.result()) == 1000


async def test_later_senders_wait_until_all_are_buffered(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster, buffer_memory=5000, max_batch_size=1000)
    many = asyncio.create_task(
        producer.send_many("t", [b"%d" % n + b"v" * 71 for n in range(1000)], partition=0)
    )
    await asyncio.sleep(0)
    after = await producer.send("t", b"after", partition=0)
    await many.result()
    assert (await after).offset == 1000


async def test_cancelled_midway_it_sends_the_accepted_messages(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster, buffer_memory=5000, request_timeout_ms=300)
    await producer.partitions_for("t")
    cluster.fault(ProduceRequest, then=Hang())
    sending = asyncio.create_task(producer.send_many("t", [b"v" * 74] * 1000, partition=0))
    await asyncio.wrap_future(cluster.next_request(ProduceRequest))
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    await producer.flush()
    assert 0 < len(cluster.log("t", 0)) <= 100
    assert (await producer.send_and_wait("t", b"v")).offset >= 0


async def test_it_does_not_hold_the_event_loop(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    # small enough for the fastest machine and twin
    producer = await producer_for(cluster, parts={"hold_s": 0.0002})
    iterations = 0
    sending = asyncio.create_task(producer.send_many("t", [b"v" * 100] * 100_000))
    while not sending.done():
        iterations += 1
        await asyncio.sleep(0)
    assert iterations > 20
    await sending.result()
