"""Large requests are compressed in a thread; order, deadlines, memory and stop() are kept."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aiokafka08.errors import KafkaError, KafkaTimeoutError
from aiokafka08.producer.sink import encode_batch
from aiokafka08.protocol.compression import LONG_COMPRESS_BYTES, Codec
from aiokafka08.protocol.message_set import MessageSetBuilder
from aiokafka08.protocol.types import Buffer
from aiokafka08.telemetry import BatchRetried, Disconnected
from aiokafka08.testing import EmbeddedCluster
from tests.producer.conftest import Producer
from tests.support.gated_offload import GatedOffload, offload_threads
from tests.support.waiting import until

ProducerFor = Callable[..., Awaitable[Producer]]

LARGE = random.Random(1).randbytes(200_000)
"""Takes long to compress by gzip."""


@pytest.fixture
def producer_for(producer_for: ProducerFor) -> ProducerFor:
    """Start producers whose threads a test can hold back."""

    def start(
        cluster: EmbeddedCluster, parts: dict[str, Any] | None = None, **options: Any
    ) -> Awaitable[Producer]:
        parts = {"new_offload": GatedOffload, **(parts or {})}
        return producer_for(cluster, parts=parts, **options)

    return start


def running(work: str) -> list[asyncio.Task[Any]]:
    """Return the background tasks of producers whose names say that they do this work."""
    names = (f"aiokafka08 {work} ",)
    return [one for one in asyncio.all_tasks() if one.get_name().startswith(names)]


async def held_producer(
    producer_for: ProducerFor, cluster: EmbeddedCluster, **options: Any
) -> tuple[Producer, GatedOffload]:
    """Start a producer that knows the topic, and hold back its compression in the thread."""
    producer = await producer_for(cluster, compression_type="gzip", **options)
    await producer.partitions_for("t")
    return producer, GatedOffload.hold()


def values(cluster: EmbeddedCluster, partition: int = 0) -> list[bytes | None]:
    return [message.value for message in cluster.log("t", partition)]


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
async def test_large_request_is_compressed_in_a_thread(
    codec: Codec, cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(
        cluster, compression_type=codec.name.lower(), max_request_size=4_000_000
    )
    small, large = b"v", bytes(2 * LONG_COMPRESS_BYTES[codec])
    await producer.send_and_wait("t", small, partition=0)
    assert GatedOffload.made.begun == 0
    await producer.send_and_wait("t", large, partition=0)
    [thread] = GatedOffload.made.threads
    assert thread != threading.get_ident()
    assert values(cluster) == [small, large]


async def test_uncompressed_request_stays_in_the_loop(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster)
    await producer.send_and_wait("t", LARGE * 4, partition=0)
    assert GatedOffload.made.begun == 0


async def test_sum_of_small_batches_is_compressed_in_a_thread(producer_for: ProducerFor) -> None:
    """What counts is the request: its batches are compressed one after the other."""
    async with EmbeddedCluster(version="0.8.2", topics={"t": 8}) as cluster:
        producer = await producer_for(cluster, compression_type="gzip", linger_ms=5)
        await producer.send_and_wait("t", b"small")  # the first request measures the round trip
        batch = LONG_COMPRESS_BYTES[Codec.GZIP] // 5
        await asyncio.gather(
            *[await producer.send("t", LARGE[:batch], partition=number) for number in range(8)]
        )
        assert GatedOffload.made.begun


@pytest.mark.parametrize("acks", [0, 1, "all"])
async def test_messages_sent_meanwhile_keep_the_order(
    acks: Any, cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer, offload = await held_producer(producer_for, cluster, acks=acks)
    sent = [LARGE, *(b"%d" % number for number in range(50)), LARGE, b"last"]
    first, *rest = sent
    results = [await producer.send("t", first, partition=0)]
    await offload.wait_begun()
    results += [await producer.send("t", value, partition=0) for value in rest]
    assert producer.metrics()["requests_sent"] == 0
    offload.may_end.set()
    await asyncio.gather(*results)
    await producer.flush()
    assert values(cluster) == sent
    assert producer.metrics()["buffer_used_bytes"] == 0


async def test_flush_waits_for_a_request_being_compressed(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer, offload = await held_producer(producer_for, cluster)
    await producer.send("t", LARGE, partition=0)
    flushing = asyncio.ensure_future(producer.flush())
    await offload.wait_begun()
    assert not flushing.done()
    offload.may_end.set()
    await flushing
    assert values(cluster) == [LARGE]


async def test_batch_that_expires_meanwhile_is_not_sent(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer, offload = await held_producer(producer_for, cluster, delivery_timeout_ms=50)
    result = await producer.send("t", LARGE, partition=0)
    with pytest.raises(KafkaTimeoutError, match="within 50 ms; the messages were still being comp"):
        await result
    used = producer.metrics()["buffer_used_bytes"]
    assert used > len(LARGE)  # the thread still reads the messages
    offload.may_end.set()
    await until(lambda: not producer.metrics()["buffer_used_bytes"], "the memory is released")
    while True:  # the partition isn't muted for ever
        try:
            await producer.send_and_wait("t", b"next", partition=0)
        except KafkaTimeoutError:
            continue
        break
    assert set(values(cluster)) == {b"next"}


async def test_stop_ends_a_request_being_compressed(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer, offload = await held_producer(producer_for, cluster)
    result = await producer.send("t", LARGE, partition=0)
    await offload.wait_begun()
    await producer.stop(timeout=0.01)
    with pytest.raises(KafkaTimeoutError, match=r"not acknowledged within stop\(timeout=0.01\)"):
        await result
    assert not values(cluster)
    assert not offload_threads()


async def test_cancelled_caller_does_not_cancel_its_request(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer, offload = await held_producer(producer_for, cluster)
    sending = asyncio.ensure_future(producer.send_and_wait("t", LARGE, partition=0))
    await offload.wait_begun()
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    offload.may_end.set()
    await producer.send_and_wait("t", b"next", partition=0)
    assert values(cluster) == [LARGE, b"next"]


async def test_cancelled_compression_is_done_again(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    """At its end asyncio.run() cancels all tasks, while one of them may still flush or stop()."""
    producer, offload = await held_producer(producer_for, cluster)
    results = [await producer.send("t", LARGE, partition=0)]
    await offload.wait_begun()
    results.append(await producer.send("t", b"behind", partition=0))
    [compressing] = running("compress")
    compressing.cancel()
    offload.may_end.set()
    await asyncio.wait_for(asyncio.gather(*results), 30)
    assert values(cluster) == [LARGE, b"behind"]
    assert [event.may_be_stored for event in producer.events_of(BatchRetried)] == [False]
    assert producer.metrics()["buffer_used_bytes"] == 0


async def test_compression_cancelled_before_its_first_step(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer, offload = await held_producer(producer_for, cluster)
    offload.may_end.set()
    result = await producer.send("t", LARGE, partition=0)
    # Without a pause: the sinks' tasks begin in the iteration after the one that creates them.
    await until(lambda: running("compress"), pause_s=0)
    [compressing] = running("compress")
    compressing.cancel()
    await asyncio.wait_for(result, 30)
    await producer.send_and_wait("t", LARGE, partition=0)
    assert values(cluster) == [LARGE, LARGE]


@pytest.mark.parametrize("steps", [0, 1])
async def test_cancelled_connecting_begins_again(
    cluster: EmbeddedCluster, producer_for: ProducerFor, steps: int
) -> None:
    # No timer of the batch runs a pass within the time that this test waits.
    producer = await producer_for(cluster, delivery_timeout_ms=600_000)
    await producer.partitions_for("t")
    result = await producer.send("t", b"v", partition=0)
    await until(lambda: running("connect"), "connecting", pause_s=0)
    [connecting] = running("connect")
    for _ in range(steps):
        await asyncio.sleep(0)
    connecting.cancel()
    await asyncio.wait_for(result, 30)
    assert values(cluster) == [b"v"]


async def test_connection_lost_meanwhile_retries_the_request(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster, compression_type="gzip")
    await producer.send_and_wait("t", b"first", partition=0)
    offload = GatedOffload.hold()
    result = await producer.send("t", LARGE, partition=0)
    await offload.wait_begun()
    connections = cluster.history[-1].connection
    cluster.drop_connections()
    await until(
        lambda: any(one.lane == "produce" for one in producer.events_of(Disconnected)),
        f"connection {connections} is lost",
    )
    offload.may_end.set()
    await result
    assert values(cluster) == [b"first", LARGE]
    assert [event.may_be_stored for event in producer.events_of(BatchRetried)] == [False]


async def test_failed_compression_fails_its_batch_only(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    refused: list[MessageSetBuilder] = []

    def refuse_once(builder: MessageSetBuilder, magic: int) -> Buffer:
        if refused:
            return encode_batch(builder, magic)
        refused.append(builder)
        raise MemoryError("no memory for compression")

    parts = {"encode": refuse_once}
    producer = await producer_for(cluster, compression_type="gzip", parts=parts)
    await producer.partitions_for("t")
    with pytest.raises(KafkaError, match="no memory for compression"):
        await producer.send_and_wait("t", LARGE, partition=0)
    assert GatedOffload.made.begun == 1
    await producer.send_and_wait("t", LARGE, partition=0)
    assert values(cluster) == [LARGE]
    assert producer.metrics()["buffer_used_bytes"] == 0


async def test_request_is_compressed_in_the_loop_without_threads(
    cluster: EmbeddedCluster, producer_for: ProducerFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RuntimeError("can't start new thread") once ended the producer.

    Only its threads are refused: the embedded cluster has one of its own for large requests.
    """
    producer = await producer_for(cluster, compression_type="gzip")
    await producer.partitions_for("t")

    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if not thread.name.startswith("aiokafka08_"):
            start(thread)
            return
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        await producer.send_and_wait("t", LARGE, partition=0)
    assert GatedOffload.made.threads == [threading.get_ident()]
    assert values(cluster) == [LARGE]


async def test_loop_runs_between_two_compressed_requests(
    producer_for: ProducerFor,
) -> None:
    """A pass once compressed all requests that were due, up to `max_in_flight`, back to back."""
    iteration = 0
    compressed_in: list[int] = []

    def recorded(builder: MessageSetBuilder, magic: int) -> Buffer:
        compressed_in.append(iteration)
        return encode_batch(builder, magic)

    async with EmbeddedCluster(version="0.8.2", topics={"t": 4}) as cluster:
        producer = await producer_for(
            cluster,
            compression_type="gzip",
            linger_ms=20,
            max_request_size=20_000,
            parts={"encode": recorded},
        )
        await producer.partitions_for("t")
        sending = asyncio.gather(
            *[await producer.send("t", LARGE[:15_000], partition=number) for number in range(4)]
        )
        while not sending.done():
            iteration += 1
            await asyncio.sleep(0)
        await sending
        assert GatedOffload.made.begun == 0
        assert len(set(compressed_in)) == len(compressed_in) == 4
