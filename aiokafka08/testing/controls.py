"""What the methods of `EmbeddedCluster` do to topics, logs, replicas and groups.

`cluster` has the methods, which tests call from any thread; it runs these functions in the
cluster's event loop, and completes delayed requests after each.

Invariant: a change of a partition that a delayed request may wait for is in `state.changed`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

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
from aiokafka08.testing.state import BrokerState, ClusterState, Commit, CommitKey, Partition
from aiokafka08.testing.validation import validate_set


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


# --- topics and logs ------------------------------------------------------------------------------


def create_topic(
    runtime: ClusterRuntime,
    name: str,
    partitions: int,
    replication_factor: int | None,
    config: Mapping[str, str] | None,
) -> None:
    """Create a topic, with the cluster's replication factor if there is none."""
    default = runtime.state.settings.default_replication_factor
    factor = default if replication_factor is None else replication_factor
    runtime.state.create_topic(name, partitions, factor, config or {}, runtime.now_ms())


def append(
    runtime: ClusterRuntime,
    topic: str,
    partition: int,
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None,
    codec: Codec,
    timestamp_ms: int,
) -> int:
    """Append messages in one set; return the offset of the first one."""
    one = find_partition(runtime.state, topic, partition)
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
    runtime.state.changed.add(one.key)
    return validated.first_offset


def append_raw(
    runtime: ClusterRuntime,
    topic: str,
    partition: int,
    message_set: bytes,
    next_offset: int | None,
) -> None:
    """Append bytes unchanged and unchecked."""
    one = find_partition(runtime.state, topic, partition)
    after = one.log.end_offset + 1 if next_offset is None else next_offset
    one.log.append_raw(message_set, after, runtime.now_ms())
    one.arrived_bytes[one.leader] += len(message_set)
    runtime.state.changed.add(one.key)


def log(runtime: ClusterRuntime, topic: str, partition: int) -> list[LoggedMessage]:
    """Return all messages of a partition; a corrupt message has its raw bytes as value."""
    messages = []
    stored = find_partition(runtime.state, topic, partition).log
    for wrapper_offset, wrapper in stored.entries():
        codec = wrapper[5] & CODEC_MASK
        for offset, message in _messages_in(wrapper_offset, wrapper):
            if offset >= stored.start_offset:
                messages.append(LoggedMessage(offset, *_fields(message), codec))
    return messages


def offsets(runtime: ClusterRuntime, topic: str, partition: int) -> Offsets:
    """Return the bounds of a partition's log."""
    one = find_partition(runtime.state, topic, partition)
    return Offsets(one.log.start_offset, one.high_watermark, one.log.end_offset)


def delete_before(runtime: ClusterRuntime, topic: str, partition: int, offset: int) -> None:
    """Delete the messages below `offset`."""
    one = find_partition(runtime.state, topic, partition)
    one.log.delete_before(offset)
    runtime.state.changed.add(one.key)


def truncate(runtime: ClusterRuntime, topic: str, partition: int, offset: int) -> None:
    """Delete the messages from `offset` on."""
    one = find_partition(runtime.state, topic, partition)
    one.log.truncate(offset)
    runtime.state.changed.add(one.key)


def remove(runtime: ClusterRuntime, topic: str, partition: int, gone: frozenset[int]) -> None:
    """Delete the messages with these offsets."""
    one = find_partition(runtime.state, topic, partition)
    one.log.remove(gone)
    runtime.state.changed.add(one.key)


def compact(runtime: ClusterRuntime, topic: str, partition: int) -> None:
    """Keep only the last message of each key, and the messages without a key."""
    messages = log(runtime, topic, partition)
    last = {message.key: message.offset for message in messages if message.key is not None}
    gone = frozenset(
        message.offset
        for message in messages
        if message.key is not None and message.offset != last[message.key]
    )
    remove(runtime, topic, partition, gone)


def roll_segment(runtime: ClusterRuntime, topic: str, partition: int) -> None:
    """Let the next message begin a new segment."""
    find_partition(runtime.state, topic, partition).log.roll(runtime.now_ms())


# --- leaders, replicas, coordinators --------------------------------------------------------------


