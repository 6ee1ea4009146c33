"""`Upstream`: the connection to a broker that belongs to one connection of a client.

It sends requests and gives each response to the exchange whose turn it is. `handler` makes an
`Upstream` for each client, and decides what is sent.

Invariants:

- The broker answers in the order of the requests. A response with another correlation id ends the
  connections to the broker and to the client.
- While a response is worked on, or the client doesn't read, no further response is read.
- After `close()` the requests that were sent still reach the broker, because no response shows
  whether one with acks=0 was lost. Only requests that the broker doesn't read within `CLOSE_S` are
  lost. Responses are dropped. If a request with acks=0 was sent, the due responses are read before
  the socket is closed: a response to a closed socket would reset it, and drop the requests.
- Until the connection is open, and while its SASL session is prolonged, the client's frames wait,
  in their order. Those that wait for the session are still sent after `close()`.
- Waiting frames, the received part of a response, and the responses that are worked on count in the
  memory of all connections. `read_budget` limits how fast all connections read large responses.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, NamedTuple, cast

from aiokafka08._core.net.authentication import FrameStream, authenticate_again
from aiokafka08._core.net.config import Address, NetConfig
from aiokafka08._core.server import transports
from aiokafka08._core.server.connection import Exchange
from aiokafka08._core.server.frame_protocol import FrameProtocol
from aiokafka08._core.server.read_budget import LEAST_BYTES
from aiokafka08._core.server.resources import ServerResources
from aiokafka08._core.server.scheduler import Job
from aiokafka08._core.server.work import Work
from aiokafka08._tools.gateway.target_connection import open_target
from aiokafka08.errors import KafkaProtocolError
from aiokafka08.protocol.api import decode_correlation_id
from aiokafka08.protocol.frame import SCRATCH_BYTES
from aiokafka08.protocol.types import Buffer

CLOSE_S: Final = 30.0
"""How long a broker may take to read the requests of a client that has gone."""

_PROLONG_AT: Final = 0.5
"""The share of a session's lifetime after which it is prolonged. A broker reads the request that
prolongs it only when it has answered those before, and one of them may be a long poll."""
_SHORTEST_SESSION_S: Final = 1.0
"""Brokers accept no further authentication within a second."""
_CORRELATION_ID_AT: Final = 8  # behind the size, the API and the version

_FEW_BYTES: Final = 64 << 10
"""Fewer bytes aren't reported to `MemoryLimit`."""

Answer = Callable[[memoryview], Work[list[Buffer] | None]]
"""Makes the frame of the client's response from that of a broker's, without sizes; None if the
exchange isn't complete yet."""


Authenticate = Callable[[FrameStream], Awaitable[float]]
"""Authenticates again, and returns the next lifetime of the session."""


class _Pending(NamedTuple):
    """A request that the broker hasn't answered."""

    correlation_id: int
    exchange: Exchange | None  # None: it is a request of the gateway itself
    answer: Answer | None = None  # None: the response passes as it is


class Upstreams:
    """The upstreams of a gateway that have a connection."""

    def __init__(self) -> None:
        self._open: dict[Upstream, asyncio.Future[None]] = {}

    def add(self, upstream: Upstream) -> None:
        """Note that its connection is open."""
        self._open[upstream] = asyncio.get_running_loop().create_future()

    def remove(self, upstream: Upstream) -> None:
        """Note that its connection is lost."""
        self._open.pop(upstream).set_result(None)

    def abort(self) -> None:
        """Close all connections at once; what the brokers haven't read is lost."""
        for upstream in list(self._open):
            upstream.abort()

    async def wait_lost(self) -> None:
        """Wait until no connection is left; call it when all clients have gone."""
        while self._open:
            await asyncio.wait(self._open.values())


