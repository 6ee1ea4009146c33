"""Listeners and connections of the brokers: read requests, call the handlers, write the responses.

`cluster` creates one `Listener` per broker, and each accepted socket becomes a `Connection`. The
handlers decide on the response, `faults` on the effect of a fault, and `runtime` on when a delayed
operation is checked again; a connection carries it all out.

Invariants: a connection handles one request at a time, in order, as real brokers do. While a
request waits (long poll, acks, an injected delay, other connections' turns), later ones wait in the
receive buffer, then in the socket. What a connection holds in memory is reported to
`runtime.buffers`, and its work goes through `runtime.turns`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from functools import partial
from typing import Any, cast

from aiokafka08.errors import KafkaProtocolError
from aiokafka08.protocol.api import Response, encode_response
from aiokafka08.protocol.frame import FrameReader
from aiokafka08.protocol.types import Buffer, TooManyItems
from aiokafka08.testing import transports
from aiokafka08.testing.broker_lines import BadRequestPolicy, ReceivedRequest, read_request
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
    damage_frame,
)
from aiokafka08.testing.handlers import handle
from aiokafka08.testing.handlers.failures import (
    drop_partitions,
    error_response,
    with_partition_errors,
)
from aiokafka08.testing.handlers.outcome import (
    Disconnect,
    DiskFull,
    NoReply,
    Outcome,
    Reply,
    RequestContext,
    Wait,
)
from aiokafka08.testing.intake import LEAST_BYTES
from aiokafka08.testing.listening import Listening, listen
from aiokafka08.testing.runtime import ClusterRuntime, DelayedOperation
from aiokafka08.testing.state import Node
from aiokafka08.testing.steps import FEW_ITEMS, Steps, offload
from aiokafka08.testing.turns import Job

logger = logging.getLogger(__name__)

MAX_REQUEST_BYTES = 100 << 20
"""`socket.request.max.bytes`, which is the same on all lines."""
MAX_REQUEST_ITEMS = 100_000
"""The items of all arrays of a request: topics, partitions, groups and so on.

A request with more is treated as one that can't be read. Real brokers have no limit but their heap
(docs/brokers.md 13.2).
"""


class Listener:
    """A broker's port and its connections."""

    def __init__(self, runtime: ClusterRuntime, node: Node, bind_host: str) -> None:
        self.runtime = runtime
        self.node = node
        self._bind_host = bind_host
        self.connections: dict[Connection, None] = {}
        self._closed = False
        self._all_closed = asyncio.Event()
        self._listening: Listening | None = None

    def open(self) -> None:
        """Listen on the node's port, or on any free port if that is 0.

        Raises:
            OSError: the port is not available; the text names the broker and the address.
        """
        name = f"broker {self.node.node_id}"
        self._listening = listen(lambda: Connection(self), self._bind_host, self.node.port, name)
        self.node.port = self._listening.port

    def close(self) -> None:
        """Stop listening and close all connections at once; responses on their way are lost."""
        self._closed = True
        if self._listening is not None:
            self._listening.close()
        self.drop_connections()

    def drop_connections(self) -> None:
        """Close all connections at once; responses on their way are lost."""
        for connection in list(self.connections):
            connection.abort()

    async def wait_closed(self) -> None:
        """Wait until no connection is left; call it after `close`."""
        if self._listening is not None:
            await self._listening.wait_closed()  # `made` aborts the connections that still come
        while self.connections:
            self._all_closed.clear()
            await self._all_closed.wait()

    def made(self, connection: Connection) -> None:
        """Add a new connection; abort it if the listener is closed."""
        self.connections[connection] = None
        if self._closed:
            connection.abort()

    def lost(self, connection: Connection) -> None:
        """Remove a connection that has ended."""
        self.connections.pop(connection, None)
        if not self.connections:
            self._all_closed.set()