def leader(runtime: ClusterRuntime, topic: str, partition: int) -> int:
    """Return the id of the leader; -1 without one."""
    return find_partition(runtime.state, topic, partition).leader


def move_leader(runtime: ClusterRuntime, topic: str, partition: int, to: int | None) -> int:
    """Make `to`, or the next replica that is in sync, the leader; return its id."""
    one = find_partition(runtime.state, topic, partition)
    nodes = runtime.state.nodes
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
    runtime.state.lead(one, chosen)
    return chosen


def elect(runtime: ClusterRuntime, topic: str | None, partition: int | None) -> None:
    """Elect leaders for partitions without one: all, those of a topic, or a single one."""
    for one in runtime.state.all_partitions():
        if one.leader < 0 and topic in (None, one.topic) and partition in (None, one.number):
            runtime.state.elect(one)


def shrink_isr(
    runtime: ClusterRuntime, topic: str, partition: int, followers: Sequence[int]
) -> None:
    """Take followers out of the ISR; all if none is named."""
    one = find_partition(runtime.state, topic, partition)
    for node in followers or [i for i in one.replicas if i != one.leader]:
        if node == one.leader or node not in one.replicas:
            raise ValueError(
                f"topic {topic!r}, partition {partition}: broker {node} is no follower"
            )
        runtime.state.shrink(one, node)


def restore_isr(runtime: ClusterRuntime, topic: str, partition: int) -> None:
    """Let all live replicas catch up and rejoin the ISR."""
    one = find_partition(runtime.state, topic, partition)
    for node in one.replicas:
        if node != one.leader and runtime.state.nodes[node].alive:
            runtime.state.restore(one, node)


def hold_metadata(runtime: ClusterRuntime, node: int) -> None:
    """Let the controller's updates not reach a live broker."""
    runtime.state.hold_metadata(check_alive(runtime.state, node))


def release_metadata(runtime: ClusterRuntime, node: int) -> None:
    """Let a broker learn what has happened since `hold_metadata`."""
    runtime.state.held_views.pop(node, None)


def move_controller(runtime: ClusterRuntime, node: int) -> None:
    """Let a live broker become the controller."""
    runtime.state.chosen_controller = check_alive(runtime.state, node)


def committed(
    runtime: ClusterRuntime,
    group: str,
    topic: str,
    partition: int,
    store: Literal["kafka", "zookeeper"],
) -> Commit | None:
    """Return what a group has committed to one store."""
    state = runtime.state
    commits = state.kafka_commits if store == "kafka" else state.zookeeper_commits
    return commits.get(CommitKey(group, topic, partition))


# --- arguments ------------------------------------------------------------------------------------


def find_partition(state: ClusterState, topic: str, partition: int) -> Partition:
    """Return a partition.

    Raises:
        ValueError: it doesn't exist; the text says what does.
    """
    found = state.partition(topic, partition)
    if found is None:
        if topic not in state.topics:
            known = ", ".join(map(repr, state.topics)) or "none yet"
            raise ValueError(f"topic {topic!r} doesn't exist; expected one of: {known}")
        last = len(state.topics[topic]) - 1
        raise ValueError(
            f"topic {topic!r}, partition {partition!r} doesn't exist; expected 0 to {last}"
        )
    return found


def find_node(state: ClusterState, node: int) -> BrokerState:
    """Return a broker, which may be dead.

    Raises:
        ValueError: it doesn't exist; the text says which do.
    """
    if node not in state.nodes:
        known = ", ".join(map(str, state.nodes))
        raise ValueError(f"broker {node!r} doesn't exist; expected one of: {known}")
    return state.nodes[node]


def check_alive(state: ClusterState, node: int) -> int:
    """Return `node`.

    Raises:
        ValueError: no such broker is alive; the text says which are.
    """
    if node not in state.nodes or not state.nodes[node].alive:
        known = ", ".join(str(one.node_id) for one in state.nodes.values() if one.alive)
        raise ValueError(f"broker {node!r} isn't alive; expected one of: {known or 'none'}")
    return node


# --- inside ---------------------------------------------------------------------------------------


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
