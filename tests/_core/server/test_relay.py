"""A relay made of the server kit: one connection in, one out, frames passed on in order, pipelined.

It shows that the kit carries a server whose responses come from elsewhere.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

from aiokafka08._core.server.connection import (
    ConnectionHandler,
    ConnectionOptions,
    Exchange,
    ServerConnection,
)
from aiokafka08._core.server.listener import Listener
from aiokafka08._core.server.resources import ServerResources
from aiokafka08._core.server.work import Work, finish
from aiokafka08.protocol.frame import FrameReader
from tests._core.server.frames import frame, read_frame
from tests._core.server.test_echo import MIB, EchoServer, close
from tests.support.waiting import until

LOCAL = b"local"


class Upstream(asyncio.BufferedProtocol):
    """The connection out: its responses complete the exchanges of the connection in."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection
        self._frames = FrameReader(MIB)
        self._waiting: deque[Exchange] = deque()
        self.transport: asyncio.Transport

    def send(self, frame: memoryview, exchange: Exchange) -> None:
        self._waiting.append(exchange)
        self.transport.write(len(frame).to_bytes(4, "big") + bytes(frame))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._connection.resume_requests()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        for response in self._frames.received(nbytes):
            self._waiting.popleft().respond([len(response).to_bytes(4, "big"), response])

    def pause_writing(self) -> None:
        self._connection.hold_requests()

    def resume_writing(self) -> None:
        self._connection.resume_requests()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.close()


class RelayHandler(ConnectionHandler):
    """Passes frames on; answers one that begins with `LOCAL` itself, in its place."""

    def __init__(self, connection: ServerConnection, port: int, log: list[str]) -> None:
        self._log = log
        self._upstream = Upstream(connection)
        connection.hold_requests()
        loop = asyncio.get_running_loop()
        connecting = loop.create_connection(lambda: self._upstream, "127.0.0.1", port)
        self._connecting = asyncio.create_task(connecting)

    def handle(self, frame: memoryview, exchange: Exchange) -> Work[None]:
        if frame[: len(LOCAL)] == LOCAL:
            exchange.respond([len(frame).to_bytes(4, "big"), frame])
        else:
            self._upstream.send(frame, exchange)
        return finish(None)

    def pause_writing(self) -> None:
        self._log.append("paused")
        self._upstream.transport.pause_reading()

    def resume_writing(self) -> None:
        self._upstream.transport.resume_reading()

    def lost(self) -> None:
        self._connecting.cancel()
        if self._connecting.done():
            self._upstream.transport.abort()


@asynccontextmanager
async def relayed(log: list[str]) -> AsyncIterator[tuple[EchoServer, Listener]]:
    """Run an echo server and a relay to it."""
    resources = ServerResources(64 * MIB, "max_held_bytes", lambda: None)
    async with EchoServer() as server:
        listener = Listener(
            "relay",
            resources,
            ConnectionOptions(MIB, max_in_flight=100),
            lambda connection: RelayHandler(connection, server.listener.port, log),
        )
        listener.open("127.0.0.1", 0)
        try:
            yield server, listener
        finally:
            listener.close()
            await listener.wait_closed()
            await resources.close()


async def test_answers_keep_their_order() -> None:
    bodies = [(LOCAL if number % 3 else b"passed") + b"%d" % number for number in range(1000)]
    async with relayed([]) as (_, listener):
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(b"".join(map(frame, bodies)))
        assert [await read_frame(reader) for _ in bodies] == bodies
        await close(writer)


async def test_client_that_never_reads_stops_the_requests() -> None:
    body, count, log = bytes(100_000), 500, list[str]()
    async with relayed(log) as (server, listener):
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(frame(body) * count)
        await until(lambda: "paused" in log, "the client's socket is full")
        for _ in range(100):
            await asyncio.sleep(0)
        assert server.handled_bytes < count * len(body)
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        for _ in range(count):
            assert await read_frame(reader) == body
        await close(writer)


async def test_end_of_the_server_behind_ends_the_client() -> None:
    async with relayed([]) as (server, listener):
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(frame(b"passed"))
        assert await read_frame(reader) == b"passed"
        server.listener.drop_connections()
        assert not await reader.read()
        await close(writer)
