"""The only door to the network for producer, consumer, admin and Spark.

Callers name a broker by its node id, or name none if any broker will do.

Invariant: if `connection()`, or `request()` with a node id, fails with a connection error, a
timeout or a protocol error, the broker may be lost, so the router requests a metadata refresh. A
request without a node id goes to the next broker instead, while time is left.
"""

from __future__ import annotations

import asyncio
from typing import Final, TypeVar

from aiokafka08._core.net.cluster import PartitionLeaders
from aiokafka08._core.net.config import Address, NetConfig, address_text
from aiokafka08._core.net.metadata_cache import Metadata
from aiokafka08._core.net.node import Lane, Node
from aiokafka08._core.net.node_registry import NodeRegistry, is_for_the_user
from aiokafka08._core.net.retry import attempt_timeout, is_final, retry
from aiokafka08._core.net.transport import BrokerConnection
from aiokafka08._core.net.versions import BrokerVersion
from aiokafka08.errors import (
    IllegalStateError,
    KafkaConnectionError,
    KafkaError,
    KafkaProtocolError,
    KafkaTimeoutError,
    KafkaUnavailableError,
    NoBrokersAvailable,
)
from aiokafka08.protocol.api import Request, Response
from aiokafka08.protocol.requests.list_offsets import ListOffsetsRequest
from aiokafka08.structs import TopicPartition
from aiokafka08.telemetry import Telemetry

__all__ = ["Lane", "Router"]

R = TypeVar("R", bound=Response)

# The errors after which a broker may be gone or hang, so other brokers may lead its partitions now
_LOST: Final = (KafkaConnectionError, KafkaTimeoutError, KafkaProtocolError)


