"""Decide whether a ZooKeeper belongs to the brokers of a client.

The ZooKeeper of another cluster has nodes with the same paths. With the wrong ZooKeeper a group
member would read and overwrite that cluster's offsets, and an admin client would delete its topics.

Invariant: with `zookeeper_check="refuse"` a session reads only what the comparison needs until the
comparison has found that ZooKeeper and the brokers have a cluster id or a broker in common.
"""

from __future__ import annotations

import enum
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from aiokafka08 import environment
from aiokafka08._core.json_objects import json_object
from aiokafka08._core.net.config import Address, address_text
from aiokafka08._core.net.router import Router
from aiokafka08._core.zookeeper.nodes import NUMBER, decode_node
from aiokafka08._core.zookeeper.results import results_of
from aiokafka08._core.zookeeper.security import OPEN, ZookeeperSecurity
from aiokafka08._wording import some_of
from aiokafka08.errors import (
    KafkaError,
    KafkaTimeoutError,
    KafkaUnavailableError,
    ZookeeperMismatchError,
)

if TYPE_CHECKING:
    from kazoo.client import KazooClient

T = TypeVar("T")

_log: Final = logging.getLogger("aiokafka08.net")
_CLUSTER_ID: Final = "/cluster/id"
_BROKERS: Final = "/brokers/ids"
_ENDPOINT: Final = re.compile(r"[A-Za-z0-9_]*://(.*):(-?[0-9]+)")
BROKER: Final = 'a broker such as {"version":1,"host":"kafka1","port":9092}'
"""The expected content of a broker's node, for errors."""

Resolve = Callable[[str], Iterable[str]]
"""Returns the addresses of a host's name."""


class Agreement(enum.Enum):
    """The result of a comparison of two clusters."""

    SAME = "nothing contradicts that they are the same"
    PARTLY = "some brokers are the same, and each side has others"
    NONE = "they are different clusters"


@dataclass(frozen=True, slots=True)
class ClusterIdentity:
    """The identity of a cluster: its id and its brokers."""

    brokers: Mapping[int, Collection[Address]]  # node id → endpoints
    cluster_id: str | None = None  # None if it isn't known, or the brokers have none
    # Endpoints of some of the brokers, whose node ids aren't known
    bootstrap: Collection[Address] = ()
    # The errors of brokers that `brokers` lacks, since their nodes in ZooKeeper can't be read
    unread: Sequence[KafkaError] = ()

    def __str__(self) -> str:
        if not (self.brokers or self.bootstrap):
            text = "no broker"
        elif self.brokers:
            brokers = sorted(self.brokers.items())
            text = some_of([f"{node_id} at {_endpoints(where)}" for node_id, where in brokers])
        else:
            text = f"a broker at {_endpoints(self.bootstrap)}"
        return text if self.cluster_id is None else f"{text} (cluster id {self.cluster_id})"


def compare_clusters(
    brokers: ClusterIdentity, registered: ClusterIdentity, resolve: Resolve
) -> Agreement:
    """Return whether the brokers of a client are those that are registered in a ZooKeeper.

    `resolve` is called only to compare sets of endpoints that share a port, but no endpoint.
    """
    # From 0.10.1 on both sides have an id.
    if brokers.cluster_id is not None and registered.cluster_id is not None:
        same = brokers.cluster_id == registered.cluster_id
        return Agreement.SAME if same else Agreement.NONE
    if not registered.brokers:
        return Agreement.NONE
    # Metadata of 0.8 names no broker before the first topic (docs/brokers.md 4.1).
    if not brokers.brokers:
        everywhere = [where for known in registered.brokers.values() for where in known]
        meet = _meet(brokers.bootstrap, everywhere, resolve)
        return Agreement.SAME if meet else Agreement.NONE
    # A broker agrees if both sides have its node id, with an endpoint in common. A broker that only
    # one side has is no contradiction, since it may be down, or have just started.
    common = {
        node_id
        for node_id, known in brokers.brokers.items()
        if _meet(known, registered.brokers.get(node_id, ()), resolve)
    }
    if not common:
        return Agreement.NONE
    if brokers.brokers.keys() - common and registered.brokers.keys() - common:
        return Agreement.PARTLY
    return Agreement.SAME


