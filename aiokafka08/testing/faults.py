"""Faults as data: which requests a fault applies to, and its effect. Pure.

Invariant: whether a fault strikes depends on the requests counted so far, never on time. A script
of faults therefore has the same effects in each run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from aiokafka08.protocol.api import Request
from aiokafka08.protocol.requests.fetch import FetchRequest
from aiokafka08.protocol.types import Buffer


@dataclass(frozen=True, slots=True)
class Answer:
    """Respond with an error code for everything in the request.

    With `only`, respond with it for these partitions (topic, number) and handle the others as
    usual; from 0.8.2 on such a Fetch doesn't wait. Metadata requests have no `only`. With
    `perform`, carry the request out all the same: a produced message is stored, but its client gets
    an error. With `null_sets`, the message sets beside the code in a Fetch response are null, as
    modern brokers send them with the codes 35 and 76; else they are empty (docs/brokers.md 7.17).
    """

    code: int
    perform: bool = False
    only: Collection[tuple[str, int]] | None = None
    null_sets: bool = False


@dataclass(frozen=True, slots=True)
class Delay:
    """Carry the request out at once, but respond `seconds` later.

    Later requests of the connection wait as well.
    """

    seconds: float


@dataclass(frozen=True, slots=True)
class Close:
    """Close the connection after the first `after_bytes` bytes of the response.

    The count includes the 4 bytes of the size field. None: close before the request is carried out.
    With `reset`, close by RST instead of FIN.
    """

    after_bytes: int | None = None
    reset: bool = False


@dataclass(frozen=True, slots=True)
class Truncate:
    """Leave out the last `count` bytes of the response; its size field counts the bytes that are
    sent.
    """

    count: int


@dataclass(frozen=True, slots=True)
class Silence:
    """Send no response to this request; later requests of the connection get theirs, as on 0.9.

    The request is carried out all the same; with `perform=False` it isn't.
    """

    perform: bool = True


@dataclass(frozen=True, slots=True)
class Hang:
    """Carry the request out, never respond, and read nothing more from this connection."""


@dataclass(frozen=True, slots=True)
class WrongCorrelationId:
    """Respond with the request's correlation id plus `plus`."""

    plus: int = 1


@dataclass(frozen=True, slots=True)
class Corrupt:
    """Change one byte of the response by XOR with `xor`.

    `at` is its position in the frame without the size field. A negative position counts from the
    end: -1 is in the last message of a fetched set.
    """

    at: int = -1
    xor: int = 0xFF


@dataclass(frozen=True, slots=True)
class Omit:
    """Leave all partitions (of Metadata: all topics) out of the response.

    The request is carried out all the same; with `perform=False` it isn't. 0.8.1 treats a commit of
    a version that it doesn't know in this way (docs/brokers.md 8.3). With `throttle_time_ms` above
    0 the response says, if its version can, that the client exceeds its quota, as a Fetch response
    of brokers from 2.0 on does (docs/brokers.md 7.18).
    """

    perform: bool = True
    throttle_time_ms: int = 0


Effect = (
    Answer | Delay | Close | Truncate | Silence | Hang | WrongCorrelationId | Corrupt | Omit
)  # fmt: skip


@dataclass(slots=True)
class Fault:
    """A fault that was added; `cluster.fault()` returns it."""

    request: type[Request[Any]]
    then: Effect
    node: int | None = None
    nth: int = 1
    times: int | None = 1
    where: Callable[[Any], bool] | None = None
    # How many matching requests came since the fault was added.
    seen: int = field(default=0, init=False)
    # How many requests the fault has struck.
    hits: int = field(default=0, init=False)
    cancelled: bool = field(default=False, init=False)

    @property
    def is_over(self) -> bool:
        """Whether the fault can't strike again."""
        return self.cancelled or (self.times is not None and self.hits >= self.times)

    def cancel(self) -> None:
        """Keep the fault from striking again."""
        self.cancelled = True


class Faults:
    """The faults of a cluster, in the order in which they were added."""

    __slots__ = ("_faults",)

    def __init__(self) -> None:
        self._faults: list[Fault] = []

    def add(self, fault: Fault) -> None:
        """Add a fault; it counts requests from now on."""
        self._faults.append(fault)

    def clear(self) -> None:
        """Cancel all faults."""
        for fault in self._faults:
            fault.cancel()
        self._faults.clear()

    def match(self, node: int, request: Request[Any]) -> Effect | None:
        """Return the effect on this request; None if no fault strikes.

        All matching faults count the request. Of those whose count has reached `nth`, the one that
        was added first strikes.
        """
        struck: Effect | None = None
        if is_version_probe(request):
            return None
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


def is_version_probe(request: Request[Any]) -> bool:
    """Return whether this is a Fetch without topics, by which clients detect a broker's version."""
    # A test that adds a fault for Fetch doesn't mean probes. So faults spare them; the history of
    # requests has them.
    return isinstance(request, FetchRequest) and not request.topics


def damage_frame(effect: Effect, buffers: list[Buffer]) -> list[Buffer]:
    """Return a response's frame as the effect leaves it."""
    frame = bytearray(b"".join(buffers))
    match effect:
        case Close(after_bytes=count):
            return [frame[:count]]
        case Truncate(count=count):
            body = frame[4 : max(len(frame) - count, 4)]
            return [len(body).to_bytes(4, "big"), body]
        case WrongCorrelationId(plus=plus):
            correlation_id = int.from_bytes(frame[4:8], "big", signed=True)
            frame[4:8] = ((correlation_id + plus) & 0xFFFFFFFF).to_bytes(4, "big")
        case Corrupt(at=at, xor=xor):
            frame[4 + at % (len(frame) - 4)] ^= xor
    # Other effects don't change the frame.
    return [frame]