class Router:
    """Send requests to brokers by node id. The client that owns the router starts and stops it."""

    def __init__(self, config: NetConfig, telemetry: Telemetry) -> None:
        self.config = config
        self.telemetry = telemetry  # the client's events and counters
        self.nodes = NodeRegistry(config, telemetry)
        self.metadata = Metadata(self.nodes, config, telemetry)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = False
        self._renewals: asyncio.Task[None] | None = None

    async def start(
        self, leaders: PartitionLeaders | None = None, *, keep_connected: bool = False
    ) -> None:
        """Find a broker and request the tracked topics from it, within `start_timeout_ms` in all.

        Args:
            keep_connected: keep a connection open also without requests, for `is_reachable()`. When
                the last one is lost, refresh the metadata until a broker responds again.
            leaders: the result of another router's `leaders()`: start with that, without a request;
                None: start with a request.

        Raises:
            NoBrokersAvailable: no bootstrap address is a broker, or none responds; the text has the
                last error of each.
            UnsupportedVersionError: all brokers found are 4.x.
        """
        self._loop = asyncio.get_running_loop()
        if keep_connected:
            self.nodes.keep_connected(self.metadata.request_refresh)
        if leaders is not None and leaders.by_partition:
            self.metadata.adopt(leaders.snapshot())
            for node_id, version in leaders.versions.items():
                self._node(node_id).adopt_version(version)
            self._start_tasks()
            return
        deadline = self._loop.time() + self.config.start_timeout_s
        try:
            node = await self.nodes.bootstrap()
            await retry(
                self.metadata.refresh,
                deadline=deadline,
                backoff=self.config.backoff(),
                timed_out=lambda last: last or self._no_metadata(node),
                is_final=lambda error: is_final(error) or is_for_the_user(error),
            )
            self._start_tasks()
        except BaseException as error:
            stopped = self._stopped
            await self.stop()
            if stopped and isinstance(error, KafkaError):
                raise IllegalStateError("the client was stopped during its start") from error
            raise

    def check_credentials(self) -> None:
        """Renew credentials in the background; call again after the event loop has stood still."""
        if self._renewals is not None:
            self._renewals.cancel()
        if self.config.sasl is not None:
            from aiokafka08._core.net.authentication import renew_credentials

            self._renewals = asyncio.create_task(renew_credentials(self.config.sasl))

    def _start_tasks(self) -> None:
        self.metadata.start()
        self.check_credentials()

    def _no_metadata(self, node: Node) -> NoBrokersAvailable:
        # With a version that the user pins, nothing but the connection is known of the peer.
        seen = (
            "is a broker, but" if self.config.pinned_version is None else "accepts connections, but"
        )
        return NoBrokersAvailable(
            f"{address_text(node.address)}: {seen} the start got no metadata within "
            f"{self.config.start_timeout_s * 1000:.0f} ms"
        )

    async def stop(self) -> None:
        """Close all connections and stop the background tasks; a second call does no harm."""
        self._stopped = True
        # Before the first wait, so that everything is closed even if this call is cancelled.
        self.metadata.close()
        self.nodes.close()
        if self._renewals is not None:
            self._renewals.cancel()
            await asyncio.wait((self._renewals,))
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
        """Send a request to a node and return the response.

        Args:
            request: the request.
            node_id: the broker; None sends to one broker after another until one responds.
            lane: which connection of the broker to use.
            version: the API version; by default the highest one that both sides support.
            timeout_s: seconds for the whole call; by default `request_timeout_ms`.

        Raises:
            KafkaConnectionError: the node isn't known, or its connection was lost.
            NoBrokersAvailable: no broker responded (only with `node_id=None`).
            IllegalStateError: the client was stopped.
            KafkaError: as `Node.request`.
        """
        if node_id is None:
            # The request may be a write, and a broker that carries out an old write late can undo a
            # newer one. So wait longer than for a read before the next broker gets it too.
            delay_s = self.config.limits.attempt_s
            response, _ = await self.request_any(
                request, lane=lane, version=version, timeout_s=timeout_s, delay_s=delay_s
            )
            return response
        node = self._node(node_id)
        try:
            return await node.request(request, lane=lane, version=version, timeout_s=timeout_s)
        except _LOST:
            self.metadata.request_refresh()
            raise

    async def request_any(
        self,
        request: Request[R],
        *,
        lane: Lane = Lane.CONTROL,
        version: int | None = None,
        timeout_s: float | None = None,
        delay_s: float | None = None,
    ) -> tuple[R, Address]:
        """Send a request to one broker after another; return the response and the broker's address.

        `delay_s` is as for `NodeRegistry.request_any()`. Raises as `request()` without a node id.
        """
        self._check()

        async def send(node: Node, limit_s: float) -> tuple[R, Address]:
            response = await node.request(request, lane=lane, version=version, timeout_s=limit_s)
            return response, node.address

        try:
            limit_s = self.config.request_timeout_s if timeout_s is None else timeout_s
            return await self.nodes.request_any(send, limit_s, delay_s=delay_s)
        except KafkaError:
            self._check()
            raise

    async def ping(self, timeout_s: float) -> None:
        """Return when some broker has responded to a small request.

        Raises NoBrokersAvailable after `timeout_s`, IllegalStateError if the client was stopped.
        """
        await self.request_any(ListOffsetsRequest(-1, []), version=0, timeout_s=timeout_s)

    def is_reachable(self) -> bool:
        """Return whether a connection is open, and a broker has responded lately."""
        if self._loop is None or not self.nodes.is_connected:
            return False
        # Even without other requests, the periodic metadata refreshes bring a response this often.
        # The caller may be outside of the event loop, so use the loop's clock directly.
        limit_s = self.config.metadata_max_age_s + self.config.limits.attempt_s
        return self._loop.time() - self.nodes.last_response <= limit_s

    def open_lane(self, node_id: int, lane: Lane) -> BrokerConnection | None:
        node = self.nodes.get(node_id)
        return None if node is None else node.open_lane(lane)

    async def connection(
        self, node_id: int, lane: Lane, *, exact: bool = False, timeout_s: float | None = None
    ) -> BrokerConnection:
        """Return the open connection of a lane, for callers that must know which one they use.

        With `exact`, raises KafkaUnavailableError if the broker's exact line isn't known; see
        `exact_version()`. Raises otherwise as `Node.connection`.
        """
        node = self._node(node_id)
        try:
            connection = await node.connection(lane, timeout_s=timeout_s)
        except _LOST:
            self.metadata.request_refresh()
            raise
        if exact and not connection.version.is_exact:
            await self.exact_version(node_id)
            if not connection.version.is_exact:
                raise KafkaUnavailableError(f"node {node_id}: its line isn't known yet")
        return connection

    def register_broker(self, node_id: int, address: Address) -> None:
        """Make a broker reachable by its node id, whether or not the metadata names it."""
        # A client that tracks no topic learns of no brokers from Metadata 0 (docs/brokers.md 4.12).
        self._check()
        self.nodes.register_broker(node_id, address)

    def leaders(self) -> PartitionLeaders:
        """Return the known leaders of all partitions, for `start()` of another router."""
        snapshot = self.metadata.snapshot
        by_partition = {
            TopicPartition(topic, number): partition.leader
            for topic, info in snapshot.topics.items()
            for number, partition in info.partitions.items()
            if partition.leader is not None and partition.leader in snapshot.brokers
        }
        versions = {node_id: self.version(node_id) for node_id in snapshot.brokers}
        return PartitionLeaders(
            by_partition,
            dict(snapshot.brokers),
            {node_id: version for node_id, version in versions.items() if version is not None},
        )

    def version(self, node_id: int | None = None) -> BrokerVersion | None:
        """Return what a node supports; None if its version isn't known yet.

        Without an id, return the version of the oldest broker: the lowest `BrokerLine` among the
        nodes whose version is known. The line may be `BrokerLine.V0_8`: see `exact_version()`.
        """
        if node_id is not None:
            node = self.nodes.get(node_id)
            return None if node is None else node.version
        known = [node.version for node in self.nodes if node.version is not None]
        return min(known, key=lambda version: version.line, default=None)

    async def exact_version(
        self, node_id: int | None = None, *, timeout_s: float | None = None
    ) -> BrokerVersion:
        """Return what a node, or the oldest broker, supports, with the exact line.

        The line stays `BrokerLine.V0_8` if the cluster has no topic yet. Without a node id, brokers
        that don't respond are left out if another one does.

        Raises:
            KafkaUnavailableError: no broker's version is known, or the node hasn't learnt of the
                cluster's topics in time.
            IllegalStateError: the client was stopped.
            KafkaError: as `Node.exact_version`.
        """
        limit_s = self.config.request_timeout_s if timeout_s is None else timeout_s

        async def ask(node: Node, left_s: float) -> BrokerVersion | KafkaError:
            try:
                return await node.exact_version(timeout_s=left_s)
            except KafkaError as error:
                if isinstance(error, _LOST):
                    self.metadata.request_refresh()
                return error

        async def attempt(left_s: float) -> BrokerVersion | KafkaError:
            self._check()
            if node_id is None:
                # Probe exact lines only here, since 0.8.0 logs a stack trace for each such probe.
                self.nodes.require_exact_lines()
                known = [node for node in self.nodes if node.version is not None]
                # A node that has just failed would first wait for its backoff, and then probably
                # fail again.
                nodes = [node for node in known if not node.is_backing_off] or known
            else:
                nodes = [self._node(node_id)]
            results = await asyncio.gather(*(ask(node, left_s) for node in nodes))
            versions = [result for result in results if isinstance(result, BrokerVersion)]
            if not versions:
                errors = [result for result in results if isinstance(result, KafkaError)]
                unknown = KafkaUnavailableError("no broker's version is known yet")
                return errors[0] if errors else unknown
            oldest = min(versions, key=lambda version: version.line)
            topics = self.metadata.snapshot.topics.values()
            if oldest.is_exact or not any(topic.partitions for topic in topics):
                return oldest
            return KafkaUnavailableError(
                "a broker of 0.8.1 or 0.8.2 lists no topic yet, so its line isn't known"
            )

        return await retry(
            attempt,
            deadline=asyncio.get_running_loop().time() + limit_s,
            backoff=self.config.backoff(at_least_s=0.01),
            timed_out=lambda last: last or KafkaTimeoutError("no broker responded in time"),
            attempt_s=attempt_timeout(limit_s),
        )

    def expected_round_trip_s(self, node_id: int | None) -> float:
        """Return the round-trip time to a broker, as measured when its version was probed.

        If it wasn't probed, or without an id, return the shortest one of all; 0 if there is none.
        """
        node = None if node_id is None else self.nodes.get(node_id)
        if node is not None and node.round_trip_s is not None:
            return node.round_trip_s
        known = (node.round_trip_s for node in self.nodes)
        return min((seconds for seconds in known if seconds is not None), default=0.0)

    def _check(self) -> None:
        if self._stopped:
            raise IllegalStateError("the client was stopped")

    def _node(self, node_id: int) -> Node:
        self._check()
        node = self.nodes.get(node_id)
        if node is None:
            # The next metadata may have it.
            self.metadata.request_refresh()
            raise KafkaConnectionError(f"node {node_id} isn't in the cluster's metadata")
        return node
