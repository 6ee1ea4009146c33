"""`start()` and `stop()`: they always end, fail unsent messages by name, leave nothing open."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import re
import warnings
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aiokafka08.errors import (
    IllegalStateError,
    KafkaTimeoutError,
    NoBrokersAvailable,
    ProducerClosed,
)
from aiokafka08.producer import AIOKafkaProducer
from aiokafka08.protocol.requests.committed_offsets import OffsetFetchRequest
from aiokafka08.protocol.requests.list_offsets import ListOffsetsRequest
from aiokafka08.protocol.requests.metadata import MetadataRequest
from aiokafka08.protocol.requests.produce import ProduceRequest
from aiokafka08.testing import EmbeddedCluster, Hang, Silence
from aiokafka08.testing.simulation import simulate
from tests.producer.conftest import Producer
from tests.support.clients import OpenProducer
from tests.support.waiting import until

ProducerFor = Callable[..., Awaitable[Producer]]


async def all_closed(cluster: EmbeddedCluster) -> None:
    """Wait until the cluster has noticed that all connections are closed."""
    while cluster.connections():  # noqa: ASYNC110
        await asyncio.sleep(0)


pytestmark = pytest.mark.both_loops


async def test_leaving_the_context_sends_buffered_messages(cluster: EmbeddedCluster) -> None:
    async with AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, linger_ms=60000
    ) as producer:
        future = await producer.send("t", b"v")
        assert not future.done()
    assert future.result().offset == 0
    await all_closed(cluster)


async def test_second_stop_waits_for_the_first_or_does_nothing(cluster: EmbeddedCluster) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=60000)
    await producer.start()
    future = await producer.send("t", b"v")
    await asyncio.gather(producer.stop(), producer.stop())
    assert future.done()
    await producer.stop()


async def test_calls_before_start_and_after_stop_raise(cluster: EmbeddedCluster) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
    with pytest.raises(IllegalStateError, match="isn't started"):
        await producer.send("t", b"v")
    await producer.start()
    with pytest.raises(IllegalStateError, match="started already"):
        await producer.start()
    await producer.stop()
    for call in (
        lambda: producer.send("t", b"v"),
        lambda: producer.send_many("t", [b"v"]),
        producer.flush,
        lambda: producer.partitions_for("t"),
    ):
        with pytest.raises(ProducerClosed):
            await call()
    with pytest.raises(IllegalStateError, match="Create a new one"):
        await producer.start()


async def test_call_during_the_start_says_what_it_waits_for(cluster: EmbeddedCluster) -> None:
    """A service that answers requests meanwhile logs the text: the start is awaited already."""
    silence = cluster.fault(ListOffsetsRequest, then=Silence(), times=None)  # its first request
    producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
    starting = asyncio.create_task(producer.start())
    await until(lambda: silence.hits > 0)
    with pytest.raises(IllegalStateError) as caught:
        await producer.send("t", b"v")
    assert "this AIOKafkaProducer is still starting" in str(caught.value)
    assert "once start() has returned, which needs a broker" in str(caught.value)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting


async def test_stop_without_start_does_nothing() -> None:
    producer = AIOKafkaProducer()
    await producer.stop()
    with pytest.raises(IllegalStateError):
        await producer.start()


async def test_a_failed_start_leaves_nothing_open(unused_tcp_port: int) -> None:
    servers = f"127.0.0.1:{unused_tcp_port}"
    producer = AIOKafkaProducer(bootstrap_servers=servers, request_timeout_ms=300)
    with pytest.raises(NoBrokersAvailable, match=f"{servers}: Connection refused"):
        await producer.start()
    assert len(asyncio.all_tasks()) == 1
    await producer.stop()


async def test_a_cancelled_start_leaves_nothing_open(cluster: EmbeddedCluster) -> None:
    cluster.fault(ListOffsetsRequest, then=Silence(), times=None)  # its first request
    for iterations in range(20):
        producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
        starting = asyncio.create_task(producer.start())
        for _ in range(iterations):
            await asyncio.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        await producer.stop()


async def test_stop_during_start_ends_both(cluster: EmbeddedCluster) -> None:
    cluster.fault(ListOffsetsRequest, then=Silence(), times=None)
    producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
    probed = cluster.next_request(ListOffsetsRequest)
    starting = asyncio.create_task(producer.start())
    await asyncio.wrap_future(probed)
    await producer.stop()
    with pytest.raises(ProducerClosed):
        await starting


async def test_start_timeout_bounds_the_wait_for_the_exact_line() -> None:
    async with EmbeddedCluster(version="0.8.2", topics={"t": 1}) as cluster:
        cluster.fault(OffsetFetchRequest, then=Hang(), times=None)
        producer = AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers,
            compression_type="lz4",
            start_timeout_ms=300,
            request_timeout_ms=60_000,
        )
        async with asyncio.timeout(20):
            with pytest.raises(KafkaTimeoutError, match="OffsetFetch"):
                await producer.start()


async def test_stop_with_a_timeout_fails_unacknowledged_messages(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster)
    await producer.send_and_wait("t", b"v", partition=1)
    cluster.fault(ProduceRequest, then=Hang(), times=None)
    futures = [await producer.send("t", b"v", partition=n % 3) for n in range(30)]
    futures += [await producer.send("t", b"v" * 10000, partition=n % 3) for n in range(30)]
    await producer.stop(timeout=0.05)
    for future in futures:
        with pytest.raises(KafkaTimeoutError, match=r"stop\(timeout=0\.05\)"):
            future.result()
    assert producer.metrics()["messages_failed"] == 60
    assert producer.metrics()["batches_unfinished"] == 0
    assert producer.metrics()["buffer_used_bytes"] == 0


async def test_a_cancelled_stop_still_closes_everything(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster)
    await producer.send_and_wait("t", b"v", partition=1)
    cluster.fault(ProduceRequest, then=Silence(), times=None)
    future = await producer.send("t", b"v", partition=1)
    behind = await producer.send("t", b"v" * 20000, partition=1)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(producer.stop(), 0.05)
    for unacknowledged in (future, behind):
        with pytest.raises(ProducerClosed, match="not acknowledged: the producer was stopped"):
            unacknowledged.result()
    await all_closed(cluster)


async def test_a_stop_cancelled_repeatedly_still_closes_everything(
    cluster: EmbeddedCluster,
) -> None:
    producer = OpenProducer(bootstrap_servers=cluster.bootstrap_servers)
    await producer.start()
    await producer.partitions_for("t")
    hung = cluster.fault(ListOffsetsRequest, then=Silence(), times=None)  # a probe
    unused = next(node.node_id for node in producer.router.nodes if not node.is_connected)
    future = await producer.send("t", b"v", partition=unused)
    while not hung.hits:  # noqa: ASYNC110
        await asyncio.sleep(0)
    stopping = asyncio.create_task(producer.stop())
    while not stopping.done():
        await asyncio.sleep(0)
        stopping.cancel()
    with pytest.raises(ProducerClosed):
        await asyncio.wait_for(future, 5)
    assert not any(node.is_connected for node in producer.router.nodes)
    await asyncio.wait_for(all_closed(cluster), 5)


async def test_stop_raises_in_senders_waiting_for_memory(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster, buffer_memory=1000)
    await producer.partitions_for("t")
    cluster.fault(ProduceRequest, then=Hang(), times=None)
    futures = [await producer.send("t", b"v" * 474, partition=0) for _ in range(2)]
    waiting = [asyncio.create_task(producer.send("t", b"v" * 474, partition=0)) for _ in range(3)]
    many = asyncio.create_task(producer.send_many("t", [b"v" * 474] * 100, partition=1))
    await asyncio.wrap_future(cluster.next_request(ProduceRequest))
    await producer.stop(timeout=0.02)
    for task in (*waiting, many):
        with pytest.raises(ProducerClosed):
            await task
    for future in futures:
        with pytest.raises(KafkaTimeoutError):
            await future


async def test_stop_raises_in_senders_waiting_for_metadata(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster)
    cluster.fault(MetadataRequest, then=Silence(), times=None)
    waiting = [asyncio.create_task(producer.send("other", b"v")) for _ in range(3)]
    partitions = asyncio.create_task(producer.partitions_for("other"))
    await asyncio.wrap_future(cluster.next_request(MetadataRequest))
    await producer.stop()
    for task in (*waiting, partitions):
        with pytest.raises(ProducerClosed):
            await task


async def test_stop_while_many_tasks_send_ends_every_send(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster)
    ends: list[Any] = []

    async def send_on() -> None:
        try:
            while True:
                ends.append(await producer.send_and_wait("t", b"v"))
        except ProducerClosed as error:
            ends.append(error)

    tasks = [asyncio.create_task(send_on()) for _ in range(20)]
    while len(ends) < 100:  # noqa: ASYNC110
        await asyncio.sleep(0)
    await producer.stop()
    await asyncio.gather(*tasks)
    stored = sum(len(cluster.log("t", partition)) for partition in range(3))
    assert stored == sum(not isinstance(end, ProducerClosed) for end in ends)


async def test_cancelling_send_withdraws_cancelling_future_does_not(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster, linger_ms=60000)
    withdrawn = asyncio.create_task(producer.send("t", b"withdrawn", partition=0))
    await asyncio.sleep(0)  # it waits for metadata
    withdrawn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await withdrawn
    future = await producer.send("t", b"sent", partition=0)
    future.cancel()
    await producer.flush()
    assert [message.value for message in cluster.log("t", 0)] == [b"sent"]


async def test_sends_to_an_unknown_topic_keep_their_order(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster)
    tasks = [asyncio.create_task(producer.send("new", b"%d" % n)) for n in range(50)]
    while not tasks[0].done():
        tasks.append(asyncio.create_task(producer.send("new", b"%d" % len(tasks))))
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    await producer.flush()
    assert [message.value for message in cluster.log("new", 0)] == [
        b"%d" % n for n in range(len(tasks))
    ]


async def test_a_producer_dropped_without_stop_warns(cluster: EmbeddedCluster) -> None:
    producer = OpenProducer(bootstrap_servers=cluster.bootstrap_servers)
    await producer.start()
    await producer.send_and_wait("t", b"v")
    router, engine = producer.router, producer.engine
    with pytest.warns(ResourceWarning, match="^Unclosed AIOKafkaProducer"):
        producer = None  # type: ignore[assignment]
    await engine.stop(ProducerClosed())
    await router.stop()


async def test_a_producer_dropped_with_messages_logs_an_error(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    producer = OpenProducer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=60000)
    await producer.start()
    future = await producer.send("t", b"v")
    router, engine = producer.router, producer.engine
    with pytest.warns(ResourceWarning, match="Unclosed"):
        producer = None  # type: ignore[assignment]
    [message] = [one.getMessage() for one in caplog.records if one.levelname == "ERROR"]
    assert re.search(r"AIOKafkaProducer was dropped without stop\(\): \d+ bytes of mess", message)
    await engine.stop(ProducerClosed())
    await router.stop()
    assert isinstance(future.exception(), ProducerClosed)


async def test_a_stopped_or_unstarted_producer_does_not_warn(cluster: EmbeddedCluster) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
        async with producer:
            await producer.send_and_wait("t", b"v")
        del producer
        AIOKafkaProducer()
        gc.collect()
    assert [one for one in caught if issubclass(one.category, ResourceWarning)] == []


async def test_a_call_in_another_loop_raises(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster)
    await producer.send_and_wait("t", b"v")

    def elsewhere() -> None:
        asyncio.run(producer.send_and_wait("t", b"v"))

    with pytest.raises(IllegalStateError, match="another event loop"):
        await asyncio.to_thread(elsewhere)


def _in_child(producer: AIOKafkaProducer, pipe: Any) -> None:
    async def send() -> None:
        await producer.send_and_wait("t", b"v")

    asyncio._set_running_loop(None)
    try:
        asyncio.run(send())
    except Exception as error:
        pipe.send(str(error))
    pipe.close()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
async def test_a_call_after_a_fork_raises(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster)
    await producer.send_and_wait("t", b"v")
    here, there = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=_in_child, args=(producer, there))
    child.start()
    there.close()
    try:
        assert "before a fork" in await asyncio.to_thread(here.recv)
    finally:
        await asyncio.to_thread(child.join)
        here.close()


@pytest.mark.parametrize("acks", [0, 1, "all"])
@pytest.mark.parametrize("end", ["stop", "timeout", "cancel", "crash"])
def test_stop_releases_batches_that_expired_in_flight(end: str, acks: int | str) -> None:
    async def scenario() -> None:
        cluster = world.cluster
        producer = OpenProducer(
            bootstrap_servers=cluster.bootstrap_servers,
            acks=acks,
            delivery_timeout_ms=500,
            request_timeout_ms=60_000,
        )
        await producer.start()
        for partition in (0, 1, 2):
            await producer.send_and_wait("t", b"v", partition=partition)
        await producer.flush()
        cluster.fault(ProduceRequest, then=Hang(), times=None)
        cluster.fault(ListOffsetsRequest, then=Hang(), times=None)
        futures = [await producer.send("t", b"v", partition=number) for number in (0, 1, 2)]
        results = await asyncio.gather(*futures, return_exceptions=True)
        assert acks == 0 or {type(result) for result in results} == {KafkaTimeoutError}
        await until(lambda: producer.metrics()["batches_unfinished"] == 0, "expired")
        assert producer.metrics()["buffer_used_bytes"] > 0  # the requests are in flight
        if end == "crash":
            producer.engine.fail(RuntimeError("a bug"))
            assert producer.metrics()["buffer_used_bytes"] == 0
        stopping = asyncio.create_task(producer.stop(timeout=0 if end == "timeout" else None))
        await asyncio.sleep(0)
        if end == "cancel":
            stopping.cancel()
        await asyncio.gather(stopping, return_exceptions=True)
        assert producer.metrics()["buffer_used_bytes"] == 0

    with simulate(1, version="0.8.2", topics={"t": 3}) as world:
        world.run(scenario)


async def test_calls_that_wait_for_a_topic_are_counted(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster, request_timeout_ms=60_000)
    cluster.fault(MetadataRequest, then=Hang(), times=None)
    waiting = [
        asyncio.create_task(producer.send(topic, b"v"))
        for topic in ("t", "other")
        for _ in range(100)
    ]
    await until(lambda: producer.metrics()["senders_waiting"] == 200, "all 200 calls")
    waiting.pop().cancel()
    await until(lambda: producer.metrics()["senders_waiting"] == 199, "one was cancelled")
    await producer.stop()
    await asyncio.gather(*waiting, return_exceptions=True)
    metrics = producer.metrics()
    assert metrics["senders_waiting"] == metrics["buffer_used_bytes"] == 0
