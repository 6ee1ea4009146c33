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
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka08.errors import CorruptRecordException, KafkaError
from aiokafka08.telemetry import BatchRetried, Event, GroupJoined
from aiokafka08.testing.handlers import HANDLERS
from aiokafka08.testing.history import Anomaly, Message, Operation, check
from aiokafka08.testing.history.operations import Status
from aiokafka08.testing.simulation import Network, SimulationError, World, simulate
from tests.simulation import plan as p

TOPIC = "mixed"
GROUP = "group"
SAFE = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}
DRAIN_S = 120.0
"""Virtual seconds in which the members must have got everything, once all is mended."""
LIMIT_S = 3600.0
_POLL_MS = 500
_STOP_S = 90.0
_REQUESTS = {request.__name__: request for request in HANDLERS}


@dataclass
class Report:
    """What a run showed.

    Attributes:
        anomalies: what the checker found, and what the simulation itself refused.
        operations: the history.
        fired: how often each kind of fault had an effect.
        requests: how many requests the brokers read.
        virtual_s: how much virtual time passed.
        trace_hash: of the world.
    """

    anomalies: list[Anomaly] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    fired: Counter[str] = field(default_factory=Counter)
    requests: int = 0
    virtual_s: float = 0.0
    trace_hash: str = ""

    @property
    def names(self) -> list[str]:
        """The names of the anomalies, each once."""
        return sorted({one.name for one in self.anomalies})


def run(plan: p.Plan) -> Report:
    """Play a plan and return what it showed."""
    report = Report()
    network = Network(latency_ms=plan.latency_ms, fragment=plan.fragment)
    with simulate(plan.seed, brokers=p.BROKERS, version=plan.version, network=network) as world:
        scenario = _Scenario(plan, world, report)
        try:
            world.run(scenario.play, limit_s=LIMIT_S)
        except SimulationError as error:
            report.anomalies.append(Anomaly(type(error).__name__, (), {"text": str(error)}))
        except Exception as error:
            import traceback

            text = "".join(traceback.format_exception(error))
            report.anomalies.append(Anomaly(type(error).__name__, (), {"text": text}))
        report.virtual_s = world.virtual_s
        report.requests = scenario.requests
        report.trace_hash = world.trace_hash
    report.operations = scenario.finished_operations()
    report.anomalies += check(report.operations)
    return report


