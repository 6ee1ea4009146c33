"""Read, and delete, the groups that Scala consumers of 0.8 keep in ZooKeeper.

Groups and members are returned in the form of the brokers' DescribeGroups. All calls block and run
in threads, each with a session of its own.

Invariant: only `delete` changes anything. A result has an error for each node that can't be read
(see `NodeReader`), and the content of all others. A member whose registration can't be read has an
empty subscription, but still the partitions that it owns.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from aiokafka08 import environment
from aiokafka08._core.json_objects import json_object
from aiokafka08._core.topic_names import is_topic_name
from aiokafka08._core.zookeeper.cluster_check import ClusterZookeeper
from aiokafka08._core.zookeeper.nodes import (
    NUMBER,
    NodeReader,
    refused,
    unreadable,
    wrongly_named,
)
from aiokafka08._core.zookeeper.offsets import decode_offset
from aiokafka08._core.zookeeper.results import result_of, results_of, wait_for_last
from aiokafka08._core.zookeeper.session import (
    check_node_name,
    is_node_name,
    require_kazoo,
    temporary_session,
    translate_errors,
)
from aiokafka08.coordinator.protocol import (
    PROTOCOL_TYPE,
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from aiokafka08.errors import KafkaError, KafkaTimeoutError, KafkaUnavailableError, NonEmptyGroup
from aiokafka08.protocol.requests.groups import DescribedGroup, DescribedMember
from aiokafka08.structs import TopicPartition

if TYPE_CHECKING:
    from kazoo.client import KazooClient

# `<group>/ids/<member>` is ephemeral and holds a member's subscription as JSON;
# `<group>/owners/<topic>/<partition>` names the member's thread that reads the partition;
# `<group>/offsets/<topic>/<partition>` holds a committed offset.
_ROOT: Final = "/consumers"
# What the Scala consumer appends to its id to name a thread
_THREAD: Final = re.compile(r"-[0-9]+\Z")
# The name of the node of a partition
_PARTITION: Final = re.compile(f"({NUMBER.pattern})")
# The node of a member whose id is <host>:<uuid>: of pykafka, or of a Go consumer
_PYKAFKA: Final = re.compile(r"/ids/[^/]+:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
# The name of the node of a partition's owner; pykafka writes <leader>-<partition>
_OWNED: Final = re.compile(f"(?:(?:{NUMBER.pattern})-)?({NUMBER.pattern})")
# The name that pykafka gives to the node of a topic, with Python 3
_BYTES: Final = re.compile("b'(.*)'")
_MEMBER: Final = (
    'a registration such as {"version":1,"subscription":{"orders":1},"pattern":"static"}'
)
# How many nodes are deleted at a time
_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True)
class ReadGroup:
    """A group with its members."""

    described: DescribedGroup  # the group; without members if `error` isn't None
    errors: Sequence[KafkaError] = ()  # nodes of it that can't be read
    error: KafkaError | None = None  # the list of its members can't be read; None if it was


@dataclass(frozen=True, slots=True)
class ReadOffsets:
    """The committed offsets of a group."""

    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    # Partitions whose node can't be read
    errors: dict[TopicPartition, KafkaError] = field(default_factory=dict)
    # Errors of other nodes, below which partitions may be missing
    others: list[KafkaError] = field(default_factory=list)
    # The whole contents of nodes that hold something else than an offset
    texts: dict[TopicPartition, bytes] = field(default_factory=dict)


class _PartitionNode(NamedTuple):
    path: str
    tp: TopicPartition
    data: bytes


def members_of(client: KazooClient, connect: str, group: str, timeout_s: float) -> list[str]:
    """Return the ids of a group's members; none if the group has no node.

    Raises:
        KafkaConnectionError: ZooKeeper can't be reached.
        KafkaUnavailableError: ZooKeeper refuses.
        KafkaTimeoutError: ZooKeeper doesn't respond within `timeout_s`.
    """
    ids = f"{_ROOT}/{group}/ids"
    with translate_errors(connect):
        requests = {ids: client.get_children_async(ids)}
        children: dict[str, list[str]] = results_of(requests, environment.monotonic() + timeout_s)
        return sorted(children.get(ids, ()))


class GroupNodes:
    """The nodes of all groups in one ZooKeeper.

    `timeout_s`: seconds to wait for a session, and for responses.
    """

    def __init__(self, zookeeper: ClusterZookeeper, timeout_s: float) -> None:
        require_kazoo()
        self._zookeeper = zookeeper
        self._connect = zookeeper.shown
        self._timeout_s = timeout_s

    def names(self) -> list[str]:
        """Return the names of all groups that have a node.

        Raises:
            KafkaConnectionError: ZooKeeper can't be reached.
            KafkaUnavailableError: the chroot doesn't exist, or ZooKeeper refuses.
            KafkaTimeoutError: ZooKeeper doesn't respond in time.
        """
        with self._session() as client:
            reader = self._reader(client)
            names = reader.children([_ROOT]).get(_ROOT, ())
            _raise_first(reader)
            return sorted(names)

    def describe(self, groups: Iterable[str]) -> list[ReadGroup]:
        """Return each group with its members; raises as `names`."""
        names = [group for group in groups if is_node_name(group)]
        with self._session() as client:
            return self._describe(client, names)

    def offsets(self, groups: Iterable[str]) -> dict[str, ReadOffsets]:
        """Return the committed offsets of each group, or none; raises as `names`."""
        found = {group: ReadOffsets() for group in groups}
        roots = [f"{_ROOT}/{group}/offsets" for group in found if is_node_name(group)]
        with self._session() as client:
            reader = self._reader(client)
            nodes = _partition_nodes(reader, self._connect, roots)
        for node in nodes:
            of_group = found[_group(node.path)]
            offset = decode_offset(self._connect, node.path, node.data)
            if isinstance(offset, KafkaError):
                of_group.errors[node.tp] = offset
                of_group.texts[node.tp] = node.data
            elif offset is not None:
                of_group.offsets[node.tp] = offset
        for path, error in reader.errors.items():
            of_group = found[_group(path)]
            if (tp := _partition(path)) is None:
                of_group.others.append(error)
            else:
                of_group.errors[tp] = error
        return found

    def delete(self, groups: Collection[str]) -> dict[str, bool | KafkaError]:
        """Delete the nodes of groups without members, and everything below them.

        Returns for each group True; False if it has no node; or the error that prevented the
        deletion: NonEmptyGroup if it has members, also if one has registered during the call. In
        that case, and if ZooKeeper stops responding, parts of its node may be deleted already.

        Raises:
            IllegalArgumentError: a name can't be the name of a node; nothing is deleted.
            KafkaError: as `names`.
        """
        for group in groups:
            check_node_name("group_id", group)
        with self._session() as client:
            return self._delete(client, groups)

    # --- inside -----------------------------------------------------------------------------------

    def _session(self) -> AbstractContextManager[KazooClient]:
        return temporary_session(self._zookeeper, self._timeout_s, "aiokafka08.admin.kazoo")

    def _reader(self, client: KazooClient) -> NodeReader:
        return NodeReader(client, self._connect, self._timeout_s)

    def _describe(self, client: KazooClient, groups: Collection[str]) -> list[ReadGroup]:
        reader = self._reader(client)
        ids = {group: f"{_ROOT}/{group}/ids" for group in groups}
        children = reader.children([*ids.values(), *(f"{_ROOT}/{group}" for group in groups)])
        names = {group: sorted(children.get(path, ())) for group, path in ids.items()}
        paths = {(group, name): f"{ids[group]}/{name}" for group in groups for name in names[group]}
        pykafka = {key: path for key, path in paths.items() if _PYKAFKA.search(path)}
        others = {key: path for key, path in paths.items() if key not in pykafka}
        topics = reader.decoded(others, _subscription, _MEMBER)
        topics |= reader.decoded(pykafka, _subscription_or_topic, _MEMBER)
        owned, strangers = self._owned(client, reader, names)
        errors: dict[str, list[KafkaError]] = {}
        for path, error in [*reader.errors.items(), *strangers.items()]:
            errors.setdefault(_group(path), []).append(error)
        described = []
        for group in groups:
            members = [
                DescribedMember(
                    name,
                    "",  # client id and host aren't in ZooKeeper
                    "",
                    ConsumerProtocolMemberMetadata(0, topics.get((group, name), []), b"").encode(),
                    ConsumerProtocolMemberAssignment(
                        0, owned.get((group, name), {}).items(), b""
                    ).encode(),
                )
                for name in names[group]
            ]
            exists = f"{_ROOT}/{group}" in children
            state = "Stable" if members else "Empty" if exists else "Dead"
            type_ = PROTOCOL_TYPE if members else ""
            described.append(
                ReadGroup(
                    DescribedGroup(0, group, state, type_, "", members),
                    errors.get(group, ()),
                    reader.errors.get(ids[group]),
                )
            )
        return described

    def _owned(
        self, client: KazooClient, reader: NodeReader, names: Mapping[str, Sequence[str]]
    ) -> tuple[dict[tuple[str, str], dict[str, list[int]]], dict[str, KafkaError]]:
        """Return the partitions of each member by topic, and the owner nodes without a member."""
        owned: dict[tuple[str, str], dict[str, list[int]]] = {}
        strangers: dict[str, bytes] = {}
        roots = [f"{_ROOT}/{group}/owners" for group in names]
        for path, tp, owner in _partition_nodes(reader, self._connect, roots, _OWNED):
            group = _group(path)
            member = owner_of(owner, names[group])
            if member is None:
                strangers[path] = owner
            else:
                topic = _BYTES.sub(r"\1", tp.topic)
                owned.setdefault((group, member), {}).setdefault(topic, []).append(tp.partition)
        if not strangers:
            return owned, {}
        # Members come and go while the group is read, so an owner is unknown only if a second read
        # doesn't find its member either.
        again = self._reader(client)
        now = again.data(strangers)
        ids = {group: f"{_ROOT}/{group}/ids" for group in map(_group, now)}
        members = again.children(ids.values())
        return owned, {
            path: unreadable(self._connect, path, owner, "the id of a live member of the group")
            for path, owner in now.items()
            if owner == strangers[path]
            and owner_of(owner, members.get(ids[_group(path)], ())) is None
        }

    def _delete(self, client: KazooClient, groups: Collection[str]) -> dict[str, bool | KafkaError]:
        reader = self._reader(client)
        roots = {group: f"{_ROOT}/{group}" for group in groups}
        ids = {group: f"{root}/ids" for group, root in roots.items()}
        children = reader.children([*roots.values(), *ids.values()])
        outcomes: dict[str, bool | KafkaError] = {}
        for group in groups:
            if error := reader.errors.get(roots[group]) or reader.errors.get(ids[group]):
                outcomes[group] = error
            elif members := children.get(ids[group]):
                outcomes[group] = NonEmptyGroup(f"its members are {', '.join(sorted(members))}")
            elif roots[group] not in children:
                outcomes[group] = False
        left = {group: children[roots[group]] for group in groups if group not in outcomes}
        failed: dict[str, KafkaError] = {}
        try:
            with translate_errors(self._connect):
                self._delete_trees(client, left, failed)
        except KafkaError as error:
            failed = dict.fromkeys(left, error) | failed
        return dict.fromkeys(groups, True) | outcomes | failed

    def _delete_trees(
        self,
        client: KazooClient,
        groups: Mapping[str, Collection[str]],
        failed: dict[str, KafkaError],
    ) -> None:
        """Delete groups without members.

        `groups`: the names of each group's child nodes; `failed` gets the groups that can't be
        deleted.
        """
        # Delete `ids` first and the group's node last, each only if it is empty. So a member that
        # registers meanwhile is never deleted: the deletion of its group fails.
        self._delete_nodes(client, {f"{_ROOT}/{group}/ids": group for group in groups}, failed)
        levels: list[dict[str, str]] = []
        level = {
            f"{_ROOT}/{group}/{child}": group
            for group in groups
            for child in groups[group]
            if child != "ids" and group not in failed
        }
        while level:
            levels.append(level)
            reader = self._reader(client)
            below = reader.children(level)
            for path, error in reader.errors.items():
                failed.setdefault(level[path], error)
            level = {f"{path}/{child}": levels[-1][path] for path in below for child in below[path]}
        for nodes in [*reversed(levels), {f"{_ROOT}/{group}": group for group in groups}]:
            kept = {path: group for path, group in nodes.items() if group not in failed}
            self._delete_nodes(client, kept, failed)

    def _delete_nodes(
        self, client: KazooClient, nodes: Mapping[str, str], failed: dict[str, KafkaError]
    ) -> None:
        """Delete nodes (path → group); `failed` gets the groups whose nodes can't be deleted."""
        from kazoo.exceptions import KazooException, NoAuthError, NoNodeError, NotEmptyError

        paths = list(nodes)
        for at in range(0, len(paths), _AT_ONCE):
            deadline = environment.monotonic() + self._timeout_s
            sent = {path: client.delete_async(path) for path in paths[at : at + _AT_ONCE]}
            wait_for_last(sent, deadline)
            for path, request in sent.items():
                try:
                    result_of(request, deadline)
                except NoNodeError:
                    pass
                except NotEmptyError:
                    failed[nodes[path]] = NonEmptyGroup("a consumer has just started")
                except NoAuthError:
                    # The ACL of the parent node decides who may delete a node.
                    failed[nodes[path]] = refused(self._connect, path.rpartition("/")[0])
                except KazooException as error:
                    failed[nodes[path]] = KafkaUnavailableError(
                        f"ZooKeeper {self._connect}: {type(error).__name__} {error}".rstrip()
                    )
                except KafkaTimeoutError as error:
                    failed[nodes[path]] = error


