"""`keep_port()`: a port stays a server's own while that server pauses."""

from __future__ import annotations

import asyncio
import errno
import socket

import pytest

from aiokafka08._core.server.listening import keep_port, listen
from tests.brokers.ports import free_port

pytestmark = pytest.mark.fast

HOST = "127.0.0.1"


async def test_kept_port_refuses_servers_that_reuse_addresses() -> None:
    """socket.create_server() sets SO_REUSEADDR, as asyncio's servers do."""
    kept = keep_port(HOST, free_port())
    assert kept is not None
    with kept, pytest.raises(OSError, match="in use") as raised:
        socket.create_server(kept.getsockname())
    assert raised.value.errno == errno.EADDRINUSE


async def test_kept_port_is_free_for_its_server_afterwards() -> None:
    """Also while connections that the server has ended are in TIME_WAIT."""
    with socket.create_server((HOST, free_port())) as before:
        address = before.getsockname()
        client = socket.create_connection(address)
        before.accept()[0].close()
        client.close()
    for _ in range(2):
        kept = keep_port(*address)
        assert kept is not None
        kept.close()
        listening = listen(asyncio.Protocol, HOST, address[1], "a server")
        listening.close()
        await listening.wait_closed()
