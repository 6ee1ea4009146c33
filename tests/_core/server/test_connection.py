"""`ServerConnection` with several exchanges in flight: order, limits, back-pressure, closing."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest

from aiokafka08._core.server import transports
from aiokafka08._core.server.connection import (
    ConnectionHandler,
    ConnectionOptions,
    Exchange,
    HalfClosePolicy,
    ServerConnection,
)
from aiokafka08._core.server.listener import Listener
from aiokafka08._core.server.listening import ServerTls
from aiokafka08._core.server.resources import ServerResources
from aiokafka08._core.server.scheduler import SLICE_S, FairScheduler, Job
from aiokafka08._core.server.work import PAUSE, Work, finish, offload
from tests._core import net
from tests._core.server.frames import frame, read_frame
from tests.support.memory import reads_proc, resident_bytes
from tests.support.waiting import until

TLS = Path(net.__file__).with_name("tls")


class Collecting(ConnectionHandler):
    """Leaves all exchanges open, and lets a test complete them."""

    def __init__(self, connection: ServerConnection) -> None:
        self.connection = connection
        self.frames: list[bytes] = []
        self.exchanges: list[Exchange] = []
        self.log: list[str] = []
        self.gate = threading.Event()

    def handle(self, frame: memoryview, exchange: Exchange) -> Work[None]:
        self.frames.append(bytes(frame))
        self.exchanges.append(exchange)
        if self.frames[-1] == b"fail":
            raise ValueError("a bug")
        if self.frames[-1] == b"offload":
            yield from offload(lambda: self.gate.wait(10))
        yield PAUSE

    def respond(self, number: int) -> None:
        """Complete an exchange with its frame."""
        self.exchanges[number].respond([frame(self.frames[number])])

    def failed(self, error: Exception) -> None:
        self.log.append(f"failed: {error}")

    def evicted(self, reason: str) -> None:
        self.log.append("evicted")

    def lost(self) -> None:
        self.log.append("lost")

    def ended(self) -> None:
        self.log.append("ended")


class Client:
    """A connection to a server whose handler is `handler`."""

    def __init__(
        self,
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        handler: Collecting,
        listener: Listener,
    ) -> None:
        self.reader, self.writer = streams
        self.handler = handler
        self.listener = listener

    async def send(self, *bodies: bytes, handled: int) -> None:
        """Send frames, and wait until so many of all have been handled."""
        if bodies:
            self.writer.write(b"".join(map(frame, bodies)))
        await until(lambda: len(self.handler.frames) >= handled, "they are handled")

    async def is_closed(self) -> bool:
        """Return whether nothing but the end comes."""
        return not await self.reader.read(1)


def server_context() -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(TLS / "cert.pem", TLS / "key.pem")
    return context


def client_context() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(TLS / "cert.pem"))


@asynccontextmanager
async def served(
    options: ConnectionOptions,
    *,
    is_tls: bool = False,
    max_held_bytes: int = 1 << 30,
    scheduler: FairScheduler | None = None,
) -> AsyncIterator[Client]:
    resources = ServerResources(max_held_bytes, "max_held_bytes", lambda: None)
    resources.scheduler = scheduler or resources.scheduler
    server_tls = client_tls = None
    if is_tls:
        server_tls = ServerTls(server_context(), lambda host, error: None)
        client_tls = client_context()
    handlers: list[Collecting] = []

    def new_handler(connection: ServerConnection) -> ConnectionHandler:
        handlers.append(Collecting(connection))
        return handlers[-1]

    listener = Listener("test", resources, options, new_handler, server_tls)
    listener.open("127.0.0.1", 0)
    streams = await asyncio.open_connection("127.0.0.1", listener.port, ssl=client_tls)
    await until(lambda: handlers, "the connection is accepted")
    try:
        yield Client(streams, handlers[0], listener)
    finally:
        streams[1].transport.abort()
        listener.close()
        await listener.wait_closed()
        await resources.close()


PIPELINED = ConnectionOptions(max_frame_bytes=1000, max_in_flight=3)


async def test_responses_have_the_order_of_their_requests() -> None:
    async with served(PIPELINED) as client:
        await client.send(b"0", b"1", b"2", handled=3)
        client.handler.respond(2)
        client.handler.exchanges[0].end()  # no response, and no gap
        client.handler.respond(1)
        assert [await read_frame(client.reader) for _ in range(2)] == [b"1", b"2"]


async def test_only_so_many_exchanges_are_open() -> None:
    async with served(PIPELINED) as client:
        await client.send(*(b"%d" % number for number in range(10)), handled=3)
        for number in range(10):
            assert len(client.handler.frames) == min(number + 3, 10)
            client.handler.respond(number)
            assert await read_frame(client.reader) == b"%d" % number


async def test_an_exchange_out_of_order_makes_no_room() -> None:
    async with served(PIPELINED) as client:
        await client.send(b"0", b"1", b"2", b"3", handled=3)
        client.handler.respond(1)
        assert len(client.handler.frames) == 3
        client.handler.respond(0)
        assert len(client.handler.frames) == 4


async def test_exchange_is_completed_once() -> None:
    async with served(PIPELINED) as client:
        await client.send(b"0", handled=1)
        client.handler.respond(0)
        with pytest.raises(AssertionError):
            client.handler.respond(0)


async def test_work_for_a_frame_ends_before_the_next_begins() -> None:
    async with served(PIPELINED) as client:
        await client.send(b"offload", b"next", handled=1)
        for _ in range(100):
            await asyncio.sleep(0)
        assert client.handler.frames == [b"offload"]
        client.handler.gate.set()
        await until(lambda: client.handler.frames == [b"offload", b"next"])


over_both = pytest.mark.parametrize("is_tls", [False, True], ids=["TCP", "TLS"])


@over_both
async def test_requests_before_the_end_of_a_client_are_handled(is_tls: bool) -> None:
    """Also if they wait when the end comes: for work in the thread, and for the handler."""
    async with served(ConnectionOptions(1 << 20, max_in_flight=200), is_tls=is_tls) as client:
        large = [bytes(20_000)] * 50
        client.writer.write(b"".join(map(frame, (b"offload", *large))))
        client.writer.close()
        client.handler.gate.set()
        await client.send(handled=10)
        client.handler.connection.hold_requests()
        for exchange in client.handler.exchanges:
            exchange.end()
        client.handler.connection.resume_requests()
        await client.send(handled=51)
        assert client.handler.frames == [b"offload", *large]
        for exchange in client.handler.exchanges:
            if exchange.response is None:
                exchange.end()
        await until(lambda: client.handler.log == ["lost", "ended"])


@over_both
async def test_only_tls_gets_a_buffer_of_the_size_that_it_asks_for(is_tls: bool) -> None:
    """uvloop asks each transport's protocol for 64 KiB: over TCP that would be a copy per read."""
    async with served(PIPELINED, is_tls=is_tls) as client:
        await client.send(b"0", handled=1)
        buffer = client.handler.connection.get_buffer(100_000)
        assert (len(buffer) >= 100_000) is is_tls


