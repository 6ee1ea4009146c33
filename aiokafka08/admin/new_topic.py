"""What a caller says about a topic to be made, checked; where its replicas go. Pure.

Names and arguments are those of aiokafka. Writing it to ZooKeeper is `zookeeper`'s business.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from aiokafka08.errors import (
    IllegalArgumentError,
    InvalidConfigurationError,
    InvalidPartitionsError,
    InvalidReplicationAssignmentError,
    InvalidReplicationFactorError,
    UnsupportedVersionError,
)
from aiokafka08.net.versions import BrokerLine
from aiokafka08.zookeeper.topics import ReplicaAssignment

_CONFIGS_0_8_1 = frozenset(
    {
        "cleanup.policy",
        "delete.retention.ms",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "index.interval.bytes",
        "max.message.bytes",
        "min.cleanable.dirty.ratio",
        "retention.bytes",
        "retention.ms",
        "segment.bytes",
        "segment.index.bytes",
        "segment.ms",
    }
)
_CONFIGS_0_8_2 = _CONFIGS_0_8_1 | {
    "min.insync.replicas",
    "segment.jitter.ms",
    "unclean.leader.election.enable",
}
TOPIC_CONFIGS: Mapping[BrokerLine, frozenset[str]] = {
    BrokerLine.V0_8_0: frozenset(),
    BrokerLine.V0_8_1: _CONFIGS_0_8_1,
    BrokerLine.V0_8_2: _CONFIGS_0_8_2,
    BrokerLine.V0_9: _CONFIGS_0_8_2 | {"compression.type", "preallocate"},
}
"""Topic configs that each old line knows (its `kafka.log.LogConfig`). Old brokers ignore an unknown
name without a word, so it must be caught here; from 0.10 on the list grows by release."""


class NewTopic:
    """A topic to be created.

    Args:
        name: the topic.
        num_partitions: how many partitions, or -1 with `replica_assignments`.
        replication_factor: how many replicas each, or -1 with `replica_assignments`.
        replica_assignments: partition → node ids, in place of the two numbers.
        topic_configs: topic settings, such as `{"retention.ms": "60000"}`.

    Raises:
        IllegalArgumentError: neither numbers nor an assignment is given, or both are.
    """

    def __init__(
        self,
        name: str,
        num_partitions: int,
        replication_factor: int,
        replica_assignments: Mapping[int, Sequence[int]] | None = None,
        topic_configs: Mapping[str, object] | None = None,
    ) -> None:
        numbers = num_partitions != -1 and replication_factor != -1
        if numbers == (replica_assignments is not None):
            raise IllegalArgumentError(
                f"topic {name!r}: give either num_partitions and replication_factor, or "
                "replica_assignments with -1 for both"
            )
        self.name = name
        self.num_partitions = num_partitions
        self.replication_factor = replication_factor
        self.replica_assignments = dict(replica_assignments or {})
        self.topic_configs = {
            key: str(value).lower() if isinstance(value, bool) else str(value)
            for key, value in (topic_configs or {}).items()
        }


class NewPartitions:
    """More partitions for a topic.

    Args:
        total_count: how many partitions the topic shall have afterwards.
        new_assignments: node ids for each new partition; chosen by round robin if left out.
    """

    def __init__(
        self, total_count: int, new_assignments: Sequence[Sequence[int]] | None = None
    ) -> None:
        self.total_count = total_count
        self.new_assignments = new_assignments


def assign_replicas(topic: NewTopic, node_ids: Collection[int], start: int) -> ReplicaAssignment:
    """Where the replicas of a new topic go.

    Args:
        topic: the topic, with numbers or an assignment of its own.
        node_ids: the live brokers.
        start: which of them leads partition 0; callers draw it by lot, to spread the load.

    Raises:
        InvalidPartitionsError, InvalidReplicationFactorError, InvalidReplicationAssignmentError:
            the topic can't be made on these brokers.
    """
    if topic.replica_assignments:
        return checked_assignment(topic.name, topic.replica_assignments, node_ids)
    if topic.num_partitions < 1:
        raise InvalidPartitionsError(
            f"topic {topic.name!r}: num_partitions={topic.num_partitions}, at least 1 is needed"
        )
    return spread(
        topic.name, range(topic.num_partitions), topic.replication_factor, node_ids, start
    )


def spread(
    name: str, partitions: range, factor: int, node_ids: Collection[int], start: int
) -> ReplicaAssignment:
    """Replicas by round robin; followers shift by one more in each round, as Kafka's tools do, so
    that a dead broker's load falls on all others."""
    nodes = sorted(node_ids)
    if not 1 <= factor <= len(nodes):
        raise InvalidReplicationFactorError(
            f"topic {name!r}: replication_factor={factor}, but {len(nodes)} brokers are alive"
        )
    assignment: ReplicaAssignment = {}
    for partition in partitions:
        first = start + partition
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
    """A caller's assignment, if the cluster can take it.

    Raises:
        InvalidReplicationAssignmentError: partitions have gaps, replicas are uneven, repeated or
            on brokers that aren't alive.
    """
    if sorted(wanted) != list(range(len(wanted))):
        raise InvalidReplicationAssignmentError(
            f"topic {name!r}: partitions {sorted(wanted)} must be numbered from 0 without gaps"
        )
    if len({len(nodes) for nodes in wanted.values()}) != 1:
        raise InvalidReplicationAssignmentError(
            f"topic {name!r}: all partitions need the same number of replicas"
        )
    for partition, nodes in wanted.items():
        if not nodes or len(set(nodes)) != len(nodes) or not set(nodes) <= set(node_ids):
            raise InvalidReplicationAssignmentError(
                f"topic {name!r}, partition {partition}: replicas {list(nodes)} must be different "
                f"live brokers; alive are {sorted(node_ids)}"
            )
    return {partition: list(wanted[partition]) for partition in sorted(wanted)}


def check_configs(topic: NewTopic, line: BrokerLine | None) -> None:
    """Check that brokers of this line know the topic's configs.

    Raises:
        UnsupportedVersionError: 0.8.0, which has no topic configs.
        InvalidConfigurationError: a name that the line doesn't know.
    """
    if line is BrokerLine.V0_8_0 and topic.topic_configs:
        raise UnsupportedVersionError(
            f"topic {topic.name!r}: brokers of the 0.8.0 line have no topic configs"
        )
    known = TOPIC_CONFIGS.get(line) if line is not None else None
    unknown = sorted(set(topic.topic_configs) - known) if known is not None else []
    if unknown and known is not None:
        raise InvalidConfigurationError(
            f"topic {topic.name!r}: {', '.join(map(repr, unknown))} on the {line} line; "
            f"allowed are {', '.join(sorted(known))}"
        )