def _meet(some: Iterable[Address], others: Iterable[Address], resolve: Resolve) -> bool:
    ports: dict[int, set[str]] = {}
    for host, port in others:
        ports.setdefault(port, set()).add(_plain(host))
    candidates = [(_plain(host), ports[port]) for host, port in some if port in ports]
    if any(host in hosts for host, hosts in candidates):
        return True
    return any(
        not set(resolve(host)).isdisjoint(address for other in hosts for address in resolve(other))
        for host, hosts in candidates
    )


def _plain(host: str) -> str:
    """Return a host in a form that can be compared: lower case, no brackets, no final dot."""
    return host.strip("[]").rstrip(".").lower()


def _endpoints(endpoints: Iterable[Address]) -> str:
    return "/".join(sorted(map(address_text, endpoints))) or "no readable endpoint"


def parse_cluster_id(data: bytes) -> str:
    found = json_object(data)["id"]
    if not isinstance(found, str) or not found:
        raise ValueError("no id")
    return found


def parse_endpoints(data: bytes) -> frozenset[Address]:
    """Return the endpoints in a broker's node, of all protocols."""
    fields = json_object(data)
    # Return all endpoints, since Metadata names the endpoint of the listener that the client uses.
    # Brokers before 0.9 write only `host` and `port`. Later ones also write `endpoints`, with
    # `"host":null,"port":-1` if none of these is plaintext.
    texts = [str(text) for text in fields.get("endpoints") or ()]
    host, port = fields.get("host"), fields.get("port")
    found = [(match[1], int(match[2])) for match in map(_ENDPOINT.fullmatch, texts) if match]
    if isinstance(host, str) and host and type(port) is int and port > 0:
        found.append((host, port))
    if not found:
        raise ValueError("no endpoint")
    return frozenset(found)


def read_registered(client: KazooClient, connect: str, deadline: float) -> ClusterIdentity:
    """Return the cluster that is registered in a ZooKeeper. It blocks.

    `deadline` is a time of `environment.monotonic()`; KafkaTimeoutError is raised then.
    """
    requests: dict[str, Any] = {
        _CLUSTER_ID: client.get_async(_CLUSTER_ID),
        _BROKERS: client.get_children_async(_BROKERS),
    }
    results = results_of(requests, deadline)
    names = [name for name in results.get(_BROKERS, ()) if NUMBER.fullmatch(name)]
    paths = [f"{_BROKERS}/{name}" for name in names]
    nodes = results_of({path: client.get_async(path) for path in paths}, deadline)
    cluster_id: str | KafkaError | None = None
    if _CLUSTER_ID in results:
        data = results[_CLUSTER_ID][0]
        cluster_id = decode_node(connect, _CLUSTER_ID, data, parse_cluster_id, "an id")
    brokers: dict[int, frozenset[Address]] = {}
    unread = []
    for path, (data, _) in nodes.items():
        found = decode_node(connect, path, data, parse_endpoints, BROKER)
        if isinstance(found, KafkaError):
            # `topic_states` reports it, too.
            unread.append(found)
        else:
            brokers[int(path.rpartition("/")[2])] = found
    if isinstance(cluster_id, KafkaError):
        cluster_id = None
    return ClusterIdentity(brokers, cluster_id, unread=unread)


class _OutdatedMetadataError(KafkaUnavailableError):
    """ZooKeeper and the metadata name different brokers, but the metadata may be outdated."""


