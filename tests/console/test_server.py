"""Connections that bring no request are ended, and don't lock others out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import urlsplit

import pytest

from aiokafka08._tools.console import server
from aiokafka08._tools.console.application import make_console
from aiokafka08._tools.console.server import ServeOptions, access_of, serve
from tests.support.waiting import eventually

GET = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def served() -> AsyncIterator[int]:
    """Yield the port of a console."""
    options = ServeOptions(port=0)
    access = access_of(options)
    console = make_console(
        {"bootstrap_servers": "127.0.0.1:1"}, access, title=None, interval_s=10.0
    )
    url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve(console, options, access, url.set_result))
    try:
        yield urlsplit(await url).port or 0
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Streams]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def end_of(reader: asyncio.StreamReader) -> bytes:
    """Return what still comes until the other end closes the connection."""
    try:
        return await asyncio.wait_for(reader.read(), 10)
    except ConnectionError:
        return b""


async def answer_to(streams: Streams, *parts: bytes) -> bytes:
    reader, writer = streams
    for part in parts:
        writer.write(part)
        await asyncio.sleep(0.1)
    return await asyncio.wait_for(reader.readline(), 10)


async def test_connection_without_a_whole_request_is_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "_REQUEST_S", 1.0)
    async with served() as port:
        for begun in (b"", GET[:20]):
            async with connected(port) as (reader, writer):
                writer.write(begun)
                assert await end_of(reader) == b""
        async with connected(port) as streams:
            assert b" 401 " in await answer_to(streams, GET[:20], GET[20:])
            assert b"Open the URL" in await streams[0].readuntil(b"after such a link.\n")
            await asyncio.sleep(0.5)
            streams[1].write(GET[:20])  # which ends the server's wait for a second request
            assert await end_of(streams[0]) == b""


async def test_idle_connections_lock_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_MAX_CONNECTIONS", 20)
    monkeypatch.setattr(server, "_REQUEST_S", 1.0)
    async with served() as port, AsyncExitStack() as idle:
        for _ in range(20):
            await idle.enter_async_context(connected(port))

        async def is_served() -> bool:
            async with connected(port) as streams:
                try:
                    return b" 401 " in await answer_to(streams, GET)
                except ConnectionError:
                    return False

        assert not await is_served()
        await eventually(is_served)


async def test_address_has_only_so_many_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_MAX_PER_ADDRESS", 3)
    async with served() as port, AsyncExitStack() as idle:
        for _ in range(3):
            await idle.enter_async_context(connected(port))
        async with connected(port) as (reader, _):
            assert await end_of(reader) == b""


async def test_what_clients_send_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    upgrade = GET[:-2] + b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\n"
    async with served() as port:
        for sent, status in ((b"\x16\x03\x01 no HTTP\r\n\r\n", b" 400 "), (upgrade, b" 401 ")):
            async with connected(port) as streams:
                assert status in await answer_to(streams, sent)
    assert [one.name for one in caplog.records if one.name.startswith("uvicorn")] == []
