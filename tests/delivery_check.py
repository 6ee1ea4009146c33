"""`DeliveryCheck`: produce and consume numbered messages during faults, then check the delivery.

A producer sends numbered messages to every partition of a topic, and a consumer reads them. The
ledger records the offset of each acknowledged message and what the consumer returned. The failover
tests use it on real brokers, the chaos tests on the embedded cluster.

Invariant, checked by `check()`: each acknowledged message is in the log at its offset; each
partition has the order of the sends (of first occurrences, since a retry may store a message
twice); the consumer returned all messages; every send ended.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka08.errors import CorruptRecordException, KafkaError, NoBrokersAvailable

C = TypeVar("C")

OUTSTANDING = 200
"""The default number of sends per partition that may wait for their outcome."""


@dataclass
class Ledger:
    """What happened to each message; keys are (partition, number)."""

    sent: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    acknowledged: dict[tuple[int, int], int] = field(default_factory=dict)
    failed: dict[tuple[int, int], KafkaError] = field(default_factory=dict)
    seen: dict[int, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    """Partition → (offset, number), in the order in which the consumer returned them."""
    raised: list[KafkaError] = field(default_factory=list)
    """The errors that the consumer raised."""

    def __repr__(self) -> str:
        return (
            f"<Ledger {sum(self.sent.values())} sent, {len(self.acknowledged)} acknowledged, "
            f"{len(self.failed)} failed, {sum(map(len, self.seen.values()))} seen>"
        )


class DeliveryCheck:
    """A producer and a consumer of one topic; they run inside `running()`.

    Args:
        producer, consumer: further options of the two clients.
        outstanding: the number of sends per partition that may wait for their outcome.
        pause_s: the time between two sends to a partition.
        consumer_may_fail: record the errors of the consumer; fetch a corrupt message again.

    Attributes:
        clients: the producer and the consumer while they run.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        partitions: int,
        *,
        producer: dict[str, Any] | None = None,
        consumer: dict[str, Any] | None = None,
        outstanding: int = OUTSTANDING,
        pause_s: float = 0.0,
        consumer_may_fail: bool = False,
    ) -> None:
        self.ledger = Ledger()
        self.clients: tuple[AIOKafkaProducer, AIOKafkaConsumer] | None = None
        self._outstanding = outstanding
        self._pause_s = pause_s
        self._consumer_may_fail = consumer_may_fail
        self._acknowledged = [0] * partitions
        self._unseen: set[tuple[int, int]] = set()  # (partition, offset) that were acknowledged
        self._seen: set[tuple[int, int]] = set()
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
            consumer = await _start(stack, self._new_consumer)
            self.clients = producer, consumer
            senders = [
                asyncio.create_task(self._send(producer, partition))
                for partition in range(self._partitions)
            ]
            receiver = asyncio.create_task(self._receive(consumer))
            try:
                yield
                self._stop.set()
                try:
                    async with asyncio.timeout(drain_timeout):
                        await asyncio.gather(*senders)
                        await self._until(lambda: not self._unseen)
                except TimeoutError:
                    raise AssertionError(self._state(consumer)) from None
            finally:
                for task in (*senders, receiver):
                    task.cancel()
                ends = await asyncio.gather(*senders, receiver, return_exceptions=True)
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

    async def acknowledged_anywhere(self, more: int, timeout: float = 30.0) -> None:
        """Wait until `more` further messages are acknowledged in all partitions together."""
        goal = sum(self._acknowledged) + more
        async with asyncio.timeout(timeout):
            await self._until(lambda: sum(self._acknowledged) >= goal)

    async def check(self) -> None:
        """Read the whole log with a new consumer and compare it with the ledger."""
        ledger = self.ledger
        ended = len(ledger.acknowledged) + len(ledger.failed)
        assert ended == sum(ledger.sent.values()), f"sends without an end: {ledger}"
        assert ledger.acknowledged, f"nothing was acknowledged: {ledger}"
        log = await self._read_log()
        for (partition, number), offset in ledger.acknowledged.items():
            found = log[partition].get(offset)
            assert found == number, (
                f"partition {partition}: {number} was acknowledged at {offset}, there is {found}"
            )
        for partition in range(self._partitions):
            in_order = list(log[partition].values())
            first = list(dict.fromkeys(in_order))
            assert first == sorted(first), f"partition {partition} is out of order: {in_order}"
            seen = dict(ledger.seen[partition])
            missed = [number for offset, number in log[partition].items() if offset not in seen]
            assert not missed, f"partition {partition}: the consumer didn't see {missed}"
            assert len(seen) == len(ledger.seen[partition]), "the consumer got an offset twice"
            offsets = [offset for offset, _ in ledger.seen[partition]]
            assert offsets == sorted(offsets), "the consumer got offsets out of order"

    def _new_producer(self) -> AIOKafkaProducer:
        return AIOKafkaProducer(bootstrap_servers=self._bootstrap, **self._producer_options)

    def _new_consumer(self) -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap,
            auto_offset_reset="earliest",
            **self._consumer_options,
        )
        consumer.assign(self._topic_partitions())
        return consumer

    def _topic_partitions(self) -> list[TopicPartition]:
        return [TopicPartition(self._topic, partition) for partition in range(self._partitions)]

    def _state(self, consumer: AIOKafkaConsumer) -> str:
        """Describe what hasn't finished."""
        ended = len(self.ledger.acknowledged) + len(self.ledger.failed)
        return (
            f"{sum(self.ledger.sent.values()) - ended} sends without an end, "
            f"{len(self._unseen)} acknowledged messages not seen: {sorted(self._unseen)[:10]}; "
            f"{self.ledger}; consumer: {consumer.metrics()}"
        )

    async def _until(self, condition: Callable[[], bool]) -> None:
        async with self._progress:
            await self._progress.wait_for(condition)

    async def _notify(self) -> None:
        async with self._progress:
            self._progress.notify_all()

    async def _send(self, producer: AIOKafkaProducer, partition: int) -> None:
        outstanding: set[asyncio.Task[None]] = set()
        while not self._stop.is_set():
            number = self.ledger.sent[partition]
            self.ledger.sent[partition] += 1
            value = b"%d:%d" % (partition, number)
            try:
                delivery = await producer.send(self._topic, value, partition=partition)
            except KafkaError as error:
                self.ledger.failed[partition, number] = error
                continue
            task = asyncio.create_task(self._await_outcome(delivery, partition, number))
            outstanding.add(task)
            task.add_done_callback(outstanding.discard)
            if self._pause_s:
                await asyncio.sleep(self._pause_s)
            if len(outstanding) >= self._outstanding:
                await asyncio.wait(outstanding, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.gather(*outstanding)

    async def _await_outcome(self, delivery: Awaitable[Any], partition: int, number: int) -> None:
        try:
            offset = (await delivery).offset
            self.ledger.acknowledged[partition, number] = offset
            self._acknowledged[partition] += 1
            if (partition, offset) not in self._seen:
                self._unseen.add((partition, offset))
        except KafkaError as error:
            self.ledger.failed[partition, number] = error
        await self._notify()

    async def _receive(self, consumer: AIOKafkaConsumer) -> None:
        while True:
            try:
                batch = await consumer.getmany(timeout_ms=500)
            except KafkaError as error:
                if not self._consumer_may_fail:
                    raise
                self.ledger.raised.append(error)
                if isinstance(error, CorruptRecordException) and error.partition is not None:
                    consumer.seek(error.partition, await consumer.position(error.partition))
                continue
            for tp, records in batch.items():
                for record in records:
                    place = record.partition, record.offset
                    self.ledger.seen[tp.partition].append((record.offset, _number(record)))
                    self._seen.add(place)
                    self._unseen.discard(place)
            await self._notify()

    async def _read_log(self) -> dict[int, dict[int, int]]:
        """Return partition → offset → number, as a new consumer reads them."""
        log: dict[int, dict[int, int]] = {part: {} for part in range(self._partitions)}
        consumer = AIOKafkaConsumer(bootstrap_servers=self._bootstrap, auto_offset_reset="earliest")
        consumer.assign(self._topic_partitions())
        async with consumer:
            ends = await consumer.end_offsets(self._topic_partitions())
            while any([await consumer.position(tp) < end for tp, end in ends.items()]):
                for tp, records in (await consumer.getmany(timeout_ms=500)).items():
                    log[tp.partition].update({one.offset: _number(one) for one in records})
        return log


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


def _number(record: Any) -> int:
    partition, _, number = record.value.partition(b":")
    assert int(partition) == record.partition, f"a message of another partition: {record}"
    return int(number)