@over_both
async def test_work_for_a_client_that_has_gone_can_be_ended(is_tls: bool) -> None:
    async with served(PIPELINED, is_tls=is_tls) as client:
        client.writer.write(b"".join(map(frame, (b"0", b"1", b"2", b"waits"))))
        client.writer.close()
        await client.writer.wait_closed()
        await client.send(handled=3)
        assert not client.handler.log
        client.handler.connection.close_unanswered()
        await until(lambda: client.handler.log == ["lost", "ended"])
        assert len(client.handler.frames) == 3


@over_both
async def test_responses_that_are_not_read_count_in_the_limit(is_tls: bool) -> None:
    async with served(PIPELINED, is_tls=is_tls, max_held_bytes=16 << 20) as client:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await client.send(b"0", handled=1)
        client.handler.exchanges[0].respond([bytes(32 << 20)])
        await until(lambda: client.handler.log == ["evicted", "lost", "ended"])


@over_both
async def test_closed_connection_counts_what_its_client_does_not_read(is_tls: bool) -> None:
    async with served(PIPELINED, is_tls=is_tls, max_held_bytes=16 << 20) as client:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await client.send(b"0", b"1", handled=2)
        client.handler.exchanges[0].respond([bytes(12 << 20)])
        client.handler.connection.close()
        client.handler.exchanges[1].respond([bytes(12 << 20)])
        await until(lambda: client.handler.log == ["evicted", "lost", "ended"])


