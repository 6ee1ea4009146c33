"""The only way to the network for producer, consumer and admin.

Puts nodes and metadata together; holds no state of its own beside them. Callers name a node id
(from the metadata snapshot, or of a broker that they have introduced), or leave it out where any
broker will do.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

from aiokafka08.errors import (
    IllegalStateError,
    KafkaConnectionError,
    KafkaError,
    KafkaProtocolError,
    KafkaTimeoutError,
    NoBrokersAvailable,
)
from aiokafka08.net.config import Address, NetConfig
from aiokafka08.net.metadata import Metadata
from aiokafka08.net.node import Lane, Node
from aiokafka08.net.node_registry import NodeRegistry
from aiokafka08.net.transport import BrokerConnection
from aiokafka08.net.versions import BrokerVersion
from aiokafka08.protocol.api import Request, Response
from aiokafka08.telemetry import Telemetry

__all__ = ["Lane", "Router"]

R = TypeVar("R", bound=Response)

_LOST = (KafkaConnectionError, KafkaTimeoutError, KafkaProtocolError)
"""A broker that is gone, hangs, or isn't there any more: others may lead its partitions now."""


class Router:
    """Brokers, reachable by node id; started and stopped by the client that owns it."""

    def __init__(self, config: NetConfig, telemetry: Telemetry) -> None:
        self.config = config
        self.telemetry = telemetry
        self.nodes = NodeRegistry(config, telemetry)
        self.metadata = Metadata(self.nodes, config, telemetry)
        self._stopped = False

    async def start(self) -> None:
        """Find a broker and ask it for the topics that the metadata tracks.

        Raises:
            NoBrokersAvailable: no bootstrap address is a broker; the text says why for each.
            UnsupportedVersionError: only 4.x brokers were found.
        """
        try:
            await self.nodes.bootstrap()
            await self.metadata.refresh()
            self.metadata.start()
        except BaseException as error:
            stopped = self._stopped
            await self.stop()
            if stopped and isinstance(error, KafkaError):
                raise IllegalStateError("the client was stopped while it started") from error
            raise

    async def stop(self) -> None:
        """Close all connections and end all background work; safe to call twice.

        Cancelled while it waits, it has closed everything all the same.
        """
        self._stopped = True
        self.metadata.close()
        self.nodes.close()
        await self.metadata.stop()
        await self.nodes.stop()

    async def request(
        self,
        request: Request[R],
        *,
        node_id: int | None = None,
        lane: Lane = Lane.CONTROL,
        version: int | None = None,
        timeout_s: float | None = None,
    ) -> R:
        """Send a request to a node, or to any broker that answers where `node_id` is None.

        One that is lost, or silent, asks for a metadata refresh. Raises as `Node.request`, and:

        Raises:
            KafkaConnectionError: the node isn't known (any more).
            NoBrokersAvailable: no broker answered (only with `node_id=None`).
            IllegalStateError: the client was stopped.
        """
        if node_id is None:
            return await self._request_any(request, lane, version, timeout_s)
        try:
            return await self._node(node_id).request(
                request, lane=lane, version=version, timeout_s=timeout_s
            )
        except _LOST:
            self.metadata.request_refresh()
            raise

    async def connection(
        self, node_id: int, lane: Lane, *, timeout_s: float | None = None
    ) -> BrokerConnection:
        """The open connection of a node's lane, for those who must know which one they use.

        Raises as `Node.connection`; a failure asks for a metadata refresh.
        """
        try:
            return await self._node(node_id).connection(lane, timeout_s=timeout_s)
        except _LOST:
            self.metadata.request_refresh()
            raise

    def register_broker(self, node_id: int, address: Address) -> None:
        """Let requests to a node id go to this address, whether Metadata names it or not.

        For coordinators, whose address is in the answer that names them: a client that tracks no
        topic knows no brokers from Metadata 0 (docs/brokers.md 4.11). A later snapshot that names
        the node replaces the address; if that is another one, connections to the old one end.

        Raises:
            IllegalStateError: the client was stopped.
        """
        self._check()
        self.nodes.register_broker(node_id, address)

    def version(self, node_id: int | None = None) -> BrokerVersion | None:
        """What a node speaks; without an id, the lowest line that was met. None: not met yet."""
        if node_id is not None:
            node = self.nodes.get(node_id)
            return None if node is None else node.version
        met = [node.version for node in self.nodes if node.version is not None]
        return min(met, key=lambda version: version.line, default=None)

    def _check(self) -> None:
        if self._stopped:
            raise IllegalStateError("the client was stopped")

    def _node(self, node_id: int) -> Node:
        self._check()
        node = self.nodes.get(node_id)
        if node is None:
            self.metadata.request_refresh()
            raise KafkaConnectionError(f"node {node_id} isn't in the cluster's metadata")
        return node

    async def _request_any(
        self, request: Request[R], lane: Lane, version: int | None, timeout_s: float | None
    ) -> R:
        self._check()
        loop = asyncio.get_running_loop()
        limit_s = self.config.request_timeout_s if timeout_s is None else timeout_s
        end = loop.time() + limit_s
        errors: dict[str, None] = {}
        for node in self.nodes.candidates():
            left_s = end - loop.time()
            if left_s <= 0:
                errors["no time is left to ask others"] = None
                break
            try:
                return await node.request(request, lane=lane, version=version, timeout_s=left_s)
            except KafkaError as error:
                self._check()
                if not error.retriable:
                    raise
                errors[error.text] = None
        raise NoBrokersAvailable("no broker responded: " + "; ".join(errors))
