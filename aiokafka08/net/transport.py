"""One connection to a broker: `asyncio.BufferedProtocol` around the sans-I/O `ClientConnection`.

Law: every request handed in ends: with its answer, with an error when the connection is lost, or
by its deadline. A request that timed out or was cancelled keeps its slot in flight: the answer is
read and dropped, so those behind it stay aligned. Which connection to use, and making it again, is
`node`'s business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

from aiokafka08.errors import KafkaConnectionError, KafkaProtocolError, KafkaTimeoutError
from aiokafka08.net.config import Address, NetConfig, address_text
from aiokafka08.net.connect import connect_to_any_ip, describe, unreached
from aiokafka08.net.versions import BrokerVersion
from aiokafka08.protocol.api import Request, Response
from aiokafka08.protocol.connection import ClientConnection

R = TypeVar("R", bound=Response)

HIGH_WATER_BYTES = 64 * 1024
"""What a socket may buffer before writers have to wait."""

_WATCHDOG_SHARE = 1.05
"""The watchdog's time, in `request_timeout_ms`: a little after the deadlines of those who wait."""


class _Waiter(NamedTuple):
    """Somebody waits, or waited, for an answer that is still to come."""

    answer: asyncio.Future[Response]
    since: float
    patience_s: float
    """How long the broker may be silent over it before it is taken for dead."""


