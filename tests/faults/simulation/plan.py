"""What happens in a run: steps at virtual times, drawn from a seed. Pure.

Invariant: a step names nothing that depends on another step, so a plan without some of its steps is
a plan too. That is what shrinking needs: an action that makes no sense at its time, such as the
restart of a live broker, does nothing. Its `repr` is Python that makes the same plan.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import get_args

from aiokafka08.producer.outcome import MAX_UNEXPLAINED_RETRIES
from aiokafka08.testing.cluster import AfterDeath
from aiokafka08.testing.faults import (
    Answer,
    Close,
    Corrupt,
    Delay,
    Effect,
    Hang,
    Omit,
    Silence,
    Truncate,
    WrongCorrelationId,
)

BROKERS = 3
PARTITIONS = 4
PRODUCERS = 2
MEMBERS = 3
_CLIENTS = [*(f"p{i}" for i in range(PRODUCERS)), *(f"c{i}" for i in range(MEMBERS))]
LENGTH_S = 60.0
"""Virtual seconds of the steps; then everything is mended, and the clients finish."""
MIN_EFFECTIVE = 5
"""How many faults have an effect in each run, at least."""
RESERVE_S = LENGTH_S - 8
"""When `Plan.reserve` strikes."""

VERSIONS = ("0.8.0", "0.8.1", "0.8.2", "0.9", "0.10")
UNSAFE = ("0.8.0", "0.8.1")
"""They don't know `min.insync.replicas`: their ISR may not shrink without a loss."""
WITH_ZOOKEEPER = ("0.8.0", "0.8.1", "0.8.2")
"""Their groups are in ZooKeeper."""

CODES: dict[str, list[Answer]] = {
    "ProduceRequest": [
        *(Answer(code) for code in (-1, 3, 5, 6, 8, 19, 99)),
        *(Answer(code, perform=True) for code in (-1, 7, 20)),
    ],
    "FetchRequest": [Answer(code) for code in (-1, 1, 3, 5, 6, 99)],
    "MetadataRequest": [Answer(code) for code in (-1, 3, 5)],
    "ListOffsetsRequest": [Answer(code) for code in (-1, 3, 6)],
    "OffsetCommitRequest": [Answer(code) for code in (-1, 14, 15, 16)],
    "OffsetFetchRequest": [Answer(code) for code in (-1, 14, 15, 16)],
    "JoinGroupRequest": [Answer(code) for code in (15, 16, 25)],
    "SyncGroupRequest": [Answer(code) for code in (16, 25, 27)],
    "HeartbeatRequest": [Answer(code) for code in (15, 16, 25, 27)],
}
"""The requests that are struck, with error codes that a broker may send for a while."""
_GROUP_REQUESTS = ("JoinGroupRequest", "SyncGroupRequest", "HeartbeatRequest")

CALLS = ("send", "send_and_wait", "send_many", "send_batch", "send_arrow")
TAKES = ("getmany", "getmany", "getone", "getmany_arrow", "anext")

NEXT_LINES = {"0.8.0": "0.8.1", "0.8.1": "0.8.2", "0.8.2": "0.9", "0.9": "0.10"}
"""To which line brokers are upgraded. From "0.10" they can't go back: its messages are others."""
_SLOW_LATENCY_MS = (100.0, 400.0)
NOWHERE = "10.255.255.1"
"""An address at which nothing responds."""
HALF_DEAD = {"10.255.255.2": b"", "10.255.255.3": b"HTTP/1.1 503 Service Unavailable\r\n\r\n"}
"""Addresses of a balancer without a broker behind it, and what it sends before it closes."""
MUTE = "10.255.255.4"
"""An address that accepts connections, and sends nothing."""
_OTHER_ADDRESSES: list[tuple[str, ...]] = [
    (),
    (NOWHERE,),
    (NOWHERE, "127.0.0.1"),
    tuple(HALF_DEAD),
    (*HALF_DEAD, NOWHERE, "127.0.0.1"),
]


_HALF_DEAD_ADDRESSES: list[tuple[str, ...]] = [
    (MUTE,),
    (MUTE, "127.0.0.1"),
    (*HALF_DEAD, MUTE, "127.0.0.1"),
]
DAMAGES = ("size 0", "size 13", "size -1", "zeros", "crc", "cut-off wrapper", "empty wrapper")


