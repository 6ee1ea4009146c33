"""acks=0: no response, no offsets; messages in flight when the broker closes are unknown."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from aiokafka08.errors import KafkaTimeoutError
from aiokafka08.protocol.requests.list_offsets import ListOffsetsRequest
from aiokafka08.protocol.requests.metadata import MetadataRequest
from aiokafka08.protocol.requests.produce import ProduceRequest
from aiokafka08.structs import TopicPartition
from aiokafka08.telemetry import Acks0Unknown, BatchFailed, BatchRetried
from aiokafka08.testing import LINES, Close, Delay, EmbeddedCluster, Hang
from aiokafka08.testing.simulation import Network, simulate
from tests.producer.conftest import Producer
from tests.support.waiting import until

ProducerFor = Callable[..., Awaitable[Producer]]


@pytest.mark.parametrize("line", LINES)
async def test_messages_arrive_and_have_no_offsets(line: str, producer_for: ProducerFor) -> None:
    async with EmbeddedCluster(version=line, topics={"t": 2}) as cluster:
        producer = await producer_for(cluster, acks=0)
        results = [
            await producer.send_and_wait("t", b"%d" % n, partition=n % 2) for n in range(100)
        ]
        assert set(results) == {None}
        await producer.flush()
        for partition in range(2):
            assert [message.value for message in cluster.log("t", partition)] == [
                b"%d" % n for n in range(partition, 100, 2)
            ]
        assert producer.metrics()["acks0_unknown"] == 0
        assert producer.metrics()["buffer_used_bytes"] == 0


async def test_flush_waits_for_the_broker_the_future_does_not(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster, acks=0)
    await producer.partitions_for("t")
    hanging = cluster.fault(ProduceRequest, then=Hang())
    request = cluster.next_request(ProduceRequest)
    assert await producer.send_and_wait("t", b"v", partition=0) is None
    await asyncio.wrap_future(request)
    assert hanging.hits == 1
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(producer.flush(), 0.05)
    assert producer.metrics()["requests_in_flight"] == 1
    cluster.drop_connections()
    await producer.flush()
    assert producer.metrics()["acks0_unknown"] == 1


async def test_each_produce_is_followed_by_a_request_with_response(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster, acks=0)
    await producer.send("t", b"v", partition=0)
    await producer.flush()
    produced = [
        recorded for recorded in cluster.history if type(recorded.request) is ProduceRequest
    ]
    pings = [
        recorded
        for recorded in cluster.history
        if type(recorded.request) is ListOffsetsRequest
        and recorded.connection == produced[0].connection
    ]
    assert len(produced) == len(pings) == 1


async def in_flight(producer: Producer, count: int) -> None:
    await until(
        lambda: producer.metrics()["requests_in_flight"] == count, f"{count} requests in flight"
    )


async def test_messages_behind_a_refused_request_count_as_unknown(
    producer_for: ProducerFor,
) -> None:
    async with EmbeddedCluster(topics={"t": 4}, message_max_bytes=500) as cluster:
        producer = await producer_for(cluster, acks=0)
        await producer.send("t", b"good", partition=0)
        await producer.flush()
        refreshed = cluster.next_request(MetadataRequest)
        # Its ping keeps the broker busy until the next requests are in flight.
        cluster.fault(ListOffsetsRequest, then=Delay(0.5))
        await producer.send("t", b"slow", partition=3)
        await in_flight(producer, 1)
        futures = []
        for partition, size in enumerate((1000, 10, 10)):  # the first one closes the connection
            futures += [await producer.send("t", b"v" * size, partition=partition)] * (
                partition + 1
            )
            await in_flight(producer, partition + 2)
        await producer.flush()
        assert {await future for future in futures} == {None}
        (unknown,) = producer.events_of(Acks0Unknown)
        assert unknown.messages == 3
        assert unknown.partitions == tuple(TopicPartition("t", number) for number in range(3))
        assert producer.metrics()["acks0_unknown"] == 3
        assert producer.metrics()["buffer_used_bytes"] == 0
        assert producer.events_of(BatchFailed) == producer.events_of(BatchRetried) == []
        await producer.send("t", b"after", partition=0)  # on a new connection
        await producer.flush()
        assert [message.value for message in cluster.log("t", 0)] == [b"good", b"after"]
        assert cluster.log("t", 1) == []  # the broker never read it (docs/brokers.md 3.3)
        await asyncio.wrap_future(refreshed)


async def test_messages_written_to_a_lost_connection_are_not_retried(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster, acks=0)
    await producer.partitions_for("t")
    cluster.fault(ProduceRequest, then=Close())
    for _ in range(3):
        await producer.send("t", b"v", partition=0)
    await producer.flush()
    assert cluster.log("t", 0) == []
    assert producer.metrics()["acks0_unknown"] == 3


async def test_unwritten_messages_survive_an_unreachable_broker(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster, acks=0)
    await producer.partitions_for("t")
    cluster.kill(0, then="leaderless")
    futures = [await producer.send("t", b"%d" % n, partition=0) for n in range(5)]
    await asyncio.wrap_future(cluster.next_request(MetadataRequest))
    assert not any(future.done() for future in futures)
    cluster.elect()
    await producer.flush()
    assert [message.value for message in cluster.log("t", 0)] == [b"%d" % n for n in range(5)]
    assert producer.metrics()["acks0_unknown"] == 0


async def test_messages_that_are_never_written_fail(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    """Only messages that were written count as unknown."""
    producer = await producer_for(cluster, acks=0, delivery_timeout_ms=300)
    await producer.partitions_for("t")
    cluster.kill(0, then="leaderless")
    with pytest.raises(KafkaTimeoutError, match="t/0: not written within 300 ms"):
        await producer.send_and_wait("t", b"v", partition=0)
    metrics = producer.metrics()
    assert (metrics["messages_failed"], metrics["acks0_unknown"]) == (1, 0)
    assert metrics["messages_sent"] == 0
    assert len(producer.events_of(BatchFailed)) == 1


async def test_stop_says_that_a_message_was_not_written(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster, acks=0)
    await producer.partitions_for("t")
    cluster.kill(0, then="leaderless")
    future = await producer.send("t", b"v", partition=0)
    await producer.stop(timeout=0)
    with pytest.raises(KafkaTimeoutError, match=r"not written within stop\(timeout=0\)"):
        await future


async def test_new_leader_is_found_after_the_connection_closes(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster, acks=0)
    await producer.send("t", b"0", partition=0)
    await producer.flush()
    cluster.move_leader("t", 0, to=1)
    await producer.send("t", b"lost", partition=0)
    changed = cluster.next_request(MetadataRequest)
    await producer.flush()
    assert producer.metrics()["acks0_unknown"] == 1
    await asyncio.wrap_future(changed)
    while cluster.log("t", 0)[-1].value != b"2":
        await producer.send("t", b"2", partition=0)
        await producer.flush()


async def test_stop_with_timeout_0_counts_unknown_messages(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster, acks=0)
    await producer.partitions_for("t")
    cluster.fault(ProduceRequest, then=Hang())
    future = await producer.send("t", b"v", partition=0)
    await asyncio.wrap_future(cluster.next_request(ProduceRequest))
    await producer.stop(timeout=0)
    assert await future is None
    assert producer.metrics()["acks0_unknown"] == 1


async def _lost(producer: Producer, messages: int) -> float:
    """Send a list of messages of 1,000 random bytes; return how many became unknown."""
    before = producer.metrics()["acks0_unknown"]
    values = [random.Random(number).randbytes(1000) for number in range(messages)]
    await (await producer.send_many("t", values, partition=0))
    await producer.flush()
    return producer.metrics()["acks0_unknown"] - before


@pytest.mark.parametrize(
    ("compression", "latency_ms", "limit_bytes"),
    [(None, 0.5, 512 * 1024), (None, 50.0, 1_000_000), ("gzip", 0.5, 1_000_000)],
)
def test_no_batch_grows_beyond_what_brokers_store(
    compression: str | None, latency_ms: float, limit_bytes: int
) -> None:
    """A broker that refuses a batch closes the connection, which loses all that is behind it too.

    So it can't be found out how large a batch may be, as it can with other acks.
    """
    network = Network(latency_ms=(latency_ms, latency_ms))
    with simulate(
        1,
        brokers=1,
        network=network,
        topics={"t": 1},
        segment_bytes=limit_bytes,
        message_max_bytes=limit_bytes,
    ) as world:

        async def send() -> None:
            servers = world.cluster.bootstrap_servers
            async with Producer(
                bootstrap_servers=servers, acks=0, compression_type=compression
            ) as producer:
                assert await _lost(producer, 5000) == 0
                assert len(world.cluster.log("t", 0)) == 5000

        world.run(send)


def test_batches_shrink_after_refusals_and_get_through() -> None:
    """The limit stays low: to try larger batches again would lose messages again."""
    with simulate(1, brokers=1, topics={"t": 1}, segment_bytes=100 * 1024) as world:

        async def send() -> None:
            servers = world.cluster.bootstrap_servers
            async with Producer(bootstrap_servers=servers, acks=0) as producer:
                losses = [await _lost(producer, 2000) for _ in range(6)]
                assert losses[0] > 0
                assert losses[3:] == [0, 0, 0]

        world.run(send)
