"""The effects of `EmbeddedCluster`'s methods on topics, logs, replicas and groups.

The functions run in the cluster's event loop.

Invariant: a change for which a delayed request may wait adds its partition to `state.changed`.
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
from aiokafka08.testing.state import (
    OFFSETS_TOPIC,
    BrokerState,
    ClusterState,
    Commit,
    CommitKey,
    Partition,
)
from aiokafka08.testing.validation import validate_set


class LoggedMessage(NamedTuple):
    """A message in a log, taken out of its wrapper."""

    offset: int
    key: bytes | None
    value: bytes | None
    # None in format 0.
    timestamp_ms: int | None
    # The codec of the wrapper; 0 if the message has no wrapper.
    codec: int


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
    """Create a topic; by default its replication factor is the cluster's."""
    default = runtime.state.settings.default_replication_factor
    factor = default if replication_factor is None else replication_factor
    runtime.state.create_topic(name, partitions, factor, config or {}, runtime.now_ms())


def append(
    runtime: ClusterRuntime,
    topic: str,
    number: int,
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None,
    codec: Codec,
    timestamp_ms: int,
) -> int:
    """Append messages in one set; return the offset of the first one."""
    partition = find_partition(runtime.state, topic, number)
    magic = partition.log_config.line.message_format
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
    validated = validate_set(data, partition.log.end_offset, partition.log_config, now_ms)
    partition.log.append(validated, now_ms)
    partition.arrived_bytes[partition.leader] += len(data)
    runtime.state.changed.add(partition.key)
    return validated.first_offset


def append_raw(
    runtime: ClusterRuntime,
    topic: str,
    number: int,
    message_set: bytes,
    next_offset: int | None,
) -> None:
    """Append bytes unchanged and unchecked."""
    partition = find_partition(runtime.state, topic, number)
    after = partition.log.end_offset + 1 if next_offset is None else next_offset
    partition.log.append_raw(message_set, after, runtime.now_ms())
    partition.arrived_bytes[partition.leader] += len(message_set)
    runtime.state.changed.add(partition.key)


def log(runtime: ClusterRuntime, topic: str, number: int) -> list[LoggedMessage]:
    """Return all messages of a partition; a corrupt message has its raw bytes as value."""
    messages = []
    stored = find_partition(runtime.state, topic, number).log
    # A wrapper stays as long as its last message does, so its first messages may be deleted.
    for wrapper_offset, wrapper in stored.entries():
        codec = wrapper[5] & CODEC_MASK
        for offset, message in _messages_in(wrapper_offset, wrapper):
            if offset >= stored.start_offset:
                messages.append(LoggedMessage(offset, *_fields(message), codec))
    return messages


def offsets(runtime: ClusterRuntime, topic: str, number: int) -> Offsets:
    """Return the bounds of a partition's log."""
    partition = find_partition(runtime.state, topic, number)
    return Offsets(partition.log.start_offset, partition.high_watermark, partition.log.end_offset)


def delete_before(runtime: ClusterRuntime, topic: str, number: int, offset: int) -> None:
    """Delete the messages below `offset`."""
    partition = find_partition(runtime.state, topic, number)
    partition.log.delete_before(offset)
    runtime.state.changed.add(partition.key)


def truncate(runtime: ClusterRuntime, topic: str, number: int, offset: int) -> None:
    """Delete the messages from `offset` on."""
    partition = find_partition(runtime.state, topic, number)
    partition.log.truncate(offset)
    runtime.state.changed.add(partition.key)


def remove(runtime: ClusterRuntime, topic: str, number: int, gone: frozenset[int]) -> None:
    """Delete the messages with these offsets."""
    partition = find_partition(runtime.state, topic, number)
    partition.log.remove(gone)
    runtime.state.changed.add(partition.key)


def compact(runtime: ClusterRuntime, topic: str, number: int) -> None:
    """Keep only the last message of each key, and the messages without a key."""
    messages = log(runtime, topic, number)
    last = {message.key: message.offset for message in messages if message.key is not None}
    gone = frozenset(
        message.offset
        for message in messages
        if message.key is not None and message.offset != last[message.key]
    )
    remove(runtime, topic, number, gone)


def roll_segment(runtime: ClusterRuntime, topic: str, number: int) -> None:
    """Let the next message begin a new segment."""
    find_partition(runtime.state, topic, number).log.roll(runtime.now_ms())


# --- leaders, replicas, coordinators --------------------------------------------------------------


def leader(runtime: ClusterRuntime, topic: str, number: int) -> int:
    """Return the id of the leader; -1 without one."""
    return find_partition(runtime.state, topic, number).leader


