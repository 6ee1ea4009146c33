"""Metadata: who leads what; and the creation of topics by asking for them."""

from __future__ import annotations

from aiokafka08.protocol.api import (
    Broker,
    MetadataRequest,
    MetadataResponse,
    PartitionState,
    TopicState,
)
from aiokafka08.testing.broker_lines import Reaction
from aiokafka08.testing.handlers.outcome import Context, Disconnect, NoReply, Outcome, Reply
from aiokafka08.testing.state import OFFSETS_TOPIC, CreationError, Partition, valid_topic_name

UNKNOWN_TOPIC, LEADER_NOT_AVAILABLE, REPLICA_NOT_AVAILABLE, INVALID_TOPIC = 3, 5, 9, 17


def metadata(context: Context, request: MetadataRequest) -> Outcome:
    """Tells brokers, topics, leaders, replicas and ISRs; every live broker tells the same.

    Models: no brokers before there is a topic, and one bad name or failing creation that spoils
    the whole answer (0.8); no brokers but the hosts of what is told (0.8.0, 0.8.1); auto-creation
    with 5 in the first answer; 3 without auto-creation; 5 and leader -1 without a leader; 9 and no
    dead brokers among the replicas in version 0; dead brokers that nobody has noticed yet; a stale
    ISR on 0.8.
    Not: brokers that disagree for a moment, the gap of a broker that has only just started, the
    fractions of a second that a new topic takes (its leaders are there at the second question).
    """
    state, line = context.state, context.line
    if request.topics is None and context.layout == 0:  # a count of -1
        return Disconnect() if line.unknown is Reaction.CLOSE else NoReply()
    names = list(dict.fromkeys(request.topics or ()))
    if request.topics is None or (not names and context.layout == 0):
        names = list(state.topics)
    # Before anything is created: a first auto-creation on 0.8 is answered without brokers too.
    brokers = brokers_of(context)
    codes = {name: _create(context, name) for name in names if name not in state.topics}
    for name, code in codes.items():
        invalid = not valid_topic_name(name)
        spoils = line.bad_topic_spoils_all if invalid else line.failed_creation_spoils_all
        if spoils and code not in (UNKNOWN_TOPIC, LEADER_NOT_AVAILABLE):
            spoiled = [TopicState(code, name, False, []) for name in names]
            return Reply(MetadataResponse([], -1, spoiled))
    topics = []
    for name in names:
        internal = name == OFFSETS_TOPIC and context.layout > 0
        if name in codes:
            topics.append(TopicState(codes[name], name, internal, []))
        else:
            partitions = [_partition(context, one) for one in reversed(state.topics[name])]
            topics.append(TopicState(0, name, internal, partitions))
    brokers = beside(context, brokers, topics)
    controller_id = -1
    if context.layout:
        controller_id = min((broker.node_id for broker in brokers), default=-1)
    return Reply(MetadataResponse(brokers, controller_id, topics))


def brokers_of(context: Context) -> list[Broker]:
    """The brokers as Metadata names them now."""
    state = context.state
    if not (context.line.empty_cluster_shows_brokers or state.had_topic):
        return []
    return [
        Broker(node.node_id, node.host, node.port)
        for node in state.nodes.values()
        if node.in_metadata or context.line.dead_brokers_stay
    ]


def beside(context: Context, brokers: list[Broker], topics: list[TopicState]) -> list[Broker]:
    """Those brokers that are named in an answer with these topics."""
    if not context.line.only_hosts_named:
        return brokers
    hosts = {node for topic in topics for one in topic.partitions for node in one.replicas}
    return [broker for broker in brokers if broker.node_id in hosts]


def _create(context: Context, name: str) -> int:
    """Create a topic if brokers may; the code that the asker gets."""
    state, line, settings = context.state, context.line, context.state.settings
    if not settings.auto_create:
        return UNKNOWN_TOPIC
    if not valid_topic_name(name):
        return line.bad_topic_code
    try:
        if name == OFFSETS_TOPIC:
            state.create_offsets_topic(context.now_ms)
        else:
            state.create_topic(
                name,
                settings.default_partitions,
                settings.default_replication_factor,
                {},
                context.now_ms,
            )
    except CreationError:
        return line.failed_creation_code
    return LEADER_NOT_AVAILABLE


def _partition(context: Context, partition: Partition) -> PartitionState:
    nodes = context.state.nodes
    seen = [
        node_id
        for node_id in partition.replicas
        if nodes[node_id].in_metadata or context.line.dead_brokers_stay
    ]
    isr = [node_id for node_id in partition.published_isr if nodes[node_id].in_metadata]
    if partition.leader < 0:
        return PartitionState(LEADER_NOT_AVAILABLE, partition.number, -1, seen, isr)
    if context.layout:
        replicas = list(partition.replicas)
        return PartitionState(0, partition.number, partition.leader, replicas, isr)
    code = 0 if len(seen) == len(partition.replicas) else REPLICA_NOT_AVAILABLE
    return PartitionState(code, partition.number, partition.leader, seen, isr)
