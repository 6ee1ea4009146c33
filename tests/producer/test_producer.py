"""`AIOKafkaProducer` on the embedded cluster: messages, batches, options, errors."""

from __future__ import annotations

import asyncio
import inspect
import math
import re
from collections.abc import Awaitable, Callable
from fractions import Fraction
from functools import partial
from typing import Any

import aiokafka
import pytest

from aiokafka08.errors import (
    IllegalArgumentError,
    InvalidTopicError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    MessageSizeTooLargeError,
    UnknownTopicOrPartitionError,
    UnsupportedCodecError,
    UnsupportedVersionError,
)
from aiokafka08.producer import AIOKafkaProducer, DeliveryFuture
from aiokafka08.protocol.requests.metadata import MetadataRequest
from aiokafka08.protocol.requests.produce import ProduceRequest
from aiokafka08.structs import RecordMetadata, TopicPartition
from aiokafka08.testing import LINES, Answer, EmbeddedCluster, Hang
from aiokafka08.testing.simulation import simulate
from tests.producer.conftest import Producer
from tests.support.numbers import ForeignInteger

ProducerFor = Callable[..., Awaitable[Producer]]


class AsyncCallable:
    """Its calls return coroutines, though `inspect.iscoroutinefunction` says no."""

    async def __call__(self, *_: object) -> int:
        return 0


def logged(cluster: EmbeddedCluster, topic: str = "t", partitions: int = 3) -> list[Any]:
    return [
        (partition, message.key, message.value)
        for partition in range(partitions)
        for message in cluster.log(topic, partition)
    ]


# --- one message ----------------------------------------------------------------------------------


