"""`Listener`: one port of a server and its connections.

Invariant: after `close()` and `wait_closed()` no socket, task or connection is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiokafka08._core.server.connection import (
    ConnectionHandler,
    ConnectionOptions,
    ServerConnection,
)
from aiokafka08._core.server.listening import Listening, ServerTls, listen
from aiokafka08._core.server.resources import ServerResources


class Listener:
    """See the module.

    Args:
        name: the name of the server, for log lines and errors.
        resources: shared by its connections and those of other listeners.
        options: how its connections treat their clients.
        new_handler: makes the handler of each connection.
        tls: the TLS of its connections (default None: none).

    Attributes:
        port: The port; 0 before `open`.
        connections: The connections that haven't ended, the oldest first.
    """

    def __init__(
        self,
        name: str,
        resources: ServerResources,
        options: ConnectionOptions,
        new_handler: Callable[[ServerConnection], ConnectionHandler],
        tls: ServerTls | None = None,
    ) -> None:
        self.port = 0
        self.connections: dict[ServerConnection, None] = {}
        self._name = name
        self._resources = resources
        self._options = options
        self._new_handler = new_handler
        self._tls = tls
        self._closed = False
        self._all_closed = asyncio.Event()
        self._listenings: list[Listening] = []  # the last one may be open

    @property
    def is_closed(self) -> bool:
        """Whether `close()` was called, and no socket or connection is left."""
        return (
            self._closed and not self.connections and all(one.is_closed for one in self._listenings)
        )

    def open(self, host: str, port: int, *, is_shared: bool = False) -> None:
        """Listen on a port, or on any free port if that is 0.

        Args:
            host: the IP address.
            port: the port.
            is_shared: whether other processes may listen there too (default: no).

        Raises:
            OSError: the port is not available; the text names the server and the address.
        """
        opened = listen(
            self._new_connection, host, port, self._name, self._tls, is_shared=is_shared
        )
        # One that no longer listens may still have TLS handshakes under way.
        self._listenings = [*(one for one in self._listenings if not one.is_closed), opened]
        self.port = opened.port

    def stop_listening(self) -> None:
        """Accept no more connections; open ones stay, and `open` may follow."""
        for listening in self._listenings:
            listening.close()

    def close(self) -> None:
        """Stop listening and close all connections at once; unsent responses are lost."""
        self._closed = True
        self.stop_listening()
        self.drop_connections()

    def drop_connections(self) -> None:
        """Close all connections at once; unsent responses are lost."""
        for connection in list(self.connections):
            connection.abort()

    async def wait_closed(self) -> None:
        """Wait until no connection is left; call it after `close` or `stop_listening`."""
        for listening in self._listenings:
            # After `close`, `_made` aborts connections that were accepted before.
            await listening.wait_closed()
        while self.connections:
            self._all_closed.clear()
            await self._all_closed.wait()

    def _new_connection(self) -> ServerConnection:
        return ServerConnection(
            self._resources, self._options, self._new_handler, self._made, self._ended
        )

    def _made(self, connection: ServerConnection) -> None:
        self.connections[connection] = None
        if self._closed:
            connection.abort()

    def _ended(self, connection: ServerConnection) -> None:
        self.connections.pop(connection, None)
        if not self.connections:
            self._all_closed.set()