@dataclass(frozen=True, slots=True)
class Send:
    """A producer sends `count` messages by one call; `partition`: None lets it choose."""

    producer: int
    call: str
    count: int
    partition: int | None


@dataclass(frozen=True, slots=True)
class Strike:
    """Requests of a class, to one broker or all, get an effect: the n-th and some more."""

    request: str
    then: Effect
    node: int | None
    nth: int
    times: int


@dataclass(frozen=True, slots=True)
class MoveLeader:
    """Another replica becomes the leader."""

    partition: int


@dataclass(frozen=True, slots=True)
class DropConnections:
    """The brokers close the clients' connections to one broker, or all."""

    node: int | None


@dataclass(frozen=True, slots=True)
class ShrinkIsr:
    """A follower leaves the ISR for a while."""

    partition: int
    for_s: float


@dataclass(frozen=True, slots=True)
class ElectUnclean:
    """The followers fall behind; after a while one of them leads, and the log is truncated."""

    partition: int
    after_s: float


@dataclass(frozen=True, slots=True)
class MoveController:
    """Another broker becomes the controller."""

    node: int


@dataclass(frozen=True, slots=True)
class StaleMetadata:
    """A broker learns nothing new from the controller for a while."""

    node: int
    for_s: float


@dataclass(frozen=True, slots=True)
class Kill:
    """A broker dies, and returns later; the others notice after `notice_s`.

    It loses the last messages of its logs, `unflushed` of each; its replicas have them.
    """

    node: int
    then: AfterDeath
    notice_s: float
    for_s: float
    elsewhere: bool
    unflushed: int = 0


@dataclass(frozen=True, slots=True)
class FillDisk:
    """A broker halts when it is to store the next message, and returns later with a larger disk."""

    node: int
    for_s: float


@dataclass(frozen=True, slots=True)
class Upgrade:
    """All brokers are shut down and return as another line; `back`: later as their own again."""

    version: str
    down_s: float
    for_s: float
    back: bool


@dataclass(frozen=True, slots=True)
class SkewClock:
    """The wall clock of a process is ahead for a while, or behind."""

    party: str
    seconds: float
    for_s: float


@dataclass(frozen=True, slots=True)
class ChangeDns:
    """A broker's name has other addresses for a while, and its connections end."""

    node: int
    addresses: tuple[str, ...]
    for_s: float


@dataclass(frozen=True, slots=True)
class StopBroker:
    """A broker is shut down, and returns later."""

    node: int
    for_s: float


@dataclass(frozen=True, slots=True)
class RollSegments:
    """Each log begins a new segment."""


@dataclass(frozen=True, slots=True)
class Retention:
    """The leader deletes the older part of a partition's log, `share` of its messages."""

    partition: int
    share: float


@dataclass(frozen=True, slots=True)
class Pause:
    """A process is suspended: "broker 0", "p1" (a producer) or "c2" (a member)."""

    party: str
    for_s: float


@dataclass(frozen=True, slots=True)
class Hold:
    """The machine stands still: time passes, and nothing runs."""

    for_s: float


@dataclass(frozen=True, slots=True)
class Partition:
    """Nothing arrives between two processes; None: all processes."""

    one: str | None
    other: str | None
    both: bool
    for_s: float


@dataclass(frozen=True, slots=True)
class ResetConnections:
    """The network breaks the connections of a process by RST."""

    party: str


@dataclass(frozen=True, slots=True)
class HalfOpen:
    """The network forgets the connections of a process: their bytes vanish."""

    party: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """A broker refuses new connections."""

    node: int
    for_s: float


@dataclass(frozen=True, slots=True)
class SlowLink:
    """What a process sends to a broker, or the other way, is slow."""

    source: str
    target: str
    latency_ms: tuple[float, float]
    bytes_per_s: float | None
    for_s: float


@dataclass(frozen=True, slots=True)
class SlowReader:
    """A process reads its connections slowly for a while, and their senders have to wait."""

    party: str
    bytes_per_s: float
    for_s: float


@dataclass(frozen=True, slots=True)
class ZookeeperAway:
    """ZooKeeper can't be reached; `silent`: the connections stay open."""

    for_s: float
    silent: bool


@dataclass(frozen=True, slots=True)
class ExpireSession:
    """ZooKeeper ends the session of one client."""

    number: int


@dataclass(frozen=True, slots=True)
class LoseZookeeperResponse:
    """A client's next write in ZooKeeper takes effect, and its connection breaks."""

    number: int


