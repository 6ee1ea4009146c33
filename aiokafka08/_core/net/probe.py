"""Probe the version of a broker on throw-away connections: the I/O around `detect_version()`.

`node` probes each broker before its first connection, and again after an outage. A name may stand
for several addresses. They are probed with staggered starts, and the first one whose version is
found is the broker's: a listener that accepts connections may be a balancer without a broker behind
it, or a web server.

Invariant: `probe_version()` ends within `request_timeout_ms` and leaves no socket open. If a
response doesn't begin with the size of a Kafka frame, the error says what its first bytes look
like.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from aiokafka08._core.net.config import Address, NetConfig, address_text
from aiokafka08._core.net.connect import (
    certificate_host,
    connect_to_any_ip,
    ip_addresses,
    timeout_text,
)
from aiokafka08._core.net.versions import BrokerVersion, Probe, detect_version
from aiokafka08.errors import KafkaConnectionError, KafkaProtocolError, KafkaTimeoutError
from aiokafka08.protocol.api import decode_correlation_id, encode_request

_CORRELATION_ID: Final = 1

_ZOOKEEPER_LIMIT_S: Final = 1.0
"""How long a peer that isn't a broker has to answer ZooKeeper's command."""

_ZOOKEEPER_ANSWERS: Final = (
    b"Zookeeper version",
    b"This ZooKeeper instance is not currently serving requests",
    b"srvr is not executed",  # not in 4lw.commands.whitelist
)


class WrongPortError(KafkaProtocolError):
    """The peer is certainly no listener of a broker for this client; no retry changes that."""


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
        progress: called with a text that describes the current wait.
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
    # End before the callers' deadlines: the error raised here says more than their timeouts. And
    # leave time for another attempt: new connections may reach a broker when this one hangs.
    limit_s = min(
        config.request_timeout_s * 0.9,
        max(config.request_timeout_s / 4, config.limits.attempt_s),
    )
    deadline = asyncio.get_running_loop().time() + limit_s
    progress("resolving the name")
    ips = await ip_addresses(address, config, limit_s)

    async def probe(ip: str) -> tuple[str, BrokerVersion]:
        probing = _ProbeConnection(ip, address, config, progress, responded)
        try:
            async with asyncio.timeout_at(deadline) as limit:
                return ip, await _detect(probing, exact)
        except TimeoutError:
            if not limit.expired():
                raise  # the system's
            raise KafkaTimeoutError(
                timeout_text(address, config, limit_s)
                if probing.timeout_reason is None
                else f"{address_text(address)}: {probing.timeout_reason} within "
                f"{limit_s * 1000:.0f} ms. Check that it is a Kafka broker"
            ) from None
        finally:
            await probing.close()

    ip, version = await connect_to_any_ip(address, config, ips, probe, limit_s)
    found_at(ip)
    return version


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
    ) -> None:
        self._ip = ip
        self._address = address
        self._config = config
        self._progress = progress
        self._responded = responded
        self._time = asyncio.get_running_loop().time
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._has_responded = False
        self.timeout_reason: str | None = None
        """Why the probe fails if it times out now, as text; None while connecting."""

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        await self.close()
        self.timeout_reason = None
        self._progress("connecting")
        self._streams = await asyncio.open_connection(
            self._ip,
            self._address[1],
            ssl=self._config.ssl_context,
            server_hostname=certificate_host(self._address, self._config),
        )
        return self._streams

    async def request(self, probe: Probe) -> memoryview | None:
        """Return the frame of the response, or None if the peer closed the connection instead."""
        if probe.fresh or self._streams is None:
            reader, writer = await self._connect()
        else:
            reader, writer = self._streams
        name = type(probe.request).__name__
        self.timeout_reason = f"accepts connections but doesn't respond to {name}"
        self._progress(f"it {self.timeout_reason}")
        sent_at = self._time()
        try:
            writer.writelines(
                encode_request(
                    probe.request, probe.version, _CORRELATION_ID, self._config.client_id
                )
            )
            size_bytes = await reader.readexactly(4)
            size = int.from_bytes(size_bytes, "big", signed=True)
            if not 4 <= size <= self._config.max_frame_bytes:
                raise _not_kafka(size_bytes)
            frame = memoryview(await _exactly(reader, size))
        except asyncio.IncompleteReadError as error:
            if error.partial:
                raise KafkaConnectionError("closed in the middle of a response") from None
            return None  # a broker closes the connection on a request that it doesn't know
        except ConnectionError:
            return None
        if decode_correlation_id(frame) != _CORRELATION_ID:
            raise KafkaProtocolError("not a Kafka broker: its response has a wrong correlation id")
        self._has_responded = True
        self._responded(self._time() - sent_at)
        return frame

    async def is_zookeeper(self) -> bool:
        """Return whether a peer that isn't a broker answers a command of ZooKeeper.

        It closes on Kafka's requests, or takes one for a session and responds to that.
        """
        if self._has_responded or self._config.ssl_context is not None:
            return False  # no broker must receive the command: it would log an error
        try:
            async with asyncio.timeout(_ZOOKEEPER_LIMIT_S):
                reader, writer = await self._connect()
                writer.write(b"srvr")
                answer = await reader.read(max(map(len, _ZOOKEEPER_ANSWERS)))
        except OSError:  # also the timeout
            return False
        return answer.startswith(_ZOOKEEPER_ANSWERS)

    async def close(self) -> None:
        if self._streams is not None:
            _, writer = self._streams
            self._streams = None
            writer.transport.abort()
            try:
                await writer.wait_closed()
            except OSError:
                pass  # the peer had closed it already


async def _exactly(reader: asyncio.StreamReader, size: int) -> bytes:
    try:
        return await reader.readexactly(size)
    except (asyncio.IncompleteReadError, ConnectionError):
        raise KafkaConnectionError("closed in the middle of a response") from None


def _not_kafka(first_bytes: bytes) -> KafkaProtocolError:
    if first_bytes.startswith(b"HTTP"):
        return KafkaProtocolError("not a Kafka broker: it responds in HTTP")
    if first_bytes[:2] in (b"\x15\x03", b"\x16\x03"):
        return WrongPortError(
            "not a Kafka broker: it responds in TLS. Set security_protocol='SSL' and ssl_context"
        )
    return KafkaProtocolError(f"not a Kafka broker: its response begins with {first_bytes!r}")
