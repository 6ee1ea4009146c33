"""`keep_port()`: a port stays a server's own while that server pauses."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections import Counter

import pytest

from aiokafka08._core.server.listening import keep_port, listen
from tests.brokers.ports import free_port
from tests.support.waiting import until

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


async def test_few_connections_are_accepted_between_two_reads_of_others() -> None:
    """Each takes time in the next iterations too, so with more of them open ones would wait."""
    loop = asyncio.get_running_loop()
    iteration, opened = 0, Counter[int]()
    counting = loop.call_soon(lambda: None)

    def next_iteration() -> None:
        nonlocal iteration, counting
        iteration += 1
        counting = loop.call_soon(next_iteration)

    class Protocol(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            opened[iteration] += 1

    listening = listen(Protocol, HOST, 0, "a server")
    clients = [socket.create_connection((HOST, listening.port)) for _ in range(30)]
    next_iteration()
    await until(lambda: opened.total() == len(clients), "all are accepted")
    counting.cancel()
    assert max(opened.values()) <= 4
    for client in clients:
        client.close()
    listening.close()
    await listening.wait_closed()