@dataclass(frozen=True, slots=True)
class SlowZookeeper:
    """Each request to ZooKeeper takes long."""

    latency_s: float
    for_s: float


@dataclass(frozen=True, slots=True)
class WrongZookeeper:
    """ZooKeeper's address is that of another cluster's for a while; `is_empty`: of none."""

    for_s: float
    is_empty: bool


@dataclass(frozen=True, slots=True)
class StoreDamage:
    """A log gets a set in which a damaged message (one of `DAMAGES`) follows `good` ones."""

    partition: int
    damage: str
    good: int


@dataclass(frozen=True, slots=True)
class HideCoordinator:
    """The name of the group's coordinator has these addresses for a while."""

    addresses: tuple[str, ...]
    for_s: float


@dataclass(frozen=True, slots=True)
class MoveCoordinator:
    """Another broker becomes the group's coordinator; the old one lives on."""


@dataclass(frozen=True, slots=True)
class AnswerLate:
    """A request is answered after `delay_s`; meanwhile leaders and the coordinator have moved.

    They move `moves_s` after the request has come.
    """

    request: str
    delay_s: float
    moves_s: float


@dataclass(frozen=True, slots=True)
class RestartMember:
    """A member leaves its group, and a new one joins after `pause_s`."""

    member: int
    pause_s: float


Fault = (
    Strike
    | MoveLeader
    | DropConnections
    | ShrinkIsr
    | ElectUnclean
    | MoveController
    | StaleMetadata
    | FillDisk
    | Upgrade
    | SkewClock
    | ChangeDns
    | Kill
    | StopBroker
    | RollSegments
    | Retention
    | Pause
    | Hold
    | Partition
    | ResetConnections
    | HalfOpen
    | Refuse
    | SlowLink
    | SlowReader
    | ZookeeperAway
    | ExpireSession
    | LoseZookeeperResponse
    | SlowZookeeper
    | WrongZookeeper
    | StoreDamage
    | HideCoordinator
    | MoveCoordinator
    | AnswerLate
    | RestartMember
)  # fmt: skip
Action = Send | Fault

_VARIANTS: dict[type, tuple[str, str]] = {
    Kill: ("Kill", "KillUnflushed"),
    Upgrade: ("Upgrade", "UpgradeBack"),
    Partition: ("Partition", "PartitionOneWay"),
    SlowLink: ("SlowLinkBandwidth", "SlowLinkLatency"),
}
FRAGMENT = "Fragment"
"""The kind of `Plan.fragment`."""
EFFECTS = tuple(sorted(one.__name__ for one in get_args(Effect)))
"""The kinds of `Strike`."""
KINDS = tuple(
    sorted(
        {
            *(name for one in get_args(Fault) for name in _VARIANTS.get(one, (one.__name__,))),
            *EFFECTS,
            FRAGMENT,
        }
        - {Strike.__name__}
    )
)
"""All kinds of faults."""


def kinds_of(fault: Fault) -> tuple[str, ...]:
    """Return the kinds as which a fault is counted."""
    match fault:
        case Strike(then=then):
            return (type(then).__name__,)
        case Kill(unflushed=unflushed):
            return (_VARIANTS[Kill][unflushed > 0],)
        case Upgrade(back=back):
            return (_VARIANTS[Upgrade][back],)
        case Partition(both=both):
            return (_VARIANTS[Partition][not both],)
        case SlowLink(latency_ms=latency_ms, bytes_per_s=bytes_per_s):
            limited, slow = _VARIANTS[SlowLink]
            is_slow = latency_ms[0] >= _SLOW_LATENCY_MS[0]
            return ((limited,) if bytes_per_s is not None else ()) + ((slow,) if is_slow else ())
        case _:
            return (type(fault).__name__,)


