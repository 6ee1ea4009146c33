"""Listeners and connections of the brokers: read requests, call the handlers, write the responses.

`cluster` creates one `Listener` per broker, and each accepted socket becomes a `Connection`. The
handlers decide on the response, `faults` on the effect of a fault, and `runtime` on when a delayed
operation is checked again; a connection carries it all out.

Invariant: a connection handles one request at a time, in order, as real brokers do. While a request
waits (long poll, acks, an injected delay), later ones wait in a bounded queue, then in the socket.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import struct
from collections import deque
from typing import Any, cast

from aiokafka08.errors import KafkaProtocolError
from aiokafka08.protocol.api import Response, encode_response
from aiokafka08.protocol.frame import FrameReader
from aiokafka08.protocol.types import Buffer
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
    NoReply,
    Outcome,
    Reply,
    RequestContext,
    Wait,
)
from aiokafka08.testing.runtime import ClusterRuntime, DelayedOperation
from aiokafka08.testing.state import Node

logger = logging.getLogger(__name__)

MAX_REQUEST_BYTES = 100 << 20
"""`socket.request.max.bytes`, which is the same on all lines."""
_LARGE_BYTES = 32 << 10  # from here on a copy costs more than a system call
_MAX_QUEUED_REQUESTS = 64
_MAX_QUEUED_BYTES = 1 << 20


class Listener:
    """A broker's port and its connections.

    It accepts sockets itself, without an asyncio server. In Python 3.11 an asyncio server loses a
    socket if it is closed after it has accepted the socket, but before it has created the
    transport. `EmbeddedCluster.kill` may close a listener at such a moment.
    """

    def __init__(self, runtime: ClusterRuntime, node: Node, bind_host: str) -> None:
        self.runtime = runtime
        self.node = node
        self._bind_host = bind_host
        self.connections: set[Connection] = set()
        self._closed = False
        self._all_closed = asyncio.Event()
        self._socket: socket.socket | None = None
        self._accepting: set[asyncio.Task[Any]] = set()

    def open(self) -> None:
        """Listen on the node's port, or on any free port if that is 0.

        Raises:
            OSError: the port is not available; the text names the broker and the address.
        """
        family = socket.AF_INET6 if ":" in self._bind_host else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((self._bind_host, self.node.port))
            listening.listen(128)
            listening.setblocking(False)
        except OSError as error:
            listening.close()
            raise OSError(
                error.errno,
                f"broker {self.node.node_id} can't listen on {self._bind_host}:{self.node.port}:"
                f" {error.strerror}",
            ) from error
        self.node.port = listening.getsockname()[1]
        self._socket = listening
        asyncio.get_running_loop().add_reader(listening.fileno(), self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        try:
            accepted, _ = listening.accept()
        except OSError:
            # The client has gone, or no file descriptor is free. In the second case the socket
            # stays readable, and the loop calls this method again.
            return
        accepted.setblocking(False)
        loop = asyncio.get_running_loop()
        task = loop.create_task(loop.connect_accepted_socket(lambda: Connection(self), accepted))
        self._accepting.add(task)
        task.add_done_callback(self._accepting.discard)

    def close(self) -> None:
        """Stop listening and close all connections at once; responses on their way are lost."""
        self._closed = True
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None
        self.drop_connections()

    def drop_connections(self) -> None:
        """Close all connections at once; responses on their way are lost."""
        for connection in list(self.connections):
            connection.abort()

    async def wait_closed(self) -> None:
        """Wait until no connection is left; call it after `close`."""
        while self._accepting:  # `made` aborts the connections of these tasks
            await asyncio.wait(self._accepting)
        while self.connections:
            self._all_closed.clear()
            await self._all_closed.wait()

    def made(self, connection: Connection) -> None:
        """Add a new connection; abort it if the listener is closed."""
        self.connections.add(connection)
        if self._closed:
            connection.abort()

    def lost(self, connection: Connection) -> None:
        """Remove a connection that has ended."""
        self.connections.discard(connection)
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
        self._queue: deque[memoryview] = deque()
        self._queued_bytes = 0
        self._transport: asyncio.Transport
        self._connection_number = 0
        self._host = self._peer = "?"
        self._busy = False  # a request is being handled: later ones wait
        self._delayed_operation: DelayedOperation | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._writing_paused = False
        self._reading_paused = False
        self._ends = False  # close when the queue is empty: after FIN or an invalid frame size

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
        return self._frames.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for frame in self._frames.received(nbytes):
                self._queue.append(frame)
                self._queued_bytes += len(frame)
        except KafkaProtocolError:
            self._ends = True
        self._advance()

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
        self._queue.clear()
        self._listener.lost(self)
        logger.info("node %d: connection %d ended", self._node.node_id, self._connection_number)

    def abort(self) -> None:
        """Close the connection at once."""
        self._queue.clear()
        self._transport.abort()

    # --- requests ---------------------------------------------------------------------------------

    def _advance(self) -> None:
        while self._queue and not (
            self._busy or self._writing_paused or self._transport.is_closing()
        ):
            frame = self._queue.popleft()
            self._queued_bytes -= len(frame)
            self._request(frame)
        if self._transport.is_closing():
            return
        if self._ends and not self._queue and not self._busy:
            self._transport.close()
            return
        full = len(self._queue) > _MAX_QUEUED_REQUESTS or self._queued_bytes > _MAX_QUEUED_BYTES
        if full != self._reading_paused and not self._ends:
            self._reading_paused = full
            if full:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def _request(self, frame: memoryview) -> None:
        incoming = read_request(self._line, frame)
        if isinstance(incoming, BadRequestPolicy):
            if incoming is BadRequestPolicy.CLOSE:
                self._transport.close()
            return
        node_id = self._node.node_id
        effect = self._runtime.faults.match(node_id, incoming.body)
        self._runtime.record(node_id, self._connection_number, incoming)
        context = RequestContext(
            self._runtime.state,
            self._node,
            incoming.header.api_version,
            incoming.layout,
            self._runtime.now_ms(),
            self._runtime.now_s(),
            incoming.header.client_id or "",
            f"/{self._host}",
        )
        self._perform(context, incoming, effect, self._outcome(context, incoming, effect))
        self._runtime.complete_delayed()

    def _outcome(
        self, context: RequestContext, incoming: ReceivedRequest, effect: Effect | None
    ) -> Outcome:
        match effect:
            case Close(after_bytes=None, reset=reset):
                return self._reset() if reset else Disconnect()
            case Silence(perform=False):
                return NoReply()
            case Answer(code=code, perform=False, only=None):
                return Reply(error_response(context, incoming.body, code))
            case Answer(perform=False, only=only) if only is not None:
                return handle(context, drop_partitions(incoming.body, only))
        return handle(context, incoming.body)

    def _perform(
        self,
        context: RequestContext,
        incoming: ReceivedRequest,
        effect: Effect | None,
        outcome: Outcome,
    ) -> None:
        match outcome:
            case Reply():
                self._reply(context, incoming, effect, outcome)
            case Wait():
                self._busy = True

                def on_reply(reply: Reply) -> None:
                    self._busy, self._delayed_operation = False, None
                    self._reply(context, incoming, effect, reply)
                    self._advance()

                self._delayed_operation = self._runtime.delay(outcome, on_reply)
            case Disconnect():
                self._transport.close()
            # No response to cut or to replace (acks=0): the effect closes the connection.
            case NoReply() if isinstance(effect, Close | Answer):
                self._transport.close()
            case NoReply() if isinstance(effect, Hang):
                self._hang()

    def _reply(
        self,
        context: RequestContext,
        incoming: ReceivedRequest,
        effect: Effect | None,
        reply: Reply,
    ) -> None:
        if self._transport.is_closing():
            return
        request = incoming.body
        response: Response = reply.response
        match effect:
            case Silence():
                return
            case Hang():
                self._hang()
                return
            case Answer() if not request.expects_response:  # acks=0: an error closes the connection
                self._transport.close()
                return
            case Answer(code=code, perform=True, only=None):
                response = error_response(context, request, code)
            case Answer(code=code, only=only) if only is not None:
                response = with_partition_errors(context, request, response, code, only)
            case Omit() if hasattr(response, "topics"):
                response.topics = []
        correlation_id = reply.correlation_id
        if correlation_id is None:
            correlation_id = incoming.header.correlation_id
        buffers = encode_response(response, incoming.layout, correlation_id)
        if isinstance(effect, Close | Truncate | WrongCorrelationId | Corrupt):
            buffers = damage_frame(effect, buffers)
        if isinstance(effect, Delay):
            self._busy = True
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(effect.seconds, self._delayed, buffers)
            return
        self._write(buffers)
        if isinstance(effect, Close):
            if effect.reset:
                self._reset()
            else:
                self._transport.close()

    def _delayed(self, buffers: list[Buffer]) -> None:
        self._busy, self._timer = False, None
        self._write(buffers)
        self._advance()

    def _write(self, buffers: list[Buffer]) -> None:
        # Not writelines: in Python 3.11 it copies everything, and in 3.12.0 - 3.12.8, 3.13.0 and
        # 3.13.1 it never calls pause_writing (gh-127655) and fails with an empty buffer.
        small: list[Buffer] = []
        for buffer in buffers:
            if len(buffer) < _LARGE_BYTES:
                small.append(buffer)
                continue
            # The client has gone. asyncio logs a warning at the fifth write to a closed transport.
            if self._transport.is_closing():
                return
            self._transport.write(b"".join(small))
            small.clear()
            self._transport.write(buffer)
        if small:
            self._transport.write(b"".join(small))

    def _hang(self) -> None:
        self._busy = True

    def _reset(self) -> NoReply:
        """Close the connection by RST."""
        descriptor = os.dup(self._transport.get_extra_info("socket").fileno())
        # uvloop's socket object has no setsockopt.
        with socket.socket(fileno=descriptor) as duplicate:
            duplicate.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()
        return NoReply()