def owner_of(owner: bytes, members: Collection[str]) -> str | None:
    """Return the member that an owner node names; None if it isn't a member of the group."""
    name = owner.decode(errors="replace")
    # Consumers in Go, pykafka and kafka-node write the member's id, which has dashes. The Scala
    # consumer, and this one, add "-" and a thread's number.
    if name in members:
        return name
    name = _THREAD.sub("", name)
    return name if name in members else None


def _partition_nodes(
    reader: NodeReader,
    connect: str,
    roots: Collection[str],
    names_of_partitions: re.Pattern[str] = _PARTITION,
) -> list[_PartitionNode]:
    """Return the nodes `<root>/<topic>/<partition>`, in order."""
    topics = reader.children(roots)
    topic_paths = [f"{root}/{topic}" for root in topics for topic in sorted(topics[root])]
    nodes: dict[str, TopicPartition] = {}
    for path, names in reader.children(topic_paths).items():
        topic = path.rpartition("/")[2]
        numbers: dict[str, int] = {}
        for name in names:
            node = f"{path}/{name}"
            if match := names_of_partitions.fullmatch(name):
                numbers[node] = int(match[1])
            else:
                # It isn't a partition, so `reader.errors` has it.
                reader.errors[node] = wrongly_named(connect, node, "partition")
        in_order = sorted(numbers, key=numbers.__getitem__)
        nodes |= {node: TopicPartition(topic, numbers[node]) for node in in_order}
    data = reader.data(nodes)
    return [_PartitionNode(path, tp, data[path]) for path, tp in nodes.items() if path in data]


def _group(path: str) -> str:
    return path.split("/")[2]


def _partition(path: str) -> TopicPartition | None:
    """Return the partition of a node `/consumers/<group>/offsets/<topic>/<partition>`."""
    parts = path.split("/")
    if len(parts) != 6 or not NUMBER.fullmatch(parts[5]):
        return None
    return TopicPartition(parts[4], int(parts[5]))


def _subscription(data: bytes) -> list[str]:
    topics = sorted(json_object(data)["subscription"])
    if any(len(topic.encode()) > 0x7FFF for topic in topics):
        raise ValueError("too long for a topic")
    return topics


def _subscription_or_topic(data: bytes) -> list[str]:
    """Return the topics of a member of pykafka, which writes its one topic's name."""
    try:
        return _subscription(data)
    except (LookupError, RecursionError, TypeError, ValueError):
        if not is_topic_name(topic := data.decode()):
            raise
        return [topic]


def _raise_first(reader: NodeReader) -> None:
    for error in reader.errors.values():
        raise error
