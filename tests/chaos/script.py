"""Scripts of faults, made from a seed: the same seed gives the same script. Pure.

A step begins when a number of messages has been acknowledged, and faults count requests; neither
depends on time. Only while nothing can be acknowledged does a step wait for time to pass.

Invariant: no script may cause the loss of an acknowledged message. At most one broker is dead at a
time. All replicas are in sync before a broker dies or a leader moves. Only brokers configured to
lose nothing (`min.insync.replicas=2`, no unclean elections) shrink their ISR. The responses of a
script that a producer can't explain are together no more than it accepts for one batch.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from aiokafka08.producer.outcome import MAX_UNEXPLAINED_RETRIES
from aiokafka08.protocol import api
from aiokafka08.protocol.requests.fetch import FetchRequest
from aiokafka08.protocol.requests.list_offsets import ListOffsetsRequest
from aiokafka08.protocol.requests.metadata import MetadataRequest
from aiokafka08.protocol.requests.produce import ProduceRequest
from aiokafka08.testing import (
    Answer,
    Close,
    Corrupt,
    Delay,
    Hang,
    Omit,
    Silence,
    Truncate,
    WrongCorrelationId,
)
from aiokafka08.testing.cluster import AfterDeath
from aiokafka08.testing.faults import Effect

BROKERS = 3
PARTITIONS = 4

LINES_OF_BROKERS = ("0.8.0", "0.8.1", "0.8.2", "0.9", "0.10")

UNSAFE = ("0.8.0", "0.8.1")
"""They don't know `min.insync.replicas`."""

CODES: dict[type[api.Request[Any]], list[Answer]] = {
    ProduceRequest: [
        *(Answer(code) for code in (-1, 3, 5, 6, 8, 19, 99)),
        *(Answer(code, perform=True) for code in (-1, 7, 20)),
    ],
    FetchRequest: [Answer(code) for code in (-1, 1, 3, 5, 6, 99)],
    MetadataRequest: [Answer(code) for code in (-1, 3, 5)],
    ListOffsetsRequest: [Answer(code) for code in (-1, 3, 6)],
}
"""Error codes that a broker may send for a while."""


@dataclass(frozen=True, slots=True)
class Strike:
    """A fault for requests to come."""

    request: type[api.Request[Any]]
    then: Effect
    node: int | None
    nth: int
    times: int

    @property
    def is_unexplained(self) -> bool:
        """A producer tries again a few times only (`producer.outcome`)."""
        return self.request is ProduceRequest and (
            isinstance(self.then, Omit)
            or (isinstance(self.then, Answer) and self.then.code in (-1, 99))
        )

    def __repr__(self) -> str:
        where = "any broker" if self.node is None else f"broker {self.node}"
        when = f"from the {self.nth}. on: {self.times} ×"
        return f"{self.request.__name__} to {where} {when} {self.then}"


@dataclass(frozen=True, slots=True)
class MoveLeader:
    partition: int


@dataclass(frozen=True, slots=True)
class DropConnections:
    """The clients' connections to one broker, or all."""

    node: int | None


@dataclass(frozen=True, slots=True)
class ShrinkIsr:
    partition: int


@dataclass(frozen=True, slots=True)
class Kill:
    """`pause_s`: until the others notice, or elect, where they don't at once."""

    node: int
    then: AfterDeath
    pause_s: float


@dataclass(frozen=True, slots=True)
class StopBroker:
    """A controlled shutdown."""

    node: int


@dataclass(frozen=True, slots=True)
class Restart:
    """`elsewhere`: at another port."""

    node: int
    elsewhere: bool


Action = Strike | MoveLeader | DropConnections | ShrinkIsr | Kill | StopBroker | Restart


@dataclass(frozen=True, slots=True)
class Step:
    """What happens when so many more messages were acknowledged."""

    after: int
    act: Action


