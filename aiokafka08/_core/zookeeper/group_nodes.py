"""Read, and delete, the groups that Scala consumers of 0.8 keep in ZooKeeper.

`/consumers/<group>/ids/<member>` is ephemeral and holds a member's subscription as JSON;
`/consumers/<group>/owners/<topic>/<partition>` names the member's thread that reads the partition;
`/consumers/<group>/offsets/<topic>/<partition>` holds a committed offset. Groups and members are
returned in the form of the brokers' DescribeGroups, so that `admin.groups` handles only one form.
The calls of `GroupNodes` block and run in threads, each with a session of its own. They read many
nodes at a time: ZooKeeper responds to pipelined requests.

Invariant: only `delete` changes anything. A node that can't be decoded is logged and left out: a
member is then returned with an empty subscription and the partitions that it owns.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Any, Final

from aiokafka08 import environment
from aiokafka08._core.zookeeper.cluster_check import ClusterZookeeper
from aiokafka08._core.zookeeper.offsets import decode_offset
from aiokafka08._core.zookeeper.results import results_of
from aiokafka08._core.zookeeper.session import (
    check_node_name,
    require_kazoo,
    temporary_session,
    translate_errors,
)
from aiokafka08.coordinator.protocol import (
    PROTOCOL_TYPE,
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from aiokafka08.errors import KafkaUnavailableError, NonEmptyGroup
from aiokafka08.protocol.requests.groups import DescribedGroup, DescribedMember
from aiokafka08.structs import TopicPartition

if TYPE_CHECKING:
    from kazoo.client import KazooClient

_log: Final = logging.getLogger("aiokafka08.admin")
_ROOT: Final = "/consumers"
_PARTITION: Final = re.compile(r"[0-9]{1,9}")

_IN_FLIGHT: Final = 1000
"""How many nodes are requested at a time."""


def members_of(client: KazooClient, connect: str, group: str, timeout_s: float) -> list[str]:
    """Return the ids of a group's members; none if the group has no node.

    Args:
        client: of an open session.
        connect: the address, for error texts.
        timeout_s: seconds to wait for the response.

    Raises:
        KafkaConnectionError: ZooKeeper can't be reached.
        KafkaUnavailableError: ZooKeeper refuses.
        KafkaTimeoutError: ZooKeeper doesn't respond in time.
    """
    ids = f"{_ROOT}/{group}/ids"
    with translate_errors(connect):
        requests = {ids: client.get_children_async(ids)}
        children: dict[str, list[str]] = results_of(requests, environment.monotonic() + timeout_s)
        return sorted(children.get(ids, ()))


class GroupNodes:
    """The nodes of all groups in one ZooKeeper.

    Args:
        zookeeper: the address, and the check that it is the brokers' ZooKeeper.
        timeout_s: seconds to wait for a session, and for responses.
        client_id: log lines begin with it.

    Raises:
        KafkaConfigurationError: kazoo isn't installed.
    """

    def __init__(self, zookeeper: ClusterZookeeper, timeout_s: float, client_id: str) -> None:
        require_kazoo()
        self._zookeeper = zookeeper
        self._connect = zookeeper.connect
        self._timeout_s = timeout_s
        self._client_id = client_id

    def names(self) -> list[str]:
        """Return the names of all groups that have a node.

        Raises:
            KafkaConnectionError: ZooKeeper can't be reached.
            KafkaUnavailableError: the chroot doesn't exist, or ZooKeeper refuses.
            KafkaTimeoutError: ZooKeeper doesn't respond in time.
        """
        with self._session() as client:
            return sorted(self._children(client, [_ROOT]).get(_ROOT, ()))

    def describe(self, groups: Iterable[str]) -> list[DescribedGroup]:
        """Return each group with its members.

        Raises:
            IllegalArgumentError: a name can't be the name of a node.
            KafkaError: as `names`.
        """
        group_names = _checked(groups)
        with self._session() as client:
            return [self._describe(client, group) for group in group_names]

    def offsets(self, groups: Iterable[str]) -> dict[str, dict[TopicPartition, int]]:
        """Return the committed offsets of each group; empty for a group without any.

        A node that holds something else than an offset is logged and left out.

        Raises:
            IllegalArgumentError: a name can't be the name of a node.
            KafkaError: as `names`.
        """
        offsets: dict[str, dict[TopicPartition, int]] = {group: {} for group in _checked(groups)}
        with self._session() as client:
            nodes = self._partition_nodes(client, [f"{_ROOT}/{group}/offsets" for group in offsets])
        for path, tp, data in nodes:
            try:
                offset = decode_offset(self._connect, path, data)
            except KafkaUnavailableError as error:
                _log.warning("%s: %s", self._client_id, error.text)
                continue
            if offset is not None:
                offsets[path.split("/")[2]][tp] = offset
        return offsets

    def delete(self, group: str) -> bool:
        """Delete the node of a group without members, and everything below it.

        Returns:
            False if the group has no node.

        Raises:
            IllegalArgumentError: the name can't be the name of a node.
            NonEmptyGroup: the group has members, which the text names; or one has registered during
                the call, when parts of the group's node may be deleted already.
            KafkaError: as `names`.
        """
        from kazoo.exceptions import NoNodeError, NotEmptyError

        [name] = _checked([group])
        path, ids = f"{_ROOT}/{name}", f"{_ROOT}/{name}/ids"
        with self._session() as client:
            children = self._children(client, [path, ids])
            if members := children.get(ids):
                raise NonEmptyGroup(f"its members are {', '.join(sorted(members))}")
            if path not in children:
                return False
            # `ids` goes first, and it and the group's node only if they are empty: so a member that
            # registers from now on is never deleted, and its group's deletion fails.
            try:
                with suppress(NoNodeError):
                    client.delete(ids)
                for child in children[path]:
                    if child != "ids":
                        client.delete(f"{path}/{child}", recursive=True)
                with suppress(NoNodeError):
                    client.delete(path)
            except NotEmptyError:
                raise NonEmptyGroup("a consumer has just started") from None
        return True

    # --- inside -----------------------------------------------------------------------------------

    def _session(self) -> AbstractContextManager[KazooClient]:
        return temporary_session(self._zookeeper, self._timeout_s, "aiokafka08.admin.kazoo")

    def _describe(self, client: KazooClient, group: str) -> DescribedGroup:
        ids = f"{_ROOT}/{group}/ids"
        names = sorted(self._children(client, [ids]).get(ids, ()))
        owned = self._owned(client, group) if names else {}
        subscriptions = self._data(client, [f"{ids}/{name}" for name in names])
        members = []
        for name in names:
            topics = self._subscription(f"{ids}/{name}", subscriptions.get(f"{ids}/{name}"))
            members.append(
                DescribedMember(
                    name,
                    "",  # client id and host aren't in ZooKeeper
                    "",
                    ConsumerProtocolMemberMetadata(0, topics, b"").encode(),
                    ConsumerProtocolMemberAssignment(0, owned.get(name, {}).items(), b"").encode(),
                )
            )
        if members:
            state = "Stable"
        else:
            path = f"{_ROOT}/{group}"
            state = "Empty" if path in self._children(client, [path]) else "Dead"
        return DescribedGroup(0, group, state, PROTOCOL_TYPE if members else "", "", members)

    def _owned(self, client: KazooClient, group: str) -> dict[str, dict[str, list[int]]]:
        """Return for each member its partitions by topic."""
        owned: dict[str, dict[str, list[int]]] = {}
        for _, tp, thread in self._partition_nodes(client, [f"{_ROOT}/{group}/owners"]):
            member, _, _ = thread.decode(errors="replace").rpartition("-")
            owned.setdefault(member, {}).setdefault(tp.topic, []).append(tp.partition)
        return owned

    def _partition_nodes(
        self, client: KazooClient, roots: Collection[str]
    ) -> Iterator[tuple[str, TopicPartition, bytes]]:
        """Return path, partition and data of the nodes `<root>/<topic>/<partition>`, in order."""
        topics = self._children(client, roots)
        topic_paths = [f"{root}/{topic}" for root in topics for topic in sorted(topics[root])]
        partitions = self._children(client, topic_paths)
        nodes = {
            f"{path}/{number}": TopicPartition(path.rpartition("/")[2], number)
            for path, names in partitions.items()
            for number in sorted(int(name) for name in names if _PARTITION.fullmatch(name))
        }
        data = self._data(client, nodes)
        return ((path, tp, data[path]) for path, tp in nodes.items() if path in data)

    def _children(self, client: KazooClient, paths: Iterable[str]) -> dict[str, list[str]]:
        """Return the names of the children of each node; missing nodes are left out."""
        return self._request_all(client.get_children_async, paths)

    def _data(self, client: KazooClient, paths: Iterable[str]) -> dict[str, bytes]:
        """Return the data of each node; missing nodes are left out."""
        results = self._request_all(client.get_async, paths)
        return {path: data for path, (data, _) in results.items()}

    def _request_all(self, send: Callable[[str], Any], paths: Iterable[str]) -> dict[str, Any]:
        waiting = list(paths)
        results: dict[str, Any] = {}
        for at in range(0, len(waiting), _IN_FLIGHT):
            deadline = environment.monotonic() + self._timeout_s
            sent = {path: send(path) for path in waiting[at : at + _IN_FLIGHT]}
            results |= results_of(sent, deadline)
        return results

    def _subscription(self, path: str, data: bytes | None) -> list[str]:
        """Return the topics, or patterns, in a member's node; none if it can't be decoded."""
        if data is None:
            return []  # the member has just left
        try:
            topics = sorted(map(str, json.loads(data)["subscription"]))
            if any(len(topic.encode()) > 0x7FFF for topic in topics):
                raise ValueError
            return topics
        except (ValueError, KeyError, TypeError, RecursionError):
            _log.warning(
                "%s: ZooKeeper %s: node %s doesn't describe a member: %r",
                self._client_id,
                self._connect,
                path,
                data[:200],
            )
            return []


def _checked(groups: Iterable[str]) -> list[str]:
    names = list(groups)
    for name in names:
        check_node_name("group_id", name)
    return names
