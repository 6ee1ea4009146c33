"""Asks a broker for its line on a throw-away connection: the I/O around `versions.detect`.

Law: ends within the deadline it is given, leaves no socket behind, and says of a peer that is no
Kafka broker what it is instead, as far as its bytes tell.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiokafka08.errors import (
    KafkaConnectionError,
    KafkaError,
    KafkaProtocolError,
    KafkaTimeoutError,
)
from aiokafka08.net.config import Address, NetConfig, address_text
from aiokafka08.net.connect import (
    CONNECT_ERRORS,
    connect_to_any_ip,
    connection_error,
    timeout_text,
)
from aiokafka08.net.versions import BrokerVersion, Probe, detect
from aiokafka08.protocol.api import decode_correlation_id, encode_request

_CORRELATION_ID = 1


async def probe_version(
    address: Address, config: NetConfig, progress: Callable[[str], object] | None = None
) -> BrokerVersion:
    """Find out which line of brokers listens at `address`.

    Args:
        address: where it listens; the host name is resolved anew for each connection.
        config: the options of the network layer.
        progress: told what is being waited for.

    Raises:
        UnsupportedVersionError: a 4.x broker.
        KafkaConnectionError: nobody listens, or the TLS handshake fails.
        KafkaTimeoutError: the peer accepts connections but stays silent.
        KafkaProtocolError: the peer isn't a Kafka broker.
    """
    where = address_text(address)
    limit_s = config.request_timeout_s * 0.9  # end before the callers do, who know less
    conversation = _Conversation(address, config, progress or (lambda text: None))
    try:
        async with asyncio.timeout(limit_s):
            steps = detect()
            probe = next(steps)
            while True:
                frame = await conversation.ask(probe)
                try:
                    probe = steps.send(frame)
                except StopIteration as found:
                    version: BrokerVersion = found.value
                    return version
    except TimeoutError:
        if conversation.asked is None:
            raise KafkaTimeoutError(timeout_text(address, config, limit_s)) from None
        raise KafkaTimeoutError(
            f"{where} {conversation.asked} within {limit_s * 1000:.0f} ms; is it a Kafka broker?"
        ) from None
    except CONNECT_ERRORS as error:
        raise connection_error(address, config, error) from error
    except KafkaError as error:
        text = error.text.removeprefix(f"{where}: ")
        raise type(error)(f"{where}: {text}") from None
    finally:
        await conversation.close()


class _Conversation:
    """One request at a time, raw frames as answers."""

    def __init__(
        self, address: Address, config: NetConfig, progress: Callable[[str], object]
    ) -> None:
        self._address = address
        self._config = config
        self._progress = progress
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self.asked: str | None = None
        """What it doesn't do while we wait; None before it was asked anything."""

    async def _connect(self, ip: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port = self._address
        context = self._config.ssl_context
        return await asyncio.open_connection(
            ip, port, ssl=context, server_hostname=None if context is None else host
        )

    async def ask(self, probe: Probe) -> memoryview | None:
        """The answer's frame, or None where the peer closed the connection instead."""
        if probe.fresh or self._streams is None:
            await self.close()
            self.asked = None
            self._progress("connecting")
            self._streams = await connect_to_any_ip(
                self._address,
                self._config,
                self._connect,
                lambda streams: streams[1].transport.abort(),
            )
        reader, writer = self._streams
        name = type(probe.request).__name__
        self.asked = f"accepts connections but doesn't answer {name}"
        self._progress(f"it {self.asked}")
        try:
            writer.writelines(
                encode_request(
                    probe.request, probe.version, _CORRELATION_ID, self._config.client_id
                )
            )
            size_bytes = await reader.readexactly(4)
            size = int.from_bytes(size_bytes, "big", signed=True)
            if not 4 <= size <= self._config.max_frame_bytes:
                raise KafkaProtocolError(f"not a Kafka broker: {_guess(size_bytes)}")
            frame = memoryview(await _exactly(reader, size))
        except asyncio.IncompleteReadError as error:
            if error.partial:  # an answer was on its way: that isn't how brokers say "unknown"
                raise KafkaConnectionError("closed within its answer") from None
            return None
        except ConnectionError:
            return None
        if decode_correlation_id(frame) != _CORRELATION_ID:
            raise KafkaProtocolError("not a Kafka broker: its answer has a wrong correlation id")
        return frame

    async def close(self) -> None:
        if self._streams is not None:
            _, writer = self._streams
            self._streams = None
            writer.transport.abort()
            try:
                await writer.wait_closed()
            except OSError:
                pass  # it was closed on us; that was the answer


async def _exactly(reader: asyncio.StreamReader, size: int) -> bytes:
    try:
        return await reader.readexactly(size)
    except (asyncio.IncompleteReadError, ConnectionError):
        raise KafkaConnectionError("closed within its answer") from None


def _guess(first_bytes: bytes) -> str:
    if first_bytes.startswith(b"HTTP"):
        return "it answers in HTTP"
    if first_bytes[:2] in (b"\x15\x03", b"\x16\x03"):
        return "it answers in TLS (set security_protocol='SSL' and ssl_context)"
    return f"its answer begins with {first_bytes!r}"
