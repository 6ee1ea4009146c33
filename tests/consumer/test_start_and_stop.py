"""Starting and stopping a consumer, and every call while that happens."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aiokafka08._core.offset_store.kafka_store import KafkaOffsetStore
from aiokafka08.consumer.limits import ConsumerLimits
from aiokafka08.errors import (
    ConsumerStoppedError,
    IllegalStateError,
    NoBrokersAvailable,
)
from aiokafka08.protocol.requests.fetch import FetchRequest
from aiokafka08.protocol.requests.list_offsets import ListOffsetsRequest
from aiokafka08.protocol.requests.metadata import MetadataRequest
from aiokafka08.telemetry import Disconnected, Event
from aiokafka08.testing import Close, Delay, EmbeddedCluster, Silence
from tests.brokers.ports import free_port
from tests.consumer.conftest import Consumer, MakeConsumer, tp, values
from tests.support.clients import OpenConsumer
from tests.support.waiting import until

CALLS: dict[str, Callable[[Consumer], Awaitable[Any]]] = {
    "getone": lambda consumer: consumer.getone(),
    "getone of one": lambda consumer: consumer.getone(tp(0)),
    "getmany": lambda consumer: consumer.getmany(timeout_ms=60_000),
    "getmany_arrow": lambda consumer: consumer.getmany_arrow(timeout_ms=60_000),
    "position": lambda consumer: consumer.position(tp(0)),
    "seek_to_end": lambda consumer: consumer.seek_to_end(),
    "seek_to_beginning": lambda consumer: consumer.seek_to_beginning(),
    "beginning_offsets": lambda consumer: consumer.beginning_offsets([tp(0)]),
    "end_offsets": lambda consumer: consumer.end_offsets([tp(0)]),
    "offsets_for_times": lambda consumer: consumer.offsets_for_times({tp(0): 1}),
    "topics": lambda consumer: consumer.topics(),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.both_loops
async def test_stop_ends_every_waiting_call(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer, name: str
) -> None:
    consumer = make_consumer()
    consumer.assign([tp(0)])
    cluster.fault(
        ListOffsetsRequest, then=Silence(), times=None, where=lambda request: bool(request.topics)
    )
    cluster.fault(
        MetadataRequest, then=Silence(), times=None, where=lambda request: not request.topics
    )
    await consumer.start()
    call = asyncio.ensure_future(CALLS[name](consumer))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not call.done()
    await asyncio.wait_for(consumer.stop(), 5)
    if name.startswith("getmany"):
        assert len(await call) == 0
    else:
        with pytest.raises(ConsumerStoppedError, match="the consumer was stopped"):
            await call
    with pytest.raises(ConsumerStoppedError):
        await CALLS[name](consumer)
    await until(lambda: cluster.connections() == 0)


@pytest.mark.parametrize("name", CALLS)
async def test_calls_before_start_raise(make_consumer: MakeConsumer, name: str) -> None:
    consumer = make_consumer("t")
    with pytest.raises(IllegalStateError, match="isn't started"):
        await CALLS[name](consumer)


async def test_stop_at_fifty_moments_ends_all_tasks(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    """Two tasks read and one seeks while messages arrive; stopped at fifty different moments."""
    consumers = [make_consumer("t") for _ in range(50)]
    for number, consumer in enumerate(consumers):
        starting = asyncio.create_task(consumer.start())
        if number % 2:
            await starting

        async def read(of: Consumer = consumer) -> None:
            while True:
                await of.getone()

        async def walk(of: Consumer = consumer) -> None:
            async for _ in of:
                await asyncio.sleep(0)

        async def seek(of: Consumer = consumer) -> None:
            while True:
                await of.seek_to_beginning()

        tasks = [asyncio.create_task(work()) for work in (read, walk, seek)]
        for moment in range(number):
            cluster.append("t", moment % 4, values(0, 3))
            await asyncio.sleep(0)
        await asyncio.wait_for(consumer.stop(), 10)
        results = await asyncio.gather(starting, *tasks, return_exceptions=True)
        for result in results:
            assert result is None or isinstance(result, ConsumerStoppedError | IllegalStateError), (
                repr(result)
            )
    await until(lambda: cluster.connections() == 0)


async def test_message_after_the_start_is_read_from_latest(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    """Also if the leader names the end of its log late."""
    cluster.append("t", 0, values(0, 5))
    cluster.fault(ListOffsetsRequest, then=Delay(0.3), where=lambda request: bool(request.topics))
    consumer = make_consumer("t", auto_offset_reset="latest")
    await consumer.start()
    cluster.append("t", 0, [b"after"])
    assert (await asyncio.wait_for(consumer.getone(), 5)).value == b"after"


async def test_seek_while_the_start_waits_for_positions_ends_it(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    """As in on_partitions_assigned, when the request for the positions is in flight."""
    fault = cluster.fault(
        ListOffsetsRequest, then=Silence(), times=None, where=lambda request: bool(request.topics)
    )
    consumer = make_consumer("t", auto_offset_reset="latest")
    starting = asyncio.create_task(consumer.start())
    await until(lambda: fault.hits, "positions are asked for")
    assert not starting.done()
    for partition in consumer.assignment():
        consumer.seek(partition, 0)
    await asyncio.wait_for(starting, 20)


async def test_start_ends_without_the_position_of_a_hung_leader(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    cluster.fault(
        ListOffsetsRequest, then=Silence(), times=None, where=lambda request: bool(request.topics)
    )
    limits = ConsumerLimits(start_positions_s=0.1)
    consumer = make_consumer("t", auto_offset_reset="latest", parts={"limits": limits})
    await asyncio.wait_for(consumer.start(), 5)


async def test_stop_during_a_long_poll_loses_no_response(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    """What the log says of the connections is no cause for alarm."""
    events: list[Event] = []
    consumer = make_consumer("t", fetch_max_wait_ms=60_000, on_event=events.append)
    async with consumer:
        await until(lambda: len(cluster.requests(FetchRequest)) == 2)
    closed = [event for event in events if isinstance(event, Disconnected)]
    assert {event.reason for event in closed} == {"closed by the client"}
    assert [event.lost for event in closed] == [0] * len(closed)
    assert "fetch" in {event.lane for event in closed}


async def test_stop_twice_and_before_the_start(make_consumer: MakeConsumer) -> None:
    consumer = make_consumer("t")
    await consumer.start()
    await asyncio.gather(consumer.stop(), consumer.stop())
    await consumer.stop()
    with pytest.raises(IllegalStateError, match="stopped"):
        await consumer.start()
    fresh = make_consumer("t")
    await fresh.stop()
    with pytest.raises(IllegalStateError, match="stopped"):
        await fresh.start()
    running = make_consumer("t")
    await running.start()
    with pytest.raises(IllegalStateError, match="started already"):
        await running.start()
    assert len(running.assignment()) == 4  # it was no reason to stop it


async def test_cancelled_stop_goes_on(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    consumer = make_consumer("t")
    await consumer.start()
    stopping = asyncio.create_task(consumer.stop())
    await asyncio.sleep(0)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    await consumer.stop()
    await until(lambda: cluster.connections() == 0)


async def test_failed_start_leaves_no_connection(cluster: EmbeddedCluster) -> None:
    unreachable = f"127.0.0.1:{free_port()}"
    with pytest.raises(NoBrokersAvailable):
        await Consumer("t", bootstrap_servers=unreachable, request_timeout_ms=300).start()
    cluster.fault(MetadataRequest, then=Silence(), times=None)
    slow = Consumer("t", bootstrap_servers=cluster.bootstrap_servers, request_timeout_ms=300)
    with pytest.raises(NoBrokersAvailable):
        await slow.start()
    await until(lambda: cluster.connections() == 0)
    again = Consumer("t", bootstrap_servers=cluster.bootstrap_servers)
    requests = len(cluster.requests(MetadataRequest))
    starting = asyncio.create_task(again.start())
    await until(lambda: len(cluster.requests(MetadataRequest)) > requests)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    await until(lambda: cluster.connections() == 0)


async def test_stop_during_start_ends_the_start(cluster: EmbeddedCluster) -> None:
    cluster.fault(MetadataRequest, then=Silence(), times=None)
    consumer = Consumer("t", bootstrap_servers=cluster.bootstrap_servers)
    starting = asyncio.create_task(consumer.start())
    await until(lambda: cluster.requests(MetadataRequest))
    await consumer.stop()
    with pytest.raises(ConsumerStoppedError):
        await starting
    await until(lambda: cluster.connections() == 0)


async def test_consumer_dropped_without_stop_warns(cluster: EmbeddedCluster) -> None:
    consumer = OpenConsumer("t", bootstrap_servers=cluster.bootstrap_servers)
    await consumer.start()
    inside = consumer.engine
    with pytest.warns(ResourceWarning, match="^Unclosed AIOKafkaConsumer"):
        del consumer
    await inside.stop()


async def test_call_from_another_loop_raises(make_consumer: MakeConsumer) -> None:
    consumer = make_consumer("t")
    await consumer.start()

    def elsewhere() -> None:
        with pytest.raises(IllegalStateError, match="another event loop"):
            asyncio.run(consumer.getmany(timeout_ms=10))

    await asyncio.to_thread(elsewhere)


async def test_stop_from_another_loop_raises_and_changes_nothing(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    consumer = make_consumer("t")
    await consumer.start()

    def elsewhere() -> None:
        with pytest.raises(IllegalStateError, match="another event loop"):
            asyncio.run(consumer.stop())

    await asyncio.to_thread(elsewhere)
    cluster.append("t", 0, [b"v"])
    assert (await consumer.getone()).value == b"v"
    await consumer.stop()


async def test_two_tasks_share_one_consumer(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    consumer = make_consumer("t")
    await consumer.start()

    async def produce() -> None:
        for number in range(200):
            cluster.append("t", number % 4, values(number, number + 1))
            await asyncio.sleep(0)

    producing = asyncio.create_task(produce())
    got: list[int] = []

    async def consume() -> None:
        while len(got) < 200:
            for records in (await consumer.getmany(timeout_ms=100)).values():
                got.extend(int(record.value or 0) for record in records)

    await asyncio.wait_for(asyncio.gather(consume(), consume(), producing), 20)
    assert sorted(got) == list(range(200))


async def test_closed_connections_are_opened_again(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    consumer = make_consumer("t")
    await consumer.start()
    for number in range(5):
        cluster.append("t", 0, values(number, number + 1))
        assert (await asyncio.wait_for(consumer.getone(), 10)).offset == number
        cluster.drop_connections()
    cluster.fault(FetchRequest, then=Close(), times=3)
    cluster.append("t", 0, values(5, 6))
    assert (await asyncio.wait_for(consumer.getone(), 10)).offset == 5


STEPS: dict[str, Callable[[OpenConsumer], tuple[object, str]]] = {
    "last commit": lambda consumer: (consumer.engine, "finish"),
    "membership": lambda consumer: (consumer.engine.membership, "stop"),
    "reading": lambda consumer: (consumer.engine.fetcher, "stop"),
    "offset store": lambda consumer: (consumer.engine.store, "stop"),
    "connections": lambda consumer: (consumer.router, "stop"),
}


@pytest.mark.parametrize("name", STEPS)
async def test_failing_step_of_stop_lets_the_others_run(
    cluster: EmbeddedCluster, name: str
) -> None:
    consumer = OpenConsumer("t", bootstrap_servers=cluster.bootstrap_servers)
    await consumer.start()
    taken: list[str] = []

    def failing(step: str, work: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        async def take() -> None:
            await work()
            taken.append(step)
            if step in (name, "connections"):
                raise OSError(step)

        return take

    for step, find in STEPS.items():
        owner, method = find(consumer)
        setattr(owner, method, failing(step, getattr(owner, method)))
    for _ in range(2):
        with pytest.raises(OSError, match=name):
            await consumer.stop()
    assert taken == list(STEPS)


async def test_commit_is_refused_while_the_store_starts(
    make_consumer: MakeConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, proceed = asyncio.Event(), asyncio.Event()

    async def start_slowly(store: KafkaOffsetStore) -> None:
        began.set()
        await proceed.wait()

    monkeypatch.setattr(KafkaOffsetStore, "start", start_slowly)
    consumer = make_consumer(group_id="g", enable_auto_commit=False)
    consumer.assign([tp(0)])
    start = asyncio.create_task(consumer.start())
    await began.wait()
    with pytest.raises(IllegalStateError, match="AIOKafkaConsumer is still starting"):
        await consumer.commit({tp(0): 5})
    proceed.set()
    await start
    await consumer.commit({tp(0): 5})
    assert await consumer.committed(tp(0)) == 5
