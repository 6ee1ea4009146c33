"""Ports that accept connections in a simulated network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Any

from aiokafka08._core.server.listening import ProtocolFactory
from aiokafka08.testing.simulation.transport import SimulatedTransport


class SimulatedListening:
    """A port; see `_core.server.listening.Listening`.

    Args:
        factory: makes the protocol of each connection.
        port: the port.
        party: the party that listens.
        context: the `contextvars` context of the party.
        closed: called once the port is closed.
    """

    def __init__(
        self,
        factory: ProtocolFactory,
        port: int,
        party: str,
        context: Context,
        closed: Callable[[], object],
    ) -> None:
        self.port = port
        self.party = party
        self.context = context
        self._factory = factory
        self._closed = closed
        self.is_closed = False

    def accept(self, transport: SimulatedTransport) -> None:
        """Give a connection its protocol."""
        # The network accepts connections also while the party is paused, as a kernel does; this
        # method runs only while the party runs.
        if self.is_closed:
            transport.reset()
        else:
            transport.start(self._factory())

    def close(self) -> None:
        """See `Listening.close`."""
        if not self.is_closed:
            self.is_closed = True
            self._closed()

    async def wait_closed(self) -> None:
        """Return at once: after `close` no protocol is made. See `Listening.wait_closed`."""


class SimulatedServer(asyncio.AbstractServer):
    """The result of `loop.create_server`."""

    sockets: tuple[Any, ...] = ()

    def __init__(self, listening: SimulatedListening) -> None:
        self._listening = listening
        self._serving = True
        self.port = listening.port

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """See asyncio."""
        return asyncio.get_running_loop()

    def is_serving(self) -> bool:
        """See asyncio."""
        return self._serving

    async def start_serving(self) -> None:
        """See asyncio; it serves from the start."""

    async def serve_forever(self) -> None:
        """See asyncio."""
        try:
            await self.get_loop().create_future()
        finally:
            self.close()

    def close(self) -> None:
        """See asyncio."""
        self._serving = False
        self._listening.close()

    async def wait_closed(self) -> None:
        """See asyncio."""