@pytest.mark.both_loops
async def test_a_timer_in_the_past_can_be_replaced(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    # For such a time uvloop's call_at returns a Handle without when(), which the scheduler called.
    producer = await producer_for(cluster, linger_ms=5)
    passes = producer.engine.sender.passes
    now = asyncio.get_running_loop().time()
    passes.set_timer(now - 1)
    passes.set_timer(now - 2)
    passes.set_timer(now + 100)
    assert (await producer.send_and_wait("t", b"v", partition=0)).offset == 0


@pytest.mark.both_loops
@pytest.mark.parametrize("line", LINES)
async def test_a_message_arrives_on_every_line_of_brokers(
    line: str, producer_for: ProducerFor
) -> None:
    async with EmbeddedCluster(version=line, topics={"t": 2}) as cluster:
        producer = await producer_for(cluster)
        result = await producer.send_and_wait("t", b"value", b"key", partition=1)
        modern = line == "0.10"
        assert result[:4] == ("t", 1, TopicPartition("t", 1), 0)
        assert (result.timestamp_type, result.log_start_offset) == (0 if modern else None, None)
        assert (result.timestamp is not None) is modern
        (message,) = cluster.log("t", 1)
        assert (message.key, message.value, message.timestamp_ms) == (
            b"key",
            b"value",
            result.timestamp,
        )
        await producer.stop()


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("compression_type", ["gzip", "snappy", "lz4"])
async def test_compressed_batches_arrive_on_every_line(
    line: str, compression_type: str, producer_for: ProducerFor
) -> None:
    async with EmbeddedCluster(version=line, topics={"t": 1}) as cluster:
        if compression_type == "lz4" and line in ("0.8.0", "0.8.1"):
            with pytest.raises(UnsupportedCodecError, match=r"from 0\.8\.2 on"):
                await producer_for(cluster, compression_type=compression_type)
            return
        producer = await producer_for(cluster, compression_type=compression_type)
        futures = [await producer.send("t", b"value %d" % number) for number in range(100)]
        assert [(await future).offset for future in futures] == list(range(100))
        messages = cluster.log("t", 0)
        assert [message.value for message in messages] == [b"value %d" % n for n in range(100)]
        assert {message.codec for message in messages} == {
            {"gzip": 1, "snappy": 2, "lz4": 3}[compression_type]
        }


@pytest.mark.parametrize("acks", [1, -1, "all", 2])
async def test_each_value_of_acks_is_sent_and_resolved(
    acks: int | str, cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster, acks=acks)
    await producer.send_and_wait("t", b"v", partition=0)
    (request,) = cluster.requests(ProduceRequest)
    assert request.required_acks == (-1 if acks == "all" else acks)
    assert 0 < request.timeout_ms < 5000


async def test_acks_above_1_is_refused_from_0_9_on(producer_for: ProducerFor) -> None:
    async with EmbeddedCluster(version="0.9") as cluster:
        with pytest.raises(UnsupportedVersionError, match=r"needs brokers of the 0\.8 lines"):
            await producer_for(cluster, acks=2)


async def test_serializers_and_other_kinds_of_bytes(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(
        cluster, key_serializer=str.encode, value_serializer=lambda value: repr(value).encode()
    )
    await producer.send_and_wait("t", 17, "key", partition=0)
    raw = await producer_for(cluster)
    await raw.send_and_wait("t", bytearray(b"array"), memoryview(b"view"), partition=0)
    await raw.send_and_wait("t", None, b"tombstone", partition=0)
    await raw.send_and_wait("t", b"", partition=0)
    assert logged(cluster) == [
        (0, b"key", b"17"),
        (0, b"view", b"array"),
        (0, b"tombstone", None),
        (0, None, b""),
    ]


async def test_wrong_arguments_raise_at_once(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster, max_request_size=1000)
    with pytest.raises(TypeError, match="the value is str: expected bytes"):
        await producer.send("t", "text")
    with pytest.raises(TypeError, match="the key is int: expected bytes"):
        await producer.send("t", b"", 5)
    with pytest.raises(IllegalArgumentError, match="a key or a value"):
        await producer.send("t")
    with pytest.raises(InvalidTopicError):
        await producer.send("a b", b"v")
    with pytest.raises(IllegalArgumentError, match="partition=-1"):
        await producer.send("t", b"v", partition=-1)
    with pytest.raises(UnknownTopicOrPartitionError, match=r"no partition 3; it has 0 to 2"):
        await producer.send("t", b"v", partition=3)
    with pytest.raises(UnsupportedVersionError, match="headers"):
        await producer.send("t", b"v", headers=[("a", b"b")])
    with pytest.raises(UnsupportedVersionError, match="timestamp"):
        await producer.send("t", b"v", timestamp_ms=1)
    with pytest.raises(MessageSizeTooLargeError, match="max_request_size=1000"):
        await producer.send("t", b"v" * 975)
    await producer.send_and_wait("t", b"v" * 974)
    assert len(cluster.requests(ProduceRequest)) == 1
    assert producer.metrics()["buffer_used_bytes"] == 0


async def test_timestamps_of_format_1(producer_for: ProducerFor) -> None:
    async with EmbeddedCluster(version="0.10", topics={"t": 1}) as cluster:
        producer = await producer_for(cluster)
        given = await producer.send_and_wait("t", b"v", timestamp_ms=1234)
        assert (given.timestamp, given.timestamp_type) == (1234, 0)
        cluster.create_topic("log", 1, config={"message.timestamp.type": "LogAppendTime"})
        stamped = await producer.send_and_wait("log", b"v", timestamp_ms=1234)
        assert stamped.timestamp_type == 1
        assert stamped.timestamp is not None
        assert stamped.timestamp > 1234
        with pytest.raises(IllegalArgumentError, match="timestamp_ms=-5"):
            await producer.send("t", b"v", timestamp_ms=-5)


async def test_an_unknown_topic_is_created_if_brokers_do_so(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster)
    results = await asyncio.gather(*[producer.send_and_wait("new", b"%d" % n) for n in range(20)])
    assert sorted(result.offset for result in results) == list(range(20))
    assert await producer.partitions_for("new") == {0}
    assert await producer.partitions_for("newer") == {0}


async def test_an_unknown_topic_raises_if_brokers_do_not_create_it(
    producer_for: ProducerFor,
) -> None:
    async with EmbeddedCluster(auto_create=False, topics={"t": 1}) as cluster:
        producer = await producer_for(cluster)
        sends = [asyncio.create_task(producer.send("nowhere", b"v")) for _ in range(3)]
        for send in sends:  # long before `max_block_ms` and the timeout of this test
            with pytest.raises(UnknownTopicOrPartitionError, match="topic 'nowhere' doesn't exist"):
                await send
        with pytest.raises(UnknownTopicOrPartitionError):
            await producer.client._wait_on_metadata("nowhere")
        cluster.create_topic("nowhere", 1)
        assert (await producer.send_and_wait("nowhere", b"v")).offset == 0


def test_max_block_ms_counts_from_the_call() -> None:
    """Behind a cancelled call, the next one has the rest of its own time."""

    async def scenario() -> None:
        unknown = Answer(LeaderNotAvailableError.errno)
        world.cluster.fault(MetadataRequest, then=unknown, times=None)
        servers, clock = world.cluster.bootstrap_servers, asyncio.get_running_loop().time
        async with AIOKafkaProducer(bootstrap_servers=servers, max_block_ms=10_000) as producer:
            first = asyncio.create_task(producer.send("new", b"v"))
            await asyncio.sleep(0)
            called = clock()
            second = asyncio.create_task(producer.send("new", b"v"))
            await asyncio.sleep(3)  # a deadline that began behind the first call would be later
            first.cancel()
            with pytest.raises(KafkaTimeoutError, match="no metadata"):
                await second
            assert clock() - called == pytest.approx(10, abs=1)

    with simulate(1, brokers=1, version="0.8.2", topics={"t": 1}) as world:
        world.run(scenario)


async def test_max_block_ms_limits_the_wait_for_an_unknown_topic(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster, max_block_ms=200)
    cluster.fault(MetadataRequest, then=Answer(LeaderNotAvailableError.errno), times=None)
    calls = (
        producer.send("new", b"v"),
        producer.send_many("new", [b"v"]),
        producer.partitions_for("new"),
        producer.client._wait_on_metadata("new"),
    )
    for call in calls:
        with pytest.raises(KafkaTimeoutError, match="topic 'new': no metadata within"):
            await call
    cluster.clear_faults()
    assert (await producer.send_and_wait("new", b"v")).offset == 0


async def test_unknown_topic_names_the_refused_connection(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    """Both with and behind an earlier call, if metadata may take the whole time of a message."""
    producer = await producer_for(cluster, delivery_timeout_ms=500, request_timeout_ms=500)
    for node in cluster.nodes:
        cluster.kill(node)
    calls = [asyncio.create_task(producer.send("new", b"v")) for _ in range(2)]
    done = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(one) for one in done] == [KafkaTimeoutError] * 2
    for error in done:
        assert "topic 'new': no metadata within" in str(error)
        assert "refused" in str(error)


async def test_a_partitioner_gets_the_key_and_the_partitions(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    seen: list[Any] = []

    def choose(key: bytes | None, partitions: Any, available: Any) -> int:
        seen.append((key, list(partitions), list(available)))
        return 2 if key == b"two" else 99

    producer = await producer_for(cluster, partitioner=choose)
    assert (await producer.send_and_wait("t", b"v", b"two")).partition == 2
    assert seen == [(b"two", [0, 1, 2], [0, 1, 2])]
    with pytest.raises(IllegalArgumentError, match="the partitioner chose 99"):
        await producer.send("t", b"v", b"other")


async def test_sticky_partitioner_changes_with_each_batch(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster, partitioner="sticky", linger_ms=60000)
    first = [await producer.send("t", b"v") for _ in range(5)]
    await producer.flush()
    second = [await producer.send("t", b"v") for _ in range(5)]
    await producer.flush()
    partitions = [{(await future).partition for future in some} for some in (first, second)]
    assert [len(one) for one in partitions] == [1, 1]
    assert partitions[0] != partitions[1]


async def test_exception_in_on_new_batch_is_only_logged(
    cluster: EmbeddedCluster, producer_for: ProducerFor, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing:
        def __call__(self, key: Any, partitions: Any, available: Any) -> int:
            return 0

        def on_new_batch(self, partition: int) -> None:
            raise ValueError("no batches, please")

    producer = await producer_for(cluster, partitioner=Failing())
    assert (await producer.send_and_wait("t", b"v")).offset == 0
    assert "no batches, please" in caplog.text


# --- waiting and flushing -------------------------------------------------------------------------


async def test_flush_sends_lingering_batches_together(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster, linger_ms=60000)
    futures = [await producer.send("t", b"%d" % n, partition=n % 3) for n in range(30)]
    assert not any(future.done() for future in futures)
    assert producer.metrics()["batches_unfinished"] == 3
    await producer.flush()
    assert all(future.done() for future in futures)
    assert len(cluster.requests(ProduceRequest)) == 3  # one per broker
    await producer.flush()


async def test_a_lingering_batch_is_sent_after_linger_ms(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster, linger_ms=20.5)
    loop = asyncio.get_running_loop()
    begin = loop.time()
    await producer.send_and_wait("t", b"v")
    assert loop.time() - begin >= 0.0205


async def test_first_request_keeps_to_max_request_size(producer_for: ProducerFor) -> None:
    async with EmbeddedCluster(topics={"t": 4}) as cluster:
        producer = await producer_for(cluster, max_request_size=20_000)
        await producer.partitions_for("t")
        value = bytes(15_000)
        await asyncio.gather(
            *[await producer.send("t", value, partition=number) for number in range(4)]
        )
        assert len(cluster.requests(ProduceRequest)) == 4


async def test_partitions_of_a_broker_share_a_request(producer_for: ProducerFor) -> None:
    async with EmbeddedCluster(topics={"t": 8, "u": 2}) as cluster:
        producer = await producer_for(cluster)
        await producer.partitions_for("t")
        await producer.partitions_for("u")
        futures = [await producer.send("t", b"v", partition=n) for n in range(8)]
        futures += [await producer.send("u", b"v", partition=n) for n in range(2)]
        await asyncio.gather(*futures)
        (request,) = cluster.requests(ProduceRequest)
        assert sum(len(topic.partitions) for topic in request.topics) == 10


# --- batches that the user fills ------------------------------------------------------------------


async def test_send_batch_sends_the_batch_unchanged(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster, max_batch_size=300, value_serializer=str.encode)
    batch = producer.create_batch()
    count = 0
    assert not batch.closed()
    while (appended := batch.append(timestamp=None, key=None, value="value")) is not None:
        assert (appended.offset, appended.size) == (count, 31)
        count += 1
    assert batch.closed()
    assert count == batch.record_count() == 300 // 31
    assert batch.size() == 31 * count
    await producer.send_and_wait("t", "before", partition=1)
    future = await producer.send_batch(batch, "t", partition=1)
    result = await future
    assert isinstance(result, RecordMetadata)
    assert (result.partition, result.offset) == (1, 1)
    assert len(cluster.log("t", 1)) == 1 + count
    with pytest.raises(Exception, match="sent before"):
        await producer.send_batch(batch, "t", partition=1)
    assert await (await producer.send_batch(producer.create_batch(), "t", partition=0)) is None
    with pytest.raises(UnsupportedVersionError):
        producer.create_batch().append(timestamp=5, key=None, value="v")


async def test_batch_with_timestamps_is_refused_for_old_brokers(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    early = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
    plain, stamped = early.create_batch(), early.create_batch()
    plain.append(timestamp=None, key=b"k", value=b"v")
    stamped.append(timestamp=5, key=b"k", value=b"v")
    async with early:
        with pytest.raises(UnsupportedVersionError, match="timestamp"):
            await early.send_batch(stamped, "t", partition=0)
        result = await (await early.send_batch(plain, "t", partition=0))
        assert result is not None
        assert result.timestamp is None  # converted to format 0


@pytest.mark.parametrize("batch", [None, b"batch", [b"v"]])
async def test_send_batch_refuses_other_types(
    batch: Any, cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster)
    with pytest.raises(TypeError, match=r"batch=.*: expected a batch of create_batch\(\)"):
        await producer.send_batch(batch, "t", partition=0)


async def test_a_key_that_is_too_large_is_refused_before_it_is_hashed(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    hashed: list[int] = []

    def choose(key: bytes | None, partitions: list[int], available: list[int]) -> int:
        assert key is not None
        hashed.append(len(key))
        return 0

    producer = await producer_for(cluster, partitioner=choose)
    for _ in range(2):  # the topic isn't known, the topic is known
        for send in (
            producer.send("t", b"", key=bytes(2 << 20)),
            producer.send_many("t", [b""], [bytes(2 << 20)]),
        ):
            with pytest.raises(MessageSizeTooLargeError, match="max_request_size=1048576"):
                await send
        assert hashed == []
        await producer.partitions_for("t")
    await producer.send_and_wait("t", b"", key=bytes(1 << 19))
    assert hashed == [1 << 19]


# --- options and the public surface ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"acks": -2}, "acks=-2: expected 0, 1, -1 or 'all'"),
        ({"acks": "most"}, "acks='most'"),
        ({"acks": True}, "acks=True"),
        ({"compression_type": "lzma"}, "compression_type='lzma': expected one of None, 'gzip'"),
        ({"linger_ms": -1}, "linger_ms=-1"),
        ({"linger_ms": math.inf}, "linger_ms=inf: expected a finite number >= 0"),
        ({"linger_ms": math.nan}, "linger_ms=nan"),
        ({"linger_ms": "5"}, "linger_ms='5'"),
        ({"linger_ms": True}, "linger_ms=True"),
        ({"transaction_timeout_ms": 0}, "transaction_timeout_ms=0"),
        ({"max_batch_size": 0}, "max_batch_size=0: expected an integer >= 1"),
        ({"max_request_size": "1"}, "max_request_size='1'"),
        ({"buffer_memory": 0}, "buffer_memory=0"),
        ({"delivery_timeout_ms": 0}, "delivery_timeout_ms=0"),
        ({"max_in_flight_requests_per_connection": 0}, "max_in_flight_requests"),
        ({"partitioner": "murmur"}, "partitioner='murmur': expected one of murmur2"),
        ({"partitioner": 5}, "partitioner=5"),
        ({"request_timeout_ms": 0}, "request_timeout_ms=0"),
        ({"connections_max_idle_ms": 0}, "connections_max_idle_ms=0"),
        ({"client_id": 0}, "client_id=0"),
        ({"key_serializer": "utf-8"}, "key_serializer='utf-8': expected a callable"),
        ({"value_serializer": 5}, "value_serializer=5: expected a callable"),
        ({"on_event": 5}, "on_event=5: expected a callable"),
        ({"on_event": asyncio.sleep}, "not an async one"),
        ({"value_serializer": asyncio.sleep}, "not an async one"),
        ({"partitioner": asyncio.sleep}, "not an async one"),
        ({"partitioner": AsyncCallable}, "not an async one"),
        *(
            ({option: function}, "not an async one")
            for option in ("partitioner", "on_event", "value_serializer")
            for function in (AsyncCallable(), partial(partial(AsyncCallable()), 1))
        ),
        ({"bootstrap_servers": b"kafka1:9092"}, "bootstrap_servers=b'kafka1:9092': expected a str"),
        ({"enable_idempotence": "no"}, "enable_idempotence='no': expected True or False"),
        ({"bootstrap_servers": ""}, "expected at least one address"),
    ],
)
def test_a_wrong_option_raises_with_its_name(options: dict[str, Any], why: str) -> None:
    with pytest.raises(IllegalArgumentError) as caught:
        AIOKafkaProducer(**options)
    assert why in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"enable_idempotence": True},
        {"transactional_id": "t"},
        {"compression_type": "zstd"},
    ],
)
def test_options_beyond_the_protocol_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedVersionError, match=r"from .* on"):
        AIOKafkaProducer(**options)


