"""Probe the version of a broker: the I/O around `detect_version()` on throw-away connections.

`find_line` only distinguishes 0.8, 0.9 and newer brokers, but it works on an open connection.

Invariant: `probe_version()` ends within `request_timeout_ms` and leaves no socket open. If a
response doesn't begin with the size of a Kafka frame, the error says what its first bytes look
like.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from aiokafka08 import environment
from aiokafka08._core.net.config import Address, NetConfig, address_text
from aiokafka08._core.net.connect import (
    PendingStep,
    connect_to_any_ip,
    ip_addresses,
    timeout_text,
)
from aiokafka08._core.net.raw_stream import RawStream, WrongPortError, connect_raw
from aiokafka08._core.net.versions import (
    FETCH_PROBE,
    METADATA_PROBE,
    BrokerLine,
    BrokerVersion,
    Probe,
    alive_request,
    detect_version,
    is_before_0_10,
    is_of_0_8,
)
from aiokafka08.errors import (
    KafkaConnectionError,
    KafkaError,
    KafkaProtocolError,
    KafkaTimeoutError,
)
from aiokafka08.protocol.api import decode_correlation_id, encode_request

if TYPE_CHECKING:
    from aiokafka08._core.net.authentication import FrameStream

_CORRELATION_ID: Final = 1

# Timeout of ZooKeeper's command, which is sent only to a peer that isn't a broker
_ZOOKEEPER_LIMIT_S: Final = 1.0

_ZOOKEEPER_ANSWERS: Final = (
    b"Zookeeper version",
    b"This ZooKeeper instance is not currently serving requests",
    b"srvr is not executed",  # not in 4lw.commands.whitelist
)


async def probe_version(
    address: Address,
    config: NetConfig,
    progress: Callable[[str], object] = lambda text: None,
    responded: Callable[[float], object] = lambda took_s: None,
    found_at: Callable[[str], object] = lambda ip: None,
    *,
    exact: bool = False,
) -> BrokerVersion:
    """Return the version of the broker at `address`.

    Args:
        address: host and port; the host name is resolved anew.
        config: the options of the network layer.
        progress: called with a text about each step that is waited for.
        responded: called with the seconds that each response has taken. The requests are tiny, so
            the shortest time is about a round trip.
        found_at: called with the IP address of the broker.
        exact: see `detect_version()`.

    Raises:
        UnsupportedVersionError: it is a 4.x broker.
        KafkaConnectionError: nothing listens there, or the TLS handshake fails. Also if the host
            has several addresses that fail in different ways.
        KafkaTimeoutError: the peer accepts connections, but doesn't respond.
        KafkaProtocolError: the peer isn't a Kafka broker.
        WrongPortError: it is a TLS listener, but the client doesn't use TLS, or it is ZooKeeper.
    """
    # End before the callers' deadlines, because the error raised here says more than their
    # timeouts. And leave time for another attempt: new connections may reach a broker when this
    # attempt hangs.
    limit_s = min(
        config.request_timeout_s * 0.9,
        max(config.request_timeout_s / 4, config.limits.attempt_s),
    )
    deadline = asyncio.get_running_loop().time() + limit_s
    progress("resolving the name")
    ips = await ip_addresses(address, config, limit_s)

    async def probe(ip: str) -> tuple[str, BrokerVersion]:
        doubt_s = min(limit_s / 2, config.limits.unresponsive_s)
        probing = _ProbeConnection(ip, address, config, progress, responded, doubt_s)
        try:
            async with asyncio.timeout_at(deadline) as limit:
                return ip, await _detect(probing, exact)
        except TimeoutError:
            if not limit.expired():
                raise  # a timeout of the operating system, such as ETIMEDOUT
            wait = probing.wait
            if wait is None:
                raise KafkaTimeoutError(timeout_text(address, config, limit_s)) from None
            advice = ". Check that it is a Kafka broker" if wait.is_for_peer else ""
            raise wait.timeout_error(
                f"{address_text(address)}: ", f" within {limit_s * 1000:.0f} ms{advice}"
            ) from None
        finally:
            await probing.close()

    ip, version = await connect_to_any_ip(address, config, ips, probe, limit_s)
    found_at(ip)
    return version


async def find_line(
    stream: FrameStream, address: Address, config: NetConfig, within_s: float
) -> BrokerLine:
    """Return the line of the broker at the other end of a connection, by one or two requests.

    V0_8 stands for all of 0.8, and V0_10 for all from 0.10 on, 4.x too. No release closes the
    connection on these requests or harms other connections (docs/brokers.md 2.2).

    Args:
        stream: the connection, which is authenticated.
        address: the broker's address, for errors.
        config: the options of the network layer.
        within_s: how long the broker may take, in seconds.

    Raises:
        KafkaConnectionError: the peer has closed the connection.
        KafkaTimeoutError: it doesn't respond.
    """

    async def is_one(probe: Probe, fits: Callable[[memoryview], bool]) -> bool:
        request = encode_request(probe.request, probe.version, _CORRELATION_ID, config.client_id)
        stream.write(b"".join(request))
        frame = await stream.read_frame(4, config.max_frame_bytes)
        if frame is None:
            raise KafkaConnectionError(
                f"{address_text(address)}: it has closed the connection without an answer. The "
                "port may be one for SASL"
            )
        # In a thread, because a response of brokers up to 0.9 lists all topics.
        return await environment.run_in_thread(partial(fits, memoryview(frame)))

    try:
        async with asyncio.timeout(within_s):
            if not await is_one(METADATA_PROBE, is_before_0_10):
                return BrokerLine.V0_10
            return BrokerLine.V0_8 if await is_one(FETCH_PROBE, is_of_0_8) else BrokerLine.V0_9
    except TimeoutError:
        wait = PendingStep.for_response("Metadata")
        raise wait.timeout_error(f"{address_text(address)}: ") from None


async def _detect(probing: _ProbeConnection, exact: bool) -> BrokerVersion:
    steps = detect_version(exact)
    probe = next(steps)
    while True:
        try:
            frame = await probing.request(probe)
            probe = steps.send(frame)
        except StopIteration as stop:
            version: BrokerVersion = stop.value
            return version
        except KafkaProtocolError as error:
            if isinstance(error, WrongPortError) or not await probing.is_zookeeper():
                raise
            raise WrongPortError(
                "not a Kafka broker: it is a ZooKeeper server. Expected the port of a broker, "
                "usually 9092; ZooKeeper's addresses belong to zookeeper_connect (for commands "
                "zookeeper.connect)"
            ) from None


class _ProbeConnection:
    """A connection for one request at a time, with raw frames as responses."""

    def __init__(
        self,
        ip: str,
        address: Address,
        config: NetConfig,
        progress: Callable[[str], object],
        responded: Callable[[float], object],
        doubt_s: float,
    ) -> None:
        self._ip = ip
        self._address = address
        self._config = config
        self._progress = progress
        self._responded = responded
        # How long a peer may be silent after SASL has begun, until a probe without SASL is tried
        self._doubt_s = doubt_s
        self._time = asyncio.get_running_loop().time
        self._stream: RawStream | None = None
        self._has_responded = False
        self._peer_waits = 0  # how often the probe has waited for the peer on this connection
        self.wait: PendingStep | None = None
        """What the probe waits for; None while connecting."""

    async def _connect(self) -> RawStream:
        await self.close()
        self.wait = None
        self._peer_waits = 0
        self._progress("connecting")
        self._stream = await connect_raw(self._ip, self._address, self._config)
        return self._stream

    async def _connect_authenticated(self) -> RawStream:
        mechanism = self._config.sasl
        if mechanism is None:
            return await self._connect()
        from aiokafka08._core.net.authentication import not_sasl, open_authenticated

        opening = asyncio.ensure_future(
            open_authenticated(
                self._connect, self._address, self._config, mechanism, None, self._waiting
            )
        )
        tasks: list[asyncio.Future[Any]] = [opening]
        try:
            while not (await asyncio.wait(tasks, timeout=self._doubt_s))[0]:
                if self._peer_waits == 1:  # it hasn't responded to anything on this connection
                    plain = asyncio.ensure_future(self._serves_without_sasl())
                    tasks.append(plain)
                    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                    if not opening.done() and plain.result():
                        raise not_sasl(address_text(self._address), mechanism)
                    break
            return (await opening).stream
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _serves_without_sasl(self) -> bool:
        """Return whether the peer answers a client that doesn't authenticate."""
        # A listener of 0.9 without SASL neither answers the first request of an authentication nor
        # closes the connection (docs/brokers.md 14.6). One with SASL closes it on this request.
        request = encode_request(alive_request(), 0, _CORRELATION_ID, self._config.client_id)
        try:
            stream = await connect_raw(self._ip, self._address, self._config)
            try:
                stream.write(b"".join(request))
                read = await stream.read_frame(4, self._config.max_frame_bytes)
            finally:
                await stream.close()
        except (OSError, KafkaError):
            return False  # the authentication goes on, and its own error says more
        return read is not None and decode_correlation_id(memoryview(read)) == _CORRELATION_ID

    def _waiting(self, wait: PendingStep) -> None:
        self.wait = wait
        self._peer_waits += wait.is_for_peer
        self._progress(wait.progress)

    async def request(self, probe: Probe) -> memoryview | None:
        """Return the response's frame; None if the peer closed the connection instead."""
        if probe.fresh or self._stream is None:
            stream = await self._connect_authenticated()
        else:
            stream = self._stream
        name = type(probe.request).__name__
        self._waiting(PendingStep.for_response(name))
        sent_at = self._time()
        stream.write(
            b"".join(
                encode_request(
                    probe.request, probe.version, _CORRELATION_ID, self._config.client_id
                )
            )
        )
        read = await stream.read_frame(4, self._config.max_frame_bytes)
        if read is None:
            return None  # a broker closes the connection on a request that it doesn't know
        frame = memoryview(read)
        if decode_correlation_id(frame) != _CORRELATION_ID:
            raise KafkaProtocolError("not a Kafka broker: its response has a wrong correlation id")
        self._has_responded = True
        self._responded(self._time() - sent_at)
        return frame

    async def is_zookeeper(self) -> bool:
        """Return whether a peer that isn't a broker answers a command of ZooKeeper."""
        if self._has_responded or self._config.ssl_context or self._config.sasl:
            return False  # no broker must receive the command, since it would log an error
        try:
            # ZooKeeper closes the connection on Kafka's requests, or mistakes one for the
            # request of a session and responds to it.
            async with asyncio.timeout(_ZOOKEEPER_LIMIT_S):
                stream = await self._connect()
                stream.write(b"srvr")
                answer = await stream.reader.read(max(map(len, _ZOOKEEPER_ANSWERS)))
        except OSError:  # also the timeout
            return False
        return answer.startswith(_ZOOKEEPER_ANSWERS)

    async def close(self) -> None:
        if self._stream is not None:
            stream, self._stream = self._stream, None
            await stream.close()