class Upstream(FrameProtocol):
    """See the module.

    Args:
        name: the broker's name, for errors.
        others: lists this object while its connection is open.
        resources: the resources that all connections share.
        max_frame_bytes: a larger response ends the connection.
        writable: called with False when the broker doesn't read, and with True when it does again.
        lost: called once when an open connection has ended, with the error that ended it; None
            after `close()`.
        warn: called with a text to be logged.
    """

    def __init__(
        self,
        name: str,
        others: Upstreams,
        resources: ServerResources,
        max_frame_bytes: int,
        writable: Callable[[bool], None],
        lost: Callable[[Exception | None], None],
        warn: Callable[[str], None],
    ) -> None:
        super().__init__(resources, max_frame_bytes, name)
        self._name = name
        self._others = others
        self._held_bytes = 0  # the bytes that were last reported to the memory limit
        self._working_bytes = 0  # the bytes of responses that are worked on
        self._writable = writable
        self._on_lost = lost
        self._warn = warn
        self._transport: asyncio.Transport | None = None
        self._pending: deque[_Pending] = deque()
        self._working = 0  # how many responses are worked on
        # Jobs that work on responses; those that have ended stay until `_working` is 0
        self._jobs: list[tuple[Exchange, Job]] = []
        self._client_paused = False
        self._closed = False
        self._has_unanswered = False  # a request without a response was sent
        self._failure: Exception | None = None
        self._giving_up: asyncio.TimerHandle | None = None
        self._prolonging: asyncio.Task[None] | None = None
        self._prolonged_at: asyncio.TimerHandle | None = None
        self._waiting: list[tuple[list[Buffer], _Pending, bool]] = []  # couldn't be sent yet
        self._own: asyncio.Future[bytes | None] | None = None  # the response to the last `write()`

    # --- what the handler calls -------------------------------------------------------------------

    def send(
        self,
        correlation_id: int,
        frame: list[Buffer],
        exchange: Exchange,
        answer: Answer | None,
        *,
        expects_response: bool = True,
    ) -> None:
        """Send a frame; complete the exchange with its response.

        Args:
            correlation_id: the correlation id of the frame.
            frame: the request, without its size.
            exchange: the client's exchange.
            answer: makes the client's response; None: the broker's response passes.
            expects_response: False if the broker doesn't respond; the exchange ends at once then.
        """
        transport = self._transport
        if self._closed or (transport is not None and transport.is_closing()):
            exchange.end()
            return
        pending = _Pending(correlation_id, exchange, answer)
        if transport is None or self._prolonging is not None:
            self._waiting.append((frame, pending, expects_response))
            self._report()
            return
        self._send(frame, pending, expects_response)

    def _send(self, frame: list[Buffer], pending: _Pending, expects_response: bool) -> None:
        if expects_response:
            self._pending.append(pending)
        else:
            self._has_unanswered = True
        self._output.write_all([sum(map(len, frame)).to_bytes(4, "big"), *frame])
        self._report()
        if not expects_response and pending.exchange is not None:
            pending.exchange.end()

    def pause_reading(self) -> None:
        """Read no responses until `resume_reading()`, because the client doesn't read them."""
        self._client_paused = True
        self._pause_or_resume_reading()

    def resume_reading(self) -> None:
        """See `pause_reading`."""
        self._client_paused = False
        self._pause_or_resume_reading()

    def close(self) -> None:
        """Send what is written, then close the connection; responses on their way are dropped."""
        self._closed = True
        for exchange, job in self._jobs:
            exchange.connection.cancel(job)
        # Read on: prolonging a session needs the broker's responses.
        self._working, self._client_paused = 0, False
        self._forget_jobs()
        self._pause_or_resume_reading()
        if self._transport is not None and self._giving_up is None:
            if not self._waiting:
                self._close_if_read()
            text = f"it hasn't read or answered within {CLOSE_S:g} s what the client had sent"
            loop = asyncio.get_running_loop()
            self._giving_up = loop.call_later(CLOSE_S, self._fail, TimeoutError(text))

    def _close_if_read(self) -> None:
        """Close the output, unless due responses have to be read before (see the invariants)."""
        if not (self._has_unanswered and self._pending):
            self._output.close()

    def abort(self) -> None:
        """Close the connection at once, or don't open it; what the broker hasn't read is lost."""
        self._closed = True
        if self._transport is not None:
            self._transport.abort()

    # --- the session ------------------------------------------------------------------------------

    def keep_session(self, lifetime_s: float, authenticate: Authenticate) -> None:
        """Authenticate again each time before the broker would end the session.

        Args:
            lifetime_s: the seconds after which the broker would end the session.
            authenticate: see `Authenticate`.
        """
        if lifetime_s < math.inf and not self._closed:
            loop = asyncio.get_running_loop()
            due_s = max(lifetime_s * _PROLONG_AT, _SHORTEST_SESSION_S)
            self._prolonged_at = loop.call_later(due_s, self._prolong, authenticate)

    def _prolong(self, authenticate: Authenticate) -> None:
        if not self._closed:
            self._prolonging = asyncio.create_task(self._authenticate(authenticate))
            self._tell_writable()

    async def _authenticate(self, authenticate: Authenticate) -> None:
        try:
            lifetime_s = await authenticate(self)
        except Exception as error:
            self._fail(error)  # otherwise waiting requests would wait for ever
            return
        self._prolonging = None
        if self._transport is None:
            return
        self._send_waiting()
        if self._closed:
            self._close_if_read()
            return
        self.keep_session(lifetime_s, authenticate)
        self._tell_writable()

    def _send_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            self._send(*one)

    def write(self, data: bytes) -> None:
        """See `authentication.FrameStream`."""
        self._own = asyncio.get_running_loop().create_future()
        self._pending.append(_Pending(decode_correlation_id(data[_CORRELATION_ID_AT:]), None))
        self._output.write_all([data])

    async def read_frame(self, least: int, most: int) -> bytes | None:
        """See `authentication.FrameStream`."""
        assert self._own is not None
        return await self._own

    # --- what `MemoryLimit` calls -----------------------------------------------------------------

    def evict(self, reason: str) -> None:
        """See `memory_limit.MemoryHolder`."""
        self._warn(f"connection to {self._name} closed, {reason}")
        self.abort()

    # --- asyncio ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        made = cast("asyncio.Transport", transport)
        self._output = transports.PacedOutput(made)
        if self._closed:
            made.abort()
            return
        self._transport = made
        self._others.add(self)
        self._send_waiting()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for frame in self._frames.received(nbytes):
                self._received(frame)
        except KafkaProtocolError as error:
            self._fail(error)
        if self._frames.is_in_large_frame or nbytes >= LEAST_BYTES:
            self._report()
            if self._transport is not None and not self._transport.is_closing():
                self._reading.received(self, nbytes, self._frames.bytes_to_copy)

    def pause_writing(self) -> None:
        self._output.pause()
        self._tell_writable()

    def resume_writing(self) -> None:
        self._output.resume()
        self._report()
        self._tell_writable()

    def _tell_writable(self) -> None:
        self._writable(not self._output.is_paused and self._prolonging is None)

    def eof_received(self) -> bool:
        # If the FIN came before this protocol took the transport over, `RawStream` has kept the
        # transport open.
        if self._transport is not None:
            self._output.close()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        transport, self._transport = self._transport, None
        self.close()  # the client's connection ends too, so nothing needs the responses
        if transport is None:
            return  # `connection_made` has aborted it, or wasn't called
        self._end_session()
        self._reading.forget(self)
        self._pending.clear()
        self._waiting.clear()
        self._free_memory()
        self._memory.forget(self)
        if self._giving_up is not None:
            self._giving_up.cancel()
        self._on_lost(self._failure or exc)

    def _end_session(self) -> None:
        if self._prolonged_at is not None:
            self._prolonged_at.cancel()
        if self._own is not None and not self._own.done():
            self._own.set_result(None)
        if self._prolonging is None:
            self._others.remove(self)
        else:
            self._prolonging.cancel()
            self._prolonging.add_done_callback(lambda _: self._others.remove(self))

    def _received(self, frame: memoryview) -> None:
        correlation_id = decode_correlation_id(frame)
        expected = self._pending[0].correlation_id if self._pending else "none"
        if correlation_id != expected:
            text = f"{self._name}: a response with correlation id {correlation_id}"
            raise KafkaProtocolError(f"{text}; expected {expected}")
        first = self._pending.popleft()
        if first.exchange is None:
            assert self._own is not None
            self._own.set_result(bytes(frame))
            return
        if self._closed:
            if not self._waiting:
                self._close_if_read()
            return
        if first.answer is None:
            respond(first.exchange, [frame])
            return
        self._working += 1
        self._working_bytes += len(frame)
        self._pause_or_resume_reading()
        work = self._answer(first.exchange, first.answer, frame)
        self._jobs.append((first.exchange, first.exchange.run(work, self._worked)))
        self._forget_jobs()

    def _answer(self, exchange: Exchange, answer: Answer, frame: memoryview) -> Work[None]:
        if not exchange.connection.reserve(len(frame)):
            return  # there is no memory for it, so `reserve` has closed the client's connection
        try:
            response = yield from answer(frame)
        except KafkaProtocolError as error:
            exchange.end()
            self._fail(error)
        else:
            if response is not None:
                respond(exchange, response)

    def _worked(self) -> None:
        self._working -= 1
        self._forget_jobs()
        self._pause_or_resume_reading()

    def _forget_jobs(self) -> None:
        if not self._working:
            self._jobs.clear()
            self._working_bytes = 0
            self._report()

    def _report(self) -> None:
        """Report what is held in memory."""
        if self._transport is None:
            return
        held_bytes = self._output.unsent_bytes + self._working_bytes
        held_bytes += sum(len(part) for frame, *_ in self._waiting for part in frame)
        held_bytes += self._frames.memory_bytes - SCRATCH_BYTES
        if max(held_bytes, self._held_bytes) > _FEW_BYTES:
            self._held_bytes = held_bytes
            self._memory.holds(self, held_bytes)

    def _fail(self, error: Exception) -> None:
        self._failure = self._failure or error
        self.abort()

    def _pause_or_resume_reading(self) -> None:
        pauses = self._client_paused or self._reading_held or self._working > 0
        transport = self._transport
        if transport is None or transport.is_closing() or pauses == self._reading_paused:
            return
        self._reading_paused = pauses
        if pauses:
            transport.pause_reading()
        else:
            transport.resume_reading()


async def connect(upstream: Upstream, address: Address, network: NetConfig) -> None:
    """Open the connection.

    Raises:
        KafkaError: the connection can't be opened.
    """
    try:
        session = await open_target(address, network)
    except BaseException:
        upstream.abort()
        raise
    session.stream.hand_over(upstream)
    if (mechanism := network.sasl) is not None:
        again = partial(authenticate_again, address=address, config=network, mechanism=mechanism)
        upstream.keep_session(session.lifetime_s, again)


def respond(exchange: Exchange, frame: list[Buffer]) -> None:
    """Complete an exchange with a frame that has no size yet."""
    exchange.respond([sum(map(len, frame)).to_bytes(4, "big"), *frame])
