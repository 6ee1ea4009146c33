"""Check the topics that a caller wants to create, and place their replicas. Pure.

Class names and arguments are those of aiokafka. aiokafka's own objects are accepted too, because a
program that migrates may still create them.

Invariant: each partition of a returned assignment has the same number of replicas, on different
live brokers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from aiokafka08._core.net.config import as_integer
from aiokafka08._core.topic_names import check_topic_names
from aiokafka08._core.zookeeper.topic_nodes import ReplicaAssignment
from aiokafka08._wording import shorten
from aiokafka08.admin.arguments import check_items, check_mapping
from aiokafka08.admin.topic_config import config_texts
from aiokafka08.errors import (
    IllegalArgumentError,
    InvalidPartitionsError,
    InvalidReplicationAssignmentError,
    InvalidReplicationFactorError,
)

# The assignment of more partitions doesn't fit into a ZooKeeper node, which has at most 1 MB
_MOST_PARTITIONS: Final = 100_000
_ASSIGNMENTS: Final = "a mapping of partitions to lists of node ids"


class NewTopic:
    """A topic to create.

    Args:
        name: the topic's name.
        num_partitions: the number of partitions, or -1 with `replica_assignments`.
        replication_factor: the number of replicas of each partition, or -1 with
            `replica_assignments`.
        replica_assignments: partition → node ids, in place of the two numbers (default None).
        topic_configs: settings of the topic, such as `{"retention.ms": "60000"}`; None for the
            brokers' own (default None).

    Raises:
        IllegalArgumentError: neither the numbers nor an assignment is given, or both are; or a
            number isn't an integer.
        TypeError: an assignment or configs aren't mappings.
    """

    def __init__(
        self,
        name: str,
        num_partitions: int,
        replication_factor: int,
        replica_assignments: Mapping[int, Sequence[int]] | None = None,
        topic_configs: Mapping[str, object] | None = None,
    ) -> None:
        has_counts = num_partitions != -1 and replication_factor != -1
        if has_counts == (replica_assignments is not None):
            raise IllegalArgumentError(
                f"topic {name!r}: expected either num_partitions and replication_factor, or "
                "replica_assignments with -1 for both"
            )
        self.name = name
        self.num_partitions = _integer("num_partitions", num_partitions)
        self.replication_factor = _integer("replication_factor", replication_factor)
        self.replica_assignments = dict(
            check_mapping("replica_assignments", replica_assignments or {}, _ASSIGNMENTS)
        )
        self.topic_configs = config_texts(
            check_mapping("topic_configs", topic_configs or {}, "a mapping of configs to values")
        )


def _integer(option: str, value: object) -> int:
    number = as_integer(value)
    if number is None:
        raise IllegalArgumentError(f"{option}={shorten(value)}: expected an integer")
    return number


class NewPartitions:
    """More partitions for a topic.

    Args:
        total_count: the number of partitions afterwards.
        new_assignments: node ids for each new partition; None places them by round robin
            (default None).
    """

    def __init__(
        self, total_count: int, new_assignments: Sequence[Sequence[int]] | None = None
    ) -> None:
        self.total_count = _integer("total_count", total_count)
        self.new_assignments = new_assignments


def new_topics(value: object) -> list[NewTopic]:
    """Return the topics of an argument; objects with the attributes of `NewTopic` count as such.

    Raises TypeError if it isn't a list of such objects, and the errors of `NewTopic`.
    """
    expected = "a list of NewTopic"
    return [
        _new_topic(item, expected) for item in check_items("new_topics", value, object, expected)
    ]


def _new_topic(value: Any, expected: str) -> NewTopic:
    if isinstance(value, NewTopic):
        return value
    if not all(hasattr(value, name) for name in ("name", "num_partitions", "replication_factor")):
        raise TypeError(f"new_topics: {shorten(value)} in the list; expected {expected}")
    return NewTopic(
        value.name,
        value.num_partitions,
        value.replication_factor,
        getattr(value, "replica_assignments", None) or None,
        getattr(value, "topic_configs", None),
    )


def new_partitions(value: object) -> dict[str, NewPartitions]:
    """Return the new partitions by topic; accept objects with the attributes of `NewPartitions`.

    Raises TypeError if it isn't a mapping of topics to such objects, and the errors of
    `NewPartitions`.
    """
    name, expected = "topic_partitions", "NewPartitions"
    wanted = check_mapping(name, value, f"a mapping of topics to {expected}")
    check_topic_names(wanted)
    checked = {}
    for topic, new in wanted.items():
        if not hasattr(new, "total_count"):
            raise TypeError(f"{name}: {shorten(topic)} has {shorten(new)}; expected {expected}")
        is_ours = isinstance(new, NewPartitions)
        other = getattr(new, "new_assignments", None)
        checked[topic] = new if is_ours else NewPartitions(new.total_count, other)
    return checked


def assign_replicas(topic: NewTopic, node_ids: Collection[int], start: int) -> ReplicaAssignment:
    """Return the replica assignment of a new topic.

    `start`: index of the broker that leads partition 0, drawn at random to spread the load.

    Raises InvalidPartitionsError, InvalidReplicationFactorError or
    InvalidReplicationAssignmentError if the topic isn't valid for these brokers.
    """
    if topic.replica_assignments:
        return checked_assignment(topic.name, topic.replica_assignments, node_ids)
    check_partition_count(topic.name, "num_partitions", topic.num_partitions)
    return spread(
        topic.name, range(topic.num_partitions), topic.replication_factor, node_ids, start
    )


def check_partition_count(name: str, option: str, count: int) -> None:
    """Raise InvalidPartitionsError if there are no or too many partitions."""
    if not 1 <= count <= _MOST_PARTITIONS:
        raise InvalidPartitionsError(
            f"topic {name!r}: {option}={shorten(count)}; expected 1 to {_MOST_PARTITIONS}"
        )


def spread(
    name: str, partitions: range, factor: int, node_ids: Collection[int], start: int
) -> ReplicaAssignment:
    """Place the replicas by round robin, as Kafka's tools do."""
    nodes = sorted(node_ids)
    if not 1 <= factor <= len(nodes):
        raise InvalidReplicationFactorError(
            f"topic {name!r}: replication_factor={factor}; expected 1 to {len(nodes)}, the number "
            "of live brokers"
        )
    assignment: ReplicaAssignment = {}
    for partition in partitions:
        first = start + partition
        # The leaders of consecutive partitions go round the sorted brokers. In each further round,
        # followers are one broker further from their leader, so the partitions of one leader have
        # different followers, which share the load if the leader dies.
        shift = partition // len(nodes)
        others = len(nodes) - 1
        assignment[partition] = [nodes[first % len(nodes)]] + [
            nodes[(first + 1 + (shift + replica) % others) % len(nodes)]
            for replica in range(factor - 1)
        ]
    return assignment


def checked_assignment(
    name: str, wanted: Mapping[int, Sequence[int]], node_ids: Collection[int]
) -> ReplicaAssignment:
    """Return the caller's assignment if it is valid for these brokers.

    Raises InvalidReplicationAssignmentError if numbers have gaps, or partitions have different
    numbers of replicas, repeated replicas, or replicas on brokers that aren't alive.
    """
    if sorted(wanted) != list(range(len(wanted))):
        raise InvalidReplicationAssignmentError(
            f"topic {name!r}: partitions {sorted(wanted)}; expected numbers from 0 without gaps"
        )
    if len({len(nodes) for nodes in wanted.values()}) != 1:
        raise InvalidReplicationAssignmentError(
            f"topic {name!r}: replica_assignments differ in length; expected the same number of "
            "replicas for all partitions"
        )
    for partition, nodes in wanted.items():
        if not nodes or len(set(nodes)) != len(nodes) or not set(nodes) <= set(node_ids):
            raise InvalidReplicationAssignmentError(
                f"topic {name!r}, partition {partition}: replicas {list(nodes)}; expected "
                f"distinct brokers, each one of the live brokers {sorted(node_ids)}"
            )
    return {partition: list(wanted[partition]) for partition in sorted(wanted)}
