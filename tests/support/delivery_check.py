"""`DeliveryCheck`: produce and consume numbered messages during faults, and record the history.

A producer sends numbered messages to every partition of a topic, and consumers read them. All are
recorded, and `check()` lets `aiokafka08.testing.history` judge what they did. The failover tests
use it on real brokers; faults of embedded brokers are in `tests.faults.simulation`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Protocol, TypeVar

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka08.errors import KafkaError, NoBrokersAvailable
from aiokafka08.testing.history import Message, Recorder, check, report
from tests.support.waiting import eventually

C = TypeVar("C")

OUTSTANDING = 200
"""How many sends of a partition may wait for their outcome."""
LATE_S = 10.0
"""By how much a call may exceed its deadline beside real brokers that keep the machine busy."""


FOREIGN = "foreign"
"""Name of a member of another client, in the history."""
FOREIGN_S = 0.2
"""Seconds between two looks at what a member of another client has read."""


class ForeignMember(Protocol):
    """A running member of another client: see `tests.consumer.membership.other_clients`."""

    @property
    def values(self) -> list[str]:
        """The values that it has read until now, in order."""


class DeliveryCheck:
    """A producer and consumers of one topic; they run inside `running()`.

    Args:
        producer, consumer: further options of the clients.
        members: the number of consumers. Several ones are a group, with the option `group_id`.
        foreign: a further member of that group, of another client.
        outstanding: how many sends of a partition may wait for their outcome.

    Attributes:
        recorder: has the history.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        partitions: int,
        *,
        producer: dict[str, Any] | None = None,
        consumer: dict[str, Any] | None = None,
        members: int = 1,
        foreign: ForeignMember | None = None,
        outstanding: int = OUTSTANDING,
    ) -> None:
        self.recorder = Recorder()
        self._members = members
        self._foreign = foreign
        self._outstanding = outstanding
        self._acknowledged = [0] * partitions
        self._unseen: set[bytes] = set()  # values that were acknowledged
        self._seen: set[bytes] = set()
        self._readers: set[str] = set()  # clients that have got a message
        self._bootstrap = bootstrap_servers
        self._topic = topic
        self._partitions = partitions
        self._producer_options: dict[str, Any] = {"acks": "all", "linger_ms": 2} | (producer or {})
        self._consumer_options: dict[str, Any] = consumer or {}
        self._stop = asyncio.Event()
        self._progress = asyncio.Condition()

    @contextlib.asynccontextmanager
    async def running(self, drain_timeout: float = 45.0) -> AsyncIterator[None]:
        """Run the clients during the body; then stop sending, and wait until both have finished."""
        async with contextlib.AsyncExitStack() as stack:
            producer = await _start(stack, self._new_producer)
            consumers = [
                await _start(stack, partial(self._new_consumer, name)) for name in self._names()
            ]
            senders = [
                asyncio.create_task(self._send(producer, partition))
                for partition in range(self._partitions)
            ]
            receivers = [
                asyncio.create_task(self._receive(name, one))
                for name, one in zip(self._names(), consumers, strict=True)
            ]
            if self._foreign is not None:
                receivers.append(asyncio.create_task(self._watch(self._foreign)))
            try:
                yield
                self._stop.set()
                try:
                    async with asyncio.timeout(drain_timeout):
                        await asyncio.gather(*senders)
                        await self._until(lambda: not self._unseen)
                        await eventually(partial(_are_at_end, consumers), drain_timeout, 0.1)
                except TimeoutError:
                    raise AssertionError(self._state(consumers)) from None
            finally:
                for task in (*senders, *receivers):
                    task.cancel()
                ends = await asyncio.gather(*senders, *receivers, return_exceptions=True)
                for end in ends:
                    if isinstance(end, Exception):
                        raise end

    async def acknowledged(self, more: int, timeout: float = 30.0) -> None:
        """Wait until `more` further messages are acknowledged in every partition."""
        goals = [count + more for count in self._acknowledged]
        async with asyncio.timeout(timeout):
            await self._until(
                lambda: all(
                    count >= goal for count, goal in zip(self._acknowledged, goals, strict=True)
                )
            )

    async def shared(self, timeout: float = 60.0) -> None:
        """Wait until each member of the group has got a message, the foreign one too."""
        members = {*self._names(), *([] if self._foreign is None else [FOREIGN])}
        async with asyncio.timeout(timeout):
            await self._until(lambda: self._readers == members)

    async def check(self) -> None:
        """Read the whole log with a new consumer, and judge the history."""
        consumer = AIOKafkaConsumer(bootstrap_servers=self._bootstrap, auto_offset_reset="earliest")
        async with consumer:
            await self.recorder.read_logs(consumer, self._topic_partitions())
        self.recorder.note_left()
        self.judge()

    def judge(self) -> None:
        """Fail if the history until now has an anomaly, or nothing was acknowledged."""
        assert sum(self._acknowledged), "nothing was acknowledged"
        anomalies = check(self.recorder.operations, late_s=LATE_S)
        assert not anomalies, report(anomalies)

    def _new_producer(self) -> AIOKafkaProducer:
        options = dict(self._producer_options)
        timeouts_ms = (
            options.get("request_timeout_ms", 40_000),
            options.get("delivery_timeout_ms", 120_000),
        )
        producer = AIOKafkaProducer(
            bootstrap_servers=self._bootstrap,
            on_event=self.recorder.on_event("producer", options.pop("on_event", None)),
            **options,
        )
        return self.recorder.producer("producer", producer, sum(timeouts_ms) / 1000)

    def _names(self) -> list[str]:
        return [f"consumer {number}" for number in range(self._members)]

    def _new_consumer(self, name: str) -> AIOKafkaConsumer:
        consumer = self.recorder.consumer(
            name,
            AIOKafkaConsumer(
                bootstrap_servers=self._bootstrap,
                auto_offset_reset="earliest",
                **self._consumer_options,
            ),
        )
        if "group_id" in self._consumer_options:
            consumer.subscribe([self._topic])
        else:
            consumer.assign(self._topic_partitions())
        return consumer

    def _topic_partitions(self) -> list[TopicPartition]:
        return [TopicPartition(self._topic, partition) for partition in range(self._partitions)]

    def _state(self, consumers: list[AIOKafkaConsumer]) -> str:
        """Describe what hasn't finished."""
        pending = [one for one in self.recorder.operations if one.sent and one.status == "open"]
        return (
            f"{len(pending)} sends without an end, "
            f"{len(self._unseen)} acknowledged messages not seen: {sorted(self._unseen)[:10]}; "
            f"{sum(self._acknowledged)} acknowledged; "
            f"consumers: {[consumer.metrics() for consumer in consumers]}"
        )

    async def _until(self, condition: Callable[[], bool]) -> None:
        async with self._progress:
            await self._progress.wait_for(condition)

    async def _notify(self) -> None:
        async with self._progress:
            self._progress.notify_all()

    async def _send(self, producer: AIOKafkaProducer, partition: int) -> None:
        outstanding: set[asyncio.Task[None]] = set()
        number = 0
        while not self._stop.is_set():
            value = b"%d:%d" % (partition, number)
            number += 1
            try:
                delivery = await producer.send(self._topic, value, partition=partition)
            except KafkaError:
                continue
            task = asyncio.create_task(self._await_outcome(delivery, partition, value))
            outstanding.add(task)
            task.add_done_callback(outstanding.discard)
            if len(outstanding) >= self._outstanding:
                await asyncio.wait(outstanding, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.gather(*outstanding)

    async def _await_outcome(self, delivery: Awaitable[Any], partition: int, value: bytes) -> None:
        with contextlib.suppress(KafkaError):  # the history has it
            await delivery
            self._acknowledged[partition] += 1
            if value not in self._seen:
                self._unseen.add(value)
        await self._notify()

    async def _receive(self, name: str, consumer: AIOKafkaConsumer) -> None:
        while True:
            batch = await consumer.getmany(timeout_ms=500)
            for records in batch.values():
                self._see(name, [record.value for record in records])
            await self._notify()

    async def _watch(self, member: ForeignMember) -> None:
        """Record what a member of another client reads.

        Its offsets and rebalances aren't known, so each of its messages may stand anywhere.
        """
        group = self._consumer_options["group_id"]
        count = 0
        while True:
            new = (await asyncio.to_thread(lambda: member.values))[count:]
            count += len(new)
            for value in new:
                self.recorder.note(FOREIGN, "assigned", group=group, facts={"auto_commit": True})
                polled = Message(f"{self._topic}/{value.partition(':')[0]}", value)
                self.recorder.note(FOREIGN, "poll", group=group, polled=(polled,))
            self._see(FOREIGN, [value.encode() for value in new])
            await self._notify()
            await asyncio.sleep(FOREIGN_S)

    def _see(self, name: str, values: Iterable[bytes | None]) -> None:
        """Note that a client has got these messages."""
        new = {one for one in values if one is not None}
        if new:
            self._readers.add(name)
        self._seen |= new
        self._unseen -= new


async def _are_at_end(consumers: Iterable[AIOKafkaConsumer]) -> bool:
    """Return whether the consumers have read all that is stored: also a second copy, by a retry."""
    try:
        for consumer in consumers:
            for tp, end in (await consumer.end_offsets(list(consumer.assignment()))).items():
                if await consumer.position(tp) < end:
                    return False
    except KafkaError:  # a rebalance has taken a partition, or a broker is late
        return False
    return True


async def _start(
    stack: contextlib.AsyncExitStack, make: Callable[[], AbstractAsyncContextManager[C]]
) -> C:
    """Start a client, with up to four retries.

    A client with short timeouts may find no broker in time on a busy machine; the tests are about
    what happens after the start.
    """
    for _ in range(4):
        try:
            return await stack.enter_async_context(make())
        except NoBrokersAvailable:
            continue
    return await stack.enter_async_context(make())
