"""Write the nodes by which Scala consumers, Storm and tools of 0.8 to 0.10 find a cluster.

A gateway calls `ClusterWriter` in threads, because it blocks. It writes these nodes:

- `/controller` and `/brokers/ids/<broker>`, for as long as its session lasts;
- `/brokers/topics/<topic>`, and `…/partitions/<partition>/state` below it;
- `/cluster/id`: clients compare it with the cluster id that a gateway returns. They can't compare
  the brokers' addresses, because each gateway returns its own.

Invariants: nothing is written while a real broker is registered. Of several gateways, the one that
holds `/controller` writes; the others only remove their own registrations. If a gateway overwrites
a node of a broker, it keeps the broker's data in the field `MARK`, where `plan_restore` finds it.
So such a node is never removed: when its topic is deleted, it is written with no partitions.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from aiokafka08 import environment
from aiokafka08._core.json_objects import json_object
from aiokafka08._core.limited_log import one_line
from aiokafka08._core.net.config import Address
from aiokafka08._core.zookeeper.nodes import unreadable
from aiokafka08._core.zookeeper.results import result_of, results_of
from aiokafka08._core.zookeeper.session import (
    ZookeeperServers,
    close_session,
    open_session,
    translate_errors,
)
from aiokafka08.errors import KafkaTimeoutError, KafkaUnavailableError

if TYPE_CHECKING:
    from kazoo.client import KazooClient

T = TypeVar("T")

MARK: Final = "aiokafka08_gateway"
"""The field that marks a node as a gateway's. In an ephemeral node its value is the gateway's name.
In other nodes it is an object: if a broker had written the node, `before` has the broker's fields,
else the object is empty."""

SESSION_S: Final = 6.0
"""The session timeout, after which the brokers of a lost gateway are removed; the default of
brokers up to 2.4."""

_CONTROLLER: Final = "/controller"
_IDS: Final = "/brokers/ids"
_TOPICS: Final = "/brokers/topics"
_CLUSTER_ID: Final = "/cluster/id"
_FOLDERS: Final = (_TOPICS, "/consumers")
"""Nodes that brokers create at their start, and that consumers need."""
_TIMEOUT_S: Final = 10.0
_AT_ONCE: Final = 1000
_OBJECT: Final = 'a JSON object such as {"version":1}'
_MARKED: Final = f'an object in the field {MARK}, with an object "before" or without'


@dataclass(frozen=True, slots=True)
class WrittenPartition:
    """A partition's state, with brokers as node ids; `leader` is -1 if there is none."""

    leader: int
    leader_epoch: int
    replicas: Sequence[int]
    isr: Sequence[int]


@dataclass(frozen=True, slots=True)
class WrittenCluster:
    """The contents of the nodes to be written.

    Attributes:
        brokers: the addresses for clients, by node ids.
        topics: the partitions of each topic.
        cluster_id: the cluster's id; None: the brokers have none.
    """

    brokers: Mapping[int, Address]
    topics: Mapping[str, Mapping[int, WrittenPartition]]
    cluster_id: str | None = None


class NodeChange(NamedTuple):
    """A node with its data before and after the change; None: it isn't there.

    `version` is the node's version before the change. If the change deletes the node, the nodes
    below it are deleted too.
    """

    path: str
    before: bytes | None
    after: bytes | None
    version: int = -1
    is_ephemeral: bool = False


@dataclass(slots=True)
class Plan:
    """What a writer would do.

    Attributes:
        owner: the gateway that writes instead; None: there is none.
        changes: the changes to make; `ClusterWriter.apply` orders them.
        left: topics that brokers have written, and that the cluster doesn't have; they stay.
    """

    owner: str | None = None
    changes: list[NodeChange] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


