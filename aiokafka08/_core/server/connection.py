"""`ServerConnection`: read frames within limits, hand them to a handler, write responses in order.

Invariants:
- The handler's work for a frame ends before its work for the next one begins, and at most
  `max_in_flight` exchanges are open; further frames wait. Responses are written in the order of
  their requests. Nothing is handled while the client doesn't read its responses.
- After each change the connection's memory is reported to `ServerResources.memory`; all of the
  handler's work goes through `ServerResources.scheduler`.
- A connection ends once: when its transport is lost and no work is left. If the client doesn't
  read, the transport is aborted `close_s` after the server has begun to close it.
"""

from __future__ import annotations

import asyncio
import enum
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from aiokafka08._core.server import transports
from aiokafka08._core.server.frame_protocol import FrameProtocol
from aiokafka08._core.server.read_budget import LEAST_BYTES
from aiokafka08._core.server.resources import ServerResources
from aiokafka08._core.server.scheduler import Job
from aiokafka08._core.server.work import Work
from aiokafka08.errors import KafkaProtocolError
from aiokafka08.protocol.types import Buffer


class HalfClosePolicy(enum.Enum):
    """How the requests before a client's FIN are handled."""

    ANSWER = "they are handled and answered; then the connection is closed"
    HANDLE = "they are handled, but the client gets no more responses"
    DROP = "those that came together with the FIN aren't handled"


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """How a connection treats its client."""

    # A larger frame ends the connection, after the requests before it.
    max_frame_bytes: int
    # How many exchanges may be open at once; further frames wait in the receive buffer, then in the
    # socket.
    max_in_flight: int = 1
    half_close: HalfClosePolicy = HalfClosePolicy.ANSWER
    # How long a client may take to read the last responses of a connection that is being closed.
    close_s: float = 30.0


class Exchange:
    """One request and its response's place in the order; complete it once.

    Attributes:
        connection: The connection.
        held_bytes: The memory that it holds: first the frame, or what the handler keeps in place of
            the frame, then a response that waits for earlier responses.
        response: None while it is open. An empty list: there is no response.
    """

    __slots__ = ("connection", "held_bytes", "response")

    def __init__(self, connection: ServerConnection, held_bytes: int) -> None:
        self.connection = connection
        self.held_bytes = held_bytes
        self.response: list[Buffer] | None = None

    def respond(self, response: list[Buffer]) -> None:
        """Send a response, size included, after those of earlier requests."""
        self.connection.complete(self, response)

    def end(self) -> None:
        """Complete the exchange without a response."""
        self.connection.complete(self, [])

    def release(self, held_bytes: int = 0) -> None:
        """Report how much memory the request holds now, in place of its frame."""
        self.connection.release(self, held_bytes)

    def run(self, work: Work[None], ended: Callable[[], None]) -> Job:
        """Do more work for the request, when it is the connection's turn; then call `ended`."""
        return self.connection.run(self, work, ended)


class ConnectionHandler:
    """The server's part of one connection: a server overrides `handle`, and other methods at need.

    All methods are called in the event loop.

    Attributes:
        exchange_class: The class of its exchanges.
    """

    exchange_class: type[Exchange] = Exchange

    def handle(self, frame: memoryview, exchange: Exchange) -> Work[None]:
        """Return the work for a frame, without its size. It may end with the exchange still open.

        An exception that ends the work closes the connection, after `failed`.
        """
        raise NotImplementedError

    def pause_writing(self) -> None:
        """The client doesn't read: produce no more responses, if that is possible."""

    def resume_writing(self) -> None:
        """The client reads again."""

    def evicted(self, reason: str) -> None:
        """The connection is closed because of the memory that it holds."""

    def failed(self, error: Exception) -> None:
        """The connection is closed because of an exception in the handler's work."""

    def lost(self) -> None:
        """The transport is lost: cancel tasks that would complete exchanges later."""

    def ended(self) -> None:
        """The connection has ended: no work is left."""


_NO_HANDLER: Final = ConnectionHandler()


