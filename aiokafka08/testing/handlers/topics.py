"""CreateTopics and DeleteTopics: topics by requests to the controller (from 0.10.1 on)."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Final

from aiokafka08._core.server.work import Work, in_steps
from aiokafka08.errors import (
    InvalidPartitionsError,
    InvalidReplicationAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidTopicError,
    NoError,
    NotControllerError,
    RequestTimedOutError,
    TopicAlreadyExistsError,
    UnknownError,
    UnknownTopicOrPartitionError,
)
from aiokafka08.protocol.requests.topics import (
    CreatedTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletedTopic,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    RequestedTopic,
)
from aiokafka08.testing.handlers.metadata import MAX_CREATED_PARTITIONS
from aiokafka08.testing.handlers.outcome import (
    HandlerResult,
    Reply,
    RequestContext,
    hash_map_order,
    hash_of_name,
)
from aiokafka08.testing.state import CreationError, valid_topic_name
from aiokafka08.testing.topic_configs import check_configs

_UNSET: Final = -1
# The most characters of an error text; a string of the protocol has at most 32767 bytes.
_MAX_TEXT: Final = 8000


def create_topics(context: RequestContext, request: CreateTopicsRequest) -> Work[HandlerResult]:
    """Create the topics whose names, numbers and configs are valid; the others get an error each.

    Models: NotController at other brokers; InvalidRequest for a name that is listed twice; the
    errors and error texts of real brokers; RequestTimedOut for a topic that is created although the
    request doesn't wait (`timeout_ms` <= 0).
    Doesn't model: topic configs without an effect here (they are checked, then dropped); replicas
    on brokers that don't exist, and partitions whose numbers don't begin with 0 or have gaps
    (InvalidReplicaAssignment). `MAX_CREATED_PARTITIONS` is a limit that real clusters don't have.
    """
    counts = Counter(topic.topic for topic in request.topics)
    by_name = {topic.topic: topic for topic in request.topics}
    names = yield from hash_map_order(by_name, hash_of_name)
    repeated = ",".join(name for name in names if counts[name] > 1)
    is_controller = context.state.controller() == context.node.node_id

    def create(name: str) -> CreatedTopic:
        if not is_controller:
            return CreatedTopic(name, NotControllerError.errno)
        if counts[name] > 1:
            text = (
                f"Create topics request from client `{context.client_id}` contains multiple "
                f"entries for the following topics: {repeated}"
            )
            return CreatedTopic(name, InvalidRequestError.errno, text[:_MAX_TEXT])
        try:
            _create(context, by_name[name], only_check=request.validate_only)
        except CreationError as error:
            code = UnknownError.errno if error.code is None else error.code
            return CreatedTopic(name, code, str(error)[:_MAX_TEXT])
        waits = request.timeout_ms > 0 or request.validate_only
        return CreatedTopic(name, NoError.errno if waits else RequestTimedOutError.errno)

    created = yield from in_steps(create, names)
    # Version 0 has no field for the text.
    if not context.layout:
        for topic in created:
            topic.error_message = None
    return Reply(CreateTopicsResponse(created))


def _create(context: RequestContext, topic: RequestedTopic, *, only_check: bool) -> None:
    """Create a topic.

    Raises:
        CreationError: the topic is invalid; the text is that of a real broker.
    """
    state = context.state
    config = {entry.name: entry.value for entry in topic.configs}
    check_configs(config)
    by_number = {item.partition: item.replicas for item in topic.assignments}
    numbers = (topic.partitions, topic.replication_factor)
    if not topic.assignments:
        _check_numbers(context, *numbers)
        count = topic.partitions
    elif numbers != (_UNSET, _UNSET):
        raise CreationError(
            "Both numPartitions or replicationFactor and replicasAssignments were set. Both cannot "
            "be used at the same time.",
            InvalidRequestError.errno,
        )
    else:
        count = len(by_number)
    _check_name(context, topic.topic)
    _check_assignments(context, by_number)
    if state.partition_count + count > MAX_CREATED_PARTITIONS:
        text = f"the cluster would have more than {MAX_CREATED_PARTITIONS} partitions"
        raise CreationError(text, UnknownError.errno)
    if not only_check:
        known = {name: config[name] for name in config if name in context.line.topic_configs}
        replicas = [by_number[number] for number in sorted(by_number)]
        replicas = replicas or state.spread_replicas(*numbers)
        state.add_partitions(topic.topic, replicas, context.now_ms, known)


def _check_numbers(context: RequestContext, partitions: int, replication_factor: int) -> None:
    alive = len(context.state.alive_nodes())
    if partitions <= 0:
        raise CreationError(
            "number of partitions must be larger than 0", InvalidPartitionsError.errno
        )
    if replication_factor <= 0:
        raise CreationError(
            "replication factor must be larger than 0", InvalidReplicationFactorError.errno
        )
    if replication_factor > alive:
        raise CreationError(
            f"replication factor: {replication_factor} larger than available brokers: {alive}",
            InvalidReplicationFactorError.errno,
        )


def _check_name(context: RequestContext, name: str) -> None:
    state, longest = context.state, context.line.max_topic_name
    if not valid_topic_name(name, longest):
        wrong = (
            f"topic name {name} is illegal, contains a character other than ASCII alphanumerics, "
            "'.', '_' and '-'"
        )
        if not name:
            wrong = "topic name is illegal, can't be empty"
        elif name in (".", ".."):
            wrong = 'topic name cannot be "." or ".."'
        elif len(name) > longest:
            wrong = f"topic name is illegal, can't be longer than {longest} characters"
        raise CreationError(wrong, InvalidTopicError.errno)
    if name in state.topics:
        raise CreationError(f"Topic '{name}' already exists.", TopicAlreadyExistsError.errno)
    if others := state.colliding_topics(name):
        raise CreationError(
            f"Topic '{name}' collides with existing topics: {', '.join(others)}",
            InvalidTopicError.errno,
        )


def _check_assignments(context: RequestContext, by_number: dict[int, list[int]]) -> None:
    wrong = partial(CreationError, code=InvalidReplicationAssignmentError.errno)
    if len({len(replicas) for replicas in by_number.values()}) > 1:
        raise wrong("All partitions should have the same number of replicas")
    for replicas in by_number.values():
        if len(set(replicas)) < len(replicas):
            told = ", ".join(
                f"{number} -> ArrayBuffer({', '.join(map(str, nodes))})"
                for number, nodes in by_number.items()
            )
            raise wrong(f"Duplicate replica assignment found: Map({told})")
        if not replicas or not set(replicas) <= set(context.state.nodes):
            raise wrong(f"replicas {replicas}: embedded brokers only have {[*context.state.nodes]}")
    if sorted(by_number) != list(range(len(by_number))):
        raise wrong(f"partitions {sorted(by_number)}: an embedded topic has 0, 1, 2, …")


def delete_topics(context: RequestContext, request: DeleteTopicsRequest) -> Work[HandlerResult]:
    """Delete topics. The offsets that groups have committed for them stay, as on real brokers.

    Models: NotController at other brokers, UnknownTopicOrPartition, RequestTimedOut for a topic
    that is deleted although the request doesn't wait. The brokers behave as with
    `delete.topic.enable=true`; by default real ones delete nothing, and the request times out.
    """
    state = context.state
    is_controller = state.controller() == context.node.node_id

    def delete(name: str) -> DeletedTopic:
        if not is_controller:
            return DeletedTopic(name, NotControllerError.errno)
        if name not in state.topics:
            return DeletedTopic(name, UnknownTopicOrPartitionError.errno)
        state.delete_topic(name)
        code = NoError.errno if request.timeout_ms > 0 else RequestTimedOutError.errno
        return DeletedTopic(name, code)

    names = yield from hash_map_order(dict.fromkeys(request.topics), hash_of_name)
    return Reply(DeleteTopicsResponse((yield from in_steps(delete, names))))
