"""The handles on topics, logs, replicas and groups; `EmbeddedCluster` inherits them.

Each method may be called from any thread and returns when its effect is there; who waits for what
it changed has been woken then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeVar

from aiokafka08.protocol.compression import Codec
from aiokafka08.protocol.message_set import CODEC_MASK, encode_entry
from aiokafka08.testing.message_sets import Parsed, Refused, encode, inside, parse, prepare, walk
from aiokafka08.testing.runtime import ClusterRuntime
from aiokafka08.testing.state import ClusterState, Commit, CommitKey, Partition

T = TypeVar("T")


class LoggedMessage(NamedTuple):
    """A message as it stands in a log, taken out of its wrapper."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int | None
    """None in format 0."""
    codec: int
    """That of its wrapper, 0 without one."""


class Offsets(NamedTuple):
    """Where a partition's log begins, how far consumers see, and where it ends."""

    start: int
    high_watermark: int
    end: int


class Controls:
    """Topics, logs, replicas and groups of a running cluster."""

    _state: ClusterState

    def _call(self, act: Callable[[ClusterRuntime], T]) -> T:
        """Run `act` where the cluster lives."""
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
            config: settings of the topic, as the broker's tools take them ("min.insync.replicas":
                "2"); which ones depends on the line.

        Raises:
            ValueError: it can't be created so.
        """
        default = self._state.settings.default_replication_factor
        factor = default if replication_factor is None else replication_factor
        self._call(
            lambda hub: self._state.create_topic(
                name, partitions, factor, config or {}, hub.now_ms()
            )
        )

    def delete_topic(self, name: str) -> None:
        """Delete a topic; whoever waits for it is answered with 3."""
        self._call(lambda hub: self._state.delete_topic(name))

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
        """Append messages as a producer would, in one set; gives the first one's offset."""

        def act(hub: ClusterRuntime) -> int:
            one = self._partition(topic, partition)
            magic = one.rules.line.message_format
            pairs = zip(keys or [None] * len(values), values, strict=True)
            plain = b"".join(
                encode_entry(i, key, value, magic=magic, timestamp_ms=timestamp_ms)
                if magic
                else encode_entry(i, key, value)
                for i, (key, value) in enumerate(pairs)
            )
            data: bytes | bytearray = plain
            if codec is not Codec.NONE:
                data = encode(list(walk(plain)), codec, magic)
            now_ms = hub.now_ms()
            prepared = prepare(data, one.log.end_offset, one.rules, now_ms)
            one.log.append(prepared, now_ms)
            self._state.changed.add(one.key)
            return prepared.first_offset

        return self._call(act)

    def append_raw(
        self, topic: str, partition: int, message_set: bytes, next_offset: int | None = None
    ) -> None:
        """Append bytes as they are, unchecked: corrupt messages, strange offsets, filler.

        Args:
            next_offset: the offset of the next message after them; None: one more.
        """

        def act(hub: ClusterRuntime) -> None:
            one = self._partition(topic, partition)
            after = one.log.end_offset + 1 if next_offset is None else next_offset
            one.log.append_raw(message_set, after, hub.now_ms())
            self._state.changed.add(one.key)

        self._call(act)

    def log(self, topic: str, partition: int) -> list[LoggedMessage]:
        """All messages that the partition keeps. What is corrupt has its raw bytes as its value."""

        def act(hub: ClusterRuntime) -> list[LoggedMessage]:
            messages = []
            log = self._partition(topic, partition).log
            for wrapper_offset, wrapper in log.entries():
                codec = wrapper[5] & CODEC_MASK
                for offset, message in _opened(wrapper_offset, wrapper):
                    if offset >= log.start_offset:
                        messages.append(LoggedMessage(offset, *_parsed(message), codec))
            return messages

        return self._call(act)

    def offsets(self, topic: str, partition: int) -> Offsets:
        """The bounds of a partition's log."""

        def act(hub: ClusterRuntime) -> Offsets:
            one = self._partition(topic, partition)
            return Offsets(one.log.start_offset, one.high_watermark, one.log.end_offset)

        return self._call(act)

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """Retention: messages below `offset` are gone."""
        self._change(topic, partition, lambda one: one.log.delete_before(offset))

    def truncate(self, topic: str, partition: int, offset: int) -> None:
        """Messages from `offset` on are lost, as after an unclean election."""
        self._change(topic, partition, lambda one: one.log.truncate(offset))

    def remove(self, topic: str, partition: int, offsets: Iterable[int]) -> None:
        """Compaction: these messages are gone, their offsets stay empty."""
        gone = frozenset(offsets)
        self._change(topic, partition, lambda one: one.log.remove(gone))

    def compact(self, topic: str, partition: int) -> None:
        """Compaction: of each key only its last message stays, and messages without a key."""
        messages = self.log(topic, partition)
        last = {message.key: message.offset for message in messages if message.key is not None}
        gone = [
            message.offset
            for message in messages
            if message.key is not None and message.offset != last[message.key]
        ]
        self.remove(topic, partition, gone)

    def roll_segment(self, topic: str, partition: int) -> None:
        """The next message begins a new segment."""
        self._call(lambda hub: self._partition(topic, partition).log.roll(hub.now_ms()))

    def _partition(self, topic: str, partition: int) -> Partition:
        found = self._state.partition(topic, partition)
        if found is None:
            if topic not in self._state.topics:
                known = ", ".join(map(repr, self._state.topics)) or "none yet"
                raise ValueError(f"there is no topic {topic!r} (topics: {known})")
            last = len(self._state.topics[topic]) - 1
            raise ValueError(f"topic {topic!r} has no partition {partition!r} (it has 0 to {last})")
        return found

    def _change(self, topic: str, partition: int, act: Callable[[Partition], None]) -> None:
        def change(hub: ClusterRuntime) -> None:
            one = self._partition(topic, partition)
            act(one)
            self._state.changed.add(one.key)

        self._call(change)

    # --- leaders, replicas, coordinators ----------------------------------------------------------

    def leader(self, topic: str, partition: int) -> int:
        """The leader's id, -1 without one."""
        return self._call(lambda hub: self._partition(topic, partition).leader)

    def move_leader(self, topic: str, partition: int, to: int | None = None) -> int:
        """Make another live replica the leader; gives its id.

        Args:
            to: None: the next one that is in sync. One that isn't brings a log that ends where it
                fell behind.
        """

        def act(hub: ClusterRuntime) -> int:
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
                raise ValueError(f"{topic}-{partition} has no other live replica {where}")
            self._state.lead(one, chosen)
            return chosen

        return self._call(act)

    def shrink_isr(self, topic: str, partition: int, *nodes: int) -> None:
        """These followers (none named: all) stop following and leave the ISR."""

        def shrink(one: Partition) -> None:
            for node in nodes or [i for i in one.replicas if i != one.leader]:
                if node == one.leader or node not in one.replicas:
                    raise ValueError(f"broker {node} is no follower of {topic}-{partition}")
                self._state.shrink(one, node)

        self._change(topic, partition, shrink)

    def restore_isr(self, topic: str, partition: int) -> None:
        """All live replicas are in sync again."""

        def restore(one: Partition) -> None:
            for node in one.replicas:
                if node != one.leader and self._state.nodes[node].alive:
                    self._state.restore(one, node)

        self._change(topic, partition, restore)

    def coordinator(self, group: str) -> int | None:
        """The group's coordinator; None before anybody asked for one."""
        return self._call(lambda hub: self._state.coordinator(group))

    def committed(
        self,
        group: str,
        topic: str,
        partition: int,
        store: Literal["kafka", "zookeeper"] = "kafka",
    ) -> Commit | None:
        """What a group has committed, to `__consumer_offsets` or to ZooKeeper."""

        def act(hub: ClusterRuntime) -> Commit | None:
            state = self._state
            commits = state.kafka_commits if store == "kafka" else state.zookeeper_commits
            return commits.get(CommitKey(group, topic, partition))

        return self._call(act)


def _opened(offset: int, message: memoryview) -> list[tuple[int, memoryview]]:
    try:
        return inside(offset, message)
    except (Refused, ValueError):  # a wrapper that can't be opened
        return [(offset, message)]


def _parsed(message: memoryview) -> Parsed:
    try:
        return parse(message)
    except Refused:
        return Parsed(None, bytes(message), None)
