"""Register one member of a ZooKeeper group, read the group, and claim partitions for the member.

All calls but `probe` block and run in threads, one at a time.

Invariant: an owner node counts as this member's, and is deleted, only if the current session
created it, because a node of an ended session may belong to another member by now. Each call has
one deadline for all its requests, `timeout_s` after its start. A node that can't be decoded is
skipped and logged once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from aiokafka08 import environment
from aiokafka08._core.zookeeper.scala_format import (
    MemberRegistration,
    decode_partitions,
    decode_registration,
    encode_registration,
    new_member_id,
)
from aiokafka08._core.zookeeper.session import translate_errors
from aiokafka08._wording import partition_name
from aiokafka08.structs import TopicPartition

if TYPE_CHECKING:
    from kazoo.client import KazooClient

_log: Final = logging.getLogger("aiokafka08.consumer")


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """A group at one moment."""

    threads: Mapping[str, Sequence[str]]  # topic → the threads of all members
    # Topic → the ids of its partitions, for the topics of this member's subscription
    partitions: Mapping[str, Sequence[int]]


class ScalaRegistry:
    """The nodes of one group, as one member reads and writes them (`scala_format`).

    `on_change` is called in a kazoo thread when the list of members, or the topics or partitions
    that `register_and_read` read, change.
    """

    def __init__(
        self,
        client: KazooClient,
        connect: str,
        group: str,
        timeout_s: float,
        on_change: Callable[[], object],
        client_id: str,
        verify: Callable[[KazooClient, float], object],
    ) -> None:
        # The registered id, or an id that may be registered because a response got lost; "" if none
        self.member = ""
        self._client = client
        self._connect = connect
        self._group = group
        self._root = f"/consumers/{group}"
        self._timeout_s = timeout_s
        self._on_change = on_change
        self._client_id = client_id
        self._verify = verify
        self._session_id = 0  # the session that `member` was registered in
        # The topics that the member's node names; None if they aren't known
        self._topics: frozenset[str] | None = None
        self._warned: set[str] = set()

    def register_and_read(self, topics: frozenset[str]) -> GroupSnapshot:
        """Register the member for these topics, if it isn't yet; then read and watch the group.

        Raises:
            KafkaConnectionError: ZooKeeper can't be reached, or doesn't respond in time.
            KafkaUnavailableError: ZooKeeper refuses.
            ZookeeperMismatchError: the session is a new one, with the ZooKeeper of other brokers.
        """
        with translate_errors(self._connect):
            deadline = environment.monotonic() + self._timeout_s
            self._verify(self._client, self._timeout_s)
            self._register(topics, deadline)
            members = self._read_members(deadline)
            if not any(registration.member == self.member for registration in members):
                self.member = ""  # another client has deleted the node
                self._register(topics, deadline)
                members = self._read_members(deadline)
            all_topics: list[str] = []
            if any(registration.is_wildcard for registration in members):
                all_topics = self._children("/brokers/topics", deadline)
            threads: dict[str, list[str]] = {}
            for registration in members:
                try:
                    by_topic = registration.threads(all_topics)
                except ValueError as error:
                    self._warn(f"{self._root}/ids/{registration.member}", error)
                    continue
                for topic, names in by_topic.items():
                    threads.setdefault(topic, []).extend(names)
            partitions = {topic: self._read_partitions(topic, deadline) for topic in sorted(topics)}
            return GroupSnapshot(threads, partitions)

    def claim(self, wanted: Mapping[TopicPartition, str]) -> str | None:
        """Create the owner nodes of these partitions, each with its thread.

        Returns None if all are owned now; otherwise the reason, and none is owned.
        """
        from kazoo.exceptions import NodeExistsError

        with translate_errors(self._connect):
            deadline = environment.monotonic() + self._timeout_s
            self._verify(self._client, self._timeout_s)
            for tp, thread in wanted.items():
                path = self._owner_path(tp)
                try:
                    self._create(path, thread.encode(), deadline)
                except NodeExistsError:
                    owner, is_own = self._read_owner(path, deadline)
                    if not is_own:
                        self._delete_owned(wanted, deadline)
                        return f"{partition_name(tp)} is owned by {owner!r}"
        return None

    def release(self, owned: Collection[TopicPartition]) -> None:
        """Delete those owner nodes of these partitions that the current session created."""
        with translate_errors(self._connect):
            self._delete_owned(owned, environment.monotonic() + self._timeout_s)

    def leave(self, owned: Collection[TopicPartition]) -> None:
        with translate_errors(self._connect):
            deadline = environment.monotonic() + self._timeout_s
            self._delete_owned(owned, deadline)
            self._unregister(deadline)

    def probe(self, on_result: Callable[[bool], object]) -> None:
        """Send a request whose response shows that the session lives; don't wait for it.

        `on_result` is called in a kazoo thread with whether ZooKeeper has responded.
        """
        request = self._client.exists_async(f"{self._root}/ids")
        request.rawlink(lambda result: on_result(result.successful()))

    # --- inside -----------------------------------------------------------------------------------

    def _register(self, topics: frozenset[str], deadline: float) -> None:
        session_id = self._current_session_id()
        if self.member and (session_id, topics) == (self._session_id, self._topics):
            return
        self._unregister(deadline)
        # Each registration has a new id: other members watch the list of ids, not the contents.
        member = new_member_id(self._group)
        data = encode_registration(topics, environment.wall_time_ms())
        # The id is recorded before the request creates the node, and kept until the node is
        # deleted. If the response gets lost, the node may exist nevertheless. Without the id no
        # call would delete the node, and the group would count it as a member until the session
        # ends.
        self.member, self._session_id, self._topics = member, session_id, None
        self._create(f"{self._root}/ids/{member}", data, deadline)
        self._topics = topics

    def _unregister(self, deadline: float) -> None:
        # No other client has this id. So the node is deleted whatever session created it: kazoo may
        # have kept the request of `_register` until there was a new session.
        if self.member:
            self._delete(f"{self._root}/ids/{self.member}", deadline)
        self.member = ""

    def _read_members(self, deadline: float) -> list[MemberRegistration]:
        from kazoo.exceptions import NoNodeError

        root = f"{self._root}/ids"
        members = []
        for name in self._children(root, deadline):
            path = f"{root}/{name}"
            try:
                data, _ = self._get(path, deadline)
                members.append(decode_registration(name, data))
            except NoNodeError:
                continue  # the member has just left; the watch on the list calls `on_change`
            except ValueError as error:
                self._warn(path, error)
        return members

    def _read_partitions(self, topic: str, deadline: float) -> list[int]:
        from kazoo.exceptions import NoNodeError

        path = f"/brokers/topics/{topic}"
        try:
            data, _ = self._get(path, deadline, watch=self._watched)
            return decode_partitions(data)
        except NoNodeError:
            _wait(self._client.exists_async(path, watch=self._watched), deadline, path)
        except ValueError as error:
            self._warn(path, error)
        return []

    def _children(self, path: str, deadline: float) -> list[str]:
        from kazoo.exceptions import NoNodeError

        try:
            names = _wait(
                self._client.get_children_async(path, watch=self._watched), deadline, path
            )
        except NoNodeError:
            return []
        return sorted(names)

    def _delete_owned(self, partitions: Collection[TopicPartition], deadline: float) -> None:
        for tp in partitions:
            path = self._owner_path(tp)
            if self._read_owner(path, deadline)[1]:
                self._delete(path, deadline)

    def _read_owner(self, path: str, deadline: float) -> tuple[str, bool]:
        """Return the owner of a partition, and True if the current session created the node."""
        from kazoo.exceptions import NoNodeError

        try:
            data, stat = self._get(path, deadline)
        except NoNodeError:
            return "", False
        return data.decode(errors="replace"), stat.ephemeralOwner == self._current_session_id()

    def _get(self, path: str, deadline: float, **options: Any) -> tuple[bytes, Any]:
        data, stat = _wait(self._client.get_async(path, **options), deadline, path)
        return data or b"", stat  # kafka-node writes the data after it created the node

    def _create(self, path: str, data: bytes, deadline: float) -> None:
        _wait(self._client.create_async(path, data, ephemeral=True, makepath=True), deadline, path)

    def _delete(self, path: str, deadline: float) -> None:
        from kazoo.exceptions import NoNodeError

        try:
            _wait(self._client.delete_async(path), deadline, path)
        except NoNodeError:
            pass

    def _owner_path(self, tp: TopicPartition) -> str:
        return f"{self._root}/owners/{tp.topic}/{tp.partition}"

    def _current_session_id(self) -> int:
        """Return the session's id; raise KazooTimeoutError without a connection."""
        from kazoo.handlers.threading import KazooTimeoutError

        client_id = self._client.client_id
        if client_id is None:
            raise KazooTimeoutError("not connected")
        return int(client_id[0])

    def _watched(self, event: object) -> None:
        self._on_change()

    def _warn(self, path: str, error: ValueError) -> None:
        if path not in self._warned:
            if len(self._warned) > 1000:  # bounds the memory
                self._warned.clear()
            self._warned.add(path)
            _log.warning(
                "%s: ZooKeeper %s: node %s skipped: %s",
                self._client_id,
                self._connect,
                path,
                error,
            )


def _wait(request: Any, deadline: float, path: str) -> Any:
    """Return the result of a request about a node; an error about its ACL names the node."""
    from kazoo.exceptions import NoAuthError

    try:
        return request.get(timeout=max(deadline - environment.monotonic(), 0.001))
    except NoAuthError:
        raise NoAuthError(path) from None
