"""Create, extend and delete topics by writing ZooKeeper nodes, as Kafka's old tools do. Blocks.

Invariant: a call closes each session that it opens, also when it raises an error. So no session is
open between calls.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from aiokafka08._core.json_objects import json_object
from aiokafka08._core.zookeeper.cluster_check import ClusterZookeeper
from aiokafka08._core.zookeeper.nodes import NUMBER, decode_node, unreadable
from aiokafka08._core.zookeeper.session import require_kazoo, temporary_session
from aiokafka08._core.zookeeper.topic_states import (
    REPLICAS,
    SETTINGS,
    parse_config,
    parse_replicas,
)
from aiokafka08.errors import (
    KafkaError,
    KafkaUnavailableError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)

if TYPE_CHECKING:
    from kazoo.client import KazooClient

V = TypeVar("V")

ReplicaAssignment = dict[int, list[int]]
"""Partition → the node ids of its replicas, the preferred leader first."""

# The replica assignments; the controller watches them and elects leaders.
_TOPICS: Final = "/brokers/topics"
_CONFIGS: Final = "/config/topics"
# The topics whose settings have changed, which the brokers watch.
_CHANGES: Final = "/config/changes/config_change_"
# Requests to delete a topic; the controller deletes the topic, then the node.
_DELETIONS: Final = "/admin/delete_topics"
_MARKED: Final = (
    ": it is marked for deletion. Brokers delete it with delete.topic.enable=true and all replicas "
    "alive"
)


class TopicNodes:
    """The nodes in which one ZooKeeper keeps a cluster's topics.

    `timeout_s`: seconds to wait for a session.
    """

    def __init__(self, zookeeper: ClusterZookeeper, timeout_s: float) -> None:
        require_kazoo()
        self._zookeeper = zookeeper
        self._timeout_s = timeout_s

    def broker_ids(self) -> set[int]:
        """Return the node ids of the live brokers; KafkaUnavailableError if there is none."""
        from kazoo.exceptions import NoNodeError

        with self._session() as client:
            try:
                names = client.get_children("/brokers/ids")
                ids = {int(name) for name in names if NUMBER.fullmatch(name)}
            except NoNodeError:
                ids = set()
        if not ids:
            raise KafkaUnavailableError(
                f"ZooKeeper {self._zookeeper.shown} names no live broker. Check that "
                "zookeeper_connect is the ZooKeeper, and the chroot, of the cluster"
            )
        return ids

    def topic_names(self) -> set[str]:
        from kazoo.exceptions import NoNodeError

        with self._session() as client:
            try:
                return set(client.get_children(_TOPICS))
            except NoNodeError:
                return set()

    def create_topic(
        self, topic: str, assignment: ReplicaAssignment, configs: Mapping[str, str]
    ) -> None:
        """Write a topic's nodes; return before the leaders are elected.

        Raises TopicAlreadyExistsError if the topic exists, perhaps marked for deletion.
        """
        from kazoo.exceptions import NodeExistsError

        with self._session() as client:
            is_marked = client.exists(f"{_DELETIONS}/{topic}") is not None
            if is_marked or client.exists(f"{_TOPICS}/{topic}") is not None:
                raise TopicAlreadyExistsError(
                    f"topic {topic!r} exists already{_MARKED if is_marked else ''}"
                )
            if configs:
                # The settings are written before the topic, so that the leaders find them.
                path, value = f"{_CONFIGS}/{topic}", _json(version=1, config=dict(configs))
                try:
                    client.create(path, value, makepath=True)
                except NodeExistsError:  # left by a deleted topic
                    client.set(path, value)
            partitions = {str(partition): nodes for partition, nodes in assignment.items()}
            try:
                client.create(
                    f"{_TOPICS}/{topic}", _json(version=1, partitions=partitions), makepath=True
                )
            except NodeExistsError:
                raise TopicAlreadyExistsError(f"topic {topic!r} exists already") from None

    def assignment(self, topic: str) -> ReplicaAssignment:
        """Return the replicas of each partition of a topic, before partitions are added to it.

        Raises UnknownTopicOrPartitionError if the topic doesn't exist, or is marked for deletion;
        KafkaUnavailableError if its node can't be decoded.
        """
        return self._read_topic(topic)[0]

    def add_partitions(self, topic: str, new: ReplicaAssignment) -> None:
        """Add partitions to a topic; raises as `assignment`."""
        assignment, fields, version = self._read_topic(topic)
        partitions = {str(partition): nodes for partition, nodes in {**assignment, **new}.items()}
        with self._session() as client:
            client.set(
                f"{_TOPICS}/{topic}", _json(**{**fields, "partitions": partitions}), version=version
            )

    def overrides(self, topics: Collection[str]) -> dict[str, dict[str, str]]:
        """Return the settings of each topic; an empty dict if it has only the brokers' defaults.

        Raises UnknownTopicOrPartitionError if a topic doesn't exist, KafkaUnavailableError if the
        node of its settings can't be decoded.
        """
        with self._session() as client:
            return {topic: self._read_overrides(client, topic)[0] for topic in topics}

    def alter_overrides(
        self,
        topic: str,
        new: Mapping[str, str],
        removed: Collection[str],
        *,
        as_json_object: bool,
    ) -> dict[str, str]:
        """Change settings of a topic, and notify the brokers; return the settings that it has now.

        `as_json_object`: brokers read a change as a JSON object from 0.9 on, as a JSON string
        before. Raises as `overrides`.
        """
        with self._session() as client:
            before, version = self._read_overrides(client, topic)
            kept = {name: value for name, value in before.items() if name not in removed}
            config = {**kept, **new}
            path, value = f"{_CONFIGS}/{topic}", _json(version=1, config=config)
            if version is None:
                client.create(path, value, makepath=True)
            else:
                client.set(path, value, version=version)
            change = (
                _json(version=1, entity_type="topics", entity_name=topic)
                if as_json_object
                else json.dumps(topic).encode()
            )
            client.create(_CHANGES, change, sequence=True, makepath=True)
        return config

    def request_deletion(self, topic: str) -> None:
        """Request that the controller deletes a topic; `deletion_state` shows when it has.

        Raises:
            UnknownTopicOrPartitionError: the topic doesn't exist.
        """
        from kazoo.exceptions import NodeExistsError

        with self._session() as client:
            if client.exists(f"{_TOPICS}/{topic}") is None:
                raise UnknownTopicOrPartitionError(f"topic {topic!r} doesn't exist")
            try:
                client.create(f"{_DELETIONS}/{topic}", makepath=True)
            except NodeExistsError:
                pass  # requested before

    def deletion_state(self, topic: str) -> tuple[bool, bool]:
        """Return whether the topic exists, and whether its deletion is still requested.

        The request is read first. The controller removes the topic's node, then the request's node.
        If the topic were read first, both could be removed between the reads, and the controller
        would seem to have refused the deletion.
        """
        with self._session() as client:
            is_requested = client.exists(f"{_DELETIONS}/{topic}") is not None
            return client.exists(f"{_TOPICS}/{topic}") is not None, is_requested

    def _read_topic(self, topic: str) -> tuple[ReplicaAssignment, dict[str, Any], int]:
        """Return a topic's replica assignment, all fields of its node, and the node's version."""
        from kazoo.exceptions import NoNodeError

        path = f"{_TOPICS}/{topic}"
        with self._session() as client:
            try:
                data, stat = client.get(path)
            except NoNodeError:
                raise UnknownTopicOrPartitionError(f"topic {topic!r} doesn't exist") from None
            if client.exists(f"{_DELETIONS}/{topic}") is not None:
                raise UnknownTopicOrPartitionError(f"topic {topic!r} can't grow{_MARKED}")
        replicas = self._decoded(path, data, parse_replicas, REPLICAS)
        if not replicas:
            raise unreadable(self._zookeeper.shown, path, data, REPLICAS)
        assignment = {partition: list(nodes) for partition, nodes in replicas.items()}
        return assignment, json_object(data), stat.version

    def _read_overrides(self, client: KazooClient, topic: str) -> tuple[dict[str, str], int | None]:
        """Return a topic's settings and the version of their node; None if there is no node."""
        from kazoo.exceptions import NoNodeError

        if client.exists(f"{_TOPICS}/{topic}") is None:
            raise UnknownTopicOrPartitionError(f"topic {topic!r} doesn't exist")
        path = f"{_CONFIGS}/{topic}"
        try:
            data, stat = client.get(path)
        except NoNodeError:
            return {}, None
        return self._decoded(path, data, parse_config, SETTINGS), stat.version

    def _decoded(self, path: str, data: bytes, decode: Callable[[bytes], V], expected: str) -> V:
        value = decode_node(self._zookeeper.shown, path, data, decode, expected)
        if isinstance(value, KafkaError):
            raise value
        return value

    def _session(self) -> AbstractContextManager[KazooClient]:
        return temporary_session(self._zookeeper, self._timeout_s, "aiokafka08.admin.kazoo")


def _json(**fields: object) -> bytes:
    return json.dumps(fields).encode()
