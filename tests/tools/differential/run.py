"""Carry out a case on one target, and record what came back on each connection.

A step is over when its responses are there, or the connection is closed. If neither happens within
`Patience.quiet_s`, the runner sends a ping behind the requests, a request that every line answers:
brokers handle the requests of a connection in order, so its response shows that nothing comes any
more. Only steps that may wait for a later one are left without a ping. Of these, a run on the other
target says which were over at once: so a slow broker has time for them (`Runner.over`).
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tests.tools.differential.cases import Bytes, Case, Close, HalfClose, Send, Step, new_topics
from tests.tools.differential.schemas import APIS
from tests.tools.differential.wire import Malformed, Request, decode

PING_ID = 0x70696E67
_PING = Request("ListOffsets", 0, (-1, []))
_MAX_FRAME = 64 << 20


@dataclass(frozen=True)
class Patience:
    """How long to wait."""

    quiet_s: float = 0.03
    """Until a ping is sent, and for responses that may come only after a later step."""
    answer_s: float = 5.0
    """For the response to a ping, and for the end of a half-closed connection."""


HURRIED = Patience()
PATIENT = Patience(quiet_s=0.15, answer_s=10.0)


class Target(Protocol):
    """Where a case runs."""

    async def address(self, role: str, names: Mapping[str, str]) -> tuple[str, int]:
        """Return the address of a broker: "2", "g0" or "!g0" (see `cases`)."""
        ...

    async def settle(self, topics: list[str]) -> None:
        """Wait until topics that a request may have created have leaders."""
        ...


@dataclass
class Sent:
    """A request that was sent, and its response; None if none has come."""

    request: Request | Bytes
    correlation_id: int
    step: int
    response: bytes | None = None
    """The response's body, behind the correlation id."""


@dataclass
class Record:
    """What happened on one connection, from its opening to its end."""

    name: str
    sent: list[Sent] = field(default_factory=list)
    strays: list[bytes] = field(default_factory=list)
    """Frames that are the response to no request."""
    closed: bool = False
    half_closed: bool = False
    stuck: bool = False
    """True if it neither answered nor closed, although nothing can hold it up."""