async def test_integers_of_other_libraries_are_accepted(producer_for: ProducerFor) -> None:
    one: Any = ForeignInteger(1)
    time: Any = ForeignInteger(7)
    async with EmbeddedCluster(version="0.10", topics={"t": 3}) as cluster:
        producer = await producer_for(cluster, acks=one, linger_ms=one, max_batch_size=one)
        for _ in range(2):  # the slow path and the fast one
            sent = await producer.send_and_wait("t", b"v", partition=one, timestamp_ms=time)
            assert (sent.partition, sent.timestamp) == (1, 7)
        deliveries = await producer.send_many("t", [b"v"], partition=one, timestamps_ms=[time])
        assert [(done.partition, done.timestamp) for done in await deliveries] == [(1, 7)]


def test_real_numbers_of_other_libraries_are_accepted() -> None:
    half: Any = Fraction(1, 2)
    whole: Any = Fraction(3000)
    AIOKafkaProducer(linger_ms=half, request_timeout_ms=whole)
    for option in ("request_timeout_ms", "max_batch_size"):
        with pytest.raises(IllegalArgumentError, match=f"{option}=.*: expected an integer >= 1"):
            AIOKafkaProducer(**{option: half})


@pytest.mark.parametrize("wrong", [1.0, True, "1", [1]])
async def test_partition_that_isnt_an_integer_is_refused(
    cluster: EmbeddedCluster, producer_for: ProducerFor, wrong: Any
) -> None:
    """Also on the fast path, once the topic is known."""
    producer = await producer_for(cluster)
    batch = producer.create_batch()
    batch.append(key=None, value=b"v", timestamp=None)
    for _ in range(2):
        await producer.send_and_wait("t", b"v", partition=1)
        with pytest.raises(IllegalArgumentError, match=f"partition={re.escape(repr(wrong))}"):
            await producer.send("t", b"v", partition=wrong)
    with pytest.raises(IllegalArgumentError, match="partition="):
        await producer.send_many("t", [b"v"], partition=wrong)
    with pytest.raises(IllegalArgumentError, match="partition="):
        await producer.send_batch(batch, "t", partition=wrong)