@dataclass(frozen=True, slots=True)
class Script:
    """Everything that a seed decides."""

    seed: int
    version: str
    producer: dict[str, Any]
    consumer: dict[str, Any]
    steps: list[Step] = field(default_factory=list)

    @property
    def is_safe(self) -> bool:
        """Its brokers know the topic settings that forbid losses when the ISR shrinks."""
        return self.version not in UNSAFE

    def __str__(self) -> str:
        lines = [
            f"seed {self.seed}: {self.version}, producer {self.producer}, consumer {self.consumer}"
        ]
        lines += [f"  after {step.after} more: {step.act!r}" for step in self.steps]
        return "\n".join(lines)


def script_of(seed: int) -> Script:
    """The script that this seed stands for."""
    rng = random.Random(seed)
    version = LINES_OF_BROKERS[seed % len(LINES_OF_BROKERS)]
    codecs = [None, "gzip", "snappy", "snappy" if version in UNSAFE else "lz4"]
    producer = {
        "acks": rng.choice(["all", "all", 1]),
        "compression_type": rng.choice(codecs),
        "linger_ms": rng.choice([0, 0, 2, 10]),
        "max_batch_size": rng.choice([200, 16384]),
        "max_in_flight_requests_per_connection": rng.choice([1, 2, 5]),
    }
    consumer = {
        "max_partition_fetch_bytes": rng.choice([100, 1000, 1 << 20]),
        "fetch_max_wait_ms": rng.choice([20, 100, 300]),
    }
    script = Script(seed, version, producer, consumer)
    script.steps.extend(_steps(seed, rng, script.is_safe))
    return script


def _steps(seed: int, rng: random.Random, may_shrink: bool) -> Iterator[Step]:
    dead: int | None = None
    unexplained = MAX_UNEXPLAINED_RETRIES
    for _ in range(rng.randint(8, 14)):
        kinds = ["strike"] * 9 + ["move", "move", "drop"]
        kinds += ["shrink"] if may_shrink and dead is None else []
        kinds += ["kill", "stop"] if dead is None else ["restart"] * 4
        act: Action
        match rng.choice(kinds):
            case "strike":
                act = _strike(seed, rng)
                if act.is_unexplained:
                    if not unexplained:
                        continue
                    act = replace(act, times=min(act.times, unexplained))
                    unexplained -= act.times
            case "move":
                act = MoveLeader(rng.randrange(PARTITIONS))
            case "drop":
                act = DropConnections(rng.choice([None, *range(BROKERS)]))
            case "shrink":
                act = ShrinkIsr(rng.randrange(PARTITIONS))
            case "kill":
                dead = rng.randrange(BROKERS)
                then: AfterDeath = rng.choice(["elect", "leaderless", "unnoticed"])
                act = Kill(dead, then, round(rng.uniform(0.05, 0.4), 2))
            case "stop":
                dead = rng.randrange(BROKERS)
                act = StopBroker(dead)
            case _:
                assert dead is not None
                act = Restart(dead, elsewhere=rng.random() < 0.3)
                dead = None
        yield Step(rng.randint(5, 40), act)
    if dead is not None:
        yield Step(rng.randint(5, 40), Restart(dead, elsewhere=False))


def _strike(seed: int, rng: random.Random) -> Strike:
    [request] = rng.choices(list(CODES), weights=[4, 4, 2, 1])
    kinds = ["code"] * 4 + ["close", "cut", "reset", "delay", "truncate", "silence", "hang", "id"]
    kinds += ["omit"] + (["corrupt"] if request is FetchRequest else [])
    then: Effect
    match rng.choice(kinds):
        case "code":
            codes = CODES[request]
            then = codes[(seed + rng.randrange(3)) % len(codes)]  # so that few seeds have all
        case "close":
            then = Close()
        case "cut":
            then = Close(after_bytes=rng.choice([0, 1, 3, 4, 7, rng.randint(8, 60)]))
        case "reset":
            then = Close(after_bytes=rng.randint(0, 30), reset=True)
        case "delay":
            then = Delay(round(rng.uniform(0.01, 0.7), 2))
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
        nth=rng.randint(1, 4),
        times=rng.randint(1, 3),
    )
