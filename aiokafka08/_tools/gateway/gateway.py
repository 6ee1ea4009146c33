"""`Gateway`: a listener for each broker of the target, and what they share.

It finds the brokers, opens a listener for each, and learns new brokers and addresses from the
responses that pass through it. The command `gateway` runs it.

Invariants:

- When a client reads the address of a broker, that broker's listener is open, unless the broker
  can't be reached now. A broker that can have no listener gets an address that refuses clients, so
  a fault of one broker, port or file harms no client of the others.
- A listener is closed while its broker can't be reached, after `WATCH_S` plus the timeout of a
  connection at the latest. A client that is refused tries another broker, but one whose connection
  is accepted and then closed tries the same broker again at once.
- After `stop()` no socket and no task is left.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from functools import partial
from typing import Final, NamedTuple

from aiokafka08._core.concurrency.task_set import run_together
from aiokafka08._core.limited_log import LimitedLog, later_in_loop
from aiokafka08._core.metrics.metric_family import MetricFamily
from aiokafka08._core.net.authentication import renew_credentials
from aiokafka08._core.net.config import Address, NetConfig, address_text
from aiokafka08._core.server.connection import (
    ConnectionHandler,
    ConnectionOptions,
    ServerConnection,
)
from aiokafka08._core.server.listener import Listener
from aiokafka08._core.server.listening import ServerTls
from aiokafka08._core.server.resources import ServerResources
from aiokafka08._tools.gateway.clients import ClientTable
from aiokafka08._tools.gateway.handler import BrokerRoute, GatewayHandler
from aiokafka08._tools.gateway.measurements import NO_MEASUREMENTS, Measurements
from aiokafka08._tools.gateway.options import GatewayOptions, listener_port
from aiokafka08._tools.gateway.peers import peer_brokers
from aiokafka08._tools.gateway.port_table import PortTable
from aiokafka08._tools.gateway.shared_state import SharedState
from aiokafka08._tools.gateway.target_client import TargetClient, ask_first, brokers_of
from aiokafka08._tools.gateway.target_connection import why_unreachable
from aiokafka08.errors import KafkaError, KafkaProtocolError

_log: Final = logging.getLogger("aiokafka08.gateway")

STOP_S: Final = 5.0
"""How long requests in flight may take when the gateway ends."""

ENTRY: Final = "entry"
"""The entry's name, where other listeners have a broker's id. The entry is the listener for clients
that come from other gateways (`peers`)."""

WATCH_S: Final = 10.0
"""How often to check whether the brokers of open listeners can be reached."""

_RETRY_S: Final = 1.0
_LOOK_S: Final = 0.1
_MAX_IN_FLIGHT: Final = 64


class ListenerState(NamedTuple):
    """The state of a port of a configured listener: that of a broker, or of the entry (`peers`).

    Attributes:
        listener: the name of the listener.
        node: the broker's id, or `ENTRY`.
        connections: how many connections of clients are open.
        is_open: whether clients can connect.
    """

    listener: str
    node: str
    connections: int
    is_open: bool


def state_families(states: Iterable[ListenerState]) -> list[MetricFamily]:
    """Return the metrics of ports, which processes may share."""
    text, labels = "Open connections of clients, by broker and listener.", ("node", "listener")
    connections = MetricFamily("aiokafka08_gateway_connections", text, labels)
    text = "Whether the listener of a broker is open: 0 while the broker can't be reached."
    listening = MetricFamily("aiokafka08_gateway_listening", text, labels)
    ports: dict[tuple[str, str], list[ListenerState]] = {}
    for one in states:
        ports.setdefault((one.node, one.listener), []).append(one)
    for port, same in ports.items():
        connections.add(sum(one.connections for one in same), *port)
        listening.add(int(any(one.is_open for one in same)), *port)
    return [connections, listening]


class Gateway:
    """See the module.

    Args:
        options: the options.
        table: the index of each broker, from which its port follows.
        measurements: called to measure the work (default: nothing is measured).
        clients: where clients are counted (default: in a table of its own).
        shares_ports: whether other processes may listen on the same ports (default: no).

    Attributes:
        clients: the clients that were seen.
        shared: the state that the connections of clients share.
    """

    def __init__(
        self,
        options: GatewayOptions,
        table: PortTable,
        measurements: Measurements = NO_MEASUREMENTS,
        clients: ClientTable | None = None,
        *,
        shares_ports: bool = False,
    ) -> None:
        self.clients = ClientTable() if clients is None else clients
        self.shares_ports = shares_ports
        log = LimitedLog(_log, later_in_loop)
        resources = ServerResources(options.max_held_bytes, "max_held_bytes", lambda: None)
        addresses = self.address_of, self.known_address_of, self.peers, table.learn
        count = partial(self.clients.count, listener=options.name)
        self.shared = SharedState(options, measurements, log, resources, *addresses, count)
        self._options = options
        self._table = table
        self._brokers: dict[int, _BrokerListener] = {}
        self._entry = _GatewayListener(self, options.listen) if options.peers else None
        self._is_stopping = False  # `stop` was called: no listener is added any more
        self._problem = ""  # why the last new broker got no listener; logged once

    @property
    def is_listening(self) -> bool:
        """Whether at least one listener is open; may be called in any thread."""
        return any(not broker.is_away for broker in list(self._brokers.values()))

    @property
    def ports(self) -> dict[int, int]:
        """The ports of the listeners, by the ids of their brokers."""
        return {node_id: one.port for node_id, one in self._brokers.items()}

    def states(self) -> list[ListenerState]:
        """Return the states of the ports; may be called in any thread."""
        return [
            ListenerState(self._options.name, one.label, len(one.connections), not one.is_away)
            for one in self._listeners()
        ]

    async def start(self) -> None:
        """Find the brokers, and listen.

        Raises:
            KafkaConnectionError: no broker can be reached.
            OSError: a port is not available.
        """
        found = await find_brokers(self._options.network)
        if (learning := self._table.learn(found)) is not None:
            await learning
        self._table.add(found)
        if self._options.network.sasl is not None:
            self.shared.tasks.start(renew_credentials(self._options.network.sasl))
        try:
            for node_id, address in found.items():
                self._brokers[node_id] = _BrokerListener(self, node_id, address)
            for listener in self._listeners():
                listener.listen()
            self.shared.tasks.start(self._watch_brokers())
        except BaseException:
            await self.stop(0)
            raise

    async def stop(self, within_s: float = STOP_S) -> None:
        """Accept no connections, answer requests in flight, and close all connections.

        Data that the gateway has accepted for the brokers is sent first.

        Args:
            within_s: after this time, in seconds, connections are closed as they are: requests in
                flight aren't answered, and what a broker hasn't read is lost.
        """
        self._is_stopping = True
        shared, listeners = self.shared, self._listeners()
        for listener in listeners:
            listener.end()
        shared.tasks.start(self._leave_gone_clients())
        try:
            async with asyncio.timeout(within_s):
                for listener in listeners:
                    await listener.wait_closed()
                await shared.upstreams.wait_lost()
        except TimeoutError:
            _log.warning("connections closed after %g s with requests in flight", within_s)
        for listener in listeners:
            listener.close()
            await listener.wait_closed()
        await shared.tasks.cancel()
        shared.upstreams.abort()
        await shared.upstreams.wait_lost()
        await shared.resources.close()
        shared.log.close()

    async def _watch_brokers(self) -> None:
        # A client's connection shows earlier that a broker can't be reached, but there may be no
        # client.
        while True:
            await asyncio.sleep(WATCH_S)
            await run_together(*(one.leave_if_away() for one in self._brokers.values()))

    async def _leave_gone_clients(self) -> None:
        # A client that has only ended its sending side looks like one that is gone. Brokers don't
        # answer it either.
        while True:
            for connection in [one for each in self._listeners() for one in each.connections]:
                connection.leave_if_gone()
            await asyncio.sleep(_LOOK_S)

    def address_of(self, node_id: int, host: str, port: int) -> Address:
        """Return the address that clients use for a broker, whose own address is given.

        The listener of a new broker is opened. A broker whose listener can't be opened now has port
        0, which refuses clients: they can use the others.
        """
        broker = self._brokers.get(node_id)
        if broker is None and not self._is_stopping:
            try:
                self._table.add([node_id])
                broker = _BrokerListener(self, node_id, (host, port))
            except KafkaError as error:
                if error.text != self._problem:
                    _log.error("no listener for node %d: %s", node_id, error.text)
                self._problem = error.text
            else:
                self._problem = ""
                self._brokers[node_id] = broker
                broker.listen_or_retry()
        elif broker is not None and (host, port) != broker.route.address and host:
            _log.info("node %d is at %s now", node_id, address_text((host, port)))
            broker.route.address = (host, port)
        return self._options.advertise, 0 if broker is None else broker.client_port

    def known_address_of(self, node_id: int, host: str, port: int) -> Address:
        """Return the address that clients use for a node; ("", 0) if it is no known broker."""
        broker = self._brokers.get(node_id)
        return ("", 0) if broker is None else (self._options.advertise, broker.client_port)

    def peers(self) -> dict[int, Address]:
        """Return the addresses of the brokers that stand for other gateways, by their ids."""
        return peer_brokers(self._options, self._table.indices) if self._options.peers else {}

    def _listeners(self) -> list[_GatewayListener]:
        return [*self._brokers.values(), *([] if self._entry is None else [self._entry])]

    # --- what listeners use -----------------------------------------------------------------------

    def any_route(self) -> BrokerRoute | None:
        """Return the route to a broker that can be reached, for a client of the entry; or None."""
        return next((one.route for one in self._brokers.values() if not one.is_away), None)

    def listener_left(self) -> None:
        """Close the entry if it leads nowhere."""
        if self._entry is not None and not self.is_listening:
            self._entry.leave()

    def is_allowed(self, host: str) -> bool:
        """Return whether a client at this address is served; log it if not."""
        if not (is_allowed := self._options.is_allowed(host)):
            self.shared.log.report((host, "network"), f"{host}: in no network that --allow names")
        return is_allowed

    def not_tls(self, host: str, error: OSError) -> None:
        """Log why the handshake of a client has failed."""
        text = f"no TLS: {getattr(error, 'reason', None) or error.strerror or error}"
        self.shared.log.report((host, text), f"{host}: {text}")

    def listen_address(self, node_id: int) -> Address:
        """Return where the listener of a broker is."""
        return self._options.listen[0], listener_port(self._options, self._table.indices[node_id])


class _GatewayListener(Listener):
    """A listener that is closed while its broker (for the entry: every broker) can't be reached.

    An instance of this class itself is the entry, which leads to any broker; see `ENTRY`.

    Attributes:
        label: its name in metrics.
        is_away: whether it is closed for that reason.
    """

    def __init__(self, gateway: Gateway, address: Address, node_id: int | None = None) -> None:
        shared, options = gateway.shared, gateway.shared.options
        is_entry = node_id is None
        name = "the entry for clients of other gateways" if is_entry else f"node {node_id}"
        limits = ConnectionOptions(options.max_request_bytes, max_in_flight=_MAX_IN_FLIGHT)
        tls = ServerTls(options.tls, gateway.not_tls, gateway.is_allowed) if options.tls else None
        super().__init__(name, shared.resources, limits, self._new_gateway_handler, tls)
        self.label = ENTRY if is_entry else str(node_id)
        self.port = address[1]  # whether it is open or not
        self.is_away = self._is_ending = False
        self._is_port_missing = False  # the port couldn't be opened: another program may have it
        self._gateway = gateway
        self._address = address

    @property
    def client_port(self) -> int:
        """The port that clients get: 0, which refuses them, if it isn't available."""
        return 0 if self._is_port_missing else self.port

    def listen(self) -> None:
        """Accept connections.

        Raises:
            OSError: the port is not available.
        """
        self.open(*self._address, is_shared=self._gateway.shares_ports)
        _log.info("%s: listening on %s", self._whereabouts(), address_text(self._address))

    def listen_or_retry(self) -> None:
        """Accept connections, now or when the port is available."""
        if not self._reopen():
            self.is_away = True
            self._gateway.shared.tasks.start(self._return())

    def leave(self, why: str = "") -> None:
        """Accept no connections until the broker can be reached; open connections stay.

        Args:
            why: the end of the line that is logged (default: nothing, because the failed connection
                for a client is logged already).
        """
        if self.is_away or self._is_ending:
            return
        self.is_away = True
        self.stop_listening()
        _log.warning("%s: not listening until it can be reached%s", self._name, why)
        self._gateway.shared.tasks.start(self._return())
        self._gateway.listener_left()

    def _new_gateway_handler(self, connection: ServerConnection) -> ConnectionHandler:
        """Return the handler of a connection; reset it if it leads nowhere or isn't allowed."""
        gateway, route, is_entry = self._gateway, self._route(), self.label == ENTRY
        # With TLS, `ServerTls` has called `is_allowed` before the handshake.
        if route and (gateway.shared.options.tls or gateway.is_allowed(connection.host)):
            return GatewayHandler(connection, gateway.shared, route, is_entry=is_entry)
        connection.reset()
        return ConnectionHandler()  # it isn't called

    def _whereabouts(self) -> str:
        return self._name

    def _route(self) -> BrokerRoute | None:
        """Return where a connection leads; None: nowhere."""
        return self._gateway.any_route()

    async def _why_unreachable(self) -> str | None:
        return None if self._gateway.is_listening else "no broker can be reached"

    async def _return(self) -> None:
        while not self._is_ending:
            if await self._why_unreachable() is None and self._reopen():
                return
            await asyncio.sleep(_RETRY_S)

    def _reopen(self) -> bool:
        """Listen again; return whether that was possible."""
        if self._is_ending:
            return True
        try:
            self.listen()
        except OSError as error:
            if not self._is_port_missing:
                self._is_port_missing = True
                _log.error("%s. Trying again every %g s", error, _RETRY_S)
            return False
        self.is_away = self._is_port_missing = False
        return True

    def end(self) -> None:
        """Accept no connections, and close each one when its requests in flight are answered."""
        self._is_ending = True
        self.stop_listening()
        for connection in list(self.connections):
            connection.close()