class ServerConnection(FrameProtocol):
    """See the module.

    Args:
        resources: shared by all connections.
        options: see `ConnectionOptions`.
        new_handler: makes the handler, once the client's address is known.
        made: called with the connection when it is open.
        ended: called with it at the end.

    Attributes:
        host: The client's address.
        peer: The client's address and port, for log lines.
        handler_bytes: The memory that its handler keeps from one request to the next.
    """

    def __init__(
        self,
        resources: ServerResources,
        options: ConnectionOptions,
        new_handler: Callable[[ServerConnection], ConnectionHandler],
        made: Callable[[ServerConnection], None],
        ended: Callable[[ServerConnection], None],
    ) -> None:
        super().__init__(resources, options.max_frame_bytes, "the client")
        self.host = self.peer = "?"
        self.handler_bytes = 0
        self._scheduler = resources.scheduler
        self._max_in_flight = options.max_in_flight
        self._half_close = options.half_close
        self._max_frame_bytes = options.max_frame_bytes
        self._close_s = options.close_s
        self._giving_up: asyncio.TimerHandle | None = None
        self._new_handler = new_handler
        self._handler: ConnectionHandler
        self._on_made = made
        self._on_ended = ended
        self._transport: asyncio.Transport
        self._account = self._scheduler.newcomer()
        self._cutting: Iterator[memoryview] = iter(())  # frames in the bytes that were received
        self._next: memoryview | None = None  # the first of them
        self._job: Job | None = None  # the handler's work for a frame
        self._pending: deque[Exchange] = deque()  # the oldest first
        self._pending_bytes = 0
        self._writing_paused = False
        self._requests_held = False  # the handler wants no further requests now
        self._ends = False  # close after the last request: after FIN, an invalid size, or `close()`
        self._closes = False  # `close()` was called
        self._half_closed = False  # the client's FIN has come
        self._mute = False  # the client gets no more responses
        self._finishes = False  # requests from before the FIN are handled, even without a transport
        self._evicted = False  # the memory limit has closed it
        self._transport_lost = False
        self._outlived = False  # the transport is lost, and such requests are still handled
        self._lost = False  # only a running job, and the requests behind it, are still handled
        self._ended = False

    # --- asyncio ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._output = transports.PacedOutput(self._transport)
        name: tuple[Any, ...] = transport.get_extra_info("peername") or ("?", 0)
        self.host = str(name[0])
        self.peer = f"{name[0]}:{name[1]}"
        self._handler = self._new_handler(self)
        self._on_made(self)

    def buffer_updated(self, nbytes: int) -> None:
        self._cutting = self._frames.received(nbytes)  # reading pauses until all frames are cut out
        if self._half_close is not HalfClosePolicy.ANSWER and transports.is_half_closed(
            self._transport
            # asyncio reports a FIN only after the data before it, so the socket is asked.
        ):
            self._mute = True
            if self._half_close is HalfClosePolicy.DROP:
                self._close_now()
        self._advance()
        if self._frames.is_in_large_frame or nbytes >= LEAST_BYTES:
            self._reading.received(self, nbytes, self._frames.bytes_to_copy)

    def eof_received(self) -> bool:
        self._ends = self._half_closed = True
        if self._half_close is not HalfClosePolicy.ANSWER:
            return False
        self._finishes = True
        self._advance()
        # asyncio's TLS always closes both directions: `connection_lost` comes next.
        return self._transport.get_extra_info("sslcontext") is None

    def pause_writing(self) -> None:
        self._output.pause()
        if not self._writing_paused:
            self._writing_paused = True
            self._handler.pause_writing()

    def resume_writing(self) -> None:
        self._output.resume()
        if not self._output.is_paused:
            self._writing_paused = False
            self._handler.resume_writing()
            self._advance()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport_lost = True
        if self._giving_up is not None:
            self._giving_up.cancel()
        self._reading.forget(self)
        if self._evicted:
            self._free_memory()  # it isn't counted any more, so it mustn't wait for its turn
        self._account.forgive()
        # Many connections may be lost at once, and each one takes time: most to free its memory.
        self._scheduler.run(Job(self._account, self._after_loss(), lambda: None, self._failed))

    def _after_loss(self) -> Work[None]:
        yield from ()  # it is one step
        self._outlived = self._mute = self._finishes
        if not self._finishes:
            self._lose()
        elif self._writing_paused:
            self.resume_writing()
        else:
            self._advance()

    def _lose(self) -> None:
        # No response can be sent any more, but the request that is being handled may still change
        # the server's state.
        self._outlived = False
        self._handler.lost()
        self._lost, self._writing_paused, self._requests_held = True, False, False
        if self._job is None:
            self._drop_requests()
        self._advance()

    # --- what `MemoryLimit` calls -----------------------------------------------------------------

    def evict(self, reason: str) -> None:
        """See `memory_limit.MemoryHolder`."""
        self._handler.evicted(reason)
        self.abort()
        self._evicted = True
        if self._transport_lost:
            self._free_memory()

    # --- what handlers call -----------------------------------------------------------------------

    @property
    def certificate(self) -> Mapping[str, Any] | None:
        """The client's certificate, as `SSLSocket.getpeercert` returns it; None without one."""
        found: Mapping[str, Any] | None = self._transport.get_extra_info("peercert")
        return found or None

    @property
    def is_closing(self) -> bool:
        """Whether the client can't get a response any more."""
        return self._output.is_closing

    @property
    def is_half_closed(self) -> bool:
        """Whether the client's FIN has come, so that it sends no more requests."""
        return self._half_closed

    @property
    def is_lost(self) -> bool:
        """Whether `ConnectionHandler.lost` was called."""
        return self._lost

    def limit_frames(self, max_bytes: int | None) -> None:
        """Set the size above which a frame ends the connection; None: the limit of the options."""
        self._frames.max_frame_bytes = self._max_frame_bytes if max_bytes is None else max_bytes

    def hold_requests(self) -> None:
        """Handle no frames until `resume_requests()`, because the server can't take them now."""
        self._requests_held = True

    def resume_requests(self) -> None:
        """Handle frames again."""
        self._requests_held = False
        self._advance()

    def reserve(self, coming_bytes: int) -> bool:
        """Report `coming_bytes` of a large response; return False if this has closed the
        connection.
        """
        return self._report(coming_bytes)

    def close(self) -> None:
        """Handle no later requests; close the connection when all open exchanges are complete."""
        self._drop_requests()
        self._closes = True
        self._stop_reading()
        if not self._pending:
            self._close_now()

    def close_unanswered(self) -> None:
        """Close the connection once written responses are sent; open exchanges get no response."""
        self._mute = True
        self._close_now()

    def leave_if_gone(self) -> None:
        """Close the connection unanswered if the client's FIN has come; call it to stop a server.

        Do nothing while a request is handled or held, since it may have to go on without a client.
        """
        if self._job is not None or self._requests_held or self._lost:
            return
        # Reading may be paused, so the socket is asked. A lost transport has none.
        if self._outlived or (
            not self._output.is_closing and transports.is_half_closed(self._transport)
        ):
            self.close_unanswered()

    def reset(self) -> None:
        """Close the connection at once, by RST."""
        if self._transport_lost:
            self.abort()
            return
        self._finishes = False
        transports.reset(self._transport)

    def abort(self) -> None:
        """Close the connection at once, and end the handler's work for a frame."""
        self._finishes = False
        self._drop_requests()
        self._output.drop()
        if self._job is not None:
            self._scheduler.cancel(self._job)
            self._job = None
        self._transport.abort()
        if self._outlived:
            self._lose()
        if self._lost:
            self._advance()

    # --- what exchanges call ----------------------------------------------------------------------

    def complete(self, exchange: Exchange, response: list[Buffer]) -> None:
        """See `Exchange.respond`."""
        assert exchange.response is None, "an exchange is completed once"
        exchange.response = response
        pending = self._pending
        if not pending or exchange is not pending[0]:
            # It waits for the responses of earlier requests, and takes memory meanwhile.
            self._hold(exchange, sum(map(len, response)))
        while pending and (response_to_first := pending[0].response) is not None:
            self._hold(pending.popleft(), 0)
            if response_to_first and not self._mute and not self._output.is_closing:
                self._output.write_all(response_to_first)
        if self._closes and not pending:
            self._close_now()
        # During a step of this connection's own work, don't call `_advance`: it is called when that
        # work ends.
        if not self._scheduler.works_for(self._account):
            self._advance()

    def release(self, exchange: Exchange, held_bytes: int) -> None:
        """See `Exchange.release`."""
        if exchange.response is None:
            self._hold(exchange, held_bytes)

    def cancel(self, job: Job) -> None:
        """End work that `run` has begun."""
        self._scheduler.cancel(job)

    def run(self, exchange: Exchange, work: Work[None], ended: Callable[[], None]) -> Job:
        """See `Exchange.run`."""
        pending = self._pending

        def all_ended() -> None:
            ended()
            self._advance()

        is_behind = bool(pending) and pending[0] is not exchange
        job = Job(self._account, work, all_ended, self._failed, is_behind=is_behind)
        if self._scheduler.run(job):
            all_ended()
        return job

    def _hold(self, exchange: Exchange, held_bytes: int) -> None:
        self._pending_bytes += held_bytes - exchange.held_bytes
        exchange.held_bytes = held_bytes

    # --- requests ---------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Handle the requests that have come, as far as possible; read on if none is left."""
        while self._cut() and self._may_handle():
            self._job = self._begin()
            if self._scheduler.run(self._job):
                self._job = None
        if self._next is None and (self._outlived or self._lost):
            self._free_memory()
        if self._lost:
            self._end()
            return
        if not self._report() or (self._output.is_closing and not self._outlived):
            return
        if self._ends and self._next is None and self._job is None and not self._pending:
            if self._outlived:
                self._lose()
            else:
                self._close_now()
            return
        self._pause_or_resume_reading()

    def _may_handle(self) -> bool:
        return not (
            self._job is not None
            # Whether requests are handled now is decided in `_after_loss`.
            or (self._transport_lost and not (self._outlived or self._lost))
            or len(self._pending) >= self._max_in_flight
            or self._writing_paused
            or self._requests_held
        )

    def _begin(self) -> Job:
        # From now on only the job refers to the frame, so its memory is freed with the job.
        frame, self._next = self._next, None
        assert frame is not None
        exchange = self._handler.exchange_class(self, len(frame))
        work, is_behind = self._work(frame, exchange), bool(self._pending)
        self._pending.append(exchange)
        self._pending_bytes += len(frame)
        return Job(self._account, work, self._handled, self._failed, is_behind=is_behind)

    def _work(self, frame: memoryview, exchange: Exchange) -> Work[None]:
        # The scheduler calls the handler. If `_begin` called it, a handler that isn't a generator
        # and responds at once would begin the next frame before this one's job.
        yield from self._handler.handle(frame, exchange)

    def _handled(self) -> None:
        self._job = None
        self._advance()

    def _failed(self, error: Exception) -> None:
        self._handler.failed(error)
        self.abort()

    def _cut(self) -> bool:
        """Cut the next request out of the received bytes; return whether there is one."""
        if self._next is None:
            try:
                self._next = next(self._cutting, None)
            except KafkaProtocolError:
                self._stop_reading()
        return self._next is not None

    def _pause_or_resume_reading(self) -> None:
        pauses = self._reading_held or self._next is not None
        if pauses != self._reading_paused and not self._ends and not self._transport.is_closing():
            self._reading_paused = pauses
            if pauses:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def _report(self, coming_bytes: int = 0) -> bool:
        """Report this connection's memory; return False if it is aborted because of that."""
        held_bytes = (
            self._pending_bytes + len(self._next or b"") + coming_bytes + self.handler_bytes
        )
        held_bytes += self._frames.memory_bytes + self._output.memory_bytes
        return self._memory.holds(self, held_bytes)

    # --- the end ----------------------------------------------------------------------------------

    def _stop_reading(self) -> None:
        """Read no more bytes."""
        if not self._ends:
            # After an invalid size, the reader would cut the same frames out again.
            self._ends = True
            if not self._reading_paused and not self._transport.is_closing():
                self._transport.pause_reading()

    def _close_now(self) -> None:
        """Close the connection once written responses are sent; drop later requests."""
        self._finishes = False
        self._drop_requests()
        self._stop_reading()
        self._output.close()
        loop = asyncio.get_running_loop()
        if self._outlived:
            self._pending.clear()
            loop.call_soon(self._advance)
        elif self._giving_up is None and not self._transport_lost:
            # A client that doesn't read would keep the connection for ever.
            self._giving_up = loop.call_later(self._close_s, self._transport.abort)

    def _drop_requests(self) -> None:
        self._cutting, self._next = iter(()), None

    def _end(self) -> None:
        """End a lost connection when the work for its requests is done."""
        if self._job is None and not self._ended:
            self._ended = True
            self._pending.clear()
            self._memory.forget(self)
            self._on_ended(self)
            self._handler.ended()
            # The handler refers to this object: without a cycle both are freed at once.
            self._handler = _NO_HANDLER
