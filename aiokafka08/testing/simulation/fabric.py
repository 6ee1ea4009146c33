"""`Fabric`: the network of a running simulation, and the faults that a scenario can cause in it.

Parties have names: brokers are "broker 0", "broker 1" and so on, clients are "client" or have the
name given to `World.process`. Where a method takes parties, None stands for all. The name of a
broker that doesn't exist raises ValueError at once. Any other name may be used before its party
begins; if the party hasn't begun by the end of the run, `World.run` raises SimulationError.

Invariant: a connection's two directions fail, block and end independently of each other.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable
from contextvars import Context, copy_context
from random import Random
from typing import Any, Final

from aiokafka08._core.server.listening import ProtocolFactory
from aiokafka08.testing.simulation.links import Links
from aiokafka08.testing.simulation.network import Network
from aiokafka08.testing.simulation.party import PARTY, Parties, context_of
from aiokafka08.testing.simulation.server import SimulatedListening, SimulatedServer
from aiokafka08.testing.simulation.trace import Trace
from aiokafka08.testing.simulation.transport import SimulatedTransport
from aiokafka08.testing.simulation.wire import Mark, Wire

_LOCAL: Final = "127.0.0.1"
_FIRST_SERVER_PORT: Final = 9092
_FIRST_CLIENT_PORT: Final = 32768


class Fabric(Links):
    """See the module.

    Args:
        loop: the loop of the simulation.
        network: how connections behave unless `set_link` says otherwise.
        random: draws latencies and fragments.
        trace: gets all data that arrives.
        parties: checks the parties that a scenario names.

    Attributes:
        dns: The addresses by host name; a scenario may change them at any time. An address on which
            no server has ever listened, other than 127.0.0.1, never responds.
        transports: The open ends of all connections.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        network: Network,
        random: Random,
        trace: Trace,
        parties: Parties,
    ) -> None:
        super().__init__(loop, network, random, trace, parties)
        self.dns: dict[str, list[str]] = {"localhost": [_LOCAL]}
        self.transports: dict[SimulatedTransport, None] = {}
        self._refusing: set[str] = set()
        self._listening: dict[tuple[str, int], SimulatedListening] = {}
        self._machines = {_LOCAL}
        self._wires = 0
        self._client_port = _FIRST_CLIENT_PORT
        self._next_port = _FIRST_SERVER_PORT

    # --- the scenario -----------------------------------------------------------------------------

    def reset(self, one: str | None = None, other: str | None = None) -> int:
        """Break the open connections between two parties by RST, at both ends; return how many."""
        self.parties.name("reset", one, other)
        transports = self._between(one, other)
        for transport in transports:
            transport.abort_by_reset()
        return len(transports) // 2

    def half_open(self, one: str | None = None, other: str | None = None) -> int:
        """Lose all bytes of the open connections between two parties; return their number.

        Neither end notices, as after a router has forgotten a connection.
        """
        self.parties.name("half_open", one, other)
        transports = self._between(one, other)
        for transport in transports:
            transport.vanish()
        return len(transports) // 2

    def refuse(self, party: str) -> None:
        """Refuse new connections to a party that listens, until `accept`."""
        self.parties.name("refuse", party)
        self._refusing.add(party)

    def accept(self, party: str) -> None:
        """End `refuse`."""
        self.parties.name("accept", party)
        self._refusing.discard(party)

    def _between(self, party: str | None, other: str | None) -> list[SimulatedTransport]:
        return [
            transport
            for transport in self.transports
            if _match(transport.parties, party, other) or _match(transport.parties, other, party)
        ]

    # --- what transports call ---------------------------------------------------------------------

    def ended(self, transport: SimulatedTransport) -> None:
        """Remove one end of a connection."""
        self.transports.pop(transport, None)

    # --- connections ------------------------------------------------------------------------------

    async def getaddrinfo(self, host: Any, port: Any) -> list[Any]:
        """Return the addresses of a name, as `loop.getaddrinfo`."""
        try:
            ips = [str(ipaddress.ip_address(host))]
        except ValueError:
            await asyncio.sleep(self.random.uniform(0.0001, 0.002))
            ips = self.dns.get(str(host), [])
        if not ips:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port)) for ip in ips]

    async def connect(
        self, factory: Callable[[], asyncio.BaseProtocol], host: Any, port: Any
    ) -> tuple[SimulatedTransport, asyncio.BaseProtocol]:
        """Connect to the first of a host's addresses that accepts the connection."""
        error = OSError("no address")
        for *_, (ip, number) in await self.getaddrinfo(host, port):
            try:
                return await self._connect(factory, ip, number)
            except OSError as refused:
                error = refused
        raise error

    async def _connect(
        self, factory: Callable[[], asyncio.BaseProtocol], ip: str, port: int
    ) -> tuple[SimulatedTransport, asyncio.BaseProtocol]:
        context = copy_context()
        server = self._listening.get((ip, port))
        source, target = PARTY.get(), f"{ip}:{port}" if server is None else server.party
        outbound, inbound = self._wire(source, target), self._wire(target, source)
        self._client_port += 1
        addresses = {"sockname": (_LOCAL, self._client_port), "peername": (ip, port)}
        opened: asyncio.Future[SimulatedTransport] = self.loop.create_future()

        def at_server(item: bytes | Mark) -> None:
            listening = self._listening.get((ip, port))
            if item is not Mark.OPEN:
                return
            if listening is None or listening.party in self._refusing:
                inbound.send(Mark.RESET)
                return
            # The server may have begun to listen after the client's call.
            outbound.target = inbound.source = listening.party
            names = {"peername": addresses["sockname"], "sockname": addresses["peername"]}
            self._open(outbound, inbound, listening.context, names, listening.accept)
            inbound.send(Mark.OPEN)

        def at_client(item: bytes | Mark) -> None:
            if item is Mark.OPEN and not opened.done():
                self._open(inbound, outbound, context, addresses, established)
            elif item is Mark.OPEN:
                # The client has given up meanwhile.
                outbound.send(Mark.RESET)
            elif not opened.done():
                text = f"Connect call failed {(ip, port)}"
                self.loop.call_soon(refused, ConnectionRefusedError(111, text), context=context)

        def established(transport: SimulatedTransport) -> None:
            transport.start(factory())
            if opened.done():
                transport.abort()
            else:
                opened.set_result(transport)

        def refused(error: OSError) -> None:
            if not opened.done():
                opened.set_exception(error)

        outbound.arrived, inbound.arrived = at_server, at_client
        # An address without a machine never responds; on a machine a closed port refuses.
        outbound.is_dead = ip not in self._machines
        outbound.send(Mark.OPEN)
        try:
            transport = await opened
        except asyncio.CancelledError:
            if opened.done() and not opened.cancelled() and opened.exception() is None:
                opened.result().abort()
            raise
        return transport, transport.get_protocol()

    def _open(
        self,
        inbound: Wire,
        outbound: Wire,
        context: Context,
        addresses: dict[str, Any],
        begin: Callable[[SimulatedTransport], None],
    ) -> None:
        transport = SimulatedTransport(inbound, outbound, context, addresses, self.ended)
        self.transports[transport] = None
        self.loop.call_soon(begin, transport, context=context)

    def _wire(self, source: str, target: str) -> Wire:
        self._wires += 1
        return Wire(self, self._wires, source, target)

    # --- servers ----------------------------------------------------------------------------------

    def listen(
        self, factory: ProtocolFactory, host: str, port: int, name: str
    ) -> SimulatedListening:
        """Open a port; see `_core.server.listening.listen`."""
        if not port:
            # Don't reuse a port, so that a broker that restarts on any free port really moves.
            port = self._next_port
            while (host, port) in self._listening:
                port += 1
            self._next_port = port + 1
        if (host, port) in self._listening:
            raise OSError(98, "Address already in use")
        self._machines.add(host)
        self.parties.add(name)
        listening = SimulatedListening(
            factory, port, name, context_of(name), lambda: self._listening.pop((host, port), None)
        )
        self._listening[host, port] = listening
        return listening

    def create_server(self, factory: ProtocolFactory, host: str, port: int) -> SimulatedServer:
        """Open a port for the running party, as `loop.create_server`."""
        ip = self.dns.get(host, [host])[0]
        return SimulatedServer(self.listen(factory, ip, port, PARTY.get()))


def _match(parties: tuple[str, str], source: str | None, target: str | None) -> bool:
    return source in (None, parties[0]) and target in (None, parties[1])
