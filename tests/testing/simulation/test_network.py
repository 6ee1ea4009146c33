"""The simulated network: what arrives, when and in which pieces, and what a scenario can break."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from aiokafka08.testing.simulation import Network, SimulationError, World, simulate


class Peer(asyncio.Protocol):
    """Keeps what happens to it, with the virtual times."""

    def __init__(self, world: World, *, keep_open: bool = False) -> None:
        self.world = world
        self.keep_open = keep_open
        self.transport: Any = None
        self.pieces: list[tuple[float, bytes]] = []
        self.events: list[str] = []
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

    @property
    def data(self) -> bytes:
        return b"".join(piece for _, piece in self.pieces)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.pieces.append((self.world.virtual_s, data))

    def eof_received(self) -> bool:
        self.events.append("eof")
        return self.keep_open

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append("lost")
        self.lost.set_result(exc)


Scenario = Callable[[World, Peer, Peer], Coroutine[Any, Any, None]]


def play(scenario: Scenario, *, keep_open: bool = False, **network: Any) -> None:
    """Run a scenario with the two ends of a connection: of "client" and of "server"."""
    network = {"latency_ms": (10, 10), **network}
    with simulate(1, brokers=1, network=Network(**network)) as world:

        async def connect() -> None:
            loop = asyncio.get_running_loop()
            with world.process("server"):
                ends: list[Peer] = []

                def accept() -> Peer:
                    ends.append(Peer(world, keep_open=keep_open))
                    return ends[-1]

                server = await loop.create_server(accept, "127.0.0.1", 80)
            _, client = await loop.create_connection(lambda: Peer(world), "127.0.0.1", 80)
            await scenario(world, client, ends[0])
            server.close()
            for end in (client, *ends):
                end.transport.abort()
            world.network.heal()
            await asyncio.sleep(2)

        world.run(connect)


def test_data_arrives_after_the_latency_of_its_direction() -> None:
    async def send(world: World, client: Peer, server: Peer) -> None:
        world.network.set_link("client", "server", Network(latency_ms=(200, 200)))
        began = world.virtual_s
        client.transport.write(b"to the server")
        server.transport.write(b"to the client")
        await asyncio.sleep(1)
        [(at_server, _)], [(at_client, _)] = server.pieces, client.pieces
        assert at_server - began == pytest.approx(0.2)
        assert at_client - began == pytest.approx(0.01)

    play(send)


def test_jitter_never_lets_data_overtake() -> None:
    async def send(world: World, client: Peer, server: Peer) -> None:
        sent = [b"%d," % number for number in range(200)]
        for piece in sent:
            client.transport.write(piece)
            await asyncio.sleep(0.001)
        await asyncio.sleep(1)
        assert server.data == b"".join(sent)
        assert 1 < len(server.pieces) < 150  # some arrived together

    play(send, latency_ms=(1, 50))


def test_bandwidth_delays_what_is_behind() -> None:
    async def send(world: World, client: Peer, server: Peer) -> None:
        began = world.virtual_s
        for _ in range(3):
            client.transport.write(bytes(1000))
        await asyncio.sleep(10)
        assert [at - began for at, _ in server.pieces] == pytest.approx([1.01, 2.01, 3.01])

    play(send, bytes_per_s=1000)


def test_fragments_are_cut_at_any_byte_of_a_header() -> None:
    async def send(world: World, client: Peer, server: Peer) -> None:
        lengths = set()
        for _ in range(200):
            server.pieces.clear()
            client.transport.write(b"0123456789abcdef")
            await asyncio.sleep(1)
            assert server.data == b"0123456789abcdef"
            lengths.add(len(server.pieces[0][1]))
        assert {1, 2, 3, 4, 5, 16} <= lengths

    play(send, fragment=True, latency_ms=(1, 10))


def test_a_slow_reader_fills_the_window_and_pauses_the_writer() -> None:
    async def send(world: World, client: Peer, server: Peer) -> None:
        server.transport.pause_reading()
        client.transport.write(bytes(100_000))
        assert client.events == ["pause"]
        await asyncio.sleep(60)
        assert client.transport.get_write_buffer_size() == 100_000 - 4096
        assert not server.pieces
        server.transport.resume_reading()
        await asyncio.sleep(60)
        assert client.events == ["pause", "resume"]
        assert len(server.data) == 100_000

    play(send, window_bytes=4096)


def test_a_party_that_reads_slowly_fills_the_window_too() -> None:
    async def send(world: World, client: Peer, server: Peer) -> None:
        begin = world.virtual_s
        world.network.read_slowly("server", 1000)
        client.transport.write(bytes(10_000))
        client.transport.write_eof()
        await asyncio.sleep(3.05)
        assert len(server.data) == pytest.approx(3000, abs=200)
        assert max(len(piece) for _, piece in server.pieces) == 100
        assert client.transport.get_write_buffer_size() == pytest.approx(3000, abs=200)
        server.transport.write(b"in the other direction nothing is slow")
        await asyncio.sleep(0.011)
        assert client.data
        await asyncio.sleep(10)
        assert server.data == bytes(10_000)
        assert server.events == ["eof"]
        assert server.pieces[-1][0] - begin == pytest.approx(10, abs=0.2)

    play(send, window_bytes=4096, keep_open=True)


def test_a_party_reads_all_at_once_after_it_read_slowly() -> None:
    async def send(world: World, client: Peer, server: Peer) -> None:
        world.network.read_slowly("server", 1000)
        for _ in range(100):
            client.transport.write(bytes(100))
        await asyncio.sleep(2)
        assert len(server.data) == pytest.approx(2000, abs=200)
        world.network.read_slowly("server", None)
        await asyncio.sleep(0.2)
        assert len(server.data) == 10_000

    play(send)


def test_a_party_that_reads_slowly_may_lose_its_connection() -> None:
    async def send(world: World, client: Peer, server: Peer) -> None:
        world.network.read_slowly("server", 1000)
        client.transport.write(bytes(1000))
        await asyncio.sleep(0.5)
        world.network.reset("client", "server")
        assert isinstance(await server.lost, ConnectionResetError)
        assert len(server.data) < 1000

    play(send)


def test_a_reset_breaks_both_ends() -> None:
    async def send(world: World, client: Peer, server: Peer) -> None:
        assert world.network.reset("client", "server") == 1
        assert isinstance(await client.lost, ConnectionResetError)
        assert isinstance(await server.lost, ConnectionResetError)

    play(send)


def test_end_belongs_to_who_listens_when_a_client_arrives() -> None:
    """The broker began to listen while the client's first packet was on its way."""
    with simulate(1, brokers=1, network=Network(latency_ms=(10, 10))) as world:

        async def connect() -> None:
            world.cluster.kill(0)
            with world.process("client"):
                opening = asyncio.create_task(asyncio.open_connection("kafka0", 9092))
            await asyncio.sleep(0.005)
            world.cluster.restart(0)
            reader, _ = await opening
            assert world.network.reset("client", "broker 0") == 1
            with pytest.raises(ConnectionResetError):
                await reader.read()

        world.run(connect)


