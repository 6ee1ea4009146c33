"""One client in a quiet cluster: a fault strikes, and nothing but the client's own rules helps it.

In the mixed scenario a stall is cured by another path's refresh. Here the metadata never ages, a
client has one partition, or two, and nobody else is there. To run a seed, and print what happened
if it fails: `python -m tests.faults.simulation.quiet --first 7 --seeds 1`.

Invariant: `PROGRESS_S` after a fault is mended, each partition of each client has advanced; what a
broker answers late changes nothing; members that live share all partitions, and no committed offset
goes back.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import math
import random
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, get_args

from aiokafka08 import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka08.errors import KafkaError
from aiokafka08.protocol.api import Request
from aiokafka08.protocol.requests.committed_offsets import OffsetCommitRequest, OffsetFetchRequest
from aiokafka08.protocol.requests.fetch import FetchRequest
from aiokafka08.protocol.requests.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    SyncGroupRequest,
)
from aiokafka08.protocol.requests.list_offsets import ListOffsetsRequest
from aiokafka08.protocol.requests.produce import ProduceRequest
from aiokafka08.telemetry import Event, OffsetReset
from aiokafka08.testing import Answer, Close, Delay
from aiokafka08.testing.cluster import AfterDeath
from aiokafka08.testing.history import Anomaly, Recorder, check
from aiokafka08.testing.history.check import NORMAL
from aiokafka08.testing.runtime import Recorded
from aiokafka08.testing.simulation import Network, World, simulate
from aiokafka08.testing.simulation.zookeeper_tree import EventKind
from tests.faults.simulation.explain import (
    MAX_LINES,
    Line,
    captured_log,
    merged,
    partition_of,
    with_requests,
)
from tests.faults.simulation.scenario import owner_nodes
from tests.support.arguments import positive

TOPIC = "quiet"
GROUP = "group"
BROKERS = 3
VERSIONS = ("0.8.2", "0.9", "0.10", "0.8.0", "0.8.1")
WITH_GROUPS = ("0.9", "0.10")
WITH_STORE = ("0.8.2", *WITH_GROUPS)
"""Their brokers store offsets in `__consumer_offsets`."""
SAFE = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}
SESSION_S = 6.0
REQUEST_S = 20.0
"""Above `LATE_S`, so that the client still waits when a late answer comes."""
LATE_S = (6.0, 15.0)
"""When late answers come: well after the limit from which on they are overdue (2 s)."""
PROGRESS_S = 8.0
GROUP_PROGRESS_S = 25.0
"""As `PROGRESS_S`, for members: the group waits for sessions to end, and joins again."""
STRIKE_S = 6.0
"""How long a fault strikes that is mended."""
QUIET_S = 25.0
"""How long nothing happens after a fault: late answers come in this time."""
_NEVER_MS = 24 * 3600 * 1000
_STOP_S = 90.0
_DURING = "during the fault"
KINDS: dict[str, tuple[type[Request[Any]], ...]] = {
    "producer": (ProduceRequest,),
    "reader": (FetchRequest,),
    "starter": (ListOffsetsRequest, FetchRequest),
    "lister": (ListOffsetsRequest,),
    "resetter": (),
    "committer": (OffsetCommitRequest, OffsetFetchRequest),
    "group": (
        JoinGroupRequest,
        SyncGroupRequest,
        HeartbeatRequest,
        OffsetCommitRequest,
        OffsetFetchRequest,
        FetchRequest,
    ),
}
"""What clients there are, and which of their requests are struck."""


@dataclass
class Outcome:
    """What a run showed.

    Attributes:
        anomalies: what is wrong.
        events: a line for each thing that happened, with its time.
        requests: what the brokers have read, until something was found to be wrong.
        found_at: when something was found to be wrong.
        slowest_s: how long the slowest step took that had to advance.
        fired: the names of the faults.
    """

    anomalies: list[Anomaly] = field(default_factory=list)
    events: list[Line] = field(default_factory=list)
    requests: list[Recorded] = field(default_factory=list)
    found_at: list[float] = field(default_factory=list)
    slowest_s: float = 0.0
    fired: list[str] = field(default_factory=list)


def run(seed: int, kind: str | None = None) -> list[Anomaly]:
    """Run a seed; return what is wrong."""
    return play(seed, kind).anomalies


def explain(seed: int, kind: str | None = None) -> list[str]:
    """Return what happens in a run of a seed until the first anomaly, with log and requests."""
    with captured_log() as lines:
        outcome = play(seed, kind)
    ends = [max(one.order for one in wrong.witness) for wrong in outcome.anomalies if wrong.witness]
    until = min([*outcome.found_at, *ends], default=math.inf)
    partition = partition_of(outcome.anomalies[0]) if outcome.anomalies else None
    told = with_requests([*outcome.events, *lines], outcome.requests, partition)
    return list(merged(line for line in told if line[0] <= until))[-MAX_LINES:]


def play(seed: int, kind: str | None = None) -> Outcome:
    """Run a seed; `kind`: the client, one of `KINDS`; None: the seed chooses it."""
    rng = random.Random(f"quiet {seed}")
    version = VERSIONS[seed % len(VERSIONS)]
    outcome, recorder = Outcome(), Recorder()
    network = Network(latency_ms=rng.choice([(0.1, 0.5), (1.0, 20.0)]))
    with simulate(seed, brokers=BROKERS, version=version, network=network) as world:
        quiet = _Quiet(world, rng, recorder, outcome, kind)
        try:
            world.run(quiet.play, limit_s=3600.0)
        except Exception as error:
            quiet.find(type(error).__name__, text=str(error)[:2000])
    # Some clients neither send nor read.
    outcome.anomalies += check(recorder.operations, allow={*NORMAL, "empty-history"})
    return outcome


class _Quiet:
    def __init__(
        self,
        world: World,
        rng: random.Random,
        recorder: Recorder,
        outcome: Outcome,
        kind: str | None,
    ) -> None:
        self._world = world
        self._cluster = cluster = world.cluster
        self._rng = rng
        self._recorder = recorder
        self._outcome = outcome
        kinds = ["producer", "reader", "starter", "lister", "resetter", "group", "group"]
        if cluster.version in WITH_STORE:
            kinds += ["committer"] * 2
        chosen = rng.choice(kinds)
        self._kind = chosen if kind is None else kind
        self._has_groups = cluster.version in WITH_GROUPS
        self._partitions = 4 if self._kind == "group" else rng.choice([1, 2])
        self._places = [TopicPartition(TOPIC, number) for number in range(self._partitions)]
        self._clients: list[Any] = []
        self._readers: list[asyncio.Task[None]] = []
        self._commits: list[bool] = []
        self._stopping = False
        self._beginning: asyncio.Task[None] | None = None
        self._sent = 0
        self._read: dict[TopicPartition, int] = dict.fromkeys(self._places, -1)
        self._reset: Literal["earliest", "latest"] = "earliest"
        if self._kind == "resetter":
            self._reset = rng.choice(["earliest", "latest"])
        self._resets = 0
        self._returned: dict[TopicPartition, list[int]] = {place: [] for place in self._places}
        self._stored: dict[TopicPartition, int] = {}
        self._committing = 0  # the highest offset that a round has committed
        self._session_ended = -math.inf
        self._background: set[asyncio.Task[Any]] = set()

    # --- the course -------------------------------------------------------------------------------

    async def play(self) -> None:
        try:
            await self._play()
        finally:
            self._keep_requests()

    async def _play(self) -> None:
        config = SAFE if self._cluster.version in WITH_STORE else {}
        self._cluster.create_topic(TOPIC, self._partitions, BROKERS, config)
        self._note(f"{self._cluster.version} {self._kind}, {self._partitions} partitions")
        if self._kind != "starter":
            await self._advance("at the beginning")
        for _ in range(self._rng.randint(1, 2)):
            await asyncio.sleep(self._rng.uniform(0, 4))
            if self._kind == "resetter":
                await self._leave_the_log()
                continue
            await self._strike()
            await self._advance("after the fault")
            await asyncio.sleep(QUIET_S)
            if self._kind == "group" and self._rng.random() < 0.7:
                self._rejoin()
            await self._advance("later")
        self._stopping = True
        await asyncio.gather(*self._readers)
        for client in self._clients:
            await client.stop()
        for place in self._places:
            self._recorder.note_log(place, self._cluster.log(*place))
        await asyncio.gather(*self._background)
        self._recorder.note_left()

    def find(self, name: str, **facts: Any) -> None:
        """Note what is wrong."""
        self._note(f"{name}: {facts}")
        with suppress(RuntimeError):  # the run has ended
            self._outcome.found_at.append(asyncio.get_running_loop().time())
            self._keep_requests()
        self._outcome.anomalies.append(Anomaly(name, (), {"kind": self._kind, **facts}))

    def _note(self, text: str) -> None:
        with suppress(RuntimeError):
            self._outcome.events.append((asyncio.get_running_loop().time(), text))

    def _keep_requests(self) -> None:
        """Keep what was read until the first anomaly: the cluster forgets the oldest requests."""
        if not self._outcome.requests:
            self._outcome.requests = self._cluster.history

    def _append(self, place: TopicPartition) -> None:
        self._cluster.append(*place, [b"stored-%d" % self._sent])
        self._sent += 1

    def _later(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    # --- clients ----------------------------------------------------------------------------------

    async def _begin(self) -> None:
        if self._kind == "producer":
            producer = AIOKafkaProducer(
                bootstrap_servers=self._cluster.bootstrap_servers,
                client_id="p",
                acks=self._rng.choice(["all", "all", 1]),
                metadata_max_age_ms=_NEVER_MS,
                request_timeout_ms=int(REQUEST_S * 1000),
                delivery_timeout_ms=120_000,
                on_event=self._recorder.on_event("p", lambda event: self._note(f"p {event!r}")),
            )
            self._clients = [self._recorder.producer("p", producer)]
            await self._clients[0].start()
            return
        members = 2 if self._kind == "group" else 1
        self._clients = [self._consumer(number) for number in range(members)]
        self._commits = [self._rng.random() < 0.5 for _ in self._clients]
        self._note(f"members that commit: {self._commits}")
        starts = [self._start(number) for number in range(members)]
        await asyncio.gather(*starts)

    async def _start(self, number: int) -> None:
        with self._world.process(f"c{number}"):
            consumer = self._clients[number]
            if self._kind == "group":
                consumer.subscribe([TOPIC])
            else:
                consumer.assign(self._places)
            await asyncio.create_task(consumer.start())
            if self._kind in ("committer", "lister"):
                consumer.pause(*self._places)
            else:
                self._readers.append(asyncio.create_task(self._read_all(number, consumer)))

    def _consumer(self, number: int) -> Any:
        kind, version = self._kind, self._cluster.version
        in_zookeeper = kind == "group" and not self._has_groups
        has_group = kind in ("group", "committer")
        name = f"c{number}"

        def on_event(event: Event) -> None:
            self._note(f"{name} {event!r}")
            self._resets += isinstance(event, OffsetReset)

        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._cluster.bootstrap_servers,
            client_id=name,
            group_id=GROUP if has_group else None,
            zookeeper_connect=self._world.zookeeper_connect if in_zookeeper else None,
            offsets_storage="kafka"
            if kind in ("group", "committer") and version == "0.8.2"
            else None,
            auto_offset_reset=self._reset,
            enable_auto_commit=False,
            session_timeout_ms=int(SESSION_S * 1000),
            heartbeat_interval_ms=1000,
            rebalance_backoff_ms=500,
            rebalance_max_retries=60,
            metadata_max_age_ms=_NEVER_MS,
            request_timeout_ms=int(REQUEST_S * 1000),
            fetch_max_wait_ms=500,
            on_event=on_event,
        )
        if kind == "resetter":  # its positions are judged here
            return consumer
        return self._recorder.consumer(name, consumer, _STOP_S)

    async def _read_all(self, number: int, consumer: Any) -> None:
        while not self._stopping:
            try:
                found = await consumer.getmany(timeout_ms=500)
            except KafkaError as error:
                self._note(f"c{number} raises {error!r}")
                await asyncio.sleep(0.2)
                continue
            for place, records in found.items():
                self._read[place] = max(self._read[place], records[-1].offset)
                self._returned[place] += [record.offset for record in records]
            if found and self._kind == "group" and self._commits[number]:
                await self._commit(consumer)

    async def _commit(self, consumer: Any) -> None:
        with suppress(KafkaError):
            await consumer.commit()
            self._watch_commits()

    def _watch_commits(self) -> None:
        """Judge what the group has committed: it never goes back.

        Groups in ZooKeeper aren't judged just after a session has ended: a member that doesn't know
        it yet may commit beside the one that has its partitions now.
        """
        store: Literal["kafka", "zookeeper"] = "kafka" if self._has_store() else "zookeeper"
        for place in self._places:
            commit = self._cluster.committed(GROUP, *place, store=store)
            before = self._stored.get(place, 0)
            is_certain = asyncio.get_running_loop().time() > self._session_ended + SESSION_S
            if commit is not None and commit.offset < before and is_certain:
                facts = {"partition": place.partition, "before": before, "now": commit.offset}
                self.find("commit-went-back", **facts)
            if commit is not None:
                self._stored[place] = commit.offset

    # --- progress ---------------------------------------------------------------------------------

    async def _advance(self, when: str) -> None:
        """Let each partition of each client advance; `no-progress` if one doesn't in time."""
        if self._beginning is None:
            self._beginning = asyncio.create_task(self._begin())
        await self._progress("start", when, asyncio.shield(self._beginning))
        if self._kind == "resetter":
            return
        match self._kind:
            case "producer":
                [producer] = self._clients
                sends: list[Awaitable[Any]] = []
                for place in self._places:
                    value = b"%d" % (self._sent + len(sends))
                    send = producer.send_and_wait(TOPIC, value, partition=place.partition)
                    sends.append(self._progress(f"send to {place.partition}", when, send))
                self._sent += len(sends)
                await asyncio.gather(*sends)
            case "lister":
                [consumer] = self._clients
                ends = await self._progress("end_offsets", when, self._list_ends(consumer))
                wanted = {place: self._cluster.offsets(*place).end for place in self._places}
                if ends is not None and ends != wanted:
                    self.find("wrong-end", found=str(ends), expected=str(wanted))
            case "committer":
                [consumer] = self._clients
                await self._progress("commit", when, self._commit_all(consumer))
            case _:
                for place in self._places:
                    self._append(place)
                await self._progress("read", when, self._catch_up())
                if self._kind == "group":
                    await self._progress("assignment", when, self._share())
                    self._watch_commits()

        ready = self._become_ready()
        await self._progress("ready", when, ready)

    async def _become_ready(self) -> None:
        await self._until(lambda: all(client.ready() for client in self._clients))

    async def _progress(self, what: str, when: str, work: Awaitable[Any]) -> Any:
        loop = asyncio.get_running_loop()
        begin = loop.time()
        limit_s = GROUP_PROGRESS_S if self._kind == "group" else PROGRESS_S
        limit_s += STRIKE_S if when == _DURING else 0
        task = asyncio.ensure_future(work)
        done, _ = await asyncio.wait([task], timeout=limit_s)
        if not done:
            self.find("no-progress", what=what, when=when, within_s=limit_s)
            await asyncio.wait([task], timeout=600.0)
            task.cancel()
            return None
        self._outcome.slowest_s = max(self._outcome.slowest_s, loop.time() - begin)
        try:
            return task.result()
        except KafkaError as error:
            self.find("unexpected-error", what=what, when=when, error=repr(error))
            return None

    async def _list_ends(self, consumer: Any) -> Any:
        return await _until_done(lambda: consumer.end_offsets(self._places))

    async def _commit_all(self, consumer: Any) -> None:
        """Commit the next offsets, and read them; the round after the fault may do so meanwhile."""
        offsets = {place: self._stored.get(place, 0) + 1 for place in self._places}
        self._committing = max(self._committing, *offsets.values())
        await _until_done(lambda: consumer.commit(offsets))
        self._watch_commits()
        for place in self._places:
            committed = await _until_done(partial(consumer.committed, place))
            if not offsets[place] <= (committed or 0) <= self._committing:
                self.find("wrong-committed", place=str(place), found=committed, expected=offsets)

    async def _catch_up(self) -> None:
        ends = {place: self._cluster.offsets(*place).end for place in self._places}
        await self._until(lambda: all(self._read[place] + 1 >= end for place, end in ends.items()))

    async def _share(self) -> None:
        """Wait until the members share all partitions, each with one owner, in ZooKeeper too."""
        await self._until(lambda: self._owned() == self._places == self._owner_nodes())

    def _owner_nodes(self) -> list[TopicPartition]:
        if self._has_groups:
            return self._places
        return owner_nodes(self._world, GROUP, TOPIC)

    def _owned(self) -> list[TopicPartition]:
        return sorted(place for one in self._clients for place in one.assignment())

    async def _leave_the_log(self) -> None:
        """Judge where a consumer goes on whose position is outside the log."""
        [consumer] = self._clients
        place = self._rng.choice(self._places)
        while self._cluster.offsets(*place).end < 6:
            self._append(place)
        await self._progress("read", "before the reset", self._catch_up())
        end = self._cluster.offsets(*place).end
        self._cluster.delete_before(*place, end - 3)
        is_beyond = self._rng.random() < 0.5
        outside = end + 5 if is_beyond else end - 5
        resets = self._resets
        self._returned[place].clear()
        consumer.seek(place, outside)
        self._note(f"seek to {outside}; the log has {end - 3} to {end}; {self._reset}")
        await self._progress("reset", "", self._until(lambda: self._resets > resets))
        self._append(place)
        await self._progress("read", "after the reset", self._until(lambda: self._returned[place]))
        await asyncio.sleep(2.0)
        expected = list(range(end if self._reset == "latest" else end - 3, end + 1))
        if self._returned[place] != expected:
            facts = {"from": outside, "returned": self._returned[place], "expected": expected}
            self.find("wrong-reset", policy=self._reset, **facts)

    async def _until(self, condition: Callable[[], Any]) -> None:
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.05)

    # --- faults -----------------------------------------------------------------------------------

    async def _strike(self) -> None:
        rng, kind = self._rng, self._kind
        strikes: list[Callable[[], Awaitable[None]]] = [
            self._move,
            self._answer,
            self._answer,
            self._late,
            self._late,
            self._stall,
            self._kill,
            self._hide_leader,
            self._drop,
        ]
        if kind in ("group", "committer") and self._cluster.version in WITH_STORE:
            strikes += [self._move_coordinator] * 2
        if kind == "group" and self._has_groups:
            strikes += [self._refuse_heartbeat] * 2
        if kind == "group" and not self._has_groups:
            strikes += [self._end_session, self._end_session_in_a_call] * 2
        strike = rng.choice(strikes)
        self._note(f"strikes: {strike.__name__}")
        self._outcome.fired.append(strike.__name__.strip("_"))
        await strike()
        self._note("mended")

    async def _while_busy(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do something while the client is at work, as far as it works at its caller's wish."""
        if self._beginning is not None and self._kind in ("reader", "starter", "group"):
            await work()
        else:
            self._later(self._advance(_DURING))
            await work()

    async def _move(self) -> None:
        for place in self._places:
            self._move_leader(place)

    def _move_leader(self, place: TopicPartition) -> None:
        self._cluster.restore_isr(*place)
        self._note(f"{place.partition} is led by {self._cluster.move_leader(*place)}")

    async def _move_coordinator(self) -> None:
        with suppress(ValueError):
            self._note(f"coordinator: {self._cluster.move_coordinator(GROUP)}")

    async def _drop(self) -> None:
        self._cluster.drop_connections()

    async def _answer(self) -> None:
        """Let one request get an error."""
        request = self._rng.choice(KINDS[self._kind])
        codes = {
            ProduceRequest: [3, 5, 6, 7],
            FetchRequest: [3, 5, 6],
            ListOffsetsRequest: [3, 6],
            OffsetCommitRequest: [14, 15, 16],
            OffsetFetchRequest: [14, 15, 16],
            JoinGroupRequest: [15, 16],
            SyncGroupRequest: [16, 27],
            HeartbeatRequest: [16, 25, 27],
        }[request]
        effects: list[Any] = [Answer(self._rng.choice(codes))] * 2 + [Close(), Close(after_bytes=4)]
        then = self._rng.choice(effects)
        self._note(f"{request.__name__} → {then}")
        self._cluster.fault(request, then=then)

    async def _late(self) -> None:
        """Answer a request late; meanwhile the leaders and the coordinator move."""
        request = self._rng.choice(KINDS[self._kind])
        if request in (JoinGroupRequest, SyncGroupRequest):
            self._rejoin()
        delay_s = round(self._rng.uniform(*LATE_S), 2)
        came = asyncio.wrap_future(self._cluster.next_request(request))
        fault = self._cluster.fault(request, then=Delay(delay_s))
        self._note(f"{request.__name__} is answered {delay_s} s late")

        async def move() -> None:
            try:
                async with asyncio.timeout(5.0):
                    struck = (await came).node
            except TimeoutError:
                fault.cancel()
                return
            await asyncio.sleep(self._rng.choice([0.0, 0.5, 3.0]))
            await self._leave(struck)

        await self._while_busy(move)

    async def _stall(self) -> None:
        """Let a broker stand still for longer than responses may take; others take its place."""
        node = self._cluster.leader(TOPIC, 0)
        if self._kind in ("committer", "group") and self._rng.random() < 0.7:
            coordinator = self._cluster.coordinator(GROUP) if self._has_store() else None
            node = node if coordinator is None else coordinator
        stall_s = round(self._rng.uniform(*LATE_S), 2)
        self._note(f"broker {node} stands still for {stall_s} s")

        async def stall() -> None:
            self._world.pause(f"broker {node}")
            self._later(self._resume(node, stall_s))
            await asyncio.sleep(self._rng.choice([0.2, 1.0]))
            await self._leave(node)

        await self._while_busy(stall)

    async def _leave(self, node: int) -> None:
        """Let other brokers take the place of one that doesn't answer."""
        for place in self._places:
            if self._cluster.leader(*place) == node:
                self._move_leader(place)
        if self._has_store() and self._cluster.coordinator(GROUP) == node:
            await self._move_coordinator()

    def _has_store(self) -> bool:
        return self._cluster.version in WITH_STORE

    async def _resume(self, node: int, after_s: float) -> None:
        await asyncio.sleep(after_s)
        self._world.resume(f"broker {node}")
        self._note(f"broker {node} goes on")

    async def _kill(self) -> None:
        for place in self._places:
            self._cluster.restore_isr(*place)
        node = self._cluster.leader(TOPIC, 0)
        then = self._rng.choice(get_args(AfterDeath))
        self._note(f"broker {node} dies: {then}")

        async def die() -> None:
            self._cluster.kill(node, then)
            await asyncio.sleep(self._rng.uniform(0.5, STRIKE_S))
            self._cluster.notice(node)
            self._cluster.elect()
            if self._rng.random() < 0.5:
                self._later(self._restart(node))
            else:
                self._cluster.restart(node)

        await self._while_busy(die)

    async def _restart(self, node: int) -> None:
        await asyncio.sleep(QUIET_S)
        self._cluster.restart(node)

    async def _hide_leader(self) -> None:
        """Move a leader, of which the brokers know nothing for a while."""
        nodes = list(self._cluster.nodes)

        async def hide() -> None:
            for node in nodes:
                self._cluster.hold_metadata(node)
            await self._move()
            await asyncio.sleep(self._rng.uniform(0.5, STRIKE_S))
            for node in nodes:
                self._cluster.release_metadata(node)

        await self._while_busy(hide)

    async def _refuse_heartbeat(self) -> None:
        """Let the coordinator not know a member any more, or be no coordinator for a moment."""
        code = self._rng.choice([16, 25, 25])
        self._note(f"a heartbeat → {code}")
        self._cluster.fault(HeartbeatRequest, then=Answer(code))

    async def _end_session(self) -> None:
        clients = [one for one in self._world.zookeeper.clients if one.session is not None]
        if clients:
            self._session_ended = asyncio.get_running_loop().time()
            self._world.zookeeper.expire(self._rng.choice(clients))

    async def _end_session_in_a_call(self) -> None:
        """End a session between two changes of one rebalance, whose member learns it later."""
        zookeeper, left = self._world.zookeeper, self._rng.randint(1, 8)
        before = zookeeper.on_event

        def count(kind: EventKind, path: str) -> None:
            nonlocal left
            before(kind, path)
            left -= kind != "CHILD" and path.startswith(f"/consumers/{GROUP}/")
            clients = [one for one in zookeeper.clients if one.session is not None]
            if left <= 0 and clients:
                zookeeper.on_event = before
                self._session_ended = asyncio.get_running_loop().time()
                self._note(f"session ends after {kind} {path}")
                zookeeper.expire(self._rng.choice(clients))

        zookeeper.on_event = count
        self._rejoin()
        await asyncio.sleep(STRIKE_S)
        zookeeper.on_event = before

    def _rejoin(self) -> None:
        """Let a member join anew."""
        consumer = self._rng.choice(self._clients)
        self._note(f"c{self._clients.index(consumer)} joins anew")
        consumer.unsubscribe()
        consumer.subscribe([TOPIC])


async def _until_done(call: Callable[[], Awaitable[Any]]) -> Any:
    """Repeat a call until it raises no error."""
    while True:
        try:
            return await call()
        except KafkaError as error:
            if not error.retriable:
                raise
            await asyncio.sleep(0.1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run seeds; print what happened in those that fail."""
    parser = argparse.ArgumentParser(prog="quiet", description=__doc__)
    parser.add_argument("--seeds", type=positive, default=100, help="how many seeds (default 100)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default 0)")
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    failed, slowest_s = 0, 0.0
    for seed in range(options.first, options.first + options.seeds):
        outcome = play(seed)
        slowest_s = max(slowest_s, outcome.slowest_s)
        if outcome.anomalies:
            failed += 1
            again = f"again: python -m tests.faults.simulation.quiet --first {seed} --seeds 1"
            story = explain(seed)
            print(f"--- seed {seed}", *story, *outcome.anomalies, again, sep="\n", flush=True)
    print(f"quiet: seeds={options.seeds} failed={failed} slowest_s={slowest_s:.1f}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
