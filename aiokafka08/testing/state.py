"""What the brokers of the embedded cluster share: who lives, topics, leaders, ISRs, offsets.

Pure: handlers read and change it, controls too; nothing here waits or knows a socket. Laws: one
log per partition stands for all replicas, and a replica that fell behind is a number in `behind`;
whatever changes a partition names it in `changed`, so that the runtime can wake who waits for it.
A death has two halves, as on real brokers: `die` (connections end) and `notice` (the controller
has seen it: elections, ISRs, Metadata; about 7 s later on a default cluster, brokers.md 9.1).
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from aiokafka08.structs import TopicPartition
from aiokafka08.testing.broker_lines import Line
from aiokafka08.testing.group import Groups
from aiokafka08.testing.log import PartitionLog
from aiokafka08.testing.message_sets import Rules

OFFSETS_TOPIC = "__consumer_offsets"
OFFSETS_PARTITIONS = 4
"""50 on real brokers; few make the coordinators of a cluster come sooner."""
OFFSETS_REPLICATION_FACTOR = 3

_VALID_NAME = re.compile(r"[a-zA-Z0-9._-]{1,255}")
_NO_LEADER = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the brokers are set to; topics may say otherwise."""

    auto_create: bool = True
    default_partitions: int = 1
    default_replication_factor: int = 1
    message_max_bytes: int = 1000012
    segment_bytes: int = 128 << 20
    retention_bytes: int | None = 1 << 30
    group_min_session_timeout_ms: int = 6000


@dataclass(slots=True)
class Node:
    """One broker."""

    node_id: int
    host: str
    port: int
    alive: bool = True
    noticed: bool = True
    """The controller has seen whether it lives."""

    @property
    def in_metadata(self) -> bool:
        """Metadata names it: also while its death isn't noticed."""
        return self.alive or not self.noticed


@dataclass(slots=True)
class Partition:
    """One partition with its replicas."""

    topic: str
    number: int
    replicas: list[int]
    log: PartitionLog
    rules: Rules
    min_insync_replicas: int = 1
    unclean_election: bool = True
    leader: int = _NO_LEADER
    isr: list[int] = field(default_factory=list)
    published_isr: list[int] = field(default_factory=list)
    """The ISR as Metadata tells it (brokers.md 4.8)."""
    behind: dict[int, int] = field(default_factory=dict)
    """Replicas that don't follow now → the offset they reached."""

    @property
    def key(self) -> TopicPartition:
        return TopicPartition(self.topic, self.number)

    def reached(self, node_id: int) -> int:
        """How far a replica has come."""
        return self.behind.get(node_id, self.log.end_offset)

    @property
    def high_watermark(self) -> int:
        """What all of the ISR have: consumers see no further."""
        if not self.behind:
            return self.log.end_offset
        return min((self.reached(node_id) for node_id in self.isr), default=self.log.end_offset)


class CommitKey(NamedTuple):
    """Where an offset is committed."""

    group: str | None
    topic: str
    partition: int


class Commit(NamedTuple):
    """A committed offset."""

    offset: int
    metadata: str | None


class CreationError(ValueError):
    """The topic can't be created as asked."""


