"""One connection to a broker: `asyncio.BufferedProtocol` around the sans-I/O `ClientConnection`.

Invariant: every `request()` ends with its response, with an error when the connection is lost, or
at its deadline. (`send()` leaves the deadline to its caller.) A request that timed out or was
cancelled keeps its place in flight: its response is read and dropped, so the later responses still
match their requests.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeVar, cast

from aiokafka08._core.concurrency.loop_yield import run_in_steps
from aiokafka08._core.net.config import Address, NetConfig, address_text
from aiokafka08._core.net.connect import (
    PendingStep,
    certificate_host,
    connect_to_any_ip,
    describe_error,
    ip_addresses,
    timeout_text,
)
from aiokafka08._core.net.raw_stream import connect_raw
from aiokafka08._core.net.versions import BrokerVersion, alive_request
from aiokafka08.errors import KafkaConnectionError, KafkaProtocolError, KafkaTimeoutError
from aiokafka08.protocol.api import Request, Response
from aiokafka08.protocol.connection import ClientConnection, UndecodedResponse

R = TypeVar("R", bound=Response)

HIGH_WATER_BYTES: Final = 64 * 1024
"""How many bytes a socket may buffer before callers have to wait."""

# The wait before a check for silence, as a multiple of `request_timeout_ms`: the check comes a
# little after the callers' own deadlines.
_SILENCE_CHECK_FACTOR: Final = 1.05

# The least time until the next check. Without it, a remainder from rounding could repeat the check
# endlessly at the same loop time.
_SHORTEST_SILENCE_CHECK_S: Final = 0.001


class ResponseWaiter(Protocol):
    """Receives one request's outcome: an `asyncio.Future`, or an object that acts on it at once."""

    def done(self) -> bool:
        """Return True if the waiter has given up, or has an outcome."""

    def set_result(self, response: Any) -> object:
        """Take the response. Must neither raise nor close the connection."""

    def set_exception(self, error: KafkaConnectionError) -> object:
        """Take the error after the connection was lost. Must not raise."""


class _PendingRequest(NamedTuple):
    """A request in flight; its caller may have given it up."""

    waiter: ResponseWaiter
    sent_at: float
    # How long the broker may be silent before the connection counts as dead. At least
    # `request_timeout_ms`, even if the caller gives up earlier.
    timeout_s: float