class ClusterWriter:
    """See the module.

    Args:
        connect: "host:port,host:port/chroot".
        name: the name of this gateway.
        others: the names of gateways that may write in its place.
        changed: called in any thread when the session, or another writer, has come or gone.
    """

    def __init__(
        self, connect: str, name: str, others: Collection[str], changed: Callable[[], object]
    ) -> None:
        self._servers = ZookeeperServers(connect)
        self._connect = connect
        self._name = name
        self._known = {name, *others}
        self._changed = changed
        self._client_or_none: KazooClient | None = None
        # The topics that were written in this session
        self._written: dict[str, Mapping[int, WrittenPartition]] = {}
        self._session: int | None = None

    def close(self) -> None:
        """End the session, if there is one: its ephemeral nodes are removed."""
        client, self._client_or_none = self._client_or_none, None
        if client is not None:
            close_session(client)

    def write(
        self, cluster: WrittenCluster, *, removes: bool = True, compares: bool = False
    ) -> Plan:
        """Make the nodes agree with `cluster`; return the changes that were made.

        Args:
            cluster: the contents of the nodes.
            removes: whether to remove the topics that `cluster` doesn't have.
            compares: whether to read again the topics that were up to date in this session, because
                tools may have changed their nodes.

        Raises:
            KafkaConnectionError: ZooKeeper can't be reached.
            KafkaTimeoutError: it doesn't respond.
            KafkaUnavailableError: a broker is registered that isn't a gateway's, or a node holds
                what no broker writes.
            ClusterAuthorizationFailedError: the ACL of a node refuses it.
        """
        try:
            plan = self.plan(cluster, removes=removes, compares=compares)
            self.apply(plan.changes)
        except KafkaTimeoutError:
            self.close()  # the session is lost by now; kazoo would wait for long between its tries
            raise
        kept = {} if removes or plan.owner else self._written
        self._written = {} if plan.owner else {**kept, **cluster.topics}
        return plan

    def plan(
        self, cluster: WrittenCluster, *, removes: bool = True, compares: bool = False
    ) -> Plan:
        """Return what `write` would do; nothing is written. Raises as `write`."""
        with translate_errors(self._connect):
            client = self._client()
            if client.client_id is None:
                raise KafkaUnavailableError(f"ZooKeeper {self._connect}: the connection is lost")
            session = client.client_id[0]
            if session != self._session:
                self._session, self._written = session, {}
            registered = self._registered()
            own = {path: node for path, node in registered.items() if node.owner == session}
            if owner := self._other_owner(registered, own):
                gone = [NodeChange(path, one.data, None) for path, one in own.items()]
                return Plan(owner, gone)
            plan = Plan(changes=list(self._registrations(cluster, registered, own)))
            self._plan_topics(cluster, plan, removes=removes, compares=compares)
            return plan

    def plan_restore(self) -> list[NodeChange]:
        """Return the changes that restore the data of brokers. Raises as `write`."""
        with translate_errors(self._connect):
            for path, node in self._registered().items():
                raise KafkaUnavailableError(
                    f"ZooKeeper {self._connect}: {path} is registered by {node.shown}. Stop the "
                    "gateways that write there first"
                )
            topics = [f"{_TOPICS}/{name}" for name in self._children(_TOPICS)]
            states = [
                f"{topic}/partitions/{number}/state"
                for topic in topics
                for number in self._children(f"{topic}/partitions")
            ]
            changes: list[NodeChange] = []
            for path, node in self._read([*topics, *states, _CLUSTER_ID]).items():
                if (mark := _fields(node.data).get(MARK)) is None:
                    continue
                if not isinstance(mark, dict) or not isinstance(mark.get("before", {}), dict):
                    raise unreadable(self._connect, path, node.data, _MARKED)
                before = json.dumps(mark["before"]).encode() if "before" in mark else None
                if not any(path.startswith(f"{one.path}/") for one in changes if not one.after):
                    path = path if before else path.removesuffix("/state")
                    changes.append(NodeChange(path, node.data, before, node.version))
            return changes

    def apply(self, changes: Iterable[NodeChange]) -> None:
        """Make the changes, parents before children, so `/controller` first. Raises as `write`."""
        from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

        with translate_errors(self._connect):
            client = self._client()
            for some in _in_levels(changes):
                deadline = environment.monotonic() + _TIMEOUT_S
                for change, wait in [(one, _begin(client, one, deadline)) for one in some]:
                    try:
                        wait()
                    except (BadVersionError, NodeExistsError, NoNodeError):
                        self._written = {}
                        raise KafkaUnavailableError(
                            f"ZooKeeper {self._connect}: another program has changed "
                            f"{change.path} meanwhile. It is read again"
                        ) from None

    # --- plans ------------------------------------------------------------------------------------

    def _other_owner(self, registered: Mapping[str, _Node], own: Mapping[str, _Node]) -> str | None:
        """Return the gateway that writes in place of this one; None if there is none."""
        others = {path: node for path, node in registered.items() if path not in own}
        for path, node in others.items():
            if node.writer not in self._known:
                raise KafkaUnavailableError(
                    f"ZooKeeper {self._connect}: {path} is registered by {node.shown}; expected "
                    "nothing, or a gateway of --peers. Stop it, or name another chroot"
                )
        if _CONTROLLER in own or not others:
            return None
        return next(node.writer for node in others.values())

    def _registrations(
        self,
        cluster: WrittenCluster,
        registered: Mapping[str, _Node],
        own: Mapping[str, _Node],
    ) -> Iterator[NodeChange]:
        now = str(environment.wall_time_ms())
        controller = min(cluster.brokers, default=-1)
        wanted: dict[str, dict[str, object]] = {
            _CONTROLLER: {"version": 1, "brokerid": controller, "timestamp": now, MARK: self._name}
        }
        for node_id, (host, port) in cluster.brokers.items():
            wanted[f"{_IDS}/{node_id}"] = {
                "version": 1,  # the one that all releases from 0.8.0 on read
                "host": host,
                "port": port,
                "jmx_port": -1,
                "timestamp": now,
                MARK: self._name,
            }
        for path, node in own.items():
            if path not in wanted:
                yield NodeChange(path, node.data, None)
        for path, fields in wanted.items():
            after = json.dumps(fields).encode()
            if path not in registered:
                yield NodeChange(path, None, after, is_ephemeral=True)
            elif path in own and _fields(own[path].data) | {"timestamp": now} != fields:
                yield NodeChange(path, own[path].data, after, own[path].version)

    def _plan_topics(
        self, cluster: WrittenCluster, plan: Plan, *, removes: bool, compares: bool
    ) -> None:
        existing = set(self._children(_TOPICS))
        changed = {
            name: partitions
            for name, partitions in cluster.topics.items()
            if compares or name not in existing or self._written.get(name) != partitions
        }
        wanted = {path: fields for name in changed for path, fields in _nodes(name, changed[name])}
        deleted = sorted(existing - cluster.topics.keys())
        removed_states = [
            f"{_TOPICS}/{name}/partitions/{number}/state"
            for name, partitions in changed.items()
            for number in self._written.get(name, {}).keys() - partitions.keys()
        ]
        paths = [*_FOLDERS, *wanted, *removed_states, *(f"{_TOPICS}/{name}" for name in deleted)]
        if cluster.cluster_id is not None and not self._written:
            wanted[_CLUSTER_ID] = {"id": cluster.cluster_id}
            paths.append(_CLUSTER_ID)
        nodes = self._read(paths)
        plan.changes += [NodeChange(path, None, b"") for path in _FOLDERS if path not in nodes]
        for path, fields in wanted.items():
            old = nodes.get(path)
            after = self._changed_data(path, old, fields)
            if after is not None:
                before, version = (None, -1) if old is None else (old.data, old.version)
                plan.changes.append(NodeChange(path, before, after, version))
        for path in removed_states:
            if path in nodes and _fields(nodes[path].data).get(MARK) == {}:
                plan.changes.append(NodeChange(path.removesuffix("/state"), b"", None))
        for name in deleted:
            path = f"{_TOPICS}/{name}"
            node = nodes.get(path)
            if node is None:
                continue
            mark = _fields(node.data).get(MARK)
            if mark is None and name not in self._written:
                plan.left.append(name)
            elif removes and mark == {}:
                plan.changes.append(NodeChange(path, node.data, None))
            elif removes and (after := self._changed_data(path, node, {"partitions": {}})):
                plan.changes.append(NodeChange(path, node.data, after, node.version))

    def _changed_data(
        self, path: str, old: _Node | None, fields: Mapping[str, object]
    ) -> bytes | None:
        """Return the new data of a node; None if its fields are up to date."""
        if old is None:
            others: dict[str, object] = {"version": 1}
            if path.endswith("/state"):
                others["controller_epoch"] = 0
            return json.dumps({**others, **fields, MARK: {}}).encode()
        before = _fields(old.data)
        if not before:
            raise unreadable(self._connect, path, old.data, _OBJECT)
        if all(before.get(name) == value for name, value in fields.items()):
            return None
        mark = before.get(MARK, {"before": before})
        return json.dumps({**before, **fields, MARK: mark}).encode()

    # --- ZooKeeper --------------------------------------------------------------------------------

    def _client(self) -> KazooClient:
        if self._client_or_none is None:
            client = open_session(self._servers, SESSION_S, "aiokafka08.gateway.kazoo")
            client.add_listener(lambda _: self._changed())
            self._client_or_none = client
        return self._client_or_none

    def _on_event(self, event: object) -> None:
        self._changed()

    def _registered(self) -> dict[str, _Node]:
        """Return the ephemeral nodes; `changed` is called when one is created or removed."""
        client = self._client()
        found = results_of(
            {
                _CONTROLLER: client.exists_async(_CONTROLLER, watch=self._on_event),
                _IDS: client.get_children_async(_IDS, watch=self._on_event),
            },
            environment.monotonic() + _TIMEOUT_S,
        )
        return self._read([_CONTROLLER, *(f"{_IDS}/{name}" for name in found.get(_IDS, ()))])

    def _children(self, path: str) -> list[str]:
        request = {path: self._client().get_children_async(path)}
        return list(results_of(request, environment.monotonic() + _TIMEOUT_S).get(path, ()))

    def _read(self, paths: Iterable[str]) -> dict[str, _Node]:
        """Return the nodes that are there."""
        client = self._client()
        found: dict[str, _Node] = {}
        for some in _in_parts(paths):
            deadline = environment.monotonic() + _TIMEOUT_S
            results = results_of({path: client.get_async(path) for path in some}, deadline)
            for path, (data, stat) in results.items():
                found[path] = _Node(data or b"", stat.version, stat.ephemeralOwner)
        return found


