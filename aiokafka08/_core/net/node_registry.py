"""All known brokers by node id, and the bootstrap addresses for when no known broker responds.

Invariant: each known node id has exactly one `Node`, at the address that was reported last. If a
broker leaves or moves to another address, its connections are closed. In `request_any()` a broker
that hangs delays the next one by at most a quarter of the time, and a dead connection delays a new
one by at most half. After `keep_connected()` the last connection stays open even if it is idle, and
its loss is reported.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Final, TypeVar

from aiokafka08 import environment
from aiokafka08._core.concurrency.task_set import TaskSet
from aiokafka08._core.net.cluster import ClusterSnapshot
from aiokafka08._core.net.config import Address, NetConfig, address_text, advertised_address
from aiokafka08._core.net.connect import joined_details
from aiokafka08._core.net.node import Lane, Node
from aiokafka08._core.net.raw_stream import WrongPortError
from aiokafka08._core.net.staggered_race import (
    AllAttemptsFailedError,
    Stagger,
    stagger_delay,
    staggered_race,
)
from aiokafka08._core.net.versions import alive_request
from aiokafka08.errors import (
    AuthenticationFailedError,
    CertificateError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    NoBrokersAvailable,
    UnsupportedVersionError,
)
from aiokafka08.telemetry import Telemetry

T = TypeVar("T")

_FINAL: Final = (WrongPortError, CertificateError, AuthenticationFailedError)


def is_for_the_user(error: BaseException | None) -> bool:
    """Return whether retries can't help, because only the user can remove the cause."""
    # Other failures may pass: a balancer without a broker behind it closes its connections, or
    # responds in HTTP.
    return isinstance(error, _FINAL) or (
        isinstance(error, NoBrokersAvailable) and isinstance(error.__cause__, _FINAL)
    )


