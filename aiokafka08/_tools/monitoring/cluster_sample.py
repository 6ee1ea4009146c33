"""`ClusterSample`: brokers, topics and groups of a cluster at one moment. Pure.

Invariant: a value that couldn't be read is None or missing, and `errors` says why. No value is
older than the sample, and none is guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from aiokafka08._core.net.versions import BrokerVersion
from aiokafka08.admin.group_description import GroupDescription
from aiokafka08.admin.group_lag import GroupStore
from aiokafka08.structs import TopicPartition


@dataclass(frozen=True, slots=True)
class BrokerSample:
    """A broker.

    Attributes:
        node_id: Its id.
        address: "host:port".
        version: Its version; of 0.8 the exact line may be unknown. None if it didn't respond.
        error: Why it didn't respond; None if it did.
    """

    node_id: int
    address: str
    version: BrokerVersion | None = None
    error: str | None = None


class PartitionSample(NamedTuple):
    """A partition.

    Attributes:
        leader: The leader's node id; None without one.
        replicas: Node ids, as Metadata lists them. Brokers of 0.8.2 and 0.9 leave out dead ones
            (docs/brokers.md 4.7).
        isr: The in-sync replicas, as Metadata lists them; on 0.8 they may be stale (4.8).
        lacks_replica: The brokers reported that a replica isn't available.
        assigned: All replicas, as ZooKeeper has them, the preferred leader first; None if
            ZooKeeper wasn't read.
        stored_isr: The in-sync replicas in ZooKeeper; None if ZooKeeper wasn't read.
        start: The offset of the oldest message; None if the leader didn't return it.
        end: The offset after the newest message that consumers may read; None likewise.
        is_refused: The broker that Metadata names as the leader has responded that it isn't.
        perhaps_in_sync: Replicas that respond, but are missing from the ISR that 0.8 brokers
            report, which may be stale (4.8). Empty if ZooKeeper was read.
    """

    # A tuple, because a large cluster has many partitions, and frozen data classes take longer.

    leader: int | None
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    lacks_replica: bool = False
    assigned: tuple[int, ...] | None = None
    stored_isr: tuple[int, ...] | None = None
    start: int | None = None
    end: int | None = None
    is_refused: bool = False
    perhaps_in_sync: tuple[int, ...] = ()

    @property
    def all_replicas(self) -> tuple[int, ...]:
        """The replicas, as far as they are known."""
        return self.replicas if self.assigned is None else self.assigned

    @property
    def in_sync(self) -> tuple[int, ...]:
        """The in-sync replicas, those of ZooKeeper if it was read."""
        return self.isr if self.stored_isr is None else self.stored_isr

    @property
    def is_under_replicated(self) -> bool | None:
        """Whether a replica is dead or out of sync; None if only `perhaps_in_sync` is in doubt."""
        present = len(self.in_sync) + len(self.perhaps_in_sync)
        if self.lacks_replica or present < len(self.all_replicas):
            return True
        return None if self.perhaps_in_sync else False

    @property
    def has_preferred_leader(self) -> bool:
        """Whether the first replica leads."""
        return self.leader is not None and self.all_replicas[:1] == (self.leader,)

    @property
    def messages(self) -> int | None:
        """The number of offsets in the log, gaps of compaction included; None if not known."""
        return None if self.start is None or self.end is None else self.end - self.start

    def lag(self, committed: int) -> int | None:
        """Return how many offsets a committed offset is behind the end; None if that is unknown.

        Never negative: for a committed offset after the end see `beyond_end`.
        """
        return None if self.end is None else max(self.end - committed, 0)

    def beyond_end(self, committed: int) -> int | None:
        """Return how many offsets a committed offset is after the end; None if that is unknown."""
        # The end and the committed offset aren't read at the same moment, so an offset may be after
        # the end in one sample. If it is in later samples too, the log was truncated, or the topic
        # was created anew.
        return None if self.end is None else max(committed - self.end, 0)


@dataclass(frozen=True, slots=True)
class TopicSample:
    """A topic.

    Attributes:
        partitions: By number.
        config: The topic's own settings, as ZooKeeper has them; None if they weren't read.
        is_marked: Whether it is marked for deletion, as far as ZooKeeper was read.
        moving: The partitions that are being reassigned, as far as ZooKeeper was read, each with
            the node ids of its new replicas.
    """

    partitions: Mapping[int, PartitionSample]
    config: Mapping[str, str] | None = None
    is_marked: bool = False
    moving: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupSample:
    """A group with its committed offsets in one store; a group in both stores has two samples.

    Attributes:
        group: Its name.
        store: The store of the offsets.
        members: The ids of its members; None if they aren't known.
        committed: The committed offset by partition.
        description: Its state and members as the store describes them; None without a description.
    """

    group: str
    store: GroupStore
    members: tuple[str, ...] | None
    committed: Mapping[TopicPartition, int]
    description: GroupDescription | None = None


@dataclass(frozen=True, slots=True)
class ClusterSample:
    """A cluster.

    Attributes:
        brokers: By node id.
        topics: By name, those that the filter accepts.
        groups: The groups that the filter accepts.
        has_zookeeper: Whether ZooKeeper was read.
        errors: The failed reads, one text each; empty if the sample is complete.
        explained: The texts of `errors` about failures that `brokers` and `topics` show too.
        hints: The reads that need a missing option, one text each.
        remedies: By error, the advice with which its text ends.
        rights: For errors that are refusals: the missing right, such as "Describe on the cluster".
        controller: The node id of the controller; None before 0.10, where brokers don't report it.
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

    def sharing(self, before: ClusterSample) -> ClusterSample:
        """Return an equal sample that reuses the objects of an earlier one where they are equal.

        Several samples of a cluster in which little changes then take the memory of one.
        """
        topics = {
            name: old if (old := before.topics.get(name)) == topic else topic
            for name, topic in self.topics.items()
        }
        tps = {tp: tp for group in before.groups for tp in group.committed}
        old_groups = {(group.group, group.store): group for group in before.groups}
        groups = []
        for group in self.groups:
            known = old_groups.get((group.group, group.store))
            if known is not None and known.committed == group.committed:
                committed = known.committed
            else:
                committed = {tps.setdefault(tp, tp): at for tp, at in group.committed.items()}
            groups.append(replace(group, committed=committed))
        return replace(self, topics=topics, groups=tuple(groups))

    def partition(self, tp: TopicPartition) -> PartitionSample | None:
        """Return a partition; None if the sample doesn't have it."""
        topic = self.topics.get(tp.topic)
        return None if topic is None else topic.partitions.get(tp.partition)
