"""A producer and consumers that do everything at once, under faults, in virtual time, by seed.

What the mixed scenario leaves out is here: little buffer memory, cancelled sends, batches that must
be split, several commits at a time, seeks, metrics at any time. The history is judged at the end.
`run(seed)` returns the names of the anomalies.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections import deque
from collections.abc import Callable
from typing import Any

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka08.errors import CorruptRecordException, KafkaError
from aiokafka08.protocol import api
from aiokafka08.protocol.requests.committed_offsets import OffsetCommitRequest, OffsetFetchRequest
from aiokafka08.protocol.requests.fetch import FetchRequest
from aiokafka08.protocol.requests.metadata import MetadataRequest
from aiokafka08.protocol.requests.produce import ProduceRequest
from aiokafka08.telemetry import Disconnected, Event
from aiokafka08.testing import Answer, Close, Corrupt, Delay, Omit, Silence
from aiokafka08.testing.history import Anomaly, Recorder, check
from aiokafka08.testing.simulation import Network, World, simulate

TOPIC = "orders"
PARTITIONS = 3
VERSIONS = ("0.8.2", "0.9", "0.8.0", "0.10", "0.8.1")
SAFE = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}
REQUEST_S, DELIVERY_S = 2.0, 6.0
LENGTH_S = 20.0
DRAIN_S = 60.0
_PLACES = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]


def run(seed: int) -> list[Anomaly]:
    """Run the scenario of a seed; return what is wrong, an exception of the run included."""
    rng = random.Random(f"clients {seed}")
    version = VERSIONS[seed % len(VERSIONS)]
    network = Network(latency_ms=rng.choice([(0.5, 2.0), (5.0, 40.0)]), fragment=rng.random() < 0.3)
    recorder = Recorder()
    found: list[Anomaly] = []
    with simulate(seed, brokers=3, version=version, network=network) as world:
        try:
            world.run(_Clients(world, recorder, rng, found).play, limit_s=900.0)
        except Exception as error:
            found.append(Anomaly(type(error).__name__, (), {"text": str(error)[:2000]}))
    return found + check(recorder.operations)


class _Clients:
    def __init__(
        self, world: World, recorder: Recorder, rng: random.Random, found: list[Anomaly]
    ) -> None:
        self._found = found
        self._world = world
        self._cluster = cluster = world.cluster
        self._recorder = recorder
        self._rng = rng
        self._numbers = itertools.count()
        self._sending = True
        self._stopping = False
        self._futures: deque[Any] = deque(maxlen=10)  # of the last calls of `send`
        self._calls: list[asyncio.Task[None]] = []  # those that send, the oldest first
        self._is_tight = rng.random() < 0.4  # senders wait for memory, and are cancelled meanwhile
        self._seeks_past_errors = rng.random() < 0.5
        self._has_groups = cluster.version in ("0.9", "0.10")
        self._has_offsets = cluster.version not in ("0.8.0", "0.8.1")

    async def play(self) -> None:
        config = SAFE if self._has_offsets else {}
        self._cluster.create_topic(TOPIC, PARTITIONS, 3, config)
        async with self._producer() as producer:
            consumers = [self._consumer(number) for number in range(1 + self._has_groups)]
            await asyncio.gather(*(one.start() for one in consumers))
            async with asyncio.TaskGroup() as group:
                readers = [group.create_task(self._read(one)) for one in consumers]
                await self._work(producer, consumers)
                await self._drain()
                self._stopping = True
                await asyncio.wait(readers)
        for tp in _PLACES:
            self._recorder.note_log(tp, self._cluster.log(*tp))
        self._recorder.note_left()

    async def _work(self, producer: Any, consumers: list[Any]) -> None:
        async with asyncio.TaskGroup() as group:
            strikes = group.create_task(self._strike_all())
            count = 8 if self._is_tight else 3
            senders = [group.create_task(self._send(producer)) for _ in range(count)]
            if self._has_groups:
                group.create_task(self._come_and_go())
            watching = group.create_task(self._watch([producer, *consumers]))
            await asyncio.sleep(LENGTH_S)
            await strikes
            with self._world.process("broker 0"):
                self._mend()
            self._sending = False
            await asyncio.wait(senders)
            watching.cancel()
        # All is well again: a message to each partition must arrive.
        for tp in _PLACES:
            await producer.send_and_wait(TOPIC, self._value(), partition=tp.partition)
        await self._lose_a_request(producer)
        await producer.flush()
        producer.metrics()

    async def _lose_a_request(self, producer: Any) -> None:
        """Close the connection under a request: it is sent again at once, not after its timeout."""
        with self._world.process("broker 0"):
            self._cluster.fault(ProduceRequest, then=Silence(perform=False))
        sending = asyncio.create_task(producer.send_and_wait(TOPIC, self._value(), partition=0))
        await asyncio.sleep(REQUEST_S / 4)
        with self._world.process("broker 0"):
            self._cluster.drop_connections()
        await asyncio.wait([sending], timeout=REQUEST_S / 2)
        if not sending.done():
            self._found.append(Anomaly("late-retry", (), {"after_s": REQUEST_S / 2}))
        await sending

    def _on_event(self, event: Event) -> None:
        """Note a response that doesn't match its request.

        The brokers send none here, except after a `Silence` to a producer.
        """
        if (
            isinstance(event, Disconnected)
            and event.lane != "produce"
            and "correlation id" in event.reason
        ):
            self._found.append(Anomaly("unmatched-response", (), {"reason": event.reason}))

    # --- clients ----------------------------------------------------------------------------------

    def _producer(self) -> Any:
        rng = self._rng
        producer = _Producer(
            self._futures,
            bootstrap_servers=self._cluster.bootstrap_servers,
            acks="all",
            linger_ms=rng.choice([0, 5, 50]),
            max_batch_size=rng.choice([100, 400, 16384]),
            max_in_flight_requests_per_connection=rng.choice([1, 5]),
            compression_type=rng.choice([None, None, "gzip"]),
            buffer_memory=200 if self._is_tight else rng.choice([1000, 3000, 100_000]),
            max_request_size=900,
            request_timeout_ms=int(REQUEST_S * 1000),
            delivery_timeout_ms=int(DELIVERY_S * 1000),
            retry_backoff_ms=rng.choice([20, 100]),
            on_event=self._recorder.on_event("p", self._on_event),
        )
        # A call waits for memory for up to DELIVERY_S, `send_many` several times.
        deadline_s = REQUEST_S + DELIVERY_S + (9 * DELIVERY_S if self._is_tight else 0)
        return self._recorder.producer("p", producer, deadline_s)

    def _consumer(self, number: int) -> Any:
        rng = self._rng
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._cluster.bootstrap_servers,
            group_id="g" if self._has_offsets else None,
            offsets_storage="kafka" if self._has_offsets else None,
            auto_offset_reset="earliest",
            enable_auto_commit=self._has_offsets and rng.random() < 0.5,
            auto_commit_interval_ms=300,
            session_timeout_ms=6000,
            request_timeout_ms=int(REQUEST_S * 1000),
            max_partition_fetch_bytes=rng.choice([200, 2000]),
            fetch_max_wait_ms=100,
            on_event=self._on_event,
        )
        wrapped = self._recorder.consumer(f"c{number}", consumer)
        if self._has_groups:
            wrapped.subscribe([TOPIC], listener=_SlowListener())
        else:
            wrapped.assign(_PLACES)
        return wrapped

    def _value(self) -> bytes:
        return b"%d" % next(self._numbers) + b"." * self._rng.choice([0, 10, 60])

    async def _send(self, producer: Any) -> None:
        rng = self._rng
        while self._sending:
            pauses = [0.1, 0.5] if self._is_tight else [0.0, 0.01, 0.1, 0.5, 1.0]
            await asyncio.sleep(rng.choice(pauses))
            partition = rng.randrange(PARTITIONS)
            task = asyncio.create_task(self._send_some(producer, partition))
            self._calls = [*(one for one in self._calls if not one.done()), task]
            if rng.random() < 0.3:
                await self._cancel(task)
            with contextlib.suppress(KafkaError, asyncio.CancelledError):
                await task

    async def _cancel(self, task: asyncio.Task[None]) -> None:
        """Cancel a call after a while, or the oldest one when an earlier message is acknowledged.

        The response to that message releases memory too. If the oldest call has waited for it, it
        is cancelled after it was given the memory, and before it runs.
        """
        pending = [one for one in self._futures if not one.done()]
        if pending and self._rng.random() < 0.5:
            with contextlib.suppress(KafkaError, asyncio.CancelledError):
                await self._rng.choice(pending)
            task = next((one for one in self._calls if not one.done()), task)
        else:
            await asyncio.sleep(self._rng.choice([0.0, 0.001, 0.1, 0.5]))
        task.cancel()

    async def _come_and_go(self) -> None:
        """Let another member join the group and leave it."""
        for number in (10, 11):
            await asyncio.sleep(self._rng.uniform(0, 4))
            consumer = self._consumer(number)
            with contextlib.suppress(KafkaError):
                async with consumer:
                    for _ in range(10):
                        await self._poll(consumer)

    async def _send_some(self, producer: Any, partition: int) -> None:
        rng = self._rng
        match rng.choice(["send", "send", "wait", "many", "batch"]):
            case "send":
                await producer.send(TOPIC, self._value(), partition=partition)
            case "wait":
                await producer.send_and_wait(TOPIC, self._value(), key=self._value())
            case "many":
                values = [self._value() for _ in range(rng.randint(1, 9))]
                await producer.send_many(TOPIC, values, partition=partition)
            case _:
                batch = producer.create_batch()
                for _ in range(rng.randint(1, 4)):
                    batch.append(key=None, value=self._value(), timestamp=None)
                await producer.send_batch(batch, TOPIC, partition=partition)

    async def _read(self, consumer: Any) -> None:
        rng = self._rng
        commits: set[asyncio.Task[None]] = set()
        try:
            while not self._stopping:
                with contextlib.suppress(KafkaError):
                    await self._poll(consumer)
                    if rng.random() < 0.3:
                        for tp in sorted(consumer.assignment()):
                            await consumer.position(tp)
                if rng.random() < 0.1:
                    await asyncio.sleep(0.7)  # meanwhile messages gather in the buffer
                if self._has_offsets and rng.random() < 0.4:
                    commits.add(asyncio.create_task(self._commit(consumer)))
                if not self._has_groups and rng.random() < 0.05:
                    self._seek_back(consumer)
            await asyncio.gather(*commits)
        finally:
            await consumer.stop()

    async def _poll(self, consumer: Any) -> None:
        try:
            if self._rng.random() < 0.4:
                async with asyncio.timeout(0.5):
                    await consumer.getone()
            else:
                limit = self._rng.choice([None, 3])
                await consumer.getmany(timeout_ms=200, max_records=limit)
        except TimeoutError:
            pass
        except CorruptRecordException as error:  # it is damaged on the way: fetch it again
            # Without a seek the next call fetches it again too, for the error is raised once.
            if error.partition in consumer.assignment() and self._seeks_past_errors:
                consumer.seek(error.partition, error.offset)
        except KafkaError:
            await asyncio.sleep(0.1)

    async def _commit(self, consumer: Any) -> None:
        with contextlib.suppress(KafkaError):
            await consumer.commit()
            owned = sorted(consumer.assignment())
            if owned:
                tp = self._rng.choice(owned)
                await consumer.committed(tp)
                await consumer.position(tp)

    def _seek_back(self, consumer: Any) -> None:
        tp = self._rng.choice(_PLACES)
        place = f"{tp.topic}/{tp.partition}"
        polled = (m for one in self._recorder.operations[-200:] for m in one.polled)
        known = [m.offset for m in polled if m.partition == place and m.offset is not None]
        if known:
            consumer.seek(tp, self._rng.choice(known))

    async def _watch(self, clients: list[Any]) -> None:
        while True:
            for one in clients:
                one.metrics()
            await asyncio.sleep(self._rng.uniform(0.3, 1.5))

    async def _drain(self) -> None:
        """Wait until the consumers have got all that was acknowledged; `unseen` if they don't."""
        for _ in range(int(DRAIN_S)):
            sent, polled = set(), set()
            for one in self._recorder.operations:
                if one.status == "ok":
                    sent |= {(m.partition, m.value) for m in one.sent}
                polled |= {(m.partition, m.value) for m in one.polled}
            if sent <= polled:
                return
            await asyncio.sleep(1)

    # --- faults -----------------------------------------------------------------------------------

    async def _strike_all(self) -> None:
        for _ in range(self._rng.randint(4, 8)):
            await asyncio.sleep(self._rng.uniform(0.5, 3))
            with self._world.process("broker 0"):
                await self._rng.choice(
                    [self._strike] * 5
                    + [self._move, self._drop, self._kill, self._move_while_sends_wait]
                )()

    async def _strike(self) -> None:
        rng = self._rng
        effects: dict[type[api.Request[Any]], list[Any]] = {
            ProduceRequest: [
                *(Answer(code) for code in (3, 5, 6, 10, 10, 19)),
                *(Answer(code, perform=True) for code in (7, 20)),
                *(Close(), Close(after_bytes=3), Omit(), Silence(perform=True), Delay(3.0)),
            ],
            FetchRequest: [
                *(Answer(code) for code in (3, 5, 6, 29)),  # 29: an ACL, which calls raise
                *(Close(after_bytes=20), Omit(), Corrupt(-1), Delay(1.5)),
            ],
            MetadataRequest: [Answer(5), Answer(3), Answer(-1), Close()],
            # After 1.5 s an attempt has timed out, but not the connection.
            OffsetCommitRequest: [
                *(Answer(14), Answer(16), Delay(1.5), Delay(0.3)),
                *[Omit(perform=False)] * 2,
            ],
            OffsetFetchRequest: [Answer(14), Omit(), Close(), Delay(1.5)],
        }
        if not self._has_offsets:
            # The exact line is found out by OffsetFetch, which these lines don't answer so.
            del effects[OffsetFetchRequest]
        request = rng.choice(list(effects))
        self._cluster.fault(
            request,
            then=rng.choice(effects[request]),
            node=rng.choice([None, 0, 1, 2]),
            nth=rng.randint(1, 4),
            times=rng.randint(1, 2),
        )

    async def _move(self) -> None:
        partition = self._rng.randrange(PARTITIONS)
        self._cluster.restore_isr(TOPIC, partition)
        self._cluster.move_leader(TOPIC, partition)

    async def _move_while_sends_wait(self) -> None:
        """A follower dies unnoticed, so that acks="all" waits for it; meanwhile leaders move."""
        cluster = self._cluster
        for partition in range(PARTITIONS):
            cluster.restore_isr(TOPIC, partition)
        node = self._rng.randrange(3)
        cluster.kill(node, "unnoticed")
        await asyncio.sleep(self._rng.uniform(0.3, 1.5))
        for partition in range(PARTITIONS):
            leader = cluster.leader(TOPIC, partition)
            if leader not in (node, -1):
                cluster.move_leader(TOPIC, partition, ({0, 1, 2} - {node, leader}).pop())
        cluster.notice(node)
        cluster.elect()
        cluster.restart(node)
        for partition in range(PARTITIONS):
            cluster.restore_isr(TOPIC, partition)

    async def _drop(self) -> None:
        self._cluster.drop_connections(self._rng.choice([None, 0, 1, 2]))

    async def _kill(self) -> None:
        cluster, rng = self._cluster, self._rng
        for partition in range(PARTITIONS):
            cluster.restore_isr(TOPIC, partition)
        node = rng.randrange(3)
        act: Callable[[], object] = rng.choice(
            [lambda: cluster.stop(node), lambda: cluster.kill(node, "elect"),
             lambda: cluster.kill(node, "unnoticed")]
        )  # fmt: skip
        act()
        await asyncio.sleep(rng.choice([0.3, 2.0, 9.0]))
        cluster.notice(node)
        cluster.elect()
        cluster.restart(node, rng.choice([None, 0]))
        for partition in range(PARTITIONS):
            cluster.restore_isr(TOPIC, partition)

    def _mend(self) -> None:
        self._cluster.clear_faults()
        for partition in range(PARTITIONS):
            self._cluster.restore_isr(TOPIC, partition)


class _Producer(AIOKafkaProducer):
    """Keeps the futures that `send` returns. The recorder's run their callbacks later.

    Args:
        futures: where they are kept.
        options: those of a producer.
    """

    def __init__(self, futures: deque[Any], **options: Any) -> None:
        super().__init__(**options)
        self._kept = futures

    async def send(self, *arguments: Any, **options: Any) -> Any:
        future = await super().send(*arguments, **options)
        self._kept.append(future)
        return future


class _SlowListener(ConsumerRebalanceListener):
    """Takes its time when partitions are revoked; meanwhile nothing of them may be returned."""

    async def on_partitions_revoked(self, revoked: object) -> None:
        await asyncio.sleep(0.3)

    def on_partitions_assigned(self, assigned: object) -> None:
        """Do nothing."""
