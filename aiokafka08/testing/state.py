"""The state of an embedded cluster: brokers, topics, partitions, leaders, ISRs, committed offsets.

Pure data and its transitions, without sockets, clocks or waiting.

Invariants: one log per partition stands for all its replicas. For a replica that doesn't follow the
leader (dead or fallen behind), `Partition.behind` has the offset that it reached. A change of a
partition that may complete a waiting request adds the partition's key to `changed`.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, NamedTuple

from aiokafka08.errors import InvalidTopicError
from aiokafka08.structs import TopicPartition
from aiokafka08.testing.broker_lines import LineRules
from aiokafka08.testing.group import Groups
from aiokafka08.testing.log import PartitionLog
from aiokafka08.testing.message_sets import LogConfig

OFFSETS_TOPIC: Final = "__consumer_offsets"
# Real brokers have 50. With 4, a few groups are enough for each broker to coordinate one.
OFFSETS_PARTITIONS: Final = 4
OFFSETS_REPLICATION_FACTOR: Final = 3
# The default of `log.roll.hours` and `log.retention.hours`.
WEEK_MS: Final = 7 * 24 * 3600 * 1000

_VALID_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")
_NO_LEADER: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """The settings of the brokers; a topic's config takes precedence."""

    auto_create: bool = True
    default_partitions: int = 1
    default_replication_factor: int = 1
    message_max_bytes: int = 1000012
    segment_bytes: int = 128 << 20
    retention_bytes: int | None = 1 << 30
    retention_ms: int | None = WEEK_MS
    group_min_session_timeout_ms: int = 6000


@dataclass(slots=True)
class BrokerState:
    """One broker."""

    node_id: int
    host: str
    port: int
    alive: bool = True
    # Whether the controller has noticed the last change of `alive`.
    noticed: bool = True
    # Whether the broker dies when it is to store a message.
    disk_is_full: bool = False
    # The host and port that responses name; None: `host` and `advertised_port`.
    advertised: tuple[str, int] | None = None
    # The port that responses name if `advertised` is None; None: `port`.
    advertised_port: int | None = None

    @property
    def named_address(self) -> tuple[str, int]:
        """The host and port that Metadata and GroupCoordinator responses name."""
        return self.advertised or (self.host, self.advertised_port or self.port)

    @property
    def in_metadata(self) -> bool:
        """Whether Metadata lists it: it is alive, or its death is unnoticed."""
        return self.alive or not self.noticed


@dataclass(slots=True)
class Partition:
    """One partition with its replicas."""

    topic: str
    number: int
    replicas: list[int]
    log: PartitionLog
    log_config: LogConfig
    min_insync_replicas: int = 1
    unclean_election: bool = True
    leader: int = _NO_LEADER
    isr: list[int] = field(default_factory=list)
    # The ISR as Metadata shows it (brokers.md 4.8).
    published_isr: list[int] = field(default_factory=list)
    # Broker → bytes of all sets that were produced to it there, stored or not.
    arrived_bytes: Counter[int] = field(default_factory=Counter)
    # Replica that doesn't follow the leader → the offset that it reached.
    behind: dict[int, int] = field(default_factory=dict)
    # Dead replica that has lost messages → the end of its log. The leader doesn't know of it.
    flushed: dict[int, int] = field(default_factory=dict)

    @property
    def key(self) -> TopicPartition:
        return TopicPartition(self.topic, self.number)

    def reached(self, node_id: int) -> int:
        """Return the end of a replica's log."""
        reached = self.behind.get(node_id, self.log.end_offset)
        return min(reached, self.flushed.get(node_id, reached))

    @property
    def high_watermark(self) -> int:
        """The end of what all replicas of the ISR have; consumers get no messages above it."""
        if not self.behind:
            return self.log.end_offset
        end = self.log.end_offset
        return min((self.behind.get(node_id, end) for node_id in self.isr), default=end)


class CommitKey(NamedTuple):
    """The key of a committed offset."""

    group: str | None
    topic: str
    partition: int


class Commit(NamedTuple):
    """A committed offset."""

    offset: int
    metadata: str | None


@dataclass(frozen=True, slots=True)
class StoredCommit:
    """A commit at the moment when a store took it.

    Attributes:
        store: the store that has it now.
        key: the group and the partition.
        offset: the committed offset.
        client: the client id of the request; in ZooKeeper the party that wrote the node.
        connection: the number of the request's connection; 0 in ZooKeeper.
        generation: the group's generation that the request named; -1 without one.
    """

    store: Literal["kafka", "zookeeper"]
    key: CommitKey
    offset: int
    client: str | None
    connection: int = 0
    generation: int = -1