@reads_proc
async def test_ended_connection_holds_no_memory_while_others_refer_to_it() -> None:
    options = ConnectionOptions(max_frame_bytes=64 << 20)
    before = resident_bytes()
    async with served(options) as client:
        client.writer.write((64 << 20).to_bytes(4, "big") + bytes(48 << 20))
        await client.writer.drain()
        await until(lambda: resident_bytes() - before > 40 << 20, "most of it has come")
        client.writer.transport.abort()
        await until(lambda: client.handler.log == ["lost", "ended"])
        assert resident_bytes() - before < 24 << 20


class Holding(FairScheduler):
    """Can let new jobs wait, as while others have their turns."""

    def __init__(self) -> None:
        super().__init__(lambda: None)
        self.waiting: list[Job] | None = None

    def run(self, job: Job) -> bool:
        if self.waiting is None:
            return super().run(job)
        self.waiting.append(job)
        return False

    @contextlib.contextmanager
    def holding(self) -> Iterator[list[Job]]:
        """Let new jobs wait in the block."""
        waiting = self.waiting = []
        try:
            yield waiting
        finally:
            self.waiting = None
            for job in waiting:
                if self.run(job):
                    job.ended()


@reads_proc
async def test_evicted_connection_frees_its_memory_without_a_turn() -> None:
    """It isn't counted any more, so others may take as much meanwhile."""
    scheduler, before = Holding(), resident_bytes()
    options = ConnectionOptions(max_frame_bytes=128 << 20)
    async with served(options, max_held_bytes=64 << 20, scheduler=scheduler) as client:
        with scheduler.holding() as waiting:
            client.writer.write((128 << 20).to_bytes(4, "big"))
            with contextlib.suppress(ConnectionError):
                while not client.handler.log:
                    client.writer.write(bytes(1 << 20))
                    await client.writer.drain()
            await until(lambda: waiting, "the connection is lost")
            assert client.handler.log == ["evicted"]
            assert resident_bytes() - before < 24 << 20
        await until(lambda: client.handler.log == ["evicted", "lost", "ended"])


async def test_request_of_a_lost_connection_waits_for_the_turn_of_its_loss() -> None:
    scheduler = Holding()
    async with served(PIPELINED, scheduler=scheduler) as client:
        await client.send(b"0", b"1", b"2", b"3", b"4", handled=3)
        transports.reset(cast("asyncio.Transport", client.writer.transport))
        with contextlib.suppress(ConnectionError):
            await client.writer.wait_closed()
        client.handler.respond(0)  # the write fails
        assert len(client.handler.frames) == 4
        with scheduler.holding() as waiting:
            await until(lambda: waiting, "the connection is lost")
            client.handler.respond(1)
            assert len(waiting) == 1
            client.handler.connection.reset()
        await until(lambda: client.handler.log == ["lost", "ended"])
        assert len(client.handler.frames) == 4


@reads_proc
async def test_work_for_a_client_that_has_gone_holds_no_part_of_a_frame() -> None:
    """The work may take as long as the client has asked for. Over TLS a FIN ends the transport."""
    async with served(ConnectionOptions(64 << 20, max_in_flight=2), is_tls=True) as client:
        await client.send(b"0", handled=1)
        before = resident_bytes()
        client.writer.write((64 << 20).to_bytes(4, "big"))
        for _ in range(48):
            client.writer.write(bytes(1 << 20))
            await client.writer.drain()
        await until(lambda: resident_bytes() - before > 40 << 20, "most of it has come")
        client.writer.close()
        await until(lambda: client.handler.connection.is_half_closed)
        await until(lambda: resident_bytes() - before < 24 << 20, "it is freed")
        assert not client.handler.log
        client.handler.exchanges[0].end()
        await until(lambda: client.handler.log == ["lost", "ended"])


