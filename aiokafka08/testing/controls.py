"""`Controls`: the methods of `EmbeddedCluster` for topics, logs, replicas and groups.

`cluster.EmbeddedCluster` inherits them and provides `_call`. Tests call them from any thread.

Invariant: when a method returns, its effect is visible, and delayed requests that can be completed
now have got their responses (`_call` runs `ClusterRuntime.complete_delayed`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeVar

from aiokafka08.protocol.compression import Codec
from aiokafka08.protocol.message_set import CODEC_MASK, encode_entry
from aiokafka08.testing.message_sets import (
    MessageFields,
    MessageSetRejected,
    encode_set,
    messages_in,
    parse_message,
    walk_entries,
)
from aiokafka08.testing.runtime import ClusterRuntime
from aiokafka08.testing.state import ClusterState, Commit, CommitKey, Partition
from aiokafka08.testing.validation import validate_set

T = TypeVar("T")


class LoggedMessage(NamedTuple):
    """A message in a log, taken out of its wrapper."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int | None
    """None in format 0."""
    codec: int
    """The codec of the wrapper; 0 if the message has no wrapper."""


class Offsets(NamedTuple):
    """The first offset of a partition's log, its high watermark, and the end of the log."""

    start: int
    high_watermark: int
    end: int


class Controls:
    """Topics, logs, replicas and groups of a running cluster."""

    _state: ClusterState

    def _call(self, act: Callable[[ClusterRuntime], T]) -> T:
        """Run `act` in the cluster's event loop and return its result."""
        raise NotImplementedError

    # --- topics and logs --------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic; it can be used when this returns.

        Args:
            config: settings of the topic, as Kafka's tools take them ("min.insync.replicas": "2").
                The cluster's Kafka version decides which settings exist.

        Raises:
            ValueError: the name, a number or the config is invalid.
        """
        default = self._state.settings.default_replication_factor
        factor = default if replication_factor is None else replication_factor
        self._call(
            lambda runtime: self._state.create_topic(
                name, partitions, factor, config or {}, runtime.now_ms()
            )
        )

    def delete_topic(self, name: str) -> None:
        """Delete a topic; requests that wait for it get UnknownTopicOrPartition."""
        self._call(lambda runtime: self._state.delete_topic(name))

    def append(
        self,
        topic: str,
        partition: int,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None = None,
        *,
        codec: Codec = Codec.NONE,
        timestamp_ms: int = -1,
    ) -> int:
        """Append messages in one set, as a producer would; return the offset of the first one."""

        def act(runtime: ClusterRuntime) -> int:
            one = self._partition(topic, partition)
            magic = one.log_config.line.message_format
            pairs = zip(keys or [None] * len(values), values, strict=True)
            plain = b"".join(
                encode_entry(i, key, value, magic=magic, timestamp_ms=timestamp_ms)
                if magic
                else encode_entry(i, key, value)
                for i, (key, value) in enumerate(pairs)
            )
            data: bytes | bytearray = plain
            if codec is not Codec.NONE:
                data = encode_set(list(walk_entries(plain)), codec, magic)
            now_ms = runtime.now_ms()
            validated = validate_set(data, one.log.end_offset, one.log_config, now_ms)
            one.log.append(validated, now_ms)
            one.arrived_bytes[one.leader] += len(data)
            self._state.changed.add(one.key)
            return validated.first_offset

        return self._call(act)

    def append_raw(
        self, topic: str, partition: int, message_set: bytes, next_offset: int | None = None
    ) -> None:
        """Append bytes unchanged and unchecked.

        For tests with corrupt messages, gaps between offsets, or padding that is no message.

        Args:
            next_offset: the offset of the next message after these bytes; None: one more than
                before the call.
        """

        def act(runtime: ClusterRuntime) -> None:
            one = self._partition(topic, partition)
            after = one.log.end_offset + 1 if next_offset is None else next_offset
            one.log.append_raw(message_set, after, runtime.now_ms())
            one.arrived_bytes[one.leader] += len(message_set)
            self._state.changed.add(one.key)

        self._call(act)

    def log(self, topic: str, partition: int) -> list[LoggedMessage]:
        """Return all messages of a partition; a corrupt message has its raw bytes as value."""

        def act(runtime: ClusterRuntime) -> list[LoggedMessage]:
            messages = []
            log = self._partition(topic, partition).log
            for wrapper_offset, wrapper in log.entries():
                codec = wrapper[5] & CODEC_MASK
                for offset, message in _messages_in(wrapper_offset, wrapper):
                    if offset >= log.start_offset:
                        messages.append(LoggedMessage(offset, *_fields(message), codec))
            return messages

        return self._call(act)

    def offsets(self, topic: str, partition: int) -> Offsets:
        """Return the bounds of a partition's log."""

        def act(runtime: ClusterRuntime) -> Offsets:
            one = self._partition(topic, partition)
            return Offsets(one.log.start_offset, one.high_watermark, one.log.end_offset)

        return self._call(act)

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """Delete the messages below `offset`, as retention does at the start of a segment."""
        self._change(topic, partition, lambda one: one.log.delete_before(offset))

    def apply_retention(self) -> None:
        """Delete messages now, in all partitions, by `retention_ms` and `retention_bytes`.

        Brokers do so 30 s after their start, and then every 5 minutes.
        """
        self._call(lambda runtime: self._state.apply_retention(runtime.now_ms()))

    def truncate(self, topic: str, partition: int, offset: int) -> None:
        """Delete the messages from `offset` on, as an unclean election does."""
        self._change(topic, partition, lambda one: one.log.truncate(offset))

    def remove(self, topic: str, partition: int, offsets: Iterable[int]) -> None:
        """Delete single messages and leave holes in the offsets, as compaction does."""
        gone = frozenset(offsets)
        self._change(topic, partition, lambda one: one.log.remove(gone))

    def compact(self, topic: str, partition: int) -> None:
        """Keep only the last message of each key, and the messages without a key."""
        messages = self.log(topic, partition)
        last = {message.key: message.offset for message in messages if message.key is not None}
        gone = [
            message.offset
            for message in messages
            if message.key is not None and message.offset != last[message.key]
        ]
        self.remove(topic, partition, gone)

    def roll_segment(self, topic: str, partition: int) -> None:
        """Let the next message begin a new segment."""
        self._call(lambda runtime: self._partition(topic, partition).log.roll(runtime.now_ms()))

    def _partition(self, topic: str, partition: int) -> Partition:
        found = self._state.partition(topic, partition)
        if found is None:
            if topic not in self._state.topics:
                known = ", ".join(map(repr, self._state.topics)) or "none yet"
                raise ValueError(f"topic {topic!r} doesn't exist; expected one of: {known}")
            last = len(self._state.topics[topic]) - 1
            raise ValueError(
                f"topic {topic!r}, partition {partition!r} doesn't exist; expected 0 to {last}"
            )
        return found

    def _change(self, topic: str, partition: int, act: Callable[[Partition], None]) -> None:
        def change(runtime: ClusterRuntime) -> None:
            one = self._partition(topic, partition)
            act(one)
            self._state.changed.add(one.key)

        self._call(change)

    # --- leaders, replicas, coordinators ----------------------------------------------------------

    def leader(self, topic: str, partition: int) -> int:
        """Return the id of the leader; -1 without one."""
        return self._call(lambda runtime: self._partition(topic, partition).leader)

    def move_leader(self, topic: str, partition: int, to: int | None = None) -> int:
        """Make another live replica the leader; return its id.

        Args:
            to: the new leader; None: the next replica that is in sync. A replica that isn't in sync
                truncates the log to the offset that it had reached.
        """

        def act(runtime: ClusterRuntime) -> int:
            one = self._partition(topic, partition)
            nodes = self._state.nodes
            alive = [i for i in one.replicas if nodes[i].alive]
            chosen = to
            if to is None:
                at = one.replicas.index(one.leader) + 1 if one.leader in one.replicas else 0
                in_turn = one.replicas[at:] + one.replicas[:at]
                others = [i for i in in_turn if i in alive and i in one.isr and i != one.leader]
                chosen = next(iter(others), None)
            if chosen is None or chosen not in alive:
                where = "in sync" if to is None else f"on broker {to}"
                raise ValueError(
                    f"topic {topic!r}, partition {partition}: the leader can't move, there is no "
                    f"other live replica {where}"
                )
            self._state.lead(one, chosen)
            return chosen

        return self._call(act)

    def shrink_isr(self, topic: str, partition: int, *nodes: int) -> None:
        """Let followers stop following and leave the ISR: those named, or all."""

        def shrink(one: Partition) -> None:
            for node in nodes or [i for i in one.replicas if i != one.leader]:
                if node == one.leader or node not in one.replicas:
                    raise ValueError(
                        f"topic {topic!r}, partition {partition}: broker {node} is no follower"
                    )
                self._state.shrink(one, node)

        self._change(topic, partition, shrink)

    def restore_isr(self, topic: str, partition: int) -> None:
        """Let all live replicas catch up and rejoin the ISR."""

        def restore(one: Partition) -> None:
            for node in one.replicas:
                if node != one.leader and self._state.nodes[node].alive:
                    self._state.restore(one, node)

        self._change(topic, partition, restore)

    def hold_metadata(self, node: int) -> None:
        """Let the controller's updates not reach a broker, until `release_metadata`.

        Its Metadata responses name the leaders, ISRs, topics and brokers of now, whatever happens.
        What it does as a leader or follower is up to date. A restart ends it too.
        """
        self._call(lambda runtime: self._state.hold_metadata(self._live(node)))

    def release_metadata(self, node: int) -> None:
        """Let a broker learn what has happened since `hold_metadata`."""
        self._call(lambda runtime: self._state.held_views.pop(node, None))

    def move_controller(self, node: int) -> None:
        """Let a live broker become the controller, which Metadata names from "0.10" on.

        Without a call, and when this broker is dead, it is the live one with the lowest id.
        """

        def act(runtime: ClusterRuntime) -> None:
            self._state.chosen_controller = self._live(node)

        self._call(act)

    def _live(self, node: int) -> int:
        if node not in self._state.nodes or not self._state.nodes[node].alive:
            known = ", ".join(str(one.node_id) for one in self._state.nodes.values() if one.alive)
            raise ValueError(f"broker {node!r} isn't alive; expected one of: {known or 'none'}")
        return node

    def coordinator(self, group: str) -> int | None:
        """Return the group's coordinator; None before the first request for one."""
        return self._call(lambda runtime: self._state.coordinator(group))

    def committed(
        self,
        group: str,
        topic: str,
        partition: int,
        store: Literal["kafka", "zookeeper"] = "kafka",
    ) -> Commit | None:
        """Return what a group has committed, to `__consumer_offsets` or to ZooKeeper."""

        def act(runtime: ClusterRuntime) -> Commit | None:
            state = self._state
            commits = state.kafka_commits if store == "kafka" else state.zookeeper_commits
            return commits.get(CommitKey(group, topic, partition))

        return self._call(act)


def _messages_in(offset: int, message: memoryview) -> list[tuple[int, memoryview]]:
    try:
        return messages_in(offset, message)
    except (MessageSetRejected, ValueError):  # a wrapper that can't be decompressed
        return [(offset, message)]


def _fields(message: memoryview) -> MessageFields:
    try:
        return parse_message(message)
    except MessageSetRejected:
        return MessageFields(None, bytes(message), None)