async def test_a_timeout_beyond_int32_is_sent_as_the_maximum(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster, request_timeout_ms=2**40)
    assert (await producer.send_and_wait("t", b"v")).offset == 0
    [request] = cluster.requests(ProduceRequest)
    assert request.timeout_ms == 2**31 - 1


async def test_transactions_are_refused_at_the_call() -> None:
    producer = AIOKafkaProducer()
    for call in (
        producer.begin_transaction,
        producer.commit_transaction,
        producer.abort_transaction,
        lambda: producer.send_offsets_to_transaction({}, "g"),
    ):
        with pytest.raises(UnsupportedVersionError, match="InitProducerId"):
            await call()
    with pytest.raises(UnsupportedVersionError):
        producer.transaction()


async def test_the_loop_argument_warns_as_in_aiokafka(cluster: EmbeddedCluster) -> None:
    with pytest.warns(DeprecationWarning, match="loop"):
        producer = AIOKafkaProducer(
            loop=asyncio.get_running_loop(), bootstrap_servers=cluster.bootstrap_servers
        )
    async with producer:
        await producer.send_and_wait("t", b"v")


def test_names_arguments_and_defaults_are_those_of_aiokafka() -> None:
    for name, theirs in inspect.getmembers(aiokafka.AIOKafkaProducer, inspect.isfunction):
        if name.startswith("_") and name not in ("__init__", "__aenter__", "__aexit__"):
            continue
        their_parameters = inspect.signature(theirs).parameters
        our_parameters = inspect.signature(getattr(AIOKafkaProducer, name)).parameters
        for parameter in their_parameters.values():
            ours = our_parameters[parameter.name]
            assert ours.kind == parameter.kind, (name, parameter.name)
            if (name, parameter.name) in {("__init__", "acks"), ("__init__", "partitioner")}:
                continue  # aiokafka uses sentinels
            assert ours.default == parameter.default, (name, parameter.name)
        extra = set(our_parameters) - set(their_parameters)
        assert all(our_parameters[one].default is not inspect.Parameter.empty for one in extra)