@dataclass(frozen=True, slots=True)
class Usage:
    """What the clients do beside sending, reading and committing.

    Attributes:
        listens: listeners wait for a moment, and commit before partitions are given up.
        resubscribes: members end their subscription now and then, and begin it again.
        pauses: members pause a partition now and then, and resume it.
        seeks: members go back now and then.
        max_records: of `getmany()`.
        acks0: the second producer doesn't wait for acknowledgements.
        tail: another consumer, without a group, reads on from where the logs end at its start.
        dual: the group commits to both stores.
        restarts: stopped consumers are started again, which must fail.
    """

    listens: bool = False
    resubscribes: bool = False
    pauses: bool = False
    seeks: bool = False
    max_records: int | None = None
    acks0: bool = False
    tail: bool = False
    dual: bool = False
    restarts: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """An action at a time, in virtual seconds from the start."""

    at: float
    do: Action


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that a seed decides but the moments at which things happen on the way.

    Attributes:
        seed: of the network's latencies and of the clients' own randomness.
        version: the brokers' line.
        producers: the options of each producer.
        member: the options of the group's members.
        commits: whether members commit after each poll ("poll"), or automatically ("auto").
        takes: how members take messages: one of `TAKES`.
        latency_ms: of the network.
        fragment: whether what is sent arrives in pieces.
        steps: in the order of their times.
        reserve: faults that have an effect at any time. At `RESERVE_S` the first of them strike,
            if fewer than `MIN_EFFECTIVE` faults had an effect until then.
        never_commit: the members that don't commit, if members commit after each poll: only
            heartbeats tell them of a new coordinator or generation.
        usage: what else the clients do.
    """

    seed: int
    version: str
    producers: tuple[dict[str, object], ...]
    member: dict[str, object]
    commits: str
    takes: str
    latency_ms: tuple[float, float]
    fragment: bool
    steps: tuple[Step, ...]
    reserve: tuple[Fault, ...] = ()
    never_commit: tuple[int, ...] = ()
    usage: Usage = Usage()

    @property
    def has_zookeeper(self) -> bool:
        """Whether the group is in ZooKeeper."""
        return self.version in WITH_ZOOKEEPER

    @property
    def is_safe(self) -> bool:
        """Whether the brokers know the settings that forbid losses when the ISR shrinks."""
        return self.version not in UNSAFE


def plan_of(seed: int, version: str | None = None) -> Plan:
    """Return the plan of a seed; `version`: None: the lines in turn."""
    rng = random.Random(f"plan {seed}")
    chosen = VERSIONS[seed % len(VERSIONS)]
    line = chosen if version is None else version
    sends = list(_sends(rng))
    faults = list(_faults(rng, line))
    usage = _usage(seed, line)
    return Plan(
        seed,
        line,
        tuple(_producer(rng, line, number, usage) for number in range(PRODUCERS)),
        {
            "session_timeout_ms": rng.choice([6000, 10000]),
            # Long polls: an idle member's requests would be most of what a run costs.
            "fetch_max_wait_ms": rng.choice([500, 2000, 3000]),
            "max_partition_fetch_bytes": rng.choice([200, 4000, 1 << 20]),
            "request_timeout_ms": rng.choice([5000, 10000]),
            "rebalance_backoff_ms": rng.choice([300, 1000]),
            "auto_commit_interval_ms": rng.choice([200, 1000, 5000]),
            **_offsets_storage(line, faults, usage),
        },
        rng.choice(["poll", "auto"]),
        rng.choice(TAKES),
        rng.choice([(0.1, 0.5), (0.5, 2.0), (1.0, 30.0), (20.0, 80.0)]),
        rng.random() < 0.3,
        tuple(
            sorted(
                [
                    *sends,
                    *faults,
                    *_retentions(seed),
                    *_slow_readers(seed),
                    *_null_sets(seed),
                    *_damages(seed),
                    *_half_dead(seed),
                    *_hidden_coordinators(seed),
                    *_moved_coordinators(seed, line),
                    *_late_answers(seed, line),
                    *(_wrong_zookeepers(seed) if line in WITH_ZOOKEEPER else ()),
                ],
                key=lambda step: step.at,
            )
        ),
        tuple(_reserve(seed)),
        tuple(_never_committing(seed)),
        usage,
    )


def _offsets_storage(line: str, faults: list[Step], usage: Usage) -> dict[str, object]:
    """Return one storage for all members, also for those that begin after an upgrade."""
    upgraded = any(isinstance(step.do, Upgrade) for step in faults)
    if upgraded and line in WITH_ZOOKEEPER:
        return {"offsets_storage": "zookeeper"}
    return {"offsets_storage": "dual"} if usage.dual else {}


def _usage(seed: int, line: str) -> Usage:
    """Let half of the seeds use more of the clients."""
    rng = random.Random(f"usage {seed}")
    draws = [rng.random() for _ in range(10)]
    if draws.pop() < 0.5:
        return Usage()
    return Usage(
        listens=draws[0] < 0.3,
        resubscribes=draws[1] < 0.2,
        pauses=draws[2] < 0.3,
        seeks=draws[3] < 0.15,
        max_records=rng.choice([1, 3, 10]) if draws[4] < 0.3 else None,
        acks0=draws[5] < 0.3,
        tail=draws[6] < 0.2,
        dual=draws[7] < 0.5 and line == "0.8.2",
        restarts=draws[8] < 0.3,
    )


def _producer(rng: random.Random, line: str, number: int, usage: Usage) -> dict[str, object]:
    acks: object = "all" if number == 0 else rng.choice(["all", 1])
    codecs = [None, None, "gzip", "snappy", "snappy" if line in UNSAFE else "lz4"]
    return {
        "acks": 0 if number and usage.acks0 else acks,
        "compression_type": rng.choice(codecs),
        "linger_ms": rng.choice([0, 0, 5, 50]),
        "max_batch_size": rng.choice([200, 16384]),
        "max_in_flight_requests_per_connection": rng.choice([1, 2, 5]),
        "request_timeout_ms": rng.choice([2000, 5000]),
        "retry_backoff_ms": rng.choice([20, 100]),
        "delivery_timeout_ms": rng.choice([15000, 60000]),
    }


def _sends(rng: random.Random) -> Iterator[Step]:
    for producer in range(PRODUCERS):
        at = rng.uniform(0, 2)
        while at < LENGTH_S:
            call = rng.choice(CALLS)
            count = 1 if call == "send_and_wait" else rng.choice([1, 2, 5, 20])
            partition = rng.randrange(PARTITIONS)
            if call != "send_batch" and rng.random() < 0.7:
                yield Step(round(at, 3), Send(producer, call, count, None))
            else:
                yield Step(round(at, 3), Send(producer, call, count, partition))
            at += rng.choice([0.01, 0.2, 1.0, 2.5])


def _faults(rng: random.Random, line: str) -> Iterator[Step]:
    unexplained = MAX_UNEXPLAINED_RETRIES
    for _ in range(rng.randint(5, 9)):
        at = round(rng.uniform(3, LENGTH_S - 15), 2)
        fault = _fault(rng, line)
        if isinstance(fault, Strike) and _is_unexplained(fault):
            if not unexplained:
                fault = MoveLeader(rng.randrange(PARTITIONS))
            else:
                times = min(fault.times, unexplained)
                unexplained -= times
                fault = Strike(fault.request, fault.then, fault.node, fault.nth, times)
        yield Step(at, fault)


def _retentions(seed: int) -> Iterator[Step]:
    """Let a third of the seeds delete messages."""
    rng = random.Random(f"retention {seed}")
    if rng.random() < 1 / 3:
        for _ in range(rng.randint(1, 3)):
            at = round(rng.uniform(5, LENGTH_S - 5), 2)
            yield Step(at, Retention(rng.randrange(PARTITIONS), rng.choice([0.5, 1.0])))


def _slow_readers(seed: int) -> Iterator[Step]:
    """Let a process read slowly in a fifth of the seeds."""
    rng = random.Random(f"slow reader {seed}")
    if rng.random() < 0.2:
        at = round(rng.uniform(5, LENGTH_S - 15), 2)
        party = rng.choice([f"broker {rng.randrange(BROKERS)}", rng.choice(_CLIENTS)])
        for_s = round(rng.uniform(1, 10), 2)
        yield Step(at, SlowReader(party, rng.choice([100.0, 1000.0, 5000.0]), for_s))


def _null_sets(seed: int) -> Iterator[Step]:
    """Let brokers refuse to convert messages in a fifth of the seeds, with null for the sets."""
    rng = random.Random(f"null sets {seed}")
    if rng.random() < 0.2:
        at = round(rng.uniform(3, LENGTH_S - 15), 2)
        then = Answer(rng.choice([35, 76]), null_sets=True)
        node = rng.choice([None, *range(BROKERS)])
        yield Step(at, Strike("FetchRequest", then, node, 1, rng.randint(1, 4)))


def _damages(seed: int) -> Iterator[Step]:
    """Let a quarter of the seeds store damaged sets."""
    rng = random.Random(f"damages {seed}")
    if rng.random() < 1 / 4:
        for _ in range(rng.randint(1, 3)):
            at = round(rng.uniform(3, LENGTH_S - 5), 2)
            partition = rng.randrange(PARTITIONS)
            yield Step(at, StoreDamage(partition, rng.choice(DAMAGES), rng.randint(0, 2)))


def _half_dead(seed: int) -> Iterator[Step]:
    """Let a member begin while a broker's name leads to half-dead addresses, in some seeds."""
    rng = random.Random(f"half-dead {seed}")
    if rng.random() < 0.1:
        at = round(rng.uniform(3, LENGTH_S - 20), 2)
        for_s = round(rng.uniform(2, 12), 2)
        yield Step(at, ChangeDns(rng.randrange(BROKERS), rng.choice(_HALF_DEAD_ADDRESSES), for_s))
        yield Step(at, RestartMember(rng.randrange(MEMBERS), 0.0))


