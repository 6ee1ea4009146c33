"""The handshakes of TLS on a port: who may have one, how many there may be, and how they end."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from aiokafka08._core.server.connection import ConnectionHandler, ConnectionOptions
from aiokafka08._core.server.listener import Listener
from aiokafka08._core.server.listening import MAX_HANDSHAKES, ServerTls
from aiokafka08._core.server.resources import ServerResources
from tests._core.server.test_connection import client_context, server_context
from tests.support.waiting import until

HOST = "127.0.0.1"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def listening(*, allows: bool = True) -> AsyncIterator[tuple[Listener, list[str]]]:
    refused: list[str] = []
    tls = ServerTls(
        server_context(), lambda host, error: refused.append(str(error)), lambda host: allows
    )
    resources = ServerResources(1 << 30, "max_held_bytes", lambda: None)
    options = ConnectionOptions(max_frame_bytes=1000)
    listener = Listener("test", resources, options, lambda _: ConnectionHandler(), tls)
    listener.open(HOST, 0)
    try:
        yield listener, refused
    finally:
        listener.close()
        await listener.wait_closed()
        await resources.close()


async def is_ended(streams: Streams) -> bool:
    try:
        async with asyncio.timeout(5):
            return not await streams[0].read()
    except ConnectionError:
        return True


async def test_client_that_is_not_allowed_gets_no_handshake() -> None:
    async with listening(allows=False) as (listener, refused):
        with pytest.raises((OSError, ssl.SSLError)):
            await asyncio.open_connection(HOST, listener.port, ssl=client_context())
        assert not refused


async def test_oldest_of_too_many_handshakes_are_given_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with listening() as (listener, refused):
        silent = [
            await asyncio.open_connection(HOST, listener.port) for _ in range(MAX_HANDSHAKES + 3)
        ]
        await until(lambda: len(refused) == 3)
        assert all([await is_ended(streams) for streams in silent[:3]])
        _, writer = await asyncio.open_connection(HOST, listener.port, ssl=client_context())
        await until(lambda: listener.connections)
        for _, one in [*silent, (None, writer)]:
            one.transport.abort()
    assert not [one for one in caplog.records if one.levelno >= logging.ERROR]


async def test_handshake_of_an_earlier_port_ends_with_the_listener() -> None:
    async with listening() as (listener, refused):
        silent = await asyncio.open_connection(HOST, listener.port)
        listener.stop_listening()
        listener.open(HOST, 0)
        listener.close()
        await listener.wait_closed()
        assert len(refused) == 1
        assert await is_ended(silent)
        silent[1].transport.abort()