class _Connection(asyncio.Protocol):
    def __init__(self, record: Record, learn: Callable[[Sent], None]) -> None:
        self.record = record
        self._learn = learn
        self._data = bytearray()
        self._changed = asyncio.Event()
        self._transport: asyncio.Transport
        self._pinged = self._ponged = 0
        self._ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        while len(self._data) >= 4:
            (size,) = struct.unpack_from(">i", self._data)
            if not 4 <= size <= _MAX_FRAME:
                self.record.strays.append(bytes(self._data))
                self._data.clear()
            if len(self._data) < 4 + size:
                break
            self._frame(bytes(self._data[4 : 4 + size]))
            del self._data[: 4 + size]
        self._changed.set()

    def _frame(self, frame: bytes) -> None:
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        if correlation_id == PING_ID and self._ponged < self._pinged:
            self._ponged += 1
            return
        for sent in self.record.sent:
            if sent.correlation_id == correlation_id and sent.response is None:
                sent.response = frame[4:]
                self._learn(sent)
                return
        self.record.strays.append(frame)

    def connection_lost(self, error: Exception | None) -> None:
        self.record.closed = not self._ended
        self._changed.set()

    def eof_received(self) -> None:
        return None  # asyncio then closes the transport

    # --- what the runner does ---------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)

    def half_close(self) -> None:
        if not self._transport.is_closing() and self._transport.can_write_eof():
            with contextlib.suppress(OSError):
                self._transport.write_eof()

    def close(self) -> None:
        if not self.record.closed:
            self._ended = True
            self._transport.abort()

    def is_answered(self) -> bool:
        """Return whether nothing more can come: all is answered, or the connection is closed."""
        if self.record.closed:
            return True
        got = len(self.record.strays) + sum(one.response is not None for one in self.record.sent)
        return got >= sum(_expects_response(one.request) for one in self.record.sent)

    async def wait(self, done: Callable[[], bool], seconds: float, *, quiet: bool = False) -> bool:
        """Wait until `done()`; with `quiet`, the time starts anew whenever something comes."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while not done():
            self._changed.clear()
            left = deadline - loop.time()
            if left <= 0:
                return False
            try:
                await asyncio.wait_for(self._changed.wait(), left)
            except TimeoutError:
                return done()
            if quiet:
                deadline = loop.time() + seconds
        return True

    async def ping(self, seconds: float) -> None:
        self._pinged += 1
        self.write(_PING.frame(PING_ID, {}))
        wanted = self._pinged
        answered = await self.wait(lambda: self._ponged >= wanted or self.record.closed, seconds)
        self.record.stuck |= not answered


class Runner:
    """One run of a case on a target."""

    def __init__(
        self,
        target: Target,
        names: Mapping[str, str],
        patience: Patience,
        expected_over: Sequence[bool] = (),
    ) -> None:
        self.over: list[bool] = []
        """For each step, whether all responses were there, or the connection closed, after it."""
        self._expected_over = expected_over
        self._target = target
        self.names = dict(names)
        self._patience = patience
        self._open: dict[str, _Connection] = {}
        self.records: list[Record] = []
        self._numbers = 0

    async def run(self, case: Case) -> list[Record]:
        """Carry out the steps; return a record per connection, in the order of their opening."""
        try:
            for number, step in enumerate(case.steps):
                await self._step(number, step)
            for connection in self._open.values():
                await connection.wait(connection.is_answered, 2 * self._patience.quiet_s)
        finally:
            for connection in self._open.values():
                connection.close()
        return self.records

    async def _step(self, number: int, step: Step) -> None:
        self.over.append(True)
        if isinstance(step, Close) and step.connection not in self._open:
            return
        connection = await self._connection(step.connection)
        quiet_s, answer_s = self._patience.quiet_s, self._patience.answer_s
        match step:
            case Send():
                busy = not connection.is_answered()
                data = self._frames(connection, step.requests, number)
                if step.split:
                    connection.write(data[: step.split])
                    await asyncio.sleep(0.002)
                    data = data[step.split :]
                connection.write(data)
                expects = [one.expects_response for one in step.requests]
                done = connection.is_answered
                if (step.waits or busy) and any(self._expected_over[number : number + 1]):
                    await connection.wait(done, answer_s)
                elif any(expects) or busy or step.waits:
                    await connection.wait(done, quiet_s, quiet=True)
                if not (step.waits or busy) and not (all(expects) and done()):
                    await connection.ping(answer_s)
            case Bytes():
                self._numbers += 1
                connection.record.sent.append(Sent(step, self._numbers, number))
                connection.write(step.data)
                await connection.wait(lambda: connection.record.closed, quiet_s)
                if not (step.open or connection.record.closed):
                    await connection.ping(answer_s)
            case HalfClose():
                connection.write(self._frames(connection, step.requests, number))
                connection.half_close()
                connection.record.half_closed = True
                await connection.wait(lambda: connection.record.closed, answer_s)
                self._end(step.connection)
            case Close():
                self._end(step.connection)
        self.over[number] = connection.is_answered()
        if created := [self.names[one] for one in new_topics(step)]:
            await self._target.settle(created)

    def _frames(self, connection: _Connection, requests: tuple[Request, ...], step: int) -> bytes:
        frames = []
        for request in requests:
            self._numbers += 1
            connection.record.sent.append(Sent(request, self._numbers, step))
            frames.append(request.frame(self._numbers, self.names))
        return b"".join(frames)

    def _end(self, name: str) -> None:
        self._open.pop(name).close()

    async def _connection(self, name: str) -> _Connection:
        known = self._open.get(name)
        if known is not None and not known.record.closed:
            return known
        host, port = await self._target.address(name.partition("@")[2] or "0", self.names)
        record = Record(name)
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            lambda: _Connection(record, self._learn), host, port
        )
        self._open[name] = connection
        self.records.append(record)
        return connection

    def _learn(self, sent: Sent) -> None:
        request = sent.request
        if isinstance(request, Request) and request.joins and sent.response is not None:
            with contextlib.suppress(Malformed):
                response = decode(APIS["JoinGroup"].responses[0], sent.response)
                if not response["error"]:
                    self.names[request.joins] = response["member"]


def _expects_response(request: Request | Bytes) -> bool:
    return isinstance(request, Request) and request.expects_response
