"""Find the broker that coordinates a consumer group, and remember it.

Invariant: a `CoordinatorLookup` runs at most one lookup at a time. The node id that it returns is
reused until `invalidate()` is called with this id.
"""

from __future__ import annotations

import asyncio
from typing import Final

from aiokafka08._core.net.config import Address, address_text
from aiokafka08._core.net.retry import retry
from aiokafka08._core.net.router import Router
from aiokafka08._core.net.versions import BrokerLine
from aiokafka08._wording import shorten
from aiokafka08.errors import (
    GroupCoordinatorNotAvailableError,
    IllegalArgumentError,
    KafkaError,
    KafkaProtocolError,
    broker_error,
    group_code,
)
from aiokafka08.protocol.requests.groups import GroupCoordinatorRequest, GroupCoordinatorResponse
from aiokafka08.protocol.requests.metadata import MetadataRequest

ATTEMPT_S: Final = 5.0
"""How long one lookup request may take."""

HINT_S: Final = 1.0
"""How long to look for the reason after the brokers have named no coordinator."""

OFFSETS_TOPIC: Final = "__consumer_offsets"


def check_group_id(group: object) -> str:
    """Return `group` if it can name a group; else raise IllegalArgumentError."""
    if isinstance(group, str) and group:
        try:
            if len(group.encode()) <= 0x7FFF:
                return group
        except UnicodeEncodeError:
            pass
    raise IllegalArgumentError(
        f"group_id={shorten(group)}: expected a non-empty string of at most 32767 bytes in UTF-8"
    )


def check_any_group_id(group: object) -> str:
    """Return `group` if a cluster may have it; else raise IllegalArgumentError."""
    # Old clients have groups whose name is "".
    return "" if group == "" else check_group_id(group)


class CoordinatorLookup:
    """Look up and remember the coordinator of one group.

    `node_id`: the coordinator, if the caller knows it already.
    """

    def __init__(self, router: Router, group: str, node_id: int | None = None) -> None:
        self.group = group
        self._router = router
        self._node_id = node_id
        # The node, its address, and the broker that named it
        self._advertised: tuple[int, Address, Address] | None = None
        self._lock = asyncio.Lock()

    async def node_id(self, *, timeout_s: float | None = None) -> int:
        """Return the coordinator's node id, for `Router.request()`; look it up if necessary.

        Args:
            timeout_s: in seconds; by default `request_timeout_ms`.

        Raises:
            GroupCoordinatorNotAvailableError: no broker named the coordinator in time; the text has
                the last error.
            UnsupportedVersionError: the brokers are older than 0.8.2, and have no coordinators.
            BrokerResponseError: the brokers reject the group.
            IllegalStateError: the client was stopped.
        """
        if self._node_id is not None:
            return self._node_id
        limit_s = self._router.config.request_timeout_s if timeout_s is None else timeout_s
        deadline = asyncio.get_running_loop().time() + limit_s

        last_error: KafkaError | None = None

        def timed_out(last: KafkaError | None) -> KafkaError:
            nonlocal last_error
            last_error = last
            error_class = GroupCoordinatorNotAvailableError
            return error_class(
                f"group {self.group!r}: no coordinator within {limit_s * 1000:.0f} ms"
                + (f"; last error: {last.nested_text(error_class)}" if last is not None else "")
            )

        try:
            async with asyncio.timeout_at(deadline):
                await self._lock.acquire()
        except TimeoutError:
            raise timed_out(None) from None
        try:
            if self._node_id is None:
                # The first lookup on a cluster makes the brokers create their offsets topic, which
                # takes a moment.
                self._node_id = await retry(
                    self._look_up,
                    deadline=deadline,
                    backoff=self._router.config.backoff(at_least_s=0.01),
                    timed_out=timed_out,
                    attempt_s=ATTEMPT_S,
                )
            return self._node_id
        except GroupCoordinatorNotAvailableError as error:
            if not isinstance(last_error, GroupCoordinatorNotAvailableError):
                raise
            hint = await self._unavailable_hint()
            raise GroupCoordinatorNotAvailableError(f"{error.text}. {hint}") from None
        finally:
            self._lock.release()

    def unreachable_hint(self) -> str:
        """Return which broker advertised which address, for an error; "" if connected."""
        if self._advertised is None:
            return ""
        node_id, address, source = self._advertised
        node = self._router.nodes.get(node_id)
        if node is None or node.is_connected:
            return ""
        return (
            f". The coordinator is node {node_id} at {address_text(address)}, as the broker at "
            f"{address_text(source)} says. This client can't reach it there: check the name and "
            f"the network, or set the address that clients need in the settings of node {node_id} "
            "(advertised.listeners, up to 0.9 also advertised.host.name)"
        )

    def invalidate(self, node_id: int) -> None:
        """Forget the coordinator if it is this node; the next `node_id()` looks it up again.

        For a node that doesn't respond, or returns GroupCoordinatorNotAvailable or
        NotCoordinatorForGroup.
        """
        if self._node_id == node_id:
            self._node_id = None

    async def _look_up(self, timeout_s: float) -> int | KafkaError:
        """Send one lookup request; return the node id, or an error."""
        response, source = await self._router.request_any(
            GroupCoordinatorRequest(self.group), timeout_s=timeout_s
        )
        if response.error_code:
            where = f"the coordinator of group {self.group!r}"
            return self._router.config.named(broker_error(group_code(response.error_code), where))
        _check(response)
        address = (response.host, response.port)
        # The coordinator may be a broker that no metadata has named.
        self._router.register_broker(response.node_id, address)
        self._advertised = response.node_id, address, source
        return response.node_id

    async def _unavailable_hint(self) -> str:
        """Return the likely reason why all lookups failed with GroupCoordinatorNotAvailable."""
        try:
            # A Metadata request that names the offsets topic creates it as the lookups did, or
            # fails as they did (docs/brokers.md 8.9).
            response = await self._router.request(
                MetadataRequest([OFFSETS_TOPIC]), timeout_s=HINT_S
            )
        except KafkaError:
            return "See the brokers' logs"
        partitions = [one for state in response.topics for one in state.partitions]
        leaderless = sorted(one.partition for one in partitions if one.leader < 0)
        if leaderless:
            return (
                f"Partitions {leaderless} of {OFFSETS_TOPIC}, which store the groups, have no "
                "leader: start the brokers that hold their replicas"
            )
        if partitions:
            return f"{OFFSETS_TOPIC} has its leaders: see the brokers' logs"
        hint = (
            f"The brokers haven't created {OFFSETS_TOPIC}: see their logs, and whether as many "
            "brokers are alive as offsets.topic.replication.factor says"
        )
        version = self._router.version()
        if version is None or version.line < BrokerLine.V0_9:
            hint += ". A cluster of 0.8.2 without any topic can't create it: create a topic"
        return hint


def _check(response: GroupCoordinatorResponse) -> None:
    if response.node_id < 0 or not response.host or not 0 < response.port < 65536:
        raise KafkaProtocolError(
            f"invalid coordinator in a response: node {response.node_id} at "
            f"{response.host!r}, port {response.port}"
        )
