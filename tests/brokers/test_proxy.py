"""The TCP proxy: each control, on a server that echoes; then on a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.brokers import RealCluster
from tests.brokers.fixtures import require_real_brokers
from tests.brokers.proxy import TcpProxy
from tests.brokers.wire import fetch, metadata, produce
from tests.support.full import in_full
from tests.support.stream_server import StreamServer
from tests.support.waiting import until

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture
async def echo() -> AsyncIterator[str]:
    """A server that sends back what it receives, and closes when its client closes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()

    async with StreamServer(serve) as server:
        yield server.address


@pytest.fixture
async def proxy(echo: str) -> AsyncIterator[TcpProxy]:
    async with TcpProxy(echo, seed=1) as proxy:
        yield proxy


class Client:
    """A connection to the proxy, closed at the end of the block."""

    def __init__(self, proxy: TcpProxy) -> None:
        self._proxy = proxy

    async def __aenter__(self) -> Streams:
        self._streams = await asyncio.open_connection("127.0.0.1", self._proxy.port)
        return self._streams

    async def __aexit__(self, *_: object) -> None:
        writer = self._streams[1]
        writer.close()
        try:
            await writer.wait_closed()
        except ConnectionError:
            pass


async def said(reader: asyncio.StreamReader, size: int) -> bytes:
    return await asyncio.wait_for(reader.readexactly(size), 10)


async def silent(reader: asyncio.StreamReader) -> bool:
    try:
        await asyncio.wait_for(reader.read(1), 0.1)
    except TimeoutError:
        return True
    return False


async def closed(proxy: TcpProxy) -> None:
    """Wait until the proxy has seen that its clients closed their connections."""
    await until(lambda: not proxy.connections, "all connections are closed")


@pytest.mark.both_loops
async def test_bytes_pass_in_order_and_eof_is_forwarded(proxy: TcpProxy) -> None:
    sent = bytes(range(256)) * 20_000
    async with Client(proxy) as (reader, writer):
        writer.write(sent)
        writer.write_eof()
        assert await asyncio.wait_for(reader.read(-1), 20) == sent
    await closed(proxy)
    assert (proxy.accepted, proxy.bytes_up, proxy.bytes_down) == (1, len(sent), len(sent))


@pytest.mark.both_loops
async def test_close_after_n_bytes_is_exact_and_closes_all(proxy: TcpProxy) -> None:
    async with Client(proxy) as (reader, writer), Client(proxy) as (other, other_writer):
        other_writer.write(b"-")
        await said(other, 1)
        proxy.close_after(1000 + 234)
        writer.write(b"x" * 1000)
        await said(reader, 234)
        # Only the close is left to read.
        assert await asyncio.wait_for(reader.read(-1), 10) == b""
        assert await asyncio.wait_for(other.read(-1), 10) == b""
    async with Client(proxy) as (reader, writer):  # once only
        writer.write(b"y" * 5000)
        await said(reader, 5000)


async def test_random_closes_repeat_with_the_seed(echo: str) -> None:
    async def cuts(seed: int) -> list[int]:
        found = []
        async with TcpProxy(echo, seed=seed) as proxy:
            proxy.close_after(1, 500, repeat=True)
            for _ in range(4):
                before = proxy.bytes_up + proxy.bytes_down
                async with Client(proxy) as (reader, writer):
                    writer.write(b"z" * 2000)
                    try:
                        await asyncio.wait_for(reader.read(-1), 10)
                    except ConnectionError:
                        pass
                await closed(proxy)
                found.append(proxy.bytes_up + proxy.bytes_down - before)
            await proxy.heal()
            async with Client(proxy) as (reader, writer):
                writer.write(b"z" * 2000)
                await said(reader, 2000)
        return found

    first = await cuts(7)
    assert len(set(first)) > 1
    assert all(1 <= n <= 500 for n in first)
    assert await cuts(7) == first
    assert await cuts(8) != first


@pytest.mark.both_loops
async def test_refuse_and_reset(proxy: TcpProxy) -> None:
    async with Client(proxy) as (reader, writer):
        writer.write(b"a")
        await said(reader, 1)
        proxy.refuse()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"b")  # open connections stay open
        assert await said(reader, 1) == b"b"
        assert proxy.close_all(reset=True) == 1
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.read(1), 10)
    await proxy.heal()
    async with Client(proxy) as (reader, writer):
        writer.write(b"c")
        assert await said(reader, 1) == b"c"


@pytest.mark.both_loops
async def test_black_hole_accepts_and_is_silent_until_healed(proxy: TcpProxy) -> None:
    async with Client(proxy) as (old, old_writer):
        old_writer.write(b"1")
        await said(old, 1)
        proxy.black_hole()
        async with Client(proxy) as (new, new_writer):
            old_writer.write(b"2")
            new_writer.write(b"3")
            assert await silent(old)
            assert await silent(new)
            await proxy.heal()
            assert (await said(old, 1), await said(new, 1)) == (b"2", b"3")
            proxy.black_hole()
            assert proxy.close_all() == 2
            assert await asyncio.wait_for(old.read(), 10) == b""
            assert await asyncio.wait_for(new.read(), 10) == b""


async def test_delay_is_latency_of_one_direction(proxy: TcpProxy) -> None:
    now = asyncio.get_running_loop().time
    proxy.delay(down=0.2)
    async with Client(proxy) as (reader, writer):
        began = now()
        for _ in range(20):
            writer.write(b"x")
            await asyncio.sleep(0.005)
        await said(reader, 1)
        assert now() - began >= 0.2 - 0.002  # uvloop's time has milliseconds
        await said(reader, 19)
        assert now() - began < 20 * 0.2  # the time if each byte were delayed in turn


async def test_missing_upstream_closes_the_connection(proxy: TcpProxy) -> None:
    proxy.upstream = None
    async with Client(proxy) as (reader, _):
        assert await asyncio.wait_for(reader.read(1), 10) == b""
    async with TcpProxy() as refusing:
        proxy.upstream = refusing.address
        refusing.refuse()
        async with Client(proxy) as (reader, _):
            assert await asyncio.wait_for(reader.read(1), 10) == b""


@pytest.mark.real
@pytest.mark.parametrize(
    "version",
    # One address for all; the same with listeners; and a second listener for the brokers.
    ["0.8.2.2", *in_full("0.9.0.1", "0.10.2.2")],
)
async def test_brokers_advertise_their_proxies(version: str) -> None:
    require_real_brokers()
    async with TcpProxy() as first, TcpProxy() as second:
        cluster = RealCluster(version, 2, advertised={0: first.port, 1: second.port})
        first.upstream, second.upstream = cluster.planned_address(0), cluster.planned_address(1)
        try:
            await asyncio.to_thread(cluster.start)
            assert cluster.bootstrap_servers == f"{first.address},{second.address}"
            assert cluster.nodes == {0: first.upstream, 1: second.upstream}
            await asyncio.to_thread(cluster.create_topic, "t", replication_factor=2)
            await asyncio.to_thread(cluster.wait_isr, "t", 0, {0, 1})
            view = await asyncio.to_thread(metadata, first.port, ["t"])
            ports = {0: first.port, 1: second.port}
            assert view.brokers == {node: ("127.0.0.1", port) for node, port in ports.items()}
            await asyncio.to_thread(produce, first.port, "t", 0, [(None, b"v")])
            (message,) = await asyncio.to_thread(fetch, first.port, "t", 0)
            assert message.value == b"v"
        finally:
            await asyncio.to_thread(cluster.close)
