"""The nodes and watches of an embedded cluster's brokers in their ZooKeeper.

Brokers write the nodes of live brokers, topics, partitions' leaders, and the offsets that clients
commit by OffsetCommit 0. The controller acts on the nodes that tools write: new topics and
partitions, changed settings, requests to delete a topic.

Invariant: after each change of the cluster `publish()` makes the nodes agree with it at once, in
the same callback of the event loop. While `World.lead_zookeeper_to` leads clients to another
ZooKeeper, the brokers keep using their own nodes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import Any, Final, Protocol

from aiokafka08.testing.simulation.party import NO_PARTY, PARTY
from aiokafka08.testing.simulation.zookeeper import SimulatedZookeeper
from aiokafka08.testing.simulation.zookeeper_tree import EventKind, WatchEvent, join, split
from aiokafka08.testing.state import ClusterState, Commit, CommitKey, StoredCommit

# The time from a client's write to its effect on the brokers; real brokers take time too.
CONTROLLER_S: Final = 0.05

_CLUSTER_ID: Final = "/cluster/id"
_IDS: Final = "/brokers/ids"
_TOPICS: Final = "/brokers/topics"
_CONFIGS: Final = "/config/topics"
_CHANGES: Final = "/config/changes"
_DELETIONS: Final = "/admin/delete_topics"


class PublishingCluster(Protocol):
    """The part of `EmbeddedCluster` that `BrokerNodes` uses."""

    _state: ClusterState

    def _call(self, act: Callable[[Any], None]) -> None: ...


class BrokerNodes:
    """The nodes of one embedded cluster.

    Args:
        zookeeper: the simulated server.
        cluster: the embedded cluster.

    Attributes:
        tree: the brokers' nodes.
        on_commit: called with each committed offset that is written here.
    """

    def __init__(self, zookeeper: SimulatedZookeeper, cluster: PublishingCluster) -> None:
        self.on_commit: Callable[[StoredCommit], object] = lambda commit: None
        self._zookeeper = zookeeper
        self.tree = zookeeper.tree
        self._cluster = cluster
        self._state = state = cluster._state
        self._others: Mapping[int, tuple[str, int]] | None = None
        self._publishing = False
        self._published: object = None  # the result of `_wanted` that the nodes agree with
        self._pending: dict[str, None] = {}  # paths that the controller hasn't handled yet
        for path in (_IDS, _TOPICS, _CONFIGS, _CHANGES, _DELETIONS, "/consumers"):
            self._write(path, b"")
        state.zookeeper_commits = CommitNodes(self._read, self._write)
        state.publish = self.publish
        zookeeper.on_event = self._on_event
        self.publish()

    def register(self, others: Mapping[int, tuple[str, int]] | None) -> None:
        """Name other brokers than the cluster's; see `World.register_brokers`."""
        self._others = others
        self.publish()

    def publish(self) -> None:
        """Write the changes since the last call."""
        if self._publishing:
            return
        wanted = self._wanted()
        if wanted == self._published:
            return
        self._publishing = True
        self._published = wanted if not self._pending else None
        try:
            state = self._state
            if state.line.has_cluster_id:
                cluster_id = state.cluster_id if self._others is None else f"{self._others}"
                self._write(_CLUSTER_ID, _json(version="1", id=cluster_id))
            registered = self._others
            if registered is None:
                registered = {
                    node.node_id: (node.host, node.port)
                    for node in state.nodes.values()
                    if node.in_metadata
                }
            brokers = {
                str(node_id): _json(version=1, host=host, port=port, jmx_port=-1)
                for node_id, (host, port) in registered.items()
            }
            self._replace_children(_IDS, brokers)
            topics = {}
            for name, partitions in state.topics.items():
                topics[name] = _json(
                    version=1,
                    partitions={
                        str(partition.number): partition.replicas for partition in partitions
                    },
                )
            self._replace_children(_TOPICS, topics)
            for name, partitions in state.topics.items():
                config = state.topic_configs[name]
                if config:
                    self._write(join(_CONFIGS, name), _json(version=1, config=config))
                for partition in partitions:
                    self._write(
                        f"{_TOPICS}/{name}/partitions/{partition.number}/state",
                        _json(version=1, leader=partition.leader, isr=partition.isr),
                    )
        finally:
            self._publishing = False

    def _wanted(self) -> object:
        """Return all that `publish` writes, so that it writes nothing if nothing has changed."""
        state = self._state
        wanted: list[object] = [state.line.has_cluster_id, self._others]
        for node in state.nodes.values():
            wanted += (node.node_id, node.host, node.port, node.in_metadata)
        for name, partitions in state.topics.items():
            wanted += (name, dict(state.topic_configs[name]))
            for partition in partitions:
                wanted += (tuple(partition.replicas), partition.leader, tuple(partition.isr))
        return wanted

    # --- the controller ---------------------------------------------------------------------------

    def _on_event(self, kind: EventKind, path: str) -> None:
        if self._publishing or self._zookeeper.tree is not self.tree:
            return
        if not path.startswith("/consumers"):
            self._published = None  # a client may have changed a node of the brokers
        if kind not in ("CREATED", "CHANGED"):
            return
        if path.startswith("/consumers/"):
            self._watch_commit(path)
            return
        parent, _ = split(path)
        act = {
            _TOPICS: self._assign,
            _DELETIONS: self._delete_topic,
            _CHANGES: self._change_config,
        }.get(parent)
        if act is not None:
            self._pending[path] = None
            self._zookeeper.later(CONTROLLER_S, NO_PARTY, self._carry_out, act, path)

    def _watch_commit(self, path: str) -> None:
        match path.split("/"):
            case ["", "consumers", group, "offsets", topic, number] if number.isdecimal():
                data = self._read(path) or b""
                if data.isdigit():
                    key = CommitKey(group, topic, int(number))
                    self.on_commit(StoredCommit("zookeeper", key, int(data), PARTY.get()))

    def _carry_out(self, act: Callable[[str], None], path: str) -> None:
        self._pending.pop(path, None)
        self._cluster._call(lambda runtime: act(split(path)[1]))
        self.publish()

    def _assign(self, topic: str) -> None:
        """Create a topic, or add partitions, as its node says."""
        node = self._fields(join(_TOPICS, topic))
        if node is None:
            return  # deleted meanwhile
        state = self._state
        wanted = {int(number): replicas for number, replicas in node["partitions"].items()}
        known = len(state.topics.get(topic, ()))
        config = None
        if not known:
            config = self._config(topic)
        new = [wanted[number] for number in range(known, len(wanted))]
        state.add_partitions(topic, new, self._zookeeper.now_ms(), config)

    def _delete_topic(self, topic: str) -> None:
        if topic in self._state.topics:
            self._state.delete_topic(topic)
        self._delete(join(_CONFIGS, topic))
        self._delete(join(_DELETIONS, topic))

    def _change_config(self, change: str) -> None:
        fields = self._fields(join(_CHANGES, change))
        topic = fields["entity_name"] if isinstance(fields, dict) else fields
        if topic in self._state.topics:
            self._state.configure(topic, self._config(topic))

    def _config(self, topic: str) -> dict[str, str]:
        fields = self._fields(join(_CONFIGS, topic))
        config = fields["config"] if fields else {}
        return {
            key: value for key, value in config.items() if key in self._state.line.topic_configs
        }

    # --- nodes ------------------------------------------------------------------------------------

    def _fields(self, path: str) -> Any:
        data = self._read(path)
        return json.loads(data) if data else None

    def _read(self, path: str) -> bytes | None:
        node = self.tree.find(path)
        return None if node is None else node.data

    def _replace_children(self, path: str, wanted: dict[str, bytes]) -> None:
        """Create, write and delete children until they are these."""
        for name in self.tree.node(path).names():
            # Keep a node that a client has just created: the controller hasn't handled it yet.
            if name not in wanted and join(path, name) not in self._pending:
                self._delete(join(path, name))
        for name, data in wanted.items():
            if join(path, name) not in self._pending:
                self._write(join(path, name), data)

    def _write(self, path: str, data: bytes) -> None:
        """Create a node, or write it if its data differs."""
        tree, now_ms = self.tree, self._zookeeper.now_ms()
        node = tree.find(path)
        if node is None:
            parent, _ = split(path)
            if tree.find(parent) is None:
                self._write(parent, b"")
            self._notify(tree.create(path, data, now_ms)[1])
        elif node.data != data:
            self._notify(tree.set(path, data, now_ms))

    def _delete(self, path: str) -> None:
        node = self.tree.find(path)
        if node is not None:
            for name in node.names():
                self._delete(join(path, name))
            self._notify(self.tree.delete(path))

    def _notify(self, events: Iterable[WatchEvent]) -> None:
        """Trigger the watches of these events, unless the clients are led elsewhere."""
        if self._zookeeper.tree is self.tree:
            self._zookeeper.publish(events)


class CommitNodes(MutableMapping[CommitKey, Commit]):
    """The commits by OffsetCommit 0: each is the node of its group and partition.

    Args:
        read: returns the data of a node; None if it doesn't exist.
        write: writes a node.
    """

    def __init__(
        self, read: Callable[[str], bytes | None], write: Callable[[str, bytes], None]
    ) -> None:
        self._read = read
        self._write = write
        self._keys: dict[CommitKey, None] = {}

    def __getitem__(self, key: CommitKey) -> Commit:
        data = self._read(_offset_path(key))
        if data is None:
            raise KeyError(key)
        return Commit(int(data), "")

    def __setitem__(self, key: CommitKey, commit: Commit) -> None:
        self._keys[key] = None
        self._write(_offset_path(key), b"%d" % commit.offset)

    def __delitem__(self, key: CommitKey) -> None:
        raise TypeError("brokers delete no committed offset in ZooKeeper")

    def __iter__(self) -> Iterator[CommitKey]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


def _offset_path(key: CommitKey) -> str:
    return f"/consumers/{key.group or 'null'}/offsets/{key.topic}/{key.partition}"


def _json(**fields: object) -> bytes:
    return json.dumps(fields).encode()