@over_both
async def test_client_that_does_not_read_loses_a_closed_connection(is_tls: bool) -> None:
    options = ConnectionOptions(max_frame_bytes=1000, close_s=0.05)
    async with served(options, is_tls=is_tls) as client:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await client.send(b"0", handled=1)
        client.handler.exchanges[0].respond([bytes(32 << 20)])  # more than sockets hold
        client.handler.connection.close_unanswered()
        await until(lambda: client.handler.log == ["lost", "ended"], "the connection has ended")


@over_both
async def test_client_that_reads_gets_all_of_a_closed_connection(is_tls: bool) -> None:
    async with served(PIPELINED, is_tls=is_tls) as client:
        await client.send(b"0", handled=1)
        client.handler.exchanges[0].respond([bytes(32 << 20)])
        client.handler.connection.close_unanswered()
        assert len(await client.reader.read()) == 32 << 20


async def test_close_waits_for_open_exchanges() -> None:
    async with served(PIPELINED) as client:
        await client.send(b"0", b"1", b"2", b"never", handled=3)
        client.handler.connection.close()
        client.handler.respond(1)
        client.handler.respond(0)
        client.handler.exchanges[2].end()
        assert [await read_frame(client.reader) for _ in range(2)] == [b"0", b"1"]
        assert await client.is_closed()
        assert len(client.handler.frames) == 3


async def test_frames_before_an_invalid_size_are_handled_once() -> None:
    """The client goes on sending while the response is still to come."""
    async with served(ConnectionOptions(max_frame_bytes=1000)) as client:
        client.writer.write(frame(b"0") + (1001).to_bytes(4, "big"))
        await client.send(handled=1)
        for _ in range(20):
            client.writer.write(bytes(100))
            await asyncio.sleep(0)
        client.handler.respond(0)
        assert await read_frame(client.reader) == b"0"
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await read_frame(client.reader)
        assert client.handler.frames == [b"0"]


async def test_held_requests_stay_in_the_socket() -> None:
    """What a relay does while the server behind it doesn't read."""
    async with served(ConnectionOptions(max_frame_bytes=1000, max_in_flight=10**6)) as client:
        client.handler.connection.hold_requests()
        client.writer.write(frame(bytes(1000)) * 20_000)
        await until(lambda: client.writer.transport.get_write_buffer_size() < 20_080_000)
        for _ in range(100):
            await asyncio.sleep(0)
        assert not client.handler.frames
        assert client.writer.transport.get_write_buffer_size() > 1_000_000
        client.handler.connection.resume_requests()
        await client.send(handled=20_000)


@pytest.mark.parametrize(
    ("policy", "handled", "answered"),
    [
        (HalfClosePolicy.ANSWER, True, True),
        (HalfClosePolicy.HANDLE, True, False),
        (HalfClosePolicy.DROP, False, False),
    ],
)
async def test_fin_does_what_the_policy_says(
    policy: HalfClosePolicy, handled: bool, answered: bool
) -> None:
    async with served(ConnectionOptions(1000, half_close=policy)) as client:
        if policy is HalfClosePolicy.DROP:  # the frame waits for the FIN, and comes with it
            own_socket = client.writer.get_extra_info("socket")
            own_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        client.writer.write(frame(b"0"))
        client.writer.write_eof()
        if handled:
            await client.send(handled=1)
            client.handler.respond(0)
        if answered:
            assert await read_frame(client.reader) == b"0"
        assert await client.is_closed()
        await until(lambda: "ended" in client.handler.log)
        assert len(client.handler.frames) == handled


@pytest.mark.parametrize("is_tls", [False, True])
async def test_client_that_has_gone_is_left_once_no_request_is_held(is_tls: bool) -> None:
    async with served(PIPELINED, is_tls=is_tls) as client:
        connection = client.handler.connection
        await client.send(b"0", handled=1)
        connection.leave_if_gone()
        assert not connection.is_closing
        client.writer.close()
        await until(lambda: connection.is_half_closed)
        connection.hold_requests()
        connection.leave_if_gone()
        connection.resume_requests()
        assert "lost" not in client.handler.log
        connection.leave_if_gone()
        await until(lambda: client.handler.log == ["lost", "ended"])


