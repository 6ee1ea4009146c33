"""Read the state of all topics from ZooKeeper: replicas, leaders, in-sync replicas, settings.
Blocks.

Invariant: nothing is written, and the session ends with the call. A node that can't be read is an
error in the result (see `NodeReader`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aiokafka08 import environment
from aiokafka08._core.json_objects import json_object
from aiokafka08._core.zookeeper.cluster_check import (
    BROKER,
    ClusterZookeeper,
    parse_cluster_id,
    parse_endpoints,
)
from aiokafka08._core.zookeeper.nodes import NUMBER, NodeReader, wrongly_named
from aiokafka08._core.zookeeper.results import result_of, results_of
from aiokafka08._core.zookeeper.session import require_kazoo, temporary_session
from aiokafka08.errors import KafkaError
from aiokafka08.structs import TopicPartition

if TYPE_CHECKING:
    from kazoo.client import KazooClient

_TOPICS: Final = "/brokers/topics"
_CONFIGS: Final = "/config/topics"
_BROKERS: Final = "/brokers/ids"
_DELETIONS: Final = "/admin/delete_topics"
_REASSIGNMENT: Final = "/admin/reassign_partitions"

# What the nodes of a topic hold, for errors
REPLICAS: Final = 'the replicas of each partition, such as {"version":1,"partitions":{"0":[1,2]}}'
SETTINGS: Final = 'settings such as {"version":1,"config":{"retention.ms":"1000"}}'


@dataclass(frozen=True, slots=True)
class PartitionNode:
    """The state of a partition in ZooKeeper."""

    replicas: tuple[int, ...]  # node ids, the preferred leader first
    # Node id; None without a leader, before the first election, or if the state node can't be read
    leader: int | None
    # Node ids of the in-sync replicas; None if the state node can't be read
    isr: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class TopicNode:
    """The state of a topic in ZooKeeper."""

    partitions: Mapping[int, PartitionNode]  # by number; empty if the topic's node can't be read
    config: Mapping[str, str] | None  # its own settings by name; None if they can't be read
    errors: Sequence[KafkaError] = ()  # the nodes of the topic that can't be read
    is_marked: bool = False  # whether it is marked for deletion
    # The partitions that are being reassigned, each with the node ids that are to have its replicas
    moving: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


class ClusterNodes(NamedTuple):
    """The state of a cluster in ZooKeeper."""

    topics: dict[str, TopicNode]  # by name
    errors: list[KafkaError]  # the nodes that can't be read and belong to no topic


def read_cluster_nodes(zookeeper: ClusterZookeeper, timeout_s: float) -> ClusterNodes:
    """Return all topics, and the errors of nodes that belong to none.

    `timeout_s`: seconds to wait for a session (at most `session.OPEN_TIMEOUT_S`), and for the
    responses to each batch of 1,000 requests.

    Raises:
        KafkaConfigurationError: kazoo isn't installed.
        KafkaConnectionError: ZooKeeper can't be reached.
        KafkaTimeoutError: the nodes didn't arrive in time.
        ZookeeperMismatchError: it is the ZooKeeper of other brokers.
    """
    require_kazoo()
    with temporary_session(zookeeper, timeout_s, "aiokafka08.admin.kazoo") as client:
        reader = NodeReader(client, zookeeper.shown, timeout_s)
        names = reader.children([_TOPICS, _DELETIONS, _BROKERS])
        topics = names.get(_TOPICS, [])
        replicas = reader.decoded(
            {topic: f"{_TOPICS}/{topic}" for topic in topics},
            parse_replicas,
            REPLICAS,
        )
        configs = reader.decoded(
            {topic: f"{_CONFIGS}/{topic}" for topic in topics},
            parse_config,
            SETTINGS,
        )
        paths = {
            (topic, number): f"{_TOPICS}/{topic}/partitions/{number}/state"
            for topic, numbers in replicas.items()
            for number in numbers
        }
        states = reader.decoded(
            paths,
            _leader_and_isr,
            'a state such as {"controller_epoch":5,"leader":1,"version":1,"leader_epoch":3,'
            '"isr":[1,2]}',
        )
        moving = reader.decoded(
            {0: _REASSIGNMENT},
            _moving,
            'a reassignment such as {"version":1,"partitions":[{"topic":"orders","partition":0,'
            '"replicas":[1,2]}]}',
        ).get(0, {})
        _check_other_nodes(reader, names.get(_BROKERS, []))
    errors: dict[str | None, list[KafkaError]] = {}
    for path, error in reader.errors.items():
        errors.setdefault(_topic_of(path), []).append(error)
    marked = set(names.get(_DELETIONS, ()))
    nodes = {
        topic: TopicNode(
            {
                number: PartitionNode(
                    ids,
                    # Without a state node, no leader was elected yet, so the ISR is empty.
                    *states.get(
                        (topic, number),
                        (None, None if paths[topic, number] in reader.errors else ()),
                    ),
                )
                for number, ids in replicas.get(topic, {}).items()
            },
            None if f"{_CONFIGS}/{topic}" in reader.errors else configs.get(topic, {}),
            errors.pop(topic, ()),
            topic in marked,
            {tp.partition: ids for tp, ids in moving.items() if tp.topic == topic},
        )
        for topic in topics
    }
    return ClusterNodes(nodes, [error for some in errors.values() for error in some])


def _check_other_nodes(reader: NodeReader, brokers: Sequence[str]) -> None:
    """Read the nodes that belong to no topic; `reader.errors` gets those that can't be read."""
    for name in brokers:
        if not NUMBER.fullmatch(name):
            path = f"{_BROKERS}/{name}"
            reader.errors[path] = wrongly_named(reader.connect, path, "broker")
    reader.decoded(
        {name: f"{_BROKERS}/{name}" for name in brokers if NUMBER.fullmatch(name)},
        parse_endpoints,
        BROKER,
    )
    reader.decoded({0: "/cluster/id"}, parse_cluster_id, 'an id such as {"version":"1","id":"…"}')
    reader.decoded(
        {0: "/controller"},
        _broker_id,
        'a broker\'s id such as {"version":1,"brokerid":1}',
    )
    reader.decoded({0: "/controller_epoch"}, int, "a number such as 5")


