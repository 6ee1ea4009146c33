"""How many iterations of the event loop a message takes, and what runs inside a response.

The tasks that wait for a response run as soon as it is handled, in the callback that received it.
So they may do anything there: send, stop the producer, raise.
"""

from __future__ import annotations

import asyncio

import pytest

from aiokafka08.errors import KafkaError
from aiokafka08.producer.batch_delivery import BatchDelivery, CallbackQueue
from aiokafka08.producer.fast_path import DeliveryFuture
from aiokafka08.protocol.requests.produce import ProduceRequest
from aiokafka08.structs import TopicPartition
from aiokafka08.testing import Delay, EmbeddedCluster
from tests.producer.conftest import MakeProducer as ProducerFor
from tests.support.waiting import until

MESSAGES = 50


async def test_one_message_at_a_time_schedules_no_callback(
    cluster: EmbeddedCluster, producer_for: ProducerFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between a response and the next request nothing waits for the event loop's next iteration.

    The cluster runs in the same event loop, so the test counts the producer's own callbacks.
    """
    producer = await producer_for(cluster)
    await producer.send_and_wait("t", b"first", partition=0)
    loop = asyncio.get_running_loop()
    scheduled: list[object] = []
    call_soon = loop.call_soon

    def noted(callback: object, *arguments: object, **options: object) -> object:
        if getattr(callback, "__module__", "").startswith("aiokafka08.producer"):
            scheduled.append(callback)
        return call_soon(callback, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(loop, "call_soon", noted)
    for _ in range(MESSAGES):
        await producer.send_and_wait("t", b"value", partition=0)
    # Each message was sent in the iteration that received the response to the one before.
    assert scheduled == []
    assert len(cluster.requests(ProduceRequest)) == MESSAGES + 1


@pytest.mark.both_loops
async def test_a_task_woken_by_a_response_may_stop_the_producer(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster)
    await producer.send_and_wait("t", b"first", partition=0)
    cluster.fault(ProduceRequest, then=Delay(0.2))

    async def stop_after_one() -> None:
        await producer.send_and_wait("t", b"a", partition=0)
        await producer.stop(timeout=0)

    pending = asyncio.create_task(stop_after_one())
    await until(lambda: producer.metrics()["requests_in_flight"], "the first is in flight")
    behind = await producer.send("t", b"b", partition=0)
    await pending
    with pytest.raises(KafkaError):
        await behind


@pytest.mark.both_loops
async def test_tasks_woken_together_send_in_one_request(
    cluster: EmbeddedCluster, producer_for: ProducerFor
) -> None:
    producer = await producer_for(cluster)
    await producer.send_and_wait("t", b"first", partition=0)

    async def send_twice(number: int) -> None:
        for round_ in range(2):
            await producer.send_and_wait("t", b"%d-%d" % (round_, number), partition=0)

    await asyncio.gather(*map(send_twice, range(100)))
    assert len(cluster.requests(ProduceRequest)) == 3
    assert [message.value for message in cluster.log("t", 0)][1:] == [
        b"%d-%d" % (round_, number) for round_ in range(2) for number in range(100)
    ]


async def test_held_callbacks_run_when_released() -> None:
    queue = CallbackQueue(asyncio.get_running_loop())
    delivery = BatchDelivery(TopicPartition("t", 0), queue)
    seen: list[int] = []
    DeliveryFuture(delivery, 0, -1).add_done_callback(lambda done: seen.append(0))
    queue.hold()
    delivery.acknowledge(5, -1, has_timestamps=False)
    await asyncio.sleep(0)
    assert seen == []
    assert queue.release()
    assert seen == [0]


async def test_release_leaves_scheduled_callbacks_in_order() -> None:
    queue = CallbackQueue(asyncio.get_running_loop())
    seen: list[int] = []
    for number in range(2):
        delivery = BatchDelivery(TopicPartition("t", number), queue)
        future = DeliveryFuture(delivery, 0, -1)
        future.add_done_callback(lambda done, number=number: seen.append(number))  # type: ignore[misc]
        if number:
            queue.hold()
        delivery.acknowledge(5, -1, has_timestamps=False)
    assert not queue.release()
    assert seen == []
    await asyncio.sleep(0)
    assert seen == [0, 1]


def test_system_exit_in_a_released_callback_ends_the_loop() -> None:
    async def run() -> None:
        queue = CallbackQueue(asyncio.get_running_loop())
        delivery = BatchDelivery(TopicPartition("t", 0), queue)

        def leave(done: DeliveryFuture) -> None:
            raise SystemExit(3)

        DeliveryFuture(delivery, 0, -1).add_done_callback(leave)
        queue.hold()
        delivery.acknowledge(5, -1, has_timestamps=False)
        queue.release()  # raises nothing: a transport would take it for its own failure
        await asyncio.sleep(60)

    with pytest.raises(SystemExit):
        asyncio.run(run())