class BrokerConnection(asyncio.BufferedProtocol):
    """A pipelined connection; made by `open_connection`.

    Attributes:
        version: what the broker at the other end speaks.
        close_reason: the reason, once the connection is gone; None before.
        has_responded: whether any answer came.
        last_used: loop time of the last request or answer.
        socket_closed: done when the socket is really closed.
    """

    def __init__(
        self,
        address: Address,
        config: NetConfig,
        version: BrokerVersion,
        on_close: Callable[[BrokerConnection, str, int], None],
    ) -> None:
        self.address = address
        self.version = version
        self.close_reason: str | None = None
        self.has_responded = False
        self._loop = asyncio.get_running_loop()
        self.last_used = self._loop.time()
        self._last_received = self.last_used
        self._config = config
        self._on_close = on_close
        self._name = address_text(address)
        self._protocol = ClientConnection(
            config.client_id, max_frame_bytes=config.max_frame_bytes, peer=self._name
        )
        self._waiters: dict[int, _Waiter] = {}
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._blocked_since: float | None = None  # when the socket's buffer was full
        self._turn = asyncio.Lock()  # those who wait to write, in the order of their calls
        self._watchdog: asyncio.TimerHandle | None = None
        self.socket_closed: asyncio.Future[None] = self._loop.create_future()

    def __repr__(self) -> str:
        state = self.close_reason or f"{self.in_flight} in flight"
        return f"<BrokerConnection {self._name} {state}>"

    @property
    def in_flight(self) -> int:
        """Requests whose answers are still to come, waited for or not."""
        return self._protocol.in_flight

    @property
    def response_wait_s(self) -> float:
        """For how many seconds the broker has owed the answer that is due next; 0 for none."""
        if not self._waiters:
            return 0.0
        oldest = next(iter(self._waiters.values()))
        return self._loop.time() - max(oldest.since, self._last_received)

    async def request(
        self,
        request: Request[R],
        *,
        version: int | None = None,
        timeout_s: float | None = None,
    ) -> R:
        """Send a request and wait for its answer; many callers may do so at once.

        Args:
            version: the API version; the highest that both sides speak by default.
            timeout_s: seconds until the caller gives up; `request_timeout_ms` by default.

        Raises:
            KafkaConnectionError: the connection was lost before the answer came. It is also given
                up where an answer isn't what was asked for: the text says so.
            KafkaTimeoutError: the deadline passed. The broker may have done the work all the same.
            UnsupportedVersionError: the broker's line doesn't have this API.
            ValueError: the request can't be encoded, or is never answered.
        """
        limit_s = self._config.request_timeout_s if timeout_s is None else timeout_s
        name = type(request).__name__
        if not request.expects_response:
            raise ValueError(f"this {name} is never answered: send() it")
        if limit_s <= 0:  # don't have the broker do what nobody waits for
            raise KafkaTimeoutError(f"no time is left to send {name} to {self._name}")
        try:
            async with asyncio.timeout(limit_s):
                async with self._turn:
                    await self.wait_writable()
                    answer = self._write(request, version, limit_s)
                return cast(R, await answer)
        except TimeoutError:
            self.close_if_silent(self._config.request_timeout_s)
            raise KafkaTimeoutError(
                f"{self._name} didn't answer {name} within {limit_s * 1000:.0f} ms"
            ) from None

    @property
    def writable(self) -> bool:
        """Whether a write would neither wait nor fail."""
        return self.close_reason is None and self._writable.is_set()

    async def wait_writable(self) -> None:
        """Wait until the socket has taken most of what was written.

        Raises:
            KafkaConnectionError: the connection is gone.
        """
        # Again after each waking: whoever was woken first may have filled the buffer anew.
        while not self._writable.is_set():
            await self._writable.wait()
        if self.close_reason is not None:
            raise KafkaConnectionError(f"{self._name}: {self.close_reason}")

    def send(self, request: Request[R], *, version: int | None = None) -> asyncio.Future[R]:
        """Write a request at once; the future has its answer, or a `KafkaConnectionError`.

        For callers who heed `writable` and keep their own deadlines: cancelling the future gives
        the answer up (it is read and dropped), `close_if_silent` is to be called then. Where no
        answer will come (Produce with required_acks=0) the future is never done.

        Raises:
            KafkaConnectionError: the connection is gone.
            ValueError: the request can't be encoded.
        """
        if self.close_reason is not None:
            raise KafkaConnectionError(f"{self._name}: {self.close_reason}")
        answer = self._write(request, version, self._config.request_timeout_s)
        return cast("asyncio.Future[R]", answer)

    def close_if_silent(self, patience_s: float) -> None:
        """Close the connection if nothing came for as long as its oldest request has waited.

        A single slow answer doesn't count while others arrive. It happens by itself as well, a
        little later than the deadlines of those who wait.
        """
        silent_s = self._silent_s(patience_s)
        if self.close_reason is None and silent_s is not None and silent_s >= -0.01 * patience_s:
            self.close(f"no answer for {patience_s * 1000:.0f} ms")

    def close(self, reason: str) -> None:
        """Close now; whoever waits for an answer gets a `KafkaConnectionError` with the reason."""
        if self.close_reason is None:
            self._closed(reason)
        if self._transport is not None:
            self._transport.abort()

    # --- asyncio's side ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(HIGH_WATER_BYTES)
        self._writable.set()

    def get_buffer(self, sizehint: int) -> memoryview:
        if self.close_reason is not None:  # TLS goes on handing out what it has read
            return memoryview(bytearray(65536))
        return self._protocol.frames.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        if self.close_reason is not None:
            return
        self.last_used = self._last_received = self._loop.time()
        try:
            for correlation_id, response in self._protocol.received(nbytes):
                self.has_responded = True
                waiter = self._waiters.pop(correlation_id)
                if not waiter.answer.done():  # else: it timed out or was cancelled
                    waiter.answer.set_result(response)
        except KafkaProtocolError as error:
            self.close(str(error))

    def eof_received(self) -> bool:
        # Not left to the transport: it would first write what it still holds, which a peer that
        # has closed may never take.
        self.close(self._why_lost("closed by the broker"))
        return False

    def pause_writing(self) -> None:
        if self.close_reason is not None:
            return
        self._writable.clear()
        self._blocked_since = self._loop.time()
        self._watch()

    def resume_writing(self) -> None:
        self._writable.set()
        self._blocked_since = None

    def connection_lost(self, exc: Exception | None) -> None:
        if self.close_reason is None:
            reason = f"connection lost: {describe(exc)}" if exc else "closed by the broker"
            self._closed(self._why_lost(reason))
        if not self.socket_closed.done():
            self.socket_closed.set_result(None)

    # --- inside -----------------------------------------------------------------------------------

    def _write(
        self, request: Request[Any], version: int | None, patience_s: float
    ) -> asyncio.Future[Response]:
        if version is None:
            version = self.version.highest(type(request))
        correlation_id, buffers = self._protocol.send(request, version)
        now = self.last_used = self._loop.time()
        answer: asyncio.Future[Response] = self._loop.create_future()
        if correlation_id is not None:
            patience_s = max(patience_s, self._config.request_timeout_s)
            self._waiters[correlation_id] = _Waiter(answer, now, patience_s)
            self._watch()
        assert self._transport is not None
        # Not writelines: 3.11's joins all the same, and those of 3.12.0 - 3.12.8, 3.13.0 and 3.13.1
        # don't pause the protocol when their buffer is full (CPython gh-127655).
        self._transport.write(b"".join(buffers))
        return answer

    def _why_lost(self, reason: str) -> str:
        """Closing is how brokers meet requests that they don't know."""
        pinned = self._config.pinned_version
        if pinned is None or self.has_responded or not self._waiters:
            return reason
        line = f"api_version pins the line {pinned.line}"
        return f"{reason} without an answer; {line}; is it the broker's?"

    def _silent_s(self, patience_s: float = 0.0) -> float | None:
        """For how many seconds longer than allowed the peer has been silent; None: it needn't talk.

        The clock of the oldest request begins when it was written, or with the last answer before
        it: a broker serves one after the other.
        """
        over = []
        if self._waiters:
            oldest = next(iter(self._waiters.values()))
            over.append(self.response_wait_s - max(oldest.patience_s, patience_s))
        if self._blocked_since is not None:
            blocked_s = self._loop.time() - max(self._blocked_since, self._last_received)
            over.append(blocked_s - max(self._config.request_timeout_s, patience_s))
        return max(over, default=None)

    def _watch(self) -> None:
        if self._watchdog is None:
            self._watchdog = self._loop.call_later(
                self._config.request_timeout_s * _WATCHDOG_SHARE, self._look
            )

    def _look(self) -> None:
        """Close a dead connection also when all who waited have given up by themselves.

        It comes after their own deadlines, so that they hear of a timeout, not of our closing.
        """
        self._watchdog = None
        silent_s = self._silent_s()
        if silent_s is None:
            return  # the next write sets it again
        late_s = self._config.request_timeout_s * (_WATCHDOG_SHARE - 1)
        if silent_s >= late_s:
            self.close(f"no answer for {self._config.request_timeout_s * 1000:.0f} ms")
        else:
            self._watchdog = self._loop.call_later(late_s - silent_s, self._look)

    def _closed(self, reason: str) -> None:
        self.close_reason = reason
        self._writable.set()  # writers wake up and find it closed
        self._blocked_since = None
        if self._watchdog is not None:
            self._watchdog.cancel()
        lost = len(self._protocol.eof())
        waiters = [waiter for waiter in self._waiters.values() if not waiter.answer.done()]
        self._waiters.clear()
        for waiter in waiters:
            waiter.answer.set_exception(KafkaConnectionError(f"{self._name}: {reason}"))
        self._on_close(self, reason, lost)


async def open_connection(
    address: Address,
    config: NetConfig,
    version: BrokerVersion,
    on_close: Callable[[BrokerConnection, str, int], None],
) -> BrokerConnection:
    """Connect to a broker; the host name is resolved anew each time.

    Raises:
        KafkaConnectionError: the connection can't be made.
        KafkaTimeoutError: nor within `request_timeout_ms`.
    """
    loop = asyncio.get_running_loop()

    async def connect(ip: str) -> BrokerConnection:
        _, connection = await loop.create_connection(
            lambda: BrokerConnection(address, config, version, on_close),
            ip,
            address[1],
            ssl=config.ssl_context,
            server_hostname=None if config.ssl_context is None else address[0],
        )
        return connection

    try:
        async with asyncio.timeout(config.request_timeout_s):
            return await connect_to_any_ip(
                address, config, connect, lambda one: one.close("another address was quicker")
            )
    except TimeoutError:
        raise KafkaTimeoutError(unreached(address, config, config.request_timeout_s)) from None
