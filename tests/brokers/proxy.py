"""A TCP proxy on loopback that delays, holds or closes connections, for failover tests.

The proxy forwards bytes in order and knows nothing of Kafka. Delays, holds and cuts act on existing
and new connections, until ``heal()``. Random numbers come from ``seed``, so that a failed run can
be repeated.

The proxy runs in the event loop that started it. Brokers up to 0.9 connect to each other, and a
controller to itself, through their advertised addresses: start the proxies first, with the
cluster's ``planned_address`` as upstream, and call the cluster's blocking methods with
``asyncio.to_thread``.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from types import TracebackType
from typing import Self

from tests.brokers.ports import free_port
from tests.support.stream_server import StreamServer

_CHUNK = 64 * 1024
_QUEUED_CHUNKS = 256  # delayed chunks per direction before the proxy stops reading


class TcpProxy:
    """Forward connections from a port of 127.0.0.1 to ``upstream`` ("host:port").

    ``upstream`` may be set at any time.
    """

    def __init__(self, upstream: str | None = None, *, port: int = 0, seed: int = 0) -> None:
        self.upstream = upstream
        self.port = port or free_port()
        self.accepted = 0
        self.bytes_up = 0
        self.bytes_down = 0
        self._random = random.Random(seed)
        self._server = StreamServer(self._accepted, port=self.port)
        self._listens = False
        self._links: set[_Link] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._delay_up = 0.0
        self._delay_down = 0.0
        self._cut: _Cut | None = None

    def __repr__(self) -> str:
        state = "listening" if self._listens else "refusing"
        if not self._flowing.is_set():
            state += ", black hole"
        return f"<TcpProxy {self.port} -> {self.upstream} {state} connections={self.connections}>"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def address(self) -> str:
        """The address for clients, ``127.0.0.1:port``."""
        return f"127.0.0.1:{self.port}"

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return len(self._links)

    async def start(self) -> None:
        """Listen. Does nothing while the proxy listens."""
        if not self._listens:
            self._server.open()
            self._listens = True

    async def close(self) -> None:
        """Stop listening and close all connections; no task is left in the event loop."""
        self.refuse()
        await self._server.close()

    def refuse(self) -> None:
        """Refuse new connections. Open ones stay open."""
        self._server.refuse()
        self._listens = False

    def close_all(self, *, reset: bool = False) -> int:
        """Close all connections now, with an RST if ``reset``; return their number."""
        links = list(self._links)
        for link in links:
            link.abort(reset)
        return len(links)

    def close_after(
        self, low: int, high: int | None = None, *, repeat: bool = False, reset: bool = False
    ) -> int:
        """Forward N more bytes, then close all connections; return N.

        N counts the bytes of all connections and both directions. It is random, from ``low`` to
        ``high``, both included. With ``repeat``, a new N is chosen after each cut, until
        ``heal()``.
        """
        self._cut = _Cut(self._random, low, low if high is None else high, repeat, reset)
        return self._cut.left

    def black_hole(self) -> None:
        """Accept connections, but forward nothing. ``heal()`` forwards the held bytes."""
        self._flowing.clear()

    def delay(self, *, up: float = 0.0, down: float = 0.0) -> None:
        """Delay each byte by ``up`` or ``down`` seconds, without limiting the rate."""
        self._delay_up, self._delay_down = up, down

    async def heal(self) -> None:
        """Listen, and forward without delays and cuts. Closed connections stay closed."""
        self._flowing.set()
        self.delay()
        self._cut = None
        await self.start()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.accepted += 1
        near = (reader, writer)
        if self.upstream is None:
            return
        host, _, port = self.upstream.rpartition(":")
        far = await asyncio.open_connection(host, int(port))
        link = _Link(near, far, task)
        self._links.add(link)
        try:
            async with asyncio.TaskGroup() as group:
                for up, (reader, _), (_, writer) in ((True, near, far), (False, far, near)):
                    # drain() then waits for the kernel, so that a cut comes after its N bytes.
                    writer.transport.set_write_buffer_limits(0)
                    queue: _Queue = asyncio.Queue(_QUEUED_CHUNKS)
                    group.create_task(self._read(reader, queue))
                    group.create_task(self._write(queue, writer, up))
        except* OSError:
            pass
        finally:
            self._links.discard(link)
            far[1].transport.abort()

    async def _read(self, reader: asyncio.StreamReader, queue: _Queue) -> None:
        now = asyncio.get_running_loop().time
        data = b"-"
        while data:  # the end of the stream, an empty chunk, is delayed, too
            data = await reader.read(_CHUNK)
            await queue.put((now(), data))

    async def _write(self, queue: _Queue, writer: asyncio.StreamWriter, up: bool) -> None:
        now = asyncio.get_running_loop().time
        while True:
            came, data = await queue.get()
            wait = came + (self._delay_up if up else self._delay_down) - now()
            if wait > 0:
                await asyncio.sleep(wait)
            await self._flowing.wait()
            if not data:
                writer.write_eof()
                return
            cut = self._cut
            if cut is not None:
                data = data[: cut.left]
                cut.left -= len(data)
            if up:
                self.bytes_up += len(data)
            else:
                self.bytes_down += len(data)
            writer.write(data)
            await writer.drain()
            if cut is not None and cut.left == 0 and cut is self._cut:
                self._cut = cut.next()
                self.close_all(reset=cut.reset)


_Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]
_Queue = asyncio.Queue[tuple[float, bytes]]


class _Cut:
    """The number of bytes that pass before all connections are closed."""

    def __init__(
        self, random: random.Random, low: int, high: int, repeat: bool, reset: bool
    ) -> None:
        self._arguments = (random, low, high, repeat, reset)
        self._repeat = repeat
        self.reset = reset
        self.left = random.randint(low, high)

    def next(self) -> _Cut | None:
        """Return the following cut, if it repeats."""
        return _Cut(*self._arguments) if self._repeat else None


class _Link:
    """One connection through the proxy."""

    def __init__(self, near: _Stream, far: _Stream, task: asyncio.Task[None]) -> None:
        self._writers = (near[1], far[1])
        self._task = task

    def abort(self, reset: bool) -> None:
        """Close both sides and cancel the task that serves them."""
        for writer in self._writers:
            if reset and not writer.transport.is_closing():
                writer.get_extra_info("socket").setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                )
            writer.transport.abort()
        self._task.cancel()
