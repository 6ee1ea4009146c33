"""`DeliveryFuture` works as a future for users and asyncio, and never changes its batch.

Each test runs with both twins.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from aiokafka08.errors import KafkaError, MessageSizeTooLargeError
from aiokafka08.producer.batch_delivery import BatchDelivery, CallbackQueue, PureDeliveryFuture
from aiokafka08.producer.fast_path import DeliveryFuture
from aiokafka08.structs import RecordMetadata, TopicPartition

TP = TopicPartition("t", 2)

pytestmark = pytest.mark.both_loops

twin: type[DeliveryFuture] = DeliveryFuture


@pytest.fixture(autouse=True, params=sorted({DeliveryFuture, PureDeliveryFuture}, key=str))
def each_twin(request: pytest.FixtureRequest) -> Iterator[None]:
    """Set `twin` to the compiled one, if that is in use, then to the pure one."""
    global twin  # noqa: PLW0603
    twin = request.param
    yield
    twin = DeliveryFuture


def make(count: int = 3) -> tuple[BatchDelivery, list[DeliveryFuture]]:
    delivery = BatchDelivery(TP, CallbackQueue(asyncio.get_running_loop()))
    return delivery, [twin(delivery, index, 1000 + index) for index in range(count)]


def acknowledge(delivery: BatchDelivery, base_offset: int = 40) -> None:
    delivery.acknowledge(base_offset, -1, has_timestamps=True)


async def test_result_is_the_messages_place_in_the_batch() -> None:
    delivery, futures = make()
    assert not futures[1].done()
    acknowledge(delivery)
    assert futures[1].done()
    assert await futures[1] == RecordMetadata("t", 2, TP, 41, 1001, 0, None)
    assert futures[2].result().offset == 42
    assert futures[0].exception() is None


async def test_timestamp_is_the_brokers_if_it_set_one() -> None:
    delivery, futures = make()
    delivery.acknowledge(7, 5555, has_timestamps=True)
    result = futures[1].result()
    assert (result.offset, result.timestamp, result.timestamp_type) == (8, 5555, 1)


async def test_format_0_has_no_timestamps_and_acks_0_no_result() -> None:
    delivery, futures = make()
    delivery.acknowledge(5, -1, has_timestamps=False)
    result = futures[2].result()
    assert (result.offset, result.timestamp, result.timestamp_type) == (7, None, None)
    delivery, futures = make()
    delivery.acknowledge(-1, -1, has_timestamps=False)
    assert futures[2].result() is None
    assert await futures[2] is None
    assert "sent" in repr(futures[2])


async def test_result_of_a_pending_future_raises() -> None:
    _, (future, *_) = make()
    with pytest.raises(asyncio.InvalidStateError):
        future.result()
    with pytest.raises(asyncio.InvalidStateError):
        future.exception()


async def test_asyncio_accepts_it_as_a_future() -> None:
    delivery, futures = make()
    assert asyncio.isfuture(futures[0])
    assert asyncio.ensure_future(futures[0]) is futures[0]
    assert futures[0].get_loop() is asyncio.get_running_loop()
    asyncio.get_running_loop().call_soon(acknowledge, delivery)
    gathered = await asyncio.gather(*futures)
    assert [result.offset for result in gathered] == [40, 41, 42]
    assert [result.offset for result in await asyncio.gather(*futures)] == [40, 41, 42]


async def test_wait_as_completed_and_shield_work() -> None:
    delivery, futures = make()
    done, pending = await asyncio.wait(futures, timeout=0.01)
    assert not done
    assert pending == set(futures)
    shielded = asyncio.shield(futures[0])
    asyncio.get_running_loop().call_soon(acknowledge, delivery)
    done, pending = await asyncio.wait(futures)
    assert not pending
    assert (await shielded).offset == 40
    assert {(await one).offset for one in asyncio.as_completed(futures)} == {40, 41, 42}


async def test_wait_for_timeout_leaves_the_batch_alone() -> None:
    delivery, futures = make()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(futures[0], 0.01)
    assert futures[0].cancelled()
    acknowledge(delivery)
    assert futures[1].result().offset == 41
    with pytest.raises(asyncio.CancelledError):
        futures[0].result()
    assert (await asyncio.wait_for(futures[2], 10)).offset == 42


async def test_cancelled_task_cancels_its_own_future_only() -> None:
    delivery, futures = make()

    async def wait(future: DeliveryFuture) -> int:
        return (await future).offset

    tasks = [asyncio.create_task(wait(future)) for future in futures]
    await asyncio.sleep(0)
    tasks[0].cancel("enough")
    with pytest.raises(asyncio.CancelledError):
        await tasks[0]
    assert futures[0].cancelled()
    acknowledge(delivery)
    assert [await task for task in tasks[1:]] == [41, 42]
    assert not futures[0].cancel()
    assert futures[0].done()


async def test_cancelled_gather_cancels_its_children_only() -> None:
    delivery, futures = make()
    gathering = asyncio.gather(*futures[:2])
    await asyncio.sleep(0)
    gathering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gathering
    acknowledge(delivery)
    assert [future.cancelled() for future in futures] == [True, True, False]
    assert futures[2].result().offset == 42


async def test_gather_returns_errors_and_cancellations() -> None:
    delivery, futures = make()
    futures[0].cancel("gone")
    delivery.fail(KafkaError("no"))
    first, second, third = await asyncio.gather(*futures, return_exceptions=True)
    assert isinstance(first, asyncio.CancelledError)
    assert isinstance(second, KafkaError)
    assert isinstance(third, KafkaError)


async def test_callbacks_run_in_the_loop_in_their_context() -> None:
    delivery, (future, *_) = make()
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="outer")
    seen: list[tuple[Any, str]] = []

    def note(done: DeliveryFuture) -> None:
        seen.append((done, variable.get()))

    def never(done: DeliveryFuture) -> None:
        raise AssertionError

    context = contextvars.copy_context()
    context.run(variable.set, "inner")
    assert future.remove_done_callback(never) == 0
    future.add_done_callback(note)
    future.add_done_callback(never)
    future.add_done_callback(note, context=context)
    assert future.remove_done_callback(never) == 1
    acknowledge(delivery)
    assert seen == []
    await asyncio.sleep(0)
    assert seen == [(future, "outer"), (future, "inner")]
    future.add_done_callback(note)
    assert len(seen) == 2
    await asyncio.sleep(0)
    assert len(seen) == 3


async def test_failing_callback_does_not_stop_the_others() -> None:
    delivery, futures = make()
    loop = asyncio.get_running_loop()
    contexts: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: contexts.append(context))
    seen: list[int] = []

    def fail(done: DeliveryFuture) -> None:
        raise ValueError("callback")

    futures[0].add_done_callback(fail)
    futures[1].add_done_callback(lambda done: seen.append(done.result().offset))
    acknowledge(delivery)
    await asyncio.sleep(0)
    assert seen == [41]
    assert isinstance(contexts[0]["exception"], ValueError)


async def test_many_waiters_wake_in_order_over_several_iterations() -> None:
    delivery, futures = make(2000)
    seen: list[int] = []
    for future in futures:
        future.add_done_callback(lambda done: seen.append(done.result().offset))
    acknowledge(delivery, 0)
    turns = 0
    while len(seen) < 2000:
        await asyncio.sleep(0)
        turns += 1
    assert seen == list(range(2000))
    assert turns > 2


async def test_each_future_has_its_own_copy_of_the_error() -> None:
    delivery, futures = make()
    delivery.fail(MessageSizeTooLargeError("too large", errno=18))
    errors = [future.exception() for future in futures]
    assert len(set(map(id, errors))) == 3
    for future, error in zip(futures, errors, strict=True):
        for _ in range(2):
            with pytest.raises(MessageSizeTooLargeError, match="too large") as caught:
                await future
            assert caught.value is error
            assert caught.value.errno == 18


async def test_error_that_is_never_read_logs_nothing() -> None:
    contexts: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: contexts.append(context))
    delivery, futures = make()
    futures[0].add_done_callback(lambda done: None)
    delivery.fail(KafkaError("no"))
    await asyncio.sleep(0)
    del delivery, futures
    gc.collect()
    assert contexts == []


async def test_split_keeps_the_waiters() -> None:
    delivery, futures = make(4)
    waiting = asyncio.gather(*futures, return_exceptions=True)
    await asyncio.sleep(0)
    first, second = (BatchDelivery(TP, CallbackQueue(asyncio.get_running_loop())) for _ in range(2))
    delivery.split(3, first, second)
    acknowledge(first)
    second.fail(KafkaError("no"))
    assert not delivery.done
    results = await waiting
    assert [one.offset for one in results[:3]] == [40, 41, 42]  # type: ignore[union-attr]
    assert isinstance(results[3], KafkaError)
    assert futures[3].done()


async def test_split_is_finished_after_all_its_parts() -> None:
    loop = asyncio.get_running_loop()
    delivery, _ = make(4)
    waiting = asyncio.create_task(delivery.wait_finished())
    await asyncio.sleep(0)
    first, second = (BatchDelivery(TP, CallbackQueue(loop)) for _ in range(2))
    delivery.split(2, first, second)
    first.finish()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not waiting.done()
    second.finish()
    await waiting


async def test_repr_shows_the_state() -> None:
    delivery, futures = make()
    assert repr(futures[0]) == "<DeliveryFuture t/2 pending>"
    futures[0].cancel()
    assert repr(futures[0]) == "<DeliveryFuture t/2 cancelled>"
    acknowledge(delivery)
    assert repr(futures[1]) == "<DeliveryFuture t/2 offset 41>"


async def test_task_cancelled_when_just_woken_loses_nothing() -> None:
    """The batch is resolved and the task's wake-up scheduled; then the task is cancelled."""
    delivery, futures = make()

    async def wait() -> int:
        return (await futures[0]).offset

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    acknowledge(delivery)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert futures[0].result().offset == 40


