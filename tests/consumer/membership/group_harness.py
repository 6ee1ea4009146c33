"""Members that collect records, and workers that are killed and paused, on real brokers."""

from __future__ import annotations

import asyncio
import functools
import re
import signal
from collections.abc import Awaitable, Callable, Sequence

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka08.testing.history import Message, Recorder, check, report
from tests.brokers import RealCluster
from tests.consumer.membership.worker_process import Worker
from tests.support.clients import OpenConsumer
from tests.support.waiting import until

PARTITIONS = 6

eventually = functools.partial(until, timeout_s=40, pause_s=0.05)
"""`until` with a long deadline: sessions of real brokers take seconds."""


class CollectingMember:
    """A consumer of this package that collects values, and continues after errors in `ignored`."""

    def __init__(self, consumer: OpenConsumer, ignored: tuple[type[Exception], ...] = ()) -> None:
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


class WorkerHistory:
    """Writes what workers of one group print, and what the group commits, into a recorder.

    A time of this history is that of the `read()` that found a line, so the order of lines is known
    only within a worker. The checker can't judge whether two workers own a partition at a time.

    Attributes:
        values: the values of all messages that the workers have printed until the last `read()`.
    """

    def __init__(self, recorder: Recorder, topic: str, workers: Sequence[Worker]) -> None:
        self.values: list[str] = []
        self._recorder = recorder
        self._topic = topic
        self._workers = workers
        self._lines_read = [0] * len(workers)

    def read(self, committed: Callable[[], list[int]]) -> list[int]:
        """Return the offsets that `committed` returns; note them, and what is printed by now."""
        offsets = committed()
        # A worker prints before it commits: the messages below these offsets are printed.
        for number, worker in enumerate(self._workers):
            lines = worker.text.split("\n")[:-1]  # the last one isn't complete
            for line in lines[self._lines_read[number] :]:
                self._note_line(f"worker {number}", line)
            self._lines_read[number] = len(lines)
        found = {self._partition(number): offset for number, offset in enumerate(offsets)}
        # The offset store returned it, so by now a commit of it has ended.
        for call in ("committed", "commit"):
            self._recorder.note("offset store", call, group="workers", offsets=found)
        return offsets

    def _note_line(self, worker: str, line: str) -> None:
        if found := re.fullmatch(r"(\d+)/(\d+) b'(.*)'", line):
            polled = Message(self._partition(found[1]), found[3], int(found[2]))
            self._recorder.note(worker, "poll", group="workers", polled=(polled,))
            self.values.append(found[3])
        elif found := re.fullmatch(r"(?:\S+ \S+ \d+ INFO )?(assigned|revoked) \[(.*)\]", line):
            partitions = tuple(map(self._partition, re.findall(r"\d+", found[2])))
            self._recorder.note(worker, found[1], group="workers", partitions=partitions)

    def _partition(self, number: object) -> str:
        return f"{self._topic}/{number}"


async def produce(
    cluster: RealCluster, topic: str, prefix: str, recorder: Recorder | None = None
) -> set[str]:
    """Send ten messages to each partition and return their values."""
    values = {f"{prefix}-{number}" for number in range(10 * PARTITIONS)}
    recorder = Recorder() if recorder is None else recorder
    name = f"producer {prefix}"
    async with recorder.producer(
        name,
        AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, on_event=recorder.on_event(name)
        ),
    ) as producer:
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

    The history of producers, workers and commits may have no anomaly: no message is lost, and no
    committed offset decreases.

    Args:
        committed: returns the committed offset of each partition, 0 if there is none.
        shared: waits until so many members own all partitions.
    """
    killed, paused, _ = workers
    recorder = Recorder()
    history = WorkerHistory(recorder, topic, workers)
    await shared(3)
    sent = await produce(cluster, topic, "one", recorder)

    def all_collected() -> bool:
        offsets = history.read(committed)
        return set(history.values) == sent and sum(offsets) == len(sent)

    await eventually(all_collected, "all messages")
    killed.process.kill()
    sent |= await produce(cluster, topic, "two", recorder)
    await shared(2)
    await eventually(all_collected, "all messages")
    paused.process.send_signal(signal.SIGSTOP)
    sent |= await produce(cluster, topic, "three", recorder)
    await shared(1)
    await eventually(all_collected, "all messages")
    paused.process.send_signal(signal.SIGCONT)
    await shared(2)
    sent |= await produce(cluster, topic, "four", recorder)
    await eventually(all_collected, "all messages")
    again = len(history.values) - len(sent)
    assert again <= 2 * len(sent) // 4, f"{again} messages were read more than once"
    async with AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap_servers) as reader:
        await recorder.read_logs(reader, [TopicPartition(topic, one) for one in range(PARTITIONS)])
    anomalies = check(recorder.operations)
    assert not anomalies, report(anomalies)