class _Node(NamedTuple):
    """A node that was read; `owner` is the session of an ephemeral node, 0 for others."""

    data: bytes
    version: int
    owner: int

    @property
    def writer(self) -> str | None:
        """The gateway that has written it; None: a broker."""
        name = _fields(self.data).get(MARK)
        return name if isinstance(name, str) else None

    @property
    def shown(self) -> str:
        if self.writer is not None:
            return one_line(f"gateway {self.writer}")
        fields = _fields(self.data)
        return one_line(f"a broker ({fields.get('host', '?')}:{fields.get('port', '?')})")


def _fields(data: bytes) -> dict[str, Any]:
    """Return the fields of a node; none if it holds something else."""
    try:
        return json_object(data)
    except ValueError:
        return {}


def _nodes(
    topic: str, partitions: Mapping[int, WrittenPartition]
) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield the nodes of a topic, with the fields that the gateway sets."""
    replicas = {str(number): list(one.replicas) for number, one in sorted(partitions.items())}
    yield f"{_TOPICS}/{topic}", {"partitions": replicas}
    for number, one in sorted(partitions.items()):
        yield (
            f"{_TOPICS}/{topic}/partitions/{number}/state",
            {"leader": one.leader, "leader_epoch": one.leader_epoch, "isr": sorted(one.isr)},
        )


def _in_parts(items: Iterable[T]) -> Iterator[list[T]]:
    """Yield the items in lists of at most `_AT_ONCE`."""
    left = list(items)
    for at in range(0, len(left), _AT_ONCE):
        yield left[at : at + _AT_ONCE]


def _in_levels(changes: Iterable[NodeChange]) -> Iterator[list[NodeChange]]:
    """Yield the changes level by level; those of one list don't depend on each other."""
    in_order = sorted(changes, key=lambda one: one.path.count("/"))
    for _, level in itertools.groupby(in_order, key=lambda one: one.path.count("/")):
        yield from _in_parts(level)


def _begin(client: KazooClient, change: NodeChange, deadline: float) -> Callable[[], object]:
    """Begin a change; return a function that waits for its end."""
    path, after = change.path, change.after
    if after is None:
        return lambda: client.delete(path, recursive=True)
    if change.before is None:
        request = client.create_async(path, after, ephemeral=change.is_ephemeral, makepath=True)
    else:
        request = client.set_async(path, after, change.version)
    return lambda: result_of(request, deadline)
