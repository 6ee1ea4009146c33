"""A task that sends, or awaits results, in a tight loop yields to the event loop; order is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from aiokafka08._core.concurrency.loop_yield import LoopYield
from aiokafka08.errors import KafkaError
from aiokafka08.producer.batch_delivery import BatchDelivery, CallbackQueue, PureDeliveryFuture
from aiokafka08.producer.deliveries import Acknowledged, Deliveries, DeliveryGroup
from aiokafka08.producer.fast_path import DeliveryFuture
from aiokafka08.structs import TopicPartition
from aiokafka08.testing import EmbeddedCluster
from tests.producer.conftest import Producer

ProducerFor = Callable[..., Awaitable[Producer]]

AWAITED = 5000

pytestmark = pytest.mark.both_loops


ALWAYS_S = -1.0
"""A yield is due at each check, however fast the machine is."""


@pytest.fixture
def producer_for(producer_for: ProducerFor) -> ProducerFor:
    """Start producers that yield at each check."""
    return partial(producer_for, parts={"hold_s": ALWAYS_S})


async def iterations_until_done(task: asyncio.Task[Any]) -> int:
    iterations = 0
    while not task.done():
        iterations += 1
        await asyncio.sleep(0)
    await task
    return iterations


async def iterations_until_refused(sending: Coroutine[Any, Any, object], match: str) -> int:
    task = asyncio.ensure_future(sending)
    iterations = 0
    while not task.done():
        iterations += 1
        await asyncio.sleep(0)
    with pytest.raises(Exception, match=match):
        await task
    return iterations


@pytest.fixture(params=sorted({DeliveryFuture, PureDeliveryFuture}, key=str))
def twin(request: pytest.FixtureRequest) -> type[DeliveryFuture]:
    """Both twins of the future, if the compiled one is in use."""
    found: type[DeliveryFuture] = request.param
    return found


def acknowledged(hold_s: float = ALWAYS_S) -> BatchDelivery:
    delivery = BatchDelivery(
        TopicPartition("t", 2), CallbackQueue(asyncio.get_running_loop()), LoopYield(hold_s)
    )
    delivery.acknowledge(0, -1, has_timestamps=False)
    return delivery


def done_futures(
    twin: type[DeliveryFuture], count: int = AWAITED, *, hold_s: float = ALWAYS_S
) -> list[DeliveryFuture]:
    delivery = acknowledged(hold_s)
    return [twin(delivery, index, -1) for index in range(count)]


async def offsets(futures: list[DeliveryFuture]) -> list[int]:
    return [(await future).offset for future in futures]


@pytest.mark.parametrize("options", [{}, {"value_serializer": bytes}])
async def test_a_tight_loop_of_sends_yields_and_keeps_order(
    cluster: EmbeddedCluster, producer_for: ProducerFor, options: dict[str, object]
) -> None:
    producer = await producer_for(cluster, **options)
    await producer.partitions_for("t")

    async def send() -> None:
        for number in range(5000):
            await producer.send("t", b"%d" % number, partition=0)

    assert await iterations_until_done(asyncio.create_task(send())) > 5000 // 128 - 2
    await producer.flush()
    assert [entry.value for entry in cluster.log("t", 0)] == [b"%d" % n for n in range(5000)]


async def test_a_tight_loop_of_small_send_many_yields(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster)
    await producer.partitions_for("t")

    async def send() -> None:
        for _ in range(100):
            await producer.send_many("t", [b"v"] * 10, partition=0)

    assert await iterations_until_done(asyncio.create_task(send())) > 50
    await producer.flush()
    assert len(cluster.log("t", 0)) == 1000


async def test_tasks_that_send_once_keep_the_order_of_calls(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster)
    await producer.partitions_for("t")
    await asyncio.gather(*[producer.send("t", b"%d" % n, partition=0) for n in range(1000)])
    await producer.flush()
    assert [entry.value for entry in cluster.log("t", 0)] == [b"%d" % n for n in range(1000)]


async def test_a_send_cancelled_while_it_yields_is_withdrawn(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster)
    await producer.partitions_for("t")
    accepted = 0

    async def send() -> None:
        nonlocal accepted
        for _ in range(1000):
            await producer.send("t", b"v", partition=0)
            accepted += 1

    task = asyncio.create_task(send())
    await asyncio.sleep(0)
    assert 0 < accepted < 1000
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await producer.flush()
    assert len(cluster.log("t", 0)) == accepted


# --- the arguments of send_many -------------------------------------------------------------------

MANY = 50_000


class Drawn:
    """An iterable without a length."""

    def __iter__(self) -> Iterator[object]:
        for _ in range(MANY):
            yield b"v"
        yield 7


def _not_the_last(value: bytes) -> bytes:
    if value == b"last":
        raise ValueError("no")
    return value


@pytest.mark.parametrize(
    ("options", "arguments", "match"),
    [
        ({}, {"values": [b"v"] * MANY + [b"v" * 1000]}, f"message {MANY} takes 1034 bytes"),
        (
            {},
            {"values": [b"v"] * (MANY + 1), "keys": [None] * MANY + [b"k" * 1000]},
            f"message {MANY} takes 1035 bytes",
        ),
        ({}, {"values": [b"v"] * MANY + ["v"]}, f"value {MANY} is str"),
        ({}, {"values": Drawn()}, f"value {MANY} is int"),
        ({}, {"values": [b"v"] * MANY, "keys": [b"k"] * (MANY - 1) + [7]}, "key 49999 is int"),
        (
            {},
            {"values": [b"v"] * MANY, "timestamps_ms": [0] * (MANY - 1) + [-1]},
            r"timestamps_ms\[49999\]=-1",
        ),
        ({"value_serializer": _not_the_last}, {"values": [b"v"] * MANY + [b"last"]}, "no"),
    ],
)
async def test_send_many_yields_while_it_checks_its_arguments(
    cluster: EmbeddedCluster,
    producer_for: ProducerFor,
    options: dict[str, Any],
    arguments: dict[str, Any],
    match: str,
) -> None:
    producer = await producer_for(cluster, max_request_size=1000, **options)
    sending = producer.send_many("t", partition=0, **arguments)
    assert await iterations_until_refused(sending, match) > 20
    assert producer.metrics()["buffer_used_bytes"] == 0
    await producer.flush()
    assert cluster.log("t", 0) == []


async def test_send_arrow_yields_while_it_measures_rows(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    rows = 11 * 65536
    producer = await producer_for(cluster, max_request_size=1000)
    batch = pa.record_batch({"value": [b"v"] * rows + [b"v" * 1000, b"v"]})
    sending = producer.send_arrow("t", batch)
    assert await iterations_until_refused(sending, f"row {rows} takes 1034 bytes") >= 5
    assert producer.metrics()["buffer_used_bytes"] == 0


async def test_lists_may_change_while_send_many_checks_them(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster, value_serializer=bytes)
    values = {number: b"%d" % number for number in range(5000)}
    keys = [b"k"] * 5000
    sending = asyncio.create_task(producer.send_many("t", values.values(), keys, partition=0))
    await asyncio.sleep(0)
    values.clear()
    keys.clear()
    await (await sending)
    assert [one.value for one in cluster.log("t", 0)] == [b"%d" % n for n in range(5000)]


async def test_send_many_cancelled_during_checks_sends_nothing(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster)
    await producer.partitions_for("t")
    drawn = []

    def values() -> Iterator[bytes]:
        for number in range(5000):
            drawn.append(number)
            yield b"v"

    task = asyncio.create_task(producer.send_many("t", values(), partition=0))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert 0 < len(drawn) < 5000
    assert producer.metrics()["buffer_used_bytes"] == 0
    await producer.flush()
    assert cluster.log("t", 0) == []


# --- the result of send_many ----------------------------------------------------------------------


async def test_awaiting_completed_deliveries_yields() -> None:
    delivery = acknowledged()
    delivery.finish()
    groups = [DeliveryGroup([index], delivery, index, -1) for index in range(2000)]

    async def wait() -> int:
        return len(await Deliveries(2000, groups, None, LoopYield(ALWAYS_S)))

    task = asyncio.create_task(wait())
    assert await iterations_until_done(task) > 2000 // 128 - 2
    assert task.result() == 2000


async def test_awaiting_many_short_completed_deliveries_yields() -> None:
    delivery = acknowledged()
    delivery.finish()
    loop_yield = LoopYield(ALWAYS_S)

    async def wait() -> None:
        for index in range(500):
            await Deliveries(1, [DeliveryGroup([index], delivery, index, -1)], None, loop_yield)

    assert await iterations_until_done(asyncio.create_task(wait())) > 500 // 2 - 2


async def test_deliveries_of_a_split_batch_use_its_parts() -> None:
    """Not one lookup per message: for a million messages that held the loop for 0.5 s."""
    tp = TopicPartition("t", 0)
    whole, rest, first, second, third = (BatchDelivery(tp, None) for _ in range(5))
    whole.split(10**8, first, rest)
    rest.split(10**8, second, third)
    for part in (first, third):
        part.acknowledge(0, -1, has_timestamps=False)
        part.finish()
    second.fail(KafkaError("no"))
    second.finish()
    groups = [DeliveryGroup(range(3 * 10**8 - 7), whole, 7, -1)]
    deliveries = Deliveries(3 * 10**8 - 7, groups, None, LoopYield(ALWAYS_S))
    with pytest.raises(KafkaError, match=r"message 99999993 of 299999993: no .and 99999999 o"):
        await deliveries


def test_indexing_deliveries_skips_later_groups() -> None:
    class Far(list[int]):
        def __iter__(self) -> Iterator[int]:
            raise AssertionError("walked over")

    first, second = (BatchDelivery(TopicPartition("t", number), None) for number in range(2))
    first.acknowledge(10, -1, has_timestamps=False)
    second.acknowledge(20, -1, has_timestamps=False)
    groups = [
        DeliveryGroup([0, 3], first, 0, -1),
        DeliveryGroup([1, 2], second, 0, -1),
        DeliveryGroup(range(4, 7), first, 2, -1),
        DeliveryGroup(Far([7, 9]), first, 5, -1),
    ]
    found = Acknowledged(10, groups, None)
    assert [found[index].offset for index in (5, 0, 6, 3, 2, 1, 4)] == [13, 10, 14, 11, 21, 20, 12]
    with pytest.raises(AssertionError, match="walked over"):
        found[8]


# --- awaiting futures that are done ---------------------------------------------------------------


async def test_awaiting_many_completed_futures_yields(twin: type[DeliveryFuture]) -> None:
    task = asyncio.create_task(offsets(done_futures(twin)))
    assert await iterations_until_done(task) > AWAITED // 512 - 2
    assert task.result() == list(range(AWAITED))


async def test_awaiting_does_not_yield_before_the_limit(twin: type[DeliveryFuture]) -> None:
    futures = done_futures(twin, hold_s=3600.0)
    assert await iterations_until_done(asyncio.create_task(offsets(futures))) == 1


async def test_awaiting_failed_futures_yields_too(twin: type[DeliveryFuture]) -> None:
    delivery = BatchDelivery(
        TopicPartition("t", 2), CallbackQueue(asyncio.get_running_loop()), LoopYield(ALWAYS_S)
    )
    delivery.fail(KafkaError("no"))
    caught = 0

    async def wait() -> None:
        nonlocal caught
        for index in range(AWAITED):
            try:
                await twin(delivery, index, -1)
            except KafkaError:
                caught += 1

    assert await iterations_until_done(asyncio.create_task(wait())) > AWAITED // 512 - 2
    assert caught == AWAITED


async def test_tasks_that_await_one_future_each_do_not_yield(twin: type[DeliveryFuture]) -> None:
    ended: list[int] = []

    async def wait(future: DeliveryFuture) -> None:
        ended.append((await future).offset)

    tasks = [asyncio.create_task(wait(future)) for future in done_futures(twin)]
    await asyncio.sleep(0)
    assert ended == list(range(AWAITED))
    await asyncio.gather(*tasks)


async def test_a_task_cancelled_while_it_yields_loses_nothing(
    twin: type[DeliveryFuture],
) -> None:
    futures = done_futures(twin)
    taken: list[int] = []

    async def wait() -> None:
        for future in futures:
            metadata = await future
            taken.append(metadata.offset)

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    assert 0 < len(taken) < AWAITED
    task.cancel("enough")
    with pytest.raises(asyncio.CancelledError):
        await task
    assert taken == list(range(len(taken)))
    left = futures[len(taken)]
    assert left.done()
    assert not left.cancelled()
    assert left.result().offset == (await left).offset == len(taken)


async def test_a_deadline_is_kept_while_results_are_awaited(twin: type[DeliveryFuture]) -> None:
    """The timer can only run because the task yields."""
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(offsets(done_futures(twin, 1) * 1_000_000), 0.001)


async def test_gather_wait_for_shield_take_completed_futures(
    twin: type[DeliveryFuture],
) -> None:
    async def one(number: int, future: DeliveryFuture) -> int:
        match number % 4:
            case 0:
                return (await asyncio.wait_for(future, 30)).offset
            case 1:
                return (await asyncio.shield(future)).offset
            case 2:
                return (await asyncio.gather(future))[0].offset
            case _:
                return (await ByIterator(future)).offset

    class ByIterator:
        def __init__(self, future: DeliveryFuture) -> None:
            self._future = future

        def __await__(self) -> Generator[Any, None, Any]:
            return (yield from iter(self._future))

    async def all_of(futures: list[DeliveryFuture]) -> list[int]:
        return [await one(number, future) for number, future in enumerate(futures)]

    assert await all_of(done_futures(twin)) == list(range(AWAITED))
    gathered = await asyncio.gather(*done_futures(twin))
    assert [one.offset for one in gathered] == list(range(AWAITED))


async def test_awaiting_outside_a_task_does_not_yield(twin: type[DeliveryFuture]) -> None:
    """Whoever drives a coroutine by hand, in a callback or elsewhere, gets the result at once."""
    ended: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    def drive() -> None:
        try:
            offsets(done_futures(twin)).send(None)
        except StopIteration as end:
            ended.set_result(end.value)
        else:
            ended.set_result("it gave a turn")

    asyncio.get_running_loop().call_soon(drive)
    assert await ended == list(range(AWAITED))


async def test_awaiting_in_another_loop_returns_the_result(twin: type[DeliveryFuture]) -> None:
    futures = done_futures(twin)

    async def elsewhere() -> list[int]:
        task = asyncio.ensure_future(offsets(futures))
        await asyncio.sleep(0)
        assert task.done(), "it gave a turn"
        return task.result()

    assert await asyncio.to_thread(asyncio.run, elsewhere()) == list(range(AWAITED))


async def test_a_loop_over_results_of_sends_yields(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster)
    futures = [await producer.send("t", b"v", partition=0) for _ in range(AWAITED)]
    await producer.flush()
    assert await iterations_until_done(asyncio.create_task(offsets(futures))) > AWAITED // 512 - 2
