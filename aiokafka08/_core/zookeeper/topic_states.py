"""Read the state of all topics from ZooKeeper: replicas, leaders, in-sync replicas, settings.

- `/brokers/topics/<topic>`: the replicas of each partition; its creation is the topic's.
- `/brokers/topics/<topic>/partitions/<partition>/state`: leader and in-sync replicas.
- `/config/topics/<topic>`: the topic's own settings.

`admin.cluster_calls` and the bridge call it in a thread, because it blocks. `topic_nodes` changes
topics.

Invariant: nothing is written, and the session ends with the call.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from aiokafka08 import environment
from aiokafka08._core.zookeeper.cluster_check import ClusterZookeeper
from aiokafka08._core.zookeeper.results import result_of, results_of
from aiokafka08._core.zookeeper.session import require_kazoo, temporary_session

if TYPE_CHECKING:
    from kazoo.client import KazooClient

K = TypeVar("K")
V = TypeVar("V")

_TOPICS: Final = "/brokers/topics"
_CONFIGS: Final = "/config/topics"


@dataclass(frozen=True, slots=True)
class PartitionNode:
    """What ZooKeeper has of a partition.

    Attributes:
        replicas: node ids, the preferred leader first.
        leader: node id; None without a leader, or while the first one is being elected.
        isr: node ids of the in-sync replicas.
    """

    replicas: tuple[int, ...]
    leader: int | None
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicNode:
    """What ZooKeeper has of a topic: its partitions by number, and its own settings by name."""

    partitions: Mapping[int, PartitionNode]
    config: Mapping[str, str]


def read_topic_nodes(zookeeper: ClusterZookeeper, timeout_s: float) -> dict[str, TopicNode]:
    """Return all topics.

    The nodes are requested together, without a wait in between: thousands take less than a second.
    A node that can't be decoded counts as missing.

    Args:
        zookeeper: the address, and the check that it is the brokers' ZooKeeper.
        timeout_s: seconds to wait for a session, and then for all nodes.

    Raises:
        KafkaConfigurationError: kazoo isn't installed.
        KafkaConnectionError: ZooKeeper can't be reached.
        KafkaTimeoutError: the nodes didn't arrive in time.
        ZookeeperMismatchError: it is the ZooKeeper of other brokers.
    """
    require_kazoo()
    with temporary_session(zookeeper, timeout_s, "aiokafka08.admin.kazoo") as client:
        deadline = environment.monotonic() + timeout_s
        topics = _topic_names(client, deadline)
        replicas = _read_nodes(
            client, {topic: f"{_TOPICS}/{topic}" for topic in topics}, _replicas, deadline
        )
        configs = _read_nodes(
            client, {topic: f"{_CONFIGS}/{topic}" for topic in topics}, _config, deadline
        )
        paths = {
            (topic, number): f"{_TOPICS}/{topic}/partitions/{number}/state"
            for topic, numbers in replicas.items()
            for number in numbers
        }
        states = _read_nodes(client, paths, _leader_and_isr, deadline)
    return {
        topic: TopicNode(
            {
                number: PartitionNode(ids, *states.get((topic, number), (None, ())))
                for number, ids in numbers.items()
            },
            configs.get(topic, {}),
        )
        for topic, numbers in replicas.items()
    }


class TopicCreations(NamedTuple):
    """When ZooKeeper's nodes of topics were created.

    Attributes:
        parent: the transaction that created the parent of all topics, and its time; it is another
            one in another ZooKeeper, or chroot.
        topics: by topic, the id of the transaction that created it (czxid). It stays the same as
            long as the topic lives; a topic that was deleted and created again has a larger one.
    """

    parent: str
    topics: dict[str, int]


def read_topic_creations(
    zookeeper: ClusterZookeeper, timeout_s: float, includes: Callable[[str], bool]
) -> TopicCreations:
    """Return when topics were created.

    Args:
        zookeeper: as for `read_topic_nodes`, whose errors it raises, too.
        timeout_s: as there.
        includes: whether to read a topic; it gets the name.
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


def _read_nodes(
    client: KazooClient, paths: Mapping[K, str], decode: Callable[[Any], V], deadline: float
) -> dict[K, V]:
    """Return the decoded JSON objects of nodes; those that are missing or damaged are left out."""
    requests = {key: client.get_async(path) for key, path in paths.items()}
    decoded = {}
    for key, (data, _) in results_of(requests, deadline).items():
        try:
            decoded[key] = decode(json.loads(data))
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
            pass
    return decoded


def _replicas(fields: Any) -> dict[int, tuple[int, ...]]:
    return {int(number): tuple(map(int, ids)) for number, ids in fields["partitions"].items()}


def _leader_and_isr(fields: Any) -> tuple[int | None, tuple[int, ...]]:
    leader = int(fields["leader"])
    return leader if leader >= 0 else None, tuple(map(int, fields["isr"]))


def _config(fields: Any) -> dict[str, str]:
    return {str(name): str(value) for name, value in fields["config"].items()}
