"""An echo server made of the server kit alone: what the kit gives to any server.

Invariant: this module imports nothing of `aiokafka08.testing`.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from typing import Self

import pytest

from aiokafka08._core.server.connection import (
    ConnectionHandler,
    ConnectionOptions,
    Exchange,
    ServerConnection,
)
from aiokafka08._core.server.listener import Listener
from aiokafka08._core.server.resources import ServerResources
from aiokafka08._core.server.work import PAUSE, Work
from tests._core.server.frames import frame, read_frame
from tests.support.waiting import until

MIB = 1 << 20
BUSY = b"busy"


class EchoHandler(ConnectionHandler):
    """Answers each frame with itself; one that begins with `BUSY` takes 50 steps of 2 ms."""

    def __init__(self, server: EchoServer, connection: ServerConnection) -> None:
        self._server = server
        server.log.append(f"{connection.host} connected")

    def handle(self, frame: memoryview, exchange: Exchange) -> Work[None]:
        self._server.handled_bytes += len(frame)
        if frame[: len(BUSY)] == BUSY:
            for _ in range(50):
                step_ends = time.perf_counter() + 0.002
                while time.perf_counter() < step_ends:
                    pass
                yield PAUSE
        exchange.respond([len(frame).to_bytes(4, "big"), frame])

    def pause_writing(self) -> None:
        self._server.log.append("paused")

    def evicted(self, reason: str) -> None:
        self._server.log.append(f"evicted: {reason}")

    def ended(self) -> None:
        self._server.log.append("ended")


class EchoServer:
    """Listens on a free port in an `async with` block."""

    def __init__(self, max_held_bytes: int = 64 * MIB) -> None:
        self.log: list[str] = []
        self.handled_bytes = 0
        self._resources = ServerResources(max_held_bytes, "max_held_bytes", lambda: None)
        self.listener = Listener(
            "echo",
            self._resources,
            ConnectionOptions(max_frame_bytes=MIB),
            lambda connection: EchoHandler(self, connection),
        )

    async def __aenter__(self) -> Self:
        self.listener.open("127.0.0.1", 0)
        return self

    async def __aexit__(self, *error: object) -> None:
        self.listener.close()
        await self.listener.wait_closed()
        await self._resources.close()


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connect(server: EchoServer) -> Streams:
    return await asyncio.open_connection("127.0.0.1", server.listener.port)


async def close(*writers: asyncio.StreamWriter) -> None:
    for writer in writers:
        writer.close()
        await writer.wait_closed()


async def test_frames_are_echoed_in_order() -> None:
    bodies = [b"%d" % number * (number % 50) for number in range(2000)] + [bytes(MIB), b"last"]
    async with EchoServer() as server:
        reader, writer = await connect(server)
        writer.write(b"".join(map(frame, bodies)))
        assert [await read_frame(reader) for _ in bodies] == bodies
        await close(writer)
        await until(lambda: server.log == ["127.0.0.1 connected", "ended"])


@pytest.mark.parametrize("size", [MIB + 1, -1])
async def test_frame_of_invalid_size_closes_behind_the_others(size: int) -> None:
    async with EchoServer() as server:
        reader, writer = await connect(server)
        writer.write(frame(b"good") + size.to_bytes(4, "big", signed=True) + bytes(100))
        assert await read_frame(reader) == b"good"
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await read_frame(reader)
        writer.close()


async def test_client_that_never_reads_stops_being_read() -> None:
    """It isn't evicted, so it holds less than 2 MiB; when it reads, nothing is missing."""
    body, count = bytes(100_000), 500
    async with EchoServer(2 * MIB) as server:
        reader, writer = await connect(server)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(frame(body) * count)
        await until(lambda: "paused" in server.log, "the client's socket is full")
        handled_bytes = server.handled_bytes
        for _ in range(100):
            await asyncio.sleep(0)
        assert server.handled_bytes == handled_bytes < count * len(body)
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        for _ in range(count):
            assert await read_frame(reader) == body
        await close(writer)
    assert not [line for line in server.log if line.startswith("evicted")]


async def test_many_connections_share_the_time() -> None:
    """A client with small frames is served while 20 others keep the server busy."""
    async with EchoServer() as server:
        crowd = [await connect(server) for _ in range(20)]
        for _, writer in crowd:
            writer.write(frame(BUSY))
        echoes = [asyncio.create_task(read_frame(reader)) for reader, _ in crowd]
        reader, writer = await connect(server)
        for number in range(20):
            writer.write(frame(b"%d" % number))
            assert await read_frame(reader) == b"%d" % number
        assert not all(echo.done() for echo in echoes)
        assert await asyncio.gather(*echoes) == [BUSY] * 20
        await close(writer, *(writer for _, writer in crowd))


async def test_memory_limit_closes_the_largest_connection() -> None:
    async with EchoServer(MIB) as server:
        (reader, large), (other_reader, small) = await connect(server), await connect(server)
        large.write(frame(bytes(700_000))[:-1])
        await until(lambda: len(server.listener.connections) == 2)
        await large.drain()
        small.write(frame(bytes(500_000)))
        assert await read_frame(other_reader) == bytes(500_000)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await read_frame(reader)
        assert len(server.listener.connections) == 1
        [line] = [line for line in server.log if line.startswith("evicted")]
        assert line.endswith(f"max_held_bytes={MIB} for all together")
        large.close()
        await close(small)


async def test_closing_leaves_nothing_behind() -> None:
    """Tasks and sockets that are left would fail this test in its teardown, too."""
    tasks = asyncio.all_tasks()
    async with EchoServer() as server:
        clients = [await connect(server) for _ in range(10)]
        for _, writer in clients:
            writer.write(frame(BUSY))
        await until(lambda: server.handled_bytes, "the first frame is handled")
    assert not server.listener.connections
    assert server.log.count("ended") == 10
    assert asyncio.all_tasks() == tasks
    with pytest.raises(ConnectionRefusedError):
        await connect(server)
    for _, writer in clients:
        writer.close()


def test_kit_is_imported_without_the_embedded_cluster() -> None:
    code = (
        "import sys, aiokafka08._core.server.listener\n"
        "print([one for one in sys.modules if one.startswith('aiokafka08.testing')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
