"""A new connection, on which raw frames are sent and read before a client's protocol takes it over.

Invariant: a frame that is larger than its reader allows isn't read. If a frame doesn't begin with a
possible size, the error says what its first bytes look like.
"""

from __future__ import annotations

import asyncio
from typing import cast

from aiokafka08._core.net.config import Address, NetConfig
from aiokafka08._core.net.connect import certificate_host
from aiokafka08.errors import KafkaConnectionError, KafkaProtocolError


class WrongPortError(KafkaProtocolError):
    """The peer is certainly no listener of a broker for this client; no retry changes that."""


class RawStream(asyncio.StreamReaderProtocol):
    """A connection; `connect_raw()` makes it."""

    def __init__(self) -> None:
        self.reader = asyncio.StreamReader()  # what the peer sends
        super().__init__(self.reader)
        # Done when the socket is really closed
        self.socket_closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._socket: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast(asyncio.Transport, transport)
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if not self.socket_closed.done():
            self.socket_closed.set_result(None)

    def write(self, data: bytes) -> None:
        """Write without waiting for the socket, for the few bytes of a handshake."""
        assert self._socket is not None
        self._socket.write(data)

    async def read_frame(self, least: int, most: int) -> bytes | None:
        """Read a frame of `least` to `most` bytes; return None if the peer has closed instead.

        Raises:
            KafkaProtocolError: a frame of the peer can't have this size.
            WrongPortError: the peer responds in TLS.
            KafkaConnectionError: the connection was closed in the middle of a frame.
        """
        try:
            size_bytes = await self.reader.readexactly(4)
            size = int.from_bytes(size_bytes, "big", signed=True)
            if not least <= size <= most:
                raise _not_kafka(size_bytes)
        except asyncio.IncompleteReadError as error:
            if error.partial:
                raise KafkaConnectionError("closed in the middle of a response") from None
            return None
        except ConnectionError:
            return None
        try:
            return await self.reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError):
            raise KafkaConnectionError("closed in the middle of a response") from None

    def hand_over(self, protocol: asyncio.BufferedProtocol) -> None:
        """Let another protocol have the connection, as if it had just been made."""
        assert self._socket is not None
        self._socket.set_protocol(protocol)
        protocol.connection_made(self._socket)
        if self.reader.at_eof():  # the EOF came before, and asyncio reports it only once
            protocol.eof_received()

    def abort(self) -> None:
        """Close at once."""
        if self._socket is not None:
            self._socket.abort()

    async def close(self) -> None:
        """Close at once, and wait until the socket is closed."""
        self.abort()
        if self._socket is not None:
            await self.socket_closed


async def connect_raw(ip: str, address: Address, config: NetConfig) -> RawStream:
    _, stream = await asyncio.get_running_loop().create_connection(
        RawStream,
        ip,
        address[1],
        ssl=config.ssl_context,
        server_hostname=certificate_host(address, config),
    )
    return stream


def _not_kafka(first_bytes: bytes) -> KafkaProtocolError:
    if first_bytes.startswith(b"HTTP"):
        return KafkaProtocolError("not a Kafka broker: it responds in HTTP")
    if first_bytes[:2] in (b"\x15\x03", b"\x16\x03"):
        return WrongPortError(
            "not a Kafka broker: it responds in TLS. Set security_protocol='SSL' (with SASL: "
            "'SASL_SSL') and ssl_context"
        )
    return KafkaProtocolError(f"not a Kafka broker: its response begins with {first_bytes!r}")
