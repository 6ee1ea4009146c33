"""Metadata: brokers, topics, leaders; creates missing topics where auto-creation is enabled."""

from __future__ import annotations

from functools import partial
from typing import Final

from aiokafka08._core.server.work import Work, in_steps
from aiokafka08.errors import (
    LeaderNotAvailableError,
    ReplicaNotAvailableError,
    UnknownError,
    UnknownTopicOrPartitionError,
)
from aiokafka08.protocol.requests.metadata import (
    Broker,
    MetadataRequest,
    MetadataResponse,
    PartitionState,
    TopicState,
)
from aiokafka08.testing.broker_lines import BadRequestPolicy
from aiokafka08.testing.handlers.outcome import (
    Disconnect,
    HandlerResult,
    NoReply,
    Reply,
    RequestContext,
)
from aiokafka08.testing.state import OFFSETS_TOPIC, CreationError, Partition, valid_topic_name

# With more partitions in the cluster, clients can't create topics, so they can't fill the memory.
MAX_CREATED_PARTITIONS: Final = 10_000


def metadata(context: RequestContext, request: MetadataRequest) -> Work[HandlerResult]:
    """Respond with brokers, topics, leaders, replicas and ISRs, the same on every live broker.

    Models:
    - 0.8 lists no brokers before the first topic exists, and its ISRs may be stale.
    - One invalid topic name (on 0.8), or one failed creation (up to 0.9), fails the whole response.
    - 0.8.0 and 0.8.1 list only brokers with replicas of the topics in the response.
    - A missing topic is auto-created, and the first response has LeaderNotAvailable for it. Without
      auto-creation the response has UnknownTopicOrPartition.
    - A partition without a leader has LeaderNotAvailable and leader -1.
    - Version 0 omits dead brokers from the replicas, and has ReplicaNotAvailable for the partition
      (not on 0.8.0 and 0.8.1).
    - A dead broker is listed like a live one until the controller has noticed its death.
    - A broker whose metadata is held (`hold_metadata`) knows nothing newer.
    - Above `MAX_CREATED_PARTITIONS` no topic is created. A real cluster has no such limit.
    Doesn't model: brokers that disagree without `hold_metadata`, a broker that has just started
    and knows nothing, the fraction of a second until a new topic has leaders (here the second
    response has them).
    """
    state, line = context.state, context.line
    seen = state.metadata_view(context.node.node_id)
    # Version 0 has no null, so brokers can't read it.
    if request.topics is None and context.layout == 0:
        return Disconnect() if line.on_unreadable_request is BadRequestPolicy.CLOSE else NoReply()
    names = list(dict.fromkeys(request.topics or ()))
    if request.topics is None or (not names and context.layout == 0):
        names = list(seen.topics)
    # Read before topics are created: on 0.8 the request that creates the first topic gets a
    # response without brokers.
    brokers = known_brokers(context)
    missing = [name for name in names if name not in seen.topics]
    created = yield from in_steps(partial(_create, context), missing)
    for code, fails_all in created:
        if fails_all:
            failed = [TopicState(code, name, False, []) for name in request.topics or names]
            return Reply(MetadataResponse([], -1, failed))
    codes = {name: code for name, (code, _) in zip(missing, created, strict=True)}

    def topic_state(name: str) -> TopicState:
        internal = name == OFFSETS_TOPIC and context.layout > 0
        if name in codes:
            return TopicState(codes[name], name, internal, [])
        if name not in seen.topics:  # deleted between two steps
            return TopicState(UnknownTopicOrPartitionError.errno, name, internal, [])
        partitions = [_partition(context, partition) for partition in reversed(seen.topics[name])]
        return TopicState(0, name, internal, partitions)

    topics = yield from in_steps(topic_state, names)
    brokers = select_brokers(context, brokers, topics)
    controller_id = -1
    if context.layout:
        controller_id = state.controller()
    cluster_id = state.cluster_id if context.layout >= 2 else None
    return Reply(MetadataResponse(brokers, controller_id, topics, cluster_id=cluster_id))


def known_brokers(context: RequestContext) -> list[Broker]:
    """Return the brokers that Metadata may list now."""
    seen = context.state.metadata_view(context.node.node_id)
    if not (context.line.empty_cluster_lists_brokers or seen.had_topic):
        return []
    return [
        Broker(node.node_id, *node.named_address)
        for node in seen.nodes.values()
        if node.in_metadata or context.line.lists_dead_brokers
    ]


def select_brokers(
    context: RequestContext, brokers: list[Broker], topics: list[TopicState]
) -> list[Broker]:
    """Return the brokers that a response with these topics lists."""
    if not context.line.lists_only_replica_hosts:
        return brokers
    hosts = {
        node for topic in topics for partition in topic.partitions for node in partition.replicas
    }
    return [broker for broker in brokers if broker.node_id in hosts]


def _create(context: RequestContext, name: str | None) -> tuple[int, bool]:
    """Create a topic if auto-creation is enabled; return its error code.

    Also return whether it is the code of all topics in the response.
    """
    state, line, settings = context.state, context.line, context.state.settings
    if not settings.auto_create:
        return UnknownTopicOrPartitionError.errno, False
    if name is None:  # brokers fail when they check the name
        return UnknownError.errno, True
    if not valid_topic_name(name, line.max_topic_name):
        return line.invalid_topic_code, line.invalid_topic_fails_all
    if name in state.topics:  # created between two steps
        return LeaderNotAvailableError.errno, False
    try:
        if state.partition_count + settings.default_partitions > MAX_CREATED_PARTITIONS:
            raise CreationError("too many partitions")
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
    except CreationError as error:
        return error.code or line.failed_creation_code, line.failed_creation_fails_all
    return LeaderNotAvailableError.errno, False


def _partition(context: RequestContext, partition: Partition) -> PartitionState:
    nodes = context.state.metadata_view(context.node.node_id).nodes
    replicas = list(partition.replicas)
    if context.line.lists_sorted_replicas:
        replicas.sort()
    seen = [
        node_id
        for node_id in replicas
        if nodes[node_id].in_metadata or context.line.lists_dead_brokers
    ]
    isr = [node_id for node_id in partition.published_isr if nodes[node_id].in_metadata]
    if partition.leader < 0:
        return PartitionState(LeaderNotAvailableError.errno, partition.number, -1, seen, isr)
    if context.layout:
        return PartitionState(0, partition.number, partition.leader, replicas, isr)
    code = 0 if len(seen) == len(partition.replicas) else ReplicaNotAvailableError.errno
    return PartitionState(code, partition.number, partition.leader, seen, isr)
