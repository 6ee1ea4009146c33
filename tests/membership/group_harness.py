"""What the tests of groups on real brokers share: members of ours, messages, workers that die."""

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
"""Sessions of real brokers take seconds."""


class Taking:
    """A member of ours that takes messages, and goes on after the errors in `passing`."""

    def __init__(
        self, consumer: AIOKafkaConsumer, passing: tuple[type[Exception], ...] = ()
    ) -> None:
        self.values: list[str] = []
        self.consumer = consumer
        self._passing = passing

    async def __aenter__(self) -> Taking:
        await self.consumer.start()
        self._task = asyncio.create_task(self._take())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self.consumer.stop()

    async def _take(self) -> None:
        while True:
            try:
                async for record in self.consumer:
                    self.values.append(bytes(record.value or b"").decode())
            except self._passing:
                continue
            return


async def produce(cluster: RealCluster, topic: str, prefix: str) -> set[str]:
    """As many messages to each partition."""
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
    """Of three workers one is killed and one sleeps for longer than its session: nothing is lost,
    and no committed offset goes back.

    Args:
        committed: asks for the offset of each partition, 0 where there is none.
        shared: waits until so many members have it all.
    """
    killed, paused, _ = workers
    await shared(3)
    sent = await produce(cluster, topic, "one")
    offsets = [0] * PARTITIONS

    def taken() -> list[str]:
        return [value for worker in workers for value in worker.values]

    def all_taken() -> bool:
        nonlocal offsets
        now = committed()
        assert all(new >= old for new, old in zip(now, offsets, strict=True)), (now, offsets)
        offsets = now
        return set(taken()) == sent and sum(now) == len(sent)

    await eventually(all_taken, "taking all")
    killed.process.kill()
    sent |= await produce(cluster, topic, "two")
    await shared(2)
    await eventually(all_taken, "taking all")
    paused.process.send_signal(signal.SIGSTOP)
    sent |= await produce(cluster, topic, "three")
    await shared(1)
    await eventually(all_taken, "taking all")
    paused.process.send_signal(signal.SIGCONT)
    await shared(2)
    sent |= await produce(cluster, topic, "four")
    await eventually(all_taken, "taking all")
    again = len(taken()) - len(sent)
    assert again <= 2 * len(sent) // 4, f"{again} messages were taken more than once"