def _hidden_coordinators(seed: int) -> Iterator[Step]:
    """Let a member begin while the group's coordinator can't be reached, in some seeds."""
    rng = random.Random(f"coordinator {seed}")
    if rng.random() < 0.1:
        at = round(rng.uniform(3, LENGTH_S - 40), 2)
        for_s = round(rng.uniform(2, 35), 2)
        yield Step(at, HideCoordinator(rng.choice([(), (NOWHERE,), (MUTE,)]), for_s))
        yield Step(at, RestartMember(rng.randrange(MEMBERS), 0.0))


def _moved_coordinators(seed: int, line: str) -> Iterator[Step]:
    """Let the coordinator move while the old one lives, in half of the seeds that have one."""
    rng = random.Random(f"moved coordinator {seed}")
    if line not in UNSAFE and rng.random() < 0.5:
        for _ in range(rng.randint(1, 3)):
            yield Step(round(rng.uniform(5, LENGTH_S - 2), 2), MoveCoordinator())


def _never_committing(seed: int) -> Iterator[int]:
    """Let one member or two never commit, in a third of the seeds."""
    rng = random.Random(f"never committing {seed}")
    if rng.random() < 1 / 3:
        yield from sorted(rng.sample(range(MEMBERS), rng.randint(1, MEMBERS - 1)))


