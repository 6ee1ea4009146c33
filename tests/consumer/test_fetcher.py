"""Fetching while partitions fail, leaders move, and brokers die or stay silent."""

from __future__ import annotations

import asyncio
import time

import pytest

from aiokafka08._core.net.limits import NetLimits
from aiokafka08.consumer.limits import ConsumerLimits
from aiokafka08.errors import (
    BrokerResponseError,
    KafkaError,
    TopicAuthorizationFailedError,
    UnsupportedCompressionTypeError,
    UnsupportedVersionError,
)
from aiokafka08.protocol.requests.fetch import FetchRequest
from aiokafka08.telemetry import Event, PartitionFailed
from aiokafka08.testing import (
    Answer,
    Close,
    EmbeddedCluster,
    Hang,
    Omit,
    Truncate,
    WrongCorrelationId,
)
from aiokafka08.testing.faults import Effect
from tests.consumer.conftest import MakeConsumer, has_partition, slices_of, take, tp, values
from tests.support.waiting import until

pytestmark = pytest.mark.twins


async def test_error_of_one_partition_affects_it_alone(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    """Partitions 0 and 2 have the same leader; 0 always fails, 2 continues at full speed."""
    cluster.append("t", 0, values(0, 1))
    consumer = make_consumer(retry_backoff_ms=100)
    consumer.assign([tp(0)])
    fault = cluster.fault(
        FetchRequest, then=Answer(-1), times=None, where=lambda request: has_partition(0, request)
    )
    await consumer.start()
    await until(lambda: fault.hits >= 2)
    consumer.assign([tp(0), tp(2)])
    hits = fault.hits
    got = []
    for number in range(30):
        cluster.append("t", 2, values(number, number + 1))
        got.append((await asyncio.wait_for(consumer.getone(), 5)).offset)
    assert got == list(range(30))
    assert fault.hits - hits <= 12, "the failing partition was fetched too often"
    fault.cancel()
    assert (await asyncio.wait_for(consumer.getone(tp(0)), 10)).offset == 0


@pytest.mark.parametrize("code", [3, 5, 6, -1, 99])
async def test_retriable_errors_back_off(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer, code: int
) -> None:
    cluster.append("t", 0, values(0, 3))
    consumer = make_consumer(retry_backoff_ms=20)
    consumer.assign([tp(0)])
    fault = cluster.fault(FetchRequest, then=Answer(code), times=5)
    await consumer.start()
    loop = asyncio.get_running_loop()
    await until(lambda: fault.hits >= 1)
    began = loop.time()
    await until(lambda: fault.hits == 5)
    # 20, 40, 80 and 160 ms, each 20 % shorter at most.
    assert loop.time() - began >= 0.3 * 0.8
    assert [r.offset for r in await take(consumer, 3)] == [0, 1, 2]
    assert consumer.metrics()["fetch_errors"] == 5


async def test_idle_consumer_fetches_once_per_wait(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    consumer = make_consumer(fetch_max_wait_ms=100)
    consumer.assign([tp(0), tp(2)])
    await consumer.start()
    await until(lambda: len(cluster.requests(FetchRequest)) >= 2)
    before = len(cluster.requests(FetchRequest))
    await asyncio.sleep(1.0)
    assert len(cluster.requests(FetchRequest)) - before <= 11


async def test_full_partition_lengthens_the_polls_of_others(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    cluster.append("t", 0, [bytes(60_000)] * 10)
    consumer = make_consumer(fetch_max_wait_ms=500, max_partition_fetch_bytes=100_000)
    consumer.assign([tp(0), tp(2)])
    await consumer.start()
    await until(lambda: consumer.metrics()["buffered_bytes"] > 100_000)
    before = len(cluster.requests(FetchRequest))
    await asyncio.sleep(2.0)
    # Polls of 2, 4, 8, … 500 ms for the other partition.
    assert len(cluster.requests(FetchRequest)) - before <= 17
    assert len(await take(consumer, 10)) == 10


async def test_stop_frees_what_wasnt_returned(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    cluster.append("t", 0, [bytes(60_000)] * 3)
    consumer = make_consumer()
    consumer.assign([tp(0)])
    await consumer.start()
    await until(lambda: consumer.metrics()["buffered_bytes"] > 100_000)
    assert consumer.metrics()["buffered_bytes"] <= consumer.metrics()["buffered_limit_bytes"]
    await consumer.stop()
    metrics = consumer.metrics()
    assert (metrics["buffered_bytes"], metrics["requested_bytes"], metrics["lag"]) == (0, 0, 3)


async def test_moved_leader_is_followed(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    consumer = make_consumer("t")
    await consumer.start()
    got: list[int] = []
    for number in range(12):
        if number % 3 == 2:
            cluster.move_leader("t", 0)
        cluster.append("t", 0, values(number, number + 1))
        got.append((await asyncio.wait_for(consumer.getone(tp(0)), 10)).offset)
    assert got == list(range(12))


async def test_dead_broker_is_replaced_by_another_leader(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    for partition in range(4):
        cluster.append("t", partition, values(0, 10))
    consumer = make_consumer("t")
    await consumer.start()
    assert len(await take(consumer, 40)) == 40
    cluster.kill(0)
    for partition in range(4):
        cluster.append("t", partition, values(10, 12))
    got = await take(consumer, 8)
    assert sorted((r.partition, r.offset) for r in got) == [
        (partition, offset) for partition in range(4) for offset in (10, 11)
    ]
    cluster.restart(0)
    cluster.move_leader("t", 0, to=0)
    cluster.append("t", 0, values(12, 13))
    assert [r.offset for r in await take(consumer, 1)] == [12]


async def test_leaderless_partition_waits_for_a_leader(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    consumer = make_consumer("t")
    await consumer.start()
    await until(consumer.ready)
    cluster.kill(0, then="leaderless")
    cluster.append("t", 1, values(0, 3))
    assert [r.partition for r in await take(consumer, 3)] == [1, 1, 1]
    await until(lambda: not consumer.ready())
    cluster.elect()
    cluster.append("t", 0, values(0, 3))
    assert [r.partition for r in await take(consumer, 3)] == [0, 0, 0]
    await until(consumer.ready)


@pytest.mark.parametrize(
    "effect",
    [Close(), Close(after_bytes=3), Close(after_bytes=30, reset=True), Truncate(5), Omit(),
     WrongCorrelationId()],
    ids=repr,
)  # fmt: skip
async def test_broken_responses_lose_no_message(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer, effect: Effect
) -> None:
    cluster.append("t", 0, values(0, 50))
    cluster.append("t", 1, values(0, 50))
    consumer = make_consumer("t")
    for nth in (1, 2, 4):
        cluster.fault(FetchRequest, then=effect, nth=nth)
    await consumer.start()
    got = await take(consumer, 100)
    for partition in (0, 1):
        assert [r.offset for r in got if r.partition == partition] == list(range(50))
    assert len(cluster.requests(FetchRequest)) < 30


async def test_exceeded_quota_delays_and_fails_nothing(
    make_consumer: MakeConsumer, caplog: pytest.LogCaptureFixture
) -> None:
    """The response has no partition, and isn't a failure of any (docs/brokers.md 7.18)."""
    events: list[Event] = []
    caplog.set_level("INFO", "aiokafka08.consumer")
    async with EmbeddedCluster(version="0.10", topics={"t": 2}) as cluster:
        for partition in range(2):
            cluster.append("t", partition, values(0, 50))
        withheld = cluster.fault(FetchRequest, then=Omit(throttle_time_ms=300), times=2)
        servers = cluster.bootstrap_servers
        consumer = make_consumer("t", bootstrap_servers=servers, on_event=events.append)
        began = asyncio.get_running_loop().time()
        await consumer.start()
        await take(consumer, 100)
        assert asyncio.get_running_loop().time() - began >= 0.59
        assert withheld.hits == 2
        assert consumer.metrics()["fetch_request_failures"] == 0
        await consumer.stop()
    assert [event for event in events if isinstance(event, PartitionFailed)] == []
    assert caplog.text.count("node 0 withholds data for 0.3 s: the client exceeds its quota") == 1


async def test_silent_broker_delays_only_its_own_partitions(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    consumer = make_consumer("t", request_timeout_ms=500)
    await consumer.start()
    await until(consumer.ready)
    cluster.fault(FetchRequest, then=Hang(), node=0)
    cluster.append("t", 0, values(0, 1))  # ends the poll in flight; the next one hangs
    assert (await asyncio.wait_for(consumer.getone(tp(0)), 10)).offset == 0
    cluster.append("t", 0, values(1, 2))
    for number in range(5):
        cluster.append("t", 1, values(number, number + 1))
        assert (await asyncio.wait_for(consumer.getone(tp(1)), 5)).offset == number
    assert (await asyncio.wait_for(consumer.getone(tp(0)), 10)).offset == 1
    assert consumer.metrics()["fetch_request_failures"] >= 1


async def test_silent_broker_is_left_when_another_one_leads(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    """Long before `request_timeout_ms`, which is 40 s by default."""
    consumer = make_consumer(net_limits=NetLimits(overdue_s=0.1))
    consumer.assign([tp(0)])
    await consumer.start()
    await until(consumer.ready)
    fault = cluster.fault(FetchRequest, then=Hang(), node=0)
    await until(lambda: fault.hits)
    await until(lambda: not consumer.ready())
    cluster.move_leader("t", 0)
    cluster.append("t", 0, values(0, 1))
    assert (await asyncio.wait_for(consumer.getone(), 5)).offset == 0
    await until(consumer.ready)


async def test_final_error_is_raised_and_then_retried(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    cluster.append("t", 0, values(0, 1))
    consumer = make_consumer()
    consumer.assign([tp(0)])
    cluster.fault(FetchRequest, then=Answer(29), times=None)
    await consumer.start()
    for _ in range(2):
        with pytest.raises(TopicAuthorizationFailedError, match="t/0"):
            await consumer.getone()
    cluster.clear_faults()
    assert (await consumer.getone()).offset == 0


@pytest.mark.parametrize("version", ["0.8.2", "0.9", "0.10"])  # Fetch 0, 1, 2
@pytest.mark.parametrize(
    ("code", "error", "advice"),
    [
        (35, UnsupportedVersionError, "message.downconversion.enable"),
        (76, UnsupportedCompressionTypeError, "Set compression.type of the topic"),
    ],
)
async def test_refused_partition_with_a_null_set_affects_it_alone(
    make_consumer: MakeConsumer, version: str, code: int, error: type[KafkaError], advice: str
) -> None:
    """Modern brokers send null for the message set beside these codes (docs/brokers.md 7.17)."""
    async with EmbeddedCluster(version=version, topics={"t": 2}) as cluster:
        for partition in range(2):
            cluster.append("t", partition, values(0, 3))
        consumer = make_consumer(bootstrap_servers=cluster.bootstrap_servers)
        consumer.assign([tp(0), tp(1)])
        then = Answer(code, only=[("t", 0)], null_sets=True)
        fault = cluster.fault(FetchRequest, then=then, times=None)
        await consumer.start()
        for last in (3, 6):
            with pytest.raises(error, match="fetch of t/0 at offset 0: ") as caught:
                await asyncio.wait_for(consumer.getone(tp(0)), 20)
            assert advice in str(caught.value)
            assert [r.offset for r in await take(consumer, 3, tp(1))] == [*range(last - 3, last)]
            cluster.append("t", 1, values(last, last + 3))
        assert consumer.metrics()["fetch_request_failures"] == 0
        fault.cancel()
        assert [r.offset for r in await take(consumer, 3, tp(0))] == [0, 1, 2]


async def test_unknown_code_is_raised_after_max_tries(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    consumer = make_consumer(retry_backoff_ms=1, parts={"limits": ConsumerLimits(max_tries=6)})
    consumer.assign([tp(0)])
    fault = cluster.fault(FetchRequest, then=Answer(99), times=None)
    await consumer.start()
    with pytest.raises(BrokerResponseError, match="Error 99"):
        async with asyncio.timeout(30):
            await consumer.getmany(timeout_ms=30_000)
    assert fault.hits >= 6


async def test_busy_reader_doesnt_slow_the_fetcher(
    make_consumer: MakeConsumer,
) -> None:
    async with EmbeddedCluster(topics={"many": 200, "t": 1}) as cluster:
        cluster.append("t", 0, values(0, 1000))
        consumer = make_consumer(
            "many", "t", bootstrap_servers=cluster.bootstrap_servers, parts=slices_of(0.005)
        )
        await consumer.start()
        await consumer.getone(tp(0))
        for partition in range(200):
            cluster.append("many", partition, [b"new"])
        read = 0
        while consumer.metrics()["lag"] - consumer.metrics()["lag{t-0}"] < 200:
            await consumer.getone(tp(0))
            time.sleep(0.01)  # synchronous work of the reader, longer than a slice
            read += 1
        # One message is read in each loop iteration, and each may apply many partitions.
        assert read < 60