def test_half_open_bytes_vanish_and_nobody_notices() -> None:
    async def send(world: World, client: Peer, server: Peer) -> None:
        client.transport.write(b"on its way")
        assert world.network.half_open("server", "client") == 1
        client.transport.write(b"later")
        server.transport.write(b"answer")
        await asyncio.sleep(3600)
        assert [client.pieces, client.events, server.pieces, server.events] == [[], [], [], []]
        client.transport.abort()
        await asyncio.sleep(3600)
        assert not server.events

    play(send)


def test_a_one_way_block_keeps_data_until_it_heals() -> None:
    async def send(world: World, client: Peer, server: Peer) -> None:
        world.network.block("client", "server", both=False)
        client.transport.write(b"question")
        server.transport.write(b"answer")
        await asyncio.sleep(100)
        assert [client.data, server.data] == [b"answer", b""]
        world.network.heal()
        await asyncio.sleep(1)
        assert [client.data, server.data] == [b"answer", b"question"]

    play(send)


@pytest.mark.parametrize("target", ["server", None])
def test_a_block_of_all_parties_holds_both_directions(target: str | None) -> None:
    async def send(world: World, client: Peer, server: Peer) -> None:
        world.network.block(None, target)
        client.transport.write(b"question")
        server.transport.write(b"answer")
        await asyncio.sleep(100)
        assert not client.data
        assert not server.data

    play(send)


def test_an_end_that_closes_gets_its_data_through() -> None:
    async def send(world: World, client: Peer, server: Peer) -> None:
        client.transport.write(bytes(50_000))
        client.transport.close()
        assert await server.lost is None
        assert len(server.data) == 50_000
        assert server.events == ["eof", "lost"]
        assert await client.lost is None

    play(send, window_bytes=4096)


def test_a_half_closed_connection_still_sends() -> None:
    async def send(world: World, client: Peer, server: Peer) -> None:
        client.transport.write_eof()
        with pytest.raises(RuntimeError, match="write_eof"):
            client.transport.write(b"more")
        await asyncio.sleep(1)
        assert server.transport.is_half_closed()
        server.transport.write(b"answer")
        await asyncio.sleep(1)
        assert client.data == b"answer"
        assert server.events == ["eof"]

    play(send, keep_open=True)