class ClusterZookeeper:
    """The ZooKeeper of a client, and the check that it belongs to the client's brokers.

    Args:
        router: knows the brokers.
        connect: "host:port,host:port/chroot".
        check: "refuse" or "warn", as `zookeeper_check`; None stands for "refuse".
        security: how sessions authenticate.
    """

    # When all servers last refused a connection, by `environment.monotonic()`
    refused_at: float | None = None

    def __init__(
        self,
        router: Router,
        connect: str,
        check: str | None,
        security: ZookeeperSecurity = OPEN,
    ) -> None:
        self.connect = connect  # `connect`, `security`: as given
        self.security = security
        who = "" if security.identity is None else f" as {security.identity}"
        self.shown = f"{connect}{who}"  # the address and the identity, for errors
        # The difference that the last `verify` found and only logged; "" if there was none
        self.mismatch = ""
        self._router = router
        self._only_warns = check == "warn"
        self._was_same = False
        self._metadata_is_stale = False
        self._fresh_runs = 0  # how many calls of `run` work with metadata that was fetched for them
        self._warned: set[str] = set()

    async def run(self, work: Callable[[], Awaitable[T]], timeout_s: float) -> T:
        """Run work that calls `verify` before all else, and return its result.

        Raises:
            KafkaTimeoutError: the metadata wasn't received within `timeout_s`.
            NoBrokersAvailable: no broker responds.
        """
        is_fresh = await self._learn_brokers(timeout_s)
        # A broker may have got another address since the metadata was fetched, and have registered
        # it already. So a difference counts only if the metadata was fetched for this comparison.
        if not is_fresh:
            try:
                return await work()
            except _OutdatedMetadataError:
                await self._learn_brokers(timeout_s)
        self._fresh_runs += 1
        try:
            return await work()
        finally:
            self._fresh_runs -= 1

    async def _learn_brokers(self, timeout_s: float) -> bool:
        """Fetch metadata if there is none, or if it may be outdated; return True if fetched."""
        metadata = self._router.metadata
        if metadata.snapshot.brokers and not self._metadata_is_stale:
            return False
        try:
            await metadata.fetch_all(timeout_s)
        except TimeoutError:
            raise KafkaTimeoutError(
                f"ZooKeeper {self.connect}: not compared with the brokers, which didn't respond "
                f"within {timeout_s * 1000:.0f} ms"
            ) from None
        self._metadata_is_stale = False
        return True

    def verify(self, client: KazooClient, timeout_s: float) -> None:
        """Compare ZooKeeper with the brokers. It blocks, so `run`'s work calls it in a thread.

        Raises:
            ZookeeperMismatchError: it belongs to other brokers, or to none.
            KafkaUnavailableError: it matched the brokers before and registers no broker now, or no
                broker's node can be read.
            KafkaTimeoutError: ZooKeeper doesn't respond in time.
        """
        # Before all else, since another call may fetch metadata meanwhile.
        is_fresh = self._fresh_runs > 0
        registered = read_registered(client, self.shown, environment.monotonic() + timeout_s)
        brokers = self._brokers()
        self.mismatch = ""
        agreement = compare_clusters(brokers, registered, environment.resolve)
        match agreement:
            case Agreement.SAME:
                self._was_same = True
            case Agreement.PARTLY:
                self._was_same = True
                self._warn(
                    f"ZooKeeper {self.connect} registers {registered}; the brokers are {brokers}. "
                    "Only some are the same: check that zookeeper_connect is the ZooKeeper, "
                    "and the chroot, of the cluster"
                )
            case Agreement.NONE:
                self._refuse(brokers, registered, is_fresh=is_fresh)

    def _brokers(self) -> ClusterIdentity:
        snapshot = self._router.metadata.snapshot
        return ClusterIdentity(
            {node_id: [(one.host, one.port)] for node_id, one in snapshot.brokers.items()},
            snapshot.cluster_id,
            self._router.config.bootstrap,
        )

    def _refuse(
        self, brokers: ClusterIdentity, registered: ClusterIdentity, *, is_fresh: bool
    ) -> None:
        self._metadata_is_stale = True
        if registered.unread and not registered.brokers:
            # No broker's node could be read, so it isn't known whether the ZooKeeper belongs to the
            # client's brokers. Report the node, not a wrong option.
            error = registered.unread[0]
            text = f"ZooKeeper can't be compared with the brokers: {error.text}"
            if not self._only_warns:
                raise type(error)(text, *error.args[1:])
            self._warn(f"{text}. It is used all the same, by zookeeper_check='warn'")
            return
        if self._was_same and not registered.brokers:
            raise KafkaUnavailableError(
                f"ZooKeeper {self.connect} names no live broker now. The brokers register again "
                "once they reach it"
            )
        text = (
            f"ZooKeeper {self.connect} isn't that of the brokers: it registers {registered}; the "
            f"brokers are {brokers}. "
        )
        if not is_fresh:
            raise _OutdatedMetadataError(f"{text}The brokers' metadata is fetched anew")
        remedy = (
            "If something on the way translates the brokers' addresses (NAT, a proxy), set "
            "zookeeper_check='warn'"
            if brokers.brokers
            else "Brokers of 0.8 name themselves only once they have a topic: if bootstrap_servers "
            "is a balancer in front of them, set zookeeper_check='warn'"
        )
        if not self._only_warns:
            raise ZookeeperMismatchError(
                f"{text}Check zookeeper_connect, its chroot, and bootstrap_servers. {remedy}"
            )
        self.mismatch = text
        self._warn(f"{text}It is used all the same, by zookeeper_check='warn'")

    def _warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            _log.warning("%s: %s", self._router.config.client_id, text)