class _BrokerListener(_GatewayListener):
    """The listener of one broker."""

    def __init__(self, gateway: Gateway, node_id: int, address: Address) -> None:
        super().__init__(gateway, gateway.listen_address(node_id), node_id)
        self.route = BrokerRoute(node_id, address, self.leave)

    def _whereabouts(self) -> str:
        return f"{self._name} at {address_text(self.route.address)}"

    def _route(self) -> BrokerRoute:
        return self.route

    async def leave_if_away(self) -> None:
        """Call `leave` if the broker can't be reached now, and this machine isn't the reason."""
        if not self.is_away and (why := await self._why_unreachable(own=False)) is not None:
            self.leave(f": {why}")

    async def _why_unreachable(self, *, own: bool = True) -> str | None:
        self.route.line = None  # the broker may be of another release now
        network = self._gateway.shared.options.network
        return await why_unreachable(self.route.address, network, own=own)


async def find_brokers(network: NetConfig) -> dict[int, Address]:
    """Return the brokers of a cluster by their ids, from the first address that answers.

    Raises:
        KafkaConnectionError: see `ask_first`.
    """

    async def ask(client: TargetClient) -> dict[int, Address]:
        if brokers := brokers_of(await client.metadata(of_topics=False)):
            return brokers
        raise KafkaProtocolError("names no brokers; one of 0.8 names none before there is a topic")

    return await ask_first(network.bootstrap, network, "the target can't be reached", ask)
