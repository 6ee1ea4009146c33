"""The requests that a sink holds back, though batches are due; and how large batches grow."""

from __future__ import annotations

import asyncio
import os

import pytest

from aiokafka08._core.net.node import Lane
from aiokafka08._core.net.send_window import MIN_GROWTH_BYTES, SendWindow
from aiokafka08.producer.sink import _BATCHES_PER_ITERATION
from aiokafka08.protocol.requests.committed_offsets import OffsetFetchRequest
from aiokafka08.protocol.requests.produce import ProduceRequest
from aiokafka08.testing import Delay, EmbeddedCluster
from tests.producer.conftest import MakeProducer as ProducerFor
from tests.support.waiting import until


async def test_probe_after_one_too_large_waits_until_it_is_alone(
    producer_for: ProducerFor,
) -> None:
    """Among other requests it would measure nothing, and small ones would go on for ever."""
    async with EmbeddedCluster(version="0.8.2", topics={"t": 3}) as cluster:
        producer = await producer_for(cluster)
        await producer.send_and_wait("t", b"connects", partition=0)
        [sink] = producer.engine.sender.sinks
        window = SendWindow(0.001, 1 << 14)
        now = asyncio.get_running_loop().time()
        window.acknowledged(now - 10, now - 9, 1, 1 << 20, alone=True)
        sink.window = window
        cluster.fault(ProduceRequest, then=Delay(0.2))
        first = await producer.send("t", b"probe", partition=1)
        await until(lambda: producer.metrics()["requests_in_flight"], "a request is in flight")
        second = await producer.send("t", b"waits", partition=2)
        for _ in range(5):  # a pass takes one iteration
            await asyncio.sleep(0)
        assert producer.metrics()["requests_in_flight"] == 1
        await asyncio.gather(first, second)
        assert window.round_trip_s != 0.001


async def test_round_trip_outlives_its_connection(producer_for: ProducerFor) -> None:
    """With a given version nothing else measures it while all batches are large."""
    async with EmbeddedCluster(version="0.8.2", topics={"t": 1}) as cluster:
        producer = await producer_for(cluster, api_version="0.8.2")
        await producer.send_and_wait("t", b"v")
        [sink] = producer.engine.sender.sinks
        sink.window = before = SendWindow(0.3, 1 << 14)
        cluster.drop_connections()
        cluster.fault(ProduceRequest, then=Delay(0.1))
        sent = await producer.send("t", b"v")
        await until(lambda: sink.window is not before, "the sink has connected again")
        assert sink.round_trip_s == 0.3
        await sent


async def test_loop_runs_after_a_request_of_many_batches(
    producer_for: ProducerFor,
) -> None:
    """A busy task fills the next batches meanwhile, though linger and window would let them go."""
    async with EmbeddedCluster(version="0.8.2", topics={"t": 200}) as cluster:
        producer = await producer_for(cluster, parts={"hold_s": 3600.0})
        await producer.send_and_wait("t", b"connects", partition=0)
        [sink] = producer.engine.sender.sinks
        sink.window = SendWindow(0.0, 1 << 14)
        sink.window.acknowledged(0.0, 3600.0, 1, 1, alone=True)  # neither full nor to be probed
        before = producer.metrics()["requests_sent"]
        results = [await producer.send("t", b"v", partition=number) for number in range(199)]
        await asyncio.sleep(0)
        assert producer.metrics()["requests_sent"] == before + 1
        results.append(await producer.send("t", b"v", partition=199))
        for _ in range(199 // _BATCHES_PER_ITERATION - 1):
            await asyncio.sleep(0)
            assert producer.metrics()["requests_sent"] == before + 1
        await asyncio.gather(*results)
        assert producer.metrics()["requests_sent"] == before + 2


def sizes(cluster: EmbeddedCluster) -> list[int]:
    """Return the sizes of all message sets that the cluster got."""
    return [
        len(partition.message_set)
        for one in cluster.history
        if isinstance(one.request, ProduceRequest)
        for topic in one.request.topics
        for partition in topic.partitions
    ]


@pytest.mark.parametrize(
    ("codec", "round_trip_s", "value_bytes", "large"),
    [
        (None, 0.001, 30, False),
        (None, 0.05, 30, True),
        (None, 0.001, 1000, True),
        ("gzip", 0.001, 30, True),
    ],
)
async def test_first_list_leaves_in_batches_that_fit_the_round_trip(
    codec: str | None, round_trip_s: float, value_bytes: int, large: bool, producer_for: ProducerFor
) -> None:
    """The round trip is known from the probe of the version, before the first request.

    Where it is short, batches of few large messages grow nevertheless.
    """
    async with EmbeddedCluster(version="0.8.2", topics={"t": 1}) as cluster:
        producer = await producer_for(cluster, compression_type=codec)
        [node] = [one for one in producer.router.nodes if one.round_trip_s is not None]
        node.round_trip_s = round_trip_s
        values = [os.urandom(value_bytes) for _ in range(3_000_000 // value_bytes)]
        await (await producer.send_many("t", values, partition=0))
        assert (sizes(cluster)[1] > MIN_GROWTH_BYTES) == large


async def test_offsets_are_right_if_a_lane_is_lost_during_the_probe(
    producer_for: ProducerFor,
) -> None:
    """Without the exact line, the offsets of replicated partitions would be taken for 0.8.0's."""
    async with EmbeddedCluster(brokers=2, version="0.8.2", topics={"t": 1}) as cluster:
        probe = cluster.fault(OffsetFetchRequest, then=Delay(0.2))
        producer = await producer_for(cluster, acks="all")
        sent = await producer.send("t", b"first")
        await until(lambda: probe.hits, "the broker is asked for its line")
        node = producer.router.nodes.get(cluster.leader("t", 0))
        assert node is not None
        control = node.open_lane(Lane.CONTROL)
        assert control is not None
        control.close("closed by the test")
        offsets = [(await sent).offset]
        offsets += [(await producer.send_and_wait("t", b"v")).offset for _ in range(3)]
        assert offsets == [0, 1, 2, 3]


@pytest.mark.parametrize("line", ["0.8.0", "0.8.1"])
async def test_offsets_are_right_beside_an_unknown_partition(
    line: str, producer_for: ProducerFor
) -> None:
    """A request that names a partition which the broker doesn't have waits for replicas, and so its
    response has the offsets after the batches (docs/brokers.md 5.13)."""
    async with EmbeddedCluster(version=line, topics={"t": 1, "deleted": 1}) as cluster:
        producer = await producer_for(
            cluster, acks="all", linger_ms=600_000, delivery_timeout_ms=900_000
        )
        for topic in ("t", "deleted"):
            await producer.send(topic, b"v")
        await producer.flush()
        cluster.delete_topic("deleted")
        coming = cluster.next_request(ProduceRequest)
        sent = [await producer.send(topic, b"v") for topic in ("deleted", "t", "t")]
        flushed = asyncio.ensure_future(producer.flush())  # nothing leaves before
        request = (await asyncio.wrap_future(coming)).request
        assert isinstance(request, ProduceRequest)
        assert {topic.topic for topic in request.topics} == {"t", "deleted"}
        assert [(await one).offset for one in sent[1:]] == [1, 2]
        cluster.create_topic("deleted", 1)
        await flushed
