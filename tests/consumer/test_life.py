"""Starting, stopping, and every call while that happens; options and refusals."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aiokafka08.consumer import AIOKafkaConsumer
from aiokafka08.errors import (
    ConsumerStoppedError,
    IllegalArgumentError,
    IllegalOperation,
    IllegalStateError,
    InvalidTopicError,
    KafkaConfigurationError,
    NoBrokersAvailable,
    UnsupportedVersionError,
)
from aiokafka08.protocol.api import FetchRequest, ListOffsetsRequest, MetadataRequest
from aiokafka08.testing import Close, EmbeddedCluster, Silence
from tests.brokers.ports import free_port
from tests.consumer.conftest import Consumer, MakeConsumer, tp, values
from tests.waiting import until

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
async def test_stop_ends_every_call_that_waits(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer, name: str
) -> None:
    consumer = make_consumer()
    consumer.assign([tp(0)])
    cluster.fault(
        ListOffsetsRequest, then=Silence(), times=None, where=lambda asked: bool(asked.topics)
    )
    cluster.fault(MetadataRequest, then=Silence(), times=None, where=lambda asked: not asked.topics)
    await consumer.start()
    call = asyncio.ensure_future(CALLS[name](consumer))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not call.done()
    await asyncio.wait_for(consumer.stop(), 5)
    with pytest.raises(ConsumerStoppedError, match="the consumer was stopped"):
        await call
    with pytest.raises(ConsumerStoppedError):
        await CALLS[name](consumer)
    await until(lambda: cluster.connections() == 0)


@pytest.mark.parametrize("name", CALLS)
async def test_calls_before_the_start_say_so(make_consumer: MakeConsumer, name: str) -> None:
    consumer = make_consumer("t")
    with pytest.raises(IllegalStateError, match="isn't started"):
        await CALLS[name](consumer)


async def test_stop_in_the_middle_of_everything(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    """Two tasks read, one writes, one seeks; stopped at a hundred different moments."""
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


async def test_stop_twice_together_and_before_the_start(make_consumer: MakeConsumer) -> None:
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


async def test_a_stop_that_is_cancelled_goes_on(
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


async def test_a_start_that_fails_leaves_nothing(cluster: EmbeddedCluster) -> None:
    with pytest.raises(NoBrokersAvailable):
        await Consumer("t", bootstrap_servers=f"127.0.0.1:{free_port()}").start()
    cluster.fault(MetadataRequest, then=Silence(), times=None)
    slow = Consumer("t", bootstrap_servers=cluster.bootstrap_servers, request_timeout_ms=300)
    with pytest.raises(NoBrokersAvailable):
        await slow.start()
    await until(lambda: cluster.connections() == 0)
    again = Consumer("t", bootstrap_servers=cluster.bootstrap_servers)
    starting = asyncio.create_task(again.start())
    await asyncio.sleep(0.05)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    await until(lambda: cluster.connections() == 0)


async def test_stop_while_it_starts(cluster: EmbeddedCluster) -> None:
    cluster.fault(MetadataRequest, then=Silence(), times=None)
    consumer = Consumer("t", bootstrap_servers=cluster.bootstrap_servers)
    starting = asyncio.create_task(consumer.start())
    await until(lambda: cluster.requests(MetadataRequest))
    await consumer.stop()
    with pytest.raises(ConsumerStoppedError):
        await starting
    await until(lambda: cluster.connections() == 0)


async def test_dropped_without_stop_it_warns(cluster: EmbeddedCluster) -> None:
    consumer = Consumer("t", bootstrap_servers=cluster.bootstrap_servers)
    await consumer.start()
    inside = consumer._engine
    with pytest.warns(ResourceWarning, match="AIOKafkaConsumer was dropped"):
        del consumer
    await inside.stop()


async def test_another_loop_says_so(make_consumer: MakeConsumer) -> None:
    consumer = make_consumer("t")
    await consumer.start()

    def elsewhere() -> None:
        with pytest.raises(IllegalStateError, match="another event loop"):
            asyncio.run(consumer.getmany(timeout_ms=10))

    await asyncio.to_thread(elsewhere)


async def test_stop_from_another_loop_is_refused_and_harms_nothing(
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


async def test_producing_and_consuming_from_two_tasks(
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


async def test_what_the_broker_closes_is_opened_again(
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


# --- options ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "needs"),
    [
        ({"isolation_level": "read_committed"}, "isolation_level.*Fetch 4"),
        ({"group_instance_id": "x"}, "group_instance_id.*JoinGroup 5"),
        ({"client_rack": "r"}, "client_rack.*Fetch 11"),
        ({"security_protocol": "SASL_SSL"}, "SaslHandshake"),
        ({"sasl_plain_username": "me"}, "sasl_plain_username.*SaslHandshake"),
        ({"sasl_oauth_token_provider": object()}, "sasl_oauth_token_provider.*SaslHandshake"),
    ],
)
def test_what_the_protocol_can_t_do_is_refused(options: dict[str, Any], needs: str) -> None:
    with pytest.raises(UnsupportedVersionError, match=needs):
        AIOKafkaConsumer(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"auto_offset_reset": "smallest"},
        {"consumer_timeout_ms": -1},
        {"isolation_level": "serializable"},
        {"offsets_storage": "redis"},
        {"offsets_storage": "dual"},  # without a group
        {"zookeeper_connect": ""},
        {"fetch_max_bytes": 0},
        {"fetch_min_bytes": -1},
        {"fetch_max_wait_ms": -1},
        {"max_partition_fetch_bytes": 0},
        {"max_poll_records": 0},
        {"request_timeout_ms": 0},
        {"session_timeout_ms": 0},
        {"group_id": 3},
        {"key_deserializer": 3},
        {"on_event": 3},
        {"enable_auto_commit": "no"},
        {"check_crcs": None},
        {"exclude_internal_topics": "false"},
        {"partition_assignment_strategy": None},
        {"partition_assignment_strategy": 3},
        {"zookeeper_connect": 2181},
        {"client_id": 0},
        {"api_version": "0.7"},
        {"bootstrap_servers": ""},
        {"security_protocol": "TLS"},
    ],
    ids=lambda options: next(iter(options)),
)
def test_wrong_options_are_named(options: dict[str, Any]) -> None:
    with pytest.raises(IllegalArgumentError) as caught:
        AIOKafkaConsumer(**options)
    assert next(iter(options)) in str(caught.value)
    assert isinstance(caught.value, ValueError)


async def test_numbers_that_don_t_fit_the_wire_are_cut(
    cluster: EmbeddedCluster, make_consumer: MakeConsumer
) -> None:
    huge = 2**40
    cluster.append("t", 0, values(0, 3))
    consumer = make_consumer("t", fetch_max_bytes=huge, max_partition_fetch_bytes=huge)
    await consumer.start()
    assert (await consumer.getone()).offset == 0


def test_other_wrong_arguments() -> None:
    with pytest.raises(InvalidTopicError):
        AIOKafkaConsumer("a b")
    with pytest.raises(KafkaConfigurationError):
        AIOKafkaConsumer(ssl_context=ssl.create_default_context())
    with pytest.warns(DeprecationWarning, match="loop"):
        AIOKafkaConsumer(loop=object())  # type: ignore[arg-type]


async def test_wrong_arguments_of_calls_are_named(make_consumer: MakeConsumer) -> None:
    consumer = make_consumer("t")
    await consumer.start()
    calls: list[tuple[type[Exception], str, Awaitable[Any]]] = [
        (TypeError, "'t' in the list", consumer.getone("t")),  # type: ignore[arg-type]
        (TypeError, "'t' in the list", consumer.getmany("t")),  # type: ignore[arg-type]
        (TypeError, "timeout_ms='1'", consumer.getmany(timeout_ms="1")),  # type: ignore[arg-type]
        (TypeError, "not 't'", consumer.end_offsets("t")),  # type: ignore[arg-type]
        (ValueError, "partition -1", consumer.beginning_offsets([tp(-1)])),
        (TypeError, r"timestamps\[.*\]='x'", consumer.offsets_for_times({tp(0): "x"})),  # type: ignore[dict-item]
        (ValueError, r"timestamps\[.*\]=-1", consumer.offsets_for_times({tp(0): -1})),
    ]
    for error, says, call in calls:
        with pytest.raises(error, match=says):
            await call


async def test_committing_needs_a_group(make_consumer: MakeConsumer) -> None:
    consumer = make_consumer("t")
    await consumer.start()
    for call in (
        consumer.commit(),
        consumer.commit({tp(0): 3}),
        consumer.committed(tp(0)),
        consumer.seek_to_committed(),
    ):
        with pytest.raises(IllegalOperation, match="group_id"):
            await call


STEPS: dict[str, Callable[[Consumer], tuple[object, str]]] = {
    "last commit": lambda consumer: (consumer._engine, "finish"),
    "membership": lambda consumer: (consumer._engine._membership, "stop"),
    "reading": lambda consumer: (consumer._engine._fetcher, "stop"),
    "offset store": lambda consumer: (consumer._engine._store, "stop"),
    "connections": lambda consumer: (consumer._router, "stop"),
}


@pytest.mark.parametrize("name", STEPS)
async def test_where_a_step_of_stop_fails_the_others_are_taken_and_the_first_error_is_told(
    cluster: EmbeddedCluster, name: str
) -> None:
    consumer = AIOKafkaConsumer("t", bootstrap_servers=cluster.bootstrap_servers)
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