def _late_answers(seed: int, line: str) -> Iterator[Step]:
    """Let a request be answered late in a third of the seeds; some just before all is mended."""
    rng = random.Random(f"late answer {seed}")
    names = ["ProduceRequest", "FetchRequest", "FetchRequest", "ListOffsetsRequest"]
    if line not in UNSAFE:
        names += ["OffsetCommitRequest", "OffsetFetchRequest"]
    if line not in WITH_ZOOKEEPER:
        names += _GROUP_REQUESTS
    if rng.random() < 1 / 3:
        for _ in range(rng.randint(1, 2)):
            at = round(rng.uniform(5, LENGTH_S - 20), 2)
            delay_s, moves_s = round(rng.uniform(2.5, 14), 2), rng.choice([0.0, 0.3, 2.0])
            yield Step(at, AnswerLate(rng.choice(names), delay_s, moves_s))


def _wrong_zookeepers(seed: int) -> Iterator[Step]:
    """Let the clients meet another cluster's ZooKeeper in some seeds."""
    rng = random.Random(f"wrong ZooKeeper {seed}")
    if rng.random() < 0.2:
        at = round(rng.uniform(3, LENGTH_S - 25), 2)
        yield Step(at, WrongZookeeper(round(rng.uniform(1, 15), 2), rng.random() < 0.3))


def _reserve(seed: int) -> Iterator[Fault]:
    rng = random.Random(f"reserve {seed}")
    for _ in range(MIN_EFFECTIVE):
        client, for_s = rng.choice(_CLIENTS), round(rng.uniform(0.2, 5), 2)
        faults: list[Fault] = [
            RollSegments(),
            Pause(client, for_s),
            Hold(for_s),
            SkewClock(client, rng.choice([-3600.0, 90.0]), for_s),
            SlowReader(client, 1000.0, for_s),
        ]
        yield rng.choice(faults)


def _is_unexplained(strike: Strike) -> bool:
    """Return whether a producer tries again a few times only."""
    return strike.request == "ProduceRequest" and (
        isinstance(strike.then, Omit)
        or (isinstance(strike.then, Answer) and strike.then.code in (-1, 99))
    )


