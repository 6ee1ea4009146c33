"""Play a plan in a simulated world, and judge what the clients did.

Two producers send, a group of three consumes and commits, and the plan's faults strike. After
`LENGTH_S` everything is mended; the members go on until they have got what was acknowledged. Then
all clients stop, the logs are read, and `aiokafka08.testing.history` judges the history.

Invariant: no fault may cause a loss that Kafka permits. So each anomaly is a bug: of the client,
the embedded cluster, the simulation or the checker.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import re
import traceback
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka08.errors import (
    CorruptRecordException,
    KafkaError,
    UnsupportedVersionError,
    ZookeeperMismatchError,
)
from aiokafka08.telemetry import BatchRetried, Event, GroupJoined, OffsetReset
from aiokafka08.testing.history import Anomaly, Message, Operation, check
from aiokafka08.testing.history.operations import Fact, Status
from aiokafka08.testing.runtime import Recorded
from aiokafka08.testing.simulation import Network, SimulationError, World, simulate
from aiokafka08.testing.state import StoredCommit
from tests.faults.simulation import plan as p
from tests.faults.simulation.strikes import Strikes

TOPIC = "mixed"
GROUP = "group"
SAFE = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}
DRAIN_S = 120.0
"""Virtual seconds in which the members must have got everything, once all is mended."""
LIMIT_S = 3600.0
PRODUCER_PROGRESS_S = 20.0
"""Virtual seconds after which each producer must have stored a message in each partition, once all
is mended."""
MEMBER_PROGRESS_S = 45.0
"""As `PRODUCER_PROGRESS_S`, for the group to return it: sessions end, and members join again."""
SETTLE_S = 30.0
"""Virtual seconds in which the members must share all partitions, once they have got everything."""
_POLL_MS = 500
_LISTENS_S = 0.2
"""How long a listener takes that waits."""
_STOP_S = 90.0
_REFUSED = (ZookeeperMismatchError, UnsupportedVersionError)
"""What ends a membership: another cluster's ZooKeeper, or brokers that were set back to 0.8."""
_REFUSED_S = 1.0
"""How long a member waits that was refused, before it begins anew."""
_FAILED_FETCH = re.compile(r"fetch of (\w+)/(\d+) at offset (\d+): .*clearly later offset")
_ROWS = pa.schema({"value": pa.binary(), "partition": pa.int32()})


@dataclass
class Report:
    """What a run showed.

    Attributes:
        anomalies: what the checker found, and what the simulation itself refused.
        operations: the history.
        fired: how often each kind of fault had an effect.
        effective: how many faults of the plan had an effect.
        requests: how many requests the brokers read.
        read: the last of them.
        virtual_s: how much virtual time passed.
        trace_hash: of the world.
        began_at: when the plan's times began.
        mended_at: when all faults were mended; 0 if the run ended before.
    """

    anomalies: list[Anomaly] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    fired: Counter[str] = field(default_factory=Counter)
    effective: int = 0
    requests: int = 0
    read: list[Recorded] = field(default_factory=list)
    virtual_s: float = 0.0
    trace_hash: str = ""
    began_at: float = 0.0
    mended_at: float = 0.0

    @property
    def names(self) -> list[str]:
        """The names of the anomalies, each once."""
        return sorted({one.name for one in self.anomalies})


def run(plan: p.Plan) -> Report:
    """Play a plan and return what it showed."""
    report = Report()
    network = Network(latency_ms=plan.latency_ms, fragment=plan.fragment)
    scenario: _Scenario | None = None
    try:
        with simulate(plan.seed, brokers=p.BROKERS, version=plan.version, network=network) as world:
            scenario = _Scenario(plan, world)
            try:
                world.run(scenario.play, limit_s=LIMIT_S)
            except Exception as error:
                report.anomalies.append(_anomaly_of(error))
            report.virtual_s = world.virtual_s
            report.requests, report.read = len(scenario.read), scenario.read
            report.trace_hash = world.trace_hash
    except Exception as error:
        if scenario is None:
            raise
        if not report.anomalies:  # else the end failed because the run had
            report.anomalies.append(_anomaly_of(error))
    report.began_at, report.mended_at = scenario.began_at, scenario.mended_at
    report.fired, report.effective = scenario.fired, scenario.effective
    report.fired[p.FRAGMENT] += plan.fragment
    report.operations = scenario.finished_operations()
    report.anomalies += scenario.found
    report.anomalies += check(report.operations)
    return report


