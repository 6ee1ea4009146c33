"""`Gateways`: the gateways of one process, one for each listener of the options.

They share the brokers' indices (`port_table`), clients and measurements. Each has its own limits,
and its own connections to the target, made as its own principal. `workers` runs them in several
processes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from aiokafka08._core.net.config import Address
from aiokafka08._tools.gateway.clients import ClientTable
from aiokafka08._tools.gateway.gateway import Gateway, ListenerState
from aiokafka08._tools.gateway.measurements import NO_MEASUREMENTS, Measurements
from aiokafka08._tools.gateway.options import GatewayOptions
from aiokafka08._tools.gateway.port_table import PortTable

Ports = Mapping[str, Mapping[int, int]]
"""Maps the name of each listener to its ports by broker id."""


class Gateways:
    """See the module.

    Args:
        options: the options of each listener.
        table: the brokers' indices, which determine the listeners' ports.
        measurements: called to measure the gateways' work (default: nothing is measured).
        shares_ports: whether other processes listen on the same ports (default: no).

    Attributes:
        clients: the clients that were seen.
        measurements: measures the gateways' work.
    """

    def __init__(
        self,
        options: Sequence[GatewayOptions],
        table: PortTable,
        measurements: Measurements = NO_MEASUREMENTS,
        *,
        shares_ports: bool = False,
    ) -> None:
        self.clients = ClientTable()
        self.measurements = measurements
        self._gateways = {
            one.name: Gateway(one, table, measurements, self.clients, shares_ports=shares_ports)
            for one in options
        }

    @property
    def ports(self) -> Ports:
        """The ports of the brokers."""
        return {name: one.ports for name, one in self._gateways.items()}

    async def start(self) -> None:
        """See `Gateway.start`."""
        try:
            for one in self._gateways.values():
                await one.start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """See `Gateway.stop`."""
        await asyncio.gather(*(one.stop() for one in self._gateways.values()))

    def states(self) -> list[ListenerState]:
        """Return the states of the ports; may be called in any thread."""
        return [state for one in self._gateways.values() for state in one.states()]

    def address_of(self, node_id: int, host: str, port: int) -> Address:
        """Return the address that clients of the first listener use for a broker."""
        return self._gateways[""].address_of(node_id, host, port)

    def peers(self) -> dict[int, Address]:
        """Return the addresses of peers (see `Gateway.peers`) for clients of the first listener."""
        return self._gateways[""].peers()