class BrokerConnection(asyncio.BufferedProtocol):
    """A pipelined connection to a broker; `open_connection()` makes it."""

    def __init__(
        self,
        address: Address,
        config: NetConfig,
        version: BrokerVersion,
        on_close: Callable[[BrokerConnection, str, int], None],
        protocol: ClientConnection | None = None,
    ) -> None:
        self.address = address
        self.version = version  # what the broker supports
        self.close_reason: str | None = None  # why the connection is closed; None while it is open
        self.has_responded = False  # the broker has sent at least one response
        # Called after data was received, once the waiters have all responses in it. May run any
        # code, for example close the connection; must not raise.
        self.on_received: Callable[[], object] | None = None
        self._loop = asyncio.get_running_loop()
        self.last_used = self._loop.time()  # loop time of the last request or response
        # `last_received`: loop time when the last data came, or when the connection was opened.
        # `response_began`: loop time when the first bytes of the last complete response came.
        self.last_received = self.response_began = self.last_used
        # Seconds after the opening at which the broker ends the SASL session; infinity if it
        # doesn't
        self.session_lifetime_s = math.inf
        # Loop time when the first bytes of an incomplete response came
        self._incomplete_began: float | None = None
        self._drain_reason: str | None = None  # reason to close once nothing is in flight
        self._config = config
        self._on_close = on_close
        self._name = address_text(address)
        self._protocol = protocol or ClientConnection(
            config.client_id, max_frame_bytes=config.max_frame_bytes, peer=self._name
        )
        self._pending: dict[int, _PendingRequest] = {}
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._blocked_since: float | None = None  # loop time when the buffer became full
        self._write_lock = asyncio.Lock()  # FIFO: requests are written in order
        self._silence_timer: asyncio.TimerHandle | None = None
        # Done when the socket is really closed
        self.socket_closed: asyncio.Future[None] = self._loop.create_future()

    def __repr__(self) -> str:
        state = self.close_reason or f"{self.in_flight} in flight"
        return f"<BrokerConnection {self._name} {state}>"

    @property
    def in_flight(self) -> int:
        """Number of requests that await a response, including those that their callers gave up."""
        return len(self._pending)

    @property
    def unsent_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    @property
    def response_wait_s(self) -> float:
        """Seconds for which the broker has owed the next response; 0 if nothing is in flight."""
        if not self._pending:
            return 0.0
        oldest = next(iter(self._pending.values()))
        # A broker processes one request of a connection at a time, so later data restart the wait.
        return self._loop.time() - max(oldest.sent_at, self.last_received)

    @property
    def is_awaited(self) -> bool:
        """Whether a caller waits for a response: not all requests in flight were given up."""
        return any(not pending.waiter.done() for pending in self._pending.values())

    async def request(
        self,
        request: Request[R],
        *,
        version: int | None = None,
        timeout_s: float | None = None,
    ) -> R:
        """Send a request and wait for its response; many callers may do so at the same time.

        Args:
            request: the request.
            version: the API version; by default the highest one that both sides support.
            timeout_s: seconds until the caller gives up; by default `request_timeout_ms`.

        Raises:
            KafkaConnectionError: the connection was lost before the response arrived. A response
                that doesn't match its request also closes the connection; the text says so.
            KafkaTimeoutError: the deadline passed. The broker may have processed the request.
            UnsupportedVersionError: the broker line doesn't have this API.
            ValueError: the request can't be encoded, or has no response.
        """
        limit_s = self._config.request_timeout_s if timeout_s is None else timeout_s
        name = type(request).__name__
        if not request.expects_response:
            raise ValueError(f"{name}: brokers never respond to it. Use send()")
        if limit_s <= 0:  # spare the broker a request whose response no caller waits for
            raise KafkaTimeoutError(f"{self._name}: no time left to send {name}")
        try:
            async with asyncio.timeout(limit_s):
                async with self._write_lock:
                    await self.wait_writable()
                    waiter: asyncio.Future[R | UndecodedResponse] = self._loop.create_future()
                    self._write(request, waiter, version, limit_s, in_steps=True)
                response = await waiter
                if isinstance(response, UndecodedResponse):
                    response = cast(R, await run_in_steps(response.decode()))
                return response
        except TimeoutError:
            self.close_if_silent(self._config.request_timeout_s)
            raise KafkaTimeoutError(
                f"{self._name}: no response to {name} within {limit_s * 1000:.0f} ms"
            ) from None
        except KafkaProtocolError as error:  # the response, which was still to be decoded
            self.close(reason := self._unreadable_reason(error))
            raise KafkaConnectionError(f"{self._name}: {reason}") from None

    @property
    def writable(self) -> bool:
        """Whether a write would neither wait nor fail."""
        return self.close_reason is None and self._writable.is_set()

    async def wait_writable(self) -> None:
        """Wait until the socket has taken most data; raise KafkaConnectionError if closed."""
        # In a loop, since a task that was woken earlier may have filled the buffer again.
        while not self._writable.is_set():
            await self._writable.wait()
        if self.close_reason is not None:
            raise KafkaConnectionError(f"{self._name}: {self.close_reason}")

    def send(
        self,
        request: Request[Any],
        waiter: ResponseWaiter,
        *,
        version: int | None = None,
        timeout_s: float = 0.0,
    ) -> None:
        """Write a request at once; the waiter gets its response.

        It is for callers that check `writable` and keep their own deadlines. To give a request up,
        let the waiter be `done()` (the response is then read and dropped) and call
        `close_if_silent()`. When the connection breaks, the waiter gets a `KafkaConnectionError`.
        If the request has no response (Produce with required_acks=0), the waiter gets nothing.

        Args:
            request: the request.
            waiter: gets the response.
            version: the API version; by default the highest one that both sides support.
            timeout_s: how long the broker may be silent; the limit is at least
                `request_timeout_ms`.

        Raises:
            KafkaConnectionError: the connection is closed.
            UnsupportedVersionError: the broker line doesn't have this API (without `version`).
            ValueError: the request can't be encoded.
        """
        if self.close_reason is not None:
            raise KafkaConnectionError(f"{self._name}: {self.close_reason}")
        self._write(request, waiter, version, timeout_s)

    def close_if_silent(self, timeout_s: float) -> None:
        """Close the connection if the broker has been silent for too long.

        The limit is `timeout_s`, but at least `request_timeout_ms` and the timeout of the oldest
        request. A write into a full socket buffer has a limit too.
        """
        overdue_s = self._overdue_s(timeout_s)
        # 1 % of tolerance: a caller's deadline may begin a little before its request is sent.
        if self.close_reason is None and overdue_s is not None and overdue_s >= -0.01 * timeout_s:
            self.close(f"no response for {timeout_s * 1000:.0f} ms")

    def close(self, reason: str) -> None:
        """Close at once; callers that wait for a response get a `KafkaConnectionError`."""
        if self.close_reason is None:
            self._mark_closed(reason)
        if self._transport is not None:
            self._transport.abort()

    @property
    def is_draining(self) -> bool:
        """Whether `drain()` was called, so that no request may be sent any more."""
        return self._drain_reason is not None

    def drain(self, reason: str) -> None:
        """Close as soon as no request is in flight; until then none is written."""
        self._drain_reason = reason
        self._writable.clear()
        self._close_if_drained()

    def _close_if_drained(self) -> None:
        if self._drain_reason is not None and not self.in_flight and self.close_reason is None:
            self.close(self._drain_reason)

    # --- called by asyncio ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._is_tls = transport.get_extra_info("sslcontext") is not None
        self._transport.set_write_buffer_limits(HIGH_WATER_BYTES)
        self._writable.set()

    def get_buffer(self, sizehint: int) -> memoryview:
        if self.close_reason is not None:  # a TLS transport delivers the rest of its data: drop it
            return memoryview(bytearray(65536))
        # After a FIN, asyncio's TLS reads only once, and drops what doesn't fit in the buffer.
        # `sizehint` is how many bytes it has.
        return self._protocol.frames.get_buffer(sizehint if self._is_tls else 0)

    def buffer_updated(self, nbytes: int) -> None:
        if self.close_reason is not None:
            return
        self.last_used = self.last_received = self._loop.time()
        began = self.last_used if self._incomplete_began is None else self._incomplete_began
        try:
            for correlation_id, response in self._protocol.received(nbytes):
                self.has_responded = True
                self.response_began, began = began, self.last_used
                waiter = self._pending.pop(correlation_id).waiter
                if not waiter.done():  # else it timed out or was cancelled
                    waiter.set_result(response)
            self._incomplete_began = began if self._protocol.frames.is_in_frame else None
        except KafkaProtocolError as error:
            self.close(self._unreadable_reason(error))
        finally:  # also if memory is short, since the waiters may have left work for `on_received`
            if self.on_received is not None:
                self.on_received()
            if self._drain_reason is not None:
                self._close_if_drained()

    def eof_received(self) -> bool:
        # Abort the transport here. If asyncio closed it, it would first write the buffered data,
        # and wait for ever if the peer reads no more.
        self.close(self._lost_reason("closed by the broker"))
        return False

    def pause_writing(self) -> None:
        if self.close_reason is not None:
            return
        self._writable.clear()
        self._blocked_since = self._loop.time()
        if self._silence_timer is None:
            self._schedule_silence_check()

    def resume_writing(self) -> None:
        if not self.is_draining:
            self._writable.set()
        self._blocked_since = None

    def connection_lost(self, exc: Exception | None) -> None:
        if self.close_reason is None:
            reason = f"connection lost: {describe_error(exc)}" if exc else "closed by the broker"
            self._mark_closed(self._lost_reason(reason))
        if not self.socket_closed.done():
            self.socket_closed.set_result(None)

    # --- inside -----------------------------------------------------------------------------------

    def _write(
        self,
        request: Request[Any],
        waiter: ResponseWaiter,
        version: int | None,
        timeout_s: float,
        *,
        in_steps: bool = False,
    ) -> None:
        if version is None:
            version = self.version.highest(type(request))
        correlation_id, buffers = self._protocol.send(request, version, in_steps=in_steps)
        now = self.last_used = self._loop.time()
        if correlation_id is not None:
            timeout_s = max(timeout_s, self._config.request_timeout_s)
            self._pending[correlation_id] = _PendingRequest(waiter, now, timeout_s)
            if self._silence_timer is None:
                self._schedule_silence_check()
        assert self._transport is not None
        # Don't use writelines(): on Python 3.11 it joins the buffers too, and on Python 3.12.0 -
        # 3.12.8, 3.13.0 and 3.13.1 it doesn't pause the protocol when the buffer is full (CPython
        # gh-127655).
        self._transport.write(b"".join(buffers))

    def _lost_reason(self, reason: str) -> str:
        """Add a hint to `reason`, if a pinned version may be wrong."""
        pinned = self._config.pinned_version
        if pinned is None or self.has_responded or not self._pending:
            return reason
        # Brokers close the connection on requests that they don't know.
        return f"{reason} without a response. {_check_pin(pinned)}"

    def _unreadable_reason(self, error: KafkaProtocolError) -> str:
        """Return why the connection is closed, with a hint if a pinned version may be wrong."""
        # Brokers of 0.8 and 0.9 may respond to an unknown version as if it were one of their own.
        pinned = self._config.pinned_version
        return str(error) if pinned is None else f"{error}. {_check_pin(pinned)}"

    def _overdue_s(self, timeout_s: float = 0.0) -> float | None:
        """Return by how many seconds the broker's silence exceeds the limit; negative before that.

        None: no request is in flight and the socket buffer has room.
        """
        overdue = []
        if self._pending:
            oldest = next(iter(self._pending.values()))
            overdue.append(self.response_wait_s - max(oldest.timeout_s, timeout_s))
        if self._blocked_since is not None:
            blocked_s = self._loop.time() - max(self._blocked_since, self.last_received)
            overdue.append(blocked_s - max(self._config.request_timeout_s, timeout_s))
        return max(overdue, default=None)

    def _schedule_silence_check(self) -> None:
        # Check after the callers' own deadlines, so that they report a timeout, not this close.
        self._silence_timer = self._loop.call_later(
            self._config.request_timeout_s * _SILENCE_CHECK_FACTOR, self._check_silence
        )

    def _check_silence(self) -> None:
        """Close a dead connection even if all callers have given up."""
        self._silence_timer = None
        overdue_s = self._overdue_s()
        if overdue_s is None:
            return  # the next write schedules a check
        check_in_s = next_silence_check_s(overdue_s, self._config.request_timeout_s)
        if check_in_s is None:
            self.close(f"no response for {self._config.request_timeout_s * 1000:.0f} ms")
        else:
            self._silence_timer = self._loop.call_later(check_in_s, self._check_silence)

    def _mark_closed(self, reason: str) -> None:
        self.close_reason = reason
        self._writable.set()  # wakes the tasks that wait to write; they find it closed
        self._blocked_since = None
        if self._silence_timer is not None:
            self._silence_timer.cancel()
        waiters = [self._pending[correlation_id].waiter for correlation_id in self._protocol.eof()]
        self._pending.clear()
        # A cancelled request, such as the long poll of a consumer that stops, has lost nothing.
        lost = sum(not waiter.done() for waiter in waiters)
        for waiter in waiters:
            if not waiter.done():  # else given up, or ended by an earlier waiter
                waiter.set_exception(KafkaConnectionError(f"{self._name}: {reason}"))
        self._on_close(self, reason, lost)


