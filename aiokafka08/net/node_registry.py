"""All the nodes that are known: by id from Metadata, and the bootstrap addresses as a way back.

Follows the snapshots: a broker that left or moved to another address loses its connections. Beside
them brokers may be introduced by who was told their address otherwise (a group's coordinator says
its own; the snapshot of a client that tracks no topic names none). Of two addresses for a node id
the one that was told last holds.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Iterator
from functools import partial
from typing import Any

from aiokafka08.errors import (
    KafkaConnectionError,
    KafkaError,
    NoBrokersAvailable,
    UnsupportedVersionError,
)
from aiokafka08.net.cluster import ClusterSnapshot
from aiokafka08.net.config import Address, NetConfig, address_text
from aiokafka08.net.node import Lane, Node
from aiokafka08.net.staggered_race import AllAttemptsFailedError, stagger_delay, staggered_race
from aiokafka08.telemetry import Telemetry


class NodeRegistry:
    """The registry of nodes of one client."""

    def __init__(self, config: NetConfig, telemetry: Telemetry) -> None:
        self._config = config
        self._telemetry = telemetry
        self._bootstrap = {
            address: Node(None, address, config, telemetry) for address in config.bootstrap
        }
        self._by_id: dict[int, Node] = {}
        self._named: dict[int, Address] = {}  # by the last snapshot
        self._introduced: dict[int, Address] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def __iter__(self) -> Iterator[Node]:
        return iter([*self._by_id.values(), *self._bootstrap.values()])

    def get(self, node_id: int) -> Node | None:
        """The node with this id, if Metadata has named it, or somebody has introduced it."""
        return self._by_id.get(node_id)

    def candidates(self) -> list[Node]:
        """Each address once, those first that are likely to answer soon: not hanging, connected,
        not failing."""
        by_address = self._bootstrap | {node.address: node for node in self._by_id.values()}
        return sorted(
            by_address.values(),
            key=lambda node: (
                node.is_unresponsive,
                not node.is_connected,
                node.is_backing_off,
                random.random(),
            ),
        )

    async def bootstrap(self) -> Node:
        """The first bootstrap address that turns out to be a broker.

        Addresses are tried in order, each with a head start, so a dead or silent one among them
        costs a second at most; all of it ends within `request_timeout_ms`.

        Raises:
            UnsupportedVersionError: the only brokers found are 4.x.
            NoBrokersAvailable: no address is a broker; the text says why for each.
        """
        limit_s = self._config.request_timeout_s
        end = asyncio.get_running_loop().time() + limit_s
        nodes = list(self._bootstrap.values())
        try:
            return await staggered_race(
                {node: partial(_connected, node, end) for node in nodes},
                delay_s=stagger_delay(limit_s, len(nodes)),
                expected=(KafkaError,),
            )
        except AllAttemptsFailedError as failed:
            errors = [error for error in failed.errors.values() if isinstance(error, KafkaError)]
        for error in errors:
            if isinstance(error, UnsupportedVersionError):
                raise error
        raise NoBrokersAvailable(
            "no broker among bootstrap_servers: " + "; ".join(error.text for error in errors)
        )

    def follow(self, snapshot: ClusterSnapshot) -> None:
        """Take over the brokers of a new snapshot."""
        self._named = {
            node_id: (broker.host, broker.port) for node_id, broker in snapshot.brokers.items()
        }
        for node_id in self._named:
            self._introduced.pop(node_id, None)
        self._settle()

    def register_broker(self, node_id: int, address: Address) -> None:
        """Know a broker that says so itself; it stays until a snapshot or somebody says other."""
        if self._named.get(node_id) == address:
            self._introduced.pop(node_id, None)
        else:
            self._introduced[node_id] = address
        self._settle()

    def _settle(self) -> None:
        """Have a node for each broker that is known now, and no others."""
        if self._closed:
            return
        addresses = self._named | self._introduced
        for node_id, node in list(self._by_id.items()):
            if addresses.get(node_id) != node.address:
                del self._by_id[node_id]
                reason = "the broker left, or moved to another address"
                node.close(reason)
                self._spawn(node.stop(reason))
        for node_id, address in addresses.items():
            if node_id not in self._by_id:
                self._by_id[node_id] = self._new(node_id, address)

    def close(self) -> None:
        """Close every connection, for good; `stop` waits until the sockets are gone."""
        self._closed = True
        for node in self:
            node.close()

    async def stop(self) -> None:
        """`close`, and wait until the sockets are gone."""
        self.close()
        await asyncio.gather(*(node.stop() for node in self))
        await asyncio.gather(*self._tasks)

    def _new(self, node_id: int, address: Address) -> Node:
        """The node for a broker; that of a bootstrap address becomes it, connections and all."""
        known = self._bootstrap.get(address)
        if known is None or not known.is_connected:
            return Node(node_id, address, self._config, self._telemetry)
        self._bootstrap[address] = Node(None, address, self._config, self._telemetry)
        known.node_id = node_id
        return known

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _connected(node: Node, end: float) -> Node:
    left_s = max(end - asyncio.get_running_loop().time(), 0.0)
    connection = await node.connection(Lane.CONTROL, timeout_s=left_s)
    if connection.close_reason is not None:
        raise KafkaConnectionError(f"{address_text(node.address)}: {connection.close_reason}")
    return node
