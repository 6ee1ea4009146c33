"""Peers for tests of single connections: sockets that do, byte by byte, what a test says.

`aiokafka08.testing.EmbeddedCluster` is the fake that behaves like brokers. These peers are for what
no broker does and no fault of the cluster offers: not reading, responding when the test says so,
HTTP, silence.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from aiokafka08._core.net.config import Address
from aiokafka08.errors import NotCoordinatorForGroupError
from aiokafka08.protocol.api import ApiKey, Response, Topic, encode_response
from aiokafka08.protocol.requests.committed_offsets import CommittedPartition, OffsetFetchResponse
from aiokafka08.protocol.requests.fetch import FetchResponse
from aiokafka08.protocol.requests.list_offsets import ListOffsetsResponse
from aiokafka08.protocol.requests.metadata import MetadataResponse, PartitionState, TopicState
from tests.protocol.decoding import Envelope, decode_request
from tests.support.stream_server import StreamServer


class PeerConnection:
    """The peer's end of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def read(self) -> Envelope:
        """Read the next request."""
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        request = decode_request(await self.reader.readexactly(size))
        assert isinstance(request, Envelope)
        return request

    def respond(
        self,
        request: Envelope,
        response: Response,
        *,
        correlation_id: int | None = None,
        cut: int | None = None,
        layout: int | None = None,
    ) -> None:
        """Write the response; `cut` writes only its first bytes.

        `layout` is the version whose layout it has, by default the request's.
        """
        if correlation_id is None:
            correlation_id = request.header.correlation_id
        version = request.header.api_version if layout is None else layout
        frame = b"".join(encode_response(response, version, correlation_id))
        self.writer.write(frame[:cut])

    async def wait_eof(self) -> None:
        """Read and discard until the client closes."""
        while await self.reader.read(1 << 16):
            pass

    def close(self) -> None:
        self.writer.close()

    def reset(self) -> None:
        """Close with a TCP reset."""
        sock: socket.socket = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.writer.transport.abort()


class Peer:
    """A listening socket on loopback; `link()` returns its connections one by one."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.accepted = 0
        self.links: list[PeerConnection] = []
        self._new: asyncio.Queue[PeerConnection] = asyncio.Queue()

    async def link(self) -> PeerConnection:
        """Wait for the next accepted connection."""
        async with asyncio.timeout(10):
            return await self._new.get()

    def _connected(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> PeerConnection:
        self.accepted += 1
        link = PeerConnection(reader, writer)
        self.links.append(link)
        self._new.put_nowait(link)
        return link


Serve = Callable[[PeerConnection], Awaitable[Any]]


@contextlib.asynccontextmanager
async def listening(
    serve: Serve | None = None,
    *,
    port: int = 0,
    host: str = "127.0.0.1",
    tls: ssl.SSLContext | None = None,
    receive_buffer: int | None = None,
) -> AsyncIterator[Peer]:
    """Yield a listening peer; `serve` runs for each connection.

    Without `serve`, the test reads and responds itself. `receive_buffer`: a small SO_RCVBUF, so
    that a peer that doesn't read blocks the client soon.
    """

    async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = peer._connected(reader, writer)
        if serve is None:
            await asyncio.Event().wait()
        else:
            await serve(link)

    # The stream's limit stops asyncio from reading ahead; then the kernel's buffer fills.
    async with StreamServer(
        run, host=host, port=port, tls=tls, receive_buffer=receive_buffer, limit=1024
    ) as server:
        peer = Peer((host, server.port))
        yield peer


class ScriptedPeer:
    """A broker of 0.8 with fixed responses by API key, in layout 0; it closes on other requests.

    It can cut the n-th response.
    """

    def __init__(self, responses: dict[int, Response]) -> None:
        self.responses = responses
        self.requests: list[int] = []
        self.cut_at: dict[int, int] = {}
        """Number of the request, from 1 on, and how many bytes of its response are sent."""

    async def __call__(self, link: PeerConnection) -> None:
        while True:
            request = await link.read()
            key = request.header.api_key
            self.requests.append(key)
            if key not in self.responses:
                return
            cut = self.cut_at.get(len(self.requests))
            link.respond(request, self.responses[key], cut=cut, layout=0)
            if cut is not None:
                await link.writer.drain()
                return


OF_0_8_2: dict[int, Response] = {
    ApiKey.LIST_OFFSETS: ListOffsetsResponse([]),
    ApiKey.FETCH: FetchResponse(0, []),
    ApiKey.METADATA: MetadataResponse(
        [], -1, [TopicState(0, "t", False, [PartitionState(0, 0, 0, [0], [0])])]
    ),
    ApiKey.OFFSET_FETCH: OffsetFetchResponse(
        [Topic("t", [CommittedPartition(0, -1, "", NotCoordinatorForGroupError.errno)])]
    ),
}
"""What makes a `ScriptedPeer` an 0.8.2 broker, as far as version detection sees."""


async def close_at_once(link: PeerConnection) -> None:
    """A peer that accepts and closes."""


async def swallow(link: PeerConnection) -> None:
    """A peer that reads and says nothing."""
    await link.wait_eof()


async def http(link: PeerConnection) -> None:
    """A web server."""
    await link.reader.read(1)
    link.writer.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
    await link.wait_eof()