def test_data_for_a_closed_end_is_answered_by_reset() -> None:
    async def send(world: World, client: Peer, server: Peer) -> None:
        server.transport.pause_reading()
        client.transport.abort()
        await asyncio.sleep(1)
        server.transport.write(b"is anybody there?")
        await asyncio.sleep(1)
        server.transport.write(b"no")
        assert isinstance(await server.lost, BrokenPipeError)

    play(send)


# --- connecting -----------------------------------------------------------------------------------


@pytest.fixture
def world() -> Iterator[World]:
    with simulate(1, brokers=2, network=Network(latency_ms=(1, 2))) as world:
        yield world


async def _connect(host: str, port: int) -> None:
    transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, host, port)
    transport.abort()
    await asyncio.sleep(1)


def test_a_port_without_a_server_refuses(world: World) -> None:
    with pytest.raises(ConnectionRefusedError):
        world.run(_connect, "kafka0", 1)


def test_a_broker_that_refuses_accepts_again(world: World) -> None:
    port = world.cluster.nodes[1].port
    world.network.refuse("broker 1")
    with pytest.raises(ConnectionRefusedError):
        world.run(_connect, "kafka1", port)
    world.network.accept("broker 1")
    world.run(_connect, "kafka1", port)


def test_names_change_and_dead_addresses_never_answer(world: World) -> None:
    port = world.cluster.nodes[0].port
    with pytest.raises(socket.gaierror, match="not known"):
        world.run(_connect, "unknown", port)
    world.network.dns["unknown"] = ["127.0.0.1"]
    world.run(_connect, "unknown", port)
    world.network.dns["unknown"] = ["10.9.8.7"]

    async def connect_in_vain() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await _connect("unknown", port)

    world.run(connect_in_vain)


def test_a_paused_broker_accepts_but_says_nothing(world: World) -> None:
    async def connect() -> None:
        world.pause("broker 0")
        reader, writer = await asyncio.open_connection("kafka0", world.cluster.nodes[0].port)
        writer.write(bytes.fromhex("00000010 0003 0000 00000001 0002 6869 00000000"))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await reader.read(1)
        world.resume("broker 0")
        assert await reader.read(1)
        writer.transport.abort()
        await writer.wait_closed()

    world.run(connect)


def test_an_asyncio_server_and_its_client(world: World) -> None:
    """The user's own servers are on the network too."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        writer.close()
        await writer.wait_closed()

    async def talk() -> bytes:
        async with await asyncio.start_server(echo, "localhost", 8080):
            reader, writer = await asyncio.open_connection("localhost", 8080)
            writer.write(b"hello\n")
            answer = await reader.read()
            writer.close()
            await writer.wait_closed()
            return answer

    assert world.run(talk) == b"hello\n"


def test_a_port_that_is_taken_is_refused(world: World) -> None:
    async def listen() -> None:
        await asyncio.start_server(print, "127.0.0.1", world.cluster.nodes[0].port)

    with pytest.raises(OSError, match="in use"):
        world.run(listen)


@pytest.mark.parametrize(
    "options",
    [{"latency_ms": (2, 1)}, {"latency_ms": (-1, 1)}, {"bytes_per_s": 0}, {"window_bytes": 0}],
)
def test_an_impossible_network_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        Network(**options)


@pytest.mark.parametrize("rate", [0, -1, True, "fast", float("nan")])
def test_an_impossible_reading_rate_is_refused(rate: Any, world: World) -> None:
    with pytest.raises(ValueError, match="bytes_per_s"):
        world.network.read_slowly("broker 0", rate)


def test_unix_sockets_are_refused(world: World) -> None:
    with pytest.raises(SimulationError, match=r"create_unix_connection\(\): .* no real sockets"):
        world.run(asyncio.open_unix_connection, "/tmp/x")


def test_broker_that_restarts_on_any_port_moves() -> None:
    """The port was the same as before: no client ever had to follow a broker."""

    async def ports(world: World) -> list[int]:
        found = [world.cluster.nodes[1].port]
        for _ in range(2):
            world.cluster.stop(1)
            world.cluster.restart(1, 0)
            found.append(world.cluster.nodes[1].port)
        return found

    with simulate(1) as world:
        found = world.run(ports, world)
    others = [world.cluster.nodes[node].port for node in (0, 2)]
    assert len({*found, *others}) == 5