async def test_results_that_are_kept_keep_their_values() -> None:
    """The compiled twin reuses a result that nothing refers to any more."""
    delivery, futures = make(4)
    acknowledge(delivery)
    kept = futures[0].result()
    hashed = hash(futures[1].result())
    results = {futures[2].result(), futures[3].result()}
    assert kept == RecordMetadata("t", 2, TP, 40, 1000, 0, None)
    assert hashed == hash(RecordMetadata("t", 2, TP, 41, 1001, 0, None))
    assert results == {RecordMetadata("t", 2, TP, 40 + n, 1000 + n, 0, None) for n in (2, 3)}
    del kept
    assert [one.result().offset for one in futures] == [40, 41, 42, 43]


async def test_messages_share_timestamps_in_runs() -> None:
    delivery = BatchDelivery(TP, CallbackQueue(asyncio.get_running_loop()))
    given = [7, 7, 7, 9, 8, 8]
    futures = [twin(delivery, index, timestamp) for index, timestamp in enumerate(given, 3)]
    acknowledge(delivery)
    assert [one.result().timestamp for one in futures] == given
    assert (delivery.run_starts, delivery.run_timestamps_ms) == ([3, 6, 7], [7, 9, 8])


async def test_timestamps_are_kept_through_splits() -> None:
    delivery, futures = make(4)
    first, second, third = (BatchDelivery(TP, None) for _ in range(3))
    delivery.split(1, first, second)
    second.split(2, third, first)
    first.acknowledge(10, -1, has_timestamps=True)
    third.acknowledge(20, -1, has_timestamps=True)
    results = [one.result() for one in futures]
    assert [one.offset for one in results] == [10, 20, 21, 10]
    assert [one.timestamp for one in results] == [1000, 1001, 1002, 1003]


