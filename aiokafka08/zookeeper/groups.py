"""Groups of 0.8 as ZooKeeper shows them: what the members of the Scala consumer's groups write.

`/consumers/<group>/ids/<member>` is ephemeral and says what a member subscribes to, in JSON;
`/consumers/<group>/owners/<topic>/<partition>` names the member's thread that reads the partition.
Read only. Blocking: the admin client runs it in a thread, one session per call. Told in the form of
DescribeGroups, so that a caller needs to know one form only.
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


class GroupRegistry:
    """The part of one ZooKeeper in which the groups of 0.8 are.

    Args:
        connect: "host:port,host:port/chroot".
        timeout_s: seconds to wait for a session.

    Raises:
        KafkaConfigurationError: kazoo isn't installed.
    """

    def __init__(self, connect: str, timeout_s: float) -> None:
        require_kazoo()
        self._connect = connect
        self._timeout_s = timeout_s

    def groups(self) -> list[str]:
        """The names of all groups that have left anything there.

        Raises:
            KafkaConnectionError, KafkaUnavailableError: ZooKeeper can't be reached, or refuses.
        """
        with self._session() as session:
            return sorted(_children(session, _ROOT) or ())

    def describe(self, groups: Iterable[str]) -> list[DescribedGroup]:
        """Each group with its members. Raises as `groups`, and:

        Raises:
            IllegalArgumentError: a name that can't be a node.
        """
        wanted = list(groups)
        for group in wanted:
            check_node_name("group_id", group)
        with self._session() as session:
            return [self._describe(session, group) for group in wanted]

    def _session(self) -> AbstractContextManager[KazooClient]:
        return temporary_session(self._connect, self._timeout_s, "aiokafka08.admin.kazoo")

    def _describe(self, session: KazooClient, group: str) -> DescribedGroup:
        ids = f"{_ROOT}/{group}/ids"
        names = sorted(_children(session, ids) or ())
        owned = self._owned(session, group) if names else {}
        members = []
        for name in names:
            topics = self._subscribed(f"{ids}/{name}", _read(session, f"{ids}/{name}"))
            members.append(
                DescribedMember(
                    name,
                    "",  # 0.8 tells neither client id nor host
                    "",
                    ConsumerProtocolMemberMetadata(0, topics, b"").encode(),
                    ConsumerProtocolMemberAssignment(0, owned.get(name, {}).items(), b"").encode(),
                )
            )
        if members:
            state = "Stable"
        else:
            state = "Dead" if _children(session, f"{_ROOT}/{group}") is None else "Empty"
        return DescribedGroup(0, group, state, PROTOCOL_TYPE if members else "", "", members)

    def _owned(self, session: KazooClient, group: str) -> dict[str, dict[str, list[int]]]:
        """Member → topic → partitions."""
        owned: dict[str, dict[str, list[int]]] = {}
        root = f"{_ROOT}/{group}/owners"
        for topic in sorted(_children(session, root) or ()):
            names = _children(session, f"{root}/{topic}") or ()
            for number in sorted(int(one) for one in names if _PARTITION.fullmatch(one)):
                thread = _read(session, f"{root}/{topic}/{number}")
                member, _, _ = (thread or b"").decode(errors="replace").rpartition("-")
                owned.setdefault(member, {}).setdefault(topic, []).append(number)
        return owned

    def _subscribed(self, path: str, data: bytes | None) -> list[str]:
        """The topics (or patterns) that a member wants; none where its node can't be read."""
        if data is None:
            return []  # it has left just now
        try:
            topics = sorted(map(str, json.loads(data)["subscription"]))
            if any(len(topic.encode()) > 0x7FFF for topic in topics):
                raise ValueError
            return topics
        except (ValueError, KeyError, TypeError, RecursionError):
            _log.warning(
                "ZooKeeper %s: the node %s doesn't describe a member: %r",
                self._connect,
                path,
                data[:200],
            )
            return []


def _children(session: KazooClient, path: str) -> list[str] | None:
    """The names below a node; None where there is no such node."""
    from kazoo.exceptions import NoNodeError

    try:
        names: list[str] = session.get_children(path)
    except NoNodeError:
        return None
    return names


def _read(session: KazooClient, path: str) -> bytes | None:
    from kazoo.exceptions import NoNodeError

    try:
        data: bytes = session.get(path)[0]
    except NoNodeError:
        return None
    return data
