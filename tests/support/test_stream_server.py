"""`StreamServer` leaves nothing, at whatever moment it is closed."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from tests.support.stream_server import StreamServer, connecting, is_ended, until_accepted

pytestmark = pytest.mark.fast


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(100):
        writer.write(data)


@pytest.mark.parametrize("iterations", range(5))
async def test_close_ends_a_connection_at_each_moment(iterations: int) -> None:
    """From before its transport exists up to when it is served; `leaks` finds what is left.

    In Python 3.11 `asyncio.start_server` loses the socket at the first of these moments.
    """
    async with StreamServer(echo) as server:
        with connecting("127.0.0.1", server.port) as client:
            await until_accepted()
            for _ in range(iterations):
                await asyncio.sleep(0)
            await server.close()
            assert is_ended(client)


async def test_refusing_server_serves_what_it_has_accepted() -> None:
    async with StreamServer(echo) as server:
        with connecting("127.0.0.1", server.port) as accepted:
            await until_accepted()
            server.refuse()
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", server.port)
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(accepted, b"x")
            assert await loop.sock_recv(accepted, 1) == b"x"
        server.open()
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        with contextlib.closing(writer):
            writer.write(b"y")
            assert await reader.readexactly(1) == b"y"


async def test_error_of_the_server_is_raised_at_its_end() -> None:
    async def fail(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise ValueError("of the test")

    server = StreamServer(fail)
    server.open()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    with contextlib.closing(writer):
        assert await reader.read() == b""
    with pytest.raises(ValueError, match="of the test"):
        await server.close()
