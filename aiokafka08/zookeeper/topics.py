"""Topics written straight to ZooKeeper, as Kafka's own tools of these lines do it.

Blocking: the admin client runs it in a thread. One session per call, so nothing is left to expire.
The nodes: `/brokers/ids/<id>`, `/brokers/topics/<topic>` (the replica assignment; the controller
watches it and elects leaders), `/config/topics/<topic>`, `/admin/delete_topics/<topic>`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from aiokafka08.errors import (
    KafkaUnavailableError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from aiokafka08.zookeeper.session import require_kazoo, temporary_session

if TYPE_CHECKING:
    from kazoo.client import KazooClient

ReplicaAssignment = dict[int, list[int]]
"""Partition → the node ids of its replicas, the preferred leader first."""

_TOPICS = "/brokers/topics"
_CONFIGS = "/config/topics"


class TopicRegistry:
    """The part of one ZooKeeper in which Kafka keeps its topics.

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

    def broker_ids(self) -> set[int]:
        """The live brokers.

        Raises:
            KafkaUnavailableError: there is none.
        """
        from kazoo.exceptions import NoNodeError

        with self._session() as session:
            try:
                ids = {int(name) for name in session.get_children("/brokers/ids")}
            except NoNodeError:
                ids = set()
        if not ids:
            raise KafkaUnavailableError(
                f"ZooKeeper {self._connect} names no live broker: is this the ZooKeeper (and the "
                "chroot) of the cluster?"
            )
        return ids

    def create_topic(
        self, topic: str, assignment: ReplicaAssignment, configs: Mapping[str, str]
    ) -> None:
        """Write a topic's nodes; returns before the leaders are elected.

        Raises:
            TopicAlreadyExistsError: it exists.
        """
        from kazoo.exceptions import NodeExistsError

        with self._session() as session:
            if session.exists(f"{_TOPICS}/{topic}") is not None:
                raise TopicAlreadyExistsError(f"topic {topic!r} exists already")
            if configs:
                # First, so that leaders find it; a deleted topic may have left one behind.
                path, value = f"{_CONFIGS}/{topic}", _json(version=1, config=dict(configs))
                try:
                    session.create(path, value, makepath=True)
                except NodeExistsError:
                    session.set(path, value)
            partitions = {str(partition): nodes for partition, nodes in assignment.items()}
            try:
                session.create(
                    f"{_TOPICS}/{topic}", _json(version=1, partitions=partitions), makepath=True
                )
            except NodeExistsError:
                raise TopicAlreadyExistsError(f"topic {topic!r} exists already") from None

    def assignment(self, topic: str) -> ReplicaAssignment:
        """The replicas of each partition.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic.
        """
        return self._read_topic(topic)[0]

    def add_partitions(self, topic: str, new: ReplicaAssignment) -> None:
        """Add partitions to a topic. Raises as `assignment`."""
        assignment, value, version = self._read_topic(topic)
        value["partitions"] = {
            str(partition): nodes for partition, nodes in {**assignment, **new}.items()
        }
        with self._session() as session:
            session.set(f"{_TOPICS}/{topic}", json.dumps(value).encode(), version=version)

    def ask_to_delete(self, topic: str) -> None:
        """Ask the controller to delete a topic; `topic_exists` tells when it has.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic.
        """
        from kazoo.exceptions import NodeExistsError

        with self._session() as session:
            if session.exists(f"{_TOPICS}/{topic}") is None:
                raise UnknownTopicOrPartitionError(f"there is no topic {topic!r}")
            try:
                session.create(f"/admin/delete_topics/{topic}", makepath=True)
            except NodeExistsError:
                pass  # somebody has asked already

    def deletion_state(self, topic: str) -> tuple[bool, bool]:
        """Whether the topic exists, and whether its deletion is still asked for."""
        with self._session() as session:
            return (
                session.exists(f"{_TOPICS}/{topic}") is not None,
                session.exists(f"/admin/delete_topics/{topic}") is not None,
            )

    def _read_topic(self, topic: str) -> tuple[ReplicaAssignment, dict[str, Any], int]:
        from kazoo.exceptions import NoNodeError

        with self._session() as session:
            try:
                data, stat = session.get(f"{_TOPICS}/{topic}")
            except NoNodeError:
                raise UnknownTopicOrPartitionError(f"there is no topic {topic!r}") from None
        value = json.loads(data)
        assignment = {int(partition): nodes for partition, nodes in value["partitions"].items()}
        return assignment, value, stat.version

    def _session(self) -> AbstractContextManager[KazooClient]:
        return temporary_session(self._connect, self._timeout_s, "aiokafka08.admin.kazoo")


def _json(**value: object) -> bytes:
    return json.dumps(value).encode()