class _Scenario:
    def __init__(self, plan: p.Plan, world: World, report: Report) -> None:
        self.plan = plan
        self.world = world
        self.cluster = world.cluster
        self.report = report
        self.operations: list[Operation] = []
        self.requests = 0
        self.acknowledged: set[tuple[str, str]] = set()
        self.polled: set[tuple[str, str]] = set()
        self.draining = False
        self.stopping = False
        self._values = itertools.count()
        self._last_time = 0.0
        self._standstills: list[tuple[str | None, float, float]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._queues: list[asyncio.Queue[p.Send | None]] = []
        self._restarts: dict[int, asyncio.Event] = {}
        self._positions: dict[str, dict[str, int]] = defaultdict(dict)
        self._faults: dict[str, list[Any]] = {}
        self._pending: list[asyncio.Task[None]] = []

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
        begin = loop.time()
        mending: list[asyncio.Task[None]] = []
        for step in self.plan.steps:
            await asyncio.sleep(max(0.0, begin + step.at - loop.time()))
            if isinstance(step.do, p.Send):
                self._queues[step.do.producer].put_nowait(step.do)
            else:
                mending.append(asyncio.create_task(self._strike(step.do), name=repr(step.do)))
        await asyncio.sleep(max(0.0, begin + p.LENGTH_S - loop.time()))
        await asyncio.gather(*mending)
        self._mend()
        await self._finish()

    def _start(
        self, party: str, function: Callable[[int], Coroutine[Any, Any, None]], number: int
    ) -> None:
        with self.world.process(party):
            self._tasks.append(asyncio.create_task(function(number), name=party))

    async def _finish(self) -> None:
        for queue in self._queues:
            queue.put_nowait(None)
        await asyncio.gather(*self._tasks[: p.PRODUCERS])
        self.draining = True
        end = asyncio.get_running_loop().time() + DRAIN_S
        while not self.acknowledged <= self.polled and asyncio.get_running_loop().time() < end:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        self.stopping = True
        await asyncio.gather(*self._tasks)
        self._read_logs()
        self.requests = len(self.cluster.history)
        self._count_strikes()

    def _mend(self) -> None:
        self._count_strikes()
        self.cluster.clear_faults()
        self.world.network.heal()

    # --- the history ------------------------------------------------------------------------------

    def _now(self) -> float:
        """Return a time for the history: no two are the same, so that they have an order."""
        self._last_time = max(asyncio.get_running_loop().time(), self._last_time + 1e-9)
        return self._last_time

    def _record(self, operation: Operation) -> None:
        self.operations.append(operation)

    def finished_operations(self) -> list[Operation]:
        """Return the history; no deadline for calls of a process that stood still meanwhile."""
        found = []
        for one in self.operations:
            if one.deadline_s is not None and any(
                party in (None, one.process.partition(".")[0])
                and begin <= (float("inf") if one.ended is None else one.ended)
                and end >= one.invoked
                for party, begin, end in self._standstills
            ):
                one = replace(one, deadline_s=None)
            found.append(one)
        return found

    def _read_logs(self) -> None:
        messages = tuple(
            Message(f"{TOPIC}/{number}", (one.value or b"").decode(), one.offset)
            for number in range(p.PARTITIONS)
            for one in self.cluster.log(TOPIC, number)
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
        await producer.start()
        deliveries: list[asyncio.Task[None]] = []
        while (send := await self._queues[number].get()) is not None:
            await self._send(name, producer, send, options, deliveries)
        await asyncio.gather(*deliveries)
        await self._stop(name, producer)

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
                case "send" | "send_and_wait":
                    awaited = await producer.send(TOPIC, encoded[0], partition=send.partition)
                case "send_many":
                    awaited = await producer.send_many(TOPIC, encoded, partition=send.partition)
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
            status: Status = "unknown" if send.call == "send_many" else "fail"
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
        if operation.call == "send_batch":
            first = result
            told = [(first.partition, first.offset + at) for at in range(len(values))]
        elif operation.call == "send_many":
            told = [(one.partition, one.offset) for one in result]
        else:
            told = [(result.partition, result.offset)]
        sent = tuple(
            Message(f"{TOPIC}/{partition}", value, offset if offset >= 0 else None)
            for value, (partition, offset) in zip(values, told, strict=True)
        )
        self.acknowledged |= {(one.partition, str(one.value)) for one in sent}
        self.operations[index] = replace(operation, status="ok", ended=self._now(), sent=sent)

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
        consumer.subscribe([TOPIC], listener=_Listener(self, name, generation))
        while True:
            try:
                await consumer.start()
                break
            except KafkaError:
                if self.stopping:
                    return
                await consumer.stop()
                return
        try:
            while not (leave.is_set() or self.stopping):
                await self._poll(name, consumer)
        finally:
            await self._stop(name, consumer)

    async def _poll(self, name: str, consumer: AIOKafkaConsumer[Any, Any]) -> None:
        invoked = self._now()
        records: list[Any] = []
        error: KafkaError | None = None
        try:
            if self.plan.takes == "getone":
                async with asyncio.timeout(_POLL_MS / 1000):
                    records = [await consumer.getone()]
            else:
                found = await consumer.getmany(timeout_ms=_POLL_MS)
                records = [record for taken in found.values() for record in taken]
        except TimeoutError:
            pass
        except KafkaError as raised:
            error = raised
        polled = tuple(
            Message(f"{one.topic}/{one.partition}", one.value.decode(), one.offset)
            for one in records
        )
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
        self.polled |= {(one.partition, str(one.value)) for one in polled}
        self._positions[name] |= {one.partition: (one.offset or 0) + 1 for one in polled}
        if isinstance(error, CorruptRecordException) and error.partition in consumer.assignment():
            position = await consumer.position(error.partition)
            self._fetch_again(name, consumer, error.partition, position)
        elif error is not None:
            await asyncio.sleep(0.2)
        elif polled and self.plan.commits == "poll":
            await self._commit(name, consumer)

    def _fetch_again(
        self,
        name: str,
        consumer: AIOKafkaConsumer[Any, Any],
        partition: TopicPartition,
        position: int,
    ) -> None:
        """Continue behind a corrupt message: the response was corrupt, not the log."""
        consumer.seek(partition, position)
        self._positions[name][_place(partition)] = position
        now = self._now()
        self._record(
            Operation(
                process=name,
                call="seek",
                invoked=now,
                ended=now,
                offsets={_place(partition): position},
                group=GROUP,
            )
        )

    async def _commit(self, name: str, consumer: AIOKafkaConsumer[Any, Any]) -> None:
        offsets = dict(self._positions[name])
        operation = Operation(
            process=name, call="commit", invoked=self._now(), offsets=offsets, group=GROUP
        )
        try:
            await consumer.commit()
        except KafkaError as error:
            operation = replace(operation, status="unknown", error=repr(error))
        self._record(replace(operation, ended=self._now()))

    async def _stop(self, name: str, client: Any) -> None:
        operation = Operation(process=name, call="stop", invoked=self._now(), deadline_s=_STOP_S)
        index = len(self.operations)
        self._record(replace(operation, status="open"))
        await client.stop()
        self.operations[index] = replace(operation, ended=self._now())

    def on_rebalance(
        self, name: str, call: str, partitions: Collection[TopicPartition], generation: list[int]
    ) -> None:
        """Record what a member's listener was told."""
        positions = self._positions[name]
        for partition in list(positions) if call == "assigned" else map(_place, partitions):
            positions.pop(partition, None)
        now = self._now()
        self._record(
            Operation(
                process=name,
                call=call,
                invoked=now,
                ended=now,
                partitions=tuple(sorted(_place(tp) for tp in partitions)),
                group=GROUP,
                generation=generation[0] if generation else None,
                facts={"auto_commit": True} if self.plan.commits == "auto" else {},
            )
        )

    # --- faults -----------------------------------------------------------------------------------

    async def _strike(self, fault: p.Fault) -> None:
        """Let a fault strike, and mend it when its time is over."""
        cluster, world, network = self.cluster, self.world, self.world.network
        match fault:
            case p.Strike(request, then, node, nth, times):
                added = cluster.fault(
                    _REQUESTS[request], then=then, node=node, nth=nth, times=times
                )
                self._faults.setdefault(type(then).__name__, []).append(added)
            case p.MoveLeader(partition):
                cluster.restore_isr(TOPIC, partition)
                if self._others(partition):
                    cluster.move_leader(TOPIC, partition)
                    self._fired(fault)
            case p.DropConnections(node):
                if cluster.drop_connections(node):
                    self._fired(fault)
            case p.ShrinkIsr(partition, for_s):
                await self._shrink(partition, for_s, fault)
            case p.Kill() | p.StopBroker():
                await self._take_down(fault)
            case p.RollSegments():
                for partition in range(p.PARTITIONS):
                    cluster.roll_segment(TOPIC, partition)
                self._fired(fault)
            case p.Pause(party, for_s):
                with self._standstill(party, for_s):
                    world.pause(party)
                    await asyncio.sleep(for_s)
                    world.resume(party)
                self._fired(fault)
            case p.Hold(for_s):
                with self._standstill(None, for_s):
                    world.hold(for_s)
                self._fired(fault)
            case p.Partition(one, other, both, for_s):
                network.block(one, other, both=both)
                await asyncio.sleep(for_s)
                network.heal()
                self._fired(fault)
            case p.ResetConnections(party):
                if network.reset(party):
                    self._fired(fault)
            case p.HalfOpen(party):
                if network.half_open(party):
                    self._fired(fault)
            case p.Refuse(node, for_s):
                network.refuse(f"broker {node}")
                cluster.drop_connections(node)
                await asyncio.sleep(for_s)
                network.accept(f"broker {node}")
                self._fired(fault)
            case p.SlowLink(source, target, latency_ms, bytes_per_s, for_s):
                network.set_link(source, target, Network(latency_ms, bytes_per_s))
                await asyncio.sleep(for_s)
                network.set_link(source, target, None)
                self._fired(fault)
            case p.RestartMember(member, _):
                self._restarts[member].set()
                self._fired(fault)
            case _:
                await self._strike_zookeeper(fault)

    async def _strike_zookeeper(self, fault: p.Fault) -> None:
        zookeeper = self.world.zookeeper
        clients = zookeeper.clients
        match fault:
            case p.ZookeeperAway(for_s, silent):
                zookeeper.disconnect(for_s, silent=silent)
                await asyncio.sleep(for_s)
                self._fired(fault)
            case p.ExpireSession(number) if clients:
                client = clients[number % len(clients)]
                if client.session is not None:
                    zookeeper.expire(client)
                    self._fired(fault)
            case p.LoseZookeeperResponse(number) if clients:
                zookeeper.lose_response(clients[number % len(clients)])
                self._fired(fault)
            case p.SlowZookeeper(latency_s, for_s):
                zookeeper.latency_s = latency_s
                await asyncio.sleep(for_s)
                zookeeper.latency_s = 0.0
                self._fired(fault)

    def _fired(self, fault: p.Fault) -> None:
        self.report.fired[type(fault).__name__] += 1

    def _count_strikes(self) -> None:
        for name, added in self._faults.items():
            self.report.fired[name] += sum(fault.hits for fault in added)
        self._faults.clear()

    @contextmanager
    def _standstill(self, party: str | None, for_s: float) -> Iterator[None]:
        begin = self._now()
        yield
        self._standstills.append((party, begin, begin + for_s + 1))

    def _alive(self) -> list[int]:
        return [node.node_id for node in self.cluster.nodes.values() if node.alive]

    def _others(self, partition: int) -> bool:
        leader = self.cluster.leader(TOPIC, partition)
        return leader >= 0 and any(node != leader for node in self._alive())

    async def _shrink(self, partition: int, for_s: float, fault: p.Fault) -> None:
        leader = self.cluster.leader(TOPIC, partition)
        if len(self._alive()) < p.BROKERS or leader < 0:
            return
        self.cluster.shrink_isr(TOPIC, partition, (leader + 1) % p.BROKERS)
        self._fired(fault)
        await asyncio.sleep(for_s)
        self.cluster.restore_isr(TOPIC, partition)

    async def _take_down(self, fault: p.Kill | p.StopBroker) -> None:
        cluster = self.cluster
        if len(self._alive()) < p.BROKERS:
            return  # one at a time
        for partition in range(p.PARTITIONS):
            cluster.restore_isr(TOPIC, partition)
        if isinstance(fault, p.StopBroker):
            cluster.stop(fault.node)
            elsewhere = False
        else:
            elsewhere = fault.elsewhere
            cluster.kill(fault.node, fault.then)
            if fault.then != "elect":
                await asyncio.sleep(fault.notice_s)
                if fault.then == "unnoticed":
                    cluster.notice(fault.node)
                cluster.elect()
        self._fired(fault)
        await asyncio.sleep(fault.for_s)
        cluster.restart(fault.node, 0 if elsewhere else None)


class _Listener(ConsumerRebalanceListener):
    def __init__(self, scenario: _Scenario, name: str, generation: list[int]) -> None:
        self._scenario = scenario
        self._name = name
        self._generation = generation

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self._scenario.on_rebalance(self._name, "revoked", revoked, [])

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self._scenario.on_rebalance(self._name, "assigned", assigned, self._generation)


def _place(tp: TopicPartition) -> str:
    return f"{tp.topic}/{tp.partition}"