def move_leader(runtime: ClusterRuntime, topic: str, number: int, to: int | None) -> int:
    """Make `to`, or the next replica that is in sync, the leader; return its id."""
    partition = find_partition(runtime.state, topic, number)
    nodes = runtime.state.nodes
    alive = [i for i in partition.replicas if nodes[i].alive]
    chosen = to
    if to is None:
        at = (
            partition.replicas.index(partition.leader) + 1
            if partition.leader in partition.replicas
            else 0
        )
        in_turn = partition.replicas[at:] + partition.replicas[:at]
        others = [i for i in in_turn if i in alive and i in partition.isr and i != partition.leader]
        chosen = next(iter(others), None)
    if chosen is None or chosen not in alive:
        where = "in sync" if to is None else f"on broker {to}"
        raise ValueError(
            f"topic {topic!r}, partition {number}: the leader can't move, there is no "
            f"other live replica {where}"
        )
    runtime.state.lead(partition, chosen)
    return chosen


def move_coordinator(runtime: ClusterRuntime, group: str) -> int:
    """Make the next replica of the group's offsets partition its leader; return the id."""
    if OFFSETS_TOPIC not in runtime.state.topics:
        raise ValueError(
            f"group {group!r}: the coordinator can't move, no client has looked one up yet, so "
            f"there is no {OFFSETS_TOPIC}"
        )
    number = runtime.state.offsets_partition(group).number
    return move_leader(runtime, OFFSETS_TOPIC, number, None)


def elect(runtime: ClusterRuntime, topic: str | None, number: int | None) -> None:
    """Elect leaders for partitions without one: all, those of a topic, or a single one."""
    for partition in runtime.state.all_partitions():
        if (
            partition.leader < 0
            and topic in (None, partition.topic)
            and number in (None, partition.number)
        ):
            runtime.state.elect(partition)


def shrink_isr(runtime: ClusterRuntime, topic: str, number: int, followers: Sequence[int]) -> None:
    """Take followers out of the ISR; all if none is named."""
    partition = find_partition(runtime.state, topic, number)
    for node in followers or [i for i in partition.replicas if i != partition.leader]:
        if node == partition.leader or node not in partition.replicas:
            raise ValueError(f"topic {topic!r}, partition {number}: broker {node} is no follower")
        runtime.state.shrink(partition, node)


def restore_isr(runtime: ClusterRuntime, topic: str, number: int) -> None:
    """Let all live replicas catch up and rejoin the ISR."""
    partition = find_partition(runtime.state, topic, number)
    for node in partition.replicas:
        if node != partition.leader and runtime.state.nodes[node].alive:
            runtime.state.restore(partition, node)


def advertise(runtime: ClusterRuntime, node: int, host: str | None, port: int | None) -> None:
    """Let responses name another address of a broker; its own again if host and port are None."""
    broker = find_node(runtime.state, node)
    named = (host or broker.host, port or broker.advertised_port or broker.port)
    broker.advertised = None if host is None and port is None else named


def hold_metadata(runtime: ClusterRuntime, node: int) -> None:
    """Withhold the controller's updates from a live broker."""
    runtime.state.hold_metadata(check_alive(runtime.state, node))


def release_metadata(runtime: ClusterRuntime, node: int) -> None:
    """Let a broker learn of the changes since `hold_metadata`."""
    runtime.state.held_views.pop(node, None)


def move_controller(runtime: ClusterRuntime, node: int) -> None:
    """Let a live broker become the controller."""
    runtime.state.chosen_controller = check_alive(runtime.state, node)


def committed(
    runtime: ClusterRuntime,
    group: str,
    topic: str,
    number: int,
    store: Literal["kafka", "zookeeper"],
) -> Commit | None:
    """Return the offset that a group has committed to one store; None without one."""
    state = runtime.state
    commits = state.kafka_commits if store == "kafka" else state.zookeeper_commits
    return commits.get(CommitKey(group, topic, number))


# --- arguments ------------------------------------------------------------------------------------


def find_partition(state: ClusterState, topic: str, number: int) -> Partition:
    """Return a partition.

    Raises:
        ValueError: it doesn't exist; the text names the existing ones.
    """
    partition = state.partition(topic, number)
    if partition is None:
        if topic not in state.topics:
            known = ", ".join(map(repr, state.topics)) or "none yet"
            raise ValueError(f"topic {topic!r} doesn't exist; expected one of: {known}")
        last = len(state.topics[topic]) - 1
        raise ValueError(
            f"topic {topic!r}, partition {number!r} doesn't exist; expected 0 to {last}"
        )
    return partition


def find_node(state: ClusterState, node: int) -> BrokerState:
    """Return a broker, which may be dead.

    Raises:
        ValueError: it doesn't exist; the text names the existing ones.
    """
    if node not in state.nodes:
        known = ", ".join(map(str, state.nodes))
        raise ValueError(f"broker {node!r} doesn't exist; expected one of: {known}")
    return state.nodes[node]


def check_alive(state: ClusterState, node: int) -> int:
    """Return `node`.

    Raises:
        ValueError: no such broker is alive; the text names the live ones.
    """
    if node not in state.nodes or not state.nodes[node].alive:
        known = ", ".join(str(broker.node_id) for broker in state.nodes.values() if broker.alive)
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