def next_silence_check_s(overdue_s: float, request_timeout_s: float) -> float | None:
    """Return in how many seconds to check for silence again; None: close the connection now."""
    grace_s = request_timeout_s * (_SILENCE_CHECK_FACTOR - 1)
    return None if overdue_s >= grace_s else max(grace_s - overdue_s, _SHORTEST_SILENCE_CHECK_S)


async def open_connection(
    address: Address,
    config: NetConfig,
    version: BrokerVersion,
    on_close: Callable[[BrokerConnection, str, int], None],
    ip: str | None = None,
) -> BrokerConnection:
    """Connect to a broker.

    Args:
        address: host and port.
        config: the options of the network layer.
        version: the version of the broker.
        on_close: called once when the connection is closed, with the reason and the number of
            requests without a response whose callers still wait for it.
        ip: the IP address at which the broker has responded; None resolves the host name.

    Raises:
        KafkaConnectionError: the connection can't be made.
        KafkaTimeoutError: it can't be made within `request_timeout_ms`.
    """
    loop = asyncio.get_running_loop()
    limit_s = config.request_timeout_s
    deadline = loop.time() + limit_s
    ips = await ip_addresses(address, config, limit_s) if ip is None else [ip]

    async def connect(ip: str) -> BrokerConnection:
        waits: list[PendingStep] = []  # the steps of the authentication that were waited for
        try:
            async with asyncio.timeout_at(deadline) as limit:
                if config.sasl is None:
                    _, connection = await loop.create_connection(
                        lambda: BrokerConnection(address, config, version, on_close),
                        ip,
                        address[1],
                        ssl=config.ssl_context,
                        server_hostname=certificate_host(address, config),
                    )
                else:
                    from aiokafka08._core.net.authentication import open_authenticated

                    session = await open_authenticated(
                        partial(connect_raw, ip, address, config),
                        address,
                        config,
                        config.sasl,
                        version,
                        waits.append,
                    )
                    connection = BrokerConnection(address, config, version, on_close)
                    connection.session_lifetime_s = session.lifetime_s
                    session.stream.hand_over(connection)
        except TimeoutError:
            if not limit.expired():
                raise  # a timeout of the operating system, such as ETIMEDOUT
            text = timeout_text(address, config, limit_s)
            if not waits:
                raise KafkaTimeoutError(text) from None
            raise waits[-1].timeout_error(f"{text}: ") from None
        # A listener that accepts connections may be no broker: the first one that responds wins.
        if len(ips) > 1:
            try:
                await connection.request(
                    alive_request(), version=0, timeout_s=deadline - loop.time()
                )
            except BaseException as error:
                connection.close(str(error) or "another address was faster")
                raise
        return connection

    return await connect_to_any_ip(
        address,
        config,
        ips,
        connect,
        limit_s,
        lambda connection: connection.close("another address was faster"),
    )


def _check_pin(pinned: BrokerVersion) -> str:
    return f"api_version pins the line {pinned.line}: check that it is the broker's"