async def test_topic_is_open_for_the_fast_path_between_calls(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster)
    await producer.send("t", b"v", partition=0)
    topics = producer.engine.topics
    route = topics.by_topic["t"]
    assert route.is_open
    async with topics.acquire("t", 1.0):
        assert not route.is_open
    assert route.is_open


async def test_times_are_kept_in_seconds(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    times = {"linger_ms": 1500, "delivery_timeout_ms": 2500, "max_block_ms": 3500}
    options = (await producer_for(cluster, **times)).checked
    assert (options.linger_s, options.delivery_timeout_s, options.max_block_s) == (1.5, 2.5, 3.5)


async def test_metrics_and_health(cluster: EmbeddedCluster, producer_for: ProducerFor) -> None:
    producer = await producer_for(cluster, linger_ms=60000)
    assert producer.ready()
    await producer.send("t", b"v" * 74, partition=0)
    metrics = producer.metrics()
    assert metrics["buffer_used_bytes"] == 100
    assert metrics["batches_unfinished"] == 1
    assert metrics["messages_sent"] == 0
    await producer.flush()
    metrics = producer.metrics()
    assert (metrics["messages_sent"], metrics["bytes_sent"], metrics["requests_sent"]) == (
        1,
        100,
        1,
    )
    assert (metrics["buffer_used_bytes"], metrics["oldest_batch_ms"], metrics["retries"]) == (
        0,
        0,
        0,
    )
    assert all(isinstance(value, int | float) for value in metrics.values())
    await producer.stop()
    assert not producer.ready()
    assert producer.metrics()["messages_sent"] == 1


async def test_topics_that_brokers_create_are_counted(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster)
    assert producer.metrics()["created_topics"] == 0
    await producer.send_and_wait("t", b"v")
    await producer.send_and_wait("new", b"v")
    assert producer.metrics()["created_topics"] == 1


# --- waiting for memory ---------------------------------------------------------------------------


async def test_a_full_buffer_makes_senders_wait_in_order(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster, buffer_memory=300, request_timeout_ms=200)
    await producer.partitions_for("t")
    cluster.fault(ProduceRequest, then=Hang())  # until the request times out
    values = [b"%d" % number + b"v" * 73 for number in range(8)]
    futures = [await producer.send("t", value, partition=0) for value in values[:3]]
    waiting = [asyncio.create_task(producer.send("t", one, partition=0)) for one in values[3:]]
    await asyncio.wrap_future(cluster.next_request(ProduceRequest))
    assert not any(task.done() for task in waiting)
    assert producer.metrics()["senders_waiting"] == 5  # one for memory, the others for this one
    assert producer.metrics()["buffer_used_bytes"] == 300
    waiting[1].cancel()  # 4 is withdrawn
    futures += [await task for task in waiting if task is not waiting[1]]
    await asyncio.gather(*futures)
    log = list(dict.fromkeys(message.value for message in cluster.log("t", 0)))
    assert log == values[:4] + values[5:]
    assert producer.metrics()["buffer_used_bytes"] == 0


async def test_batches_skip_linger_while_a_sender_waits_for_memory(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster, linger_ms=60000, buffer_memory=1000)
    futures = [await producer.send("t", b"v" * 74) for _ in range(100)]
    await producer.flush()
    assert all(future.result().offset >= 0 for future in futures)


async def test_waiting_for_memory_ends_with_the_delivery_timeout(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster, buffer_memory=100, delivery_timeout_ms=2000)
    await producer.partitions_for("t")
    hanging = cluster.fault(ProduceRequest, then=Hang(), times=None)
    first = await producer.send("t", b"v" * 74, partition=0)
    with pytest.raises(KafkaTimeoutError, match="buffer_memory=100 is full"):
        await producer.send("t", b"v" * 74, partition=0)
    with pytest.raises(KafkaTimeoutError, match="2000 ms; the broker hasn't responded; the mess"):
        await first
    hanging.cancel()
    cluster.drop_connections()
    assert (await producer.send_and_wait("t", b"v" * 74, partition=0)).offset == 1


async def test_a_message_larger_than_the_memory_is_refused(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster, buffer_memory=100)
    with pytest.raises(MessageSizeTooLargeError, match="buffer_memory=100"):
        await producer.send("t", b"v" * 75)


# --- error codes ----------------------------------------------------------------------------------


async def test_a_final_error_fails_the_batch_and_is_logged_once(
    cluster: EmbeddedCluster, producer_for: ProducerFor, caplog: pytest.LogCaptureFixture
) -> None:
    producer = await producer_for(cluster)
    cluster.fault(ProduceRequest, then=Answer(2), times=None)
    futures = [await producer.send("t", b"v", partition=0) for _ in range(100)]
    results = await asyncio.gather(*futures, return_exceptions=True)
    assert {type(result).__name__ for result in results} == {"CorruptRecordException"}
    assert "produce to t/0" in str(results[0])
    (record,) = [one for one in caplog.records if one.levelname == "WARNING"]
    assert "100 messages failed" in record.getMessage()
    assert producer.metrics()["batches_failed"] == 1
    assert producer.metrics()["buffer_used_bytes"] == 0


async def test_a_delivery_future_takes_few_bytes(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster)
    future = await producer.send("t", b"v")
    assert type(future) is DeliveryFuture
    assert not hasattr(future, "__dict__")
    await future