@dataclass(slots=True)
class MetadataView:
    """The state of the cluster as a broker knows it, for its Metadata responses."""

    topics: Mapping[str, Sequence[Partition]]
    nodes: Mapping[int, BrokerState]
    had_topic: bool


class CreationError(ValueError):
    """The topic can't be created: its name, a number or its config is invalid.

    `code` is the error code of a response; None: that of the line (`failed_creation_code`).
    """

    def __init__(self, text: str, code: int | None = None) -> None:
        super().__init__(text)
        self.code = code


class ClusterState:
    """The parts of a cluster that outlive a request."""

    def __init__(
        self, line: LineRules, settings: BrokerSettings, nodes: Iterable[BrokerState]
    ) -> None:
        self.line = line
        self.settings = settings
        self.nodes = {node.node_id: node for node in nodes}
        self.topics: dict[str, list[Partition]] = {}
        self.topic_configs: dict[str, dict[str, str]] = {}
        self.zookeeper_commits: MutableMapping[CommitKey, Commit] = {}
        self.kafka_commits: dict[CommitKey, Commit] = {}
        # The groups in `kafka_commits`, and on 0.10 those whose commit was refused as too long.
        self.committed_groups: set[str | None] = set()
        self.partition_count = 0
        # Partitions for which a set is being validated in the worker thread.
        self.appending: set[TopicPartition] = set()
        # Whether there was ever a topic, since 0.8 brokers learn of each other with the first one.
        self.had_topic = False
        self.groups = Groups(self.line, self._session_bounds_s(), self.coordinator)
        # The views of brokers that the controller's updates don't reach (`hold_metadata`).
        self.held_views: dict[int, MetadataView] = {}
        self.chosen_controller: int | None = None
        # Keys of partitions and groups that have changed since `complete_delayed` last ran.
        self.changed: set[Hashable] = set()
        # Called with each commit to the offsets topic.
        self.on_commit: Callable[[StoredCommit], object] = lambda commit: None
        # Called after each change, to publish the state elsewhere, such as in ZooKeeper.
        self.publish: Callable[[], object] | None = None

    @functools.cached_property
    def cluster_id(self) -> str:
        """An id in Kafka's form, which no cluster with other brokers has."""
        # Cached: the id stays when brokers get other ports.
        brokers = [(node.node_id, node.host, node.port) for node in self.nodes.values()]
        digest = hashlib.sha256(repr(brokers).encode()).digest()
        return base64.urlsafe_b64encode(digest[:16]).decode().rstrip("=")

    def _session_bounds_s(self) -> tuple[float, float]:
        return self.settings.group_min_session_timeout_ms / 1000, self.line.max_session_timeout_s

    def change_line(self, line: LineRules) -> None:
        """Change the line of the brokers, all of which are down; the data stays.

        Groups stay too, because the offsets topic stores them (docs/brokers.md 8.19).

        Raises:
            ValueError: a log may have messages in a format that the other line doesn't know.
        """
        for partition in self.all_partitions():
            if partition.log.size_bytes and line.message_format < self.line.message_format:
                raise ValueError(
                    f"the brokers can't become {line.name}: topic {partition.topic!r}, partition "
                    f"{partition.number} has messages of {self.line.name}, whose format is newer"
                )
        self.line = line
        self.groups.change_line(line, self._session_bounds_s())
        for name in self.topics:
            for partition in self.topics[name]:
                partition.log.segments_overflow = line.segments_overflow
            self.configure(name, self.topic_configs[name])

    # --- topics ---------------------------------------------------------------------------------

    def partition(self, topic: str, number: int) -> Partition | None:
        """Return a partition; None if it doesn't exist."""
        partitions = self.topics.get(topic)
        if partitions is None or not 0 <= number < len(partitions):
            return None
        return partitions[number]

    def all_partitions(self) -> Iterable[Partition]:
        """Iterate over the partitions of all topics."""
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
        """Create a topic.

        Of n live brokers, number p % n leads partition p; the next ones, in a circle, follow it.

        Raises:
            CreationError: the name, a number or the config is invalid.
        """
        if not valid_topic_name(name, self.line.max_topic_name):
            raise CreationError(f"topic {name!r} can't be created: invalid name")
        if name in self.topics:
            raise CreationError(f"topic {name!r} can't be created: it exists already")
        if others := self.colliding_topics(name):
            raise CreationError(
                f"topic {name!r} can't be created: its metrics would be those of "
                f"{', '.join(map(repr, others))}, since '.' and '_' are the same there",
                InvalidTopicError.errno,
            )
        alive = self.alive_nodes()
        if partitions < 1 or not 1 <= replication_factor <= len(alive):
            raise CreationError(
                f"topic {name!r} can't be created: {partitions} partitions with "
                f"{replication_factor} replicas each on {len(alive)} live brokers; expected at "
                "least 1 partition, and a replica count from 1 to the number of live brokers"
            )
        if unknown := set(config) - self.line.topic_configs:
            known = ", ".join(sorted(self.line.topic_configs)) or "none"
            raise CreationError(
                f"topic {name!r} can't be created: version {self.line.name} doesn't know the "
                f"topic config {', '.join(sorted(unknown))}; expected one of: {known}"
            )
        self.add_partitions(
            name, self.spread_replicas(partitions, replication_factor), now_ms, config
        )

    def colliding_topics(self, name: str) -> list[str]:
        """Return the topics whose names collide with that of a new topic (`names_collide`)."""
        if not self.line.names_collide or not ("." in name or "_" in name):
            return []
        alike = name.replace(".", "_")
        return [other for other in self.topics if other.replace(".", "_") == alike]

    def alive_nodes(self) -> list[int]:
        """Return the ids of the live brokers, in order."""
        return sorted(node.node_id for node in self.nodes.values() if node.alive)

    def spread_replicas(self, partitions: int, replication_factor: int) -> list[list[int]]:
        """Return the brokers of each partition of a new topic."""
        alive = self.alive_nodes()
        return [
            [alive[(number + i) % len(alive)] for i in range(replication_factor)]
            for number in range(partitions)
        ]

    def add_partitions(
        self,
        name: str,
        replicas: Iterable[Sequence[int]],
        now_ms: int,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Add partitions to a topic, or create it; their first live replicas lead.

        Args:
            name: the topic.
            replicas: the brokers of each new partition.
            now_ms: the wall-clock time.
            config: the topic's settings; None: those that it has.
        """
        config = self.topic_configs[name] if config is None else dict(config)
        log_config = self._log_config(config)
        retention_bytes, retention_ms = self._retention(config)
        min_insync_replicas, unclean_election = _election_config(config)
        self.topic_configs[name] = config
        self.had_topic = True
        topic = self.topics.setdefault(name, [])
        for brokers in replicas:
            alive = [node_id for node_id in brokers if self.nodes[node_id].alive]
            in_sync = alive or list(brokers)
            partition = Partition(
                name,
                len(topic),
                list(brokers),
                PartitionLog(
                    log_config.segment_bytes,
                    retention_bytes,
                    now_ms,
                    retention_ms=retention_ms,
                    segments_overflow=self.line.segments_overflow,
                    segment_ms=int(config.get("segment.ms", WEEK_MS)),
                ),
                log_config,
                min_insync_replicas,
                unclean_election,
                leader=next(iter(alive), _NO_LEADER),
                isr=list(in_sync),
                published_isr=list(in_sync),
                behind={node_id: 0 for node_id in brokers if node_id not in alive},
            )
            topic.append(partition)
            self.partition_count += 1

    def configure(self, name: str, config: Mapping[str, str]) -> None:
        """Give a topic other settings; settings of segments apply to new partitions only."""
        config = dict(config)
        log_config = self._log_config(config)
        min_insync_replicas, unclean_election = _election_config(config)
        self.topic_configs[name] = config
        for partition in self.topics[name]:
            partition.log_config = log_config
            partition.log.retention_bytes, partition.log.retention_ms = self._retention(config)
            partition.min_insync_replicas = min_insync_replicas
            partition.unclean_election = unclean_election
            self.changed.add(partition.key)

    def _log_config(self, config: Mapping[str, str]) -> LogConfig:
        settings = self.settings
        return LogConfig(
            line=self.line,
            max_message_bytes=int(config.get("max.message.bytes", settings.message_max_bytes)),
            segment_bytes=int(config.get("segment.bytes", settings.segment_bytes)),
            compacted="compact" in config.get("cleanup.policy", "delete"),
            compression_type=config.get("compression.type", "producer"),
            log_append_time=config.get("message.timestamp.type") == "LogAppendTime",
        )

    def _retention(self, config: Mapping[str, str]) -> tuple[int | None, int | None]:
        """Return how many bytes and ms a topic's logs keep; None: all (brokers.md 8.18)."""
        if config.get("cleanup.policy") == "compact":
            return None, None
        keep_bytes, keep_ms = self.settings.retention_bytes, self.settings.retention_ms
        if "retention.bytes" in config:
            keep_bytes = int(config["retention.bytes"])
        if "retention.ms" in config:
            keep_ms = int(config["retention.ms"])
            # 0.8 compares a negative age like any other: each message is too old at once.
            if keep_ms < 0 and not self.line.negative_retention_is_over:
                keep_ms = None
        return None if keep_bytes is None or keep_bytes < 0 else keep_bytes, keep_ms

    def apply_retention(self, now_ms: int) -> bool:
        """Delete old messages; return whether a later check can find others to delete."""
        # Nothing is added to `changed`, as brokers don't check waiting requests after it either.
        later = False
        for partition in self.all_partitions():
            log = partition.log
            log.retain(now_ms)
            later |= log.size_bytes > 0 and (log.retention_bytes, log.retention_ms) != (None, None)
        return later

    def delete_topic(self, name: str) -> None:
        """Delete a topic; commits for it stay, as they do on real brokers.

        Raises:
            ValueError: there is no such topic.
        """
        if name not in self.topics:
            raise ValueError(f"topic {name!r} can't be deleted: there is no such topic")
        self.topic_configs.pop(name)
        for partition in self.topics.pop(name):
            self.partition_count -= 1
            partition.leader = _NO_LEADER
            self.changed.add(partition.key)

    # --- metadata ---------------------------------------------------------------------------------

    def metadata_view(self, node_id: int) -> MetadataView:
        """Return the view of a broker: the cluster as it is, or the held one."""
        held = self.held_views.get(node_id)
        return held or MetadataView(self.topics, self.nodes, self.had_topic)

    def hold_metadata(self, node_id: int) -> None:
        """Hold a broker's view: it learns of no later change."""
        self.held_views[node_id] = MetadataView(
            {
                name: [
                    replace(
                        partition,
                        isr=list(partition.isr),
                        published_isr=list(partition.published_isr),
                    )
                    for partition in partitions
                ]
                for name, partitions in self.topics.items()
            },
            {number: replace(node) for number, node in self.nodes.items()},
            self.had_topic,
        )

    def controller(self) -> int:
        """Return the controller's id: the chosen one while in Metadata; -1 without brokers."""
        alive = [node.node_id for node in self.nodes.values() if node.in_metadata]
        if self.chosen_controller in alive:
            return self.chosen_controller
        return min(alive, default=-1)

    # --- leaders, replicas ------------------------------------------------------------------------

    def lose_tail(self, node_id: int, messages: int) -> None:
        """Let a broker's logs lose their last messages; it is about to die."""
        for partition in self.all_partitions():
            if node_id in partition.replicas:
                end = partition.reached(node_id) - messages
                partition.flushed[node_id] = max(end, partition.log.start_offset)

    def mark_dead(self, node_id: int) -> None:
        """Let a broker die; the controller hasn't noticed yet."""
        # Real brokers die in two steps as well: the connections end at once, but the controller
        # elects leaders, shrinks ISRs and changes Metadata later (`notice`; brokers.md 9.1).
        node = self.nodes[node_id]
        node.alive, node.noticed = False, False
        for partition in self.all_partitions():
            if node_id in partition.replicas and partition.leader != node_id:
                partition.behind.setdefault(node_id, partition.log.end_offset)
                self.changed.add(partition.key)

    def notice(self, node_id: int, *, elect: bool = True) -> None:
        """Let the controller notice a death: the broker leaves the ISRs and Metadata.

        Its partitions get new leaders, unless `elect` is False.
        """
        node = self.nodes[node_id]
        node.noticed = True
        for partition in self.all_partitions():
            if node_id not in partition.replicas:
                continue
            if partition.leader == node_id:
                partition.leader = _NO_LEADER
                partition.behind.setdefault(node_id, partition.log.end_offset)
            # The last member of the ISR stays, even if it is dead, because only it has the whole
            # log.
            if node_id in partition.isr and len(partition.isr) > 1:
                partition.isr.remove(node_id)
            partition.published_isr = list(partition.isr)
            if elect and partition.leader == _NO_LEADER:
                self.elect(partition)
            self.changed.add(partition.key)

    def revive(self, node_id: int) -> None:
        """Let a dead broker return: it has caught up, and leads partitions that have no leader."""
        node = self.nodes[node_id]
        node.alive = node.noticed = True
        node.disk_is_full = False
        self.held_views.pop(node_id, None)
        for partition in self.all_partitions():
            if node_id not in partition.replicas:
                continue
            if partition.leader == _NO_LEADER:
                self.elect(partition)
            elif partition.leader == node_id:  # the controller hasn't noticed its death
                self.lead(partition, node_id)
            # Partitions that another broker leads now stay there, on all lines. Real brokers of
            # 0.8.0 and 0.8.1 do the same: `auto.leader.rebalance.enable` is false there.
            if partition.leader not in (node_id, _NO_LEADER):
                self.restore(partition, node_id)
            self.changed.add(partition.key)

    def elect(self, partition: Partition) -> None:
        """Elect a leader for a partition without one: the first live replica of the ISR.

        If none is alive and unclean elections are enabled, the first live replica becomes the
        leader, and the messages that it doesn't have are lost.
        """
        alive = [node_id for node_id in partition.replicas if self.nodes[node_id].alive]
        in_sync = [node_id for node_id in alive if node_id in partition.isr]
        candidates = in_sync or (alive if partition.unclean_election else [])
        if not candidates:
            partition.leader = _NO_LEADER
        else:
            self.lead(partition, candidates[0])

    def lead(self, partition: Partition, node_id: int) -> None:
        """Make a replica the leader and truncate the log to what this replica has."""
        partition.leader = node_id
        partition.log.truncate(partition.reached(node_id))
        partition.flushed.pop(node_id, None)
        partition.behind = {
            other: min(offset, partition.log.end_offset)
            for other, offset in partition.behind.items()
            if other != node_id
        }
        if node_id not in partition.isr:
            partition.isr = [node_id]
        partition.isr = [
            replica for replica in partition.isr if self.nodes[replica].in_metadata
        ] or [node_id]
        partition.published_isr = list(partition.isr)
        self.changed.add(partition.key)

    def shrink(self, partition: Partition, node_id: int) -> None:
        """Let a follower stop following and leave the ISR."""
        partition.behind.setdefault(node_id, partition.log.end_offset)
        if node_id in partition.isr:
            partition.isr.remove(node_id)
        self._isr_changed(partition)

    def restore(self, partition: Partition, node_id: int) -> None:
        """Let a follower catch up and rejoin the ISR."""
        partition.behind.pop(node_id, None)
        partition.flushed.pop(node_id, None)
        if node_id not in partition.isr:
            partition.isr.append(node_id)
        self._isr_changed(partition)

    def _isr_changed(self, partition: Partition) -> None:
        if self.line.publishes_isr_growth:
            partition.published_isr = list(partition.isr)
        self.changed.add(partition.key)

    # --- groups -----------------------------------------------------------------------------------

    def commit(self, key: CommitKey, commit: Commit) -> None:
        """Commit an offset to the offsets topic."""
        self.kafka_commits[key] = commit
        self.committed_groups.add(key.group)

    def coordinator(self, group: str | None) -> int | None:
        """Return the leader of the group's partition of the offsets topic; None without one."""
        if OFFSETS_TOPIC not in self.topics:
            return None
        leader = self.offsets_partition(group).leader
        return leader if leader != _NO_LEADER and self.nodes[leader].alive else None

    def offsets_partition(self, group: str | None) -> Partition:
        """Return the group's partition of the offsets topic, which exists."""
        partitions = self.topics[OFFSETS_TOPIC]
        value = java_hash(group or "")  # brokers.md 8.9; Java has no abs() of -(2**31)
        return partitions[(abs(value) if value > -(2**31) else 0) % len(partitions)]

    def create_offsets_topic(self, now_ms: int) -> None:
        """Create the offsets topic, as brokers do at the first GroupCoordinator request."""
        alive = sum(1 for node in self.nodes.values() if node.alive)
        factor = min(alive, OFFSETS_REPLICATION_FACTOR)
        config = {"cleanup.policy": "compact"}
        self.create_topic(OFFSETS_TOPIC, OFFSETS_PARTITIONS, factor, config, now_ms)


def _election_config(config: Mapping[str, str]) -> tuple[int, bool]:
    """Return the settings `min.insync.replicas` and `unclean.leader.election.enable`."""
    return (
        int(config.get("min.insync.replicas", 1)),
        config.get("unclean.leader.election.enable") != "false",
    )


def valid_topic_name(name: str, longest: int) -> bool:
    """Return whether brokers accept the name (brokers.md 4.4)."""
    return (
        _VALID_NAME.fullmatch(name) is not None and len(name) <= longest and name not in (".", "..")
    )


@functools.lru_cache(maxsize=64)  # one request may need a long name's hash many times
def java_hash(text: str) -> int:
    """Return Java's `String.hashCode`."""
    value = 0
    units = text.encode("utf-16-be")
    for at in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    return value - (value >> 31 << 32)
