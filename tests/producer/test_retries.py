"""Retries after error codes, lost connections and leader changes: nothing lost, order kept."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, NoReturn

import pytest

from aiokafka08._core.net.limits import NetLimits
from aiokafka08._core.net.node import Lane
from aiokafka08.errors import (
    BrokerResponseError,
    CorruptRecordException,
    InvalidTimestampError,
    KafkaConnectionError,
    KafkaError,
    KafkaProtocolError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
)
from aiokafka08.producer import AIOKafkaProducer
from aiokafka08.producer.outcome import MAX_UNEXPLAINED_RETRIES
from aiokafka08.protocol.requests.list_offsets import ListOffsetsRequest
from aiokafka08.protocol.requests.metadata import MetadataRequest
from aiokafka08.protocol.requests.produce import ProduceRequest
from aiokafka08.telemetry import BatchFailed, BatchRetried
from aiokafka08.testing import (
    Answer,
    Close,
    Corrupt,
    Delay,
    EmbeddedCluster,
    Hang,
    Omit,
    Truncate,
    WrongCorrelationId,
)
from aiokafka08.testing.simulation import simulate
from tests.producer.conftest import Producer
from tests.support.waiting import until

SHORT = NetLimits(overdue_s=0.1, unresponsive_s=0.1)
"""A silent broker is noticed soon."""

ProducerFor = Callable[..., Awaitable[Producer]]


def values(cluster: EmbeddedCluster, partition: int, topic: str = "t") -> list[bytes | None]:
    return [message.value for message in cluster.log(topic, partition)]


@pytest.mark.parametrize(
    ("effect", "stored", "may_be_stored"),
    [
        (Answer(5), 1, False),
        (Answer(6), 1, False),
        (Answer(3), 1, False),
        (Answer(19), 1, False),
        (Answer(8), 1, False),
        (Answer(7, perform=True), 2, True),
        (Answer(20, perform=True), 2, True),
        (Answer(-1), 1, True),
        (Answer(99), 1, True),
        (Omit(), 2, True),
        (Close(), 1, True),
        (Close(after_bytes=0), 2, True),
        (Close(after_bytes=9, reset=True), 2, True),
        (Truncate(3), 2, True),
        (WrongCorrelationId(), 2, True),
        (Corrupt(at=4), 2, True),  # the array count
    ],
    ids=repr,
)
async def test_a_retried_batch_arrives_and_reports_may_be_stored(
    effect: Any,
    stored: int,
    may_be_stored: bool,
    cluster: EmbeddedCluster,
    producer_for: ProducerFor,
) -> None:
    producer = await producer_for(cluster)
    cluster.fault(ProduceRequest, then=effect)
    result = await producer.send_and_wait("t", b"v", partition=1)
    assert values(cluster, 1) == [b"v"] * stored
    assert result.offset == stored - 1
    (retried,) = producer.events_of(BatchRetried)
    assert retried.may_be_stored is may_be_stored
    assert retried.messages == 1
    assert producer.metrics()["retries"] == 1
    assert producer.metrics()["buffer_used_bytes"] == 0


@pytest.mark.parametrize("code", [-1, 99])
async def test_an_unknown_code_fails_with_its_number_after_retries(
    code: int, cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster)
    cluster.fault(ProduceRequest, then=Answer(code), times=None)
    with pytest.raises(BrokerResponseError) as caught:
        await producer.send_and_wait("t", b"v", partition=1)
    assert caught.value.errno == code
    assert str(code) in str(caught.value)
    assert len(cluster.requests(ProduceRequest)) == 1 + MAX_UNEXPLAINED_RETRIES


async def test_a_partition_left_out_of_all_responses_fails(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster)
    cluster.fault(ProduceRequest, then=Omit(), times=None)
    with pytest.raises(KafkaProtocolError, match="the broker left t/1 out of its response"):
        await producer.send_and_wait("t", b"v", partition=1)


async def test_an_error_of_one_partition_leaves_others_alone(
    producer_for: ProducerFor,
) -> None:
    async with EmbeddedCluster(topics={"t": 3}, message_max_bytes=500) as cluster:
        producer = await producer_for(cluster)
        futures = [
            await producer.send("t", b"v" * size, partition=partition)
            for partition, size in enumerate((100, 1000, 100))
        ]
        results = await asyncio.gather(*futures, return_exceptions=True)
        assert [type(one).__name__ for one in results] == [
            "RecordMetadata",
            "MessageSizeTooLargeError",
            "RecordMetadata",
        ]
        assert len(cluster.requests(ProduceRequest)) == 1


async def test_a_batch_that_is_too_large_is_split_until_it_fits(producer_for: ProducerFor) -> None:
    async with EmbeddedCluster(topics={"t": 1}, message_max_bytes=1000) as cluster:
        producer = await producer_for(cluster, compression_type="gzip", max_batch_size=16384)
        sent = [random.Random(number).randbytes(100) for number in range(100)]
        futures = [await producer.send("t", value) for value in sent]
        assert [(await future).offset for future in futures] == list(range(100))
        assert values(cluster, 0) == sent
        assert all(one.may_be_stored is False for one in producer.events_of(BatchRetried))
        tries = len(cluster.requests(ProduceRequest))
        for value in sent:  # the partition now keeps its batches small
            await producer.send("t", value)
        await producer.flush()
        assert len(cluster.requests(ProduceRequest)) - tries < tries - 5
        assert producer.metrics()["buffer_used_bytes"] == 0


async def test_a_split_fails_only_the_message_that_is_too_large(
    producer_for: ProducerFor,
) -> None:
    async with EmbeddedCluster(topics={"t": 1}, message_max_bytes=1000) as cluster:
        producer = await producer_for(cluster)
        sizes = [100] * 20
        sizes[13] = 2000
        futures = [await producer.send("t", b"v" * size) for size in sizes]
        results = await asyncio.gather(*futures, return_exceptions=True)
        failed = [
            index for index, one in enumerate(results) if isinstance(one, MessageSizeTooLargeError)
        ]
        assert failed == [13]
        assert [one.offset for one in results if not isinstance(one, BaseException)] == list(
            range(19)
        )
        assert producer.metrics()["messages_failed"] == 1


@pytest.mark.parametrize("version", ["0.9", "0.10"])
@pytest.mark.parametrize("compression_type", [None, "gzip"])
async def test_only_messages_without_a_key_fail_in_a_compacted_topic(
    producer_for: ProducerFor, version: str, compression_type: str | None
) -> None:
    """The others are stored once each and in order, with messages that are sent meanwhile."""
    async with EmbeddedCluster(version=version) as cluster:
        cluster.create_topic("t", config={"cleanup.policy": "compact"})
        producer = await producer_for(cluster, compression_type=compression_type)
        await producer.partitions_for("t")
        without = {3, 4, 5, 17, 63, 99}
        futures = [
            await producer.send("t", b"%d" % n, key=None if n in without else b"k%d" % n)
            for n in range(100)
        ]
        refused = cluster.next_request(ProduceRequest, nth=3)
        await asyncio.wrap_future(refused)
        later = [await producer.send("t", b"%d" % n, key=b"later") for n in range(100, 120)]
        results = await asyncio.gather(*futures, *later, return_exceptions=True)
        failed = {n: one for n, one in enumerate(results) if isinstance(one, BaseException)}
        assert set(failed) == without
        for error in failed.values():
            assert isinstance(error, CorruptRecordException)
            assert " without a key. Either the topic is compacted" in str(error)
        stored = [b"%d" % n for n in range(120) if n not in without]
        assert values(cluster, 0) == stored
        offsets = [one.offset for one in results if not isinstance(one, BaseException)]
        assert offsets == list(range(len(stored)))
        for event in producer.events_of(BatchRetried):
            assert event.may_be_stored is False
            assert "at least one has no key or an empty one; its halves are sent" in event.reason
        metrics = producer.metrics()
        assert (metrics["messages_failed"], metrics["messages_sent"]) == (len(without), 114)
        assert metrics["buffer_used_bytes"] == 0


async def test_batch_without_any_key_fails_by_one_request(producer_for: ProducerFor) -> None:
    async with EmbeddedCluster(version="0.9") as cluster:
        cluster.create_topic("t", config={"cleanup.policy": "compact"})
        producer = await producer_for(cluster, linger_ms=10_000)
        await producer.partitions_for("t")
        deliveries = await producer.send_many("t", [b"v"] * 500)
        with pytest.raises(CorruptRecordException, match="500 messages without a key"):
            await deliveries
        assert len(deliveries.errors()) == 500
        assert len(cluster.requests(ProduceRequest)) == 1
        assert (await producer.send_and_wait("t", b"v", key=b"k")).offset == 0


async def test_batch_with_keys_refused_as_corrupt_fails_by_one_request(
    producer_for: ProducerFor,
) -> None:
    async with EmbeddedCluster(topics={"t": 1}) as cluster:
        producer = await producer_for(cluster, linger_ms=10_000)
        await producer.partitions_for("t")
        cluster.fault(ProduceRequest, then=Answer(CorruptRecordException.errno), times=None)
        deliveries = await producer.send_many("t", [b"v"] * 500, keys=[b"k"] * 500)
        with pytest.raises(CorruptRecordException, match="wrong CRC or impossible size"):
            await deliveries
        assert len(deliveries.errors()) == 500
        assert len(cluster.requests(ProduceRequest)) == 1


async def test_batch_refused_for_a_timestamp_is_split(producer_for: ProducerFor) -> None:
    """A broker refuses the set while it has this message, as with
    `message.timestamp.difference.max.ms`."""
    async with EmbeddedCluster(version="0.10", topics={"t": 1}) as cluster:
        producer = await producer_for(cluster)
        await producer.partitions_for("t")

        def is_old(request: ProduceRequest) -> bool:
            return b"old" in bytes(request.topics[0].partitions[0].message_set)

        cluster.fault(ProduceRequest, then=Answer(32), times=None, where=is_old)
        sent = [b"old" if n in (0, 20) else b"%d" % n for n in range(30)]
        futures = [await producer.send("t", value) for value in sent]
        results = await asyncio.gather(*futures, return_exceptions=True)
        failed = [n for n, one in enumerate(results) if isinstance(one, InvalidTimestampError)]
        assert failed == [0, 20]
        assert values(cluster, 0) == [value for value in sent if value != b"old"]


async def test_a_moved_leader_is_followed(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster)
    await producer.send_and_wait("t", b"0", partition=0)
    cluster.move_leader("t", 0, to=2)
    assert (await producer.send_and_wait("t", b"1", partition=0)).offset == 1
    assert values(cluster, 0) == [b"0", b"1"]


async def test_a_killed_leader_is_followed(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster, acks="all")
    await producer.send_and_wait("t", b"0", partition=0)
    cluster.kill(0, then="leaderless")
    futures = [await producer.send("t", b"%d" % n, partition=0) for n in range(1, 10)]
    refreshed = cluster.next_request(
        MetadataRequest, nth=2
    )  # it is repeated while there is no leader
    await asyncio.wrap_future(refreshed)
    assert not any(future.done() for future in futures)
    cluster.elect()
    assert [(await future).offset for future in futures] == list(range(1, 10))
    assert values(cluster, 0) == [b"%d" % n for n in range(10)]


async def test_a_restarted_broker_is_found_at_its_new_address(producer_for: ProducerFor) -> None:
    async with EmbeddedCluster(brokers=2, topics={"t": 2}) as cluster:
        producer = await producer_for(cluster)
        await producer.send_and_wait("t", b"0", partition=0)
        cluster.kill(0, then="leaderless")
        future = await producer.send("t", b"1", partition=0)
        cluster.restart(0, port=0)
        cluster.elect()
        assert (await future).offset == 1


async def test_unacknowledged_messages_fail_at_the_deadline(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    # The batch waits for its retry at the deadline: in flight, it would have another error text.
    producer = await producer_for(cluster, delivery_timeout_ms=2000, retry_backoff_ms=60_000)
    cluster.fault(ProduceRequest, then=Answer(6), times=None)
    with pytest.raises(
        KafkaTimeoutError, match=r"t/1: not acknowledged within 2000 ms; last error: .*6"
    ):
        await producer.send_and_wait("t", b"v", partition=1)
    assert producer.metrics()["buffer_used_bytes"] == 0
    assert len(producer.events_of(BatchFailed)) == 1


def test_messages_without_a_leader_fail_at_the_deadline() -> None:
    async def scenario() -> None:
        cluster = world.cluster
        async with AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, delivery_timeout_ms=300
        ) as producer:
            await producer.partitions_for("t")
            cluster.kill(1, then="leaderless")
            with pytest.raises(KafkaTimeoutError, match="t/1: not acknowledged within 300 ms"):
                await producer.send_and_wait("t", b"v", partition=1)
            assert (await producer.send_and_wait("t", b"v", partition=0)).offset == 0

    with simulate(1, topics={"t": 3}) as world:
        world.run(scenario)


async def test_first_send_waits_for_no_other_partitions_leader(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    parts = {"leader_wait_s": 60.0}
    producer = await producer_for(cluster, request_timeout_ms=60_000, parts=parts)
    cluster.kill(1, then="leaderless")
    async with asyncio.timeout(10):
        waiting = await producer.send("t", b"waits", partition=1)
        assert (await producer.send_and_wait("t", b"goes", partition=0)).offset == 0
        for _ in range(10):  # messages without a key go to a partition with a leader
            assert (await producer.send_and_wait("t", b"any")).partition != 1
        assert not waiting.done()
        cluster.elect()
        assert (await waiting).partition == 1


@pytest.mark.parametrize("acks", [1, "all"])
async def test_a_silent_broker_is_left_once_another_one_leads(
    acks: int | str,
    cluster: EmbeddedCluster,
    producer_for: ProducerFor,
) -> None:
    """Long before `request_timeout_ms`, which is 40 s by default."""
    producer = await producer_for(cluster, request_timeout_ms=60_000, acks=acks, net_limits=SHORT)
    await producer.send_and_wait("t", b"0", partition=0)
    hung = cluster.fault(ProduceRequest, then=Hang(), node=0)
    futures = [await producer.send("t", b"%d" % number, partition=0) for number in (1, 2)]
    await until(lambda: hung.hits, "the broker hangs")
    futures.append(await producer.send("t", b"3", partition=0))
    before = len(cluster.requests(MetadataRequest))
    await until(lambda: len(cluster.requests(MetadataRequest)) > before, "the response is overdue")
    assert not any(future.done() for future in futures)
    cluster.move_leader("t", 0, to=2)
    async with asyncio.timeout(10):
        await asyncio.gather(*futures)
    # Stored by the silent broker, and again by the new leader: the event says so.
    assert values(cluster, 0) == [b"0", b"1", b"2", b"1", b"2", b"3"]
    assert [retried.may_be_stored for retried in producer.events_of(BatchRetried)] == [True]
    assert producer.metrics()["buffer_used_bytes"] == 0
    assert producer.metrics()["requests_in_flight"] == 0


async def test_silent_broker_only_moved_partitions_are_retried(
    producer_for: ProducerFor,
) -> None:
    async with EmbeddedCluster(brokers=2, topics={"t": 4}) as cluster:
        producer = await producer_for(
            cluster, request_timeout_ms=60_000, linger_ms=60_000, net_limits=SHORT
        )
        moving = await producer.send("t", b"v", partition=0)
        staying = await producer.send("t", b"v", partition=2)
        hung = cluster.fault(ProduceRequest, then=Hang(), node=0)
        flushing = asyncio.create_task(producer.flush())
        await until(lambda: hung.hits, "the broker hangs")
        cluster.move_leader("t", 0, to=1)
        async with asyncio.timeout(10):
            assert (await moving).offset == 1
        assert not staying.done()
        assert producer.metrics()["requests_in_flight"] == 1
        await producer.stop(timeout=0)
        with pytest.raises(KafkaTimeoutError):
            await staying
        await flushing


async def test_a_slow_broker_that_still_leads_gets_its_time(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster, net_limits=NetLimits(overdue_s=0.05))
    cluster.fault(ProduceRequest, then=Delay(0.5), node=0)
    future = await producer.send("t", b"v", partition=0)
    await until(lambda: producer.metrics()["requests_in_flight"], "it is sent")
    before = len(cluster.requests(MetadataRequest))
    await until(lambda: len(cluster.requests(MetadataRequest)) > before, "the response is overdue")
    assert (await future).offset == 0
    assert values(cluster, 0) == [b"v"]
    assert producer.events_of(BatchRetried) == []


async def test_a_broker_silent_while_connecting_is_left_too(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster, request_timeout_ms=60_000, net_limits=SHORT)
    await producer.partitions_for("t")
    unused = next(node.node_id for node in producer.router.nodes if not node.is_connected)
    assert unused is not None
    hung = cluster.fault(ListOffsetsRequest, then=Hang(), node=unused, times=None)  # a probe
    future = await producer.send("t", b"v", partition=unused)
    await until(lambda: hung.hits, "the broker hangs")
    cluster.move_leader("t", unused)
    async with asyncio.timeout(10):
        assert (await future).offset == 0


async def test_waiting_for_a_leader_is_no_busy_loop(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster, retry_backoff_ms=0)
    await producer.partitions_for("t")
    cluster.kill(1, then="leaderless")
    future = await producer.send("t", b"v", partition=1)
    before = len(cluster.requests(MetadataRequest))
    await asyncio.sleep(0.5)
    assert len(cluster.requests(MetadataRequest)) - before <= 55
    cluster.elect()
    assert (await future).offset == 0


async def test_a_request_timeout_beyond_int32_is_accepted(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster, request_timeout_ms=10**10)
    async with asyncio.timeout(10):
        assert (await producer.send_and_wait("t", b"v", partition=1)).offset == 0
    assert cluster.requests(ProduceRequest)[0].timeout_ms == 2**31 - 1


async def test_a_silent_broker_costs_one_request_timeout(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster, request_timeout_ms=300)
    await producer.send_and_wait("t", b"0", partition=0)
    cluster.fault(ProduceRequest, then=Hang())
    result = await producer.send_and_wait("t", b"1", partition=0)
    assert (result.offset, values(cluster, 0)) == (2, [b"0", b"1", b"1"])
    assert producer.events_of(BatchRetried)[0].may_be_stored


async def test_requests_behind_a_slow_one_keep_their_timeout(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    """Four requests take 0.2 s each, one after the other; none may take longer than 0.5 s."""
    async with EmbeddedCluster(topics={"t": 4}) as slow:
        producer = await producer_for(slow, request_timeout_ms=500)
        await producer.partitions_for("t")
        slow.fault(ProduceRequest, then=Delay(0.2), times=None)
        futures = []
        for partition in range(4):
            written = slow.next_request(ProduceRequest)
            futures.append(await producer.send("t", b"v", partition=partition))
            if partition == 0:
                await asyncio.wrap_future(written)
            else:
                await asyncio.sleep(0)
                await asyncio.sleep(0)
        assert producer.metrics()["requests_in_flight"] == 4
        await asyncio.gather(*futures)
        assert producer.events_of(BatchRetried) == []


async def test_requests_in_flight_are_bounded(producer_for: ProducerFor) -> None:
    async with EmbeddedCluster(topics={"t": 10}) as cluster:
        producer = await producer_for(cluster, max_in_flight_requests_per_connection=3)
        await producer.send_and_wait("t", b"v", partition=0)
        cluster.fault(ProduceRequest, then=Delay(0.1))
        futures = []
        for partition in range(10):
            futures.append(await producer.send("t", b"v", partition=partition))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert producer.metrics()["requests_in_flight"] <= 3
        assert producer.metrics()["requests_in_flight"] == 3
        await asyncio.gather(*futures)
        assert len(cluster.requests(ProduceRequest)) == 5  # 1, 3, and one with the other seven


def cause_fault(cluster: EmbeddedCluster, dice: random.Random) -> None:
    """Cause one random fault."""
    match dice.randrange(6):
        case 0:
            cluster.move_leader("t", dice.randrange(3))
        case 1:
            cluster.drop_connections(dice.randrange(3))
        case 2:
            code = dice.choice([3, 5, 6, 7, 10, 19, 20])
            cluster.fault(ProduceRequest, then=Answer(code, perform=code in (7, 20)))
        case 3:
            cluster.fault(ProduceRequest, then=Close(dice.choice([None, 0, 5])))
        case 4:
            cluster.fault(ProduceRequest, then=Omit())
        case 5:
            alive = [node for node, info in cluster.nodes.items() if info.alive]
            if len(alive) == 3:
                cluster.kill(dice.choice(alive))
            else:
                (dead,) = set(cluster.nodes) - set(alive)
                cluster.restart(dead)


@pytest.mark.parametrize("seed", range(8))
def test_order_is_kept_through_all_faults(seed: int) -> None:
    with simulate(seed, topics={"t": 3}) as world:
        world.run(partial(send_through_faults, world.cluster, random.Random(seed)))


async def send_through_faults(cluster: EmbeddedCluster, dice: random.Random) -> None:
    """Numbered messages are sent while random faults happen. Without duplicates, the log of each
    partition has them in the order of the calls, and all acknowledged messages are in it.
    """
    async with AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers,
        acks="all",
        max_batch_size=200,
        request_timeout_ms=500,
        retry_backoff_ms=5,
        delivery_timeout_ms=30000,
        compression_type=dice.choice([None, "gzip"]),
    ) as producer:
        sent: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
        futures: dict[bytes, Any] = {}
        for number in range(1500):
            partition = dice.randrange(3)
            value = b"%d" % number
            sent[partition].append(value)
            futures[value] = await producer.send("t", value, partition=partition)
            if dice.random() < 0.05:
                await asyncio.sleep(dice.choice([0.0, 0.002, 0.01]))
            if dice.random() < 0.02:
                cause_fault(cluster, dice)
        for node, info in cluster.nodes.items():
            if not info.alive:
                cluster.restart(node)
        cluster.clear_faults()
        results = await asyncio.gather(*futures.values(), return_exceptions=True)
        lost = {
            value
            for value, one in zip(futures, results, strict=True)
            if isinstance(one, KafkaError)
        }
        # Only unknown codes and partitions left out may use up their retries.
        assert len(lost) < 100
        for partition, wanted in sent.items():
            seen = list(dict.fromkeys(values(cluster, partition)))
            assert [value for value in seen if value not in lost] == [
                value for value in wanted if value not in lost
            ]
        assert producer.metrics()["buffer_used_bytes"] == 0
        assert producer.metrics()["batches_unfinished"] == 0


async def test_leader_whose_broker_comes_back_gets_the_batch(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    """The topic's metadata stay the same: only the list of brokers changes."""
    producer = await producer_for(cluster)
    await producer.partitions_for("t")
    metadata, leader = producer.router.metadata, cluster.leader("t", 0)
    whole = metadata.snapshot
    others = {node: broker for node, broker in whole.brokers.items() if node != leader}
    metadata.adopt(replace(whole, brokers=MappingProxyType(others)))
    future = await producer.send("t", b"v", partition=0)
    metadata.adopt(whole)
    await asyncio.wait_for(future, 10)


async def test_batch_whose_connection_is_closed_just_now_is_retried(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    """Before its request is written: the messages can't be in the log."""
    producer = await producer_for(cluster, acks="all")
    await producer.send_and_wait("t", b"first", partition=0)
    connection: Any = producer.router.open_lane(cluster.leader("t", 0), Lane.PRODUCE)

    def refuse(*args: Any, **options: Any) -> NoReturn:
        del connection.send
        raise KafkaConnectionError("closed just now")

    connection.send = refuse
    await asyncio.wait_for(producer.send_and_wait("t", b"second", partition=0), 10)
    [retried] = producer.events_of(BatchRetried)
    assert not retried.may_be_stored
    assert values(cluster, 0) == [b"first", b"second"]
