"""Probe the version of a broker on a throw-away connection: the I/O around `detect_version()`.

`node` probes each broker before its first connection, and again after an outage.

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
    CONNECT_ERRORS,
    connect_to_any_ip,
    connection_error,
    timeout_text,
)
from aiokafka08._core.net.versions import BrokerVersion, Probe, detect_version
from aiokafka08.errors import (
    KafkaConnectionError,
    KafkaError,
    KafkaProtocolError,
    KafkaTimeoutError,
)
from aiokafka08.protocol.api import decode_correlation_id, encode_request

_CORRELATION_ID: Final = 1


async def probe_version(
    address: Address,
    config: NetConfig,
    progress: Callable[[str], object] = lambda text: None,
    responded: Callable[[float], object] = lambda took_s: None,
    *,
    exact: bool = False,
) -> BrokerVersion:
    """Return the version of the broker at `address`.

    Args:
        address: host and port; the host name is resolved anew for each connection.
        config: the options of the network layer.
        progress: called with a text that describes the current wait.
        responded: called with the seconds that each response has taken. The requests are tiny, so
            the shortest time is about a round trip.
        exact: see `detect_version()`.

    Raises:
        UnsupportedVersionError: it is a 4.x broker.
        KafkaConnectionError: nothing listens there, or the TLS handshake fails.
        KafkaTimeoutError: the peer accepts connections, but doesn't respond.
        KafkaProtocolError: the peer isn't a Kafka broker.
    """
    where = address_text(address)
    # End before the callers' deadlines: the error raised here says more than their timeouts.
    limit_s = config.request_timeout_s * 0.9
    probing = _ProbeConnection(address, config, progress, responded)
    try:
        async with asyncio.timeout(limit_s):
            steps = detect_version(exact)
            probe = next(steps)
            while True:
                frame = await probing.request(probe)
                try:
                    probe = steps.send(frame)
                except StopIteration as stop:
                    version: BrokerVersion = stop.value
                    return version
    except TimeoutError:
        if probing.timeout_reason is None:
            raise KafkaTimeoutError(timeout_text(address, config, limit_s)) from None
        raise KafkaTimeoutError(
            f"{where}: {probing.timeout_reason} within {limit_s * 1000:.0f} ms. Check that it is a "
            "Kafka broker"
        ) from None
    except CONNECT_ERRORS as error:
        raise connection_error(address, config, error) from error
    except KafkaError as error:
        text = error.text.removeprefix(f"{where}: ")
        raise type(error)(f"{where}: {text}") from error.__cause__
    finally:
        await probing.close()


class _ProbeConnection:
    """A connection for one request at a time, with raw frames as responses."""

    def __init__(
        self,
        address: Address,
        config: NetConfig,
        progress: Callable[[str], object],
        responded: Callable[[float], object],
    ) -> None:
        self._address = address
        self._config = config
        self._progress = progress
        self._responded = responded
        self._time = asyncio.get_running_loop().time
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self.timeout_reason: str | None = None
        """Why the probe fails if it times out now, as text; None while connecting."""

    async def _connect(self, ip: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port = self._address
        context = self._config.ssl_context
        return await asyncio.open_connection(
            ip, port, ssl=context, server_hostname=None if context is None else host
        )

    async def request(self, probe: Probe) -> memoryview | None:
        """Return the frame of the response, or None if the peer closed the connection instead."""
        if probe.fresh or self._streams is None:
            await self.close()
            self.timeout_reason = None
            self._progress("connecting")
            self._streams = await connect_to_any_ip(
                self._address,
                self._config,
                self._connect,
                lambda streams: streams[1].transport.abort(),
            )
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
                raise KafkaProtocolError(f"not a Kafka broker: {_describe_bytes(size_bytes)}")
            frame = memoryview(await _exactly(reader, size))
        except asyncio.IncompleteReadError as error:
            if error.partial:
                raise KafkaConnectionError("closed in the middle of a response") from None
            return None  # a broker closes the connection on a request that it doesn't know
        except ConnectionError:
            return None
        if decode_correlation_id(frame) != _CORRELATION_ID:
            raise KafkaProtocolError("not a Kafka broker: its response has a wrong correlation id")
        self._responded(self._time() - sent_at)
        return frame

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


def _describe_bytes(first_bytes: bytes) -> str:
    if first_bytes.startswith(b"HTTP"):
        return "it responds in HTTP"
    if first_bytes[:2] in (b"\x15\x03", b"\x16\x03"):
        return "it responds in TLS. Set security_protocol='SSL' and ssl_context"
    return f"its response begins with {first_bytes!r}"
