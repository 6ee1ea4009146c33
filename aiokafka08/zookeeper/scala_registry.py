"""The nodes of one group in ZooKeeper, by one session: blocking, for threads.

`/consumers/<group>/ids/<member>` and `/consumers/<group>/owners/<topic>/<partition>` are ephemeral
and hold what `scala` says; `/brokers/topics/<topic>` is the brokers'. Law: only nodes of this very
session are taken for one's own and deleted, since those of a session that ended may be others' by
now; every wait has an end. A node with something unreadable is skipped, with a warning that names
it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from aiokafka08.structs import TopicPartition
from aiokafka08.zookeeper.scala_format import (
    Registered,
    View,
    new_member,
    read_partitions,
    read_registration,
    registration,
)
from aiokafka08.zookeeper.session import telling

if TYPE_CHECKING:
    from kazoo.client import KazooClient

_log = logging.getLogger("aiokafka08.consumer")


class Registry:
    """What one member reads and writes.

    Args:
        on_news: called in a thread of kazoo's when something that was looked at has changed.
        timeout_s: seconds that one call here may take.

    Attributes:
        member: the id that is (or may be) registered, "" without one.
    """

    def __init__(
        self,
        session: KazooClient,
        connect: str,
        group: str,
        timeout_s: float,
        on_news: Callable[[], object],
    ) -> None:
        self.member = ""
        self._session = session
        self._connect = connect
        self._group = group
        self._root = f"/consumers/{group}"
        self._timeout_s = timeout_s
        self._on_news = on_news
        self._session_id = 0
        self._topics: frozenset[str] | None = None  # of the node, if it is there
        self._warned: set[str] = set()

    def look(self, topics: frozenset[str]) -> View:
        """Register for these topics, where this session hasn't; then the group as it is, and a call
        of `on_news` when that changes.

        Raises:
            KafkaConnectionError, KafkaUnavailableError: ZooKeeper can't do it now.
        """
        with telling(self._connect):
            end = time.monotonic() + self._timeout_s
            self._register(topics, end)
            members = self._members(end)
            if not any(one.member == self.member for one in members):
                self.member = ""  # somebody has deleted the node
                self._register(topics, end)
                members = self._members(end)
            all_topics: list[str] = []
            if any(one.is_wildcard for one in members):
                all_topics = self._children("/brokers/topics", end)
            threads: dict[str, list[str]] = {}
            for one in members:
                try:
                    by_topic = one.threads(all_topics)
                except ValueError as error:
                    self._warn(f"{self._root}/ids/{one.member}", error)
                    continue
                for topic, names in by_topic.items():
                    threads.setdefault(topic, []).extend(names)
            return View(threads, {topic: self._partitions(topic, end) for topic in sorted(topics)})

    def claim(self, wanted: Mapping[TopicPartition, str]) -> str | None:
        """Become the owner of these; None if that worked, else who has one of them, and none is
        owned then."""
        from kazoo.exceptions import NodeExistsError

        with telling(self._connect):
            end = time.monotonic() + self._timeout_s
            for tp, thread in wanted.items():
                path = self._owner_path(tp)
                try:
                    self._create(path, thread.encode(), end)
                except NodeExistsError:
                    owner, is_mine = self._owner(path, end)
                    if not is_mine:
                        self._release(wanted, end)
                        return f"{tp} is owned by {owner!r}"
        return None

    def release(self, owned: Collection[TopicPartition]) -> None:
        """Own these no more."""
        with telling(self._connect):
            self._release(owned, time.monotonic() + self._timeout_s)

    def leave(self, owned: Collection[TopicPartition]) -> None:
        """Own these no more, and be no member."""
        with telling(self._connect):
            end = time.monotonic() + self._timeout_s
            self._release(owned, end)
            self._unregister(end)

    # --- inside -----------------------------------------------------------------------------------

    def _register(self, topics: frozenset[str], end: float) -> None:
        session_id = self._now_session()
        if self.member and (session_id, topics) == (self._session_id, self._topics):
            return
        self._unregister(end)
        # A new id each time: the others only see who comes and goes, not what is written.
        member = new_member(self._group)
        data = registration(topics, time.time_ns() // 1_000_000)
        # Known before it is there, and until it isn't any more: answers may get lost, and a node
        # that nobody knows of would be given partitions for as long as the session lasts.
        self.member, self._session_id, self._topics = member, session_id, None
        self._create(f"{self._root}/ids/{member}", data, end)
        self._topics = topics

    def _unregister(self, end: float) -> None:
        if self.member and self._session_id == self._now_session():
            self._delete(f"{self._root}/ids/{self.member}", end)
        self.member = ""

    def _members(self, end: float) -> list[Registered]:
        from kazoo.exceptions import NoNodeError

        root = f"{self._root}/ids"
        found = []
        for name in self._children(root, end):
            path = f"{root}/{name}"
            try:
                data, _ = _wait(self._session.get_async(path), end)
                found.append(read_registration(name, data))
            except NoNodeError:
                continue  # just gone: the watch tells
            except ValueError as error:
                self._warn(path, error)
        return found

    def _partitions(self, topic: str, end: float) -> list[int]:
        from kazoo.exceptions import NoNodeError

        path = f"/brokers/topics/{topic}"
        try:
            data, _ = _wait(self._session.get_async(path, watch=self._watched), end)
            return read_partitions(data)
        except NoNodeError:
            _wait(self._session.exists_async(path, watch=self._watched), end)
        except ValueError as error:
            self._warn(path, error)
        return []

    def _children(self, path: str, end: float) -> list[str]:
        from kazoo.exceptions import NoNodeError

        try:
            names = _wait(self._session.get_children_async(path, watch=self._watched), end)
        except NoNodeError:
            return []
        return sorted(names)

    def _release(self, owned: Collection[TopicPartition], end: float) -> None:
        for tp in owned:
            path = self._owner_path(tp)
            if self._owner(path, end)[1]:
                self._delete(path, end)

    def _owner(self, path: str, end: float) -> tuple[str, bool]:
        """Who owns a partition, and whether it is this session."""
        from kazoo.exceptions import NoNodeError

        try:
            data, stat = _wait(self._session.get_async(path), end)
        except NoNodeError:
            return "", False
        return data.decode(errors="replace"), stat.ephemeralOwner == self._now_session()

    def _create(self, path: str, data: bytes, end: float) -> None:
        _wait(self._session.create_async(path, data, ephemeral=True, makepath=True), end)

    def _delete(self, path: str, end: float) -> None:
        from kazoo.exceptions import NoNodeError

        try:
            _wait(self._session.delete_async(path), end)
        except NoNodeError:
            pass

    def _owner_path(self, tp: TopicPartition) -> str:
        return f"{self._root}/owners/{tp.topic}/{tp.partition}"

    def _now_session(self) -> int:
        known = self._session.client_id
        return 0 if known is None else int(known[0])

    def _watched(self, event: object) -> None:
        self._on_news()

    def _warn(self, path: str, error: ValueError) -> None:
        if path not in self._warned:
            if len(self._warned) > 1000:  # bounded
                self._warned.clear()
            self._warned.add(path)
            _log.warning("ZooKeeper %s: the node %s is skipped: %s", self._connect, path, error)


def _wait(answer: Any, end: float) -> Any:
    return answer.get(timeout=max(end - time.monotonic(), 0.001))