def _fault(rng: random.Random, line: str) -> Fault:
    node, partition = rng.randrange(BROKERS), rng.randrange(PARTITIONS)
    client, broker = rng.choice(_CLIENTS), f"broker {node}"
    for_s = round(rng.choice([0.2, 1, 3, 8, 12]) * rng.uniform(0.5, 1.5), 2)
    makers: list[Callable[[], Fault]] = [
        *[lambda: _strike(rng, line)] * 6,
        lambda: MoveLeader(partition),
        lambda: DropConnections(rng.choice([None, node])),
        lambda: Kill(
            node,
            rng.choice(["elect", "leaderless", "unnoticed"]),
            round(rng.uniform(0.05, 7), 2),
            for_s,
            rng.random() < 0.3,
            rng.choice([0, 0, 3]),
        ),
        lambda: StopBroker(node, for_s),
        lambda: FillDisk(node, for_s),
        lambda: ElectUnclean(partition, for_s),
        lambda: MoveController(node),
        lambda: StaleMetadata(node, for_s),
        lambda: SkewClock(rng.choice([broker, client]), rng.choice([-3600.0, -2.0, 90.0]), for_s),
        lambda: ChangeDns(node, rng.choice(_OTHER_ADDRESSES), for_s),
        RollSegments,
        lambda: Pause(rng.choice([broker, client]), for_s),
        lambda: Hold(for_s),
        lambda: Partition(rng.choice([client, None]), broker, True, for_s),
        lambda: Partition(*rng.choice([(client, broker), (broker, client)]), False, for_s),
        lambda: ResetConnections(rng.choice([broker, client])),
        lambda: HalfOpen(rng.choice([broker, client])),
        lambda: Refuse(node, for_s),
        lambda: SlowLink(
            *rng.choice([(client, broker), (broker, client)]),
            rng.choice([_SLOW_LATENCY_MS, (1.0, 2.0)]),
            rng.choice([None, 2000.0]),
            for_s,
        ),
        lambda: RestartMember(rng.randrange(MEMBERS), round(rng.uniform(0, 3), 2)),
    ]
    if line not in UNSAFE:
        makers.append(lambda: ShrinkIsr(partition, for_s))
    if line in NEXT_LINES:
        back = line != "0.9"
        makers.append(lambda: Upgrade(NEXT_LINES[line], round(rng.uniform(0.1, 4), 2), for_s, back))
    if line in WITH_ZOOKEEPER:
        makers += [
            *[lambda: ZookeeperAway(for_s, rng.random() < 0.4)] * 2,
            lambda: ExpireSession(rng.randrange(MEMBERS)),
            lambda: LoseZookeeperResponse(rng.randrange(MEMBERS)),
            lambda: SlowZookeeper(round(rng.uniform(0.05, 0.5), 2), for_s),
        ]
    return rng.choice(makers)()


def _strike(rng: random.Random, line: str) -> Strike:
    names = [name for name in CODES if line not in WITH_ZOOKEEPER or name not in _GROUP_REQUESTS]
    if line in UNSAFE:
        # Their brokers don't know these codes: a client takes such a response for 0.8.2's.
        names = [name for name in names if not name.startswith("Offset")]
    request = rng.choice(names)
    effects = ["code"] * 4 + ["close", "cut", "reset", "delay", "truncate", "silence", "hang", "id"]
    if request in ("ProduceRequest", "FetchRequest", "MetadataRequest"):
        effects.append("omit")
    if request == "FetchRequest":
        effects.append("corrupt")
    then: Effect
    match rng.choice(effects):
        case "code":
            then = rng.choice(CODES[request])
        case "close":
            then = Close()
        case "cut":
            then = Close(after_bytes=rng.choice([0, 1, 3, 4, 7, rng.randint(8, 60)]))
        case "reset":
            then = Close(after_bytes=rng.randint(0, 30), reset=True)
        case "delay":
            then = Delay(round(rng.choice([0.1, 1, 6]) * rng.uniform(0.5, 1.5), 2))
        case "truncate":
            then = Truncate(rng.randint(1, 12))
        case "silence":
            then = Silence(perform=rng.random() < 0.5)
        case "hang":
            then = Hang()
        case "id":
            then = WrongCorrelationId(rng.choice([-1, 1, 7]))
        case "omit":
            then = Omit()
        case _:
            then = Corrupt(-1)
    return Strike(
        request,
        then,
        rng.choice([None, None, *range(BROKERS)]),
        rng.randint(1, 4),
        rng.randint(1, 3),
    )
