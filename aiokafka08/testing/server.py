"""The brokers' side of connections: read requests, call the handlers, complete the exchanges.

The server kit (`_core.server`) does the I/O. The handlers decide on the response, `faults` on the
effect of a fault; a `BrokerHandler` carries both out.

Invariant: a connection handles one request at a time, in order, as real brokers do (the default
`max_in_flight` of the kit). So a request that waits (long poll, acks, an injected delay) is an
exchange that stays open.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Final

from aiokafka08._core.server.connection import (
    ConnectionHandler,
    ConnectionOptions,
    Exchange,
    HalfClosePolicy,
    ServerConnection,
)
from aiokafka08._core.server.listener import Listener
from aiokafka08._core.server.sasl import MAX_TOKEN_BYTES, AuthenticationFailed, SaslSession
from aiokafka08._core.server.work import FEW_ITEMS, Work, offload
from aiokafka08._wording import shorten
from aiokafka08.protocol.api import Response, encode_response
from aiokafka08.protocol.requests.api_versions import ApiVersionsRequest
from aiokafka08.protocol.requests.fetch import FetchResponse
from aiokafka08.protocol.requests.sasl_handshake import SaslHandshakeRequest
from aiokafka08.protocol.types import Buffer, TooManyItems
from aiokafka08.testing.broker_lines import (
    BadRequestPolicy,
    ReceivedRequest,
    read_request,
    refused_api,
)
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
    set_null,
    with_partition_errors,
)
from aiokafka08.testing.handlers.outcome import (
    Disconnect,
    DiskFull,
    HandlerResult,
    NoReply,
    Reply,
    RequestContext,
    Wait,
)
from aiokafka08.testing.runtime import ClusterRuntime, DelayedOperation
from aiokafka08.testing.state import BrokerState

_log: Final = logging.getLogger("aiokafka08.testing.server")

# `socket.request.max.bytes`, which is the same on all lines.
MAX_REQUEST_BYTES: Final = 100 << 20
# The most items in all arrays of a request (topics, partitions, groups and so on). A request with
# more is treated as unreadable. Real brokers have no limit but their heap (docs/brokers.md 13.2).
MAX_REQUEST_ITEMS: Final = 100_000


def open_listener(runtime: ClusterRuntime, node: BrokerState, bind_host: str) -> Listener:
    """Listen for a broker, on its port or, if that is 0, on a free one that becomes its port.

    Raises:
        OSError: the port is not available; the text names the broker and the address.
    """
    options = ConnectionOptions(MAX_REQUEST_BYTES, half_close=_half_close_policy(runtime))
    listener = Listener(
        f"broker {node.node_id}",
        runtime.resources,
        options,
        lambda connection: BrokerHandler(runtime, node, connection),
    )
    listener.open(bind_host, node.port)
    node.port = listener.port
    return listener


def _half_close_policy(runtime: ClusterRuntime) -> HalfClosePolicy:
    line = runtime.state.line
    if line.responds_after_fin:
        return HalfClosePolicy.ANSWER
    return HalfClosePolicy.DROP if line.drops_requests_before_fin else HalfClosePolicy.HANDLE


class BrokerHandler(ConnectionHandler):
    """A broker's side of one client's connection."""

    def __init__(
        self, runtime: ClusterRuntime, node: BrokerState, connection: ServerConnection
    ) -> None:
        self._runtime = runtime
        self._node = node
        self._line = runtime.state.line
        self._connection_number = runtime.next_connection()
        users = runtime.sasl_users
        self._session = None if users is None else SaslSession(users)
        self._host = connection.host
        self._peer = connection.peer
        self._delayed_operation: DelayedOperation | None = None
        self._timer: asyncio.TimerHandle | None = None
        _log.info(
            "node %d: connection %d from %s", node.node_id, self._connection_number, self._peer
        )

    def evicted(self, reason: str) -> None:
        """See `ConnectionHandler.evicted`."""
        self._log_close(reason)

    def failed(self, error: Exception) -> None:
        """See `ConnectionHandler.failed`."""
        _log.error(
            "node %d: connection %d is closed: internal error",
            self._node.node_id,
            self._connection_number,
            exc_info=error,
        )

    def lost(self) -> None:
        """See `ConnectionHandler.lost`."""
        if self._delayed_operation is not None:
            self._delayed_operation.cancel()
        if self._timer is not None:
            self._timer.cancel()

    def ended(self) -> None:
        """See `ConnectionHandler.ended`."""
        _log.info("node %d: connection %d ended", self._node.node_id, self._connection_number)

    def _log_close(self, reason: str) -> None:
        _log.warning(
            "node %d: connection %d from %s is closed: %s",
            self._node.node_id,
            self._connection_number,
            self._peer,
            reason,
        )

    # --- requests ---------------------------------------------------------------------------------

    def handle(self, frame: memoryview, exchange: Exchange) -> Work[None]:
        """See `ConnectionHandler.handle`."""
        session = self._session
        if session is not None and not session.is_complete and len(frame) > MAX_TOKEN_BYTES:
            self._refuse(exchange, f"a request of {len(frame)} bytes before the authentication")
            return
        if session is not None and session.awaits_token:
            self._receive_token(session, frame, exchange)
            return
        incoming = yield from self._read(frame)
        if session is not None and not session.is_complete and not _may_precede_sasl(incoming):
            self._refuse(exchange, "a request before the authentication")
            return
        if isinstance(incoming, BadRequestPolicy):
            if incoming is BadRequestPolicy.CLOSE:
                if name := refused_api(self._line, frame):
                    self._log_close(f"{name} is a request between brokers: none is carried out")
                exchange.connection.close()
            exchange.end()
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
            self._connection_number,
            exchange.connection.reserve,
            session,
        )
        since = self._runtime.changes
        try:
            outcome = yield from self._outcome(context, incoming, effect, exchange)
        except DiskFull:
            self._runtime.halt(node_id)
            outcome = Disconnect()
        yield from self._perform(context, incoming, effect, outcome, exchange, since)
        if session is not None and session.refused is not None:
            self._log_close(f"unsupported SASL mechanism {shorten(session.refused)}")
            exchange.connection.close()

    def _receive_token(self, session: SaslSession, frame: memoryview, exchange: Exchange) -> None:
        """Do a step of the authentication; tokens have a size before them, and no header."""
        try:
            token = session.receive(frame)
        except AuthenticationFailed as error:
            self._refuse(exchange, f"authentication failed: {error}")
            return
        exchange.respond([len(token).to_bytes(4, "big") + token])

    def _refuse(self, exchange: Exchange, reason: str) -> None:
        """Close the connection without a response, as brokers below 1.0 do."""
        self._log_close(reason)
        exchange.connection.close()
        exchange.end()

    def _read(self, frame: memoryview) -> Work[ReceivedRequest | BadRequestPolicy]:
        """Decode a request; one with many items in the worker thread, up to the limit."""
        try:
            # Few items are decoded on the event loop: most requests aren't worth a thread switch.
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
        self,
        context: RequestContext,
        incoming: ReceivedRequest,
        effect: Effect | None,
        exchange: Exchange,
    ) -> Work[HandlerResult]:
        match effect:
            case Close(after_bytes=None, reset=reset):
                if reset:
                    exchange.connection.reset()
                    return NoReply()
                return Disconnect()
            case Silence(perform=False):
                return NoReply()
            case Omit(perform=False):
                # `_reply` leaves the partitions out.
                return Reply(error_response(context, incoming.body, -1))
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
        outcome: HandlerResult,
        exchange: Exchange,
        since: int,
    ) -> Work[None]:
        """Carry out a decision; the exchange stays open if the response has still to come."""
        connection = exchange.connection
        match outcome:
            case Reply():
                yield from self._reply(context, incoming, effect, outcome, exchange)
                return
            case Wait() if not connection.is_lost:

                def respond(late: Reply | Disconnect) -> Work[None]:
                    self._delayed_operation = None
                    yield from self._perform(context, incoming, effect, late, exchange, since)

                self._delayed_operation = self._runtime.delay(outcome, exchange, respond, since)
                return
            case Disconnect():
                connection.close()
            # No response to cut or to replace (acks=0): the effect closes the connection.
            case NoReply() if isinstance(effect, Close | Answer):
                connection.close()
            case NoReply() if isinstance(effect, Hang):
                return
        exchange.end()

    def _reply(
        self,
        context: RequestContext,
        incoming: ReceivedRequest,
        effect: Effect | None,
        reply: Reply,
        exchange: Exchange,
    ) -> Work[None]:
        """Send a response; the exchange stays open after `Delay` and `Hang`."""
        connection = exchange.connection
        if connection.is_closing:
            exchange.end()
            return
        request = incoming.body
        response: Response = reply.response
        match effect:
            case Silence():
                exchange.end()
                return
            case Hang():
                return
            # With acks=0 an error closes the connection.
            case Answer() if not request.expects_response:
                connection.close()
                exchange.end()
                return
            case Answer(code=code, perform=True, only=None):
                response = error_response(context, request, code)
            case Answer(code=code, only=only) if only is not None:
                response = with_partition_errors(context, request, response, code, only)
            case Omit(throttle_time_ms=throttle_time_ms) if hasattr(response, "topics"):
                response.topics = []
                if throttle_time_ms and hasattr(response, "throttle_time_ms"):
                    response.throttle_time_ms = throttle_time_ms
        if isinstance(effect, Answer) and effect.null_sets and isinstance(response, FetchResponse):
            set_null(response, effect.code)
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
            self._timer = loop.call_later(effect.seconds, self._delayed, exchange, buffers)
            return
        exchange.respond(buffers)
        if isinstance(effect, Close):
            if effect.reset:
                connection.reset()
            else:
                connection.close()

    def _delayed(self, exchange: Exchange, buffers: list[Buffer]) -> None:
        self._timer = None
        exchange.respond(buffers)


def _may_precede_sasl(incoming: ReceivedRequest | BadRequestPolicy) -> bool:
    """Return whether a broker accepts a request before the authentication is complete."""
    return isinstance(incoming, ReceivedRequest) and isinstance(
        incoming.body, ApiVersionsRequest | SaslHandshakeRequest
    )


def _has_many_items(response: Response) -> bool:
    """Return whether encoding a response may take more than a few milliseconds."""
    lists = [getattr(response, name, ()) for name in ("topics", "groups", "members")]
    if sum(map(len, lists)) > FEW_ITEMS:
        return True
    return sum(len(getattr(topic, "partitions", ())) for topic in lists[0]) > FEW_ITEMS