async def test_cancelled_future_raises_its_message_each_time() -> None:
    _, (future, *_) = make()
    assert future.cancel("enough")
    for read in (future.result, future.exception):
        with pytest.raises(asyncio.CancelledError, match="enough"):
            read()
    with pytest.raises(asyncio.CancelledError, match="enough"):
        await future


async def test_caught_error_leaves_no_reference_to_its_future() -> None:
    """The compiled twin isn't collected as a part of a cycle: the traceback leads to the future."""
    freed: list[int] = []

    class Noted(KafkaError):
        def __copy__(self) -> Noted:
            return Noted("copy")

        def __del__(self) -> None:
            freed.append(1)

    delivery, (future, *_) = make()
    delivery.fail(Noted("no"))

    async def catch(future: DeliveryFuture) -> None:
        with contextlib.suppress(Noted):
            await future

    await catch(future)
    del future
    gc.collect()
    assert freed == [1]


def test_compiled_future_takes_32_bytes() -> None:
    """A program may keep the results of a million messages."""
    compiled = twin is not PureDeliveryFuture
    future = twin(BatchDelivery(TP, None), 0, -1)
    assert (sys.getsizeof(future) == 32) == compiled
    assert gc.is_tracked(future) != compiled


def test_future_without_init_is_refused() -> None:
    """The compiled twin reads the slots of a delivery directly."""
    empty = twin.__new__(twin)
    for use in (empty.done, empty.result, empty.cancel, empty.get_loop, lambda: repr(empty)):
        with pytest.raises((TypeError, AttributeError)):
            use()
