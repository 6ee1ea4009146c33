"""`StreamServer`: what tests use in place of `asyncio.start_server`.

In Python 3.11 an asyncio server that is closed loses a socket that it has accepted in the same
iteration of the event loop, and its `close()` leaves all connections open. The warning of such a
socket then fails a later test.

Invariant: after `close()` no socket and no task is left, and the client of each connection has seen
its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from types import TracebackType
from typing import Any, Self

from aiokafka08._core.server.listening import Listening, ServerTls, listen

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[Any]]


class StreamServer:
    """A server on one port, listening in `async with`.

    Args:
        serve: runs for each connection, which is aborted when it returns or raises. What the client
            causes (an OSError, an IncompleteReadError) ends the connection only; `close()` raises
            other errors.
        tls: the connections begin with a handshake; `serve` isn't called if that fails.
        receive_buffer: the SO_RCVBUF of each connection.
        limit: how far asyncio reads ahead.

    Attributes:
        port: the port; 0 before the first `open()` if none was given.
    """

    def __init__(
        self,
        serve: Serve,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
        receive_buffer: int | None = None,
        limit: int = 1 << 16,
    ) -> None:
        self.host = host
        self.port = port
        self._serve = serve
        self._tls = tls
        self._receive_buffer = receive_buffer
        self._limit = limit
        self._listening: list[Listening] = []  # the last one may be open
        self._connections: dict[_Protocol, asyncio.StreamWriter] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._errors: list[Exception] = []

    @property
    def address(self) -> str:
        """ "host:port", as clients take it."""
        return f"{self.host}:{self.port}"

    async def __aenter__(self) -> Self:
        self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def open(self) -> None:
        """Listen; after `refuse()` on the same port."""
        # Clients see why a handshake has failed.
        tls = None if self._tls is None else ServerTls(self._tls, lambda host, error: None)
        listening = listen(self._new_protocol, self.host, self.port, "test server", tls)
        self._listening.append(listening)
        self.port = listening.port

    def refuse(self) -> None:
        """Stop listening. The connections that were accepted go on."""
        for listening in self._listening:
            listening.close()

    async def close(self) -> None:
        """Stop listening, and end all connections at once.

        Raises:
            Exception: the first one that `serve` has raised.
        """
        self.refuse()
        for listening in self._listening:
            await listening.wait_closed()
        self._listening.clear()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for protocol, writer in list(self._connections.items()):
            writer.transport.abort()
            await protocol.lost.wait()
        if self._errors:
            raise self._errors[0]

    def _new_protocol(self) -> _Protocol:
        protocol: _Protocol = _Protocol(
            asyncio.StreamReader(self._limit), lambda *streams: self._made(protocol, *streams)
        )
        protocol.on_lost = lambda: self._connections.pop(protocol)
        return protocol

    def _made(
        self, protocol: _Protocol, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._connections[protocol] = writer
        task = asyncio.get_running_loop().create_task(self._run(reader, writer))
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def _run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self._receive_buffer is not None:
                connected: socket.socket = writer.get_extra_info("socket")
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer)
            await self._serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client has gone
        except Exception as error:
            self._errors.append(error)
        finally:
            writer.transport.abort()


class _Protocol(asyncio.StreamReaderProtocol):
    """The streams of a connection; `lost` is set at its end."""

    on_lost: Callable[[], object]

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.lost = asyncio.Event()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.on_lost()
        self.lost.set()


@contextlib.contextmanager
def connecting(host: str, port: int) -> Iterator[socket.socket]:
    """Yield a client's socket that the kernel connects; the event loop hasn't run since."""
    with socket.socket() as client:
        client.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            client.connect((host, port))
        yield client


async def until_accepted() -> None:
    """Return in the iteration behind that in which a socket was accepted: it has no transport."""
    before = asyncio.all_tasks()
    while asyncio.all_tasks() <= before:  # noqa: ASYNC110 -- counts iterations
        await asyncio.sleep(0)


def is_ended(client: socket.socket) -> bool:
    """Return whether the server has ended the client's connection."""
    try:
        return client.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