class ClusterState:
    """All of a cluster that survives a request."""

    def __init__(self, line: Line, settings: Settings, nodes: Iterable[Node]) -> None:
        self.line = line
        self.settings = settings
        self.nodes = {node.node_id: node for node in nodes}
        self.topics: dict[str, list[Partition]] = {}
        self.zookeeper_commits: dict[CommitKey, Commit] = {}
        self.kafka_commits: dict[CommitKey, Commit] = {}
        self.had_topic = False
        """On 0.8 brokers hear of each other, and tell of each other, with the first topic."""
        self.groups = Groups(
            line,
            (settings.group_min_session_timeout_ms / 1000, line.max_session_timeout_s),
            self.coordinator,
        )
        self.changed: set[Hashable] = set()

    # --- topics ---------------------------------------------------------------------------------

    def partition(self, topic: str, number: int) -> Partition | None:
        """A partition, or None where there is none."""
        partitions = self.topics.get(topic)
        if partitions is None or not 0 <= number < len(partitions):
            return None
        return partitions[number]

    def all_partitions(self) -> Iterable[Partition]:
        """The partitions of all topics."""
        for partitions in self.topics.values():
            yield from partitions

    def create_topic(
        self,
        name: str,
        partitions: int,
        replication_factor: int,
        config: Mapping[str, str],
        now_ms: int,
    ) -> None:
        """Create a topic; partition p is led by broker p % brokers, the next ones follow it.

        Raises:
            CreationError: the name, a number or the config isn't allowed.
        """
        if not valid_topic_name(name):
            raise CreationError(f"the topic name {name!r} isn't allowed")
        if name in self.topics:
            raise CreationError(f"the topic {name!r} exists already")
        alive = sorted(node.node_id for node in self.nodes.values() if node.alive)
        if partitions < 1 or not 1 <= replication_factor <= len(alive):
            raise CreationError(
                f"{partitions} partitions with {replication_factor} replicas each, on "
                f"{len(alive)} live brokers"
            )
        if unknown := set(config) - self.line.topic_configs:
            known = ", ".join(sorted(self.line.topic_configs)) or "none"
            raise CreationError(
                f"the embedded {self.line.name} doesn't know the topic config "
                f"{', '.join(sorted(unknown))} (known: {known})"
            )
        settings = self.settings
        segment_bytes = int(config.get("segment.bytes", settings.segment_bytes))
        retention_bytes = settings.retention_bytes
        if "retention.bytes" in config:
            wanted = int(config["retention.bytes"])
            retention_bytes = None if wanted < 0 else wanted
        rules = Rules(
            line=self.line,
            max_message_bytes=int(config.get("max.message.bytes", settings.message_max_bytes)),
            segment_bytes=segment_bytes,
            compacted="compact" in config.get("cleanup.policy", "delete"),
            compression_type=config.get("compression.type", "producer"),
            log_append_time=config.get("message.timestamp.type") == "LogAppendTime",
        )
        self.had_topic = True
        self.topics[name] = created = []
        for number in range(partitions):
            replicas = [alive[(number + i) % len(alive)] for i in range(replication_factor)]
            created.append(
                Partition(
                    name,
                    number,
                    replicas,
                    PartitionLog(
                        segment_bytes,
                        retention_bytes,
                        now_ms,
                        segments_overflow=self.line.segments_overflow,
                    ),
                    rules,
                    min_insync_replicas=int(config.get("min.insync.replicas", 1)),
                    unclean_election=config.get("unclean.leader.election.enable") != "false",
                    leader=replicas[0],
                    isr=list(replicas),
                    published_isr=list(replicas),
                )
            )

    def delete_topic(self, name: str) -> None:
        """Forget a topic; commits for it stay, as they do on real brokers.

        Raises:
            ValueError: there is no such topic.
        """
        if name not in self.topics:
            raise ValueError(f"there is no topic {name!r}")
        for partition in self.topics.pop(name):
            partition.leader = _NO_LEADER
            self.changed.add(partition.key)

    # --- leaders, replicas ------------------------------------------------------------------------

    def die(self, node_id: int) -> None:
        """A broker ends; nobody has noticed yet."""
        node = self.nodes[node_id]
        node.alive, node.noticed = False, False
        for partition in self.all_partitions():
            if node_id in partition.replicas and partition.leader != node_id:
                partition.behind.setdefault(node_id, partition.log.end_offset)
                self.changed.add(partition.key)

    def notice(self, node_id: int, *, elect: bool = True) -> None:
        """The controller sees that a broker is gone: it leaves ISRs and Metadata. Its partitions
        get new leaders, or with `elect=False` none for now."""
        node = self.nodes[node_id]
        node.noticed = True
        for partition in self.all_partitions():
            if node_id not in partition.replicas:
                continue
            if partition.leader == node_id:
                partition.leader = _NO_LEADER
                partition.behind.setdefault(node_id, partition.log.end_offset)
            # The last one stays in the ISR: only it has all of the log.
            if node_id in partition.isr and len(partition.isr) > 1:
                partition.isr.remove(node_id)
            partition.published_isr = list(partition.isr)
            if elect and partition.leader == _NO_LEADER:
                self.elect(partition)
            self.changed.add(partition.key)

    def revive(self, node_id: int) -> None:
        """A broker is back, has caught up, and leads what has no leader. It gets nothing back
        that others lead now (`auto.leader.rebalance.enable` is false on 0.8.0 and 0.8.1)."""
        node = self.nodes[node_id]
        node.alive = node.noticed = True
        for partition in self.all_partitions():
            if node_id not in partition.replicas:
                continue
            if partition.leader == _NO_LEADER:
                self.elect(partition)
            if partition.leader not in (node_id, _NO_LEADER):
                self.restore(partition, node_id)
            self.changed.add(partition.key)

    def elect(self, partition: Partition) -> None:
        """Give a partition a leader: the first live one of its ISR; else, with unclean elections,
        the first live replica, and what that one hasn't got is lost."""
        alive = [node_id for node_id in partition.replicas if self.nodes[node_id].alive]
        in_sync = [node_id for node_id in alive if node_id in partition.isr]
        candidates = in_sync or (alive if partition.unclean_election else [])
        if not candidates:
            partition.leader = _NO_LEADER
        else:
            self.lead(partition, candidates[0])

    def lead(self, partition: Partition, node_id: int) -> None:
        """Make a replica the leader. A log that it hasn't got all of is cut to what it has."""
        partition.leader = node_id
        partition.log.truncate(partition.reached(node_id))
        partition.behind = {
            other: min(offset, partition.log.end_offset)
            for other, offset in partition.behind.items()
            if other != node_id
        }
        if node_id not in partition.isr:
            partition.isr = [node_id]
        partition.isr = [one for one in partition.isr if self.nodes[one].in_metadata] or [node_id]
        partition.published_isr = list(partition.isr)
        self.changed.add(partition.key)

    def shrink(self, partition: Partition, node_id: int) -> None:
        """A follower stops following and leaves the ISR."""
        partition.behind.setdefault(node_id, partition.log.end_offset)
        if node_id in partition.isr:
            partition.isr.remove(node_id)
        self._isr_changed(partition)

    def restore(self, partition: Partition, node_id: int) -> None:
        """A follower has caught up and is in the ISR again."""
        partition.behind.pop(node_id, None)
        if node_id not in partition.isr:
            partition.isr.append(node_id)
        self._isr_changed(partition)

    def _isr_changed(self, partition: Partition) -> None:
        if self.line.isr_growth_is_published:
            partition.published_isr = list(partition.isr)
        self.changed.add(partition.key)

    # --- coordinators -----------------------------------------------------------------------------

    def coordinator(self, group: str | None) -> int | None:
        """The node that leads the group's partition of the offsets topic; None without one."""
        partitions = self.topics.get(OFFSETS_TOPIC)
        if partitions is None:
            return None
        leader = partitions[_java_hash(group or "") % len(partitions)].leader
        return leader if leader != _NO_LEADER and self.nodes[leader].alive else None

    def create_offsets_topic(self, now_ms: int) -> None:
        """What the first question for a coordinator does."""
        alive = sum(1 for node in self.nodes.values() if node.alive)
        factor = min(alive, OFFSETS_REPLICATION_FACTOR)
        self.create_topic(OFFSETS_TOPIC, OFFSETS_PARTITIONS, factor, {}, now_ms)


def valid_topic_name(name: str) -> bool:
    """The rule of all lines (brokers.md 4.4)."""
    return _VALID_NAME.fullmatch(name) is not None and name not in (".", "..")


def _java_hash(text: str) -> int:
    """`String.hashCode`, without its sign."""
    value = 0
    units = text.encode("utf-16-be")
    for at in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    return value & 0x7FFFFFFF
