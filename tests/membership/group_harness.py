"""Members that collect records, and workers that are killed and paused, on real brokers."""

from __future__ import annotations

import asyncio
import functools
import signal
from collections.abc import Awaitable, Callable, Sequence

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer
from tests.brokers import RealCluster
from tests.membership.worker_process import Worker
from tests.waiting import until

PARTITIONS = 6

eventually = functools.partial(until, timeout_s=40, pause_s=0.05)
"""`until` with a long deadline: sessions of real brokers take seconds."""


class CollectingMember:
    """A consumer of this package that collects values, and continues after errors in `ignored`."""

    def __init__(
        self, consumer: AIOKafkaConsumer, ignored: tuple[type[Exception], ...] = ()
    ) -> None:
        self.values: list[str] = []
        self.consumer = consumer
        self._ignored = ignored

    async def __aenter__(self) -> CollectingMember:
        await self.consumer.start()
        self._task = asyncio.create_task(self._collect())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self.consumer.stop()

    async def _collect(self) -> None:
        while True:
            try:
                async for record in self.consumer:
                    self.values.append(bytes(record.value or b"").decode())
            except self._ignored:
                continue
            return


async def produce(cluster: RealCluster, topic: str, prefix: str) -> set[str]:
    """Send ten messages to each partition and return their values."""
    values = {f"{prefix}-{number}" for number in range(10 * PARTITIONS)}
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number, value in enumerate(sorted(values)):
            await producer.send_and_wait(topic, value.encode(), partition=number % PARTITIONS)
    return values


async def kill_and_pause(
    cluster: RealCluster,
    topic: str,
    workers: Sequence[Worker],
    committed: Callable[[], list[int]],
    shared: Callable[[int], Awaitable[None]],
) -> None:
    """Kill one of three workers and pause another for longer than its session.

    No message may be lost, and no committed offset may decrease.

    Args:
        committed: returns the committed offset of each partition, 0 if there is none.
        shared: waits until so many members own all partitions.
    """
    killed, paused, _ = workers
    await shared(3)
    sent = await produce(cluster, topic, "one")
    offsets = [0] * PARTITIONS

    def collected() -> list[str]:
        return [value for worker in workers for value in worker.values]

    def all_collected() -> bool:
        nonlocal offsets
        now = committed()
        assert all(new >= old for new, old in zip(now, offsets, strict=True)), (now, offsets)
        offsets = now
        return set(collected()) == sent and sum(now) == len(sent)

    await eventually(all_collected, "all messages")
    killed.process.kill()
    sent |= await produce(cluster, topic, "two")
    await shared(2)
    await eventually(all_collected, "all messages")
    paused.process.send_signal(signal.SIGSTOP)
    sent |= await produce(cluster, topic, "three")
    await shared(1)
    await eventually(all_collected, "all messages")
    paused.process.send_signal(signal.SIGCONT)
    await shared(2)
    sent |= await produce(cluster, topic, "four")
    await eventually(all_collected, "all messages")
    again = len(collected()) - len(sent)
    assert again <= 2 * len(sent) // 4, f"{again} messages were read more than once"
