"""`ClusterSample`: brokers, topics and groups of a cluster at one moment.

Pure. `sampler` makes samples; `cluster_history`, `metric_families` and the command `doctor` read
them.

Invariant: what couldn't be read is None or missing, and `errors` says why. No value is older than
the sample, and none is guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from aiokafka08._core.net.versions import BrokerVersion
from aiokafka08.admin.group_description import GroupDescription
from aiokafka08.structs import TopicPartition


@dataclass(frozen=True, slots=True)
class BrokerSample:
    """A broker.

    Attributes:
        node_id: its id.
        address: "host:port".
        version: what it supports; of 0.8 the exact line may be unknown. None if it didn't respond.
        error: why it didn't respond; None if it did.
    """

    node_id: int
    address: str
    version: BrokerVersion | None = None
    error: str | None = None


class PartitionSample(NamedTuple):
    """A partition: a tuple, since a large cluster has many, and frozen data classes take longer.

    Attributes:
        leader: the leader's node id; None without one.
        replicas: node ids, as Metadata lists them. Brokers of 0.8.2 and 0.9 leave out dead ones
            (docs/brokers.md 4.7).
        isr: the in-sync replicas, as Metadata lists them; on 0.8 they may be stale (4.8).
        lacks_replica: the brokers reported that a replica isn't available.
        assigned: all replicas, as ZooKeeper has them, the preferred leader first; None if
            ZooKeeper wasn't read.
        stored_isr: the in-sync replicas in ZooKeeper; None if ZooKeeper wasn't read.
        start: the offset of the oldest message; None if the leader didn't return it.
        end: the offset after the newest message that consumers may read; None if the leader didn't
            return it.
        is_refused: the broker that Metadata names as the leader has responded that it isn't.
    """

    leader: int | None
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    lacks_replica: bool = False
    assigned: tuple[int, ...] | None = None
    stored_isr: tuple[int, ...] | None = None
    start: int | None = None
    end: int | None = None
    is_refused: bool = False

    @property
    def all_replicas(self) -> tuple[int, ...]:
        """The replicas, as far as they are known."""
        return self.replicas if self.assigned is None else self.assigned

    @property
    def in_sync(self) -> tuple[int, ...]:
        """The in-sync replicas, those of ZooKeeper if it was read."""
        return self.isr if self.stored_isr is None else self.stored_isr

    @property
    def is_under_replicated(self) -> bool:
        """Whether a replica is dead or out of sync."""
        return self.lacks_replica or len(self.in_sync) < len(self.all_replicas)

    @property
    def has_preferred_leader(self) -> bool:
        """Whether the first replica leads."""
        return self.leader is not None and self.all_replicas[:1] == (self.leader,)

    def lag(self, committed: int) -> int | None:
        """Return how many offsets a committed offset is behind the end; None if that is unknown.

        Never negative: `beyond_end` has the offsets of a committed one that is after the end.
        """
        return None if self.end is None else max(self.end - committed, 0)

    def beyond_end(self, committed: int) -> int | None:
        """Return by how many offsets a committed one is after the end; None if that is unknown.

        The two are read at nearly the same time, so it may be so for a moment. If it stays, the log
        was truncated, or the topic was made anew.
        """
        return None if self.end is None else max(committed - self.end, 0)


@dataclass(frozen=True, slots=True)
class TopicSample:
    """A topic.

    Attributes:
        partitions: by number.
        config: the topic's own settings, as ZooKeeper has them; None if they weren't read.
        is_marked: whether it is marked for deletion, as far as ZooKeeper was read.
        moving: the partitions that are being reassigned, as far as ZooKeeper was read, each with
            the node ids that are to have its replicas.
    """

    partitions: Mapping[int, PartitionSample]
    config: Mapping[str, str] | None = None
    is_marked: bool = False
    moving: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupSample:
    """A group with its committed offsets in one store; a group in both stores has two samples.

    Attributes:
        group: its name.
        store: "kafka" or "zookeeper".
        members: the ids of its members; None if they aren't known.
        committed: the committed offset by partition.
        description: its state and members as the store describes them; None if it couldn't be
            described.
    """

    group: str
    store: str
    members: tuple[str, ...] | None
    committed: Mapping[TopicPartition, int]
    description: GroupDescription | None = None


@dataclass(frozen=True, slots=True)
class ClusterSample:
    """A cluster.

    Attributes:
        brokers: by node id.
        topics: by name, those that the filter accepts.
        groups: those that the filter accepts.
        has_zookeeper: whether ZooKeeper was read.
        errors: what couldn't be read, one text each; empty if the sample is complete.
        explained: those of `errors` that `brokers` and `topics` show too.
        hints: what isn't read because an option is missing, one text each.
        remedies: what to do about those of `errors` that end with it.
        rights: the right that the client lacked for those of `errors` that are refusals, such as
            "Describe on the cluster".
        controller: the node id of the controller; None before 0.10, where brokers don't say.
    """

    brokers: Mapping[int, BrokerSample]
    topics: Mapping[str, TopicSample]
    groups: tuple[GroupSample, ...] = ()
    has_zookeeper: bool = False
    errors: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    explained: frozenset[str] = frozenset()
    remedies: Mapping[str, str] = field(default_factory=dict)
    rights: Mapping[str, str] = field(default_factory=dict)
    controller: int | None = None

    def partitions(self) -> Iterator[tuple[TopicPartition, PartitionSample]]:
        """Yield all partitions, by topic and number."""
        for name, topic in sorted(self.topics.items()):
            for number, partition in sorted(topic.partitions.items()):
                yield TopicPartition(name, number), partition

    def partition(self, tp: TopicPartition) -> PartitionSample | None:
        """Return a partition; None if the sample doesn't have it."""
        topic = self.topics.get(tp.topic)
        return None if topic is None else topic.partitions.get(tp.partition)