async def test_failed_work_closes_the_connection() -> None:
    async with served(PIPELINED) as client:
        await client.send(b"fail", handled=1)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await read_frame(client.reader)
        await until(lambda: client.handler.log == ["failed: a bug", "lost", "ended"])


@pytest.mark.parametrize("end", [ServerConnection.abort, ServerConnection.reset])
async def test_late_response_to_a_lost_client_is_dropped(
    end: Callable[[ServerConnection], None],
) -> None:
    async with served(PIPELINED) as client:
        await client.send(b"0", b"1", handled=2)
        end(client.handler.connection)
        client.handler.respond(0)
        await until(lambda: client.handler.log == ["lost", "ended"])
        client.handler.respond(1)
        assert client.handler.log == ["lost", "ended"]
        assert not client.listener.connections


class Immediate(ConnectionHandler):
    """Its `handle` is a plain function that has responded, or failed, when it returns."""

    def __init__(self, log: list[str]) -> None:
        self.log = log
        self.depth = 0

    def handle(self, frame: memoryview, exchange: Exchange) -> Work[None]:
        self.depth += 1
        self.log.append(f"{bytes(frame).decode()} at depth {self.depth}")
        if bytes(frame) == b"fail":
            raise ValueError("a bug")
        exchange.respond([len(frame).to_bytes(4, "big"), frame])
        self.depth -= 1
        return finish(None)

    def failed(self, error: Exception) -> None:
        self.log.append(f"failed: {error}")

    def ended(self) -> None:
        self.log.append("ended")


async def test_plain_function_that_responds_at_once_keeps_the_order() -> None:
    log: list[str] = []
    resources = ServerResources(1 << 20, "max_held_bytes", lambda: None)
    options = ConnectionOptions(max_frame_bytes=1 << 16)
    listener = Listener("plain", resources, options, lambda connection: Immediate(log))
    listener.open("127.0.0.1", 0)
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(b"".join(frame(body) for body in (b"1", b"2", b"3")))
        assert [await read_frame(reader) for _ in range(3)] == [b"1", b"2", b"3"]
        writer.write(frame(b"fail"))
        await until(lambda: log[-1:] == ["ended"])
        assert log == [*(f"{n} at depth 1" for n in (1, 2, 3, "fail")), "failed: a bug", "ended"]
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
    finally:
        listener.close()
        await listener.wait_closed()
        await resources.close()


async def test_requests_behind_an_open_one_are_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scheduler has a queue of their own for them."""
    are_behind: list[bool] = []
    run = FairScheduler.run

    def logged(scheduler: FairScheduler, job: Job) -> bool:
        are_behind.append(job.is_behind)
        return run(scheduler, job)

    monkeypatch.setattr(FairScheduler, "run", logged)
    async with served(PIPELINED) as client:
        await client.send(b"0", b"1", handled=2)
        exchanges = client.handler.exchanges
        for one in exchanges:
            one.run(finish(None), lambda: None)
        client.handler.respond(0)
        exchanges[1].run(finish(None), lambda: None)
    assert are_behind[:5] == [False, True, False, True, False]


async def test_many_lost_connections_end_in_slices_of_time() -> None:
    iteration, lost = 0, Counter[int]()
    loop = asyncio.get_running_loop()
    counting = loop.call_soon(lambda: None)

    def next_iteration() -> None:
        nonlocal iteration, counting
        iteration += 1
        counting = loop.call_soon(next_iteration)

    class Slow(ConnectionHandler):
        def lost(self) -> None:
            lost[iteration] += 1
            ends = time.monotonic() + SLICE_S
            while time.monotonic() < ends:
                pass

    resources = ServerResources(1 << 30, "max_held_bytes", lambda: None)
    listener = Listener("test", resources, PIPELINED, lambda connection: Slow())
    listener.open("127.0.0.1", 0)
    clients = [socket.create_connection(("127.0.0.1", listener.port)) for _ in range(10)]
    await until(lambda: len(listener.connections) == len(clients), "all are accepted")
    for client in clients:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
    next_iteration()
    await until(lambda: not listener.connections, "all have ended")
    counting.cancel()
    assert max(lost.values()) == 1
    listener.close()
    await listener.wait_closed()
    await resources.close()