def _anomaly_of(error: Exception) -> Anomaly:
    if isinstance(error, SimulationError):
        text = str(error)
    else:
        text = "".join(traceback.format_exception(error))
    return Anomaly(type(error).__name__, (), {"text": text})


class _Scenario:
    def __init__(self, plan: p.Plan, world: World) -> None:
        self.plan = plan
        self.world = world
        self.cluster = world.cluster
        self.operations: list[Operation] = []
        self.read: list[Recorded] = []
        self.draining = False
        self.stopping = False
        self._values = itertools.count()
        self._probes = itertools.count()
        self._last_time = 0.0
        self._tasks: list[asyncio.Task[None]] = []
        self._queues: list[asyncio.Queue[p.Send | None]] = []
        self._restarts: dict[int, asyncio.Event] = {}
        self._positions: dict[str, dict[str, int]] = defaultdict(dict)
        self._strikes = Strikes(
            world,
            TOPIC,
            GROUP,
            self._restarts,
            self._on_truncated,
            self._on_deleted,
            self._on_stored,
        )
        self.fired = self._strikes.fired
        self.found = self._strikes.found
        self._damaged: dict[str, set[int]] = defaultdict(set)
        self._stepped_over: set[tuple[str, int]] = set()
        self._handed_out: Counter[str] = Counter()  # place → the highest offset until now
        self._acknowledged: deque[tuple[str, str, int | None]] = deque()
        self._polled: set[tuple[str, str]] = set()
        self._refilled: list[tuple[str, int, int]] = []
        self._kept_from: dict[str, int] = {}
        self._members: dict[str, str] = {}
        self._consumers: dict[str, AIOKafkaConsumer[Any, Any]] = {}  # those that run, by name
        self._listeners: dict[str, _Listener] = {}
        self._tail: list[Operation] = []
        self._pulses: dict[str, float | None] = {}  # the last messages → when they were returned
        self.began_at = self.mended_at = 0.0
        world.zookeeper.on_session_end = self._on_session_end
        world.watch_commits(self._on_commit)
        self._pending: list[asyncio.Task[None]] = []

    @property
    def effective(self) -> int:
        """How many of the plan's faults had an effect."""
        return self._strikes.effective

    # --- the course -------------------------------------------------------------------------------

    async def play(self) -> None:
        """Play the plan."""
        loop = asyncio.get_running_loop()
        config = SAFE if self.plan.is_safe else {}
        self.cluster.create_topic(TOPIC, p.PARTITIONS, p.BROKERS, config)
        for number in range(p.PRODUCERS):
            self._queues.append(asyncio.Queue())
            self._start(f"p{number}", self._produce, number)
        for number in range(p.MEMBERS):
            self._start(f"c{number}", self._be_member, number)
        if self.plan.usage.tail:
            self._start("t0", self._read_tail, 0)
        begin = self.began_at = loop.time()
        mending: list[asyncio.Task[None]] = []
        reserve = asyncio.create_task(self._strike_reserve(begin + p.RESERVE_S))
        for step in self.plan.steps:
            await asyncio.sleep(max(0.0, begin + step.at - loop.time()))
            if isinstance(step.do, p.Send):
                self._queues[step.do.producer].put_nowait(step.do)
            else:
                mending.append(self._strike(step.do))
        await asyncio.sleep(max(0.0, begin + p.LENGTH_S - loop.time()))
        await asyncio.gather(*mending, *await reserve)
        self._strikes.mend()
        await self._finish()

    def _strike(self, fault: p.Fault) -> asyncio.Task[None]:
        return asyncio.create_task(self._strikes.strike(fault), name=repr(fault))

    async def _strike_reserve(self, when: float) -> list[asyncio.Task[None]]:
        """Let faults of the reserve strike, as many as are missing at a time."""
        await asyncio.sleep(when - asyncio.get_running_loop().time())
        missing = max(0, p.MIN_EFFECTIVE - self._strikes.effective)
        return [self._strike(fault) for fault in self.plan.reserve[:missing]]

    def _start(
        self, party: str, function: Callable[[int], Coroutine[Any, Any, None]], number: int
    ) -> None:
        with self.world.process(party):
            self._tasks.append(asyncio.create_task(function(number), name=party))

    async def _finish(self) -> None:
        self.mended_at = asyncio.get_running_loop().time()
        for number, queue in enumerate(self._queues):
            for partition in range(p.PARTITIONS):
                queue.put_nowait(p.Send(number, "pulse", 1, partition))
            queue.put_nowait(None)
        await asyncio.gather(*self._tasks[: p.PRODUCERS])
        self.draining = True
        end = asyncio.get_running_loop().time() + DRAIN_S
        while self._is_unseen() and asyncio.get_running_loop().time() < end:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        await self._settle()
        self.stopping = True
        await asyncio.gather(*self._tasks)
        self._find_stalls()
        self._find_silent_damage()
        self._read_logs()
        self._judge_tail()
        self._judge_stores()
        self.read = self.cluster.history

    async def _settle(self) -> None:
        """Judge whether the members that live share all partitions, each with one owner.

        In ZooKeeper its node says so; without one another member may take the partition.
        """
        clock = asyncio.get_running_loop().time
        end = clock() + SETTLE_S
        partitions = [TopicPartition(TOPIC, number) for number in range(p.PARTITIONS)]
        while True:
            owned = {name: sorted(one.assignment()) for name, one in self._consumers.items()}
            nodes = owner_nodes(self.world, GROUP, TOPIC) if self.plan.has_zookeeper else partitions
            if sorted(tp for places in owned.values() for tp in places) == partitions == nodes:
                return
            if clock() >= end:
                shown = {name: [tp.partition for tp in places] for name, places in owned.items()}
                facts = {"owned": shown, "owner_nodes": [tp.partition for tp in nodes]}
                self.found.append(Anomaly("split-group", (), facts))
                return
            await asyncio.sleep(0.1)

    def _find_stalls(self) -> None:
        """Judge whether each client and partition has advanced in time after the mend."""
        for one in self.operations:
            if one.call == "pulse":
                [sent] = one.sent
                has_advanced = one.status != "open" and not one.error
                took_s = (one.order if has_advanced else math.inf) - self.mended_at
                self._find_stall(one.process, sent, took_s, PRODUCER_PROGRESS_S)
                if one.status == "ok":
                    returned_at = self._pulses.get(str(sent.value))
                    if returned_at is None and self._may_be_unseen(sent.partition, sent.offset):
                        continue  # the drain hasn't waited for it
                    took_s = math.inf if returned_at is None else returned_at - self.mended_at
                    self._find_stall(GROUP, sent, took_s, MEMBER_PROGRESS_S)

    def _find_stall(self, client: str, sent: Message, took_s: float, limit_s: float) -> None:
        if took_s > limit_s:
            facts = {"client": client, "partition": sent.partition, "value": sent.value}
            times = {"took_s": took_s, "limit_s": limit_s, "mended_at": self.mended_at}
            self.found.append(Anomaly("no-progress", (), facts | times))

    def _find_silent_damage(self) -> None:
        """Judge whether an error was raised for each damaged message that members have passed."""
        for place, damaged in self._damaged.items():
            passed = self._handed_out[place]
            for offset in sorted(damaged):
                # A member may have passed the offset before a truncation, with another message.
                if (
                    offset < passed
                    and not self._may_be_unseen(place, offset)
                    and (place, offset) not in self._stepped_over
                ):
                    facts = {"partition": place, "offset": offset}
                    self.found.append(Anomaly("silent-damage", (), facts))

    def _is_unseen(self) -> bool:
        """Return whether no member has got some message yet that is acknowledged and in the log."""
        waiting = self._acknowledged
        while waiting:
            place, value, offset = waiting[0]
            if (place, value) not in self._polled and not self._may_be_unseen(place, offset):
                return True
            waiting.popleft()
        return False

    def _may_be_unseen(self, place: str, offset: int | None) -> bool:
        return offset is not None and (
            offset < self._kept_from.get(place, 0)
            or any(place == lossy and lost <= offset < end for lossy, lost, end in self._refilled)
        )

    # --- what the cluster does --------------------------------------------------------------------

    def _on_truncated(self, partition: int, lost: int, end: int) -> None:
        place = f"{TOPIC}/{partition}"
        self._refilled.append((place, lost, end))
        self._damaged[place] = {at for at in self._damaged[place] if at < lost}
        self._note("cluster", "truncated", offsets={place: lost}, facts={"end": end})

    def _on_deleted(self, partition: int, kept: int) -> None:
        place = f"{TOPIC}/{partition}"
        self._kept_from[place] = kept
        self._note("cluster", "deleted", offsets={place: kept})

    def _on_stored(self, partition: int, values: list[str], first: int, damaged: int) -> None:
        place = f"{TOPIC}/{partition}"
        self._damaged[place].add(damaged)
        sent = tuple(Message(place, value, first + at) for at, value in enumerate(values))
        if sent:
            self._note("disk", "send_batch", sent=sent)
        self._acknowledged.extend((place, str(one.value), one.offset) for one in sent)

    def _on_session_end(self, party: str, paths: list[str]) -> None:
        if any(path.startswith(f"/consumers/{GROUP}/owners/") for path in paths):
            self._note(self._members[party], "expired", group=GROUP)

    def _on_commit(self, commit: StoredCommit) -> None:
        if commit.key.group != GROUP:
            return
        client = commit.client or ""
        self._note(
            client if commit.store == "kafka" else self._members.get(client, client),
            "stored",
            offsets={f"{commit.key.topic}/{commit.key.partition}": commit.offset},
            group=GROUP,
            generation=commit.generation if commit.generation >= 0 else None,
            facts={"store": commit.store, "connection": commit.connection},
        )

    # --- the history ------------------------------------------------------------------------------

    def _now(self) -> float:
        """Return a time for the history: no two are the same, so that they have an order."""
        self._last_time = max(asyncio.get_running_loop().time(), self._last_time + 1e-9)
        return self._last_time

    def _record(self, operation: Operation) -> None:
        self.operations.append(operation)

    def _note(self, process: str, call: str, **fields: Any) -> None:
        """Record an operation that takes no time."""
        now = self._now()
        self._record(Operation(process=process, call=call, invoked=now, ended=now, **fields))

    def finished_operations(self) -> list[Operation]:
        """Return the history; no deadline for calls of a process that stood still meanwhile."""
        found = []
        for one in self.operations:
            if one.deadline_s is not None and any(
                party in (None, one.process.partition(".")[0])
                and begin <= (float("inf") if one.ended is None else one.ended)
                and end >= one.invoked
                for party, begin, end in self._strikes.standstills
            ):
                one = replace(one, deadline_s=None)
            found.append(one)
        return found

    def _read_logs(self) -> None:
        messages = tuple(
            Message(f"{TOPIC}/{number}", (one.value or b"").decode(), one.offset)
            for number in range(p.PARTITIONS)
            for one in self.cluster.log(TOPIC, number)
            if one.offset not in self._damaged[f"{TOPIC}/{number}"]
        )
        now = self._now()
        partitions = tuple(f"{TOPIC}/{number}" for number in range(p.PARTITIONS))
        self._record(
            Operation(
                process="cluster",
                call="log",
                invoked=now,
                ended=now,
                partitions=partitions,
                polled=messages,
            )
        )

    # --- producers --------------------------------------------------------------------------------

    async def _produce(self, number: int) -> None:
        name = f"p{number}"
        options = self.plan.producers[number]
        producer = AIOKafkaProducer(
            bootstrap_servers=self.cluster.bootstrap_servers,
            client_id=name,
            on_event=lambda event: self._on_producer_event(name, event),
            start_timeout_ms=int(LIMIT_S * 1000),
            **options,  # type: ignore[arg-type]
        )
        await self._start_client(name, producer)
        deliveries: list[asyncio.Task[None]] = []
        while (send := await self._queues[number].get()) is not None:
            await self._send(name, producer, send, options, deliveries)
            self._observe(name, producer)
        await asyncio.gather(*deliveries)
        self._observe(name, producer)
        await self._stop(name, name, producer)

    def _on_producer_event(self, name: str, event: Event) -> None:
        if isinstance(event, BatchRetried):
            now = self._now()
            self._record(
                Operation(
                    process=name,
                    call="retried",
                    invoked=now,
                    ended=now,
                    partitions=(_place(event.partition),),
                    facts={"messages": event.messages, "may_be_stored": event.may_be_stored},
                )
            )

    async def _send(
        self,
        name: str,
        producer: AIOKafkaProducer,
        send: p.Send,
        options: dict[str, object],
        deliveries: list[asyncio.Task[None]],
    ) -> None:
        """Make one call, or as many calls of `send` as there are messages."""
        if send.call in ("send", "send_and_wait"):
            for _ in range(send.count):
                await self._call(name, producer, replace(send, count=1), options, deliveries)
        else:
            await self._call(name, producer, send, options, deliveries)

    async def _call(
        self,
        name: str,
        producer: AIOKafkaProducer,
        send: p.Send,
        options: dict[str, object],
        deliveries: list[asyncio.Task[None]],
    ) -> None:
        values = [f"{name}-{next(self._values)}" for _ in range(send.count)]
        encoded = [value.encode() for value in values]
        if send.call == "pulse":
            self._pulses[values[0]] = None
        place = f"{TOPIC}/{'?' if send.partition is None else send.partition}"
        operation = Operation(
            process=name,
            call=send.call,
            invoked=self._now(),
            status="open",
            deadline_s=int(str(options["delivery_timeout_ms"])) / 1000,
            sent=tuple(Message(place, value) for value in values),
        )
        index = len(self.operations)
        self._record(operation)
        awaited: Any
        try:
            match send.call:
                case "send" | "send_and_wait" | "pulse":
                    awaited = await producer.send(TOPIC, encoded[0], partition=send.partition)
                case "send_many":
                    awaited = await producer.send_many(TOPIC, encoded, partition=send.partition)
                case "send_arrow":
                    columns = {"value": encoded, "partition": [send.partition] * len(encoded)}
                    rows = pa.RecordBatch.from_pydict(columns, _ROWS)
                    awaited = await producer.send_arrow(TOPIC, rows)
                case _:
                    batch = producer.create_batch()
                    fitting = [
                        value
                        for value in encoded
                        if batch.append(key=None, value=value, timestamp=None) is not None
                    ]
                    values = [value.decode() for value in fitting]
                    operation = replace(
                        operation, sent=tuple(Message(place, value) for value in values)
                    )
                    assert send.partition is not None
                    awaited = await producer.send_batch(batch, TOPIC, partition=send.partition)
        except KafkaError as error:
            # A call that raises may have buffered some of its messages.
            many = send.call in ("send_many", "send_arrow")
            status: Status = "unknown" if many else "fail"
            self.operations[index] = replace(
                operation, status=status, ended=self._now(), error=repr(error)
            )
            return
        operation = replace(operation, accepted=self._now())
        self.operations[index] = operation
        delivery = self._deliver(index, operation, values, awaited)
        if send.call == "send_and_wait":
            await delivery
        else:
            deliveries.append(asyncio.create_task(delivery))

    async def _deliver(
        self, index: int, operation: Operation, values: list[str], awaited: Any
    ) -> None:
        try:
            result = await awaited
        except KafkaError as error:
            self.operations[index] = replace(
                operation, status="unknown", ended=self._now(), error=repr(error)
            )
            return
        if self.plan.producers[_number(operation.process)]["acks"] == 0:
            # A message may be lost, and nobody learns it, nor where it is.
            self.operations[index] = replace(operation, status="unknown", ended=self._now())
            return
        if operation.call == "send_batch":
            first = result
            told = [(first.partition, first.offset + at) for at in range(len(values))]
        elif operation.call in ("send_many", "send_arrow"):
            told = [(one.partition, one.offset) for one in result]
        else:
            told = [(result.partition, result.offset)]
        sent = tuple(
            Message(f"{TOPIC}/{partition}", value, offset if offset >= 0 else None)
            for value, (partition, offset) in zip(values, told, strict=True)
        )
        for one in sent:
            self._acknowledged.append((one.partition, str(one.value), one.offset))
        self.operations[index] = replace(operation, status="ok", ended=self._now(), sent=sent)

    # --- a reader from the end --------------------------------------------------------------------

    async def _read_tail(self, number: int) -> None:
        """Read what comes after the start, and judge it apart: others read it too."""
        name = f"t{number}"

        def on_event(event: Event) -> None:
            if isinstance(event, OffsetReset):
                self._tail.append(self._tail_note("seek", partitions=(_place(event.partition),)))

        consumer: AIOKafkaConsumer[Any, Any] = AIOKafkaConsumer(
            bootstrap_servers=self.cluster.bootstrap_servers,
            client_id=name,
            auto_offset_reset="latest",
            fetch_max_wait_ms=2000,
            start_timeout_ms=int(LIMIT_S * 1000),
            on_event=on_event,
        )
        partitions = [TopicPartition(TOPIC, partition) for partition in range(p.PARTITIONS)]
        consumer.assign(partitions)
        await consumer.start()
        while not self.stopping:
            try:
                polled = await self._take(consumer)
            except TimeoutError:
                continue
            except CorruptRecordException as error:
                if error.partition is not None and error.next_offset is not None:
                    place = _place(error.partition)
                    consumer.seek(error.partition, error.next_offset)
                    self._tail.append(self._tail_note("seek", offsets={place: error.next_offset}))
            except KafkaError:
                await asyncio.sleep(0.5)
            else:
                self._tail.append(self._tail_note("getmany", polled=polled))
        await consumer.stop()

    def _tail_note(self, call: str, **fields: Any) -> Operation:
        now = self._now()
        return Operation(process="t0", call=call, invoked=now, ended=now, **fields)

    def _judge_tail(self) -> None:
        if not self._tail:
            return
        told = [one for one in self.operations if one.call in ("log", "truncated", "deleted")]
        wrong = check([*told, *(one for one in self.operations if one.sent), *self._tail])
        self.found += [one for one in wrong if one.name.endswith("poll") or "poll-" in one.name]

    def _judge_stores(self) -> None:
        """Judge whether a group that commits to both stores has left the same in both.

        Both are well once all is mended; what was committed before may be in one of them only.
        """
        if not self.plan.usage.dual:
            return
        in_kafka: dict[str, int] = {}
        for one in self.operations:
            if one.call == "stored" and one.order > self.mended_at:
                in_kafka.update(one.offsets if one.facts["store"] == "kafka" else {})
        for place, offset in in_kafka.items():
            number = int(place.rpartition("/")[2])
            found = self.cluster.committed(GROUP, TOPIC, number, store="zookeeper")
            if found is None or found.offset != offset:
                facts = {"partition": place, "in_kafka": offset, "in_zookeeper": found}
                self.found.append(Anomaly("unequal-stores", (), facts))

    # --- members ----------------------------------------------------------------------------------

    async def _be_member(self, number: int) -> None:
        for incarnation in itertools.count():
            self._restarts[number] = asyncio.Event()
            await self._consume(f"c{number}", f"c{number}.{incarnation}", self._restarts[number])
            if self.stopping:
                return

    async def _consume(self, party: str, name: str, leave: asyncio.Event) -> None:
        plan = self.plan
        zookeeper = self.world.zookeeper_connect if plan.has_zookeeper else None
        generation: list[int] = []
        self._members[party] = name

        def on_event(event: Event) -> None:
            if isinstance(event, GroupJoined):
                generation[:] = [event.generation] if event.generation >= 0 else []

        consumer: AIOKafkaConsumer[Any, Any] = AIOKafkaConsumer(
            bootstrap_servers=self.cluster.bootstrap_servers,
            client_id=name,
            group_id=GROUP,
            zookeeper_connect=zookeeper,
            auto_offset_reset="earliest",
            enable_auto_commit=plan.commits == "auto",
            rebalance_max_retries=30,
            on_event=on_event,
            **plan.member,  # type: ignore[arg-type]
        )
        listener = _Listener(self, name, generation, consumer)
        consumer.subscribe([TOPIC], listener=listener)
        self._listeners[name] = listener
        while True:
            try:
                await self._start_client(name, consumer)
                break
            except KafkaError as error:
                if self.stopping:
                    return
                await consumer.stop()
                if isinstance(error, _REFUSED):
                    await asyncio.sleep(_REFUSED_S)
                return
        self._consumers[name] = consumer
        polls = itertools.count(1)
        try:
            while not (leave.is_set() or self.stopping):
                await self._poll(name, consumer)
                self._do_more(name, consumer, next(polls))
                self._observe(name, consumer)
                if next(self._probes) % 4 == 0:
                    await self._ask(name, consumer)
        except _REFUSED:  # such a member doesn't go on
            await asyncio.sleep(_REFUSED_S)
        finally:
            del self._consumers[name]
            await self._stop(party, name, consumer)
            await self._start_again(name, consumer)

    async def _start_again(self, name: str, consumer: AIOKafkaConsumer[Any, Any]) -> None:
        if self.plan.usage.restarts:
            with suppress(KafkaError):
                await consumer.start()
                self.found.append(Anomaly("started-again", (), {"member": name}))

    async def _poll(self, name: str, consumer: AIOKafkaConsumer[Any, Any]) -> None:
        invoked = self._now()
        polled: tuple[Message, ...] = ()
        error: KafkaError | None = None
        paused = consumer.paused()
        try:
            polled = await self._take(consumer)
        except TimeoutError:
            pass
        except KafkaError as raised:
            error = raised
        self._record(
            Operation(
                process=name,
                call=self.plan.takes,
                invoked=invoked,
                ended=self._now(),
                status="ok" if error is None else "fail",
                deadline_s=_POLL_MS / 1000,
                polled=polled,
                group=GROUP,
                error="" if error is None else repr(error),
            )
        )
        for place in {one.partition for one in polled} & set(
            map(_place, paused & consumer.paused())
        ):
            self.found.append(
                Anomaly("poll-while-paused", (), {"member": name, "partition": place})
            )
        self._polled |= {(one.partition, str(one.value)) for one in polled}
        for one in polled:
            if str(one.value) in self._pulses:
                self._pulses[str(one.value)] = self._now()
            self._handed_out[one.partition] = max(self._handed_out[one.partition], one.offset or 0)
        self._positions[name] |= {one.partition: (one.offset or 0) + 1 for one in polled}
        if isinstance(error, _REFUSED):
            raise error
        if error is not None:
            self._step_over(name, consumer, error)
            await asyncio.sleep(0.2)
        elif polled and self._commits(name):
            await self._commit(name, consumer)

    def _do_more(self, name: str, consumer: AIOKafkaConsumer[Any, Any], poll: int) -> None:
        """Do what the plan's usage says, every few polls."""
        usage, owned = self.plan.usage, sorted(consumer.assignment())
        if self.draining:
            self._resume(name, consumer)
            return
        if usage.pauses and owned and poll % 5 == 0 and not self._resume(name, consumer):
            chosen = owned[poll % len(owned)]
            consumer.pause(chosen)
            self._note(name, "pause", partitions=(_place(chosen),))
        if usage.seeks and owned and poll % 40 == 0:
            chosen = owned[poll % len(owned)]
            place, log = _place(chosen), self.cluster.offsets(*chosen)
            reached = min(self._positions[name].get(place, 0), log.high_watermark)
            if (target := max(reached - 3, log.start)) < reached:
                consumer.seek(chosen, target)
                self._note(name, "seek", offsets={place: target}, group=GROUP)
                self._positions[name][place] = target
        if usage.resubscribes and poll % 30 == 0:
            consumer.unsubscribe()
            self._positions[name].clear()
            self._note(name, "revoked", partitions=tuple(map(_place, owned)), group=GROUP)
            self._note(name, "subscribe")
            consumer.subscribe([TOPIC], listener=self._listeners[name])

    def _resume(self, name: str, consumer: AIOKafkaConsumer[Any, Any]) -> bool:
        """Resume what is paused; return whether something was."""
        paused = sorted(consumer.paused())
        consumer.resume(*paused)
        if paused:
            self._note(name, "resume", partitions=tuple(map(_place, paused)))
        return bool(paused)

    def _commits(self, name: str) -> bool:
        """Return whether a member commits after each poll."""
        return self.plan.commits == "poll" and _number(name) not in self.plan.never_commit

    def _step_over(
        self, name: str, consumer: AIOKafkaConsumer[Any, Any], error: KafkaError
    ) -> None:
        """Go on behind a damaged message that is stored; one damaged on the way comes again."""
        if isinstance(error, CorruptRecordException):
            partition, offset, next_offset = error.partition, error.offset, error.next_offset
        elif match := _FAILED_FETCH.search(error.text):
            partition = TopicPartition(match[1], int(match[2]))
            offset, next_offset = int(match[3]), None
        else:
            return
        if partition is None or offset is None:
            self.found.append(Anomaly("unnamed-damage", (), {"error": repr(error)}))
        elif offset in self._damaged[_place(partition)] and partition in consumer.assignment():
            self._stepped_over.add((_place(partition), offset))
            target = offset + 1 if next_offset is None else next_offset
            consumer.seek(partition, target)
            self._note(name, "seek", offsets={_place(partition): target}, group=GROUP)
            self._positions[name][_place(partition)] = target

    async def _take(self, consumer: AIOKafkaConsumer[Any, Any]) -> tuple[Message, ...]:
        """Return what one call of the consumer hands out."""
        match self.plan.takes:
            case "getone" | "anext":
                taking = consumer.getone if self.plan.takes == "getone" else consumer.__anext__
                async with asyncio.timeout(_POLL_MS / 1000):
                    records = [await taking()]
            case "getmany_arrow":
                rows = await consumer.getmany_arrow(timeout_ms=_POLL_MS)
                names = ("topic", "partition", "offset", "value")
                columns = [rows.column(name).to_pylist() for name in names]
                return tuple(
                    Message(f"{topic}/{partition}", value.decode(), offset)
                    for topic, partition, offset, value in zip(*columns, strict=True)
                )
            case _:
                most = self.plan.usage.max_records
                found = await consumer.getmany(timeout_ms=_POLL_MS, max_records=most)
                records = [record for taken in found.values() for record in taken]
        return tuple(
            Message(f"{one.topic}/{one.partition}", (one.value or b"").decode(), one.offset)
            for one in records
        )

    async def _ask(self, name: str, consumer: AIOKafkaConsumer[Any, Any]) -> None:
        """Ask for the position and the committed offset of one partition."""
        owned = sorted(consumer.assignment())
        if not owned:
            return
        partition = owned[next(self._probes) % len(owned)]
        place = _place(partition)
        for call in ("position", "committed"):
            invoked = self._now()
            found: int | None = None
            status: Status = "ok"
            try:
                asking = consumer.position if call == "position" else consumer.committed
                found = await asking(partition)
            except KafkaError:
                status = "fail"
            self._record(
                Operation(
                    process=name,
                    call=call,
                    invoked=invoked,
                    ended=self._now(),
                    status=status,
                    partitions=(place,),
                    offsets={} if found is None else {place: found},
                    group=GROUP,
                )
            )

    async def _commit(
        self,
        name: str,
        consumer: AIOKafkaConsumer[Any, Any],
        offsets: dict[str, int] | None = None,
    ) -> None:
        offsets = dict(self._positions[name]) if offsets is None else offsets
        operation = Operation(
            process=name,
            call="commit",
            invoked=self._now(),
            partitions=tuple(sorted({*map(_place, consumer.assignment())} - {*offsets})),
            offsets=offsets,
            group=GROUP,
        )
        try:
            await consumer.commit()
        except KafkaError as error:
            operation = replace(operation, status="unknown", error=repr(error))
        self._record(replace(operation, ended=self._now()))

    # --- all clients ------------------------------------------------------------------------------

    async def _start_client(self, name: str, client: Any) -> None:
        self._note(name, "ready", facts={"ready": client.ready()})
        operation = Operation(process=name, call="start", invoked=self._now())
        try:
            await client.start()
        except KafkaError as error:
            self._record(replace(operation, ended=self._now(), status="fail", error=repr(error)))
            raise
        self._record(replace(operation, ended=self._now()))

    def _observe(self, name: str, client: Any) -> None:
        """Record now and then what a client says of itself."""
        if next(self._probes) % 4 == 0:
            facts = {key: value for key, value in client.metrics().items() if "{" not in key}
            self._note(name, "metrics", facts=facts)

    async def _stop(self, party: str, name: str, client: Any) -> None:
        operation = Operation(process=name, call="stop", invoked=self._now(), deadline_s=_STOP_S)
        index = len(self.operations)
        self._record(replace(operation, status="open"))
        await client.stop()
        self.operations[index] = replace(operation, ended=self._now())
        self._note(name, "ready", facts={"ready": client.ready()})
        self._note(name, "left", facts=await self.world.left_by(party))

    async def give_up(
        self,
        name: str,
        consumer: AIOKafkaConsumer[Any, Any],
        revoked: Collection[TopicPartition],
    ) -> None:
        """Record that partitions are revoked; a member that listens commits before."""
        offsets = dict(self._positions[name])
        self.on_rebalance(name, "revoked", revoked, [])
        if self.plan.usage.listens and revoked and self._commits(name):
            await asyncio.sleep(_LISTENS_S)
            await self._commit(name, consumer, offsets)

    def on_rebalance(
        self, name: str, call: str, partitions: Collection[TopicPartition], generation: list[int]
    ) -> None:
        """Record what a member's listener was told."""
        positions = self._positions[name]
        for partition in list(positions) if call == "assigned" else map(_place, partitions):
            positions.pop(partition, None)
        facts: dict[str, Fact] = {"auto_commit": True} if self.plan.commits == "auto" else {}
        if self.plan.has_zookeeper:
            facts["exclusive"] = True
        if generation:
            facts["session_s"] = int(str(self.plan.member["session_timeout_ms"])) / 1000
        self._note(
            name,
            call,
            partitions=tuple(sorted(_place(tp) for tp in partitions)),
            group=GROUP,
            generation=generation[0] if generation else None,
            facts=facts,
        )


class _Listener(ConsumerRebalanceListener):
    def __init__(
        self,
        scenario: _Scenario,
        name: str,
        generation: list[int],
        consumer: AIOKafkaConsumer[Any, Any],
    ) -> None:
        self._scenario = scenario
        self._name = name
        self._generation = generation
        self._consumer = consumer

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        await self._scenario.give_up(self._name, self._consumer, revoked)

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self._scenario.on_rebalance(self._name, "assigned", assigned, self._generation)
        if self._scenario.plan.usage.listens:
            await asyncio.sleep(_LISTENS_S)


def owner_nodes(world: World, group: str, topic: str) -> list[TopicPartition]:
    """Return the partitions of a topic that have an owner in ZooKeeper, in order."""
    owners = world.zookeeper.tree.find(f"/consumers/{group}/owners/{topic}")
    names = [] if owners is None else owners.names()
    return sorted(TopicPartition(topic, int(name)) for name in names)


def _number(process: str) -> int:
    """Return 1 of "p1" and of "c1.0"."""
    return int(process[1:].partition(".")[0])


def _place(tp: TopicPartition) -> str:
    return f"{tp.topic}/{tp.partition}"
