"""A TCP proxy on loopback that hurts connections on command: for failover tests on real brokers.

It knows nothing of Kafka: bytes in, bytes out, per connection and direction in order. A control
holds until ``heal()`` and acts on the connections there are as well as on new ones. Where chance is
wanted it comes from ``seed``, so a failing run can be repeated.

It lives in the event loop it was started in. Brokers up to 0.9 talk to each other (and a controller
to itself) through their advertised addresses: start the proxies first, their upstreams being the
cluster's ``planned_address``, and call its blocking methods through ``asyncio.to_thread``.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from types import TracebackType
from typing import Self

from tests.brokers.ports import free_port

_CHUNK = 64 * 1024
_QUEUED_CHUNKS = 256  # what may be on its way, delayed, before the sender is held back


class TcpProxy:
    """Listens on 127.0.0.1 and forwards to ``upstream`` ("host:port"; may be set at any time)."""

    def __init__(self, upstream: str | None = None, *, port: int = 0, seed: int = 0) -> None:
        self.upstream = upstream
        self.port = port or free_port()
        self.accepted = 0
        self.bytes_up = 0
        self.bytes_down = 0
        self._random = random.Random(seed)
        self._server: asyncio.Server | None = None
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._delay_up = 0.0
        self._delay_down = 0.0
        self._cut: _Cut | None = None

    def __repr__(self) -> str:
        state = "listening" if self._server else "refusing"
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
        """``127.0.0.1:port``."""
        return f"127.0.0.1:{self.port}"

    @property
    def connections(self) -> int:
        """How many connections are open through it now."""
        return len(self._links)

    async def start(self) -> None:
        """Listen (again)."""
        if self._server is None:
            self._server = await asyncio.start_server(self._accepted, "127.0.0.1", self.port)

    async def close(self) -> None:
        """Stop listening and close every connection; nothing is left in the loop."""
        self.refuse()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def refuse(self) -> None:
        """Stop accepting: new connections are refused, those there are live on."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def close_all(self, *, reset: bool = False) -> int:
        """Close all connections now (with an RST if ``reset``); return how many there were."""
        links = list(self._links)
        for link in links:
            link.abort(reset)
        return len(links)

    def close_after(
        self, low: int, high: int | None = None, *, repeat: bool = False, reset: bool = False
    ) -> int:
        """Forward N more bytes, of all connections and both directions, then close all; return N.

        N is drawn from ``low`` to ``high``, both included. With ``repeat`` a new N is drawn after
        each cut, until ``heal()``.
        """
        self._cut = _Cut(self._random, low, low if high is None else high, repeat, reset)
        return self._cut.left

    def black_hole(self) -> None:
        """Accept and forward nothing more; what is held back flows after ``heal()``."""
        self._flowing.clear()

    def delay(self, *, up: float = 0.0, down: float = 0.0) -> None:
        """Forward each byte so many seconds after it came: latency, not a limit on the rate."""
        self._delay_up, self._delay_down = up, down

    async def heal(self) -> None:
        """Listen, forward at once, cut nothing; closed connections stay closed."""
        self._flowing.set()
        self.delay()
        self._cut = None
        await self.start()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.accepted += 1
        try:
            await self._serve((reader, writer), task)
        except (OSError, asyncio.CancelledError):
            pass  # nobody upstream, or cut: for the client the connection ends, that is all
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _serve(self, near: _Stream, task: asyncio.Task[None]) -> None:
        if self.upstream is None:
            return
        host, _, port = self.upstream.rpartition(":")
        far = await asyncio.open_connection(host, int(port))
        link = _Link(near, far, task)
        self._links.add(link)
        try:
            async with asyncio.TaskGroup() as group:
                for up, (reader, _), (_, writer) in ((True, near, far), (False, far, near)):
                    # So that drain() means "handed to the kernel": a cut comes after its N bytes.
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
        while data:  # the empty one, the end of the stream, goes along with its delay
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
    """How many bytes may still pass before all connections are closed."""

    def __init__(
        self, random: random.Random, low: int, high: int, repeat: bool, reset: bool
    ) -> None:
        self._arguments = (random, low, high, repeat, reset)
        self._repeat = repeat
        self.reset = reset
        self.left = random.randint(low, high)

    def next(self) -> _Cut | None:
        """The one that follows this one."""
        return _Cut(*self._arguments) if self._repeat else None


class _Link:
    """One connection through the proxy."""

    def __init__(self, near: _Stream, far: _Stream, task: asyncio.Task[None]) -> None:
        self._writers = (near[1], far[1])
        self._task = task

    def abort(self, reset: bool) -> None:
        """Close both sides and end the task that serves them."""
        for writer in self._writers:
            if reset and not writer.transport.is_closing():
                writer.get_extra_info("socket").setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                )
            writer.transport.abort()
        self._task.cancel()