def _topic_of(path: str) -> str | None:
    for root in (_TOPICS, _CONFIGS):
        if path.startswith(f"{root}/"):
            return path.split("/")[3]
    return None


class TopicCreations(NamedTuple):
    """When ZooKeeper's nodes of topics were created."""

    # The transaction that created the parent of all topics, and its time. They differ between
    # ZooKeepers and between chroots, so they show which one was read
    parent: str
    # By topic, the id of the transaction that created it (czxid). It stays the same as long as the
    # topic lives; a topic that was deleted and created again has a larger one.
    topics: dict[str, int]


def read_topic_creations(
    zookeeper: ClusterZookeeper, timeout_s: float, includes: Callable[[str], bool]
) -> TopicCreations:
    """Return when the included topics were created.

    Raises as `read_cluster_nodes`; also ClusterAuthorizationFailedError if an ACL refuses a read.
    """
    require_kazoo()
    with temporary_session(zookeeper, timeout_s, "aiokafka08.admin.kazoo") as client:
        deadline = environment.monotonic() + timeout_s
        requests = {
            topic: client.exists_async(f"{_TOPICS}/{topic}")
            for topic in filter(includes, _topic_names(client, deadline))
        }
        stats = results_of(requests, deadline)
        parent = result_of(client.exists_async(_TOPICS), deadline)
    return TopicCreations(
        "" if parent is None else f"{parent.czxid}@{parent.ctime}",
        {topic: stat.czxid for topic, stat in stats.items() if stat is not None},
    )


def _topic_names(client: KazooClient, deadline: float) -> list[str]:
    from kazoo.exceptions import NoNodeError

    try:
        return list(result_of(client.get_children_async(_TOPICS), deadline))
    except NoNodeError:
        return []


def parse_replicas(data: bytes) -> dict[int, tuple[int, ...]]:
    partitions = json_object(data)["partitions"]
    return {int(number): _ids(ids) for number, ids in partitions.items()}


def parse_config(data: bytes) -> dict[str, str]:
    """Return the settings in a topic's node. An empty node, as old tools write it, has none."""
    if not data:
        return {}
    return {name: str(value) for name, value in json_object(data)["config"].items()}


def _leader_and_isr(data: bytes) -> tuple[int | None, tuple[int, ...]]:
    fields = json_object(data)
    leader = int(fields["leader"])
    return leader if leader >= 0 else None, _ids(fields["isr"])


def _moving(data: bytes) -> dict[TopicPartition, tuple[int, ...]]:
    return {
        TopicPartition(str(one["topic"]), int(one["partition"])): _ids(one["replicas"])
        for one in json_object(data)["partitions"]
    }


def _broker_id(data: bytes) -> int:
    fields = json.loads(data)  # 0.8.0 writes the number alone
    return int(fields["brokerid"] if isinstance(fields, dict) else fields)


def _ids(ids: Any) -> tuple[int, ...]:
    if not isinstance(ids, list):
        raise TypeError("no list of node ids")
    return tuple(map(int, ids))
