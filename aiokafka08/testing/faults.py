"""Faults as data: which requests they meet, and what goes wrong then.

A fault is triggered by counting requests of one API, never by time, so that a script of faults
plays the same each time. Pure: `server` asks `Faults.match` per request and carries out the
effect. The effects are small frozen classes; `Effect` is their union.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from aiokafka08.protocol.api import Request
from aiokafka08.protocol.types import Buffer


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer with an error code for everything asked, or with `only` for these partitions (topic,
    number), the others as ever; Metadata knows no `only`. With `perform` the request is carried
    out all the same (a produce is stored, but its client is told otherwise)."""

    code: int
    perform: bool = False
    only: Collection[tuple[str, int]] | None = None


@dataclass(frozen=True, slots=True)
class Delay:
    """Carry the request out at once, answer `seconds` later; what is behind it on the connection
    waits."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Close:
    """Close the connection after the first `after_bytes` bytes of the answer's frame, its size
    included. None: before the request is carried out. With `reset` by RST instead of FIN."""

    after_bytes: int | None = None
    reset: bool = False


@dataclass(frozen=True, slots=True)
class Truncate:
    """Leave out the last `count` bytes of the answer; its size says so, its fields don't."""

    count: int


@dataclass(frozen=True, slots=True)
class Silence:
    """Never answer. Later requests of the connection are answered, as 0.9 does it; without
    `perform` this one isn't carried out."""

    perform: bool = True


@dataclass(frozen=True, slots=True)
class Hang:
    """Carry the request out, never answer, and read nothing more from this connection."""


@dataclass(frozen=True, slots=True)
class WrongCorrelationId:
    """Answer with the request's correlation id plus `plus`."""

    plus: int = 1


@dataclass(frozen=True, slots=True)
class Corrupt:
    """Change one byte of the answer: that at `at` (of the frame without its size, negative from
    its end: -1 is in the last message of a fetched set), by xor with `xor`."""

    at: int = -1
    xor: int = 0xFF


@dataclass(frozen=True, slots=True)
class Omit:
    """Leave the partitions (of Metadata: the topics) out of the answer, and answer the rest."""


Effect = (
    Answer | Delay | Close | Truncate | Silence | Hang | WrongCorrelationId | Corrupt | Omit
)  # fmt: skip


@dataclass(slots=True)
class Fault:
    """A fault that was set; `cluster.fault()` gives it back."""

    request: type[Request[Any]]
    then: Effect
    node: int | None = None
    nth: int = 1
    times: int | None = 1
    where: Callable[[Any], bool] | None = None
    seen: int = field(default=0, init=False)
    """The requests that fit since the fault was set."""
    hits: int = field(default=0, init=False)
    """How often it struck."""
    cancelled: bool = field(default=False, init=False)

    @property
    def is_over(self) -> bool:
        """It won't strike again."""
        return self.cancelled or (self.times is not None and self.hits >= self.times)

    def cancel(self) -> None:
        """Let it not strike again."""
        self.cancelled = True


class Faults:
    """The faults that are set, in the order of their setting."""

    __slots__ = ("_faults",)

    def __init__(self) -> None:
        self._faults: list[Fault] = []

    def add(self, fault: Fault) -> None:
        """Set a fault; its counting begins now."""
        self._faults.append(fault)

    def clear(self) -> None:
        """Cancel all."""
        for fault in self._faults:
            fault.cancel()
        self._faults.clear()

    def match(self, node: int, request: Request[Any]) -> Effect | None:
        """What goes wrong with this request. All faults that fit count it; the first one whose
        turn it is strikes."""
        struck: Effect | None = None
        for fault in list(self._faults):
            if fault.is_over:
                self._faults.remove(fault)
                continue
            if (
                type(request) is not fault.request
                or fault.node not in (None, node)
                or (fault.where is not None and not fault.where(request))
            ):
                continue
            fault.seen += 1
            if fault.seen >= fault.nth and struck is None:
                fault.hits += 1
                struck = fault.then
        return struck


def spoiled(effect: Effect, buffers: list[Buffer]) -> list[Buffer]:
    """The frame of an answer as the effect leaves it (`Truncate`, `Corrupt`, `WrongCorrelationId`
    and `Close` have one to say)."""
    frame = bytearray(b"".join(buffers))
    match effect:
        case Close(after_bytes=count):
            return [frame[:count]]
        case Truncate(count=count):
            body = frame[4 : max(len(frame) - count, 4)]
            return [len(body).to_bytes(4, "big"), body]
        case WrongCorrelationId(plus=plus):
            asked = int.from_bytes(frame[4:8], "big", signed=True)
            frame[4:8] = ((asked + plus) & 0xFFFFFFFF).to_bytes(4, "big")
        case Corrupt(at=at, xor=xor):
            frame[4 + at % (len(frame) - 4)] ^= xor
    return [frame]