class Connection(asyncio.BufferedProtocol):
    """One client's connection to one broker."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._runtime = listener.runtime
        self._node = listener.node
        self._line = listener.runtime.state.line
        self._frames = FrameReader(MAX_REQUEST_BYTES, "the client")
        self._cutting: Iterator[memoryview] = iter(())  # frames in the bytes that were received
        self._next: memoryview | None = None  # the first of them
        self._request_bytes = 0  # of the request that is being handled
        self._turn = self._runtime.turns.newcomer()
        self._job: Job | None = None
        self._transport: asyncio.Transport
        self._connection_number = 0
        self._host = self._peer = "?"
        self._busy = False  # a request is being handled: later ones wait
        self._delayed_operation: DelayedOperation | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._writing_paused = False
        self._reading_paused = False
        self._reading_held = False  # by `intake`
        self._ends = False  # close after the last request: after FIN or an invalid frame size
        self._mute = False  # the client has sent FIN, and gets no more responses
        self._lost = False  # the requests that have come are still handled, but not those that wait

    # --- asyncio ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._connection_number = self._runtime.next_connection()
        name: tuple[Any, ...] = transport.get_extra_info("peername") or ("?", 0)
        self._host = str(name[0])
        self._peer = f"{name[0]}:{name[1]}"
        logger.info(
            "node %d: connection %d from %s",
            self._node.node_id,
            self._connection_number,
            self._peer,
        )
        self._listener.made(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.get_buffer()[: self._runtime.intake.next_bytes()]

    def buffer_updated(self, nbytes: int) -> None:
        self._cutting = self._frames.received(nbytes)  # reading pauses until all are cut
        if not self._line.responds_after_fin and transports.is_half_closed(self._transport):
            self._mute = True
            if self._line.drops_requests_before_fin:
                self._close()
        self._advance()
        if self._frames.is_in_large_frame or nbytes >= LEAST_BYTES:
            self._runtime.intake.received(self, nbytes)

    def hold_reading(self) -> None:
        """See `intake.Reader`."""
        self._reading_held = True
        self._pause_or_resume_reading()

    def go_on_reading(self) -> None:
        """See `intake.Reader`."""
        self._reading_held = False
        self._pause_or_resume_reading()

    def eof_received(self) -> bool:
        self._ends = True
        if not self._line.responds_after_fin:
            return False
        self._advance()
        return True

    def pause_writing(self) -> None:
        self._writing_paused = True

    def resume_writing(self) -> None:
        self._writing_paused = False
        self._advance()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._delayed_operation is not None:
            self._delayed_operation.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self._runtime.intake.forget(self)
        self._lost, self._writing_paused = True, False
        if self._job is None:
            self._drop_requests()
        self._advance()

    def abort(self) -> None:
        """Close the connection at once, and end the request that is being handled."""
        self._drop_requests()
        if self._job is not None:
            self._runtime.turns.cancel(self._job)
            self._job = None
        self._transport.abort()
        if self._lost:
            self._advance()

    # --- memory -----------------------------------------------------------------------------------

    def drop_kept(self) -> int:
        return self._frames.drop_kept()

    def evict(self, reason: str) -> None:
        self._log_close(reason)
        self.abort()

    def _report(self, coming_bytes: int = 0) -> bool:
        """Report what this connection holds; return False if it is aborted because of that."""
        if not self._busy:
            self._request_bytes = 0
        held_bytes = self._request_bytes + len(self._next or b"") + coming_bytes
        if not self._transport.is_closing():
            held_bytes += self._frames.memory_bytes + self._transport.get_write_buffer_size()
        return self._runtime.buffers.holds(self, held_bytes)

    def _close(self) -> None:
        """Close the connection once its responses are written; drop later requests."""
        self._drop_requests()
        self._transport.close()

    def _drop_requests(self) -> None:
        self._cutting, self._next = iter(()), None

    def _end(self) -> None:
        """Leave the listener when the requests of a lost connection are done."""
        if self._job is None and self in self._listener.connections:
            self._runtime.buffers.forget(self)
            self._listener.lost(self)
            logger.info("node %d: connection %d ended", self._node.node_id, self._connection_number)

    def _log_close(self, reason: str) -> None:
        logger.warning(
            "node %d: connection %d from %s is closed: %s",
            self._node.node_id,
            self._connection_number,
            self._peer,
            reason,
        )

    # --- requests ---------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Handle the requests that are here, as far as possible; read on if none is left."""
        while self._cut() and not (self._busy or self._writing_paused):
            assert self._next is not None
            self._request_bytes = len(self._next)
            self._busy = True
            self._job = Job(self._turn, self._handle(self._next), self._handled, self._failed)
            self._next = None  # the job has it
            if self._runtime.turns.run(self._job):
                self._job = None
        if self._lost:
            self._end()
            return
        if not self._report() or self._transport.is_closing():
            return
        if self._ends and self._next is None and not self._busy:
            self._close()
            return
        self._pause_or_resume_reading()

    def _pause_or_resume_reading(self) -> None:
        pauses = self._reading_held or self._next is not None
        if pauses != self._reading_paused and not self._ends and not self._transport.is_closing():
            self._reading_paused = pauses
            if pauses:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def _cut(self) -> bool:
        """Cut the next request out of the received bytes; return whether there is one."""
        if self._next is None:
            try:
                self._next = next(self._cutting, None)
            except KafkaProtocolError:
                self._ends = True
        return self._next is not None

    def _handled(self) -> None:
        self._job = None
        self._advance()

    def _failed(self, error: Exception) -> None:
        logger.error(
            "node %d: connection %d is closed: internal error",
            self._node.node_id,
            self._connection_number,
            exc_info=error,
        )
        self.abort()

    def _handle(self, frame: memoryview) -> Steps[None]:
        incoming = yield from self._read(frame)
        if isinstance(incoming, BadRequestPolicy):
            if incoming is BadRequestPolicy.CLOSE:
                self._close()
            self._busy = False
            return
        node_id = self._node.node_id
        effect = self._runtime.faults.match(node_id, incoming.body)
        self._runtime.record(node_id, self._connection_number, incoming, len(frame))
        context = RequestContext(
            self._runtime.state,
            self._node,
            incoming.header.api_version,
            incoming.layout,
            self._runtime.now_ms(),
            self._runtime.now_s(),
            incoming.header.client_id,
            f"/{self._host}",
            self._report,
        )
        try:
            outcome = yield from self._outcome(context, incoming, effect)
        except DiskFull:
            self._runtime.halt(node_id)
            outcome = Disconnect()
        self._busy = yield from self._perform(context, incoming, effect, outcome)

    def _read(self, frame: memoryview) -> Steps[ReceivedRequest | BadRequestPolicy]:
        """Decode a request; one with many items in the worker thread, up to the limit."""
        try:
            return read_request(self._line, frame, FEW_ITEMS)
        except TooManyItems:
            pass
        try:
            return (yield from offload(partial(read_request, self._line, frame, MAX_REQUEST_ITEMS)))
        except TooManyItems:
            if self._line.on_unreadable_request is BadRequestPolicy.CLOSE:
                self._log_close(f"a request has more than {MAX_REQUEST_ITEMS} items")
            return self._line.on_unreadable_request

    def _outcome(
        self, context: RequestContext, incoming: ReceivedRequest, effect: Effect | None
    ) -> Steps[Outcome]:
        match effect:
            case Close(after_bytes=None, reset=reset):
                return self._reset() if reset else Disconnect()
            case Silence(perform=False):
                return NoReply()
            case Omit(perform=False):
                return Reply(error_response(context, incoming.body, -1))  # `_reply` leaves it out
            case Answer(code=code, perform=False, only=None):
                return Reply(error_response(context, incoming.body, code))
            case Answer(perform=False, only=only) if only is not None:
                others = drop_partitions(self._line, incoming.body, only)
                return (yield from handle(context, others))
        return (yield from handle(context, incoming.body))

    def _perform(
        self,
        context: RequestContext,
        incoming: ReceivedRequest,
        effect: Effect | None,
        outcome: Outcome,
    ) -> Steps[bool]:
        """Carry out a decision; return whether the response has still to come."""
        match outcome:
            case Reply():
                return (yield from self._reply(context, incoming, effect, outcome))
            case Wait() if not self._lost:

                def respond(late: Reply | Disconnect) -> Steps[None]:
                    self._delayed_operation = None
                    self._busy = yield from self._perform(context, incoming, effect, late)

                self._delayed_operation = self._runtime.delay(
                    outcome, self._turn, respond, self._advance, self._failed
                )
                return True
            case Disconnect():
                self._close()
            # No response to cut or to replace (acks=0): the effect closes the connection.
            case NoReply() if isinstance(effect, Close | Answer):
                self._close()
            case NoReply() if isinstance(effect, Hang):
                return True
        return False

    def _reply(
        self,
        context: RequestContext,
        incoming: ReceivedRequest,
        effect: Effect | None,
        reply: Reply,
    ) -> Steps[bool]:
        """Send a response; return whether it has still to come."""
        if self._transport.is_closing():
            return False
        request = incoming.body
        response: Response = reply.response
        match effect:
            case Silence():
                return False
            case Hang():
                return True
            case Answer() if not request.expects_response:  # acks=0: an error closes the connection
                self._close()
                return False
            case Answer(code=code, perform=True, only=None):
                response = error_response(context, request, code)
            case Answer(code=code, only=only) if only is not None:
                response = with_partition_errors(context, request, response, code, only)
            case Omit() if hasattr(response, "topics"):
                response.topics = []
        correlation_id = reply.correlation_id
        if correlation_id is None:
            correlation_id = incoming.header.correlation_id
        layout = incoming.layout if reply.layout is None else reply.layout
        encode = partial(encode_response, response, layout, correlation_id, lenient=True)
        buffers = (yield from offload(encode)) if _has_many_items(response) else encode()
        if isinstance(effect, Close | Truncate | WrongCorrelationId | Corrupt):
            buffers = damage_frame(effect, buffers)
        if isinstance(effect, Delay):
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(effect.seconds, self._delayed, buffers)
            return True
        self._write(buffers)
        if isinstance(effect, Close):
            if effect.reset:
                self._reset()
            else:
                self._close()
        return False

    def _delayed(self, buffers: list[Buffer]) -> None:
        self._busy, self._timer = False, None
        self._write(buffers)
        self._advance()

    def _write(self, buffers: list[Buffer]) -> None:
        if not self._mute:
            transports.write_all(self._transport, buffers)

    def _reset(self) -> NoReply:
        transports.reset(self._transport)
        return NoReply()


def _has_many_items(response: Response) -> bool:
    """Return whether encoding a response may take more than a few milliseconds."""
    lists = [getattr(response, name, ()) for name in ("topics", "groups", "members")]
    if sum(map(len, lists)) > FEW_ITEMS:
        return True
    return sum(len(topic.partitions) for topic in lists[0]) > FEW_ITEMS