class NodeRegistry:
    """The `Node` objects of one client."""

    def __init__(self, config: NetConfig, telemetry: Telemetry) -> None:
        self._config = config
        self._telemetry = telemetry
        self._needs_exact_line = False
        self._bootstrap = {address: self._make(None, address) for address in config.bootstrap}
        self._by_id: dict[int, Node] = {}
        self._in_snapshot: dict[int, Address] = {}  # the addresses in the last snapshot
        self._registered: dict[int, Address] = {}
        self._tasks = TaskSet()
        self._last_response = -math.inf  # the latest response of nodes that are no longer known
        self._reconnect: Callable[[], object] | None = None
        self._closed = False

    def __iter__(self) -> Iterator[Node]:
        return iter([*self._by_id.values(), *self._bootstrap.values()])

    def get(self, node_id: int) -> Node | None:
        return self._by_id.get(node_id)

    @property
    def is_connected(self) -> bool:
        return any(node.is_connected for node in self)

    @property
    def last_response(self) -> float:
        """Loop time of the last data from any broker; minus infinity if there is none yet."""
        return max([self._last_response, *(node.last_response for node in self)])

    def keep_connected(self, reconnect: Callable[[], object]) -> None:
        """Keep a connection open from now on, also without requests.

        `reconnect`: called when the last connection was lost, or would be closed because it is
        idle; sends a request to some broker soon, again and again until one responds.
        """
        self._reconnect = reconnect

    def require_exact_lines(self) -> None:
        """From now on, also probe the exact `BrokerLine`; see `Node.exact_version()`."""
        self._needs_exact_line = True
        for node in self:
            node.needs_exact_line = True

    def candidates(self) -> list[Node]:
        """Return one node per address; those that are likely to respond soon come first."""
        by_address = self._bootstrap | {node.address: node for node in self._by_id.values()}

        def order(node: Node) -> tuple[bool, bool, bool, bool, float]:
            # An open connection counts only if the node has ever responded. With a pinned version
            # there is no probe, so a node is connected to anything that listens at its address.
            is_mute = node.last_response == -math.inf
            return (
                node.is_unresponsive,
                is_mute or not node.is_connected,
                node.is_backing_off,
                is_mute,
                environment.random.random(),
            )

        return sorted(by_address.values(), key=order)

    async def request_any(
        self,
        request: Callable[[Node, float], Awaitable[T]],
        timeout_s: float,
        *,
        caller_s: float = math.inf,
        delay_s: float | None = None,
        stagger: Stagger | None = None,
    ) -> T:
        """Send a request to one broker after another, and return the first response.

        Args:
            request: sends it to a node; its second argument is the timeout in seconds.
            timeout_s: seconds for all brokers together.
            caller_s: how long the caller waits, if less than `timeout_s`; one broker may take a
                fraction of it.
            delay_s: how long one broker may take before the next one gets the request too; by
                default `NetLimits.unresponsive_s`. At most a quarter of the caller's time.
            stagger: gets this delay; a later caller with less time for the request may shorten it.

        Raises:
            NoBrokersAvailable: no broker responded; the text has each one's error.
            KafkaError: the first error (such as UnsupportedVersionError), if none is retriable.
        """
        clock = asyncio.get_running_loop().time
        deadline = clock() + timeout_s
        caller_s = min(timeout_s, caller_s)
        limits = self._config.limits
        errors: list[KafkaError] = []

        async def attempt(node: Node, limit_s: float) -> T:
            try:
                if (left_s := deadline - clock()) <= 0:
                    raise KafkaTimeoutError("no time left to try other brokers")
                return await request(node, min(limit_s, left_s))
            except KafkaError as error:
                errors.append(error)
                raise

        async def attempts(node: Node) -> T:
            if node.is_connected:
                try:
                    return await attempt(node, min(limits.attempt_s, caller_s / 2))
                except (KafkaConnectionError, KafkaTimeoutError):
                    # The connection may be dead and the broker alive, so try the broker once more.
                    node.close_if_abandoned(Lane.CONTROL)
            return await attempt(node, math.inf)

        stagger = stagger or Stagger()
        stagger.shorten(min(limits.unresponsive_s if delay_s is None else delay_s, caller_s / 4))
        try:
            return await staggered_race(
                {node: partial(attempts, node) for node in self.candidates()},
                delay_s=stagger,
                expected=(KafkaError,),
            )
        except AllAttemptsFailedError as failed:
            last = [error for error in failed.errors.values() if isinstance(error, KafkaError)]
        if not any(error.retriable for error in errors):
            raise errors[0]
        nothing_else = all(map(is_for_the_user, last))
        reasons = sorted({error.text for error in (last if nothing_else else errors)})
        raise NoBrokersAvailable("no broker responded: " + "; ".join(reasons)) from (
            errors[-1] if nothing_else else None
        )

    async def bootstrap(self) -> Node:
        """Connect to the bootstrap addresses and return the first one that is a broker.

        Raises:
            UnsupportedVersionError: all brokers found are 4.x.
            AuthenticationFailedError: no address accepts the SASL authentication.
            NoBrokersAvailable: no address is a broker; the text has the last error of each.
        """
        limit_s = self._config.start_timeout_s
        deadline = asyncio.get_running_loop().time() + limit_s
        nodes = list(self._bootstrap.values())
        failures: dict[Node, KafkaError] = {}
        is_too_new = False

        def again(error: Exception) -> bool:
            nonlocal is_too_new
            is_too_new |= isinstance(error, UnsupportedVersionError)
            is_over = self._closed or asyncio.get_running_loop().time() >= deadline
            # Brokers may be starting, and connections are lost: try again until `start_timeout_ms`
            # is over. Only the user can remove other causes. After a 4.x broker no address is
            # tried again.
            return not (is_too_new or is_over or is_for_the_user(error))

        try:
            return await staggered_race(
                {
                    node: partial(self._connect_to_broker, node, deadline, failures)
                    for node in nodes
                },
                delay_s=stagger_delay(min(limit_s, self._config.request_timeout_s), len(nodes)),
                expected=(KafkaError,),
                again=again,
            )
        except AllAttemptsFailedError as failed:
            errors = [error for error in failed.errors.values() if isinstance(error, KafkaError)]
        for error in errors:
            if isinstance(error, UnsupportedVersionError):
                raise error
        if all(isinstance(error, AuthenticationFailedError) for error in errors):
            raise errors[0]
        raise NoBrokersAvailable(
            "no broker among bootstrap_servers: " + "; ".join(error.text for error in errors),
            *joined_details(errors),
        )

    def follow(self, snapshot: ClusterSnapshot) -> None:
        self._in_snapshot = {
            node_id: advertised_address(broker.host, broker.port)
            for node_id, broker in snapshot.brokers.items()
        }
        for node_id in self._in_snapshot:
            self._registered.pop(node_id, None)
        self._update_nodes()

    def register_broker(self, node_id: int, advertised: Address) -> None:
        """Add a broker, or change its address, without waiting for a snapshot that names it."""
        address = advertised_address(*advertised)
        # Once a snapshot names the broker, the snapshots determine its address.
        if self._in_snapshot.get(node_id) == address:
            self._registered.pop(node_id, None)
        else:
            self._registered[node_id] = address
        self._update_nodes()

    def _update_nodes(self) -> None:
        """Create and close nodes so that there is one for each known broker."""
        if self._closed:
            return
        addresses = self._in_snapshot | self._registered
        for node_id, node in list(self._by_id.items()):
            if addresses.get(node_id) != node.address:
                self._last_response = self.last_response
                del self._by_id[node_id]
                reason = "the broker left, or moved to another address"
                node.close(reason)
                self._tasks.start(node.stop(reason))
        for node_id, address in addresses.items():
            if node_id not in self._by_id:
                self._by_id[node_id] = self._new(node_id, address)

    def close(self) -> None:
        self._closed = True
        for node in self:
            node.close()

    async def stop(self) -> None:
        self.close()
        await asyncio.gather(*(node.stop() for node in self))
        await self._tasks.wait()

    def _new(self, node_id: int, address: Address) -> Node:
        """Return the node of a broker: a connected bootstrap node at its address, or a new one."""
        known = self._bootstrap.get(address)
        if known is None or not known.is_connected:
            return self._make(node_id, address)
        # The bootstrap node keeps its connections when it gets its id. A new one takes its place,
        # so the address then has two nodes.
        self._bootstrap[address] = self._make(None, address)
        known.node_id = node_id
        return known

    def _make(self, node_id: int | None, address: Address) -> Node:
        node = Node(
            node_id,
            address,
            self._config,
            self._telemetry,
            on_lost=self._on_lost,
            keep_idle=self._keep_idle,
        )
        node.needs_exact_line = self._needs_exact_line
        return node

    def _on_lost(self) -> None:
        if self._reconnect is not None and not self._closed and not self.is_connected:
            self._reconnect()

    def _keep_idle(self) -> bool:
        """Return whether a node's idle connection stays open, since it is the only one."""
        if self._reconnect is None or sum(node.is_connected for node in self) > 1:
            return False
        self._reconnect()
        return True

    async def _connect_to_broker(
        self, node: Node, deadline: float, failures: dict[Node, KafkaError]
    ) -> Node:
        """Connect to a node; the deadline's error names the node's last failure, if any."""
        clock = asyncio.get_running_loop().time
        try:
            connection = await node.connection(Lane.CONTROL, timeout_s=max(deadline - clock(), 0.0))
            if self._config.pinned_version is not None and len(self._bootstrap) > 1:
                # Without a probe, only this request shows that the address is a broker.
                await connection.request(
                    alive_request(), version=0, timeout_s=max(deadline - clock(), 0.0)
                )
        except KafkaError as error:
            earlier = failures.get(node)
            if isinstance(error, KafkaTimeoutError) and earlier is not None:
                if node.is_backing_off or isinstance(earlier, KafkaTimeoutError):
                    raise earlier from None
                raise KafkaTimeoutError(
                    f"{error.text}; before that: {earlier.text}", *joined_details((earlier,))
                ) from None
            failures[node] = error
            raise
        if connection.close_reason is not None:
            raise KafkaConnectionError(f"{address_text(node.address)}: {connection.close_reason}")
        return node
