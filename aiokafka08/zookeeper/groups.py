"""Read the groups that Scala consumers of 0.8 keep in ZooKeeper, in the form of DescribeGroups.

`/consumers/<group>/ids/<member>` is ephemeral and holds a member's subscription as JSON;
`/consumers/<group>/owners/<topic>/<partition>` names the member's thread that reads the partition.
The result has the form of the brokers' response, so that `admin.groups` handles only one form. The
calls of `GroupNodes` block and run in threads, each with a session of its own.

Invariant: nothing is written. If a member's node can't be decoded, that is logged, and the member
is returned with an empty subscription and the partitions that it owns.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from aiokafka08.coordinator.protocol import (
    PROTOCOL_TYPE,
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from aiokafka08.protocol.api import DescribedGroup, DescribedMember
from aiokafka08.zookeeper.session import check_node_name, require_kazoo, temporary_session

if TYPE_CHECKING:
    from kazoo.client import KazooClient

_log = logging.getLogger("aiokafka08.admin")
_ROOT = "/consumers"
_PARTITION = re.compile(r"[0-9]{1,9}")


class GroupNodes:
    """The nodes of all groups in one ZooKeeper.

    Args:
        connect: "host:port,host:port/chroot".
        timeout_s: seconds to wait for a session.
        client_id: log lines begin with it.

    Raises:
        KafkaConfigurationError: kazoo isn't installed.
    """

    def __init__(self, connect: str, timeout_s: float, client_id: str) -> None:
        require_kazoo()
        self._connect = connect
        self._timeout_s = timeout_s
        self._client_id = client_id

    def names(self) -> list[str]:
        """Return the names of all groups that have a node.

        Raises:
            KafkaConnectionError: ZooKeeper can't be reached.
            KafkaUnavailableError: the chroot doesn't exist, or ZooKeeper refuses.
        """
        with self._session() as client:
            return sorted(_children(client, _ROOT) or ())

    def describe(self, groups: Iterable[str]) -> list[DescribedGroup]:
        """Return each group with its members.

        Raises:
            IllegalArgumentError: a name can't be the name of a node.
            KafkaConnectionError, KafkaUnavailableError: see `names`.
        """
        group_names = list(groups)
        for group in group_names:
            check_node_name("group_id", group)
        with self._session() as client:
            return [self._describe(client, group) for group in group_names]

    def _session(self) -> AbstractContextManager[KazooClient]:
        return temporary_session(self._connect, self._timeout_s, "aiokafka08.admin.kazoo")

    def _describe(self, client: KazooClient, group: str) -> DescribedGroup:
        ids = f"{_ROOT}/{group}/ids"
        names = sorted(_children(client, ids) or ())
        owned = self._owned(client, group) if names else {}
        members = []
        for name in names:
            topics = self._subscription(f"{ids}/{name}", _read(client, f"{ids}/{name}"))
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
            state = "Dead" if _children(client, f"{_ROOT}/{group}") is None else "Empty"
        return DescribedGroup(0, group, state, PROTOCOL_TYPE if members else "", "", members)

    def _owned(self, client: KazooClient, group: str) -> dict[str, dict[str, list[int]]]:
        """Return for each member its partitions by topic."""
        owned: dict[str, dict[str, list[int]]] = {}
        root = f"{_ROOT}/{group}/owners"
        for topic in sorted(_children(client, root) or ()):
            names = _children(client, f"{root}/{topic}") or ()
            for number in sorted(int(one) for one in names if _PARTITION.fullmatch(one)):
                thread = _read(client, f"{root}/{topic}/{number}")
                member, _, _ = (thread or b"").decode(errors="replace").rpartition("-")
                owned.setdefault(member, {}).setdefault(topic, []).append(number)
        return owned

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


def _children(client: KazooClient, path: str) -> list[str] | None:
    """Return the names of the child nodes; None if there is no such node."""
    from kazoo.exceptions import NoNodeError

    try:
        names: list[str] = client.get_children(path)
    except NoNodeError:
        return None
    return names


def _read(client: KazooClient, path: str) -> bytes | None:
    """Return a node's data; None if there is no such node."""
    from kazoo.exceptions import NoNodeError

    try:
        data: bytes = client.get(path)[0]
    except NoNodeError:
        return None
    return data
